"""Convert the caller's columns to arrays of rows.

Arrays stay unchanged. Lists become arrays of integers, floats or strings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastrec.arrays.batch import Array, BytesArray, RaggedArray
from fastrec.arrays.bytes import reshaped
from fastrec.arrays.layout import offsets_from
from fastrec.features.base import Spec
from fastrec.features.fixed import FixedLen, Raw, Stack
from fastrec.features.image import Image
from fastrec.features.tensor import SerializedTensor

# Mask of the rows that have a feature; None if all do.
Present: TypeAlias = NDArray[np.bool_] | None

# Specs whose rows all have one shape.
DENSE = (FixedLen, Image, Raw, Stack, SerializedTensor)

_INT64_MAX = 2**63 - 1
_NOT_INT64 = (
    "integers must be in the range of int64; write the bits of a uint64 with "
    '.view("int64")'
)


def array_of(column: Any, spec: Spec | None) -> tuple[Array, Present]:
    """Return a column as an array, and the mask of its present rows, or None if all."""
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
        if absent.any():  # the type of masked values may not be writable
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
    """Return whether an array has objects or text, which are converted individually."""
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
    """Return empty rows of unknown kind."""
    return RaggedArray._wrap(np.zeros(0, object), np.zeros(n_rows + 1, np.int64))


def _array_of_items(items: Sequence[Any], spec: Spec | None = None) -> Array:
    """Return scalars as an array, and lists as the RaggedArray of their items."""
    kinds = _kinds_of(items)
    if "" in kinds:
        wrong = next(type(item) for item in items if "" in _kinds_of([item]))
        raise TypeError(
            f"cannot write a value of type {wrong.__name__}; write numbers, strings, "
            "lists of them or NumPy arrays"
        )
    if len(kinds) > 1:
        hint = "make all values the same"
        floats = (item for item in items if isinstance(item, (float, np.floating)))
        if kinds == {"float", "string"} and all(map(np.isnan, floats)):
            hint = "write None for a missing string, not NaN"
        raise ValueError(f"cannot mix {' and '.join(sorted(kinds))}; {hint}")
    if kinds == {"string"}:
        if len(items) == 1 and type(items[0]) is bytes:  # which may be gigabytes
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
    """Join one array per row: dense for a dense spec, otherwise a RaggedArray."""
    is_dense = isinstance(spec, DENSE)
    full = arrays if is_dense else [a for a in arrays if a.size] or arrays[:1]
    dtypes = {array.dtype for array in full}
    kinds = set() if isinstance(spec, Raw) else {_number_kind(d) for d in dtypes}
    if len(kinds) > 1:
        raise ValueError("cannot mix float and int; make all values the same")
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
        )  # raises, for example for dates, which tolist() converts
    if isinstance(row, RaggedArray):
        return row.tolist()
    items: Sequence[Any] = row if isinstance(row, (list, tuple)) else row.tolist()
    return items


def dense(rows: Array) -> Any:
    """Return possibly nested rows of equal length as a dense array."""
    if not isinstance(rows, RaggedArray):
        return rows
    lengths = set(rows.lengths.tolist())
    if len(lengths) > 1:
        raise ValueError(
            f"rows must have equal lengths, got rows of {sorted(lengths)[:5]} values"
        )
    values = dense(rows.values)
    return reshaped(values, (len(rows), next(iter(lengths), 0), *values.shape[1:]))


def _number_kind(dtype: np.dtype[Any]) -> str:
    """Return the kind of Feature list that stores numbers of a dtype."""
    if dtype.kind in "biu":
        return "int64"
    if (dtype.kind == "f" and dtype.itemsize <= 8) or dtype.name == "bfloat16":
        return "float"
    hint = f'.astype("{"float32" if dtype.kind in "fc" else "int64"}")'
    if dtype.kind == "S":
        hint = ".tolist() (note that dtype S drops trailing NUL bytes)"
    raise TypeError(f"cannot write dtype {dtype}; convert it, for example with {hint}")


def number_values(values: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """Return the kind of Feature list for `values`, and the converted values."""
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
