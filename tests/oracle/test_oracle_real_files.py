"""Real files against TensorFlow: every column of all of them.

Goal
    What TensorFlow's parsers deliver of data sets that nobody here wrote, values and
    missing ones, is what fastrec delivers for the same tf.io features.
Method
    The files of the test data folder (skipped by name where it is not there), each read
    whole by both. `-s` prints what was compared. Needs TensorFlow: run with `-m oracle`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped

pytestmark = pytest.mark.oracle

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow")


def records_of(file: Path) -> list[bytes]:
    """By TensorFlow's reader; fastrec's must find the same."""
    kind = "GZIP" if file.suffix == ".gz" else ""
    records = [r.numpy() for r in tf.data.TFRecordDataset(str(file), kind)]
    assert list(fr.read_records(str(file))) == records
    return records


def kinds_of(records: list[bytes]) -> dict[str, Any]:
    """The dtype of each feature, as protobuf sees it in all records."""
    dtypes = {"int64": tf.int64, "float": tf.float32, "bytes": tf.string}
    found: dict[str, Any] = {}
    for record in records:
        features = tf.train.Example.FromString(record).features.feature
        for key, feature in features.items():
            kind = feature.WhichOneof("kind")
            if kind is not None:
                found[key] = dtypes[kind.removesuffix("_list")]
            else:
                found.setdefault(key, tf.string)
    return dict(sorted(found.items()))


def flat(column: Untyped) -> Any:
    """The values of a column, and its shape or row splits."""
    if isinstance(column, tf.RaggedTensor | fr.RaggedArray):
        splits = np.asarray(column.row_splits, np.int64).tolist()
        return splits, flat(column.values)
    if isinstance(column, fr.BytesArray):
        return tuple(column.shape), np.asarray(column, dtype=object).ravel().tolist()
    array = np.asarray(column)
    values = array.ravel().tolist() if array.dtype == object else array.tobytes()
    return array.shape, values


def counted(column: Untyped) -> tuple[int, int]:
    """How many values a ragged column has, and how many rows without any."""
    rows = column
    missing = 0
    if isinstance(rows, tf.RaggedTensor):
        missing = int(np.sum(np.asarray(rows.row_lengths()) == 0))
        return int(tf.size(rows.flat_values)), missing
    while isinstance(column, fr.RaggedArray):
        column = column.values
    n_values = len(column)
    return n_values, int(np.sum(np.asarray(rows.lengths) == 0))


def say(file: Path, n_records: int, columns: dict[str, tuple[Any, Any]]) -> None:
    """Print what was compared, for whoever wants the figures."""
    totals = [
        tuple(sum(counts) for counts in zip(*map(counted, side), strict=True))
        for side in zip(*columns.values(), strict=True)
    ]
    sys.stdout.write(
        f"\n{file.name}: {n_records} records, {len(columns)} columns; (values, missing)"
        f" of TensorFlow {totals[0]}, of fastrec {totals[1]}\n"
    )
    assert totals[0] == totals[1]


@pytest.mark.parametrize(
    ("name", "n_records"),
    [
        ("mnist-1000.tfrecord", 1000),
        ("taxi-train-00000-of-00012.gz", 826),
        ("taxi-train-00001-of-00012.gz", 826),
        ("penguin-train.gz", 234),
    ],
)
def test_every_column_of_examples(testdata: Path, name: str, n_records: int) -> None:
    file = testdata / name
    records = records_of(file)
    assert len(records) == n_records
    kinds = kinds_of(records)

    spec: Any = {key: tf.io.RaggedFeature(dtype) for key, dtype in kinds.items()}
    wanted = tf.io.parse_example(tf.constant(records), spec)
    got = fr.parse_example(records, spec)
    for key in kinds:
        assert flat(got[key]) == flat(wanted[key]), key
    say(file, n_records, {key: (wanted[key], got[key]) for key in kinds})

    # The sparse form, and dense where that is possible.
    spec = {key: tf.io.VarLenFeature(dtype) for key, dtype in kinds.items()}
    wanted = tf.io.parse_example(tf.constant(records), spec)
    lists: dict[str, Any] = fr.parse_example(records, spec)
    for key in kinds:
        sparse = lists[key].to_sparse()
        assert flat(sparse.indices) == flat(wanted[key].indices), key
        assert flat(sparse.values) == flat(wanted[key].values), key
        assert tuple(sparse.dense_shape) == tuple(wanted[key].dense_shape.numpy())
    spec = {}
    for key, dtype in kinds.items():
        n, *others = set(lists[key].lengths.tolist())
        if others or n == 0:  # an empty list is no default, but a wrong one
            continue
        default = np.full(n, b"?" if dtype == tf.string else 7).tolist()
        spec[key] = tf.io.FixedLenFeature((n,), dtype, default)
    wanted = tf.io.parse_example(tf.constant(records), spec)
    dense = fr.parse_example(records, spec)
    assert set(dense) == set(spec)
    for key in spec:
        assert flat(dense[key]) == flat(wanted[key]), key


def test_every_column_of_sequence_examples(testdata: Path) -> None:
    file = testdata / "sequence-eval.gz"
    records = records_of(file)
    assert len(records) == 4500
    context = {
        "i": tf.io.RaggedFeature(tf.int64),
        "f": tf.io.RaggedFeature(tf.float32),
    }
    lists = {"s": tf.io.RaggedFeature(tf.string)}
    wanted = tf.io.parse_sequence_example(tf.constant(records), context, lists)
    got = fr.parse_sequence_example(records, context, lists)
    pairs = {
        key: (wanted[part][key], got[part][key])
        for part, keys in enumerate((context, lists))
        for key in keys
    }
    for key, (theirs, ours) in pairs.items():
        assert flat(ours) == flat(theirs), key
    say(file, len(records), pairs)
