"""Write images as TFRecords, read them back, and show them on one sheet.

usage: python examples/show_images.py

A record has an image file and its height, width, depth and label, like those of the
guides. Writes images.png. Needs Pillow, and the extra "image" to decode.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import fastrec as fr

LABELS = ["disc", "square", "stripes"]
N_IMAGES = 24
SIDE = 96  # pixels of the squares of the sheet


def main() -> None:
    """Write a folder of JPEGs to a TFRecord file, and make a sheet of its records."""
    folder = Path("pictures")
    write_jpegs(folder)

    with fr.Writer("images.tfrecord", overwrite=True) as writer:
        for path in sorted(folder.rglob("*.jpg")):
            data = path.read_bytes()
            with Image.open(io.BytesIO(data)) as image:  # reads the header only
                writer.write(
                    {
                        "height": image.height,
                        "width": image.width,
                        "depth": len(image.getbands()),
                        "label": LABELS.index(path.parent.name),
                        "image_raw": data,
                    }
                )
    # `fastrec convert pictures -o images.tfrecord` does the same.

    ds = fr.open("images.tfrecord")
    row = ds[0]
    print(f"{row['height']} x {row['width']}, {LABELS[row['label']]}")
    print(ds.schema)  # suggests fr.Image

    # Decoded, scaled and cut to one size: a batch is one array.
    spec = {"image": fr.Image((SIDE, SIDE), fit="center_crop", key="image_raw")}
    images = fr.open("images.tfrecord", features=spec)[:]["image"]
    rows = images.reshape(-1, 6, SIDE, SIDE, 3)  # six in a row
    sheet = rows.swapaxes(1, 2).reshape(-1, 6 * SIDE, 3)
    Image.fromarray(sheet).save("images.png")
    print(f"images.png shows {len(images)} images")


def write_jpegs(folder: Path) -> None:
    """Write small pictures: one folder for each label."""
    rng = np.random.default_rng(0)
    for i in range(N_IMAGES):
        label = LABELS[i % len(LABELS)]
        width, height = rng.integers(80, 160, 2).tolist()
        back, front = (tuple(rng.integers(0, 256, 3).tolist()) for _ in range(2))
        image = Image.new("RGB", (width, height), back)
        draw = ImageDraw.Draw(image)
        box = (20, 20, width - 20, height - 20)
        if label == "disc":
            draw.ellipse(box, fill=front)
        elif label == "square":
            draw.rectangle(box, fill=front)
        else:
            for x in range(10, width, 20):
                draw.rectangle((x, 0, x + 9, height), fill=front)
        (folder / label).mkdir(parents=True, exist_ok=True)
        image.save(folder / label / f"{i:03d}.jpg", quality=90)


if __name__ == "__main__":
    main()
