"""BytesArray: variable-length byte strings in one buffer.

::

    data      c a t d o g s          uint8
    offsets   0     3       7  7     int64; string i is data[offsets[i]:offsets[i+1]]

NumPy's ``S`` dtype is not used, because it drops trailing NULs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastrec.arrays.layout import (
    Rows,
    as_offsets,
    as_shape,
    encoded,
    flattened,
    is_int,
    offsets_from,
    row_number,
    run_positions,
)

# Up to this average length, copying with an index array is faster than a loop.
LONG_STRING = 96


class BytesArray(Rows):
    r"""An array of variable-length byte strings in one buffer.

    This is the array type of bytes features. Indexing follows NumPy: slices with step 1
    share the buffer; other indices copy. ``==`` and ``!=`` are elementwise.

    Parameters
    ----------
    data : ndarray of uint8, shape (n_bytes,)
        The bytes of all strings. A contiguous array is used without a copy. A slice of
        the BytesArray keeps the whole buffer alive.
    offsets : ndarray of int64, shape (n + 1,)
        String ``i`` is ``data[offsets[i]:offsets[i + 1]]``. Offsets must not decrease
        and must be within `data`; they need not start at 0.
    shape : tuple of int, optional
        Shape of the array of n strings, in C order, with at least one dimension. By
        default ``(n,)``.

    Raises
    ------
    ValueError
        If `data`, `offsets` and `shape` do not describe an array of strings.

    Notes
    -----
    ``numpy.asarray(b)`` returns an object array of ``bytes``. Other dtypes raise
    `TypeError`, except ``"S"`` and ``"U"`` without a length. For those two, NumPy
    converts the object array and drops trailing NULs.

    Examples
    --------
    >>> b = BytesArray.from_list(["cat", "dogs", b"\x00"])
    >>> b
    BytesArray([b'cat', b'dogs', b'\x00'], shape=(3,))
    >>> b[1], b[[2, 0]].tolist()
    (b'dogs', [b'\x00', b'cat'])
    >>> b == "cat"
    array([ True, False, False])
    >>> BytesArray.from_list([b"\x01\x00", b"\x02\x00"]).as_array("<u2")
    array([1, 2], dtype=uint16)
    """

    _parts = ("data", "offsets", "shape")
    __slots__ = _parts
    _kind = "bytes"
    _in_repr = ("shape",)

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    shape: tuple[int, ...]

    def __init__(
        self,
        data: ArrayLike,
        offsets: ArrayLike,
        shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    ) -> None:
        self.data = np.ascontiguousarray(data)
        if self.data.dtype != np.uint8 or np.ndim(data) != 1:
            got = f"{np.ndim(data)}-D {self.data.dtype}"
            raise ValueError(f"data must be a 1-D array of uint8, got {got}")
        self.offsets = as_offsets(offsets, "offsets").astype(np.int64, copy=False)
        if self.offsets[0] < 0:
            raise ValueError(f"offsets must not be negative, got {self.offsets[0]}")
        if self.offsets[-1] > self.data.size:
            end, size = self.offsets[-1], self.data.size
            raise ValueError(f"offsets must be at most the data size {size}, got {end}")
        count = self.offsets.size - 1
        self.shape = (count,) if shape is None else as_shape(shape)
        if self.shape == () or math.prod(self.shape) != count:
            raise ValueError(
                f"shape must have at least one dimension and {count} items, got "
                f"{self.shape}"
            )

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> BytesArray:
        """Make a BytesArray from a list of strings, or from nested lists of strings.

        Parameters
        ----------
        values : sequence of bytes or str, or nested sequences
            ``str`` is encoded as UTF-8.

        Returns
        -------
        BytesArray
            With a new, writable buffer.

        Raises
        ------
        TypeError
            If a value is neither bytes nor str.
        ValueError
            If nested lists differ in length or depth.

        Examples
        --------
        >>> BytesArray.from_list([["a", "b"], ["c", "d"]]).shape
        (2, 2)
        """
        leaves, shape = flattened(values)
        strings = [encoded(value, f"value {i}") for i, value in enumerate(leaves)]
        data = np.frombuffer(bytearray().join(strings), np.uint8)
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        return cls._wrap(data, offsets_from(lengths), shape)

    @classmethod
    def _concatenate(cls, arrays: Sequence[BytesArray]) -> BytesArray:
        """Concatenate arrays whose shapes agree past the first axis."""
        data = np.concatenate([array._joined() for array in arrays])
        lengths = np.concatenate([np.diff(array.offsets) for array in arrays])
        shape = (sum(map(len, arrays)), *arrays[0].shape[1:])
        return cls._wrap(data, offsets_from(lengths), shape)

    @property
    def dtype(self) -> np.dtype[np.object_]:
        """``dtype('O')``, the dtype of the ndarray that ``numpy.asarray`` returns."""
        return np.dtype(object)

    @property
    def size(self) -> int:
        """Number of strings."""
        return self.offsets.size - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Size of each string in bytes: int64 of shape `self.shape`."""
        return np.diff(self.offsets).reshape(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of strings and offsets in bytes, without the rest of a shared buffer."""
        return int(self.offsets[-1] - self.offsets[0]) + self.offsets.nbytes

    def __len__(self) -> int:
        return self.shape[0]

    def __contains__(self, value: object) -> bool:
        return bool(np.any(self == value))

    @overload
    def __getitem__(
        self, index: slice | Sequence[SupportsIndex] | NDArray[Any]
    ) -> BytesArray: ...
    @overload
    def __getitem__(self, index: SupportsIndex | tuple[Any, ...]) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                rows = max(0, stop - start)
                inner = self.shape[1:]
                return self._run(start * math.prod(inner), (rows, *inner))
        key = index if isinstance(index, tuple) else (index,)
        if 0 < len(key) <= self.ndim and all(map(is_int, key)):
            inner = self.shape[len(key) :]
            first = self._position(key) * math.prod(inner)
            return self._run(first, inner) if inner else self._string(first)
        # For other indices, let NumPy select from an array of positions.
        positions = np.arange(self.size).reshape(self.shape)
        selected = np.asarray(positions[index])
        if selected.ndim == 0:
            return self._string(int(selected))
        if selected.flags.c_contiguous and np.may_share_memory(selected, positions):
            first = int(selected.flat[0]) if selected.size else 0
            return self._run(first, selected.shape)
        return self._take(selected)

    def view(self, index: SupportsIndex | tuple[SupportsIndex, ...]) -> memoryview:
        """Return one string as a memoryview of the buffer.

        Parameters
        ----------
        index : int or tuple of int
            One index for each axis.

        Returns
        -------
        memoryview
            A ``"B"`` view that keeps the buffer alive; writable if `data` is writable.

        Raises
        ------
        IndexError
            If the index is out of bounds, or does not select one string.
        """
        key = index if isinstance(index, tuple) else (index,)
        if len(key) != self.ndim:
            raise IndexError(f"view() requires {self.ndim} indices, got {len(key)}")
        i = self._position(key)
        return self.data.data[self.offsets[i] : self.offsets[i + 1]]

    def tolist(self) -> list[Any]:
        """Return the strings as nested lists of bytes."""
        nested: list[Any] = self._objects().tolist()
        return nested

    def as_array(
        self, dtype: DTypeLike, shape: SupportsIndex | Sequence[SupportsIndex] = ()
    ) -> NDArray[Any]:
        r"""View equally long strings as an array of numbers, without a copy.

        Parameters
        ----------
        dtype : dtype-like
            Type and byte order of the numbers in the strings, such as ``">f4"``.
        shape : int or tuple of int, default ()
            Shape of the array in each string.

        Returns
        -------
        ndarray of `dtype`
            A view of `data` with shape ``self.shape + shape``, which may be unaligned.

        Raises
        ------
        ValueError
            If a string does not have the size of an array of this dtype and shape.
        TypeError
            If `dtype` has no fixed size, or is ``S``.

        Examples
        --------
        >>> b = BytesArray.from_list([b"\x00\x01\x00\x02", b"\x00\x03\x00\x04"])
        >>> b.as_array(">u2", (2,)).tolist()
        [[1, 2], [3, 4]]
        """
        target, inner = np.dtype(dtype), as_shape(shape)
        if target.hasobject or target.kind == "S" or target.itemsize == 0:
            reason = (
                "drops trailing NULs" if target.kind == "S" else "has no fixed size"
            )
            raise TypeError(f"cannot view strings as dtype {target}: it {reason}")
        size = target.itemsize * math.prod(inner)
        wrong = np.flatnonzero(np.diff(self.offsets) != size)
        if wrong.size:
            place = tuple(int(i) for i in np.unravel_index(wrong[0], self.shape))
            where = str(place[0]) if self.ndim == 1 else str(place)
            got = self.offsets[wrong[0] + 1] - self.offsets[wrong[0]]
            raise ValueError(
                f"cannot view strings as {target} of shape {inner}: strings must have "
                f"{size} bytes, but string {where} has {got}"
            )
        return self._joined().view(target).reshape(self.shape + inner)

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[np.object_]:
        if dtype is not None and np.dtype(dtype) != np.dtype(object):
            drops = ", which drops trailing NULs" if np.dtype(dtype).kind == "S" else ""
            raise TypeError(
                f"cannot convert a BytesArray to {np.dtype(dtype)}{drops}; use "
                "dtype=object, or as_array() to view equally long strings as numbers"
            )
        if copy is False:
            message = "cannot convert a BytesArray to an object array without a copy"
            raise ValueError(message)
        return self._objects()

    def equals(self, other: object) -> bool:
        """Return whether `other` is a BytesArray with the same shape and strings."""
        return (
            isinstance(other, BytesArray)
            and self.shape == other.shape
            and bool(np.all(self._equals(other)))
        )

    def __eq__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        if isinstance(other, (bytes, str)):
            return self._equals_one(encoded(other, "other"))
        if isinstance(other, np.ndarray):
            if other.dtype.kind == "S":
                message = (
                    "cannot compare with dtype S, which drops trailing NULs; use an "
                    "array of dtype=object"
                )
                raise TypeError(message)
            values, shape = other.ravel().tolist(), other.shape
        elif isinstance(other, (list, tuple)):
            values, shape = flattened(other)
        elif isinstance(other, BytesArray):
            shape = other.shape
        else:
            return NotImplemented
        if shape != self.shape:
            raise ValueError(f"cannot compare shape {self.shape} with shape {shape}")
        if isinstance(other, BytesArray):
            return self._equals(other)
        wanted = (v.encode() if isinstance(v, str) else v for v in values)
        pairs = map(operator.eq, self._objects().ravel(), wanted)
        return np.fromiter(pairs, np.bool_, self.size).reshape(self.shape)

    def __ne__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        equal: Any = self.__eq__(other)
        return equal if equal is NotImplemented else ~equal

    def __reduce__(self) -> tuple[Any, ...]:
        offsets = self.offsets - self.offsets[0]
        return BytesArray, (self._joined(), offsets, self.shape)

    def __copy__(self) -> BytesArray:
        return BytesArray._concatenate([self])

    def _position(self, key: tuple[SupportsIndex, ...]) -> int:
        """Return the C-order position of the item or subarray that `key` selects."""
        position = 0
        for axis, (index, size) in enumerate(zip(key, self.shape, strict=False)):
            position = position * size + row_number(index, size, axis)
        return position

    def _run(self, first: int, shape: tuple[int, ...]) -> BytesArray:
        """Return the strings from index `first` as a view with shape `shape`."""
        offsets = self.offsets[first : first + math.prod(shape) + 1]
        return BytesArray._wrap(self.data, offsets, shape)

    def _string(self, position: int) -> bytes:
        return self.data[self.offsets[position] : self.offsets[position + 1]].tobytes()

    def _take(self, positions: NDArray[np.integer[Any]]) -> BytesArray:
        """Copy the strings at `positions` to an array of the same shape."""
        starts = self.offsets[positions.ravel()]
        ends = self.offsets[positions.ravel() + 1]
        offsets = offsets_from(ends - starts)
        if offsets[-1] > LONG_STRING * positions.size:
            runs = zip(starts.tolist(), ends.tolist(), strict=True)
            data = np.concatenate([self.data[start:end] for start, end in runs])
        else:
            data = self.data[run_positions(starts, ends - starts)]
        return BytesArray._wrap(data, offsets, positions.shape)

    def _joined(self, selected: NDArray[np.bool_] | None = None) -> NDArray[np.uint8]:
        """Return the bytes of all strings, or a copy of those of `selected` strings."""
        if selected is None or selected.all():
            return self.data[self.offsets[0] : self.offsets[-1]]
        return self._take(np.flatnonzero(selected)).data

    def _objects(self) -> NDArray[np.object_]:
        joined = self._joined().tobytes()
        bounds = (self.offsets - self.offsets[0]).tolist()
        objects = np.empty(self.size, object)
        objects[:] = [joined[start:end] for start, end in pairwise(bounds)]
        return objects.reshape(self.shape)

    def _equals(self, other: BytesArray) -> NDArray[np.bool_]:
        lengths = np.diff(self.offsets)
        equal: NDArray[np.bool_] = lengths == np.diff(other.offsets)
        differs = self._joined(equal) != other._joined(equal)
        # Exclude empty strings: reduceat does not support empty segments.
        compared = equal & (lengths > 0)
        if differs.size:
            starts = offsets_from(lengths[compared])[:-1]
            equal[compared] = ~np.logical_or.reduceat(differs, starts)
        return equal.reshape(self.shape)

    def _equals_one(self, value: bytes) -> NDArray[np.bool_]:
        equal: NDArray[np.bool_] = np.diff(self.offsets) == len(value)
        if value:
            rows = self._joined(equal).reshape(-1, len(value))
            matches = (rows == np.frombuffer(value, np.uint8)).all(axis=1)
            equal[np.flatnonzero(equal)] = matches
        return equal.reshape(self.shape)


def reshaped(values: Any, shape: tuple[int, ...]) -> Any:
    """Reshape an ndarray or BytesArray; contiguous values are not copied."""
    if isinstance(values, BytesArray):
        return BytesArray._wrap(values.data, values.offsets, shape)
    return np.reshape(values, shape)
