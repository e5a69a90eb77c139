"""LoaderStats: how a loop divides its time between next() and its body."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import Literal

from fastrec.display import table

__all__ = ["LoaderStats", "Times", "clock"]

# The consumer is the bottleneck of a loop that waits for less than this share.
_WAITING_SHARE = 0.1

clock = time.perf_counter_ns  # monotonic


@dataclass(frozen=True, repr=False)
class LoaderStats:
    """Counts of what a loader has delivered, and the times of its loop.

    They cover every ``for`` over the loader; ``loader.stats - before`` covers those after
    `before`. `Loader.batch`, `Loader.peek` and the time between two loops do not count.

    Attributes
    ----------
    n_batches : int
        Delivered batches.
    n_records : int
        Records in them, before transforms.
    n_bytes : int
        Size of their columns in memory in bytes, before transforms.
    waiting_s : float
        Seconds inside ``next()``, in which the loop waits for data.
    starting_s : float
        Part of `waiting_s`: the first batch of each ``for``, which starts threads, builds
        indexes and infers a schema.
    helping_s : float
        Part of `waiting_s`: decoding inside ``next()``, if that is faster than waiting
        for a thread, and always with ``num_threads=0``. Not counted with
        `transform_threads`.
    consuming_s : float
        Seconds of the loop outside ``next()``, in which data waits for the loop.
    transform_s : float
        Seconds inside transforms, summed over `transform_threads`; rows that `per_row`
        divides among threads count once.
    """

    n_batches: int = 0
    n_records: int = 0
    n_bytes: int = 0
    waiting_s: float = 0.0
    starting_s: float = 0.0
    helping_s: float = 0.0
    consuming_s: float = 0.0
    transform_s: float = 0.0
    _n_transforming: int = field(default=0, compare=False)  # threads; 0: inside next()

    @property
    def waiting_share(self) -> float:
        """The share of the loop's time spent waiting for data, 0 to 1."""
        total = self.waiting_s + self.consuming_s
        return self.waiting_s / total if total else 0.0

    @property
    def bottleneck(self) -> Literal["", "consumer", "data", "transform"]:
        """The bottleneck of the loop.

        ``"consumer"`` if the loop waits for less than a tenth of its time. Otherwise
        ``"transform"`` if transforms were busy for more than half of the available time,
        else ``"data"``: reading and decoding. Empty before the first batch.
        """
        if not self.n_batches:
            return ""
        if self.waiting_share < _WAITING_SHARE:
            return "consumer"
        available_s = self.waiting_s
        if self._n_transforming:
            available_s = self._n_transforming * (self.waiting_s + self.consuming_s)
        return "transform" if 2 * self.transform_s > available_s else "data"

    def __sub__(self, before: LoaderStats) -> LoaderStats:
        """Return the counts and times after `before`."""
        counts = {name: getattr(self, name) - getattr(before, name) for name in _COUNTS}
        return LoaderStats(**counts, _n_transforming=self._n_transforming)

    def __repr__(self) -> str:
        if not self.n_batches:
            return "<fastrec.LoaderStats: no batch yet>"
        text = {
            "consumer": "the consumer is the bottleneck",
            "data": "data is the bottleneck",
            "transform": "the transform is the bottleneck",
        }[self.bottleneck]
        text += f": {100 * self.waiting_share:.0f} % of the time waiting for data"
        if 2 * self.starting_s > self.waiting_s:
            text += f", mostly for the first batch ({self.starting_s:.3g} s)"
        elif 2 * self.helping_s > self.waiting_s:
            text += ", mostly decoding inside next()"
        return (
            f"<fastrec.LoaderStats: {_counted(self.n_batches, 'batch', 'es')}, "
            f"{_counted(self.n_records, 'record', 's')} in "
            f"{self.waiting_s + self.consuming_s:.3g} s; {text}>"
        )

    def _repr_html_(self) -> str:
        """Return the counts and times as a table, for notebooks."""
        rows = [
            [name, f"{value:,}" if isinstance(value, int) else f"{value:.3f}"]
            for name in _COUNTS
            for value in [getattr(self, name)]
        ]
        return table(["count or time", ""], rows, title=repr(self))


def _counted(count: int, noun: str, plural: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else plural}"


_COUNTS = [field.name for field in fields(LoaderStats) if field.compare]


@dataclass(slots=True)
class Times:
    """The times of a loop in nanoseconds, updated by iterators."""

    waiting_ns: int = 0
    starting_ns: int = 0
    helping_ns: int = 0
    consuming_ns: int = 0
    transform_ns: int = 0
    n_transforming: int = 0  # threads; 0 without transforms or inside next()

    def stats(self, n_batches: int, n_records: int, n_bytes: int) -> LoaderStats:
        """Return the counts, and the times in seconds."""
        return LoaderStats(
            n_batches,
            n_records,
            n_bytes,
            self.waiting_ns / 1e9,
            self.starting_ns / 1e9,
            self.helping_ns / 1e9,
            self.consuming_ns / 1e9,
            self.transform_ns / 1e9,
            self.n_transforming,
        )
