"""Folders of images, ``DIR/class/name.jpg`` -> columns; the bytes are never re-encoded.

======== ======= =====================================================================
image    bytes   the file as it is
height   int64   pixels
width    int64   pixels
depth    int64   channels of the decoded image: of a palette, those of its colors
format   bytes   as Pillow names it: ``JPEG``, ``PNG``
label    int64   index of the class among all classes, sorted by name
class    bytes   the name of its folder
filename bytes   path below DIR, with ``/``
======== ======= =====================================================================

``height``, ``width``, ``depth`` and ``label`` are the names in TensorFlow's guide
"TFRecord and tf.train.Example"; its ``image_raw`` is ``image`` here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

import fastrec as fr
from fastrec.batch_size import BATCH_BYTES
from fastrec.convert.source import Columns, Source, chosen
from fastrec.printable import printable

__all__ = ["ImageSource"]

SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"}
    | {".avif", ".jp2", ".tif", ".tiff", ".webp"}
)
_NUMBERS = ("height", "width", "depth", "label")
_STRINGS = ("image", "format", "class", "filename")
_COLUMNS = (
    *("image", "height", "width", "depth", "format"),
    *("label", "class", "filename"),
)
# The decoded images of palettes have the channels of their colors.
_PALETTES = {"P": 3, "PA": 4}
_MOST_IMAGES = 4096  # of a batch

_log = logging.getLogger("fastrec")


class _ImageFile(NamedTuple):
    path: str
    class_name: str
    filename: str


class ImageSource(Source):
    """Folders of images, one folder for each class, in the order of their names.

    Parameters
    ----------
    directories : sequence of str
        Each with the folders of the classes in it. Folders in these belong to the same
        class. Hidden files are left out, and those without the suffix of an image, of
        which the log says how many.
    columns : sequence of str, optional
        Which of the columns, in this order.

    Raises
    ------
    ValueError
        If there is no folder with an image in it.
    OSError
        If a directory cannot be read.
    """

    def __init__(
        self, directories: Sequence[str], columns: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self._names = list(chosen(columns, [(name, name) for name in _COLUMNS]))
        self._files: list[_ImageFile] = []
        left_out: list[str] = []
        for directory in directories:
            found = list(_images_in(directory, left_out))
            if not found:
                raise ValueError(
                    f"{printable(directory)}: there is no folder with an image in it; images are "
                    "expected as DIR/class/name.jpg"
                )
            self._files += found
        if left_out:
            _log.warning(
                "left out %d files that have no suffix of an image, such as %s",
                len(left_out),
                printable(left_out[0]),
            )
        names = sorted({file.class_name for file in self._files}, key=os.fsencode)
        self._labels = {name: label for label, name in enumerate(names)}
        self.n_total = len(self._files)

    @property
    def classes(self) -> list[str]:
        """The names of the classes; a label is an index of this list."""
        return list(self._labels)

    def _batches(self) -> Iterator[Columns]:
        n_bytes = 0
        rows: list[dict[str, int | bytes]] = []
        for file in self._files:
            row = self._row(file)
            rows.append(row)
            n_bytes += len(row["image"])  # type: ignore[arg-type]
            if n_bytes >= BATCH_BYTES or len(rows) == _MOST_IMAGES:
                yield self._columns(rows)
                self.n_done += len(rows)
                rows, n_bytes = [], 0
        if rows:
            yield self._columns(rows)
            self.n_done += len(rows)

    def _row(self, file: _ImageFile) -> dict[str, int | bytes]:
        data = Path(file.path).read_bytes()
        # Pillow has many kinds of errors for files that are no images.
        try:
            with Image.open(BytesIO(data)) as image:
                width, height = image.size
                depth = _depth(image)
                format_name = image.format or ""
                image.verify()
        except Exception as error:
            said = (
                "unknown format" if isinstance(error, UnidentifiedImageError) else error
            )
            reason = f"this image cannot be read: {said}"
            raise fr.CorruptionError(reason, file.path) from error
        return {
            "image": data,
            "height": height,
            "width": width,
            "depth": depth,
            "format": format_name.encode(),
            "label": self._labels[file.class_name],
            "class": os.fsencode(file.class_name),
            "filename": os.fsencode(file.filename),
        }

    def _columns(self, rows: list[dict[str, int | bytes]]) -> Columns:
        return {
            name: np.array([row[name] for row in rows], np.int64)
            if name in _NUMBERS
            else fr.BytesArray.from_list([row[name] for row in rows])
            for name in self._names
        }


def _images_in(directory: str, left_out: list[str]) -> Iterator[_ImageFile]:
    """Yield the images of all classes, and add what is none to `left_out`."""

    def raised(error: OSError) -> None:
        raise error

    for here, inner, names in os.walk(directory, onerror=raised):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        below = Path(here).relative_to(directory).parts
        for name in sorted(names):
            if name.startswith("."):
                continue
            path = Path(here, name)
            if below and path.suffix.lower() in SUFFIXES:
                yield _ImageFile(str(path), below[0], "/".join([*below, name]))
            else:
                left_out.append(str(path))


def _depth(image: Image.Image) -> int:
    if image.mode not in _PALETTES:
        return len(image.getbands())
    return 4 if "transparency" in image.info else _PALETTES[image.mode]
