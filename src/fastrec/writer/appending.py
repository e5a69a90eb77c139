"""Appending: find where the intact records of a file end."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastrec import _core
from fastrec.errors import CorruptionError
from fastrec.printable import printable
from fastrec.storage.index import make_indexes

_log = logging.getLogger("fastrec")

# The damage that a crash leaves at the end of a file. After any other damage, intact
# records may follow.
_CRASH_CODES = ("truncated_header", "truncated_record", "trailing_zeros")


def end_of_records(path: str, stale: Sequence[int] = ()) -> NDArray[np.uint64]:
    """Return the offset of each frame of a file, and the offset to append at.

    Ignores a truncated record at the end. Raises a CorruptionError if the file has any
    other damage or is not a plain TFRecord file.
    """
    try:
        (index,) = make_indexes([path], stale=stale)
    except CorruptionError:
        # With "skip", one error describes the rest of the file, which may be all zeros.
        (index,) = make_indexes([path], recovery="skip")
        (gap,) = index.gaps
        begin, error = gap.begin, gap.error
        is_text = begin == 0 and _core.recognize(os.fsencode(path)) == "text"
        if is_text or error.code not in _CRASH_CODES:
            raise
        offsets = index.offsets[:-1]
        offsets = np.append(offsets[offsets < begin], np.uint64(begin))
        _log.warning(
            "%s: truncating %d bytes of an incomplete record at the end (%s)",
            *(printable(path), os.path.getsize(path) - begin, error.reason),
        )
    else:
        offsets = index.offsets
    if n_records := len(offsets) - 1:
        # A crash may have lost the payload of the last record.
        files = _core.FileTable(os.fsencode(path), ["pread"])
        last = np.array([n_records - 1], np.int64)
        try:
            _core.verify_records(files, _core.Catalog(_core.Indexes([index])), last)
        except CorruptionError as error:
            if error.code == "index_mismatch" and not stale:
                return end_of_records(path, stale=[0])
            raise
    return offsets
