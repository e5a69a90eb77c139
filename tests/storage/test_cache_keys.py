"""What caches of indexes and of copies are keyed by.

Goal
    A cache delivers what the file itself would deliver: never that of another file, or of
    another version of it, however equal their names, sizes, times and ETags are. A cached
    result is found again if, and only if, it is proven to be of the same object. Caches
    contain nothing secret.
Method
    Files with equal sizes and different records, of which every number is counted; an
    HTTP server in this process that counts requests.
"""

from __future__ import annotations

import gzip
import os
import pickle
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path

import pytest

import fastrec as fr
from columns import Untyped, open_dataset
from fastrec.storage.index_files import index_path
from fastrec.storage.remote import remote_path
from object_server import ObjectServer, served
from oracle import example, tfrecord_file

pytest.importorskip("obstore", reason="extra `remote` is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:the server reports no exact version")

N_ROWS = 2000

Read = Callable[..., list[int]]


def rows(*numbers: int) -> list[int]:
    """Numbers of three bytes each, so that all shards have one size."""
    return [100_000 * number + i for number in numbers for i in range(N_ROWS)]


def shard(number: int) -> bytes:
    return tfrecord_file([example({b"n": ("int64", [i])}) for i in rows(number)])


assert len({len(shard(i)) for i in range(1, 4)}) == 1


@pytest.fixture(params=["copies", "indexes"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Read:
    """Read a new dataset through one of the caches, and return its sorted numbers."""
    name = "cache_dir" if request.param == "copies" else "index_dir"

    def numbers(paths: Untyped) -> list[int]:
        dataset = open_dataset(paths, **{name: tmp_path / "cache"})
        loader = dataset.loader(100, shuffle=fr.Blocks(10_000, 4))
        return sorted(int(n) for batch in loader for n in batch["n"])

    return numbers


def bytes_read(server: ObjectServer) -> int:
    """Return the number of bytes of objects that were requested, and forget them."""
    spans = [r.span for r in server.requests if r.method == "GET" and r.span]
    server.requests.clear()
    return sum(end - begin for begin, end in spans)


@pytest.mark.parametrize("has_etags", [True, False])
def test_urls_that_differ_in_a_query_value_are_different_files(
    server: ObjectServer, read: Read, has_etags: bool
) -> None:
    server.objects = {f"get.tfrecord?id={i}": shard(i) for i in (1, 2, 3)}
    server.has_etags = has_etags
    urls = [f"{server.url}/get.tfrecord?id={i}" for i in (1, 2, 3)]
    for number, url in [*enumerate(urls, 1)] * 2:
        assert read(url) == rows(number)
    for _ in range(2):
        assert read(urls) == rows(1, 2, 3)
        assert read([urls[2], urls[0]]) == rows(1, 3)
        assert read([urls[1], urls[1]]) == sorted(2 * rows(2))


def test_files_of_other_lengths_whose_urls_show_the_same_text(
    server: ObjectServer, read: Read
) -> None:
    short = tfrecord_file([example({b"n": ("int64", [i])}) for i in range(777)])
    server.objects = {"x?id=1": shard(1), "x?id=2": short}
    urls = [f"{server.url}/x?id={i}" for i in (1, 2)]
    for _ in range(2):
        assert read(urls) == [*range(777), *rows(1)]
        assert read(urls[1]) == [*range(777)]


@pytest.mark.parametrize("version", ["etags", "times", "none"])
def test_the_same_url_with_other_content(
    server: ObjectServer, read: Read, version: str
) -> None:
    server.has_etags, server.has_times = version == "etags", version == "times"
    server.time = formatdate(usegmt=True)  # several versions in one second
    for number in (1, 2, 1, 3):
        server.objects["x.tfrecord"] = shard(number)
        assert read(f"{server.url}/x.tfrecord") == rows(number)


@pytest.mark.parametrize("has_times", [True, False])
def test_the_same_content_under_another_url(
    server: ObjectServer, read: Read, has_times: bool
) -> None:
    server.has_times = has_times
    server.objects = {"a/x.tfrecord": shard(1), "b/x.tfrecord": shard(1)}
    a, b = (f"{server.url}/{name}/x.tfrecord" for name in "ab")
    assert read(a) == read(b) == rows(1)
    assert read([a, b]) == sorted(2 * rows(1))
    server.objects["b/x.tfrecord"] = shard(2)
    assert read([a, b]) == rows(1, 2)
    assert (read(b), read(a)) == (rows(2), rows(1))


def test_the_same_path_of_two_servers(server: ObjectServer, read: Read) -> None:
    with served({"d/x.tfrecord": shard(2)}) as other:
        server.objects["d/x.tfrecord"] = shard(1)
        server.has_etags, other.has_etags = False, False
        server.has_times, other.has_times = True, True
        urls = [f"{each.url}/d/x.tfrecord" for each in (server, other)]
        for _ in range(2):
            assert [read(url) for url in urls] == [rows(1), rows(2)]
            assert read(urls) == rows(1, 2)
        server.objects[".fastrec/index.frecidx"] = b"of the wrong server"
        assert read(urls[::-1]) == rows(1, 2)


def test_urls_of_equal_size_and_time(server: ObjectServer, read: Read) -> None:
    server.has_etags, server.has_times = False, True
    server.objects = {f"{i}/x.tfrecord": shard(i) for i in (1, 2)}
    urls = [f"{server.url}/{i}/x.tfrecord" for i in (1, 2)]
    for _ in range(2):
        assert [read(url) for url in urls] == [rows(1), rows(2)]
        assert read(urls) == rows(1, 2)


def test_copies_of_files_of_equal_size_and_time(tmp_path: Path) -> None:
    def stored(number: int) -> bytes:
        """Compress without a gain, so that sizes are equal."""
        return gzip.compress(shard(number), 0, mtime=0)

    def read(path: Path) -> list[int]:
        dataset = open_dataset(path, cache_dir=tmp_path / "cache")
        return [int(n) for n in dataset[:]["n"]]

    paths = [tmp_path / name / "x.gz" for name in "ab"]
    for path in paths:
        path.parent.mkdir()
    for number in (1, 2):
        for i, path in enumerate(paths):
            path.write_bytes(stored(number + i))
            os.utime(path, ns=(10**18, 10**18))
        assert paths[0].stat().st_size == paths[1].stat().st_size
        for _ in range(2):
            assert [read(path) for path in paths] == [rows(number), rows(number + 1)]
    os.utime(paths[0], ns=(-(10**9), -(10**9)))
    assert read(paths[0]) == rows(2)
    paths[0].write_bytes(stored(3))
    os.utime(paths[0], ns=(-2 * 10**9, -2 * 10**9))
    assert read(paths[0]) == rows(3)


SIGNED = (
    "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=key&X-Amz-Date={0}"
    "&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature={0}signature"
)


def test_another_signature_of_a_url_finds_what_is_cached(
    server: ObjectServer, read: Read, tmp_path: Path
) -> None:
    server.objects["x.tfrecord"] = shard(1)

    def cached() -> dict[str, int]:
        files = [p for p in (tmp_path / "cache").iterdir() if p.name[0] != "."]
        return {path.name: path.stat().st_mtime_ns for path in files}

    def url(signature: int, query: str = "") -> str:
        return f"{server.url}/x.tfrecord?{query}{SIGNED.format(signature)}"

    assert read(url(1)) == rows(1)
    first = cached()
    again = [read(url(2)), read(url(3))]
    assert again == [rows(1)] * 2
    assert cached() == first != {}
    server.objects["x.tfrecord"] = shard(2)
    assert read(url(4)) == rows(2)
    server.has_etags = False
    for number in (3, 1):
        server.objects["x.tfrecord"] = shard(number)
        assert read(url(number)) == rows(number)
    server.objects |= {url(9, f"id={i}&").split("/")[-1]: shard(i) for i in (1, 2)}
    assert read([url(9, f"id={i}&") for i in (1, 2)]) == rows(1, 2)


def test_paths_are_equal_if_the_urls_have_the_same_user_and_query() -> None:
    def path(url: str) -> Untyped:
        return remote_path(url)

    bare = path("http://h/x")
    queries = [path(f"http://h/x?{query}") for query in ("a=1", "a=2", "b=1")]
    users = [path(f"http://{user}:pass@h/x") for user in ("alice", "bob")]
    signed = [path(f"http://h/x?{SIGNED.format(i)}") for i in (1, 2)]
    assert (
        len({*map(str, (*queries, *signed))}) == len({*map(str, (bare, *users))}) == 1
    )
    assert len({bare, *queries, *users, *signed}) == 1 + 3 + 2 + 1
    assert signed[0] == signed[1]
    assert users[0] == path("http://alice:other@h/x")
    assert users[0] != users[1]
    assert queries[0] == path("http://h/x?a=1#part")
    assert bare == "http://h/x"
    assert [pickle.loads(pickle.dumps(p)) for p in queries] == queries
    assert path("ftp://alice:pass@h/x") != path("ftp://bob:pass@h/x")


def test_nothing_secret_is_in_the_caches(server: ObjectServer, tmp_path: Path) -> None:
    server.objects["x.tfrecord"] = shard(1)
    host = server.url.partition("://")[2]
    for query in ("token=hunter2", SIGNED.format("hunter2")):
        url = f"http://alice:hunter2@{host}/x.tfrecord?{query}"
        for name in ("cache_dir", "index_dir"):
            dataset = open_dataset(url, **{name: tmp_path / name})
            assert len(dataset) == N_ROWS
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len([path for path in files if path.suffix in (".tfrecord", ".frecidx")]) > 3
    for secret in ("hunter2", "alice"):
        assert not any(secret in path.name for path in files)
        assert not any(secret.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize("query", ["", "?sig=signed", f"?{SIGNED.format(1)}"])
@pytest.mark.parametrize("folder", ["", "d/", "d \u00fc%41/e?f/"])
@pytest.mark.parametrize("n_files", [1, 2])
def test_the_index_next_to_remote_data_is_found(
    server: ObjectServer, tmp_path: Path, query: str, folder: str, n_files: int
) -> None:
    from urllib.parse import quote

    names = ["a b\u00fc+%41.tfrecord", "c.tfrecord"][:n_files]
    for i, name in enumerate(names):
        (tmp_path / name).write_bytes(shard(i + 1))
        server.objects[f"{folder}{name}"] = shard(i + 1)
    fr.build_index(tmp_path, next_to_data=True)
    index = (tmp_path / ".fastrec/index.frecidx").read_bytes()
    server.objects[f"{folder}.fastrec/index.frecidx"] = index
    urls = [f"{server.url}/{quote(folder + name)}{query}" for name in names]
    dataset = open_dataset(urls, index_dir=tmp_path / "other")
    assert len(dataset) == n_files * N_ROWS
    # The beginnings, to detect compression, and the index; a scan reads everything.
    assert bytes_read(server) < n_files * len(shard(1)) / 2


def test_the_index_next_to_remote_data_does_not_tell_queries_apart(
    server: ObjectServer, tmp_path: Path
) -> None:
    (tmp_path / "x.tfrecord").write_bytes(shard(1))
    fr.build_index(tmp_path, next_to_data=True)
    index = (tmp_path / ".fastrec/index.frecidx").read_bytes()
    server.objects[".fastrec/index.frecidx"] = index
    server.objects |= {f"x.tfrecord?id={i}": shard(i) for i in (1, 2)}
    urls = [f"{server.url}/x.tfrecord?id={i}" for i in (1, 2)]
    dataset = open_dataset(urls, index_dir=tmp_path / "index")
    assert sorted(dataset[:]["n"].tolist()) == rows(1, 2)
    assert not [r for r in server.requests if "frecidx" in r.key]


def test_long_names_are_cut_to_bytes(
    server: ObjectServer, read: Read, tmp_path: Path
) -> None:
    names = ["\u6f22" * 70, "\u6f22" * 69 + "\u5b57", "x" + "\u6f22" * 70, "e" * 200]
    server.objects = {name: shard(i % 3 + 1) for i, name in enumerate(names)}
    for i, name in enumerate(names):
        assert read(f"{server.url}/{name}") == rows(i % 3 + 1)
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(shard(i % 3 + 1)))
        dataset = open_dataset(path, cache_dir=tmp_path / "gz")
        assert dataset[:]["n"].tolist() == rows(i % 3 + 1)
        assert len(os.fsencode(index_path(str(path)).name)) < 150
