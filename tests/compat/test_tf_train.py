"""The messages of tf.train without TensorFlow.

Goal
    Functions such as `_int64_feature` of TensorFlow's guide run with
    fastrec.compat.tf_train. Serialized bytes and parsed fields equal those of TensorFlow.
Method
    The functions of the guide; messages that fastrec encodes and decodes by itself. Tests
    marked "oracle" build random messages with TensorFlow's classes, and use its parsers,
    also on real files.
"""

from __future__ import annotations

import copy
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pool, message

import fastrec as fr
from fastrec.compat import tf_io, tf_train


def _bytes_feature(value: Any) -> Any:
    """The function of the guide, without eager tensors."""
    return tf_train.Feature(bytes_list=tf_train.BytesList(value=[value]))


def _float_feature(value: Any) -> Any:
    return tf_train.Feature(float_list=tf_train.FloatList(value=[value]))


def _int64_feature(value: Any) -> Any:
    return tf_train.Feature(int64_list=tf_train.Int64List(value=[value]))


def test_the_program_of_the_tf_train_guide_runs(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    with tf_io.TFRecordWriter(path) as writer:
        for i in range(3):
            feature = {
                "flag": _int64_feature(i % 2),
                "index": _int64_feature(i),
                "name": _bytes_feature(b"goat"),
                "value": _float_feature(np.exp(i)),
            }
            example_proto = tf_train.Example(
                features=tf_train.Features(feature=feature)
            )
            writer.write(example_proto.SerializeToString())
    records = list(tf_io.TFRecordDataset([path]))
    batch = fr.parse_example(records, {"index": "int64", "flag": "int64"})
    assert (batch["index"].tolist(), batch["flag"].tolist()) == ([0, 1, 2], [0, 1, 0])
    example = tf_train.Example()
    example.ParseFromString(records[2])
    result = {}
    for key, found in example.features.feature.items():
        kind = found.WhichOneof("kind")
        assert kind is not None
        result[key] = np.array(getattr(found, kind).value)
    assert result["name"].tolist() == [b"goat"]
    assert result["value"][0] == np.float32(np.exp(2))
    assert example.features.feature["index"].int64_list.value[0] == 2
    assert _int64_feature(1).SerializeToString() == b"\x1a\x03\n\x01\x01"


def test_messages_are_built_step_by_step() -> None:
    example = tf_train.SequenceExample()
    example.context.feature["length"].int64_list.value.append(2)
    tokens = example.feature_lists.feature_list["tokens"]
    for token in (b"a", b"b"):
        tokens.feature.add().bytes_list.value.append(token)
    tokens.feature.append(tf_train.Feature())
    record = example.SerializeToString()
    context, sequences = fr.decode_sequence_example(record)
    assert context["length"].tolist() == [2]
    assert [s if s is None else s.tolist() for s in sequences["tokens"]] == [
        *([b"a"], [b"b"]),
        None,
    ]
    again = tf_train.SequenceExample.FromString(record)
    assert again == example
    assert again.SerializeToString() == record
    assert [list(f.bytes_list.value) for f in again.feature_lists.feature_list["tokens"].feature] == [[b"a"], [b"b"], []]  # fmt: skip


def test_changing_a_list_unsets_the_others() -> None:
    feature = tf_train.Feature(bytes_list=tf_train.BytesList(value=[b"a"]))
    assert list(feature.int64_list.value) == []
    assert feature.WhichOneof("kind") == "bytes_list"
    feature.int64_list.value.extend([1, 2])
    assert feature.WhichOneof("kind") == "int64_list"
    assert (feature.HasField("int64_list"), feature.HasField("bytes_list")) == (
        True,
        False,
    )
    assert list(feature.bytes_list.value) == []
    other = tf_train.Feature()
    other.CopyFrom(feature)
    feature.int64_list.value[0] = 7
    assert list(other.int64_list.value) == [1, 2]
    other.Clear()
    assert other.WhichOneof("kind") is None
    other.float_list.CopyFrom(tf_train.FloatList())
    assert other.WhichOneof("kind") == "float_list"


def test_constructors_copy_messages() -> None:
    feature = _int64_feature(1)
    features = tf_train.Features(feature={"a": feature})
    feature.int64_list.value.append(2)
    assert list(features.feature["a"].int64_list.value) == [1]
    for copied in (copy.deepcopy(features), pickle.loads(pickle.dumps(features))):
        assert copied == features
        copied.feature["a"].int64_list.value.append(3)
        assert copied != features


def test_messages_are_those_of_protobuf() -> None:
    features = tf_train.Features(feature={"a": tf_train.Feature()})
    example = tf_train.Example(features=features)
    assert isinstance(example, message.Message)
    assert str(example).split() == [
        "features",
        "{",
        "feature",
        "{",
        "key:",
        '"a"',
        "value",
        "{",
        "}",
        "}",
        "}",
    ]
    with pytest.raises(message.DecodeError):
        tf_train.Example.FromString(b"\xff")
    with pytest.raises(TypeError):
        tf_train.Int64List(value=[1.5])


def test_descriptors_do_not_clash_with_those_of_tensorflow() -> None:
    descriptor = tf_train.Example.DESCRIPTOR
    assert descriptor.full_name == "tensorflow.Example"
    assert descriptor.file.pool is not descriptor_pool.Default()


def test_records_are_those_of_encode_example() -> None:
    row = {"b": 3, "a": [b"x", b""], "c": np.array([0.5, 2.0], np.float32)}
    record = fr.encode_example(row)
    example = tf_train.Example.FromString(record)
    assert example.SerializeToString(deterministic=True) == fr.encode_example(
        dict(sorted(row.items()))
    )
    assert list(example.features.feature["a"].bytes_list.value) == [b"x", b""]


# Against TensorFlow.

KEYS = ["a", "", "ab", "abc", "b", "\xe9", "a\0"]


def random_feature(rng: random.Random) -> dict[str, list[Any]]:
    """Return one value list of a feature, or none."""
    n = rng.choice((0, 1, 1, 3, 200))
    kind = rng.choice(("", "int64_list", "float_list", "bytes_list"))
    if not kind:
        return {}
    values: list[Any] = [
        rng.randrange(-(2**63), 2**63) >> rng.randrange(64) for _ in range(n)
    ]
    if kind == "float_list":
        values = [
            rng.choice((0.1, -0.0, 1e300, 5, float("inf"), 1e-45)) for _ in range(n)
        ]
    if kind == "bytes_list":
        values = [rng.randbytes(rng.randrange(300)) for _ in range(n)]
    return {kind: values}


def feature_of(train: Any, lists: dict[str, list[Any]]) -> Any:
    classes = {
        "int64_list": train.Int64List,
        "float_list": train.FloatList,
        "bytes_list": train.BytesList,
    }
    made = {kind: classes[kind](value=values) for kind, values in lists.items()}
    return train.Feature(**made)


def random_message(seed: int, train: Any) -> Any:
    """Return an Example or SequenceExample that depends on the seed alone."""
    rng = random.Random(seed)
    keys = rng.sample(KEYS, rng.randrange(len(KEYS)))
    features = train.Features(
        feature={key: feature_of(train, random_feature(rng)) for key in keys}
    )
    if seed % 2:
        return train.Example(features=features)
    lists = {
        key: train.FeatureList(
            feature=[
                feature_of(train, random_feature(rng)) for _ in range(rng.randrange(3))
            ]
        )
        for key in keys
    }
    return train.SequenceExample(
        context=features if rng.random() < 0.8 else None,
        feature_lists=train.FeatureLists(feature_list=lists),
    )


@pytest.mark.oracle
def test_serialized_bytes_equal_tensorflows() -> None:
    tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow")
    for seed in range(400):
        theirs = random_message(seed, tf.train)
        ours = random_message(seed, tf_train)
        record = ours.SerializeToString(deterministic=True)
        assert record == theirs.SerializeToString(deterministic=True), seed
        assert ours.ByteSize() == theirs.ByteSize()
        assert type(ours).FromString(theirs.SerializeToString()) == ours


@pytest.mark.oracle
@pytest.mark.parametrize(
    "name",
    [
        "mnist-1000.tfrecord",
        "taxi-train-00000-of-00012.gz",
        "penguin-train.gz",
        "sequence-eval.gz",
    ],
)
def test_real_records_parse_and_serialize(testdata: Path, name: str) -> None:
    tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow")
    is_sequence = name.startswith("sequence")
    message = "SequenceExample" if is_sequence else "Example"
    file = str(testdata / name)
    records = list(tf_io.TFRecordDataset(file, "GZIP" if name.endswith(".gz") else ""))
    kind = "GZIP" if name.endswith(".gz") else ""
    assert records == [r.numpy() for r in tf.data.TFRecordDataset(file, kind)]
    for record in records[:300]:
        theirs = getattr(tf.train, message).FromString(record)
        ours = getattr(tf_train, message).FromString(record)
        written = ours.SerializeToString(deterministic=True)
        assert written == theirs.SerializeToString(deterministic=True)
        features = theirs.context if is_sequence else theirs.features
        context: Any
        if is_sequence:
            context, sequences = fr.decode_sequence_example(record)
            lists = theirs.feature_lists.feature_list
            assert sequences.keys() == lists.keys()
            for key, steps in sequences.items():
                wanted = [values_of(step) for step in lists[key].feature]
                assert [listed(step) for step in steps] == wanted
        else:
            context = fr.decode_example(record)
        assert {key: listed(values) for key, values in context.items()} == {
            key: values_of(feature) for key, feature in features.feature.items()
        }


def values_of(feature: Any) -> Any:
    """Return the values that protobuf parses, and their kind."""
    kind = feature.WhichOneof("kind")
    if kind is None:
        return None
    return kind, list(getattr(feature, kind).value)


def listed(values: Any) -> Any:
    """Return decoded values and their kind in the same form."""
    if values is None:
        return None
    if isinstance(values, fr.BytesArray):
        return "bytes_list", values.tolist()
    kinds = {"int64": "int64_list", "float32": "float_list"}
    return kinds[values.dtype.name], values.tolist()
