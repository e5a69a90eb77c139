"""TensorFlow in this process: its parsers' errors, and comparable columns.

Importing it skips the tests of a module if TensorFlow is not installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow")

KINDS: list[Any] = ["int64", "float", "bytes"]
DTYPES = {"int64": tf.int64, "float": tf.float32, "bytes": tf.string}
REFUSED_BY_TENSORFLOW = (
    tf.errors.InvalidArgumentError,
    UnicodeDecodeError,  # while it formats its error
    ValueError,
)
REFUSED = (fr.DecodeError, fr.SchemaError)


def plain(column: Untyped) -> Any:
    """Return a column of either library as comparable nested lists and texts."""
    if isinstance(column, tf.SparseTensor | fr.SparseArray):
        indices, shape = np.asarray(column.indices), np.asarray(column.dense_shape)
        return indices.tolist(), plain(column.values), shape.tolist()
    if isinstance(column, tf.RaggedTensor | fr.RaggedArray):
        splits = np.asarray(column.row_splits)
        return str(splits.dtype), splits.tolist(), plain(column.values)
    if isinstance(column, fr.BytesArray):
        return "object", tuple(column.shape), column.tolist()
    if isinstance(column, bytes):
        return "object", (), column
    array = column.numpy() if hasattr(column, "numpy") else column
    if isinstance(array, bytes):
        return "object", (), array
    array = np.asarray(array)
    return str(array.dtype), array.shape, array.tolist()
