"""Progress: the cursor of a loader in its training run, counts and times."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fastrec import _core
from fastrec.loader.skipped_rows import SkippedRow, SkippedRows
from fastrec.loader.stats import LoaderStats, Times
from fastrec.on_error import Report, SkippedRegion


class Iteration:
    """One ``for`` over a loader: its iterator, and what it skipped."""

    def __init__(self) -> None:
        self.iterator: weakref.ref[Any] | None = None
        self.skipped = SkippedRows()
        # Damaged framing, by file and first byte; a reopened epoch finds it again.
        self.gaps: dict[tuple[str, int], SkippedRegion] = {}

    def add_gaps(self, regions: Iterable[SkippedRegion]) -> None:
        """Add regions of damaged framing to the report."""
        self.gaps |= {(region.path, region.begin): region for region in regions}

    def report(self, n_skipped: int) -> Report:
        """Return the damaged framing and the first `n_skipped` rows."""
        rows = self.skipped.report(n_skipped)
        return Report((*self.gaps.values(), *rows.regions), rows.unlisted)


class Cursor(NamedTuple):
    """A step of the training run, and the counts up to it."""

    iteration: Iteration
    seed: int
    epoch: int
    step: int  # steps of the epoch that were delivered, or skipped by `seek`
    phase: int  # rows of step 0, if a state of another batch size was loaded
    is_begun: bool  # whether a batch of this epoch was delivered
    n_batches: int
    n_records: int
    n_bytes: int
    n_skipped: int  # rows in the report

    def begun(self) -> Cursor:
        """Return where a new ``for`` begins: after an epoch of which a batch was taken."""
        place = (self.epoch + 1, 0, 0) if self.is_begun else self[2:5]
        return Cursor(Iteration(), self.seed, *place, False, *self[6:9], 0)

    def moved(self, seed: int, epoch: int, step: int = 0, phase: int = 0) -> Cursor:
        """Return another step, with the same counts and report."""
        return Cursor(self.iteration, seed, epoch, step, phase, False, *self[6:])

    def after(
        self, step: int, n_records: int, n_bytes: int, skipped: Sequence[SkippedRow]
    ) -> Cursor:
        """Return the cursor after a batch, and report its skipped rows."""
        if skipped:
            self.iteration.skipped.add(self.n_skipped, skipped)
        values = (
            self.iteration,
            self.seed,
            self.epoch,
            step + 1,
            self.phase,
            True,
            self.n_batches + 1,
            self.n_records + n_records,
            self.n_bytes + n_bytes,
            self.n_skipped + len(skipped),
        )
        return tuple.__new__(Cursor, values)  # faster than Cursor(...)


class Progress:
    """The progress of a loader, shared with its iterators.

    Threads and interrupts change the immutable `cursor` only with ``replace(old, new)``,
    one C call that does nothing and returns False unless `old` is the current one. So no
    change is lost: of two threads that deliver, begin or move at once, one tries again.
    """

    def __init__(
        self, seed: int, epoch: int = 0, step: int = 0, phase: int = 0
    ) -> None:
        cursor = Cursor(Iteration(), seed, epoch, step, phase, False, 0, 0, 0, 0)
        reference = _core.AtomicReference(cursor)
        self.replace = reference.compare_exchange
        self._load = reference.load
        self.times = Times()
        self.is_advised = False
        self.is_warned_of_drop = False

    @property
    def cursor(self) -> Cursor:
        """The step after the last delivered batch."""
        return self._load()

    def move(self, seed: int, epoch: int, step: int, phase: int) -> None:
        """Move to a step; keep the counts and the report."""
        at = self.cursor
        while not self.replace(at, at.moved(seed, epoch, step, phase)):
            at = self.cursor

    def report(self) -> Report:
        """Return what was skipped in the current ``for``."""
        at = self.cursor
        return at.iteration.report(at.n_skipped)

    def stats(self) -> LoaderStats:
        """Return the counts and times."""
        at = self.cursor
        return self.times.stats(at.n_batches, at.n_records, at.n_bytes)
