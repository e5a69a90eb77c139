"""Folders of images -> columns; the bytes are never re-encoded.

Images lie in folders of classes, ``DIR/class/name.jpg``, or directly in ``DIR``, which then
has no classes and no columns ``label`` and ``class``.

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
from fastrec.convert.source import Columns, Source, chosen
from fastrec.options import BATCH_BYTES
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
_COLUMNS_OF_CLASSES = ("label", "class")
# The decoded images of palettes have the channels of their colors.
_PALETTES = {"P": 3, "PA": 4}
_MOST_IMAGES = 4096  # of a batch

_log = logging.getLogger("fastrec")


class _ImageFile(NamedTuple):
    path: str
    class_name: str | None
    filename: str


class ImageSource(Source):
    """Folders of images in the order of their names, with or without classes.

    Parameters
    ----------
    directories : sequence of str
        Each contains one folder per class, and subfolders belong to the class; or each
        contains the images themselves. Where there are class folders with images, other
        images are left out. So are hidden files, and files without the suffix of an
        image; the log has their number.
    columns : sequence of str, optional
        Which of the columns, in this order.
    skips : bool, default False
        Whether to skip images that cannot be read, with a log line for each, instead of
        raising their error.

    Raises
    ------
    ValueError
        If a directory contains no image, or only some of the directories have classes.
    OSError
        If a directory cannot be read.
    """

    def __init__(
        self,
        directories: Sequence[str],
        columns: Sequence[str] | None = None,
        *,
        skips: bool = False,
    ) -> None:
        super().__init__()
        self._skips = skips
        self._files: list[_ImageFile] = []
        left_out: list[str] = []
        for directory in directories:
            found = _images_in(directory, left_out)
            if not found:
                raise ValueError(
                    f"{printable(directory)}: cannot find an image; images are expected "
                    "as DIR/class/name.jpg or DIR/name.jpg"
                )
            self._files += found
        examples = {file.class_name is not None: file.path for file in self._files}
        if len(examples) > 1:
            raise ValueError(
                "directories must all have class folders, or none of them, got "
                f"{examples[True]} and {examples[False]}"
            )
        there = [
            (name, name)
            for name in _COLUMNS
            if True in examples or name not in _COLUMNS_OF_CLASSES
        ]
        self._names = list(chosen(columns, there))
        if left_out:
            _log.warning(
                "left out %d files without the suffix of an image or outside of class "
                "folders, such as %s",
                len(left_out),
                printable(left_out[0]),
            )
        names = sorted(
            {file.class_name for file in self._files if file.class_name is not None},
            key=os.fsencode,
        )
        self._labels = {name: label for label, name in enumerate(names)}
        self.n_total = len(self._files)

    @property
    def classes(self) -> list[str]:
        """The names of the classes; a label is an index of this list. May be empty."""
        return list(self._labels)

    def _batches(self) -> Iterator[Columns]:
        n_bytes = 0
        rows: list[dict[str, int | bytes]] = []
        for n_read, file in enumerate(self._files, 1):
            try:
                row = self._row(file)
            except (fr.CorruptionError, OSError) as error:
                if not self._skips:
                    raise
                self.n_skipped += 1
                _log.warning("skipped an image: %s", error)
                continue
            rows.append(row)
            n_bytes += len(row["image"])  # type: ignore[arg-type]
            if n_bytes >= BATCH_BYTES or len(rows) == _MOST_IMAGES:
                yield self._columns(rows)
                self.n_done = n_read
                rows, n_bytes = [], 0
        if self.n_skipped == self.n_total:
            raise fr.Error(f"none of {self.n_total} images can be read")
        if rows:
            yield self._columns(rows)
        self.n_done = self.n_total

    def _row(self, file: _ImageFile) -> dict[str, int | bytes]:
        data = Path(file.path).read_bytes()
        # Pillow raises many kinds of errors for files that are not images.
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
        of_class: dict[str, int | bytes] = {}
        if file.class_name is not None:
            of_class["label"] = self._labels[file.class_name]
            of_class["class"] = os.fsencode(file.class_name)
        return {
            "image": data,
            "height": height,
            "width": width,
            "depth": depth,
            "format": format_name.encode(),
            "filename": os.fsencode(file.filename),
            **of_class,
        }

    def _columns(self, rows: list[dict[str, int | bytes]]) -> Columns:
        return {
            name: np.array([row[name] for row in rows], np.int64)
            if name in _NUMBERS
            else fr.BytesArray.from_list([row[name] for row in rows])
            for name in self._names
        }


def _images_in(directory: str, left_out: list[str]) -> list[_ImageFile]:
    """Return the images of all classes, or those in a directory without classes.

    The other files are added to `left_out`.
    """

    def raised(error: OSError) -> None:
        raise error

    of_classes: list[_ImageFile] = []
    flat: list[_ImageFile] = []
    for here, inner, names in os.walk(directory, onerror=raised):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        below = Path(here).relative_to(directory).parts
        for name in sorted(names):
            if name.startswith("."):
                continue
            path = Path(here, name)
            if path.suffix.lower() not in SUFFIXES:
                left_out.append(str(path))
            elif below:
                filename = "/".join([*below, name])
                of_classes.append(_ImageFile(str(path), below[0], filename))
            else:
                flat.append(_ImageFile(str(path), None, name))
    if not of_classes:
        return flat
    left_out += [file.path for file in flat]
    return of_classes


def _depth(image: Image.Image) -> int:
    if image.mode not in _PALETTES:
        return len(image.getbands())
    return 4 if "transparency" in image.info else _PALETTES[image.mode]
