"""Coercion: columns as callers have them -> columns as the core encodes them.

What a value becomes depends on its own type alone, as in TensorFlow's guide to
tf.train.Example: bool and integers become int64, floats float32, str and bytes byte
strings. A spec says the rest: how arrays of several dimensions lie in a record, and what
an empty list is. Nothing is guessed, and no float becomes an integer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fastrec.arrays.batch import Array, BytesArray, RaggedArray, SparseArray
from fastrec.features.base import Spec, kind_of, numpy_dtype
from fastrec.features.fixed import FixedLen, Raw, VarLen
from fastrec.features.padded import FixedLenSequence
from fastrec.features.stack import Stack
from fastrec.features.tensor import TensorProto, serialized_rows
from fastrec.writer.gathering import DENSE_SPECS, array_of, dense, one_row
from fastrec.writer.number_kinds import number_values

__all__ = ["CoercedColumn", "coerced", "coerced_row", "of_kind"]


@dataclass(frozen=True)
class CoercedColumn:
    """A feature of many rows: see ``ColumnValues`` in ``src/cpp/example/encode_batch.h``.

    Attributes
    ----------
    name : str or bytes
        What the caller calls it.
    key : bytes
    kind : {"int64", "float", "bytes", ""}
        "" where there are no values to tell.
    values : ndarray, contiguous
        int64 or float32, or the bytes of all strings.
    n_values : int
        Of each row, without `row_splits`.
    row_splits, offsets : ndarray of int64, or None
    string_bytes : int
        Of each string, without `offsets`.
    present : ndarray of bool, or None
        In which rows the feature is.
    """

    name: str | bytes
    key: bytes
    kind: str
    values: NDArray[Any]
    n_values: int = 1
    row_splits: NDArray[Any] | None = None
    string_bytes: int = 0
    offsets: NDArray[Any] | None = None
    present: NDArray[np.bool_] | None = None

    @property
    def is_there(self) -> bool:
        """Whether any row may have the feature."""
        return self.present is None or bool(self.present.any())

    @property
    def has_values(self) -> bool:
        """Whether there are values, which then are of its kind."""
        if self.offsets is not None:
            return len(self.offsets) > 1
        if self.row_splits is not None:
            return bool(self.row_splits[-1] > self.row_splits[0])
        return self.n_values > 0 and (self.values.size > 0 or self.kind == "bytes")


def coerced(
    columns: Mapping[Any, object], features: Mapping[Any, Spec]
) -> tuple[list[CoercedColumn], int]:
    """Return columns to encode, and how many rows they have.

    Parameters
    ----------
    columns : mapping of str or bytes to columns
    features : mapping of str or bytes to Spec
        Of those that need one; may have others.

    Raises
    ------
    ValueError, TypeError
        If a column cannot be written; the text names it, and the cure.
    """
    given: object = columns
    if not isinstance(given, Mapping):
        msg = f"columns are a mapping of names to arrays, not {type(columns).__name__}"
        raise TypeError(msg)
    found: list[CoercedColumn] = []
    lengths: dict[Any, int] = {}
    for name, column in columns.items():
        if not isinstance(name, (str, bytes)):
            msg = f"a feature's name is str or bytes, not {type(name).__name__}"
            raise TypeError(msg)
        spec = _spec_of(name, features)
        array, present = array_of(name, column, spec)
        lengths[name] = len(array)
        if present is not None and not present.all():
            _check_optional(name, spec, f" in row {int(present.argmin())}")
        found += _columns_of(name, array, present, spec)
    if len(set(lengths.values())) > 1:
        msg = f"columns must have one length, but have {lengths}"
        raise ValueError(msg)
    keys: set[bytes] = set()
    for written in found:
        if written.key in keys:
            _refuse_twice(written.key)
        keys.add(written.key)
    _check_complete(columns, keys, features)
    return found, next(iter(lengths.values()), 0)


def coerced_row(
    row: Mapping[Any, Any], features: Mapping[Any, Spec]
) -> dict[Any, object]:
    """Return a row whose features with a spec are such that they need none.

    Raises
    ------
    ValueError, TypeError
        If a value cannot be written; the text names it, and the cure.
    """
    given: object = row
    if not isinstance(given, Mapping):
        msg = f"a row is a mapping of feature names to values, not {type(row).__name__}"
        raise TypeError(msg)
    result: dict[Any, object] = {}
    keys: set[bytes] = set()
    for name, value in row.items():
        spec = _spec_of(name, features) if isinstance(name, (str, bytes)) else None
        if spec is None:
            result[name] = value
            if isinstance(name, (str, bytes)):
                keys.add(_key(name))
            continue
        if value is None:
            msg = f"feature {name!r} is None: leave it out of the row"
            raise TypeError(msg)
        array, present = array_of(name, one_row(value, spec), spec)
        if present is not None and not present.all():
            _check_optional(name, spec)
            continue
        for column in _columns_of(name, array, None, spec):
            if column.key in result:
                _refuse_twice(column.key)
            keys.add(column.key)
            if column.kind != "bytes":
                result[column.key] = column.values.reshape(-1)
            elif column.offsets is None:
                result[column.key] = column.values.tobytes()
            else:
                result[column.key] = BytesArray(column.values, column.offsets)
    _check_complete(row, keys, features)
    return result


def of_kind(column: CoercedColumn, kind: str) -> CoercedColumn:
    """Return the same column as other records have the feature: integers may be floats.

    Raises
    ------
    ValueError
        If its values are of another kind.
    """
    if column.kind == kind:
        return column
    if not (column.is_there and column.has_values):
        return replace(
            column,
            kind=kind,
            values=np.zeros(0, _DTYPES[kind]),
            n_values=0,
            row_splits=None,
            offsets=None,
        )
    if (column.kind, kind) == ("int64", "float"):
        return replace(column, kind=kind, values=column.values.astype(np.float32))
    msg = (
        f"feature {column.name!r} has {column.kind} values, but had {kind} before: a "
        "feature has one kind in all records of a file"
    )
    raise ValueError(msg)


_DTYPES: dict[str, Any] = {"int64": np.int64, "float": np.float32, "bytes": np.uint8}


def _spec_of(name: str | bytes, features: Mapping[Any, Spec]) -> Spec | None:
    """Return the spec of a feature, which may be called by str there, and by bytes here."""
    spec = features.get(name)
    if spec is None and features:
        try:
            other = name.decode() if isinstance(name, bytes) else name.encode()
        except UnicodeError:
            return None
        spec = features.get(other)
    return spec


def _check_complete(
    row: Mapping[Any, object], keys: set[bytes], features: Mapping[Any, Spec]
) -> None:
    """Refuse rows without a feature that could not be read without it."""
    for name, spec in features.items():
        if name not in row and not _required(name, spec) <= keys:
            _check_optional(name, spec)


def _required(name: str | bytes, spec: Spec) -> set[bytes]:
    """Return the features that every row must have, to be read by `spec`."""
    if not isinstance(spec, DENSE_SPECS):
        return set()
    return {column.key for column in spec._columns(name) if column.default is None}


def _check_optional(name: str | bytes, spec: Spec | None, where: str = "") -> None:
    """Refuse that a feature is not there, if it must be."""
    if spec is not None and _required(name, spec):
        msg = (
            f"feature {name!r} is not there{where}, and {spec!r} has no default for it"
        )
        raise ValueError(msg)


def _refuse_twice(key: bytes) -> NoReturn:
    text = key.decode(errors="backslashreplace")
    msg = f"two columns are written as the feature {text!r}"
    raise ValueError(msg)


def _columns_of(
    name: str | bytes,
    array: Array,
    present: NDArray[np.bool_] | None,
    spec: Spec | None,
) -> list[CoercedColumn]:
    if spec is None:
        _check_flat(name, array)
        return [_lists(name, _key(name), array, present)]
    if array.dtype.kind == "O" and isinstance(array, np.ndarray):
        is_there = len(array) if present is None else present.any()
        if is_there and math.prod(_row_shape(spec)) != 0:
            _refuse_shape(name, array, _row_shape(spec), spec)
        return _columns_without_values(name, array, present, spec)
    if isinstance(spec, Stack):
        width = (len(spec.keys),)
        if array.shape[1:] != width or not isinstance(array, (np.ndarray, BytesArray)):
            _refuse_shape(name, array, width, spec)
        values: Any = array
        return [
            _of_dtype(_lists(name, _key(key), values[:, i], present), spec.dtype, spec)
            for i, key in enumerate(spec.keys)
        ]
    key = spec._key_of(name)
    if isinstance(spec, Raw):
        return [_raw(name, key, array, present, spec)]
    if isinstance(spec, TensorProto):
        return [_tensors(name, key, array, present, spec)]
    if isinstance(spec, FixedLen):
        if isinstance(array, RaggedArray):
            array = dense(name, array)
        if array.shape[1:] != spec.shape:
            _refuse_shape(name, array, spec.shape, spec)
    elif isinstance(spec, (VarLen, FixedLenSequence)):
        inner = array.values if isinstance(array, RaggedArray) else array
        found = inner.shape[1:] if isinstance(array, RaggedArray) else inner.shape[2:]
        if (
            isinstance(inner, RaggedArray)
            or found != spec.shape
            or len(array.shape) < 2
        ):
            _refuse_shape(name, array, (None, *spec.shape), spec)
    else:
        _refuse_spec(name, spec)
    return [_of_dtype(_lists(name, key, array, present), spec.dtype, spec)]


def _row_shape(spec: Spec) -> tuple[int, ...]:
    """Return the shape of a row, which has no values where their number is free."""
    if isinstance(spec, Stack):
        return (len(spec.keys),)
    if isinstance(spec, TensorProto):
        return (1,)  # a tensor is a string, also one of no values
    return spec.shape if isinstance(spec, (FixedLen, Raw)) else (0,)


def _columns_without_values(
    name: str | bytes,
    array: NDArray[Any],
    present: NDArray[np.bool_] | None,
    spec: Spec,
) -> list[CoercedColumn]:
    if isinstance(spec, Raw):  # of no values, which are one string without bytes
        data = np.zeros(0, np.uint8)
        return [CoercedColumn(name, spec._key_of(name), "bytes", data, present=present)]
    if not isinstance(spec, (FixedLen, Stack, VarLen, FixedLenSequence)):
        _refuse_spec(name, spec)
    keys = spec.keys if isinstance(spec, Stack) else [spec._key_of(name)]
    return [
        _of_dtype(_lists(name, _key(key), array, present), spec.dtype, spec)
        for key in keys
    ]


def _refuse_spec(name: str | bytes, spec: Spec) -> NoReturn:
    msg = (
        f"feature {name!r}: {type(spec).__name__} is made of several features, which "
        "cannot be written by it; write them by themselves"
    )
    raise TypeError(msg)


def _key(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name


def _refuse_shape(
    name: str | bytes, array: Array, shape: tuple[int | None, ...], spec: Spec
) -> NoReturn:
    found = tuple(array.shape[1:])
    msg = f"feature {name!r} has rows of shape {found}, but {spec!r} says {shape}"
    raise ValueError(msg)


def _check_flat(name: str | bytes, array: Array) -> None:
    """Refuse rows that are no flat lists, which only a spec can tell how to write."""
    rows = array.shape[1:]
    n_dims = len(rows)
    if isinstance(array, RaggedArray):
        n_dims = 1 + len(array.values.shape[1:]) + isinstance(array.values, RaggedArray)
    if n_dims <= 1:
        return
    if isinstance(array, RaggedArray) and isinstance(array.values, RaggedArray):
        _refuse_lists_of_lists(name)
    if isinstance(array, np.ndarray):
        example = f"fr.Raw({rows}, {array.dtype.name!r})"
    elif isinstance(array, BytesArray):
        example = f'fr.FixedLen({rows}, "bytes")'
    else:
        example = f"fr.VarLen({array.dtype.name!r}, shape={array.values.shape[1:]})"
    msg = (
        f"feature {name!r} has rows of {n_dims} dimensions: write their bytes with "
        f".tobytes(), or say how they are written with features={{{name!r}: {example}}}"
    )
    raise ValueError(msg)


def _refuse_lists_of_lists(name: str | bytes) -> NoReturn:
    msg = (
        f"feature {name!r} has lists of lists, and a feature is a flat list: write the "
        "values as one feature and the lengths of their rows as another, which fr.Ragged "
        "reads as one"
    )
    raise ValueError(msg)


def _lists(
    name: str | bytes,
    key: bytes,
    array: Array,
    present: NDArray[np.bool_] | None,
) -> CoercedColumn:
    """Return each row as a list of the values in it, in row-major order."""
    row_splits = None
    n_values = math.prod(int(size or 0) for size in array.shape[1:])
    values: Any = array
    if isinstance(array, RaggedArray):
        values = array.values
        n_inner = math.prod(values.shape[1:])
        row_splits = array.row_splits.astype(np.int64, copy=False)
        if n_inner != 1:
            row_splits = row_splits * n_inner
        n_values = 0
    if isinstance(values, BytesArray):
        return CoercedColumn(
            *(name, key, "bytes", values.data, n_values, row_splits),
            offsets=values.offsets,
            present=present,
        )
    kind, numbers = number_values(name, values)
    return CoercedColumn(
        *(name, key, kind, numbers, n_values, row_splits), present=present
    )


def _of_dtype(column: CoercedColumn, dtype: str, spec: Spec) -> CoercedColumn:
    """Return a column of the kind that its spec reads, if it can be that."""
    kind = kind_of(dtype)
    if column.kind == "float" and kind == "int64" and column.values.size:
        msg = (
            f"feature {column.name!r} has floats, but {spec!r} reads integers: a float "
            'becomes none by itself, convert it with .astype("int64")'
        )
        raise ValueError(msg)
    if column.kind not in (kind, "") and column.values.size and kind != "float":
        msg = f"feature {column.name!r} has {column.kind} values, but {spec!r} reads {kind}"
        raise ValueError(msg)
    if kind == "bytes" and column.kind != "bytes":
        return replace(
            column,
            kind=kind,
            values=np.zeros(0, np.uint8),
            offsets=np.zeros(1, np.int64),
        )
    if column.kind == "bytes" and kind != "bytes":
        msg = f"feature {column.name!r} has bytes values, but {spec!r} reads {kind}"
        raise ValueError(msg)
    column = of_kind(column, kind)
    if kind == "int64" and column.values.size:
        target = numpy_dtype(dtype)
        bounds = (0, 1) if target.kind == "b" else None
        low, high = bounds or (np.iinfo(target).min, np.iinfo(target).max)
        found = column.values.min(), column.values.max()
        if found[0] < low or found[1] > high:
            wrong = found[0] if found[0] < low else found[1]
            msg = (
                f"feature {column.name!r} has {wrong}, which does not fit {target.name}"
            )
            raise ValueError(msg)
    return column


def _check_dtype(
    name: str | bytes,
    array: NDArray[Any],
    dtype: np.dtype[Any],
    spec: Raw | TensorProto,
) -> None:
    """Refuse an array whose memory would be another than the spec says."""
    if not np.can_cast(array.dtype, dtype, "equiv"):
        msg = (
            f"feature {name!r} has dtype {array.dtype}, but {spec!r} says {dtype}: "
            f"convert it with .astype({str(spec.dtype)!r})"
        )
        raise ValueError(msg)


def _tensors(
    name: str | bytes,
    key: bytes,
    array: Array,
    present: NDArray[np.bool_] | None,
    spec: TensorProto,
) -> CoercedColumn:
    """Return each row as a serialized tensor; where they may differ, they are that."""
    if spec.shape is None or spec.dtype is None:
        if isinstance(array, BytesArray) and array.ndim == 1:
            return _lists(name, key, array, present)
        msg = (
            f"feature {name!r}: {spec!r} says of no tensor what it is: write what "
            "fr.serialize_tensor(...) makes of each"
        )
        raise TypeError(msg)
    if isinstance(array, (RaggedArray, SparseArray)) or array.shape[1:] != spec.shape:
        _refuse_shape(name, array, spec.shape, spec)
    if isinstance(array, BytesArray):
        if spec.dtype != "bytes":
            msg = f"feature {name!r} has bytes values, but {spec!r} says {spec.dtype}"
            raise ValueError(msg)
        rows = [serialized_rows(array[i : i + 1]).tobytes() for i in range(len(array))]
        return _lists(name, key, BytesArray.from_list(rows), present)
    assert isinstance(array, np.ndarray)
    _check_dtype(name, array, numpy_dtype(spec.dtype), spec)
    tensors = serialized_rows(array)
    return CoercedColumn(
        *(name, key, "bytes", tensors.reshape(-1)),
        string_bytes=tensors.shape[1],
        present=present,
    )


def _raw(
    name: str | bytes,
    key: bytes,
    array: Array,
    present: NDArray[np.bool_] | None,
    spec: Raw,
) -> CoercedColumn:
    """Return each row as the bytes of an array."""
    dtype = numpy_dtype(spec.dtype)
    n_bytes = dtype.itemsize * math.prod(spec.shape)
    if isinstance(array, BytesArray) and array.ndim == 1:  # they are bytes already
        wrong = np.flatnonzero(array.lengths != n_bytes)
        if wrong.size:
            msg = (
                f"feature {name!r} has {array.lengths[wrong[0]]} bytes in row "
                f"{wrong[0]}, but {spec!r} says {n_bytes}"
            )
            raise ValueError(msg)
        return _lists(name, key, array, present)
    if not isinstance(array, np.ndarray) or array.shape[1:] != spec.shape:
        _refuse_shape(name, array, spec.shape, spec)
    assert isinstance(array, np.ndarray)
    _check_dtype(name, array, dtype, spec)
    native = np.ascontiguousarray(array, dtype)
    if spec._swap_bytes():
        native = native.byteswap()
    data = native.reshape(-1).view(np.uint8)
    return CoercedColumn(
        name, key, "bytes", data, string_bytes=n_bytes, present=present
    )
