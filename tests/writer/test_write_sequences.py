"""Writing tf.train.SequenceExample: write_sequence_example and encode_sequence_example.

Goal
    Protobuf reads the values of contexts and feature lists in every form, from messages
    of the length that protobuf writes. Reading returns the values. Errors name the
    feature list and have a hint.
Method
    Hypothesis draws the values, and protobuf parses the record. Tables list the forms of
    feature lists, and the errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped
from fastrec.compat import tf_io, tf_train
from oracle_protobuf import sequence_by_protobuf
from written import records_in, sequences


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.tfrecord"


def lists_found(record: bytes) -> dict[bytes, Any]:
    return sequence_by_protobuf(record)[1]


KINDS: dict[str, Any] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "bytes": st.binary(max_size=20),
}


def step_lists(least: int, most: int) -> st.SearchStrategy[tuple[str, list[list[Any]]]]:
    """A kind, and steps of values of it."""
    return st.sampled_from([*KINDS]).flatmap(
        lambda kind: st.lists(
            st.lists(KINDS[kind], min_size=least, max_size=most), max_size=5
        ).map(lambda steps: (kind, steps))
    )


contexts = st.dictionaries(
    st.text(max_size=4),
    step_lists(1, 4).map(
        lambda drawn: (drawn[0], [v for step in drawn[1] for v in step])
    ),
    max_size=3,
)


@given(
    context=contexts,
    lists=st.dictionaries(st.text(max_size=4), step_lists(1, 4), max_size=3),
)
def test_protobuf_reads_encoded_records(
    context: dict[str, tuple[str, list[Any]]],
    lists: dict[str, tuple[str, list[list[Any]]]],
) -> None:
    context = {name: drawn for name, drawn in context.items() if drawn[1]}
    record = fr.encode_sequence_example(
        context={name: values for name, (_, values) in context.items()},
        feature_lists={name: steps for name, (_, steps) in lists.items()},
    )
    assert sequence_by_protobuf(record) == (
        {name.encode(): drawn for name, drawn in context.items()},
        {
            name.encode(): [(kind, step) for step in steps]
            for name, (kind, steps) in lists.items()
        },
    )
    # Protobuf omits empty parts.
    parsed = tf_train.SequenceExample.FromString(record)
    n_empty = 2 * (not context) + 2 * (not lists)
    assert len(parsed.SerializeToString()) + n_empty >= len(record)


@given(drawn=step_lists(0, 3))
def test_empty_steps_get_the_kind_of_the_others(
    drawn: tuple[str, list[list[Any]]],
) -> None:
    kind, steps = drawn
    found = lists_found(fr.encode_sequence_example(feature_lists={"f": steps}))
    # Without values, the steps have no kind.
    has_values = any(steps)
    assert found == {b"f": [(kind, step) if has_values else None for step in steps]}


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([], []),
        (np.zeros(0), []),
        (np.zeros((0, 3)), []),
        ([1, 2], [("int64", [1]), ("int64", [2])]),
        ((True, np.int8(2)), [("int64", [1]), ("int64", [2])]),
        ([[1, 2], []], [("int64", [1, 2]), ("int64", [])]),
        ([[], [0.5]], [("float", []), ("float", [0.5])]),
        ([(), ["a"]], [("bytes", []), ("bytes", [b"a"])]),
        ([0.5, [1.0, 2.0]], [("float", [0.5]), ("float", [1.0, 2.0])]),
        (["a", b"b"], [("bytes", [b"a"]), ("bytes", [b"b"])]),
        ([["a", b"b"], "c"], [("bytes", [b"a", b"b"]), ("bytes", [b"c"])]),
        (np.array([1, 2], "uint8"), [("int64", [1]), ("int64", [2])]),
        (np.array([[0.5], [1]]), [("float", [0.5]), ("float", [1.0])]),
        (np.zeros((2, 0), "int8"), [("int64", []), ("int64", [])]),
        ([np.zeros(0), np.array([1])], [("int64", []), ("int64", [1])]),
        (fr.BytesArray.from_list(["a", "b"]), [("bytes", [b"a"]), ("bytes", [b"b"])]),
        (fr.BytesArray.from_list([["a", "b"]]), [("bytes", [b"a", b"b"])]),
        ([fr.BytesArray.from_list([]), ["a"]], [("bytes", []), ("bytes", [b"a"])]),
        (fr.RaggedArray.from_list([[1, 2], []]), [("int64", [1, 2]), ("int64", [])]),
        (
            fr.RaggedArray.from_list([["a"], []], "bytes"),
            [("bytes", [b"a"]), ("bytes", [])],
        ),
        (iter([1, 2]), [("int64", [1]), ("int64", [2])]),
        (range(2), [("int64", [0]), ("int64", [1])]),
        ([[], ()], [None, None]),
    ],
)
def test_steps_may_have_any_form(steps: Untyped, found: list[Any]) -> None:
    record = fr.encode_sequence_example(feature_lists={"f": steps})
    assert lists_found(record) == {b"f": found}


def test_parts_may_be_missing() -> None:
    assert sequence_by_protobuf(fr.encode_sequence_example()) == ({}, {})
    only = fr.encode_sequence_example(context={"a": 1})
    assert sequence_by_protobuf(only) == ({b"a": ("int64", [1])}, {})


@pytest.mark.parametrize(
    ("steps", "error", "text"),
    [
        ("text", TypeError, "an iterable of steps, got str"),
        (b"text", TypeError, "an iterable of steps, got bytes"),
        (5, TypeError, "an iterable of steps, got int"),
        ({"a": 1}, TypeError, "an iterable of steps, got dict"),
        (None, TypeError, "an iterable of steps, got NoneType"),
        ([1, 2.0], ValueError, "steps of int64 and of float values"),
        ([1, [], "a"], ValueError, "steps of int64 and of bytes"),
        ([[1, 2.0]], ValueError, "cannot mix int and float"),
        ([1, None], TypeError, "cannot write None"),
        ([object()], TypeError, "type object"),
        ([[[1]]], ValueError, "cannot write lists of lists; write their values"),
        (np.zeros((2, 2, 2)), ValueError, r"2 dimensions.*\.tobytes\(\)"),
        (np.array([2**63], "uint64"), ValueError, r"\.view\(\"int64\"\)"),
        (np.array([1j]), TypeError, "complex128"),
    ],
)
def test_invalid_values_name_the_list_and_a_hint(
    path: Path, steps: Untyped, error: type[Exception], text: str
) -> None:
    lists = {"ok": [1], "f\u00e9": steps}
    with pytest.raises(error, match=f"^feature list 'f\u00e9'.*{text}"):
        fr.encode_sequence_example(context={"a": 1}, feature_lists=lists)
    with fr.Writer(path) as writer:
        with pytest.raises(error, match=f"^feature list 'f\u00e9'.*{text}"):
            writer.write_sequence_example(context={"a": 1}, feature_lists=lists)
        # Later errors about features do not mention the list.
        with pytest.raises(TypeError, match=r"^feature 'a'"):
            writer.write({"a": object()})
        writer.write_sequence_example(feature_lists={"ok": ["other"]})
    assert sequences(path) == [({}, {b"ok": [("bytes", [b"other"])]})]


@pytest.mark.parametrize("part", ["context", "feature_lists"])
@pytest.mark.parametrize("given", [3, [("a", [1])], "abc"])
def test_parts_must_be_mappings(part: str, given: Untyped) -> None:
    with pytest.raises(TypeError, match=f"{part} must be a mapping"):
        fr.encode_sequence_example(**{part: given})
    with pytest.raises(TypeError, match="str or bytes, got int"):
        fr.encode_sequence_example(**{part: {1: [1]}})
    with pytest.raises(ValueError, match="'a' twice"):
        fr.encode_sequence_example(**{part: {"a": [1], b"a": [1]}})


def test_an_exception_of_an_iterable_of_steps_is_raised(path: Path) -> None:
    def steps() -> Iterator[int]:
        yield 1
        raise OSError(5, "the camera is gone")

    with fr.Writer(path) as writer:
        with pytest.raises(OSError, match="the camera is gone"):
            writer.write_sequence_example(feature_lists={"f": steps()})
        writer.write_sequence_example(feature_lists={"f": ["a"]})
    assert len(records_in(path)) == 1


def test_a_context_needs_a_kind_like_a_row() -> None:
    with pytest.raises(ValueError, match=r"^feature 'c' is an empty list"):
        fr.encode_sequence_example(context={"c": []}, feature_lists={"f": [[]]})


def test_a_writer_keeps_order_and_kinds_from_record_to_record(path: Path) -> None:
    with fr.Writer(path) as writer:
        writer.write_sequence_example(
            context={"b": 1, "a": 0.5}, feature_lists={"y": [1.5], "x": ["w"], "z": []}
        )
        writer.write_sequence_example(
            context={"a": 1, "b": 2}, feature_lists={"z": [[]], "x": [[]], "y": [2, []]}
        )
        writer.write_sequence_example(feature_lists={"z": [7]})
        with pytest.raises(ValueError, match=r"^feature list 'x' has int64.*had bytes"):
            writer.write_sequence_example(feature_lists={"x": [1]})
        with pytest.raises(ValueError, match=r"^feature 'b' has float.*had int64"):
            writer.write_sequence_example(context={"b": 0.5})
        # Context features, feature lists and rows have separate kinds.
        writer.write_sequence_example(context={"x": 1}, feature_lists={"b": ["c"]})
        writer.write({"b": "d"})
    records = records_in(path)
    assert records[0].index(b"b") < records[0].index(b"a")
    assert records[1].index(b"b") < records[1].index(b"a")
    assert records[1].index(b"y") < records[1].index(b"x") < records[1].index(b"z")
    assert sequence_by_protobuf(records[1]) == (
        {b"b": ("int64", [2]), b"a": ("float", [1.0])},
        {
            b"y": [("float", [2.0]), ("float", [])],
            b"x": [("bytes", [])],
            b"z": [None],
        },
    )
    assert lists_found(records[2]) == {b"z": [("int64", [7])]}


def test_the_context_is_written_by_specs(path: Path) -> None:
    features = {"image": fr.Raw((2, 2)), "n": fr.FixedLen((2,), "int64", [0, 0])}
    with fr.Writer(path, features=features) as writer:
        writer.write_sequence_example(
            context={"image": np.ones((2, 2), "u1"), "n": [1, 2]}
        )
        with pytest.raises(ValueError, match="'image' is missing"):
            writer.write_sequence_example(context={"n": [1, 2]})
    assert sequences(path) == [
        ({b"image": ("bytes", [b"\1" * 4]), b"n": ("int64", [1, 2])}, {})
    ]


@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_lists_round_trip(
    lengths: list[int], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(seed)
    path = tmp_path_factory.mktemp("sequences") / "data.tfrecord"
    rows: list[dict[str, Any]] = [
        {
            "frame": rng.standard_normal((n, 3), np.float32),
            "event": rng.integers(-(2**40), 2**40, n),
            "words": [
                [b"w" * int(k) for k in rng.integers(0, 5, n % 3)] for _ in range(n)
            ],
        }
        for n in lengths
    ]
    with fr.Writer(path, sync=False) as writer:
        for i, row in enumerate(rows):
            writer.write_sequence_example(context={"i": i}, feature_lists=row)
    context = {"i": fr.FixedLen((), "int64")}
    lists = {
        "frame": fr.FixedLenSequence((3,), "float32"),
        "event": fr.FixedLenSequence((), "int64"),
        "words": fr.VarLen("bytes"),
    }
    for i, (record, row) in enumerate(zip(records_in(path), rows, strict=True)):
        got, got_lists = tf_io.parse_single_sequence_example(
            record, context_features=context, sequence_features=lists
        )
        assert got["i"] == i
        np.testing.assert_array_equal(got_lists["frame"], row["frame"])
        np.testing.assert_array_equal(got_lists["event"], row["event"])
        words: Any = got_lists["words"]
        assert words.tolist() == row["words"]
