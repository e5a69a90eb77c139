"""``fastrec info``: what files contain.

Goal
    It shows sizes, kinds, features and indexes of files, but no value of a record.
Method
    Small files through the command.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("typer")
pytest.importorskip("rich")

import fastrec as fr
from commands import run
from oracle import example, tfrecord_file
from oracle_example import delimited

SECRET = b"a value of a record"
CONTENT = tfrecord_file([example({b"name": ("bytes", [SECRET])})] * 3)


def run_json(*paths: Path) -> dict[str, Any]:
    shown, errors = run("info", *paths, "--json")
    assert errors == ""
    report: dict[str, Any] = json.loads(shown)
    return report


@pytest.mark.parametrize("name", ["a.tfrecord", "a.gz"])
def test_it_shows_size_and_features_but_no_value(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(CONTENT) if name == "a.gz" else CONTENT)
    shown, _ = run("info", path)
    assert f"3 in 1 file, {path.stat().st_size} bytes" in shown
    assert f"compression  {'GZIP' if name == 'a.gz' else 'none'}\n" in shown
    assert "features     1: name\n" in shown
    assert "1 of 1 file indexed now" in shown
    assert SECRET.decode() not in shown
    assert "all files were indexed" in run("info", path)[0]


@given(
    sizes=st.lists(st.lists(st.integers(0, 300), max_size=8), min_size=1, max_size=4)
)
def test_sizes_and_balance_are_those_of_the_files(
    sizes: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("sizes")
    for number, of_file in enumerate(sizes):
        content = tfrecord_file([bytes(size) for size in of_file])
        (folder / f"{number}.tfrecord").write_bytes(content)
    report = run_json(folder)
    assert [file["n_records"] for file in report["files"]] == list(map(len, sizes))
    every = sorted(size for of_file in sizes for size in of_file)
    assert report["n_records"] == len(every)
    for name, value in report["record_bytes"].items():
        assert value == pytest.approx(np.percentile(every, int(name[1:])))


def test_kinds_of_records_are_counted(tmp_path: Path) -> None:
    sequence = fr.encode_sequence_example(
        context={"n": 1}, feature_lists={"words": [[b"a"], [b"b"]]}
    )
    records = [b"a line of text", example({b"n": ("int64", [1])}), sequence]
    path = tmp_path / "mixed.tfrecord"
    path.write_bytes(tfrecord_file(records))
    kinds = run_json(path)["kinds"]
    assert kinds == {"UTF-8 text": 1, "Example": 1, "SequenceExample": 1}


def test_lists_of_examples_are_not_examples(tmp_path: Path) -> None:
    path = tmp_path / "elwc.tfrecord"
    inner = example({b"a": ("int64", [1]), b"b": ("float", [2.0])})
    listed = delimited(1, inner) * 2 + delimited(2, inner)
    path.write_bytes(tfrecord_file([listed, listed, b""]))
    report = run_json(path)
    looks = "a serialized protobuf message with fields 1, 2"
    assert report["kinds"] == {looks: 2, "Example": 1}
    assert report["features"] == []


def test_an_empty_file_has_no_sizes(tmp_path: Path) -> None:
    path = tmp_path / "empty.tfrecord"
    path.write_bytes(b"")
    assert run_json(path)["record_bytes"] == {}
    assert "0 in 1 file, 0 bytes" in run("info", path)[0]


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cut.tfrecord"
    path.write_bytes(CONTENT[:-1])
    _, errors = run("info", path, status=1)
    assert errors.startswith("error: the file ends inside a record")
