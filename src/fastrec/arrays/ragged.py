"""Rows of any lengths, side by side in one array of values.

::

    values       1 2 3 4 5     ndarray, BytesArray, or a RaggedArray one level down
    row_splits   0     3 3   5     row i is values[row_splits[i]:row_splits[i+1]]
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, SupportsIndex, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastrec.arrays.bytes import BytesArray, encoded, reshaped
from fastrec.arrays.layout import (
    EDGE_ITEMS,
    NotComparable,
    as_fill,
    as_offsets,
    edges,
    equal_values,
    is_int,
    listed,
    offsets_from,
    parts_text,
    row_number,
    row_numbers,
    run_positions,
)
from fastrec.arrays.sparse import SparseArray

__all__ = ["Array", "RaggedArray"]


class RaggedArray(NotComparable):
    """An array of rows, each with any number of values.

    A variable-length feature is read as one. ``r[i]`` is a row; slices, masks and index
    arrays select rows as in NumPy, and return a RaggedArray. Slices with step 1 share
    the values, all else copies.

    Parameters
    ----------
    values : ndarray of shape (n, *inner), BytesArray of that, or RaggedArray
        The values of all rows, one row after the other. Used without a copy. Rows of
        rows nest here; this array's `row_splits` are the outermost level.
    row_splits : ndarray of int64 or int32, shape (rows + 1,)
        Row ``i`` is ``values[row_splits[i]:row_splits[i + 1]]``. Starts at 0, does not
        decrease, and ends at n.

    Raises
    ------
    ValueError
        If `values` and `row_splits` do not describe rows.

    Notes
    -----
    ``==`` and ``!=`` raise `TypeError`, because one bool could be mistaken for NumPy's
    elementwise result: call ``r.equals(other)``, or compare ``r.values``.
    ``numpy.asarray(r)`` raises, too: use `to_padded` or `values`.

    Examples
    --------
    >>> r = RaggedArray.from_list([[1, 2], [], [3, 4, 5]])
    >>> r
    RaggedArray([[1, 2], [], [3, 4, 5]], shape=(3, None), dtype=int64)
    >>> r[2], r[::-1].lengths
    (array([3, 4, 5]), array([3, 0, 2]))
    >>> r.to_padded(-1)
    array([[ 1,  2, -1],
           [-1, -1, -1],
           [ 3,  4,  5]])
    """

    __slots__ = ("row_splits", "values")
    _dense_form = "to_padded"

    values: Array
    row_splits: NDArray[np.int64] | NDArray[np.int32]

    def __init__(
        self, values: ArrayLike | BytesArray | RaggedArray, row_splits: ArrayLike
    ) -> None:
        if not isinstance(values, (BytesArray, RaggedArray)):
            values = np.asarray(values)
            if values.dtype.kind in "SO":
                raise ValueError(f"values of dtype {values.dtype}: use a BytesArray")
        if not isinstance(values, RaggedArray) and values.ndim == 0:
            message = "values must have at least one dimension"
            raise ValueError(message)
        self.values = values
        self.row_splits = as_offsets(row_splits, "row_splits")
        if self.row_splits[0] != 0:
            raise ValueError(f"row_splits must start at 0, not {self.row_splits[0]}")
        if self.row_splits[-1] != len(values):
            end, count = self.row_splits[-1], len(values)
            raise ValueError(f"row_splits end at {end}, but there are {count} values")

    @classmethod
    def _wrap(
        cls, values: Array, row_splits: NDArray[np.int64] | NDArray[np.int32]
    ) -> RaggedArray:
        """Make an array without checking its parts."""
        array = cls.__new__(cls)
        array.values, array.row_splits = values, row_splits
        return array

    @classmethod
    def from_list(
        cls, rows: Sequence[Any], dtype: DTypeLike | None = None
    ) -> RaggedArray:
        """Make an array of a list of rows.

        Parameters
        ----------
        rows : sequence of rows
            Lists of numbers, of bytes or str, or of rows one level down; or ndarrays
            that agree past the first axis.
        dtype : dtype-like, optional
            Type of the values, by default as NumPy chooses. ``"bytes"``, ``"string"``
            and object make a BytesArray.

        Returns
        -------
        RaggedArray
            With int64 `row_splits`.

        Raises
        ------
        TypeError
            If a row is not a list of values, or values are of mixed kinds.
        ValueError
            If ndarrays do not agree past the first axis.
        """
        for i, row in enumerate(rows):
            if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
                kind = type(row).__name__
                raise TypeError(f"row {i} must be a list of values, not {kind}")
        row_splits = offsets_from(np.fromiter(map(len, rows), np.int64, len(rows)))
        if len(rows) and all(is_numbers(row) for row in rows):
            return cls(np.concatenate(rows, dtype=dtype), row_splits)
        flat = [value for row in rows for value in row]
        return cls._wrap(values_from(flat, dtype), row_splits)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the innermost values; object where they are bytes."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """``(rows, None, *inner)``: None for each ragged axis."""
        return (len(self), None, *self.values.shape[1:])

    @property
    def ndim(self) -> int:
        """Number of dimensions, at least 2: ragged axes count as one each."""
        return len(self.shape)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Values in each row: int64 of shape (rows,)."""
        return np.diff(self.row_splits).astype(np.int64, copy=False)

    @property
    def nbytes(self) -> int:
        """Bytes of `values` and `row_splits`."""
        return self.values.nbytes + self.row_splits.nbytes

    def __len__(self) -> int:
        return self.row_splits.size - 1

    @overload
    def __getitem__(
        self, index: slice | Sequence[SupportsIndex] | NDArray[Any]
    ) -> RaggedArray: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...  # noqa: ANN401
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                splits = self.row_splits[start : max(start, stop) + 1]
                return RaggedArray._wrap(
                    self.values[splits[0] : splits[-1]], splits - splits[0]
                )
        if is_int(index):
            i = row_number(index, len(self))
            return self.values[self.row_splits[i] : self.row_splits[i + 1]]
        return self._take(row_numbers(index, len(self)))

    def mask(self, length: int | None = None) -> NDArray[np.bool_]:
        """Return which positions of the padded rows hold values.

        Parameters
        ----------
        length : int, optional
            Length of the padded rows; by default that of the longest row.

        Returns
        -------
        ndarray of bool, shape (rows, length)
            False where ``to_padded(length=length, truncate=True)`` has the fill.
        """
        return np.arange(self._width(length)) < self.lengths[:, np.newaxis]

    def to_padded(
        self,
        fill: ArrayLike = 0,
        length: int | Sequence[int | None] | None = None,
        *,
        truncate: bool = False,
    ) -> Any:  # noqa: ANN401
        """Return a dense array of all rows, padded to one length.

        Parameters
        ----------
        fill : scalar, or array of the shape of one value, default 0
            The padding. In an array of bytes, 0 stands for ``b""``.
        length : int, or sequence of int and None, optional
            Length of the padded rows; by default that of the longest row. For nested
            rows a sequence has one length for each level.
        truncate : bool, default False
            Cut rows that are longer than `length`.

        Returns
        -------
        ndarray of shape (rows, length, *inner), or BytesArray of shape (rows, length)
            A new array. Nested rows are padded at every level.

        Raises
        ------
        ValueError
            If a row is longer than `length`, unless it may be cut; or if `fill` is not
            a value of an integer `dtype`.
        TypeError
            If `fill` is not a byte string (or 0) for an array of bytes.

        Examples
        --------
        >>> RaggedArray.from_list([["a"], ["b", "cd"]]).to_padded(length=2)
        BytesArray([[b'a', b''], [b'b', b'cd']], shape=(2, 2))
        """
        lengths = list(length) if isinstance(length, Sequence) else [length]
        return self._padded(fill, lengths, truncate=truncate, where="")

    def to_sparse(self) -> SparseArray:
        """Return the values with their indices, as tf.io.VarLenFeature has them.

        Returns
        -------
        SparseArray
            Of shape ``(rows, longest, *inner)``, with the longest row of every level.

        Examples
        --------
        >>> RaggedArray.from_list([[7], [8, 9]]).to_sparse().indices.tolist()
        [[0, 0], [1, 0], [1, 1]]
        """
        indices = np.arange(len(self), dtype=np.int64)[:, np.newaxis]
        shape = [len(self)]
        level: Array = self
        while isinstance(level, RaggedArray):
            lengths = level.lengths
            within = np.arange(len(level.values)) - np.repeat(
                level.row_splits[:-1], lengths
            )
            indices = np.column_stack([np.repeat(indices, lengths, axis=0), within])
            shape.append(level._width(None))
            level = level.values
        for size in level.shape[1:]:
            within = np.tile(np.arange(size), len(indices))
            indices = np.column_stack([np.repeat(indices, size, axis=0), within])
            shape.append(size)
        flat = reshaped(level, (level.size,))
        return SparseArray._wrap(indices, flat, tuple(shape))

    def tolist(self) -> list[Any]:
        """Return the rows as nested lists of Python values."""
        values = self.values
        flat = values.tolist()
        return [flat[start:end] for start, end in pairwise(self.row_splits.tolist())]

    def equals(self, other: object) -> bool:
        """Return whether `other` is a RaggedArray of the same rows, dtype and values.

        NaN equals NaN. The dtype of `row_splits` does not matter.
        """
        return (
            isinstance(other, RaggedArray)
            and describe_rows(self) == describe_rows(other)
            and np.array_equal(self.row_splits, other.row_splits)
            and same_values(self.values, other.values)
        )

    def __repr__(self) -> str:
        values, splits = self._flat_values, self.row_splits  # of JAX, perhaps
        is_known = isinstance(values, (np.ndarray, BytesArray))
        if not (is_known and isinstance(splits, np.ndarray)):
            return parts_text(self, "values", "row_splits")
        return f"RaggedArray({self._text()}, shape={self.shape}, dtype={self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RaggedArray, (self.values, self.row_splits)

    def __copy__(self) -> RaggedArray:
        return RaggedArray._wrap(copy.copy(self.values), self.row_splits.copy())

    @property
    def _flat_values(self) -> NDArray[Any] | BytesArray:
        """The values of the innermost rows."""
        values = self.values
        return values._flat_values if isinstance(values, RaggedArray) else values

    def _take(self, rows: NDArray[np.integer[Any]]) -> RaggedArray:
        row_splits = np.asarray(self.row_splits)  # of JAX, perhaps
        starts = row_splits[rows]
        lengths = row_splits[rows + 1] - starts
        values = self.values[run_positions(starts, lengths)]
        return RaggedArray._wrap(values, self._splits(offsets_from(lengths)))

    def _splits(
        self, offsets: NDArray[np.int64]
    ) -> NDArray[np.int64] | NDArray[np.int32]:
        """Return `offsets` in the dtype of these row splits, if that can hold them."""
        small = self.row_splits.dtype == np.int32
        if small and offsets[-1] <= np.iinfo(np.int32).max:
            return offsets.astype(np.int32)
        return offsets

    def _width(self, length: int | None) -> int:
        if length is None:
            return int(self.lengths.max(initial=0))
        width = operator.index(length)
        if width < 0:
            raise ValueError(f"length must not be negative, not {width}")
        return width

    def _padded(
        self,
        fill: ArrayLike,
        lengths: Sequence[int | None],
        *,
        truncate: bool,
        where: str,
    ) -> NDArray[Any] | BytesArray:
        """Pad this level to the first of `lengths`, and those below to the others."""
        width = self._width(lengths[0] if lengths else None)
        too_long = np.flatnonzero(self.lengths > width)
        if too_long.size and not truncate:
            found = f"row {too_long[0]}{where} has {self.lengths[too_long[0]]} values"
            raise ValueError(
                f"{found}, more than length={width}: truncate=True cuts it"
            )
        values, deeper = self.values, lengths[1:]
        if isinstance(values, RaggedArray):
            values = values._padded(
                fill, deeper, truncate=truncate, where=f"{where} of .values"
            )
        elif deeper:
            raise ValueError(f"length has {len(deeper)} more entries than levels")
        mask = self.mask(width)
        if too_long.size:
            kept = np.minimum(self.lengths, width)
            values = values[run_positions(self.row_splits[:-1], kept)]
        if isinstance(values, BytesArray):
            return pad_bytes(values, mask, fill)
        dense = np.full(mask.shape + values.shape[1:], as_fill(fill, values.dtype))
        dense[mask] = values
        return dense

    def _text(self) -> str:
        """Return the rows as a repr shows them."""
        return listed(self, [row_text(row) for row in edges(self)])


Array: TypeAlias = NDArray[Any] | BytesArray | RaggedArray


def is_numbers(row: object) -> bool:
    """Return whether `row` is an ndarray of numbers."""
    return isinstance(row, np.ndarray) and row.dtype.kind not in "SUO"


def values_from(values: list[Any], dtype: DTypeLike | None) -> Array:
    """Return a flat list of values as the array that fits them."""
    if any(
        isinstance(x, (list, tuple, BytesArray, RaggedArray))
        or (isinstance(x, np.ndarray) and x.ndim)
        for x in values
    ):
        return RaggedArray.from_list(values, dtype)
    is_bytes = any(isinstance(x, (bytes, str)) for x in values)
    if dtype is not None:
        named_bytes = isinstance(dtype, str) and dtype == "string"
        wants_bytes = named_bytes or np.dtype(dtype).kind in "SUO"
        if is_bytes and not wants_bytes:
            raise TypeError(f"values are bytes or str, not {np.dtype(dtype)}")
        is_bytes = wants_bytes
    if is_bytes:
        return BytesArray.from_list(values)
    array = np.array(values, dtype)
    if array.dtype.kind == "O":
        message = "values must be numbers, bytes or str, of one kind"
        raise TypeError(message)
    return array


def pad_bytes(values: BytesArray, mask: NDArray[np.bool_], fill: object) -> BytesArray:
    """Spread the rows of `values` over the True places of `mask`."""
    filler = b"" if is_int(fill) and fill == 0 else encoded(fill, "to fill with")
    lengths = np.full(mask.shape + values.shape[1:], len(filler))
    lengths[mask] = values.lengths
    offsets = offsets_from(lengths.ravel())
    inner_axes = tuple(range(2, lengths.ndim))
    holds_value = np.repeat(mask.ravel(), lengths.sum(axis=inner_axes).ravel())
    data = np.empty(holds_value.size, np.uint8)
    data[holds_value] = values.data[values.offsets[0] : values.offsets[-1]]
    rest = ~holds_value
    data[rest] = np.resize(np.frombuffer(filler, np.uint8), np.count_nonzero(rest))
    return BytesArray._wrap(data, offsets, lengths.shape)


def describe_rows(array: Array) -> str:
    """Return what one row of `array` is: equal texts for rows that can be joined."""
    if isinstance(array, RaggedArray):
        return f"ragged rows of {describe_rows(array.values)}"
    kind = "bytes" if isinstance(array, BytesArray) else str(array.dtype)
    return f"{kind} of shape {array.shape[1:]}"


def same_values(a: Any, b: Any) -> bool:  # noqa: ANN401
    """Return whether arrays of equal shape and dtype are equal, NaN equal to NaN."""
    if isinstance(a, RaggedArray):
        return a.equals(b)
    return equal_values(a, b)


def row_text(row: Array) -> str:
    """Return one row as a repr shows it, on one line."""
    if not isinstance(row, np.ndarray):
        return row._text()
    edge_items = EDGE_ITEMS if row.ndim == 1 else 1
    text = np.array2string(
        row, separator=", ", threshold=2 * edge_items, edgeitems=edge_items
    )
    return " ".join(text.split())
