"""Convert tf.io specs and dtype names to fastrec specs.

Classes are recognised by name, so that TensorFlow is not imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastrec.errors import SchemaError
from fastrec.features.base import Spec
from fastrec.features.fixed import FixedLen, FixedLenSequence, VarLen
from fastrec.features.ragged import Keyed, Ragged, Sparse

# The tfrecord package's dtype names. NumPy's "byte" and "float" mean other dtypes.
_TFRECORD_DTYPES = {"byte": "bytes", "int": "int64", "float": "float32"}

# The spec of a tf.io class, and the attributes that are its arguments.
_OF_TF: dict[str, tuple[Any, list[str]]] = {
    "FixedLenFeature": (FixedLen, ["shape", "dtype", "default_value"]),
    "FixedLenSequenceFeature": (
        FixedLenSequence,
        ["shape", "dtype", "default_value", "allow_missing"],
    ),
    "VarLenFeature": (VarLen, ["dtype"]),
    "RaggedFeature": (Ragged, ["dtype", "partitions", "row_splits_dtype"]),
    "SparseFeature": (
        Sparse,
        ["index_key", "value_key", "dtype", "size", "already_sorted"],
    ),
}


def as_spec(name: str | bytes, feature: object) -> Spec:
    """Return a column's spec, tf.io spec or dtype name as a spec."""
    if isinstance(feature, Spec):
        return feature
    kind = type(feature).__name__
    try:
        if isinstance(feature, str):
            return FixedLen((), _TFRECORD_DTYPES.get(feature, feature))
        if kind in _OF_TF:
            of_tf: Any = feature
            cls, names = _OF_TF[kind]
            values = [_argument(getattr(of_tf, each)) for each in names]
            key = {"key": of_tf.value_key} if cls is Ragged else {}
            spec: Spec = cls(*values, **key)
            return spec
    except SchemaError as error:
        raise SchemaError(
            f"feature {name!r}: {error.reason}", code=error.code
        ) from None
    except AttributeError:
        pass  # an unrelated class with the same name
    if kind == "Feature" and "dali" in type(feature).__module__:
        raise SchemaError(
            f"feature {name!r}: cannot read the fields of DALI's Feature; import "
            "fastrec.compat.dali_tfrecord as tfrec and use its Feature"
        )
    raise SchemaError(
        f"feature {name!r} must be a spec such as fr.FixedLen or fr.VarLen, a tf.io "
        f'spec, or a dtype name such as "int64", got {feature!r}'
    )


def _argument(value: Any) -> Any:
    """Return a shape, tensor, dtype or partition of TensorFlow as an argument."""
    if isinstance(value, (list, tuple)):
        return [_argument(item) for item in value]
    if hasattr(value, "as_list"):
        return value.as_list()
    if hasattr(value, "numpy"):
        return value.numpy()
    kind = type(value).__name__
    if kind == "UniformRowLength":
        return Ragged.UniformRowLength(value.length)
    partition = getattr(Ragged, kind, None)
    if isinstance(partition, type) and issubclass(partition, Keyed):
        return partition(value.key)
    name = getattr(value, "name", None)
    is_dtype = isinstance(name, str) and not isinstance(value, np.dtype)
    return name if is_dtype else value
