"""Convert columns and rows, as callers have them, to columns as the core encodes them.

The type of a value decides what it becomes, as in TensorFlow's guide to tf.train.Example:
bool and integers become int64, floats float32, str and bytes byte strings. A spec adds how
arrays of several dimensions are stored, and the kind of an empty list. Nothing else is
converted, and a float never becomes an integer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastrec.arrays.batch import Array, BytesArray, RaggedArray
from fastrec.arrays.bytes import reshaped
from fastrec.arrays.layout import offsets_from
from fastrec.caller_warnings import warn_caller
from fastrec.features.base import Spec, kind_of, numpy_dtype
from fastrec.features.fixed import FixedLen, Raw, Stack, VarLen
from fastrec.features.padded import FixedLenSequence
from fastrec.features.tensor import TensorProto, serialized_rows

__all__ = ["ColumnValues", "columns_of", "of_kind", "row_of_lists"]

_Present: TypeAlias = NDArray[np.bool_] | None

# Specs whose rows all have one shape.
_DENSE = (FixedLen, Raw, Stack, TensorProto)
_WRITTEN = (*_DENSE, VarLen, FixedLenSequence)
_DTYPES: dict[str, Any] = {"int64": np.int64, "float": np.float32, "bytes": np.uint8}
_INT64_MAX = 2**63 - 1
_NOT_INT64 = (
    'an integer is outside of int64; write the bits of a uint64 with .view("int64")'
)


@dataclass(frozen=True)
class ColumnValues:
    """A feature of many rows: see ``ColumnValues`` in ``src/cpp/example/encode_batch.h``."""

    name: str | bytes  # the caller's name of the column
    key: bytes
    kind: str  # "int64", "float" or "bytes"; "" where no value shows it
    values: NDArray[Any]
    n_values: int = 1
    row_splits: NDArray[Any] | None = None
    string_bytes: int = 0
    offsets: NDArray[Any] | None = None
    present: _Present = None

    @property
    def is_present(self) -> bool:
        """Whether any row may have the feature."""
        return self.present is None or bool(self.present.any())

    @property
    def has_values(self) -> bool:
        """Whether any row has values, which show the kind."""
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
    """Return the columns to encode, and their number of rows."""
    _check_mapping("columns", columns)
    found: dict[bytes, ColumnValues] = {}
    lengths: dict[Any, int] = {}
    for name, column in columns.items():
        if not isinstance(name, (str, bytes)):
            msg = f"a feature's name must be str or bytes, not {type(name).__name__}"
            raise TypeError(msg)
        spec = _spec_of(name, features)
        try:
            array, present = _array_of(column, spec)
            if present is not None and not present.all():
                _check_optional(name, spec, f" in row {int(present.argmin())}")
            for values in _encodable(name, array, present, spec):
                _add(found, values.key, values)
        except (TypeError, ValueError) as error:
            raise _named(name, error) from error
        lengths[name] = len(array)
    if len(set(lengths.values())) > 1:
        msg = f"columns must have one length, got {lengths}"
        raise ValueError(msg)
    _check_complete(columns, found, features)
    return [*found.values()], next(iter(lengths.values()), 0)


def row_of_lists(
    row: Mapping[Any, Any], features: Mapping[Any, Spec]
) -> dict[Any, object]:
    """Return a row in which features with a spec are flat lists, which need none."""
    _check_mapping("a row", row)
    result: dict[Any, object] = {}
    for name, value in row.items():
        spec = _spec_of(name, features) if isinstance(name, (str, bytes)) else None
        if spec is None:
            _add(result, _key(name), value)
            continue
        try:
            if value is None:
                msg = "the value is None: leave it out of the row"
                raise TypeError(msg)
            is_text = isinstance(value, (str, bytes))  # NumPy's, perhaps
            is_array = isinstance(value, (np.ndarray, np.generic)) and not is_text
            array, present = _array_of(value[None] if is_array else [value], spec)
            if present is not None and not present.all():
                _check_optional(name, spec)
                continue
            for column in _encodable(name, array, None, spec):
                _add(result, column.key, _list_of(column))
        except (TypeError, ValueError) as error:
            raise _named(name, error) from error
    _check_complete(row, result, features)
    return result


def _list_of(column: ColumnValues) -> object:
    """Return a column of one row as a flat list, or as its one string."""
    if column.kind != "bytes":
        return column.values.reshape(-1)
    if column.offsets is None and column.n_values:
        return column.values.tobytes()
    offsets = np.zeros(1, np.int64) if column.offsets is None else column.offsets
    return BytesArray(column.values, offsets)


def of_kind(column: ColumnValues, kind: str) -> ColumnValues:
    """Return a column of the kind that a feature had before: integers may become floats."""
    if column.kind == kind:
        return column
    if not column.has_values:
        none = np.zeros(0, _DTYPES[kind])
        return ColumnValues(
            column.name, column.key, kind, none, 0, present=column.present
        )
    if (column.kind, kind) == ("int64", "float"):
        return replace(column, kind=kind, values=column.values.astype(np.float32))
    msg = (
        f"feature {column.name!r} has {column.kind} values, but had {kind} before: a "
        "feature has one kind in all records of a file"
    )
    raise ValueError(msg)


# Names and specs.


def _named(name: str | bytes, error: Exception) -> Exception:
    """Return an error whose message begins with the name of the feature."""
    if isinstance(error, UnicodeEncodeError):
        msg = (
            f"feature {name!r}: UTF-8 cannot express the text; encode it to bytes, for "
            'example with .encode(errors="surrogateescape")'
        )
        return ValueError(msg)
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"feature {name!r}: {error}")


def _check_mapping(what: str, given: object) -> None:
    if not isinstance(given, Mapping):
        found = type(given).__name__
        msg = f"{what} must be a mapping of names to values, not {found}"
        raise TypeError(msg)


def _key(name: Any) -> Any:  # noqa: ANN401 (the core refuses other names)
    return name.encode() if isinstance(name, str) else name


def _add(found: dict[Any, Any], key: Any, value: object) -> None:  # noqa: ANN401
    if key in found:
        text = key.decode(errors="backslashreplace")
        msg = f"two columns are written as the feature {text!r}"
        raise ValueError(msg)
    found[key] = value


def _spec_of(name: str | bytes, features: Mapping[Any, Spec]) -> Spec | None:
    """Return the spec of a feature, named by str or bytes in both places."""
    spec = features.get(name)
    if spec is None and features:
        other: Any = _key(name)
        if isinstance(name, bytes):
            other = name.decode(errors="surrogateescape")
        spec = features.get(other)
    return spec


def _required(name: str | bytes, spec: Spec | None) -> set[bytes]:
    """Return the features that every row must have to be read by `spec`."""
    if not isinstance(spec, _DENSE):
        return set()
    return {column.key for column in spec._columns(name) if column.default is None}


def _check_optional(name: str | bytes, spec: Spec | None, where: str = "") -> None:
    if _required(name, spec):
        msg = f"missing{where}, and {spec!r} has no default"
        raise ValueError(msg)


def _check_complete(
    row: Mapping[Any, object], keys: Mapping[Any, object], features: Mapping[Any, Spec]
) -> None:
    """Refuse rows that lack a feature without a default."""
    for name, spec in features.items():
        if name not in row and not _required(name, spec) <= keys.keys():
            msg = f"feature {name!r}: missing, and {spec!r} has no default"
            raise ValueError(msg)


# What callers have -> arrays of rows.


def _array_of(column: Any, spec: Spec | None) -> tuple[Array, _Present]:  # noqa: ANN401
    """Return a column as an array, and which of its rows are present, if not all."""
    is_array = isinstance(column, np.ndarray)
    if is_array and column.ndim == 0:
        msg = "a column must have one value for each record, got a single value"
        raise ValueError(msg)
    if isinstance(column, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(column)
        mask = mask.reshape(len(column), math.prod(column.shape[1:]))
        absent = mask.any(axis=1)
        if not mask[absent].all():
            msg = "some rows are masked only in part"
            raise ValueError(msg)
        data = column.data
        if absent.any():  # masked values may not be of a type that can be written
            blank = np.zeros((), data.dtype) if absent.all() else data[~absent][0]
            data = data.copy()
            data[absent] = blank
        return _array_of(data, spec)[0], np.logical_not(absent)
    if isinstance(column, (list, tuple)) or (is_array and _is_opaque(column, spec)):
        return _array_of_list(column.tolist() if is_array else column, spec)
    if is_array or isinstance(column, (BytesArray, RaggedArray)):
        return column, None
    if hasattr(column, "__array__"):  # tensors of other libraries, and series
        return _array_of(np.asarray(column), spec)
    found = type(column).__name__
    msg = f"a column must be an array, RaggedArray, BytesArray or list, got {found}"
    raise TypeError(msg)


def _is_opaque(array: NDArray[Any], spec: Spec | None = None) -> bool:
    """Return whether an array has objects or text, which are converted one by one."""
    kind = array.dtype.kind
    return kind == "O" or (kind in "UT" and not isinstance(spec, Raw))


def _array_of_list(values: Sequence[Any], spec: Spec | None) -> tuple[Array, _Present]:
    some = [value for value in values if value is not None]
    if len(some) == len(values) > 0:
        return _array_of_items(values, spec), None
    present = np.array([value is not None for value in values], np.bool_)
    if not some:
        return _rows_without_values(len(values)), present
    is_ragged = _kinds_of(some) == {"list"} and not isinstance(spec, _DENSE)
    blank = some[0][:0] if is_ragged else some[0]
    filled = [blank if value is None else value for value in values]
    return _array_of_items(filled, spec), present


def _rows_without_values(n_rows: int) -> Array:
    """Return empty rows, which do not show the kind of their values."""
    return RaggedArray._wrap(np.zeros(0, object), np.zeros(n_rows + 1, np.int64))


def _array_of_items(items: Sequence[Any], spec: Spec | None = None) -> Array:
    """Return scalars as an array, and lists as the RaggedArray of their items."""
    kinds = _kinds_of(items)
    if "" in kinds:
        wrong = next(type(item) for item in items if "" in _kinds_of([item]))
        msg = (
            f"cannot write a value of type {wrong.__name__}; write numbers, strings, "
            "lists of them or NumPy arrays"
        )
        raise TypeError(msg)
    if len(kinds) > 1:
        msg = f"cannot mix {' and '.join(sorted(kinds))}; make all values the same"
        raise ValueError(msg)
    if kinds == {"string"}:
        return BytesArray.from_list(items)
    if kinds == {"list"}:
        if all(isinstance(x, np.ndarray) and not _is_opaque(x, spec) for x in items):
            return _joined(items, spec)
        splits = offsets_from(np.array([*map(len, items)], np.int64))
        if all(isinstance(x, BytesArray) and x.ndim == 1 for x in items):
            return RaggedArray._wrap(BytesArray._concatenate(items), splits)
        flat = [value for item in items for value in _listed(item)]
        if not flat:
            return _rows_without_values(len(items))
        return RaggedArray._wrap(_array_of_items(flat), splits)  # type: ignore[arg-type]
    array = np.array(items)
    if kinds == {"int"} and array.dtype.kind not in "biu":
        # NumPy makes floats of signed and unsigned integers, objects of large ones.
        try:
            return np.array([*map(int, items)], np.int64)
        except OverflowError:
            raise ValueError(_NOT_INT64) from None
    return array


def _kinds_of(items: Sequence[Any]) -> set[str]:
    """Return which of "string", "list", "int" and "float" occur, or "" for all else."""
    kinds = set()
    for kind in set(map(type, items)):
        if issubclass(kind, np.ndarray):
            found = {(x.ndim > 0, x.dtype.kind) for x in items if type(x) is kind}
            of = {"b": "int", "i": "int", "u": "int", "f": "float"}
            kinds |= {"list" if is_list else of.get(k, "") for is_list, k in found}
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


def _joined(arrays: Sequence[Any], spec: Spec | None) -> Array:
    """Return arrays, one for each row, as one array: dense where a spec says so."""
    is_dense = isinstance(spec, _DENSE)
    full = arrays if is_dense else [a for a in arrays if a.size] or arrays[:1]
    dtypes = {array.dtype for array in full}
    kinds = set() if isinstance(spec, Raw) else {_number_kind(d) for d in dtypes}
    if len(kinds) > 1:
        msg = "cannot mix float and int; make all values the same"
        raise ValueError(msg)
    if len(dtypes) > 1 and kinds == {"int64"}:
        # NumPy makes floats of signed and unsigned integers.
        full = [_number_values(array)[1] for array in full]
    if is_dense:
        return np.stack(full)
    lengths = [len(array) if array.size else 0 for array in arrays]
    values = np.concatenate(full)[: sum(lengths)]
    return RaggedArray._wrap(values, offsets_from(np.array(lengths, np.int64)))


def _listed(row: Any) -> Sequence[Any]:  # noqa: ANN401
    if isinstance(row, np.ndarray) and not _is_opaque(row):
        _number_kind(row.dtype)  # a date, for example, must not become an int
    if isinstance(row, RaggedArray):
        return row.to_list()
    found: Sequence[Any] = row if isinstance(row, (list, tuple)) else row.tolist()
    return found


def _dense(rows: Array) -> Any:  # noqa: ANN401 (an ndarray or BytesArray)
    """Return rows of one length, which may contain such rows, as a dense array."""
    if not isinstance(rows, RaggedArray):
        return rows
    lengths = set(rows.lengths.tolist())
    if len(lengths) > 1:
        msg = f"rows must have one length, got rows of {sorted(lengths)[:5]} values"
        raise ValueError(msg)
    values = _dense(rows.values)
    return reshaped(values, (len(rows), next(iter(lengths), 0), *values.shape[1:]))


def _number_kind(dtype: np.dtype[Any]) -> str:
    """Return the kind that numbers of a dtype have in a record."""
    if dtype.kind in "biu":
        return "int64"
    if (dtype.kind == "f" and dtype.itemsize <= 8) or dtype.name == "bfloat16":
        return "float"
    hint = f'.astype("{"float32" if dtype.kind in "fc" else "int64"}")'
    if dtype.kind == "S":
        hint = ".tolist() (dtype S has lost trailing NUL bytes)"
    msg = f"cannot write dtype {dtype}; convert it, for example with {hint}"
    raise TypeError(msg)


def _number_values(values: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """Return the kind that numbers have in a record, and the numbers in that kind."""
    if values.dtype.kind == "O":
        return "", np.zeros(0, np.int64)
    kind = _number_kind(values.dtype)
    if kind == "int64":
        if (
            values.dtype.kind == "u"
            and values.itemsize == 8
            and (values > _INT64_MAX).any()
        ):
            raise ValueError(_NOT_INT64)
        return kind, np.ascontiguousarray(values, np.int64)
    with np.errstate(over="ignore"):
        return kind, np.ascontiguousarray(values, np.float32)


# Arrays of rows -> columns of the core.


def _encodable(
    name: str | bytes, array: Array, present: _Present, spec: Spec | None
) -> list[ColumnValues]:
    """Return a column as the features that its spec reads."""
    if spec is None:
        _check_flat(array)
        return [_lists(name, _key(name), array, present)]
    if not isinstance(spec, _WRITTEN):
        msg = f"cannot write {spec!r}; write its several features as columns"
        raise TypeError(msg)
    keys = [*map(_key, spec.keys)] if isinstance(spec, Stack) else [spec._key_of(name)]
    is_memory = isinstance(spec, (Raw, TensorProto))
    shape = (len(keys),) if isinstance(spec, Stack) else spec.shape
    values = array._flat_values if isinstance(array, RaggedArray) else array
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":  # no values at all
        has_rows = len(array) if present is None else present.any()
        must_have = isinstance(spec, (FixedLen, Raw, Stack)) and 0 not in (shape or ())
        if has_rows and (must_have or isinstance(spec, TensorProto)):
            _refuse_shape((0,), spec)
        kind = "bytes" if is_memory else kind_of(str(spec.dtype))
        empty = (kind, np.zeros(0, _DTYPES[kind]), int(is_memory))
        return [ColumnValues(name, key, *empty, present=present) for key in keys]
    if isinstance(spec, (Raw, TensorProto)):
        return [_memory(name, keys[0], array, present, spec)]
    if isinstance(spec, (FixedLen, Stack)):
        array = _dense(array)
        is_right = array.shape[1:] == shape
    else:
        if isinstance(array, RaggedArray):
            array = RaggedArray._wrap(_dense(array.values), array.row_splits)
        is_right = len(array.shape) > 1 and array.shape[2:] == shape
    if not is_right:
        _refuse_shape(array.shape[1:], spec)
    parts: Any = [array]
    if isinstance(spec, Stack):
        parts = [parts[0][:, i] for i in range(len(keys))]
    lists = (
        _lists(name, key, part, present) for key, part in zip(keys, parts, strict=True)
    )
    return [_as_read(column, spec) for column in lists]


def _refuse_shape(shape: tuple[int | None, ...], spec: Spec) -> NoReturn:
    msg = f"rows of shape {shape} do not fit {spec!r}"
    raise ValueError(msg)


def _check_flat(array: Array) -> None:
    """Refuse rows that are not flat lists: only a spec tells how they are stored."""
    rows = array.shape[1:]
    if len(rows) <= 1:
        return
    example = "fr.FixedLen(...) or fr.VarLen(..., shape=...)"
    if isinstance(array, np.ndarray):
        example = f"fr.Raw({rows}, {array.dtype.name!r})"
    msg = (
        f"rows of {len(rows)} dimensions need a spec in features=, such as {example}; or "
        "write their bytes with .tobytes()"
    )
    if isinstance(array, RaggedArray) and isinstance(array.values, RaggedArray):
        msg = (
            "cannot write lists of lists; write the values as one feature and the "
            "lengths of their rows as another, which fr.Ragged reads as one"
        )
    raise ValueError(msg)


def _lists(
    name: str | bytes, key: bytes, array: Array, present: _Present
) -> ColumnValues:
    """Return each row as the list of its values, in row-major order."""
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
    kind, numbers = _number_values(values)
    is_double = kind == "float" and values.itemsize == 8
    if is_double and (np.isinf(numbers) & np.isfinite(values)).any():
        text = f"feature {name!r} has a float outside of float32, written as inf"
        warn_caller(text, RuntimeWarning)
    return ColumnValues(name, key, kind, numbers, n_values, row_splits, present=present)


def _as_read(column: ColumnValues, spec: Spec) -> ColumnValues:
    """Return a column of the kind and in the range that its spec reads."""
    dtype = spec.dtype  # type: ignore[attr-defined]
    kind = kind_of(dtype)
    if column.has_values and column.kind not in (
        kind,
        "int64" if kind == "float" else "",
    ):
        msg = f"{column.kind} values, but {spec!r} reads {kind}"
        if (column.kind, kind) == ("float", "int64"):
            msg += '; convert them with .astype("int64")'
        raise ValueError(msg)
    column = of_kind(column, kind)
    if kind == "int64" and column.values.size:
        target = numpy_dtype(dtype)
        bounds = (False, True) if target.kind == "b" else _bounds(target)
        for found in (column.values.min(), column.values.max()):
            if not bounds[0] <= found <= bounds[1]:
                msg = f"{found} does not fit {target.name}"
                raise ValueError(msg)
    return column


def _bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _memory(
    name: str | bytes,
    key: bytes,
    array: Array,
    present: _Present,
    spec: Raw | TensorProto,
) -> ColumnValues:
    """Return each row as the bytes of an array, or as a serialized tensor."""
    if isinstance(array, BytesArray) and array.ndim == 1:  # as they are stored
        if isinstance(spec, Raw):
            size = numpy_dtype(spec.dtype).itemsize * math.prod(spec.shape)
            wrong = np.flatnonzero(array.lengths != size)
            if wrong.size:
                found = f"{array.lengths[wrong[0]]} bytes in row {wrong[0]}"
                msg = f"{found} do not fit {spec!r}, which needs {size}"
                raise ValueError(msg)
        if isinstance(spec, Raw) or spec.shape is None:
            return _lists(name, key, array, present)
    if spec.shape is None or spec.dtype is None:
        msg = f"{spec!r} has no shape and dtype; write strings of fr.serialize_tensor"
        raise TypeError(msg)
    dense = _dense(array)
    if dense.shape[1:] != spec.shape:
        _refuse_shape(dense.shape[1:], spec)
    if isinstance(dense, BytesArray) and spec.dtype == "bytes":
        rows = [serialized_rows(dense[i : i + 1]).tobytes() for i in range(len(dense))]
        return _lists(name, key, BytesArray.from_list(rows), present)
    dtype = numpy_dtype(spec.dtype)
    if not np.can_cast(dense.dtype, dtype, "equiv"):
        found = "bytes" if isinstance(dense, BytesArray) else dense.dtype
        msg = (
            f"{found} values do not fit {spec!r}; convert them, for example with "
            f".astype({str(spec.dtype)!r})"
        )
        raise ValueError(msg)
    if isinstance(spec, TensorProto):
        data = serialized_rows(dense)
    else:
        native = np.ascontiguousarray(dense, dtype)
        native = native.byteswap() if spec._swap_bytes() else native
        data = native.reshape(-1).view(np.uint8)
    size = data.size // max(1, len(dense))
    data = data.reshape(-1)
    return ColumnValues(name, key, "bytes", data, string_bytes=size, present=present)
