"""Specs without partitions or indices, such as FixedLen, VarLen and Raw.

Specs are immutable and compare by value. The `repr` of a spec is a Python expression.
The semantics match ``tf.io.parse_example``; ``docs/semantics.md`` lists the
differences.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

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
    as_bytes,
    checked_choice,
    checked_count,
    checked_dtype,
    checked_item,
    checked_key,
    checked_keys,
    checked_shape,
    default_array,
    default_bytes,
    default_strings,
    frozen,
    is_opaque,
    numpy_dtype,
    value_dtype,
)


@dataclass(frozen=True, init=False, repr=False)
class FixedLen(Spec):
    """A feature with the same number of values in every record.

    The column is an ndarray of `dtype` and shape ``(batch, *shape)``, or a `BytesArray`
    for ``"bytes"``.

    Parameters
    ----------
    shape : tuple of int or int, default ()
        Shape of each record's values, in row-major order.
    dtype : dtype-like
        Records store ``"int64"``, ``"float32"`` and ``"bytes"`` (alias ``"string"``).
        Conversions to other integers and bool are range-checked; ``"float16"``,
        ``"float64"`` and, with ml_dtypes, ``"bfloat16"`` round to nearest.
    default : scalar or array-like of `shape`, optional
        The values for records that lack the feature, or whose feature has no kind.
        An empty list does not count as missing.
    key : str or bytes, optional
        The feature's name, if it differs from the column name.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, if a record has the wrong number or
        kind of values, or lacks the feature and there is no default.

    Examples
    --------
    >>> FixedLen((), "int64", default=0)
    FixedLen((), 'int64', default=0)
    """

    shape: tuple[int, ...]
    dtype: str
    default: Any

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        dtype: npt.DTypeLike = "float32",
        default: object = None,
        *,
        key: str | bytes | None = None,
    ) -> None:
        self._set(shape=checked_shape(shape), dtype=checked_dtype(dtype))
        self._set(default=frozen(default), key=checked_key(key))
        self._default_bytes()

    def _default_bytes(self) -> bytes | list[bytes] | None:
        # TensorFlow treats an empty default as no default.
        default = None if 0 in self.shape else self.default
        return default_bytes(default, self.dtype, self.shape)

    def _columns(self, name: str | bytes) -> list[Column]:
        default = self._default_bytes()
        return [self._column(name, "dense", self.shape, default=default)]

    def _windowed(self, length: int | None) -> Spec | None:
        return _window(length, self.shape[1:], self.dtype) if self.shape else None


@dataclass(frozen=True, init=False, repr=False)
class VarLen(Spec):
    """A feature with a variable number of values per record.

    The column is a `RaggedArray` of ``batch`` rows, whose ``values`` have shape
    ``(n_items, *shape)``. Records without the feature have an empty row.

    Parameters
    ----------
    dtype : dtype-like
        As for `FixedLen`.
    shape : tuple of int or int, default ()
        Shape of one item: ``(7,)`` means seven values each. Must be ``()`` for bytes.
    key : str or bytes, optional
        The feature's name, if it differs from the column name.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, if a record has the wrong kind of
        values, or a number of values that is not a multiple of the item size.

    Examples
    --------
    >>> VarLen("int64")
    VarLen('int64')
    """

    dtype: str
    shape: tuple[int, ...]
    _n_positional = 1

    def __init__(
        self,
        dtype: npt.DTypeLike = "float32",
        shape: int | Sequence[int] = (),
        *,
        key: str | bytes | None = None,
    ) -> None:
        self._set(dtype=checked_dtype(dtype), shape=checked_item(shape))
        self._set(key=checked_key(key))
        if self.shape and self.dtype == "bytes":
            raise SchemaError(f"shape must be () for dtype 'bytes', got {self.shape}")

    def _columns(self, name: str | bytes) -> list[Column]:
        return [self._column(name, "ragged", self.shape)]

    def _windowed(self, length: int | None) -> Spec | None:
        return _window(length, self.shape, self.dtype)


@dataclass(frozen=True, init=False, repr=False)
class Raw(Spec):
    """An array stored as the byte string that ``ndarray.tobytes()`` returns.

    The column is an ndarray of `dtype` and shape ``(batch, *shape)``, like the result
    of ``tf.io.decode_raw`` after a reshape.

    Parameters
    ----------
    shape : tuple of int or int
        Shape of one row, in row-major order.
    dtype : dtype-like
        Any NumPy dtype with a fixed size and without Python objects.
    little_endian : bool, default True
        Whether the file stores little-endian numbers. Columns have native byte order.
    default : array-like of `shape`, optional
        The values for records without the feature.
    compression : {None, "ZLIB"}
        Compression of the byte strings. The `transform_threads` of a loader decompress
        the byte strings before transforms run.
    key : str or bytes, optional
        The feature's name, if it differs from the column name.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, if a record does not have exactly one
        byte string of the right size, or lacks the feature and there is no default.

    Notes
    -----
    In ``sequence_features=``, each step is an array. The column is a `RaggedArray` of
    ``batch`` rows, whose ``values`` have shape ``(n_steps, *shape)``, and `default`
    replaces only empty byte strings.

    Examples
    --------
    >>> Raw((28, 28), "uint8")
    Raw((28, 28), 'uint8')
    """

    shape: tuple[int, ...]
    dtype: str | np.dtype[Any]
    little_endian: bool
    default: Any
    compression: Literal["ZLIB"] | None

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        dtype: npt.DTypeLike = "uint8",
        little_endian: bool = True,
        default: object = None,
        *,
        compression: Literal["ZLIB"] | None = None,
        key: str | bytes | None = None,
    ) -> None:
        checked = numpy_dtype(dtype)
        if checked.hasobject or checked.itemsize == 0 or checked.subdtype is not None:
            raise SchemaError(f"dtype must have a fixed size, got {dtype!r}")
        if is_opaque(checked) and not little_endian:
            raise SchemaError(
                f"little_endian must be True for {dtype!r}, which is not byte-swapped"
            )
        name = checked.str if is_opaque(checked) else checked.name
        self._set(dtype=checked if checked.names is not None else str(name))
        self._set(shape=checked_shape(shape))
        checked_choice("compression", compression, (None, "ZLIB"))
        self._set(little_endian=little_endian, default=frozen(default))
        self._set(compression=compression, key=checked_key(key))
        self._default_bytes()

    def _default_bytes(self) -> bytes | None:
        if self.default is None or 0 in self.shape:
            return None
        dtype = numpy_dtype(self.dtype)
        return default_array(self.default, dtype, self.shape).tobytes()

    def _swap_bytes(self) -> int:
        """Return the size of the numbers to byte-swap, in bytes; 0 to swap nothing."""
        dtype = numpy_dtype(self.dtype)
        if self.little_endian == (np.little_endian or dtype.itemsize == 1):
            return 0
        return dtype.itemsize // (2 if dtype.kind == "c" else 1)

    def _columns(self, name: str | bytes) -> list[Column]:
        if self.compression is not None or self._is_item:  # Python code decodes
            return [self._strings(name)]
        column = Column(
            *(name, self._key_of(name), "bytes", "raw"),
            *(numpy_dtype(self.dtype), self.shape, repr(self)),
            swap_bytes=self._swap_bytes(),
            default=self._default_bytes(),
        )
        return [column]

    def _row_type(self) -> str:
        return f"{numpy_dtype(self.dtype)}{list(self.shape)}"


@dataclass(frozen=True, init=False, repr=False)
class Stack(Spec):
    """Several scalar features, stacked into one column.

    The column is an ndarray of `dtype` and shape ``(batch, len(keys))``, or a
    `BytesArray` for ``"bytes"``.

    Parameters
    ----------
    keys : sequence of str or bytes
        The names of the features, in column order.
    dtype : dtype-like
        As for `FixedLen`.
    default : scalar or sequence of scalars, optional
        The value of missing features: one scalar for all, or one for each feature.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, as for `FixedLen` with ``shape=()``.

    Examples
    --------
    >>> Stack(["height", "width"], "int32", default=0)
    Stack(('height', 'width'), 'int32', default=0)
    """

    keys: tuple[str | bytes, ...]
    dtype: str
    default: Any

    def __init__(
        self,
        keys: Sequence[str | bytes],
        dtype: npt.DTypeLike = "float32",
        default: object = None,
    ) -> None:
        self._set(keys=checked_keys("keys", keys), dtype=checked_dtype(dtype))
        self._set(default=frozen(default), key=None)
        self._defaults()

    def _defaults(self) -> Sequence[bytes | list[bytes] | None]:
        """Return one default for each feature, in the form of `Column.default`."""
        n, default = len(self.keys), self.default
        if default is None:
            return [None] * n
        default = default if isinstance(default, tuple) else (default,) * n
        if self.dtype == "bytes":
            return [[string] for string in default_strings(default, n)]
        values = default_array(default, value_dtype(self.dtype), (n,))
        return [value.tobytes() for value in values]

    def _columns(self, name: str | bytes) -> list[Column]:
        n = len(self.keys)
        column = self._column(name, "dense", (1,) if n == 1 else (), n_slots=n)
        return [
            column._replace(key=as_bytes(key), default=default, slot=slot)
            for slot, (key, default) in enumerate(
                zip(self.keys, self._defaults(), strict=True)
            )
        ]

    def _row_type(self) -> str:
        return f"{self.dtype}[{len(self.keys)}]"


@dataclass(frozen=True, init=False, repr=False)
class Record(Spec):
    """The whole serialized record.

    The column is a `BytesArray` of shape ``(batch,)``. Records may contain any bytes,
    such as other protobuf messages, text or images. Records are parsed only if the
    schema also has other specs.

    Examples
    --------
    >>> import fastrec as fr
    >>> ds = fr.open(
    ...     "logs/events.*", features={"record": fr.Record()}
    ... )  # doctest: +SKIP
    >>> ds[0]["record"]  # doctest: +SKIP
    b'...'
    """

    def __init__(self) -> None:
        self._set(key=None)

    def _columns(self, name: str | bytes) -> list[Column]:
        return [self._strings(name, "record")]


@dataclass(frozen=True, init=False, repr=False)
class FixedLenSequence(Spec):
    """A feature with a variable number of items per record, padded to equal length.

    The column is an ndarray of `dtype` and shape ``(batch, width, *shape)``, or a
    `BytesArray` for ``"bytes"``. The width is `length`, or by default the length of the
    longest row in the batch. Records without the feature have a row of padding.

    Parameters
    ----------
    shape : tuple of int or int, default ()
        Shape of one item, in row-major order.
    dtype : dtype-like
        As for `FixedLen`.
    default : scalar, optional
        The padding value; by default 0 or the empty string.
    allow_missing : bool, default True
        Pass False to require the feature list in every SequenceExample.
    length : int, optional
        The width of every batch. Longer rows are an error unless `truncate` is True.
    multiple_of : int, optional
        Round the width up to a multiple of this number. Requires ``length=None``.
    truncate : bool, default False
        Keep only the first `length` items of each record.
    lengths : str or bytes, optional
        Name of an additional column with the number of items in each row: int64 of
        shape ``(batch,)``.
    key : str or bytes, optional
        The feature's name, if it differs from the column name.

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
    _is_padded: ClassVar[bool] = True  # False reads a RaggedArray, for Arrow tables

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

    def _windowed(self, length: int | None) -> Spec | None:
        return _window(length, self.shape, self.dtype)

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
        # Drop the lengths if they have no name.
        return list(zip(self._names(name), [column, *arrays[1:]], strict=False))

    def _row_type(self) -> str:
        width = "the longest row" if self.length is None else self.length
        lengths = "" if self.lengths is None else f", with lengths {self.lengths!r}"
        return f"{self.dtype}{list(self.shape)} padded to {width}{lengths}"

    def _width(self, column: Any) -> int:
        """Return the width of a column, also of one that was read without padding."""
        if not isinstance(column, RaggedArray):
            return int(column.shape[1])
        multiple = self.multiple_of or 1
        return -(-int(column.lengths.max(initial=0)) // multiple) * multiple

    def _widened(self, column: Any, width: int) -> Array:
        """Return `column`, padded to `width` items per row with this spec's default."""
        is_ragged = isinstance(column, RaggedArray)
        if not is_ragged and column.shape[1] == width:
            same: Array = column
            return same
        fill: Any = self.default
        if fill is None:
            fill = b"" if self.dtype == "bytes" else 0
        rows = column if is_ragged else rows_of_one_length(column)
        padded: Array = rows.to_padded(fill=fill, length=width)
        return padded


def _window(length: int | None, shape: tuple[int, ...], dtype: str) -> FixedLen:
    """Return the spec of `length` items of a shape, or of one item."""
    return FixedLen(shape if length is None else (length, *shape), dtype)


def rows_of_one_length(column: Any) -> RaggedArray:
    """View an ndarray or BytesArray with at least two axes as a RaggedArray."""
    n_rows, width, *inner = column.shape
    splits = np.arange(n_rows + 1, dtype=np.int64) * width
    return RaggedArray._wrap(reshaped(column, (n_rows * width, *inner)), splits)


def without_padding(schema: Mapping[Any, Spec]) -> dict[Any, Spec]:
    """Return a copy of `schema` that reads columns of varying width as RaggedArrays."""
    specs = dict(schema)
    for name in any_width_columns([schema]):
        specs[name] = copy.copy(specs[name])
        specs[name]._set(_is_padded=False)
    return specs


def any_width_columns(schemas: Iterable[Mapping[Any, Spec]]) -> set[Any]:
    """Return the names of the columns whose width may differ between batches."""
    return {
        name
        for schema in schemas
        for name, spec in schema.items()
        if isinstance(spec, FixedLenSequence) and spec.length is None
    }
