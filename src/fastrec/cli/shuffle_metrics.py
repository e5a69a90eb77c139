"""Metrics of how random an order of draws is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Draws", "LabelMetrics", "RecordMetrics", "label_metrics", "record_metrics"]

Draws: TypeAlias = "npt.NDArray[np.int64]"

# A count with a smaller expectation is not close to normal, so it has no z score.
_MIN_EXPECTED = 10


@dataclass(frozen=True)
class RecordMetrics:
    """Metrics of the records of one epoch.

    `rank_correlation` is Spearman's, of draw and record: 1 in file order, near 0 for a
    random order, NaN for fewer than two different records.
    """

    rank_correlation: float
    n_repeated: int
    n_lost: int


def record_metrics(draws: Draws, n_records: int) -> RecordMetrics:
    """Return the metrics of `draws` from `n_records` records."""
    counts = np.bincount(draws, minlength=n_records)
    # Records that were drawn several times share the mean of their ranks.
    ranks = (np.cumsum(counts) - (counts + 1) / 2)[draws]
    ranks -= ranks.mean() if len(ranks) else 0
    times = np.arange(len(draws)) - (len(draws) - 1) / 2
    scale = math.sqrt(float(ranks @ ranks) * float(times @ times))
    return RecordMetrics(
        float(ranks @ times) / scale if scale else math.nan,
        n_repeated=int(np.count_nonzero(counts > 1)),
        n_lost=int(np.count_nonzero(counts == 0)),
    )


@dataclass(frozen=True)
class LabelMetrics:
    """Metrics of how evenly labels are spread over windows of draws.

    An epoch draws without repetition, so the count of a label in a window of a random
    order is hypergeometric; z is its distance from the mean in standard deviations.
    """

    n_labels: int  # distinct labels in the data
    n_first: int  # distinct labels in the first window
    expected_first: float  # the mean of `n_first` over all orders
    last_draw: int  # the draw at which all labels have been seen; -1 if never
    worst_z: float  # the largest |z| of all windows and labels; NaN without counts
    n_counts: int  # counts that are large enough for a z score

    @property
    def usual_z(self) -> float:
        """The bound on `worst_z` that 99 of 100 random orders keep."""
        if not self.n_counts:
            return math.nan
        return NormalDist().inv_cdf((1 + 0.99 ** (1 / self.n_counts)) / 2)


def label_metrics(
    draws: Draws, labels: npt.NDArray[np.int64], window: int
) -> LabelMetrics:
    """Return the metrics of `labels`, one per record, in windows of `draws`."""
    n_records = len(labels)
    kinds, codes, totals = np.unique(labels, return_inverse=True, return_counts=True)
    drawn = codes.reshape(-1)[draws]
    window = min(window, n_records)
    first_seen = np.full(len(kinds), len(draws))
    seen, first_draws = np.unique(drawn, return_index=True)
    first_seen[seen] = first_draws
    last = int(first_seen.max())
    z = np.concatenate(
        [
            _z(np.bincount(part, minlength=len(kinds)), totals, n_records)
            for part in np.split(drawn, range(window, len(drawn), window))
        ]
    )
    return LabelMetrics(
        n_labels=len(kinds),
        n_first=len(np.unique(drawn[:window])),
        expected_first=sum(1 - _absence(int(n), n_records, window) for n in totals),
        last_draw=-1 if last == len(draws) else last,
        worst_z=float(np.abs(z).max()) if len(z) else math.nan,
        n_counts=len(z),
    )


def _absence(total: int, n_records: int, window: int) -> float:
    """Return the probability that a random window has none of `total` records."""
    others = n_records - total
    if window > others:
        return 0.0
    # Ways to choose the window among the others / among all records.
    return math.exp(
        (math.lgamma(others + 1) - math.lgamma(others - window + 1))
        - (math.lgamma(n_records + 1) - math.lgamma(n_records - window + 1))
    )


def _z(
    counts: npt.NDArray[np.intp], totals: npt.NDArray[np.intp], n_records: int
) -> npt.NDArray[np.float64]:
    """Return the z scores of one window, for counts with large enough expectations."""
    size = int(counts.sum())
    share = totals / n_records
    expected = size * share
    variance = expected * (1 - share) * (n_records - size) / max(1, n_records - 1)
    # The variance is 0 with one label, or in a window of all records.
    chosen = (expected >= _MIN_EXPECTED) & (variance > 0)
    z: npt.NDArray[np.float64] = (counts - expected)[chosen] / np.sqrt(variance[chosen])
    return z
