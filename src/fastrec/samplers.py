"""Samplers: choose the records of each batch, for ``ds.loader(batches=...)``.

The batches are a function of seed and epoch, so they do not depend on ranks or threads,
and a loader can resume at any batch. Each sampler raises TypeError or ValueError if an
argument is invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec.arrays.bytes import BytesArray
from fastrec.loader.order import shuffled
from fastrec.loader.plan import Batches, BatchesOf
from fastrec.options import positive_int, true_or_false
from fastrec.sources.selection import Numbers
from fastrec.transforms.pack import packed_bounds

__all__ = ["balanced", "bucket_by_length", "pack", "weighted"]


# Random streams of one seed and epoch: the order of an epoch is stream 0.
_BUCKETS_STREAM = 1 << 33
_WEIGHTED_STREAM = 1 << 34
_PACK_STREAM = 1 << 36


def balanced(
    labels: npt.ArrayLike | BytesArray, batch_size: int, *, length: int | None = None
) -> Batches:
    """Make batches that draw every class equally often.

    In every epoch, each class is drawn ``length / classes`` times, and its records
    equally often. Both counts are rounded down or up. The order of draws is shuffled.

    Parameters
    ----------
    labels : array of int, str or bytes, shape (records,)
        The class of every record of the dataset, such as ``ds.column("label")``.
    batch_size : int
        Rows in a global batch; the last batch of an epoch may have fewer.
    length : int, optional
        Draws in an epoch, by default the number of records.

    Returns
    -------
    callable
        A function to pass as ``ds.loader(batches=...)``.

    Examples
    --------
    >>> labels = ds.column("label")  # doctest: +SKIP
    >>> loader = ds.loader(batches=fr.samplers.balanced(labels, 256))  # doctest: +SKIP
    """
    if isinstance(labels, BytesArray) and len(labels):
        # NumPy's own strings lose trailing zeros.
        of_records = np.fromiter(labels.tolist(), object, len(labels))
    else:
        of_records = _array("labels", labels, "biuSUO", "integers or strings")
    _, class_of, counts = np.unique(of_records, return_inverse=True, return_counts=True)
    class_of = class_of.reshape(-1)
    return _drawn(1 / counts[class_of], batch_size, length, class_of)


def bucket_by_length(
    lengths: npt.ArrayLike,
    edges: npt.ArrayLike,
    sizes: npt.ArrayLike,
    *,
    shuffle: bool = True,
    drop_last: bool = False,
) -> Batches:
    """Make batches of records of similar length, to reduce padding.

    Bucket ``i`` holds the records with ``edges[i - 1] <= length < edges[i]``, and the last
    bucket holds all longer records. The arguments correspond to those of
    ``tf.data.Dataset.bucket_by_sequence_length``.

    Parameters
    ----------
    lengths : array of numbers, shape (records,)
        The length of every record of the dataset.
    edges : array of numbers, increasing
        The bounds between buckets.
    sizes : array of int, shape (len(edges) + 1,)
        Rows in the global batches of each bucket.
    shuffle : bool, default True
        Permute the records of each bucket, then the batches of all buckets, in each epoch.
    drop_last : bool, default False
        Drop the last batch of a bucket if the batch is not full.

    Returns
    -------
    callable
        A function to pass as ``ds.loader(batches=...)``.

    Examples
    --------
    >>> lengths = ds.column("tokens").lengths  # doctest: +SKIP
    >>> loader = ds.loader(
    ...     batches=fr.samplers.bucket_by_length(lengths, [128, 512], [64, 16, 4])
    ... )  # doctest: +SKIP
    """
    of_records = _numbers("lengths", lengths)
    bounds = _numbers("edges", edges)
    if (np.diff(bounds) <= 0).any():
        raise ValueError(f"edges must increase, got {bounds.tolist()}")
    rows = np.asarray(sizes)
    if rows.shape != (len(bounds) + 1,):
        raise ValueError(
            f"sizes must have {len(bounds) + 1} entries, 1 more than edges, got {sizes!r}"
        )
    n_rows = [positive_int("sizes", size) for size in rows]
    shuffle = true_or_false("shuffle", shuffle)
    drop_last = true_or_false("drop_last", drop_last)
    bucket_of = np.searchsorted(bounds, of_records, side="right")

    def batches(seed: int, epoch: int) -> list[Numbers]:
        made: list[Numbers] = []
        for i, size in enumerate(n_rows):
            members = np.flatnonzero(bucket_of == i).astype(np.int64)
            if shuffle:
                order = shuffled(len(members), seed, epoch, _BUCKETS_STREAM + i)
                members = members[order]
            made += [
                members[begin : begin + size]
                for begin in range(0, len(members), size)
                if not drop_last or begin + size <= len(members)
            ]
        if not shuffle:
            return made
        order = shuffled(len(made), seed, epoch, _BUCKETS_STREAM + len(n_rows))
        return [made[i] for i in order]

    return BatchesOf(len(of_records), batches)


def pack(
    lengths: npt.ArrayLike,
    length: int = 2048,
    rows: int = 8,
    *,
    window: int = 32,
    shuffle: bool = True,
    drop_last: bool = False,
    truncate: bool = False,
) -> Batches:
    """Make batches of records that `fastrec.pack_columns` joins into full rows.

    Packing is first fit: a record goes to the first open row with enough space. If no row
    has enough, a new row opens; if `window` rows were open already, the oldest closes.
    Closed rows are delivered in order, `rows` at a time. Ranks divide a batch by rows.

    Parameters
    ----------
    lengths : array of int, shape (records,)
        The number of values in every record of the dataset.
    length : int, default 2048
        Values in a row.
    rows : int, default 8
        Rows in a global batch, a multiple of the world size; the last batch of an epoch
        may have fewer.
    window : int, default 32
        Rows that are open at a time. A larger window fills rows better, but planning an
        epoch takes longer.
    shuffle : bool, default True
        Permute the records differently in every epoch, before packing.
    drop_last : bool, default False
        Drop the last batch if it has fewer than `rows` rows.
    truncate : bool, default False
        Accept records that are longer than `length`, which ``pack_columns(...,
        truncate=True)`` cuts; by default, such records raise an error.

    Returns
    -------
    callable
        A function to pass as ``ds.loader(batches=...)``.

    Examples
    --------
    >>> lengths = ds.column("tokens").lengths  # doctest: +SKIP
    >>> loader = ds.loader(
    ...     batches=fr.samplers.pack(lengths, length=2048, rows=8),
    ...     transform=fr.pack_columns(["tokens"], length=2048, rows=8),
    ... )  # doctest: +SKIP
    """
    of_records = _array("lengths", lengths, "iu", "integers").astype(np.int64)
    if of_records.min() < 0:
        raise ValueError(f"lengths must be at least 0, got {of_records.min()}")
    length = positive_int("length", length)
    n_rows = positive_int("rows", rows)
    window = positive_int("window", window)
    shuffle = true_or_false("shuffle", shuffle)
    drop_last = true_or_false("drop_last", drop_last)
    truncate = true_or_false("truncate", truncate)
    longest = int(of_records.argmax())
    if of_records[longest] > length and not truncate:
        raise ValueError(
            f"records must have at most length={length} values, but record {longest} has "
            f"{of_records[longest]}; pass truncate=True to cut it"
        )
    of_records = np.minimum(of_records, length)

    def batches(seed: int, epoch: int) -> Sequence[Numbers]:
        records = np.arange(len(of_records), dtype=np.int64)
        if shuffle:
            records = shuffled(len(records), seed, epoch, _PACK_STREAM)
        row_of = _first_fit(of_records[records].tolist(), length, window)
        by_row = np.argsort(row_of, kind="stable")
        n_full = int(row_of.max() + 1) // n_rows
        firsts = n_rows * np.arange(1, n_full + 1)
        made = np.split(records[by_row], np.searchsorted(row_of[by_row], firsts))
        return made[:-1] if drop_last or not len(made[-1]) else made

    # A row opens only for a record that does not fit in any open row, including the
    # previous row. So packed_bounds finds the same rows in the records of a batch.
    return BatchesOf(
        len(of_records),
        batches,
        lambda records: packed_bounds(of_records[records], length),
    )


def _first_fit(lengths: Sequence[int], length: int, window: int) -> Numbers:
    """Return the row number of each record; at most `window` rows are open at once."""
    rows: list[int] = []
    free: list[int] = []  # space in each open row
    first = 0  # number of the oldest open row
    for needed in lengths:
        for i, space in enumerate(free):
            if needed <= space:
                free[i] = space - needed
                break
        else:
            if len(free) == window:
                del free[0]
                first += 1
            i = len(free)
            free.append(length - needed)
        rows.append(first + i)
    return np.array(rows, np.int64)


def weighted(
    weights: npt.ArrayLike, batch_size: int, *, length: int | None = None
) -> Batches:
    """Make batches that draw each record in proportion to its weight.

    In every epoch, a record is drawn ``length * weight / sum(weights)`` times, rounded
    down or up. This is sampling with replacement, with minimal variance. The order of
    draws is shuffled.

    Parameters
    ----------
    weights : array of numbers, shape (records,)
        The weight of every record of the dataset, at least 0.
    batch_size : int
        Rows in a global batch; the last batch of an epoch may have fewer.
    length : int, optional
        Draws in an epoch, by default the number of records.

    Returns
    -------
    callable
        A function to pass as ``ds.loader(batches=...)``.

    Examples
    --------
    >>> recent = np.linspace(0.1, 1, len(ds))  # doctest: +SKIP
    >>> loader = ds.loader(batches=fr.samplers.weighted(recent, 256))  # doctest: +SKIP
    """
    shares = _numbers("weights", weights)
    if not np.isfinite(shares).all() or (shares < 0).any() or not shares.any():
        raise ValueError("weights must be finite, at least 0, and not all 0")
    return _drawn(shares / shares.max(), batch_size, length)


def _drawn(
    shares: npt.NDArray[np.float64],
    batch_size: int,
    length: int | None,
    class_of: npt.NDArray[np.intp] | None = None,
) -> Batches:
    """Make batches that draw records and classes in proportion to their shares."""
    size = positive_int("batch_size", batch_size)
    n_draws = len(shares) if length is None else positive_int("length", length)

    def batches(seed: int, epoch: int) -> list[Numbers]:
        # Systematic sampling: marks at distance 1, from a random start in [0, 1); a
        # record is drawn once for each mark in its interval. The intervals are shuffled.
        # Otherwise, neighbours exclude each other, and periodic records round alike.
        records = shuffled(len(shares), seed, epoch, _WEIGHTED_STREAM + 1)
        if class_of is not None:  # one interval for the records of each class
            records = records[np.argsort(class_of[records], kind="stable")]
        ends = np.cumsum(shares[records])
        ends = np.minimum(ends * (n_draws / ends[-1]), n_draws)
        # The last record with a nonzero weight ends the intervals, despite rounding.
        ends[np.flatnonzero(shares[records])[-1] :] = n_draws
        generator = np.random.Philox(
            key=np.array([seed, epoch], np.uint64),
            counter=np.array([0, 0, _WEIGHTED_STREAM, 0], np.uint64),
        )
        begin = np.random.Generator(generator).random()
        marks = np.minimum(begin + np.arange(n_draws), np.nextafter(n_draws, 0))
        drawn = records[np.searchsorted(ends, marks, side="right")]
        drawn = drawn[shuffled(n_draws, seed, epoch, _WEIGHTED_STREAM)]
        return [drawn[i : i + size] for i in range(0, n_draws, size)]

    return BatchesOf(len(shares), batches)


def _array(name: str, values: npt.ArrayLike, kinds: str, what: str) -> npt.NDArray[Any]:
    """Return `values` as a 1-D array, or raise an error that contains `name`."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in kinds:
        raise TypeError(
            f"{name} must be a 1-D array of {what}, got {array.ndim}-D {array.dtype}"
        )
    if not array.size:
        raise ValueError(f"{name} must not be empty")
    return array


def _numbers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    array = _array(name, values, "iuf", "numbers").astype(np.float64)
    if np.isnan(array).any():
        raise ValueError(f"{name} must not be NaN")
    return array
