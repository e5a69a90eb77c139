"""The frame of the ``fastrec`` command: help, paths, stdin, exit statuses, JSON.

Goal
    What all commands share works in each of them: help at any width, paths of all kinds,
    exit statuses. docs/commands.md lists the same commands as the help. A command imports
    no other command.
Method
    Help and imports in new interpreters, because they depend on the environment; the rest
    through typer's runner.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner

import fastrec as fr
from commands import run
from fastrec.cli.app import app
from fastrec.cli.arguments import names_in
from fastrec.cli.files import files_of
from fastrec.cli.terminal import json_line
from oracle import example, tfrecord_file

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = [
    example({b"n": ("int64", [i]), b"s": ("bytes", [b"x" * i])}) for i in range(9)
]
CONTENT = tfrecord_file(RECORDS)


def fastrec(*arguments: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastrec", *arguments],
        capture_output=True,
        check=False,
        env={**os.environ, "COLUMNS": str(columns)},
        text=True,
        timeout=60,
    )


def commands_in_help() -> list[str]:
    shown = fastrec("--help").stdout
    sections = re.findall(
        r"^(Look|Check|Change|Measure):\n((?:  .*\n)+)", shown, re.MULTILINE
    )
    assert [name for name, _ in sections] == ["Look", "Check", "Change", "Measure"]
    return re.findall(
        r"^  ([a-z-]+) ", "".join(lines for _, lines in sections), re.MULTILINE
    )


def test_the_documentation_lists_the_commands_of_the_help() -> None:
    page = (DOCS / "commands.md").read_text()
    assert (
        re.findall(r"^\| `fastrec ([a-z-]+) ", page, re.MULTILINE) == commands_in_help()
    )


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("command", ["", *commands_in_help()])
def test_help_fits_the_terminal_and_loses_nothing(command: str, columns: int) -> None:
    done = fastrec(*command.split(), "-h", columns=columns)
    assert (done.returncode, done.stderr) == (0, "")
    for line in done.stdout.splitlines():
        assert len(line) <= min(columns, 100) or len(line.split()) == 1
    assert "\u2026" not in done.stdout
    words = " ".join(done.stdout.split())
    assert "Exit status: 0 success; 1 the command found a problem in the data;" in words


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("verfy", "Did you mean 'verify'"),
        ("qqq", "No such command 'qqq'"),
        ("a\x1b[31m", "No such command 'a\\x1b[31m'"),
    ],
)
def test_an_unknown_command_gets_the_one_that_was_meant(name: str, answer: str) -> None:
    _, errors = run(name, status=2)
    assert answer in errors


def test_a_command_imports_no_other_command() -> None:
    code = (
        "import sys; from fastrec.cli.app import app; "
        "app(['verify', sys.argv[1]], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, __file__],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    modules = set(done.stdout.split())
    assert "fastrec.cli.verify" in modules, done.stderr
    for name in (
        "fastrec.cli.convert",
        "fastrec.cli.bench",
        "rich.progress",
        "pyarrow",
    ):
        assert name not in modules


# Paths.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.tfrecord", "inner/a.tfrecord", "inner/deep/plain", ".hidden/x"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)
    (tmp_path / "data" / "readme.txt").write_text("text\n")
    return tmp_path / "data"


def test_directories_are_searched_recursively(folder: Path) -> None:
    found = [
        os.path.relpath(file, folder) for file in files_of([str(folder)], joins=True)
    ]
    assert found == ["b.tfrecord", "inner/a.tfrecord", "inner/deep/plain"]


def test_a_tilde_is_the_home_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert files_of(["~/b.tfrecord"], joins=True) == [str(folder / "b.tfrecord")]
    assert files_of(["~/*/a.*"], joins=True) == [str(folder / "inner/a.tfrecord")]


def test_splits_in_directories_below_are_not_joined(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a-00000.tfrecord").write_bytes(CONTENT)
    assert len(files_of([str(tmp_path)], joins=False)) == 2
    with pytest.raises(ValueError, match="split word"):
        files_of([str(tmp_path)], joins=True)


def test_a_directory_without_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    _, errors = run("info", tmp_path, status=2)
    assert errors.endswith("No TFRecord file in the directory or its subdirectories\n")


# Stdin.


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress])
def test_stdin_is_read_like_a_file(
    pack: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = pack(CONTENT)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache = tmp_path.with_name(f"{tmp_path.name}-cache")
    monkeypatch.setenv("FASTREC_CACHE", str(cache))
    result = CliRunner().invoke(app, ["count", "-"], input=content)
    assert result.exit_code == 0, result.output
    assert result.stdout == "9\n"
    assert not list(tmp_path.iterdir()), "the copy is deleted"
    assert not list(cache.rglob("*.frecidx")), "and its index"


# JSON.


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"Z\xc3\xbcrich", "Z\u00fcrich"),
        (b"\xff\x00", {"base64": "/wA="}),
        (np.float32(0.5), 0.5),
        (
            np.array([1.0, np.nan, np.inf, -np.inf]),
            [1.0, None, "Infinity", "-Infinity"],
        ),
        (
            {b"\xffa": np.int64(2**62), "b": (1, None)},
            {"\\xffa": 2**62, "b": [1, None]},
        ),
        (fr.BytesArray.from_list([b"a", b"\xff"]), ["a", {"base64": "/w=="}]),
        (fr.RaggedArray(np.arange(3), [0, 2, 3]), [[0, 1], [2]]),
    ],
)
def test_values_are_json(value: object, expected: object) -> None:
    line = json_line(value)
    assert "\n" not in line
    assert json.loads(line) == expected


# Options and statuses.


def test_columns_are_names_separated_by_commas() -> None:
    assert names_in(None) is None
    assert names_in("a, b/c,a") == ["a", "b/c"]
