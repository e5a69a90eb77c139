"""Convert datasets to blocks of Ray Data (Arrow tables), and blocks to columns.

Ray stores tensors in Arrow extension types; its NumPy batches have arrays ``(n, ...)``.

====================================  =================================================
rows of numbers of one shape          read as tensors, and written as ndarray
                                      ``(n, ...)``: as `Raw` if there are three or more
                                      dimensions
tensors of any shape, Python objects  written as a list of rows
any other column                      as in `fastrec.arrow.RecordBatch` and
                                      `fastrec.convert.arrow_columns`
====================================  =================================================
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from ray.data.extensions import (
    ArrowPythonObjectType,
    ArrowTensorArray,
    ArrowVariableShapedTensorType,
    create_arrow_fixed_shape_tensor_type,
    get_arrow_extension_tensor_types,
)

from fastrec.arrow.reader import RecordBatchReader
from fastrec.convert.arrow_columns import columns_of, features_of
from fastrec.convert.source import Columns
from fastrec.errors import Error
from fastrec.features.base import Spec
from fastrec.features.fixed import Raw

# Reading.


def block_schema(reader: RecordBatchReader) -> pa.Schema | None:
    """Return the schema of all blocks, or None if the first record is unreadable."""
    try:
        schema = pa.schema(reader)
    except Error as error:
        if error.record is None:
            raise
        return None  # a read task raises this error
    fields = []
    for field in schema:
        shape, item = _row_type(field.type)
        if shape:
            field = field.with_type(create_arrow_fixed_shape_tensor_type(shape, item))
        fields.append(field)
    return pa.schema(fields)


def blocks_of(reader: RecordBatchReader) -> Iterator[pa.Table]:
    """Yield the record batches of `reader` as blocks (Arrow tables)."""
    for batch in map(pa.record_batch, reader):
        names = batch.schema.names
        yield pa.Table.from_arrays([*map(_tensors, batch.columns)], names=names)


def _row_type(kind: pa.DataType) -> tuple[tuple[int, ...], pa.DataType]:
    """Return row shape and item type; the shape is () if rows are not arrays."""
    shape: tuple[int, ...] = ()
    while pa.types.is_fixed_size_list(kind):
        shape, kind = (*shape, kind.list_size), kind.value_type
    return (shape if pa.types.is_primitive(kind) else ()), kind


def _tensors(column: pa.Array) -> pa.Array:
    """Convert numeric arrays of one shape to tensors; return others unchanged."""
    shape, _ = _row_type(column.type)
    # Optional columns may have null rows, which tensors do not support.
    if not shape or column.null_count:
        return column
    n_rows = len(column)
    for _ in shape:
        column = column.flatten()
    values = column.to_numpy(zero_copy_only=False)  # copies only bit-packed bools
    return ArrowTensorArray.from_numpy(values.reshape(n_rows, *shape))


# Writing.


def features_of_schema(schema: pa.Schema) -> dict[str, Spec]:
    """Return the specs that `Writer` needs for some columns, such as `Raw` for tensors.

    Raises a SchemaError for types that no feature can store.
    """
    features: dict[str, Spec] = {}
    for field in schema:
        if not _is_of_ray(field.type):
            features |= features_of(pa.schema([field]))
        elif not _is_listed(field.type) and len(field.type.shape) >= 2:
            dtype = np.dtype(field.type.value_type.to_pandas_dtype())
            shape = tuple(field.type.shape)
            # A null row omits the feature.
            features[field.name] = Raw(shape, dtype, default=np.zeros(shape, dtype))
    return features


def columns_of_batch(batch: pa.RecordBatch) -> Columns:
    """Return the columns of a batch, in the form that `Writer` accepts."""
    columns: Columns = {}
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if not _is_of_ray(field.type):
            columns |= columns_of(pa.record_batch([array], schema=pa.schema([field])))
        elif array.null_count or _is_listed(field.type):
            columns[field.name] = array.to_pylist()
        else:
            columns[field.name] = array.to_numpy(zero_copy_only=False)
    return columns


def _is_of_ray(kind: pa.DataType) -> bool:
    """Return whether a type is a Ray extension type that Arrow does not define."""
    types = (*get_arrow_extension_tensor_types(), ArrowPythonObjectType)
    return isinstance(kind, types) and not isinstance(kind, pa.FixedShapeTensorType)


def _is_listed(kind: pa.DataType) -> bool:
    return isinstance(kind, (ArrowVariableShapedTensorType, ArrowPythonObjectType))
