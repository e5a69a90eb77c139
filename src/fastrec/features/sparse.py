"""Sparse: values in one feature, their indices in other features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Array, BytesArray, RaggedArray, SparseArray
from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    ComposedColumns,
    RowRule,
    Spec,
    as_bytes,
    checked_dtype,
    checked_keys,
    checked_shape,
)


@dataclass(frozen=True, init=False, repr=False)
class Sparse(Spec):
    """A sparse array, stored as a feature of values and features of their indices.

    Read as a `SparseArray` of shape ``(batch, *size)``. Records without the features
    have an empty row.

    Parameters
    ----------
    index_key : str or bytes, or sequence of them
        The int64 features of the indices, one for each dimension.
    value_key : str or bytes
        The feature of the values.
    dtype : dtype-like
        As for `FixedLen`.
    size : int, or sequence of int
        The shape of the array, one size for each of `index_key`.
    already_sorted : bool, default False
        Skip sorting, because the indices of each record are sorted.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, if a record does not have one index for
        each value, or an index is out of bounds.

    Examples
    --------
    >>> Sparse("ix", "value", "float32", 100)
    Sparse('ix', 'value', 'float32', 100)
    """

    index_key: str | bytes | tuple[str | bytes, ...]
    value_key: str | bytes
    dtype: str
    size: int | tuple[int, ...]
    already_sorted: bool
    _n_positional = 4

    def __init__(
        self,
        index_key: str | bytes | Sequence[str | bytes],
        value_key: str | bytes,
        dtype: npt.DTypeLike,
        size: int | Sequence[int],
        already_sorted: bool = False,
    ) -> None:
        if not isinstance(index_key, (str, bytes)):
            index_key = checked_keys("index_key", index_key)
        checked_keys("value_key", [value_key])
        sizes = checked_shape(size)
        if not isinstance(size, (int, np.integer)):
            size = sizes
        self._set(index_key=index_key, value_key=value_key, dtype=checked_dtype(dtype))
        self._set(size=size, already_sorted=already_sorted, key=None)
        if len(self._index_keys()) != len(sizes):
            raise SchemaError(
                f"size must have one entry for each of {index_key!r}, got {size!r}"
            )

    def _index_keys(self) -> tuple[str | bytes, ...]:
        is_one = isinstance(self.index_key, (str, bytes))
        return (self.index_key,) if is_one else self.index_key  # type: ignore[return-value]

    def _sizes(self) -> tuple[int, ...]:
        return checked_shape(self.size)

    def _columns(self, name: str | bytes) -> list[Column]:
        values = self._column(name, "ragged")._replace(key=as_bytes(self.value_key))
        int64 = np.dtype(np.int64)
        indices = [
            values._replace(key=as_bytes(key), kind="int64", dtype=int64)
            for key in self._index_keys()
        ]
        return [values, *indices]

    def _rules(self) -> list[RowRule]:
        return [RowRule(0, indices=[*enumerate(self._sizes(), start=1)])]

    @property
    def _is_plain(self) -> bool:
        return False

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        columns = [array for array in arrays if isinstance(array, RaggedArray)]
        values = columns[0].values
        assert isinstance(values, (np.ndarray, BytesArray))
        n_rows = len(columns[0])
        rows = np.repeat(np.arange(n_rows), columns[0].lengths)
        axes = [rows, *(np.asarray(column.values) for column in columns[1:])]
        indices = np.stack(axes, axis=1)
        if not self.already_sorted:
            order = np.lexsort(axes[::-1])
            indices, values = indices[order], values[order]
        shape = (n_rows, *self._sizes())
        return [(name, SparseArray._wrap(indices, values, shape))]

    def _row_type(self) -> str:
        return f"{self.dtype}{list(self._sizes())} sparse"
