"""Appending: where the records of a file end, and whether it can go on there."""

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

# Errors at the end of a file whose writer or machine stopped in the middle. Any other
# damage may have sound records behind it.
_TORN = ("truncated_header", "truncated_record", "trailing_zeros")


def end_of_records(path: str) -> NDArray[np.uint64]:
    """Return where each frame of a file begins, and where the next one is to begin.

    A record at the end that is only there in part is not counted.

    Raises
    ------
    CorruptionError
        If the file is damaged in any other way, or is no plain TFRecord file.
    OSError
        If it cannot be read.
    """
    try:
        (index,) = make_indexes([path])
    except CorruptionError:
        # What is wrong with the rest as a whole: it may be zeros to the end.
        (index,) = make_indexes([path], recovery="skip")
        ((begin, _, error),) = index.gaps
        is_text = begin == 0 and _core.recognize(os.fsencode(path)) == "text"
        if is_text or error.code not in _TORN:
            raise
        offsets = index.offsets[:-1]
        offsets = np.append(offsets[offsets < begin], np.uint64(begin))
        _log.warning(
            "%s: %d bytes at the end are no whole record (%s), and are cut off",
            *(printable(path), os.path.getsize(path) - begin, error.reason),  # noqa: PTH202
        )
    else:
        offsets = index.offsets
    n_records = len(offsets) - 1
    if n_records:
        # What was written last is what may not have reached the disk.
        files = _core.FileTable([os.fsencode(path)], ["pread"])
        last = np.array([n_records - 1], np.int64)
        _core.verify_records(files, _core.Catalog([index]), last)
    return offsets
