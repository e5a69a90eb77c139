"""What BytesArray, RaggedArray and SparseArray share: offsets, shapes, indices, reprs."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "EDGE_ITEMS",
    "NotComparable",
    "Rows",
    "abridged",
    "as_fill",
    "as_offsets",
    "as_shape",
    "edges",
    "equal_values",
    "is_int",
    "listed",
    "offsets_from",
    "parts_text",
    "row_number",
    "row_numbers",
    "run_positions",
]

EDGE_ITEMS = 3  # items that a repr shows at each end
SHOWN_BYTES = 16  # bytes that a repr shows of a long string


class Rows:
    """Base of the arrays: `==` of an ndarray asks them, and they are not hashable."""

    __slots__ = ("__weakref__",)
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:  # noqa: ANN401
        return self.__copy__()  # type: ignore[attr-defined]


class NotComparable(Rows):
    """Base of arrays with `equals` in place of `==`, and with no NumPy form."""

    __slots__ = ()
    _dense_form = ""  # the method that returns a dense array

    def __eq__(self, other: object) -> bool:
        raise TypeError(self._refusal("=="))

    def __ne__(self, other: object) -> bool:
        raise TypeError(self._refusal("!="))

    def _refusal(self, operation: str) -> str:
        array = type(self).__name__
        return f"a {array} has no {operation}: use {array[0].lower()}.equals(other), or compare .values"

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        array = type(self).__name__
        raise TypeError(
            f"a {array} is not an ndarray: use {array[0].lower()}.{self._dense_form}() or .values"
        )


def equal_values(a: Any, b: Any) -> bool:  # noqa: ANN401 (ndarrays or BytesArrays)
    """Return whether arrays of equal shape and dtype are equal, NaN equal to NaN."""
    equal = a == b
    if isinstance(a, np.ndarray):
        equal |= operator.ne(a, a) & operator.ne(b, b)
    return bool(np.all(equal))


def as_offsets(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return 1-D offsets that do not decrease as contiguous int32 or int64."""
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
    """Return the n + 1 offsets of n adjacent runs."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def run_positions(
    starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    """Return the positions of all items of the given runs, run after run."""
    offsets = offsets_from(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])


def as_shape(shape: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, ...]:
    """Return `shape` as a tuple of sizes that are not negative."""
    sizes = (shape,) if isinstance(shape, SupportsIndex) else shape
    checked = tuple(operator.index(size) for size in sizes)
    if any(size < 0 for size in checked):
        raise ValueError(f"shape must hold no negative sizes, not {checked}")
    return checked


def is_int(index: object) -> bool:
    """Return whether `index` selects one item; to NumPy, a bool is a mask."""
    if isinstance(index, np.ndarray):
        return index.ndim == 0 and index.dtype.kind in "iu"
    return isinstance(index, (int, np.integer)) and not isinstance(index, bool)


def row_number(index: SupportsIndex, size: int, axis: int = 0) -> int:
    """Return the position along an axis that `index` selects, from the start."""
    i = operator.index(index)
    if not -size <= i < size:
        raise IndexError(f"index {i} is out of bounds for axis {axis} with size {size}")
    return i % size


def row_numbers(index: Any, n_rows: int) -> NDArray[np.integer[Any]]:  # noqa: ANN401
    """Return the rows that a slice, mask or index array selects."""
    if isinstance(index, tuple):
        message = "rows need one index: write a[i][j], not a[i, j]"
        raise IndexError(message)
    rows = np.asarray(np.arange(n_rows)[index])
    if rows.ndim != 1:
        raise IndexError(f"rows need a 1-D index, not {rows.ndim}-D")
    return rows


def as_fill(fill: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return `fill` in `dtype`, if that changes no integer or bool."""
    given = np.asarray(fill)
    try:
        with np.errstate(invalid="ignore"):
            filler = given.astype(dtype)
    except OverflowError:
        raise ValueError(f"fill {fill!r} does not fit dtype {dtype}") from None
    if dtype.kind in "iub" and np.any(filler != given):
        raise ValueError(f"fill {fill!r} does not fit dtype {dtype}")
    return filler


class Items(Protocol):
    """Anything with a length and items."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...  # noqa: ANN401


def edges(items: Items) -> list[Any]:
    """Return all items, or of many the first few and the last few."""
    few = len(items) <= 2 * EDGE_ITEMS
    shown = range(len(items)) if few else (*range(EDGE_ITEMS), *range(-EDGE_ITEMS, 0))
    return [items[i] for i in shown]


def listed(items: Items, texts: list[str]) -> str:
    """Return the texts of the `edges` of items as a list, with dots between them."""
    if len(texts) < len(items):
        texts.insert(EDGE_ITEMS, "...")
    return f"[{', '.join(texts)}]"


def abridged(value: bytes) -> str:
    """Return the repr of a string; of a long one the beginning and its size."""
    if len(value) <= 2 * SHOWN_BYTES:
        return repr(value)
    return f"{value[:SHOWN_BYTES]!r}...({len(value)} bytes)"


def parts_text(array: object, *names: str) -> str:
    """Return a repr of an array whose attributes are tracers or marks of JAX."""
    parts = [f"{name}={getattr(array, name)!r}" for name in names]
    return f"{type(array).__name__}({', '.join(parts)})"
