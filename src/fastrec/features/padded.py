"""The spec of a feature that is padded: lists of any lengths as one dense array."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Array, BytesArray, RaggedArray
from fastrec.arrays.layout import offsets_from
from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    ComposedColumns,
    Spec,
    checked_count,
    checked_dtype,
    checked_shape,
    default_array,
    default_strings,
    frozen,
    kind_of,
    value_dtype,
)

__all__ = [
    "FixedLenSequence",
    "Unpadded",
    "any_width_columns",
    "rows_of_one_length",
    "without_padding",
]


@dataclass(frozen=True, repr=False)
class FixedLenSequence(Spec):
    """A feature with any number of items per record, padded to one number of them.

    Read as one array of shape ``(batch, width, *shape)``: an ndarray of `dtype`, or a
    `BytesArray` for ``"bytes"``. The width is `length`, or else that of the longest row
    of the batch; a missing feature and an empty one both give a row of padding.

    Parameters
    ----------
    shape : tuple of int or int, default ()
        Shape of one item, in row-major order.
    dtype : dtype-like
        As for `FixedLen`.
    default : scalar, optional
        What rows are padded with; zero, or the empty string, without it.
    allow_missing : bool, default True
        False for a feature list of a SequenceExample that every record must have; a
        feature may always be missing.
    length : int, optional
        The width of every batch. A record with more items is an error, unless
        `truncate` is True.
    multiple_of : int, optional
        Without `length`, the width is rounded up to a multiple of this.
    truncate : bool, default False
        Keep only the first `length` items of a record.
    lengths : str or bytes, optional
        Name of one more column, int64 of shape ``(batch,)``: the items of each row that
        are no padding.
    key : str or bytes, optional
        The feature's name, where it differs from the column's.

    Raises
    ------
    SchemaError
        If an argument makes no sense; when reading, if a record has another kind of
        values, too many of them, or a number of them that is no multiple of the product
        of `shape`.

    Examples
    --------
    >>> FixedLenSequence((), "int64", length=512, truncate=True, lengths="n_tokens")
    FixedLenSequence((), 'int64', length=512, truncate=True, lengths='n_tokens')
    """

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    default: Any = None
    allow_missing: bool = True
    length: int | None = None
    multiple_of: int | None = None
    truncate: bool = False
    lengths: str | bytes | None = None

    if TYPE_CHECKING:  # what the constructor takes is more than what the fields hold

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
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("shape", checked_shape(self.shape))
        self._set("dtype", checked_dtype(self.dtype))
        self._set("default", frozen(self.default))
        if math.prod(self.shape) == 0:
            msg = f"an item of shape {self.shape} has no values"
            raise SchemaError(msg)
        allow_missing: object = self.allow_missing
        if not isinstance(allow_missing, bool):
            msg = f"allow_missing must be a bool, not {self.allow_missing!r}"
            raise SchemaError(msg)
        self._check_width()
        lengths: object = self.lengths
        if lengths is not None and not isinstance(lengths, (str, bytes)):
            msg = f"lengths must be the name of a column, not {self.lengths!r}"
            raise SchemaError(msg)
        self._fill()

    def _check_width(self) -> None:
        if self.length is not None:
            self._set("length", checked_count("length", self.length, at_least=0))
            checked_shape((self.length, *self.shape))
        if self.multiple_of is not None:
            self._set("multiple_of", checked_count("multiple_of", self.multiple_of))
        if self.length is not None and self.multiple_of is not None:
            msg = "length and multiple_of exclude each other"
            raise SchemaError(msg)
        if self.truncate and self.length is None:
            msg = "truncate=True needs a length to cut rows to"
            raise SchemaError(msg)

    def _arguments(self, module: str) -> list[str]:  # noqa: ARG002
        options = {
            name: getattr(self, name)
            for name in ("default", "length", "multiple_of", "truncate", "lengths")
        }
        given = {k: v for k, v in options.items() if v is not None and v is not False}
        if not self.allow_missing:
            given["allow_missing"] = False
        return [
            *(repr(self.shape), repr(self.dtype)),
            *(f"{name}={value!r}" for name, value in given.items()),
        ]

    def _fill(self) -> bytes | list[bytes] | None:
        if self.default is None:
            return None
        if self.dtype == "bytes":
            return default_strings(self.default, 1)
        return default_array(self.default, value_dtype(self.dtype), ()).tobytes()

    def _columns(self, name: str | bytes) -> list[Column]:
        return [
            Column(
                name,
                self._key_of(name),
                kind_of(self.dtype),
                "padded",
                value_dtype(self.dtype),
                self.shape,
                repr(self),
                default=self._fill(),
                length=self.length,
                multiple_of=self.multiple_of or 1,
                truncate=bool(self.truncate),
                has_lengths=self.lengths is not None,
            )
        ]

    def _names(self, name: str | bytes) -> list[str | bytes]:
        return [name] if self.lengths is None else [name, self.lengths]

    @property
    def _is_plain(self) -> bool:
        return self.lengths is None

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        # The lengths may be there without a name.
        return list(zip(self._names(name), arrays, strict=False))

    def _described(self) -> str:
        width = "the longest row" if self.length is None else self.length
        lengths = "" if self.lengths is None else f", with lengths {self.lengths!r}"
        return f"{self.dtype}{list(self.shape)} padded to {width}{lengths}"

    def _widened(self, column: Array, width: int) -> Array:
        """Return a column of this spec, padded to a larger width."""
        if (column.shape[1] or 0) == width:
            return column
        fill: Any = self.default
        if fill is None:
            fill = b"" if self.dtype == "bytes" else 0
        padded: Array = rows_of_one_length(column).to_padded(fill, width)
        return padded


class Unpadded(FixedLenSequence):
    """A feature that is padded, without its padding.

    Read as a `RaggedArray` whose ``values`` have shape ``(total, *shape)``, and in all
    else as the same `FixedLenSequence`: what is an error, the column of lengths, the text.
    """

    def _text(self, module: str = "") -> str:
        return FixedLenSequence(**_fields(self))._text(module)

    def _columns(self, name: str | bytes) -> list[Column]:
        return [column._replace(has_lengths=True) for column in super()._columns(name)]

    @property
    def _is_plain(self) -> bool:
        return False

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        padded, lengths = arrays
        assert isinstance(lengths, np.ndarray)
        width = padded.shape[1] or 0
        is_item = (np.arange(width) < lengths[:, np.newaxis]).reshape(-1)
        items: Any = rows_of_one_length(padded).values
        rows = RaggedArray._wrap(
            items if is_item.all() else items[is_item], offsets_from(lengths)
        )
        return super()._compose(name, [rows, lengths])


def _fields(spec: FixedLenSequence) -> dict[str, Any]:
    return {field.name: getattr(spec, field.name) for field in fields(spec)}


def rows_of_one_length(column: Any) -> RaggedArray:  # noqa: ANN401
    """Return an ndarray or BytesArray of two axes or more as rows, of the same memory."""
    n_rows, width, *inner = column.shape
    shape = (n_rows * width, *inner)
    splits = np.arange(n_rows + 1, dtype=np.int64) * width
    if isinstance(column, BytesArray):
        flat = BytesArray._wrap(column.data, column.offsets, shape)
        return RaggedArray._wrap(flat, splits)
    return RaggedArray._wrap(np.reshape(column, shape), splits)


def without_padding(schema: Mapping[Any, Spec]) -> dict[Any, Spec]:
    """Return specs that read as `RaggedArray` what has another width in each batch."""
    return {
        name: Unpadded(**_fields(spec)) if _has_any_width(spec) else spec
        for name, spec in schema.items()
    }


def any_width_columns(schemas: Iterable[Mapping[Any, Spec]]) -> set[Any]:
    """Return the columns that are as wide as the longest row of a batch."""
    return {
        name
        for schema in schemas
        for name, spec in schema.items()
        if _has_any_width(spec)
    }


def _has_any_width(spec: Spec) -> TypeGuard[FixedLenSequence]:
    return isinstance(spec, FixedLenSequence) and spec.length is None
