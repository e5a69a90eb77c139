"""NumberSummary: statistics of numbers, accumulated batch by batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec.cli.sketches import Distinct, Sample, SmallestHashes, hashed
from fastrec.cli.statistics import Common, Distribution, Histogram

__all__ = [
    "QUANTILES",
    "Hashes",
    "Lengths",
    "NumberSummary",
    "Numbers",
    "Rows",
    "most_common",
]

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_MAX_RANGE = 65_536  # of integers that are counted one by one
_N_BINS = 20
_N_COMMON = 10
_MIN_SAMPLED = 10  # of a common value in a sample

Lengths = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


class Rows:
    """The rows of a batch: their hashes, by which samples choose them."""

    def __init__(self, first: int, n_rows: int, smallest: SmallestHashes) -> None:
        self.hashes = hashed(np.arange(first, first + n_rows, dtype=np.uint64))
        smallest.add(self.hashes)
        self._limit = smallest.limit  # no column needs a row above it
        self._chosen: dict[int, tuple[Hashes, Lengths]] = {}  # for several columns

    def __len__(self) -> int:
        return len(self.hashes)

    def sampled(
        self, n_each: int | Lengths, limit: np.uint64
    ) -> tuple[Hashes, Lengths]:
        """Return the rows of the values to sample, by their hashes, and their places."""
        limit = min(limit, self._limit)
        found = self._chosen.get(int(limit))
        if found is None:
            places = np.flatnonzero(self.hashes <= limit)
            found = self._chosen[int(limit)] = self.hashes[places], places
        hashes, places = found
        if isinstance(n_each, int):
            if n_each == 1:
                return found
            begins, counts = places * n_each, np.full(len(places), n_each)
        else:
            begins, counts = (np.cumsum(n_each) - n_each)[places], n_each[places]
        ends = np.cumsum(counts)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(
            ends - counts, counts
        )
        return np.repeat(hashes, counts), np.repeat(begins, counts) + within


@dataclass
class Numbers:
    """The summary of the numbers of one batch."""

    n_values: int
    n_nan: int
    n_infinite: int
    n_finite: int
    minimum: Any
    maximum: Any
    mean: float
    squares: float  # sum of squared differences from the mean
    counts: tuple[int, npt.NDArray[np.int64]] | None  # of integers from the first on
    hashes: Hashes | None  # of small hashes, instead of counts
    sample: tuple[Hashes, npt.NDArray[np.generic]]


class NumberSummary:
    """Accumulates numbers. `of_batch` may run in other threads than `add`."""

    def __init__(self) -> None:
        self._n_values = self._n_nan = self._n_infinite = self._n_finite = 0
        self._minimum: Any = None
        self._maximum: Any = None
        self._mean = self._squares = 0.0
        # The first integer, and the counts from it on; None if the range is too large.
        self._counts: tuple[int, npt.NDArray[np.int64]] | None = None
        self._is_counted = True
        self._distinct = Distinct()
        self._sample = Sample()

    def of_batch(
        self, values: npt.NDArray[Any], rows: Rows, n_each: int | Lengths
    ) -> Numbers:
        """Summarize the values of a batch."""
        n_values = len(values)
        of_sample, places = rows.sampled(n_each, self._sample.limit)
        sample = of_sample, values[places]
        n_nan = n_infinite = 0
        finite = values
        numbers = values.astype(np.float64)
        with np.errstate(invalid="ignore"):  # of infinities
            total = numbers.sum()
        if not np.isfinite(total):
            n_nan = int(np.count_nonzero(np.isnan(values)))
            n_infinite = int(np.count_nonzero(np.isinf(values)))
            finite = values[np.isfinite(values)]
            numbers = finite.astype(np.float64)
            total = numbers.sum()
        n_finite = len(finite)
        minimum: Any = None
        maximum: Any = None
        mean = squares = 0.0
        if n_finite:
            minimum, maximum = finite.min().item(), finite.max().item()
            mean = float(total) / n_finite
            numbers -= mean
            squares = float(np.einsum("i,i", numbers, numbers))  # np.dot starts threads
        counts = hashes = None
        if values.dtype == np.int64 and n_values and maximum - minimum < _MAX_RANGE:
            counts = minimum, np.bincount(values - minimum)
        elif n_values:
            hashes = self._distinct.smallest(values)
        return Numbers(
            n_values,
            n_nan,
            n_infinite,
            n_finite,
            minimum,
            maximum,
            mean,
            squares,
            counts,
            hashes,
            sample,
        )

    def add(self, batch: Numbers) -> None:
        """Add the summary of a batch."""
        self._n_values += batch.n_values
        self._n_nan += batch.n_nan
        self._n_infinite += batch.n_infinite
        self._sample.add(*batch.sample)
        self._add_counts(batch)
        if not batch.n_finite:
            return
        if self._minimum is None or batch.minimum < self._minimum:
            self._minimum = batch.minimum
        if self._maximum is None or batch.maximum > self._maximum:
            self._maximum = batch.maximum
        # Chan, Golub and LeVeque: the variance of a union.
        n_before, self._n_finite = self._n_finite, self._n_finite + batch.n_finite
        difference = batch.mean - self._mean
        self._mean += difference * (batch.n_finite / self._n_finite)
        self._squares += batch.squares
        self._squares += difference**2 * n_before * (batch.n_finite / self._n_finite)

    def _add_counts(self, batch: Numbers) -> None:
        if not batch.n_values:
            return
        if self._is_counted and batch.counts is not None:
            if self._counts is None:
                self._counts = batch.counts
                return
            first = min(self._counts[0], batch.counts[0])
            end = max(
                begin + len(counts) for begin, counts in (self._counts, batch.counts)
            )
            if end - first <= _MAX_RANGE:
                total = np.zeros(end - first, np.int64)
                for begin, counts in (self._counts, batch.counts):
                    total[begin - first : begin - first + len(counts)] += counts
                self._counts = first, total
                return
        if self._is_counted:  # from now on, the range is too large
            self._is_counted = False
            if self._counts is not None:
                self._distinct.add_counted(*self._counts)
                self._counts = None
        if batch.counts is not None:
            self._distinct.add_counted(*batch.counts)
        elif batch.hashes is not None:
            self._distinct.add(batch.hashes)

    # Results.

    def distribution(self) -> Distribution:
        """Return the distribution of all numbers."""
        quantiles: dict[float, float] = {}
        histogram = None
        values, weights, is_exact = self._weighted
        if self._n_finite and len(values):
            quantiles = dict(zip(QUANTILES, _quantiles(values, weights), strict=True))
            histogram = self._histogram(values, weights)
        return Distribution(
            n_values=self._n_values,
            n_nan=self._n_nan,
            n_infinite=self._n_infinite,
            minimum=self._minimum,
            maximum=self._maximum,
            mean=self._mean if self._n_finite else None,
            std=math.sqrt(self._squares / self._n_finite) if self._n_finite else None,
            quantiles=quantiles,
            histogram=histogram,
            is_exact=is_exact,
        )

    def n_distinct(self) -> tuple[int, bool]:
        """Return the number of distinct values, and whether it is exact."""
        if self._counts is not None:
            return int(np.count_nonzero(self._counts[1])), True
        return self._distinct.count()

    def common(self) -> tuple[tuple[Common, ...], bool]:
        """Return the most frequent values, and whether their counts are exact."""
        values, weights, is_exact = self._weighted
        scale = 1.0 if is_exact else self._n_finite / weights.sum()
        return most_common(values, weights, scale, is_exact), is_exact

    @functools.cached_property
    def _weighted(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], bool]:
        """Return ascending finite values, their counts, and whether these are exact."""
        if self._counts is not None:
            first, counts = self._counts
            present = np.flatnonzero(counts)
            return present + first, counts[present], True
        values, is_exact = self._sample.values()
        ordered = np.sort(values[np.isfinite(values)])  # np.unique is slower
        firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        if not len(ordered):
            firsts = firsts[:0]
        return ordered[firsts], np.diff(firsts, append=len(ordered)), is_exact

    def _histogram(
        self, values: npt.NDArray[Any], weights: npt.NDArray[np.int64]
    ) -> Histogram:
        low, high = float(self._minimum), float(self._maximum)
        edges = np.linspace(low, high, _N_BINS + 1)
        is_small = max(-low, high) < 2**52  # so that edges are between integers
        if values.dtype == np.int64 and high - low < _N_BINS and is_small:
            edges = np.arange(self._minimum, self._maximum + 2) - 0.5
        elif (edges[:-1] >= edges[1:]).any():  # no room for bins
            margin = max(0.5, 2 * np.spacing(max(abs(low), abs(high))))
            edges = np.array([low - margin, high + margin])
        counts, _ = np.histogram(values.astype(np.float64), edges, weights=weights)
        scaled = counts * (self._n_finite / max(weights.sum(), 1))
        return Histogram(tuple(edges.tolist()), tuple(scaled.tolist()))


def _quantiles(values: npt.NDArray[Any], weights: npt.NDArray[np.int64]) -> list[float]:
    """Return quantiles of ascending values with weights, interpolated linearly."""
    ends = np.cumsum(weights)
    positions = np.array(QUANTILES) * (ends[-1] - 1)
    below = np.floor(positions).astype(np.int64)
    low = values[np.searchsorted(ends, below, "right")].astype(np.float64)
    above = np.minimum(below + 1, ends[-1] - 1)
    high = values[np.searchsorted(ends, above, "right")].astype(np.float64)
    return [float(each) for each in low + (high - low) * (positions - below)]


def most_common(
    values: Sequence[Any] | npt.NDArray[Any],
    weights: npt.NDArray[np.int64],
    scale: float,
    is_exact: bool,
) -> tuple[Common, ...]:
    """Return the values of largest weight, less those that a sample has by chance."""
    frequent = np.flatnonzero(weights >= (2 if is_exact else _MIN_SAMPLED))
    order = frequent[np.argsort(-weights[frequent], kind="stable")]
    return tuple(
        Common(_scalar(values[i]), float(weights[i] * scale)) for i in order[:_N_COMMON]
    )


def _scalar(value: Any) -> Any:  # noqa: ANN401
    return value.item() if isinstance(value, np.generic) else value
