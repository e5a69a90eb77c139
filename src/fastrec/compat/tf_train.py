"""Drop-in replacement for the messages of tf.train, without TensorFlow.

Code that builds or reads a ``tf.train.Example`` by hand runs unchanged:

>>> from fastrec.compat import tf_train as train
>>> def _int64_feature(value):
...     return train.Feature(int64_list=train.Int64List(value=[value]))
>>> features = train.Features(feature={"label": _int64_feature(3)})
>>> record = train.Example(features=features).SerializeToString()
>>> train.Example.FromString(record).features.feature["label"].int64_list.value[0]
3

The classes are protobuf messages: the lists `BytesList`, `FloatList`, `Int64List` and
`FeatureList`; `Feature`, which contains one list; the maps `Features` and
`FeatureLists`; and the records `Example` and `SequenceExample`. The module requires the
package protobuf (``pip install "fastrec-io[compat]"``).

`fastrec.encode_example` and `fastrec.decode_example` convert an Example in one call.
"""

from __future__ import annotations

from typing import Any

from fastrec.options import extra

with extra("compat", "fastrec.compat.tf_train"):
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        message_factory,
        text_format,
    )

__all__ = [
    "BytesList",
    "Example",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FloatList",
    "Int64List",
    "SequenceExample",
]

# TensorFlow's example.proto and feature.proto.
_FILE = """
name: "example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type_name: "BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type_name: "FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type_name: "Int64List" oneof_index: 0 } }
message_type { name: "Features"
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type_name: "Feature" } }
  field { name: "feature" number: 1 label: LABEL_REPEATED type_name: "FeatureEntry" } }
message_type { name: "FeatureList"
  field { name: "feature" number: 1 label: LABEL_REPEATED type_name: "Feature" } }
message_type { name: "FeatureLists"
  nested_type { name: "FeatureListEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type_name: "FeatureList" } }
  field {
    name: "feature_list" number: 1 label: LABEL_REPEATED type_name: "FeatureListEntry" } }
message_type { name: "Example"
  field { name: "features" number: 1 type_name: "Features" } }
message_type { name: "SequenceExample"
  field { name: "context" number: 1 type_name: "Features" }
  field { name: "feature_lists" number: 2 type_name: "FeatureLists" } }
"""

# Use a separate pool: importing TensorFlow adds these names to the default pool.
_pool = descriptor_pool.DescriptorPool()
_pool.Add(text_format.Parse(_FILE, descriptor_pb2.FileDescriptorProto()))


def _class_of(name: str) -> Any:
    descriptor = _pool.FindMessageTypeByName(f"tensorflow.{name}")
    message = message_factory.GetMessageClass(descriptor)
    message.__module__ = __name__  # for pickle
    return message


BytesList = _class_of("BytesList")
FloatList = _class_of("FloatList")
Int64List = _class_of("Int64List")
Feature = _class_of("Feature")
Features = _class_of("Features")
FeatureList = _class_of("FeatureList")
FeatureLists = _class_of("FeatureLists")
Example = _class_of("Example")
SequenceExample = _class_of("SequenceExample")
