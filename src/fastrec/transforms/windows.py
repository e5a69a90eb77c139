"""Windows: gather the windows of a batch's rows from the lists of their records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch, BytesArray, RaggedArray
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
    lengths: _Indices

    @classmethod
    def of(cls, batch: Mapping[Any, Any], name: Any) -> _Lists:
        """Return the lists in a column of a batch of records."""
        column = batch[name]
        if not isinstance(column, RaggedArray):
            column = rows_of_one_length(column)
        begins: _Indices = np.asarray(column.row_splits, np.int64)[:-1]
        if (extents := batch.get(extents_of(name))) is None:
            return cls(column.values, begins, column.lengths)
        return cls(column.values, begins - extents[:, 0], extents[:, 1])


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
        at = self._checked(lists, info, info._decoded)
        rows: dict[Any, Any] = {}
        for name in self._steps.schema:
            if name in lists:
                rows |= self._window(name, lists[name], at, info.steps[:, 1])
            elif name in columns:  # otherwise a mask
                rows[name] = columns[name][at]
        return rows

    def _checked(
        self, lists: Mapping[Any, _Lists], info: BatchInfo, at: _Indices
    ) -> _Indices:
        """Return the row of each row's record, after checking the records' steps.

        The record of a failed row is the empty one, which is last.
        """
        if not lists:
            return at
        (first, *others) = lists
        lengths = lists[first].lengths
        assert info.steps is not None
        found, expected = lengths[at], self._counts[info.steps[:, 0]]
        is_wrong = found != expected
        if is_wrong.any():
            is_wrong = self._steps.rows_of(found) != self._steps.rows_of(expected)
        for name in others:
            is_wrong |= (lists[name].lengths != lengths)[at]
        failed = np.flatnonzero(is_wrong & (info.positions >= 0)).tolist()
        if not failed:
            return at
        errors = {row: _error(lists, info, row, int(at[row])) for row in failed}
        if info._failed is None:
            raise errors[failed[0]]
        info._failed.extend(errors.items())
        at = at.copy()
        at[failed] = len(lengths) - 1
        return at

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


def _items(values: Any, index: _Indices, is_item: npt.NDArray[np.bool_]) -> Any:
    """Return ``values[index]``, with zeros or empty strings where `is_item` is False."""
    shape = (*index.shape, *values.shape[1:])
    is_whole = bool(is_item.all())
    if isinstance(values, BytesArray):
        if not is_whole:
            index = np.where(is_item, index, len(values))
            ends = np.repeat(values.offsets[-1:], math.prod(values.shape[1:]))
            values = BytesArray._wrap(
                values.data,
                np.append(values.offsets, ends),
                (len(values) + 1, *values.shape[1:]),
            )
        return reshaped(values[index.reshape(-1)], shape)
    if not len(values):
        return np.zeros(shape, values.dtype)
    if not is_whole:
        index = np.where(is_item, index, 0)
    items = np.take(values, index, axis=0)
    if not is_whole:
        items[~is_item] = 0
    return items


def _error(lists: Mapping[Any, _Lists], info: BatchInfo, row: int, at: int) -> Error:
    """Return the error of a row whose record does not have the expected steps."""
    (first, n_first), *others = [
        (name, int(column.lengths[at])) for name, column in lists.items()
    ]
    path, record, begin = None, row, None
    if info._places is not None:
        file, record, begin, _ = info._places.numbers[row].tolist()
        path = info._places.files[file]
    for name, n in others:
        if n != n_first:
            return SchemaError(
                f"columns of windows must have the same number of steps, got {n_first} "
                f"in {first!r} and {n} in {name!r}",
                *(path, record, begin),
                code="n_steps",
            )
    return CorruptionError(
        f"the record has {n_first} steps, which is not the number that it had when steps "
        "were counted; open the dataset again",
        *(path, record, begin),
        code="file_changed",
    )
