"""``fastrec info``: what files contain.

Goal
    It shows the size and schema of files, but no record.
Method
    Small files through the command.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from commands import run
from oracle import example, tfrecord_file

SECRET = b"a value of a record"
CONTENT = tfrecord_file([example({b"name": ("bytes", [SECRET])})] * 3)


@pytest.mark.parametrize(
    ("name", "kind"), [("a.tfrecord", ""), ("a.gz", "compressed, ")]
)
def test_it_shows_size_and_schema_of_files(
    tmp_path: Path, name: str, kind: str
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(CONTENT) if kind else CONTENT)
    shown, _ = run("info", path)
    assert f"3 records in 1 file, {kind}{path.stat().st_size}" in shown
    assert "'name': fr.FixedLen((), 'bytes')" in shown
    assert SECRET.decode() not in shown


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cut.tfrecord"
    path.write_bytes(CONTENT[:-1])
    _, errors = run("info", path, status=1)
    assert errors.startswith("error: the file ends inside a record")
