"""Convert tf.io specs and dtype names to fastrec specs.

Classes are recognised by name, so that TensorFlow is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastrec.errors import SchemaError
from fastrec.features.base import Spec
from fastrec.features.fixed import FixedLen, VarLen
from fastrec.features.padded import FixedLenSequence
from fastrec.features.ragged import Partition, Ragged
from fastrec.features.sparse import Sparse


def as_spec(name: str | bytes, feature: object) -> Spec:
    """Return a column's spec, tf.io spec or dtype name as a spec."""
    if isinstance(feature, Spec):
        return feature
    try:
        if isinstance(feature, str):
            return FixedLen((), _TFRECORD_DTYPES.get(feature, feature))
        convert = _CONVERTERS.get(type(feature).__name__)
        if convert is not None:
            return convert(feature)
    except SchemaError as error:
        raise SchemaError(
            f"feature {name!r}: {error.reason}", code=error.code
        ) from None
    except AttributeError:
        pass  # an unrelated class with the same name
    if type(feature).__name__ == "Feature" and "dali" in type(feature).__module__:
        raise SchemaError(
            f"feature {name!r}: cannot read the fields of DALI's Feature; import "
            "fastrec.compat.dali_tfrecord as tfrec and use its Feature"
        )
    raise SchemaError(
        f"feature {name!r} must be a spec such as fr.FixedLen or fr.VarLen, a tf.io "
        f'spec, or a dtype name such as "int64", got {feature!r}'
    )


def _dtype(dtype: Any) -> Any:
    """Return the name of a TensorFlow dtype; any other dtype unchanged."""
    name = getattr(dtype, "name", None)
    is_foreign = isinstance(name, str) and not isinstance(dtype, np.dtype)
    return name if is_foreign else dtype


def _shape(shape: Any) -> Any:
    return shape.as_list() if hasattr(shape, "as_list") else shape


def _default(default: Any) -> Any:
    return default.numpy() if hasattr(default, "numpy") else default


def _fixed_len(feature: Any) -> Spec:
    shape, default = _shape(feature.shape), _default(feature.default_value)
    return FixedLen(shape, _dtype(feature.dtype), default)


def _fixed_len_sequence(feature: Any) -> Spec:
    default = np.asarray(_default(feature.default_value)).reshape(-1).tolist()
    return FixedLenSequence(
        _shape(feature.shape),
        _dtype(feature.dtype),
        None if feature.default_value is None else default,
        feature.allow_missing,
    )


def _var_len(feature: Any) -> Spec:
    return VarLen(_dtype(feature.dtype))


def _ragged(feature: Any) -> Spec:
    return Ragged(
        _dtype(feature.dtype),
        [_partition(partition) for partition in feature.partitions],
        _dtype(feature.row_splits_dtype),
        key=feature.value_key,
    )


def _partition(partition: Any) -> Partition:
    kind = type(partition).__name__
    if kind == "UniformRowLength":
        return Ragged.UniformRowLength(partition.length)
    keyed = {
        "RowSplits": Ragged.RowSplits,
        "RowLengths": Ragged.RowLengths,
        "RowStarts": Ragged.RowStarts,
        "RowLimits": Ragged.RowLimits,
        "ValueRowIds": Ragged.ValueRowIds,
    }
    if kind not in keyed:
        raise SchemaError(f"unknown partition type {partition!r}")
    return keyed[kind](partition.key)


def _sparse(feature: Any) -> Spec:
    return Sparse(
        feature.index_key,
        feature.value_key,
        _dtype(feature.dtype),
        feature.size,
        feature.already_sorted,
    )


# The tfrecord package's dtype names. NumPy's "byte" and "float" mean other dtypes.
_TFRECORD_DTYPES = {"byte": "bytes", "int": "int64", "float": "float32"}

_CONVERTERS: Mapping[str, Callable[[Any], Spec]] = {
    "FixedLenFeature": _fixed_len,
    "FixedLenSequenceFeature": _fixed_len_sequence,
    "VarLenFeature": _var_len,
    "RaggedFeature": _ragged,
    "SparseFeature": _sparse,
}
