"""Coercion: columns as callers have them -> columns as the core encodes them.

What a value becomes depends on its own type alone, as in TensorFlow's guide to
tf.train.Example: bool and integers become int64, floats float32, str and bytes byte
strings. A spec says the rest: how arrays of several dimensions lie in a record, and what
an empty list is. Nothing is guessed, and no float becomes an integer.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrec.arrays import Array, BytesArray, RaggedArray
from fastrec.features import FixedLen, Raw, VarLen
from fastrec.offsets import offsets_from
from fastrec.padding import FixedLenSequence
from fastrec.spec import Spec, kind_of, numpy_dtype
from fastrec.stack import Stack

__all__ = ["CoercedColumn", "coerced", "coerced_row", "of_kind"]

_INT64_MAX = 2**63 - 1


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
    if not isinstance(columns, Mapping):
        msg = f"columns are a mapping of names to arrays, not {type(columns).__name__}"
        raise TypeError(msg)
    found: list[CoercedColumn] = []
    lengths: dict[Any, int] = {}
    for name, column in columns.items():
        if not isinstance(name, (str, bytes)):
            msg = f"a feature's name is str or bytes, not {type(name).__name__}"
            raise TypeError(msg)
        array, present = _array_of(name, column, features.get(name))
        lengths[name] = len(array)
        found += _columns_of(name, array, present, features.get(name))
    if len(set(lengths.values())) > 1:
        msg = f"columns must have one length, but have {lengths}"
        raise ValueError(msg)
    keys = [column.key for column in found]
    for key in keys:
        if keys.count(key) > 1:
            msg = f"two columns are written as the feature {key.decode()!r}"
            raise ValueError(msg)
    n_rows = next(iter(lengths.values()), 0)
    _check_complete(columns, features)
    return found, n_rows


def coerced_row(
    row: Mapping[Any, Any], features: Mapping[Any, Spec]
) -> dict[Any, object]:
    """Return a row whose features with a spec are such that they need none.

    Raises
    ------
    ValueError, TypeError
        If a value cannot be written; the text names it, and the cure.
    """
    result: dict[Any, object] = {}
    for name, value in row.items():
        spec = features.get(name)
        if spec is None:
            result[name] = value
            continue
        array, _ = _array_of(name, _one_row(value, spec), spec)
        for column in _columns_of(name, array, None, spec):
            if column.kind != "bytes":
                result[column.key] = column.values
            elif column.offsets is None:
                result[column.key] = column.values.tobytes()
            else:
                result[column.key] = BytesArray(column.values, column.offsets)
    _check_complete(row, features)
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
    if column.values.size == 0 and column.kind in ("", "int64", "float"):
        return replace(column, kind=kind, values=column.values.astype(_DTYPES[kind]))
    if (column.kind, kind) == ("int64", "float"):
        return replace(column, kind=kind, values=column.values.astype(np.float32))
    msg = (
        f"feature {column.name!r} has {column.kind} values, but had {kind} before: a "
        "feature has one kind in all records of a file"
    )
    raise ValueError(msg)


_DTYPES: dict[str, Any] = {"int64": np.int64, "float": np.float32, "bytes": np.uint8}


def _check_complete(row: Mapping[Any, object], features: Mapping[Any, Spec]) -> None:
    """Refuse rows without a feature that could not be read without it."""
    for name, spec in features.items():
        needs = isinstance(spec, (FixedLen, Raw)) and spec.default is None
        if needs and name not in row:
            msg = f"feature {name!r} is not there, and {spec!r} has no default for it"
            raise ValueError(msg)


# What a caller gives -> an array of rows.


def _array_of(
    name: str | bytes, column: object, spec: Spec | None
) -> tuple[Array, NDArray[np.bool_] | None]:
    """Return a column as an array, and which of its rows are there, if not all."""
    present = None
    if isinstance(column, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(column).reshape(len(column), -1)
        present = ~masked.all(axis=1)
        if (masked.any(axis=1) & present).any():
            msg = f"feature {name!r} has rows of which only a part is masked"
            raise ValueError(msg)
        column = column.data
    if isinstance(column, (BytesArray, RaggedArray)):
        return column, present
    if isinstance(column, np.ndarray):
        if column.ndim == 0:
            msg = f"column {name!r} is a single value: a column has one for each record"
            raise ValueError(msg)
        if column.dtype.kind in "UO":
            return _array_of(name, column.tolist(), spec)
        return column, present
    if isinstance(column, (list, tuple)):
        return _array_of_list(name, column, spec)
    if hasattr(column, "__array__"):  # tensors of other libraries, and series
        return _array_of(name, np.asarray(column), spec)
    msg = (
        f"column {name!r}: {type(column).__name__} is no column; arrays, RaggedArrays, "
        "BytesArrays and lists are"
    )
    raise TypeError(msg)


def _array_of_list(
    name: str | bytes, values: Sequence[Any], spec: Spec | None
) -> tuple[Array, NDArray[np.bool_] | None]:
    there = [value for value in values if value is not None]
    present = None
    if len(there) < len(values):
        present = np.array([value is not None for value in values], np.bool_)
    if not there:
        return np.zeros((len(values), 0), object), present
    is_string = [isinstance(v, (str, bytes, bytearray, memoryview)) for v in there]
    is_list = [_is_list(value) for value in there]
    if all(is_string):
        blank: Any = b""
    elif all(is_list):
        # Of the type of the others, and of their shape where that is always the same.
        blank = there[0] if isinstance(spec, (FixedLen, Raw, Stack)) else there[0][:0]
    elif any(is_string) or any(is_list):
        msg = f"feature {name!r} mixes strings, lists and numbers in one column"
        raise ValueError(msg)
    else:
        blank = there[0]
    filled = [blank if value is None else value for value in values]
    if all(is_string):
        return BytesArray.from_list(filled), present
    if all(is_list):
        return _array_of_rows(name, filled, spec), present
    return _numbers(name, filled), present


def _is_list(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, (list, tuple, BytesArray, RaggedArray))


def _array_of_rows(name: str | bytes, rows: Sequence[Any], spec: Spec | None) -> Array:
    """Return a column of lists or arrays: dense where a spec says so."""
    is_dense = isinstance(spec, (FixedLen, Raw, Stack))
    if is_dense and all(isinstance(row, np.ndarray) for row in rows):
        shapes = {row.shape for row in rows if row.size}
        if len(shapes) > 1:
            msg = f"feature {name!r} has arrays of shapes {sorted(shapes)}"
            raise ValueError(msg)
        return np.stack(list(rows))
    nested = _joined_rows(rows)
    if nested is None:
        try:
            nested = _nested_rows(name, rows)
        except (TypeError, ValueError) as error:
            msg = f"feature {name!r}: {error}"
            raise type(error)(msg) from None
    return _dense(name, nested) if is_dense else nested


def _nested_rows(name: str | bytes, rows: Sequence[Any]) -> RaggedArray:
    """Return lists of values, which may be nested."""
    leaves = [leaf for row in rows for leaf in _leaves(row)]
    if not leaves:  # and so no kind: the spec tells it, or the records before
        offsets = np.zeros(len(rows) + 1, np.int64)
        return RaggedArray._wrap(np.zeros(0, object), offsets)
    if any(isinstance(leaf, str) for leaf in leaves) or all(
        isinstance(leaf, (bytes, bytearray, memoryview)) for leaf in leaves
    ):
        return RaggedArray.from_list(
            [[_as_bytes(leaf) for leaf in _leaves(row)] for row in rows], "bytes"
        )
    _numbers(name, leaves)  # which refuses what would be converted silently
    return RaggedArray.from_list(rows)


def _joined_rows(rows: Sequence[Any]) -> RaggedArray | None:
    """Return rows that are arrays of one type side by side; None if they are not."""
    if all(isinstance(row, BytesArray) and row.ndim == 1 for row in rows):
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return RaggedArray(BytesArray._concatenate(rows), offsets_from(lengths))
    if not all(isinstance(row, np.ndarray) and row.ndim == 1 for row in rows):
        return None
    dtypes = {row.dtype for row in rows}
    if len(dtypes) > 1 or dtypes.pop().kind not in "biuf":
        return None
    return RaggedArray.from_list(rows)


def _leaves(row: Any) -> list[Any]:  # noqa: ANN401
    """Return the values of a list that may have lists in it."""
    if isinstance(row, (np.ndarray, BytesArray)):
        row = row.tolist()
    if not isinstance(row, (list, tuple)):
        return [row]
    return [leaf for item in row for leaf in _leaves(item)]


def _as_bytes(value: Any) -> bytes:  # noqa: ANN401
    return value.encode() if isinstance(value, str) else bytes(value)


def _dense(name: str | bytes, rows: RaggedArray) -> Array:
    lengths = set(rows.lengths.tolist())
    if len(lengths) > 1:
        msg = f"feature {name!r} has rows of {sorted(lengths)[:5]} values"
        raise ValueError(msg)
    inner = _dense(name, rows.values) if isinstance(rows.values, RaggedArray) else None
    values: Any = rows.values if inner is None else inner
    shape = (len(rows), next(iter(lengths), 0), *values.shape[1:])
    if isinstance(values, BytesArray):
        return BytesArray(values.data, values.offsets, shape)
    dense: Array = values.reshape(shape)
    return dense


def _numbers(name: str | bytes, values: Sequence[Any]) -> NDArray[Any]:
    """Return numbers as an array, if they are all integers or all floats."""
    kinds = {_kind_of_number(kind, values) for kind in set(map(type, values))}
    if "" in kinds:
        found = next(v for v in values if not _kind_of_number(type(v), [v]))
        msg = (
            f"feature {name!r}: a value of type {type(found).__name__} cannot be written; "
            "numbers, strings, lists of them and NumPy arrays can"
        )
        raise TypeError(msg)
    if len(kinds) > 1:
        msg = f"feature {name!r} mixes int and float: make all values the same"
        raise ValueError(msg)
    array = np.array(values)
    if kinds == {"int"} and array.dtype.kind not in "biu":
        msg = (
            f"feature {name!r} has an integer outside of int64; of an unsigned one, the "
            'bits can be written with np.uint64(value).view("int64")'
        )
        raise ValueError(msg)
    return array


def _kind_of_number(kind: type, values: Sequence[Any]) -> str:
    """Return "int", "float" or "" for what values of one type are."""
    if issubclass(kind, (int, np.integer, np.bool_)):
        return "int"
    if issubclass(kind, (float, np.floating)):
        return "float"
    if issubclass(kind, np.ndarray):  # of no dimensions
        kinds = {value.dtype.kind for value in values if type(value) is kind}
        return "int" if kinds <= set("biu") else "float" if kinds == {"f"} else ""
    return ""


def _one_row(value: Any, spec: Spec) -> Any:  # noqa: ANN401
    """Return a column of one row."""
    if isinstance(value, np.ndarray):
        return value[None]
    if isinstance(value, BytesArray):
        return BytesArray(value.data, value.offsets, (1, *value.shape))
    if isinstance(value, (list, tuple)) and isinstance(spec, (FixedLen, Raw, Stack)):
        kind = np.asarray(value).dtype.kind if spec.dtype != "bytes" else "O"
        if kind in "biuf":
            return np.asarray(value)[None]
    return [value]


# An array of rows -> what is encoded.


def _columns_of(
    name: str | bytes,
    array: Array,
    present: NDArray[np.bool_] | None,
    spec: Spec | None,
) -> list[CoercedColumn]:
    if spec is None:
        _check_flat(name, array)
        return [_lists(name, _key(name), array, present)]
    if isinstance(spec, Stack):
        if array.shape[1:] != (len(spec.keys),) or isinstance(array, RaggedArray):
            _refuse_shape(name, array, (len(spec.keys),), spec)
        return [
            _of_dtype(
                _lists(name, _key(key), array[:, i], present),  # type: ignore[call-overload]
                spec.dtype,
                spec,
            )
            for i, key in enumerate(spec.keys)
        ]
    key = spec._key_of(name)
    if isinstance(spec, Raw):
        return [_raw(name, key, array, present, spec)]
    if isinstance(spec, FixedLen):
        if isinstance(array, RaggedArray):
            array = _dense(name, array)
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
        msg = (
            f"feature {name!r}: {type(spec).__name__} is made of several features, or "
            "of tensors, which cannot be written by it; write them by themselves"
        )
        raise TypeError(msg)
    return [_of_dtype(_lists(name, key, array, present), spec.dtype, spec)]


def _key(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name


def _refuse_shape(
    name: str | bytes, array: Array, shape: tuple[int | None, ...], spec: Spec
) -> None:
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
    kind, numbers = _number_values(name, values)
    return CoercedColumn(
        *(name, key, kind, numbers, n_values, row_splits), present=present
    )


def _number_values(name: str | bytes, values: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """Return the kind that numbers have in a record, and them as the core takes them."""
    dtype = values.dtype
    if values.size == 0 and dtype.kind == "O":
        return "", np.zeros(0, np.int64)
    if dtype.kind in "biu":
        if dtype.kind == "u" and dtype.itemsize == 8 and (values > _INT64_MAX).any():
            msg = (
                f"feature {name!r} has a uint64 of 2**63 or more, which int64 cannot "
                'hold: write its bits with .view("int64")'
            )
            raise ValueError(msg)
        return "int64", np.ascontiguousarray(values, np.int64)
    if (dtype.kind == "f" and dtype.itemsize <= 8) or dtype.name == "bfloat16":
        with np.errstate(over="ignore"):
            floats = np.ascontiguousarray(values, np.float32)
        if dtype.itemsize == 8 and (np.isinf(floats) & np.isfinite(values)).any():
            text = f"feature {name!r} has a float outside of float32, written as inf"
            warnings.warn(text, RuntimeWarning, stacklevel=_stacklevel())
        return "float", floats
    cure = "strings with .tolist()" if dtype.kind == "S" else '.astype("int64")'
    msg = (
        f"feature {name!r}: dtype {dtype} cannot be written; convert it, for example "
        f"{cure}"
    )
    raise TypeError(msg)


def _stacklevel() -> int:
    """How far up the caller of the library is, for warnings."""
    import sys

    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__package__") == "fastrec":
        frame = frame.f_back
        level += 1
    return level


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
    if not np.can_cast(array.dtype, dtype, "equiv"):
        msg = (
            f"feature {name!r} has dtype {array.dtype}, but {spec!r} says {dtype}: "
            f"convert it with .astype({str(spec.dtype)!r})"
        )
        raise ValueError(msg)
    native = np.ascontiguousarray(array, dtype)
    if spec._swap_bytes():
        native = native.byteswap()
    data = native.reshape(-1).view(np.uint8)
    return CoercedColumn(
        name, key, "bytes", data, string_bytes=n_bytes, present=present
    )
