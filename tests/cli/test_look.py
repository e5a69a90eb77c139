"""``fastrec head``, ``sample``, ``count`` and ``schema``.

Goal
    head reads no more than it prints, and builds no index. All commands show the values of
    the records, and of records that are not Examples what they look like. schema prints
    code that reads the files.
Method
    Generated files and the real ones in shared/testdata. The printed code is executed.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import fastrec as fr
from children import Child
from commands import run
from oracle import example, tfrecord_file
from oracle_example import delimited

RECORDS = [
    example(
        {b"n": ("int64", [i]), b"x": ("float", [0.1, i]), b"s": ("bytes", [b"\xff"])}
    )
    for i in range(30)
]
CONTENT = tfrecord_file(RECORDS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.tfrecord").write_bytes(CONTENT)
    (tmp_path / "b.tfrecord").write_bytes(gzip.compress(CONTENT))
    (tmp_path / "c.tfrecord").write_bytes(CONTENT)
    return tmp_path


def json_rows(*arguments: str | Path) -> list[dict[str, Any]]:
    shown, errors = run(*arguments, "--json")
    assert errors == ""
    return [json.loads(line) for line in shown.splitlines()]


# head.


def test_head_prints_the_first_records(folder: Path) -> None:
    shown, _ = run("head", folder, "-n", "2")
    path = folder / "a.tfrecord"
    assert shown == (
        f"record 0 of {path}, {len(RECORDS[0])} bytes\n"
        "  n  0\n  s  <1 byte: ff>\n  x  [0.1, 0]\n"
        "\n"
        f"record 1 of {path}, {len(RECORDS[1])} bytes\n"
        "  n  1\n  s  <1 byte: ff>\n  x  [0.1, 1]\n"
    )


def test_head_prints_json(folder: Path) -> None:
    rows = json_rows("head", folder, "-n", "31")
    assert len(rows) == 31
    assert rows[0] == {
        "path": str(folder / "a.tfrecord"),
        "record": 0,
        "features": {"n": [0], "s": [{"base64": "/w=="}], "x": [0.1, 0.0]},
    }
    assert rows[30]["path"] == str(folder / "b.tfrecord")


def test_head_builds_no_index_and_opens_no_later_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = folder / "cache"
    monkeypatch.setenv("FASTREC_CACHE", str(cache))
    (folder / "b.tfrecord").write_bytes(b"damaged")
    (folder / "c.tfrecord").unlink()
    os.mkfifo(folder / "c.tfrecord")  # opening it would wait, or fail
    run("head", *sorted(folder.glob("?.tfrecord")), "-n", "30")
    assert not cache.exists()
    # Records before damage are printed.
    shown, errors = run(
        "head", folder / "a.tfrecord", folder / "b.tfrecord", "-n", "31", status=1
    )
    assert shown.count("record ") == 30
    assert errors.count("\n") == 1


def test_head_does_not_wait_for_the_end_of_stdin() -> None:
    with Child[bytes](
        [sys.executable, "-m", "fastrec", "head", "-", "-n", "3", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(CONTENT)
        process.stdin.flush()  # and not closed
        rows = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert [row["features"]["n"] for row in rows] == [[0], [1], [2]]
        assert process.wait(60) == 0


def test_a_reader_that_wants_no_more_is_no_problem_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord_file(RECORDS * 1000))
    with Child[bytes](
        [sys.executable, "-m", "fastrec", "head", path, "-n", "30000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"record 0 of")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 128 + 13, "as if SIGPIPE ended it"


def test_head_prints_one_record(folder: Path) -> None:
    for number in (0, 29, 30, 59, 89):
        (row,) = json_rows("head", folder, "--record", str(number))
        assert row["path"] == str(folder / f"{'abc'[number // 30]}.tfrecord")
        assert row["record"] == row["features"]["n"][0] == number % 30
    _, errors = run("head", folder, "--record", "90", status=2)
    assert "must be less than the number of records" in errors


def test_columns_are_chosen(folder: Path) -> None:
    (row,) = json_rows("head", folder, "-n", "1", "--columns", "x,n")
    assert list(row["features"]) == ["x", "n"]
    _, errors = run("head", folder, "-n", "1", "--columns", "m,n", status=2)
    assert "no column 'm'; any of these records has 'n', 's', 'x'" in errors


def test_records_that_are_not_examples_are_described(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    inner = example({b"n": ("int64", [1])})
    listed = delimited(1, inner) + delimited(2, inner)
    records = [listed, b"a line of text", b"\x01\xfe\x00", b""]
    path.write_bytes(tfrecord_file(records))
    shown, _ = run("head", path)
    assert "looks like a serialized protobuf message with fields 1, 2" in shown
    assert (
        "  not a tf.train.Example; it looks like UTF-8 text\n"
        "  'a line of text'" in shown
    )
    assert "  <3 bytes: 01 fe 00>" in shown
    assert "record 3 of" in shown
    assert shown.endswith("  no features\n")
    rows = json_rows("head", path)
    assert [row.get("bytes") for row in rows[1:]] == [
        "a line of text",
        {"base64": "Af4A"},
        None,
    ]


@pytest.mark.parametrize(
    ("lists", "shown"),
    [
        ({"words": []}, "words  0 steps"),
        ({"words": [], "n": []}, "n      0 steps"),
        ({"words": [None, None]}, "words  2 steps: no values, no values"),
    ],
)
@pytest.mark.parametrize("context", [{}, {"id": 3}])
def test_empty_feature_lists_are_shown(
    tmp_path: Path, lists: dict[str, Any], shown: str, context: dict[str, Any]
) -> None:
    path = tmp_path / "a.tfrecord"
    steps = {name: [delimited(1, b"")] * len(each) for name, each in lists.items()}
    entries = [
        delimited(1, delimited(1, name.encode()) + delimited(2, b"".join(each)))
        for name, each in steps.items()
    ]
    values = fr.encode_example(context) if context else delimited(1, b"")
    path.write_bytes(tfrecord_file([values + delimited(2, b"".join(entries))]))
    assert shown in run("head", path)[0]
    (row,) = json_rows("head", path)
    assert row["feature_lists"] == lists
    assert json.loads(run("info", "--json", path)[0])["kinds"] == {"SequenceExample": 1}


def test_feature_lists_are_shown(testdata: Path) -> None:
    shown, _ = run("head", testdata / "sequence-eval.gz", "-n", "1")
    assert "  f  no values\n" in shown
    assert "  s  2 steps: '10500', '10501'\n" in shown
    (row,) = json_rows("head", testdata / "sequence-eval.gz", "-n", "1")
    assert row["features"] == {"f": [], "i": []}
    assert row["feature_lists"] == {"s": [["10500"], ["10501"]]}


# sample and count.


def test_samples_are_random_records_in_order(folder: Path) -> None:
    rows = json_rows("sample", folder, "-n", "20")
    places = [(row["path"], row["record"]) for row in rows]
    assert places == sorted(set(places))
    assert all(row["features"]["n"] == [row["record"]] for row in rows)
    assert json_rows("sample", folder, "-n", "20") == rows
    assert json_rows("sample", folder, "-n", "20", "--seed", "1") != rows
    assert len(json_rows("sample", folder, "-n", "1000")) == 90


def test_all_records_are_drawn_equally_often(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord_file(RECORDS[:4]))
    counts = np.zeros(4, int)
    for seed in range(60):
        for row in json_rows("sample", path, "-n", "2", "--seed", str(seed)):
            counts[row["record"]] += 1
    assert counts.min() > 15  # of 30


def test_count_is_one_number(folder: Path) -> None:
    assert run("count", folder) == ("90\n", "")
    (report,) = json_rows("count", folder / "a.tfrecord", folder / "a.tfrecord")
    assert report["n_records"] == 60
    assert [file["n_records"] for file in report["files"]] == [30, 30]


# schema.


def test_the_schema_for_python_reads_the_files(testdata: Path) -> None:
    for name in (
        "penguin-train.gz",
        "taxi-train-00000-of-00012.gz",
        "sequence-eval.gz",
    ):
        code, _ = run("schema", testdata / name)
        names: dict[str, Any] = {}
        exec(code, names)  # noqa: S102 (it is for pasting)
        features = names.get("features")
        options = {"features": features} if features else names["options"]
        ds = fr.open(testdata / name, **options)
        assert dict(ds.schema) == dict(fr.open(testdata / name).schema)


@pytest.mark.oracle
def test_the_schema_for_tensorflow_reads_the_files(testdata: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    for name in ("penguin-train.gz", "mnist-1000.tfrecord", "sequence-eval.gz"):
        code, _ = run("schema", testdata / name, "--format", "tf.io")
        names: dict[str, Any] = {}
        exec(code, names)  # noqa: S102
        record = next(iter(fr.read_records(testdata / name)))
        row = fr.open(testdata / name).head(1)[0]
        if "features" in names:
            parsed = tf.io.parse_single_example(record, names["features"])
            assert parsed.keys() == row.keys()
        else:
            context, lists = tf.io.parse_single_sequence_example(
                record, names["context_features"], names["sequence_features"]
            )
            assert {*context, *lists} == row.keys()


def test_the_schema_as_json(testdata: Path) -> None:
    (report,) = json_rows_of_schema(testdata / "mnist-1000.tfrecord")
    assert report["features"]["image_floats"] == {
        "spec": "FixedLen",
        "dtype": "float32",
        "shape": [784],
        "key": "image_floats",
    }


def json_rows_of_schema(path: Path) -> list[dict[str, Any]]:
    shown, _ = run("schema", path, "--json")
    return [json.loads(line) for line in shown.splitlines()]


def test_columns_of_a_schema_are_chosen(testdata: Path) -> None:
    path = testdata / "penguin-train.gz"
    assert "body_mass_g" not in run("schema", path, "--columns", "species")[0]
    _, errors = run("schema", path, "--columns", "spcies", status=2)
    assert "no column 'spcies'; the schema has 'body_mass_g'" in errors
    assert "did you mean 'species'?" in errors


def test_other_records_have_no_spec_of_tensorflow(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord_file([b"a line of text"]))
    assert "'record': fr.Record()" in run("schema", path)[0]
    _, errors = run("schema", path, "--format", "tf.io", status=2)
    assert "cannot write column 'record' as a tf.io feature" in errors
