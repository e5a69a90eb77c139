"""Shuffle records that hold only paths; read the images after the shuffle, in threads.

usage: python examples/paths_only.py

The first stage shuffles records of a few bytes. The second one opens the files of one
batch at a time. Needs Pillow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import fastrec as fr

FOLDER = Path("paths-only")
N_IMAGES = 600
SIZE = 48  # pixels


def main() -> None:
    """Write images and a file of their paths, and read batches of images."""
    write_images()
    paths = sorted(FOLDER.glob("*.png"))
    fr.write(
        FOLDER / "paths.tfrecord",
        {
            "path": [str(path) for path in paths],
            "label": [int(path.stem.partition("-")[0]) for path in paths],
        },
        overwrite=True,
    )

    ds = fr.open(FOLDER / "paths.tfrecord")
    loader = ds.loader(
        64,
        shuffle=True,
        seed=0,
        transform=fr.per_row(
            read_image,
            out={
                "image": fr.FixedLen((SIZE, SIZE, 3), "uint8"),
                "label": fr.FixedLen((), "int64"),
            },
        ),
        transform_threads=2,  # Pillow decodes without the GIL
    )
    n_images = 0
    for image, label in loader.tuples("image", "label"):
        n_images += len(image)
        # The shade of an image is its label, so that this example can check itself.
        assert np.array_equal(image[:, 0, 0, 0] // 20, label)
    print(f"{n_images} images, of shape {image.shape[1:]}, in {len(loader)} batches")
    print(loader.stats)


def read_image(row: dict[str, Any]) -> dict[str, Any]:
    """Return the image that a record names."""
    with Image.open(row["path"].decode()) as image:
        return {"image": np.asarray(image.convert("RGB")), "label": row["label"]}


def write_images() -> None:
    """Write the images: label-number.png."""
    FOLDER.mkdir(exist_ok=True)
    for i in range(N_IMAGES):
        label = i % 10
        image = np.full((SIZE, SIZE, 3), 20 * label, np.uint8)
        image[8:40, 8:40] = i % 256
        Image.fromarray(image).save(FOLDER / f"{label}-{i:04d}.png")


if __name__ == "__main__":
    main()
