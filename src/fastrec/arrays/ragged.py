"""RaggedArray: variable-length rows in one array of values.

::

    values       1 2 3 4 5     ndarray, BytesArray, or a RaggedArray one level down
    row_splits   0     3 3   5     row i is values[row_splits[i]:row_splits[i+1]]
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, SupportsIndex, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastrec.arrays.bytes import BytesArray, reshaped
from fastrec.arrays.layout import (
    Rows,
    as_fill,
    as_offsets,
    encoded,
    is_int,
    is_numbers,
    offsets_from,
    row_number,
    row_numbers,
    run_positions,
)
from fastrec.arrays.sparse import SparseArray


class RaggedArray(Rows):
    """An array of variable-length rows.

    This is the array type of variable-length features. ``r[i]`` is a row. Slices, masks
    and index arrays select rows and return a RaggedArray. Slices with step 1 share the
    values; other indices copy.

    Parameters
    ----------
    values : ndarray or BytesArray of shape ``(n, *inner)``, or RaggedArray
        The concatenated values of all rows, used without a copy. If `values` is a
        RaggedArray, `row_splits` groups the rows of `values` in an outer level.
    row_splits : ndarray of int64 or int32, shape (rows + 1,)
        Row ``i`` is ``values[row_splits[i]:row_splits[i + 1]]``. The splits must start
        at 0, must not decrease, and must end at n.

    Raises
    ------
    ValueError
        If `values` and `row_splits` do not describe rows.

    Notes
    -----
    ``==`` and ``!=`` raise `TypeError`, because a bool could be mistaken for NumPy's
    elementwise result. Call ``r.equals(other)``, or compare ``r.values``.
    ``numpy.asarray(r)`` also raises; use `to_padded` or `values`.

    Examples
    --------
    >>> r = RaggedArray.from_list([[1, 2], [], [3, 4, 5]])
    >>> r
    RaggedArray([[1, 2], [], [3, 4, 5]], shape=(3, None), dtype=int64)
    >>> r[2], r[::-1].lengths
    (array([3, 4, 5]), array([3, 0, 2]))
    >>> r.to_padded(fill=-1)
    array([[ 1,  2, -1],
           [-1, -1, -1],
           [ 3,  4,  5]])
    """

    _parts = ("values", "row_splits")
    __slots__ = _parts
    _kind = "ragged"
    _dense_form = "to_padded"

    values: Array
    row_splits: NDArray[np.int64] | NDArray[np.int32]

    def __init__(
        self, values: ArrayLike | BytesArray | RaggedArray, row_splits: ArrayLike
    ) -> None:
        if not isinstance(values, (BytesArray, RaggedArray)):
            values = np.asarray(values)
            if values.dtype.kind in "SO":
                raise ValueError(
                    f"values must be numbers or a BytesArray, got dtype {values.dtype}"
                )
        if not isinstance(values, RaggedArray) and values.ndim == 0:
            message = "values must have at least one dimension, got a scalar"
            raise ValueError(message)
        self.values = values
        self.row_splits = as_offsets(row_splits, "row_splits")
        if self.row_splits[0] != 0:
            raise ValueError(f"row_splits must start at 0, got {self.row_splits[0]}")
        if self.row_splits[-1] != len(values):
            raise ValueError(
                f"row_splits must end at {len(values)}, the number of values, got "
                f"{self.row_splits[-1]}"
            )

    @classmethod
    def from_list(
        cls, rows: Sequence[Any], dtype: DTypeLike | None = None
    ) -> RaggedArray:
        """Make a RaggedArray from a list of rows.

        Parameters
        ----------
        rows : sequence of rows
            Lists of numbers, of bytes or str, or of nested rows; or ndarrays whose
            shapes agree past the first axis.
        dtype : dtype-like, optional
            Type of the values; by default NumPy's choice. ``"bytes"``, ``"string"`` and
            object make a BytesArray.

        Returns
        -------
        RaggedArray
            With int64 `row_splits`.

        Raises
        ------
        TypeError
            If a row is not a list of values, or the kinds of values are mixed.
        ValueError
            If the shapes of ndarrays do not agree past the first axis.
        """
        for i, row in enumerate(rows):
            if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
                kind = type(row).__name__
                raise TypeError(f"row {i} must be a list of values, got {kind}")
        row_splits = offsets_from(np.fromiter(map(len, rows), np.int64, len(rows)))
        if len(rows) and all(is_numbers(row) for row in rows):
            return cls(np.concatenate(rows, dtype=dtype), row_splits)
        flat = [value for row in rows for value in row]
        return cls._wrap(values_from(flat, dtype), row_splits)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """``(rows, None, *inner)``: None for each ragged axis."""
        return (len(self), None, *self.values.shape[1:])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of values in each row: int64 of shape (rows,)."""
        return np.diff(self.row_splits).astype(np.int64, copy=False)

    @property
    def nbytes(self) -> int:
        """Size of `values` and `row_splits` in bytes."""
        return self.values.nbytes + self.row_splits.nbytes

    def __len__(self) -> int:
        return self.row_splits.size - 1

    @overload
    def __getitem__(
        self, index: slice | Sequence[SupportsIndex] | NDArray[Any]
    ) -> RaggedArray: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
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
        """Return a mask of the padded rows: True for values, False for padding.

        Parameters
        ----------
        length : int, optional
            Length of the padded rows; by default the length of the longest row.

        Returns
        -------
        ndarray of bool, shape (rows, length)
            The mask of ``to_padded(length=length, truncate=True)``.
        """
        return np.arange(self._width(length)) < self.lengths[:, np.newaxis]

    def to_padded(
        self,
        *,
        fill: ArrayLike = 0,
        length: int | Sequence[int | None] | None = None,
        truncate: bool = False,
    ) -> Any:
        """Return a dense array of the rows, padded to one length.

        Parameters
        ----------
        fill : scalar, or array of the shape of one value, default 0
            The padding. For byte strings, 0 means ``b""``.
        length : int, or sequence of int and None, optional
            Length of the padded rows; by default the length of the longest row. For
            nested rows, a sequence with one length for each level.
        truncate : bool, default False
            Truncate rows that are longer than `length`.

        Returns
        -------
        ndarray of shape (rows, length, *inner), or BytesArray of shape (rows, length)
            A new array. Nested rows are padded at every level.

        Raises
        ------
        ValueError
            If a row is longer than `length` and `truncate` is False, or `fill` is
            not a value of the values' integer or bool dtype.
        TypeError
            If the values are byte strings and `fill` is neither a string nor 0.

        Examples
        --------
        >>> RaggedArray.from_list([["a"], ["b", "cd"]]).to_padded(length=2)
        BytesArray([[b'a', b''], [b'b', b'cd']], shape=(2, 2))
        """
        lengths = list(length) if isinstance(length, Sequence) else [length]
        return self._padded(fill, lengths, truncate=truncate, where="")

    def to_sparse(self) -> SparseArray:
        """Return the rows as a SparseArray, like a parsed tf.io.VarLenFeature.

        Returns
        -------
        SparseArray
            An array with the same shape as the result of `to_padded`.

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
            begins: NDArray[Any] = np.repeat(level.row_splits[:-1], lengths)
            within = np.arange(len(level.values)) - begins
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

    @property
    def _flat_values(self) -> NDArray[Any] | BytesArray:
        """The values of the innermost rows."""
        values = self.values
        return values._flat_values if isinstance(values, RaggedArray) else values

    def _take(self, rows: NDArray[np.integer[Any]]) -> RaggedArray:
        row_splits = np.asarray(self.row_splits)  # may be a JAX array
        starts = row_splits[rows]
        lengths = row_splits[rows + 1] - starts
        values = self.values[run_positions(starts, lengths)]
        return RaggedArray._wrap(values, self._splits(offsets_from(lengths)))

    def _splits(
        self, offsets: NDArray[np.int64]
    ) -> NDArray[np.int64] | NDArray[np.int32]:
        """Return `offsets` in the dtype of `row_splits`, or as int64 if too large."""
        small = self.row_splits.dtype == np.int32
        if small and offsets[-1] <= np.iinfo(np.int32).max:
            return offsets.astype(np.int32)
        return offsets

    def _width(self, length: int | None) -> int:
        if length is None:
            return int(self.lengths.max(initial=0))
        width = operator.index(length)
        if width < 0:
            raise ValueError(f"length must not be negative, got {width}")
        return width

    def _padded(
        self,
        fill: ArrayLike,
        lengths: Sequence[int | None],
        *,
        truncate: bool,
        where: str,
    ) -> NDArray[Any] | BytesArray:
        """Pad rows to ``lengths[0]``, and nested rows to the next length per level."""
        width = self._width(lengths[0] if lengths else None)
        too_long = np.flatnonzero(self.lengths > width)
        if too_long.size and not truncate:
            raise ValueError(
                f"rows must have at most length={width} values, but row {too_long[0]}"
                f"{where} has {self.lengths[too_long[0]]}; pass truncate=True to cut it"
            )
        values, inner_lengths = self.values, lengths[1:]
        if isinstance(values, RaggedArray):
            values = values._padded(
                fill, inner_lengths, truncate=truncate, where=f"{where} of .values"
            )
        elif inner_lengths:
            raise ValueError(
                "length must have at most one entry for each ragged level, got "
                f"{len(inner_lengths)} more"
            )
        mask = self.mask(width)
        if too_long.size:
            kept = np.minimum(self.lengths, width)
            values = values[run_positions(self.row_splits[:-1], kept)]
        if isinstance(values, BytesArray):
            return pad_bytes(values, mask, fill)
        dense = np.full(mask.shape + values.shape[1:], as_fill(fill, values.dtype))
        dense[mask] = values
        return dense


Array: TypeAlias = NDArray[Any] | BytesArray | RaggedArray


def values_from(values: list[Any], dtype: DTypeLike | None) -> Array:
    """Convert a list to an ndarray, BytesArray or RaggedArray, whichever fits."""
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
            raise TypeError(f"values must be {np.dtype(dtype)}, got bytes or str")
        is_bytes = wants_bytes
    if is_bytes:
        return BytesArray.from_list(values)
    array = np.array(values, dtype)
    if array.dtype.kind == "O":
        message = "values must be all numbers, or all bytes or str"
        raise TypeError(message)
    return array


def pad_bytes(values: BytesArray, mask: NDArray[np.bool_], fill: object) -> BytesArray:
    """Return a BytesArray with `values` where `mask` is True, and `fill` elsewhere."""
    filler = b"" if is_int(fill) and fill == 0 else encoded(fill, "fill")
    lengths = np.full(mask.shape + values.shape[1:], len(filler))
    lengths[mask] = values.lengths
    offsets = offsets_from(lengths.ravel())
    inner_axes = tuple(range(2, lengths.ndim))
    is_value = np.repeat(mask.ravel(), lengths.sum(axis=inner_axes).ravel())
    data = np.empty(is_value.size, np.uint8)
    data[is_value] = values.data[values.offsets[0] : values.offsets[-1]]
    rest = ~is_value
    data[rest] = np.resize(np.frombuffer(filler, np.uint8), np.count_nonzero(rest))
    return BytesArray._wrap(data, offsets, lengths.shape)
