"""Progress: the cursor of a loader in its training run, counts and times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fastrec.loader.skipped_rows import SkippedRow, SkippedRows
from fastrec.loader.stats import LoaderStats, Times
from fastrec.on_error import Report, SkippedRegion

__all__ = ["Cursor", "Progress"]


class Cursor(NamedTuple):
    """A step of the training run, and the counts up to it."""

    epoch: int
    step: int  # steps of the epoch that were delivered, or skipped by `seek`
    phase: int  # rows of step 0, if a state of another batch size was loaded
    is_begun: bool  # whether a batch of this epoch was delivered
    n_batches: int
    n_records: int
    n_bytes: int
    n_skipped: int  # rows in the report


class Progress:
    """The progress of a loader, shared with its iterator.

    The `cursor` is immutable and replaced in one assignment. So an interrupt comes before
    or after a batch, and the iterator can restore the previous cursor.
    """

    def __init__(self, seed: int, cursor: Cursor | None = None) -> None:
        self.seed = seed
        self.cursor = Cursor(0, 0, 0, False, 0, 0, 0, 0) if cursor is None else cursor
        self.times = Times()
        self.skipped = SkippedRows()
        # Damaged framing, by file and first byte; a reopened epoch finds it again.
        self.gaps: dict[tuple[str, int], SkippedRegion] = {}
        self.is_advised = False
        self.is_warned_of_drop = False

    def copy(self) -> Progress:
        """Return a copy with the same cursor, and counts of 0."""
        at = self.cursor
        return Progress(
            self.seed, Cursor(at.epoch, at.step, at.phase, False, 0, 0, 0, 0)
        )

    def move(self, epoch: int, step: int = 0, phase: int = 0) -> None:
        """Move to a step; keep the counts and the report."""
        self.cursor = Cursor(epoch, step, phase, False, *self.cursor[4:])

    def begin(self) -> None:
        """Begin a ``for``: reset the report, and leave an epoch that was begun."""
        at = self.cursor
        place = (at.epoch + 1, 0, 0) if at.is_begun else at[:3]
        self.skipped = SkippedRows()
        self.gaps = {}
        self.cursor = Cursor(*place, False, *at[4:7], 0)

    def cursor_after(
        self, step: int, n_records: int, n_bytes: int, skipped: Sequence[SkippedRow]
    ) -> Cursor:
        """Return the cursor after a batch."""
        at = self.cursor
        if skipped:
            self.skipped.add(at.n_skipped, skipped)
        values = (
            at.epoch,
            step + 1,
            at.phase,
            True,
            at.n_batches + 1,
            at.n_records + n_records,
            at.n_bytes + n_bytes,
            at.n_skipped + len(skipped),
        )
        return tuple.__new__(Cursor, values)  # faster than Cursor(...)

    def add_gaps(self, regions: Iterable[SkippedRegion]) -> None:
        """Add regions of damaged framing to the report."""
        self.gaps |= {(region.path, region.begin): region for region in regions}

    def report(self) -> Report:
        """Return the damaged framing and the rows that were skipped since `begin`."""
        rows = self.skipped.report(self.cursor.n_skipped)
        return Report((*self.gaps.values(), *rows.regions), rows.unlisted)

    def stats(self) -> LoaderStats:
        """Return the counts and times."""
        at = self.cursor
        return self.times.stats(at.n_batches, at.n_records, at.n_bytes)
