"""Faults of the operating system: while files are read, indexed, expanded and written.

Goal
    A call that was interrupted, or did less, is made again. One that failed is an
    OSError with its number and the file's name, after the good batches, whatever
    `on_error` says; what failed once works the next time. Nothing hangs, and no
    descriptor or thread is left. Caches and files that could not be written whole, or
    whose writer was killed, are never believed.
Method
    Programs that have faults.c preloaded, which is compiled here, go every way with the
    fault at the first call, at the second, and so on. Writers are killed at random
    moments: FASTREC_TEST_RUNS sets how often (10).
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

import fastrec as fr
from children import ROOT, SUPPORT, built_library
from faults import Fault
from oracle import example, frame_offsets, tfrecord_file

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="preloading, /proc and flock as Linux has them"
)

RUNS = int(os.environ.get("FASTREC_TEST_RUNS", "10"))
N_RECORDS = 60
SPEC = {"n": fr.FixedLen((), "int64")}
ALL = 1_000_000


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes calls fail."""
    if shutil.which("cc") is None:
        pytest.skip("compiling faults.c needs a C compiler (cc)")
    return built_library(SUPPORT / "faults.c", tmp_path_factory.mktemp("faults"))


def faulty(library: Path, program: str, *arguments: object) -> list[list[int]]:
    """Run a program whose calls fail, and return the numbers in each of its lines."""
    process = subprocess.Popen(
        [sys.executable, *program.split(), *map(str, arguments)],
        cwd=SUPPORT if program.endswith(".py") else ROOT,
        # The threads of a library for linear algebra end when a process forks.
        env=os.environ | {"LD_PRELOAD": str(library), "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        process.wait(90 + RUNS)
    finally:
        with contextlib.suppress(ProcessLookupError):  # its children, if it failed
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    assert process.returncode == 0, err
    return [list(map(int, line.split())) for line in out.splitlines()]


# --- Reading --------------------------------------------------------------------------


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good file, one with a bad header and a bad payload, and a compressed one."""
    folder = tmp_path_factory.mktemp("data")
    data = bytearray(
        tfrecord_file(
            example(
                {b"n": ("int64", [n]), b"data": ("bytes", [b"x" * (n * 997 % 20_000)])}
            )
            for n in range(N_RECORDS)
        )
    )
    offsets = frame_offsets(bytes(data))
    (folder / "plain").write_bytes(data)
    (folder / "packed").write_bytes(gzip.compress(data))
    data[offsets[20] + 2] ^= 1
    data[offsets[40] + 30] ^= 1
    (folder / "damaged").write_bytes(data)
    return folder


@pytest.mark.parametrize("io", ["pread", "mmap"])
def test_what_cannot_be_read_is_the_systems_error(
    library: Path, folder: Path, io: str
) -> None:
    faults = [Fault("pread", errno.EIO), Fault("read", errno.EIO)]
    made = faulty(library, "faulty_reading.py", folder, io, "refused", *faults)
    for n_made, n_refused in made:
        assert n_made == n_refused > 20


@pytest.mark.parametrize("io", ["pread", "mmap"])
def test_what_cannot_be_opened_is_the_systems_error(
    library: Path, folder: Path, io: str
) -> None:
    faults = [Fault("open", errno.EMFILE), Fault("fstat", errno.EIO)]
    if io == "mmap":
        faults.append(Fault("mmap", errno.ENOMEM))
    made = faulty(library, "faulty_reading.py", folder, io, "either", *faults)
    for _, n_refused in made:
        assert n_refused > 20


INTERRUPTED = [Fault(call, errno.EINTR, count=3) for call in ("pread", "open", "read")]
SHORT = [
    Fault("pread", most=1, count=2000),  # as often as is bearable
    Fault("pread", most=4095, count=ALL),
    Fault("read", most=1000, count=ALL),
]
UNMAPPED = [Fault("mmap", errno.ENODEV), Fault("mmap", errno.ENOMEM, count=ALL)]


@pytest.mark.parametrize(
    ("io", "faults"), [("pread", INTERRUPTED), ("pread", SHORT), ("auto", UNMAPPED)]
)
def test_what_is_made_again_or_otherwise_changes_nothing(
    library: Path, folder: Path, io: str, faults: list[Fault]
) -> None:
    made = faulty(library, "faulty_reading.py", folder, io, "transparent", *faults)
    for n_made, _ in made:
        assert n_made > 20


# --- What is kept ---------------------------------------------------------------------

DISK = [
    Fault(call, number)
    for call, number in {
        "mkdir": errno.EROFS,
        "open": errno.EROFS,
        "fopen": errno.ENOSPC,
        "fwrite": errno.ENOSPC,
        "fclose": errno.EIO,
        "write": errno.ENOSPC,
        "fsync": errno.EIO,
        "rename": errno.EIO,
    }.items()
]
KILLS = [Fault(fault.call, -1) for fault in DISK]


@pytest.mark.parametrize("faults", [DISK, KILLS], ids=["refused", "killed"])
def test_a_cache_that_fails_costs_time_but_no_records(
    library: Path, folder: Path, tmp_path: Path, faults: list[Fault]
) -> None:
    files = (folder / "plain", folder / "packed")
    made = faulty(library, "faulty_cache.py", *files, tmp_path, *faults)
    assert all(n_made > 0 for (n_made,) in made)
    assert sum(n_made for (n_made,) in made) > 30


def test_a_cache_whose_writer_is_killed_is_never_believed(
    library: Path, folder: Path, tmp_path: Path
) -> None:
    files = (folder / "plain", folder / "packed")
    for what in ("index", "expansion"):
        place = tmp_path / what
        ((n_killed, n_records),) = faulty(
            library, "-m campaigns.killed_caches", what, place, *files, RUNS
        )
        assert n_killed > 0
        assert n_records == RUNS * 2 * N_RECORDS


def test_a_conversion_that_is_killed_leaves_nothing_to_the_next_one(
    library: Path, folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    files = (folder / "plain", folder / "packed")
    ((n_killed, n_records),) = faulty(
        library, "-m campaigns.killed_caches", "table", tmp_path / "table", *files, RUNS
    )
    assert n_killed > 0
    assert n_records == RUNS * N_RECORDS


def test_one_process_builds_an_index_while_others_wait(
    library: Path, folder: Path, tmp_path: Path
) -> None:
    faulty(library, "faulty_builders.py", folder / "plain", N_RECORDS, tmp_path)


@pytest.mark.parametrize("name", ["plain", "packed"])
def test_a_user_without_a_home_keeps_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable in ("FASTREC_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    ds = fr.open(folder / name)
    assert len(ds) == len(list(ds.records)) == N_RECORDS


@pytest.mark.parametrize("name", ["plain", "packed"])
def test_what_cannot_be_kept_of_many_files_is_one_line_of_the_log(
    folder: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    nowhere = "/dev/null/index"
    copies = [folder / f"{name}-{i}" for i in range(5)]
    for copy in copies:
        shutil.copy(folder / name, copy)
    with caplog.at_level("INFO", "fastrec"):
        assert len(fr.open(copies, index_dir=nowhere)) == 5 * N_RECORDS
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("cannot cache 5 indexes: ")
    assert nowhere in line


# --- Memory ---------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_memory_that_runs_out_while_a_file_is_inflated_is_no_damage(
    folder: Path, monkeypatch: pytest.MonkeyPatch, on_error: Literal["raise", "skip"]
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    ds = fr.open(folder / "packed", features=SPEC, on_error=on_error)
    with monkeypatch.context() as patch:
        patch.setattr("zlib.decompressobj", exhausted)
        patch.setattr("isal.isal_zlib.decompressobj", exhausted)
        for read in (lambda: list(ds.loader(7)), lambda: list(ds.records)):
            with pytest.raises(MemoryError):
                read()
    assert sum(len(batch["n"]) for batch in ds.loader(7)) == N_RECORDS


# --- Writing --------------------------------------------------------------------------


def test_a_writer_that_the_disk_refuses_leaves_nothing(
    library: Path, tmp_path: Path
) -> None:
    faults = [
        Fault("open", errno.EROFS),
        Fault("write", errno.ENOSPC),
        Fault("fsync", errno.EIO),
        Fault("link", errno.ENOSPC),
        Fault("rename", errno.EIO),
    ]
    for n_made, n_refused in faulty(library, "faulty_writer.py", tmp_path, *faults):
        assert n_made >= n_refused > 0


def test_a_writer_makes_again_what_was_interrupted_or_did_less(
    library: Path, tmp_path: Path
) -> None:
    faults = [
        Fault("open", errno.EINTR, count=3),
        Fault("write", errno.EINTR, count=3),
        Fault("fsync", errno.EINTR, count=3),
        Fault("write", most=1, count=1000),
        Fault("write", most=4095, count=ALL),
        Fault("link", errno.EPERM),  # a file system without links
    ]
    for n_made, n_refused in faulty(library, "faulty_writer.py", tmp_path, *faults):
        assert n_made > 0
        assert n_refused == 0


def test_a_writer_that_is_killed_leaves_all_or_a_part_beside_the_name(
    library: Path, tmp_path: Path
) -> None:
    calls = ("open", "write", "fsync", "link", "unlink", "rename")
    faults = [Fault(call, -1) for call in calls]
    for n_made, _ in faulty(library, "faulty_writer.py", tmp_path, *faults):
        assert n_made > 0


def test_what_a_killed_writer_left_is_read_up_to_its_tail(
    library: Path, folder: Path, tmp_path: Path
) -> None:
    files = (folder / "plain", folder / "packed")
    place = tmp_path / "writer"
    ((n_killed, n_records),) = faulty(
        library, "-m campaigns.killed_caches", "writer", place, *files, RUNS
    )
    assert n_killed == RUNS
    assert n_records > 0
