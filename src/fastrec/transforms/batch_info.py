"""Batch information: the records of a batch's rows, and their locations."""

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

_Locations: TypeAlias = npt.NDArray[np.int64]


class Places:
    """The location of each row of a batch: file, record and byte offsets.

    `numbers` has for each row: file, record in the file, begin and end of its frame. An
    end of -1 is unknown. Four values of -1 are a padding row. It may be a function that
    returns the array, called when the locations are first needed. `context` is a text
    such as " of step 3 of epoch 0", or "" for records that are read by number.
    """

    def __init__(
        self,
        files: Sequence[str],
        numbers: _Locations | Callable[[], _Locations],
        context: str,
    ) -> None:
        self.files = files
        self._numbers = numbers
        self.context = context

    @property
    def numbers(self) -> _Locations:
        """The locations, an array of shape (rows, 4)."""
        if callable(self._numbers):
            self._numbers = self._numbers()
        return self._numbers

    def padded(self, n_rows: int) -> Places:
        """Return the places, padded to `n_rows` rows."""

        def numbers() -> _Locations:
            padding = np.full((n_rows - len(self.numbers), _N_COLUMNS), -1, np.int64)
            return np.append(self.numbers, padding, 0)

        return Places(self.files, numbers, self.context)

    def take(self, rows: npt.NDArray[np.int64]) -> Places:
        """Return the places of the given rows."""
        return Places(self.files, lambda: self.numbers[rows], self.context)

    def note_batch(self, error: BaseException, what: str) -> None:
        """Add a note to `error` with `what` and the first and last row's location."""
        rows = np.flatnonzero(self.numbers[:, 0] >= 0)
        text = f"in {what}, {len(rows):,} {'row' if len(rows) == 1 else 'rows'}"
        if len(rows):
            text += f"{self.context}: the first is {self._place(int(rows[0]))}"
        if len(rows) > 1:
            text += f"; the last is {self._place(int(rows[-1]))}"
        add_note(error, text)

    def describe_row(self, row: int, what: str) -> str:
        """Return a text that locates a row passed to the function named `what`."""
        return f"in {what}, row {row}{self.context}: {self._place(row)}"

    def _place(self, row: int) -> str:
        file, record, begin, _ = self.numbers[row].tolist()
        return f"{self.files[file]}, record {record}, byte {begin}"


@dataclass(frozen=True)
class BatchInfo:
    """The position of a batch in the training run, passed to transforms as `info`.

    Attributes
    ----------
    seed, epoch, step : int
        The loader's seed, and the epoch and step of this batch.
    positions : ndarray of int64, shape (rows,)
        The position of each row in the epoch; -1 for padding rows
        (``pad_last=True``).
    records : ndarray of int64, shape (rows,)
        The number of each row in the dataset, as in ``ds[i]``; -1 for padding rows.
        Joined datasets are numbered consecutively.
    steps : ndarray of int64, shape (rows, 2), or None
        With `Dataset.steps`, the number of each row's record in the files, and of its
        step in the record; -1 for padding rows.
    """

    seed: int
    epoch: int
    step: int
    positions: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64] | None = None
    # Threads that share the rows of the batch with the calling thread.
    _threads: TaskPool | None = field(default=None, repr=False)
    _places: Places | None = field(default=None, repr=False)
    # Memory for columns.
    _pool: _core.BlockPool | None = field(default=None, repr=False)
    # The indices of the decoded rows, if some rows were skipped.
    _rows: npt.NDArray[np.int64] | None = field(default=None, repr=False)
    # The decoded record of each row, if the rows are steps of records.
    _decoded: npt.NDArray[np.int64] | None = field(default=None, repr=False)
    # Failed rows and their errors, added by per-row transforms; None lets them raise.
    _failed: list[tuple[int, Exception]] | None = field(default=None, repr=False)

    @property
    def _n_valid(self) -> int:
        """The number of rows that are not padding or masked."""
        return int(np.count_nonzero(self.positions >= 0))

    def _place_of(self, row: int) -> tuple[str | None, int, int | None]:
        """Return the file, record and byte of a row; without places, only its number."""
        if self._places is None:
            return None, row, None
        file, record, begin, _ = self._places.numbers[row].tolist()
        return self._places.files[file], record, begin

    def rng(self, i: int) -> np.random.Generator:
        """Return the random generator of row `i` of the batch.

        The generator's key is (seed, epoch, position), so its numbers do not depend on
        threads, batch sizes or interruptions.

        Raises
        ------
        IndexError
            If the batch has no such row, or the row is padding.
        """
        if self.positions[i] < 0:
            raise IndexError(f"row {i} is padding and has no random generator")
        return self._rng(i, 0)

    def _rng(self, i: int, stream: int, value: int = 0) -> np.random.Generator:
        """Return the generator of a value of row `i`; streams do not overlap."""
        key = np.array([self.seed, self.epoch], dtype=np.uint64)
        counter = np.array([0, value, stream, self.positions[i]], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))

    def _of_rows(self, rows: npt.NDArray[np.int64]) -> BatchInfo:
        return dataclasses.replace(
            self,
            positions=self.positions[rows],
            records=self.records[rows],
            steps=None if self.steps is None else self.steps[rows],
            _decoded=None if self._decoded is None else self._decoded[rows],
            _places=None if self._places is None else self._places.take(rows),
            _rows=rows if self._rows is None else self._rows[rows],
        )

    def _masked(self, rows: Sequence[int]) -> BatchInfo:
        """Return a copy with `rows` marked as padding."""
        positions, records = self.positions.copy(), self.records.copy()
        positions[rows] = records[rows] = -1
        steps = self.steps
        if steps is not None:
            steps = np.where(positions[:, np.newaxis] < 0, -1, steps)
        return dataclasses.replace(
            self, positions=positions, records=records, steps=steps
        )

    def _without(self, rows: Sequence[int | None], *, masks: bool) -> BatchInfo:
        """Return a copy without rows that the core could not decode.

        They are masked if `masks` is true, else removed.
        """
        known = np.array([row for row in rows if row is not None], np.int64)
        lost = known
        if self._decoded is not None:
            is_lost = np.isin(self._decoded, known) & (self.positions >= 0)
            lost = np.flatnonzero(is_lost)
        if masks:
            return self._masked(lost.tolist())
        info = self._of_rows(np.delete(np.arange(len(self.positions)), lost))
        if (decoded := info._decoded) is None:
            return info
        decoded = decoded - np.searchsorted(known, decoded, side="right")
        return dataclasses.replace(info, _decoded=np.maximum(decoded, 0))

    def _of_part(self, rows: npt.NDArray[np.int64] | None) -> BatchInfo:
        """Return the BatchInfo of the decoded `rows`; None means all."""
        if rows is None:
            return self
        if self._decoded is None:
            return self._of_rows(rows)
        info = self._of_rows(np.flatnonzero(np.isin(self._decoded, rows)))
        assert info._decoded is not None
        decoded = np.searchsorted(rows, info._decoded)
        return dataclasses.replace(info, _decoded=decoded)


# Computes a column that the loader adds to a batch.
Extra: TypeAlias = Callable[[BatchInfo], npt.NDArray[Any]]
