"""Base class of the array types, and functions for offsets, indices and reprs."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastrec.display import abridged

if TYPE_CHECKING:
    from typing_extensions import Self

EDGE_ITEMS = 3  # items at each end of an abridged repr


class Rows:
    """Base class of the array types; `_parts` names the attributes of a subclass."""

    __slots__ = ("__weakref__",)
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # `ndarray == array` calls `array.__eq__`

    _parts: ClassVar[tuple[str, ...]]  # parameters of the constructor
    _dense_form = ""  # name of the method that returns a dense array
    _in_repr: ClassVar[tuple[str, ...]] = ("shape", "dtype")

    @property
    def dtype(self: Any) -> np.dtype[Any]:
        """The dtype of the innermost values; object for byte strings."""
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    @property
    def ndim(self: Any) -> int:
        """Number of dimensions; each ragged axis counts as one."""
        return len(self.shape)

    @classmethod
    def _wrap(cls, *parts: Any) -> Self:
        """Make an array from the attributes in `_parts`, without checking them."""
        array = cls.__new__(cls)
        for name, part in zip(cls._parts, parts, strict=True):
            setattr(array, name, part)
        return array

    def _part_values(self) -> list[Any]:
        return [getattr(self, name) for name in self._parts]

    def __iter__(self: Any) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> Any:
        raise TypeError(self._no_comparison("=="))

    def __ne__(self, other: object) -> Any:
        raise TypeError(self._no_comparison("!="))

    def _no_comparison(self, operator: str) -> str:
        return (
            f"{type(self).__name__} does not support {operator}; call .equals(other), "
            "or compare .values"
        )

    def equals(self, other: object) -> bool:
        """Return whether `other` has the same type, dtype, shape and values.

        NaN equals NaN. The dtype of `row_splits` does not matter.
        """
        return (
            isinstance(other, type(self))
            and describe_rows(self) == describe_rows(other)
            and all(map(equal_values, self._part_values(), other._part_values()))
        )

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        raise TypeError(
            f"cannot convert a {type(self).__name__} to an ndarray; use "
            f".{self._dense_form}() or .values"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self._part_values())

    def __copy__(self) -> Self:
        return self._wrap(*map(copy.copy, self._part_values()))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def __repr__(self) -> str:
        if self._is_numpy():
            shown = (f"{name}={getattr(self, name)}" for name in self._in_repr)
            texts = [self._text(), *shown]
        else:
            texts = [f"{name}={getattr(self, name)!r}" for name in self._parts]
        return f"{type(self).__name__}({', '.join(texts)})"

    def _is_numpy(self) -> bool:
        """Return whether all attributes are NumPy arrays or tuples, not JAX tracers."""
        return all(
            part._is_numpy()
            if isinstance(part, Rows)
            else isinstance(part, (np.ndarray, tuple))
            for part in self._part_values()
        )

    def _text(self: Any) -> str:
        """Return the rows on one line, abridged for a repr."""
        is_long = len(self) > 2 * EDGE_ITEMS
        ends = [*range(EDGE_ITEMS), *range(-EDGE_ITEMS, 0)]
        texts = [_item_text(self[i]) for i in (ends if is_long else range(len(self)))]
        if is_long:
            texts.insert(EDGE_ITEMS, "...")
        return f"[{', '.join(texts)}]"


def _item_text(item: Any) -> str:
    """Return one row or byte string on one line, abridged for a repr."""
    if isinstance(item, bytes):
        return abridged(item)
    if isinstance(item, Rows):
        return item._text()
    edge_items = EDGE_ITEMS if item.ndim == 1 else 1
    text = np.array2string(
        item, separator=", ", threshold=2 * edge_items, edgeitems=edge_items
    )
    return " ".join(text.split())


def describe_rows(array: Any) -> str:
    """Return the row type of `array` as text; equal types allow concatenation."""
    kind = getattr(array, "_kind", None) or str(array.dtype)
    if kind == "ragged":
        return f"ragged rows of {describe_rows(array.values)}"
    if kind == "sparse":
        kind = f"sparse {array.dtype}"
    return f"{kind} of shape {array.shape[1:]}"


def equal_values(a: Any, b: Any) -> bool:
    """Return whether two arrays' attributes `a` and `b` are equal; NaN equals NaN."""
    if isinstance(a, Rows):
        return a.equals(b)
    if not isinstance(a, np.ndarray):
        return bool(a == b)
    nan = operator.ne(a, a) & operator.ne(b, b) if a.shape == b.shape else False
    return a.shape == b.shape and bool(np.all((a == b) | nan))


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
    """Return the n + 1 offsets of n adjacent runs with these `lengths`."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def run_positions(
    starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    """Return the positions in all ranges ``start:start + length``, concatenated."""
    offsets = offsets_from(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])


def as_shape(shape: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, ...]:
    """Return `shape` as a tuple of ints; raise a ValueError if one is negative."""
    sizes = (shape,) if isinstance(shape, SupportsIndex) else shape
    checked = tuple(operator.index(size) for size in sizes)
    if any(size < 0 for size in checked):
        raise ValueError(f"shape must not have negative sizes, got {checked}")
    return checked


def is_int(index: object) -> bool:
    """Return whether `index` is an integer and not a bool, which is a mask in NumPy."""
    if isinstance(index, np.ndarray):
        return index.ndim == 0 and index.dtype.kind in "iu"
    return isinstance(index, (int, np.integer)) and not isinstance(index, bool)


def row_number(index: SupportsIndex, size: int, axis: int = 0) -> int:
    """Return `index` as a position from 0; raise an IndexError if out of bounds."""
    i = operator.index(index)
    if not -size <= i < size:
        raise IndexError(f"index {i} is out of bounds for axis {axis} with size {size}")
    return i % size


def row_numbers(index: Any, n_rows: int) -> NDArray[np.integer[Any]]:
    """Return the row numbers that a slice, mask or index array selects."""
    if isinstance(index, tuple):
        message = "cannot index rows with a tuple; write a[i][j] instead of a[i, j]"
        raise IndexError(message)
    rows = np.asarray(np.arange(n_rows)[index])
    if rows.ndim != 1:
        raise IndexError(f"index must be 1-D, got {rows.ndim}-D")
    return rows


def as_fill(fill: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert `fill` to `dtype`; an integer or bool dtype must represent it exactly."""
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


def encoded(value: object, name: str) -> bytes:
    """Return `value` as bytes, or raise a TypeError with `name` in the message."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{name} must be bytes or str, got {type(value).__name__}")


def flattened(values: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Return the innermost items and the shape of nested lists of equal lengths."""
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
