"""The spec of a sparse feature: its values are one feature, their indices others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Array, BytesArray, RaggedArray, SparseArray
from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    ComposedColumns,
    RowRule,
    Spec,
    checked_dtype,
    checked_keys,
    checked_shape,
    kind_of,
    value_dtype,
)

__all__ = ["Sparse"]


@dataclass(frozen=True, repr=False)
class Sparse(Spec):
    """An array of which a record holds some values and their indices.

    Read as a `SparseArray` of shape ``(batch, *size)``. Where values or indices are
    missing, the record has none.

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
        The indices of each record are in order, and are not sorted again.

    Raises
    ------
    SchemaError
        If an argument makes no sense; when reading, if a record has not as many indices
        as values, or one outside of `size`.

    Examples
    --------
    >>> Sparse("ix", "value", "float32", 100)
    Sparse('ix', 'value', 'float32', 100)
    """

    index_key: str | bytes | tuple[str | bytes, ...] = ()
    value_key: str | bytes = ""
    dtype: str = "float32"
    size: int | tuple[int, ...] = ()
    already_sorted: bool = False

    if TYPE_CHECKING:  # what the constructor takes is more than what the fields hold

        def __init__(
            self,
            index_key: str | bytes | Sequence[str | bytes],
            value_key: str | bytes,
            dtype: npt.DTypeLike,
            size: int | Sequence[int],
            already_sorted: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key is not None:
            msg = "a Sparse feature has value_key and index_key, and no key of its own"
            raise SchemaError(msg)
        if not isinstance(self.index_key, (str, bytes)):
            self._set("index_key", checked_keys("index_key", self.index_key))
        checked_keys("value_key", [self.value_key])
        self._set("dtype", checked_dtype(self.dtype))
        if len(self._index_keys()) != len(self._sizes()):
            msg = (
                f"size {self.size!r} must have one entry for each of {self.index_key!r}"
            )
            raise SchemaError(msg)
        if not isinstance(self.size, (int, np.integer)):
            self._set("size", self._sizes())

    def _index_keys(self) -> tuple[str | bytes, ...]:
        is_one = isinstance(self.index_key, (str, bytes))
        return (self.index_key,) if is_one else self.index_key  # type: ignore[return-value]

    def _sizes(self) -> tuple[int, ...]:
        return checked_shape(self.size)

    def _arguments(self, module: str) -> list[str]:  # noqa: ARG002
        arguments = map(repr, (self.index_key, self.value_key, self.dtype, self.size))
        return [*arguments, *(["already_sorted=True"] if self.already_sorted else [])]

    def _columns(self, name: str | bytes) -> list[Column]:
        keys = [
            key.encode() if isinstance(key, str) else key
            for key in (self.value_key, *self._index_keys())
        ]
        values = Column(
            name,
            keys[0],
            kind_of(self.dtype),
            "ragged",
            value_dtype(self.dtype),
            (),
            repr(self),
        )
        int64 = np.dtype(np.int64)
        return [
            values,
            *(values._replace(key=key, kind="int64", dtype=int64) for key in keys[1:]),
        ]

    def _rules(self, first: int) -> list[RowRule]:
        indices = [(first + 1 + i, size) for i, size in enumerate(self._sizes())]
        return [RowRule(first, indices=indices)]

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

    def _described(self) -> str:
        return f"{self.dtype}{list(self._sizes())} sparse"
