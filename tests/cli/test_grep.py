"""``fastrec grep``: find records by an expression.

Goal
    An expression means the same as in Python, for any of the values of a feature. Records
    are found, counted, or written unchanged. Nothing but the expression language is
    evaluated.
Method
    A Python loop over rows is the oracle, with the expression as a Python function.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import fastrec as fr
from commands import run
from fastrec.cli.expression import Expression, ExpressionError
from oracle import Features, example, tfrecord_file

Row = dict[str, list[Any]]
NAMES = [b"tench", b"Z\xc3\xbcrich", b"", b"a 'quoted' \"name\"", b"image/class == 1"]


def rows(n: int = 200) -> list[Row]:
    rng = np.random.default_rng(0)
    return [
        {
            "n": [int(rng.integers(-3, 4))],
            "m": [int(rng.integers(1, 4))],
            "x": [float(np.float32(rng.choice([0.1, 0.5, np.nan, 2])))],
            "image/class/text": [NAMES[int(rng.integers(len(NAMES)))]],
            "tags": [NAMES[i] for i in rng.integers(0, 5, int(rng.integers(0, 4)))],
            "ids": rng.integers(0, 5, int(rng.integers(0, 4))).tolist(),
            "odd name": [int(rng.integers(0, 2))],
        }
        for _ in range(n)
    ]


ROWS = rows()
KINDS: dict[str, Any] = {"x": "float", "image/class/text": "bytes", "tags": "bytes"}
RECORDS = [
    example({name.encode(): (KINDS.get(name, "int64"), row[name]) for name in row})
    for row in ROWS
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("grep") / "a.tfrecord"
    file.write_bytes(tfrecord_file(RECORDS))
    return file


def x32(row: Row) -> float:
    return float(row["x"][0])


CASES: dict[str, Callable[[Row], object]] = {
    "n == 2": lambda r: r["n"][0] == 2,
    "n != 2 and n > -2": lambda r: r["n"][0] != 2 and r["n"][0] > -2,
    "-1 <= n < 2": lambda r: -1 <= r["n"][0] < 2,
    "not n": lambda r: not r["n"][0],
    "n in [1, 2] or m in (3,)": lambda r: r["n"][0] in [1, 2] or r["m"][0] == 3,
    "n not in [1, 2]": lambda r: r["n"][0] not in [1, 2],
    "n * 2 + 1 == m": lambda r: r["n"][0] * 2 + 1 == r["m"][0],
    "n/m > 0.5": lambda r: r["n"][0] / r["m"][0] > 0.5,
    "n % 2 == 1": lambda r: r["n"][0] % 2 == 1,
    "n // m < 0": lambda r: r["n"][0] // r["m"][0] < 0,
    "-n == 3": lambda r: -r["n"][0] == 3,
    "n == True": lambda r: r["n"][0] == 1,
    "n < 100000000000000000000": lambda _: True,
    "x == 0.1": lambda r: np.float32(x32(r)) == np.float32(0.1),
    "x >= 0.5": lambda r: x32(r) >= 0.5,
    "x != x": lambda r: x32(r) != x32(r),
    "image/class/text == 'tench'": lambda r: r["image/class/text"][0] == b"tench",
    'image/class/text == "Z\u00fcrich"': lambda r: r["image/class/text"][0] == NAMES[1],
    "image/class/text != b'tench'": lambda r: r["image/class/text"][0] != b"tench",
    "image/class/text < 'b'": lambda r: r["image/class/text"][0] < b"b",
    "'quoted' in image/class/text": lambda r: b"quoted" in r["image/class/text"][0],
    "image/class/text in ['tench', '']": lambda r: (
        r["image/class/text"][0] in (b"tench", b"")
    ),
    "image/class/text == 'image/class == 1'": lambda r: (
        r["image/class/text"][0] == NAMES[4]
    ),
    "len(image/class/text) == 5": lambda r: len(r["image/class/text"][0]) == 5,
    "`image/class/text` == 'tench'": lambda r: r["image/class/text"][0] == b"tench",
    "`odd name` == 1": lambda r: r["odd name"][0] == 1,
    "ids == 3": lambda r: 3 in r["ids"],
    "3 in ids": lambda r: 3 in r["ids"],
    "3 not in ids": lambda r: 3 not in r["ids"],
    "ids != 3": lambda r: any(i != 3 for i in r["ids"]),
    "ids in [1, 4]": lambda r: bool({1, 4} & set(r["ids"])),
    "ids + 1 > 4": lambda r: any(i + 1 > 4 for i in r["ids"]),
    "len(ids) == 2": lambda r: len(r["ids"]) == 2,
    "tags == 'tench'": lambda r: b"tench" in r["tags"],
    "'ten' in tags": lambda r: any(b"ten" in tag for tag in r["tags"]),
    "tags": lambda r: any(map(len, r["tags"])),
    "len(tags) == 0": lambda r: b"" in r["tags"],
    "(n == 1 or n == 2) and not (m == 1)": lambda r: (
        r["n"][0] in (1, 2) and r["m"][0] != 1
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_an_expression_means_what_it_means_in_python(path: Path, text: str) -> None:
    expected = [i for i, row in enumerate(ROWS) if CASES[text](row)]
    status = 0 if expected else 1
    options = ("--json", "--columns", "n")
    shown, errors = run("grep", *options, "--", path, text, status=status)
    assert errors == ""
    found = [json.loads(line) for line in shown.splitlines()]
    assert [each["record"] for each in found] == expected
    assert all(each["features"] == {"n": ROWS[each["record"]]["n"]} for each in found)
    shown, _ = run("grep", "--count", "--", path, text, status=status)
    assert shown == f"{len(expected)}\n"


def test_records_are_written_unchanged(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.tfrecord"
    shown, _ = run("grep", path, "n == 2", "-o", target)
    expected = [RECORDS[i] for i, row in enumerate(ROWS) if row["n"] == [2]]
    assert shown == f"wrote {len(expected)} records to {target}\n"
    assert list(fr.read_records(target)) == expected
    _, errors = run("grep", path, "n == 2", "-o", target, status=2)
    assert "exists" in errors
    nothing = tmp_path / "nothing.tfrecord"
    assert (
        run("grep", path, "n == 99", "-o", nothing, status=1)[0] == "wrote 0 records\n"
    )
    assert not nothing.exists()


def test_nothing_is_written_after_ctrl_c(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Expression, "mask", interrupted)
    target = tmp_path / "out.tfrecord"
    _, errors = run("grep", path, "n == 2", "-o", target, status=130)
    assert errors == "interrupted; nothing was written\n"
    assert not list(tmp_path.iterdir())
    assert run("grep", path, "n == 2", status=130) == ("", "interrupted\n")


def test_places_are_those_in_the_files(tmp_path: Path) -> None:
    for name, part in (("a", RECORDS[:50]), ("b.gz", RECORDS[50:])):
        content = tfrecord_file(part)
        data = gzip.compress(content) if name == "b.gz" else content
        (tmp_path / f"{name.partition('.')[0]}.tfrecord").write_bytes(data)
    shown, _ = run("grep", tmp_path, "n == 2", "--json")
    places = [
        (row["path"], row["record"]) for row in map(json.loads, shown.splitlines())
    ]
    expected = [i for i, row in enumerate(ROWS) if row["n"] == [2]]
    assert places == [
        (str(tmp_path / ("a.tfrecord" if i < 50 else "b.tfrecord")), i - 50 * (i >= 50))
        for i in expected
    ]
    first, _ = run("grep", tmp_path, "n == 2", "--json", "-n", "2")
    assert first.splitlines() == shown.splitlines()[:2]


def test_records_outside_of_the_sample_may_lack_features(tmp_path: Path) -> None:
    records: list[Features] = [{b"n": ("int64", [i % 7])} for i in range(9000)]
    records[5000] = {b"other": ("int64", [1])}
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord_file([example(each) for each in records]))
    count = sum(i % 7 == 3 for i in range(9000) if i != 5000)
    assert run("grep", path, "n == 3", "--count")[0] == f"{count}\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lable == 1", "no column 'lable'; they are"),
        ("image/class/txt == 1", "did you mean 'image/class/text'?"),
        ("n = 1", "cannot parse the expression 'n = 1'"),
        ("n ==", "cannot parse"),
        ("", "cannot parse"),
        ("1 == 1", "must name a column"),
        ("n == 'a'", "cannot compare text, numbers or lists with each other: n == 'a'"),
        ("image/class/text > 1", "with each other: image/class/text > 1"),
        ("n + 'a' == 1", "cannot compute with text"),
        ("ids == n", "both columns must have one value in each record: ids == n"),
        ("n in 3", "in requires a list"),
        ("n in [m]", "a list must have constants only"),
        ("1 / 0 == n", "division by zero"),
        ("__import__('os').getpid() == n", "cannot evaluate"),
        ("n.real == 1", "cannot evaluate 'n.real'"),
        ("[x for x in ids]", "cannot evaluate"),
        ("n ** 9999999 == 1", "cannot evaluate"),
        ("(lambda: n)()", "cannot evaluate"),
        ("len(n, m)", "cannot evaluate"),
        ("f'{n}' == 1", "cannot evaluate"),
    ],
)
def test_other_expressions_are_refused(path: Path, text: str, reason: str) -> None:
    _, errors = run("grep", path, text, status=2)
    assert reason in errors


def test_a_division_is_not_a_name() -> None:
    assert Expression("a/b > 1", ["a", "b"]).columns == ["a", "b"]
    assert Expression("a/b > 1", ["a", "b", "a/b"]).columns == ["a/b"]
    assert Expression("a/b-1 > 1", ["a/b"]).columns == ["a/b"]
    with pytest.raises(ExpressionError, match="no column 'c/d'"):
        Expression("c/d > 1", ["a", "b"])


def test_no_record_is_a_negative_answer(path: Path) -> None:
    assert run("grep", path, "n == 99", status=1) == ("", "")
