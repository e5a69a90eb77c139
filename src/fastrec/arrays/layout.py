"""Common code of the array types: items, offsets, shapes, indices and reprs."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastrec.display import table

EDGE_ITEMS = 3  # items at each end of an abridged repr


class Rows:
    """Base of the array types: iteration, copying, and no hash."""

    __slots__ = ("__weakref__",)
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # `ndarray == array` calls `array.__eq__`

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        n = min(len(self), 2 * EDGE_ITEMS)
        rows = [[str(i), self[i]] for i in range(n)]
        title = f"{type(self).__name__}, {self.shape}, {self.dtype}"  # type: ignore[attr-defined]
        return table(["row", "value"], rows, title=title, n_more=len(self) - n)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.__copy__()  # type: ignore[attr-defined]


class NotComparable(Rows):
    """Base of the array types that refuse `==` and conversion to an ndarray."""

    __slots__ = ()
    _dense_form = ""  # the method that returns a dense array

    def __eq__(self, other: object) -> bool:
        raise TypeError(self._no_comparison("=="))

    def __ne__(self, other: object) -> bool:
        raise TypeError(self._no_comparison("!="))

    def _no_comparison(self, operator: str) -> str:
        return (
            f"{type(self).__name__} does not support {operator}; call .equals(other), "
            "or compare .values"
        )

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        raise TypeError(
            f"cannot convert a {type(self).__name__} to an ndarray; use "
            f".{self._dense_form}() or .values"
        )


def equal_values(a: Any, b: Any) -> bool:
    """Compare arrays of equal shape and dtype; NaN equals NaN."""
    equal = a == b
    if isinstance(a, np.ndarray):
        equal |= operator.ne(a, a) & operator.ne(b, b)
    return bool(np.all(equal))


def as_offsets(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return `values` as contiguous int32 or int64 offsets, or raise a ValueError."""
    offsets = np.asarray(values)
    if offsets.dtype not in (np.int32, np.int64):
        if offsets.dtype.kind not in "iu" or not np.can_cast(offsets.dtype, np.int64):
            raise ValueError(f"{name} must have dtype int64, got {offsets.dtype}")
        offsets = offsets.astype(np.int64)
    if offsets.ndim != 1 or offsets.size == 0:
        raise ValueError(
            f"{name} must be 1-D with at least one entry, got shape {offsets.shape}"
        )
    decreases = offsets[1:] < offsets[:-1]
    if decreases.any():
        i = int(decreases.argmax())
        raise ValueError(
            f"{name} must not decrease, got {offsets[i + 1]} after {offsets[i]} at "
            f"index {i + 1}"
        )
    return np.ascontiguousarray(offsets)


def offsets_from(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the n + 1 offsets of n adjacent runs of these lengths."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def run_positions(
    starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    """Return the concatenated ranges ``start:start + length``."""
    offsets = offsets_from(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])


def as_shape(shape: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, ...]:
    """Return `shape` as a tuple of sizes, or raise a ValueError."""
    sizes = (shape,) if isinstance(shape, SupportsIndex) else shape
    checked = tuple(operator.index(size) for size in sizes)
    if any(size < 0 for size in checked):
        raise ValueError(f"shape must not have negative sizes, got {checked}")
    return checked


def is_int(index: object) -> bool:
    """Return whether `index` is an integer. A bool is not; NumPy masks with it."""
    if isinstance(index, np.ndarray):
        return index.ndim == 0 and index.dtype.kind in "iu"
    return isinstance(index, (int, np.integer)) and not isinstance(index, bool)


def row_number(index: SupportsIndex, size: int, axis: int = 0) -> int:
    """Return a possibly negative index as a position, or raise an IndexError."""
    i = operator.index(index)
    if not -size <= i < size:
        raise IndexError(f"index {i} is out of bounds for axis {axis} with size {size}")
    return i % size


def row_numbers(index: Any, n_rows: int) -> NDArray[np.integer[Any]]:
    """Return the rows that a slice, mask or index array selects."""
    if isinstance(index, tuple):
        message = "cannot index rows with a tuple; write a[i][j] instead of a[i, j]"
        raise IndexError(message)
    rows = np.asarray(np.arange(n_rows)[index])
    if rows.ndim != 1:
        raise IndexError(f"index must be 1-D, got {rows.ndim}-D")
    return rows


def as_fill(fill: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return `fill` in `dtype`; raise if an integer or bool dtype changes it."""
    array = np.asarray(fill)
    try:
        with np.errstate(invalid="ignore"):
            filler = array.astype(dtype)
        is_exact = dtype.kind not in "iub" or bool(np.all(filler == array))
    except OverflowError:
        is_exact = False
    if not is_exact:
        raise ValueError(f"fill must be a value of dtype {dtype}, got {fill!r}")
    return filler


class Items(Protocol):
    """A sequence, as far as a repr needs it."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def edges(items: Items) -> list[Any]:
    """Return the items to show: all, or the first and the last few of many."""
    few = len(items) <= 2 * EDGE_ITEMS
    shown = range(len(items)) if few else (*range(EDGE_ITEMS), *range(-EDGE_ITEMS, 0))
    return [items[i] for i in shown]


def listed(items: Items, texts: list[str]) -> str:
    """Return the texts of `edges(items)` as a list, with dots for omitted items."""
    if len(texts) < len(items):
        texts.insert(EDGE_ITEMS, "...")
    return f"[{', '.join(texts)}]"


def parts_text(array: object, *names: str) -> str:
    """Return a repr of an array whose attributes are JAX tracers or placeholders."""
    parts = [f"{name}={getattr(array, name)!r}" for name in names]
    return f"{type(array).__name__}({', '.join(parts)})"


def encoded(value: object, name: str) -> bytes:
    """Return `value` as bytes, or raise a TypeError that calls it `name`."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{name} must be bytes or str, got {type(value).__name__}")


def flattened(values: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Return the leaves of nested lists, and their shape."""
    level = list(values)
    shape: tuple[int, ...] = (len(level),)
    while level and isinstance(level[0], (list, tuple)):
        width = len(level[0])
        for i, row in enumerate(level):
            if not isinstance(row, (list, tuple)) or len(row) != width:
                raise ValueError(f"row {i} differs from row 0 in length or depth")
        level = [value for row in level for value in row]
        shape = (*shape, width)
    return level, shape


def is_numbers(row: object) -> bool:
    """Return whether `row` is an ndarray of numbers."""
    return isinstance(row, np.ndarray) and row.dtype.kind not in "SUO"


def row_text(row: Any) -> str:
    """Return one row on one line, abridged for a repr."""
    if not isinstance(row, np.ndarray):
        return str(row._text())
    edge_items = EDGE_ITEMS if row.ndim == 1 else 1
    text = np.array2string(
        row, separator=", ", threshold=2 * edge_items, edgeitems=edge_items
    )
    return " ".join(text.split())
