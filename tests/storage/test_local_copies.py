"""cache_dir= and cache_bytes=: local copies of remote and of compressed files.

Goal
    A dataset with copies behaves like one of local files, and reads no network after the
    first epoch. Copies appear whole, stay within cache_bytes, and the least recently
    used ones go first; those in use stay.
Method
    A server in this process that counts requests and injects faults; the files in the
    cache directory.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from children import run_program
from columns import Untyped, open_dataset
from object_server import ObjectServer, random_faults, served
from oracle import example, tfrecord_file

pytest.importorskip("obstore", reason="extra `remote` is not installed")
pytest.importorskip("fsspec", reason="extra `remote` is not installed")

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
    monkeypatch.setattr("fastrec.storage.locks._N_LOCKS", 1)
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
    # Each object is asked for its version, and for the first bytes.
    spans = sorted((request.key, request.span) for request in server.requests)
    keys = [f"plain/{i}.tfrecord" for i in (1, 2, 3, 4)]
    asked = [(0, 1), (0, SHARD_BYTES)]
    assert spans == [(key, span) for key in keys for span in asked]
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
