"""SparseArray: an array stored as values and their indices.

::

    indices      0 2   0 5   3 1     value i is at [indices[i, 0], indices[i, 1]]
    values        7     8     9      ndarray or BytesArray
    dense_shape  (4, 6)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrec.arrays.bytes import BytesArray
from fastrec.arrays.layout import (
    Rows,
    as_shape,
    is_int,
    row_number,
    row_numbers,
    run_positions,
)


class SparseArray(Rows):
    """An array stored as values and their indices, like tf.sparse.SparseTensor.

    This is the array type of `Sparse` features. ``s[i]`` is a row: a SparseArray with
    one dimension fewer. Slices, masks and index arrays select rows and copy.

    Parameters
    ----------
    indices : ndarray of int64, shape (n, ndim)
        The index of each value. The first column must not decrease.
    values : ndarray or BytesArray of shape (n,)
    dense_shape : sequence of int
        Shape of the array, with at least one dimension.

    Raises
    ------
    ValueError
        If the arguments do not describe a sparse array.

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

    _parts = ("indices", "values", "dense_shape")
    __slots__ = _parts
    _kind = "sparse"
    _dense_form = "to_dense"

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
            message = "dense_shape must have at least one dimension, got ()"
            raise ValueError(message)
        if not isinstance(values, BytesArray):
            values = np.asarray(values)
            if values.dtype.kind in "SUO":
                raise ValueError(
                    f"values must be numbers or a BytesArray, got dtype {values.dtype}"
                )
        self.values = values
        self.indices = np.ascontiguousarray(indices, np.int64)
        if values.ndim != 1:
            raise ValueError(f"values must be 1-D, got {values.ndim}-D")
        expected = (len(values), self.ndim)
        if self.indices.shape != expected:
            raise ValueError(
                f"indices must have shape {expected}, got {self.indices.shape}"
            )
        if np.any(self.indices < 0) or np.any(self.indices >= self.dense_shape):
            raise ValueError(f"indices must be within dense_shape {self.dense_shape}")
        if np.any(np.diff(self.indices[:, 0]) < 0):
            message = "indices must be sorted by row (their first column)"
            raise ValueError(message)

    @property
    def shape(self) -> tuple[int, ...]:
        """Alias of `dense_shape`."""
        return self.dense_shape

    @property
    def nbytes(self) -> int:
        """Size of `indices` and `values` in bytes."""
        return self.indices.nbytes + self.values.nbytes

    def __len__(self) -> int:
        return self.dense_shape[0]

    @overload
    def __getitem__(
        self, index: slice | Sequence[SupportsIndex] | NDArray[Any]
    ) -> SparseArray: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        if not is_int(index):
            return self._take(row_numbers(index, len(self)))
        i = row_number(index, len(self))
        if self.ndim == 1:
            message = "cannot index a 1-D SparseArray with an int; use s.to_dense()[i]"
            raise IndexError(message)
        begin, end = np.searchsorted(self.indices[:, 0], [i, i + 1])
        indices, values = self.indices[begin:end, 1:], self.values[begin:end]
        return SparseArray._wrap(indices, values, self.dense_shape[1:])

    def _take(self, rows: NDArray[np.integer[Any]]) -> SparseArray:
        all_indices = np.asarray(self.indices)  # may be a JAX array
        begins = np.searchsorted(all_indices[:, 0], rows)
        counts = np.searchsorted(all_indices[:, 0], rows, side="right") - begins
        selected = run_positions(begins, counts)
        indices = all_indices[selected]
        indices[:, 0] = np.repeat(np.arange(len(rows)), counts)
        return SparseArray._wrap(
            indices, self.values[selected], (len(rows), *self.dense_shape[1:])
        )

    def to_dense(self, fill: ArrayLike = 0) -> Any:
        """Return a dense array, with `fill` at indices that have no value.

        If an index occurs twice, the last value is used.

        Parameters
        ----------
        fill : scalar, default 0
            The value to fill in. For byte strings, 0 means ``b""``.

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

    def tolist(self) -> list[Any]:
        """Return the dense rows as nested lists of Python values.

        Indices without a value get 0, or ``b""`` for byte strings.
        """
        rows: list[Any] = self.to_dense().tolist()
        return rows

    def _text(self) -> str:
        return f"{len(self.values)} values"
