"""Fixtures that all tests share."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from columns import Untyped, open_dataset
from numbered import FILE_SIZES, SPEC, write_files
from object_server import ObjectServer, served
from s3_server import S3, s3_server

settings.register_profile("fastrec", deadline=None, max_examples=100)
settings.load_profile("fastrec")


def pytest_collection_finish() -> None:
    """Let garbage collections look at what the tests make, not at the tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_are_deleted(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Tests, and the processes they start, leave no temporary file.

    Those of Ray, torch, TensorFlow, multiprocessing and killed processes are deleted here.
    """
    tmp_path_factory.getbasetemp()  # stays where it is
    folder = Path(tempfile.mkdtemp(prefix="fr-"))  # short: Ray puts sockets in it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        yield
        left = [path.name for path in folder.glob("fastrec-*")]
    shutil.rmtree(folder, ignore_errors=True)
    assert not left, "fastrec left temporary files"


@pytest.fixture(scope="session", autouse=True)
def _cache_of_this_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests, and the processes they start, never touch the user's index cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTREC_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("FASTREC_ISA", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _interrupts_are_heard() -> None:
    """Also where a shell runs the tests in the background, and has them ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Path]:
    """Write a file under a name that no test has used before.

    New names, because an index is kept by name, size and time, and the clock of a file
    system is too coarse to tell two versions that one test writes.
    """
    folder = tmp_path_factory.mktemp("files")
    numbers = itertools.count()

    def write_file(data: bytes) -> Path:
        path = folder / f"{next(numbers):06d}.tfrecord"
        path.write_bytes(data)
        return path

    return write_file


@pytest.fixture(scope="module")
def paths(write: Callable[[bytes], Path]) -> list[Path]:
    """Files of the records of numbered.py."""
    return write_files(write, FILE_SIZES)


@pytest.fixture(scope="module")
def ds(paths: list[Path]) -> Untyped:
    return open_dataset(paths, features=SPEC)


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with served() as running:
        yield running


@pytest.fixture(scope="session")
def _s3_of_this_session() -> Iterator[S3]:
    pytest.importorskip("moto", reason="moto is not installed")
    with s3_server() as running:
        yield running


@pytest.fixture
def s3(_s3_of_this_session: S3) -> S3:
    """Moto's server, with an empty bucket."""
    _s3_of_this_session.clear()
    return _s3_of_this_session


@pytest.fixture(scope="session")
def testdata() -> Path:
    """Real files: ``$FASTREC_TESTDATA``, else ``shared/testdata`` beside the project."""
    named = os.environ.get("FASTREC_TESTDATA")
    project = Path(__file__).parents[1]
    folder = Path(named) if named else project.parent / "shared" / "testdata"
    if not folder.is_dir():
        pytest.skip("real files (set FASTREC_TESTDATA to their folder)")
    return folder


def n_threads() -> int:
    """How many threads this process has, native ones included."""
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        pytest.skip("counting native threads needs /proc")
    return sum(1 for _ in tasks.iterdir())


@pytest.fixture
def threads_end() -> Iterator[Callable[[], None]]:
    """Call it where no more threads may be left than at the beginning of the test."""
    before = n_threads()

    def check() -> None:
        # A joined thread stays in /proc for a moment longer.
        deadline = time.monotonic() + 2
        while n_threads() > before and time.monotonic() < deadline:
            time.sleep(0.001)
        names = [thread.name for thread in threading.enumerate()]
        assert n_threads() <= before, f"threads left behind; Python knows {names}"

    yield check
    check()
