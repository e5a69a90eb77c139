"""Progress: a loader's position in the training run, its counts, times and state."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastrec import _core
from fastrec.loader.collate import SkippedRow
from fastrec.loader.stats import LoaderStats, Times
from fastrec.on_error import Report, SkippedRegion

_log = logging.getLogger("fastrec")

_MAX_REGIONS = 10_000  # in the report of a loader

STATE_VERSION = 1
_STATE = {"fingerprint": str, "order": dict, "seed": int, "epoch": int, "position": int}


class Iteration:
    """One ``for`` over a loader: its iterator, and the skipped regions and rows."""

    def __init__(self) -> None:
        self.iterator: weakref.ref[Any] | None = None
        # Damaged framing, by file and first byte; a reopened epoch finds it again.
        self._gaps: dict[tuple[str, int], SkippedRegion] = {}
        # May end with rows of batches that an interrupt has discarded. A cursor counts
        # only the rows of delivered batches.
        self._rows: list[SkippedRegion] = []

    def add_gaps(self, regions: Iterable[SkippedRegion]) -> None:
        """Add regions of damaged framing to the report."""
        self._gaps |= {(region.path, region.begin): region for region in regions}

    def add_rows(self, n_before: int, rows: Sequence[SkippedRow]) -> None:
        """Keep the first `n_before` rows of the report, and append `rows`."""
        regions = [row.region for row in rows]
        if not n_before:
            _log.warning(
                "skipping or masking a row (loader.report lists all such rows): %s",
                regions[0],
            )
        if n_before < _MAX_REGIONS:
            self._rows[n_before:] = regions[: _MAX_REGIONS - n_before]

    def report(self, n_skipped: int) -> Report:
        """Return a report of the damaged framing and of the first `n_skipped` rows."""
        rows = self._rows[:n_skipped]
        return Report((*self._gaps.values(), *rows), n_skipped - len(rows))


class Cursor(NamedTuple):
    """A position in the training run, and counts of the data delivered so far."""

    iteration: Iteration
    seed: int
    epoch: int
    step: int  # steps of the epoch that were delivered or skipped by `seek`
    phase: int  # rows of step 0, if a state with a different batch size was loaded
    is_begun: bool  # whether a batch of this epoch was delivered
    n_batches: int
    n_records: int
    n_bytes: int
    n_skipped: int  # rows in the report

    def begun(self) -> Cursor:
        """Return the cursor of a new ``for``: the next epoch's start if `is_begun`."""
        place = (self.epoch + 1, 0, 0) if self.is_begun else self[2:5]
        return Cursor(Iteration(), self.seed, *place, False, *self[6:9], 0)

    def moved(self, seed: int, epoch: int, step: int = 0, phase: int = 0) -> Cursor:
        """Return a cursor at another step, with the same counts and report."""
        return Cursor(self.iteration, seed, epoch, step, phase, False, *self[6:])

    def after(
        self, step: int, n_records: int, n_bytes: int, skipped: Sequence[SkippedRow]
    ) -> Cursor:
        """Return the cursor after a batch, and add `skipped` to the report."""
        if skipped:
            self.iteration.add_rows(self.n_skipped, skipped)
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

    Threads and interrupts replace the immutable `cursor` with ``replace(old, new)``.
    This single C call returns False and changes nothing if `old` is not the current
    cursor. So no change is lost: if two threads move the cursor at once, one tries again.
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
        """The cursor after the last delivered batch."""
        return self._load()

    def move(self, seed: int, epoch: int, step: int, phase: int) -> None:
        """Move to a step; keep the counts and the report."""
        at = self.cursor
        while not self.replace(at, at.moved(seed, epoch, step, phase)):
            at = self.cursor

    def report(self) -> Report:
        """Return the report of the current ``for``."""
        at = self.cursor
        return at.iteration.report(at.n_skipped)

    def stats(self) -> LoaderStats:
        """Return the counts and times so far."""
        at = self.cursor
        return self.times.stats(at.n_batches, at.n_records, at.n_bytes)


def checked_state(state: object) -> dict[str, Any]:
    """Return the values of a loader's state; raise a ValueError if it is invalid."""
    keys = ("version", *_STATE)
    if isinstance(state, Mapping) and (
        state.get("version", STATE_VERSION) != STATE_VERSION
    ):
        raise ValueError(
            f"version of the state must be {STATE_VERSION} for this release of fastrec, "
            f"got {state['version']!r}"
        )
    if not isinstance(state, Mapping) or set(state) != set(keys):
        given = list(state) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f"state must be a dict with the keys {keys}, got {given}")
    values: dict[str, Any] = {}
    for name, kind in _STATE.items():
        value = state[name]
        if isinstance(value, (np.integer, np.ndarray)) and np.ndim(value) == 0:
            value = value.item()  # checkpoints may contain NumPy integers
        is_valid = isinstance(value, kind) and not isinstance(value, bool)
        if not is_valid or (kind is int and not 0 <= value < 2**64):
            raise ValueError(f"invalid {name} in the state of a loader: {value!r}")
        values[name] = value
    return values
