"""Samplers: the batches of an epoch, for ``ds.loader(batches=...)``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastrec.loader.order import Batches, BatchesOf, shuffled
from fastrec.options import positive_int, true_or_false
from fastrec.sources.selection import Numbers

__all__ = ["bucket_by_length", "weighted"]


def __dir__() -> list[str]:
    return __all__


# Random streams of one seed and epoch: the order of an epoch is stream 0.
_BUCKETS_STREAM = 1 << 33
_WEIGHTED_STREAM = 1 << 34


def bucket_by_length(
    lengths: npt.ArrayLike,
    edges: npt.ArrayLike,
    sizes: npt.ArrayLike,
    *,
    shuffle: bool = True,
    drop_last: bool = False,
) -> Batches:
    """Make batches of records of similar length, so that little is padded.

    Bucket ``i`` holds the records whose length is below ``edges[i]`` and not below
    ``edges[i - 1]``, the last bucket the rest; its batches have ``sizes[i]`` rows. The
    arguments are those of ``tf.data.Dataset.bucket_by_sequence_length``.

    Parameters
    ----------
    lengths : array of numbers, shape (records,)
        Of every record of the dataset.
    edges : array of numbers, increasing
    sizes : array of int, shape (len(edges) + 1,)
        Rows in the global batches of each bucket.
    shuffle : bool, default True
        Permute the records of each bucket, and the batches of all buckets, differently in
        every epoch.
    drop_last : bool, default False
        Leave out the last batch of a bucket if it is not full.

    Returns
    -------
    callable
        For ``ds.loader(batches=...)``.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.

    Examples
    --------
    >>> lengths = ds.select_columns(["tokens"])[:]["tokens"].lengths  # doctest: +SKIP
    >>> loader = ds.loader(
    ...     batches=fr.samplers.bucket_by_length(lengths, [128, 512], [64, 16, 4])
    ... )  # doctest: +SKIP
    """
    of_records = _numbers("lengths", lengths)
    bounds = _numbers("edges", edges)
    if (np.diff(bounds) <= 0).any():
        msg = f"edges must increase: {bounds.tolist()}"
        raise ValueError(msg)
    rows = np.asarray(sizes)
    if rows.shape != (len(bounds) + 1,):
        msg = (
            f"sizes must have {len(bounds) + 1} entries, one more than edges: {sizes!r}"
        )
        raise ValueError(msg)
    n_rows = [positive_int("sizes", size) for size in rows]
    shuffle = true_or_false("shuffle", shuffle)
    drop_last = true_or_false("drop_last", drop_last)
    bucket_of = np.searchsorted(bounds, of_records, side="right")

    def batches(seed: int, epoch: int) -> list[Numbers]:
        made: list[Numbers] = []
        for i, size in enumerate(n_rows):
            members = np.flatnonzero(bucket_of == i).astype(np.int64)
            if shuffle:
                members = members[
                    shuffled(
                        len(members), seed=seed, epoch=epoch, stream=_BUCKETS_STREAM + i
                    )
                ]
            made += [
                members[begin : begin + size]
                for begin in range(0, len(members), size)
                if not drop_last or begin + size <= len(members)
            ]
        if not shuffle:
            return made
        order = shuffled(
            len(made), seed=seed, epoch=epoch, stream=_BUCKETS_STREAM + len(n_rows)
        )
        return [made[i] for i in order]

    return BatchesOf(len(of_records), batches)


def weighted(
    weights: npt.ArrayLike, batch_size: int, *, length: int | None = None
) -> Batches:
    """Make batches that hold each record in proportion to its weight.

    In every epoch, a record is drawn ``length * weight / sum(weights)`` times, rounded
    down or up: sampling with replacement, with the least variance. Draws come in a
    shuffled order.

    Parameters
    ----------
    weights : array of numbers, shape (records,)
        At least 0, of every record of the dataset.
    batch_size : int
        Rows in a global batch; the last one of an epoch may have fewer.
    length : int, optional
        Draws in an epoch; by default as many as there are records.

    Returns
    -------
    callable
        For ``ds.loader(batches=...)``.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.

    Examples
    --------
    >>> labels = ds.select_columns(["label"])[:]["label"]  # doctest: +SKIP
    >>> balanced = fr.samplers.weighted(
    ...     1 / np.bincount(labels)[labels], 256
    ... )  # doctest: +SKIP
    >>> loader = ds.loader(batches=balanced)  # doctest: +SKIP
    """
    shares = _numbers("weights", weights)
    if not np.isfinite(shares).all() or (shares < 0).any() or not shares.any():
        msg = "weights must be finite, at least 0, and not all 0"
        raise ValueError(msg)
    size = positive_int("batch_size", batch_size)
    n_draws = len(shares) if length is None else positive_int("length", length)
    shares = shares / shares.max()

    def batches(seed: int, epoch: int) -> list[Numbers]:
        # Systematic sampling: marks at distance 1, from a random start in [0, 1); a
        # record is drawn once for each mark in its interval. The intervals are shuffled,
        # or neighbours would exclude each other, and periodic records be rounded alike.
        records = shuffled(
            len(shares), seed=seed, epoch=epoch, stream=_WEIGHTED_STREAM + 1
        )
        ends = np.cumsum(shares[records])
        ends = np.minimum(ends * (n_draws / ends[-1]), n_draws)
        # Despite rounding, the last record that has a weight ends the intervals.
        ends[np.flatnonzero(shares[records])[-1] :] = n_draws
        generator = np.random.Philox(
            key=np.array([seed, epoch], np.uint64),
            counter=np.array([0, 0, _WEIGHTED_STREAM, 0], np.uint64),
        )
        begin = np.random.Generator(generator).random()
        marks = np.minimum(begin + np.arange(n_draws), np.nextafter(n_draws, 0))
        drawn = records[np.searchsorted(ends, marks, side="right")]
        drawn = drawn[
            shuffled(n_draws, seed=seed, epoch=epoch, stream=_WEIGHTED_STREAM)
        ]
        return [drawn[i : i + size] for i in range(0, n_draws, size)]

    return BatchesOf(len(shares), batches)


def _numbers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    array = np.asarray(values)
    if not array.size:
        msg = f"{name} must not be empty"
        raise ValueError(msg)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        msg = f"{name} must be a 1-D array of numbers, got {array.ndim}-D {array.dtype}"
        raise TypeError(msg)
    if np.isnan(array).any():
        msg = f"{name} must not be NaN"
        raise ValueError(msg)
    return array.astype(np.float64)
