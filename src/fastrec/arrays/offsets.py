"""Offsets: where runs of items begin and end, for arrays whose rows differ in length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["as_offsets", "offsets_from", "run_positions"]


def as_offsets(values: ArrayLike, name: str) -> NDArray[Any]:
    """Check that `values` are 1-D, non-decreasing int32 or int64; make them contiguous.

    Other integers become int64 where that is safe.
    """
    offsets = np.asarray(values)
    if offsets.dtype not in (np.int32, np.int64):
        if offsets.dtype.kind not in "iu" or not np.can_cast(offsets.dtype, np.int64):
            raise ValueError(f"{name} must be of dtype int64, not {offsets.dtype}")
        offsets = offsets.astype(np.int64)
    if offsets.ndim != 1 or offsets.size == 0:
        shape = offsets.shape
        raise ValueError(f"{name} must be 1-D with at least one entry, not {shape}")
    falls = offsets[1:] < offsets[:-1]
    if falls.any():
        i = int(falls.argmax())
        pair = f"{offsets[i + 1]} after {offsets[i]}"
        raise ValueError(f"{name} must not decrease: {pair} at index {i + 1}")
    return np.ascontiguousarray(offsets)


def offsets_from(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the n + 1 offsets of n runs that lie one after the other."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def run_positions(
    starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    """Return the positions of all items of the given runs, run after run."""
    offsets = offsets_from(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
