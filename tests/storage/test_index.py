"""The index of record offsets, and its cache.

Goal
    The index of a file equals a sequential walk over it. A damaged or outdated cache
    never causes a wrong record.
Method
    Thousands of random layouts, with payloads that look like frames; cache files that
    are truncated, flipped, or older than their data file.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import crc32c as fast_crc32c
import pytest

import fastrec as fr
from children import SECONDS_TO_HANG
from columns import Write, open_dataset
from fastrec import _core
from fastrec.storage import index as storage_index
from fastrec.storage.index_files import IndexPlace
from oracle import frame, frame_offsets, header, tfrecord_file

RECORDS = [b"first", b"", b"third, and longer", b"4", b"fifth", b"last"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("FASTREC_CACHE", str(folder))
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "data.tfrecord"
    path.write_bytes(tfrecord_file(RECORDS))
    return path


def records_of(path: Path, **options: str) -> list[bytes]:
    ds = open_dataset(path, **options)
    records: list[bytes] = ds.records[0 : len(ds)].tolist()
    return records


def index_files(cache: Path) -> list[Path]:
    return sorted(file for file in cache.rglob("*") if file.is_file())


def replace_keeping_time(path: Path, data: bytes) -> None:
    """Replace a file's content, but keep its modification time."""
    before = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


# The walk.


def random_payload(rng: random.Random) -> bytes:
    """Return noise, zeros, frames, a truncated frame, or the beginning of one."""
    kind = rng.randrange(6)
    n = rng.choice((0, 1, 7, 8, 12, 15, 16, 17, 40, 200))
    if kind == 0:
        return rng.randbytes(n)
    if kind == 1:
        return bytes(n)
    inner = [rng.randbytes(rng.randrange(20)) for _ in range(rng.randrange(1, 5))]
    if kind == 2:
        return tfrecord_file(inner)
    if kind == 3:
        return rng.randbytes(rng.randrange(9)) + tfrecord_file(inner)
    if kind == 4:
        whole = tfrecord_file(inner)
        return whole[: rng.randrange(len(whole))]
    return header(rng.choice((0, 1, 5, n, 1000))) * rng.randrange(1, 4)


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("seed", range(5))
def test_the_index_of_random_layouts_is_the_plain_walk(
    write: Write, seed: int, io: str
) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        records = [random_payload(rng) for _ in range(rng.randrange(12))]
        data = tfrecord_file(records)
        assert len(frame_offsets(data)) == len(records) + 1
        assert records_of(write(data), io=io) == records


def nest(rng: random.Random, n_bytes: int) -> bytes:
    """Return a payload that is a file of small and large records, and zeros."""
    parts = []
    while n_bytes > 0:
        part = rng.choice(
            (frame(b""), bytes(100), frame(rng.randbytes(50)), header(1 << 10))
        )
        parts += [part] * rng.randrange(1, 2000)
        n_bytes -= len(part) * 1000
    return b"".join(parts)


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("seed", range(8))
def test_large_files_that_are_walked_in_pieces(
    write: Write, seed: int, io: str
) -> None:
    """No piece may mistake a frame inside a payload for a frame of the file."""
    rng = random.Random(seed)
    records: list[bytes] = []
    n_bytes = 0
    while n_bytes < 5 << 20:
        record = nest(rng, rng.choice((1_000, 50_000, 1_500_000)))
        small = [rng.randbytes(rng.randrange(30)) for _ in range(rng.randrange(100))]
        records += [record, *small]
        n_bytes += len(record)
    path = write(b"".join(frame(record, fast_crc32c.crc32c) for record in records))
    ds = open_dataset(path, io=io)
    assert len(ds) == len(records)
    assert ds.records[0 : len(ds)].tolist() == records
    for i in rng.sample(range(len(records)), 20):
        assert ds.records[i] == records[i]


# The cache.


def test_opening_again_does_not_walk_the_file_again(path: Path, cache: Path) -> None:
    """Between the two, damage a header that only a walk reads."""
    assert records_of(path) == RECORDS
    assert index_files(cache)
    damaged = bytearray(path.read_bytes())
    third = frame_offsets(bytes(damaged))[2]
    damaged[third] ^= 1
    replace_keeping_time(path, bytes(damaged))

    ds = open_dataset(path)
    assert len(ds) == len(RECORDS), "the cache was not used"
    assert [ds.records[i] for i in (0, 1, 3, 4, 5)] == [
        RECORDS[i] for i in (0, 1, 3, 4, 5)
    ]
    with pytest.raises(fr.CorruptionError, match="record 2"):
        ds.records[2]


def test_nothing_is_written_next_to_the_data(path: Path, cache: Path) -> None:
    records_of(path)
    fr.build_index(path)
    assert index_files(cache)
    assert [file.name for file in path.parent.iterdir()] == ["data.tfrecord"]


def test_build_index_fills_the_cache(path: Path, cache: Path) -> None:
    other = path.with_name("other.tfrecord")
    other.write_bytes(tfrecord_file(RECORDS[:2]))
    fr.build_index(str(path.parent / "*.tfrecord"))
    before = {file: file.stat().st_mtime_ns for file in index_files(cache)}
    assert before
    assert records_of(path) == RECORDS
    assert records_of(other) == RECORDS[:2]
    assert {file: file.stat().st_mtime_ns for file in index_files(cache)} == before


def test_index_dir_is_used_instead_of_the_cache(
    path: Path, cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "indexes"
    folder.mkdir()
    assert records_of(path, index_dir=str(folder)) == RECORDS
    assert index_files(folder)
    assert not index_files(cache)
    assert records_of(path, index_dir=str(folder)) == RECORDS


def test_a_file_that_was_written_again_is_indexed_again(
    path: Path, cache: Path
) -> None:
    assert records_of(path) == RECORDS
    assert index_files(cache)
    shorter, same_size = RECORDS[:3], [RECORDS[2], *RECORDS[:2], *RECORDS[3:]]
    longer = [*RECORDS, b"more"]
    for n, records in enumerate((shorter, longer, RECORDS, same_size, RECORDS), 1):
        path.write_bytes(tfrecord_file(records))
        later = path.stat().st_mtime_ns + n * 1_000_000_000
        os.utime(path, ns=(later, later))
        assert records_of(path) == records


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_a_file_that_changes_while_a_dataset_is_open(
    path: Path, cache: Path, io: str
) -> None:
    """Return records of the old or the new file, or raise; never mix both."""
    rng = random.Random(0)
    for _ in range(50):
        path.write_bytes(tfrecord_file(RECORDS))
        ds = open_dataset(path, io=io)
        assert len(ds) == len(RECORDS)
        new = [rng.randbytes(rng.randrange(30)) for _ in range(9)]
        data = tfrecord_file(new)
        # In place and not shorter: truncation of mapped files is tested elsewhere.
        with path.open("r+b") as file:
            file.write(data + frame(bytes(max(0, path.stat().st_size - len(data)))))
        for i in range(len(RECORDS)):
            try:
                got = ds.records[i]
            except fr.CorruptionError:
                continue
            assert got in (RECORDS[i], new[i])
    assert cache.exists()


def test_an_index_of_another_layout_of_the_same_size_and_time(
    path: Path, cache: Path
) -> None:
    """Reading a record must detect what the cache cannot."""
    whole = tfrecord_file(RECORDS)
    rng = random.Random(1)
    n_errors = 0
    for n in range(100):
        path.write_bytes(whole)
        later = path.stat().st_mtime_ns + (n + 1) * 1_000_000_000
        os.utime(path, ns=(later, later))
        assert records_of(path) == RECORDS
        shuffled = rng.sample(RECORDS, len(RECORDS))
        replace_keeping_time(path, tfrecord_file(shuffled))
        ds = open_dataset(path)
        for i in range(len(RECORDS)):
            try:
                assert ds.records[i] == shuffled[i]
            except fr.CorruptionError as error:
                n_errors += 1
                assert error.path == str(path)  # noqa: PT017
    assert index_files(cache)
    assert n_errors > 0, "the cache was never used"


def test_every_truncation_and_flipped_bit_of_an_index_file(
    path: Path, cache: Path
) -> None:
    """Opening returns the right records or raises."""
    assert records_of(path) == RECORDS
    files = index_files(cache)
    assert files
    for file in files:
        good = file.read_bytes()
        damaged = [good[:cut] for cut in range(len(good))]
        damaged += [good + b"\0", good + good, bytes(len(good)), b"\xff" * len(good)]
        for bit in range(8 * len(good)):
            flipped = bytearray(good)
            flipped[bit // 8] ^= 1 << bit % 8
            damaged.append(bytes(flipped))
        for data in damaged:
            file.write_bytes(data)
            try:
                assert records_of(path) == RECORDS
            except fr.Error as error:
                assert error.path  # noqa: PT017
        file.write_bytes(good)


def test_an_index_is_not_used_for_another_file(path: Path, cache: Path) -> None:
    """Swap the index files of two data files of equal size."""
    other = path.with_name("other.tfrecord")
    other.write_bytes(tfrecord_file(RECORDS[::-1]))
    assert records_of(path) == RECORDS
    first = index_files(cache)
    assert records_of(other) == RECORDS[::-1]
    both = index_files(cache)
    for source in first:
        for target in both:
            good = target.read_bytes()
            target.write_bytes(source.read_bytes())
            for file, records in ((path, RECORDS), (other, RECORDS[::-1])):
                try:
                    assert records_of(file) == records
                except fr.Error as error:
                    assert error.path  # noqa: PT017
            target.write_bytes(good)


def test_a_cache_that_is_not_writable_is_optional(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.write_bytes(b"")
    read_only = tmp_path / "read only"
    read_only.mkdir()
    read_only.chmod(0o555)  # Root can write to any directory, hence the file above.
    for folder in (
        not_a_folder,
        not_a_folder / "below",
        read_only,
        read_only / "below",
    ):
        monkeypatch.setenv("FASTREC_CACHE", str(folder))
        assert records_of(path) == RECORDS
        assert open_dataset(path).records[3] == RECORDS[3]


def test_the_cache_directory_is_read_at_every_use(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / name))
        assert records_of(path) == RECORDS
        assert index_files(tmp_path / name)


def test_a_damaged_file_is_not_indexed(path: Path, cache: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(fr.CorruptionError, match="record 5"):
        records_of(path)
    later = path.stat().st_mtime_ns + 1_000_000_000
    path.write_bytes(whole)
    os.utime(path, ns=(later, later))
    assert records_of(path) == RECORDS
    assert index_files(cache)


def test_the_same_file_by_another_path_has_the_same_records(
    path: Path, cache: Path
) -> None:
    link = path.with_name("link.tfrecord")
    link.symlink_to(path)
    assert records_of(path) == RECORDS
    n_files = len(index_files(cache))
    assert records_of(link) == RECORDS
    assert len(index_files(cache)) == n_files, "an index is kept by real path"


def test_build_index_raises_if_the_cache_is_not_writable(
    path: Path, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        fr.build_index(path, index_dir=in_the_way / "index")


def test_a_long_build_is_saved_while_it_runs(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = path.with_name("other.tfrecord")
    other.write_bytes(path.read_bytes())
    paths = [str(path), str(other)]
    monkeypatch.setattr(storage_index, "_SAVE_SECONDS", 0.0)
    n_saved: list[int] = []

    def saved() -> list[Path]:
        return [*cache.rglob("*.frecidx")]

    def scan(numbers: storage_index.Numbers) -> _core.Indexes:
        deadline = time.monotonic() + SECONDS_TO_HANG
        while n_saved and not saved() and time.monotonic() < deadline:
            time.sleep(0.01)  # the index of the first file is being saved
        n_saved.append(len(saved()))
        return _core.Indexes.build(table, numbers, 1, scanned)

    table = _core.FileTable("\0".join(paths).encode(), ["auto"])
    scanned = _core.ScanProgress()
    found = storage_index.FileIndexes(paths, None, IndexPlace(), ())
    indexes = found.complete(scan, scanned, scanned.cancel, 1)
    assert n_saved == [0, 1]
    assert indexes.counts.tolist() == [len(RECORDS)] * 2


def test_ctrl_c_interrupts_the_wait_for_another_builder(
    path: Path, cache: Path
) -> None:
    fcntl = pytest.importorskip("fcntl")
    fr.build_index(path)
    for index in (cache / "index").glob("*.frecidx"):
        index.unlink()
    locks = [lock.open("w") for lock in (cache / "index").glob(".lock-*")]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX)
    code = (
        "import sys, fastrec as fr; print('on', flush=True); len(fr.open(sys.argv[1]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS_TO_HANG)
        assert b"KeyboardInterrupt" in err
    finally:
        process.kill()
        for lock in locks:
            lock.close()
