"""Ragged and Sparse: columns composed of several features.

Goal
    Partitions nest rows, indices place values, and a record whose features do not match
    raises an error for that record, before anything is composed. The result is a column
    like any other: for rows, slices, joins and padded batches.
Method
    Small records with every partition; tests/oracle/test_oracle_tf_specs.py compares
    many more with TensorFlow.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from oracle import example, tfrecord_file

R = fr.Ragged


def record(**features: Any) -> bytes:
    """Return a record with int64, bytes or float features."""
    kinds = {int: "int64", bytes: "bytes", float: "float"}
    return example(
        {
            key.encode(): (kinds[type(values[0])] if values else "int64", values)  # type: ignore[misc]
            for key, values in features.items()
        }
    )


ROWS = [[[1, 2], [], [3, 4, 5]], [], [[], [6]]]
RECORDS = [
    record(
        v=[1, 2, 3, 4, 5],
        lengths=[2, 0, 3],
        splits=[0, 2, 2, 5],
        starts=[0, 2, 2],
        limits=[2, 2, 5],
        ids=[0, 0, 2, 2, 2],
        outer=[1, 2],
    ),
    record(),
    record(
        v=[6],
        lengths=[0, 1],
        splits=[0, 0, 1],
        starts=[0, 0],
        limits=[0, 1],
        ids=[1],
        outer=[2],
    ),
]


def parse(records: list[bytes], spec: Any) -> Untyped:
    return fr.parse_example(records, {"a": spec})["a"]


def every_column(write: Write) -> Untyped:
    """Return a dataset of RECORDS with a column of each composed kind."""
    features = {
        "ragged": R("int64", [R.RowLengths("outer"), R.RowLengths("lengths")], key="v"),
        "inner": R("int64", [R.UniformRowLength(1)], "int32", key="v"),
        "sparse": fr.Sparse("v", "v", "int64", 10),
    }
    return open_dataset(write(tfrecord_file(RECORDS)), features=features)


@pytest.mark.parametrize(
    "partition",
    [
        R.RowLengths("lengths"),
        R.RowSplits("splits"),
        R.RowStarts("starts"),
        R.RowLimits("limits"),
        R.ValueRowIds("ids"),
    ],
)
def test_every_partition_makes_the_same_rows(partition: Any) -> None:
    got = parse(RECORDS, R("int64", [partition], key="v"))
    assert got.tolist() == ROWS
    assert got.row_splits.dtype == np.int64
    small = parse(RECORDS, R("uint8", [partition], "int32", key="v"))
    assert small.tolist() == ROWS
    assert (small.dtype, small.row_splits.dtype) == (np.uint8, np.int32)
    assert small.values.row_splits.dtype == np.int32


def test_partitions_of_tensorflow_are_accepted() -> None:
    # They are named tuples there.
    class RowSplits(NamedTuple):
        key: str

    class UniformRowLength(NamedTuple):
        length: int

    class RaggedFeature(NamedTuple):
        dtype: str
        value_key: str
        partitions: tuple[object, ...]
        row_splits_dtype: str = "int32"

    feature = RaggedFeature("int64", "v", (RowSplits("s"), UniformRowLength(2)))
    partitions: Untyped = [fr.Ragged.RowSplits("s"), fr.Ragged.UniformRowLength(2)]
    wanted = fr.Ragged("int64", partitions, "int32", key="v")
    assert fr.Schema({"x": feature}) == {"x": wanted}


def test_partitions_nest_outermost_first() -> None:
    spec = R("int64", [R.RowLengths("outer"), R.RowLengths("lengths")], key="v")
    want = [[[[1, 2]], [[], [3, 4, 5]]], [], [[[], [6]]]]
    assert parse(RECORDS, spec).tolist() == want
    between = R("int64", [R.UniformRowLength(1), R.RowLengths("lengths")], key="v")
    assert parse(RECORDS, between).tolist() == [[[r] for r in rows] for rows in ROWS]


def test_uniform_partitions_at_the_end_are_inner_dimensions() -> None:
    records = [
        record(v=[*range(8)], n=[1, 1]),
        record(),
        record(v=[8, 9, 10, 11], n=[1]),
    ]
    pairs = R("int64", [R.UniformRowLength(2)], key="v")
    assert parse(records, pairs).values.shape == (6, 2)
    deeper = parse(
        records,
        R(
            "int64",
            [R.RowLengths("n"), R.UniformRowLength(2), R.UniformRowLength(2)],
            key="v",
        ),
    )
    assert deeper.shape == (3, None, None, 2, 2)
    assert deeper.tolist() == [
        [[[[0, 1], [2, 3]]], [[[4, 5], [6, 7]]]],
        [],
        [[[[8, 9], [10, 11]]]],
    ]
    words = parse(
        [record(v=[b"a", b"b"])], R("bytes", [R.UniformRowLength(2)], key="v")
    )
    assert words.tolist() == [[[b"a", b"b"]]]
    again: Untyped = pickle.loads(pickle.dumps(words))
    assert again.equals(words)


@pytest.mark.parametrize(
    ("features", "partition", "feature"),
    [
        ({"v": [1, 2], "p": [1]}, R.RowLengths("p"), "p"),
        ({"v": [1, 2]}, R.RowLengths("p"), "p"),
        ({"v": [1, 2], "p": [3, -1]}, R.RowLengths("p"), "p"),
        ({"v": [1, 2], "p": [2**63 - 1, 2**63 - 1, 4]}, R.RowLengths("p"), "p"),
        ({"v": [1, 2], "p": [1, 2]}, R.RowSplits("p"), "p"),
        ({"v": [1, 2], "p": [0, 2, 1, 2]}, R.RowSplits("p"), "p"),
        ({"v": [1, 2], "p": [0, 3]}, R.RowSplits("p"), "p"),
        ({"v": [1, 2], "p": [1]}, R.RowStarts("p"), "p"),
        ({"v": [1, 2], "p": [0, 3]}, R.RowStarts("p"), "p"),
        ({"v": [1, 2], "p": [-1, 2]}, R.RowLimits("p"), "p"),
        ({"v": [1, 2], "p": [1]}, R.RowLimits("p"), "p"),
        ({"v": [1, 2], "p": [0]}, R.ValueRowIds("p"), "p"),
        ({"v": [1, 2], "p": [1, 0]}, R.ValueRowIds("p"), "p"),
        ({"v": [1, 2], "p": [-1, 0]}, R.ValueRowIds("p"), "p"),
        ({"v": [1, 2], "p": [0, 2**62]}, R.ValueRowIds("p"), "p"),
        ({"v": [1, 2], "p": [1.0, 1.0]}, R.RowLengths("p"), "p"),
        ({"v": [1, 2, 3]}, R.UniformRowLength(2), "v"),
    ],
)
def test_partitions_that_do_not_fit_are_errors_of_their_record(
    write: Write,
    features: Any,
    partition: Any,
    feature: str,
) -> None:
    records = [record(), record(**features)]
    spec = {"a": R("int64", [partition], key="v")}
    with pytest.raises(fr.SchemaError) as caught:
        fr.parse_example(records, spec)
    assert (caught.value.record, caught.value.feature) == (1, feature)
    ds = open_dataset(write(tfrecord_file(records)), features=spec)
    with pytest.raises(fr.SchemaError, match=f"'{feature}'") as caught:
        ds[0:2]
    assert caught.value.record == 1
    assert caught.value.path == ds.files[0]
    good = ds.loader(1).peek()
    assert good["a"].tolist() == [[]]


# Sparse.


def test_sparse_values_are_sorted_by_index_unless_already_sorted() -> None:
    records = [record(i=[5, 1], v=[50, 10]), record(), record(i=[2], v=[20])]
    got = parse(records, fr.Sparse("i", "v", "int64", 6))
    assert isinstance(got, fr.SparseArray)
    assert got.dense_shape == got.shape == (3, 6)
    assert got.indices.tolist() == [[0, 1], [0, 5], [2, 2]]
    assert got.values.tolist() == [10, 50, 20]
    assert got.to_dense(-1)[0].tolist() == [-1, 10, -1, -1, -1, 50]
    as_is = parse(records, fr.Sparse("i", "v", "int64", 6, already_sorted=True))
    assert as_is.indices.tolist() == [[0, 5], [0, 1], [2, 2]]
    assert as_is.to_dense().tolist() == got.to_dense().tolist()


def test_sparse_features_may_have_several_axes_and_hold_bytes() -> None:
    records = [record(x=[1, 0], y=[0, 2], v=[b"one", b"two"]), record()]
    got = parse(records, fr.Sparse(["x", "y"], "v", "bytes", (2, 3)))
    assert got.dense_shape == (2, 2, 3)
    assert got.to_dense().tolist()[0] == [[b"", b"", b"two"], [b"one", b"", b""]]


@pytest.mark.parametrize(
    "features",
    [
        {"i": [1]},
        {"v": [1]},
        {"i": [1, 2], "v": [1]},
        {"i": [6], "v": [1]},
        {"i": [-1], "v": [1]},
        {"i": [1.0], "v": [1]},
        {"i": [1], "v": [300]},
    ],
)
def test_indices_that_do_not_fit_are_errors_of_their_record(features: Any) -> None:
    with pytest.raises(fr.SchemaError) as caught:
        parse([record(), record(**features)], fr.Sparse("i", "v", "uint8", 6))
    assert caught.value.record == 1
    assert caught.value.feature in ("i", "v")


def test_sparse_arrays_are_arrays_of_rows() -> None:
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 9, (7, 4, 3)) * (rng.random((7, 4, 3)) < 0.3)
    indices = np.argwhere(dense)
    s = fr.SparseArray(indices, dense[tuple(indices.T)], dense.shape)
    assert s.to_dense().tolist() == dense.tolist()
    assert len(s) == 7
    for i in (0, 3, -1):
        assert s[i].to_dense().tolist() == dense[i].tolist()
        assert s[i].dense_shape == (4, 3)
    for index in (
        slice(2, 5),
        slice(None, None, -2),
        [3, 3, 0],
        np.arange(7) % 2 == 0,
        [],
    ):
        assert s[index].to_dense().tolist() == dense[index].tolist()
    batches = [{"s": s}, {"s": s[:0]}, {"s": s[2:4]}]
    joined: Untyped = fr.concat_batches(batches)
    assert joined["s"].to_dense().tolist() == [*dense.tolist(), *dense[2:4].tolist()]
    for twin in (copy.copy(s), copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        assert twin.equals(s)
    assert not s[1:].equals(s[:-1])
    with pytest.raises(TypeError, match="equals"):
        assert s == s[:]
    with pytest.raises(TypeError, match="to_dense"):
        np.asarray(s)
    with pytest.raises(IndexError):
        s[7]
    with pytest.raises(IndexError):
        s[0][0][0]


@pytest.mark.parametrize(
    ("indices", "values", "shape"),
    [
        ([[0, 0]], [1, 2], (2, 2)),
        ([[0, 2]], [1], (2, 2)),
        ([[-1, 0]], [1], (2, 2)),
        ([[1, 0], [0, 0]], [1, 2], (2, 2)),
        ([0], [1], ()),
        ([[0, 0]], ["a"], (2, 2)),
    ],
)
def test_sparse_array_validates_its_arguments(
    indices: Any,
    values: Any,
    shape: Any,
) -> None:
    with pytest.raises(ValueError, match=r"ind|dimension|dtype"):
        fr.SparseArray(indices, np.array(values), shape)


# As columns.


def test_composed_columns_are_columns(write: Write) -> None:
    ds = every_column(write)
    whole: Untyped = ds[0:3]
    assert list(whole) == ["ragged", "inner", "sparse"]
    nested = whole["ragged"].tolist()
    assert [ds[i]["ragged"].tolist() for i in range(3)] == nested
    assert ds[0]["inner"].tolist() == [[1], [2], [3], [4], [5]]
    assert ds[2]["sparse"].to_dense().tolist() == whole["sparse"].to_dense()[2].tolist()
    taken = fr.take_rows(whole, [2, 0])
    assert taken["ragged"].tolist() == [nested[2], nested[0]]
    joined: dict[str, Any] = fr.concat_batches([taken, whole])
    assert joined["ragged"].tolist() == [nested[2], *nested[:1], *nested]
    assert joined["sparse"].dense_shape == (5, 10)
    last = list(ds.loader(2, pad_last=True, num_threads=1))[-1]
    assert last["ragged"].tolist() == [nested[2], []]
    assert last["sparse"].dense_shape == (2, 10)
    assert last["inner"].row_splits.dtype == np.int32
    assert ds[[]]["ragged"].tolist() == []
    assert ds[[]]["sparse"].dense_shape == (0, 10)


def test_composed_columns_join(write: Write) -> None:
    one, other = every_column(write), every_column(write)
    plain = open_dataset(
        other.files,
        features={**other.schema, "sparse": fr.Sparse("v", "v", "int64", 10, True)},
    )
    both: Untyped = fr.concat([one, plain])[[0, 3, 5, 1]]
    nested = one[0:3]["ragged"].tolist()
    assert both["ragged"].tolist() == [nested[0], nested[0], nested[2], nested[1]]
    assert (
        both["sparse"].to_dense()[1].tolist() == both["sparse"].to_dense()[0].tolist()
    )
    smaller = plain.with_features({"sparse": fr.Sparse("v", "v", "int64", 9)})
    with pytest.raises(fr.SchemaError, match="sparse"):
        fr.concat([one.select_columns(["sparse"]), smaller])[0:2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: R("int64", ["lengths"]),  # type: ignore[list-item]
        lambda: R("int64", [R.RowLengths(3)]),  # type: ignore[arg-type]
        lambda: R("int64", [R.UniformRowLength(0)]),
        lambda: R("int64", (), "int16"),
        lambda: fr.Sparse("i", "v", "int64", (2, 3)),
        lambda: fr.Sparse(["i", "j"], "v", "int64", 3),
        lambda: fr.Sparse([], "v", "int64", ()),
        lambda: fr.Sparse("i", "v", "int64", -1),
        lambda: fr.Sparse("i", 3, "int64", 1),  # type: ignore[arg-type]
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
        R("int64"),
        R(
            "bytes",
            [R.RowSplits("a"), R.ValueRowIds(b"b"), R.UniformRowLength(2)],
            "int32",
        ),
        fr.Sparse(["x", b"y"], "v", "float32", (3, 4), already_sorted=True),
        fr.Sparse("x", "v", "bytes", 7),
    ],
)
def test_specs_compare_by_value_and_pickle(spec: fr.Ragged | fr.Sparse) -> None:
    assert eval(repr(spec), vars(fr)) == spec
    assert hash(pickle.loads(pickle.dumps(spec))) == hash(spec)
    text = repr(fr.Schema({"a": spec}))
    assert eval(text, {"fr": fr})["a"] == spec
