"""Arrow arrays -> columns for `Writer.write_batch`, without a copy where that can be.

========================================  ===============================================
bool, int, float                          ndarray
string, binary, fixed_size_binary         BytesArray
list of these                             RaggedArray
fixed_size_list of these                  ndarray or BytesArray ``(n, size)``
fixed_size_list of fixed_size_list, ...   ndarray of as many dimensions, as `fastrec.Raw`
dictionary, run_end_encoded of these      the same, decoded
========================================  ===============================================

Where rows are null the feature is left out of the record: ndarrays are masked there, and
all else is a list with None for such rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

import fastrec as fr
from fastrec.arrays.layout import offsets_from, run_positions
from fastrec.convert.source import Columns

__all__ = ["columns_of", "feature_kind", "features_of"]

Values = Any  # an ndarray, a BytesArray or a RaggedArray


def features_of(schema: pa.Schema) -> dict[str, fr.Raw]:
    """Return the specs that columns of three or more dimensions need.

    Raises
    ------
    SchemaError
        If no feature holds a column; names it, its type, and what to cast it to.
    """
    features = {}
    for field in schema:
        leaf, shape = _shape_of(field.type)
        trouble = _trouble(leaf, shape) or _trouble_of_axes(field.type)
        if trouble:
            reason = f"column {field.name!r} is of type {field.type}, which no feature "
            raise fr.SchemaError(f"{reason}holds: {trouble}", feature=field.name)
        if len(shape) >= 2:
            features[field.name] = fr.Raw(shape, _dtype(leaf))
    return features


def feature_kind(kind: pa.DataType) -> str:
    """Return what features a column of a type makes: equal texts for equal features."""
    leaf, shape = _shape_of(kind)
    is_list = _is_list(leaf)
    leaf = _plain(leaf.value_type) if is_list else leaf
    if len(shape) >= 2:
        return f"{leaf} of shape {shape}"
    if pa.types.is_floating(leaf):
        value = "float"
    else:
        value = "bytes" if _is_bytes(leaf) else "int64"
    return f"{value} list" if is_list or shape else value


def columns_of(batch: pa.RecordBatch) -> Columns:
    """Return the columns of a batch, whose schema `features_of` has seen.

    Raises
    ------
    SchemaError
        If a list has a null in it.
    """
    return {
        field.name: _column(array, field.name)
        for field, array in zip(batch.schema, batch.columns, strict=True)
    }


# What types are.


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type without its way of storage: dictionaries, views, extensions."""
    types = pa.types
    while True:
        if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
            kind = kind.value_type
        elif isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif types.is_string_view(kind):
            kind = pa.large_string()
        elif types.is_binary_view(kind):
            kind = pa.large_binary()
        else:
            return kind


def _shape_of(kind: pa.DataType) -> tuple[pa.DataType, tuple[int, ...]]:
    """Return what is inside of lists of fixed sizes, and these."""
    shape: list[int] = []
    if isinstance(kind, pa.FixedShapeTensorType):
        return _plain(kind.value_type), tuple(kind.shape)
    kind = _plain(kind)
    while pa.types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind = _plain(kind.value_type)
    return kind, tuple(shape)


def _is_scalar(kind: pa.DataType) -> bool:
    return _is_number(kind) or _is_bytes(kind)


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    )


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    name = str(kind)  # all but these are NumPy's names, too
    return np.dtype({"halffloat": "f2", "float": "f4", "double": "f8"}.get(name, name))


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or _is_view(kind))


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _trouble(leaf: pa.DataType, shape: tuple[int, ...]) -> str:
    """Return why a type cannot be written, with the cure; "" if it can."""
    types = pa.types
    if _is_list(leaf):
        if shape or not _is_scalar(_plain(leaf.value_type)):
            return _trouble_inside(_plain(leaf.value_type)) or (
                "make it a list of one level, and its lengths a column of their own"
            )
        return ""
    if types.is_null(leaf) and not shape:
        return ""
    if _is_scalar(leaf):
        if len(shape) >= 2 and _is_bytes(leaf):
            return "make it a list of one level"
        return ""
    return _trouble_inside(leaf) or "leave it out, with columns= (--column)"


def _trouble_of_axes(kind: pa.DataType) -> str:
    if not isinstance(kind, pa.FixedShapeTensorType):
        return ""
    if kind.permutation in (None, list(range(len(kind.shape)))):
        return ""
    return "write its tensors in row-major order"


def _trouble_inside(leaf: pa.DataType) -> str:
    """Return the cure of a type that is neither scalar nor list."""
    types = pa.types
    if types.is_struct(leaf) or types.is_map(leaf) or types.is_union(leaf):
        return "make its fields columns of their own, with pyarrow.Table.flatten()"
    if types.is_decimal(leaf):
        return _cast_to("float64")
    if types.is_temporal(leaf) and not types.is_interval(leaf):
        return _cast_to("int32" if leaf.bit_width == 32 else "int64")
    return ""


def _cast_to(name: str) -> str:
    return f'cast it to {name}, with types={{NAME: "{name}"}} (--type NAME={name})'


# What arrays hold.


def _column(array: pa.Array, name: str) -> Any:  # noqa: ANN401
    array = _decoded(array)
    missing = _nulls(array)
    if pa.types.is_null(array.type):
        return [None] * len(array)
    values = _values(array, name, ~missing)
    if not missing.any():
        return values
    if isinstance(values, np.ndarray):
        mask = np.broadcast_to(
            missing.reshape(-1, *[1] * (values.ndim - 1)), values.shape
        )
        return np.ma.MaskedArray(values, mask)
    # Of lists, arrays: an empty one has a type.
    is_flat = isinstance(values, fr.BytesArray) and values.ndim == 1
    rows = values.tolist() if is_flat else values
    return [
        None if is_null else row
        for row, is_null in zip(rows, missing.tolist(), strict=True)
    ]


def _decoded(array: pa.Array) -> pa.Array:
    """Return the array without a dictionary or runs, which have nulls of their own."""
    while True:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pyarrow.compute.run_end_decode(array)
        else:
            return array


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    nulls: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _values(array: pa.Array, name: str, is_there: NDArray[np.bool_]) -> Values:
    """Return what an array holds; of rows that are not there, anything.

    Raises
    ------
    SchemaError
        If there is a null in a list that is there.
    """
    is_tensor = isinstance(array.type, pa.FixedShapeTensorType)
    tensor_shape = tuple(array.type.shape) if is_tensor else ()
    array = _stored(array)
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        inner = array.values.slice(array.offset * size, len(array) * size)
        values = _values_inside(inner, name, np.repeat(is_there, size))
        shape = (len(array), *(tensor_shape or (size, *values.shape[1:])))
        if isinstance(values, fr.BytesArray):
            return fr.BytesArray(values.data, values.offsets, shape)
        return values.reshape(shape)
    if _is_view(kind):
        return _gathered(array, name, is_there)
    if _is_list(kind):
        splits = _offsets(array)
        first = splits[0]
        inner = array.values.slice(first, splits[-1] - first)
        values = _values_inside(inner, name, np.repeat(is_there, np.diff(splits)))
        return fr.RaggedArray(values, splits - first if first else splits)
    if pa.types.is_fixed_size_binary(kind):
        offsets = (np.arange(len(array) + 1) + array.offset) * kind.byte_width
        return fr.BytesArray(_buffer(array.buffers()[1], np.uint8), offsets)
    if _is_bytes(kind):
        return fr.BytesArray(_buffer(array.buffers()[2], np.uint8), _offsets(array))
    if pa.types.is_boolean(kind):
        if array.null_count:
            array = array.fill_null(False)
        return array.to_numpy(zero_copy_only=False)
    values = _buffer(array.buffers()[1], _dtype(kind))
    return values[array.offset : array.offset + len(array)]


def _gathered(
    array: pa.Array, name: str, is_there: NDArray[np.bool_]
) -> fr.RaggedArray:
    """Return the rows of a list view, which may lie anywhere in its values.

    Arrow's own cast to lists makes offsets that decrease where there are nulls.
    """
    dtype = np.int32 if pa.types.is_list_view(array.type) else np.int64
    rows = slice(array.offset, array.offset + len(array))
    starts, sizes = (_buffer(b, dtype)[rows] for b in array.buffers()[1:3])
    lengths = np.where(is_there, sizes, 0)
    inner = array.values.take(pa.array(run_positions(starts, lengths)))
    values = _values_inside(inner, name, np.ones(len(inner), np.bool_))
    return fr.RaggedArray(values, offsets_from(lengths))


def _values_inside(array: pa.Array, name: str, is_there: NDArray[np.bool_]) -> Values:
    """Return the values of lists, none of which may be null."""
    array = _decoded(array)
    if array.null_count and (_nulls(array) & is_there).any():
        reason = (
            f"column {name!r} has a null within a list, which no feature holds: "
            "replace it before, or leave the column out, with columns= (--column)"
        )
        raise fr.SchemaError(reason, feature=name)
    return _values(array, name, is_there)


def _stored(array: pa.Array) -> pa.Array:
    """Return the array without its way of storage: see `_plain`."""
    while _plain(array.type) != array.type:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
            if array.null_count:
                array = _without_null_views(array)
            array = array.cast(_plain(array.type))
        else:
            array = _decoded(array)
    return array


def _without_null_views(array: pa.Array) -> pa.Array:
    """Return string or binary views with nothing where they are null.

    Arrow follows these views when it casts, though nothing has ever checked them.
    """
    validity, buffer, *data = array.buffers()
    end = array.offset + len(array)
    views = _buffer(buffer, np.dtype("V16"))[:end].copy()
    views[array.offset :][_nulls(array)] = bytes(16)
    buffers = [validity, pa.py_buffer(views), *data]
    return pa.Array.from_buffers(
        array.type, len(array), buffers, array.null_count, array.offset
    )


def _offsets(array: pa.Array) -> NDArray[Any]:
    """Return where the rows of a list or string array begin, and the last one ends."""
    if len(array) == 0:  # then Arrow may leave them out
        return np.zeros(1, np.int64)
    kind = array.type
    is_large = (
        pa.types.is_large_list(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )
    whole = _buffer(array.buffers()[1], np.int64 if is_large else np.int32)
    return whole[array.offset : array.offset + len(array) + 1]


def _buffer(buffer: pa.Buffer | None, dtype: npt.DTypeLike) -> NDArray[Any]:
    """View a buffer, which Arrow may leave out where it is empty."""
    if buffer is None or not buffer.size:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, buffer.size // np.dtype(dtype).itemsize)
