"""fastrec.open: accepted paths, their order, and errors for invalid ones.

Goal
    A path, a glob, a directory or a list of them opens as a dataset in a defined order.
    Errors name the path.
Method
    Small files written by the oracle in a separate folder.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, assert_same, cell, open_dataset, rows
from oracle import example, frame, tfrecord_file

SPEC = {"n": fr.FixedLen((), "int64")}


def file_of(path: Path, *numbers: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tfrecord_file(example({b"n": ("int64", [n])}) for n in numbers))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files; not written in the order of their names."""
    folder = tmp_path / "data"
    file_of(folder / "b.tfrecord", 3, 4)
    file_of(folder / "c.tfrecord", 5)
    file_of(folder / "a.tfrecord", 0, 1, 2)
    return folder


def numbers(ds: Untyped) -> list[int]:
    return [int(row["n"]) for row in ds]


def names(ds: Untyped) -> list[str]:
    return [Path(file).name for file in ds.files]


# What is accepted.


@pytest.mark.parametrize("as_type", [str, Path])
def test_one_file(folder: Path, as_type: type[Any]) -> None:
    path = folder / "a.tfrecord"
    ds = open_dataset(as_type(path), features=SPEC)
    assert (len(ds), numbers(ds)) == (3, [0, 1, 2])
    assert [os.fspath(file) for file in ds.files] == [str(path)]
    assert ds.nbytes == path.stat().st_size


def test_any_path_like_is_accepted(folder: Path) -> None:
    class Anything:
        def __fspath__(self) -> str:
            return str(folder / "c.tfrecord")

    assert numbers(open_dataset(Anything(), features=SPEC)) == [5]


@pytest.mark.parametrize("pattern", ["*.tfrecord", "?.tfrecord", "[abc].tfrecord", "*"])
def test_a_glob_is_sorted_by_name(folder: Path, pattern: str) -> None:
    ds = open_dataset(str(folder / pattern), features=SPEC)
    assert names(ds) == ["a.tfrecord", "b.tfrecord", "c.tfrecord"]
    assert numbers(ds) == list(range(6))
    assert ds.nbytes == sum(file.stat().st_size for file in folder.iterdir())


def test_a_glob_over_folders(folder: Path) -> None:
    ds = open_dataset(str(folder.parent / "*" / "[ac].tfrecord"), features=SPEC)
    assert numbers(ds) == [0, 1, 2, 5]


def test_an_existing_file_with_glob_characters_is_not_a_glob(folder: Path) -> None:
    odd = file_of(folder / "part[1].tfrecord", 9)
    assert numbers(open_dataset(odd, features=SPEC)) == [9]


@pytest.mark.parametrize("as_type", [str, Path])
def test_a_directory_is_its_tfrecord_files_sorted(
    folder: Path, as_type: type[Any]
) -> None:
    assert numbers(open_dataset(as_type(folder), features=SPEC)) == list(range(6))


@pytest.mark.parametrize(
    "name", ["b.tfrecord", "b.tfrecords", "b.tfrecord-00001-of-00002"]
)
def test_a_shard_with_a_damaged_beginning_is_included(
    tmp_path: Path, name: str
) -> None:
    file_of(tmp_path / "a.tfrecord", 0, 1)
    damaged = file_of(tmp_path / name, 2, 3)
    data = bytearray(damaged.read_bytes())
    data[9] ^= 1
    damaged.write_bytes(data)
    (tmp_path / "a.tfrecord.index").write_bytes(b"\0\1\2\3" * 10)
    with pytest.raises(fr.CorruptionError, match=re.escape(name)):
        len(open_dataset(tmp_path))


def test_a_list_keeps_its_order(folder: Path) -> None:
    paths = [folder / "c.tfrecord", str(folder / "a.tfrecord"), folder / "b.tfrecord"]
    assert numbers(open_dataset(paths, features=SPEC)) == [5, 0, 1, 2, 3, 4]
    assert numbers(open_dataset(tuple(paths), features=SPEC)) == [5, 0, 1, 2, 3, 4]


def test_a_list_may_hold_globs_and_directories(folder: Path) -> None:
    other = file_of(folder.parent / "other" / "x.tfrecord", 7)
    ds = open_dataset(
        [str(folder / "[bc].*"), other.parent, folder / "a.tfrecord"], features=SPEC
    )
    assert numbers(ds) == [3, 4, 5, 7, 0, 1, 2]


def test_suffixes_do_not_matter(folder: Path) -> None:
    for name in ("train.gz", "train", "train.txt", "train-00000-of-00001"):
        assert numbers(open_dataset(file_of(folder / name, 8), features=SPEC)) == [8]


@pytest.mark.parametrize("compression", ["auto", None])
def test_plain_files_open_with_auto_and_none(folder: Path, compression: Any) -> None:
    ds = open_dataset(folder, features=SPEC, compression=compression)
    assert numbers(ds) == list(range(6))


@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_file_url(tmp_path: Path, host: str) -> None:
    path = file_of(tmp_path / "a b" / "50%\xe9.tfrecord", 1, 2)
    url = path.as_uri().replace("file://", f"file://{host}")
    assert "%20" in url
    for given in (url, url.replace("file:", "FILE:"), [url]):
        ds = open_dataset(given, features=SPEC)
        assert (ds.files, numbers(ds)) == ([str(path)], [1, 2])
    folder = f"file://{host}{path.parent}"
    assert numbers(open_dataset(folder, features=SPEC)) == [1, 2]
    assert numbers(open_dataset(f"{folder}/*.tfrecord", features=SPEC)) == [1, 2]


def test_a_tilde_is_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with fr.Writer("~/a.tfrecord") as writer:
        writer.write_record(b"x")
    assert (tmp_path / "a.tfrecord").exists()
    ds = fr.open("~/*.tfrecord", index_dir="~/index")
    assert ds.files == [str(tmp_path / "a.tfrecord")]
    assert len(ds) == 1
    assert any((tmp_path / "index").iterdir())
    assert list(fr.read_records("~/a.tfrecord")) == [b"x"]


def test_a_file_url_of_another_host_is_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path / "a.tfrecord", 1)
    with pytest.raises(ValueError, match="host of a file URL must be empty"):
        open_dataset(f"file://elsewhere{path}")


# Directories that hold more than one dataset.


def shards(folder: Path, prefix: str, n_shards: int, first: int = 0) -> None:
    for i in range(n_shards):
        file_of(folder / f"{prefix}-{i:05d}-of-{n_shards:05d}", first + i)


def globs_in(message: str) -> dict[str, int]:
    """The globs that a message lists, and how many files it says that each matches."""
    found = re.findall(r"'([^']*)' \(([0-9,]+) files?\)", message)
    return {pattern: int(count) for pattern, count in found}


WORDS = ("train", "test", "valid", "validation", "val", "dev", "eval")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("mnist-train.tfrecord", f"mnist-{word}.tfrecord") for word in WORDS[1:]),
        ("TRAIN", "Test"),
        ("data", "data_test"),
        ("a.train", "b.dev2"),
    ],
)
def test_a_directory_of_two_splits_is_refused(
    tmp_path: Path, one: str, other: str
) -> None:
    folder = tmp_path / "mnist [1]"
    shards(folder, one, 3)
    shards(folder, other, 1, first=100)
    for paths in (folder, [folder], folder.as_uri()):
        with pytest.raises(ValueError, match="split") as caught:
            open_dataset(paths)
    globs = globs_in(str(caught.value))
    assert sorted(globs.values()) == [1, 3]
    for pattern, count in globs.items():
        ds = open_dataset(pattern, features=SPEC)
        assert len(ds.files) == count
        assert all((n >= 100) == (count == 1) for n in numbers(ds))
    # What the caller names is the caller's word.
    assert len(open_dataset(sorted(folder.iterdir())).files) == 4
    assert len(open_dataset(list(globs)).files) == 4
    assert len(open_dataset(str(tmp_path / "*" / "*")).files) == 4
    with pytest.raises(ValueError, match="split"):
        next(fr.read_records(folder))
    assert len(fr.build_index(folder)) == 4, "each file is indexed alone"


@pytest.mark.parametrize(
    "names",
    [
        ["test-00000-of-00002", "test-00001-of-00002"],
        ["train_test_a-1.tfrecord", "train_test_a-02.tfrecord"],
        ["part-0-3fa9.tfrecord", "part-1-b20c.tfrecord", "part-2-7777.tfrecord"],
        ["latest-0.tfrecord", "latest-1.tfrecord"],
    ],
)
def test_names_that_differ_by_numbers_are_one_dataset(
    tmp_path: Path, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    for name in names:
        file_of(tmp_path / name, 1)
    assert len(open_dataset(tmp_path).files) == len(names)
    assert not caplog.records


def test_other_differences_in_names_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    shards(folder, "cats", 3)
    shards(folder, "contest", 2)
    assert len(open_dataset(folder).files) == 5
    (line,) = [record.getMessage() for record in caplog.records]
    assert globs_in(line) == {
        str(folder / "cats-*"): 3,
        str(folder / "contest-*"): 2,
    }
    caplog.clear()
    assert len(open_dataset(str(folder / "*")).files) == 5
    assert not caplog.records, "a glob is the caller's word"


def test_directories_below_are_searched(tmp_path: Path) -> None:
    files = [
        file_of(tmp_path / name, n)
        for n, name in enumerate(("a[1]/x-0.tfrecord", "x-1.tfrecord", "z/y/x-2.gz"))
    ]
    for hidden in ("_temporary/0/x-3.tfrecord", ".staging/x-4.tfrecord", "_x.tfrecord"):
        file_of(tmp_path / hidden, 9)
    (tmp_path / "linked").symlink_to(tmp_path / "z")
    assert open_dataset(tmp_path).files == [*map(str, files)]
    file_of(tmp_path / "test" / "x-5.tfrecord", 5)
    file_of(tmp_path / "train" / "x-6.tfrecord", 6)
    with pytest.raises(ValueError, match="split"):
        open_dataset(tmp_path)


def test_a_partitioned_table_is_one_dataset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark writes directories key=value, the mark _SUCCESS, and checksums."""
    for n, country in enumerate(("FR", "US", "__HIVE_DEFAULT_PARTITION__")):
        folder = tmp_path / f"year=202{n}" / f"country={country}"
        file_of(folder / f"part-0000{n}-c000.tfrecord", n)
        (folder / f".part-0000{n}-c000.tfrecord.crc").write_bytes(b"crc\0" * 4)
    (tmp_path / "_SUCCESS").touch()
    assert numbers(open_dataset(tmp_path, features=SPEC)) == [0, 1, 2]
    assert not caplog.records
    file_of(tmp_path / "year=2024" / "country=US" / "split=test" / "part-0.tfrecord", 4)
    file_of(
        tmp_path / "year=2024" / "country=US" / "split=train" / "part-0.tfrecord", 5
    )
    with pytest.raises(ValueError, match="split"):
        open_dataset(tmp_path)


# What is refused.


def read(paths: Any, **options: Any) -> None:
    """Opening is lazy, so the first look counts as opening too."""
    ds = open_dataset(paths, features=SPEC, **options)
    len(ds)
    list(ds.loader(1))


def test_a_missing_file(folder: Path) -> None:
    missing = folder / "missing.tfrecord"
    for paths in (missing, str(missing), [folder / "a.tfrecord", missing]):
        with pytest.raises(FileNotFoundError) as caught:
            read(paths)
        assert caught.value.filename == str(missing)


def test_a_glob_that_matches_nothing(folder: Path) -> None:
    pattern = str(folder / "valid-*.tfrecord")
    with pytest.raises((FileNotFoundError, fr.Error), match=r"valid-\*"):
        read(pattern)


def test_an_empty_list() -> None:
    with pytest.raises((ValueError, FileNotFoundError), match="no"):
        read([])


@pytest.mark.parametrize("contents", [None, "notes.txt"])
def test_a_directory_without_tfrecords(tmp_path: Path, contents: str | None) -> None:
    empty = tmp_path / "barren"
    empty.mkdir()
    if contents:
        (empty / contents).write_text("nothing to see\n" * 10)
    with pytest.raises((FileNotFoundError, fr.Error), match="barren"):
        read(empty)


@pytest.mark.parametrize(
    "text", ["hello, world\n", '{"json": true, "lines": 1}\n', "x", "x,y,z\n" * 500]
)
@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_a_text_file(tmp_path: Path, text: str, io: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(fr.CorruptionError, match="TFRecord") as caught:
        read(path, io=io)
    assert "data.csv" in str(caught.value)


@pytest.mark.parametrize("name", ["data.gz", "data.tfrecord"])
@pytest.mark.parametrize(
    ("compress", "kind"), [(gzip.compress, "(?i)gzip"), (zlib.compress, "(?i)zlib")]
)
@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_a_compressed_file_opened_as_plain_names_its_compression(
    tmp_path: Path,
    name: str,
    compress: Callable[[bytes], bytes],
    kind: str,
    io: str,
) -> None:
    path = tmp_path / name
    path.write_bytes(compress(tfrecord_file([b"payload"] * 3)))
    with pytest.raises(fr.Error, match=kind) as caught:
        read(path, io=io, compression=None)
    assert name in str(caught.value)
    assert "checksum" not in caught.value.reason


@pytest.mark.parametrize(
    ("options", "error", "names_it"),
    [
        ({"io": "fast"}, ValueError, "io"),
        ({"io": 3}, (TypeError, ValueError), "io"),
        ({"compression": "brotli"}, ValueError, "compression"),
        ({"spec": {}}, TypeError, "spec"),
        ({"description": {}}, TypeError, "description"),
    ],
)
def test_invalid_options_are_refused(
    folder: Path,
    options: dict[str, object],
    error: type[Exception] | tuple[type[Exception], ...],
    names_it: str,
) -> None:
    with pytest.raises(error, match=names_it):
        open_dataset(folder, **options)


# Rows by number.


def test_rows_slices_and_index_arrays(folder: Path) -> None:
    ds = open_dataset(folder, features=SPEC)
    for index in range(-6, 6):
        assert ds[index]["n"] == index % 6
    for index in (6, -7, 10**12):
        with pytest.raises(IndexError, match="6"):
            ds[index]
    for s in (
        slice(None),
        slice(2, 5),
        slice(4, 100),
        slice(-2, None),
        slice(5, 1),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(4, 0, -3),
    ):
        assert ds[s]["n"].tolist() == list(range(6))[s]
    for chosen in ([3, 1, 2], [5, 5, 0, 5], [-1, 0, -6], [0], []):
        want = [i % 6 for i in chosen]
        assert ds[chosen]["n"].tolist() == want
        assert ds[np.array(chosen, np.int64)]["n"].tolist() == want
        assert ds[np.array(chosen, np.int16)]["n"].tolist() == want
    for chosen in ([6], [0, -7], [2**40]):
        with pytest.raises(IndexError, match="6"):
            ds[chosen]
    for wrong in ("n", 1.5, [0.5], None):
        with pytest.raises((TypeError, IndexError)):
            ds[wrong]


def test_a_numpy_integer_is_an_index(folder: Path) -> None:
    ds = open_dataset(folder, features=SPEC)
    assert ds[np.int32(-1)]["n"] == 5
    assert ds.records[np.int64(0)] == ds.records[0]


def test_a_row_is_row_0_of_its_slice(folder: Path) -> None:
    spec = {
        "n": fr.VarLen("uint16"),
        "m": fr.FixedLen((2,), "bytes", default=[b"", b"y"]),
    }
    ds = open_dataset(folder, features=spec)
    for i in range(6):
        assert_same({k: cell(v) for k, v in ds[i].items()}, rows(ds[i : i + 1])[0])


def test_head_and_iteration_give_rows(folder: Path) -> None:
    ds = open_dataset(folder, features=SPEC)
    assert [row["n"] for row in ds.head(4)] == [0, 1, 2, 3]
    assert [row["n"] for row in ds.head(100)] == list(range(6))
    assert ds.head(0) == []
    assert numbers(ds) == numbers(ds) == list(range(6)), "a data set is iterable again"


def test_slices_of_records_are_bytes_arrays(folder: Path) -> None:
    ds = open_dataset(folder)
    got = ds.records[1:5]
    assert isinstance(got, fr.BytesArray)
    assert got.tolist() == [ds.records[i] for i in range(1, 5)]
    assert type(ds.records[0]) is bytes
    assert ds.records[0] == example({b"n": ("int64", [0])})


def test_opening_reads_no_records(tmp_path: Path) -> None:
    path = tmp_path / "damaged.tfrecord"
    path.write_bytes(frame(b"good") + b"\0" * 40)
    ds = open_dataset(path)
    with pytest.raises(fr.CorruptionError, match="record 1"):
        len(ds)


def test_schema_returns_the_features_passed_to_open(folder: Path) -> None:
    assert dict(open_dataset(folder, features=SPEC).schema) == SPEC
