"""``fastrec stats``: the summary of columns.

Goal
    Counts, ranges, means, deviations and the counts of common values are exact. Quartiles
    and numbers of distinct values are close. Records that the sample of the schema does
    not show are part of the summary.
Method
    NumPy and Counter on whole columns, against the summary of files.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("duckdb", reason="duckdb is not installed")

import fastrec as fr
from commands import run
from fastrec.cli.stats import summary
from oracle import example, tfrecord_file

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)
FLOATS = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf])
TEXTS = st.text(max_size=3) | st.sampled_from(["tench", "x" * 129])


def columns_of(path: Path) -> list[Any]:
    return [SimpleNamespace(**each) for each in summary(fr.open(path))[1]]


def summary_of(path: Path, rows: list[Any], kind: Any) -> list[Any]:
    """Return the summary of a file with these values of one feature."""
    records = [example({b"x": (kind, each)}) for each in rows]
    path.write_bytes(tfrecord_file(records))
    n_records, _ = summary(fr.open(path))
    assert n_records == len(rows)
    return columns_of(path)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stats") / "a.tfrecord"


def check_numbers(found: Any, values: npt.NDArray[Any]) -> None:
    """Compare a summary with NumPy's."""
    finite = values[np.isfinite(values)]
    assert found.n_not_finite == len(values) - len(finite)
    if not len(finite):
        assert (found.min, found.avg, found.q50, found.common) == (None, None, None, [])
        return
    assert (found.min, found.max) == (finite.min(), finite.max())
    wide = finite.astype(np.float64)
    scale = float(np.abs(wide).max())
    assert found.avg == pytest.approx(wide.mean(), rel=1e-9, abs=1e-9 * scale)
    assert found.std == pytest.approx(wide.std(), rel=1e-6, abs=1e-7 * scale)
    low, high = float(found.min), float(found.max)  # as quantiles of large integers
    assert low <= found.q25 <= found.q50 <= found.q75 <= high


def check_common(found: Any, values: list[Any]) -> None:
    """Check that frequent values have their counts, and that none is more frequent."""
    counts = Counter(values)
    assert all(counts[value] == n for value, n in found.common)
    frequent = sorted(counts.values(), reverse=True)[: len(found.common)]
    if len(counts) <= 5:
        assert [n for _, n in found.common] == frequent


@settings(deadline=None, max_examples=20)
@given(st.lists(INTEGERS, min_size=1, max_size=30))
def test_integers_are_summarized_as_by_numpy(path: Path, values: list[int]) -> None:
    (found,) = summary_of(path, [[value] for value in values], "int64")
    assert (found.name, found.type, found.count) == ("x", "BIGINT", len(values))
    check_numbers(found, np.array(values, np.int64))
    check_common(found, values)


@settings(deadline=None, max_examples=20)
@given(st.lists(FLOATS, min_size=1, max_size=30))
def test_floats_are_summarized_as_by_numpy(path: Path, values: list[float]) -> None:
    (found,) = summary_of(path, [[value] for value in values], "float")
    assert (found.type, found.count) == ("FLOAT", len(values))
    check_numbers(found, np.array(values, np.float32))
    check_common(found, list(filter(math.isfinite, values)))


@settings(deadline=None, max_examples=20)
@given(st.lists(TEXTS, min_size=1, max_size=30))
def test_texts_are_summarized(path: Path, values: list[str]) -> None:
    strings = [value.encode() for value in values]
    (found,) = summary_of(path, [[string] for string in strings], "bytes")
    check_numbers(found, np.array(list(map(len, strings)), np.int64))
    if found.type == "VARCHAR":
        check_common(found, [s.decode() for s in strings if len(s) <= 128])
    else:
        assert (found.type, found.common, found.approx_unique) == ("BLOB", [], 0)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=20))
def test_lists_are_summarized(path: Path, rows: list[list[int]]) -> None:
    rows = [[1, 2], *rows]
    found, lengths = summary_of(path, rows, "int64")
    values = [value for row in rows for value in row]
    assert (found.name, found.count, lengths.name) == ("x", len(values), "len(x)")
    check_numbers(found, np.array(values))
    check_numbers(lengths, np.array(list(map(len, rows))))
    assert lengths.count == sum(map(bool, rows))


def test_estimates_are_close(tmp_path: Path) -> None:
    n = 200_000
    rng = np.random.default_rng(0)
    columns: dict[str, npt.NDArray[Any]] = {
        "normal": rng.standard_normal(n).astype(np.float32),
        "wide": np.exp2(rng.uniform(0, 40, n)).astype(np.int64),
        "few": rng.choice(np.array([0.25, 7e9, -1], np.float32), n, p=[0.7, 0.2, 0.1]),
        "zeros": rng.permutation(np.maximum(np.arange(n) - n // 2, 0)),
    }
    path = tmp_path / "a.tfrecord"
    fr.write(path, columns)
    for found in columns_of(path):
        values = columns[found.name]
        check_numbers(found, values)
        ordered = np.sort(values)
        for share, quartile in ((0.25, found.q25), (0.5, found.q50), (0.75, found.q75)):
            assert quartile is not None
            # Integers are rounded.
            low = np.searchsorted(ordered, quartile - 1, "left") / n
            high = np.searchsorted(ordered, quartile + 1, "right") / n
            assert low - 0.01 <= share <= high + 0.01
        assert found.approx_unique == pytest.approx(len(np.unique(values)), rel=0.15)
        counts = Counter(values.tolist())
        assert all(counts[value] == count for value, count in found.common)
        if found.name in ("few", "zeros"):
            assert found.common[0] == counts.most_common(1)[0]


def test_images_have_lengths(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    images = [b"\xff\xd8\xff" + bytes(n) for n in range(9)]
    fr.write(path, {"image": images, "images": [[images[0], images[1]]] * 9})
    image, several, lengths = columns_of(path)
    assert (image.type, image.min, image.max) == ("BLOB", 3, 11)
    assert (several.type, several.count, several.avg) == ("BLOB[2]", 18, 3.5)
    assert (lengths.name, lengths.min, lengths.max) == ("len(images)", 2, 2)


def test_records_of_several_shapes_are_summarized(tmp_path: Path) -> None:
    # The sample has one value in every record; others have none, two, or no text.
    rows = [
        example({b"n": ("int64", [i % 7]), b"s": ("bytes", [b"a"])})
        for i in range(9000)
    ]
    rows[17] = example({})
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord_file(rows))
    n, s = columns_of(path)
    assert (n.type, n.count, s.type, s.count) == ("BIGINT", 8999, "VARCHAR", 8999)
    rows[5001] = example({b"n": ("int64", [1, 2]), b"s": ("bytes", [b"\xff"])})
    path.write_bytes(tfrecord_file(rows))
    n, per_record, s = columns_of(path)
    assert (n.type, n.count, per_record.count, per_record.max) == (
        "BIGINT[]",
        9000,
        8999,
        2,
    )
    assert (s.type, s.count) == ("BLOB", 8999)


def test_json_has_all_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    columns = {"label": np.arange(10) % 3, "name": ["tench", "\u00fc"] * 5}
    fr.write(path, columns)
    shown, errors = run("stats", path, "--json")
    assert errors == ""
    report = json.loads(shown)
    label, name = report["columns"]
    assert (report["n_records"], label["name"], name["name"]) == (10, "label", "name")
    assert (label["q50"], label["count"], label["approx_unique"]) == (1, 10, 3)
    assert label["common"][0] == [0, 4]
    assert sorted(name["common"]) == [["tench", 5], ["\u00fc", 5]]
    assert (name["type"], name["max"]) == ("VARCHAR", 5)
    only = json.loads(run("stats", path, "--json", "--columns", "name")[0])
    assert [column["name"] for column in only["columns"]] == ["name"]
    few = json.loads(
        run("stats", path, "--json", "--columns", "name", "--where", "label = 0")[0]
    )
    assert (few["n_records"], few["columns"][0]["count"]) == (4, 4)


def test_text_names_every_column(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    values = np.ones(10, np.float32)
    values[0] = np.nan
    fr.write(path, {"label": np.arange(10) % 3, "x": values})
    lines = run("stats", path)[0].splitlines()
    assert lines[0] == "10 records, 2 columns"
    label, x = (" ".join(line.split()) for line in lines[3:5])
    assert label == "label BIGINT 10 0 0 1 2 0.9 0.83066 3 0 (4), 1 (3), 2 (3)"
    assert x == "x FLOAT 10 1 1 1 1 1 0 1 1 (9)"
    _, errors = run("stats", path, "--columns", "lable", status=2)
    assert "did you mean 'label'?" in errors


def test_a_real_file(testdata: Path) -> None:
    path = testdata / "penguin-train.gz"
    found = {each.name: each for each in columns_of(path)}
    batch = next(iter(fr.open(path).loader(1000)))
    for name, column in found.items():
        check_numbers(column, batch[name])
    check_common(found["species"], batch["species"].tolist())


def test_an_empty_file_has_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"")
    assert run("stats", path)[0] == "0 records, 0 columns\n"


def test_records_that_are_not_examples_have_lengths(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord_file([b"a line of text", b"another line"]))
    (column,) = columns_of(path)
    assert (column.name, column.type, column.max) == ("record", "BLOB", 14)
