"""Cache files: indexes, counts and locks in a directory that others can write to.

Goal
    Whatever exists at the paths of these files, the records are right, nothing blocks
    forever, and no file elsewhere is created or changed. Altered cache files are
    rebuilt.
Method
    Every truncation and every altered byte of the index of a plain and a compressed
    file; FIFOs,
    directories and links under every name; a lock that another owner holds.
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

import fastrec as fr
from oracle import tfrecord_file

fcntl = pytest.importorskip("fcntl")

RECORDS = [b"first", b"", b"third, and longer", b"last"]


@contextlib.contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raise if the body takes longer."""

    def expire(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Case:
    """A file whose index or count is cached in a directory."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.index_dir = folder / "index"
        self.path = folder / "data"
        content = tfrecord_file(RECORDS)
        self.path.write_bytes(gzip.compress(content) if kind == "count" else content)

    def check(self) -> None:
        """Check that all records are read, with or without a cache file."""
        ds = fr.open(self.path, index_dir=self.index_dir)
        assert len(ds) == len(RECORDS)
        assert list(ds.records) == RECORDS

    def names(self) -> list[Path]:
        """Return the paths of the cache file and of its lock."""
        self.check()
        names = sorted(self.index_dir.iterdir())
        assert len(names) == 2
        return names


@pytest.fixture(params=["index", "count"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(tmp_path, request.param)


def alterations(good: bytes) -> Iterator[bytes]:
    for size in range(len(good)):
        yield good[:size]
    yield from (good + b"\0", good + good, b"\x93NUMPY" + good, b"PK\x03\x04" + good)
    for at, byte in enumerate(good):
        for altered in {byte ^ 1, byte ^ 128, 255 - byte, 0, 255} - {byte}:
            yield good[:at] + bytes([altered]) + good[at + 1 :]


def test_an_altered_cache_file_is_rebuilt(case: Case) -> None:
    case.check()
    (file,) = (path for path in case.index_dir.iterdir() if path.name[0] != ".")
    good = file.read_bytes()
    n_altered = 0
    for data in alterations(good):
        file.write_bytes(data)
        case.check()
        assert file.read_bytes() == good
        n_altered += 1
    assert n_altered > 4 * len(good)


def obstacles(elsewhere: Path) -> dict[str, Callable[[Path], object]]:
    return {
        "fifo": os.mkfifo,
        "directory": Path.mkdir,
        "dangling link": lambda name: name.symlink_to(elsewhere / "absent"),
        "link": lambda name: name.symlink_to(elsewhere / "present"),
    }


@pytest.mark.parametrize("what", obstacles(Path()))
def test_obstacles_at_the_path_of_a_cache_file(
    case: Case, tmp_path: Path, what: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "present").write_bytes(b"of another user")
    for name in case.names():
        shutil.rmtree(case.index_dir)
        case.index_dir.mkdir()
        obstacles(elsewhere)[what](name)
        with limit(30):
            case.check()
            case.check()
    assert [path.name for path in elsewhere.iterdir()] == ["present"]
    assert (elsewhere / "present").read_bytes() == b"of another user"


def test_a_symlink_to_a_cache_file_is_not_followed(case: Case, tmp_path: Path) -> None:
    case.check()
    (file,) = (path for path in case.index_dir.iterdir() if path.name[0] != ".")
    target = file.replace(tmp_path / "target")
    good = target.read_bytes()
    file.symlink_to(target)
    case.check()
    assert not file.is_symlink()
    assert target.read_bytes() == good


class Release(logging.Handler):
    """Releases locks when a line of the log names one."""

    def __init__(self, locks: dict[str, int]) -> None:
        super().__init__()
        self._locks = locks
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        for path in [path for path in self._locks if path in line]:
            self.lines.append(line)
            os.close(self._locks.pop(path))


def test_a_long_wait_for_a_lock_is_logged(case: Case) -> None:
    case.check()
    locks = {}
    for path in case.index_dir.iterdir():
        if path.name[0] == ".":
            locks[str(path)] = file = os.open(path, os.O_WRONLY)
            fcntl.flock(file, fcntl.LOCK_EX)
        else:
            path.unlink()
    release = Release(locks)
    log = logging.getLogger("fastrec")
    log.addHandler(release)
    try:
        with limit(60):
            case.check()
    finally:
        log.removeHandler(release)
        for file in locks.values():
            os.close(file)
    (line,) = release.lines
    assert "lock" in line


def test_a_large_count_does_not_depend_on_its_file(tmp_path: Path) -> None:
    n = 300_000
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress(tfrecord_file([b""] * n), 1))
    fr.build_index(path, index_dir=tmp_path / "index")
    features = {"n": fr.VarLen("int64")}
    ds = fr.open(path, features=features, index_dir=tmp_path / "index")
    assert len(ds) == n
    (kept,) = (tmp_path / "index").glob("*.frecidx")
    assert kept.stat().st_size > 1 << 20
    os.truncate(kept, 0)
    before = ds.loader(1000).state_dict()
    kept.unlink()
    other = fr.open(path, features=features, index_dir=tmp_path / "index")
    assert other.loader(1000).state_dict() == before
