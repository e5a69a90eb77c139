"""Columns as parts that can be kept: arrays of fixed rows, and runs of items.

A column has levels, from its rows to its values, and a part for each array that a level
needs. If a part has splits, row ``i`` is ``values[splits[i]:splits[i + 1]]``, otherwise
``values[i]``.

==========================  ===========================================================
level                       part
==========================  ===========================================================
SparseArray                 runs of indices
RaggedArray                 the number of items in each row, unless it is the first level
BytesArray ``(n, *shape)``  the length of each string, unless it is the first level and
                            its shape is ``(n,)``
ndarray                     the values
==========================  ===========================================================
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import BytesArray, RaggedArray, SparseArray
from fastrec.arrays.layout import offsets_from

_Splits = npt.NDArray[np.int64]


class Part(NamedTuple):
    """One array of a column; its rows are runs of values if it has splits."""

    values: npt.NDArray[Any]
    splits: _Splits | None = None


class Divided(NamedTuple):
    """The levels of a column, as JSON, and its parts."""

    levels: list[Any]
    parts: list[Part]


def divided(column: Any) -> Divided:
    """Return the levels and parts of a column; raise a TypeError if it has others."""
    levels: list[Any] = []
    parts: list[Part] = []
    splits: _Splits | None = None  # group the rows of `column` into runs
    while not isinstance(column, np.ndarray):
        if isinstance(column, SparseArray):
            levels.append(["sparse", [*column.dense_shape[1:]]])
            rows = np.arange(len(column) + 1)
            splits = np.searchsorted(column.indices[:, 0], rows).astype(np.int64)
            parts.append(Part(column.indices[:, 1:], splits))
            column = column.values
            continue
        shape: tuple[int, ...] = ()
        values: Any
        if isinstance(column, BytesArray):
            shape = column.shape[1:]
            levels.append(["bytes", [*shape]])
            offsets, values = column.offsets, column.data
        elif isinstance(column, RaggedArray):
            levels.append(["ragged", column.row_splits.dtype.name])
            offsets, values = np.asarray(column.row_splits, np.int64), column.values
        else:
            raise _unsupported(type(column).__name__)
        rows = np.arange(len(column) + 1) if splits is None else splits
        if shape or splits is not None:
            lengths = np.diff(offsets).reshape(len(column), *shape)
            parts.append(Part(lengths, splits))
        splits, column = offsets[rows * math.prod(shape)], values
    if column.dtype.hasobject or not column.ndim:
        raise _unsupported(f"{column.dtype} array")
    return Divided(levels, [*parts, Part(column, splits)])


def _unsupported(kind: str) -> TypeError:
    return TypeError(
        f"must be an array of numbers or an array of fastrec to be kept, got {kind}"
    )


def composed(
    levels: list[Any], parts: list[Part], splits: _Splits | None = None
) -> Any:
    """Compose a column from its levels and parts; `splits` group its rows into runs."""
    (first, *others) = parts
    if not levels:
        return first.values
    (kind, given), *inner = levels
    if kind == "sparse":
        splits = first.splits
        assert splits is not None
        n = len(splits) - 1
        rows = np.repeat(np.arange(n), np.diff(splits))
        values = composed(inner, others, splits)
        indices = np.column_stack([rows, first.values])
        return SparseArray._wrap(indices, values, (n, *given))
    shape: tuple[int, ...]
    if splits is not None or (kind == "bytes" and given):
        shape, offsets = first.values.shape, offsets_from(first.values.ravel())
        parts = others
    else:
        assert first.splits is not None
        shape, offsets = (len(first.splits) - 1,), first.splits
    values = composed(inner, parts, offsets)
    if kind == "bytes":
        return BytesArray._wrap(values, offsets, shape)
    return RaggedArray._wrap(values, offsets.astype(given, copy=False))
