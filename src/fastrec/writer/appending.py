"""Appending: where the records of a file end, and whether more may follow there."""

from __future__ import annotations

import logging
import os

import numpy as np
from numpy.typing import NDArray

from fastrec import _core
from fastrec.errors import CorruptionError
from fastrec.printable import printable
from fastrec.storage.index import make_indexes

__all__ = ["end_of_records"]

_log = logging.getLogger("fastrec")

# Errors at the end of a file whose writer or machine stopped in the middle. After any
# other damage, sound records may follow.
_TORN = ("truncated_header", "truncated_record", "trailing_zeros")


def end_of_records(path: str) -> NDArray[np.uint64]:
    """Return the byte where each frame of a file begins, and where the next is to begin.

    A torn record at the end is not counted. Raises a CorruptionError if the file is
    damaged in any other way or is not a plain TFRecord file.
    """
    try:
        (index,) = make_indexes([path])
    except CorruptionError:
        # Judge the rest as a whole: it may be zeros to the end.
        (index,) = make_indexes([path], recovery="skip")
        (gap,) = index.gaps
        begin, error = gap.begin, gap.error
        is_text = begin == 0 and _core.recognize(os.fsencode(path)) == "text"
        if is_text or error.code not in _TORN:
            raise
        offsets = index.offsets[:-1]
        offsets = np.append(offsets[offsets < begin], np.uint64(begin))
        _log.warning(
            "%s: cutting off %d bytes at the end that are not a whole record (%s)",
            *(printable(path), os.path.getsize(path) - begin, error.reason),  # noqa: PTH202
        )
    else:
        offsets = index.offsets
    if n_records := len(offsets) - 1:
        # What was written last may not have reached the disk.
        files = _core.FileTable([os.fsencode(path)], ["pread"])
        last = np.array([n_records - 1], np.int64)
        _core.verify_records(files, _core.Catalog([index]), last)
    return offsets
