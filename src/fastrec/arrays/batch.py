"""Batches: dicts of columns with equal numbers of rows.

A column is a `numpy.ndarray`, a `BytesArray`, a `RaggedArray` or a `SparseArray`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastrec import _core
from fastrec.arrays.bytes import BytesArray
from fastrec.arrays.layout import describe_rows, offsets_from
from fastrec.arrays.ragged import Array as RowValues
from fastrec.arrays.ragged import RaggedArray
from fastrec.arrays.sparse import SparseArray

__all__ = ["BytesArray", "RaggedArray", "RowValues", "SparseArray"]

Array: TypeAlias = RowValues | SparseArray

# Columns by name. Any covers the other array classes and the results of transforms.
# Arithmetic on columns type-checks without `isinstance`.
Batch: TypeAlias = dict[str, NDArray[Any] | Any]
Row: TypeAlias = dict[str, Any]


def n_rows(batch: Batch) -> int:
    """Return the number of rows of a batch."""
    return next((len(c) for c in batch.values() if getattr(c, "shape", ())), 0)


def row_of(batch: Batch, i: int) -> Row:
    """Return a copy of row `i` of a batch, as a dict with a short repr."""
    return _core.BatchRows(batch).row(i)


def rows_of(batch: Batch) -> Iterator[Row]:
    """Return an iterator over copies of the rows of a batch."""
    return map(_core.BatchRows(batch).row, range(n_rows(batch)))


def value_of(column: Any, i: int) -> Any:
    """Return a copy of row `i` of a column that the core does not read itself."""
    value = column[i]
    arrays = (np.ndarray, BytesArray, RaggedArray, SparseArray)
    return copy.copy(value) if isinstance(value, arrays) else value


def take_rows(
    batch: Mapping[str, Array],
    index: slice | Sequence[SupportsIndex] | NDArray[Any],
) -> Batch:
    """Select the same rows of every column of a batch.

    Parameters
    ----------
    batch : mapping of str to Array
        Columns with the same number of rows.
    index : slice, 1-D integer array, or 1-D bool mask
        The rows to select, like an index for one axis of an ndarray.

    Returns
    -------
    dict of str to Array
        The columns in the same order. A slice with step 1 shares memory; other indices
        copy.

    Raises
    ------
    IndexError
        If an index is out of bounds, or a mask has the wrong length.
    TypeError
        If `index` is neither a slice nor a 1-D array of integers or bool.
    ValueError
        If the columns differ in length.

    Examples
    --------
    >>> batch = {"x": np.arange(3), "name": BytesArray.from_list(["a", "b", "c"])}
    >>> take_rows(batch, batch["x"] > 0)["name"].tolist()
    [b'b', b'c']
    """
    if not isinstance(index, slice):
        rows = np.asarray(index)
        if rows.size == 0 and rows.dtype.kind == "f":  # an empty list
            rows = rows.astype(np.intp)
        if rows.ndim != 1 or rows.dtype.kind not in "iub":
            raise TypeError(
                "index must be a slice, or a 1-D array of integers or bool, got "
                f"{rows.ndim}-D {rows.dtype}"
            )
        index = rows
    lengths = {name: len(column) for name, column in batch.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must have equal lengths, got {lengths}")
    selected: Batch = {}
    for name, column in batch.items():
        try:
            selected[name] = column[index]
        except IndexError as error:
            raise IndexError(f"column {name!r}: {error}") from None
    return selected


def concat_batches(batches: Sequence[Mapping[str, Array]]) -> Batch:
    """Concatenate batches with the same columns.

    Parameters
    ----------
    batches : sequence of mapping of str to Array
        At least one. Columns with the same name must have the same kind, dtype and
        inner shape; columns are not converted or padded.

    Returns
    -------
    dict of str to Array
        New arrays, in the column order of the first batch.

    Raises
    ------
    ValueError
        If there are no batches, or their columns do not match.

    Examples
    --------
    >>> batch = {"tags": RaggedArray.from_list([[1, 2], [3]])}
    >>> concat_batches([batch, batch])["tags"].tolist()
    [[1, 2], [3], [1, 2], [3]]
    """
    batches = list(batches)
    if not batches:
        message = "concat_batches() requires at least one batch, got none"
        raise ValueError(message)
    for i in range(1, len(batches)):
        for a, b in ((0, i), (i, 0)):
            for name in batches[a]:
                if name not in batches[b]:
                    raise ValueError(
                        f"column {name!r} is in batch {a} but not in batch {b}"
                    )
    result: Batch = {}
    for name in batches[0]:
        try:
            result[name] = concat_columns([batch[name] for batch in batches])
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None
    return result


def concat_columns(arrays: Sequence[Any]) -> Any:
    """Concatenate columns; raise a ValueError if their row types differ."""
    kinds = list(map(describe_rows, arrays))
    for i, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ValueError(f"rows are {kinds[0]} in batch 0 and {kind} in batch {i}")
    first = arrays[0]
    if isinstance(first, BytesArray):
        return BytesArray._concatenate(arrays)
    if isinstance(first, np.ndarray):
        return np.concatenate(arrays, dtype=first.dtype)
    values = concat_columns([array.values for array in arrays])
    if isinstance(first, RaggedArray):
        offsets = offsets_from(np.concatenate([array.lengths for array in arrays]))
        return RaggedArray._wrap(values, first._splits(offsets))
    indices = np.concatenate([array.indices for array in arrays])
    n_before = np.cumsum([0, *map(len, arrays)])
    indices[:, 0] += np.repeat(n_before[:-1], [len(array.values) for array in arrays])
    return SparseArray._wrap(indices, values, (int(n_before[-1]), *first.shape[1:]))
