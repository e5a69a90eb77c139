"""Convert Fashion-MNIST from IDX files to TFRecord shards, and train a classifier.

usage: python examples/fashion_mnist.py [DIR] [--out DIR] [--records N]

DIR has the four downloaded files of Fashion-MNIST or MNIST. Without it, the example
writes synthetic images of garments as such files first. It needs only fastrec and
NumPy.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastrec as fr
from fastrec.cli.garments import Softmax, pictures  # of `fastrec demo`

N_EPOCHS = 2
BATCH_SIZE = 256
FEATURES = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}


def main() -> None:
    """Convert files, read them, and train on them."""
    arguments = argparse.ArgumentParser(description="train on Fashion-MNIST")
    arguments.add_argument(
        "dir", nargs="?", type=Path, help="directory of the IDX files"
    )
    arguments.add_argument("--out", type=Path, default=Path("fashion-mnist"))
    arguments.add_argument(
        "--records", type=int, default=60_000, help="synthetic records"
    )
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    folder = given.dir or write_synthetic(given.out, given.records)

    # IDX files -> shards of images and labels.
    shards = write_shards(folder, given.out)
    for name, paths in shards.items():
        print(f"{name}: {len(paths)} files, such as {paths[0]}")

    # Shards -> batches. The spec decodes byte strings to arrays.
    train = fr.open(shards["train"], features=FEATURES)
    test = fr.open(shards["test"], features=FEATURES)
    print(f"{len(train):,} training records, {len(test):,} test records")

    # Batches -> a model. Each epoch is a new shuffle of all records.
    model = Softmax(28 * 28, 10)
    loader = train.loader(BATCH_SIZE, shuffle=True, seed=0)
    for epoch in range(1, N_EPOCHS + 1):
        start = time.perf_counter()
        losses = [model.train(pixels(batch), batch["label"]) for batch in loader]
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}, {seconds:.2f} s")

    n_right = sum(
        np.count_nonzero(model.predict(pixels(batch)) == batch["label"])
        for batch in test.loader(BATCH_SIZE)
    )
    print(f"accuracy on the test records: {n_right / len(test):.1%}")


def write_shards(folder: Path, out: Path) -> dict[str, list[str]]:
    """Write the IDX files of a folder as TFRecord files; return their paths."""
    shards = {}
    for name, prefix in [("train", "train"), ("test", "t10k")]:
        shards[name] = fr.write(
            out / (name + "-{shard:05d}-of-{num_shards:05d}.tfrecord"),
            {
                "image": read_idx(idx_file(folder, prefix, "images")),
                "label": read_idx(idx_file(folder, prefix, "labels")),
            },
            features=FEATURES,
            num_shards=4,
            overwrite=True,
        )
    return shards


def files(out: Path = Path("fashion-mnist"), n_records: int = 12_000) -> list[str]:
    """Return the patterns of training and test files; without files, write some."""
    if not list(out.glob("train-*.tfrecord")):
        out.mkdir(exist_ok=True)
        write_shards(write_synthetic(out, n_records), out)
    return [f"{out}/train-*.tfrecord", f"{out}/test-*.tfrecord"]


def pixels(batch: dict[str, Any]) -> NDArray[np.uint8]:
    """Return the images of a batch as rows: shape ``(batch, 28 * 28)``."""
    images: NDArray[np.uint8] = batch["image"]
    return images.reshape(-1, 28 * 28)


def idx_file(folder: Path, prefix: str, what: str) -> Path:
    """Return the file of images or labels in a folder, gzipped or not."""
    found = sorted(folder.glob(f"{prefix}-{what}[-.]idx?-ubyte*"))
    if not found:
        raise SystemExit(f"{folder} has no file {prefix}-{what}-idx*-ubyte.gz")
    return found[0]


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array of an IDX file of bytes: magic, sizes, values."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        data = file.read()
    if data[:3] != b"\0\0\x08":
        raise SystemExit(f"{path} must be an IDX file of bytes, got {data[:3]!r}")
    shape = np.frombuffer(data, ">u4", data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def write_synthetic(folder: Path, n_records: int) -> Path:
    """Write synthetic images as the files of Fashion-MNIST; return the folder."""
    folder = folder / "idx"
    folder.mkdir(exist_ok=True)
    for prefix, count, seed in [("train", n_records, 0), ("t10k", n_records // 6, 1)]:
        images, labels = pictures(count, seed)
        write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", labels.astype(np.uint8))
    return folder


def write_idx(path: Path, array: NDArray[np.uint8]) -> None:
    """Write an array of bytes as a gzipped IDX file: magic, sizes, values."""
    header = bytes([0, 0, 0x08, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header + array.tobytes())


if __name__ == "__main__":
    main()
