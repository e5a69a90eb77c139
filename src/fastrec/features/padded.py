"""FixedLenSequence: variable-length lists padded to one dense array."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Array, RaggedArray
from fastrec.arrays.bytes import reshaped
from fastrec.arrays.layout import offsets_from
from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    ComposedColumns,
    Spec,
    checked_count,
    checked_dtype,
    checked_item,
    checked_key,
    checked_shape,
    default_bytes,
    frozen,
)


@dataclass(frozen=True, init=False, repr=False)
class FixedLenSequence(Spec):
    """A feature with a variable number of items per record, padded to one width.

    Read as an ndarray of `dtype` and shape ``(batch, width, *shape)``, or as a
    `BytesArray` for ``"bytes"``. The width is `length`, or that of the longest row of
    the batch. Records without the feature have a row of padding.

    Parameters
    ----------
    shape : tuple of int or int, default ()
        Shape of one item, in row-major order.
    dtype : dtype-like
        As for `FixedLen`.
    default : scalar, optional
        The padding; by default zero or the empty string.
    allow_missing : bool, default True
        False makes a feature list of a SequenceExample required.
    length : int, optional
        The width of every batch. Longer rows raise, unless `truncate` is True.
    multiple_of : int, optional
        Without `length`, round the width up to a multiple of this.
    truncate : bool, default False
        Keep only the first `length` items of a record.
    lengths : str or bytes, optional
        Name of an additional column with the number of items in each row: int64 of
        shape ``(batch,)``.
    key : str or bytes, optional
        The feature's name, if it differs from the column's.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, if a record has the wrong kind of
        values, too many items, or a number of values that is not a multiple of the item
        size.

    Examples
    --------
    >>> FixedLenSequence((), "int64", length=512, truncate=True, lengths="n_tokens")
    FixedLenSequence((), 'int64', length=512, truncate=True, lengths='n_tokens')
    """

    shape: tuple[int, ...]
    dtype: str
    default: Any
    allow_missing: bool
    length: int | None
    multiple_of: int | None
    truncate: bool
    lengths: str | bytes | None
    _is_padded: ClassVar[bool] = True  # or read as a RaggedArray, for tables

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        dtype: npt.DTypeLike = "float32",
        default: object = None,
        allow_missing: bool = True,
        length: int | None = None,
        multiple_of: int | None = None,
        truncate: bool = False,
        lengths: str | bytes | None = None,
        *,
        key: str | bytes | None = None,
    ) -> None:
        self._set(shape=checked_item(shape), dtype=checked_dtype(dtype))
        self._set(default=frozen(default), key=checked_key(key))
        self._set(allow_missing=allow_missing, truncate=truncate)
        self._set(lengths=checked_key(lengths, "lengths"))
        if length is not None:
            length = checked_count("length", length, minimum=0)
            checked_shape((length, *self.shape))
        if multiple_of is not None:
            multiple_of = checked_count("multiple_of", multiple_of)
        self._set(length=length, multiple_of=multiple_of)
        reason, flag = "", cast("object", allow_missing)
        if not isinstance(flag, bool):
            reason = f"allow_missing must be a bool, got {allow_missing!r}"
        elif length is not None and multiple_of is not None:
            reason = "length and multiple_of are mutually exclusive; pass one of them"
        elif truncate and length is None:
            reason = "truncate=True requires length="
        if reason:
            raise SchemaError(reason)
        self._fill()

    def _fill(self) -> bytes | list[bytes] | None:
        return default_bytes(self.default, self.dtype, ())

    def _columns(self, name: str | bytes) -> list[Column]:
        column = self._column(
            *(name, "padded", self.shape),
            default=self._fill(),
            length=self.length,
            multiple_of=self.multiple_of or 1,
            truncate=bool(self.truncate),
            has_lengths=not self._is_plain,
        )
        return [column]

    def _names(self, name: str | bytes) -> list[str | bytes]:
        return [name] if self.lengths is None else [name, self.lengths]

    @property
    def _is_plain(self) -> bool:
        return self.lengths is None and self._is_padded

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        column: Any = arrays[0]
        if not self._is_padded:
            lengths: Any = arrays[1]
            is_item = (np.arange(column.shape[1]) < lengths[:, np.newaxis]).reshape(-1)
            items = rows_of_one_length(column).values
            items = items if is_item.all() else items[is_item]
            column = RaggedArray._wrap(items, offsets_from(lengths))
        # Without a name for the lengths, drop them.
        return list(zip(self._names(name), [column, *arrays[1:]], strict=False))

    def _row_type(self) -> str:
        width = "the longest row" if self.length is None else self.length
        lengths = "" if self.lengths is None else f", with lengths {self.lengths!r}"
        return f"{self.dtype}{list(self.shape)} padded to {width}{lengths}"

    def _widened(self, column: Array, width: int) -> Array:
        """Pad a column of this spec to a larger width."""
        if (column.shape[1] or 0) == width:
            return column
        fill: Any = self.default
        if fill is None:
            fill = b"" if self.dtype == "bytes" else 0
        padded: Array = rows_of_one_length(column).to_padded(fill=fill, length=width)
        return padded


def rows_of_one_length(column: Any) -> RaggedArray:
    """View an ndarray or BytesArray with at least two axes as a RaggedArray."""
    n_rows, width, *inner = column.shape
    splits = np.arange(n_rows + 1, dtype=np.int64) * width
    return RaggedArray._wrap(reshaped(column, (n_rows * width, *inner)), splits)


def without_padding(schema: Mapping[Any, Spec]) -> dict[Any, Spec]:
    """Return the specs; those whose width varies by batch read RaggedArrays."""
    specs = dict(schema)
    for name in any_width_columns([schema]):
        specs[name] = copy.copy(specs[name])
        specs[name]._set(_is_padded=False)
    return specs


def any_width_columns(schemas: Iterable[Mapping[Any, Spec]]) -> set[Any]:
    """Return the names of the columns whose width varies by batch."""
    return {
        name
        for schema in schemas
        for name, spec in schema.items()
        if isinstance(spec, FixedLenSequence) and spec.length is None
    }
