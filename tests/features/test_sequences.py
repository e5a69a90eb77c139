"""tf.train.SequenceExample: a context and lists of features.

Goal
    Records of any encoding are read as protobuf reads them; a record that does not fit
    its specs raises. Batches are one dict; rows, padding rows, views and pickles work
    as for Examples.
Method
    Records written by hand, and random ones compared with google.protobuf.
    tests/oracle/test_oracle_tf_sequences.py compares with TensorFlow.
"""

from __future__ import annotations

import gzip
import itertools
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError

import fastrec as fr
from columns import Untyped, Write, open_dataset
from fastrec.compat import tf_io
from oracle import tfrecord_file
from oracle_example import Encoder, Feature, delimited, entry, feature, sequence
from oracle_protobuf import needs_upb, sequence_by_protobuf

KINDS: list[Any] = ["int64", "float", "bytes"]
DTYPES = {"int64": "int64", "float": "float32", "bytes": "bytes"}

CONTEXT = {"id": fr.FixedLen((), "int64"), "tags": fr.VarLen("bytes")}
LISTS = {
    "xy": fr.FixedLenSequence((2,), "float32", lengths="n"),
    "words": fr.VarLen("bytes"),
    "ids": fr.Ragged("int32", row_splits_dtype="int32"),
}
RECORDS = [
    sequence(
        {b"id": ("int64", [7]), b"tags": ("bytes", [b"a", b"b"])},
        {
            b"xy": [("float", [1.0, 2.0]), ("float", [3.0, 4.0])],
            b"words": [("bytes", [b"the", b"cat"]), None, ("bytes", [])],
            b"ids": [("int64", [1, 2]), ("int64", [3])],
        },
    ),
    sequence({b"id": ("int64", [8])}),
    sequence({b"id": ("int64", [9])}, {b"xy": [("float", [5.0, 6.0])], b"words": []}),
]


def lists_of(column: Untyped) -> Untyped:
    return column.tolist()


def parse_list(steps: list[Any], spec: Any) -> Untyped:
    """Return the column that `spec` reads from one record with a list "a"."""
    record = sequence({}, {b"a": steps})
    return fr.parse_sequence_example([record], None, {"a": spec})[1]["a"]


def open_sequences(write: Write) -> Untyped:
    return open_dataset(
        write(tfrecord_file(RECORDS)), context_features=CONTEXT, sequence_features=LISTS
    )


def test_batches_are_one_dict_of_both_sections(write: Write) -> None:
    ds = open_sequences(write)
    batch = ds[0:3]
    assert list(batch) == ["id", "tags", "xy", "n", "words", "ids"]
    assert batch["id"].tolist() == [7, 8, 9]
    assert batch["tags"].tolist() == [[b"a", b"b"], [], []]
    assert batch["xy"].tolist() == [
        [[1, 2], [3, 4]],
        [[0, 0], [0, 0]],
        [[5, 6], [0, 0]],
    ]
    assert batch["n"].tolist() == [2, 0, 1]
    assert batch["words"].tolist() == [[[b"the", b"cat"], [], []], [], []]
    assert batch["ids"].tolist() == [[[1, 2], [3]], [], []]
    assert batch["ids"].values.values.dtype == np.int32
    assert batch["ids"].row_splits.dtype == np.int32
    assert batch["ids"].values.row_splits.dtype == np.int32
    assert batch["words"].row_splits.dtype == np.int64


def test_rows_of_a_dataset(write: Write) -> None:
    row = open_sequences(write)[0]
    assert row["id"] == 7
    assert row["xy"].shape == (2, 2)
    assert row["words"].tolist() == [[b"the", b"cat"], [], []]
    assert open_sequences(write)[1]["xy"].shape == (0, 2)


def test_parsing_returns_context_lists_and_lengths(write: Write) -> None:
    context, lists, lengths = fr.parse_sequence_example(RECORDS, CONTEXT, LISTS)
    batch = open_sequences(write)[0:3]
    assert [*context, *lists] == list(batch)
    assert list(context) == ["id", "tags"]
    for name, column in {**context, **lists}.items():
        assert lists_of(column) == lists_of(batch[name])
    assert {name: n.tolist() for name, n in lengths.items()} == {"xy": [2, 0, 1]}
    # Also without a lengths column.
    bare = {"a": fr.FixedLenSequence((2,), "float32", key="xy")}
    context, lists, lengths = fr.parse_sequence_example(RECORDS, None, bare)
    assert context == {}
    assert list(lists) == ["a"]
    assert lengths["a"].tolist() == [2, 0, 1]


def test_parsing_one_record() -> None:
    context, lists = tf_io.parse_single_sequence_example(RECORDS[2], CONTEXT, LISTS)
    assert context["id"] == 9
    assert lists["xy"].tolist() == [[5, 6]]
    assert lists["words"].tolist() == []
    with pytest.raises(TypeError):
        tf_io.parse_single_sequence_example([RECORDS[2]], CONTEXT)  # type: ignore[arg-type]


def test_parsing_no_records() -> None:
    context, lists, lengths = fr.parse_sequence_example([], CONTEXT, LISTS)
    assert len(context["id"]) == len(lists["words"]) == len(lengths["xy"]) == 0
    assert lists["xy"].shape == (0, 0, 2)


def test_names_of_tf_io() -> None:
    lists = {
        "xy": tf_io.FixedLenSequenceFeature([2], "float32"),
        "ids": tf_io.VarLenFeature("int64"),
    }
    _, found, lengths = tf_io.parse_sequence_example(RECORDS[::2], None, lists)
    assert lengths["xy"].tolist() == [2, 1]
    assert lists_of(found["ids"]) == [[[1, 2], [3]], []]
    context, _ = tf_io.parse_single_sequence_example(
        RECORDS[0], {"id": tf_io.FixedLenFeature([], "int64")}
    )
    assert context == {"id": 7}
    with pytest.raises(fr.SchemaError, match="missing"):  # allow_missing is False
        tf_io.parse_sequence_example(RECORDS, None, lists)


def test_loaders_views_and_pickles(write: Write) -> None:
    ds = open_sequences(write)
    [batch] = ds.loader(5, pad_last=True, num_threads=1)
    assert batch["n"].tolist() == [2, 0, 1, 0, 0]
    assert batch["words"].tolist() == [[[b"the", b"cat"], [], []], [], [], [], []]
    assert batch["__valid__"].tolist() == [True] * 3 + [False] * 2

    chosen = ds.select_columns(["words", "id"])
    assert list(chosen[0:1]) == ["words", "id"]
    copied = pickle.loads(pickle.dumps(chosen))
    assert repr(copied.schema) == repr(chosen.schema)
    assert lists_of(copied[0:3]["words"]) == lists_of(batch["words"])[:3]

    again = open_dataset(ds.files, **eval(repr(ds.schema), {"fr": fr}))
    joined = fr.concat([ds, again])[0:6]
    assert lists_of(joined["ids"]) == lists_of(ds[0:3]["ids"]) * 2
    shuffled = list(ds.loader(1, shuffle=True, num_threads=2))
    assert sorted(int(b["id"][0]) for b in shuffled) == [7, 8, 9]


def test_datasets_of_lists_and_of_features_are_not_joined(write: Write) -> None:
    path = write(tfrecord_file(RECORDS))
    lists = open_dataset(path, sequence_features={"ids": fr.VarLen("int64")})
    context = open_dataset(path, context_features={"ids": fr.VarLen("int64")})
    with pytest.raises(fr.SchemaError, match="list of"):
        fr.concat([lists, context])[0:2]


def test_names_must_be_unique_across_sections(write: Write) -> None:
    path = write(tfrecord_file([sequence({b"a": ("int64", [1])}, {b"a": [None]})]))
    a = {"a": fr.VarLen("int64")}
    with pytest.raises(fr.SchemaError, match="key='a'"):
        fr.open(path, context_features=a, sequence_features=a)
    b = {"b": fr.VarLen("int64", key="a")}
    batch = open_dataset(path, context_features=a, sequence_features=b)[0:1]
    assert lists_of(batch["a"]) == [[1]]
    assert lists_of(batch["b"]) == [[[]]]


def test_parsing_allows_a_name_in_both_sections() -> None:
    record = sequence({b"a": ("int64", [1])}, {b"a": [("int64", [2]), ("int64", [3])]})
    context: dict[str, Any] = {"a": fr.FixedLen((), "int64"), "n": fr.VarLen("int64")}
    lists = {"a": fr.FixedLenSequence((), "int64", lengths="n")}
    of_context, of_lists, lengths = fr.parse_sequence_example([record], context, lists)
    assert (of_context["a"].tolist(), lists_of(of_context["n"])) == ([1], [[]])
    assert (of_lists["a"].tolist(), of_lists["n"].tolist()) == ([[2, 3]], [2])
    assert {name: n.tolist() for name, n in lengths.items()} == {"a": [2]}
    for parse in (
        tf_io.parse_single_sequence_example,
        tf_io.parse_single_sequence_example,
    ):
        row, steps = parse(record, context, lists)
        assert (row["a"], steps["a"].tolist()) == (1, [2, 3])
    with pytest.raises(fr.SchemaError, match="feature list 'a' has a step of int64"):
        fr.parse_sequence_example([record], context, {"a": fr.VarLen("bytes")})


# Partitions.

ROWS = {"a": fr.Ragged("bytes", [fr.Ragged.RowLengths("n")], key="v")}


def of_rows(values: list[list[bytes]], lengths: list[list[int]]) -> bytes:
    """Return a record whose list "v" is partitioned by the list "n"."""
    return sequence(
        {},
        {
            b"v": [("bytes", step) for step in values],
            b"n": [("int64", step) for step in lengths],
        },
    )


def test_partitions_divide_the_values_of_each_step(write: Write) -> None:
    records = [of_rows([[b"x", b"y"], [], [b"z"]], [[1, 0, 1], [0], [1]]), b""]
    wanted = [[[[b"x"], [], [b"y"]], [[]], [[b"z"]]], []]
    _, found, _ = fr.parse_sequence_example(records, None, ROWS)
    assert found["a"].tolist() == wanted
    ds = open_dataset(write(tfrecord_file(records * 50)), sequence_features=ROWS)
    batches = list(ds.loader(30, num_threads=2))
    assert [row for batch in batches for row in batch["a"].tolist()] == wanted * 50
    assert ds[0]["a"].tolist() == wanted[0]
    assert pickle.loads(pickle.dumps(ds))[0:2]["a"].tolist() == wanted


@pytest.mark.parametrize(
    ("values", "lengths", "message"),
    [
        ([[b"x"], [b"y"]], [[2], [0]], "feature list 'n' partitions 2 items"),
        ([[b"x"], [b"y"]], [[1]], "feature list 'n' has 1 steps, but .* has 2"),
        ([[b"x"]], [], "feature list 'n' has 0 steps, but .* has 1"),
        ([[b"x"]], [[-1, 2]], "feature list 'n' is not a valid partition"),
    ],
)
def test_partitions_that_do_not_fit_a_step(
    values: Any,
    lengths: Any,
    message: str,
) -> None:
    good = of_rows([[b"x"]], [[1]])
    with pytest.raises(fr.SchemaError, match=message) as caught:
        fr.parse_sequence_example([good, of_rows(values, lengths)], None, ROWS)
    assert (caught.value.record, caught.value.feature) == (1, "n")


def test_the_number_of_rows_of_all_row_ids_is_limited() -> None:
    ids = {"a": fr.Ragged("bytes", [fr.Ragged.ValueRowIds("n")], key="v")}
    row = 2**23 - 1
    record = of_rows([[b"x"]] * 3, [[row]] * 3)
    with pytest.raises(fr.SchemaError, match=r"has \d+ rows, more than"):
        fr.parse_sequence_example([record], None, ids)


@pytest.mark.parametrize(
    "make",
    [
        lambda: fr.Ragged("int64", key=""),
        lambda: fr.Ragged("int64", key=b""),
        lambda: fr.Ragged.RowSplits(""),
        lambda: fr.Ragged.ValueRowIds(b""),
        lambda: fr.Schema({"a": tf_io.RaggedFeature("int64", value_key="")}),
    ],
)
def test_an_empty_key_is_not_a_feature(make: Any) -> None:
    with pytest.raises(fr.SchemaError, match="key must be a feature name, got"):
        make()


@pytest.mark.parametrize(
    "options",
    [
        {"features": CONTEXT, "context_features": CONTEXT},
        {"context_features": {}},
        {"sequence_features": ["a"]},
        {"sequence_features": {"a": fr.FixedLen((), "int64")}},
        {"sequence_features": {"a": "int64"}},
        {"sequence_features": {"a": fr.Record()}},
        {"sequence_features": {"a": fr.FixedLenSequence((), "int64", -1)}},
        {"context_features": {"a": fr.FixedLenSequence((), allow_missing=False)}},
        {
            "context_features": {"n": "int64"},
            "sequence_features": {"a": fr.FixedLenSequence((), lengths="n")},
        },
    ],
)
def test_invalid_options_raise(write: Write, options: Any) -> None:
    with pytest.raises(fr.SchemaError):
        fr.open(write(tfrecord_file([])), **options)


# Steps.


def test_widths_of_padded_lists() -> None:
    steps: list[Feature] = [("int64", [n]) for n in range(5)]
    spec = fr.FixedLenSequence
    assert parse_list(steps, spec((), "int8", multiple_of=4)).tolist() == [
        [0, 1, 2, 3, 4, 0, 0, 0]
    ]
    cut = spec((), "int8", length=3, truncate=True, lengths="n")
    _, lists, lengths = fr.parse_sequence_example(
        [sequence({}, {b"a": steps})], None, {"a": cut}
    )
    assert lists["a"].tolist() == [[0, 1, 2]]
    assert lists["n"].tolist() == lengths["a"].tolist() == [3]
    with pytest.raises(
        fr.SchemaError, match=r"5 steps, expected at most 3 .*; truncate=True"
    ):
        parse_list(steps, spec((), "int8", length=3))


def test_truncated_strings_and_items_of_ragged_steps() -> None:
    words = [("bytes", [b"a"]), ("bytes", [b"bc"])]
    cut = fr.FixedLenSequence((), "bytes", length=1, truncate=True)
    assert parse_list(words, cut).tolist() == [[b"a"]]
    pairs = parse_list(
        [("int64", [1, 2, 3, 4]), None, ("int64", [5, 6])], fr.VarLen("int64", (2,))
    )
    assert pairs.row_splits.tolist() == [0, 3]
    assert pairs.values.row_splits.tolist() == [0, 2, 2, 3]
    assert pairs.values.values.tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("steps", "spec", "message"),
    [
        ([None], fr.FixedLenSequence((), "int64"), "a step of 0 values"),
        ([("int64", [])], fr.FixedLenSequence((), "int64"), "a step of 0 values"),
        ([("int64", [1, 2])], fr.FixedLenSequence((), "int64"), "a step of 2 values"),
        ([("int64", [1])], fr.FixedLenSequence((2,), "int64"), "1 value, expected 2"),
        ([("float", [1.0])], fr.FixedLenSequence((), "int64"), "of float values"),
        ([("float", [])], fr.VarLen("int64"), "of float values"),
        (
            [("int64", [1, 2, 3])],
            fr.VarLen("int64", (2,)),
            "3 values, expected a multiple of 2",
        ),
        ([("int64", [128])], fr.VarLen("int8"), "holds 128, which is out of range"),
    ],
)
def test_steps_that_do_not_fit(steps: Any, spec: Any, message: str) -> None:
    with pytest.raises(fr.SchemaError, match=message) as caught:
        parse_list(steps, spec)
    assert caught.value.feature == "a"
    assert caught.value.record == 0


def test_a_list_may_be_required() -> None:
    spec = fr.FixedLenSequence((), "int64", allow_missing=False)
    assert eval(repr(spec), vars(fr)) == spec
    assert parse_list([], spec).shape == (1, 0)
    # An entry without a value is present; so is one whose last duplicate is empty.
    for value in (b"", delimited(2, b"")):
        record = delimited(2, delimited(1, delimited(1, b"a") + value))
        _, lists, _ = fr.parse_sequence_example([record], None, {"a": spec})
        assert lists["a"].shape == (1, 0)
    with pytest.raises(fr.SchemaError, match="feature list 'a' is missing"):
        fr.parse_sequence_example([b""], None, {"a": spec})


def test_context_defaults_apply_to_absent_features() -> None:
    specs: list[Any] = [
        fr.FixedLen((), "int64", default=3),
        fr.Raw((2,), "uint8", default=[1, 2]),
    ]
    for spec in specs:
        context, _, _ = fr.parse_sequence_example([sequence({})], {"a": spec})
        assert np.array_equal(context["a"][0], spec.default)
        unset = [sequence({b"a": None}), delimited(1, delimited(1, delimited(1, b"a")))]
        for record in unset:
            with pytest.raises(fr.SchemaError, match="holds 0 values"):
                fr.parse_sequence_example([record], {"a": spec})
            assert fr.parse_example([record], {"a": spec})["a"][0] is not None
    with pytest.raises(fr.SchemaError, match="is missing"):
        fr.parse_sequence_example([b""], {"a": fr.FixedLen((), "int64")})


# Bytes.


def test_the_last_of_duplicate_keys_replaces_the_others() -> None:
    def lists(value: int) -> bytes:
        return sequence({}, {b"a": [("int64", [value])] * 2})

    spec = {"a": fr.VarLen("int64")}
    _, found, _ = fr.parse_sequence_example([lists(1) + lists(2)], None, spec)
    assert found["a"].tolist() == [[[2], [2]]]


def test_lists_without_a_spec_are_skipped() -> None:
    broken = delimited(2, delimited(1, delimited(1, b"b") + delimited(2, b"\x0a\xff")))
    record = RECORDS[0] + broken
    _, found, _ = fr.parse_sequence_example([record], None, {"ids": fr.VarLen("int64")})
    assert found["ids"].tolist() == [[[1, 2], [3]]]


def test_errors_name_the_offset() -> None:
    good = delimited(1, feature("int64", [1]))
    for bad in (b"\x0a\x05\x1a", delimited(1, b"\x1a\x03\x0a\x01\x80"), b"\x0f"):
        head = delimited(2, delimited(1, delimited(1, b"a") + delimited(2, good + bad)))
        for spec in (fr.VarLen("int64"), fr.FixedLenSequence((), "int64")):
            with pytest.raises(fr.DecodeError) as caught:
                fr.parse_sequence_example([head], None, {"a": spec})
            assert caught.value.feature == "a"
            assert caught.value.offset is not None
            assert head.index(bad) <= caught.value.offset < len(head)


def test_truncated_maps_raise() -> None:
    record = delimited(1, entry(b"a", b""))[:-1]
    specs: list[Any] = [({"a": fr.VarLen("int64")}, None)]
    specs += [(None, {"a": fr.VarLen("int64")})]
    for context, lists in specs:
        with pytest.raises(fr.DecodeError):
            fr.parse_sequence_example([record], context, lists)


def random_feature(rng: random.Random, kind: Any) -> Any:
    if rng.random() < 0.2:
        return None
    n_values = rng.randrange(4)
    if kind == "bytes":
        return kind, [rng.randbytes(rng.randrange(4)) for _ in range(n_values)]
    if kind == "float":
        return kind, [rng.randrange(-99, 99) / 8 for _ in range(n_values)]
    return kind, [rng.randrange(-(2**63), 2**63) for _ in range(n_values)]


@needs_upb
@pytest.mark.parametrize("seed", range(150))
def test_any_encoding_is_read_like_protobuf(seed: int) -> None:
    rng = random.Random(seed)
    encoder = Encoder(rng, unknown_in_entries=False)
    records = []
    for _ in range(3):
        context = {
            kind.encode(): random_feature(rng, kind)
            for kind in KINDS
            if rng.random() < 0.8
        }
        lists = {
            kind.encode(): [random_feature(rng, kind) for _ in range(rng.randrange(4))]
            for kind in KINDS
            if rng.random() < 0.8
        }
        records.append(encoder.sequence(context, lists))
    specs = {kind: fr.VarLen(dtype) for kind, dtype in DTYPES.items()}
    keyed = {f"of {kind}": fr.VarLen(dtype, key=kind) for kind, dtype in DTYPES.items()}
    context_found, lists_found, _ = fr.parse_sequence_example(records, specs, keyed)
    for i, record in enumerate(records):
        context_wanted, lists_wanted = sequence_by_protobuf(record)
        for kind in KINDS:
            wanted = context_wanted.get(kind.encode())
            found: Any = context_found[kind]
            assert found.tolist()[i] == (wanted[1] if wanted else [])
            steps = lists_wanted.get(kind.encode(), [])
            found = lists_found[f"of {kind}"]
            assert found.tolist()[i] == [step[1] if step else [] for step in steps]


@needs_upb
@pytest.mark.parametrize("seed", range(50))
def test_damaged_records_are_read_like_protobuf_or_raise(seed: int) -> None:
    rng = random.Random(seed)
    spec = {"words": fr.VarLen("bytes"), "xy": fr.FixedLenSequence((2,), "float32")}
    for _ in range(40):
        record = bytearray(RECORDS[0])
        for _ in range(rng.randrange(1, 4)):
            record[rng.randrange(len(record))] = rng.randrange(256)
        record = record[: rng.randrange(len(record) + 1)]
        try:
            _, wanted = sequence_by_protobuf(bytes(record))
        except DecodeError:
            wanted = {}
        try:
            _, found, _ = fr.parse_sequence_example([bytes(record)], None, spec)
        except fr.SchemaError:
            continue
        except fr.DecodeError:
            assert not wanted
            continue
        words: Any = found["words"]
        fr.RaggedArray(words.values, words.row_splits)  # checks them
        fr.RaggedArray(words.values.values, words.values.row_splits)
        if wanted:
            steps = wanted.get(b"words", [])
            assert words.tolist() == [[step[1] if step else [] for step in steps]]


def test_a_real_file(write: Write, testdata: Path) -> None:
    data = gzip.decompress((testdata / "sequence-eval.gz").read_bytes())
    path = write(data)
    ds = open_dataset(
        path,
        context_features={"i": fr.VarLen("int64"), "f": fr.VarLen("float32")},
        sequence_features={"s": fr.VarLen("bytes")},
    )
    assert len(ds) == 4500
    n_seen = 0
    for batch in ds.loader(512, num_threads=2):
        columns = {name: column.tolist() for name, column in batch.items()}
        for row in range(len(batch["s"])):
            context, lists = sequence_by_protobuf(ds.records[n_seen])
            for name in ("i", "f"):
                wanted = context.get(name.encode())
                assert columns[name][row] == (wanted[1] if wanted else [])
            steps = lists.get(b"s", [])
            assert columns["s"][row] == [step[1] if step else [] for step in steps]
            n_seen += 1
    assert n_seen == 4500


def test_padded_strings(write: Write) -> None:
    steps: list[list[Feature]] = [
        [("bytes", [b"x", b""])],
        [],
        [("bytes", [b"yy", b"z"])] * 2,
    ]
    records = [sequence({}, {b"a": step}) for step in steps]
    ds = open_dataset(
        write(tfrecord_file(records)),
        sequence_features={"a": fr.FixedLenSequence((2,), "bytes")},
    )
    assert ds[0:3]["a"].tolist() == [
        [[b"x", b""], [b"", b""]],
        [[b"", b""], [b"", b""]],
        [[b"yy", b"z"], [b"yy", b"z"]],
    ]
    for begin, end in itertools.pairwise([0, 1, 3]):
        assert len(ds[begin:end]["a"]) == end - begin
