"""Convert the caller's columns and rows to columns that the core encodes.

The type of a value determines its kind, as in TensorFlow's guide to tf.train.Example:
bool and integers become int64, floats float32, str and bytes byte strings. A spec
determines the storage of arrays with two or more dimensions and the kind of empty
lists. There are no other conversions: a float never becomes an integer.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastrec import _core
from fastrec.arrays.batch import Array, BytesArray, RaggedArray
from fastrec.arrays.bytes import reshaped
from fastrec.arrays.layout import offsets_from
from fastrec.caller_warnings import warn_caller
from fastrec.features.base import Spec, as_bytes, kind_of, numpy_dtype
from fastrec.features.fixed import (
    FixedLen,
    FixedLenSequence,
    Raw,
    Record,
    Stack,
    VarLen,
)
from fastrec.features.image import Image
from fastrec.features.tensor import SerializedTensor, serialized_rows
from fastrec.transforms.images import encoded_images

# Mask of the rows that have a feature; None if all rows have the feature.
Present: TypeAlias = NDArray[np.bool_] | None

# Specs whose rows all have one shape.
DENSE = (FixedLen, Image, Raw, Stack, SerializedTensor)

_INT64_MAX = 2**63 - 1
_NOT_INT64 = (
    "integers must be in the range of int64; write the bits of a uint64 with "
    '.view("int64")'
)

_WRITTEN = (*DENSE, VarLen, FixedLenSequence)
_DTYPES: dict[str, Any] = {"int64": np.int64, "float": np.float32, "bytes": np.uint8}


@dataclass(frozen=True)
class ColumnValues:
    """A column to encode; see ``ColumnValues`` in ``src/cpp/encode/encode_batch.h``."""

    name: str | bytes  # the caller's name of the column
    key: bytes
    kind: str  # "int64", "float" or "bytes"; "" if no value determines it
    values: NDArray[Any]
    n_values: int = 1
    row_splits: NDArray[Any] | None = None
    string_bytes: int = 0
    offsets: NDArray[Any] | None = None
    present: Present = None
    is_range_checked: bool = False  # against the range of the spec's dtype

    @property
    def is_present(self) -> bool:
        """Whether any row has the feature."""
        return self.present is None or bool(self.present.any())

    @property
    def has_values(self) -> bool:
        """Whether any row has values. Without values, the kind may be unknown."""
        if not self.is_present:
            return False
        if self.offsets is not None:
            return len(self.offsets) > 1
        if self.row_splits is not None:
            return bool(self.row_splits[-1] > self.row_splits[0])
        return self.n_values > 0 and (self.values.size > 0 or self.kind == "bytes")


def columns_of(
    columns: Mapping[Any, Any], features: Mapping[Any, Spec]
) -> tuple[list[ColumnValues], int]:
    """Convert the columns to ColumnValues; also return their number of rows."""
    _check_mapping("columns", columns)
    result: dict[bytes, ColumnValues] = {}
    lengths: dict[Any, int] = {}
    for name, column in columns.items():
        if not isinstance(name, (str, bytes)):
            raise TypeError(
                f"feature names must be str or bytes, got {type(name).__name__}"
            )
        spec = _spec_of(name, features)
        try:
            array, present = array_of(column, spec)
            if present is not None and not present.all():
                _check_optional(name, spec, f" in row {int(present.argmin())}")
            for values in _encodable(name, array, present, spec):
                _add(result, values.key, values)
        except (TypeError, ValueError) as error:
            raise _with_name(name, error) from error
        lengths[name] = len(array)
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must have equal lengths, got {lengths}")
    _check_complete(columns, result, features)
    return [*result.values()], next(iter(lengths.values()), 0)


def row_of_lists(
    row: Mapping[Any, Any], features: Mapping[Any, Spec]
) -> dict[Any, object]:
    """Return a copy of `row` in which each feature with a spec is a flat list."""
    _check_mapping("a row", row)
    result: dict[Any, object] = {}
    for name, value in row.items():
        spec = _spec_of(name, features) if isinstance(name, (str, bytes)) else None
        if spec is None:
            _add(result, as_bytes(name), value)
            continue
        try:
            if value is None:
                raise TypeError("value must not be None; omit the feature from the row")
            is_text = isinstance(value, (str, bytes))  # includes np.str_ and np.bytes_
            is_array = isinstance(value, (np.ndarray, np.generic)) and not is_text
            array, present = array_of(value[None] if is_array else [value], spec)
            if present is not None and not present.all():
                _check_optional(name, spec)
                continue
            for column in _encodable(name, array, None, spec):
                _add(result, column.key, _list_of(column))
        except (TypeError, ValueError) as error:
            raise _with_name(name, error) from error
    _check_complete(row, result, features)
    return result


def _list_of(column: ColumnValues) -> object:
    """Return the values of a one-row column as a flat array, or as one string."""
    if column.kind != "bytes":
        return column.values.reshape(-1)
    if column.offsets is None and column.n_values:
        return np.ascontiguousarray(column.values).reshape(-1).data
    offsets = np.zeros(1, np.int64) if column.offsets is None else column.offsets
    return BytesArray(column.values, offsets)


def ordered(
    columns: list[ColumnValues], order: _core.FeatureOrder
) -> list[ColumnValues]:
    """Return the columns in the order, and with the kinds, of earlier records."""
    placed: list[tuple[int, ColumnValues]] = []
    for column in columns:
        position, kind = order.place(column.key, "")
        if kind:
            column = of_kind(column, kind)
        if column.kind:
            placed.append((position, column))
        elif column.is_present:
            raise ValueError(
                f"feature {column.name!r}: cannot determine the kind of empty lists; "
                "pass a spec in features="
            )
    # Register kinds after all checks: an error must not change the order.
    result = []
    for _, column in sorted(placed, key=lambda item: item[0]):
        if column.has_values:
            _, kind = order.place(column.key, column.kind)
            column = of_kind(column, kind)
        result.append(column)
    return result


def of_kind(column: ColumnValues, kind: str) -> ColumnValues:
    """Convert a column to `kind`; values can only change from int64 to float."""
    if column.kind == kind:
        return column
    if not column.has_values:
        none = np.zeros(0, _DTYPES[kind])
        names, present = (column.name, column.key), column.present
        return ColumnValues(*names, kind, none, 0, present=present)
    if (column.kind, kind) == ("int64", "float"):
        return replace(column, kind=kind, values=column.values.astype(np.float32))
    raise ValueError(
        f"feature {column.name!r} has {column.kind} values, but had {kind} values "
        "before; a feature must have one kind in all records of a file"
    )


# Names and specs.


def _with_name(name: str | bytes, error: Exception) -> Exception:
    """Return an error like `error` whose message begins with the feature's name."""
    if isinstance(error, UnicodeEncodeError):
        msg = (
            f"feature {name!r}: cannot encode the text as UTF-8; convert it to bytes, "
            'for example with .encode(errors="surrogateescape")'
        )
        return ValueError(msg)
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"feature {name!r}: {error}")


def _check_mapping(what: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{what} must be a mapping of names to values, got {type(given).__name__}"
        )


def _add(result: dict[Any, Any], key: Any, value: object) -> None:
    if key in result:
        text = key.decode(errors="backslashreplace")
        raise ValueError(f"feature keys must be unique, got {text!r} for two columns")
    result[key] = value


def _spec_of(name: str | bytes, features: Mapping[Any, Spec]) -> Spec | None:
    """Return the spec of a feature, or None; a str and its bytes are the same name."""
    spec = features.get(name)
    if spec is None and features:
        other: Any = as_bytes(name)
        if isinstance(name, bytes):
            other = name.decode(errors="surrogateescape")
        spec = features.get(other)
    return spec


def _required(name: str | bytes, spec: Spec | None) -> set[bytes]:
    """Return the keys of the features that `spec` requires in every row."""
    if not isinstance(spec, DENSE):
        return set()
    return {column.key for column in spec._columns(name) if column.default is None}


def _check_optional(name: str | bytes, spec: Spec | None, where: str = "") -> None:
    if _required(name, spec):
        raise ValueError(f"value is missing{where}, and {spec!r} has no default")


def _check_complete(
    row: Mapping[Any, object], keys: Mapping[Any, object], features: Mapping[Any, Spec]
) -> None:
    """Raise a ValueError if `row` lacks a feature whose spec has no default."""
    for name, spec in features.items():
        if name not in row and not _required(name, spec) <= keys.keys():
            raise ValueError(f"feature {name!r} is missing and {spec!r} has no default")


# Convert arrays of rows to columns of the core.


def _encodable(
    name: str | bytes, array: Array, present: Present, spec: Spec | None
) -> list[ColumnValues]:
    """Convert a column to one ColumnValues for each feature that its spec reads."""
    if spec is None:
        _check_flat(array)
        return [_lists(name, as_bytes(name), array, present)]
    if isinstance(spec, Record):
        raise TypeError(
            "cannot write records as a feature; pass each record to Writer.write_record"
        )
    if not isinstance(spec, _WRITTEN):
        raise TypeError(f"cannot write a {spec!r}; write its features as columns")
    if isinstance(spec, Image):
        if not isinstance(array, BytesArray):  # image files are written unchanged
            array = encoded_images(dense(array), spec)
        return [_lists(name, spec._key_of(name), array, present)]
    keys = (
        [*map(as_bytes, spec.keys)] if isinstance(spec, Stack) else [spec._key_of(name)]
    )
    is_memory = isinstance(spec, (Raw, SerializedTensor))
    shape = (len(keys),) if isinstance(spec, Stack) else spec.shape
    values = array._flat_values if isinstance(array, RaggedArray) else array
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":  # no values
        has_rows = len(array) if present is None else present.any()
        must_have = isinstance(spec, (FixedLen, Raw, Stack)) and 0 not in (shape or ())
        if has_rows and (must_have or isinstance(spec, SerializedTensor)):
            _refuse_shape((0,), spec)
        kind = "bytes" if is_memory else kind_of(str(spec.dtype))
        empty = (kind, np.zeros(0, _DTYPES[kind]), int(is_memory))
        return [ColumnValues(name, key, *empty, present=present) for key in keys]
    if isinstance(spec, (Raw, SerializedTensor)):
        return [_memory(name, keys[0], array, present, spec)]
    if isinstance(spec, (FixedLen, Stack)):
        array = dense(array)
        is_right = array.shape[1:] == shape
    else:
        if isinstance(array, RaggedArray):
            array = RaggedArray._wrap(dense(array.values), array.row_splits)
        is_right = len(array.shape) > 1 and array.shape[2:] == shape
    if not is_right:
        _refuse_shape(array.shape[1:], spec)
    parts: Any = [array]
    if isinstance(spec, Stack):
        parts = [parts[0][:, i] for i in range(len(keys))]
    pairs = zip(keys, parts, strict=True)
    lists = (_lists(name, key, part, present) for key, part in pairs)
    return [_as_read(column, spec) for column in lists]


def _refuse_shape(shape: tuple[int | None, ...], spec: Spec) -> NoReturn:
    raise ValueError(f"rows must have the shape of {spec!r}, got {shape}")


def _check_flat(array: Array) -> None:
    """Raise a ValueError unless the rows are flat, so that no spec is required."""
    rows = array.shape[1:]
    if len(rows) <= 1:
        return
    example = "fr.FixedLen(...) or fr.VarLen(..., shape=...)"
    if isinstance(array, np.ndarray):
        example = f"fr.Raw({rows}, {array.dtype.name!r})"
    msg = (
        f"cannot write {len(rows)}-D rows without a spec; pass a spec in features=, "
        f"such as {example}, or write the bytes from .tobytes()"
    )
    if isinstance(array, RaggedArray) and isinstance(array.values, RaggedArray):
        msg = (
            "cannot write lists of lists; write their values and their lengths as two "
            "features, which fr.Ragged reads as one column"
        )
    raise ValueError(msg)


def _lists(
    name: str | bytes, key: bytes, array: Array, present: Present
) -> ColumnValues:
    """Convert each row to a flat list of its values, in row-major order."""
    row_splits: Any = None
    values: Any = array
    if isinstance(array, RaggedArray):
        values = array.values
        row_splits = array.row_splits.astype(np.int64, copy=False)
    n_values = math.prod(values.shape[1:])
    if row_splits is not None and n_values != 1:
        row_splits = row_splits * n_values
    if isinstance(values, BytesArray):
        flat = ("bytes", values.data, n_values, row_splits)
        return ColumnValues(name, key, *flat, offsets=values.offsets, present=present)
    kind, numbers = number_values(values)
    is_double = kind == "float" and values.itemsize == 8
    if is_double and (np.isinf(numbers) & np.isfinite(values)).any():
        text = f"feature {name!r} has a float outside of float32, written as inf"
        warn_caller(text, RuntimeWarning)
    return ColumnValues(name, key, kind, numbers, n_values, row_splits, present=present)


def _as_read(column: ColumnValues, spec: Spec) -> ColumnValues:
    """Convert a column to its spec's kind, and check that integers fit the dtype."""
    dtype = spec.dtype  # type: ignore[attr-defined]
    kind = kind_of(dtype)
    kinds = (kind, "int64" if kind == "float" else "")
    if column.has_values and column.kind not in kinds:
        msg = f"values must be {kind}, as in {spec!r}, got {column.kind}"
        if (column.kind, kind) == ("float", "int64"):
            msg += '; convert them with .astype("int64")'
        raise ValueError(msg)
    column = of_kind(column, kind)
    target = numpy_dtype(dtype) if kind == "int64" else None
    if target is not None and target != np.int64 and column.values.size:
        bounds = (False, True) if target.kind == "b" else _bounds(target)
        for value in (column.values.min(), column.values.max()):
            if not bounds[0] <= value <= bounds[1]:
                raise ValueError(f"value {value} is out of range of {target.name}")
        column = replace(column, is_range_checked=True)
    return column


def _bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _memory(
    name: str | bytes,
    key: bytes,
    array: Array,
    present: Present,
    spec: Raw | SerializedTensor,
) -> ColumnValues:
    """Convert each row to a byte string: an array's bytes or a serialized tensor."""
    if isinstance(array, BytesArray) and array.ndim == 1:  # already serialized
        if isinstance(spec, Raw):
            size = numpy_dtype(spec.dtype).itemsize * math.prod(spec.shape)
            wrong = np.flatnonzero(array.lengths != size)
            if wrong.size:
                raise ValueError(
                    f"rows must have {size} bytes, as in {spec!r}, got "
                    f"{array.lengths[wrong[0]]} in row {wrong[0]}"
                )
        if isinstance(spec, Raw) and spec.compression is not None:
            array = _deflated(array)
        if isinstance(spec, Raw) or spec.shape is None:
            return _lists(name, key, array, present)
    if spec.shape is None or spec.dtype is None:
        raise TypeError(
            f"cannot serialize arrays for {spec!r}, which has no shape and dtype; "
            "write byte strings of fastrec.compat.tf_io.serialize_tensor()"
        )
    whole = dense(array)
    if whole.shape[1:] != spec.shape:
        _refuse_shape(whole.shape[1:], spec)
    if isinstance(whole, BytesArray) and spec.dtype == "bytes":
        rows = [serialized_rows(whole[i : i + 1]).tobytes() for i in range(len(whole))]
        return _lists(name, key, BytesArray.from_list(rows), present)
    dtype = numpy_dtype(spec.dtype)
    if not np.can_cast(whole.dtype, dtype, "equiv"):
        got = "bytes" if isinstance(whole, BytesArray) else whole.dtype
        raise ValueError(
            f"values must have the dtype of {spec!r}, got {got}; convert them, for "
            f"example with .astype({str(spec.dtype)!r})"
        )
    if isinstance(spec, SerializedTensor):
        data = serialized_rows(whole)
    else:
        native = np.ascontiguousarray(whole, dtype)
        native = native.byteswap() if spec._swap_bytes() else native
        data = native.reshape(-1).view(np.uint8)
        if spec.compression is not None:
            rows = [*data.reshape(len(whole), -1)] if len(whole) else []
            return _lists(name, key, _deflated(rows), present)
    size = data.size // max(1, len(whole))
    data = data.reshape(-1)
    return ColumnValues(name, key, "bytes", data, string_bytes=size, present=present)


def _deflated(rows: Iterable[Any]) -> BytesArray:
    """Compress each row of bytes with ZLIB."""
    return BytesArray.from_list([zlib.compress(row) for row in rows])


# Convert the caller's columns to arrays of rows. Arrays stay unchanged.


def array_of(column: Any, spec: Spec | None) -> tuple[Array, Present]:
    """Return a column as an array, and a mask of present rows (None if all are)."""
    is_array = isinstance(column, np.ndarray)
    if is_array and column.ndim == 0:
        raise ValueError("a column must have one value for each record, got a scalar")
    if isinstance(column, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(column)
        mask = mask.reshape(len(column), math.prod(column.shape[1:]))
        absent = mask.any(axis=1)
        if not mask[absent].all():
            raise ValueError("a row must be masked entirely or not at all")
        data = column.data
        if absent.any():  # masked values may have a type that cannot be written
            blank = np.zeros((), data.dtype) if absent.all() else data[~absent][0]
            data = data.copy()
            data[absent] = blank
        return array_of(data, spec)[0], np.logical_not(absent)
    if isinstance(column, (list, tuple)) or (is_array and _is_opaque(column, spec)):
        return _array_of_list(column.tolist() if is_array else column, spec)
    if is_array or isinstance(column, (BytesArray, RaggedArray)):
        return column, None
    if hasattr(column, "__array__"):  # tensors and series of other libraries
        return array_of(np.asarray(column), spec)
    got = type(column).__name__
    raise TypeError(
        f"a column must be an array, RaggedArray, BytesArray or list, got {got}"
    )


def _is_opaque(array: NDArray[Any], spec: Spec | None = None) -> bool:
    """Return whether `array` has objects or text, to be converted item by item."""
    kind = array.dtype.kind
    return kind == "O" or (kind in "UT" and not isinstance(spec, Raw))


def _array_of_list(values: Sequence[Any], spec: Spec | None) -> tuple[Array, Present]:
    some = [value for value in values if value is not None]
    if len(some) == len(values) > 0:
        return _array_of_items(values, spec), None
    present = np.array([value is not None for value in values], np.bool_)
    if not some:
        return _rows_without_values(len(values)), present
    is_ragged = _kinds_of(some) == {"list"} and not isinstance(spec, DENSE)
    blank = some[0][:0] if is_ragged else some[0]
    filled = [blank if value is None else value for value in values]
    return _array_of_items(filled, spec), present


def _rows_without_values(n_rows: int) -> Array:
    """Return `n_rows` empty rows. Without values, their kind is unknown."""
    return RaggedArray._wrap(np.zeros(0, object), np.zeros(n_rows + 1, np.int64))


def _array_of_items(items: Sequence[Any], spec: Spec | None = None) -> Array:
    """Convert scalars, strings or rows to an ndarray, BytesArray or RaggedArray."""
    kinds = _kinds_of(items)
    if "" in kinds:
        wrong = next(type(item) for item in items if "" in _kinds_of([item]))
        raise TypeError(
            f"cannot write a value of type {wrong.__name__}; write numbers, strings, "
            "lists of them or NumPy arrays"
        )
    if len(kinds) > 1:
        hint = "convert all values to one kind"
        floats = (item for item in items if isinstance(item, (float, np.floating)))
        if kinds == {"float", "string"} and all(map(np.isnan, floats)):
            hint = "write None for a missing string, not NaN"
        raise ValueError(f"cannot mix {' and '.join(sorted(kinds))}; {hint}")
    if kinds == {"string"}:
        if len(items) == 1 and type(items[0]) is bytes:  # a view, not a copy
            data = np.frombuffer(items[0], np.uint8)
            return BytesArray._wrap(data, np.array([0, data.size]), (1,))
        return BytesArray.from_list(items)
    if kinds == {"list"}:
        if all(isinstance(x, np.ndarray) and not _is_opaque(x, spec) for x in items):
            return _stack_or_concat(items, spec)
        splits = offsets_from(np.array([*map(len, items)], np.int64))
        if all(isinstance(x, BytesArray) and x.ndim == 1 for x in items):
            return RaggedArray._wrap(BytesArray._concatenate(items), splits)
        flat = [value for item in items for value in _listed(item)]
        if not flat:
            return _rows_without_values(len(items))
        return RaggedArray._wrap(_array_of_items(flat), splits)
    array = np.array(items)
    if kinds == {"int"} and array.dtype.kind not in "biu":
        # NumPy promotes mixed signed and unsigned integers to floats or objects.
        try:
            return np.array([*map(int, items)], np.int64)
        except OverflowError:
            raise ValueError(_NOT_INT64) from None
    return array


def _kinds_of(items: Sequence[Any]) -> set[str]:
    """Return the kinds of items: "string", "list", "int", "float", or "" for others."""
    kinds = set()
    for kind in set(map(type, items)):
        if issubclass(kind, np.ndarray):
            forms = {(x.ndim > 0, x.dtype.kind) for x in items if type(x) is kind}
            of = {"b": "int", "i": "int", "u": "int", "f": "float"}
            kinds |= {"list" if is_list else of.get(k, "") for is_list, k in forms}
        elif issubclass(kind, memoryview):
            views = (x for x in items if type(x) is kind)
            is_bytes = all(x.itemsize == 1 and x.c_contiguous for x in views)
            kinds.add("string" if is_bytes else "")
        elif issubclass(kind, (str, bytes, bytearray)):
            kinds.add("string")
        elif issubclass(kind, (list, tuple, BytesArray, RaggedArray)):
            kinds.add("list")
        elif issubclass(kind, (int, np.integer, np.bool_)):
            kinds.add("int")
        else:
            kinds.add("float" if issubclass(kind, (float, np.floating)) else "")
    return kinds


def _stack_or_concat(arrays: Sequence[Any], spec: Spec | None) -> Array:
    """Stack one array per row if `spec` is dense; otherwise make a RaggedArray."""
    is_dense = isinstance(spec, DENSE)
    full = arrays if is_dense else [a for a in arrays if a.size] or arrays[:1]
    dtypes = {array.dtype for array in full}
    kinds = set() if isinstance(spec, Raw) else {_number_kind(d) for d in dtypes}
    if len(kinds) > 1:
        raise ValueError("cannot mix float and int; convert all values to one kind")
    if len(dtypes) > 1 and kinds == {"int64"}:
        # NumPy promotes mixed signed and unsigned integers to floats.
        full = [number_values(array)[1] for array in full]
    if is_dense:
        return np.stack(full)
    lengths = [len(array) if array.size else 0 for array in arrays]
    values = np.concatenate(full)[: sum(lengths)]
    return RaggedArray._wrap(values, offsets_from(np.array(lengths, np.int64)))


def _listed(row: Any) -> Sequence[Any]:
    if isinstance(row, np.ndarray) and not _is_opaque(row):
        _number_kind(
            row.dtype
        )  # raises for dates, for example, which tolist() would convert
    if isinstance(row, RaggedArray):
        return row.tolist()
    items: Sequence[Any] = row if isinstance(row, (list, tuple)) else row.tolist()
    return items


def dense(rows: Array) -> Any:
    """Return `rows` as a dense array; a RaggedArray must have rows of equal length."""
    if not isinstance(rows, RaggedArray):
        return rows
    lengths = set(rows.lengths.tolist())
    if len(lengths) > 1:
        raise ValueError(f"rows must have equal lengths, got {sorted(lengths)[:5]}")
    values = dense(rows.values)
    return reshaped(values, (len(rows), next(iter(lengths), 0), *values.shape[1:]))


def _number_kind(dtype: np.dtype[Any]) -> str:
    """Return the kind of the tf.train.Feature that stores numbers of `dtype`."""
    if dtype.kind in "biu":
        return "int64"
    if (dtype.kind == "f" and dtype.itemsize <= 8) or dtype.name == "bfloat16":
        return "float"
    hint = f'.astype("{"float32" if dtype.kind in "fc" else "int64"}")'
    if dtype.kind == "S":
        hint = ".tolist() (note that dtype S drops trailing NUL bytes)"
    raise TypeError(f"cannot write dtype {dtype}; convert it, for example with {hint}")


def number_values(values: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """Return the tf.train.Feature kind for `values`, and `values` converted to it."""
    if values.dtype.kind == "O":
        return "", np.zeros(0, np.int64)
    kind = _number_kind(values.dtype)
    if kind == "int64":
        if values.dtype.str[1:] == "u8" and (values > _INT64_MAX).any():
            raise ValueError(_NOT_INT64)
        return kind, np.ascontiguousarray(values, np.int64)
    with np.errstate(over="ignore"):
        return kind, np.ascontiguousarray(values, np.float32)
