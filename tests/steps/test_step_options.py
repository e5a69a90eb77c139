"""The arguments of ds.steps, and what it refuses.

Goal
    A wrong argument is an error that names the argument and what to write. Prefixes name
    the columns below them, as in select_columns.
Method
    One file of two records, with nested names as in RLDS.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr


@pytest.fixture
def ds(tmp_path: Path) -> fr.Dataset:
    path = tmp_path / "episodes.tfrecord"
    rows = [
        {
            "steps/action": np.arange(n),
            "steps/state/x": 10 + np.arange(n),
            "steps/state/y": 20 + np.arange(n),
            "info/path": f"{n}.npy",
            "info/robot": n,
        }
        for n in (3, 2)
    ]
    fr.write(path, rows)
    lists = ["steps/action", "steps/state/x", "steps/state/y"]
    features = {name: fr.VarLen("int64") for name in lists}
    info = {"info/path": "bytes", "info/robot": "int64"}
    return fr.open(path, features={**features, **info})


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (None, ["info/path", "info/robot"]),
        ([], []),
        (["info"], ["info/path", "info/robot"]),
        (
            ["info/robot", "steps/state"],
            ["steps/state/x", "steps/state/y", "info/robot"],
        ),
        (["steps"], ["steps/state/x", "steps/state/y"]),
    ],
)
def test_columns_are_kept_by_name_and_prefix(
    ds: fr.Dataset, keep: list[str] | None, kept: list[str]
) -> None:
    rows = ds.steps({"steps/action": [0, 1]}, keep=keep)
    assert rows.column_names == ["steps/action", *kept]
    row = rows[3]
    assert row.pop("steps/action").tolist() == [0, 1]
    for name, value in row.items():
        assert np.array_equal(value, ds[1][name]), name


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"windows": {}}, TypeError, "windows must be a dict"),
        ({"windows": ["steps/action"]}, TypeError, "windows must be a dict"),
        ({"windows": {"steps/action": [0.5]}}, TypeError, "must be a step number"),
        ({"windows": {"steps/actoin": [0]}}, KeyError, "did you mean 'steps/action'"),
        ({"windows": {"info/robot": [0]}}, fr.SchemaError, "no steps of one shape"),
        ({"every": 0}, ValueError, "every must be at least 1"),
        ({"edge": "pad"}, fr.SchemaError, "edge must be 'repeat', 'zero' or 'drop'"),
        ({"keep": "info/path"}, TypeError, "requires a list of names"),
        ({"keep": ["info/pth"]}, KeyError, "did you mean 'info/path'"),
        ({"keep": ["steps/action"]}, ValueError, "not be in both windows and keep"),
    ],
)
def test_wrong_arguments_are_named(
    ds: fr.Dataset, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ds.steps(**{"windows": {"steps/action": [0]}, **options})


def test_steps_are_made_of_records_without_transforms(
    ds: fr.Dataset, tmp_path: Path
) -> None:
    rows = ds.steps({"steps/action": 0})
    windows = {"steps/action": [0]}
    for source in (
        ds.with_transform(lambda batch: batch),
        ds.cache(tmp_path / "kept"),
        rows,
        fr.mix({"a": (ds, 1.0), "b": (ds, 1.0)}),
    ):
        with pytest.raises(TypeError, match="steps"):
            source.steps(windows)
    with pytest.raises(TypeError, match="before they are joined"):
        fr.mix({"a": (ds, 1.0), "b": (rows, 1.0)})


def test_the_steps_of_a_record_stay_in_one_part_of_a_split(ds: fr.Dataset) -> None:
    rows = ds.steps({"steps/action": 0})
    with pytest.raises(TypeError, match="before steps"):
        rows.split([0.5, 0.5])
    first, second = rows.split([0.6, 0.4], by_step=True)
    assert (len(first), len(second)) == (3, 2)
    parts = [part.steps({"steps/action": 0}) for part in ds.split([0.5, 0.5])]
    assert sorted(len({*part.column("info/robot").tolist()}) for part in parts) == [
        1,
        1,
    ]


def test_a_schema_is_inferred_from_records(ds: fr.Dataset) -> None:
    rows = ds.steps({"steps/action": 0})
    assert repr(rows.infer_schema()) == repr(ds.infer_schema())


def test_the_name_of_a_mask_must_be_free(tmp_path: Path) -> None:
    columns = {"x": fr.RaggedArray.from_list([[1, 2]]), "x/mask": np.array([7])}
    fr.write(tmp_path / "a.tfrecord", columns)
    features: Any = {"x": fr.VarLen("int64"), "x/mask": fr.FixedLen((), "int64")}
    ds = fr.open(tmp_path / "a.tfrecord", features=features)
    with pytest.raises(fr.SchemaError, match="adds column 'x/mask'"):
        ds.steps({"x": [0, 1]}, edge="zero")
    rows = ds.steps({"x": [0, 1]})
    assert rows[:]["x/mask"].tolist() == [7, 7]
    assert rows.select_columns(["x/mask"]).column_names == ["x/mask"]


def test_columns_are_in_the_order_of_the_schema_or_of_the_names(
    tmp_path: Path,
) -> None:
    lists = [[1, 2, 3], [4]]
    columns: Any = {"id": [0, 1], "a": fr.RaggedArray.from_list(lists)}
    fr.write(tmp_path / "a.tfrecord", columns)
    ds = fr.open(
        tmp_path / "a.tfrecord",
        features={
            "id": fr.FixedLen((), "int64"),
            "a": fr.VarLen("int64"),
            "p": fr.FixedLenSequence((), "int64", key="a", lengths="n", default=-1),
        },
    )
    rows = ds.steps({"a": [0]}, edge="zero", keep=["id", "p"])
    assert [*rows[:]] == ["id", "a", "a/mask", "p", "n"]
    assert rows[:]["n"].tolist() == [3, 3, 3, 1]
    assert rows[3]["p"].tolist() == [4]
    assert [*rows.select_columns(["a", "id"])[:]] == ["a", "a/mask", "id"]
    joined = fr.concat([rows, ds.select([0]).steps({"a": [0]}, edge="zero")])
    names = {tuple(batch) for batch in joined.select_columns(["id", "a"]).loader(3)}
    assert names == {("id", "a", "a/mask")}


def test_the_first_rows_in_a_notebook_are_steps(ds: fr.Dataset) -> None:
    shown = ds.steps({"steps/action": [0, 1]}, edge="zero")._repr_html_()
    assert "steps/action/mask" in shown
    assert "row 2" in shown


@pytest.mark.parametrize("windows", [{"steps/action": []}, {"steps/action": [2**31]}])
def test_windows_out_of_range_are_refused(ds: fr.Dataset, windows: Any) -> None:
    with pytest.raises(ValueError, match="at least one step number, all below"):
        ds.steps(windows)
