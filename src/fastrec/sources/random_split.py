"""Dividing: a number of records -> which of them belong together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec import _core

__all__ = ["check_fractions", "divided", "even_bounds"]

# Keeps apart what is derived from the same seed: the order of an epoch is stream 0.
_SPLIT_STREAM = 1 << 32

# Positions whose records are looked up together.
_POSITIONS_AT_ONCE = 1 << 20


def even_bounds(n_records: int, n_parts: int) -> list[int]:
    """Return where each of `n_parts` equal parts begins, and the last one ends."""
    return [part * n_records // n_parts for part in range(n_parts + 1)]


def check_fractions(fractions: Sequence[float]) -> None:
    """Raise a ValueError unless `fractions` are shares of a whole."""
    shares = np.asarray(fractions, dtype=np.float64)
    total = float(shares.sum()) if shares.ndim == 1 else np.nan
    if not (shares >= 0).all() or not total <= 1 + 1e-9:
        msg = f"fractions must be at least 0 and together 1 at most, not {fractions}"
        raise ValueError(msg)


def divided(
    n_records: int, fractions: Sequence[float], seed: int
) -> npt.NDArray[np.signedinteger[Any]]:
    """Divide records at random, and return the part of each; -1 where it is in none.

    Part i has about ``fractions[i]`` of the records.
    """
    ends = np.minimum(np.cumsum([0, *fractions], dtype=np.float64), 1) * n_records
    order = _core.Order.of(
        _core.Shuffle.shuffled(), n_records, seed, 0, stream=_SPLIT_STREAM
    )
    # The smallest type that holds the number of each part, and -1.
    part_of = np.full(n_records, -1, np.min_scalar_type(-len(fractions) - 1))
    for part, (begin, end) in enumerate(itertools.pairwise(np.rint(ends).astype(int))):
        for first in range(begin, end, _POSITIONS_AT_ONCE):
            positions = np.arange(first, min(first + _POSITIONS_AT_ONCE, end))
            part_of[order.records(positions)] = part
    return part_of
