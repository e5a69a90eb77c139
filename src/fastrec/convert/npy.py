"""NumPy's own files, .npy and .npz -> stored arrays.

Arrays of Python objects are refused: reading them would run code of the file.
"""

from __future__ import annotations

import dataclasses
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

import fastrec as fr
from fastrec.convert.stored import StoredArray, read_up_to, reading

__all__ = ["npy_array", "npz_arrays"]

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def npy_array(path: str) -> StoredArray:
    """Return the array of an .npy file, as a column of the name of the file.

    Fields of a structured array are columns of their own names.

    Raises
    ------
    CorruptionError
        If the file is no .npy file, or its size is not what its header says.
    SchemaError
        If it holds Python objects, or a single value.
    OSError
        If it cannot be read.
    """

    def open_file() -> IO[bytes]:
        return Path(path).open("rb")

    array = _array(path, Path(path).stem, open_file)
    if array.dtype.names is not None:
        return dataclasses.replace(array, name="")
    return array


def npz_arrays(path: str) -> list[StoredArray]:
    """Return the arrays of an .npz file.

    Raises
    ------
    CorruptionError, SchemaError, OSError
        As `npy_array`.
    """
    with reading(path), zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if not name.endswith("/")]
    if not members:
        reason = "there is no array in it"
        raise fr.CorruptionError(reason, path)

    def opener(member: str) -> Callable[[], IO[bytes]]:
        def open_member() -> IO[bytes]:
            # A stream keeps the archive open for itself.
            with zipfile.ZipFile(path) as archive:
                try:
                    return archive.open(member)
                except (NotImplementedError, RuntimeError) as error:
                    reason = f"{member} cannot be read: {error}"
                    raise fr.CorruptionError(reason, path) from error

        return open_member

    return [_array(path, name.removesuffix(".npy"), opener(name)) for name in members]


def _array(path: str, name: str, open_file: Callable[[], IO[bytes]]) -> StoredArray:
    with reading(path), open_file() as file:
        try:
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:
                msg = f"version {version} is not known; names must be Latin-1"
                raise ValueError(msg)
            shape, is_fortran, dtype = _HEADERS[version](file)
        except ValueError as error:
            reason = f"{name!r} is no array of NumPy's: {error}"
            raise fr.CorruptionError(reason, path) from error
        begin = file.tell()
        size = begin + dtype.itemsize * math.prod(shape)
        found = file.seek(0, 2) if not isinstance(file, zipfile.ZipExtFile) else size
    if dtype.hasobject:
        reason = f"{name!r} is an array of Python objects: save numbers or strings"
        raise fr.SchemaError(reason, path, feature=name)
    if not shape:
        reason = f"{name!r} is a single value and has no rows"
        raise fr.SchemaError(reason, path, feature=name)
    if found != size:
        reason = f"{name!r} of shape {shape} has {size:,} bytes, not {found:,}"
        raise fr.CorruptionError(reason, path)

    def open_values() -> IO[bytes]:
        file = open_file()
        with reading(path):
            read_up_to(file, begin)  # a seek would turn off the checksum of an archive
        return file

    return StoredArray(path, name, dtype, shape, open_values, is_fortran)
