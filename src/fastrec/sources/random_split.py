"""Divide records into random splits or equal parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec import _core

# The random stream of splits; epoch orders of the same seed use stream 0.
_SPLIT_STREAM = 1 << 32

# Positions per call of the core.
_CHUNK_POSITIONS = 1 << 20


def even_bounds(n_records: int, n_parts: int) -> list[int]:
    """Return the beginnings of `n_parts` equal parts, and the end of the last one."""
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
    """Assign records to random parts; return the part of each record, or -1 for none.

    Part i has about ``fractions[i]`` of the records.
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
