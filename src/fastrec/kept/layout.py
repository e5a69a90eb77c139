"""Columns as parts that can be kept: arrays of fixed rows, and runs of items.

A column of any type is a sequence of parts. A part has one array of values. If it has
splits, row ``i`` is ``values[splits[i]:splits[i + 1]]``, otherwise ``values[i]``.

==============================  =======================================================
ndarray                         the array
BytesArray ``(n,)``             runs of bytes
BytesArray ``(n, *shape)``      lengths of the strings, and runs of bytes
RaggedArray of a column         the parts of its values, in runs
RaggedArray of a RaggedArray    runs of lengths, and the parts of the inner values
SparseArray                     runs of indices, and the parts of its values
==============================  =======================================================
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import BytesArray, RaggedArray, SparseArray
from fastrec.arrays.layout import offsets_from
from fastrec.features.base import numpy_dtype

_SMALL_ROW_BYTES = 4096

_Splits = npt.NDArray[np.int64]


class Part(NamedTuple):
    """One array of a column; its rows are runs of values if it has splits."""

    values: npt.NDArray[Any]
    splits: _Splits | None


@dataclass(frozen=True)
class PartType:
    """The type of a part: the dtype and shape of a row, or of an item of a run."""

    dtype: str
    shape: tuple[int, ...]
    is_run: bool

    @functools.cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype as an object of NumPy."""
        return numpy_dtype(self.dtype)

    @functools.cached_property
    def n_bytes(self) -> int:
        """The size of a row, or of an item of a run."""
        return math.prod(self.shape) * self.numpy_dtype.itemsize

    @property
    def is_small(self) -> bool:
        """Whether it has fixed rows that are too small to be written one by one."""
        return not self.is_run and self.n_bytes <= _SMALL_ROW_BYTES


def parts_of(column: Any, splits: _Splits | None = None) -> Iterator[Part]:
    """Yield the parts of a column; `splits` groups its rows into runs."""
    if isinstance(column, BytesArray):
        begin, end = int(column.offsets[0]), int(column.offsets[-1])
        offsets = column.offsets - begin
        per_row = math.prod(column.shape[1:])
        if column.ndim > 1 or splits is not None:
            yield Part(np.diff(offsets).reshape(column.shape), splits)
        rows = np.arange(len(column) + 1) if splits is None else splits
        yield Part(column.data[begin:end], offsets[rows * per_row])
    elif isinstance(column, RaggedArray):
        inner = np.asarray(column.row_splits, np.int64)
        if splits is not None:
            yield Part(np.diff(inner), splits)
            inner = inner[splits]
        yield from parts_of(column.values, inner)
    elif isinstance(column, SparseArray):
        rows = np.arange(len(column) + 1)
        of_rows = np.searchsorted(column.indices[:, 0], rows).astype(np.int64)
        yield Part(column.indices[:, 1:], of_rows)
        yield from parts_of(column.values, of_rows)
    else:
        yield Part(column, splits)


def type_of(column: Any) -> list[Any]:
    """Return the type of a column as JSON; raise a TypeError if it cannot be kept."""
    if isinstance(column, BytesArray):
        return ["bytes", [*column.shape[1:]]]
    if isinstance(column, RaggedArray):
        return ["ragged", column.row_splits.dtype.name, type_of(column.values)]
    if isinstance(column, SparseArray):
        return ["sparse", [*column.dense_shape[1:]], type_of(column.values)]
    if not isinstance(column, np.ndarray) or column.dtype.hasobject or not column.ndim:
        kind = type(column).__name__
        text = f"{column.dtype} array" if isinstance(column, np.ndarray) else kind
        raise TypeError(
            f"must be an array of numbers or an array of fastrec to be kept, got {text}"
        )
    return ["array", column.dtype.name, [*column.shape[1:]]]


def part_types(kind: list[Any], *, is_run: bool = False) -> Iterator[PartType]:
    """Yield the types of the parts of a column of type `kind`."""
    name, *rest = kind
    if name == "bytes":
        if rest[0] or is_run:
            yield PartType("int64", tuple(rest[0]), is_run)
        yield PartType("uint8", (), True)
    elif name == "ragged":
        if is_run:
            yield PartType("int64", (), True)
        yield from part_types(rest[1], is_run=True)
    elif name == "sparse":
        yield PartType("int64", (len(rest[0]),), True)
        yield from part_types(rest[1], is_run=True)
    else:
        yield PartType(rest[0], tuple(rest[1]), is_run)


def column_of(
    kind: list[Any], parts: Iterator[Part], splits: _Splits | None = None
) -> Any:
    """Compose a column of type `kind` from its parts; `splits` as in `parts_of`."""
    name, *rest = kind
    if name == "bytes":
        lengths = next(parts).values if rest[0] or splits is not None else None
        data, offsets = next(parts)
        assert offsets is not None
        if lengths is None:
            return BytesArray._wrap(data, offsets, (len(offsets) - 1,))
        return BytesArray._wrap(data, offsets_from(lengths.ravel()), lengths.shape)
    if name == "ragged":
        if splits is None:
            parts, inner = _first_splits(parts)
        else:
            inner = offsets_from(next(parts).values)
        values = column_of(rest[1], parts, inner)
        return RaggedArray._wrap(values, inner.astype(rest[0], copy=False))
    if name == "sparse":
        parts, of_rows = _first_splits(parts)
        indices = next(parts).values
        rows = np.repeat(np.arange(len(of_rows) - 1), np.diff(of_rows))
        values = column_of(rest[1], parts, of_rows)
        indices = np.column_stack([rows, indices])
        return SparseArray._wrap(indices, values, (len(of_rows) - 1, *rest[0]))
    return next(parts).values


def _first_splits(parts: Iterator[Part]) -> tuple[Iterator[Part], _Splits]:
    """Return the parts, and the splits of the first one."""
    first = next(parts)
    assert first.splits is not None
    return itertools.chain([first], parts), first.splits
