"""Gathering: a column as a caller has it -> an array of rows.

Arrays stay what they are; lists become arrays, whose values are all integers, all floats
or all strings. Which rows are there at all is told apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fastrec.arrays.batch import Array, BytesArray, RaggedArray
from fastrec.arrays.offsets import offsets_from
from fastrec.features.base import Spec
from fastrec.features.fixed import FixedLen, Raw, VarLen
from fastrec.features.padded import FixedLenSequence
from fastrec.features.stack import Stack
from fastrec.features.tensor import TensorProto
from fastrec.writer.number_kinds import INT64_MAX, number_kind, number_values

__all__ = ["DENSE_SPECS", "array_of", "dense", "one_row"]

# Specs of rows that all have one shape.
DENSE_SPECS = (FixedLen, Raw, Stack, TensorProto)

# Kinds of NumPy dtypes of text.
_TEXT_KINDS = ("U", "T")  # of fixed and of variable width


def array_of(
    name: str | bytes, column: object, spec: Spec | None
) -> tuple[Array, NDArray[np.bool_] | None]:
    """Return a column as an array, and which of its rows are there, if not all."""
    if isinstance(column, np.ndarray) and column.ndim == 0:
        msg = f"column {name!r} is a single value: a column has one for each record"
        raise ValueError(msg)
    if isinstance(column, np.ma.MaskedArray):
        return _array_of_masked(name, column, spec)
    if isinstance(column, (BytesArray, RaggedArray)):
        return column, None
    if isinstance(column, np.ndarray):
        is_text = column.dtype.kind in _TEXT_KINDS
        if column.dtype.kind == "O" or (is_text and not isinstance(spec, Raw)):
            return _array_of_list(name, column.tolist(), spec)
        return column, None
    if isinstance(column, (list, tuple)):
        return _array_of_list(name, column, spec)
    if hasattr(column, "__array__"):  # tensors of other libraries, and series
        return array_of(name, np.asarray(column), spec)
    msg = (
        f"column {name!r}: {type(column).__name__} is no column; arrays, RaggedArrays, "
        "BytesArrays and lists are"
    )
    raise TypeError(msg)


def _array_of_masked(
    name: str | bytes,
    column: np.ma.MaskedArray[Any, Any],
    spec: Spec | None,
) -> tuple[Array, NDArray[np.bool_] | None]:
    masked = np.ma.getmaskarray(column).reshape(
        len(column), math.prod(column.shape[1:])
    )
    present: NDArray[np.bool_] = np.ones(len(column), np.bool_)
    if masked.size:
        present = ~np.asarray(masked.all(axis=1), np.bool_)
    if (masked.any(axis=1) & present).any():
        msg = f"feature {name!r} has rows of which only a part is masked"
        raise ValueError(msg)
    if present.all():
        return array_of(name, column.data, spec)
    # What lies under a mask is no value, and need not be one that can be written.
    data = column.data.copy()
    data[~present] = np.zeros((), data.dtype)
    if data.dtype.kind == "O":
        data[~present] = "" if all(isinstance(v, str) for v in data[present]) else 0
    array, _ = array_of(name, data, spec)
    return array, present


def _array_of_list(
    name: str | bytes, values: Sequence[Any], spec: Spec | None
) -> tuple[Array, NDArray[np.bool_] | None]:
    there = [value for value in values if value is not None]
    present = None
    if len(there) < len(values) or not values:
        present = np.array([value is not None for value in values], np.bool_)
    if not there:
        return _without_values(len(values)), present
    if all(map(_is_string, there)):
        return _strings(name, [there[0] if v is None else v for v in values]), present
    is_list = [_is_list(value) for value in there]
    if all(is_list):
        # Of the type of the others, and of their shape where that is always the same.
        blank = there[0] if isinstance(spec, DENSE_SPECS) else there[0][:0]
        filled = [blank if value is None else value for value in values]
        return _array_of_rows(name, filled, spec), present
    if any(is_list) or any(map(_is_string, there)):
        msg = f"feature {name!r} mixes strings, lists and numbers in one column"
        raise ValueError(msg)
    return _numbers(name, [there[0] if v is None else v for v in values]), present


def _without_values(n_rows: int) -> NDArray[Any]:
    """Return rows without values, which do not tell of which kind they would be."""
    return np.zeros((n_rows, 0), object)


def _is_string(value: object) -> bool:
    return isinstance(value, (str, bytes, bytearray, memoryview))


def _is_list(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, (list, tuple, BytesArray, RaggedArray))


def _array_of_rows(name: str | bytes, rows: Sequence[Any], spec: Spec | None) -> Array:
    """Return a column of lists or arrays: dense where a spec says so."""
    is_dense = isinstance(spec, DENSE_SPECS)
    if all(_is_plain(row, spec) for row in rows):
        arrays = rows if isinstance(spec, Raw) else _of_one_dtype(name, rows)
        shapes = {array.shape for array in arrays}
        if is_dense and len(shapes) > 1:
            msg = f"feature {name!r} has arrays of shapes {sorted(shapes)}"
            raise ValueError(msg)
        if is_dense:
            return np.stack(arrays)
        inner = {array.shape[1:] for array in arrays if array.size}
        if len(inner) > 1:
            msg = f"feature {name!r} has arrays of shapes {sorted(shapes)}"
            raise ValueError(msg)
        shape = next(iter(inner), arrays[0].shape[1:])
        alike = [array.reshape(len(array), *shape) for array in arrays if array.size]
        lengths = [len(array) if array.size else 0 for array in arrays]
        values = np.concatenate(alike) if alike else arrays[0][:0]
        return RaggedArray(values, offsets_from(np.array(lengths, np.int64)))
    if all(isinstance(row, BytesArray) and row.ndim == 1 for row in rows):
        offsets = offsets_from(np.array([*map(len, rows)], np.int64))
        nested: Array = RaggedArray(BytesArray._concatenate(rows), offsets)
    else:
        nested = _nested(name, rows)
    if isinstance(nested, RaggedArray):
        if is_dense:
            return dense(name, nested)
        if isinstance(spec, (VarLen, FixedLenSequence)) and spec.shape:
            inner_rows = nested.values
            if isinstance(inner_rows, RaggedArray):
                return RaggedArray(dense(name, inner_rows), nested.row_splits)
    return nested


def _is_plain(row: object, spec: Spec | None) -> bool:
    """Whether a row is an array that is taken as it is."""
    if not isinstance(row, np.ndarray):
        return False
    opaque = ("O",) if isinstance(spec, Raw) else ("O", *_TEXT_KINDS)
    is_plain: bool = row.dtype.kind not in opaque
    return is_plain


def _of_one_dtype(
    name: str | bytes, arrays: Sequence[NDArray[Any]]
) -> Sequence[NDArray[Any]]:
    """Return arrays that are joined as the records have them: one by one."""
    with_values = [array for array in arrays if array.size] or arrays[:1]
    dtypes = {array.dtype for array in with_values}
    # Refuses dtypes that records do not have, too.
    kinds = {number_kind(name, dtype) for dtype in dtypes}
    if len(kinds) > 1:
        _refuse_mixed(name)
    if len(dtypes) > 1 and kinds == {"int64"}:
        # NumPy would join signed and unsigned ones as floats.
        return [
            number_values(name, a)[1] if a.size else a.astype(np.int64) for a in arrays
        ]
    target = np.result_type(*dtypes)
    return [
        array if array.size or array.dtype == target else array.astype(target)
        for array in arrays
    ]


def _nested(name: str | bytes, rows: Sequence[Any]) -> Array:
    """Return lists, of lists, as a RaggedArray of what is in them."""
    splits = []
    items: list[Any] = [*rows]
    while True:
        lists = [_listed(name, item) for item in items]
        splits.append(offsets_from(np.array([*map(len, lists)], np.int64)))
        items = [item for row in lists for item in row]
        n_lists = sum(map(_is_list, items))
        if n_lists == 0:
            break
        if n_lists < len(items):
            msg = f"feature {name!r} has lists and values side by side in one list"
            raise ValueError(msg)
    if not items:
        return _without_values(len(rows))
    n_strings = sum(map(_is_string, items))
    if 0 < n_strings < len(items):
        msg = f"feature {name!r} mixes strings and numbers: make all values the same"
        raise ValueError(msg)
    values: Any = _strings(name, items) if n_strings else _numbers(name, items)
    for row_splits in reversed(splits):
        values = RaggedArray(values, row_splits)
    found: RaggedArray = values
    return found


def _listed(name: str | bytes, row: Any) -> Sequence[Any]:  # noqa: ANN401
    """Return a row as lists in lists."""
    if isinstance(row, np.ndarray):
        if row.dtype.kind not in ("O", *_TEXT_KINDS):
            number_kind(name, row.dtype)  # else a date would become a number
        listed: Sequence[Any] = row.tolist()
        return listed
    if isinstance(row, BytesArray):
        return row.tolist()
    if isinstance(row, RaggedArray):
        return row.to_list()
    found: Sequence[Any] = row
    return found


def _strings(name: str | bytes, values: Sequence[Any]) -> BytesArray:
    for value in values:
        if isinstance(value, memoryview) and not (
            value.itemsize == 1 and value.c_contiguous
        ):
            msg = (
                f"feature {name!r} is a memoryview of something else than contiguous "
                "bytes: write it with .tobytes()"
            )
            raise ValueError(msg)
    try:
        return BytesArray.from_list(values)
    except UnicodeEncodeError:
        msg = (
            f"feature {name!r} has text that UTF-8 cannot express; encode it to bytes, "
            'for example with .encode(errors="surrogateescape")'
        )
        raise ValueError(msg) from None


def dense(name: str | bytes, rows: RaggedArray) -> Array:
    """Return rows of rows, all as long as each other, as one array."""
    lengths = set(rows.lengths.tolist())
    if len(lengths) > 1:
        msg = f"feature {name!r} has rows of {sorted(lengths)[:5]} values"
        raise ValueError(msg)
    inner = dense(name, rows.values) if isinstance(rows.values, RaggedArray) else None
    values: Any = rows.values if inner is None else inner
    shape = (len(rows), next(iter(lengths), 0), *values.shape[1:])
    if isinstance(values, BytesArray):
        return BytesArray(values.data, values.offsets, shape)
    first, last = int(rows.row_splits[0]), int(rows.row_splits[-1])
    found: Array = values[first:last].reshape(shape)
    return found


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
        _refuse_mixed(name)
    array = np.array(values)
    if kinds == {"int"} and array.dtype.kind == "f":  # signed and unsigned ones
        array = np.array([int(value) for value in values], object)
    if kinds == {"int"} and array.dtype.kind not in "biu":
        if all(-(2**63) <= value <= INT64_MAX for value in array.tolist()):
            return array.astype(np.int64)
        msg = (
            f"feature {name!r} has an integer outside of int64; of an unsigned one, the "
            'bits can be written with np.uint64(value).view("int64")'
        )
        raise ValueError(msg)
    return array


def _refuse_mixed(name: str | bytes) -> NoReturn:
    msg = f"feature {name!r} mixes int and float: make all values the same"
    raise ValueError(msg)


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


def one_row(value: Any, spec: Spec) -> Any:  # noqa: ANN401
    """Return a column of one row."""
    if isinstance(value, np.ndarray):
        return value[None]
    if isinstance(value, BytesArray):
        return BytesArray(value.data, value.offsets, (1, *value.shape))
    if isinstance(value, np.generic) and not isinstance(value, (str, bytes)):
        return np.asarray(value)[None]
    if isinstance(value, (list, tuple)) and isinstance(spec, DENSE_SPECS):
        kind = np.asarray(value).dtype.kind if spec.dtype != "bytes" else "O"
        if kind in "biuf":
            return np.asarray(value)[None]
    return [value]
