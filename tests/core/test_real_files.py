"""Files that nobody here wrote: every value against protobuf.

Goal
    Real data sets read as protobuf reads them. (Those that are compressed are read in
    test_streams.py and test_compressed.py.)
Method
    The files of the test data folder (skipped by name where it is not there), parsed by
    google.protobuf with a descriptor built here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr

pytest.importorskip("google.protobuf")

from columns import open_dataset
from oracle_protobuf import features_by_protobuf

SPEC = {
    "image_class": fr.FixedLen((), "int64"),
    "image_floats": fr.FixedLen((784,), "float32"),
}


@pytest.fixture(scope="module")
def mnist(testdata: Path) -> Path:
    return testdata / "mnist-1000.tfrecord"


@pytest.fixture(scope="module")
def by_protobuf(mnist: Path) -> tuple[list[int], Any]:
    """Labels and images."""
    records = open_dataset(mnist).records
    parsed = [features_by_protobuf(records[i]) for i in range(1000)]
    labels = [features[b"image_class"] for features in parsed]
    images = [features[b"image_floats"] for features in parsed]
    assert all(label is not None and label[0] == "int64" for label in labels)
    return (
        [label[1][0] for label in labels if label],
        np.array([image[1] for image in images if image], np.float32),
    )


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("threads", [0, 2])
def test_every_record_of_mnist(
    mnist: Path, by_protobuf: tuple[list[int], Any], io: str, threads: int
) -> None:
    labels, images = by_protobuf
    ds = open_dataset(mnist, features=SPEC, io=io)
    assert len(ds) == 1000
    assert ds.nbytes == mnist.stat().st_size
    batches = list(ds.loader(64, num_threads=threads))
    assert (
        np.concatenate([batch["image_class"] for batch in batches]).tolist() == labels
    )
    got = np.concatenate([batch["image_floats"] for batch in batches])
    assert got.dtype == np.float32
    assert got.tobytes() == images.tobytes()


def test_rows_of_mnist_in_any_order(
    mnist: Path, by_protobuf: tuple[list[int], Any]
) -> None:
    labels, images = by_protobuf
    ds = open_dataset(mnist, features=SPEC)
    chosen = np.random.default_rng(0).permutation(1000)[:100].tolist()
    batch = ds[chosen]
    assert batch["image_class"].tolist() == [labels[i] for i in chosen]
    assert batch["image_floats"].tobytes() == images[chosen].tobytes()
    for i in chosen[:10]:
        assert ds[i]["image_class"] == labels[i]
        assert ds[i]["image_floats"].tobytes() == images[i].tobytes()


def test_the_schema_of_mnist_is_inferred(
    mnist: Path, by_protobuf: tuple[list[int], Any]
) -> None:
    ds = open_dataset(mnist)
    assert dict(ds.schema) == SPEC
    assert ds[999]["image_class"] == by_protobuf[0][999]
