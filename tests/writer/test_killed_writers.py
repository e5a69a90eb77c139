"""Writers that end early, and the files they leave.

Goal
    However a writer ends, only complete files have their final names. A killed writer
    leaves hidden files, which the next writer of the same path removes. Appending
    truncates an incomplete record and changes nothing else. Two writers never write the
    same file.
Method
    Writers of each kind are killed at random moments, FASTREC_TEST_RUNS times (3). A
    reader that shares no code with fastrec reads the remaining files.
"""

from __future__ import annotations

import code
import gzip
import os
import random
import signal
import sys
import textwrap
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastrec as fr
from children import n_runs, run_campaign, run_python
from oracle_frames import frame, tfrecord_file

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="files are locked by flock"
)

RUNS = n_runs(3)
NUMBERED = "d-{shard:02d}-of-{num_shards:02d}"
RECORDS = [random.Random(n).randbytes(n * 37 % 400) for n in range(40)]
WHOLE = tfrecord_file(RECORDS)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- Killed writers -------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="open files are counted in /proc")
@pytest.mark.parametrize(
    "kind",
    [
        "file",
        "gzip",
        "zlib",
        "pattern",
        "numbered",
        "numbered_gzip",
        "lanes",
        "lanes_zlib",
        "append",
    ],
)
def test_kill_9_leaves_complete_and_temporary_files(tmp_path: Path, kind: str) -> None:
    out = run_campaign("killed_writers", kind, tmp_path / "runs", RUNS)
    n_killed, n_left = map(int, out.split())
    assert max(n_killed, n_left) <= RUNS
    if RUNS >= 20:
        assert min(n_killed, n_left) > 0


KILLED = """
import os, signal, sys
import fastrec as fr
writer = fr.Writer(sys.argv[1], num_threads=0, sync=False, overwrite=True,
                   **({"max_shard_records": 5} if "{" in sys.argv[1] else {}))
for _ in range(12):
    writer.write_record(bytes(300_000))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("name", ["data", NUMBERED, "p-{shard}", "x" * 255])
def test_leftovers_of_a_killed_writer_are_hidden_and_removed_by_the_next(
    tmp_path: Path, name: str
) -> None:
    old = tmp_path / name.replace("{shard}", "7").replace(NUMBERED, "d-07-of-09")
    old.write_bytes(WHOLE)
    run_python(KILLED, tmp_path / name, status=-signal.SIGKILL)
    hidden = {left for left in names_in(tmp_path) if left.startswith(".")}
    assert any(left.endswith(".tmp") for left in hidden)
    assert names_in(tmp_path) == sorted([*hidden, old.name])
    for paths in (tmp_path, tmp_path / "*"):
        assert list(fr.read_records(paths)) == RECORDS, "the old file is as it was"
    with pytest.raises(FileExistsError):
        fr.Writer(tmp_path / name)
    with fr.Writer(tmp_path / f"other-{name}"[:255]):  # not of the same path
        left = {name for name in hidden if name.endswith(".tmp")}
        assert left <= set(names_in(tmp_path))
    with fr.Writer(tmp_path / name, overwrite=True) as writer:
        writer.write_record(b"new")
    assert not [left for left in names_in(tmp_path) if left.startswith(".")]
    assert list(fr.read_records(writer.files)) == [b"new"]


def test_leftovers_of_writers_with_similar_names_are_kept(
    tmp_path: Path,
) -> None:
    token = "0123456789abcdef"
    others = [
        f".data.x.{token}-0.tmp",
        f".data2.{token}-0.tmp",
        f".data.{token}-0.tmp.bak",
        f".data.{token}.tmp",
        ".data.12.34567890.tmp",
        f"data.{token}-0.tmp",
    ]
    for name in [*others, f".data.{token}-0.tmp", f".data.{token}-17.tmp"]:
        (tmp_path / name).write_bytes(b"")
    fr.Writer(tmp_path / "data").close()
    assert names_in(tmp_path) == sorted([*others, "data"])


# --- Names, while they are written ----------------------------------------------------


@pytest.mark.parametrize("options", [{"max_shard_records": 3}, {"num_shards": 5}])
def test_shards_with_abbreviated_names_do_not_replace_each_other(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with fr.Writer(tmp_path / ("x" * 210 + NUMBERED), **options) as writer:
        for record in RECORDS:
            writer.write_record(record)
    records = [record for path in writer.files for record in fr.read_records(path)]
    assert sorted(records) == sorted(RECORDS)
    assert len(names_in(tmp_path)) == len(writer.files)


def test_long_names_that_differ_at_the_end_have_separate_locks(tmp_path: Path) -> None:
    with fr.Writer(tmp_path / ("x" * 249 + "a")), fr.Writer(tmp_path / ("x" * 250)):
        assert len(names_in(tmp_path)) == 4
    assert len(names_in(tmp_path)) == 2


def test_a_relative_pattern_ignores_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(home)
    for n_records in (9, 4):
        with fr.Writer(NUMBERED, max_shard_records=2, overwrite=True) as writer:
            for record in RECORDS[:n_records]:
                writer.write_record(record)
            monkeypatch.chdir(elsewhere)
        monkeypatch.chdir(home)
    assert names_in(home) == ["d-00-of-02", "d-01-of-02"]
    assert names_in(elsewhere) == []


@pytest.mark.parametrize("form", ["x", ",", "+d", ".2f", "0>9999999999"])
def test_formats_that_cannot_be_matched_are_refused(tmp_path: Path, form: str) -> None:
    with pytest.raises(ValueError, match="must be like 05d"):
        fr.Writer(tmp_path / f"d-{{shard:{form}}}")


# --- A full disk ----------------------------------------------------------------------


FULL = """
import errno, resource, signal, sys
import fastrec as fr
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
pattern, compression, n_threads = sys.argv[1], sys.argv[2] or None, int(sys.argv[3])
random = __import__("random").Random(0)
def write():
    with fr.Writer(pattern, max_shard_records=3, compression=compression,
                   num_threads=n_threads) as writer:
        for number in range(10):
            writer.write_record(random.randbytes(600_000 if number == 7 else 1000))
            if number == 7:
                writer.write_record(random.randbytes(600_000))
try:
    write()
except OSError as error:
    assert error.errno == errno.EFBIG
    assert error.filename.startswith(pattern[:pattern.index("{")]), error.filename
else:
    raise SystemExit("it fits")
"""


@pytest.mark.parametrize("n_threads", [0, 2])
@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_a_full_disk_keeps_published_shards(
    tmp_path: Path, compression: str, n_threads: int
) -> None:
    run_python(FULL, tmp_path / "p-{shard}", compression, n_threads)
    names = names_in(tmp_path)
    # Threads may complete the last shard before they fail at an earlier one.
    assert {"p-0", "p-1", "p-3"} >= set(names)
    if n_threads == 0:
        assert names == ["p-0", "p-1"]
    for path in tmp_path.iterdir():
        n_records = 2 if path.name == "p-3" else 3
        assert [len(record) for record in fr.read_records(path)] == [1000] * n_records


def test_a_full_disk_leaves_no_part_of_an_incomplete_set(tmp_path: Path) -> None:
    run_python(FULL, tmp_path / NUMBERED, "", 0)
    assert names_in(tmp_path) == []


# --- Appending ------------------------------------------------------------------------


def test_append_truncates_any_incomplete_record(tmp_path: Path) -> None:
    records = RECORDS[:6]
    whole = tfrecord_file(records)
    ends = [len(tfrecord_file(records[:n])) for n in range(7)]
    for size in range(len(whole) + 1):
        path = tmp_path / f"{size}"
        path.write_bytes(whole[:size])
        with fr.Writer(path, append=True, num_threads=0, sync=False) as writer:
            writer.write_record(b"new")
        end = max(end for end in ends if end <= size)
        assert path.read_bytes() == whole[:end] + frame(b"new"), size
        path.unlink()


def test_append_truncates_zeros_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(WHOLE + bytes(5000))  # what a power loss leaves
    with fr.Writer(path, append=True) as writer:
        writer.write_record(b"new")
    assert path.read_bytes() == WHOLE + frame(b"new")


def damaged_at(byte: int) -> bytes:
    data = bytearray(WHOLE)
    data[byte] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(damaged_at(3), id="the first length"),
        pytest.param(damaged_at(len(frame(RECORDS[0])) + 2), id="a length"),
        pytest.param(damaged_at(len(WHOLE) - 1), id="the last payload's checksum"),
        pytest.param(damaged_at(len(WHOLE) - 100), id="the last payload"),
        pytest.param(b"some words, and some more of them\n" * 9, id="text"),
        pytest.param(b"words\n", id="a few words"),
        pytest.param(gzip.compress(WHOLE), id="GZIP"),
        pytest.param(zlib.compress(WHOLE), id="ZLIB"),
    ],
)
def test_append_refuses_other_damage_and_keeps_the_file(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "data"
    path.write_bytes(data)
    before = path.stat()
    with pytest.raises(fr.Error, match=r"data"):
        fr.Writer(path, append=True)
    assert path.read_bytes() == data
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert names_in(tmp_path) == ["data"]


def test_an_exception_undoes_the_append(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(WHOLE + b"torn")

    def fail() -> None:
        with fr.Writer(path, append=True, num_threads=0) as writer:
            for record in [*RECORDS, bytes(1 << 21)]:
                writer.write_record(record)
            assert path.stat().st_size > len(WHOLE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert contents_of(tmp_path) == {"data": WHOLE}
    assert list(fr.read_records(path)) == RECORDS


def test_a_refused_writer_does_not_change_the_file_another_appends_to(
    tmp_path: Path,
) -> None:
    path = tmp_path / "data"
    path.write_bytes(WHOLE)
    with fr.Writer(path, append=True, num_threads=0) as writer:
        writer.write_record(bytes(1 << 21))
        with path.open("ab") as file:
            file.write(b"as if the first were in the middle of a write")
        size = path.stat().st_size
        with pytest.raises(BlockingIOError):
            fr.Writer(path, append=True)
        assert path.stat().st_size == size
        writer.discard()
    assert path.read_bytes() == WHOLE


def test_a_file_to_append_to_may_be_a_link_or_missing(tmp_path: Path) -> None:
    path, link = tmp_path / "data", tmp_path / "link"
    link.symlink_to("data")
    for _ in range(2):
        path.write_bytes(WHOLE)
        with fr.Writer(link, append=True) as writer:
            writer.write_record(b"new")
    assert link.is_symlink()
    assert path.read_bytes() == WHOLE + frame(b"new")
    with fr.Writer(tmp_path / "missing", append=True) as writer:
        writer.write_record(b"new")
        assert not (tmp_path / "missing").exists()
    assert (tmp_path / "missing").read_bytes() == frame(b"new")


# --- Two writers ----------------------------------------------------------------------

SECOND = """
import sys
import fastrec as fr
try:
    fr.Writer(sys.argv[1], overwrite=True)
except BlockingIOError as error:
    assert error.filename == sys.argv[1]
    assert "another writer" in str(error)
else:
    raise SystemExit("it was let in")
"""


@pytest.mark.parametrize("name", ["data", NUMBERED, "p-{shard}"])
def test_a_second_writer_of_the_same_files_is_refused(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to("folder")
    with fr.Writer(folder / name) as writer:
        for place in (folder, link, folder / ".." / "folder"):
            with pytest.raises(BlockingIOError, match="another writer"):
                fr.Writer(place / name, overwrite=True)
            run_python(SECOND, place / name)
        with fr.Writer(folder / f"other-{name}"):
            pass
        writer.write_record(b"first")
    with fr.Writer(folder / name, overwrite=True) as writer:
        writer.write_record(b"second")
    assert list(fr.read_records(writer.files)) == [b"second"]
    assert not list(folder.glob(".*"))


class Shell(code.InteractiveInterpreter):
    """A shell, which keeps variables and the traceback of the last error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **variables: object) -> None:
        self.variables: dict[str, Any] = {"Writer": fr.Writer, **variables}
        super().__init__(self.variables)
        for name in ("last_type", "last_value", "last_exc", "last_traceback"):
            monkeypatch.setattr(sys, name, None, raising=False)
        self._shown = ""

    def write(self, data: str) -> None:
        self._shown += data

    def run(self, cell: str) -> str:
        """Run a cell, and return the name of its exception and the reason."""
        self._shown = ""
        self.runcode(compile(textwrap.dedent(cell), "<cell>", "exec"))
        return self._shown.rpartition("\n")[0].rpartition("\n")[2]


def test_a_refusal_names_the_line_that_created_the_other_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(monkeypatch, path=tmp_path / "data")
    assert shell.run("\nwriter = Writer(path)") == ""
    refused = shell.run("Writer(path)")
    assert refused.startswith("BlockingIOError: ")
    assert "discard() the one that was created at <cell>:2: " in refused
    assert shell.run("writer.discard(); Writer(path).close()") == ""


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize(
    "cell",
    [
        """
        writer = Writer(path, append=append)
        writer.write_record(b"lost")
        raise KeyboardInterrupt
        """,
        """
        writers = {"train": Writer(path, append=append)}
        writers["train"].write({"x": object()})
        """,
        """
        def export():
            writer = Writer(path, append=append)
            writer.write_record(b"lost")
            raise KeyboardInterrupt
        export()
        """,
    ],
    ids=["in a cell", "in a list, an error", "in a function"],
)
def test_a_cell_that_failed_can_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: str, *, append: bool
) -> None:
    path = tmp_path / "data"
    if append:
        path.write_bytes(frame(b"old"))
    shell = Shell(monkeypatch, path=path, append=append)
    assert shell.run(cell).startswith(("KeyboardInterrupt", "TypeError"))
    old = shell.variables.get("writer")
    again = """
    with Writer(path, append=append) as new:
        new.write_record(b"new")
    """
    assert shell.run(again) == ""
    assert list(fr.read_records(path)) == [b"old"] * append + [b"new"]
    assert names_in(tmp_path) == ["data"]
    if old is not None:
        with pytest.raises(ValueError, match="is closed"):
            old.write_record(b"late")


@pytest.mark.parametrize(
    "cells",
    [
        ["writer = Writer(path)", "raise KeyboardInterrupt"],
        [
            "def begin():\n  global writer\n  writer = Writer(path)",
            "begin()",
            "begin()",
        ],
    ],
    ids=["another cell failed", "another call of the function failed"],
)
def test_a_writer_whose_creator_did_not_fail_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: list[str]
) -> None:
    shell = Shell(monkeypatch, path=tmp_path / "data")
    assert [*map(shell.run, cells)][-1] != ""
    for _ in range(2):
        assert shell.run(cells[-1]) != ""
        with pytest.raises(BlockingIOError, match="of this process"):
            fr.Writer(tmp_path / "data")
    shell.variables["writer"].write_record(b"kept")
    shell.variables["writer"].close()
    assert list(fr.read_records(tmp_path / "data")) == [b"kept"]


def test_the_lock_of_a_dead_writer_is_released(tmp_path: Path) -> None:
    script = """
    import os, signal, sys
    import fastrec as fr
    if os.fork() == 0:
        writer = fr.Writer(sys.argv[1])
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
    """
    path = tmp_path / "data"
    for _ in range(2):
        run_python(script, path)
        assert (tmp_path / ".data.lock").exists()
    fr.Writer(path).close()
    assert path.exists()
    assert not (tmp_path / ".data.lock").exists()


# --- The disk -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["data", NUMBERED, "p-{shard}"])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("n_threads", [0, 2])
def test_files_are_flushed_before_they_are_renamed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    n_threads: int,
    *,
    overwrite: bool,
) -> None:
    calls: list[tuple[str, int]] = []

    def logged(name: str, inode_of: Callable[..., int]) -> None:
        call = getattr(os, name)

        def log(*arguments: Any) -> Any:
            calls.append((name, inode_of(*arguments)))
            return call(*arguments)

        monkeypatch.setattr(os, name, log)

    logged("fsync", lambda descriptor: os.fstat(descriptor).st_ino)
    logged("write", lambda descriptor, _: os.fstat(descriptor).st_ino)
    for rename in ("link", "rename", "replace"):
        logged(rename, lambda path, _: Path(path).stat().st_ino)
    options: dict[str, Any] = {"overwrite": overwrite, "num_threads": n_threads}
    options |= {"max_shard_records": 15} if "{" in name else {}
    for sync in (True, False):
        calls.clear()
        below = tmp_path / f"{sync}"
        below.mkdir()
        folder = below.stat().st_ino
        with fr.Writer(below / name, sync=sync, **options) as writer:
            for record in RECORDS:
                writer.write_record(record)
        if not sync:
            assert "fsync" not in {call for call, _ in calls}
            continue
        for path in writer.files:
            inode = Path(path).stat().st_ino
            of_file = [call for call, of in calls if of == inode]
            first = of_file.index("fsync")
            assert set(of_file[:first]) == {"write"}
            assert "write" not in of_file[first:]
            assert set(of_file[first + 1 :]) <= {"link", "rename", "replace"}
            assert len(of_file) > first + 1
        inodes = {Path(path).stat().st_ino for path in writer.files}
        last = max(n for n, (_, of) in enumerate(calls) if of in inodes)
        assert ("fsync", folder) in calls[last:], "the names themselves"
