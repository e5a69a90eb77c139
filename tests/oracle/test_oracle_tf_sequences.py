"""SequenceExamples against TensorFlow: its own features, given to both, give the same.

Goal
    What tf.io.parse_sequence_example and parse_single_sequence_example deliver is what
    fastrec delivers for the same objects; what they refuse as unfit, it refuses.
Method
    Random records that fit, nearly fit or do not fit, in the plain encoding; the legal
    encodings that TensorFlow loses or refuses are compared with protobuf, in
    tests/features/test_sequences.py. Needs TensorFlow: run with `-m oracle`.
"""

from __future__ import annotations

import gzip
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped
from fastrec.compat import tf_io
from oracle_example import sequence
from oracle_tensorflow import (
    DTYPES,
    KINDS,
    REFUSED,
    REFUSED_BY_TENSORFLOW,
    plain,
    tf,
)

pytestmark = pytest.mark.oracle


def ragged_of(sparse: Untyped, n_rows: list[int]) -> Untyped:
    """A sparse tensor of rank 3, (record, step, value), as a RaggedTensor.

    Steps at the end of a record that have no values are not in it: `n_rows` is how many
    each record has.
    """
    values: Untyped = sparse.values
    inner = Counter((int(i), int(j)) for i, j, _ in sparse.indices.numpy())
    lengths = [inner[i, j] for i, n in enumerate(n_rows) for j in range(n)]
    steps = tf.RaggedTensor.from_row_lengths(values, np.array(lengths, np.int64))
    return tf.RaggedTensor.from_row_lengths(steps, np.array(n_rows, np.int64))


def by_tensorflow(
    records: Any,
    context: dict[str, Any],
    lists: dict[str, Any],
    n_steps: dict[str, list[int]],
) -> Any:
    """All columns, or None where TensorFlow refuses."""
    is_one = isinstance(records, bytes)
    parse = tf.io.parse_sequence_example
    if is_one:
        parse = tf.io.parse_single_sequence_example
    try:
        found = parse(tf.constant(records, tf.string), context, lists)
    except REFUSED_BY_TENSORFLOW:
        return None
    columns: list[dict[str, Any]] = [{}, {}, {}]
    for part, parsed in enumerate(found):
        for name, column in parsed.items():
            if not isinstance(column, tf.SparseTensor):
                converted = column
            elif part == 0:
                converted = column.values
                if not is_one:
                    converted = tf.RaggedTensor.from_sparse(column)
            elif is_one:
                wide = tf.sparse.expand_dims(column, 0)
                converted = ragged_of(wide, n_steps[name]).values
            else:
                converted = ragged_of(column, n_steps[name])
            columns[part][name] = plain(converted)
    return columns


def by_fastrec(
    records: Any,
    context: dict[str, Any],
    lists: dict[str, Any],
) -> Any:
    """All columns, or None where fastrec refuses."""
    parse: Any = fr.parse_sequence_example
    if isinstance(records, bytes):
        parse = tf_io.parse_single_sequence_example
    try:
        found = parse(records, context, lists)
    except REFUSED:
        return None
    columns: list[dict[str, Any]] = [{}, {}, {}]
    for part, parsed in enumerate(found):
        columns[part] = {name: plain(column) for name, column in parsed.items()}
    return columns


def random_values(rng: random.Random, kind: str, n: int) -> Any:
    if kind == "bytes":
        return kind, [rng.randbytes(rng.randrange(4)) for _ in range(n)]
    if kind == "float":
        return kind, [rng.randrange(-99, 99) / 8 for _ in range(n)]
    return kind, [rng.randrange(-(2**63), 2**63) for _ in range(n)]


def random_step(rng: random.Random, kind: str, counts: list[int], odd: float) -> Any:
    if rng.random() < odd:
        if rng.random() < 0.4:
            return None
        return random_values(rng, rng.choice(KINDS), rng.randrange(4))
    return random_values(rng, kind, rng.choice(counts))


def random_context(rng: random.Random, kind: str) -> tuple[Any, list[int]]:
    shape = rng.choice([(), (1,), (2,)])
    size = math.prod(shape)
    form = rng.randrange(3)
    if form == 0:
        default = None
        if rng.random() < 0.5:
            default = np.array(random_values(rng, kind, size)[1], dtype=object)
            default = default.reshape(shape).tolist()
        return tf.io.FixedLenFeature(shape, DTYPES[kind], default), [size]
    if form == 1:
        return tf.io.VarLenFeature(DTYPES[kind]), [0, 1, 3]
    splits = rng.choice([tf.int32, tf.int64])
    return tf.io.RaggedFeature(DTYPES[kind], row_splits_dtype=splits), [0, 1, 3]


def random_list(rng: random.Random, kind: str) -> tuple[Any, list[int]]:
    shape = rng.choice([(), (1,), (2,), (2, 2)])
    form = rng.randrange(3)
    if form == 0:
        missing = rng.random() < 0.6
        found = tf.io.FixedLenSequenceFeature(shape, DTYPES[kind], missing)
        return found, [math.prod(shape)]
    if form == 1:
        return tf.io.VarLenFeature(DTYPES[kind]), [0, 1, 3]
    splits = rng.choice([tf.int32, tf.int64])
    return tf.io.RaggedFeature(DTYPES[kind], row_splits_dtype=splits), [0, 1, 3]


@pytest.mark.parametrize("odd", [0.0, 0.02, 0.3])
def test_columns_are_those_of_tensorflow(odd: float) -> None:
    outcomes: Counter[bool] = Counter()
    for seed in range(80):
        rng = random.Random(f"{seed} {odd}")
        context_specs: dict[str, Any] = {}
        list_specs: dict[str, Any] = {}
        context_kinds: dict[str, Any] = {}
        list_kinds: dict[str, Any] = {}
        for i in range(rng.randrange(1, 3)):
            kind = rng.choice(KINDS)
            context_specs[f"c{i}"], counts = random_context(rng, kind)
            context_kinds[f"c{i}"] = kind, counts
            kind = rng.choice(KINDS)
            list_specs[f"l{i}"], counts = random_list(rng, kind)
            list_kinds[f"l{i}"] = kind, counts
        records = []
        n_steps: dict[str, list[int]] = {name: [] for name in list_specs}
        for _ in range(rng.randrange(1, 4)):
            context = {
                name.encode(): random_step(rng, kind, counts, odd)
                for name, (kind, counts) in context_kinds.items()
                if rng.random() < 0.9
            }
            lists = {
                name.encode(): [
                    random_step(rng, kind, counts, odd) for _ in range(rng.randrange(4))
                ]
                for name, (kind, counts) in list_kinds.items()
                if rng.random() < 0.9
            }
            for name in list_specs:
                n_steps[name].append(len(lists.get(name.encode(), [])))
            records.append(sequence(context, lists))
        for i, given in enumerate([records, *records]):
            ours = n_steps
            if i:
                ours = {name: [n[i - 1]] for name, n in n_steps.items()}
            wanted = by_tensorflow(given, context_specs, list_specs, ours)
            found = by_fastrec(given, context_specs, list_specs)
            assert found == wanted, (seed, i, context_specs, list_specs, given)
            outcomes[wanted is None] += 1
    assert outcomes[False] > 80
    assert outcomes[True] > 8


def test_records_that_are_cut_or_damaged() -> None:
    """What fastrec reads, TensorFlow reads in the same way, or refuses to.

    TensorFlow is not given bytes lists: lengths that run past them crash it.
    """
    context = {"id": tf.io.FixedLenFeature((), tf.int64, 0)}
    lists = {
        "xy": tf.io.FixedLenSequenceFeature((2,), tf.float32, allow_missing=True),
        "ids": tf.io.RaggedFeature(tf.int64),
    }
    whole = sequence(
        {b"id": ("int64", [7])},
        {
            b"xy": [("float", [1.0, 2.0]), ("float", [3.0, 4.0])],
            b"ids": [("int64", [1, 2]), None, ("int64", [300])],
        },
    )
    n_same = 0
    for end in range(len(whole)):
        cut = whole[:end]
        found = by_fastrec([cut], context, lists)
        wanted = by_tensorflow([cut], context, lists, {})
        if found is not None and wanted is not None:
            assert found == wanted, end
            n_same += 1
    assert n_same >= 1


# Values of three steps, and how each kind of partition divides them into rows.
STEP_ROWS = [[[1, 2], [], [3]], [], [[4], [5, 6]]]
OF_STEPS: dict[str, Any] = {
    "RowSplits": [[0, 2, 2, 3], [], [0, 1, 3]],
    "RowLengths": [[2, 0, 1], [], [1, 2]],
    "RowStarts": [[0, 2, 2], [], [0, 1]],
    "RowLimits": [[2, 2, 3], [], [1, 3]],
    "ValueRowIds": [[0, 0, 2], [], [0, 1, 1]],
}


@pytest.mark.parametrize("kind", OF_STEPS)
@pytest.mark.parametrize("splits", [tf.int32, tf.int64])
def test_partitions_divide_the_values_of_each_step(kind: str, splits: Any) -> None:
    steps = [[value for row in step for value in row] for step in STEP_ROWS]
    lists: dict[bytes, Any] = {
        b"values": [("int64", step) for step in steps],
        b"rows": [("int64", step) for step in OF_STEPS[kind]],
        b"outer": [("int64", [len(step)] if step else []) for step in STEP_ROWS],
    }
    partition = getattr(tf.io.RaggedFeature, kind)("rows")
    outer = tf.io.RaggedFeature.RowLengths("outer")
    records = [sequence({}, lists), sequence({}, {}), sequence({}, lists)]
    for partitions in ([partition], [outer, partition]):
        specs = {
            "a": tf.io.RaggedFeature(
                tf.int64, "values", partitions, splits, validate=True
            )
        }
        for given in (records, *records):
            wanted = by_tensorflow(given, {}, specs, {})
            assert wanted is not None
            assert by_fastrec(given, {}, specs) == wanted
    _, parsed = tf_io.parse_single_sequence_example(records[0], None, specs)
    assert parsed["a"].tolist() == [[step] if step else [] for step in STEP_ROWS]


def test_rows_that_mix_steps_are_refused() -> None:
    """TensorFlow checks the partitions of all steps together."""
    values: Any = [("int64", [1]), ("int64", [2])]
    rows: Any = [("int64", [2]), ("int64", [0])]
    record = sequence({}, {b"v": values, b"n": rows})
    partition = tf.io.RaggedFeature.RowLengths("n")
    specs = {"a": tf.io.RaggedFeature(tf.int64, "v", [partition], validate=True)}
    _, theirs = tf.io.parse_single_sequence_example(record, None, specs)
    assert theirs["a"].to_list() == [[[1, 2]], [[]]]
    with pytest.raises(fr.SchemaError, match="partitions 2 items"):
        tf_io.parse_single_sequence_example(record, None, specs)


@pytest.mark.parametrize("length", [1, 2])
def test_uniform_partitions_in_lists(length: int) -> None:
    values: Any = [("float", [0.5] * (4 * n)) for n in (1, 0, 2)]
    uniform = tf.io.RaggedFeature.UniformRowLength(length)
    two = tf.io.RaggedFeature.UniformRowLength(2)
    record = sequence({}, {b"a": values})
    for partitions in ([uniform], [two, uniform]):
        specs = {"a": tf.io.RaggedFeature(tf.float32, "a", partitions, validate=True)}
        for given in ([record, record], record):
            wanted = by_tensorflow(given, {}, specs, {})
            assert wanted is not None
            assert by_fastrec(given, {}, specs) == wanted


def test_a_name_in_both_parts() -> None:
    record = sequence(
        {b"a": ("int64", [1, 2])}, {b"a": [("float", [0.5]), ("float", [1.5])]}
    )
    context = {"a": tf.io.RaggedFeature(tf.int64)}
    lists = {"a": tf.io.FixedLenSequenceFeature([], tf.float32)}
    for given in ([record, record], record):
        wanted = by_tensorflow(given, context, lists, {})
        assert wanted is not None
        assert by_fastrec(given, context, lists) == wanted


def test_a_real_file(testdata: Path) -> None:
    data = gzip.decompress((testdata / "sequence-eval.gz").read_bytes())
    records = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        records.append(data[at + 12 : at + 12 + size])
        at += size + 16
    assert len(records) == 4500
    context = {
        "i": tf.io.VarLenFeature(tf.int64),
        "f": tf.io.RaggedFeature(tf.float32),
    }
    lists = {"s": tf.io.RaggedFeature(tf.string)}
    wanted = by_tensorflow(records, context, lists, {})
    assert wanted is not None
    assert by_fastrec(records, context, lists) == wanted
