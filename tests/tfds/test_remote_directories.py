"""Directories of TFDS behind URLs.

Goal
    `open_tfds` finds and reads the same data set in an object store, which is listed, as
    on a disk; a plain HTTP server, which lists nothing, needs the URL of the version.
Method
    One directory, copied to a real S3 server and to an HTTP server on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fastrec as fr
from columns import Untyped
from object_server import ObjectServer, served
from s3_server import S3
from tfds_directory import class_label, tensor, write_directory

pytest.importorskip("obstore", reason="extra `remote` is not installed")

NAME = "things/1.0.0"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    """The files of a data set, by name."""
    rows = [{"number": n, "label": n % 2} for n in range(9)]
    features = {"number": tensor("int64"), "label": class_label(2)}
    directory = tmp_path / "written"
    write_directory(directory, features, {"train": [rows[:5], [], rows[5:]]})
    (directory / "label.labels.txt").write_text("even\nodd\n")
    return {f"{NAME}/{file.name}": file.read_bytes() for file in directory.iterdir()}


class Bucket:
    """The files below a prefix of an S3 server."""

    def __init__(self, s3: S3, prefix: str, files: dict[str, bytes]) -> None:
        self.s3, self.prefix = s3, prefix
        for name, data in files.items():
            self.put(name, data)

    def put(self, name: str, data: bytes) -> None:
        self.s3.put(f"{self.prefix}/{name}", data)

    def url(self, name: str) -> str:
        return self.s3.url(f"{self.prefix}/{name}")


@pytest.fixture
def s3(s3: S3, tmp_path: Path, files: dict[str, bytes]) -> Bucket:
    return Bucket(s3, tmp_path.name, files)


@pytest.fixture
def http(files: dict[str, bytes]) -> Iterator[ObjectServer]:
    with served(files) as running:
        yield running


def opened(
    server: Bucket | ObjectServer, path: str = NAME, **options: Untyped
) -> Untyped:
    untyped: Untyped = fr.open_tfds
    if isinstance(server, Bucket):
        secrets = server.s3.options
        return untyped(server.url(path), storage_options=secrets, **options)
    return untyped(f"{server.url}/{path}", **options)


def numbers(ds: Untyped) -> list[int]:
    return [n for batch in ds.loader(4) for n in batch["number"].tolist()]


@pytest.mark.parametrize("path", [NAME, f"{NAME}/", "things", "things/"])
def test_a_directory_in_a_store(s3: Bucket, tmp_path: Path, path: str) -> None:
    ds = opened(s3, path, index_dir=tmp_path / "indexes")
    assert len(ds) == 9
    assert numbers(ds) == [*range(9)]
    assert ds.schema.class_names == {"label": ("even", "odd")}
    assert ds.files[0] == s3.url(f"{NAME}/things-train.tfrecord-00000-of-00003")
    ds = opened(s3, path, split="train[2shard]", cache_dir=tmp_path / "cache")
    assert numbers(ds) == [*range(5, 9)]


def test_a_directory_of_a_web_server(http: ObjectServer, tmp_path: Path) -> None:
    ds = opened(http, index_dir=tmp_path / "indexes")
    assert numbers(ds) == [*range(9)]
    assert ds.schema.class_names == {"label": ("even", "odd")}
    with pytest.raises(
        FileNotFoundError, match=r"No dataset_info.json in the directory"
    ):
        opened(http, "things")
    del http.objects[f"{NAME}/things-train.tfrecord-00002-of-00003"]
    with pytest.raises(FileNotFoundError):
        numbers(opened(http, cache_dir=tmp_path / "other"))


@pytest.mark.parametrize("split", ["train[3:7]", "train[50%:]"])
@pytest.mark.parametrize("caches", [False, True])
def test_slices(s3: Bucket, tmp_path: Path, split: str, *, caches: bool) -> None:
    cache_dir = tmp_path / "cache" if caches else None
    ds = opened(s3, split=split, cache_dir=cache_dir, index_dir=tmp_path / "i")
    expected = [3, 4, 5, 6] if split == "train[3:7]" else [4, 5, 6, 7, 8]
    assert numbers(ds) == expected
    assert ds[-1]["number"] == expected[-1]


def test_what_is_missing(s3: Bucket, files: dict[str, bytes]) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"No dataset_info.json .*s3://bucket/test"
    ):
        opened(s3, "nothing")
    s3.put("things/1.1.0/dataset_info.json", b"{}")
    with pytest.raises(ValueError, match=r"with '1.0.0', '1.1.0'; pass one of them"):
        opened(s3, "things")
    del files[f"{NAME}/things-train.tfrecord-00002-of-00003"]
    less = Bucket(s3.s3, f"{s3.prefix}-less", files)
    with pytest.raises(
        FileNotFoundError, match="Missing 1 of 3 shards of split 'train'"
    ):
        opened(less)


@pytest.mark.parametrize("is_indexed", [False, True])
def test_another_number_of_records(
    s3: Bucket, tmp_path: Path, *, is_indexed: bool
) -> None:
    first = f"{NAME}/things-train.tfrecord-00000-of-00003"
    data = s3.s3.get(f"{s3.prefix}/{first}")
    s3.put(first, data[: len(data) // 5 * 3])
    ds = opened(s3, index_dir=tmp_path / "indexes")
    assert len(ds) == 9
    with pytest.raises(
        fr.CorruptionError, match=r"must have 5 records, .* got 3; .* s3:"
    ):
        ds[0] if is_indexed else numbers(ds)
