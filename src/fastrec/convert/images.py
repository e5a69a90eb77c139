"""Folders of images -> columns, without re-encoding the images.

======== ======= =====================================================================
image    bytes   the file, unchanged
height   int64   pixels
width    int64   pixels
depth    int64   channels of the decoded image; with a palette, those of its colors
format   bytes   Pillow's name of the format: ``JPEG``, ``PNG``
label    int64   index of the class among all classes, sorted by name
class    bytes   name of the class folder
filename bytes   path below the directory, with ``/``
======== ======= =====================================================================

Images are in class folders, ``DIR/class/name.jpg``, or directly in the directory; then
``label`` and ``class`` are omitted. The column names follow TensorFlow's guide.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from fastrec.arrays.batch import BytesArray
from fastrec.convert.source import Columns, Source, select_columns
from fastrec.errors import CorruptionError, Error
from fastrec.options import BATCH_BYTES
from fastrec.printable import printable

_SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"}
    | {".avif", ".jp2", ".tif", ".tiff", ".webp"}
)
_COLUMNS = ("image", "height", "width", "depth", "format", "label", "class", "filename")
_MAX_IMAGES = 4096  # per batch

_log = logging.getLogger("fastrec")


class ImageSource(Source):
    """Folders of images, sorted by name, with or without class folders.

    If a directory has class folders, images outside of them are ignored, like hidden
    files and files without an image suffix.
    """

    def __init__(
        self, directories: Sequence[str], columns: Sequence[str] | None, *, skips: bool
    ) -> None:
        super().__init__()
        self._skips = skips
        self._files: list[tuple[Path, tuple[str, ...]]] = []
        for directory in directories:
            self._files += _images_in(directory)
        flat = [path for path, parts in self._files if len(parts) == 1]
        if flat and len(flat) < len(self._files):
            raise ValueError(
                "either all directories or none must have class folders, got images "
                f"without a class such as {printable(flat[0])}"
            )
        names = [c for c in _COLUMNS if not flat or c not in ("label", "class")]
        self._names = list(select_columns(columns, [(name, name) for name in names]))
        classes = {parts[0] for _, parts in self._files}
        self._classes = sorted(map(os.fsencode, classes))
        self.n_total = len(self._files)

    def _batches(self) -> Iterator[Columns]:
        labels = {name: label for label, name in enumerate(self._classes)}
        n_bytes = 0
        rows: list[dict[str, Any]] = []
        for path, parts in self._files:
            try:
                row = _row(path, [os.fsencode(part) for part in parts], labels)
            except (CorruptionError, OSError) as error:
                if not self._skips:
                    raise
                self.n_skipped += 1
                _log.warning("skipped an image: %s", error)
                continue
            rows.append(row)
            n_bytes += len(row["image"])
            if n_bytes >= BATCH_BYTES or len(rows) == _MAX_IMAGES:
                yield self._columns(rows)
                rows, n_bytes = [], 0
        if self.n_skipped == self.n_total:
            raise Error(f"cannot read any of {self.n_total} images")
        if rows:
            yield self._columns(rows)

    def _columns(self, rows: list[dict[str, Any]]) -> Columns:
        columns = {name: [row[name] for row in rows] for name in self._names}
        return {
            name: BytesArray.from_list(values)
            if isinstance(values[0], bytes)
            else np.array(values, np.int64)
            for name, values in columns.items()
        }


def _images_in(directory: str) -> list[tuple[Path, tuple[str, ...]]]:
    """Return the images of a directory, each with the parts of its path below it."""

    def fail(error: OSError) -> None:
        raise error

    images: list[tuple[Path, tuple[str, ...]]] = []
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


def _row(path: Path, parts: list[bytes], labels: dict[bytes, int]) -> dict[str, Any]:
    data = path.read_bytes()
    try:
        with Image.open(BytesIO(data)) as image:
            row = {"width": image.width, "height": image.height, "depth": _depth(image)}
            row["format"] = (image.format or "").encode()
            image.verify()
    except Exception as error:  # Pillow raises errors of many kinds
        is_unknown = isinstance(error, UnidentifiedImageError)
        raise CorruptionError(
            f"cannot read the image: {'unknown format' if is_unknown else error}",
            str(path),
        ) from error
    row |= {"image": data, "filename": b"/".join(parts)}
    return row | {"class": parts[0], "label": labels[parts[0]]}


def _depth(image: Image.Image) -> int:
    if image.mode in ("P", "PA"):
        return 4 if image.mode == "PA" or "transparency" in image.info else 3
    return len(image.getbands())
