"""Blocks of Ray Data -> columns for `Writer.write_batch`.

====================================  =================================================
tensors of one shape                  ndarray ``(n, ...)``, for `Raw` if it has three or
                                      more dimensions
tensors of any shape, Python objects  list of the rows
any other column                      as in `fastrec.convert.arrow_columns`
====================================  =================================================
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from ray.data.extensions import (
    ArrowPythonObjectType,
    ArrowVariableShapedTensorType,
    get_arrow_extension_tensor_types,
)

from fastrec.convert.arrow_columns import columns_of, features_of
from fastrec.convert.source import Columns
from fastrec.features.base import Spec
from fastrec.features.fixed import Raw


def features_of_schema(schema: pa.Schema) -> dict[str, Spec]:
    """Return the specs of columns of three or more dimensions.

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
    """Return the columns of a batch whose schema was checked by `features_of_schema`."""
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
    """Whether a type is an extension of Ray, which Arrow knows nothing about."""
    types = (*get_arrow_extension_tensor_types(), ArrowPythonObjectType)
    return isinstance(kind, types) and not isinstance(kind, pa.FixedShapeTensorType)


def _is_listed(kind: pa.DataType) -> bool:
    return isinstance(kind, (ArrowVariableShapedTensorType, ArrowPythonObjectType))
