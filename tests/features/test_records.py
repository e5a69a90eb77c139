"""Whole records: the spec Record, and records that are not Examples.

Goal
    A Record column has the bytes of every record, unparsed, wherever other columns work.
    Files of other messages are read this way without features=; with features=, the error
    says what a record looks like. Everything that reads Examples agrees on what one is.
Method
    Records of several formats, and the list that was written as the oracle.
"""

from __future__ import annotations

import gzip
import pickle
import struct
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from fastrec.compat import tf_io
from oracle import tfrecord_file

EXAMPLE = fr.encode_example({"label": 3})
RECORD = {"record": fr.Record()}


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


KINDS = {
    "text": (b"hello, world\n", "UTF-8 text"),
    "jpeg": (b"\xff\xd8\xff\xe0" + b"-" * 20, "a JPEG file"),
    "noise": (bytes(range(200, 250)), "50 bytes of an unknown format"),
    "tensor": (tf_io.serialize_tensor([1, 2]), "a serialized tensor"),
    # tensorflow.Event: wall_time = 1, file_version = 3
    "event": (
        b"\x09" + struct.pack("<d", 1e9) + field(3, b"brain.Event:2"),
        "a serialized protobuf message with fields 1, 3",
    ),
    # ExampleListWithContext: examples = 1, context = 2
    "elwc": (
        field(1, EXAMPLE) * 2 + field(2, EXAMPLE),
        "a serialized protobuf message with fields 1, 2",
    ),
    "elwc without a context": (
        field(1, EXAMPLE) * 2,
        "a serialized protobuf message with fields 1",
    ),
    # Of examples with several features, the last entry would be the key.
    "elwc of features": (
        field(1, fr.encode_example({"a": 1, "b": [2.5], "c": "text"})) * 2,
        "a serialized protobuf message with fields 1",
    ),
    "bytes in a list": (
        field(1, b"\x00\xff") + field(1, b""),
        "a serialized protobuf message with fields 1",
    ),
    "strings in a list": (
        field(1, field(1, b"\x0a\x03key")) * 2,
        "a serialized protobuf message with fields 1",
    ),
    # Scenario: timestamps_seconds = 1, scenario_id = 5, sdc_track_index = 6
    "scenario": (
        (b"\x09" + bytes(8)) * 3 + field(5, b"id") + b"\x30\x01",
        "a serialized protobuf message with fields 1, 5, 6",
    ),
}
kinds = pytest.mark.parametrize(("record", "looks"), KINDS.values(), ids=KINDS)
compressions = pytest.mark.parametrize("compress", [bytes, gzip.compress])


def opened(write: Write, records: Sequence[bytes], **options: Untyped) -> Untyped:
    return open_dataset(write(tfrecord_file(records)), **options)


@compressions
@kinds
def test_other_messages_are_read_as_records(
    write: Write, record: bytes, looks: str, compress: Callable[[bytes], bytes]
) -> None:
    ds = open_dataset(write(compress(tfrecord_file([record] * 3))))
    assert dict(ds.schema) == RECORD
    assert eval(str(ds.schema)) == RECORD
    assert looks in str(ds.schema)
    assert [row["record"] for row in ds] == [record] * 3
    assert dict(ds.infer_schema(sample=None)) == RECORD


@kinds
@pytest.mark.parametrize("on_error", ["skip", "resync", "mask"])
def test_other_messages_are_read_with_any_error_policy(
    write: Write,
    record: bytes,
    looks: str,  # noqa: ARG001
    on_error: str,
) -> None:
    ds = opened(write, [record] * 3, on_error=on_error)
    (batch,) = ds.loader(3)
    assert batch["record"].tolist() == [record] * 3


@compressions
@kinds
def test_features_of_other_messages_raise(
    write: Write, record: bytes, looks: str, compress: Callable[[bytes], bytes]
) -> None:
    path = write(compress(tfrecord_file([record] * 3)))
    with pytest.raises((fr.DecodeError, fr.SchemaError)) as caught:
        next(iter(open_dataset(path, features={"label": "int64"}).loader(1)))
    assert f"not a tf.train.Example but looks like {looks}" in str(caught.value)
    assert "fr.Record()" in str(caught.value)
    assert (caught.value.path, caught.value.record) == (str(path), 0)
    with pytest.raises(fr.SchemaError, match=r"fr\.Record\(\)") as caught:
        open_dataset(path, features=["label"]).schema  # noqa: B018
    assert looks in str(caught.value)


@compressions
@kinds
def test_optional_features_of_other_messages_raise(
    write: Write, record: bytes, looks: str, compress: Callable[[bytes], bytes]
) -> None:
    """Their columns would be empty, and no error would say why."""
    optional = {
        "label": fr.VarLen("int64"),
        "weight": fr.FixedLen((), "float32", default=1.0),
    }
    path = write(compress(tfrecord_file([EXAMPLE, record, EXAMPLE])))
    text = f"not a tf.train.Example but looks like {looks}"
    with pytest.raises(fr.DecodeError) as caught:
        list(open_dataset(path, features=optional).loader(4))
    assert text in str(caught.value)
    assert caught.value.record == 1
    loader = open_dataset(path, features=optional, on_error="skip").loader(4)
    (batch,) = loader
    assert batch["label"].tolist() == [[3], [3]]
    assert loader.report.records_lost == 1
    for read in (
        lambda: fr.parse_example([EXAMPLE, record], optional),
        lambda: tf_io.parse_single_example(record, optional),
        lambda: fr.parse_sequence_example([record], optional),
        lambda: fr.decode_example(record),
        lambda: fr.decode_sequence_example(record),
    ):
        with pytest.raises(fr.DecodeError):
            read()


def entry(*parts: bytes) -> bytes:
    return field(1, b"".join(parts))


@pytest.mark.parametrize(
    "record",
    [
        b"",
        field(1, b""),
        field(1, b"") * 2,
        field(1, entry(field(1, b"unset"), field(2, b""))),
        field(1, entry(field(1, b"\xff\x00"), field(2, b""))),
        field(1, entry(field(1, b"no value")) + entry(field(1, b"x"), field(2, b""))),
        field(1, entry(field(1, b"no value"))) + EXAMPLE,
        EXAMPLE + b"\x18\x05",
    ],
)
def test_examples_without_the_features_have_empty_rows(
    write: Write, record: bytes
) -> None:
    spec = {"other": fr.VarLen("int64"), "no value": fr.VarLen("bytes")}
    ds = opened(write, [record] * 20, features=spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fr.MissingFeatureWarning)
        rows = [row for batch in ds.loader(20) for row in batch["other"].tolist()]
    assert rows == [[]] * 20
    assert tf_io.parse_single_example(record, spec)["other"].tolist() == []
    assert all(
        values is None or name == "label"
        for name, values in fr.decode_example(record).items()
    )


def test_errors_about_examples_do_not_mention_other_messages(write: Write) -> None:
    for record in (EXAMPLE, b""):
        with pytest.raises(fr.SchemaError) as caught:
            opened(write, [record], features={"other": "int64"})[0]
        assert "not a tf.train.Example" not in str(caught.value)


def test_one_foreign_record_among_examples_raises(write: Write) -> None:
    ds = opened(write, [EXAMPLE, KINDS["text"][0]])
    with pytest.raises(fr.DecodeError, match="other records are Examples") as caught:
        ds.schema  # noqa: B018
    assert caught.value.record == 1
    assert list(opened(write, [EXAMPLE, b"\xff"], on_error="skip").schema) == ["label"]


# The column.


RECORDS = [b"record %d" % i * (i % 5) for i in range(50)]


def test_random_access(write: Write) -> None:
    ds = opened(write, RECORDS, features=RECORD)
    assert ds[7]["record"] == RECORDS[7]
    assert ds[10:20]["record"].tolist() == RECORDS[10:20]
    assert ds[[3, 1, 2]]["record"].tolist() == [RECORDS[i] for i in (3, 1, 2)]
    assert ds.select(range(0, 50, 7))[1]["record"] == RECORDS[7]
    kept = ds.filter(lambda batch: batch["record"].lengths > 20)
    assert [row["record"] for row in kept] == [r for r in RECORDS if len(r) > 20]


@pytest.mark.parametrize("shuffle", [True, fr.Blocks(4), fr.Window(8)])
@pytest.mark.parametrize("num_threads", [0, 2])
def test_shuffled_on_ranks(write: Write, shuffle: Untyped, num_threads: int) -> None:
    ds = opened(write, RECORDS, features=RECORD)
    seen = [
        record
        for rank in range(2)
        for batch in ds.loader(
            4, shuffle=shuffle, rank=rank, world_size=2, num_threads=num_threads
        )
        for record in batch["record"]
    ]
    assert sorted(seen) == sorted(RECORDS)
    assert seen != RECORDS


def test_resume_in_a_stream(write: Write) -> None:
    path = write(gzip.compress(tfrecord_file(RECORDS)))
    ds = open_dataset(path, features=RECORD)
    loader = ds.loader(8, shuffle=fr.Window(16))
    batches = iter(loader)
    first = [next(batches) for _ in range(3)]
    state = loader.state_dict()
    rest = [batch["record"].tolist() for batch in batches]
    resumed = ds.loader(8, shuffle=fr.Window(16))
    resumed.load_state_dict(state)
    assert [batch["record"].tolist() for batch in resumed] == rest
    assert sum(len(batch["record"]) for batch in first) + sum(map(len, rest)) == 50


def test_padding_is_empty(write: Write) -> None:
    ds = opened(write, RECORDS[:3], features=RECORD)
    (batch,) = ds.loader(4, pad_last=True)
    assert batch["record"].tolist() == [*RECORDS[:3], b""]


@compressions
def test_records_next_to_features(
    write: Write, compress: Callable[[bytes], bytes]
) -> None:
    records = [fr.encode_example({"label": i}) for i in range(5)]
    spec = {"all": fr.Record(), "label": fr.FixedLen((), "int64"), "too": fr.Record()}
    ds = open_dataset(write(compress(tfrecord_file(records))), features=spec)
    (batch,) = ds.loader(5)
    assert batch["all"].tolist() == batch["too"].tolist() == records
    assert batch["label"].tolist() == list(range(5))
    assert fr.parse_example(records, spec)["all"].tolist() == records


def test_records_next_to_the_context_of_sequences(write: Write) -> None:
    record = fr.encode_sequence_example(
        context={"id": 7}, feature_lists={"frames": [[1.0], [2.0]]}
    )
    ds = opened(
        write,
        [record],
        context_features={"id": "int64", "record": fr.Record()},
        sequence_features={"frames": fr.FixedLenSequence((), "float32")},
    )
    assert ds[0]["record"] == record
    assert ds[0]["id"] == 7
    with pytest.raises(fr.SchemaError, match="got Record"):
        opened(write, [record], sequence_features=RECORD)


def test_the_round_trip_through_a_writer(write: Write, tmp_path: Path) -> None:
    ds = opened(write, RECORDS, features=RECORD)
    path = tmp_path / "copy.tfrecord"
    with fr.Writer(path) as writer:
        for batch in ds.loader(16):
            for record in batch["record"]:
                writer.write_record(record)
    assert path.read_bytes() == Path(ds.files[0]).read_bytes()
    with (
        fr.Writer(tmp_path / "no", features=RECORD) as writer,
        pytest.raises(TypeError, match="write_record"),
    ):
        writer.write_batch({"record": RECORDS})


def test_record_is_a_spec_without_arguments() -> None:
    assert repr(fr.Record()) == "Record()"
    assert fr.Record() == pickle.loads(pickle.dumps(fr.Record()))
    spec: Untyped = fr.Record
    with pytest.raises(TypeError):
        spec(key="x")
