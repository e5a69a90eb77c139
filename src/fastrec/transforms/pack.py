"""Packing: join variable-length records into rows of equal length."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch
from fastrec.arrays.layout import run_positions
from fastrec.arrays.ragged import RaggedArray
from fastrec.hints import no_column
from fastrec.options import positive_int, true_or_false
from fastrec.transforms.batch_info import BatchInfo


def packed_bounds(lengths: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """Return the bounds of packed rows; a record that does not fit begins a new row.

    Row ``i`` holds ``lengths[bounds[i]:bounds[i + 1]]``, whose sum is at most `length`.
    Each value of `lengths` must be at most `length`.
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
    """Make a transform that packs variable-length records into rows of equal length.

    Records fill a row in order; a record that does not fit begins the next row. With
    ``batches=fr.samplers.pack(...)`` and the same `length`, the rows equal those that the
    sampler planned. A record is never split across rows.

    The packed batch has only these columns, for each name in `columns`:

    * ``{name}``: the values, shape ``(rows, length, *inner)``; 0 where there is no value,
    * ``{name}_segment_ids``: int32 of shape ``(rows, length)``: 1 for the first record of
      the row, 2 for the second, and so on; 0 where there is no value,
    * ``{name}_positions``: int32 of shape ``(rows, length)``: the index of the value in
      its record, from 0.

    The names are those of Grain, T5X and Flax.

    Parameters
    ----------
    columns : sequence of str
        Names of RaggedArrays of numbers, such as `fastrec.VarLen` columns. In each record,
        all columns must have the same number of values.
    length : int
        Values in a row.
    rows : int, optional
        Rows in every batch of this rank: missing rows are added, with segment ids of 0.
        By default, the number of rows that the records need.
    truncate : bool, default False
        Truncate records that are longer than `length`; by default, they raise an error.

    Returns
    -------
    callable
        A transform for ``ds.loader(transform=...)``. It raises ValueError if a record is
        longer than `length`, if the columns of a record differ in length, or if a batch
        needs more than `rows` rows.

    Examples
    --------
    >>> loader = ds.loader(
    ...     batches=fr.samplers.pack(lengths, length=2048, rows=8),
    ...     transform=fr.pack_columns(["tokens"], length=2048, rows=8),
    ... )  # doctest: +SKIP
    """
    if isinstance(columns, (str, bytes)) or not columns:
        raise TypeError(f"columns must be a list of column names, got {columns!r}")
    return functools.partial(
        _packed,
        names=list(columns),
        length=positive_int("length", length),
        fixed_rows=None if rows is None else positive_int("rows", rows),
        truncate=true_or_false("truncate", truncate),
    )


def _packed(
    batch: Batch,
    info: BatchInfo,
    *,
    names: list[str],
    length: int,
    fixed_rows: int | None,
    truncate: bool,
) -> Batch:
    """Return the packed columns of `batch`."""
    columns = {name: _ragged(batch, name) for name in names}
    first = columns[names[0]].lengths
    for name, column in columns.items():
        other = np.flatnonzero(column.lengths != first)
        if other.size:
            i = int(other[0])
            raise ValueError(
                f"columns must have the same number of values in each record, but "
                f"{names[0]!r} of record {info.records[i]} has {first[i]} and "
                f"{name!r} has {column.lengths[i]}"
            )
    if not truncate and (first > length).any():
        i = int(np.flatnonzero(first > length)[0])
        raise ValueError(
            f"records must have at most length={length} values, but {names[0]!r} of "
            f"record {info.records[i]} has {first[i]}; pass truncate=True to cut it"
        )
    lengths = np.minimum(first, length)
    bounds = packed_bounds(lengths, length)
    n_rows = len(bounds) - 1
    if fixed_rows is not None and n_rows > fixed_rows:
        raise ValueError(
            f"the batch needs {n_rows} rows of {length} values, more than "
            f"rows={fixed_rows}; pass the lengths of {names[0]!r} to fr.samplers.pack, "
            "and its rows divided by the world size as rows"
        )
    shape = (n_rows if fixed_rows is None else fixed_rows, length)

    # The position of each value in the concatenated rows.
    row = np.repeat(np.arange(n_rows), np.diff(bounds))
    starts = np.cumsum(lengths) - lengths
    starts += row * length - starts[bounds[row]]
    places = run_positions(starts, lengths)
    in_record = run_positions(np.zeros_like(lengths), lengths)
    segment = np.repeat(np.arange(len(lengths)) - bounds[row] + 1, lengths)

    packed: Batch = {}
    for name, column in columns.items():
        values = column.values
        if not np.array_equal(lengths, first):
            values = values[run_positions(column.row_splits[:-1], lengths)]
        parts = {
            name: values,
            f"{name}_segment_ids": segment.astype(np.int32),
            f"{name}_positions": in_record.astype(np.int32),
        }
        for part, data in parts.items():  # zero where there is no value
            flat = np.zeros((shape[0] * length, *data.shape[1:]), data.dtype)
            flat[places] = data
            packed[part] = flat.reshape(*shape, *data.shape[1:])
    return packed


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
