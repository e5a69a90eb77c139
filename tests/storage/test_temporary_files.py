"""Temporary files of writers that are killed, fail or work at the same time.

Goal
    The next writer of a file removes what killed writers of it left, and nothing of
    living writers. A failed writer leaves nothing, and its error names the file.
Method
    A child process stops in the middle of a file, and is killed with SIGKILL. A file
    system without locks is simulated.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from children import Child
from fastrec.storage import atomic
from fastrec.storage.atomic import replacement

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="files are locked by flock"
)

WRITING = """
import sys
from pathlib import Path
from fastrec.storage.atomic import replacement

with replacement(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"of the child")
    print("begun", flush=True)
    sys.stdin.read()
"""


@contextmanager
def writing(target: Path) -> Iterator[Child[str]]:
    """Run a process that has a temporary file for `target` until its stdin ends."""
    with Child(
        [sys.executable, "-c", WRITING, target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        yield child


def write(target: Path, content: bytes) -> None:
    with replacement(target) as temporary:
        temporary.write_bytes(content)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_next_writer_removes_the_files_of_killed_writers(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with writing(target) as first, writing(target) as second:
        assert len(names_in(tmp_path)) == 2
        first.kill()
        second.kill()
    assert len(names_in(tmp_path)) == 2
    write(tmp_path / "other", b"")
    assert len(names_in(tmp_path)) == 3
    write(target, b"new")
    assert names_in(tmp_path) == ["other", "out"]
    assert target.read_bytes() == b"new"


def test_the_file_of_a_living_writer_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with writing(target) as child:
        [temporary] = names_in(tmp_path)
        write(target, b"new")
        assert names_in(tmp_path) == [temporary, "out"]
        assert target.read_bytes() == b"new"
        child.communicate()
    assert child.returncode == 0
    assert names_in(tmp_path) == ["out"]
    assert target.read_bytes() == b"of the child"


@pytest.mark.parametrize("is_done", [False, True])
def test_a_file_that_another_writer_removes_before_it_is_locked_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_done: bool
) -> None:
    """The other one has removed it, or still holds the lock."""
    removed: list[Path] = []

    def lock_late(file: io.FileIO) -> bool:
        if removed:
            return try_lock(file)
        removed.extend(tmp_path.iterdir())
        removed[0].unlink()
        return is_done and try_lock(file)

    try_lock = atomic.try_lock
    monkeypatch.setattr(atomic, "try_lock", lock_late)
    write(tmp_path / "out", b"new")  # a file that is left open would be a warning
    gc.collect()
    assert len(removed) == 1
    assert names_in(tmp_path) == ["out"]


@pytest.mark.parametrize("reason", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_file_system_without_locks_keeps_the_files_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def cannot_lock(_: io.FileIO) -> bool:
        raise OSError(reason, os.strerror(reason))

    target = tmp_path / "out"
    with writing(target):
        [temporary] = names_in(tmp_path)
        monkeypatch.setattr(atomic, "try_lock", cannot_lock)
        with pytest.raises(ZeroDivisionError), replacement(target):
            raise ZeroDivisionError
        assert names_in(tmp_path) == [temporary]
        write(target, b"new")
        assert names_in(tmp_path) == [temporary, "out"]


def test_an_error_names_the_file_and_not_its_temporary_name(tmp_path: Path) -> None:
    full = os.strerror(errno.ENOSPC)
    target = tmp_path / "out"
    with pytest.raises(OSError, match=full) as caught, replacement(target):
        raise OSError(errno.ENOSPC, full)
    assert str(caught.value) == f"[Errno {errno.ENOSPC}] {full}: {str(target)!r}"
    target.mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write(target, b"new")
    assert str(caught.value).endswith(f": {str(target)!r}")
    with pytest.raises(FileNotFoundError) as caught, replacement(target):
        Path("missing").read_bytes()
    assert caught.value.filename == "missing"
    assert names_in(tmp_path) == ["out"]
