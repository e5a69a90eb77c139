"""The files and offsets of a batch's rows, for errors and reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastrec.errors import add_note

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
