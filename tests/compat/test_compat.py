"""Drop-in names of tf.io and nvidia.dali.tfrecord.

Goal
    A program works after changing one import.
Method
    The programs of their guides, on small files.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fastrec as fr
import fastrec.compat.dali_tfrecord as tfrec
from fastrec.compat import tf_io


def test_a_tf_io_program_runs(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    for _ in range(2):
        with tf_io.TFRecordWriter(str(path)) as writer:
            for n in range(3):
                row: dict[str, Any] = {"label": n, "rows": [n]}
                if n:
                    row |= {"tags": ["t"] * n, "at": [n]}
                writer.write(fr.encode_example(row) if n else row)
    records = list(tf_io.tf_record_iterator(path))
    features = {
        "label": tf_io.FixedLenFeature([], "int64", default_value=0),
        "tags": tf_io.VarLenFeature("string"),
        "padded": tf_io.FixedLenSequenceFeature([], "int64", allow_missing=True),
        "ragged": tf_io.RaggedFeature(
            "string",
            value_key="tags",
            partitions=[tf_io.RaggedFeature.RowLengths("rows")],  # type: ignore[attr-defined]
        ),
        "sparse": tf_io.SparseFeature("at", "at", "int64", 5),
    }
    batch: dict[str, Any] = tf_io.parse_example(records, features)
    assert batch["label"].tolist() == [0, 1, 2]
    assert batch["tags"].tolist() == [[], [b"t"], [b"t", b"t"]]
    assert batch["ragged"].tolist() == [[[]], [[b"t"]], [[b"t", b"t"]]]
    assert batch["ragged"].row_splits.dtype == "int32"
    assert batch["padded"].shape == (3, 0)
    assert batch["sparse"].dense_shape == (3, 5)
    assert tf_io.parse_single_example(records[2], features)["label"] == 2
    assert tf_io.decode_raw(b"\x01\x00", "int16").tolist() == [1]
    zipped = tmp_path / "a.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    for options in (None, "", "GZIP", SimpleNamespace(compression_type="GZIP")):
        assert list(tf_io.tf_record_iterator(zipped, options)) == records
    with pytest.raises(fr.CorruptionError, match="the GZIP stream is damaged"):
        list(tf_io.tf_record_iterator(path, "GZIP"))
    level = SimpleNamespace(compression_type="GZIP", compression_level=9)
    for options in ("GZIP", level):
        with tf_io.TFRecordWriter(str(zipped), options) as writer:
            for record in records:
                writer.write(record)
        assert gzip.decompress(zipped.read_bytes()) == path.read_bytes()
    with pytest.raises(fr.SchemaError, match="allow_missing"):
        fr.Schema({"a": tf_io.FixedLenSequenceFeature([], "int64")})


def test_dali_specs_convert() -> None:
    assert tfrec.FixedLenFeature([2], tfrec.float32, 0.5) == fr.FixedLen(
        (2,), "float32", [0.5, 0.5]
    )
    assert tfrec.FixedLenFeature((), tfrec.string, "") == fr.FixedLen((), "bytes", "")
    assert tfrec.VarLenFeature(tfrec.int64, 0) == fr.VarLen("int64")
    assert tfrec.VarLenFeature([4], tfrec.float32, 0.0) == fr.VarLen("float32", (4,))


def test_tfrecord_dataset_yields_records(tmp_path: Path) -> None:
    records = [fr.encode_example({"n": n}) for n in range(5)]
    paths = []
    for n, name in enumerate(["a", "b.gz"]):
        path = tmp_path / name
        with tf_io.TFRecordWriter(path, "GZIP" if n else "") as writer:
            for record in records:
                writer.write(record)
        paths.append(path)
    ds = tf_io.TFRecordDataset(iter(paths), buffer_size=100, num_parallel_reads=-1)
    assert list(ds) == list(ds) == records * 2
    assert list(tf_io.TFRecordDataset(str(paths[1]), "GZIP")) == records
    with pytest.raises(fr.CorruptionError):
        list(tf_io.TFRecordDataset([paths[0]], compression_type="ZLIB"))
    for name in ("map", "batch", "shuffle"):
        with pytest.raises(AttributeError, match=rf"no.*'{name}'.*fastrec\.open"):
            getattr(ds, name)


def test_tf_io_tensor_functions() -> None:
    tensor = tf_io.serialize_tensor([[1.5, 2.5]])
    assert tf_io.parse_tensor(tensor, out_type="float64").tolist() == [[1.5, 2.5]]
    dtype = SimpleNamespace(name="string", as_numpy_dtype=object)  # like tf.string
    assert tf_io.parse_tensor(tf_io.serialize_tensor("x"), dtype).item() == b"x"
    with pytest.raises(fr.SchemaError, match="dtype float32, got float64"):
        tf_io.parse_tensor(tensor, "float32")
