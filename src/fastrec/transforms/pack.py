"""Packing: join variable-length rows into rows of one length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch
from fastrec.arrays.layout import run_positions
from fastrec.arrays.ragged import RaggedArray
from fastrec.hints import no_column
from fastrec.options import positive_int, true_or_false
from fastrec.transforms.batch_info import BatchInfo


def packed_bounds(lengths: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """Fill rows in order; begin another one when the next value does not fit.

    Row ``i`` holds ``lengths[bounds[i]:bounds[i + 1]]``, whose sum is at most `length`.
    No single one of `lengths` may exceed it.
    """
    ends = np.cumsum(lengths)
    bounds, used = [0], 0
    while bounds[-1] < len(ends):
        bounds.append(int(np.searchsorted(ends, used + length, side="right")))
        used = int(ends[bounds[-1] - 1])
    return np.array(bounds, np.int64)


def pack_columns(
    columns: Sequence[str],
    length: int,
    *,
    rows: int | None = None,
    truncate: bool = False,
) -> Callable[[Batch, BatchInfo], Batch]:
    """Make a transform that joins the rows of ragged columns into rows of one length.

    Records fill a row in their order; a record that does not fit begins the next row.
    With ``batches=fr.samplers.pack(...)`` of the same `length`, these are the rows that
    the sampler planned. Records are not divided.

    A batch then has these columns only, for each of `columns`:

    * ``{name}``: the values, shape ``(rows, length, *inner)``, zero where there is none,
    * ``{name}_segment_ids``: int32 of shape ``(rows, length)``: 1 for the first record of
      the row, 2 for the second, and so on; 0 where there is no value,
    * ``{name}_positions``: int32 of shape ``(rows, length)``: the index of the value in
      its record, from 0.

    The names are those of Grain, T5X and Flax.

    Parameters
    ----------
    columns : sequence of str
        RaggedArrays of numbers, such as those of `fastrec.VarLen`. All must have the same
        number of values in each record.
    length : int
        Values in a row.
    rows : int, optional
        Rows in every batch of this rank: missing rows are added, with segment ids of 0.
        By default as many as the records need.
    truncate : bool, default False
        Truncate records that are longer than `length`; by default they are an error.

    Returns
    -------
    callable
        For ``ds.loader(transform=...)``. It raises ValueError, and names the record, if a
        record is longer than `length`, if columns differ in length, or if a batch needs
        more than `rows` rows.

    Examples
    --------
    >>> loader = ds.loader(
    ...     batches=fr.samplers.pack(lengths, length=2048, rows=8),
    ...     transform=fr.pack_columns(["tokens"], length=2048, rows=8),
    ... )  # doctest: +SKIP
    """
    return _PackColumns(columns, length, rows=rows, truncate=truncate)


class _PackColumns:
    """The transform of `pack_columns`; a class, so that loaders can be pickled."""

    def __init__(
        self,
        columns: Sequence[str],
        length: int,
        *,
        rows: int | None,
        truncate: bool,
    ) -> None:
        if isinstance(columns, (str, bytes)) or not columns:
            raise TypeError(f"columns must be a list of column names, got {columns!r}")
        self._names = list(columns)
        self._length = positive_int("length", length)
        self._rows = None if rows is None else positive_int("rows", rows)
        self._truncate = true_or_false("truncate", truncate)

    def __call__(self, batch: Batch, info: BatchInfo) -> Batch:
        """Return the packed columns of `batch`."""
        columns = {name: _ragged(batch, name) for name in self._names}
        first = columns[self._names[0]].lengths
        for name, column in columns.items():
            other = np.flatnonzero(column.lengths != first)
            if other.size:
                i = int(other[0])
                raise ValueError(
                    f"columns must have the same number of values in each record, but "
                    f"{self._names[0]!r} of record {info.records[i]} has {first[i]} and "
                    f"{name!r} has {column.lengths[i]}"
                )
        lengths = self._checked_lengths(first, info)
        bounds = packed_bounds(lengths, self._length)
        n_rows = len(bounds) - 1
        if self._rows is not None and n_rows > self._rows:
            raise ValueError(
                f"the batch needs {n_rows} rows of {self._length} values, more than "
                f"rows={self._rows}; pass the lengths of {self._names[0]!r} to "
                "fr.samplers.pack, and its rows divided by the world size as rows"
            )
        shape = (n_rows if self._rows is None else self._rows, self._length)

        # The place of each value in the rows, which lie one after another.
        row = np.repeat(np.arange(n_rows), np.diff(bounds))
        starts = np.cumsum(lengths) - lengths
        starts += row * self._length - starts[bounds[row]]
        places = run_positions(starts, lengths)
        in_record = run_positions(np.zeros_like(lengths), lengths)
        segment = np.repeat(np.arange(len(lengths)) - bounds[row] + 1, lengths)

        packed: Batch = {}
        for name, column in columns.items():
            values = column.values
            if not np.array_equal(lengths, first):
                values = values[run_positions(column.row_splits[:-1], lengths)]
            packed[name] = _scattered(values, places, shape)
            segment_ids = _scattered(segment.astype(np.int32), places, shape)
            packed[f"{name}_segment_ids"] = segment_ids
            positions = _scattered(in_record.astype(np.int32), places, shape)
            packed[f"{name}_positions"] = positions
        return packed

    def _checked_lengths(
        self, lengths: npt.NDArray[np.int64], info: BatchInfo
    ) -> npt.NDArray[np.int64]:
        too_long = np.flatnonzero(lengths > self._length)
        if not too_long.size:
            return lengths
        if not self._truncate:
            i = int(too_long[0])
            raise ValueError(
                f"records must have at most length={self._length} values, but "
                f"{self._names[0]!r} of record {info.records[i]} has {lengths[i]}; pass "
                "truncate=True to cut it"
            )
        return np.minimum(lengths, self._length)


def _ragged(batch: Batch, name: str) -> RaggedArray:
    if name not in batch:
        raise KeyError(no_column(name, batch, "the batch"))
    column = batch[name]
    if not isinstance(column, RaggedArray) or not isinstance(column.values, np.ndarray):
        raise TypeError(
            f"column {name!r} must be a RaggedArray of numbers to be packed, got "
            f"{type(column).__name__}; read it with fr.VarLen(dtype)"
        )
    return column


def _scattered(
    values: Any,
    places: npt.NDArray[np.int64],
    shape: tuple[int, int],
) -> npt.NDArray[Any]:
    """Return an array of `shape` with `values` at `places`, and zeros elsewhere."""
    flat = np.zeros((shape[0] * shape[1], *values.shape[1:]), values.dtype)
    flat[places] = values
    return flat.reshape(*shape, *values.shape[1:])
