"""LoaderStats: how a loop divides its time between next() and its body."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from fastrec.display import table
from fastrec.printable import counted

# A loop that waits for less than this share of its time has enough batches. The same
# holds for transform threads.
_WAITING_SHARE = 0.1
# No training step is this short, so such a loop only measures the loader.
_EMPTY_BODY_S = 50e-6

clock = time.perf_counter_ns  # monotonic


@dataclass(frozen=True, repr=False)
class LoaderStats:
    """Counts of the data that a loader has delivered, and times of its loop.

    The counts and times cover every ``for`` over the loader. To measure only a part,
    subtract earlier statistics: ``loader.stats - earlier``. `Loader.batch`,
    `Loader.peek` and the time between two loops do not count.

    Attributes
    ----------
    n_batches : int
        The number of delivered batches.
    n_records : int
        The number of records in these batches, before transforms.
    n_bytes : int
        The size of the columns of these batches in bytes, before transforms.
    waiting_s : float
        Seconds that the loop spent inside ``next()``, waiting for data.
    starting_s : float
        Part of `waiting_s`: the wait for the first batch of each ``for``, which starts
        threads, builds indexes and infers a schema.
    helping_s : float
        Part of `waiting_s`: decoding inside ``next()``, which happens if it is faster than
        waiting for a thread, and always with ``num_threads=0``. Zero with transform
        threads.
    consuming_s : float
        Seconds that the loop spent outside ``next()``, using the data.
    transform_s : float
        Seconds inside transforms, summed over `transform_threads`. A batch whose rows
        several threads share counts once.
    starved_s : float
        Seconds in which no decoded batch was ready for `transform_threads`, so a thread
        waited for a batch or decoded a batch itself.
    n_kept : int
        The number of records that were copied from kept rows instead of being decoded,
        including those of prefetched batches; see `Dataset.cache`.
    n_bytes_fetched : int
        Bytes fetched from remote stores, including bytes read ahead.
    n_retries : int
        Requests to remote stores that were repeated after a transient fault.
    fetching_s : float
        Seconds that decoding threads waited for remote stores, summed over the threads.
    """

    n_batches: int = 0
    n_records: int = 0
    n_bytes: int = 0
    waiting_s: float = 0.0
    starting_s: float = 0.0
    helping_s: float = 0.0
    consuming_s: float = 0.0
    transform_s: float = 0.0
    starved_s: float = 0.0
    n_kept: int = 0
    n_bytes_fetched: int = 0
    n_retries: int = 0
    fetching_s: float = 0.0
    _n_transforming: int = field(default=0, compare=False)  # threads; 0: inside next()
    _is_decoding_ahead: bool = field(default=True, compare=False)  # in other threads

    @property
    def waiting_share(self) -> float:
        """The share of the loop's time spent waiting for data, 0 to 1."""
        total = self.waiting_s + self.consuming_s
        return self.waiting_s / total if total else 0.0

    @property
    def bottleneck(self) -> Literal["", "consumer", "data", "transform"]:
        """The bottleneck of the loop.

        ``"consumer"`` if the loop waits for less than a tenth of its time. Otherwise
        ``"data"`` (reading and decoding) if `transform_threads` lacked decoded batches
        for over a tenth of the time or longer than they worked, or if transforms took
        at most half of the loop's waiting time; else ``"transform"``. Empty before the
        first batch, and for a loop with an empty body, which only measures the loader.
        """
        if not self.n_batches or self._is_empty_loop:
            return ""
        if self.waiting_share < _WAITING_SHARE:
            return "consumer"
        total_s = self.waiting_s + self.consuming_s
        is_starved = (
            self._is_decoding_ahead and self.starved_s > _WAITING_SHARE * total_s
        ) or self.starved_s * max(1, self._n_transforming) > self.transform_s
        if is_starved or 2 * self.transform_s <= self.waiting_s:
            return "data"
        return "transform"

    @property
    def _is_empty_loop(self) -> bool:
        return self.consuming_s < _EMPTY_BODY_S * self.n_batches

    def __sub__(self, before: LoaderStats) -> LoaderStats:
        """Return the counts and times since the earlier statistics `before`."""
        counts = {name: getattr(self, name) - getattr(before, name) for name in _COUNTS}
        return replace(self, **counts)

    def __repr__(self) -> str:
        if not self.n_batches:
            return "<fastrec.LoaderStats: no batch yet>"
        total_s = self.waiting_s + self.consuming_s
        counts = (
            f"{counted(self.n_batches, 'batch')}, "
            f"{counted(self.n_records, 'record')} in {total_s:.3g} s"
        )
        if self._is_empty_loop:
            records_per_s = float(f"{self.n_records / max(total_s, 1e-9):.3g}")
            return (
                f"<fastrec.LoaderStats: {counts}, {records_per_s:,.0f} records/s; the loop "
                "does nothing with its batches, so it has no bottleneck>"
            )
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
        return f"<fastrec.LoaderStats: {counts}; {text}>"

    def _repr_html_(self) -> str:
        """Return the counts and times as a table, for notebooks."""
        rows = [
            [name, f"{value:,}" if isinstance(value, int) else f"{value:.3f}"]
            for name in _COUNTS
            for value in [getattr(self, name)]
        ]
        return table(["count or time", ""], rows, title=repr(self))


_COUNTS = [field.name for field in fields(LoaderStats) if field.compare]


@dataclass(slots=True)
class Times:
    """The times of a loop in nanoseconds, updated by iterators."""

    waiting_ns: int = 0
    starting_ns: int = 0
    helping_ns: int = 0
    consuming_ns: int = 0
    transform_ns: int = 0
    starving_ns: int = 0
    n_kept: int = 0
    # Bytes fetched, requests repeated, and ns that readers waited for a remote store.
    fetched: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(3, np.int64)
    )
    n_transforming: int = 0  # threads; 0 without transforms or inside next()
    is_decoding_ahead: bool = True  # in threads other than transform threads

    def stats(self, n_batches: int, n_records: int, n_bytes: int) -> LoaderStats:
        """Return the counts, and the times in seconds."""
        n_bytes_fetched, n_retries, fetching_ns = self.fetched.tolist()
        return LoaderStats(
            n_batches,
            n_records,
            n_bytes,
            self.waiting_ns / 1e9,
            self.starting_ns / 1e9,
            self.helping_ns / 1e9,
            self.consuming_ns / 1e9,
            self.transform_ns / 1e9,
            self.starving_ns / 1e9,
            self.n_kept,
            n_bytes_fetched,
            n_retries,
            fetching_ns / 1e9,
            self.n_transforming,
            self.is_decoding_ahead,
        )
