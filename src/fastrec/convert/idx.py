"""IDX files, as MNIST and Fashion-MNIST come -> stored arrays.

::

    0        0     the first two bytes of every file
    8 .. 14        the type of the values
    n              the number of dimensions
    u32 x n        their sizes, the largest step first
    values         row by row; these and the sizes are big-endian

Files may be gzipped, as they are offered for download.

Source: "The MNIST database of handwritten digits", section "File formats".
"""

from __future__ import annotations

import gzip
import math
import re
from pathlib import Path
from typing import IO, cast

import numpy as np

import fastrec as fr
from fastrec.convert.stored import StoredArray, read_up_to, reading
from fastrec.storage.compression import GZIP_MAGIC

__all__ = ["DTYPES", "idx_array", "looks_like_idx"]

DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def looks_like_idx(path: str) -> bool:
    """Tell whether a file is an IDX file, by its name or else by its first bytes."""
    if re.search(r"[-._]idx\d+(-\w+)?(\.gz)?$", Path(path).name.lower()):
        return True
    with Path(path).open("rb") as file:
        magic = file.read(4)
    return len(magic) == 4 and magic[:2] == b"\0\0" and magic[2] in DTYPES


def idx_array(path: str) -> StoredArray:
    """Return the array of an IDX file, as the column "label" or "image".

    The name of the file says which; if it does not, an array of one dimension is a label.

    Raises
    ------
    CorruptionError
        If the file is no IDX file, or its size is not what its header says.
    OSError
        If it cannot be read.
    """
    with reading(path), _opened(path) as file:
        magic = read_up_to(file, 4)
        if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in DTYPES:
            reason = f"an IDX file cannot begin with the bytes {bytes(magic).hex(' ')}"
            raise fr.CorruptionError(reason, path)
        header = read_up_to(file, 4 * magic[3])
    if len(header) < 4 * magic[3] or not header:
        reason = f"the file ends within its header of {magic[3]} dimensions"
        raise fr.CorruptionError(reason, path)
    shape = tuple(np.frombuffer(header, ">u4").tolist())
    dtype = np.dtype(DTYPES[magic[2]])
    size = 4 + len(header) + dtype.itemsize * math.prod(shape)
    found = Path(path).stat().st_size
    if found != size and not _is_gzipped(path):
        reason = f"an IDX file of shape {shape} has {size:,} bytes, not {found:,}"
        raise fr.CorruptionError(reason, path)

    def open_values() -> IO[bytes]:
        file = _opened(path)
        file.seek(4 + len(header))
        return file

    return StoredArray(path, _column_name(path, len(shape)), dtype, shape, open_values)


def _opened(path: str) -> IO[bytes]:
    if _is_gzipped(path):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return Path(path).open("rb")


def _is_gzipped(path: str) -> bool:
    with Path(path).open("rb") as file:
        return file.read(2) == GZIP_MAGIC


def _column_name(path: str, n_dimensions: int) -> str:
    name = Path(path).name.lower()
    for column in ("label", "image"):
        if column in name:
            return column
    return "label" if n_dimensions == 1 else "image"
