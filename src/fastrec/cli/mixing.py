"""Figures that measure how random the order of draws is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Draws", "LabelMix", "Mixing", "label_mix", "mixing"]

Draws: TypeAlias = "npt.NDArray[np.int64]"

# A count with a smaller expectation is far from normal, so its z is meaningless.
_MIN_EXPECTED = 10


@dataclass(frozen=True)
class Mixing:
    """What one epoch does with the records.

    `rank_correlation` is Spearman's, of draw and record: 1 in the order of the files, near
    0 at random, NaN for fewer than two different records.
    """

    rank_correlation: float
    n_repeated: int
    n_lost: int


def mixing(draws: Draws, n_records: int) -> Mixing:
    """Return how `draws` treat the records 0 to `n_records` - 1."""
    times = np.bincount(draws, minlength=n_records)
    # Records that were drawn several times share the mean of their ranks.
    ranks = (np.cumsum(times) - (times + 1) / 2)[draws]
    ranks -= ranks.mean() if len(ranks) else 0
    when = np.arange(len(draws)) - (len(draws) - 1) / 2
    scale = math.sqrt(float(ranks @ ranks) * float(when @ when))
    return Mixing(
        float(ranks @ when) / scale if scale else math.nan,
        n_repeated=int(np.count_nonzero(times > 1)),
        n_lost=int(np.count_nonzero(times == 0)),
    )


@dataclass(frozen=True)
class LabelMix:
    """How evenly labels come, in windows of draws of equal size.

    An epoch draws without repetition, so the count of a label in a window of a random
    order is hypergeometric; z is its distance from the mean in standard deviations.
    """

    n_labels: int  # different ones in the data
    n_first: int  # different ones in the first window
    expected_first: float  # the mean of `n_first` over all orders
    last_draw: int  # of the label that comes first after all others; -1 if never
    worst_z: float  # the largest |z| of all windows and labels; NaN without counts
    n_counts: int  # counts that are large enough for a z

    @property
    def usual_z(self) -> float:
        """The bound of `worst_z` in about 99 of 100 random orders."""
        if not self.n_counts:
            return math.nan
        return NormalDist().inv_cdf((1 + 0.99 ** (1 / self.n_counts)) / 2)


def label_mix(draws: Draws, labels: npt.NDArray[np.int64], window: int) -> LabelMix:
    """Return how evenly `labels`, one for each record, come in windows of `draws`."""
    n_records = len(labels)
    kinds, codes, totals = np.unique(labels, return_inverse=True, return_counts=True)
    drawn = codes.reshape(-1)[draws]
    window = min(window, n_records)
    first_seen = np.full(len(kinds), len(draws))
    seen, when = np.unique(drawn, return_index=True)
    first_seen[seen] = when
    last = int(first_seen.max())
    z = np.concatenate(
        [
            _z(np.bincount(part, minlength=len(kinds)), totals, n_records)
            for part in np.split(drawn, range(window, len(drawn), window))
        ]
    )
    return LabelMix(
        n_labels=len(kinds),
        n_first=len(np.unique(drawn[:window])),
        expected_first=sum(1 - _absence(int(n), n_records, window) for n in totals),
        last_draw=-1 if last == len(draws) else last,
        worst_z=float(np.abs(z).max()) if len(z) else math.nan,
        n_counts=len(z),
    )


def _absence(total: int, n_records: int, window: int) -> float:
    """Return how likely a window of a random order has none of `total` records."""
    others = n_records - total
    if window > others:
        return 0.0
    # Ways to choose the window among the others, and among all.
    return math.exp(
        (math.lgamma(others + 1) - math.lgamma(others - window + 1))
        - (math.lgamma(n_records + 1) - math.lgamma(n_records - window + 1))
    )


def _z(
    counts: npt.NDArray[np.intp], totals: npt.NDArray[np.intp], n_records: int
) -> npt.NDArray[np.float64]:
    """Return z of the counts in one window whose expectations are large enough."""
    size = int(counts.sum())
    share = totals / n_records
    expected = size * share
    variance = expected * (1 - share) * (n_records - size) / max(1, n_records - 1)
    # There is no variance with one label, or in a window of all records.
    chosen = (expected >= _MIN_EXPECTED) & (variance > 0)
    z: npt.NDArray[np.float64] = (counts - expected)[chosen] / np.sqrt(variance[chosen])
    return z
