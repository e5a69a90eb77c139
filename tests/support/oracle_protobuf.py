"""tf.train.Example and SequenceExample for google.protobuf, without TensorFlow."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.protobuf.internal import api_implementation

# The implementation in Python, which free-threaded Python gets, loses values of features
# with several lists, and writes features in the order of their dict.
needs_upb = pytest.mark.skipif(
    api_implementation.Type() == "python",
    reason="protobuf is not implemented in C here",
)

Field = descriptor_pb2.FieldDescriptorProto


@cache
def pool() -> Any:  # noqa: ANN401
    """Return a descriptor pool with all messages."""
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="oracle", syntax="proto3"
    )
    kinds = {
        "Bytes": Field.TYPE_BYTES,
        "Float": Field.TYPE_FLOAT,
        "Int64": Field.TYPE_INT64,
    }
    for name, value_type in kinds.items():
        values = file.message_type.add(name=f"{name}List")
        values.field.add(
            name="value", number=1, type=value_type, label=Field.LABEL_REPEATED
        )

    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(kinds, 1):
        feature.field.add(
            name=f"{name.lower()}_list",
            number=number,
            type=Field.TYPE_MESSAGE,
            label=Field.LABEL_OPTIONAL,
            type_name=f".oracle.{name}List",
            oneof_index=0,
        )

    optional = Field.LABEL_OPTIONAL
    feature_list = file.message_type.add(name="FeatureList")
    feature_list.field.add(
        name="feature",
        number=1,
        type=Field.TYPE_MESSAGE,
        label=Field.LABEL_REPEATED,
        type_name=".oracle.Feature",
    )
    for name, field, value_type in (
        ("Features", "feature", "Feature"),
        ("FeatureLists", "feature_list", "FeatureList"),
    ):
        entry_name = f"{value_type}Entry"
        features = file.message_type.add(name=name)
        entry = features.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=optional)
        entry.field.add(
            name="value",
            number=2,
            type=Field.TYPE_MESSAGE,
            label=optional,
            type_name=f".oracle.{value_type}",
        )
        features.field.add(
            name=field,
            number=1,
            type=Field.TYPE_MESSAGE,
            label=Field.LABEL_REPEATED,
            type_name=f".oracle.{name}.{entry_name}",
        )

    for name, parts in (
        ("Example", {"features": "Features"}),
        ("SequenceExample", {"context": "Features", "feature_lists": "FeatureLists"}),
    ):
        example = file.message_type.add(name=name)
        for number, (field, part_type) in enumerate(parts.items(), 1):
            example.field.add(
                name=field,
                number=number,
                type=Field.TYPE_MESSAGE,
                label=optional,
                type_name=f".oracle.{part_type}",
            )
    found = descriptor_pool.DescriptorPool()
    found.Add(file)
    return found


@cache
def example_class() -> Any:  # noqa: ANN401
    """Return the message class of tf.train.Example."""
    descriptor = pool().FindMessageTypeByName("oracle.Example")
    return message_factory.GetMessageClass(descriptor)


@cache
def sequence_class() -> Any:  # noqa: ANN401
    """Return the message class of tf.train.SequenceExample."""
    descriptor = pool().FindMessageTypeByName("oracle.SequenceExample")
    return message_factory.GetMessageClass(descriptor)


def values_of(feature: Any) -> tuple[str, list[Any]] | None:  # noqa: ANN401
    """Return the kind and the values of a Feature message."""
    field = feature.WhichOneof("kind")
    if field is None:
        return None
    return field.removesuffix("_list"), list(getattr(feature, field).value)


def features_by_protobuf(record: bytes) -> dict[bytes, tuple[str, list[Any]] | None]:
    """Return all features of a record; raise if protobuf rejects it."""
    parsed = example_class().FromString(record)
    found = parsed.features.feature
    return {key.encode(): values_of(feature) for key, feature in found.items()}


def sequence_by_protobuf(record: bytes) -> tuple[dict[bytes, Any], dict[bytes, Any]]:
    """Return the context and feature lists of a record; raise if it is rejected."""
    parsed = sequence_class().FromString(record)
    context = {k.encode(): values_of(v) for k, v in parsed.context.feature.items()}
    lists = {
        key.encode(): [values_of(step) for step in steps.feature]
        for key, steps in parsed.feature_lists.feature_list.items()
    }
    return context, lists
