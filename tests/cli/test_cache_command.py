"""``fastrec cache``, and ``fastrec info`` of a directory of kept rows.

Goal
    A directory that the command fills is the one that Dataset.cache reads. An interrupted
    command continues. A directory without all rows is an error.
Method
    Small files through the command. Interrupts come from the progress bar.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import fastrec as fr
from commands import run
from fastrec.cli import cache

N = 200
COLUMNS: dict[str, Any] = {
    "pixels": np.arange(N * 12, dtype=np.int32).reshape(N, 3, 4),
    "name": [b"n" * (i % 5) for i in range(N)],
    "tokens": [np.arange(i % 3) for i in range(N)],
}
FEATURES: dict[str, Any] = {
    "pixels": fr.Raw((3, 4), "int32"),
    "name": fr.FixedLen((), "bytes"),
    "tokens": fr.VarLen("int64"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a directory with a file of records and a file of their features."""
    monkeypatch.chdir(tmp_path)
    fr.write("rows.tfrecord", COLUMNS, features=FEATURES)
    specs = fr.Schema(FEATURES)
    Path("specs.py").write_text(f"import fastrec as fr\n\nfeatures = {specs!r}\n")
    return tmp_path


def fill(*options: str, status: int = 0) -> tuple[str, str]:
    line = ["cache", "rows.tfrecord", "-o", "kept", "--features", "specs.py"]
    return run(*line, *options, status=status)


def n_kept(ds: fr.Dataset) -> int:
    """Return how many rows of an epoch are read from kept rows."""
    loader = ds.cache("kept").loader(32, rank=0, world_size=1)
    for batch in loader:
        assert len(batch["name"])
    return loader.stats.n_kept


def test_a_filled_directory_is_read_by_a_dataset() -> None:
    shown, errors = fill()
    assert errors == ""
    assert shown.startswith("kept keeps all 200 rows, ")
    assert "decoded 200 in " in shown
    assert n_kept(fr.open("rows.tfrecord", features=FEATURES)) == N
    assert fill()[0].endswith("nothing to do: all rows were kept\n")


def test_specs_that_are_printed_are_specs_to_cache() -> None:
    Path("specs.py").write_text(run("schema", "rows.tfrecord")[0])
    fill()
    assert n_kept(fr.open("rows.tfrecord")) == N


def test_specs_of_sequences_are_options() -> None:
    record = fr.encode_sequence_example(
        context={"n": 1}, feature_lists={"words": [[b"a"], [b"b"]]}
    )
    with fr.Writer("rows.tfrecord", overwrite=True) as writer:
        for _ in range(3):
            writer.write_record(record)
    Path("specs.py").write_text(run("schema", "rows.tfrecord")[0])
    assert "options =" in Path("specs.py").read_text()
    assert "all 3 rows" in fill()[0]


def test_columns_are_chosen() -> None:
    fill("--columns", "name,tokens")
    report = json.loads(run("info", "kept", "--json")[0])
    assert list(report["directories"][0]["columns"]) == ["name", "tokens"]
    ds = fr.open("rows.tfrecord", features=FEATURES)
    kept = ds.cache("kept", columns=["name", "tokens"])
    assert [*next(iter(kept.loader(8)))] == ["name", "tokens"]


def test_json_has_the_counts() -> None:
    report = json.loads(fill("--json")[0])
    assert report["n_decoded"] == N
    assert report["seconds"] > 0
    assert report["directories"][0]["n_kept"] == N


def test_ctrl_c_keeps_rows_and_the_command_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextlib.contextmanager
    def interrupting(_label: str, _unit: str) -> Iterator[Callable[[int, int], None]]:
        def show(done: int, total: int) -> None:
            assert total == N
            if done > N // 2:
                raise KeyboardInterrupt

        yield show

    with monkeypatch.context() as patched:
        patched.setattr(cache, "progress_bar", interrupting)
        shown, errors = fill(status=130)
    assert shown == ""
    assert errors.startswith("interrupted; kept ")
    assert errors.endswith("; run the command again to continue\n")
    report = json.loads(run("info", "kept", "--json")[0])["directories"][0]
    assert N // 2 < report["n_kept"] <= report["n_rows"] == N
    assert json.loads(fill("--json")[0])["n_decoded"] == N - report["n_kept"]


def test_ctrl_c_before_the_first_row_keeps_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "progress_bar", interrupted)
    note = "kept 0 of 200 rows, 0 bytes on disk; run the command again to continue"
    assert fill(status=130) == ("", f"interrupted; {note}\n")


def test_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        shown, errors = fill(status=2)
    assert shown == ""
    assert errors.startswith("error: kept keeps only 0 of 200 rows")


@pytest.mark.parametrize(
    ("specs", "reason"),
    [
        ("x = 1", "must define features"),
        ("import fastrec as fr\nfeatures = {'name': fr.VarLen('bytes')}", "differ"),
    ],
)
def test_other_specs_are_an_error(specs: str, reason: str) -> None:
    fill()
    Path("specs.py").write_text(specs)
    shown, errors = fill(status=2)
    assert shown == ""
    assert reason in errors


def test_missing_files_and_columns_are_errors() -> None:
    assert "no column 'nome'" in fill("--columns", "nome", status=2)[1]
    Path("specs.py").unlink()
    assert fill(status=2)[1].endswith("specs.py: No such file or directory\n")


def test_damage_is_an_error() -> None:
    path = Path("rows.tfrecord")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert fill(status=1)[1].startswith("error: ")


# fastrec info.


def test_info_describes_kept_rows() -> None:
    fill()
    shown, errors = run("info", "kept")
    assert errors == ""
    lines = shown.splitlines()
    assert lines[0] == "directory   kept"
    assert lines[1].startswith("kept rows   200 of 200, ")
    assert "transforms  none" in lines
    rows = {line.split()[0]: line.split()[1:] for line in lines[-3:]}
    assert rows["pixels"][:4] == ["int32", "3", "x", "4"]
    assert rows["name"][:2] == ["bytes", "-"]
    assert rows["tokens"][:2] == ["int64", "*"]


def test_sizes_are_those_on_disk() -> None:
    fill()
    (report,) = json.loads(run("info", "kept", "--json")[0])["directories"]
    on_disk = {
        path.name: path.stat().st_blocks * 512 for path in Path("kept").iterdir()
    }
    assert report["n_bytes"] == sum(on_disk.values())
    assert report["columns"]["pixels"]["n_bytes"] == 4 * 3 * 4 * N
    # The strings, and of each row a checksum and the begin and end of its string.
    name = on_disk["name.npy"] + (4 + 16) * N
    assert report["columns"]["name"]["n_bytes"] == name


def test_info_describes_each_of_joined_datasets() -> None:
    ds = fr.open("rows.tfrecord", features=FEATURES)
    other = ds.with_transform(lambda batch: batch, cache_key="same-1")
    joined = fr.concat([ds, other]).cache("kept")
    for _ in joined.loader(32, rank=0, world_size=1):
        pass
    both = json.loads(run("info", "kept", "--json")[0])["directories"]
    assert [part["transforms"] for part in both] == [[], ["same-1"]]
    assert [part["n_kept"] for part in both] == [N, N]
    shown, _ = run("info", "kept")
    assert shown.startswith("directory   kept/0\n")
    assert "\n\ndirectory   kept/1\n" in shown


def test_a_damaged_description_is_an_error() -> None:
    fill()
    Path("kept/kept.json").write_text("{")
    assert "kept/kept.json is damaged" in run("info", "kept", status=2)[1]
