"""Google Cloud Storage, Azure and the Hugging Face Hub.

Goal
    Listings are complete, all records are read, and objects are written completely or
    not at all, whatever protocol the store speaks. Files of the Hub need the requests
    that the same files need on an HTTP server, and no other host gets the token.
Method
    Servers in this process that answer as obstore and huggingface_hub expect it, with
    small pages; compared with the objects and records that were written.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped
from fastrec.storage.paths import expand
from fastrec.storage.remote import RemotePath, remote_path, upload
from fastrec.storage.stores import Store
from object_server import Request, Response, served
from oracle import example, tfrecord_file
from store_servers import HubRepository, store_server
from written import payloads

pytest.importorskip("obstore", reason="extra `remote` is not installed")
pytest.importorskip("fsspec", reason="extra `remote` is not installed")

N_FILES = 8
N_ROWS = 10
KEYS = [f"d/{i}.tfrecord" for i in range(N_FILES)]
BIG = np.random.default_rng(1).bytes(9 << 20)  # more than one part of an upload


def file(number: int) -> bytes:
    values = range(number * N_ROWS, (number + 1) * N_ROWS)
    return tfrecord_file([example({b"n": ("int64", [i])}) for i in values])


FILES = {key: file(i) for i, key in enumerate(KEYS)}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=["gs", "az", "hf"])
def bucket(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "hf":
        pytest.importorskip("huggingface_hub")
    with store_server(request.param) as running:
        yield running


def numbers(dataset: Untyped, **options: Untyped) -> list[int]:
    return [int(n) for batch in dataset.loader(30, **options) for n in batch["n"]]


@pytest.mark.parametrize("pattern", ["d/", "d/*", "**", ""])
def test_listings_of_several_pages_are_complete(bucket: Any, pattern: str) -> None:
    for key, data in FILES.items():
        bucket.put(key, data)
    bucket.put("e/f/other.tfrecord", file(9))
    options = {"storage_options": bucket.options}
    found = expand(bucket.url(pattern), **options)
    others = [] if pattern.startswith("d") else ["e/f/other.tfrecord"]
    assert found == [bucket.url(key) for key in [*KEYS, *others]]
    assert bucket.n_listings > 2
    with pytest.raises(FileNotFoundError):
        expand(bucket.url("absent/"), **options)
    with pytest.raises(FileNotFoundError):
        expand(bucket.url("absent/*"), **options)


@pytest.mark.parametrize("options", [{}, {"shuffle": fr.Blocks()}])
def test_all_records_are_read(bucket: Any, options: dict[str, Any]) -> None:
    for key, data in FILES.items():
        bucket.put(key, data)
    ds = fr.open(bucket.url("d/*"), storage_options=bucket.options)
    found = numbers(ds, **options)
    expected = list(range(N_FILES * N_ROWS))
    assert (sorted(found) if options else found) == expected
    bucket.put(KEYS[0], file(99)[: len(FILES[KEYS[0]])])
    with pytest.raises(fr.CorruptionError) as caught:
        numbers(fr.open(ds.files, storage_options=bucket.options))
    assert caught.value.code == "file_changed"


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_objects_are_written_completely_or_not_at_all(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with store_server(scheme) as bucket:
        options: dict[str, Any] = {"storage_options": bucket.options}
        with fr.Writer(bucket.url("a"), **options) as writer:
            writer.write({"x": b"x"})
        with fr.Writer(bucket.url("b"), **options) as writer:
            writer.write({"x": BIG})
        assert [len(payloads(data)) for data in bucket.objects().values()] == [1, 1]
        assert bucket.n_uploads() == 0
        with pytest.raises(FileExistsError):
            fr.Writer(bucket.url("a"), **options)
        writer = fr.Writer(bucket.url("c"), **options)
        writer.write({"x": b"x"})
        bucket.put("c", b"theirs")
        with pytest.raises(FileExistsError):
            writer.close()
        assert bucket.objects()["c"] == b"theirs"
        fr.build_index([bucket.url("a"), bucket.url("b")], next_to_data=True, **options)
        assert sorted(bucket.objects()) == [".fastrec/index.frecidx", "a", "b", "c"]


# An index next to the data.


def test_an_interrupted_index_build_sends_no_more_requests() -> None:
    n_polls = 0
    with store_server("gs") as bucket:
        server = bucket.server
        for i in range(3):
            bucket.put(f"{i}.tfrecord", file(i))
        bucket.put("big.tfrecord", tfrecord_file([b"x" * 4000] * 1000))
        server.stall_seconds = 600
        server.inject = lambda request: (
            "stall" if "big" in request.key and request.span[0] else None
        )

        def interrupt(n_bytes: int, _: int) -> None:
            nonlocal n_polls
            n_polls += n_bytes > 0
            if n_polls == 3:  # the other files are complete
                server.status = lambda *_: 503
                server.requests.clear()
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fr.build_index(
                bucket.url("*"),
                next_to_data=True,
                progress=interrupt,
                storage_options=bucket.options,
            )
        assert sorted(bucket.objects()) == [
            *(f"{i}.tfrecord" for i in range(3)),
            "big.tfrecord",
        ]


def test_an_index_that_another_machine_replaces_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_key = ".fastrec/index.frecidx"
    monkeypatch.setattr("fastrec.storage.index._INDEX_BYTES", 64)
    with store_server("gs") as bucket:
        options = {"storage_options": bucket.options}
        versions = []
        for i in range(3):
            bucket.put(f"{i}.tfrecord", file(i))
        for i in range(2):
            url = bucket.url(f"{i}.tfrecord")
            fr.build_index(url, next_to_data=True, **options)
            versions.append(bucket.objects()[index_key])
        others = [versions[1], versions[0], versions[1]]
        bucket.put(index_key, versions[0])

        def replace(request: Request) -> None:
            is_first = request.span is not None and request.span[0] == 0
            if request.key.endswith(index_key) and is_first and others:
                bucket.put(index_key, others.pop())

        bucket.server.inject = replace
        monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "third"))
        fr.build_index(bucket.url("2.tfrecord"), next_to_data=True, **options)
        bucket.server.inject = lambda _: None
        monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "fourth"))
        read = [0]
        counts = fr.build_index(
            bucket.url("*"), progress=lambda n, _: read.append(n), **options
        )
        assert len(counts) == 3
        assert read[-1] == 0


def test_an_index_next_to_files_of_a_user_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")

    class Sftp(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]
        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            rest = path.removeprefix("sftp://user:hunter2@host").removeprefix("sftp://")
            return "/" + rest.strip("/")

    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda _: Sftp)
    monkeypatch.setattr(Sftp, "store", {})
    monkeypatch.setattr(Sftp, "pseudo_dirs", [""])
    url = "sftp://user:hunter2@host/d/"
    for i in range(2):
        Sftp().pipe(f"/d/{i}.tfrecord", file(i))
    read: list[int] = []
    for pattern in (url, f"{url}0.tfrecord"):
        monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "first"))
        fr.build_index(pattern, next_to_data=True)
        monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / pattern[-5:]))
        fr.build_index(pattern, progress=lambda *n: read.append(n[0]))
        assert max(read) == 0
        Sftp().rm_file("/d/.fastrec/index.frecidx")


# The Hugging Face Hub.


@pytest.fixture
def hub() -> Iterator[HubRepository]:
    pytest.importorskip("huggingface_hub")
    with store_server("hf") as running:
        yield running


def test_the_hub_needs_the_requests_of_an_http_server(
    hub: HubRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"storage_options": hub.options}
    urls = [hub.url(key) for key in KEYS]
    for key, data in FILES.items():
        hub.put(key, data)
    expected = list(range(N_FILES * N_ROWS))
    assert numbers(fr.open(urls, **options)) == expected
    paths = [path for path, _ in hub.authorized]
    assert all("/resolve/" in path or path.startswith("cdn/") for path in paths)
    found = Counter(request.span for request in hub.server.requests)
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "other"))
    with served(FILES) as server:
        assert numbers(fr.open([f"{server.url}/{key}" for key in KEYS])) == expected
        assert Counter(request.span for request in server.requests) == found


def test_only_the_hub_gets_the_token(hub: HubRepository) -> None:
    hub.put("a.tfrecord", file(0))
    hub.is_open = False
    url = hub.url("a.tfrecord")
    assert numbers(fr.open(url, storage_options=hub.options)) == list(range(N_ROWS))
    assert {path.startswith("cdn/"): has for path, has in hub.authorized} == {
        True: False,
        False: True,
    }
    with pytest.raises(PermissionError) as caught:
        fr.open(url, storage_options={**hub.options, "token": "hf_wrong"})
    assert "hf_wrong" not in str(caught.value)
    with pytest.raises(FileNotFoundError):
        fr.open(hub.url("b.tfrecord"), storage_options=hub.options)
    with pytest.raises(ValueError, match="hf:// URLs have no storage option 'region'"):
        fr.open(url, storage_options={**hub.options, "region": "x"})


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("hf://datasets/user/name/d/a", "datasets/user/name/resolve/main/d/a"),
        ("hf://datasets/user/name@v1/a", "datasets/user/name/resolve/v1/a"),
        (
            "hf://datasets/user/name@refs/convert/parquet/d/a",
            "datasets/user/name/resolve/refs%2Fconvert%2Fparquet/d/a",
        ),
        (
            "hf://spaces/user/name@refs%2Fpr%2F1/a",
            "spaces/user/name/resolve/refs%2Fpr%2F1/a",
        ),
        ("hf://user/name/a", "user/name/resolve/main/a"),
        ("hf://models/user/name/a", "user/name/resolve/main/a"),
        ("hf://buckets/user/name/d/a", "buckets/user/name/resolve/d/a"),
    ],
)
def test_urls_of_the_hub(hub: HubRepository, url: str, path: str) -> None:
    paths = []

    def respond(_: str, path: str, __: Mapping[str, str], ___: bytes) -> Response:
        paths.append(path)
        return 200, {}, b""

    hub.server.respond = respond
    assert expand(url, storage_options=hub.options) == [url]
    assert paths[0] == f"/{path}"


@pytest.mark.parametrize("root", ["hf://user/name", "hf://models/user/name"])
def test_a_glob_of_a_model(hub: HubRepository, root: str) -> None:
    for key, data in FILES.items():
        hub.put(key, data)
    found = expand(f"{root}/d/*", storage_options=hub.options)
    assert found == [f"{root}/{key}" for key in KEYS]


@pytest.mark.parametrize("token", [None, True])
def test_the_token_of_a_login(
    hub: HubRepository, token: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put("a.tfrecord", file(0))
    hub.is_open = False
    options = {"endpoint": hub.options["endpoint"], "token": token}
    monkeypatch.setattr("huggingface_hub.get_token", lambda: hub.token)
    assert expand(hub.url("a.tfrecord"), storage_options=options)

    def fail() -> None:
        raise ConnectionError

    monkeypatch.setattr("huggingface_hub.get_token", fail)
    with pytest.raises(PermissionError):
        expand(hub.url("a.tfrecord"), storage_options=options)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert expand(hub.url("a.tfrecord"), storage_options=options)


def test_an_upload_has_a_weak_version_if_its_tag_is_weak(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with store_server("gs") as bucket:
        target = remote_path(bucket.url("a"), bucket.options)
        entries = [upload(tmp_path / "a", target)]
        bucket.server.etag = lambda _: 'W/"x"'
        entries.append(upload(tmp_path / "a", target))
        assert [entry and entry.is_weak for entry in entries] == [False, True]
        assert target.entry is None


@pytest.mark.parametrize(
    ("url", "variable", "is_allowed"),
    [
        ("s3://bucket", "AWS_ENDPOINT_URL", True),
        ("gs://bucket", "GOOGLE_BASE_URL", True),
        ("az://container", "AZURE_STORAGE_ENDPOINT", True),
        ("https://host", "AWS_ENDPOINT_URL", False),
        ("gs://bucket", "AWS_ENDPOINT_URL", False),
        ("s3://bucket", "AZURE_STORAGE_ENDPOINT", False),
    ],
)
def test_plain_http_is_allowed_by_the_own_endpoint(
    url: str, variable: str, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "name")
    monkeypatch.setenv(variable, "http://minio:9000")
    options = Store(url, {})._reading.client_options
    assert bool(options.get("allow_http")) == is_allowed


# Many files.


def test_an_optional_index_is_requested_once() -> None:
    """A server that fails to answer for it does not delay the first batch."""
    asked = []

    def fail(path: str, _headers: Mapping[str, str]) -> int | None:
        asked.extend([path] * path.endswith("frecidx"))
        return 503 if path.endswith("frecidx") else None

    with store_server("gs") as bucket:
        for i in range(70):
            bucket.put(f"d/{i:03d}.tfrecord", file(i))
        bucket.server.status = fail
        ds = fr.open(bucket.url("d/*"), storage_options=bucket.options)
        assert numbers(ds) == list(range(70 * N_ROWS))
    assert len(asked) == 1


def test_an_index_of_some_files_is_fetched_once(tmp_path: Path) -> None:
    key = "bucket/d/.fastrec/index.frecidx"
    with store_server("gs") as bucket:
        for i in range(70):
            bucket.put(f"d/{i:03d}.tfrecord", file(i))
        options = {"storage_options": bucket.options}
        urls = [bucket.url(f"d/{i:03d}.tfrecord") for i in range(69)]
        fr.build_index(urls, next_to_data=True, **options)
        bucket.server.requests.clear()
        ds = fr.open(bucket.url("d/*"), index_dir=tmp_path, **options)
        assert len(ds) == 70 * N_ROWS
        assert [r.key for r in bucket.server.requests].count(key) == 1


@pytest.mark.parametrize(("max_begun", "n_kept"), [(1024, N_FILES), (5, 0)])
def test_the_beginnings_of_many_files_are_not_kept(
    max_begun: int, n_kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastrec.storage.paths._MAX_BEGUN", max_begun)
    with store_server("gs") as bucket:
        for i in range(N_FILES):
            bucket.put(f"d/{i}", file(i))
        found = expand(bucket.url("d/"), storage_options=bucket.options)
        assert len(found) == N_FILES
        remote = [path for path in found if isinstance(path, RemotePath)]
        assert sum(bool(path.beginning) for path in remote) == n_kept


def test_one_index_next_to_the_data_serves_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank lists the files, fetches the index, and requests only its records."""
    n_files, world_size = 200, 8
    monkeypatch.setattr("store_servers.PAGE_KEYS", 1000)
    with store_server("gs") as bucket:
        for i in range(n_files):
            bucket.put(f"d/{i:03d}.tfrecord", file(i))
        options = {"storage_options": bucket.options}
        fr.build_index(bucket.url("d/"), next_to_data=True, **options)
        rows: list[int] = []
        for rank in range(world_size):
            monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / str(rank)))
            bucket.server.requests.clear()
            bucket.n_listings = 0
            ds = fr.open(bucket.url("d/*"), features={"n": "int64"}, **options)
            rows += numbers(ds, rank=rank, world_size=world_size, shuffle=fr.Blocks())
            keys = Counter(request.key for request in bucket.server.requests)
            assert keys["bucket/d/.fastrec/index.frecidx"] == 1
            assert keys.total() <= 1 + n_files
            assert bucket.n_listings == 1
        assert sorted(rows) == list(range(n_files * N_ROWS))
        # A copy of the bucket has other versions: records of each file are compared.
        monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "copy"))
        monkeypatch.setattr(bucket.server, "etag", lambda data: f'"{len(data)}"')
        bucket.server.requests.clear()
        assert len(fr.open(bucket.url("d/*"), **options)) == n_files * N_ROWS
        assert len({request.key for request in bucket.server.requests}) == 1 + n_files


def test_many_ranks_start_at_once_on_a_busy_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused request for the index is repeated: it replaces one for each file."""
    n_files, world_size = 320, 16
    n_rows = n_files * N_ROWS // world_size
    monkeypatch.setattr("store_servers.PAGE_KEYS", 1000)
    rng = random.Random(1)
    refused: Counter[str] = Counter()
    asked: Counter[str] = Counter()

    def refuse(path: str, _headers: Mapping[str, str]) -> int | None:
        kind = (
            "index" if path.endswith("frecidx") else "list" if "?" in path else "data"
        )
        asked[kind] += 1
        if rng.random() > 0.1:
            return None
        refused[kind] += 1
        return rng.choice((429, 503))

    with store_server("gs") as bucket:
        for i in range(n_files):
            bucket.put(f"d/{i:03d}.tfrecord", file(i))
        options = {"storage_options": bucket.options}
        fr.build_index(bucket.url("d/"), next_to_data=True, **options)
        begin = threading.Barrier(world_size)
        bucket.server.status = refuse

        def read(rank: int) -> list[int]:
            begin.wait()
            ds = fr.open(
                bucket.url("d/*"),
                features={"n": "int64"},
                index_dir=tmp_path / str(rank),
                **options,
            )
            rows: list[int] = ds[rank * n_rows : (rank + 1) * n_rows]["n"].tolist()
            return rows

        with ThreadPoolExecutor(world_size) as pool:
            rows = [n for part in pool.map(read, range(world_size)) for n in part]
    assert sorted(rows) == list(range(n_files * N_ROWS))
    assert asked["index"] - refused["index"] == world_size
    assert asked["list"] - refused["list"] == world_size
    assert asked["data"] - refused["data"] <= n_files + 2 * world_size
    assert min(refused.values()) > 0
