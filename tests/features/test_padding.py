"""FixedLenSequence and Stack: padded lists and stacked scalars.

Goal
    Rows of a padded column are their values followed by the default, in every dtype, at
    the width of the spec; a stack equals its separate features. Both hold for short
    batches, padding rows, and joined datasets.
Method
    The same records read with `VarLen` and padded by hand, and with one `FixedLen` for
    each feature of a stack.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped, Write, cell, cells, open_dataset
from oracle import Features, example, tfrecord_file

DTYPES = ["int64", "int16", "uint8", "float32", "float16", "float64", "bytes"]
KIND_OF = {"bytes": "bytes", "float32": "float", "float16": "float", "float64": "float"}


def dataset(write: Write, records: Sequence[Any], features: Any) -> Untyped:
    return open_dataset(
        write(tfrecord_file(example(features) for features in records)),
        features=features,
    )


def a(*values: Any) -> Features:
    return {b"a": ("int64", values)}


def column(write: Write, records: Sequence[Features], spec: Any) -> Untyped:
    return dataset(write, records, {"a": spec})[0 : len(records)]["a"]


@settings(max_examples=60)
@given(data=st.data())
def test_padded_equals_ragged_with_padding(write: Write, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = data.draw(st.sampled_from([(), (1,), (2,), (3, 2)]))
    value = st.binary(max_size=4) if dtype == "bytes" else st.integers(0, 100)
    n_values = int(np.prod(shape))
    rows = data.draw(
        st.lists(
            st.none()
            | st.lists(
                st.lists(value, min_size=n_values, max_size=n_values), max_size=5
            ),
            min_size=1,
            max_size=6,
        )
    )
    kind: Any = KIND_OF.get(dtype, "int64")
    records: list[Any] = [
        {} if items is None else {b"a": (kind, [v for item in items for v in item])}
        for items in rows
    ]
    fill = data.draw(st.none() | value)
    multiple_of = data.draw(st.none() | st.integers(1, 4))
    length = None if multiple_of else data.draw(st.none() | st.integers(0, 6))
    longest = max(len(items or ()) for items in rows)
    truncate = length is not None and length < longest
    spec = fr.FixedLenSequence(
        shape,
        dtype,
        fill,
        length=length,
        multiple_of=multiple_of,
        truncate=truncate,
        lengths="n",
    )
    width = length
    if width is None:
        width = -(-longest // (multiple_of or 1)) * (multiple_of or 1)
    batch = dataset(write, records, {"a": spec})[0 : len(rows)]
    assert list(batch) == ["a", "n"]
    assert tuple(batch["a"].shape) == (len(rows), width, *shape)
    kept = [len((items or [])[:width]) for items in rows]
    assert batch["n"].tolist() == kept
    assert batch["n"].dtype == np.int64
    if dtype != "bytes":
        assert batch["a"].dtype == np.dtype(dtype)
    default = fill if fill is not None else (b"" if dtype == "bytes" else 0)
    for items, got in zip(rows, cells(batch["a"]), strict=True):
        want = [v for item in (items or [])[:width] for v in item]
        want += [default] * (width * n_values - len(want))
        assert got.ravel().tolist() == want


def test_a_single_row_has_its_own_width(write: Write) -> None:
    ds = dataset(write, [a(1, 2, 3), a(4), {}], {"a": fr.FixedLenSequence((), "int64")})
    assert [ds[i]["a"].tolist() for i in range(3)] == [[1, 2, 3], [4], []]
    assert ds[0:3]["a"].tolist() == [[1, 2, 3], [4, 0, 0], [0, 0, 0]]
    assert ds[[]]["a"].shape == (0, 0)
    fixed = ds.with_features({"a": fr.FixedLenSequence((), "int64", length=4)})
    assert fixed[1]["a"].tolist() == [4, 0, 0, 0]
    assert fixed[[]]["a"].shape == (0, 4)


@pytest.mark.parametrize("n_values", [0, 1, 100_000])
def test_padded_columns_of_any_size_are_correct(write: Write, n_values: int) -> None:
    """Small columns share a block of memory, large ones do not."""
    records = [a(*range(n)) for n in (n_values, 3, n_values // 2)]
    spec = {"a": fr.FixedLenSequence((), "int64", -1), "b": fr.VarLen("int64", key="a")}
    batch = dataset(write, records, spec)[0:3]
    assert batch["a"].tolist() == batch["b"].to_padded(fill=-1).tolist()


def test_rows_longer_than_length_raise_unless_truncated(write: Write) -> None:
    records = [a(1, 2), a(1, 2, 3)]
    with pytest.raises(fr.SchemaError, match="truncate=True") as caught:
        column(write, records, fr.FixedLenSequence((), "int64", length=2))
    assert (caught.value.record, caught.value.feature) == (1, "a")
    got = column(
        write, records, fr.FixedLenSequence((), "int64", length=2, truncate=True)
    )
    assert got.tolist() == [[1, 2], [1, 2]]
    with pytest.raises(fr.SchemaError, match="expected a multiple of 2"):
        column(write, records, fr.FixedLenSequence((2,), "int64"))
    spec = fr.FixedLenSequence((), "uint8", length=1, truncate=True)
    with pytest.raises(fr.SchemaError, match="300"):
        column(write, [a(1, 300)], spec)


def test_padding_and_stacks_pass_through_a_loader(write: Write) -> None:
    records = [{**a(*range(n)), b"b": ("int64", [n])} for n in range(7)]
    spec = {
        "a": fr.FixedLenSequence((), "int64", -1, lengths="n"),
        "s": fr.Stack(["b", "c"], "int32", default=-2),
    }
    ds = dataset(write, records, spec)
    batches = list(ds.loader(4, pad_last=True, num_threads=2))
    assert [batch["a"].shape for batch in batches] == [(4, 3), (4, 6)]
    assert batches[1]["n"].tolist() == [4, 5, 6, 0]
    assert batches[1]["a"][3].tolist() == [-1] * 6
    assert batches[1]["s"].tolist() == [[4, -2], [5, -2], [6, -2], [0, 0]]
    taken = fr.take_rows(batches[0], [2, 0])
    assert taken["a"].tolist() == [[0, 1, -1], [-1, -1, -1]]
    twice = fr.concat_batches([taken, taken])
    assert twice["s"].tolist() == [[2, -2], [0, -2]] * 2


def test_joined_datasets_are_padded_to_one_width(write: Write) -> None:
    def of(records: Sequence[Features], fill: int) -> Untyped:
        spec = {
            "a": fr.FixedLenSequence((), "int64", fill),
            "b": fr.FixedLenSequence((1,), "bytes", key="b"),
        }
        return dataset(write, records, spec)

    words: Features = {b"b": ("bytes", [b"x", b"yz"])}
    both = fr.concat([of([a(1)], -1), of([{**a(1, 2, 3), **words}, a()], -2)])
    batch: Untyped = both[0:3]
    assert batch["a"].tolist() == [[1, -1, -1], [1, 2, 3], [-2, -2, -2]]
    assert batch["b"].tolist() == [[[b""], [b""]], [[b"x"], [b"yz"]], [[b""], [b""]]]
    other = dataset(write, [a(1)], {"a": fr.FixedLenSequence((), "int64", length=2)})
    with pytest.raises(fr.SchemaError, match="padded to 2"):
        fr.concat([of([a(1)], -1).select_columns(["a"]), other])[0:2]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_keys", [1, 3, 40])
def test_a_stack_equals_its_separate_features(
    write: Write, dtype: str, n_keys: int
) -> None:
    rng = np.random.default_rng(n_keys)
    kind: Any = KIND_OF.get(dtype, "int64")
    keys = [f"f{i}" for i in range(n_keys)]
    defaults = [str(i).encode() if kind == "bytes" else i for i in range(n_keys)]
    records: list[Features] = [
        {
            key.encode(): (kind, [b"s" * n if kind == "bytes" else int(n)])
            for key, n in zip(keys, rng.integers(0, 9, n_keys), strict=True)
            if rng.random() < 0.8
        }
        for _ in range(5)
    ]
    spec: Any = {
        "s": fr.Stack(keys, dtype, default=defaults),
        "end": fr.VarLen("bytes"),
    }
    for key, default in zip(keys, defaults, strict=True):
        spec[key] = fr.FixedLen((), dtype, default=default)
    batch = dataset(write, records, spec)[0:5]
    assert tuple(batch["s"].shape) == (5, n_keys)
    whole = cell(batch["s"])
    for i, key in enumerate(keys):
        assert whole[:, i].tolist() == batch[key].tolist()


def test_errors_of_a_stack_name_the_feature(write: Write) -> None:
    wrong: list[Any] = [{}, {b"b": ("int64", [1, 2])}, {b"b": ("float", [1.0])}]
    for features in wrong:
        with pytest.raises(fr.SchemaError) as caught:
            column(write, [{**a(1), **features}], fr.Stack(["a", "b"], "int64"))
        assert caught.value.feature == "b"


@pytest.mark.parametrize(
    "make",
    [
        lambda: fr.FixedLenSequence((0,), "int64"),
        lambda: fr.FixedLenSequence((), "int64", allow_missing=1),  # type: ignore[arg-type]
        lambda: fr.Schema({"a": fr.FixedLenSequence((), "int64", allow_missing=False)}),
        lambda: fr.FixedLenSequence((), "int64", [1, 2]),
        lambda: fr.FixedLenSequence((), "bytes", 0),
        lambda: fr.FixedLenSequence((), "int8", 128),
        lambda: fr.FixedLenSequence((), "int64", length=-1),
        lambda: fr.FixedLenSequence((), "int64", length=2, multiple_of=2),
        lambda: fr.FixedLenSequence((), "int64", multiple_of=0),
        lambda: fr.FixedLenSequence((), "int64", truncate=True),
        lambda: fr.FixedLenSequence((), "int64", lengths=3),  # type: ignore[arg-type]
        lambda: fr.Stack([], "int64"),
        lambda: fr.Stack("ab", "int64"),
        lambda: fr.Stack(["a", 3], "int64"),  # type: ignore[list-item]
        lambda: fr.Stack(["a", "b"], "int64", default=[1]),
        lambda: fr.Stack(["a", "b"], "int64", default=0.5),
        lambda: fr.Schema(
            {"n": fr.VarLen(), "a": fr.FixedLenSequence((), "int64", lengths="n")}
        ),
    ],
)
def test_invalid_specs_raise_at_construction(
    make: Callable[[], object],
) -> None:
    with pytest.raises(fr.SchemaError):
        make()


@pytest.mark.parametrize(
    "spec",
    [
        fr.FixedLenSequence((2, 3), "uint8", 7, multiple_of=8, lengths="n", key="k"),
        fr.FixedLenSequence((), "bytes", "pad", length=3, truncate=True),
        fr.Stack(["a", b"\xff"], "float32", default=[1, 2.5]),
    ],
)
def test_specs_compare_by_value_and_pickle(
    spec: fr.FixedLenSequence | fr.Stack,
) -> None:
    assert eval(repr(spec), vars(fr)) == spec
    assert hash(pickle.loads(pickle.dumps(spec))) == hash(spec)
