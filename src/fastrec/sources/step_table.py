"""StepTable: row number <-> record in the files and step in the record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastrec.features.steps import Steps
from fastrec.sources.selection import Numbers, Pieces


class StepTable:
    """The rows of the steps of all records in files.

    `parts` has the steps of consecutive files.
    """

    def __init__(self, parts: Sequence[Steps]) -> None:
        self.counts: npt.NDArray[np.int32] = np.concatenate(
            [part.counts for part in parts]
        )
        self._parts = parts
        self._part_ends = np.cumsum([len(part.counts) for part in parts])
        n_rows = [part.rows_of(part.counts) for part in parts]
        self.ends: Numbers = np.cumsum(np.concatenate(n_rows), dtype=np.int64)

    @property
    def n_rows(self) -> int:
        """The number of rows of all records."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def find(self, rows: Numbers) -> Numbers:
        """Return the record and the step of each row: an array of shape (rows, 2)."""
        records = np.searchsorted(self.ends, rows, side="right")
        within = rows - self._begins(records)
        part = np.searchsorted(self._part_ends, records, side="right")
        every, first = (
            np.array([getattr(p, name) for p in self._parts], np.int64)[part]
            for name in ("every", "first")
        )
        return np.stack([records, first + within * every], axis=1)

    def rows_of(self, pieces: Pieces) -> Pieces:
        """Return the rows of all records of a selection."""
        return tuple(filter(len, map(self._rows_of, pieces)))

    def _rows_of(self, piece: range | Numbers) -> range | Numbers:
        if isinstance(piece, range) and piece.step == 1:
            first, last = (
                int(self.ends[i - 1]) if i else 0 for i in (piece.start, piece.stop)
            )
            return range(first, max(first, last))
        records = np.asarray(piece, np.int64)
        begins = self._begins(records)
        lengths = self.ends[records] - begins
        ends = np.cumsum(lengths)
        rows: Numbers = np.arange(ends[-1]) + np.repeat(
            begins - ends + lengths, lengths
        )
        return rows

    def _begins(self, records: Numbers) -> Numbers:
        return np.where(records > 0, self.ends[records - 1], 0)
