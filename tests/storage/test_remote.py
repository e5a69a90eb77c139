"""Files in object stores and on HTTP servers.

Goal
    URLs are listed like directories and globs. What is delivered equals the object;
    transient faults are retried, every other fault is an error that names the URL.
    Credentials are in no error, log, index, pickle or repr.
Method
    An HTTP server in this process that injects faults, moto's S3 server, and fsspec's
    file system in memory; compared with the same bytes in local files.
"""

from __future__ import annotations

import copy
import gzip
import itertools
import logging
import multiprocessing
import os
import pickle
import random
import signal
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from children import SECONDS_TO_HANG, run_python, start_program
from columns import Untyped, open_dataset
from fastrec import _core
from fastrec.storage.compression import content_of, inflated
from fastrec.storage.paths import expand, version_of
from fastrec.storage.remote import (
    RemotePath,
    RequestCounters,
    fetch,
    pieces,
    remote_path,
)
from object_server import TRANSIENT, ObjectServer, Request, random_faults, served
from oracle import example, tfrecord_file
from s3_server import S3
from store_servers import store_server

pytest.importorskip("obstore", reason="extra `remote` is not installed")
fsspec = pytest.importorskip("fsspec", reason="extra `remote` is not installed")

SECRET = "hunter2"
N_ROWS = 300


def rows(first: int, n: int = N_ROWS) -> list[bytes]:
    return [example({b"n": ("int64", [i])}) for i in range(first, first + n)]


def shard(number: int, compress: Callable[[bytes], bytes] = gzip.compress) -> bytes:
    return compress(tfrecord_file(rows(number * N_ROWS)))


def numbers(dataset: Untyped) -> list[int]:
    return [int(n) for batch in dataset.loader(100) for n in batch["n"]]


def joined(parts: list[list[int]]) -> list[int]:
    return [n for part in parts for n in part]


@pytest.mark.parametrize("versions", [[1, 2, 3, 4], [(1, 2, 3, 4)], [[(1, 2)]]])
def test_each_version_has_two_numbers(versions: Untyped) -> None:
    with pytest.raises(TypeError):
        _core.RangeRequests(versions)
    for valid in ([], [(1, 2)]):
        _core.RangeRequests(valid).stop()


# Listing.

DEEP = "data/deep/er/a b+\u00fc%41.tfrecord"
LISTED = {
    "data/train-00000-of-00002.tfrecord.gz": shard(0),
    "data/train-00001-of-00002.tfrecord.gz": shard(1),
    "data/.hidden.tfrecord": b"",
    "data/README": b"not records",
    "data/unnamed": tfrecord_file(rows(0)),
    DEEP: b"",
    "data/notes/README": b"not records",
    "data/_temporary/0/part-0.tfrecord.gz": shard(0),
    "data2/train": tfrecord_file(rows(0)),
}


def in_memory(objects: dict[str, bytes]) -> str:
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    for key, data in objects.items():
        fs.pipe(f"/{key}", data)
    return "memory://"


@pytest.fixture(params=["http", "s3", "memory"])
def listed(request: pytest.FixtureRequest) -> tuple[str, dict[str, Untyped]]:
    if request.param == "memory":
        return in_memory(LISTED), {}
    if request.param == "http":
        server: ObjectServer = request.getfixturevalue("server")
        server.objects.update(LISTED)
        return f"{server.url}/", {}
    s3: S3 = request.getfixturevalue("s3")
    for key, data in LISTED.items():
        s3.put(key, data)
    return s3.url(""), s3.options


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("data/", [DEEP, "data/train-0", "data/train-1", "data/unnamed"]),
        ("data/*.gz", ["data/train-0", "data/train-1"]),
        ("data/*", ["data/README", "data/train-0", "data/train-1", "data/unnamed"]),
        ("data/train-00001*", ["data/train-1"]),
        ("*/train*", ["data/train-0", "data/train-1", "data2/train"]),
        ("data/**/*.tfrecord", [DEEP]),
        ("data/deep/**", [DEEP]),
        ("data/README", ["data/README"]),
    ],
)
def test_a_listing_is_that_of_a_local_directory(
    listed: tuple[str, dict[str, Untyped]], path: str, expected: list[str]
) -> None:
    root, options = listed
    if path.startswith("data/?") and root.startswith("http"):
        pytest.skip("'?' begins the query of an HTTP URL")
    found = expand(root + path, storage_options=options)
    short = [
        file.key.replace("0000", "").replace("-of-2.tfrecord.gz", "")
        for file in found
        if isinstance(file, RemotePath)
    ]
    assert short == expected
    assert [version_of(file)[0] for file in found] == [
        len(LISTED[file.key]) for file in found if isinstance(file, RemotePath)
    ]
    assert all(file.startswith(root) for file in found)


def test_a_directory_without_a_slash(listed: tuple[str, dict[str, Untyped]]) -> None:
    root, options = listed
    if root.startswith("http"):
        pytest.skip("an HTTP server returns the page of the directory")
    paths = [f"{root}data", f"{root}data/"]
    found = [expand(path, storage_options=options) for path in paths]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("absent.tfrecord", "No such object"),
        ("data/absent-*", "No object matches the pattern"),
        ("data/notes/", "No TFRecord file in the directory or its subdirectories"),
    ],
)
def test_an_empty_listing(
    listed: tuple[str, dict[str, Untyped]], path: str, reason: str
) -> None:
    root, options = listed
    with pytest.raises(FileNotFoundError) as caught:
        fr.open(root + path, storage_options=options)
    assert reason in str(caught.value)
    assert caught.value.filename == root + path


def test_a_directory_of_two_splits_is_refused() -> None:
    root = in_memory({f"x/{name}.tfrecord": b"" for name in ("train", "test")})
    with pytest.raises(ValueError, match=r"memory://x/train\.tfrecord"):
        fr.open(f"{root}x")


def test_an_unknown_scheme() -> None:
    with pytest.raises(ValueError, match=r"read 'foo://x/y': unknown scheme.* s3://"):
        fr.open("foo://x/y")


def test_an_unknown_option() -> None:
    options = {"no_such_option": SECRET}
    with pytest.raises(ValueError, match="no_such_option") as caught:
        fr.open("s3://bucket/x", storage_options=options)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "names",
    [
        {
            "key": "access_key_id",
            "secret": "secret_access_key",
            "endpoint_url": "endpoint",
        },
        {"key": "access_key_id", "secret": "secret_access_key", "client_kwargs": None},
    ],
    ids=["s3fs", "boto"],
)
def test_names_of_s3fs_are_accepted(s3: S3, names: dict[str, str | None]) -> None:
    s3.put("named/x.tfrecord.gz", shard(0))
    s3fs = {name: s3.options[own] for name, own in names.items() if own}
    if "client_kwargs" in names:
        client = {"endpoint_url": s3.options["endpoint"], "region_name": "us-east-1"}
        s3fs |= {"client_kwargs": client, "token": None}
    url = s3.url("named/x.tfrecord.gz")
    options = s3fs | {"anon": False, "timeout": 60, "allow_http": True}
    assert numbers(open_dataset(url, storage_options=options)) == list(range(N_ROWS))
    twice = s3fs | {"access_key_id": "a"}
    with pytest.raises(ValueError, match="both 'key' and 'access_key_id'"):
        fr.open(url, storage_options=twice)


def test_the_default_region_is_no_option_of_the_client(s3: S3) -> None:
    s3.put("region/x.tfrecord.gz", shard(0))
    options = {**s3.options, "default_region": s3.options["region"]}
    del options["region"]
    url = s3.url("region/x.tfrecord.gz")
    assert numbers(open_dataset(url, storage_options=options)) == list(range(N_ROWS))


def test_options_of_the_client_are_accepted_next_to_others(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._FIRST_DELAY_SECONDS", 0.001)
    url = "http://elsewhere.invalid/x.tfrecord.gz"
    server.objects[url] = shard(0)  # a request to a proxy contains the URL
    options = {"proxy_url": server.url, "read_timeout": 0.05}
    dataset = open_dataset(url, storage_options=options)
    assert numbers(dataset) == list(range(N_ROWS))
    server.inject = lambda _request: "stall"
    with pytest.raises(OSError, match=r"timed out \(9 attempts\)"):
        numbers(dataset)
    with pytest.raises(
        ValueError, match=r"no storage option 'region'; pass .* timeout"
    ):
        fr.open(url, storage_options={"region": "x"})


def test_a_panic_is_an_error(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"config": {"timeout": "5s"}}  # obstore panics
    with pytest.raises(ValueError, match=r"s3://b/x.*named as in obstore.* endpoint"):
        fr.open("s3://b/x", storage_options=options)

    class PanicException(BaseException): ...

    def panic(_key: str, _n_bytes: int) -> None:
        raise error

    path = remote_path(f"{server.url}/x")
    monkeypatch.setattr(path.store, "beginning", panic)
    error: BaseException = PanicException("the library is broken")
    with pytest.raises(
        OSError, match=r"PanicException: the library is broken"
    ) as caught:
        version_of(path)
    assert caught.value.filename == f"{server.url}/x"
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        version_of(path)


def test_a_glob_without_aiohttp_names_the_extra(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ModuleNotFoundError, match=r"aiohttp.*\"fastrec-io\[remote\]"):
        fr.open(f"{server.url}/*.tfrecord")


def test_a_missing_package_of_another_scheme_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(ModuleNotFoundError, match=r"cannot read sftp://.*paramiko"):
        fr.open("sftp://host/x")


@pytest.mark.parametrize("package", ["obstore", "fsspec"])
def test_a_missing_package(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    if package == "obstore":
        monkeypatch.setitem(sys.modules, "obstore.store", None)
    url = "s3://missing/x" if package == "obstore" else "ftp://missing/x"
    with pytest.raises(ModuleNotFoundError, match=r"pip install \"fastrec-io\[remote"):
        fr.open(url)


def test_a_file_system_of_fsspec_needs_no_obstore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = in_memory(LISTED)
    monkeypatch.setitem(sys.modules, "obstore", None)
    dataset = open_dataset(f"{root}data/train*")
    assert numbers(dataset) == list(range(2 * N_ROWS))


# Values.


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_compressed_objects_are_read_in_order(
    listed: tuple[str, dict[str, Untyped]], compress: Callable[[bytes], bytes]
) -> None:
    del compress
    root, options = listed
    dataset = open_dataset(f"{root}data/train*", storage_options=options)
    assert numbers(dataset) == list(range(2 * N_ROWS))
    assert len(dataset) == 2 * N_ROWS


def test_streams_shuffle_shard_and_resume(server: ObjectServer) -> None:
    server.objects.update({f"d/{i}.tfrecord.gz": shard(i) for i in range(4)})
    dataset = open_dataset(f"{server.url}/d/")
    everything = list(range(4 * N_ROWS))
    window = dataset.loader(50, shuffle=fr.Window(200), seed=1)
    epoch = [batch["n"].tolist() for batch in window]
    assert sorted(joined(epoch)) == everything
    assert joined(epoch) != everything
    ranks = [
        [n for b in dataset.loader(50, rank=r, world_size=2) for n in b["n"].tolist()]
        for r in range(2)
    ]
    assert sorted(joined(ranks)) == everything
    loader = dataset.loader(50, shuffle=fr.Window(200), seed=1)
    batches = iter(loader)
    first = [next(batches)["n"].tolist() for _ in range(5)]
    resumed = dataset.loader(50, shuffle=fr.Window(200), seed=1)
    resumed.load_state_dict(loader.state_dict())
    assert first + [batch["n"].tolist() for batch in resumed] == epoch


@pytest.mark.parametrize("record_bytes", [8, 100_000])
@pytest.mark.parametrize("is_given", [True, False])
def test_the_first_batch_takes_few_round_trips(
    server: ObjectServer, record_bytes: int, is_given: bool
) -> None:
    """The beginnings, and data, some of which is the sample for the schema."""
    size = 2 << 20 if record_bytes > 8 else 8_000
    records = [
        example({b"x": ("bytes", [bytes(record_bytes)])})
        for _ in range(size // record_bytes)
    ]
    server.objects = dict.fromkeys(
        [f"{i}.tfrecord" for i in range(16)], tfrecord_file(records)
    )
    server.wave_seconds = 0.3
    urls = [f"{server.url}/{key}" for key in server.objects]
    features = {"x": fr.FixedLen((), "bytes")} if is_given else None
    dataset = open_dataset(urls, features=features)
    assert len(server.waves) - 1 == 1
    with dataset.loader(64) as loader:
        assert len(next(iter(loader))["x"]) == 64
        n_trips = 3 if record_bytes == 8 else 4 if is_given else 6
        assert len(server.waves) - 1 <= n_trips, server.waves


def test_no_index_is_required_in_file_order(server: ObjectServer) -> None:
    """A server that fails to answer for an index next to the data delays no data."""
    server.objects = {f"{i}.tfrecord": shard(i, bytes) for i in range(2)}
    server.status = lambda path, _headers: 503 if path.endswith("frecidx") else None
    urls = [f"{server.url}/{key}" for key in server.objects]
    loader = open_dataset(urls).loader(50)
    assert sum(len(batch["n"]) for batch in loader) == 2 * N_ROWS
    assert loader.stats.n_retries == 0


def n_fetched(server: ObjectServer) -> dict[str, int]:
    """Return the number of requested bytes of each object."""
    spans = [(r.key, r.span) for r in server.requests if r.span is not None]
    counts: Counter[str] = Counter()
    for key, (begin, end) in spans:
        counts[key] += end - begin
    return counts


def test_a_resumed_epoch_without_an_index_fetches_each_byte_once(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes that were read to count the records are those of the epoch."""
    records = [
        example({b"n": ("int64", [i]), b"x": ("bytes", [bytes(5000)])})
        for i in range(800)
    ]
    server.objects = {
        f"{i}.tfrecord": tfrecord_file(records[i * 100 : i * 100 + 100])
        for i in range(8)
    }
    urls = [f"{server.url}/{key}" for key in server.objects]
    spec = {"n": fr.FixedLen((), "int64"), "x": fr.FixedLen((), "bytes")}
    ends: list[list[int]] = []
    state = None
    for part in ("first", "second"):
        monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / part))
        server.requests.clear()
        loader = open_dataset(urls, features=spec).loader(40)
        if state is not None:
            loader.load_state_dict(state)
        batches = itertools.islice(loader, 7 if state is None else None)
        ends.append([n for batch in batches for n in batch["n"].tolist()])
        state = loader.state_dict()
        sizes = {key: len(data) for key, data in server.objects.items()}
        assert n_fetched(server) == sizes
    assert ends == [list(range(280)), list(range(280, 800))]


def test_selected_records_are_read_ahead_and_no_further(
    server: ObjectServer, tmp_path: Path
) -> None:
    data = tfrecord_file([example({b"x": ("bytes", [bytes(5000)])})] * 200)
    server.objects = {f"{i}.tfrecord": data for i in range(4)}
    urls = [f"{server.url}/{key}" for key in server.objects]
    first = open_dataset(urls, index_dir=tmp_path)
    assert len(first) == 800  # caches the index
    spec = {"x": fr.FixedLen((), "bytes")}
    dataset = open_dataset(urls, features=spec, index_dir=tmp_path)
    dataset = dataset.select(range(150, 450))
    server.requests.clear()
    assert sum(len(batch["x"]) for batch in dataset.loader(20)) == 300
    size = len(data)
    fetched = {key[0]: n for key, n in n_fetched(server).items()}
    assert fetched.pop("0") == size - size * 150 // 200
    assert fetched.pop("2") <= size * 50 // 200  # its beginning is known
    assert fetched.keys() == {"1"}


def test_objects_that_are_listed_twice_are_indexed(server: ObjectServer) -> None:
    server.objects = {f"{i}.tfrecord": shard(i, bytes) for i in range(2)}
    urls = [f"{server.url}/{key}" for key in server.objects] * 2
    dataset = open_dataset(urls)
    assert numbers(dataset) == [*range(2 * N_ROWS)] * 2
    assert len(open_dataset(urls)) == 4 * N_ROWS


def test_pieces_are_the_object(server: ObjectServer) -> None:
    data = np.random.default_rng(1).bytes(9_000_001)
    server.objects["x"] = data
    path = remote_path(f"{server.url}/x")
    assert b"".join(map(bytes, pieces(path, version_of(path)))) == data
    spans = [r.span for r in server.requests if r.method == "GET"]
    assert len(spans) == len(set(spans))
    server.objects["empty"] = b""
    empty = remote_path(f"{server.url}/empty")
    assert list(pieces(empty, version_of(empty))) == []
    assert content_of(empty) == "plain"


def test_an_object_is_read_ahead_and_no_further(server: ObjectServer) -> None:
    server.objects["x"] = bytes(1 << 28)
    path = remote_path(f"{server.url}/x")
    content = pieces(path, version_of(path))
    next(content)
    content.close()
    n_bytes = sum(r.span[1] - r.span[0] for r in server.requests if r.span)
    assert n_bytes <= 40 << 20


# Faults.


@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_transient_fault_is_retried_and_counted(
    server: ObjectServer, fault: str
) -> None:
    server.objects["x"] = bytes(range(256)) * 40
    server.stall_seconds = 0.1
    path = remote_path(f"{server.url}/x")
    version = version_of(path)
    server.inject = random_faults(1, 1.0, (fault,), in_a_row=2)
    counters = RequestCounters()
    numbers_of_the_program = random.getstate()
    data = fetch(path, 100, 9000, version, counters)
    assert random.getstate() == numbers_of_the_program
    assert bytes(data) == server.objects["x"][100:9000]
    assert server.injected == {fault: 2}
    assert counters.n_retries == 2
    assert counters.n_bytes == 8900


@pytest.mark.parametrize("fault", ["503", "reset", "cut"])
def test_persistent_faults_are_an_error_with_the_url(
    server: ObjectServer, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._FIRST_DELAY_SECONDS", 0.001)
    server.objects["x"] = bytes(1000)
    path = remote_path(f"{server.url}/x")
    version = version_of(path)
    server.inject = lambda _request: fault
    with pytest.raises(OSError, match=r"9 attempts") as caught:
        fetch(path, 0, 1000, version)
    assert caught.value.filename == f"{server.url}/x"
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize("name", ["x.tfrecord", "*.tfrecord"])
def test_a_server_that_never_answered_is_given_up_soon(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._UNREACHED_SECONDS", 0.3)
    with served() as ended:
        url = f"{ended.url}/{name}"
    with pytest.raises(OSError, match=r"cannot connect \([23] attempts\)"):
        fr.open(url)


def test_a_server_that_answered_is_tried_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._UNREACHED_SECONDS", 0)
    monkeypatch.setattr("fastrec.storage.remote._FIRST_DELAY_SECONDS", 0.001)
    with served({"x": bytes(9)}) as ended:
        options = {"pool_max_idle_per_host": "0"}  # a connection for each request
        path = remote_path(f"{ended.url}/x", options)
        version = version_of(path)
    with pytest.raises(OSError, match=r"cannot connect \(9 attempts\)"):
        fetch(path, 0, 9, version)


def test_a_body_that_drips_is_requested_again(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.stores._SLOW_SECONDS", 0.05)
    monkeypatch.setattr("fastrec.storage.stores._SLOW_BYTES", 1000)
    server.objects["x"] = np.random.default_rng(1).bytes(9000)
    path = remote_path(f"{server.url}/x")
    version = version_of(path)
    server.requests.clear()
    server.paced_bytes = 1

    def drip_twice(_request: Request) -> None:  # 200 bytes per second
        server.bandwidth = 200 if len(server.requests) <= 2 else None

    server.inject = drip_twice
    counters = RequestCounters()
    data = fetch(path, 0, 9000, version, counters)
    assert bytes(data) == server.objects["x"]
    assert counters.n_retries == 2
    # A slow body is not requested again if it is faster than the limit.
    monkeypatch.setattr("fastrec.storage.stores._SLOW_BYTES", 1)
    server.inject = lambda _request: None
    server.bandwidth, server.paced_bytes = 50_000, 1000
    assert bytes(fetch(path, 0, 9000, version, counters)) == server.objects["x"]
    # Nor if the caller chose the time-out.
    monkeypatch.setattr("fastrec.storage.stores._SLOW_BYTES", 10_000)
    path = remote_path(f"{server.url}/x", {"read_timeout": 20})
    assert bytes(fetch(path, 0, 9000, version, counters)) == server.objects["x"]
    assert counters.n_retries == 2


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (401, PermissionError, "set the credentials in the environment"),
        (403, PermissionError, "storage_options="),
        (404, FileNotFoundError, "No such object"),
        (400, OSError, "HTTP status 400"),
    ],
)
def test_refusals_are_not_retried(
    server: ObjectServer, status: int, error: type[OSError], reason: str
) -> None:
    n_requests = 0

    def refuse(_path: str, _headers: object) -> int:
        nonlocal n_requests
        n_requests += 1
        return status

    server.status = refuse
    with pytest.raises(error, match=reason) as caught:
        expand(f"{server.url}/x.tfrecord")
    assert caught.value.filename == f"{server.url}/x.tfrecord"
    assert n_requests <= 2  # the object, and the directory


def test_an_object_that_changed_is_an_error(server: ObjectServer) -> None:
    old, new = shard(0), shard(1)
    server.objects["x.gz"] = old
    dataset = open_dataset(f"{server.url}/x.gz")
    server.objects["x.gz"] = new
    with pytest.raises(fr.CorruptionError, match="changed after") as caught:
        numbers(dataset)
    assert caught.value.code == "file_changed"
    assert caught.value.path == f"{server.url}/x.gz"
    del server.objects["x.gz"]
    with pytest.raises(fr.CorruptionError, match="changed after"):
        numbers(dataset)
    server.objects["x.gz"] = new
    again = open_dataset(f"{server.url}/x.gz")
    assert numbers(again) == list(range(N_ROWS, 2 * N_ROWS))


def test_a_version_without_etags_is_the_time(server: ObjectServer) -> None:
    server.objects["x"] = bytes(100)
    server.has_etags, server.has_times = False, True
    path = remote_path(f"{server.url}/x")
    version = version_of(path)
    assert version[1] > 0
    assert bytes(fetch(path, 0, 9, version)) == bytes(9)
    server.has_times = False
    bare = remote_path(f"{server.url}/x")
    assert version_of(bare) == (100, 0)
    assert bytes(fetch(bare, 0, 9, version_of(bare))) == bytes(9)
    with pytest.raises(fr.CorruptionError, match="changed after"):
        fetch(path, 0, 9, version)


def test_a_server_without_ranges(server: ObjectServer) -> None:
    server.objects["x"] = bytes(100)
    server.has_ranges = False
    path = remote_path(f"{server.url}/x")
    with pytest.raises(OSError, match="does not support range requests; download"):
        fetch(path, 0, 9, version_of(path))


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_server_without_ranges_is_read_in_order(
    server: ObjectServer, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    server.objects = {f"{i}.tfrecord": shard(i, compress) for i in range(2)}
    server.has_ranges = False
    urls = [f"{server.url}/{key}" for key in server.objects]
    dataset = open_dataset(urls)
    assert numbers(dataset) == [*range(2 * N_ROWS)]
    assert len(dataset) == 2 * N_ROWS
    reason = "compressed" if compress is gzip.compress else "without range requests"
    with pytest.raises(ValueError, match=f"{reason}; pass cache_dir="):
        dataset[0]
    with pytest.raises(ValueError, match=f"{reason}; pass cache_dir="):
        next(iter(dataset.loader(100, shuffle=True)))
    copied = open_dataset(urls, cache_dir=tmp_path)
    assert [copied[i]["n"] for i in (0, N_ROWS)] == [0, N_ROWS]
    server.inject = lambda _request: "cut"
    with pytest.raises(OSError, match=r"the body was cut off \(1 attempts\)"):
        numbers(dataset)


@pytest.mark.parametrize("key", ["d/00.tfrecord", "d/*", "d/"])
@pytest.mark.parametrize("n_files", [1, 70])
@pytest.mark.parametrize("is_copied", [False, True])
def test_an_endpoint_without_ranges_is_read_in_order(
    key: str, n_files: int, is_copied: bool, tmp_path: Path
) -> None:
    """A listing does not show that the endpoint has no ranges; nor does an index."""
    n_read = N_ROWS * (1 if key.endswith("0.tfrecord") else n_files)
    with store_server("gs") as bucket:
        for i in range(n_files):
            bucket.put(f"d/{i:02d}.tfrecord", shard(i, bytes))
        options: Untyped = {"storage_options": bucket.options, "index_dir": tmp_path}
        if n_files > 1:
            fr.build_index(bucket.url(key), **options)
        bucket.server.has_ranges = False
        options["storage_options"] = {**bucket.options, "user_agent": "another store"}
        if is_copied:
            options["cache_dir"] = tmp_path / "copies"
        dataset = open_dataset(bucket.url(key), **options)
        assert numbers(dataset) == [*range(n_read)]
        if not is_copied:
            with pytest.raises(ValueError, match="without range requests; pass cache"):
                dataset[0]


def test_listed_files_without_ranges_are_read_in_order(
    server: ObjectServer, tmp_path: Path
) -> None:
    """Listings of HTTP servers have no entries, and plain files need no look."""
    server.objects = {f"{d}/0.tfrecord": shard(i, bytes) for i, d in enumerate("ab")}
    server.has_ranges = False
    dataset = open_dataset(f"{server.url}/b/", compression=None)
    assert numbers(dataset) == [*range(N_ROWS, 2 * N_ROWS)]
    kept = open_dataset(f"{server.url}/a/", compression=None, cache_dir=tmp_path)
    assert numbers(fr.concat([kept, dataset])) == [*range(2 * N_ROWS)]


@pytest.mark.parametrize("odd", range(8))
def test_one_whole_object_instead_of_a_range_is_requested_again(
    server: ObjectServer, odd: int
) -> None:
    """A proxy may send it; the other responses show that the server has ranges."""
    server.objects = {f"{i}.tfrecord": shard(i, bytes) for i in range(3)}
    path = remote_path(f"{server.url}/0.tfrecord")
    version_of(path)  # the server answers a request for a range
    n_requests = itertools.count()
    server.inject = lambda _: "whole" if next(n_requests) == odd else None
    urls = [f"{server.url}/{key}" for key in server.objects]
    dataset = open_dataset(urls)
    assert numbers(dataset) == [*range(3 * N_ROWS)]
    assert dataset[0]["n"] == 0  # not a stream


def test_whole_objects_instead_of_ranges_are_faults_if_the_server_has_ranges(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._FIRST_DELAY_SECONDS", 0.001)
    server.objects = {"a.tfrecord": shard(0, bytes), "b.tfrecord": shard(0, bytes)}
    version_of(remote_path(f"{server.url}/a.tfrecord"))
    n_whole = itertools.count()
    server.inject = lambda _: "whole" if next(n_whole) < 8 else None
    assert open_dataset(f"{server.url}/b.tfrecord")[0]["n"] == 0
    server.inject = lambda _: "whole"
    with pytest.raises(OSError, match=r"support range requests.* \(9 attempts\)"):
        open_dataset(f"{server.url}/a.tfrecord")[0]


def test_a_server_with_ranges_may_send_empty_objects_whole(
    server: ObjectServer,
) -> None:
    server.objects = {"a.tfrecord": shard(0, bytes), "b.tfrecord": b""}
    server.inject = lambda request: "whole" if request.key == "b.tfrecord" else None
    urls = [f"{server.url}/{key}" for key in server.objects]
    assert numbers(open_dataset(urls)) == [*range(N_ROWS)]
    assert version_of(remote_path(urls[1]))[0] == 0


def test_a_slow_consumer_of_a_whole_object(server: ObjectServer) -> None:
    server.objects["x"] = bytes(60 << 20)
    server.has_ranges = False
    path = remote_path(f"{server.url}/x", {"timeout": "1s"})
    content = pieces(path, version_of(path))
    first = next(content)
    time.sleep(1.5)
    assert b"".join([first, *content]) == server.objects["x"]


def test_a_failure_costs_no_request_for_the_whole_object(server: ObjectServer) -> None:
    server.objects["x"] = bytes(1 << 20)
    faults = ["reset"]
    server.inject = lambda _request: faults.pop() if faults else None
    assert version_of(remote_path(f"{server.url}/x"))[0] == 1 << 20
    assert all(request.span is not None for request in server.requests)


def test_an_index_that_is_required_is_retried(server: ObjectServer) -> None:
    server.objects = {f"{i}.tfrecord": shard(i, bytes) for i in range(2)}
    urls = [f"{server.url}/{key}" for key in server.objects]
    looks = []

    def fail(path: str, _headers: object) -> int | None:
        looks.extend([path] * path.endswith("frecidx"))
        return 503 if path.endswith("frecidx") and len(looks) < 4 else None

    server.status = fail
    assert len(open_dataset(urls)) == 2 * N_ROWS
    assert len(looks) == 4  # then there is none


def test_servers_are_asked_not_to_compress(server: ObjectServer) -> None:
    asked: list[str] = []

    def note(_path: str, headers: Mapping[str, str]) -> None:
        asked.append({k.lower(): v for k, v in headers.items()}["accept-encoding"])

    server.objects["x.tfrecord"] = shard(0, bytes)
    server.status = note
    assert numbers(open_dataset(f"{server.url}/x.tfrecord")) == [*range(N_ROWS)]
    assert set(asked) == {"identity"}


def test_a_server_that_compresses_is_not_called_changed(server: ObjectServer) -> None:
    server.objects["x"] = shard(0)
    path = remote_path(f"{server.url}/x")
    version = version_of(path)
    server.headers = {"Content-Encoding": "gzip"}  # as some do for .gz files
    data = fetch(path, 0, version[0], version)
    assert bytes(data) == server.objects["x"]
    server.objects["x"] = gzip.compress(server.objects["x"])
    with pytest.raises(
        OSError, match=r"compresses .*Content-Encoding: gzip.* download"
    ):
        fetch(path, 0, 9, version)


def test_another_range_is_not_called_short(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._FIRST_DELAY_SECONDS", 0.001)
    server.objects["x"] = bytes(100)
    path = remote_path(f"{server.url}/x")
    version = version_of(path)
    server.inject = lambda _request: "shifted"
    with pytest.raises(OSError, match=r"sent another range .*; download the file"):
        fetch(path, 10, 20, version)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("file:///x", "302, a redirect that cannot be followed; pass the URL"),
        ("", "302, a redirect that cannot be followed; pass the URL"),
        ("/x", "redirects in a loop; check the URL"),
        ("ftp://127.0.0.1/x", "redirects to another scheme, which is not followed"),
    ],
)
def test_a_redirect_that_leads_nowhere(
    server: ObjectServer, location: str, reason: str
) -> None:
    server.status = lambda _path, _headers: 302
    server.headers = {"Location": location} if location else {}
    with pytest.raises(OSError, match=reason) as caught:
        fr.open(f"{server.url}/x")
    assert caught.value.filename == f"{server.url}/x"


def test_repair_of_a_url_needs_a_local_copy(server: ObjectServer) -> None:
    server.objects["x.tfrecord"] = tfrecord_file(rows(0))[:-1]
    with pytest.raises(fr.CorruptionError) as caught:
        list(fr.read_records(f"{server.url}/x.tfrecord"))
    assert caught.value.hint == "Run: fastrec repair LOCAL_COPY --out OUT"


def test_an_altered_stream_is_an_error(server: ObjectServer) -> None:
    server.objects["x.gz"] = shard(0)
    dataset = open_dataset(f"{server.url}/x.gz")
    assert len(dataset) == N_ROWS
    server.inject = lambda _request: "altered"
    with pytest.raises((fr.CorruptionError, fr.SchemaError)):
        numbers(dataset)


def test_faults_of_all_kinds_change_nothing(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._FIRST_DELAY_SECONDS", 0.001)
    noise = np.random.default_rng(1).bytes(3_000_000)  # several ranges
    payloads = [example({b"n": ("int64", [0]), b"x": ("bytes", [noise])}), *rows(1)]
    data = gzip.compress(tfrecord_file(payloads), 1)
    server.objects = {f"d/{i}.tfrecord.gz": data for i in range(3)}
    server.stall_seconds = 0.01
    server.inject = random_faults(2, 0.5)
    assert list(fr.read_records(f"{server.url}/d/*")) == payloads * 3
    assert server.injected


# Signals.


def test_ctrl_c_ends_a_stalled_request(server: ObjectServer) -> None:
    server.objects["x.tfrecord.gz"] = shard(0)
    server.stall_seconds = 10 * SECONDS_TO_HANG

    def stall(request: Request) -> str | None:
        return "stall" if request.method == "GET" else None

    server.inject = stall
    with start_program("remote_reader.py", f"{server.url}/x.tfrecord.gz") as child:
        while not server.injected:
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=SECONDS_TO_HANG)
    assert out == "interrupted\n"
    assert err == ""


# Credentials.


def secrets_in(error: BaseException) -> list[str]:
    text = "".join(traceback.format_exception(error)) + repr(error.__dict__)
    chain: BaseException | None = error
    while chain is not None:
        text += repr(chain) + repr(chain.args)
        chain = chain.__cause__ or chain.__context__
    return [secret for secret in (SECRET, "signed") if secret in text]


@pytest.mark.parametrize("status", [None, 400, 403, 404, 503])
def test_credentials_are_in_no_error_and_no_log(
    server: ObjectServer,
    status: int | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._FIRST_DELAY_SECONDS", 0.001)
    caplog.set_level(logging.DEBUG)
    host = server.url.partition("://")[2]
    server.status = lambda _path, _headers: status
    url = f"http://user:{SECRET}@{host}/x.tfrecord.gz?sig=signed"
    with pytest.raises((FileNotFoundError, OSError), match=r"x\.tfrecord") as caught:
        fr.open(url)
    assert secrets_in(caught.value) == []
    assert caught.value.filename == f"http://{host}/x.tfrecord.gz?***"
    assert SECRET not in caplog.text


ODD_URLS = [
    f"az://c/x?sig={SECRET}",
    f"s3://b/x?X-Amz-Signature={SECRET}",
    f"s3://AKIA:{SECRET}@",
    f"s3://AKIA:signed/{SECRET}@b/x",
    f"s3://AKIA:{SECRET}/@b/x",
    f"abfss://c:{SECRET}@account/x",
    f"foo://user:{SECRET}@h/x",
    f"foo://h/x?token={SECRET}",
    f"FOO://user:{SECRET}@h/x",
    f"file://user:{SECRET}@h/x",
    f"http:/user:{SECRET}@h/x",
    f"http:user:{SECRET}@h/x",
    f"http//user:{SECRET}@h/x",
    f"http:///user:{SECRET}@h/x",
    f" http://user:{SECRET}@h/x",
    f"http://user:{SECRET}@h:port/x",
    f"http://user:{SECRET}@[::1/x",
    f"http://user:signed?{SECRET}@h/x",
    f"htp:/user:{SECRET}@h/x",
    f"zip://a::http://user:{SECRET}@h/x.zip?sig=signed",
    f"zip://a::az://c/x.zip?sig={SECRET}",
    f"simplecache::http://user:{SECRET}@h/x",
    Path(f"https://h/x?sig={SECRET}"),
    Path(f"https://user:{SECRET}@h/x"),
    f"http://user:{SECRET}@h/x".encode(),
    f"'http://user:{SECRET}@h/x'",
    f"directory/http://user:{SECRET}@h/x",
]
USES: dict[str, Callable[[Untyped], object]] = {
    "open": fr.open,
    "read": lambda url: list(fr.read_records(url)),
    "list": lambda url: fr.open([url]),
    "index": fr.build_index,
    "tfds": lambda url: fr.open_tfds(url, "train"),
    "write": lambda url: fr.Writer(url).write({"n": 1}),
    "pattern": lambda url: fr.Writer(f"{url}-{{num_shards}}"),
    "cache_dir": lambda url: open_dataset("x.tfrecord", cache_dir=url),
    "index_dir": lambda url: open_dataset("x.tfrecord", index_dir=url),
    "index_dir of an index": lambda url: fr.build_index("x.tfrecord", index_dir=url),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("url", ODD_URLS, ids=str)
def test_an_odd_url_is_an_error_without_its_credentials(
    url: str | Path | bytes, use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.tfrecord").write_bytes(tfrecord_file(rows(0)))
    with pytest.raises((ValueError, TypeError, OSError)) as caught:
        USES[use](url)
    assert secrets_in(caught.value) == []
    assert [path.name for path in tmp_path.iterdir()] == ["x.tfrecord"]


@pytest.mark.parametrize("use", ["open", "write", "cache_dir", "index_dir"])
def test_a_url_as_a_path_object_is_an_error(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.tfrecord").write_bytes(tfrecord_file(rows(0)))
    with pytest.raises(ValueError, match=r"URL must be a str .*, got 's3:/bucket/a/b'"):
        USES[use](Path("s3://bucket/a/b"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.tfrecord"]


@pytest.mark.parametrize(
    "name",
    ["a:b@c", "12:30/a@b", "x?a=b", "run:v1/a@b", "http:", "a::b", "[x]?y=1", "d//u@v"],
)
def test_a_local_name_like_a_url_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    with fr.Writer(name) as writer:
        writer.write({"n": 1})
    assert numbers(open_dataset(name)) == [1]
    with pytest.raises(FileNotFoundError) as caught:
        fr.open(f"{name}.absent")
    assert caught.value.filename == f"{name}.absent"


@pytest.mark.parametrize("url", ["memory://a:b@c/x", "memory://a@c/x", "memory://c/x"])
def test_a_name_is_not_taken_for_a_user(url: str) -> None:
    in_memory({"a:b@c/x": shard(0), "a@c/x": shard(1), "c/x": shard(2)})
    paths = [remote_path(f"memory://{key}") for key in ("a:b@c/x", "a@c/x", "c/x")]
    assert len({path.identity for path in paths}) == len(set(map(str, paths))) == 3
    assert str(remote_path(url)) == url


def test_credentials_are_sent_and_not_kept(
    server: ObjectServer, tmp_path: Path
) -> None:
    seen = []

    def check(path: str, headers: Untyped) -> int | None:
        seen.append(path)
        lower = {name.lower() for name in headers}
        return None if "authorization" in lower and "sig=signed" in path else 403

    server.objects["x.tfrecord.gz"] = shard(0)
    server.status = check
    host = server.url.partition("://")[2]
    url = f"http://user:{SECRET}@{host}/x.tfrecord.gz?sig=signed"
    dataset = open_dataset(url, index_dir=tmp_path)
    assert numbers(dataset) == list(range(N_ROWS))
    assert len(dataset) == N_ROWS
    assert seen
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    names = "".join(file.name for file in tmp_path.iterdir())
    shown = repr(dataset) + str(dataset) + names
    for secret in (SECRET, "signed"):
        assert secret.encode() not in kept + pickle.dumps(dataset)
        assert secret not in shown
    lost = pickle.loads(pickle.dumps(dataset))
    with pytest.raises(PermissionError, match="is not passed to other processes"):
        numbers(lost)
    assert numbers(copy.copy(dataset)) == list(range(N_ROWS))


def test_a_pickle_takes_credentials_from_the_environment(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("pickled/x.tfrecord.gz", shard(0))
    dataset = open_dataset(s3.url("pickled/"), storage_options=s3.options)
    data = pickle.dumps(dataset)
    assert s3.options["secret_access_key"].encode() not in data
    assert b"AKIA" not in data
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    assert numbers(pickle.loads(data)) == list(range(N_ROWS))


def test_wrong_credentials(s3: S3) -> None:
    options = {**s3.options, "secret_access_key": ""}
    s3.put("x.tfrecord", b"")
    dataset = fr.open(s3.url("x.tfrecord"), storage_options=options)
    assert "hunter2" not in repr(dataset)


# Processes.


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_gets_an_error_instead_of_a_hang(server: ObjectServer) -> None:
    server.objects["x.tfrecord.gz"] = shard(0)
    path = expand(f"{server.url}/x.tfrecord.gz")[0]
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe()

    def read() -> None:
        try:
            list(inflated(path, "gzip"))
        except RuntimeError as error:
            sender.send(str(error))

    child = context.Process(target=read)
    child.start()
    assert receiver.poll(SECONDS_TO_HANG)
    assert 'start processes with "spawn"' in receiver.recv()
    child.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_reads_a_server_that_its_parent_did_not() -> None:
    program = """
import multiprocessing, sys
import fsspec, fastrec as fr
fsspec.filesystem("memory").pipe("/x.tfrecord", b"")
assert len(fr.open("memory://x.tfrecord")) == 0
def read():
    assert len(fr.open(sys.argv[1])) == 0
child = multiprocessing.get_context("fork").Process(target=read)
child.start()
child.join()
sys.exit(child.exitcode)
"""
    with served({"x.tfrecord": b""}) as server:
        run_python(program, f"{server.url}/x.tfrecord")
