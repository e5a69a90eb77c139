"""Decode JPEG files in the first epoch, and copy the pixels in the next ones.

usage: python examples/kept_images.py

Random crops run after the kept rows, so they differ in every epoch. Needs Pillow, and the
extra "image" to decode.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

import fastrec as fr

N_IMAGES, N_CLASSES = 400, 4
SIDE, CROP = 96, 80


def main() -> None:
    """Write JPEGs, and read three epochs through a directory of kept rows."""
    rng = np.random.default_rng(0)
    with fr.Writer("photos.tfrecord", overwrite=True) as writer:
        for i in range(N_IMAGES):
            writer.write({"image": jpeg(rng), "label": i % N_CLASSES})

    specs = {
        "image": fr.Image((SIDE, SIDE), fit="center_crop"),
        "label": fr.FixedLen((), "int64"),
    }
    ds = fr.open("photos.tfrecord", features=specs)
    labels = ds.column("label")  # decodes no image
    train, test = ds.cache("kept-photos").split([0.8, 0.2], stratify=labels)
    print("test images of each class:", *np.bincount(test.column("label")))

    out = {"image": fr.FixedLen((CROP, CROP, 3), "uint8")}
    train = train.with_transform(fr.per_row(crop, out=out))
    loader = train.loader(64, shuffle=True)
    for epoch in range(3):
        before = loader.stats
        for batch in loader:
            assert batch["image"].shape[1:] == (CROP, CROP, 3)  # train here
        done = loader.stats - before
        print(f"epoch {epoch}: {done.n_kept} of {done.n_records} rows were kept")


def crop(row: dict[str, Any], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Cut a square at a random place."""
    top, left = rng.integers(0, SIDE - CROP + 1, 2)
    image: npt.NDArray[np.uint8] = row["image"]
    return image[top : top + CROP, left : left + CROP]


def jpeg(rng: np.random.Generator) -> bytes:
    """Return a file with a smooth picture of random size."""
    colors = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
    width, height = rng.integers(120, 240, 2).tolist()
    file = io.BytesIO()
    colors.resize((width, height), Image.Resampling.BICUBIC).save(file, "jpeg")
    return file.getvalue()


if __name__ == "__main__":
    main()
