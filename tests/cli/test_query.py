"""``fastrec query`` and ``--where``: SQL over the records.

Goal
    A query sees the values of the records: text as text, other bytes as bytes, missing
    features as nulls, and several values as lists. It decodes the columns that it uses.
    A condition finds the same records in every command, in their order, and they are
    written unchanged. Errors of SQL are one message.
Method
    A Python loop over rows is the oracle. Damage shows which columns are decoded.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")

import fastrec as fr
from children import run_python
from commands import run
from fastrec.cli.sql import Table, matching_rows
from oracle import Features, example, tfrecord_file

Row = dict[str, list[Any]]
NAMES = [b"tench", b"Z\xc3\xbcrich", b"", b"a 'quoted' \"name\""]
KINDS: dict[str, Any] = {
    "x": "float",
    "image/class/text": "bytes",
    "tags": "bytes",
    "data": "bytes",
}


def rows(n: int = 200) -> list[Row]:
    rng = np.random.default_rng(0)
    return [
        {
            "n": [int(rng.integers(-3, 4))],
            "m": [int(rng.integers(1, 4))] if i % 3 else [],
            "x": [float(np.float32(rng.choice([0.1, 0.5, np.nan, 2])))],
            "image/class/text": [NAMES[int(rng.integers(len(NAMES)))]],
            "tags": [NAMES[i] for i in rng.integers(0, 4, int(rng.integers(0, 4)))],
            "ids": rng.integers(0, 5, int(rng.integers(0, 4))).tolist(),
            "data": [b"\xff" + bytes([int(rng.integers(3))])],
            "order": [2**62 + i],
        }
        for i in range(n)
    ]


ROWS = rows()
RECORDS = [
    example({name.encode(): (KINDS.get(name, "int64"), row[name]) for name in row})
    for row in ROWS
]


@pytest.fixture(params=["plain", "gzip"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    content = tfrecord_file(RECORDS)
    target = tmp_path / "in.tfrecord"
    target.write_bytes(gzip.compress(content) if request.param == "gzip" else content)
    return target


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    target = tmp_path / "in.tfrecord"
    target.write_bytes(tfrecord_file(RECORDS))
    return target


def answers(path: Path, sql: str) -> list[dict[str, Any]]:
    shown, errors = run("query", path, sql, "--json")
    assert errors == ""
    return [json.loads(line) for line in shown.splitlines()]


# Values.


def test_columns_have_the_types_of_their_values(plain: Path) -> None:
    assert {
        row["column_name"]: row["column_type"]
        for row in answers(plain, "DESCRIBE records")
    } == {
        "data": "BLOB",
        "ids": "BIGINT[]",
        "image/class/text": "VARCHAR",
        "m": "BIGINT",
        "n": "BIGINT",
        "order": "BIGINT",
        "tags": "VARCHAR[]",
        "x": "FLOAT",
    }


def test_json_has_the_values_of_the_records(path: Path) -> None:
    found = answers(path, "FROM records")
    assert len(found) == len(ROWS)
    for row, values in zip(ROWS, found, strict=True):
        assert values["order"] == row["order"][0], "integers are exact"
        assert values["m"] == (row["m"][0] if row["m"] else None)
        x = row["x"][0]
        assert values["x"] == (None if math.isnan(x) else float(str(np.float32(x))))
        assert values["image/class/text"] == row["image/class/text"][0].decode()
        assert values["tags"] == [tag.decode() for tag in row["tags"]]
        assert values["ids"] == row["ids"]
        assert values["data"].keys() == {"base64"}


def test_other_types_of_sql_are_json(plain: Path) -> None:
    sql = (
        "SELECT 1.5 AS d, {'a': 0.1::FLOAT} AS s, DATE '2020-02-01' AS t, "
        'sum("order") AS h, [0.1::FLOAT] AS l FROM records'
    )
    (row,) = answers(plain, sql)
    total = sum(2**62 + i for i in range(len(ROWS)))
    assert row["h"] == total
    assert (row["d"], row["t"], row["l"]) == (1.5, "2020-02-01", [0.1])


def test_a_real_file(testdata: Path) -> None:
    path = testdata / "taxi-train-00000-of-00012.gz"
    expected: dict[str | None, int] = {}
    for row in fr.open(path):
        names = row["company"].tolist()
        name = names[0].decode() if names else None
        expected[name] = expected.get(name, 0) + 1
    sql = "SELECT company, count(*) AS n FROM records GROUP BY company"
    assert {row["company"]: row["n"] for row in answers(path, sql)} == expected


def test_names_that_differ_only_in_case(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    fr.write(path, {"Label": [1, 2], "label": [3, 4], "other": [5, 6]})
    assert answers(path, "SELECT label_1 FROM records") == [
        {"label_1": 3},
        {"label_1": 4},
    ]
    assert answers(path, "SELECT label FROM records") == [{"Label": 1}, {"Label": 2}]


def test_sequences_are_lists(testdata: Path) -> None:
    sql = "SELECT s, i FROM records LIMIT 1"
    assert answers(testdata / "sequence-eval.gz", sql) == [
        {"s": ["10500", "10501"], "i": None}
    ]


# What is decoded.


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT n FROM records", ["n"]),
        ("SELECT count(*) FROM records", ["ids"]),
        ("SELECT 1 FROM records WHERE x > 1 ORDER BY n", ["n", "x"]),
        ("SELECT a.n FROM records a JOIN records b ON a.m = b.n", ["m", "n"]),
        ("SELECT n FROM (SELECT *, m + 1 AS k FROM records) WHERE x = 1", ["n", "x"]),
        ("WITH t AS (FROM records) SELECT max(ids) FROM t", ["ids"]),
    ],
)
def test_only_the_columns_of_the_query_are_decoded(
    plain: Path, monkeypatch: pytest.MonkeyPatch, sql: str, columns: list[str]
) -> None:
    decoded: list[list[str]] = []
    original = fr.arrow.RecordBatchReader.__arrow_c_stream__

    def recording(self: Any, requested_schema: object = None) -> object:
        decoded.append(self._source.column_names)
        return original(self, requested_schema)

    monkeypatch.setattr(fr.arrow.RecordBatchReader, "__arrow_c_stream__", recording)
    list(Table(fr.open(plain)).rows(sql))
    assert decoded
    assert all(sorted(names) == columns for names in decoded)


# Output.


def test_a_table_is_abridged(plain: Path) -> None:
    sql = "SELECT data, repeat('\u00fc', 99) AS t, m, ids, n FROM records LIMIT 1"
    head, line = run("query", plain, sql)[0].splitlines()
    assert head.split() == ["data", "t", "m", "ids", "n"]
    assert line.startswith("<2 bytes: ff 0")
    assert "\u00fc" * 50 + "..." in line
    assert "NULL" in line
    shown, _ = run("query", plain, "SELECT * FROM range(2000)")
    assert len(shown.splitlines()) == 1002
    assert shown.endswith("... and more rows; use --csv, --json or --out for all\n")


def test_csv_has_all_rows(plain: Path) -> None:
    shown, _ = run(
        "query", plain, 'SELECT "order", "image/class/text" FROM records', "--csv"
    )
    head, *found = csv.reader(io.StringIO(shown))
    assert head == ["order", "image/class/text"]
    assert found == [
        [str(row["order"][0]), row["image/class/text"][0].decode()] for row in ROWS
    ]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv", "jsonl"])
def test_rows_are_written(plain: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"it's.{suffix}"
    sql = "SELECT n, x FROM records -- a comment\nORDER BY n;"
    shown, _ = run("query", plain, sql, "-o", out)
    assert shown == f"wrote {len(ROWS)} rows to {out}\n"
    quoted = str(out).replace("'", "''")
    reader = (
        "read_json" if suffix == "jsonl" else f"read_{suffix.replace('tsv', 'csv')}"
    )
    found = duckdb.sql(f"SELECT n FROM {reader}('{quoted}')").fetchall()
    assert [n for (n,) in found] == sorted(row["n"][0] for row in ROWS)
    if suffix == "jsonl":
        values = [json.loads(line)["x"] for line in out.read_text().splitlines()]
        assert None in values, "NaN is null"
    _, errors = run("query", plain, sql, "-o", out, status=2)
    assert "exists; --overwrite replaces it" in errors
    run("query", plain, "SELECT 1 AS n", "-o", out, "--overwrite")
    assert out.stat().st_size < 1000
    assert {path.name for path in tmp_path.iterdir()} == {out.name, plain.name}


def test_other_outputs_are_refused(plain: Path, tmp_path: Path) -> None:
    for out in ("a.txt", "s3://bucket/a.csv"):
        _, errors = run("query", plain, "FROM records", "-o", out, status=2)
        assert "must be a local file that ends in one of .parquet, .csv" in errors
    options = ("--json", "-o", tmp_path / "a.csv")
    _, errors = run("query", plain, "FROM records", *options, status=2)
    assert "use only one of --json, --csv and --out" in errors


# Conditions.


def same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


CASES: dict[str, Callable[[Row], object]] = {
    "n = 2": lambda r: r["n"] == [2],
    "n == 2 or m == 1": lambda r: r["n"] == [2] or r["m"] == [1],
    "m IS NULL": lambda r: not r["m"],
    "\"image/class/text\" = 'tench'": lambda r: r["image/class/text"] == [b"tench"],
    "\"image/class/text\" = 'Z\u00fcrich'": lambda r: (
        r["image/class/text"] == [NAMES[1]]
    ),
    '"image/class/text" LIKE \'%"name"\'': lambda r: (
        r["image/class/text"] == [NAMES[3]]
    ),
    "list_contains(tags, 'tench')": lambda r: b"tench" in r["tags"],
    "len(ids) > 2": lambda r: len(r["ids"]) > 2,
    "isnan(x) -- a comment": lambda r: math.isnan(r["x"][0]),
    "data = '\\xFF\\x01'::BLOB": lambda r: r["data"] == [b"\xff\x01"],
    '"order" % 2 = 1': lambda r: r["order"][0] % 2,
    "n = 99": lambda r: False,  # noqa: ARG005
}


@pytest.mark.parametrize("where", CASES)
def test_a_condition_finds_the_same_records_everywhere(path: Path, where: str) -> None:
    expected = [i for i, row in enumerate(ROWS) if CASES[where](row)]
    assert run("count", path, "--where", where)[0] == f"{len(expected)}\n"
    options = ("--where", where, "--json", "--columns", "n", "-n", "1000")
    for command in ("head", "sample"):
        shown, errors = run(command, path, *options)
        assert errors == ""
        found = [json.loads(line) for line in shown.splitlines()]
        assert [row["record"] for row in found] == expected
        assert all(row["features"] == {"n": ROWS[row["record"]]["n"]} for row in found)
    stats = json.loads(run("stats", path, "--where", where, "--json")[0])
    assert stats["n_records"] == len(expected)


def test_records_are_written_unchanged(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    expected = [i for i, row in enumerate(ROWS) if row["n"] == [2]]
    out, table = tmp_path / "out.tfrecord", tmp_path / "out.parquet"
    options = ("--where", "n = 2", "-o")
    run("convert", path, *options, out)
    assert list(fr.read_records(out)) == [RECORDS[i] for i in expected]
    run("convert", path, *options, f"{out}-{{shard}}", "--num-shards", "2")
    written = list(tmp_path.glob("out.tfrecord-*"))
    assert len(written) == 2
    assert len(list(fr.read_records(written))) == len(expected)
    run("convert", path, *options, table, "--columns", "order")
    found = answers(out, f"SELECT \"order\" AS i FROM '{table}'")
    assert [row["i"] for row in found] == [2**62 + i for i in expected]
    none = tmp_path / "none.tfrecord"
    for option, value in (("--columns", "n"), ("--type", "n=int64")):
        _, errors = run("convert", path, *options, none, option, value, status=2)
        assert f"{option}: --where copies records unchanged; omit this option" in errors
    _, errors = run("convert", path, "--where", "n = 99", "-o", none, status=2)
    assert errors == "error: no record matches --where\n"
    assert not none.exists()


def test_places_are_those_in_the_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    first.write_bytes(tfrecord_file(RECORDS[:50]))
    second.write_bytes(gzip.compress(tfrecord_file(RECORDS[50:])))
    expected = [i for i, row in enumerate(ROWS) if row["n"] == [2]]
    shown, _ = run("head", tmp_path, "--where", "n = 2", "-n", "3", "--json")
    found = [json.loads(line) for line in shown.splitlines()]
    assert [(row["path"], row["record"]) for row in found] == [
        (str(second if i >= 50 else first), i - 50 * (i >= 50)) for i in expected[:3]
    ]
    listed = json.loads(run("count", tmp_path, "--where", "n = 2", "--json")[0])[
        "files"
    ]
    n_first = sum(i < 50 for i in expected)
    assert [file["n_records"] for file in listed] == [n_first, len(expected) - n_first]


def test_numbers_of_records_are_those_of_the_files(tmp_path: Path) -> None:
    # More records than DuckDB reads at once, on all of its threads.
    path = tmp_path / "a.tfrecord"
    values = np.random.default_rng(0).integers(0, 9, 300_000)
    fr.write(path, {"n": values})
    found = matching_rows(fr.open(path), "n = 3")
    assert np.array_equal(found, np.flatnonzero(values == 3))
    assert np.array_equal(matching_rows(fr.open(path), "n = 3", 5), found[:5])


def test_head_reads_the_records_that_it_prints_only(tmp_path: Path) -> None:
    # An intact "n" and a "s" of another kind of values: an error if "s" is decoded.
    records: list[Features] = [
        {b"n": ("int64", [i]), b"s": ("bytes", [b"a"])} for i in range(9000)
    ]
    records[5001] = {b"n": ("int64", [5001]), b"s": ("int64", [1])}
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord_file(map(example, records)))
    assert run("count", path, "--where", "n > 5000")[0] == "3999\n"
    (row,) = map(
        json.loads, run("head", path, "--where", "n = 17", "--json")[0].splitlines()
    )
    assert row["features"] == {"n": [17], "s": ["a"]}
    _, errors = run("count", path, "--where", "s = 'a'", status=1)
    assert "record 5001" in errors


def test_record_and_condition_exclude_each_other(plain: Path) -> None:
    _, errors = run("head", plain, "--record", "1", "--where", "n = 1", status=2)
    assert "--record and --where cannot be combined" in errors
    assert "no such records in 1 file" in run("head", plain, "--where", "n = 99")[0]


# Records that do not fit the schema of the sample.


def misfits(tmp_path: Path, misfit: Features) -> Path:
    records: list[Features] = [
        {b"n": ("int64", [i % 7]), b"s": ("bytes", [b"a"])} for i in range(9000)
    ]
    records[5001] = misfit
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord_file(map(example, records)))
    return path


def test_a_record_without_a_feature_has_a_null(tmp_path: Path) -> None:
    path = misfits(tmp_path, {b"s": ("bytes", [b"b"])})
    assert answers(path, "SELECT s FROM records WHERE n IS NULL") == [{"s": "b"}]


def test_bytes_that_are_not_text_are_a_blob(tmp_path: Path) -> None:
    path = misfits(tmp_path, {b"n": ("int64", [9]), b"s": ("bytes", [b"\xff"])})
    (row,) = answers(path, "SELECT s FROM records WHERE n = 9")
    assert row == {"s": {"base64": "/w=="}}


def test_several_values_are_a_list(tmp_path: Path) -> None:
    path = misfits(tmp_path, {b"n": ("int64", [8, 9]), b"s": ("bytes", [b"b"])})
    assert answers(path, "SELECT max(n) AS n FROM records") == [{"n": [8, 9]}]
    _, errors = run("count", path, "--where", "n = 3", status=2)
    assert "a row has 2 values" in errors
    assert "record 5001" in errors


# Errors.


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ('"image/class/txt" = 1', "; did you mean 'image/class/text'?"),
        ("records.tag = 1", "no column 'tag'; the table records has "),
        ("records.tag = 1", "; did you mean 'tags'?"),
        ("qqq = 1", "no column 'qqq'; the table records has "),
        ("n =", "syntax error at or near"),
        ("", ""),
        ("n = 'a'", "Could not convert string 'a' to INT64"),
        ("nosuch(n)", "Function with name nosuch does not exist"),
        ("n + 'a' = 1", ""),
    ],
)
def test_errors_of_sql_are_one_message(plain: Path, where: str, reason: str) -> None:
    for arguments in (
        ("count", plain, "--where", where),
        ("query", plain, f"SELECT n FROM records WHERE {where}"),
    ):
        shown, errors = run(*arguments, status=2)
        assert shown == ""
        assert reason in errors
        assert "LINE 1" not in errors
        assert errors.count("\n") == 4, "usage, and one line"
    name = "--where" if arguments[0] == "count" else "SQL"
    assert f"Invalid value for {name}: " in errors


def test_several_statements_are_refused(plain: Path) -> None:
    for sql in ("SELECT 1; SELECT 2", ""):
        _, errors = run("query", plain, sql, status=2)
        assert f"must be one statement, got {sql!r}" in errors


def test_damage_is_an_error_of_the_data(tmp_path: Path) -> None:
    content = bytearray(tfrecord_file(RECORDS))
    content[-10] ^= 1
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    for arguments in (("count", "--where", "n < 9"), ("stats",)):
        command, *options = arguments
        _, errors = run(command, path, *options, status=1)
        assert "record 199" in errors
        assert errors.count("\n") == 1


def test_an_empty_file_has_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"")
    _, errors = run("query", path, "SELECT 1", status=2)
    assert errors == "error: cannot query the records: they have no features\n"


def test_a_missing_package_is_named_with_the_pip_command(plain: Path) -> None:
    done = run_python(
        "import sys; sys.modules['duckdb'] = None\n"
        "from fastrec.cli import main\n"
        f"sys.argv = ['fastrec', 'count', {str(plain)!r}, '--where', 'n = 1']\n"
        "main()",
        status=2,
    )
    assert done.stderr == (
        'error: SQL requires DuckDB, which is not installed: pip install "fastrec-io[cli]"\n'
    )


def test_ctrl_c_ends_a_query(plain: Path) -> None:
    sql = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range < b.range"
    code = (
        "import signal, sys, threading, os; from fastrec.cli import main\n"
        "threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        f"sys.argv = ['fastrec', 'query', {str(plain)!r}, {sql!r}]\n"
        "main()"
    )
    assert run_python(code, status=130).stderr == "interrupted\n"
