"""Datasets of many files: one index file for all, and no work per file before a batch.

Goal
    The first batch looks at the first files only. An index file serves all files of a
    directory, any part of them, and a copy of them; only files that it does not have are
    scanned. Files that differ from the sample that was looked at are an error.
Method
    After indexing, the data files are overwritten by noise of the same size and time, so
    that a scan would raise: what still works did not read them. Where an index is
    compared with sampled records, only the first record, which is not sampled, is noise.
    Files that must not be opened are deleted.
"""

from __future__ import annotations

import gzip
import os
import pickle
import random
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from fastrec import _core
from oracle import example, tfrecord_file

MANY = 1500  # files: more than are all looked at
SPEC = {"n": fr.FixedLen((), "int64")}


def content(number: int, n_records: int = 2) -> bytes:
    return tfrecord_file(
        example({b"n": ("int64", [number * 100 + i])}) for i in range(n_records)
    )


def write_files(
    folder: Path, n: int, suffix: str = ".tfrecord", n_records: int = 2
) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{i:05d}{suffix}" for i in range(n)]
    for i, path in enumerate(paths):
        path.write_bytes(content(i, n_records))
    return paths


def spoil(path: Path, n_bytes: int | None = None) -> None:
    """Overwrite a file, or its first bytes, by noise; keep its size and time."""
    before = path.stat()
    noise = random.Random(0).randbytes(before.st_size)[:n_bytes]
    path.write_bytes(noise + path.read_bytes()[len(noise) :])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def numbers_in(ds: fr.Dataset) -> list[int]:
    return [int(n) for batch in ds.loader(7) for n in batch["n"]]


def index_files(folder: Path) -> list[str]:
    if not folder.exists():
        return []
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "index"


# Before the first batch.


def test_the_first_batch_opens_the_first_files_only(tmp_path: Path) -> None:
    paths = write_files(tmp_path / "data", MANY)
    ds = fr.open(tmp_path / "data", features=SPEC, compression=None)
    for path in paths[100:]:
        path.unlink()
    batches = iter(ds.loader(4, num_threads=0))
    assert next(batches)["n"].tolist() == [0, 1, 100, 101]


def test_detection_opens_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_looked_at = 0
    recognize = _core.recognize_files

    def counting(paths: bytes, n_threads: int) -> np.ndarray:
        nonlocal n_looked_at
        n_looked_at += paths.count(b"\0") + 1
        return recognize(paths, n_threads)

    monkeypatch.setattr(_core, "recognize_files", counting)
    write_files(tmp_path / "data", MANY)
    assert next(iter(fr.open(tmp_path / "data", features=SPEC).loader(2)))
    assert 0 < n_looked_at <= 64
    few = write_files(tmp_path / "few", 100)
    assert not fr.open(few, features=SPEC).is_streamed
    assert n_looked_at <= 64 + 100


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("on_error", ["raise", "skip", "resync", "mask"])
def test_a_compressed_file_outside_of_the_sample_is_an_error(
    tmp_path: Path, compress: object, on_error: fr.on_error.ErrorPolicy
) -> None:
    assert callable(compress)
    paths = write_files(tmp_path / "data", MANY)
    paths[1].write_bytes(compress(content(1)))
    ds = fr.open(tmp_path / "data", features=SPEC, on_error=on_error)
    with pytest.raises(fr.Error, match=r"00001\.tfrecord") as caught:
        numbers_in(ds)
    assert caught.value.code == "compressed"
    with pytest.raises(fr.Error, match=r"00001\.tfrecord") as caught:
        len(ds)
    assert caught.value.code == "compressed"


def test_an_index_of_all_files_replaces_the_sample(tmp_path: Path) -> None:
    """`fastrec.build_index` looks at each file."""
    paths = write_files(tmp_path / "data", MANY)
    paths[1].write_bytes(gzip.compress(content(1)))
    counts = fr.build_index(tmp_path / "data")
    assert sum(counts.values()) == 2 * MANY
    ds = fr.open(tmp_path / "data", features=SPEC)
    assert ds.is_streamed
    assert len(ds) == 2 * MANY
    assert numbers_in(ds)[:6] == [0, 1, 100, 101, 200, 201]


@pytest.mark.parametrize("suffix", [".tfrecord", ".tfrecord.gz"])
def test_a_plain_file_outside_of_a_compressed_sample_is_read(
    tmp_path: Path, suffix: str
) -> None:
    paths = write_files(tmp_path / "data", MANY, suffix)
    expected = numbers_in(fr.open(paths, features=SPEC, compression=None))
    for path in paths:
        path.write_bytes(gzip.compress(path.read_bytes(), 1))
    paths[1].write_bytes(content(1))
    ds = fr.open(tmp_path / "data", features=SPEC)
    assert ds.is_streamed
    assert numbers_in(ds) == expected
    assert len(ds) == 2 * MANY
    assert len(index_files(tmp_path / "cache" / "index")) == 1


# The index file.


def test_an_index_file_is_small_and_serves_all_files(
    tmp_path: Path, cache: Path
) -> None:
    paths = write_files(tmp_path / "data", MANY)
    assert len(fr.open(tmp_path / "data")) == 2 * MANY
    (name,) = index_files(cache)
    assert (cache / name).stat().st_size <= MANY * (64 + 2 * 10)
    for path in paths:
        spoil(path)
    ds = fr.open(str(tmp_path / "data" / "*.tfrecord"), features=SPEC)
    assert len(ds) == 2 * MANY
    with pytest.raises(fr.CorruptionError, match=r"00007\.tfrecord"):
        ds[14]


@pytest.fixture(params=["one", "few"])
def n_few(request: pytest.FixtureRequest) -> int:
    return 1 if request.param == "one" else 3


def test_a_part_of_the_files_uses_the_index_of_all(
    tmp_path: Path, cache: Path, n_few: int
) -> None:
    paths = write_files(tmp_path / "data", 20)
    fr.build_index(tmp_path / "data")
    for path in paths:
        spoil(path)
    assert len(fr.open(paths[5 : 5 + n_few])) == 2 * n_few
    assert len(index_files(cache)) == 1


def test_a_directory_uses_the_index_of_those_above(tmp_path: Path, cache: Path) -> None:
    parts = [write_files(tmp_path / "data" / name, 5) for name in ("a", "b/c")]
    fr.build_index([path for part in parts for path in part])
    for part in parts:
        for path in part:
            spoil(path)
    assert len(fr.open(tmp_path / "data" / "a")) == 10
    assert len(fr.open(tmp_path / "data" / "b" / "c")) == 10
    assert len(fr.open([parts[1][2]])) == 2
    assert len(index_files(cache)) == 1


def test_only_new_and_changed_files_are_scanned(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "data"
    paths = write_files(folder, 20, n_records=5)
    fr.build_index(folder)
    (name,) = index_files(cache)
    before = (cache / name).stat().st_size
    for path in paths:
        spoil(path, 12)
    (folder / "new.tfrecord").write_bytes(content(50, 5))
    paths[3].write_bytes(content(3, 7))
    paths[4].unlink()
    assert len(fr.open(folder)) == 18 * 5 + 5 + 7
    assert fr.build_index(folder)[str(paths[3])] == 7
    assert index_files(cache) == [name]
    for path in paths[6:]:
        path.unlink()
    (folder / "newer.tfrecord").write_bytes(content(51, 1))
    assert len(fr.open(folder)) == 4 * 5 + 7 + 5 + 1
    assert (cache / name).stat().st_size < before, "entries of deleted files remain"


def test_two_datasets_in_a_directory_share_its_index_file(
    tmp_path: Path, cache: Path
) -> None:
    paths = write_files(tmp_path / "data", 20)
    assert len(fr.open(paths[:10])) == 20
    assert len(fr.open(paths[10:])) == 20
    assert len(index_files(cache)) == 1
    for path in paths:
        spoil(path)
    assert len(fr.open(paths[5:15])) == 20


def test_indexes_of_single_files_are_merged(tmp_path: Path, cache: Path) -> None:
    paths = write_files(tmp_path / "data", 20)
    for path in paths:
        assert len(fr.open(path)) == 2
    assert len(index_files(cache)) == 20
    for path in paths:
        spoil(path)
    assert len(fr.open(paths)) == 40
    assert len(index_files(cache)) == 1
    assert len(fr.open(paths)) == 40


def test_machines_build_parts_of_an_index(tmp_path: Path) -> None:
    index_dir = tmp_path / "shared"
    paths = write_files(tmp_path / "data", 20)
    for rank in range(3):
        counts = fr.build_index(
            tmp_path / "data", index_dir=index_dir, rank=rank, world_size=3
        )
        assert counts == {str(path): 2 for path in paths[rank::3]}
    assert len(index_files(index_dir)) == 3
    for path in paths:
        spoil(path)
    assert len(fr.open(paths[4], index_dir=index_dir)) == 2
    assert len(fr.open(paths, index_dir=index_dir)) == 40
    assert len(index_files(index_dir)) == 1
    assert len(fr.open(paths, index_dir=index_dir)) == 40


def test_an_index_next_to_the_data_may_be_copied_with_it(
    tmp_path: Path, cache: Path
) -> None:
    data = tmp_path / "data"
    paths = [
        path for name in "ab" for path in write_files(data / name, 10, n_records=5)
    ]
    fr.build_index(paths, next_to_data=True)
    assert not index_files(cache)
    assert index_files(data / ".fastrec") == ["index.frecidx"]
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    for path in copy.rglob("*.tfrecord"):
        spoil(path, 12)
        path.touch()
    assert len(fr.open(copy / "a")) == 50
    assert len(fr.open(str(copy / "**" / "*.tfrecord"))) == 100
    assert len(fr.open(copy / "b" / "00003.tfrecord")) == 5
    (copy / "b" / "00003.tfrecord").write_bytes(content(3, 9))
    assert len(fr.open(copy / "b")) == 45 + 9
    assert fr.open(data / "a", features=SPEC)[8]["n"] == 103


def test_options_that_exclude_each_other(tmp_path: Path) -> None:
    write_files(tmp_path / "data", 2)
    with pytest.raises(ValueError, match="next_to_data"):
        fr.build_index(tmp_path / "data", next_to_data=True, index_dir=tmp_path)
    with pytest.raises(ValueError, match="next_to_data"):
        fr.build_index(tmp_path / "data", next_to_data=True, world_size=2)


def test_a_damaged_file_does_not_discard_the_indexes_of_others(
    tmp_path: Path,
) -> None:
    paths = write_files(tmp_path / "data", 20)
    *others, last = paths  # its error cancels no scan of another file
    whole = last.read_bytes()
    last.write_bytes(whole[:-1])
    for _ in range(2):
        with pytest.raises(fr.CorruptionError, match="00019"):
            len(fr.open(paths))
    last.write_bytes(whole)
    for path in others:
        spoil(path)
    assert len(fr.open(paths)) == 40


def test_an_altered_index_file_is_never_believed(tmp_path: Path, cache: Path) -> None:
    paths = write_files(tmp_path / "data", 8)
    expected = numbers_in(fr.open(paths, features=SPEC))
    assert len(fr.open(paths)) == len(expected)
    (name,) = index_files(cache)
    good = (cache / name).read_bytes()
    rng = random.Random(5)
    for _ in range(300):
        altered = bytearray(good)
        altered[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        (cache / name).write_bytes(altered)
        ds = fr.open(paths, features=SPEC)
        assert len(ds) == len(expected)
        assert ds[:]["n"].tolist() == expected
        assert (cache / name).read_bytes() == good


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_file_that_is_listed_twice(tmp_path: Path, is_compressed: bool) -> None:
    a, b = write_files(tmp_path / "data", 2)
    if is_compressed:
        a.write_bytes(gzip.compress(a.read_bytes()))
    ds = fr.open([a, b, a, a], features=SPEC)
    assert len(ds) == 8
    assert numbers_in(ds) == [0, 1, 100, 101, 0, 1, 0, 1]


# Datasets.


def test_a_pickle_of_many_files_is_small(tmp_path: Path) -> None:
    write_files(tmp_path / "data", MANY)
    ds = fr.open(tmp_path / "data", features=SPEC)
    assert len(ds) == 2 * MANY
    pickled = pickle.dumps(ds)
    assert len(pickled) < 10 * MANY
    copy = pickle.loads(pickled)
    assert copy.files == ds.files
    assert copy[-1]["n"] == ds[-1]["n"]
    strange = tmp_path / os.fsdecode(b"\xff\n data")
    write_files(strange, 1)
    assert pickle.loads(pickle.dumps(fr.open(strange, features=SPEC)))[1]["n"] == 1


def n_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="/proc")
def test_shuffled_records_of_many_files_keep_few_of_them_open(tmp_path: Path) -> None:
    """More files than a process may map or open."""
    n = 5000
    write_files(tmp_path / "data", n)
    ds = fr.open(tmp_path / "data", features=SPEC)
    before = n_descriptors()
    found: list[int] = []
    n_most = 0
    for batch in ds.loader(500, shuffle=True, num_threads=2):
        found += batch["n"].tolist()
        n_most = max(n_most, n_descriptors() - before)
    assert sorted(found) == [i * 100 + k for i in range(n) for k in range(2)]
    assert n_most <= 64


def test_a_link_to_a_file_of_the_directory_is_skipped(tmp_path: Path) -> None:
    paths = write_files(tmp_path / "data", 3)
    (tmp_path / "data" / "link.tfrecord").symlink_to(paths[0])
    os.link(paths[1], tmp_path / "data" / "hard.tfrecord")
    for form in (tmp_path / "data", str(tmp_path / "data" / "*.tfrecord")):
        ds = fr.open(form, features=SPEC)
        assert sorted(numbers_in(ds)) == [0, 1, 100, 101, 200, 201]
