"""Selection: the record numbers of a view, in order.

A selection is a list of pieces: ranges, which need no memory, or arrays with one number
for each record. Records are numbered across all files.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import hashlib

Numbers: TypeAlias = npt.NDArray[np.int64]


class Selection:
    """Record numbers, in the order of a view, out of the `n_source` records of files."""

    def __init__(
        self, pieces: Iterable[range | Numbers], n_source: int | None = None
    ) -> None:
        self._pieces = [piece for piece in pieces if len(piece)]
        self._begins = [0, *itertools.accumulate(len(piece) for piece in self._pieces)]
        self.n_source = n_source  # records in the files, if known

    @classmethod
    def joined(cls, parts: Iterable[Selection], n_source: int) -> Selection:
        """Concatenate selections of files that have `n_source` records."""
        return cls((piece for part in parts for piece in part._pieces), n_source)

    def __len__(self) -> int:
        return self._begins[-1]

    def select(self, chosen: range | Numbers) -> Selection:
        """Return the records at positions `chosen`, which must be in bounds."""
        if isinstance(chosen, range):
            return Selection(self._parts(chosen), self.n_source)
        return Selection([self._numbers(chosen)], self.n_source)

    def shifted(self, by: int) -> Selection:
        """Return a selection with `by` added to all numbers."""
        if by == 0:
            return self
        shifted = (
            range(piece.start + by, piece.stop + by, piece.step)
            if isinstance(piece, range)
            else piece + by
            for piece in self._pieces
        )
        return Selection(shifted, self.n_source)

    def to_core(self) -> list[tuple[int, int, int] | Numbers]:
        """Return the pieces in the form that `_core.Catalog` accepts."""
        return [
            (len(piece), piece.start, piece.step) if isinstance(piece, range) else piece
            for piece in self._pieces or [range(0)]
        ]

    def add_to(self, digest: hashlib.blake2b) -> None:
        """Update `digest` with the record numbers."""
        for piece in self._pieces:
            if isinstance(piece, range):
                digest.update(repr((piece.start, len(piece), piece.step)).encode())
            else:
                digest.update(piece.astype("<i8", copy=False).tobytes())

    def _parts(self, chosen: range) -> Iterable[range | Numbers]:
        if chosen.step < 0:
            yield from reversed([part[::-1] for part in self._parts(chosen[::-1])])
            return
        spans = itertools.pairwise(self._begins)
        for piece, (begin, end) in zip(self._pieces, spans, strict=True):
            first, last = (bisect.bisect_left(chosen, bound) for bound in (begin, end))
            here = chosen[first:last]
            if here:
                part = piece[here.start - begin : here.stop - begin : here.step]
                # Copy, because a view would keep the whole array alive.
                yield part if isinstance(part, range) else part.copy()

    def _numbers(self, chosen: Numbers) -> Numbers:
        which = np.searchsorted(self._begins, chosen, side="right") - 1
        by_piece = np.argsort(which, kind="stable")
        counts = np.bincount(which, minlength=len(self._pieces))
        bounds = itertools.pairwise(np.cumsum([0, *counts]))
        numbers = np.empty(len(chosen), np.int64)
        parts = zip(self._pieces, self._begins, bounds, strict=False)
        for piece, first, (begin, end) in parts:
            here = by_piece[begin:end]
            within = chosen[here] - first
            numbers[here] = (
                piece.start + within * piece.step
                if isinstance(piece, range)
                else piece[within]
            )
        return numbers
