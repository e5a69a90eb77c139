"""Places: where the rows of a batch are stored, to name them in errors and reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastrec.errors import add_note

__all__ = ["Places"]

_N_COLUMNS = 4  # file, record in the file, where its frame begins and ends


@dataclass(frozen=True)
class Places:
    """Where the rows of one batch are stored."""

    files: Sequence[str]
    # A row has the file, the record in the file, and where its frame begins and ends. An
    # end of -1 is unknown. A row of -1 is padding.
    numbers: npt.NDArray[np.int64]
    context: str  # step and epoch, in words; "" for records that are read by number

    def padded(self, n_rows: int) -> Places:
        """Return the places of `n_rows` rows, of which the last are padding."""
        n_missing = n_rows - len(self.numbers)
        if not n_missing:
            return self
        padding = np.full((n_missing, _N_COLUMNS), -1, np.int64)
        return dataclasses.replace(self, numbers=np.append(self.numbers, padding, 0))

    def take(self, rows: npt.NDArray[np.int64]) -> Places:
        """Return the places of some rows."""
        return dataclasses.replace(self, numbers=self.numbers[rows])

    def note_row(self, error: BaseException, what: str, row: int) -> None:
        """Add to `error` that `what` raised it for one row."""
        add_note(error, self.describe_row(row, what))

    def note_batch(self, error: BaseException, what: str) -> None:
        """Add to `error` that `what` raised it for the whole batch."""
        rows = np.flatnonzero(self.numbers[:, 0] >= 0)
        text = f"in {what}, {len(rows):,} {'row' if len(rows) == 1 else 'rows'}"
        if len(rows):
            text += f"{self.context}: the first is {self._place(int(rows[0]))}"
        if len(rows) > 1:
            text += f"; the last is {self._place(int(rows[-1]))}"
        add_note(error, text)

    def describe_row(self, row: int, what: str) -> str:
        """Return where `what` was called for one row."""
        return f"in {what}, row {row}{self.context}: {self._place(row)}"

    def _place(self, row: int) -> str:
        file, record, begin, _ = self.numbers[row].tolist()
        return f"{self.files[file]}, record {record}, byte {begin}"
