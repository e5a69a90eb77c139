"""Read folders of images as columns, without re-encoding the images.

======== ======= =====================================================================
image    bytes   the file, unchanged
height   int64   pixels
width    int64   pixels
depth    int64   channels of the decoded image; for a palette, channels of its colors
format   bytes   Pillow's name of the format: ``JPEG``, ``PNG``
label    int64   index of the class among all classes, sorted by name
class    bytes   name of the class folder
filename bytes   path below the directory, separated by ``/``
======== ======= =====================================================================

Images are in class folders, ``DIR/class/name.jpg``, or directly in DIR; the latter have
no ``label`` or ``class``. The names of the columns follow TensorFlow's guide.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import PIL.Image

from fastrec.arrays.batch import BytesArray
from fastrec.convert.source import Columns, Source, selected
from fastrec.errors import CorruptionError, Error
from fastrec.options import BATCH_BYTES
from fastrec.printable import printable

_SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png"}
    | {".pnm", ".ppm", ".tif", ".tiff", ".webp"}
)
_COLUMNS = ("image", "height", "width", "depth", "format", "label", "class", "filename")
_MAX_IMAGES = 4096  # per batch

_log = logging.getLogger("fastrec")

# An image, and the parts of its path below the directory.
_Image: TypeAlias = tuple[Path, tuple[str, ...]]


def open_images(
    directories: Sequence[str], columns: Sequence[str] | None, *, skips: bool
) -> Source:
    """Open folders of images, sorted by name, with or without classes.

    If a directory has class folders, images outside the class folders are ignored.
    Hidden files and files without an image suffix are always ignored.
    """
    images = [image for folder in directories for image in _images_in(folder)]
    flat = [path for path, parts in images if len(parts) == 1]
    if flat and len(flat) < len(images):
        raise ValueError(
            "either all directories or none must have class folders, got images "
            f"without a class such as {printable(flat[0])}"
        )
    available = [c for c in _COLUMNS if not flat or c not in ("label", "class")]
    names = selected(columns, available)
    return Source(_batches(images, names, skips=skips), n_total=len(images))


def _batches(
    images: Sequence[_Image], names: Sequence[str], *, skips: bool
) -> Iterator[Columns]:
    classes = sorted({os.fsencode(parts[0]) for _, parts in images})
    labels = {name: label for label, name in enumerate(classes)}
    n_bytes = n_skipped = 0
    rows: list[dict[str, Any]] = []
    for path, parts in images:
        try:
            row = _row(path)
        except (CorruptionError, OSError) as error:
            if not skips:
                raise
            n_skipped += 1
            _log.warning("skipped an image: %s", error)
            continue
        folder = os.fsencode(parts[0])
        row |= {"class": folder, "label": labels[folder]}
        rows.append(row | {"filename": os.fsencode("/".join(parts))})
        n_bytes += len(row["image"])
        if n_bytes >= BATCH_BYTES or len(rows) == _MAX_IMAGES:
            yield _columns(rows, names)
            rows, n_bytes = [], 0
    if n_skipped == len(images):
        raise Error(f"cannot read any of {n_skipped} images")
    if rows:
        yield _columns(rows, names)


def _row(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    try:
        with PIL.Image.open(BytesIO(data)) as image:
            depth = len(image.getbands())
            if image.mode in ("P", "PA"):
                has_alpha = image.mode == "PA" or "transparency" in image.info
                depth = 4 if has_alpha else 3
            row = {"width": image.width, "height": image.height, "depth": depth}
            kind = (image.format or "").encode()
            image.verify()
    except Exception as error:  # Pillow raises many types
        is_unknown = isinstance(error, PIL.UnidentifiedImageError)
        reason = "unknown format" if is_unknown else error
        raise CorruptionError(f"cannot read the image: {reason}", str(path)) from error
    return row | {"format": kind, "image": data}


def _columns(rows: list[dict[str, Any]], names: Sequence[str]) -> Columns:
    columns = {name: [row[name] for row in rows] for name in names}
    return {
        name: BytesArray.from_list(values)
        if isinstance(values[0], bytes)
        else np.array(values, np.int64)
        for name, values in columns.items()
    }


def _images_in(directory: str) -> list[_Image]:
    def fail(error: OSError) -> None:
        raise error

    images: list[_Image] = []
    others: list[Path] = []
    for folder, folders, names in os.walk(directory, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in names if not name.startswith(".")):
            path = Path(folder, name)
            if path.suffix.lower() in _SUFFIXES:
                images.append((path, path.relative_to(directory).parts))
            else:
                others.append(path)
    of_classes = [image for image in images if len(image[1]) > 1]
    if of_classes:
        others += [path for path, parts in images if len(parts) == 1]
    if others:
        _log.warning(
            "ignored %d files that are not images or not in class folders, such as %s",
            *(len(others), printable(others[0])),
        )
    if not images:
        raise ValueError(
            f"{printable(directory)} must have images as DIR/class/name.jpg or "
            "DIR/name.jpg, got none"
        )
    return of_classes or images
