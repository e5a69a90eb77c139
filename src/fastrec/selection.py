"""Selections: which records of some files are in a view, and in what order.

A selection is a list of pieces, one after another: a `range` costs no memory, an array
holds one number for each record. The numbers count through all files.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Numbers", "Selection"]

Numbers: TypeAlias = npt.NDArray[np.int64]


class Selection:
    """Records by number, in the order of a view.

    Parameters
    ----------
    pieces : iterable of range or ndarray of int64
        What the view consists of, one after another.
    """

    def __init__(self, pieces: Iterable[range | Numbers]) -> None:
        self._pieces = [piece for piece in pieces if len(piece)]
        self._begins = [0, *itertools.accumulate(len(piece) for piece in self._pieces)]

    def __len__(self) -> int:
        return self._begins[-1]

    def select(self, chosen: range | Numbers) -> Selection:
        """Return the selection of what `chosen` says of this one, all in bounds."""
        if isinstance(chosen, range):
            if len(self._pieces) == 1:
                return Selection([_within(self._pieces[0], chosen)])
            if chosen.step == 1:
                return Selection(self._slices(chosen))
            chosen = np.array(chosen, dtype=np.int64)
        return Selection([self._numbers(chosen)])

    def shifted(self, by: int) -> Selection:
        """Return the same records where `by` others come before them."""
        return Selection(
            range(piece.start + by, piece.stop + by, piece.step)
            if isinstance(piece, range)
            else piece + by
            for piece in self._pieces
        )

    def __add__(self, other: Selection) -> Selection:
        return Selection([*self._pieces, *other._pieces])

    def of_core(self) -> list[tuple[int, int, int] | Numbers]:
        """Return the pieces as `_core.Catalog` takes them."""
        return [
            (len(piece), piece.start, piece.step) if isinstance(piece, range) else piece
            for piece in self._pieces or [range(0)]
        ]

    def add_to(self, digest: hashlib.blake2b) -> None:
        """Add to `digest` which records these are."""
        for piece in self._pieces:
            if isinstance(piece, range):
                digest.update(repr((piece.start, len(piece), piece.step)).encode())
            else:
                digest.update(piece.astype("<i8", copy=False).tobytes())

    def _slices(self, chosen: range) -> Iterable[range | Numbers]:
        for piece, (begin, end) in zip(
            self._pieces, itertools.pairwise(self._begins), strict=True
        ):
            first, last = max(chosen.start, begin), min(chosen.stop, end)
            if first < last:
                yield piece[first - begin : last - begin]

    def _numbers(self, chosen: Numbers) -> Numbers:
        which = np.searchsorted(self._begins, chosen, side="right") - 1
        numbers = np.empty(len(chosen), np.int64)
        for i, piece in enumerate(self._pieces):
            here = which == i
            within: Any = chosen[here] - self._begins[i]
            numbers[here] = (
                piece.start + within * piece.step
                if isinstance(piece, range)
                else piece[within]
            )
        return numbers


def _within(piece: range | Numbers, chosen: range) -> range | Numbers:
    if isinstance(piece, range):
        return range(
            piece.start + chosen.start * piece.step,
            piece.start + chosen.stop * piece.step,
            piece.step * chosen.step,
        )
    return piece[np.array(chosen, dtype=np.int64)]
