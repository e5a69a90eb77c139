"""tf.train.Example for google.protobuf, without TensorFlow: a second opinion."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

__all__ = ["example_class", "features_by_protobuf"]

Field = descriptor_pb2.FieldDescriptorProto


@cache
def example_class() -> Any:  # noqa: ANN401
    """The message class of tf.train.Example."""
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

    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    optional = Field.LABEL_OPTIONAL
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=optional)
    entry.field.add(
        name="value",
        number=2,
        type=Field.TYPE_MESSAGE,
        label=optional,
        type_name=".oracle.Feature",
    )
    features.field.add(
        name="feature",
        number=1,
        type=Field.TYPE_MESSAGE,
        label=Field.LABEL_REPEATED,
        type_name=".oracle.Features.FeatureEntry",
    )

    example = file.message_type.add(name="Example")
    example.field.add(
        name="features",
        number=1,
        type=Field.TYPE_MESSAGE,
        label=optional,
        type_name=".oracle.Features",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName("oracle.Example")
    return message_factory.GetMessageClass(descriptor)


def features_by_protobuf(record: bytes) -> dict[bytes, tuple[str, list[Any]] | None]:
    """All features of a record; raises where protobuf refuses it."""
    parsed = example_class().FromString(record)
    found: dict[bytes, tuple[str, list[Any]] | None] = {}
    for key, feature in parsed.features.feature.items():
        field = feature.WhichOneof("kind")
        if field is None:
            found[key.encode()] = None
        else:
            kind = field.removesuffix("_list")
            found[key.encode()] = (kind, list(getattr(feature, field).value))
    return found
