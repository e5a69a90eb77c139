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
        counts = [part.counts for part in parts]
        self.counts: npt.NDArray[np.int32] = (
            np.concatenate(counts) if len(counts) > 1 else counts[0]
        )
        self._part_ends = np.cumsum([len(part.counts) for part in parts])
        rules = [(part.every, part.first) for part in parts]
        self._every, self._first = np.array(rules, np.int64).T
        n_rows = np.concatenate([[0], *(part.rows_of(part.counts) for part in parts)])
        # The rows of record i are those from bound i to bound i + 1.
        self._bounds: Numbers = np.cumsum(n_rows, dtype=np.int64)
        self.ends = self._bounds[1:]

    @property
    def n_rows(self) -> int:
        """The number of rows of all records."""
        return int(self._bounds[-1])

    def find(self, rows: Numbers) -> Numbers:
        """Return the record and the step of each row: an array of shape (rows, 2)."""
        records = np.searchsorted(self.ends, rows, side="right")
        every, first = self._every, self._first
        if len(every) > 1:
            part = np.searchsorted(self._part_ends, records, side="right")
            every, first = every[part], first[part]
        found = np.empty((len(rows), 2), np.int64)
        found[:, 0] = records
        found[:, 1] = first + (rows - self._bounds[records]) * every
        return found

    def rows_of(self, pieces: Pieces) -> Pieces:
        """Return the rows of all records of a selection."""
        return tuple(filter(len, map(self._rows_of, pieces)))

    def _rows_of(self, piece: range | Numbers) -> range | Numbers:
        if isinstance(piece, range) and piece.step == 1:
            first, last = self._bounds[[piece.start, piece.stop]].tolist()
            return range(first, max(first, last))
        records = np.asarray(piece, np.int64)
        begins = self._bounds[records]
        lengths = self.ends[records] - begins
        ends = np.cumsum(lengths)
        rows: Numbers = np.arange(ends[-1]) + np.repeat(
            begins - ends + lengths, lengths
        )
        return rows
