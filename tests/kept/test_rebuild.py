"""A directory that is deleted or made again between the epochs of one loader.

Goal
    Epochs of a loader share open files, but a loader never reads or fills the files of a
    directory that was deleted, nor rows of another dataset.
Method
    The directory is deleted, or filled by another dataset, between two epochs.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr

N = 100
SPECS: dict[str, Any] = {"label": fr.FixedLen((), "int64")}


@pytest.fixture
def ds(tmp_path: Path) -> fr.Dataset:
    """Return a hundred numbered records."""
    fr.write(tmp_path / "rows.tfrecord", {"label": np.arange(N)}, features=SPECS)
    return fr.open(tmp_path / "rows.tfrecord", features=SPECS)


def n_kept(loader: fr.Loader) -> int:
    """Read an epoch; return how many of its rows were kept."""
    before = loader.stats
    labels = np.concatenate([batch["label"] for batch in loader])
    assert sorted(labels.tolist()) == [*range(N)]
    return (loader.stats - before).n_kept


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_deleted_directory_is_filled_again(
    ds: fr.Dataset, tmp_path: Path, num_threads: int
) -> None:
    directory = tmp_path / "kept"
    loader = ds.cache(directory).loader(16, shuffle=True, num_threads=num_threads)
    assert [n_kept(loader) for _ in range(3)] == [0, N, N]
    shutil.rmtree(directory)
    assert [n_kept(loader) for _ in range(2)] == [0, N]
    assert (directory / "kept.json").exists()


def test_a_directory_that_was_made_again_is_read(
    ds: fr.Dataset, tmp_path: Path
) -> None:
    directory = tmp_path / "kept"
    loader = ds.cache(directory).loader(16)
    assert n_kept(loader) == 0
    shutil.rmtree(directory)
    assert n_kept(ds.cache(directory).loader(16)) == 0
    np.load(directory / "rows.npy", mmap_mode="r+")["label"][3] = 7  # decoded again
    assert n_kept(loader) == N - 1


def test_rows_of_another_dataset_are_an_error(ds: fr.Dataset, tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    loader = ds.cache(directory).loader(16)
    assert n_kept(loader) == 0
    shutil.rmtree(directory)
    other = ds.with_transform(lambda batch: batch, cache_key="same-1")
    assert n_kept(other.cache(directory).loader(16)) == 0
    with pytest.raises(ValueError, match="transforms differ"):
        n_kept(loader)


def test_no_row_is_stored_in_a_directory_that_replaced_the_own_one(
    ds: fr.Dataset, tmp_path: Path
) -> None:
    directory = tmp_path / "kept"
    options: dict[str, Any] = {"num_threads": 0, "transform_threads": 0}
    next(iter(ds.cache(directory).loader(16, **options)))  # keeps the first rows
    again = fr.open(ds.files, features=SPECS).cache(directory)
    batches = iter(again.loader(16, **options))
    next(batches)  # opens the files, and stores nothing
    shutil.rmtree(directory)
    plus = ds.with_transform(lambda b: {"label": b["label"] + 1000}, cache_key="plus")
    other = plus.cache(directory)
    for _ in itertools.islice(other.loader(16, **options), 2):
        pass
    assert len([*batches]) == N // 16
    for _ in range(2):
        labels = [batch["label"] for batch in other.loader(16, **options)]
        np.testing.assert_array_equal(np.concatenate(labels), np.arange(N) + 1000)


def test_rows_are_those_of_the_files_and_not_of_their_copies(tmp_path: Path) -> None:
    path = tmp_path / "rows.tfrecord.gz"
    fr.write(path, {"label": np.arange(N)}, features=SPECS, compression="GZIP")
    for expected, copies in ((0, "one"), (N, "other")):
        ds = fr.open(path, features=SPECS, cache_dir=tmp_path / copies)
        assert n_kept(ds.cache(tmp_path / "kept").loader(16)) == expected


def test_selected_columns_are_the_same_in_every_epoch(tmp_path: Path) -> None:
    columns = {"a": np.arange(N), "b": -np.arange(N)}
    fr.write(tmp_path / "rows.tfrecord", columns)
    ds = fr.open(tmp_path / "rows.tfrecord", features=dict.fromkeys("ab", "int64"))
    cached = ds.with_transform(lambda b: b, cache_key="same").cache(tmp_path / "kept")
    loader = cached.select_columns(["b", "a"]).loader(16)
    wrong = cached.select_columns(["b", "c"]).loader(16)
    for _ in range(3):
        assert {tuple(batch) for batch in loader} == {("b", "a")}
        with pytest.raises(KeyError, match="'c'"):
            next(iter(wrong))


@pytest.mark.parametrize("how", ["replaced", "rewritten"])
def test_rows_of_changed_files_are_not_kept(tmp_path: Path, how: str) -> None:
    path, other = tmp_path / "rows.tfrecord", tmp_path / "other.tfrecord"
    fr.write(path, {"label": np.arange(N)}, features=SPECS)
    ds = fr.open(path, features=SPECS)
    cached = ds.cache(tmp_path / "kept")
    assert cached[7]["label"] == 7
    fr.write(other, {"label": np.arange(N)[::-1].copy()}, features=SPECS)
    if how == "replaced":
        other.replace(path)
    else:
        path.write_bytes(other.read_bytes())
    for i in (7, 9):
        with pytest.raises(fr.CorruptionError, match="changed after it was indexed"):
            cached[i]
    again = fr.open(path, features=SPECS).cache(tmp_path / "new")
    with pytest.raises(ValueError, match="keeps rows of another dataset"):
        fr.open(path, features=SPECS).cache(tmp_path / "kept")[7]
    assert again[7]["label"] == N - 8
