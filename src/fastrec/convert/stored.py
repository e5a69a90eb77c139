"""Arrays as files have them, one value behind the other after a header -> columns.

That is what IDX, .npy and .npz have in common. Rows are read some at a time, and memory
never follows what a header promises, only what is there.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fastrec as fr
from fastrec.convert.source import Columns, Source, chosen
from fastrec.options import rows_per_batch
from fastrec.printable import printable

__all__ = ["ArraySource", "StoredArray", "read_up_to", "reading"]

_PIECE_BYTES = 16 << 20

# What columns of one or two dimensions cannot be, and the cure.
_CURES = {
    "c": 'view it as floats, with .view("float64")',
    "g": 'convert it, with .astype("float64")',
    "M": 'convert it, with .astype("int64")',
    "m": 'convert it, with .astype("int64")',
}


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Say of damage that a library finds which file has it.

    Raises
    ------
    CorruptionError
        In place of the library's error.
    """
    try:
        yield
    except EOFError:
        reason = "the file is cut short: its compressed part has no end"
        raise fr.CorruptionError(reason, path) from None
    except (gzip.BadGzipFile, zlib.error, zipfile.BadZipFile) as error:
        raise fr.CorruptionError(str(error), path) from error


def read_up_to(file: IO[bytes], n_bytes: int) -> bytearray:
    """Return the next bytes of a file, fewer only at its end."""
    data = bytearray()
    while len(data) < n_bytes:
        piece = file.read(min(n_bytes - len(data), _PIECE_BYTES))
        if not piece:
            break
        data += piece
    return data


@dataclass(frozen=True)
class StoredArray:
    """An array in a file.

    Parameters
    ----------
    path : str
        The file, for errors.
    name : str
        The column, or what stands before the names of fields; "" for those alone.
    dtype : dtype
        As the file has it, its byte order included. No Python objects.
    shape : tuple of int
        At least one dimension; the first counts the rows.
    open_values : callable
        Returns a stream that stands at the first value.
    is_fortran : bool
        The values are in column-major order.
    """

    path: str
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    open_values: Callable[[], IO[bytes]]
    is_fortran: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    def blocks(self, n_rows: int) -> Iterator[NDArray[Any]]:
        """Yield the array in blocks of at most `n_rows` rows.

        Raises
        ------
        CorruptionError
            If the file ends before the array does, or goes on behind it.
        """
        with reading(self.path), self.open_values() as file:
            if self.is_fortran:  # the values of a row lie scattered over the whole
                whole = self._block(file, self.shape[0])
                for first in range(0, len(whole), n_rows):
                    yield np.ascontiguousarray(whole[first : first + n_rows])
            else:
                for first in range(0, self.shape[0], n_rows):
                    yield self._block(file, min(n_rows, self.shape[0] - first))
            if file.read(1):
                reason = f"there are bytes behind the array of shape {self.shape}"
                raise fr.CorruptionError(reason, self.path)

    def _block(self, file: IO[bytes], n_rows: int) -> NDArray[Any]:
        shape = (n_rows, *self.shape[1:])
        data = read_up_to(file, n_rows * self.row_bytes)
        if len(data) < n_rows * self.row_bytes:
            reason = f"the file ends within its array of shape {self.shape}"
            raise fr.CorruptionError(reason, self.path)
        block = np.frombuffer(data, self.dtype, math.prod(shape))
        return block.reshape(shape, order="F" if self.is_fortran else "C")


class _Field(NamedTuple):
    """A column of a stored array: the whole of it, or a field of its structure."""

    array: StoredArray
    path: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of a row

    def of(self, block: NDArray[Any]) -> NDArray[Any]:
        for name in self.path:
            block = block[name]
        return block


class ArraySource(Source):
    """Stored arrays as columns.

    Parameters
    ----------
    groups : sequence of sequences of StoredArray
        The arrays of a group lie side by side; groups follow one another.
    columns : sequence of str, optional
        Which of them, in this order.

    Raises
    ------
    ValueError
        If arrays of a group differ in their number of rows or share a name, or groups
        in their columns.
    SchemaError
        If a dtype cannot be written.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[StoredArray]],
        columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._groups = [_fields_of(group, columns) for group in groups]
        first = self._groups[0]
        for fields in self._groups[1:]:
            _check_equal(first, fields)
        self.features = {
            name: fr.Raw(field.shape, field.dtype.newbyteorder("="))
            for name, field in first.items()
            if len(field.shape) >= 2
        }
        self.n_total = sum(_n_rows(fields) for fields in self._groups)

    def _batches(self) -> Iterator[Columns]:
        for fields in self._groups:
            arrays = list({id(f.array): f.array for f in fields.values()}.values())
            n_rows = rows_per_batch(sum(array.row_bytes for array in arrays))
            # Zipped strictly, so that every array is asked what comes behind its end.
            for blocks in zip(*(array.blocks(n_rows) for array in arrays), strict=True):
                block_of = dict(zip(map(id, arrays), blocks, strict=True))
                yield {
                    name: _column(field.of(block_of[id(field.array)]))
                    for name, field in fields.items()
                }
                self.n_done += len(blocks[0])


def _fields_of(
    group: Sequence[StoredArray], columns: Sequence[str] | None
) -> dict[str, _Field]:
    there = [pair for array in group for pair in _expanded(array)]
    fields = chosen(columns, there)
    if not fields:
        raise ValueError(f"there is no column in {group[0].path}")
    first = next(iter(fields.values())).array
    for name, field in fields.items():
        n_rows, n_first = field.array.shape[0], first.shape[0]
        if n_rows != n_first:
            raise ValueError(
                f"{_where(field.array)} has {n_rows:,} rows and {_where(first)} "
                f"{n_first:,}: columns must have one length; choose some of them with "
                "columns= (--column)"
            )
        _check_dtype(name, field)
    return fields


def _where(array: StoredArray) -> str:
    path = printable(array.path)
    return f"{array.name!r} of {path}" if array.name else path


def _n_rows(fields: dict[str, _Field]) -> int:
    return next(iter(fields.values())).array.shape[0]


def _expanded(array: StoredArray) -> Iterator[tuple[str, _Field]]:
    """Yield the columns of an array: itself, or the fields of its structure."""

    def fields_in(
        dtype: np.dtype[Any], path: tuple[str, ...], shape: tuple[int, ...]
    ) -> Iterator[_Field]:
        if dtype.subdtype is not None:
            inner, sizes = dtype.subdtype
            yield from fields_in(inner, path, (*shape, *sizes))
        elif dtype.names is None:
            yield _Field(array, path, dtype, shape)
        else:
            for name in dtype.names:
                yield from fields_in(dtype[name], (*path, name), shape)

    for field in fields_in(array.dtype, (), array.shape[1:]):
        yield "/".join(filter(None, (array.name, *field.path))), field


def _check_dtype(name: str, field: _Field) -> None:
    dtype, path = field.dtype, field.array.path
    kind = "g" if dtype.char in "gG" else dtype.kind
    if kind in _CURES and len(field.shape) < 2:
        reason = f"column {name!r} is of dtype {dtype}, which no feature holds"
        raise fr.SchemaError(f"{reason}: {_CURES[kind]}", path, feature=name)


def _check_equal(first: dict[str, _Field], fields: dict[str, _Field]) -> None:
    """Refuse files whose columns are not those of the first."""
    one = {name: (field.dtype, field.shape) for name, field in first.items()}
    other = {name: (field.dtype, field.shape) for name, field in fields.items()}
    for name in {**one, **other}:
        if one.get(name) != other.get(name):
            path = next(iter(fields.values())).array.path
            path_of_first = next(iter(first.values())).array.path
            raise ValueError(
                f"column {name!r} is {_said(other.get(name))} in {printable(path)} and "
                f"{_said(one.get(name))} in {printable(path_of_first)}"
            )


def _said(column: tuple[np.dtype[Any], tuple[int, ...]] | None) -> str:
    if column is None:
        return "missing"
    dtype, shape = column
    return f"{dtype} of shape {shape} in each row" if shape else str(dtype)


def _column(block: NDArray[Any]) -> Any:  # noqa: ANN401
    """Return rows of an array as a column: numbers as the machine has them."""
    if block.ndim >= 3 or block.dtype.kind in "biuf":
        native = block.dtype.newbyteorder("=")
        return np.ascontiguousarray(block, native)
    if block.dtype.kind == "V":  # memory of one size
        lengths = np.full(block.size, block.dtype.itemsize)
        data = np.frombuffer(block.tobytes(), np.uint8)
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return fr.BytesArray(data, offsets, block.shape)
    return fr.BytesArray.from_list(block.tolist())  # S or U
