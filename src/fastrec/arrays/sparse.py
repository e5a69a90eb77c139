"""Arrays of which only some values are there, by their indices.

::

    indices      0 2   0 5   3 1     value i is at [indices[i, 0], indices[i, 1]]
    values        7     8     9      ndarray or BytesArray
    dense_shape  (4, 6)
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastrec.arrays.bytes import BytesArray, as_shape, is_int
from fastrec.arrays.excerpt import parts_text

__all__ = ["SparseArray"]


class SparseArray:
    """An array of some values and their indices, as tf.sparse.SparseTensor has them.

    It is what a `Sparse` feature comes out as. ``s[i]`` is a row, a SparseArray of one
    dimension less; slices, masks and index arrays select rows, and copy.

    Parameters
    ----------
    indices : ndarray of int64, shape (n, ndim)
        Where each value is. Rows of the array, which the first column counts, must come
        in their order.
    values : ndarray or BytesArray of shape (n,)
    dense_shape : sequence of int
        Shape of the array; at least one dimension.

    Raises
    ------
    ValueError
        If these do not describe an array.

    Examples
    --------
    >>> s = SparseArray([[0, 1], [2, 0]], np.array([5, 6]), (3, 2))
    >>> s
    SparseArray(2 values, shape=(3, 2), dtype=int64)
    >>> s.to_dense()
    array([[0, 5],
           [0, 0],
           [6, 0]])
    >>> s[2].indices.tolist()
    [[0]]
    """

    __slots__ = ("__weakref__", "dense_shape", "indices", "values")
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # so that `ndarray == s` asks s

    indices: NDArray[np.int64]
    values: NDArray[Any] | BytesArray
    dense_shape: tuple[int, ...]

    def __init__(
        self,
        indices: ArrayLike,
        values: ArrayLike | BytesArray,
        dense_shape: Sequence[SupportsIndex],
    ) -> None:
        self.dense_shape = as_shape(dense_shape)
        if not self.dense_shape:
            message = "dense_shape must have at least one dimension"
            raise ValueError(message)
        if not isinstance(values, BytesArray):
            values = np.asarray(values)
            if values.dtype.kind in "SUO":
                raise ValueError(f"values of dtype {values.dtype}: use a BytesArray")
        self.values = values
        self.indices = np.ascontiguousarray(indices, np.int64)
        wanted = (len(values), len(self.dense_shape))
        if values.ndim != 1 or self.indices.shape != wanted:
            found = f"{self.indices.shape} for {len(values)} values of {self.ndim} axes"
            raise ValueError(f"indices must be of shape {wanted}, not {found}")
        if np.any(self.indices < 0) or np.any(self.indices >= self.dense_shape):
            raise ValueError(f"an index is outside of shape {self.dense_shape}")
        if np.any(np.diff(self.indices[:, 0]) < 0):
            message = "indices must be in the order of the rows"
            raise ValueError(message)

    @classmethod
    def _wrap(
        cls,
        indices: NDArray[np.int64],
        values: NDArray[Any] | BytesArray,
        dense_shape: tuple[int, ...],
    ) -> SparseArray:
        """Make an array of parts that are known to be right."""
        array = cls.__new__(cls)
        array.indices, array.values, array.dense_shape = indices, values, dense_shape
        return array

    @classmethod
    def _concatenate(cls, arrays: Sequence[SparseArray]) -> SparseArray:
        """Join arrays whose shapes agree past the first axis."""
        indices = np.concatenate([array.indices for array in arrays])
        n_before = np.cumsum([0, *map(len, arrays)])
        counts = [len(array.values) for array in arrays]
        indices[:, 0] += np.repeat(n_before[:-1], counts)
        parts: Any = [array.values for array in arrays]
        first = arrays[0].values
        values = (
            BytesArray._concatenate(parts)
            if isinstance(first, BytesArray)
            else np.concatenate(parts, dtype=first.dtype)
        )
        return cls._wrap(
            indices, values, (int(n_before[-1]), *arrays[0].dense_shape[1:])
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values; object where they are bytes."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """As `dense_shape`."""
        return self.dense_shape

    @property
    def ndim(self) -> int:
        """Number of dimensions, at least 1."""
        return len(self.dense_shape)

    @property
    def nbytes(self) -> int:
        """Bytes of `indices` and `values`."""
        return self.indices.nbytes + self.values.nbytes

    def __len__(self) -> int:
        return self.dense_shape[0]

    @overload
    def __getitem__(
        self, index: slice | Sequence[SupportsIndex] | NDArray[Any]
    ) -> SparseArray: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...  # noqa: ANN401
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple):
            message = "a SparseArray is indexed by row only: s[i], not s[i, j]"
            raise IndexError(message)
        if is_int(index):
            row, n_rows = operator.index(index), len(self)
            if not -n_rows <= row < n_rows:
                raise IndexError(f"index {row} is out of bounds for {n_rows} rows")
            if self.ndim == 1:
                message = "a SparseArray of one dimension has no rows: s.to_dense()[i]"
                raise IndexError(message)
            begin, end = np.searchsorted(
                self.indices[:, 0], [row % n_rows, row % n_rows + 1]
            )
            return SparseArray._wrap(
                self.indices[begin:end, 1:],
                self.values[begin:end],
                self.dense_shape[1:],
            )
        rows = np.asarray(np.arange(len(self))[index])
        if rows.ndim != 1:
            raise IndexError(f"rows need a 1-D index, not {rows.ndim}-D")
        return self._take(rows)

    def _take(self, rows: NDArray[np.integer[Any]]) -> SparseArray:
        all_indices = np.asarray(self.indices)  # of JAX, perhaps
        begins = np.searchsorted(all_indices[:, 0], rows)
        counts = np.searchsorted(all_indices[:, 0], rows, side="right") - begins
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        found = np.repeat(begins - ends + counts, counts) + np.arange(total)
        indices = all_indices[found]
        indices[:, 0] = np.repeat(np.arange(len(rows)), counts)
        return SparseArray._wrap(
            indices, self.values[found], (len(rows), *self.dense_shape[1:])
        )

    def to_dense(self, fill: ArrayLike = 0) -> Any:  # noqa: ANN401
        """Return the whole array, with `fill` where there is no value.

        Where an index occurs twice, the last value counts.

        Parameters
        ----------
        fill : scalar, default 0
            In an array of bytes, 0 stands for ``b""``.

        Returns
        -------
        ndarray, or BytesArray
            A new array of `dense_shape`.
        """
        where = tuple(self.indices.T)
        if isinstance(self.values, BytesArray):
            filler = b"" if is_int(fill) and fill == 0 else fill
            objects = np.full(self.dense_shape, filler, object)
            objects[where] = np.asarray(self.values, dtype=object)
            return BytesArray.from_list(objects.tolist())
        dense = np.full(self.dense_shape, fill, self.values.dtype)
        dense[where] = self.values
        return dense

    def equals(self, other: object) -> bool:
        """Tell whether `other` is a SparseArray of the same indices, values and shape.

        NaN equals NaN.
        """
        if not isinstance(other, SparseArray) or self.dense_shape != other.dense_shape:
            return False
        a, b = self.values, other.values
        if self.dtype != other.dtype or not np.array_equal(self.indices, other.indices):
            return False
        if isinstance(a, BytesArray):
            return bool(np.all(a == b))
        return bool(np.all((a == b) | (operator.ne(a, a) & operator.ne(b, b))))

    def __eq__(self, other: object) -> bool:
        message = "a SparseArray has no ==: use s.equals(other), or compare s.values"
        raise TypeError(message)

    def __ne__(self, other: object) -> bool:
        message = "a SparseArray has no !=: use s.equals(other), or compare s.values"
        raise TypeError(message)

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        message = "a SparseArray is not an ndarray: use s.to_dense() or s.values"
        raise TypeError(message)

    def __repr__(self) -> str:
        values: Any = self.values  # of JAX, perhaps
        if not isinstance(values, (np.ndarray, BytesArray)):
            return parts_text(self, "indices", "values", "dense_shape")
        n = len(values)
        return f"SparseArray({n} values, shape={self.dense_shape}, dtype={self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        return SparseArray, (self.indices, self.values, self.dense_shape)

    def __copy__(self) -> SparseArray:
        values = self.values
        return SparseArray._wrap(
            self.indices.copy(), copy.copy(values), self.dense_shape
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseArray:
        return self.__copy__()
