"""TensorFlow reads what fastrec wrote: every kind and shape, sequences, compressed, sharded.

Goal
    Files of `Writer` mean to TensorFlow what they were meant to mean: tf.data reads their
    records, and tf.io's parsers find equal values, by the specs of the same name.
Method
    Random columns of every form, written in every way that files can be, read back with
    tf.data.TFRecordDataset and tf.io.parse_example, parse_sequence_example and
    decode_raw. Needs TensorFlow: run with `-m oracle`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped
from oracle_tensorflow import plain, tf

pytestmark = pytest.mark.oracle

N = 257
PATTERN = "train-{shard:05d}-of-{num_shards:05d}.tfrecord"
FILES: dict[str, dict[str, Any]] = {
    "one": {},
    "gzip": {"compression": "GZIP"},
    "gzip, stored": {"compression": "GZIP", "compression_level": 0},
    "zlib": {"compression": "ZLIB"},
    "zlib, best": {"compression": "ZLIB", "compression_level": 9},
    "shards by records": {"max_shard_records": 50},
    "shards by bytes": {"max_shard_bytes": "64KB", "compression": "GZIP"},
    "dealt shards": {"num_shards": 7, "compression": "ZLIB"},
}


@pytest.fixture(params=FILES)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return FILES[request.param]


def target(folder: Path, options: dict[str, Any]) -> Path:
    return folder / (PATTERN if "shard" in str(options) else "data.tfrecord")


def records_by_tensorflow(files: list[str], options: dict[str, Any]) -> Untyped:
    """All records in the order in which they were written."""
    compression = options.get("compression", "")
    shards = [
        [record.numpy() for record in tf.data.TFRecordDataset(file, compression)]
        for file in files
    ]
    found = [record for shard in shards for record in shard]
    if "num_shards" in options:
        found = [shards[i % len(shards)][i // len(shards)] for i in range(len(found))]
    return tf.constant(found, tf.string)


def fixed(shape: Untyped, dtype: Untyped, default: Untyped = None) -> Untyped:
    return tf.io.FixedLenFeature(shape, dtype, default)


def random_columns(rng: np.random.Generator) -> dict[str, Any]:
    lengths = rng.integers(0, 5, N)
    is_there = rng.integers(0, 2, N).astype(bool)
    words = [[rng.bytes(int(k)) for k in rng.integers(0, 200, 3)] for _ in range(N)]
    ints = rng.integers(-(2**63), 2**63 - 1, N) >> rng.integers(0, 64, N)
    return {
        "int": ints,
        "bool": is_there,
        "uint32": rng.integers(0, 2**32, N).astype("uint32"),
        "ints": rng.integers(-9, 9, (N, 3)).astype("int8"),
        "float": rng.standard_normal(N),
        "floats": rng.standard_normal((N, 4)).astype("float32"),
        "halves": rng.standard_normal((N, 2)).astype("float16"),
        "string": [word[0] for word in words],
        "strings": fr.BytesArray.from_list(words),
        "text": [f"\u00e9{i}" for i in range(N)],
        "ragged": fr.RaggedArray.from_list([np.arange(k) for k in lengths]),
        "ragged floats": [np.arange(k) / 8 for k in lengths],
        "ragged strings": [words[i][:k] for i, k in enumerate(lengths % 4)],
        "optional": [i if there else None for i, there in enumerate(is_there)],
        "masked": np.ma.masked_array(rng.standard_normal(N), ~is_there),
        "image": rng.integers(0, 256, (N, 5, 6), "uint8"),
        "big endian": rng.integers(-(2**31), 2**31, (N, 2)).astype("int32"),
        "doubles": rng.standard_normal((N, 2, 2)),
        "matrix": rng.standard_normal((N, 2, 3)).astype("float32"),
        "cube": rng.integers(-(2**40), 2**40, (N, 2, 1, 2)),
        "items": [rng.integers(0, 99, (int(k), 2)) for k in lengths],
        "padded": rng.standard_normal((N, 3, 2)).astype("float32"),
        "stack": rng.integers(0, 9, (N, 2)),
    }


FEATURES = {
    "image": fr.Raw((5, 6), "uint8"),
    "big endian": fr.Raw((2,), "int32", little_endian=False),
    "doubles": fr.Raw((2, 2), "float64"),
    "matrix": fr.FixedLen((2, 3), "float32"),
    "cube": fr.FixedLen((2, 1, 2), "int64", key="file/cube"),
    "items": fr.VarLen("int64", shape=(2,)),
    "padded": fr.FixedLenSequence((2,), "float32"),
    "stack": fr.Stack(["h", "w"], "int64"),
}


def of_tensorflow() -> dict[str, Any]:
    ragged = tf.io.RaggedFeature
    return {
        "int": fixed((), tf.int64),
        "bool": fixed((), tf.int64),
        "uint32": fixed((), tf.int64),
        "ints": fixed((3,), tf.int64),
        "float": fixed((), tf.float32),
        "floats": fixed((4,), tf.float32),
        "halves": fixed((2,), tf.float32),
        "string": fixed((), tf.string),
        "strings": fixed((3,), tf.string),
        "text": fixed((), tf.string),
        "ragged": ragged(tf.int64, row_splits_dtype=tf.int64),
        "ragged floats": ragged(tf.float32, row_splits_dtype=tf.int64),
        "ragged strings": ragged(tf.string, row_splits_dtype=tf.int64),
        "optional": fixed((), tf.int64, -1),
        "masked": fixed((), tf.float32, -1.0),
        "image": fixed((), tf.string),
        "big endian": fixed((), tf.string),
        "doubles": fixed((), tf.string),
        "matrix": fixed((2, 3), tf.float32),
        "file/cube": fixed((2, 1, 2), tf.int64),
        "items": tf.io.FixedLenSequenceFeature((2,), tf.int64, True, -1),
        "padded": tf.io.FixedLenSequenceFeature((2,), tf.float32, True),
        "h": fixed((), tf.int64),
        "w": fixed((), tf.int64),
    }


def assert_columns(parsed: dict[str, Any], columns: dict[str, Any]) -> None:
    """What TensorFlow parsed is what the columns hold."""
    for name in ("int", "bool", "uint32", "ints", "matrix", "padded"):
        np.testing.assert_array_equal(parsed[name].numpy(), columns[name], name)
    for name in ("float", "floats", "halves"):
        want = columns[name].astype(np.float32)
        np.testing.assert_array_equal(parsed[name].numpy(), want, name)
    assert plain(parsed["string"])[-1] == columns["string"]
    assert plain(parsed["strings"])[-1] == columns["strings"].tolist()
    assert plain(parsed["text"])[-1] == [text.encode() for text in columns["text"]]
    for name in ("ragged", "ragged floats", "ragged strings"):
        want = [list(row) for row in columns[name]]
        assert parsed[name].to_list() == want, name
    want = [-1 if value is None else value for value in columns["optional"]]
    assert plain(parsed["optional"])[-1] == want
    want = columns["masked"].filled(-1.0).astype(np.float32)
    np.testing.assert_array_equal(parsed["masked"].numpy(), want)
    for name, dtype, is_little in (
        ("image", tf.uint8, True),
        ("big endian", tf.int32, False),
        ("doubles", tf.float64, True),
    ):
        raw = tf.io.decode_raw(parsed[name], dtype, is_little).numpy()
        np.testing.assert_array_equal(raw.reshape(columns[name].shape), columns[name])
    np.testing.assert_array_equal(parsed["file/cube"].numpy(), columns["cube"])
    np.testing.assert_array_equal(
        np.stack([parsed["h"].numpy(), parsed["w"].numpy()], axis=1), columns["stack"]
    )
    width = max(map(len, columns["items"]))
    want = np.full((N, width, 2), -1)
    for row, array in zip(want, columns["items"], strict=True):
        row[: len(array)] = array
    np.testing.assert_array_equal(parsed["items"].numpy(), want)


@pytest.mark.parametrize("num_threads", [0, 3])
def test_tensorflow_parses_what_was_written_in_batches(
    tmp_path: Path, options: dict[str, Any], num_threads: int
) -> None:
    columns = random_columns(np.random.default_rng(1))
    path = target(tmp_path, options)
    with fr.Writer(
        path, features=FEATURES, num_threads=num_threads, **options
    ) as writer:
        for begin in range(0, N, 100):
            writer.write_batch({k: v[begin : begin + 100] for k, v in columns.items()})
    records = records_by_tensorflow(writer.files, options)
    assert len(records) == N
    assert_columns(tf.io.parse_example(records, of_tensorflow()), columns)


def test_tensorflow_parses_what_was_written_row_by_row(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    columns = random_columns(np.random.default_rng(2))
    with fr.Writer(target(tmp_path, options), features=FEATURES, **options) as writer:
        for i in range(N):
            row = {name: column[i] for name, column in columns.items()}
            row = {
                k: v for k, v in row.items() if v is not None and v is not np.ma.masked
            }
            row["ragged strings"] = fr.BytesArray.from_list(row["ragged strings"])
            writer.write(row)
    records = records_by_tensorflow(writer.files, options)
    assert_columns(tf.io.parse_example(records, of_tensorflow()), columns)


def test_tensorflow_parses_sequences(tmp_path: Path, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    rows: list[dict[str, Any]] = [
        {
            "event": rng.integers(-(2**63), 2**63 - 1, n),
            "frame": rng.standard_normal((n, 2, 2), np.float32),
            "word": [rng.bytes(int(k)) for k in rng.integers(0, 50, n)],
            "tags": [["t" * int(k)] * int(k) for k in rng.integers(0, 3, n)],
        }
        for n in rng.integers(0, 6, N)
    ]
    with fr.Writer(target(tmp_path, options), **options) as writer:
        for i, row in enumerate(rows):
            given = row | {"frame": row["frame"].reshape(-1, 4)}
            context = {"id": i, "name": f"row {i}", "weights": np.arange(i % 3) / 2}
            writer.write_sequence_example(context=context, feature_lists=given)
    records = records_by_tensorflow(writer.files, options)
    steps = tf.io.FixedLenSequenceFeature
    ragged = tf.io.RaggedFeature
    context, lists, lengths = tf.io.parse_sequence_example(
        records,
        context_features={
            "id": fixed((), tf.int64),
            "name": fixed((), tf.string),
            "weights": ragged(tf.float32, row_splits_dtype=tf.int64),
        },
        sequence_features={
            "event": steps((), tf.int64),
            "frame": steps((2, 2), tf.float32),
            "word": steps((), tf.string),
            "tags": ragged(tf.string, row_splits_dtype=tf.int64),
        },
    )
    assert context["id"].numpy().tolist() == [*range(N)]
    assert context["name"].numpy().tolist() == [f"row {i}".encode() for i in range(N)]
    assert context["weights"].to_list() == [
        (np.arange(i % 3) / 2).tolist() for i in range(N)
    ]
    for i, row in enumerate(rows):
        n = len(row["event"])
        assert lengths["event"][i] == lengths["frame"][i] == lengths["word"][i] == n
        np.testing.assert_array_equal(lists["event"][i, :n].numpy(), row["event"])
        np.testing.assert_array_equal(lists["frame"][i, :n].numpy(), row["frame"])
        assert lists["word"][i, :n].numpy().tolist() == row["word"]
        want = [[tag.encode() for tag in step] for step in row["tags"]]
        assert lists["tags"][i].to_list() == want


def test_tensorflow_writes_the_same_bytes(tmp_path: Path) -> None:
    """Where the order of the features is one, records and files are TensorFlow's."""
    rng = np.random.default_rng(4)
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    values = rng.integers(-(2**63), 2**63 - 1, (N, 3)) >> rng.integers(0, 64, (N, 3))
    fr.write(ours, {"f": values})
    with tf.io.TFRecordWriter(theirs) as writer:
        for row in values:
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=row))
            features = tf.train.Features(feature={"f": feature})
            writer.write(tf.train.Example(features=features).SerializeToString())
    assert Path(ours).read_bytes() == Path(theirs).read_bytes()


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("records", [[], [b""], [b"one", b""], [bytes(3 << 20), b"x"]])
def test_tensorflow_reads_files_of_few_records(
    tmp_path: Path, compression: str, records: list[bytes]
) -> None:
    path = str(tmp_path / "data")
    with fr.Writer(path, compression=compression or None) as writer:
        for record in records:
            writer.write_record(record)
    found = tf.data.TFRecordDataset(path, compression)
    assert [record.numpy() for record in found] == records


def test_tensorflow_reads_on_after_what_was_appended(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    for i in range(3):
        with fr.Writer(path, append=True) as writer:
            writer.write_batch({"i": [i] * 10})
    records = records_by_tensorflow([path], {})
    parsed = tf.io.parse_example(records, {"i": fixed((), tf.int64)})
    assert parsed["i"].numpy().tolist() == [i // 10 for i in range(30)]
