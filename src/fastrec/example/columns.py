"""Convert columns and rows, as callers have them, to columns as the core encodes them.

The type of a value decides what it becomes, as in TensorFlow's guide to tf.train.Example:
bool and integers become int64, floats float32, str and bytes byte strings. A spec adds how
arrays of several dimensions are stored, and the kind of an empty list. Nothing else is
converted, and a float never becomes an integer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fastrec import _core
from fastrec.arrays.batch import Array, BytesArray, RaggedArray
from fastrec.caller_warnings import warn_caller
from fastrec.example.gather import DENSE, Present, array_of, dense, number_values
from fastrec.features.base import Spec, kind_of, numpy_dtype
from fastrec.features.fixed import FixedLen, Raw, Stack, VarLen
from fastrec.features.padded import FixedLenSequence
from fastrec.features.tensor import SerializedTensor, serialized_rows

__all__ = ["ColumnValues", "columns_of", "ordered", "row_of_lists"]

_WRITTEN = (*DENSE, VarLen, FixedLenSequence)
_DTYPES: dict[str, Any] = {"int64": np.int64, "float": np.float32, "bytes": np.uint8}


@dataclass(frozen=True)
class ColumnValues:
    """A feature of many rows: see ``ColumnValues`` in ``src/cpp/encode/encode_batch.h``."""

    name: str | bytes  # the caller's name of the column
    key: bytes
    kind: str  # "int64", "float" or "bytes"; "" where no value shows it
    values: NDArray[Any]
    n_values: int = 1
    row_splits: NDArray[Any] | None = None
    string_bytes: int = 0
    offsets: NDArray[Any] | None = None
    present: Present = None
    is_range_checked: bool = False  # whether other values of the dtype may be refused

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
            raise TypeError(
                f"a feature's name must be str or bytes, not {type(name).__name__}"
            )
        spec = _spec_of(name, features)
        try:
            array, present = array_of(column, spec)
            if present is not None and not present.all():
                _check_optional(name, spec, f" in row {int(present.argmin())}")
            for values in _encodable(name, array, present, spec):
                _add(found, values.key, values)
        except (TypeError, ValueError) as error:
            raise _named(name, error) from error
        lengths[name] = len(array)
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must have one length, got {lengths}")
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
            array, present = array_of(value[None] if is_array else [value], spec)
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


def ordered(
    columns: list[ColumnValues], order: _core.FeatureOrder
) -> list[ColumnValues]:
    """Return columns in the order and of the kinds of the records before."""
    placed: list[tuple[int, ColumnValues]] = []
    for column in columns:
        position, kind = order.place(column.key, "")
        if kind:
            column = of_kind(column, kind)
        if column.kind:
            placed.append((position, column))
        elif column.is_present:
            raise ValueError(
                f"feature {column.name!r} has empty lists only, whose kind is unknown: "
                "choose it with features="
            )
    # Kinds are noted only now: what is refused must not change the order.
    result = []
    for _, column in sorted(placed, key=lambda item: item[0]):
        if column.has_values:
            _, kind = order.place(column.key, column.kind)
            column = of_kind(column, kind)
        result.append(column)
    return result


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
    raise ValueError(
        f"feature {column.name!r} has {column.kind} values, but had {kind} before: a "
        "feature has one kind in all records of a file"
    )


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
        raise TypeError(f"{what} must be a mapping of names to values, not {found}")


def _key(name: Any) -> Any:  # noqa: ANN401 (the core refuses other names)
    return name.encode() if isinstance(name, str) else name


def _add(found: dict[Any, Any], key: Any, value: object) -> None:  # noqa: ANN401
    if key in found:
        text = key.decode(errors="backslashreplace")
        raise ValueError(f"two columns are written as the feature {text!r}")
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
    if not isinstance(spec, DENSE):
        return set()
    return {column.key for column in spec._columns(name) if column.default is None}


def _check_optional(name: str | bytes, spec: Spec | None, where: str = "") -> None:
    if _required(name, spec):
        raise ValueError(f"missing{where}, and {spec!r} has no default")


def _check_complete(
    row: Mapping[Any, object], keys: Mapping[Any, object], features: Mapping[Any, Spec]
) -> None:
    """Refuse rows that lack a feature without a default."""
    for name, spec in features.items():
        if name not in row and not _required(name, spec) <= keys.keys():
            raise ValueError(f"feature {name!r}: missing, and {spec!r} has no default")


# Arrays of rows -> columns of the core.


def _encodable(
    name: str | bytes, array: Array, present: Present, spec: Spec | None
) -> list[ColumnValues]:
    """Return a column as the features that its spec reads."""
    if spec is None:
        _check_flat(array)
        return [_lists(name, _key(name), array, present)]
    if not isinstance(spec, _WRITTEN):
        raise TypeError(f"cannot write {spec!r}; write its several features as columns")
    keys = [*map(_key, spec.keys)] if isinstance(spec, Stack) else [spec._key_of(name)]
    is_memory = isinstance(spec, (Raw, SerializedTensor))
    shape = (len(keys),) if isinstance(spec, Stack) else spec.shape
    values = array._flat_values if isinstance(array, RaggedArray) else array
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":  # no values at all
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
    lists = (
        _lists(name, key, part, present) for key, part in zip(keys, parts, strict=True)
    )
    return [_as_read(column, spec) for column in lists]


def _refuse_shape(shape: tuple[int | None, ...], spec: Spec) -> NoReturn:
    raise ValueError(f"rows of shape {shape} do not fit {spec!r}")


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
    name: str | bytes, key: bytes, array: Array, present: Present
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
    kind, numbers = number_values(values)
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
    target = numpy_dtype(dtype) if kind == "int64" else None
    if target is not None and target != np.int64 and column.values.size:
        bounds = (False, True) if target.kind == "b" else _bounds(target)
        for found in (column.values.min(), column.values.max()):
            if not bounds[0] <= found <= bounds[1]:
                raise ValueError(f"{found} does not fit {target.name}")
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
    """Return each row as the bytes of an array, or as a serialized tensor."""
    if isinstance(array, BytesArray) and array.ndim == 1:  # as they are stored
        if isinstance(spec, Raw):
            size = numpy_dtype(spec.dtype).itemsize * math.prod(spec.shape)
            wrong = np.flatnonzero(array.lengths != size)
            if wrong.size:
                found = f"{array.lengths[wrong[0]]} bytes in row {wrong[0]}"
                raise ValueError(f"{found} do not fit {spec!r}, which needs {size}")
        if isinstance(spec, Raw) or spec.shape is None:
            return _lists(name, key, array, present)
    if spec.shape is None or spec.dtype is None:
        raise TypeError(
            f"{spec!r} has no shape and dtype; write strings of fr.serialize_tensor"
        )
    whole = dense(array)
    if whole.shape[1:] != spec.shape:
        _refuse_shape(whole.shape[1:], spec)
    if isinstance(whole, BytesArray) and spec.dtype == "bytes":
        rows = [serialized_rows(whole[i : i + 1]).tobytes() for i in range(len(whole))]
        return _lists(name, key, BytesArray.from_list(rows), present)
    dtype = numpy_dtype(spec.dtype)
    if not np.can_cast(whole.dtype, dtype, "equiv"):
        found = "bytes" if isinstance(whole, BytesArray) else whole.dtype
        raise ValueError(
            f"{found} values do not fit {spec!r}; convert them, for example with "
            f".astype({str(spec.dtype)!r})"
        )
    if isinstance(spec, SerializedTensor):
        data = serialized_rows(whole)
    else:
        native = np.ascontiguousarray(whole, dtype)
        native = native.byteswap() if spec._swap_bytes() else native
        data = native.reshape(-1).view(np.uint8)
    size = data.size // max(1, len(whole))
    data = data.reshape(-1)
    return ColumnValues(name, key, "bytes", data, string_bytes=size, present=present)
