"""Convert Arrow arrays to columns for `Writer.write_batch`, as views if possible.

========================================  ===============================================
bool, int, float                          ndarray
string, binary, fixed_size_binary         BytesArray
list of these                             RaggedArray
fixed_size_list of these                  ndarray or BytesArray ``(n, size)``
fixed_size_list of fixed_size_list, ...   ndarray ``(n, size, size, ...)``, for `Raw`
dictionary, run_end_encoded of these      the same, decoded
struct of bytes and path                  BytesArray: images of Hugging Face datasets
========================================  ===============================================

A null omits the feature from its row. An array with nulls becomes a masked array where
the table says ndarray, and a list with None in all other cases.
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
_VIEWS = (pa.string_view(), pa.binary_view())
_BYTES = (*_VIEWS, pa.string(), pa.large_string(), pa.binary(), pa.large_binary())

_OMIT = "omit it with columns= (--columns)"
_FLATTEN = "flatten it to one level, and store the lengths in a separate column"


def features_of(schema: pa.Schema) -> dict[str, Spec]:
    """Return a `Raw` spec for each column whose tensors have at least two dimensions.

    Raises a SchemaError for types that no feature can store.
    """
    features: dict[str, Spec] = {}
    for field in schema:
        column = _column(pa.nulls(0, field.type), field)
        if isinstance(column, np.ndarray) and column.ndim > 2:
            features[field.name] = Raw(column.shape[1:], column.dtype)
    return features


def columns_of(batch: pa.RecordBatch) -> Columns:
    """Convert a batch to columns; raise the same SchemaErrors as `features_of`."""
    return {
        field.name: _column(array, field)
        for field, array in zip(batch.schema, batch.columns, strict=True)
    }


def _column(array: pa.Array, field: pa.Field) -> Any:
    array = _decoded(array)
    if pa.types.is_null(array.type):
        return [None] * len(array)
    if not array.null_count:
        return _values(array, field)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    values = _values(array.drop_null(), field)
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
    """Decode a dictionary, run-end, media or extension array; keep tensor arrays."""
    while True:
        kind = array.type
        if isinstance(array, pa.FixedShapeTensorArray):
            return array
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(kind):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(kind):
            array = pc.run_end_decode(array)
        elif pa.types.is_struct(kind) and {f.name for f in kind} == MEDIA:
            array = pa.array(map(media_bytes, array.to_pylist()), pa.large_binary())
        elif kind in _VIEWS and array.null_count:
            # A cast would dereference null views, which Arrow never validates.
            return pa.array(array.to_pylist(), pa.large_binary())
        else:
            return array


def _values(array: pa.Array, field: pa.Field) -> Any:
    """Convert an array, which is decoded and has no nulls, to a column."""
    kind = array.type
    if isinstance(array, pa.FixedShapeTensorArray):
        if kind.permutation not in (None, [*range(len(kind.shape))]):
            raise _refusal(field, "store its tensors in row-major order")
        values = _inner_values(array.storage.flatten(), field)
        return values.reshape(len(array), *kind.shape)
    if pa.types.is_fixed_size_list(kind):
        values = _inner_values(array.flatten(), field)
        if isinstance(values, np.ndarray):
            return values.reshape(len(array), kind.list_size, *values.shape[1:])
        if isinstance(values, RaggedArray) or values.ndim > 1:
            raise _refusal(field, _FLATTEN)
        return BytesArray(values.data, values.offsets, (len(array), kind.list_size))
    if isinstance(kind, _LISTS):
        values = _inner_values(array.flatten(), field)
        if isinstance(values, RaggedArray) or values.ndim > 1:
            raise _refusal(field, _FLATTEN)
        lengths = pc.list_value_length(array).to_numpy()
        return RaggedArray(values, offsets_from(lengths))
    if pa.types.is_boolean(kind):
        return array.to_numpy(zero_copy_only=False)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return array.to_numpy()
    if kind not in _BYTES and not pa.types.is_fixed_size_binary(kind):
        raise _refusal(field, _hint(kind))
    if not len(array):
        return BytesArray.from_list([])
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    rows = slice(array.offset, array.offset + len(array) + 1)
    offsets = np.frombuffer(offsets, np.int64)[rows]
    return BytesArray(np.frombuffer(data or b"", np.uint8), offsets)


def _inner_values(array: pa.Array, field: pa.Field) -> Any:
    array = _decoded(array)
    if array.null_count:
        raise SchemaError(
            f"no feature can store column {field.name!r}: it has a null within a list; "
            f"replace it, or {_OMIT}",
            feature=field.name,
        )
    return _values(array, field)


def _refusal(field: pa.Field, hint: str) -> SchemaError:
    return SchemaError(
        f"no feature can store column {field.name!r} of type {field.type}: {hint}",
        feature=field.name,
    )


def _hint(kind: pa.DataType) -> str:
    """Return advice on how to convert a column of a type that no feature can store."""
    if pa.types.is_nested(kind):
        return "make its fields separate columns, with pyarrow.Table.flatten()"
    cast = ""
    if pa.types.is_decimal(kind):
        cast = "float64"
    elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        cast = f"int{kind.bit_width}"
    return (
        f'cast it with types={{NAME: "{cast}"}} (--type NAME={cast})' if cast else _OMIT
    )
