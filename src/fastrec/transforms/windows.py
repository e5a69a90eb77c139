"""Windows: gather the windows of a batch's rows from the lists of their records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch, BytesArray, RaggedArray, SparseArray
from fastrec.arrays.bytes import reshaped
from fastrec.errors import CorruptionError, Error, SchemaError
from fastrec.features.fixed import rows_of_one_length
from fastrec.features.schema import extents_of
from fastrec.features.steps import Steps, mask_of
from fastrec.transforms.batch_info import BatchInfo

_Indices = npt.NDArray[np.int64]


class _Lists(NamedTuple):
    """The lists of records, of which only some items were read."""

    values: Any  # the items that were read, of all records
    begins: _Indices  # where the first item would be in `values`
    lengths: _Indices  # of the lists; here and in `begins`, an empty list follows

    @classmethod
    def of(cls, batch: Mapping[Any, Any], name: Any) -> _Lists:
        """Return the lists in a column of a batch of records."""
        column = batch[name]
        if not isinstance(column, RaggedArray):
            column = rows_of_one_length(column)
        begins: _Indices = np.asarray(column.row_splits, np.int64)[:-1]
        lengths = column.lengths
        if (extents := batch.get(extents_of(name))) is not None:
            begins, lengths = begins - extents[:, 0], extents[:, 1]
        return cls(column.values, np.append(begins, 0), np.append(lengths, 0))


class Windows:
    """A transform from the columns of records to the columns of their steps.

    ``info.steps`` has the record and the step of each row, and ``info._decoded`` the
    row of the record in the batch that is passed.
    """

    name = ""  # errors contain their location

    def __init__(self, steps: Steps, counts: npt.NDArray[np.int32]) -> None:
        self._steps = steps
        self._counts = counts  # of all records in all files

    def __call__(self, batch: Batch, info: BatchInfo) -> Batch:
        """Return the rows of `info`; their records are rows of `batch`."""
        assert info.steps is not None
        assert info._decoded is not None
        columns: Mapping[Any, Any] = batch
        lists = {name: _Lists.of(columns, name) for name in self._steps.windows}
        is_row = self._check(lists, info)
        n_records = len(next(iter(columns.values())))
        at = np.where(is_row, info._decoded, n_records)
        rows: dict[Any, Any] = {}
        for name in self._steps.schema._column_names():
            if name in lists:
                rows |= self._window(name, lists[name], at, info.steps[:, 1])
            elif name in columns:  # otherwise a mask
                column = columns[name] if is_row.all() else _extended(columns[name])
                rows[name] = column[at]
        return rows

    def _check(
        self, lists: Mapping[Any, _Lists], info: BatchInfo
    ) -> npt.NDArray[np.bool_]:
        """Check the numbers of steps; return False for failed rows and padding."""
        is_row: npt.NDArray[np.bool_] = info.positions >= 0
        if not lists:
            return is_row
        (first, *others) = lists
        lengths = lists[first].lengths
        assert info.steps is not None
        assert info._decoded is not None
        at = info._decoded
        found, expected = lengths[at], self._counts[info.steps[:, 0]]
        is_wrong = found != expected
        if is_wrong.any():
            is_wrong = self._steps.rows_of(found) != self._steps.rows_of(expected)
        for name in others:
            is_wrong |= (lists[name].lengths != lengths)[at]
        is_wrong &= is_row
        for row in np.flatnonzero(is_wrong).tolist():
            error = _error(lists, info, row, int(expected[row]))
            if info._failed is None:
                raise error
            info._failed.append((row, error))
        is_row &= ~is_wrong
        return is_row

    def _window(
        self, name: Any, lists: _Lists, at: _Indices, row_steps: _Indices
    ) -> dict[Any, Any]:
        """Return the window of each row, and its mask."""
        offsets = self._steps.windows[name]
        within = row_steps[:, np.newaxis] + np.atleast_1d(offsets)
        last = lists.lengths[at, np.newaxis] - 1  # -1 in an empty list
        nearest = np.minimum(np.maximum(within, 0), last)
        is_item = nearest >= 0
        if self._steps.edge == "zero":
            is_item &= nearest == within
        window = _items(lists.values, lists.begins[at, np.newaxis] + nearest, is_item)
        if isinstance(offsets, int):
            window, is_item = window[:, 0], is_item[:, 0]
        if self._steps.edge != "zero":
            return {name: window}
        return {name: window, mask_of(name): is_item}


def _extended(column: Any) -> Any:
    """Return a column with one more row, which is zero or empty."""
    n = len(column)
    if isinstance(column, RaggedArray):
        splits = np.asarray(column.row_splits)
        return RaggedArray._wrap(column.values, np.append(splits, splits[-1:]))
    if isinstance(column, SparseArray):
        shape = (n + 1, *column.shape[1:])
        return SparseArray._wrap(column.indices, column.values, shape)
    if isinstance(column, BytesArray):
        ends = np.repeat(column.offsets[-1:], math.prod(column.shape[1:]))
        offsets = np.append(column.offsets, ends)
        return BytesArray._wrap(column.data, offsets, (n + 1, *column.shape[1:]))
    empty = np.full((1, *column.shape[1:]), None if column.dtype.hasobject else 0)
    return np.concatenate([column, empty.astype(column.dtype)])


def _items(values: Any, index: _Indices, is_item: npt.NDArray[np.bool_]) -> Any:
    """Return ``values[index]``, with zeros or empty strings where `is_item` is False."""
    shape = (*index.shape, *values.shape[1:])
    is_whole = bool(is_item.all())
    if isinstance(values, BytesArray):
        if not is_whole:
            index = np.where(is_item, index, len(values))
            values = _extended(values)
        return reshaped(values[index.reshape(-1)], shape)
    if not len(values):
        return np.zeros(shape, values.dtype)
    if not is_whole:
        index = np.where(is_item, index, 0)
    items = np.take(values, index, axis=0)
    if not is_whole:
        items[~is_item] = 0
    return items


def _error(
    lists: Mapping[Any, _Lists], info: BatchInfo, row: int, n_expected: int
) -> Error:
    """Return the error of a row whose record does not have the expected steps."""
    assert info._decoded is not None
    at = info._decoded[row]
    (first, n_first), *others = [
        (name, int(column.lengths[at])) for name, column in lists.items()
    ]
    for name, n in others:
        if n != n_first:
            return SchemaError(
                f"columns of windows must have the same number of steps, got {n_first} "
                f"in {first!r} and {n} in {name!r}",
                *info._place_of(row),
                code="n_steps",
            )
    return CorruptionError(
        f"the record must have {max(n_expected, 0)} steps, as were counted, got {n_first} "
        f"in {first!r}: its lists differ, or the file changed; open the dataset again",
        *info._place_of(row),
        code="file_changed",
    )
