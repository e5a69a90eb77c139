"""``fastrec stats``: statistics of columns.

Goal
    Counts, ranges, means and deviations are exact. Quantiles, common values and distinct
    counts are exact while there are few values, and close otherwise. Nothing depends on
    threads or on how rows are divided into batches.
Method
    NumPy and Counter on whole columns, against the statistics of the files.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("typer")
pytest.importorskip("rich")

import fastrec as fr
from commands import run
from fastrec.cli.column_summary import ColumnSummary
from fastrec.cli.number_summary import QUANTILES, Rows
from fastrec.cli.sketches import MAX_SAMPLE, SmallestHashes
from fastrec.cli.statistics import ColumnStats, Distribution
from fastrec.cli.stats import dataset_stats
from oracle import example, tfrecord_file


def stats_of(columns: list[Any], kind: str) -> ColumnStats:
    """Return the statistics of a column that arrives in several batches."""
    summary, smallest, n_rows = ColumnSummary(kind), SmallestHashes(), 0
    for column in columns:
        rows = Rows(n_rows, len(column), smallest)
        summary.add(summary.of_batch(column, rows))
        n_rows += len(column)
    return summary.stats("x", kind, n_rows)


def check_numbers(found: Distribution | None, values: npt.NDArray[Any]) -> None:
    """Compare exact statistics with those of NumPy."""
    assert found is not None
    finite = values[np.isfinite(values)]
    assert found.n_values == len(values)
    assert found.n_nan == np.isnan(values).sum()
    assert found.n_infinite == np.isinf(values).sum()
    if not len(finite):
        assert (found.minimum, found.mean, found.quantiles) == (None, None, {})
        return
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    scale = float(np.abs(finite.astype(np.float64)).max())
    wide = finite.astype(np.float64)
    assert found.mean == pytest.approx(wide.mean(), rel=1e-9, abs=1e-9 * scale)
    assert found.std == pytest.approx(wide.std(), rel=1e-6, abs=1e-7 * scale)
    assert found.histogram is not None
    assert sum(found.histogram.counts) == pytest.approx(len(finite))
    if found.is_exact:
        expected = np.quantile(wide, QUANTILES)
        assert list(found.quantiles.values()) == pytest.approx(
            expected, abs=1e-9 * scale
        )
        edges = np.array(found.histogram.edges)
        assert found.histogram.counts == tuple(np.histogram(wide, edges)[0])


INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)
FLOATS = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf])


@given(st.lists(st.lists(INTEGERS, max_size=20), min_size=1, max_size=4))
def test_integers_are_summarized_as_by_numpy(batches: list[list[int]]) -> None:
    columns = [np.array(batch, np.int64) for batch in batches]
    every = np.concatenate(columns)
    found = stats_of(columns, "int64")
    check_numbers(found.numbers, every)
    assert (found.n_distinct, found.is_distinct_exact) == (
        len(set(every.tolist())),
        True,
    )
    counts = Counter(every.tolist())
    assert all(counts[each.value] == each.count > 1 for each in found.common)
    frequent = sorted((n for n in counts.values() if n > 1), reverse=True)
    assert [each.count for each in found.common] == frequent[:10]


@given(st.lists(st.lists(FLOATS, max_size=20), min_size=1, max_size=4))
def test_floats_are_summarized_as_by_numpy(batches: list[list[float]]) -> None:
    columns = [np.array(batch, np.float32) for batch in batches]
    every = np.concatenate(columns)
    found = stats_of(columns, "float32")
    check_numbers(found.numbers, every)
    finite = set(every[~np.isnan(every)].tolist())
    n_nan_bits = len({bits.tobytes() for bits in every[np.isnan(every)]})
    assert found.n_distinct == len(finite) + n_nan_bits


@given(st.lists(st.lists(st.binary(max_size=140), max_size=20), min_size=1, max_size=4))
def test_strings_are_summarized(batches: list[list[bytes]]) -> None:
    columns = [fr.BytesArray.from_list(batch) for batch in batches]
    every = [each for batch in batches for each in batch]
    found = stats_of(columns, "bytes")
    check_numbers(found.lengths, np.array([len(each) for each in every], np.int64))
    is_short = all(len(each) <= 128 for each in every)
    assert found.n_distinct == (len(set(every)) if is_short else None)
    counts = Counter(each for each in every if len(each) <= 128)
    assert {each.value for each in found.common} <= {s for s in counts if counts[s] > 1}
    frequent = sorted((n for n in counts.values() if n > 1), reverse=True)
    assert [each.count for each in found.common] == frequent[:10]


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=20))
def test_lists_are_summarized(rows: list[list[int]]) -> None:
    found = stats_of([fr.RaggedArray.from_list(rows, dtype="int64")], "int64")
    check_numbers(found.numbers, np.array([n for row in rows for n in row], np.int64))
    check_numbers(found.per_record, np.array([len(row) for row in rows]))
    assert (found.n_records, found.n_present) == (len(rows), sum(map(bool, rows)))


DRAWS: dict[str, Callable[[np.random.Generator, int], npt.NDArray[Any]]] = {
    "normal": lambda rng, n: rng.standard_normal(n).astype(np.float32),
    "wide": lambda rng, n: np.exp2(rng.uniform(0, 40, n)).astype(np.int64),
    "rows": lambda rng, n: np.arange(n) * 1000,  # noqa: ARG005
    "few": lambda rng, n: rng.choice(
        np.array([0.25, 7e9, -1], np.float32), n, p=[0.7, 0.2, 0.1]
    ),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_estimates_of_many_values_are_close(draw: str) -> None:
    n = 10 * MAX_SAMPLE
    values = DRAWS[draw](np.random.default_rng(0), n)
    found = stats_of(np.array_split(values, 7), str(values.dtype))
    again = stats_of(np.array_split(values, [5, 90_000, 90_001]), str(values.dtype))
    assert found.numbers is not None
    assert again.numbers is not None
    assert found.numbers.quantiles == again.numbers.quantiles
    assert (found.common, found.n_distinct) == (again.common, again.n_distinct)
    check_numbers(found.numbers, values)
    assert not found.numbers.is_exact
    ordered = np.sort(values)
    for probability, quantile in found.numbers.quantiles.items():
        low, high = np.searchsorted(ordered, quantile, "left"), None
        high = np.searchsorted(ordered, quantile, "right")
        assert low / n - 0.009 <= probability <= high / n + 0.009
    n_distinct = len(np.unique(values))
    assert found.n_distinct == pytest.approx(n_distinct, rel=0.07)
    if draw == "few":
        assert found.is_distinct_exact
        shares = [each.count / n for each in found.common]
        assert shares == pytest.approx([0.7, 0.2, 0.1], abs=0.01)


def test_a_sample_is_not_exact_even_of_one_batch() -> None:
    values = np.random.default_rng(0).standard_normal(MAX_SAMPLE + 1).astype(np.float32)
    for columns in ([values], [values[:-1], values[-1:]]):
        found = stats_of(columns, "float32").numbers
        assert found is not None
        assert not found.is_exact
    found = stats_of([values[1:]], "float32").numbers
    assert found is not None
    assert found.is_exact
    check_numbers(found, values[1:])


def test_a_rare_feature_is_exact() -> None:
    n_rows = 4 * MAX_SAMPLE
    lengths = np.zeros(n_rows, np.int64)
    lengths[::100] = 1
    values = np.random.default_rng(0).standard_normal(lengths.sum()).astype(np.float32)
    column = fr.RaggedArray(values, np.concatenate([[0], np.cumsum(lengths)]))
    found = stats_of([column], "float32")
    assert found.n_present == len(values)
    assert found.numbers is not None
    assert found.numbers.is_exact
    check_numbers(found.numbers, values)


def test_integers_of_a_small_range_are_always_exact() -> None:
    values = np.random.default_rng(0).integers(-1000, 60_000, 5 * MAX_SAMPLE)
    found = stats_of(np.array_split(values, 5), "int64")
    check_numbers(found.numbers, values)
    assert found.numbers is not None
    assert found.numbers.is_exact
    assert found.is_common_exact
    assert found.n_distinct == len(np.unique(values))


def test_a_sample_has_all_values_of_a_row_or_none() -> None:
    rng = np.random.default_rng(0)
    values = np.repeat(
        rng.standard_normal(2000).astype(np.float32)[:, None], 100, axis=1
    )
    found = stats_of([values], "float32")
    assert all(
        common.count % 100 == pytest.approx(0, abs=40) for common in found.common
    )
    assert found.per_record.maximum == 100


# Of files.


def test_records_of_several_shapes_are_read(tmp_path: Path) -> None:
    # The sample has one value in every record; another record has none.
    rows = [example({b"n": ("int64", [i % 7])}) for i in range(10_000)]
    rows[17] = example({})
    rows[18] = example({b"n": ("int64", [1, 2])})
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord_file(rows))
    (column,) = dataset_stats(fr.open(path)).columns
    assert (column.n_records, column.n_present) == (10_000, 9_999)
    assert column.per_record.n_values == 10_000
    assert column.per_record.maximum == 2


def test_json_has_all_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    columns = {"label": np.arange(10) % 3, "name": ["tench", "\u00fc"] * 5}
    fr.write(path, columns)
    shown, errors = run("stats", path, "--json")
    assert errors == ""
    report = json.loads(shown)
    label, name = report["columns"]
    assert (report["n_records"], label["name"], name["name"]) == (10, "label", "name")
    assert label["numbers"]["quantiles"]["0.5"] == 1
    assert label["common"][0] == {"value": 0, "count": 4}
    assert name["common"][0]["value"] == "tench"
    assert name["lengths"]["maximum"] == 5
    only = json.loads(run("stats", path, "--json", "--columns", "name")[0])
    assert [column["name"] for column in only["columns"]] == ["name"]


def test_text_names_every_column(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    fr.write(path, {"label": np.arange(10) % 3, "x": np.ones(10, np.float32)})
    shown, _ = run("stats", path)
    assert shown.startswith("10 records, 2 columns\n\nlabel  (int64)\n")
    assert "range       0 to 2, mean 0.9, std 0.83066" in shown
    assert "common      0 (4), 1 (3), 2 (3)" in shown
    _, errors = run("stats", path, "--columns", "lable", status=2)
    assert "no column 'lable'; did you mean 'label'?" in errors


def test_an_empty_feature_has_no_values_and_is_not_called_absent(
    tmp_path: Path,
) -> None:
    path = tmp_path / "data.tfrecord"
    records = [example({b"x": ("int64", values)}) for values in ([1], [], [3], [4])]
    path.write_bytes(tfrecord_file(records))
    assert "x  (int64, 75.0% of records have values)\n" in run("stats", path)[0]
    schema = str(fr.open(path).schema)
    assert "0 to 1 values" in schema
    assert "% of records" not in schema


def test_an_empty_file_has_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"")
    assert run("stats", path)[0] == "0 records, 0 columns\n"


def test_records_that_are_not_examples_have_lengths(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord_file([b"a line of text", b"another line"]))
    (column,) = dataset_stats(fr.open(path)).columns
    assert column.name == "record"
    assert column.lengths is not None
    assert column.lengths.maximum == 14
