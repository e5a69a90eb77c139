"""Writes that do not end: what is kept, what is lost, and what can be finished.

Goal
    Whatever ends a writer, no file bears its name before it is whole, and no record is
    lost that had come to the disk: `fastrec doctor` finds all that a killed writer left,
    and `--repair` gives it its names, all of a write or none, never over anything. Who
    appends heals the end of a file and nothing else. Two writers never write one file.
Method
    Writers of each kind are killed at random moments, FASTREC_TEST_RUNS times (3), and
    what they left is read by a reader that shares nothing with fastrec. What is rare is
    laid out by hand: files whose names say who left them.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import random
import subprocess
import sys
import textwrap
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner

import fastrec as fr
from children import n_runs, run_program
from fastrec.cli import interrupted as interrupting
from fastrec.cli.app import app
from oracle_frames import frame, tfrecord_file

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="files are locked by flock"
)

RUNS = n_runs(3)
NUMBERED = "d-{shard:02d}-of-{num_shards:02d}"
RECORDS = [random.Random(n).randbytes(n * 37 % 400) for n in range(40)]
WHOLE = tfrecord_file(RECORDS)


def run(*arguments: object, status: int) -> tuple[str, str]:
    """Run the command in this process; return what is on stdout and on stderr."""
    result = CliRunner().invoke(app, ["doctor", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.stdout, result.stderr


def report_of(*arguments: object, status: int) -> dict[str, Any]:
    shown, _ = run(*arguments, "--json", status=status)
    report: dict[str, Any] = json.loads(shown)
    return report


def leave(
    folder: Path, name: str, state: str, data: bytes, shard: int = 0, token: str = "1-1"
) -> Path:
    """Lay out what a writer leaves that was killed."""
    path = folder / f".{name}.{token}-{shard}.{state}"
    path.write_bytes(data)
    return path


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
def test_kill_9_loses_no_record_that_had_come_to_the_disk(
    tmp_path: Path, kind: str
) -> None:
    out = run_program("faulty_interrupted.py", kind, tmp_path / "runs", RUNS)
    n_killed, n_finished, _ = map(int, out.split())
    assert max(n_killed, n_finished) <= RUNS
    if RUNS >= 20:
        assert min(n_killed, n_finished) > 0


# --- What is reported -----------------------------------------------------------------


def test_interrupted_writes_are_told_with_what_is_whole_of_them(tmp_path: Path) -> None:
    leave(tmp_path, NUMBERED, "done", WHOLE, 0)
    leave(tmp_path, NUMBERED, "done", WHOLE, 1)
    leave(tmp_path, NUMBERED, "tmp", WHOLE[:-1], 2)
    leave(tmp_path, "single", "tmp", WHOLE + b"123", token="2-2")
    (tmp_path / "sound").write_bytes(WHOLE)
    before = contents_of(tmp_path)
    report = report_of(tmp_path, status=1)
    assert (report["n_files"], report["n_records"], report["regions"]) == (1, 40, [])
    numbered, single = report["interrupted"]
    assert numbered == {
        "path": str(tmp_path / NUMBERED),
        "token": "1-1",
        "is_being_written": False,
        "is_finished": False,
        "n_complete": 2,
        "n_unfinished": 1,
        "n_records": 119,
        "n_records_unfinished": 39,
        "n_bytes": 3 * len(WHOLE) - 1,
    }
    assert (single["path"], single["n_records_unfinished"]) == (
        str(tmp_path / "single"),
        40,
    )
    shown, errors = run(tmp_path, status=1)
    assert errors == ""
    assert (
        f"{tmp_path / NUMBERED}: a write was interrupted: 2 complete shards with 80 "
        "records, 39 whole records in 1 unfinished file, "
    ) in shown
    assert "40 sound records in 1 file" in shown
    assert "interrupted: 2 writes; --repair OUT" in shown
    assert contents_of(tmp_path) == before


def test_the_keys_of_interrupted_writes_are_documented(tmp_path: Path) -> None:
    leave(tmp_path, "single", "tmp", WHOLE)
    (write,) = report_of(tmp_path, status=1)["interrupted"]
    text = (Path(__file__).parents[2] / "docs" / "robustness.md").read_text()
    for key in write:
        assert f"`{key}`" in text


def test_a_directory_with_nothing_else_has_no_error(tmp_path: Path) -> None:
    leave(tmp_path, "single", "tmp", WHOLE)
    assert report_of(tmp_path, status=1)["unreadable"] == []
    report = report_of(tmp_path, "--repair", tmp_path, status=1)
    assert report["unreadable"] == []
    assert names_in(tmp_path) == ["single"]
    run(tmp_path, status=0)


@pytest.mark.parametrize(
    "path", ["d-00-of-02", "d-*", "d-0?-of-*", NUMBERED, ".d-*.1-1-0.done", "*"]
)
def test_files_globs_patterns_and_leftovers_name_a_write(
    tmp_path: Path, path: str
) -> None:
    leave(tmp_path, NUMBERED, "done", WHOLE, 0)
    leave(tmp_path, NUMBERED, "tmp", WHOLE, 1)
    leave(tmp_path, "other", "tmp", WHOLE, token="2-2")
    names = [
        write["path"] for write in report_of(tmp_path / path, status=1)["interrupted"]
    ]
    others = [str(tmp_path / "other")] if path == "*" else []
    assert names == [str(tmp_path / NUMBERED), *others]


def test_other_hidden_files_are_not_taken_for_leftovers(tmp_path: Path) -> None:
    for name in (".data.lock", ".data.1-1.tmp", ".data.1-1-01.tmp", ".1-1-1.tmp", ".x"):
        (tmp_path / name).write_bytes(WHOLE)
    (tmp_path / "sound").write_bytes(WHOLE)
    assert report_of(tmp_path, status=0)["interrupted"] == []


@pytest.mark.parametrize("name", ["data", NUMBERED, "p-{shard}"])
def test_what_is_being_written_is_left_alone(tmp_path: Path, name: str) -> None:
    options: dict[str, Any] = {"max_shard_records": 5} if "{" in name else {}
    with fr.Writer(tmp_path / name, num_threads=0, **options) as writer:
        for record in RECORDS[:12]:
            writer.write_record(record)
        for words in ((tmp_path,), (tmp_path, "--repair", tmp_path)):
            report = report_of(*words, status=0)
            (write,) = report["interrupted"]
            assert write["is_being_written"]
            assert not write["is_finished"]
            assert report["written"] == []
        assert "being written, and left alone" in run(tmp_path, status=0)[0]
    assert [record for path in writer.files for record in fr.read_records(path)] == (
        RECORDS[:12]
    )
    assert report_of(tmp_path, status=0)["interrupted"] == []


def test_without_locks_a_living_process_is_believed_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(interrupting, "is_locked", refuse)
    leave(tmp_path, "mine", "tmp", WHOLE, token=f"{os.getpid()}-1")
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    leave(tmp_path, "theirs", "tmp", WHOLE, token=f"{child.pid}-1")
    mine, theirs = report_of(tmp_path, status=1)["interrupted"]
    assert mine["is_being_written"]
    assert not theirs["is_being_written"]


# --- Finishing ------------------------------------------------------------------------


def test_in_place_names_are_given_and_leftovers_removed(tmp_path: Path) -> None:
    done = leave(tmp_path, NUMBERED, "done", WHOLE, 0)
    inode = done.stat().st_ino
    leave(tmp_path, NUMBERED, "tmp", WHOLE[:-1], 1)
    leave(tmp_path, NUMBERED, "tmp", WHOLE[:3], 2)  # no record: no shard
    (tmp_path / f".{NUMBERED}.lock").touch()
    (tmp_path / "sound.tfrecord").write_bytes(WHOLE)
    report = report_of(tmp_path, "--repair", tmp_path, status=1)
    assert contents_of(tmp_path) == {
        "d-00-of-02": WHOLE,
        "d-01-of-02": tfrecord_file(RECORDS[:-1]),
        "sound.tfrecord": WHOLE,
    }
    assert (tmp_path / "d-00-of-02").stat().st_ino == inode, "nothing is copied"
    assert [each["target"] for each in report["written"]] == [
        str(tmp_path / "d-00-of-02"),
        str(tmp_path / "d-01-of-02"),
    ]
    assert [each["n_records"] for each in report["written"]] == [40, 39]
    run(tmp_path, status=0)


def test_elsewhere_leftovers_stay(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "new" / "out"
    folder.mkdir()
    leave(folder, NUMBERED, "done", WHOLE, 0)
    leave(folder, NUMBERED, "tmp", WHOLE[:-1], 1)
    before = contents_of(folder)
    report_of(folder, "--repair", out, status=1)
    assert contents_of(folder) == before
    assert names_in(out) == ["d-00-of-02", "d-01-of-02"]
    report_of(folder, "--repair", out, status=1)  # once more changes nothing
    assert names_in(out) == ["d-00-of-02", "d-01-of-02"]


def test_where_there_are_no_links_files_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    leave(tmp_path, NUMBERED, "done", WHOLE, 0)
    leave(tmp_path, NUMBERED, "tmp", WHOLE, 1)
    run(tmp_path, "--repair", tmp_path, status=1)
    assert contents_of(tmp_path) == {"d-00-of-02": WHOLE, "d-01-of-02": WHOLE}


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_compressed_shards_stay_compressed(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    whole = compress(WHOLE)
    leave(tmp_path, NUMBERED, "done", whole, 0)
    leave(tmp_path, NUMBERED, "tmp", b"", 1)  # a lane that had nothing yet
    leave(tmp_path, NUMBERED, "tmp", whole[: len(whole) * 2 // 3], 2)
    leave(tmp_path, NUMBERED, "tmp", whole[:1], 3)
    run(tmp_path, "--repair", tmp_path, status=1)
    assert names_in(tmp_path) == [f"d-0{n}-of-03" for n in range(3)]
    inflated = [
        zlib.decompressobj(47).decompress(path.read_bytes())
        for path in sorted(tmp_path.iterdir())
    ]
    assert inflated[:2] == [WHOLE, b""]
    assert WHOLE.startswith(inflated[2])
    assert len(list(fr.read_records(tmp_path / "d-02-of-03"))) > 10
    kinds = {path.read_bytes()[:1] for path in tmp_path.iterdir()}
    assert kinds == {whole[:1]}


def test_whole_members_of_a_gzip_file_and_records_of_a_torn_one_are_saved(
    tmp_path: Path,
) -> None:
    members = [gzip.compress(tfrecord_file(RECORDS[n : n + 8])) for n in (0, 8, 16)]
    leave(tmp_path, "data", "tmp", b"".join(members)[:-20])
    run(tmp_path, "--repair", tmp_path, status=1)
    got = list(fr.read_records(tmp_path / "data"))
    assert got == RECORDS[: len(got)]
    assert len(got) > 16


def test_a_writer_that_was_killed_while_names_were_given_is_finished(
    tmp_path: Path,
) -> None:
    for shard in (0, 1):
        (tmp_path / f"d-0{shard}-of-04").write_bytes(WHOLE)
    for shard in (1, 2, 3):  # one has both names
        leave(tmp_path, NUMBERED, "done", WHOLE, shard)
    run(tmp_path, "--repair", tmp_path, status=1)
    assert names_in(tmp_path) == [f"d-0{n}-of-04" for n in range(4)]


@pytest.mark.parametrize("name", [".", "a{b}", "[x]"])
def test_directories_of_any_name_are_repaired_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    (folder / "d-00-of-03").write_bytes(WHOLE)
    for shard in (1, 2):
        leave(folder, NUMBERED, "done", WHOLE, shard)
        (folder / f"d-0{shard}-of-03").write_bytes(WHOLE)
    run(name, "--repair", name, status=1)
    assert names_in(folder) == [f"d-0{n}-of-03" for n in range(3)]


def test_nothing_is_written_over_and_all_stays_as_it_was(tmp_path: Path) -> None:
    leave(tmp_path, NUMBERED, "done", WHOLE, 0)
    leave(tmp_path, NUMBERED, "tmp", WHOLE[:-1], 1)
    for other in ("d-01-of-02", "d-00-of-05"):
        (tmp_path / other).write_bytes(b"")
        before = contents_of(tmp_path)
        report = report_of(tmp_path, "--repair", tmp_path, status=2)
        (failure,) = report["unreadable"]
        assert failure["path"] == str(tmp_path / other)
        assert contents_of(tmp_path) == before
        (tmp_path / other).unlink()
    run(tmp_path, "--repair", tmp_path, status=1)
    assert names_in(tmp_path) == ["d-00-of-02", "d-01-of-02"]


def test_two_writes_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    leave(folder, NUMBERED, "done", WHOLE, 0, token="1-1")
    leave(folder, NUMBERED, "tmp", WHOLE, 1, token="1-1")
    second = leave(folder, NUMBERED, "tmp", frame(b"second"), 0, token="2-7")
    before = contents_of(folder)
    for out in (folder, tmp_path / "out"):
        _, errors = run(folder, "--repair", out, status=2)
        assert errors.count("2 interrupted writes have this name") == 2
        assert contents_of(folder) == before
    run(second, "--repair", folder, status=1)
    assert (folder / "d-00-of-01").read_bytes() == frame(b"second")
    run(folder, "--repair", folder, status=2)  # which would mix them
    run(folder, "--repair", tmp_path / "out", status=1)
    assert names_in(tmp_path / "out") == ["d-00-of-02", "d-01-of-02"]


@pytest.mark.parametrize("cut", [20, 37, 60, 90, 120])
def test_a_torn_record_is_not_taken_apart(tmp_path: Path, cut: int) -> None:
    inner = tfrecord_file([b"inner"] * 5)
    leave(tmp_path, "data", "tmp", tfrecord_file([b"first", inner])[: 21 + cut])
    run(tmp_path, "--repair", tmp_path, status=1)
    assert contents_of(tmp_path) == {"data": frame(b"first")}


def test_a_leftover_that_is_damaged_in_its_middle_is_kept(tmp_path: Path) -> None:
    damaged = bytearray(WHOLE)
    damaged[200] ^= 1
    left = leave(tmp_path, "data", "tmp", bytes(damaged))
    run(tmp_path, "--repair", tmp_path, status=1)
    saved = list(fr.read_records(tmp_path / "data"))
    assert len(saved) == 39
    assert [record for record in RECORDS if record in saved] == saved
    assert left.read_bytes() == damaged


def test_what_cannot_be_finished_leaves_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shard in range(3):
        leave(tmp_path, NUMBERED, "done", WHOLE, shard)
    leave(tmp_path, NUMBERED, "tmp", WHOLE[:-1], 3)
    before = contents_of(tmp_path)
    link = os.link

    def refuse(path: str, target: Path) -> None:
        if "d-02" in Path(target).name:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        link(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        report = report_of(tmp_path, "--repair", tmp_path, status=2)
    (failure,) = report["unreadable"]
    assert failure["path"] == str(tmp_path / "d-02-of-04")
    assert contents_of(tmp_path) == before
    run(tmp_path, "--repair", tmp_path, status=1)
    assert names_in(tmp_path) == [f"d-0{n}-of-04" for n in range(4)]


def test_a_full_disk_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    leave(tmp_path, NUMBERED, "done", WHOLE, 0)
    leave(tmp_path, NUMBERED, "tmp", WHOLE[:-1], 1)
    before = contents_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        _, errors = run(tmp_path, "--repair", tmp_path, status=2)
    assert errors.endswith(f": {os.strerror(errno.ENOSPC)}\n")
    assert str(tmp_path) in errors
    assert contents_of(tmp_path) == before


def test_a_doctor_that_stops_anywhere_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink
    for n_removed in range(4):
        folder = tmp_path / f"{n_removed}"
        folder.mkdir()
        for shard in range(2):
            leave(folder, NUMBERED, "done", WHOLE, shard)
        leave(folder, NUMBERED, "tmp", WHOLE[:-1], 2)
        leave(folder, NUMBERED, "tmp", b"", 3)
        n_left = n_removed

        def stop(path: str, **options: Any) -> None:  # noqa: ANN401
            nonlocal n_left
            if str(path).endswith((".done", "-2.tmp", "-3.tmp")):
                if not n_left:
                    raise KeyboardInterrupt
                n_left -= 1
            unlink(path, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", stop)
            CliRunner().invoke(app, ["doctor", str(folder), "--repair", str(folder)])
        assert n_left == 0
        assert any(name.startswith(".d-") for name in names_in(folder))
        run(folder, "--repair", folder, status=1)
        assert names_in(folder) == [f"d-0{n}-of-03" for n in range(3)]


def test_damaged_files_of_the_same_directory_do_not_stop_it(tmp_path: Path) -> None:
    leave(tmp_path, "data", "tmp", WHOLE)
    (tmp_path / "bad.tfrecord").write_bytes(WHOLE[:-1])
    _, errors = run(tmp_path, "--repair", tmp_path, status=2)
    assert f"{tmp_path / 'bad.tfrecord'}: it exists" in errors
    assert names_in(tmp_path) == ["bad.tfrecord", "data"]


def test_interrupted_writes_are_finished_in_directories_only(tmp_path: Path) -> None:
    leave(tmp_path, "data", "tmp", WHOLE)
    file = tmp_path / "file"
    file.write_bytes(b"")
    _, errors = run(tmp_path / "data", "--repair", file, status=2)
    assert "in a directory, and this is none" in errors
    assert file.read_bytes() == b""


def test_names_that_were_cut_lead_to_names_of_their_own(tmp_path: Path) -> None:
    script = """
    import os, sys
    import fastrec as fr
    writer = fr.Writer(sys.argv[1], num_threads=0)
    writer.write_record(b"record")
    writer._shards.write(writer._added.buffers[0].take())
    os._exit(0)  # as if it had been killed
    """
    for name in ("x" * 255, "y" * 230 + "-{shard:05d}", "z" * 195 + NUMBERED):
        python(script, tmp_path / name)
    run(tmp_path, "--repair", tmp_path, status=1)
    assert len(names_in(tmp_path)) == 3
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {frame(b"record")}


# --- Names, while they are written ----------------------------------------------------


@pytest.mark.parametrize("options", [{"max_shard_records": 3}, {"num_shards": 5}])
def test_shards_whose_names_are_cut_do_not_replace_each_other(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with fr.Writer(tmp_path / ("x" * 210 + NUMBERED), **options) as writer:
        for record in RECORDS:
            writer.write_record(record)
    records = [record for path in writer.files for record in fr.read_records(path)]
    assert sorted(records) == sorted(RECORDS)
    assert len(names_in(tmp_path)) == len(writer.files)


def test_long_names_that_differ_at_the_end_lock_nobody_out(tmp_path: Path) -> None:
    with fr.Writer(tmp_path / ("x" * 249 + "a")), fr.Writer(tmp_path / ("x" * 250)):
        assert len(names_in(tmp_path)) == 4
    assert len(names_in(tmp_path)) == 2


def test_what_a_process_of_the_same_number_left_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in containers, whose processes have few numbers.
    monkeypatch.setattr(os, "getpid", lambda: 7)
    tokens = set()
    for _ in range(5):
        writer = fr.Writer(tmp_path / "data")
        (left,) = tmp_path.glob(".*.tmp")
        tokens.add(left.name)
        writer.abandon()
    assert len(tokens) == 5


def test_a_relative_pattern_stays_where_it_was(
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
def test_formats_that_cannot_be_read_again_are_refused(
    tmp_path: Path, form: str
) -> None:
    with pytest.raises(ValueError, match="another format"):
        fr.Writer(tmp_path / f"d-{{shard:{form}}}")


# --- A full disk ----------------------------------------------------------------------


def python(script: str, *arguments: object) -> None:
    """Run a script in a process of its own, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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
def test_a_full_disk_loses_no_shard_that_has_its_name(
    tmp_path: Path, compression: str, n_threads: int
) -> None:
    python(FULL, tmp_path / "p-{shard}", compression, n_threads)
    names = names_in(tmp_path)
    # Threads may be done with the last shard before they fail at the one before.
    assert {"p-0", "p-1", "p-3"} >= set(names)
    if n_threads == 0:
        assert names == ["p-0", "p-1"]
    for path in tmp_path.iterdir():
        n_records = 2 if path.name == "p-3" else 3
        assert [len(record) for record in fr.read_records(path)] == [1000] * n_records


def test_a_full_disk_publishes_nothing_of_a_set_that_is_not_whole(
    tmp_path: Path,
) -> None:
    python(FULL, tmp_path / NUMBERED, "", 0)
    assert {Path(name).suffix for name in names_in(tmp_path)} == {".done"}
    run(tmp_path, "--repair", tmp_path, status=1)
    assert names_in(tmp_path) == ["d-00-of-02", "d-01-of-02"]
    assert [len(record) for record in fr.read_records(tmp_path)] == [1000] * 6


def test_an_overwriting_writer_that_is_killed_leaves_the_old_files(
    tmp_path: Path,
) -> None:
    (tmp_path / "p-0").write_bytes(WHOLE)
    for shard in (0, 1):
        leave(tmp_path, "p-{shard}", "done", frame(b"new"), shard)
    before = contents_of(tmp_path)
    _, errors = run(tmp_path, "--repair", tmp_path, status=2)
    assert f"{tmp_path / 'p-0'}: it exists, and nothing is ever written over" in errors
    assert contents_of(tmp_path) == before
    run(tmp_path, "--repair", tmp_path / "out", status=1)
    assert contents_of(tmp_path / "out") == {"p-0": frame(b"new"), "p-1": frame(b"new")}


# --- Appending ------------------------------------------------------------------------


def test_every_truncation_is_healed(tmp_path: Path) -> None:
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


def test_zeros_at_the_end_are_healed(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(WHOLE + bytes(5000))  # as after a loss of power
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
def test_a_file_that_is_damaged_otherwise_is_refused_and_untouched(
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


def test_an_exception_takes_back_what_was_added(tmp_path: Path) -> None:
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


def test_who_is_refused_changes_nothing_of_what_another_appends(tmp_path: Path) -> None:
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
        writer.abandon()
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


def test_a_writer_is_not_refused_where_somebody_only_looks(tmp_path: Path) -> None:
    path = tmp_path / "data"
    lock = os.open(tmp_path / ".data.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_SH)
    released = threading.Timer(0.01, os.close, [lock])
    released.start()
    with fr.Writer(path) as writer:
        writer.write_record(b"data")
    released.join()
    assert names_in(tmp_path) == ["data"]


@pytest.mark.parametrize("name", ["data", NUMBERED, "p-{shard}"])
def test_a_writer_is_refused_where_another_is_at_work(
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
            python(SECOND, place / name)
        with fr.Writer(folder / f"other-{name}"):
            pass
        writer.write_record(b"first")
    with fr.Writer(folder / name, overwrite=True) as writer:
        writer.write_record(b"second")
    assert list(fr.read_records(writer.files)) == [b"second"]
    assert not list(folder.glob(".*"))


def test_the_lock_of_a_dead_writer_locks_nobody_out(tmp_path: Path) -> None:
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
        python(script, path)
        assert (tmp_path / ".data.lock").exists()
    fr.Writer(path).close()
    assert path.exists()
    assert not (tmp_path / ".data.lock").exists()


# --- The disk -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["data", NUMBERED, "p-{shard}"])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("n_threads", [0, 2])
def test_files_are_on_the_disk_before_they_have_their_names(
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

        def log(*arguments: Any) -> Any:  # noqa: ANN401
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
