"""Batch sizes where nobody gives one: of tables, and of what is converted."""

from __future__ import annotations

__all__ = ["BATCH_BYTES", "MOST_ROWS", "rows_per_batch"]

BATCH_BYTES = 16 << 20
MOST_ROWS = 1 << 16


def rows_per_batch(row_bytes: float) -> int:
    """Return how many rows of a size make a batch."""
    return int(max(1, min(MOST_ROWS, BATCH_BYTES // max(row_bytes, 1))))
