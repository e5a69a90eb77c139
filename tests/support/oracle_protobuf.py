"""tf.train.Example and SequenceExample for google.protobuf, without TensorFlow."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.internal import api_implementation

from fastrec.compat import tf_train

# The implementation in Python, which free-threaded Python gets, loses values of features
# with several lists, and writes features in the order of their dict.
needs_upb = pytest.mark.skipif(
    api_implementation.Type() == "python",
    reason="protobuf is not implemented in C here",
)


def values_of(feature: Any) -> tuple[str, list[Any]] | None:
    """Return the kind and the values of a Feature message."""
    field = feature.WhichOneof("kind")
    if field is None:
        return None
    return field.removesuffix("_list"), list(getattr(feature, field).value)


def features_by_protobuf(record: bytes) -> dict[bytes, tuple[str, list[Any]] | None]:
    """Return all features of a record; raise if protobuf rejects it."""
    parsed = tf_train.Example.FromString(record)
    found = parsed.features.feature
    return {key.encode(): values_of(feature) for key, feature in found.items()}


def sequence_by_protobuf(record: bytes) -> tuple[dict[bytes, Any], dict[bytes, Any]]:
    """Return the context and feature lists of a record; raise if it is rejected."""
    parsed = tf_train.SequenceExample.FromString(record)
    context = {k.encode(): values_of(v) for k, v in parsed.context.feature.items()}
    lists = {
        key.encode(): [values_of(step) for step in steps.feature]
        for key, steps in parsed.feature_lists.feature_list.items()
    }
    return context, lists
