"""Listings of buckets and servers, and the sizes and versions that servers report.

Goal
    A listing is complete or an error, whatever the server does: pages that are cut off,
    repeated, slow or without end, and keys that cannot be read. A reported size is
    believed only if a response with the content confirms it, and objects without an
    exact version are reported. Credentials are in no log.
Method
    A server in this process that answers as the worst ones do, and moto's S3 server;
    compared with the keys and record numbers that were written.
"""

from __future__ import annotations

import email.utils
import gzip
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped, open_dataset
from commands import run
from fastrec.storage.paths import expand, version_of
from fastrec.storage.remote import RemotePath, remote_path
from object_server import ObjectServer, Request, served
from oracle import example, tfrecord_file
from s3_server import S3, listing

pytest.importorskip("obstore", reason="extra `remote` is not installed")
fsspec = pytest.importorskip("fsspec", reason="extra `remote` is not installed")

N_ROWS = 100


def rows(*shards: int) -> list[int]:
    return [1000 * (i + 1) + row for i in shards for row in range(N_ROWS)]


def records(values: Iterable[int]) -> bytes:
    return tfrecord_file([example({b"n": ("int64", [i])}) for i in values])


def shard(number: int) -> bytes:
    """Return records whose size does not depend on the number."""
    return records(rows(number))


def numbers(dataset: Untyped, **options: Untyped) -> list[int]:
    return [int(n) for batch in dataset.loader(30, **options) for n in batch["n"]]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectServer]:
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "cache"))
    with served() as running:
        yield running


class Bucket:
    """A bucket whose listing is that of `listing`, with `options`."""

    def __init__(self, server: ObjectServer, keys: Any, **options: Any) -> None:
        self.queries: list[Mapping[str, str]] = []
        self.keys, self.options = keys, options
        self.storage_options = {
            "endpoint": server.url,
            "region": "us-east-1",
            "access_key_id": "AKIA",
            "secret_access_key": "hunter2",
        }
        server.listing = self._answer

    def _answer(self, query: Mapping[str, str]) -> bytes:
        self.queries.append(query)
        keys = self.keys() if callable(self.keys) else self.keys
        return listing(keys, query, **self.options)

    def expand(self, key: str) -> list[str]:
        """Return the keys that a glob or directory of the bucket expands to."""
        found = expand(f"s3://bucket/{key}", storage_options=self.storage_options)
        return [path.key for path in found if isinstance(path, RemotePath)]


# Pages.


@pytest.mark.parametrize("pattern", ["d/*", "d/**", "d/"])
def test_pages_that_are_cut_off_without_a_token_lose_nothing(
    server: ObjectServer, pattern: str
) -> None:
    keys = [f"d/{i:05d}.tfrecord" for i in range(3000)]
    bucket = Bucket(server, keys, has_tokens=False)
    assert bucket.expand(pattern) == keys
    assert len(bucket.queries) <= 4


def test_a_server_that_repeats_its_pages_is_an_error(server: ObjectServer) -> None:
    keys = [f"d/{i:05d}.tfrecord" for i in range(3000)]
    bucket = Bucket(server, keys, has_tokens=False, has_offsets=False)
    with pytest.raises(OSError, match="does not list keys in order") as caught:
        bucket.expand("d/*")
    assert caught.value.filename == "s3://bucket/d/*"


def test_a_server_without_an_order_is_an_error(server: ObjectServer) -> None:
    keys = [f"d/{i * 7919 % 3000:05d}.tfrecord" for i in range(3000)]
    with pytest.raises(OSError, match="does not list keys in order"):
        Bucket(server, keys).expand("d/**")


@pytest.mark.parametrize(
    ("limit", "pattern"), [("_MAX_KEPT", "d/*"), ("_MAX_KEYS", "d/**/absent")]
)
def test_a_listing_without_end_stops(
    server: ObjectServer, limit: str, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"fastrec.storage.paths.{limit}", 5000)
    bucket = Bucket(server, lambda: (f"d/{i:09d}" for i in count()))
    with pytest.raises(OSError, match=r"stopped after listing 6,000 objects; pass a"):
        bucket.expand(pattern)
    assert len(bucket.queries) == 6


def test_a_signal_ends_a_listing_and_its_requests(server: ObjectServer) -> None:
    def keys() -> Iterator[str]:
        if len(bucket.queries) == 3:
            signal.raise_signal(signal.SIGINT)  # Python handles it in the main thread
        return (f"d/{i:09d}" for i in count())

    bucket = Bucket(server, keys)
    with pytest.raises(KeyboardInterrupt):
        bucket.expand("d/**")
    bucket.keys = ["e/x"]
    assert bucket.expand("e/**") == ["e/x"]
    assert [query["prefix"] for query in bucket.queries] == [*["d/"] * 3, "e/"]


def test_a_slow_listing_is_not_started_again(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._REQUEST_SECONDS", 0.2)
    may_end = threading.Event()

    def keys() -> list[str]:
        may_end.wait()
        return []

    bucket = Bucket(server, keys)
    try:
        with pytest.raises(TimeoutError, match=r"took more than 0\.2 s") as caught:
            bucket.expand("d/*")
    finally:
        may_end.set()
    assert caught.value.filename == "s3://bucket/d/*"
    assert len(bucket.queries) == 1


def test_large_subdirectories_cost_one_page(server: ObjectServer) -> None:
    inner = [f"d/{name}/{i:05d}" for name in ("b", "m") for i in range(5000)]
    files = [f"d/{name}.tfrecord" for name in ("a", "b", "b0", "c", "m", "z")]
    bucket = Bucket(server, sorted([*inner, *files]))
    assert bucket.expand("d/*") == sorted(files)
    assert len(bucket.queries) == 3


NAMES = [
    *("a", "a-", "a/", "a/b", "a/b/c", "a/\U0010ffff", "a0", "b/", "b/\u00e9", "b-/x"),
    *("c", "c/d/e", "c/d/f", "c/d0", "\u00e9", "\u00e9/a", "\U0001f600", "z/z/z/z"),
    *("a%2Fb", "a#b/c", "b [1]*?", "c+d&e=/f", "c^|`~", "e\\f/g", "e{<>}/h"),
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    names=st.sets(st.sampled_from(NAMES)),
    page_keys=st.integers(2, 4),
    has_tokens=st.booleans(),
)
def test_pages_of_any_size_list_what_is_in_the_bucket(
    server: ObjectServer, names: set[str], page_keys: int, has_tokens: bool
) -> None:
    keys = sorted(f"d/{name}" for name in names)
    sizes = {key: 0 for key in keys if key.endswith("/")}
    server.objects = {f"bucket/{key}": b"x" for key in keys if key not in sizes}
    bucket = Bucket(
        server, keys, page_keys=page_keys, sizes=sizes, has_tokens=has_tokens
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastrec.storage.stores._PAGE_KEYS", page_keys)
        for pattern, max_slashes in (("d/*", 1), ("d/**", 9)):
            expected = {
                key
                for key in keys
                if key.count("/") <= max_slashes and not key.endswith("/")
            }
            try:
                found = bucket.expand(pattern)
            except FileNotFoundError:
                found = []
            assert found == sorted(expected)


# Keys.


@pytest.mark.parametrize("bad", ["d/a/../x", "d/a//x", "d/a/\x1b[31mx", "d/a/b\nc"])
def test_a_key_that_cannot_be_read_is_an_error_only_where_it_is(
    s3: S3, bad: str
) -> None:
    for name in s3.names():
        s3.remove(name)
    s3.put("d/0.tfrecord", shard(0))
    s3.put(bad, b"")
    found = expand(s3.url("d/*.tfrecord"), storage_options=s3.options)
    assert found == [s3.url("d/0.tfrecord")]
    with pytest.raises(OSError, match="rename the object") as caught:
        expand(s3.url("d/**"), storage_options=s3.options)
    assert str(caught.value).isprintable()


def test_a_link_that_cannot_be_read_is_left_out_with_a_warning(
    server: ObjectServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.objects = {f"d/{i}.tfrecord": shard(i) for i in range(3)}
    server.objects |= {"d/a/../x.tfrecord": b"", "d/b\x1b[31m.tfrecord": b""}
    with caplog.at_level(logging.WARNING, "fastrec"):
        dataset = open_dataset(f"{server.url}/d/*.tfrecord")
    assert numbers(dataset) == rows(0, 1, 2)
    [record] = caplog.records
    assert record.getMessage().endswith(r"d/b\x1b[31m.tfrecord")


def test_the_marker_of_a_directory_is_not_a_file(s3: S3) -> None:
    for name in s3.names():
        s3.remove(name)
    s3.put("d/sub/", b"")
    s3.put("d/sub/0.tfrecord", shard(0))
    for pattern, expected in (("d/**", ["d/sub/0.tfrecord"]), ("d/*", [])):
        try:
            found = expand(s3.url(pattern), storage_options=s3.options)
        except FileNotFoundError:
            found = []
        assert found == [s3.url(key) for key in expected]


def test_a_link_to_its_own_page_does_not_repeat_a_listing(server: ObjectServer) -> None:
    keys = ["d/./x", "d/0.tfrecord", "d/e/1.tfrecord", "d/e/f/2.tfrecord"]
    server.objects = dict.fromkeys(keys, b"x")
    urls = [f"{server.url}/{key}" for key in keys[1:]]
    assert expand(f"{server.url}/d/**") == urls


@pytest.mark.parametrize("scheme", ["http", "memory"])
def test_a_subdirectory_that_fails_is_asked_for_again(
    server: ObjectServer, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.remote._FIRST_DELAY_SECONDS", 0.001)
    keys = ["d/0.tfrecord", "d/e/1.tfrecord", "d/e/f/2.tfrecord"]
    failures = iter([503] * 3)
    if scheme == "http":
        server.objects = dict.fromkeys(keys, b"x")
        server.status = lambda path, _: next(failures, None) if "e" in path else None
        root = server.url
    else:
        memory = fsspec.filesystem("memory")
        memory.store.clear()
        for key in keys:
            memory.pipe(f"/{key}", b"x")
        list_directory = memory.ls

        def fail(path: str, **options: Any) -> Any:
            if path.endswith("d/e/") and next(failures, None):
                raise ConnectionError
            return list_directory(path, **options)

        monkeypatch.setattr(type(memory), "ls", staticmethod(fail))
        root = "memory:/"
    assert expand(f"{root}/d/**") == [f"{root}/{key}" for key in keys]
    assert next(failures, None) is None


@pytest.mark.parametrize("key", ["d/", "d/*.tfrecord"])
def test_credentials_are_in_no_log_of_a_listing(
    server: ObjectServer, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = []

    def check(path: str, headers: Mapping[str, str]) -> int | None:
        seen.append(path)
        names = {name.lower() for name in headers}
        return None if "authorization" in names and "sig=s%2Bgned" in path else 403

    caplog.set_level(logging.DEBUG)
    server.status = check
    server.objects = {f"d/{i}.tfrecord": shard(i) for i in range(2)}
    host = server.url.partition("://")[2]
    dataset = open_dataset(f"http://bob:hunter2@{host}/{key}?sig=s%2Bgned")
    assert numbers(dataset) == rows(0, 1)
    assert any(path.startswith("/d/?") for path in seen)
    assert "hunter2" not in caplog.text
    assert "gned" not in caplog.text


# Sizes.


def all_ways(url: str, tmp_path: Path) -> Iterator[list[int]]:
    """Yield the numbers that each way to read a URL delivers."""
    yield numbers(open_dataset(url))
    yield sorted(numbers(open_dataset(url), shuffle=fr.Window(50)))
    yield numbers(open_dataset(url, cache_dir=tmp_path / "copies"))
    found = list(fr.read_records(url))
    n_verified = int(run("verify", url)[0].split()[0])
    assert len(found) == n_verified
    yield [int(fr.decode_example(record)["n"][0]) for record in found]


@pytest.mark.parametrize("head_length", [0, 1, 1 << 40])
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_the_length_in_the_response_to_head_is_not_believed(
    server: ObjectServer,
    head_length: int,
    compress: Callable[[bytes], bytes],
    tmp_path: Path,
) -> None:
    server.objects["0.tfrecord"] = compress(shard(0))
    server.head_length = head_length
    for delivered in all_ways(f"{server.url}/0.tfrecord", tmp_path):
        assert delivered == rows(0)


def test_a_server_that_refuses_head_is_read(server: ObjectServer) -> None:
    server.objects["0.tfrecord"] = shard(0)
    methods = []

    def refuse_head(request: Request) -> str | None:
        methods.append(request.method)
        return "500" if request.method == "HEAD" else None

    server.inject = refuse_head
    assert numbers(open_dataset(f"{server.url}/0.tfrecord")) == rows(0)
    assert set(methods) == {"GET"}


def test_an_empty_object_is_an_empty_file(
    server: ObjectServer, s3: S3, tmp_path: Path
) -> None:
    server.objects["0.tfrecord"] = b""
    s3.put("empty/0.tfrecord", b"")
    for delivered in all_ways(f"{server.url}/0.tfrecord", tmp_path):
        assert delivered == []
    server.has_ranges = False
    assert version_of(expand(f"{server.url}/0.tfrecord")[0])[0] == 0
    for key in ("empty/0.tfrecord", "empty/*"):
        url = s3.url(key)
        assert numbers(open_dataset(url, storage_options=s3.options)) == []


@pytest.mark.parametrize("key", ["d/0.tfrecord", "d/*"])
def test_an_object_that_is_listed_as_empty_is_read(
    server: ObjectServer, key: str
) -> None:
    bucket = Bucket(server, ["d/0.tfrecord"], sizes={"d/0.tfrecord": 0})
    server.objects["bucket/d/0.tfrecord"] = shard(0)
    server.head_length = 0
    dataset = open_dataset(f"s3://bucket/{key}", storage_options=bucket.storage_options)
    assert numbers(dataset) == rows(0)


@pytest.mark.parametrize("size", [1, len(shard(0)) - 1, len(shard(0)) + 1])
def test_an_object_of_another_size_than_listed_is_an_error(
    server: ObjectServer, size: int
) -> None:
    bucket = Bucket(server, ["d/0.tfrecord"], sizes={"d/0.tfrecord": size})
    server.objects["bucket/d/0.tfrecord"] = shard(0)
    with pytest.raises(fr.CorruptionError, match="changed after it was listed"):
        numbers(open_dataset("s3://bucket/d/*", storage_options=bucket.storage_options))


def test_the_size_of_a_dataset_is_that_of_its_objects(
    server: ObjectServer, tmp_path: Path
) -> None:
    server.objects = {f"d/{i}.tfrecord": shard(i) for i in range(3)}
    (tmp_path / "3.tfrecord").write_bytes(shard(3))
    paths = [f"{server.url}/d/", tmp_path / "3.tfrecord"]
    assert open_dataset(paths).nbytes == 4 * len(shard(0))


# Versions.


def recently() -> str:
    return email.utils.formatdate(time.time() + 3600, usegmt=True)


@pytest.mark.parametrize(
    ("attributes", "is_reported"),
    [
        ({"has_etags": True}, False),
        ({"has_weak_etags": True}, True),
        ({"has_etags": False}, True),
        ({"has_etags": False, "has_times": True}, False),
        ({"has_etags": False, "has_times": True, "time": recently()}, True),
    ],
    ids=["etag", "weak", "neither", "time", "just now"],
)
@pytest.mark.parametrize("options", [{}, {"cache_dir": "copies"}], ids=str)
def test_objects_without_an_exact_version_are_reported_once(
    server: ObjectServer,
    attributes: dict[str, Any],
    is_reported: bool,
    options: dict[str, str],
    tmp_path: Path,
    recwarn: pytest.WarningsRecorder,
) -> None:
    server.objects = {f"d/{i}.tfrecord": shard(i) for i in range(2)}
    for name, value in attributes.items():
        setattr(server, name, value)
    given = {name: tmp_path / value for name, value in options.items()}
    dataset = open_dataset(f"{server.url}/d/", **given)
    for order in ({}, {"shuffle": fr.Blocks()}, {"shuffle": True}):
        assert sorted(numbers(dataset, **order)) == rows(0, 1)
    found = [str(each.message) for each in recwarn if "version" in str(each.message)]
    assert len(found) == is_reported
    if found:
        assert f"of 2 objects, such as '{server.url}/d/0.tfrecord'" in found[0]


# Round trips.


def test_urls_are_asked_for_in_parallel(server: ObjectServer) -> None:
    n_urls = 16
    barrier = threading.Barrier(n_urls - 1, timeout=30)
    server.objects = {f"{i}.tfrecord": shard(i) for i in range(n_urls)}

    def meet(request: Request) -> str | None:
        if request.key != "0.tfrecord":
            barrier.wait()
        return None

    server.inject = meet
    urls = [f"{server.url}/{i}.tfrecord" for i in range(n_urls)]
    assert expand(urls) == urls


def test_the_first_url_that_is_missing_is_the_error(server: ObjectServer) -> None:
    server.objects = {f"{i}.tfrecord": shard(i) for i in range(10) if i not in (4, 7)}
    with pytest.raises(FileNotFoundError) as caught:
        expand([f"{server.url}/{i}.tfrecord" for i in range(10)])
    assert caught.value.filename == f"{server.url}/4.tfrecord"


def test_a_signal_ends_parallel_requests(server: ObjectServer) -> None:
    server.objects = {f"{i}.tfrecord": shard(i) for i in range(10)}
    server.stall_seconds = 600
    signals = [signal.SIGINT]  # once: the client may repeat a request that was dropped

    def stall(request: Request) -> str | None:
        if request.key == "9.tfrecord" and signals:
            signal.raise_signal(signals.pop())
        return None if request.key == "0.tfrecord" else "stall"

    server.inject = stall
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        expand([f"{server.url}/{i}.tfrecord" for i in range(10)])
    assert time.monotonic() - begin < 20  # a stalled request takes 30 s


def test_remote_paths_need_no_options_again() -> None:
    options = {"account_name": "a", "account_key": "a2V5"}
    path = remote_path("az://container/x.tfrecord", options)
    assert expand([path, path]) == [path, path]
