"""The files that released versions wrote.

Goal
    A version reads the index, step counts, kept rows and states of each earlier version
    of the same major number, and delivers the same values.
Method
    tests/support/release_files.py wrote an archive with each version. The data is decoded
    again for comparison; later batches of a loader are in the archive.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped
from commands import run
from kept_rows import exactly
from release_files import (
    KEPT_RUNS,
    following,
    kept_datasets,
    kept_images,
    loaders,
    opened,
)

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Unpack what a version wrote; return the folder."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_this_minor_version_has_an_archive() -> None:
    minor, _ = fr.__version__.rsplit(".", 1)
    assert f"{minor}.0.tar.xz" in [path.name for path in ARCHIVES]


def test_nothing_is_indexed_again(release: Path) -> None:
    out, _ = run("index", release / "data", "--next-to-data", "--json")
    found = json.loads(out)
    assert (found["n_bytes_indexed"], found["n_records"]) == (0, 3 * 37)
    for ds in (opened(release), opened(release, "zipped-*.tfrecord.gz")):
        assert len(ds) == 37


def test_step_counts_are_used(release: Path) -> None:
    [path] = (release / "index").glob("*.counts.npy")
    counts = np.load(path)
    assert counts.tolist() == [n % 5 for n in range(37)]
    assert len(opened(release).steps({"tokens": 0})) == counts.sum()
    np.save(path, counts // 2)  # without them, fastrec would count again
    assert len(opened(release).steps({"tokens": 0})) == (counts // 2).sum()


def is_kept(ds: Untyped, directory: Path) -> bool:
    """Return whether a directory has all rows of a dataset, and they are equal."""
    loader = ds.cache(directory).loader(8, **KEPT_RUNS)
    return bool(
        exactly(loader) == exactly(ds.loader(8, **KEPT_RUNS))
        and loader.stats.n_kept == len(ds)
    )


def test_kept_rows_are_used(release: Path) -> None:
    for name, ds in kept_datasets(release).items():
        assert is_kept(ds, release / f"kept-{name}"), name


def test_kept_images_are_used(release: Path) -> None:
    pytest.importorskip("cv2")
    assert is_kept(kept_images(release), release / "kept-images")


def test_loaders_continue_from_a_state(release: Path) -> None:
    saved = json.loads((release / "states.json").read_text())
    for name, loader in loaders(release).items():
        loader.load_state_dict(saved[name]["state"])
        assert loader.state_dict() == saved[name]["state"], name
        assert following(loader.repeat()) == saved[name]["batches"], name
