"""Arrow arrays -> columns for `Writer.write_batch`, without a copy where possible.

========================================  ===============================================
bool, int, float                          ndarray
string, binary, fixed_size_binary         BytesArray
list of these                             RaggedArray
fixed_size_list of these                  ndarray or BytesArray ``(n, size)``
fixed_size_list of fixed_size_list, ...   ndarray of that many dimensions, for `Raw`
dictionary, run_end_encoded of these      the same, decoded
struct of bytes and path                  BytesArray: images of Hugging Face datasets
========================================  ===============================================

A null row omits the feature: arrays with nulls become masked arrays, others lists with
None.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastrec.arrays.batch import BytesArray, RaggedArray
from fastrec.arrays.layout import offsets_from
from fastrec.convert.source import MEDIA, Columns, media_bytes
from fastrec.errors import SchemaError
from fastrec.features.base import Spec
from fastrec.features.fixed import Raw

_LISTS = (pa.ListType, pa.LargeListType, pa.ListViewType, pa.LargeListViewType)
_STRINGS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_VIEWS = (pa.string_view(), pa.binary_view())

_OMIT = "omit it with columns= (--columns)"


def features_of(schema: pa.Schema) -> dict[str, Spec]:
    """Return the specs of columns of three or more dimensions.

    Raises a SchemaError for types that no feature can store.
    """
    features: dict[str, Spec] = {}
    for field in schema:
        shape, leaf = _row_type(field.type)
        if hint := _hint(field.type):
            reason = f"no feature can store column {field.name!r} of type {field.type}"
            raise SchemaError(f"{reason}: {hint}", feature=field.name)
        if len(shape) >= 2:
            features[field.name] = Raw(shape, leaf.to_pandas_dtype())
    return features


def columns_of(batch: pa.RecordBatch) -> Columns:
    """Return the columns of a batch whose schema was checked by `features_of`."""
    return {
        field.name: _column(array, field.name)
        for field, array in zip(batch.schema, batch.columns, strict=True)
    }


# Types.


def _row_type(kind: pa.DataType) -> tuple[tuple[int, ...], pa.DataType]:
    """Return the shape of a row of fixed-size lists, and the type of its items."""
    shape: tuple[int, ...] = ()
    while True:
        if isinstance(kind, pa.FixedShapeTensorType):
            return (*shape, *kind.shape), kind.value_type
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        elif pa.types.is_fixed_size_list(kind):
            shape, kind = (*shape, kind.list_size), kind.value_type
        elif _is_media(kind):
            kind = pa.large_binary()
        else:
            return shape, kind


def _hint(kind: pa.DataType) -> str:
    """Return a hint how to store a type in features; "" if it can be stored."""
    types = pa.types
    shape, leaf = _row_type(kind)
    is_list = isinstance(leaf, _LISTS)
    if is_list:
        inner, leaf = _row_type(leaf.value_type)
        shape += inner
    if types.is_struct(leaf) or types.is_map(leaf) or types.is_union(leaf):
        return "make its fields separate columns, with pyarrow.Table.flatten()"
    if types.is_decimal(leaf):
        return _cast_to("float64")
    if types.is_temporal(leaf) and not types.is_interval(leaf):
        return _cast_to(f"int{leaf.bit_width}")
    is_nested = isinstance(leaf, _LISTS) or (is_list and shape)
    if is_nested or (_is_bytes(leaf) and len(shape) > 1):
        return "make it a list of one level, and its lengths a separate column"
    if isinstance(kind, pa.FixedShapeTensorType):
        rank = len(kind.shape)
        if kind.permutation not in (None, [*range(rank)]):
            return "store its tensors in row-major order"
    is_number = types.is_integer(leaf) or types.is_floating(leaf) or leaf == pa.bool_()
    is_known = is_number or _is_bytes(leaf) or types.is_null(kind)
    return "" if is_known else _OMIT


def _is_media(kind: pa.DataType) -> bool:
    """Return whether a type is that of images, audio or videos of Hugging Face."""
    return pa.types.is_struct(kind) and {f.name for f in kind} == MEDIA


def _cast_to(name: str) -> str:
    return f'cast it with types={{NAME: "{name}"}} (--type NAME={name})'


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in _STRINGS or kind in _VIEWS or pa.types.is_fixed_size_binary(kind)


# Values.


def _column(array: pa.Array, name: str) -> Any:
    array = _decoded(array)
    if pa.types.is_null(array.type):
        return [None] * len(array)
    if not array.null_count:
        return _values(array, name)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    values = _values(array.drop_null(), name)
    if isinstance(values, np.ndarray):
        shape = (len(array), *values.shape[1:])
        mask = np.broadcast_to(missing.reshape(-1, *[1] * (values.ndim - 1)), shape)
        column = np.ma.MaskedArray(np.zeros(shape, values.dtype), mask)
        column.data[~missing] = values
        return column
    is_flat = isinstance(values, BytesArray) and values.ndim == 1
    rows = iter(values.tolist() if is_flat else values)
    return [None if is_null else next(rows) for is_null in missing.tolist()]


def _decoded(array: pa.Array) -> pa.Array:
    """Return an array without dictionary, runs, views and extensions except tensors."""
    while True:
        if isinstance(array, pa.FixedShapeTensorArray):
            return array
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        elif _is_media(array.type):
            array = pa.array(map(media_bytes, array.to_pylist()), pa.large_binary())
        elif array.type in _VIEWS and array.null_count:
            # A cast would dereference null views, which Arrow never validates.
            return pa.array(array.to_pylist(), pa.large_binary())
        else:
            return array


def _values(array: pa.Array, name: str) -> Any:
    """Return the values of a decoded array without nulls."""
    kind = array.type
    if isinstance(array, pa.FixedShapeTensorArray):
        values = _inner_values(array.storage.flatten(), name)
        return values.reshape(len(array), *kind.shape)
    if pa.types.is_fixed_size_list(kind):
        values = _inner_values(array.flatten(), name)
        shape = (len(array), kind.list_size, *values.shape[1:])
        if isinstance(values, BytesArray):
            return BytesArray(values.data, values.offsets, shape)
        return values.reshape(shape)
    if isinstance(kind, _LISTS):
        lengths = pc.list_value_length(array).to_numpy()
        return RaggedArray(_inner_values(array.flatten(), name), offsets_from(lengths))
    if not _is_bytes(kind):
        return array.to_numpy(zero_copy_only=not pa.types.is_boolean(kind))
    if not len(array):
        return BytesArray.from_list([])
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    rows = slice(array.offset, array.offset + len(array) + 1)
    offsets = np.frombuffer(offsets, np.int64)[rows]
    return BytesArray(np.frombuffer(data or b"", np.uint8), offsets)


def _inner_values(array: pa.Array, name: str) -> Any:
    array = _decoded(array)
    if array.null_count:
        raise SchemaError(
            f"no feature can store column {name!r}: it has a null within a list; replace "
            f"it, or {_OMIT}",
            feature=name,
        )
    return _values(array, name)
