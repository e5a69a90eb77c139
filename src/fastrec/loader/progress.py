"""Progress: where a loader is in its training run, and what it has delivered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fastrec.loader.skipped_rows import SkippedRow, SkippedRows
from fastrec.loader.stats import LoaderStats, Times
from fastrec.on_error import Report

__all__ = ["Mark", "Progress"]


class Mark(NamedTuple):
    """A place in the training run, and the counts up to it."""

    epoch: int
    step: int  # steps of the epoch that were delivered or skipped by `seek`
    phase: int  # rows of step 0, if another batch size has cut the epoch
    is_begun: bool  # a batch of this epoch was delivered
    n_batches: int
    n_records: int
    n_bytes: int
    n_skipped: int  # rows in the report


class Progress:
    """The place of a loader, which it shares with its iterator.

    All of it is one immutable `mark`, which changes in one assignment. So an interrupt
    finds it before a batch or after it, and the iterator can restore the one before.
    """

    def __init__(self, seed: int, mark: Mark | None = None) -> None:
        self.seed = seed
        self.mark = Mark(0, 0, 0, False, 0, 0, 0, 0) if mark is None else mark
        self.times = Times()
        self.skipped = SkippedRows()
        self.is_advised = False

    def copy(self) -> Progress:
        """Return the same place, without what was counted."""
        at = self.mark
        return Progress(self.seed, Mark(at.epoch, at.step, at.phase, False, 0, 0, 0, 0))

    def move(self, epoch: int, step: int = 0, phase: int = 0) -> None:
        """Go to a step. Keeps the counts and the report."""
        self.mark = Mark(epoch, step, phase, False, *self.mark[4:])

    def begin(self) -> None:
        """Begin a ``for``: in the next epoch, if this one was begun, and with no report."""
        at = self.mark
        place = (at.epoch + 1, 0, 0) if at.is_begun else at[:3]
        self.skipped = SkippedRows()
        self.mark = Mark(*place, False, *at[4:7], 0)

    def mark_after(
        self, step: int, n_records: int, n_bytes: int, skipped: Sequence[SkippedRow]
    ) -> Mark:
        """Return the mark after a batch."""
        at = self.mark
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
        return tuple.__new__(Mark, values)  # Mark(...) is a call of Python code

    def report(self) -> Report:
        """Return the rows that were skipped since `begin`."""
        return self.skipped.report(self.mark.n_skipped)

    def stats(self) -> LoaderStats:
        """Return what was delivered, and where the time went."""
        at = self.mark
        return self.times.stats(at.n_batches, at.n_records, at.n_bytes)
