"""Batch information: which records the rows of a batch are, and where they are stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.errors import add_note
from fastrec.tasks import TaskPool

_N_COLUMNS = 4  # file, record in the file, begin and end of its frame


@dataclass(frozen=True)
class Places:
    """The files and offsets of the rows of one batch."""

    files: Sequence[str]
    # Per row: file, record in the file, begin and end of its frame. An end of -1 is
    # unknown; all -1 is padding.
    numbers: npt.NDArray[np.int64]
    context: str  # " of step 3, epoch 0"; "" for records that are read by number

    def padded(self, n_rows: int) -> Places:
        """Return these places, extended to `n_rows` rows with padding."""
        n_missing = n_rows - len(self.numbers)
        if not n_missing:
            return self
        padding = np.full((n_missing, _N_COLUMNS), -1, np.int64)
        return dataclasses.replace(self, numbers=np.append(self.numbers, padding, 0))

    def take(self, rows: npt.NDArray[np.int64]) -> Places:
        """Return the places of the given rows."""
        return dataclasses.replace(self, numbers=self.numbers[rows])

    def note_batch(self, error: BaseException, what: str) -> None:
        """Add a note to `error`: the function `what` raised it for the batch."""
        rows = np.flatnonzero(self.numbers[:, 0] >= 0)
        text = f"in {what}, {len(rows):,} {'row' if len(rows) == 1 else 'rows'}"
        if len(rows):
            text += f"{self.context}: the first is {self._place(int(rows[0]))}"
        if len(rows) > 1:
            text += f"; the last is {self._place(int(rows[-1]))}"
        add_note(error, text)

    def describe_row(self, row: int, what: str) -> str:
        """Describe the row for which the function `what` was called."""
        return f"in {what}, row {row}{self.context}: {self._place(row)}"

    def _place(self, row: int) -> str:
        file, record, begin, _ = self.numbers[row].tolist()
        return f"{self.files[file]}, record {record}, byte {begin}"


@dataclass(frozen=True)
class BatchInfo:
    """Where a batch is in the training run: the second argument of a transform.

    Attributes
    ----------
    seed, epoch, step : int
        The loader's seed, and the epoch and step of this batch.
    positions : ndarray of int64, shape (rows,)
        The position of each row in the epoch; -1 for padding rows
        (``pad_last=True``).
    records : ndarray of int64, shape (rows,)
        The number of each row's record in the dataset, or -1. Joined datasets are
        numbered one after another.
    """

    seed: int
    epoch: int
    step: int
    positions: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]
    # Threads that share the rows of the batch with the calling one.
    _threads: TaskPool | None = field(default=None, repr=False)
    _places: Places | None = field(default=None, repr=False)
    # Memory for columns.
    _pool: _core.BlockPool | None = field(default=None, repr=False)
    # Which of the decoded rows these are, if some were skipped.
    _rows: npt.NDArray[np.int64] | None = field(default=None, repr=False)
    # Rows for which a function of rows has raised, and its errors; None lets it raise.
    _failed: list[tuple[int, Exception]] | None = field(default=None, repr=False)

    def rng(self, i: int) -> np.random.Generator:
        """Return the random generator of row `i` of the batch.

        Its key is (seed, epoch, position), so what is drawn from it does not depend on
        threads, batch sizes or interruptions.

        Raises
        ------
        IndexError
            If there is no such row, or it is padding.
        """
        if self.positions[i] < 0:
            raise IndexError(f"row {i} is padding and has no random generator")
        return self._rng(i, 0)

    def _rng(self, i: int, stream: int) -> np.random.Generator:
        """Return one of the row's random generators, 2**128 numbers apart."""
        key = np.array([self.seed, self.epoch], dtype=np.uint64)
        counter = np.array([0, 0, stream, self.positions[i]], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))

    def _of_rows(self, rows: npt.NDArray[np.int64]) -> BatchInfo:
        return dataclasses.replace(
            self,
            positions=self.positions[rows],
            records=self.records[rows],
            _places=None if self._places is None else self._places.take(rows),
            _rows=rows if self._rows is None else self._rows[rows],
        )

    def _masked(self, rows: Sequence[int]) -> BatchInfo:
        """Return a copy with `rows` marked as padding."""
        positions, records = self.positions.copy(), self.records.copy()
        positions[rows] = records[rows] = -1
        return dataclasses.replace(self, positions=positions, records=records)

    def _without(self, rows: Sequence[int | None], *, masks: bool) -> BatchInfo:
        """Return a copy with `rows` masked or left out."""
        known = [row for row in rows if row is not None]
        if masks:
            return self._masked(known)
        return self._of_rows(np.delete(np.arange(len(self.positions)), known))


# Computes a column that is added to a batch.
Extra: TypeAlias = Callable[[BatchInfo], npt.NDArray[Any]]
