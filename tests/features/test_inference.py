"""Schema inference.

Goal
    Without specs, a schema describes what all sampled records have in common, and no
    more: specs, and true comments, for tf.train.Example, SequenceExample and streams.
    The error for a later record that does not fit contains the spec to use.
Method
    Random records that google.protobuf parses, and a slow oracle that derives specs and
    comments from the result; small files for every rule; the real files of the test
    data folder (skipped if it does not exist).
"""

from __future__ import annotations

import gzip
import math
import os
import pickle
import signal
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped, Write, open_dataset, snapshot
from fastrec import _core
from oracle import Feature, Features, example, frame, tfrecord_file
from oracle_example import delimited, sequence, varint_field
from oracle_protobuf import features_by_protobuf, sequence_by_protobuf

Lists = dict[bytes, list[Feature]]

DTYPES = {"bytes": "bytes", "float": "float32", "int64": "int64"}


def opened(write: Write, *records: bytes) -> Untyped:
    return open_dataset(write(tfrecord_file(records)))


def inferred(write: Write, *records: Features) -> Untyped:
    return opened(write, *(example(features) for features in records))


def comments(schema: object) -> dict[str, str]:
    """Return the comment of each column in the printed schema."""
    lines = [line.strip() for line in str(schema).splitlines() if "fr." in line]
    return {
        eval(line.split(": ")[0]): line.partition("  # ")[2].strip() for line in lines
    }


def pasted(ds: Untyped) -> Untyped:
    """Return a dataset of the same files with the printed schema."""
    printed = eval(str(ds.schema), {"fr": fr})
    is_sequence = set(printed) == {"context_features", "sequence_features"}
    return open_dataset(ds.files, **(printed if is_sequence else {"features": printed}))


# The oracle.


def ranged(low: int, high: int, unit: str) -> str:
    if low == high:
        return f"{low:,} {unit}" if low == 1 else f"{low:,} {unit}s"
    return f"{low:,} to {high:,} {unit}s"


def is_text(value: bytes) -> bool:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return all(unicodedata.category(c) != "Cc" or c in "\t\n\r" for c in text)


def values_note(cells: list[Any]) -> list[str]:
    kind, values = cells[0][0], [value for cell in cells for value in cell[1]]
    if not values:
        return ["always empty"]
    if kind != "bytes":
        numbers = [value for value in values if not math.isnan(value)]
        if not numbers:
            return ["always NaN"]
        low, high = min(numbers), max(numbers)
        form = "d" if kind == "int64" else ".6g"
        if low == high and len(numbers) == len(values):
            return [f"always {low:{form}}"]
        n_nan = len(values) - len(numbers)
        nan = f", {n_nan:,} NaN" if n_nan else ""
        return [f"{low:{form}} to {high:{form}}{nan}"]
    sizes = [len(value) for value in values]
    text = ranged(min(sizes), max(sizes), "byte")
    text += " each" if min(sizes) == max(sizes) else ""
    if max(sizes) > 0 and all(map(is_text, values)):
        return ["UTF-8 text", text]
    return [text]


def cells_of(features: Sequence[dict[bytes, Any]], key: bytes) -> list[Any]:
    """Return each record's (kind, values) of a feature, or None."""
    return [found.get(key) for found in features]


def spec_wanted(cells: list[Any], make: Any, **options: Any) -> Any:
    """Return a spec of `make` if all have the same number of values, else VarLen."""
    counts = {None if cell is None else len(cell[1]) for cell in cells}
    dtype = DTYPES[next(cell[0] for cell in cells if cell)]
    if len(counts) > 1 or counts == {0}:
        return fr.VarLen(dtype, **options)
    (n,) = counts
    return make(() if n == 1 else (n,), dtype, **options)


def counts_note(cells: list[Any]) -> list[str]:
    counts = [len(cell[1]) for cell in cells]
    low, high = min(counts), max(counts)
    return [] if low == high else [ranged(low, high, "value")]


def share_note(n_present: int, n: int) -> list[str]:
    return (
        []
        if n_present == n
        else [f"in {round(1000 * n_present / n) / 10:g}% of records"]
    )


# One kind for each key, because inference raises for mixed kinds.
VALUES: dict[Any, Any] = {
    b"i": ("int64", st.integers(-(2**63), 2**63 - 1)),
    b"f": ("float", st.floats(width=32)),
    # Too short for image signatures, which have separate tests.
    b"s": ("bytes", st.binary(max_size=2) | st.text(max_size=3).map(str.encode)),
    b"j": ("int64", st.integers(0, 3)),
}


def feature_of(key: bytes) -> Any:
    kind, values = VALUES[key]
    one = st.lists(values, min_size=1, max_size=1)
    some = one | one | st.lists(values, max_size=3)
    return some.map(lambda found: (kind, found)) | st.none()


FEATURES = st.fixed_dictionaries({}, optional={key: feature_of(key) for key in VALUES})
LISTS = st.fixed_dictionaries(
    {}, optional={key: st.lists(feature_of(key), max_size=3) for key in VALUES}
)


@given(records=st.lists(FEATURES, min_size=1, max_size=5))
def test_examples_are_what_an_oracle_infers(write: Write, records: list[Any]) -> None:
    serialized = [example(features) for features in records]
    parsed = [features_by_protobuf(record) for record in serialized]
    specs, notes = {}, {}
    for key in sorted({key for found in parsed for key in found}):
        cells = cells_of(parsed, key)
        present = [cell for cell in cells if cell]
        if not present:
            continue
        specs[key.decode()] = spec_wanted(cells, fr.FixedLen)
        note = share_note(len(present), len(cells))
        note += counts_note(present) + values_note(present)
        notes[key.decode()] = ", ".join(note)
    ds = opened(write, *serialized)
    if not specs:
        with pytest.raises(fr.SchemaError, match="no features"):
            ds.schema  # noqa: B018
        return
    assert dict(ds.schema) == specs
    assert list(ds.schema) == sorted(specs)
    for name, comment in comments(ds.schema).items():
        told, _, suggested = comment.partition("; ")
        assert told == notes[name]
        assert bool(suggested) == suggests(specs[name], cells_of(parsed, name.encode()))
    n_records = f"all {len(records)} records" if records[1:] else "the only record"
    assert f"inferred from {n_records}" in str(ds.schema)
    assert snapshot([pasted(ds)[0 : len(records)]]) == snapshot([ds[0 : len(records)]])


def suggests(spec: Any, cells: list[Any]) -> bool:
    """Return whether the comment should suggest a default or an array."""
    present = [cell[1] for cell in cells if cell]
    if len(present) < len(cells):
        counts = {len(values) for values in present}
        return len(counts) == 1 and counts != {0}
    if spec != fr.FixedLen((), "bytes"):
        return False
    strings = [value for values in present for value in values]
    sizes = {len(value) for value in strings}
    return len(sizes) == 1 and max(sizes) > 1 and not all(map(is_text, strings))


@given(records=st.lists(st.tuples(FEATURES, LISTS), min_size=1, max_size=4))
def test_sequences_are_what_an_oracle_infers(write: Write, records: list[Any]) -> None:
    serialized = [sequence(context, lists) for context, lists in records]
    # One record with lists makes all of them sequences.
    serialized.append(sequence({b"id": ("int64", [1])}, {b"z": [("int64", [1])]}))
    parsed = [sequence_by_protobuf(record) for record in serialized]
    contexts, lists = [found for found, _ in parsed], [found for _, found in parsed]
    specs: dict[str, Any] = {}
    notes: dict[str, str] = {}
    context_keys = {key for found in contexts for key in found}
    for key in sorted(context_keys):
        cells = cells_of(contexts, key)
        present = [cell for cell in cells if cell]
        if present:
            specs[key.decode()] = spec_wanted(cells, fr.FixedLen)
            note = share_note(len(present), len(cells))
            notes[key.decode()] = ", ".join(
                note + counts_note(present) + values_note(present)
            )
    list_specs: dict[str, Any] = {}
    for key in sorted({key for found in lists for key in found}):
        there = [found[key] for found in lists if key in found]
        steps = [step for found in there for step in found]
        present = [step for step in steps if step]
        if not present:
            continue
        name = key.decode()
        options = {}
        if key in context_keys:
            name, options = f"{name}_list", {"key": name}
        list_specs[name] = spec_wanted(steps, fr.FixedLenSequence, **options)
        sizes = [len(found) for found in there]
        note = share_note(len(there), len(lists))
        note.append(ranged(min(sizes), max(sizes), "step"))
        if len(present) < len(steps):
            note.append(f"{len(steps) - len(present)} of them without values")
        notes[name] = ", ".join(note + counts_note(present) + values_note(present))
    ds = opened(write, *serialized)
    schema = ds.schema
    assert dict(schema) == specs | list_specs
    assert list(schema) == [*specs, *list_specs]
    assert {name: c.partition("; ")[0] for name, c in comments(schema).items()} == notes
    printed = eval(str(schema), {"fr": fr})
    assert printed == {"context_features": specs, "sequence_features": list_specs}
    n = len(serialized)
    assert repr(pasted(ds)[0:n]) == repr(ds[0:n])


# The rules, one by one.


def test_a_schema_is_inferred_without_features(write: Write) -> None:
    """FixedLen only if every record has the same count; never Raw or a default."""
    ds = inferred(
        write,
        {
            b"image": ("bytes", [b"\0" * 9]),
            b"label": ("int64", [9]),
            b"box": ("float", [0.0, 0.5, 1.0]),
            b"tags": ("bytes", [b"x"]),
            b"ids": ("int64", [1]),
        },
        {
            b"ids": ("int64", []),
            b"image": ("bytes", [b"\1" * 9]),
            b"label": ("int64", [8]),
            b"box": ("float", [2.0, 2.5, 3.0]),
            b"tags": ("bytes", [b"y", b"z"]),
            b"sometimes": ("int64", [1]),
        },
    )
    assert dict(ds.schema) == {
        "image": fr.FixedLen((), "bytes"),
        "label": fr.FixedLen((), "int64"),
        "box": fr.FixedLen((3,), "float32"),
        "tags": fr.VarLen("bytes"),
        "ids": fr.VarLen("int64"),
        "sometimes": fr.VarLen("int64"),
    }
    assert ds[0]["image"] == b"\0" * 9
    assert ds[0]["label"] == 9
    batch = ds[0:2]
    assert list(batch) == list(ds.schema)
    assert batch["box"].tolist() == [[0.0, 0.5, 1.0], [2.0, 2.5, 3.0]]
    assert batch["tags"].tolist() == [[b"x"], [b"y", b"z"]]
    assert batch["sometimes"].tolist() == [[], [1]]


def test_a_printed_schema_is_python_with_the_same_meaning(write: Write) -> None:
    ds = inferred(
        write,
        {b"a": ("int64", [1, 2]), b"b/c": ("bytes", [b"x"]), b"\xff": ("int64", [1])},
        {b"a": ("int64", [3, 4]), b"none": None},
    )
    assert snapshot([pasted(ds)[0:2]]) == snapshot([ds[0:2]])
    assert snapshot([open_dataset(ds.files, features=ds.schema)[0:2]]) == snapshot(
        [ds[0:2]]
    )
    copied = pickle.loads(pickle.dumps(ds.schema))
    assert repr(copied) == repr(ds.schema)


@pytest.mark.parametrize(
    ("values", "comment"),
    [
        ([b"\xff\xd8\xff\xe0", b"\xff\xd8\xff" * 411], "JPEG, 4 to 1,233 bytes"),
        ([b"\x89PNG\r\n\x1a\n."] * 2, "PNG, 9 bytes each"),
        ([b"GIF87a;", b"GIF89a"], "GIF, 6 to 7 bytes"),
        ([b"RIFF\0\0\0\0WEBPVP8 "], "WebP, 16 bytes each"),
        ([b"", "Gr\u00fc\u00dfe".encode()], "UTF-8 text, 0 to 7 bytes"),
        ([b"a", b"\xff"], "1 byte each"),
        ([b"text", b"\xff\xd8\xff\xe0"], "an array?"),
        ([b"", b""], "0 bytes each"),
        (
            [b"\0" * 784] * 2,
            "784 bytes each; an array of any dtype (zeros)? fr.Raw((784,), 'uint8')",
        ),
        ([b"\1" * 7], "7 bytes each; an array? fr.Raw((7,), 'uint8')"),
        ([b"\0" * 7, b"\0" * 8], "7 to 8 bytes"),
    ],
)
def test_formats_of_byte_strings(
    write: Write, values: list[bytes], comment: str
) -> None:
    ds = inferred(write, *({b"s": ("bytes", [value])} for value in values))
    assert dict(ds.schema) == {"s": fr.FixedLen((), "bytes")}
    found = comments(ds.schema)["s"]
    assert comment in found if comment.endswith("?") else comment == found


def test_suggestions_can_be_pasted(write: Write) -> None:
    ds = inferred(
        write,
        {b"a": ("int64", [1, 2]), b"raw": ("bytes", [b"\3\0\0\0\4\0\0\0"])},
        {b"raw": ("bytes", [b"\5\0\0\0\6\0\0\0"])},
    )
    notes = comments(ds.schema)
    default = notes["a"].partition("; or ")[2].replace("...", "[0, 0]")
    arrays = notes["raw"].removesuffix(" (ambiguous)").partition("an array? ")[2]
    shapes = []
    for raw in arrays.split(" or "):
        spec = {"a": eval(default), "raw": eval(raw)}
        batch = open_dataset(ds.files, features=spec)[0:2]
        assert batch["a"].tolist() == [[1, 2], [0, 0]]
        shapes.append(batch["raw"].shape)
    assert shapes == [(2, 8), (2, 1), (2, 2)]


def test_a_default_is_suggested_only_if_it_would_be_used(write: Write) -> None:
    lists: Lists = {b"z": [("int64", [1])]}
    a: Features = {b"a": ("int64", [1])}
    # Present but empty, or of differing counts: a default would not help.
    for values in ([], [1, 2]):
        ds = inferred(write, a, {b"a": ("int64", values)}, {})
        assert "default" not in comments(ds.schema)["a"]
    assert "default=" in comments(inferred(write, a, {b"a": None}).schema)["a"]
    # In a context, it replaces absent features only.
    ds = opened(write, sequence(a, lists), sequence({}, lists))
    assert "default=" in comments(ds.schema)["a"]
    ds = opened(write, sequence(a, lists), sequence({b"a": None}, lists))
    assert "default" not in comments(ds.schema)["a"]


def test_shares_are_never_rounded_to_none_or_all(write: Write) -> None:
    rare, common = example({b"a": ("int64", [1])}), example({b"b": ("int64", [2])})
    ds = open_dataset(write(frame(rare) + frame(common) * 2999))
    assert comments(ds.schema)["a"].startswith("in 0.1% of records")
    assert comments(ds.schema)["b"].startswith("in 99.9% of records")


def test_features_that_never_have_a_kind_are_not_read(write: Write) -> None:
    ds = inferred(write, {b"a": ("int64", [1]), b"none": None, b"zzz": None})
    assert list(ds.schema) == ["a"]
    assert "# 'none': not read" in str(ds.schema)
    assert "# 'zzz': not read" in str(ds.schema)
    ds = opened(
        write, sequence({b"c": None}, {b"a": [("int64", [1])], b"l": [], b"m": [None]})
    )
    assert list(ds.schema) == ["a"]
    for name in "clm":
        assert f"# {name!r}: not read" in str(ds.schema)
    assert list(ds.head(1)[0]) == ["a"]


def test_mixed_kinds_raise_unless_the_feature_is_not_read(write: Write) -> None:
    ds = inferred(
        write,
        {b"a": ("int64", [1]), b"b": ("int64", [1])},
        {b"a": ("float", [1.0]), b"b": ("int64", [2])},
    )
    with pytest.raises(
        fr.SchemaError,
        match="have one kind of values, got float values in 1, int64 values",
    ) as caught:
        ds.schema  # noqa: B018
    assert caught.value.feature == "a"
    assert ds.with_features(["b"])[0:2]["b"].tolist() == [1, 2]
    lists = sequence(
        {}, {b"a": [("int64", [1]), ("bytes", [])], b"b": [None, ("float", [2.0])]}
    )
    ds = opened(write, lists)
    with pytest.raises(fr.SchemaError, match="of 2 steps in 1 sampled records"):
        ds.schema  # noqa: B018
    assert ds.with_features(["b"])[0]["b"].tolist() == [[], [2.0]]


def test_names_select_inferred_features(write: Write) -> None:
    record = sequence(
        {b"a": ("int64", [1]), b"b": ("int64", [2])},
        {b"a": [("float", [0.5])], b"c": [("float", [1.5])]},
    )
    ds = opened(write, record)
    assert list(ds.schema) == ["a", "b", "a_list", "c"]
    chosen = ds.with_features(["c", "b", "a_list"])
    assert list(chosen.schema) == list(chosen[0:1]) == ["c", "b", "a_list"]
    assert chosen[0]["a_list"].tolist() == [0.5]
    assert list(open_dataset(ds.files, features=["c"]).schema) == ["c"]
    with pytest.raises(
        fr.SchemaError, match="available features are 'a', 'b', 'a_list', 'c'"
    ):
        open_dataset(ds.files, features=["x"]).schema  # noqa: B018
    with pytest.raises(fr.SchemaError, match="did you mean 'a_list'"):
        open_dataset(ds.files, features=["a_lisst"]).schema  # noqa: B018


# SequenceExamples.


def test_one_record_with_lists_makes_all_of_them_sequences(write: Write) -> None:
    plain = example({b"id": ("int64", [1])})
    lists = sequence({b"id": ("int64", [2])}, {b"x": [("float", [1.0, 2.0])] * 3})
    empty = sequence({b"id": ("int64", [3])}) + delimited(2, b"")
    ds = opened(write, plain, lists, empty)
    assert dict(ds.schema) == {
        "id": fr.FixedLen((), "int64"),
        "x": fr.FixedLenSequence((2,), "float32"),
    }
    assert comments(ds.schema)["x"] == "in 33.3% of records, 3 steps, 1 to 2"
    assert ds[0:3]["id"].tolist() == [1, 2, 3]
    assert ds[0:3]["x"].shape == (3, 3, 2)
    [batch] = ds.loader(3, num_threads=1)
    assert batch["x"].tolist() == ds[0:3]["x"].tolist()
    assert [row["id"] for row in ds.head(9)] == [1, 2, 3]
    assert repr(pickle.loads(pickle.dumps(ds)).schema) == repr(ds.schema)
    # Records without lists are Examples.
    assert type(opened(write, plain).schema) is fr.Schema


@pytest.mark.parametrize(
    "unknown",
    [delimited(2, b"a name"), varint_field(2, 7), delimited(2, b"\x0a\x05\x1a")],
)
def test_a_field_2_that_is_not_a_feature_list_is_ignored(
    write: Write, unknown: bytes
) -> None:
    ds = opened(write, example({b"id": ("int64", [1])}) + unknown)
    assert type(ds.schema) is fr.Schema
    assert ds[0] == {"id": 1}
    assert fr.decode_example(ds.records[0]).keys() == {"id"}


def test_names_in_both_sections(write: Write) -> None:
    record = sequence(
        {b"a": ("int64", [1]), b"a_list": ("int64", [2]), b"\xff": ("int64", [3])},
        {
            b"a": [("float", [4.0])],
            b"a_list_list": [("float", [5.0])],
            b"\xff": [("float", [6.0])],
        },
    )
    ds = opened(write, record)
    assert {name: np.ravel(value).tolist() for name, value in ds[0].items()} == {
        "a": [1],
        "a_list": [2],
        b"\xff": [3],
        "a_list_list_list": [4.0],
        "a_list_list": [5.0],
        b"\xff_list": [6.0],
    }
    assert ds.schema["a_list_list_list"].key == "a"
    assert repr(pasted(ds)[0]) == repr(ds[0])


def test_features_of_sequences_can_be_changed(write: Write) -> None:
    ds = opened(write, sequence({b"a": ("int64", [1])}, {b"x": [("int64", [2])]}))
    lists = {"x": fr.VarLen("int32")}
    other = ds.with_features(
        context_features={"a": fr.FixedLen((), "int8")}, sequence_features=lists
    )
    assert other[0]["a"].dtype == np.int8
    assert other[0]["x"].tolist() == [[2]]
    assert list(ds.with_features(sequence_features=lists)[0]) == ["x"]
    with pytest.raises(fr.SchemaError, match="SequenceExample"):
        ds.with_features({"a": "int64"})[0]
    wrong: list[dict[str, Any]] = [
        {},
        {"features": {"a": "int64"}, "sequence_features": lists},
        {"context_features": lists, "sequence_features": lists},
        {"context_features": {}},
    ]
    for options in wrong:
        with pytest.raises(fr.SchemaError):
            ds.with_features(**options)


def test_selected_columns_keep_their_comments(write: Write) -> None:
    required = {"x": fr.FixedLenSequence((), "int64", allow_missing=False)}
    record = sequence({b"a": ("int64", [1])}, {b"x": [("int64", [2])], b"y": []})
    ds = opened(write, record)
    chosen = ds.select_columns(["x"])
    assert comments(chosen.schema) == {"x": "1 step, always 2"}
    assert "inferred from the only record" in str(chosen.schema)
    assert "'y'" in str(ds.schema)
    assert "'y'" not in str(chosen.schema)
    given = ds.with_features(sequence_features=required).select_columns(["x"])
    assert dict(given.schema) == required
    assert "inferred" not in str(given.schema)
    plain = inferred(
        write, {b"a": ("int64", [1]), b"b": ("int64", [2])}
    ).select_columns(["b"])
    assert comments(plain.schema) == {"b": "always 2"}


def test_datasets_that_are_joined_are_inferred_together(write: Write) -> None:
    one = opened(write, sequence({b"a": ("int64", [1])}, {b"x": [("int64", [2])]}))
    two = opened(
        write, sequence({b"a": ("int64", [1, 2])}, {b"x": [("int64", [2, 3])]})
    )
    assert dict(one.schema) != dict(two.schema)
    both = fr.concat([one, two])
    assert dict(both.schema) == {"a": fr.VarLen("int64"), "x": fr.VarLen("int64")}
    assert both.schema == both.infer_schema()
    batch: Untyped = both[0:2]
    assert batch["x"].tolist() == [[[2]], [[2, 3]]]
    plain = inferred(write, {b"a": ("int64", [1])})
    assert dict(fr.concat([one, plain]).schema) == dict(one.schema)
    mixed = fr.mix({"one": (one, 1), "two": (two, 1)})
    assert mixed.infer_schema() == both.schema


# How many records.


def numbered(write: Write, n: int) -> Untyped:
    return inferred(write, *({b"n": ("int64", [i])} for i in range(n)))


def test_the_sample_is_spread_evenly(write: Write) -> None:
    ds = numbered(write, 10)
    for sample, (low, high), said in [
        (1, (0, 0), "1 of 10"),
        (2, (0, 5), "2 of 10"),
        (5, (0, 8), "5 of 10"),
        (10, (0, 9), "all 10"),
        (11, (0, 9), "all 10"),
        (2**62, (0, 9), "all 10"),
        (None, (0, 9), "all 10"),
    ]:
        schema = ds.infer_schema(sample=sample)
        assert comments(schema) == {"n": f"{low} to {high}" if high else "always 0"}
        assert f"inferred from {said} records" in str(schema)
    assert repr(ds.infer_schema()) == repr(ds.schema)


def test_inference_reads_the_records_of_a_view(write: Write) -> None:
    ds = numbered(write, 100)
    schema = ds.select([7, 3, 50]).infer_schema(sample=2)
    assert comments(schema) == {"n": "3 to 7"}
    assert "2 of 3 records" in str(schema)
    assert repr(ds.with_features({"x": "int64"}).infer_schema()) == repr(ds.schema)
    assert comments(ds.select([3]).schema) == {"n": "0 to 99"}  # that of the files


def test_streams_are_sampled_from_the_beginning(write: Write) -> None:
    path = Path(numbered(write, 10).files[0])
    ds = open_dataset(write(gzip.compress(path.read_bytes())))
    for sample, told, said in [
        (1, "always 0", "the first record"),
        (4, "0 to 3", "the first 4 records"),
        (None, "0 to 9", "the first 10 records"),
        (4096, "0 to 9", "the first 10 records"),
    ]:
        schema = ds.infer_schema(sample=sample)
        assert comments(schema) == {"n": told}
        assert f"inferred from {said}" in str(schema)
    assert repr(ds.schema) == repr(ds.infer_schema())


@pytest.mark.parametrize("sample", [0, -1, 1.5, "4", True])
def test_sample_must_be_a_number_of_records(write: Write, sample: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="sample"):
        numbered(write, 2).infer_schema(sample=sample)


def test_no_records_have_no_features(write: Write) -> None:
    for data in (b"", gzip.compress(b"")):
        ds = open_dataset(write(data))
        for schema in (ds.schema, ds.infer_schema(sample=None)):
            assert len(schema) == 0
            assert "no records" in str(schema)
            assert eval(str(schema)) == {}
        assert ds.head() == []


# Records without features; tests/features/test_records.py has other messages.


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_examples_without_features_raise(
    write: Write, compress: Callable[[bytes], bytes]
) -> None:
    ds = open_dataset(write(compress(tfrecord_file([b""] * 3))))
    reads: list[Callable[[], object]] = [
        lambda: ds.schema,
        lambda: next(iter(ds)),
        lambda: next(iter(ds.loader(1))),
    ]
    for read in reads:
        with pytest.raises(fr.SchemaError, match=r"no features.*fr\.Record\(\)"):
            read()
    assert next(iter(ds.records)) == b""


def test_damage_raises_corruption_errors(write: Write) -> None:
    good = tfrecord_file([example({b"n": ("int64", [1])})] * 4)
    damaged = bytearray(good)
    damaged[-5] ^= 1
    for data in (
        bytes(damaged),
        gzip.compress(good)[:-9],
        gzip.compress(bytes(damaged)),
    ):
        with pytest.raises(fr.CorruptionError):
            open_dataset(write(data)).schema  # noqa: B018


# Later records.


def later(write: Write, seen: bytes, odd: bytes, *, streamed: bool) -> Untyped:
    """Return a dataset inferred from `seen` only; its last record is `odd`."""
    n = 4096 if streamed else 3 * 4096
    data = frame(seen) * n + frame(odd)
    return open_dataset(write(gzip.compress(data, 1) if streamed else data))


CASES: list[Any] = [
    ({}, r"'a' is missing.*default=, or use fr\.VarLen\(\"int64\"\)"),
    ({b"a": None}, r"'a' is missing.*default=, or use fr\.VarLen\(\"int64\"\)"),
    (
        {b"a": ("int64", [1, 2])},
        r"'a' holds 2 values.*fr\.VarLen\(\"int64\"\) accepts any",
    ),
    ({b"a": ("int64", [])}, r"'a' holds 0 values.*fr\.VarLen\(\"int64\"\) accepts any"),
    ({b"a": ("float", [1.0])}, r"'a' holds float values.*\"float32\" reads them"),
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("odd", "message"), CASES)
def test_the_error_for_a_later_record_contains_the_spec_to_use(
    write: Write, odd: Features, message: str, streamed: bool
) -> None:
    ds = later(write, example({b"a": ("int64", [1])}), example(odd), streamed=streamed)
    n_sampled = "the first 4,096 records" if streamed else "4,096 of 12,289 records"
    assert f"inferred from {n_sampled}" in str(ds.schema)

    def read_all() -> None:
        for _ in ds.loader(512, num_threads=2):
            pass

    reads: list[Any] = [read_all, lambda: list(ds)]
    if not streamed:
        reads.append(lambda: ds[-1])
    for read in reads:
        with pytest.raises(fr.SchemaError, match=message) as caught:
            read()
        assert caught.value.record == len(ds) - 1
        assert caught.value.feature == "a"
        assert f"inferred from {n_sampled}, is FixedLen((), 'int64')" in str(
            caught.value
        )


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("context", "steps", "message"),
    [
        (
            None,
            [],
            r"feature 'c' is missing.*default=, or use fr\.VarLen\(\"float32\"\)",
        ),
        (
            [1.0, 2.0],
            [],
            r"feature 'c' holds 2 values.*fr\.VarLen\(\"float32\"\) accepts",
        ),
        (
            [1.0],
            [("int64", [1])],
            r"list 'x' has a step of 1 value,.*fr\.VarLen\(\"int64\"\)",
        ),
        (
            [1.0],
            [None],
            r"list 'x' has a step of 0 values.*fr\.VarLen\(\"int64\"\) accepts",
        ),
        (
            [1.0],
            [("bytes", [b""])],
            r"list 'x' has a step of bytes.*\"bytes\" reads them",
        ),
    ],
)
def test_the_error_for_a_later_sequence_contains_the_spec_to_use(
    write: Write,
    context: list[float] | None,
    steps: list[Feature],
    message: str,
    streamed: bool,
) -> None:
    seen = sequence({b"c": ("float", [0.5])}, {b"x": [("int64", [1, 2])] * 2})
    odd = sequence({b"c": ("float", context)} if context else {}, {b"x": steps})
    ds = later(write, seen, odd, streamed=streamed)
    with pytest.raises(fr.SchemaError, match=message) as caught:
        for _ in ds.loader(512, num_threads=2):
            pass
    assert "its spec, inferred from" in str(caught.value)
    assert caught.value.record == len(ds) - 1


def test_errors_of_explicit_specs_do_not_mention_inference(
    write: Write,
) -> None:
    ds = inferred(write, {b"a": ("int64", [1, 2])})
    with pytest.raises(fr.SchemaError, match="its spec is FixedLen"):
        ds.with_features({"a": fr.FixedLen((), "int64")})[0]


# Ctrl-C.


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads")
def test_an_inference_can_be_interrupted() -> None:
    """The stream is endless, so only the signal ends the survey."""
    record = frame(example({b"n": ("int64", [1])}))
    streams = _core.ByteStreams(1, 1, 1 << 16)
    files = _core.FileTable(b"endless", ["auto"])

    def feed() -> None:
        assert streams.begin() == 0
        n_pushed = 0
        while streams.push(0, record * 100):
            n_pushed += 1
            if n_pushed == 50:
                os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            _core.Survey(100).add_stream(
                _core.FrameStream(streams, files, [0], "raise"), 2**63, 2**63, False
            )
    finally:
        streams.stop()
        thread.join()


# Real files.


def protobuf_cells(ds: Untyped, n: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield name and cells of the features that protobuf parses in `n` records."""
    parsed = [
        features_by_protobuf(record)
        for record, _ in zip(ds.records, range(n), strict=False)
    ]
    for key in sorted({key for found in parsed for key in found}):
        yield key.decode(), cells_of(parsed, key)


@pytest.mark.parametrize(
    ("name", "n_features"),
    [
        ("taxi-train-00000-of-00012.gz", 18),
        ("penguin-train.gz", 5),
        ("mnist-1000.tfrecord", 2),
    ],
)
def test_real_files(testdata: Path, name: str, n_features: int) -> None:
    ds = open_dataset(testdata / name)
    specs, left_out = {}, []
    for column, cells in protobuf_cells(ds, 4096):
        present = [cell for cell in cells if cell]
        if present:
            specs[column] = spec_wanted(cells, fr.FixedLen)
            note = share_note(len(present), len(cells))
            note += counts_note(present) + values_note(present)
            assert comments(ds.schema)[column].partition("; ")[0] == ", ".join(note)
        else:
            left_out.append(column)
    assert dict(ds.schema) == specs
    assert len(specs) + len(left_out) == n_features
    for column in left_out:
        assert f"# {column!r}: not read" in str(ds.schema)
    want, got = ds.head(20), pasted(ds).head(20)
    assert repr(got) == repr(want)


def test_a_real_file_of_sequences(testdata: Path) -> None:
    ds = open_dataset(testdata / "sequence-eval.gz")
    assert dict(ds.schema) == {
        "f": fr.VarLen("float32"),
        "i": fr.VarLen("int64"),
        "s": fr.FixedLenSequence((), "bytes"),
    }
    assert comments(ds.schema)["s"] == "2 steps, UTF-8 text, 5 bytes each"
    n_rows = 0
    for batch in ds.loader(512, num_threads=2):
        assert batch["s"].shape[1:] == (2,)
        n_rows += len(batch["s"])
    assert n_rows == len(ds) == 4500
    for row, record in zip(ds.head(50), ds.records, strict=False):
        context, lists = sequence_by_protobuf(record)
        assert row["s"].tolist() == [step[1][0] for step in lists[b"s"]]
        for name in ("i", "f"):
            wanted = context[name.encode()]
            assert row[name].tolist() == (wanted[1] if wanted else [])
    assert repr(pasted(ds).head(3)) == repr(ds.head(3))
