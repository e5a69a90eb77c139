"""cache_dir= and cache_bytes=: local copies of remote and of compressed files.

Goal
    A dataset with copies behaves like one of local files, and reads no network after the
    first epoch. Copies appear whole and verified, stay within cache_bytes, and the least
    recently used ones go first; those in use stay as long as they are, and no longer. A
    process that is killed leaves nothing for ever.
Method
    A server in this process that counts requests and injects faults; the files in the
    cache directory.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from children import SECONDS_TO_HANG, run_program, start_program
from columns import Untyped, open_dataset
from object_server import ObjectServer, Request, random_faults, served
from oracle import example, tfrecord_file

pytest.importorskip("obstore", reason="extra `remote` is not installed")
pytest.importorskip("fsspec", reason="extra `remote` is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:the server reports no exact version")

N_ROWS = 100


def rows(*numbers: int) -> list[int]:
    """Numbers of two bytes each, so that all shards have one size."""
    return [1000 * number + i for number in numbers for i in range(N_ROWS)]


def shard(number: int) -> bytes:
    return tfrecord_file([example({b"n": ("int64", [i])}) for i in rows(number)])


SHARD_BYTES = len(shard(1))


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    plain = {f"plain/{i}.tfrecord": shard(i) for i in range(1, 5)}
    packed = {f"gz/{i}.tfrecord.gz": gzip.compress(shard(i)) for i in range(1, 5)}
    with served({**plain, **packed}) as running:
        yield running


def numbers(dataset: Untyped, **options: Untyped) -> list[int]:
    return [int(n) for batch in dataset.loader(30, **options) for n in batch["n"]]


def copies(cache: Path) -> list[str]:
    return sorted(file.name[:1] for file in cache.glob("*.tfrecord"))


@pytest.mark.parametrize("folder", ["plain", "gz"])
def test_a_second_epoch_reads_no_network(
    server: ObjectServer, tmp_path: Path, folder: str
) -> None:
    url = f"{server.url}/{folder}/"
    dataset = open_dataset(url, cache_dir=tmp_path)
    everything = rows(1, 2, 3, 4)
    assert numbers(dataset) == everything
    server.requests.clear()
    assert numbers(dataset) == everything
    assert sorted(numbers(dataset, shuffle=True, seed=1)) == everything
    assert len(dataset) == len(everything)
    assert dataset[[3, 1]]["n"].tolist() == [1003, 1001]
    assert server.requests == []


def test_copies_survive_faults(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._FIRST_DELAY_SECONDS", 0.001)
    server.stall_seconds = 0.01
    server.inject = random_faults(3, 0.5)
    dataset = open_dataset(f"{server.url}/plain/", cache_dir=tmp_path)
    assert numbers(dataset) == rows(1, 2, 3, 4)
    kept = sorted(file.read_bytes() for file in tmp_path.glob("*.tfrecord"))
    assert kept == sorted(map(shard, range(1, 5)))


def test_an_interrupted_copy_leaves_nothing(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._FIRST_DELAY_SECONDS", 0.001)
    dataset = open_dataset(f"{server.url}/plain/1.tfrecord", cache_dir=tmp_path)
    assert dataset.column_names  # its first bytes are read
    server.inject = lambda _request: "cut"
    with pytest.raises(OSError, match="attempts"):
        numbers(open_dataset(f"{server.url}/plain/2.tfrecord", cache_dir=tmp_path))
    assert copies(tmp_path) == ["1"]
    assert not list(tmp_path.glob("*.tmp"))


def test_a_changed_object_is_copied_again(server: ObjectServer, tmp_path: Path) -> None:
    url = f"{server.url}/plain/1.tfrecord"
    for number in (1, 3, 2):
        server.objects["plain/1.tfrecord"] = shard(number)
        dataset = open_dataset(url, cache_dir=tmp_path)
        assert numbers(dataset) == rows(number)
        del dataset
        assert copies(tmp_path) == ["1"]


@pytest.mark.timeout(30)
def test_a_file_whose_lock_is_that_of_all_files_is_copied(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making room needs a second lock. It must not be the one that is held."""
    monkeypatch.setattr("fastrec.storage.atomic._N_LOCKS", 1)
    url = f"{server.url}/plain/1.tfrecord"
    n_bytes = 3 * SHARD_BYTES
    dataset = open_dataset(url, cache_dir=tmp_path, cache_bytes=n_bytes)
    assert numbers(dataset) == rows(1)


def cached_by_another_process(url: str, cache: Path, n_bytes: int) -> None:
    run_program("remote_cache.py", url, cache, n_bytes)


@pytest.mark.parametrize("suffix", ["plain/{}.tfrecord", "gz/{}.tfrecord.gz"])
def test_the_least_recently_used_copy_goes_first(
    server: ObjectServer, tmp_path: Path, suffix: str
) -> None:
    def read(number: int) -> None:
        url = f"{server.url}/{suffix.format(number)}"
        cached_by_another_process(url, tmp_path, 3 * SHARD_BYTES + 10)
        # Later than all others, even if the clock is coarse.
        [copy] = tmp_path.glob(f"{number}.*.tfrecord")
        os.utime(copy, ns=(next(times), copy.stat().st_mtime_ns))

    times = iter(range(10**18, 10**19, 10**9))
    for number in (1, 2, 3):
        read(number)
    assert copies(tmp_path) == ["1", "2", "3"]
    read(1)
    read(4)
    assert copies(tmp_path) == ["1", "3", "4"]
    read(2)
    assert copies(tmp_path) == ["1", "2", "4"]
    assert not list(tmp_path.glob("*.tmp"))


def test_copies_in_use_stay_and_other_files_are_read_remotely(
    server: ObjectServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = open_dataset(
        f"{server.url}/plain/", cache_dir=tmp_path, cache_bytes=2 * SHARD_BYTES + 10
    )
    assert numbers(dataset) == rows(1, 2, 3, 4)
    assert len(copies(tmp_path)) == 2
    assert "2 of 4 remote files do not fit" in caplog.text
    assert sorted(numbers(dataset, shuffle=fr.Blocks())) == rows(1, 2, 3, 4)
    url = f"{server.url}/gz/1.tfrecord.gz"
    small = open_dataset(url, cache_dir=tmp_path, cache_bytes=2 * SHARD_BYTES + 10)
    with pytest.raises(fr.LimitError, match="does not fit into cache_bytes") as caught:
        numbers(small)
    assert caught.value.path == url
    assert len(copies(tmp_path)) == 2


def test_local_compressed_files_share_the_limit(tmp_path: Path) -> None:
    files = []
    for number in (1, 2, 3):
        files.append(tmp_path / f"{number}.tfrecord.gz")
        files[-1].write_bytes(gzip.compress(shard(number)))
        cached_by_another_process(
            str(files[-1]), tmp_path / "cache", 2 * SHARD_BYTES + 10
        )
        [copy] = (tmp_path / "cache").glob(f"{number}.*.tfrecord")
        os.utime(copy, ns=(10**18 + number, copy.stat().st_mtime_ns))
    assert copies(tmp_path / "cache") == ["2", "3"]


def test_many_processes_share_a_cache(server: ObjectServer, tmp_path: Path) -> None:
    url = f"{server.url}/plain/"
    cached_by_another_process(url, tmp_path, 10 * SHARD_BYTES)
    server.requests.clear()
    cached_by_another_process(url, tmp_path, 10 * SHARD_BYTES)
    # Each object is asked once, for its version and its first bytes.
    spans = sorted((request.key, request.span) for request in server.requests)
    keys = [f"plain/{i}.tfrecord" for i in (1, 2, 3, 4)]
    assert spans == [(key, (0, SHARD_BYTES)) for key in keys]
    assert copies(tmp_path) == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cache_bytes": 1}, "cache_bytes requires cache_dir"),
        ({"cache_bytes": "lots", "cache_dir": "."}, "cache_bytes must be a number"),
        ({"cache_bytes": 0, "cache_dir": "."}, "cache_bytes must be at least 1"),
    ],
)
def test_invalid_options(
    tmp_path: Path, options: dict[str, Untyped], reason: str
) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(shard(1))
    with pytest.raises(ValueError, match=reason):
        open_dataset(path, **options)


def test_the_index_of_a_copy_survives_a_use(
    server: ObjectServer, tmp_path: Path
) -> None:
    url = f"{server.url}/plain/1.tfrecord"
    counts = []
    for _ in range(2):
        dataset = open_dataset(url, cache_dir=tmp_path, index_dir=tmp_path / "index")
        assert len(dataset) == N_ROWS
        [index] = (tmp_path / "index").glob("*.frec*")
        counts.append(index.stat().st_mtime_ns)
    np.testing.assert_array_equal(counts[0], counts[1])


# Copies in use.


@pytest.mark.parametrize("cache_bytes", [None, "1GB"])
@pytest.mark.parametrize("in_another_process", [True, False])
@pytest.mark.parametrize("folder", ["plain", "gz"])
def test_an_epoch_keeps_its_copies_when_a_newer_version_is_opened(
    server: ObjectServer,
    tmp_path: Path,
    cache_bytes: Untyped,
    in_another_process: bool,
    folder: str,
) -> None:
    url = f"{server.url}/{folder}/"
    options: Untyped = {"cache_dir": tmp_path, "cache_bytes": cache_bytes}
    dataset = open_dataset(url, **options)
    epoch = iter(dataset.loader(10, shuffle=True, seed=1, num_threads=1))
    found = next(epoch)["n"].tolist()
    for i in range(1, 5):
        suffix = "tfrecord" if folder == "plain" else "tfrecord.gz"
        newer = shard(i + 4) if folder == "plain" else gzip.compress(shard(i + 4))
        server.objects[f"{folder}/{i}.{suffix}"] = newer
    if in_another_process:
        cached_by_another_process(url, tmp_path, 10**9)
    else:
        assert numbers(open_dataset(url, **options)) == rows(5, 6, 7, 8)
    for batch in epoch:
        found += batch["n"].tolist()
    assert sorted(found) == rows(1, 2, 3, 4)
    assert numbers(dataset) == rows(1, 2, 3, 4)
    assert len(copies(tmp_path)) == 8
    del dataset, epoch
    assert numbers(open_dataset(url, **options)) == rows(5, 6, 7, 8)
    assert len(copies(tmp_path)) == 4


def test_copies_are_in_use_as_long_as_anything_may_read_them(
    server: ObjectServer, tmp_path: Path
) -> None:
    def cached(number: int) -> Untyped:
        url = f"{server.url}/plain/{number}.tfrecord"
        return open_dataset(url, cache_dir=tmp_path, cache_bytes=SHARD_BYTES + 10)

    first = cached(1)
    assert len(first) == N_ROWS
    for users in (
        lambda ds: iter(ds.loader(10, num_threads=1)),
        lambda ds: ds.select(range(50)),
        lambda ds: fr.concat([ds, ds]),
        lambda ds: ds.loader(10),
    ):
        user = users(first)
        del first
        assert numbers(cached(2)) == rows(2)
        assert copies(tmp_path) == ["1"]
        del user
        assert numbers(cached(2)) == rows(2)
        assert copies(tmp_path) == ["2"]
        first = cached(1)
        assert len(first) == N_ROWS


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no list of descriptors")
def test_a_dataset_that_is_gone_holds_no_descriptor_and_no_copy(tmp_path: Path) -> None:
    files = []
    for number in range(1, 13):
        files.append(tmp_path / f"{number}.tfrecord.gz")
        files[-1].write_bytes(gzip.compress(shard(number)))
    cache, counts = tmp_path / "cache", set()
    for number, file in enumerate(files, 1):
        options: Untyped = {"cache_dir": cache, "cache_bytes": 2 * SHARD_BYTES}
        dataset = open_dataset(file, **options)
        assert numbers(dataset) == rows(number)
        del dataset
        counts.add(len([*Path("/proc/self/fd").iterdir()]))
    assert len(counts) == 1
    assert len(copies(cache)) == 2
    assert len([*cache.glob(".use-*")]) <= 2


def test_an_empty_content_fits_into_a_cache_that_is_full(tmp_path: Path) -> None:
    full, empty = tmp_path / "full.tfrecord.gz", tmp_path / "empty.tfrecord.gz"
    full.write_bytes(gzip.compress(shard(1)))
    empty.write_bytes(gzip.compress(b""))
    in_use = open_dataset(full, cache_dir=tmp_path / "cache")
    assert numbers(in_use) == rows(1)
    small = open_dataset(empty, cache_dir=tmp_path / "cache", cache_bytes=1)
    assert len(small) == 0
    assert numbers(in_use) == rows(1)


# Killed processes.


@contextlib.contextmanager
def copying(
    server: ObjectServer, url: str, cache: Path
) -> Iterator[Callable[[], None]]:
    """Run a process that stalls in the middle of a copy; yield what kills it."""
    before = {*cache.glob(".*.tmp")}
    with start_program("remote_cache.py", url, cache, 10**9) as child:
        while {*cache.glob(".*.tmp")} <= before or not server.injected["stall"]:
            assert child.poll() is None

        def kill() -> None:
            child.kill()
            child.communicate(timeout=SECONDS_TO_HANG)

        yield kill
        kill()


def stall_after_head(request: Request) -> str | None:
    """Stall requests for anything but the beginning of large objects."""
    return "stall" if request.span is not None and request.span[0] else None


def test_what_a_killed_process_leaves_is_deleted_and_that_of_others_is_not(
    server: ObjectServer, tmp_path: Path
) -> None:
    large = shard(1) * (1 + (1 << 20) // SHARD_BYTES)
    server.objects |= {"a.tfrecord": large, "b.tfrecord": large}
    server.inject, server.stall_seconds = stall_after_head, 10 * SECONDS_TO_HANG
    of_writer = tmp_path / ".x.tfrecord.1.0123abcd.tmp"
    of_writer.write_bytes(b"records that `fastrec repair` saves")
    small = f"{server.url}/plain/1.tfrecord"
    with copying(server, f"{server.url}/a.tfrecord", tmp_path) as kill:
        [killed] = {*tmp_path.glob(".*.tmp")} - {of_writer}
        server.injected.clear()
        with copying(server, f"{server.url}/b.tfrecord", tmp_path):
            [alive] = {*tmp_path.glob(".*.tmp")} - {of_writer, killed}
            assert numbers(open_dataset(small, cache_dir=tmp_path)) == rows(1)
            assert killed.exists()
            kill()
            assert numbers(open_dataset(small, cache_dir=tmp_path)) == rows(1)
            assert not killed.exists()
            assert alive.exists()
    assert numbers(open_dataset(small, cache_dir=tmp_path)) == rows(1)
    assert [*tmp_path.glob(".*.tmp")] == [of_writer]


# Verification.


def once(fault: str, *, is_chosen: Callable[[Request], bool]) -> Untyped:
    """Return an `inject` of one fault into the first request that is chosen."""
    lock = threading.Lock()
    left = [fault]

    def inject(request: Request) -> str | None:
        with lock:
            return left.pop() if left and is_chosen(request) else None

    return inject


def is_of_copy(request: Request) -> bool:
    """Return whether a request is not that of the beginning, which detects contents."""
    return request.span is not None and request.span[1] - request.span[0] > 16 << 10


def large_shard(number: int) -> bytes:
    """A shard of several ranges, whose records have one size for all numbers."""
    payload = bytes(4000)
    return tfrecord_file(
        [
            example({b"n": ("int64", [i]), b"x": ("bytes", [payload])})
            for i in rows(*[number] * 3)
        ]
    )


@pytest.mark.parametrize("name", ["x.tfrecord", "x.tfrecord.gz"])
@pytest.mark.parametrize("has_etags", [True, False])
def test_an_altered_response_is_read_again(
    server: ObjectServer, tmp_path: Path, name: str, has_etags: bool
) -> None:
    data = large_shard(1)
    server.objects[name] = gzip.compress(data, 0) if name.endswith("gz") else data
    server.has_etags = has_etags
    server.inject = once("altered", is_chosen=is_of_copy)
    url = f"{server.url}/{name}"
    dataset = open_dataset(url, cache_dir=tmp_path)
    assert numbers(dataset) == rows(1, 1, 1)
    assert server.injected == {"altered": 1}
    [copy] = tmp_path.glob("*.tfrecord")
    assert copy.read_bytes() == data
    assert not [*tmp_path.glob(".*.tmp")]


def test_no_damaged_copy_is_used_by_another_dataset(
    server: ObjectServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.objects["x.tfrecord"] = large_shard(1)
    url = f"{server.url}/x.tfrecord"
    server.inject = lambda request: "altered" if is_of_copy(request) else None
    damaged = open_dataset(url, cache_dir=tmp_path)
    with pytest.raises(fr.CorruptionError) as caught:
        numbers(damaged)
    assert caught.value.path == url
    assert "is damaged, even when read again" in caplog.text
    server.inject = lambda _request: None
    with pytest.raises(fr.CorruptionError):
        numbers(damaged)
    for _ in range(2):
        assert numbers(open_dataset(url, cache_dir=tmp_path)) == rows(1, 1, 1)
    assert len(copies(tmp_path)) == 2
    del damaged, caught
    gc.collect()  # tracebacks
    server.requests.clear()
    assert numbers(open_dataset(url, cache_dir=tmp_path)) == rows(1, 1, 1)
    assert len(copies(tmp_path)) == 1
    assert not [*filter(is_of_copy, server.requests)]


def test_records_of_an_object_that_is_damaged_are_skipped(
    server: ObjectServer, tmp_path: Path
) -> None:
    damaged = bytearray(shard(1))
    damaged[50 * SHARD_BYTES // N_ROWS + 13] ^= 1
    server.objects["x.tfrecord"] = bytes(damaged)
    dataset = open_dataset(
        f"{server.url}/x.tfrecord", cache_dir=tmp_path, on_error="skip"
    )
    assert numbers(dataset) == [n for n in rows(1) if n != 1050]


@pytest.mark.parametrize("has_etags", [True, False])
def test_an_object_that_is_replaced_while_it_is_copied_is_not_mixed(
    server: ObjectServer, tmp_path: Path, has_etags: bool
) -> None:
    before, after = large_shard(1), large_shard(2)
    server.objects["x.tfrecord"] = before
    server.has_etags = has_etags
    is_begun = threading.Event()

    def begin(request: Request) -> None:
        if is_of_copy(request):
            is_begun.set()

    def replace(_path: str, headers: Untyped) -> None:
        asked = {name.lower(): value for name, value in headers.items()}
        if not asked.get("range", "bytes=0-").startswith("bytes=0-"):
            assert is_begun.wait(SECONDS_TO_HANG)
            server.objects["x.tfrecord"] = after

    server.inject, server.status = begin, replace
    url = f"{server.url}/x.tfrecord"
    dataset = open_dataset(url, cache_dir=tmp_path)
    if has_etags:
        with pytest.raises(fr.CorruptionError, match="changed after"):
            numbers(dataset)
        dataset = open_dataset(url, cache_dir=tmp_path)
    assert numbers(dataset) == rows(2, 2, 2)
    assert numbers(open_dataset(url, cache_dir=tmp_path)) == rows(2, 2, 2)
    server.status = None
    server.objects["x.tfrecord"] = before
    assert numbers(open_dataset(url, cache_dir=tmp_path)) == rows(1, 1, 1)


def test_an_index_of_the_url_is_not_that_of_its_copy(
    server: ObjectServer, tmp_path: Path
) -> None:
    url = f"{server.url}/plain/"
    options: Untyped = {"index_dir": tmp_path / "index"}
    assert numbers(open_dataset(url, **options)) == rows(1, 2, 3, 4)
    copied = open_dataset(url, cache_dir=tmp_path / "cache", **options)
    assert numbers(copied) == rows(1, 2, 3, 4)
