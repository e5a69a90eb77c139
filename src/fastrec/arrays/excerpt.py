"""Excerpts: what a repr shows of much data."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["EDGE_ITEMS", "abridged", "edges", "parts_text"]

EDGE_ITEMS = 3  # items that a repr shows at each end
SHOWN_BYTES = 16  # bytes that a repr shows of a long string


class Items(Protocol):
    """Anything with a length and items."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...  # noqa: ANN401


def edges(items: Items) -> list[Any]:
    """Return all items, or of many the first few and the last few."""
    few = len(items) <= 2 * EDGE_ITEMS
    shown = range(len(items)) if few else (*range(EDGE_ITEMS), *range(-EDGE_ITEMS, 0))
    return [items[i] for i in shown]


def abridged(value: bytes) -> str:
    """Return the repr of a string; of a long one the beginning and its size."""
    if len(value) <= 2 * SHOWN_BYTES:
        return repr(value)
    return f"{value[:SHOWN_BYTES]!r}...({len(value)} bytes)"


def parts_text(array: object, *names: str) -> str:
    """Return a repr by the attributes `names`, which may be anything.

    For arrays that are pytrees of JAX, which puts tracers and its own marks there.
    """
    parts = [f"{name}={getattr(array, name)!r}" for name in names]
    return f"{type(array).__name__}({', '.join(parts)})"
