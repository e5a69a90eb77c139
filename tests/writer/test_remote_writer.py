"""Writer and rewriting with URLs.

Goal
    An object appears under its final name when it is complete, or not at all: after an
    error, an interrupt or a discard, nothing is left, neither parts of uploads nor
    temporary files. The bytes are those of a local file.
Method
    moto's S3 server and fsspec's file system in memory; local files with the same rows.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from campaigns import remote_faults
from children import SECONDS_TO_HANG, start_program
from columns import Untyped
from fastrec.storage.remote import RemotePath, remote_path
from fastrec.storage.stores import Store as StoreClient
from fastrec.writer.shard_names import ShardNames
from fastrec.writer.shards import ShardOptions, ShardWriter
from object_server import served
from s3_server import S3
from written import payloads

pytest.importorskip("obstore", reason="extra `remote` is not installed")
fsspec = pytest.importorskip("fsspec", reason="extra `remote` is not installed")
pytest.importorskip("moto", reason="moto is not installed")

BIG = np.random.default_rng(1).bytes(9 << 20)  # more than one part of an upload


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, which every test leaves empty."""
    directory = tmp_path / "spool"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.fixture(params=["s3", "memory"])
def store(
    request: pytest.FixtureRequest,
) -> tuple[str, dict[str, Untyped], Callable[[], dict[str, bytes]]]:
    """The root, the options, and a function that returns all objects."""
    if request.param == "memory":
        fs = fsspec.filesystem("memory")
        fs.store.clear()
        return (
            "memory://",
            {},
            lambda: {
                name.lstrip("/"): file.getvalue() for name, file in fs.store.items()
            },
        )
    s3: S3 = request.getfixturevalue("s3")
    return (
        s3.url(""),
        {"storage_options": s3.options},
        lambda: {key: s3.get(key) for key in s3.names()},
    )


Store = tuple[str, dict[str, Untyped], Callable[[], dict[str, bytes]]]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.tfrecord", {}),
        ("a.tfrecord.gz", {"compression": "GZIP"}),
        ("a-{shard:02d}.tfrecord", {"max_shard_records": 3}),
        ("a-{shard:02d}-of-{num_shards:02d}", {"max_shard_records": 3}),
        ("a-{shard:02d}-of-{num_shards:02d}", {"num_shards": 3}),
    ],
)
def test_objects_equal_local_files(
    store: Store, spool: Path, tmp_path: Path, name: str, options: dict[str, Untyped]
) -> None:
    root, credentials, objects = store
    files = {}
    for path, more in ((f"{root}d/{name}", credentials), (str(tmp_path / name), {})):
        with fr.Writer(path, **options, **more) as writer:
            for i in range(10):
                writer.write({"n": i, "x": BIG if i == 4 else b"x"})
        files[path] = writer.files
    remote, local = files.values()
    assert [f.removeprefix(f"{root}d/") for f in remote] == [
        Path(f).name for f in local
    ]
    assert objects() == {
        f"d/{Path(file).name}": Path(file).read_bytes() for file in local
    }
    assert list(spool.iterdir()) == []


def test_nothing_appears_before_close(store: Store, spool: Path) -> None:
    root, credentials, objects = store
    for name in ("a.tfrecord", "a-{shard}-of-{num_shards}"):
        writer = fr.Writer(f"{root}{name}", **credentials)
        writer.write({"x": BIG})
        assert objects() == {}
        writer.discard()
        with (
            contextlib.suppress(KeyError),
            fr.Writer(f"{root}{name}", **credentials) as writer,
        ):
            writer.write({"x": BIG})
            raise KeyError
    assert objects() == {}
    assert list(spool.iterdir()) == []


def test_existing_objects(store: Store, spool: Path) -> None:
    root, credentials, objects = store
    path = f"{root}d/a-{{shard}}"

    def write(n_shards: int, **options: Untyped) -> None:
        with fr.Writer(path, num_shards=n_shards, **credentials, **options) as writer:
            writer.write_batch({"n": np.arange(6)})

    write(3)
    before = objects()
    with pytest.raises(FileExistsError) as caught:
        write(2)
    assert caught.value.filename == f"{root}d/a-0"
    assert objects() == before
    write(2, overwrite=True)
    assert sorted(objects()) == ["d/a-0", "d/a-1"]
    with pytest.raises(ValueError, match="append=True requires a local path"):
        fr.Writer(f"{root}b", append=True, **credentials)
    assert list(spool.iterdir()) == []


def test_replaced_objects_are_read_by_their_written_names(store: Store) -> None:
    root, credentials, _ = store

    def write(value: int) -> list[str]:
        with fr.Writer(f"{root}a", overwrite=True, **credentials) as writer:
            writer.write_batch({"n": np.full(value, value)})
        return writer.files

    files = write(3)
    write(5)
    assert len(list(fr.read_records(files))) == 5


def test_an_object_that_appears_meanwhile_stays(s3: S3, spool: Path) -> None:
    writer = fr.Writer(s3.url("a"), storage_options=s3.options)
    writer.write({"n": 1})
    s3.put("a", b"theirs")
    with pytest.raises(FileExistsError):
        writer.close()
    assert s3.get("a") == b"theirs"
    assert list(spool.iterdir()) == []


def test_a_refused_upload_leaves_nothing(s3: S3, spool: Path) -> None:
    options = {**s3.options, "bucket_name": "absent"}
    del options["bucket_name"]
    writer = fr.Writer("s3://absent/a.tfrecord", storage_options=options)
    writer.write({"x": BIG})
    with pytest.raises(OSError, match=r"s3://absent/a\.tfrecord") as caught:
        writer.close()
    assert "hunter2" not in str(caught.value) + repr(writer)
    assert list(spool.iterdir()) == []


def test_an_interrupted_upload_is_aborted(
    s3: S3, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**s3.environment(), "TMPDIR": str(spool)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with start_program("remote_writer.py", s3.url("a.tfrecord")) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "closing\n"
        while s3.n_uploads() == 0 and child.poll() is None:
            pass
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=SECONDS_TO_HANG)
    assert errors == ""
    keys = s3.names()
    assert keys in ([], ["a.tfrecord"])
    if keys:  # the signal came late
        assert len(payloads(s3.get("a.tfrecord"))) == 6
    assert s3.n_uploads() == 0
    assert list(spool.iterdir()) == []


def test_indexes_are_written_next_to_the_data(
    store: Store, spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, credentials, objects = store
    for i in range(3):
        with fr.Writer(f"{root}d/{i}.tfrecord", **credentials) as writer:
            writer.write_batch({"n": np.arange(10)})

    def n_bytes_read(*names: str, machine: str, **options: Untyped) -> int:
        """Build indexes on a machine with an empty cache."""
        monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / machine))
        files = [f"{root}d/{name}.tfrecord" for name in names]
        read = [0]
        counts = fr.build_index(
            files, progress=lambda done, _: read.append(done), **options, **credentials
        )
        assert set(counts.values()) == {10}
        return read[-1]

    assert n_bytes_read("0", "1", machine="first", next_to_data=True) > 0
    assert n_bytes_read("2", machine="second", next_to_data=True) > 0
    before = objects()["d/.fastrec/index.frecidx"]
    assert n_bytes_read("0", "1", "2", machine="third") == 0
    assert n_bytes_read("0", machine="third", next_to_data=True) == 0
    assert objects()["d/.fastrec/index.frecidx"] == before
    assert list(spool.iterdir()) == []


def test_an_index_is_next_to_all_of_its_files_or_an_error(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, credentials, objects = store
    with fr.Writer(f"{root}a.tfrecord", **credentials) as writer:
        writer.write({"n": 1})
    fr.build_index(f"{root}a.tfrecord", next_to_data=True, **credentials)
    assert ".fastrec/index.frecidx" in objects()
    with served({"a.tfrecord": objects()["a.tfrecord"]}) as server:
        a = f"{server.url}/a.tfrecord"
        local = tmp_path / "b.tfrecord"
        local.write_bytes(server.objects["a.tfrecord"])
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match="HTTP servers are read-only"):
            fr.build_index(f"{server.url}/*", next_to_data=True)
        assert server.requests == []  # only the listing
        mixed: Any = ([a, f"{a}?x=y"], [local, a])
        for paths in mixed:
            with pytest.raises(ValueError, match="files in one bucket"):
                fr.build_index(paths, next_to_data=True)
        assert os.listdir(tmp_path) == ["b.tfrecord"]


@pytest.fixture
def staged(s3: S3) -> list[RemotePath]:
    """Three complete objects, which a writer can copy to their final names."""
    for i in range(3):
        s3.put(f".staging/{i}", f"new {i}".encode())
    return [remote_path(s3.url(f".staging/{i}"), s3.options) for i in range(3)]


@pytest.mark.parametrize("existing", [[], ["a-0"]])
def test_a_copy_that_fails_leaves_no_new_object(
    s3: S3,
    spool: Path,
    staged: list[RemotePath],
    monkeypatch: pytest.MonkeyPatch,
    existing: list[str],
) -> None:
    for name in existing:
        s3.put(name, b"old")
    options = ShardOptions(overwrite=True, together=True)
    writer = ShardWriter(ShardNames(s3.url("a-{shard}"), s3.options), options)
    writer.adopt(staged)
    copy = StoreClient.copy

    def fail(store: StoreClient, key: str, target: str) -> None:
        copy(store, key, target)
        if target == "a-1":
            raise PermissionError

    monkeypatch.setattr(StoreClient, "copy", fail)
    with pytest.raises(PermissionError) as caught:
        writer.close()
    assert caught.value.filename == s3.url("a-1")
    assert s3.names() == [*(f".staging/{i}" for i in range(3)), *existing]
    assert list(spool.iterdir()) == []


def test_an_object_that_the_store_cannot_copy(
    s3: S3, spool: Path, staged: list[RemotePath], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ShardNames(s3.url("a-{shard}"), s3.options)
    s3.put(".staging/2", bytes(1001))
    for file in staged:
        assert file.store.max_copy_bytes == 5 << 30
        monkeypatch.setattr(file.store, "max_copy_bytes", 1000)
    writer = ShardWriter(names, ShardOptions(together=True))
    with pytest.raises(OSError, match=r"up to 1,000 bytes, got .* 1,001 .*max_shard"):
        writer.adopt(staged)
    writer.discard()
    assert s3.names() == [f".staging/{i}" for i in range(3)]
    assert list(spool.iterdir()) == []


def test_faults_and_kills_leave_complete_objects_or_none() -> None:
    """A few of the writers of the campaign, which checks each object."""
    injected: Counter[str] = Counter()
    ends = remote_faults.write(2, injected, n_writers=8, n_kills=1)
    assert ends.total() == 9
    assert injected["cut"] > 0
    assert injected["503"] > 0


def test_rewriting_takes_urls(store: Store, spool: Path, tmp_path: Path) -> None:
    from fastrec.rewrite.copy import reshard
    from fastrec.storage.paths import expand
    from fastrec.writer.shards import ShardOptions

    root, credentials, objects = store
    if credentials:
        pytest.skip("options come from the environment; see the test of the commands")
    with fr.Writer(f"{root}in/a.tfrecord.gz", compression="GZIP") as writer:
        writer.write_batch({"n": np.arange(10)})
    reshard(expand(f"{root}in/"), f"{root}out/b-{{shard}}", ShardOptions(), 2)
    expected = list(fr.read_records(f"{root}in/"))
    assert [len(payloads(objects()[f"out/b-{i}"])) for i in (0, 1)] == [5, 5]
    found = [r for i in (0, 1) for r in payloads(objects()[f"out/b-{i}"])]
    assert found == expected
    assert list(spool.iterdir()) == []
    assert os.listdir(tmp_path) == ["spool"]


def test_http_is_read_only() -> None:
    with pytest.raises(ValueError, match="cannot write 'https://x/y': HTTP servers"):
        fr.Writer("https://user:pw@x/y")
