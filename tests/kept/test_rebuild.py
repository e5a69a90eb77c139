"""A directory that is deleted or made again between the epochs of one loader.

Goal
    Epochs of a loader share open files, but a loader never reads or fills the files of a
    directory that was deleted, nor rows of another dataset.
Method
    The directory is deleted, or filled by another dataset, between two epochs.
"""

from __future__ import annotations

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
