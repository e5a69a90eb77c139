"""Select records, and divide records into random or equal parts.

A selection is a sequence of pieces. A piece is a range of record numbers, or an array
with one number per record. Records are numbered across all files.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec import _core

Numbers: TypeAlias = npt.NDArray[np.int64]
Pieces: TypeAlias = "tuple[range | Numbers, ...]"

# The random stream of splits; epoch orders of the same seed use stream 0.
_SPLIT_STREAM = 1 << 32

# Positions per call of the core.
_CHUNK_POSITIONS = 1 << 20


def chosen(pieces: Pieces, positions: range | Numbers) -> Pieces:
    """Select the records at `positions` in `pieces`; positions must be in bounds."""
    if isinstance(positions, range):
        return tuple(_parts(pieces, positions))
    return (numbers_at(pieces, positions),) if len(positions) else ()


def numbers_at(pieces: Pieces, positions: Numbers) -> Numbers:
    """Return the record numbers at `positions` in `pieces`."""
    begins = _begins(pieces)
    which = np.searchsorted(begins, positions, side="right") - 1
    by_piece = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(pieces)))
    numbers = np.empty(len(positions), np.int64)
    for i, here in enumerate(np.split(by_piece, ends[:-1]) if pieces else ()):
        piece, within = pieces[i], positions[here] - begins[i]
        numbers[here] = (
            piece.start + within * piece.step
            if isinstance(piece, range)
            else piece[within]
        )
    return numbers


def _begins(pieces: Pieces) -> list[int]:
    return [0, *itertools.accumulate(map(len, pieces))]


def _parts(pieces: Pieces, positions: range) -> Iterator[range | Numbers]:
    if positions.step < 0:
        parts = [*_parts(pieces, positions[::-1])]
        yield from (part[::-1] for part in reversed(parts))
        return
    for piece, begin in zip(pieces, _begins(pieces), strict=False):
        bounds = (begin, begin + len(piece))
        first, last = (bisect.bisect_left(positions, bound) for bound in bounds)
        if here := positions[first:last]:
            part = piece[here.start - begin : here.stop - begin : here.step]
            # Copy, because a view would keep the whole array alive.
            yield part if isinstance(part, range) else part.copy()


def shifted(pieces: Pieces, by: int) -> Iterator[range | Numbers]:
    """Yield the pieces with `by` added to all record numbers."""
    for piece in pieces:
        if isinstance(piece, range):
            yield range(piece.start + by, piece.stop + by, piece.step)
        else:
            yield piece + by if by else piece


def even_bounds(n_records: int, n_parts: int) -> list[int]:
    """Return the first record of each of `n_parts` equal parts, and `n_records`."""
    return [part * n_records // n_parts for part in range(n_parts + 1)]


def check_fractions(fractions: Sequence[float]) -> None:
    """Raise a ValueError unless `fractions` are nonnegative and sum to at most 1."""
    shares = np.asarray(fractions, dtype=np.float64)
    total = float(shares.sum()) if shares.ndim == 1 else np.nan
    if not (shares >= 0).all() or not total <= 1 + 1e-9:
        raise ValueError(
            f"fractions must be nonnegative and sum to at most 1, got {fractions}"
        )


def divided(
    n_records: int, fractions: Sequence[float], seed: int
) -> npt.NDArray[np.signedinteger[Any]]:
    """Assign records to random parts. Return the part of each record; -1 means no part.

    Part i has about ``fractions[i] * n_records`` records.
    """
    ends = np.minimum(np.cumsum([0, *fractions], dtype=np.float64), 1) * n_records
    order = _core.Order.of(
        _core.Shuffle.shuffled(), n_records, seed, 0, stream=_SPLIT_STREAM
    )
    # The smallest dtype for part numbers and -1.
    part_of = np.full(n_records, -1, np.min_scalar_type(-len(fractions) - 1))
    for part, (begin, end) in enumerate(itertools.pairwise(np.rint(ends).astype(int))):
        for first in range(begin, end, _CHUNK_POSITIONS):
            positions = np.arange(first, min(first + _CHUNK_POSITIONS, end))
            part_of[order.records(positions)] = part
    return part_of


def divided_strata(
    strata: npt.NDArray[np.intp], fractions: Sequence[float], seed: int
) -> npt.NDArray[np.signedinteger[Any]]:
    """Assign the records of each stratum to random parts, as `divided` does."""
    order = np.argsort(strata, kind="stable")
    sizes = np.bincount(strata, minlength=1).tolist()
    in_order = np.concatenate([divided(size, fractions, seed) for size in sizes])
    part_of = np.empty_like(in_order)
    part_of[order] = in_order
    return part_of
