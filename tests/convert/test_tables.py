"""Datasets as tables of polars, DuckDB and pandas.

Goal
    These libraries read the values of the batches, with and without pyarrow. Lazy
    queries of polars decode only the columns and rows that they need. Damage is reported
    with the file and the record.
Method
    Queries with known results, compared with plain Python; hypothesis combines what
    polars pushes down. Features that no record fits show whether a column was decoded.
"""

from __future__ import annotations

import collections
import gc
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastrec as fr
from children import run_python
from columns import Untyped, Write, open_dataset
from numbered import SPEC, DataSets, record
from oracle import example, frame, tfrecord_file

duckdb = pytest.importorskip("duckdb")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

pytestmark = pytest.mark.frameworks

FEATURES: dict[str, Any] = {
    **SPEC,
    "padded": fr.FixedLenSequence((), "bytes", key="words", lengths="n_words"),
}


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> Untyped:
    """Two files of 30 and 10 records of tests/support/numbered.py, in a new folder."""
    folder = tmp_path_factory.mktemp("tables")
    for i, numbers in enumerate([range(30), range(30, 40)]):
        path = folder / f"train-{i:05d}.tfrecord"
        path.write_bytes(b"".join(frame(record(n)) for n in numbers))
    return open_dataset(str(folder / "train-*.tfrecord"), features=FEATURES)


def pad(words: list[bytes], width: int) -> list[bytes]:
    return words + [b""] * (width - len(words))


def words_of(n: int) -> list[bytes]:
    return [b"w" * (n % 5)] * (n % 3)


def damaged(write: Write) -> Path:
    frames = [bytearray(frame(record(n))) for n in range(10)]
    frames[3][-1] ^= 1
    return write(b"".join(map(bytes, frames)))


# Whole datasets.


def test_polars_reads_datasets_loaders_and_batches(ds: Untyped) -> None:
    expected = {
        "n": list(range(40)),
        "pixels": [[n, 7, 0] for n in range(40)],
        "words": [words_of(n) for n in range(40)],
        "padded": [words_of(n) for n in range(40)],  # lists of any length
        "n_words": [n % 3 for n in range(40)],
    }
    table = pl.DataFrame(ds)
    assert table.to_dict(as_series=False) == expected
    assert table.schema["pixels"] == pl.Array(pl.UInt8, 3)
    assert pl.from_arrow(ds).struct.unnest().equals(table)  # a Series of rows
    # Batches are padded to their longest row.
    loader = ds.loader(7)
    assert pl.DataFrame(loader).drop("padded").equals(table.drop("padded"))
    batches = [pl.DataFrame(fr.arrow.RecordBatch(batch)) for batch in ds.loader(40)]
    [whole] = batches
    assert whole.drop("padded").equals(table.drop("padded"))
    assert whole["padded"].to_list() == [pad(words_of(n), 2) for n in range(40)]
    assert dict(pl.Schema(ds)) == dict(table.schema)


def test_duckdb_queries_a_glob_of_files(ds: Untyped) -> None:
    query = "SELECT n % 7 AS label, count(*) FROM ds GROUP BY label ORDER BY label"
    counts = collections.Counter(n % 7 for n in range(40))
    assert duckdb.sql(query).fetchall() == sorted(counts.items())
    assert duckdb.sql(query).fetchall() == sorted(counts.items())  # in another pass
    rows = duckdb.from_arrow(ds).order("n").fetchall()
    expected = [(n, (n, 7, 0), words_of(n), words_of(n), n % 3) for n in range(40)]
    assert rows == expected
    loader = ds.loader(7, shuffle=True)  # noqa: F841 (DuckDB finds it by its name)
    total = "SELECT sum(n), sum(len(words)), max(pixels[1]) FROM loader"
    assert duckdb.sql(total).fetchall() == [(780, sum(n % 3 for n in range(40)), 39)]


def test_duckdb_reads_text_and_null(ds: Untyped) -> None:
    few = ds.select(range(2)).with_features({"word": fr.VarLen("bytes", key="words")})
    options: dict[str, Any] = {"text": ["word"], "optional": ["word"]}
    words = fr.arrow.RecordBatchReader(few, **options)  # noqa: F841
    found = duckdb.sql("SELECT word, typeof(word) FROM words").fetchall()
    assert found == [(None, "VARCHAR"), ("w", "VARCHAR")]


def test_duckdb_threads_read_what_a_transform_makes(ds: Untyped) -> None:
    doubled = ds.with_transform(lambda batch: {"x": batch["n"] * 0.5})
    halves = fr.arrow.RecordBatchReader(doubled, batch_size=3)  # noqa: F841
    with duckdb.connect(config={"threads": 4}) as connection:
        assert connection.execute("SELECT sum(x) FROM halves").fetchall() == [(390.0,)]


def test_pandas_reads_datasets(ds: Untyped) -> None:
    if not hasattr(pd.DataFrame, "from_arrow"):
        pytest.skip("pandas reads Arrow since version 3")
    frame = pd.DataFrame.from_arrow(ds.select_columns(["n", "pixels"]))
    assert frame["n"].to_list() == list(range(40))
    assert [row.tolist() for row in frame["pixels"]] == [[n, 7, 0] for n in range(40)]


def test_numbers_in_polars_share_memory_with_the_batch(ds: Untyped) -> None:
    batch = next(iter(ds.loader(40)))
    frame = pl.DataFrame(fr.arrow.RecordBatch({"n": batch["n"]}))
    series = frame["n"].to_numpy(allow_copy=False)
    assert series.ctypes.data == batch["n"].ctypes.data


def test_frames_outlive_their_dataset(ds: Untyped) -> None:
    frames = [pl.DataFrame(fr.arrow.RecordBatch(b)) for b in ds.loader(4)]
    gc.collect()
    for _ in ds.loader(4, shuffle=True).repeat(3):
        pass
    assert pl.concat([frame["n"] for frame in frames]).to_list() == list(range(40))


def test_damage_is_reported_with_file_and_record(write: Write) -> None:
    path = damaged(write)
    rows = fr.arrow.RecordBatchReader(open_dataset(path, features=SPEC), batch_size=2)
    where = rf"CorruptionError: .* - at {path}, record 3"
    with pytest.raises(Exception, match=where):
        pl.DataFrame(rows)
    with pytest.raises(duckdb.Error, match=where):
        duckdb.sql("SELECT sum(n) FROM rows").fetchall()
    if hasattr(pd.DataFrame, "from_arrow"):
        with pytest.raises(ValueError, match=where):
            pd.DataFrame.from_arrow(rows)
    with pytest.raises(fr.CorruptionError, match=r"record 3") as caught:
        fr.polars.scan(path).collect()
    assert (caught.value.path, caught.value.record) == (str(path), 3)


def test_an_empty_dataset_is_a_table_without_rows(write: Write) -> None:
    empty = open_dataset(write(b""), features=SPEC)
    assert pl.DataFrame(empty).shape == (0, 3)
    assert duckdb.sql("SELECT count(*), sum(n) FROM empty").fetchall() == [(0, None)]
    assert fr.polars.scan(empty).collect().shape == (0, 3)


def test_neither_polars_nor_duckdb_needs_pyarrow(ds: Untyped) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import duckdb, polars as pl, fastrec as fr\n"
        "ds = fr.open(sys.argv[1:])\n"
        "print(duckdb.sql('SELECT count(*), sum(n) FROM ds').fetchall())\n"
        "print(pl.DataFrame(ds)['n'].sum(), fr.polars.scan(ds).collect()['n'].sum())\n"
    )
    done = run_python(code, *ds.files)
    assert done.stdout == "[(40, 780)]\n780 780\n"


# Lazily, by polars.


def test_a_scan_has_the_schema_and_rows_of_the_dataset(ds: Untyped) -> None:
    frame = fr.polars.scan(ds)
    assert frame.collect_schema() == pl.DataFrame(ds).schema
    for _ in range(2):
        assert frame.collect().equals(pl.DataFrame(ds))
    assert frame.collect(engine="streaming").equals(pl.DataFrame(ds))
    by_paths = fr.polars.scan(ds.files, text=["words"], optional=["n"])
    assert by_paths.collect_schema()["words"] == pl.List(pl.String)


COLUMNS = ["n", "pixels", "words", "n_words"]


@given(
    columns=st.lists(st.sampled_from(COLUMNS), max_size=3, unique=True),
    n_rows=st.none() | st.integers(0, 50),
    at_least=st.none() | st.integers(0, 45),
    odd=st.booleans(),
)
def test_pushdown_does_not_change_results(
    ds: Untyped, columns: list[str], n_rows: int | None, at_least: int | None, odd: bool
) -> None:
    query, whole = fr.polars.scan(ds), pl.DataFrame(ds).lazy()
    results = []
    for lazy in (query, whole):
        if n_rows is not None:
            lazy = lazy.head(n_rows)
        if at_least is not None:
            lazy = lazy.filter(pl.col("n") >= at_least)
        if odd:
            lazy = lazy.filter(pl.col("n_words") % 2 == 1)
        results.append(lazy.select(columns or COLUMNS).collect())
    assert results[0].equals(results[1])
    assert results[0].schema == results[1].schema


def test_a_query_decodes_the_columns_it_needs(ds: Untyped) -> None:
    spoiled = ds.with_features({**FEATURES, "bad": fr.FixedLen((), "float32", key="n")})
    frame = fr.polars.scan(spoiled, text=["words"])
    with pytest.raises(fr.SchemaError, match="holds int64 values"):
        frame.collect()
    assert frame.select(pl.col("n").sum()).collect().item() == 780
    counted = frame.filter(pl.col("n_words") == 2).select(pl.len())
    assert counted.collect().item() == 13
    assert frame.select("padded").collect().height == 40
    assert frame.select(pl.len()).collect().item() == 40
    assert frame.select("words").collect()["words"].to_list()[4] == ["wwww"]


def test_each_query_skips_the_same_rows(write: Write) -> None:
    spoiled = example({b"n": ("int64", [1]), b"m": ("float", [0.5])})
    good = [example({b"n": ("int64", [n]), b"m": ("int64", [n])}) for n in (0, 2)]
    path = write(tfrecord_file([good[0], spoiled, good[1]]))
    features = {"n": fr.FixedLen((), "int64"), "m": fr.FixedLen((), "int64")}
    frame = fr.polars.scan(open_dataset(path, features=features, on_error="skip"))
    for name in features:
        assert frame.select(name).collect()[name].to_list() == [0, 2]
    assert frame.select(pl.len()).collect().item() == 2


def test_a_column_keeps_no_memory_of_others(ds: Untyped) -> None:
    others: list[weakref.ref[Any]] = []

    def transform(batch: Untyped) -> Untyped:
        other = np.zeros((len(batch["n"]), 3))
        others.append(weakref.ref(other))
        return {"n": batch["n"], "other": other}

    frame = fr.polars.scan(ds.with_transform(transform)).select("n").collect()
    deadline = time.monotonic() + 10
    while any(other() is not None for other in others):
        assert time.monotonic() < deadline, "the other column is kept"
        time.sleep(0.001)
    assert frame["n"].to_list() == list(range(40))


def test_a_query_reads_no_further_than_it_needs(write: Write) -> None:
    ds = open_dataset(damaged(write), features=SPEC)
    frame = fr.polars.scan(ds)
    assert frame.head(3).collect()["n"].to_list() == [0, 1, 2]
    with pytest.raises(fr.CorruptionError):
        frame.head(4).collect()


def test_added_columns_can_be_selected_alone(ds: Untyped, write: Write) -> None:
    mixed = fr.mix({"a": (ds, 1), "b": (ds, 1)})
    sources = fr.polars.scan(mixed).select("__source__").collect()
    assert set(sources["__source__"].to_list()) == {0, 1}
    masked = open_dataset(damaged(write), features=SPEC, on_error="mask")
    valid = fr.polars.scan(masked).select("__valid__").collect()
    assert valid["__valid__"].to_list() == [n != 3 for n in range(10)]


def test_a_scan_applies_transforms(ds: Untyped) -> None:
    def transform(batch: Untyped) -> Untyped:
        return {"x": batch["n"] * 2, "y": np.sqrt(batch["pixels"])}

    frame = fr.polars.scan(ds.with_transform(transform))
    assert frame.collect_schema().names() == ["x", "y"]
    big = frame.filter(pl.col("x") > 70).select("x").collect()
    assert big["x"].to_list() == [72, 74, 76, 78]


def test_a_stopped_scan_stops_its_threads(
    data_of_many: Untyped, threads_end: Callable[[], None]
) -> None:
    assert fr.polars.scan(data_of_many).head(5).collect().height == 5
    gc.collect()
    threads_end()


@pytest.fixture
def data_of_many(write: Write) -> Untyped:
    dataset = DataSets(write).of((300,))
    pl.DataFrame({"x": [1]}).lazy().collect()  # starts polars' threads
    fr.polars.scan(dataset).head(5).collect()
    return dataset


def test_invalid_arguments_are_refused(ds: Untyped) -> None:
    with pytest.raises(ValueError, match="no column 'x'"):
        fr.polars.scan(ds, text=["x"])
    with pytest.raises(TypeError, match="got a Loader"):
        fr.polars.scan(ds.loader(4))
