"""IDX, .npy and .npz files -> columns.

An IDX file has two zero bytes, the type, the number of dimensions, the sizes (big-endian
uint32) and the values (big-endian, row by row). It may be gzipped, like MNIST.

Source: "The MNIST database of handwritten digits", section "File formats".
"""

from __future__ import annotations

import contextlib
import gzip
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrec.arrays.batch import BytesArray
from fastrec.convert.source import Columns, Source, select_columns
from fastrec.errors import CorruptionError, SchemaError
from fastrec.features.fixed import Raw
from fastrec.options import rows_per_batch
from fastrec.storage.compression import GZIP_MAGIC

__all__ = ["ArraySource"]

_IDX_DTYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}

Arrays = dict[str, NDArray[Any]]


class ArraySource(Source):
    """Arrays as columns: .npz files are concatenated, other files are joined by row.

    Arrays of .npz and gzipped files are read into memory; other files are mapped.
    """

    def __init__(
        self, kind: str, paths: Sequence[str], columns: Sequence[str] | None
    ) -> None:
        super().__init__()
        self._kind, self._columns = kind, columns
        self._groups = [[path] for path in paths] if kind == "npz" else [list(paths)]
        self._first = self._arrays(self._groups[0])
        self.features = {
            name: Raw(array.shape[1:], array.dtype.newbyteorder("="))
            for name, array in self._first.items()
            if array.ndim >= 3
        }
        if len(self._groups) == 1:
            self.n_total = len(next(iter(self._first.values())))

    def _arrays(self, paths: list[str]) -> Arrays:
        read = {"IDX": _idx_arrays, "npy": _npy_arrays, "npz": _npz_arrays}[self._kind]
        named_arrays: list[tuple[str, NDArray[Any]]] = []
        for path in paths:
            with _corruption_errors(path):
                for name, array in read(path, self._columns):
                    _check(path, name, array)
                    named_arrays += _fields(name, array)
        arrays = select_columns(self._columns, named_arrays)
        lengths = {name: len(array) for name, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"columns must have the same length, got {lengths} in {', '.join(paths)}; "
                "select some of them with columns= (--columns)"
            )
        return arrays

    def _batches(self) -> Iterator[Columns]:
        expected = _layout(self._first)
        for i, paths in enumerate(self._groups):
            arrays = self._first if i == 0 else self._arrays(paths)
            if (layout := _layout(arrays)) != expected:
                raise ValueError(
                    f"files must have the same columns, got {layout} in {paths[0]} and "
                    f"{expected} in {self._groups[0][0]}"
                )
            row_bytes = sum(
                a.itemsize * math.prod(a.shape[1:]) for a in arrays.values()
            )
            n_rows = rows_per_batch(row_bytes)
            for first in range(0, len(next(iter(arrays.values()))), n_rows):
                rows = slice(first, first + n_rows)
                yield {name: _column(array[rows]) for name, array in arrays.items()}


@contextlib.contextmanager
def _corruption_errors(path: str) -> Iterator[None]:
    """Convert errors of NumPy and of decompression to a CorruptionError."""
    try:
        yield
    except (CorruptionError, SchemaError):
        raise
    except (ValueError, EOFError, RuntimeError) as error:  # of NumPy and zipfile
        raise CorruptionError(f"cannot read the array: {error}", path) from error
    except (gzip.BadGzipFile, zlib.error, zipfile.BadZipFile) as error:
        raise CorruptionError(f"cannot decompress the array: {error}", path) from error


def _check(path: str, name: str, array: NDArray[Any]) -> None:
    """Raise a SchemaError for a scalar, or a dtype that no feature can store."""
    if not array.ndim:
        reason = f"{name!r} must have at least one dimension, got a single value"
        raise SchemaError(reason, path, feature=name)
    if array.ndim < 3 and array.dtype.kind in "cmM":
        hint = '.view("float64")' if array.dtype.kind == "c" else '.astype("int64")'
        reason = f"no feature can store {name!r} of dtype {array.dtype}: save it {hint}"
        raise SchemaError(reason, path, feature=name)


def _fields(name: str, array: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield an array with its name, or the fields of a structured array."""
    if array.dtype.names is None:
        yield name, array
    for field in array.dtype.names or ():
        yield from _fields(f"{name}/{field}" if name else field, array[field])


def _layout(arrays: Arrays) -> dict[str, str]:
    """Return dtypes and row shapes as text, to compare files."""
    return {name: f"{a.dtype}{list(a.shape[1:])}" for name, a in arrays.items()}


def _column(block: NDArray[Any]) -> Any:  # noqa: ANN401
    if block.ndim >= 3 or block.dtype.kind in "biuf":
        return np.ascontiguousarray(block, block.dtype.newbyteorder("="))
    return BytesArray.from_list(block.tolist())


# For each kind of file, yield names and arrays, at least those in `columns`.


def _idx_arrays(
    path: str, _columns: Sequence[str] | None
) -> Iterator[tuple[str, NDArray[Any]]]:
    data: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
    if data[:2].tobytes() == GZIP_MAGIC:
        with gzip.open(path) as file:
            data = np.frombuffer(file.read(), np.uint8)
    magic = data[:4].tobytes()
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_DTYPES:
        reason = f"not an IDX file: it begins with the bytes {magic.hex(' ')}"
        raise CorruptionError(reason, path)
    begin = 4 + 4 * magic[3]
    shape = tuple(data[4:begin].view(">u4").tolist())
    dtype = np.dtype(_IDX_DTYPES[magic[2]])
    size = begin + dtype.itemsize * math.prod(shape)
    if not shape or size != len(data):
        reason = (
            f"an IDX file of shape {shape} must have {size:,} bytes, got {len(data):,}"
        )
        raise CorruptionError(reason, path)
    column = next((c for c in ("label", "image") if c in Path(path).name.lower()), None)
    yield (
        column or ("label" if len(shape) == 1 else "image"),
        data[begin:].view(dtype).reshape(shape),
    )


def _npy_arrays(
    path: str, _columns: Sequence[str] | None
) -> Iterator[tuple[str, NDArray[Any]]]:
    array = np.lib.format.open_memmap(path, mode="r")
    end, size = array.offset + array.nbytes, Path(path).stat().st_size
    if end != size:
        reason = f"an array of shape {array.shape} ends at byte {end:,} of {size:,}"
        raise CorruptionError(reason, path)
    yield "" if array.dtype.names else Path(path).stem, array


def _npz_arrays(
    path: str, columns: Sequence[str] | None
) -> Iterator[tuple[str, NDArray[Any]]]:
    with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
        for name in archive.files:
            is_selected = columns is None or any(
                f"{column}/".startswith(f"{name}/") for column in columns
            )
            # Other arrays are not read; the error of a missing column lists their names.
            yield name, np.asarray(archive[name]) if is_selected else np.zeros(0)
