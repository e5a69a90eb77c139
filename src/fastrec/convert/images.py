"""Folders of images -> columns, without re-encoding the images, and back.

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

import errno
import logging
import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np

from fastrec.arrays.batch import BytesArray
from fastrec.convert.source import Columns, Source, selected
from fastrec.dataset.dataset import Dataset
from fastrec.dataset.open import open as open_dataset
from fastrec.display import image_format
from fastrec.errors import CorruptionError, Error, SchemaError
from fastrec.options import BATCH_BYTES, extra
from fastrec.printable import printable
from fastrec.storage.atomic import replacement
from fastrec.storage.parallel import Progress
from fastrec.storage.paths import Paths

# The suffixes of images, and those of formats that are recognized by their first bytes.
_READ = frozenset(
    {".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png"}
    | {".pnm", ".ppm", ".tif", ".tiff", ".webp"}
)
_WRITTEN = {"JPEG": ".jpg", "PNG": ".png", "GIF": ".gif", "WebP": ".webp"}
_COLUMNS = ("image", "height", "width", "depth", "format", "label", "class", "filename")
_MAX_IMAGES = 4096  # per batch
_WRITE_BATCH_SIZE = 64

_log = logging.getLogger("fastrec")

# An image, and the parts of its path below the directory.
_Image: TypeAlias = tuple[Path, tuple[str, ...]]


class ImageSource(Source):
    """Folders of images, sorted by name, with or without class folders.

    If a directory has class folders, images outside of them are ignored, like hidden
    files and files without an image suffix.
    """

    def __init__(
        self, directories: Sequence[str], columns: Sequence[str] | None, *, skips: bool
    ) -> None:
        super().__init__()
        with extra("image", "reading folders of images"):
            import PIL.Image
        self._open = PIL.Image.open
        self._skips = skips
        self._files = [image for folder in directories for image in _images_in(folder)]
        self.n_total = len(self._files)
        flat = [path for path, parts in self._files if len(parts) == 1]
        if flat and len(flat) < self.n_total:
            raise ValueError(
                "either all directories or none must have class folders, got images "
                f"without a class such as {printable(flat[0])}"
            )
        available = [c for c in _COLUMNS if not flat or c not in ("label", "class")]
        self._names = selected(columns, available)
        classes = sorted({os.fsencode(parts[0]) for _, parts in self._files})
        self._labels = {name: label for label, name in enumerate(classes)}

    def _batches(self) -> Iterator[Columns]:
        n_bytes = 0
        rows: list[dict[str, Any]] = []
        for image in self._files:
            try:
                rows.append(self._row(*image))
            except (CorruptionError, OSError) as error:
                if not self._skips:
                    raise
                self.n_skipped += 1
                _log.warning("skipped an image: %s", error)
                continue
            n_bytes += len(rows[-1]["image"])
            if n_bytes >= BATCH_BYTES or len(rows) == _MAX_IMAGES:
                yield self._columns(rows)
                rows, n_bytes = [], 0
        if self.n_skipped == self.n_total:
            raise Error(f"cannot read any of {self.n_total} images")
        if rows:
            yield self._columns(rows)

    def _row(self, path: Path, parts: tuple[str, ...]) -> dict[str, Any]:
        data = path.read_bytes()
        try:
            with self._open(BytesIO(data)) as image:
                depth = len(image.getbands())
                if image.mode in ("P", "PA"):
                    has_alpha = image.mode == "PA" or "transparency" in image.info
                    depth = 4 if has_alpha else 3
                row = {"width": image.width, "height": image.height, "depth": depth}
                row["format"] = (image.format or "").encode()
                image.verify()
        except Exception as error:  # Pillow raises errors of many kinds
            is_unknown = type(error).__name__ == "UnidentifiedImageError"
            reason = "unknown format" if is_unknown else error
            raise CorruptionError(
                f"cannot read the image: {reason}", str(path)
            ) from error
        folder = os.fsencode(parts[0])
        row |= {"class": folder, "label": self._labels[folder]}
        return row | {"image": data, "filename": os.fsencode("/".join(parts))}

    def _columns(self, rows: list[dict[str, Any]]) -> Columns:
        columns = {name: [row[name] for row in rows] for name in self._names}
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
            if path.suffix.lower() in _READ:
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


def write_images(
    dataset: Dataset | Paths,
    directory: str | os.PathLike[str],
    *,
    image: str = "image",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[str]:
    """Write the images of a dataset to a folder, without re-encoding them.

    Parameters
    ----------
    dataset : Dataset, or path-like, or iterable of path-like
        A dataset, or the first argument of `fastrec.open`. Its images are byte strings.
    directory : path-like
        Created if needed. An image is written to the path in the column ``filename``, as
        `write_tfrecords` stores it. Without this column, it is written to the number of
        its row with a suffix of its format, in a folder named like its ``class`` or
        ``label``, if the dataset has such a column.
    image : str, default "image"
        The column of the images.
    overwrite : bool, default False
        Replace existing files. They are not flushed to the disk: after a power cut, some
        may be incomplete.
    progress : callable, optional
        Called after each batch with the number of images written and their total, or 0
        if the total is unknown without reading the files.

    Returns
    -------
    list of str
        The paths of the files.

    Raises
    ------
    KeyError
        If the dataset has no column `image`.
    SchemaError
        If a row has not one byte string, an unknown format, or a file name that leads
        out of `directory`.
    FileExistsError
        If a file exists and `overwrite` is False, or two rows have the same file name.
        Earlier images remain.
    fastrec.Error, OSError
        As for `fastrec.open` and loading.
    """
    ds = dataset if isinstance(dataset, Dataset) else open_dataset(dataset)
    named = [name for name in ("filename", "class", "label") if name in ds.schema][:1]
    ds = ds.select_columns([image, *named])
    n_total = 0 if ds.is_streamed else len(ds)
    written: dict[Path, None] = {}
    for batch in ds.loader(_WRITE_BATCH_SIZE, rank=0, world_size=1):
        columns: Any = batch
        for i, data in enumerate(columns[image]):
            row = len(written)
            if not isinstance(data, bytes):
                raise SchemaError(
                    f"column {image!r} must have one byte string per row, got "
                    f"{type(data).__name__} in row {row}",
                    feature=image,
                )
            value = columns[named[0]][i] if named else None
            path = _path_of("".join(named), value, row, data)
            target = Path(directory, path)
            if target in written or (not overwrite and os.path.lexists(target)):
                raise FileExistsError(
                    errno.EEXIST, f"cannot write row {row}: file exists", str(target)
                )
            with replacement(target, sync=False) as temporary:
                temporary.write_bytes(data)
            written[target] = None
        if progress is not None:
            progress(len(written), n_total)
    return [str(path) for path in written]


def _path_of(column: str, value: object, row: int, data: bytes) -> PurePosixPath:
    """Return the path below the directory of an image that `column` names."""
    text = os.fsdecode(value) if isinstance(value, bytes) else ""
    path = PurePosixPath(str(value) if column == "label" else text)
    is_outside = not path.parts or path.is_absolute() or ".." in path.parts
    if column and (is_outside or "\0" in text):
        raise SchemaError(
            f"file name must be a path below the directory, got {value!r} in row {row}"
        )
    if column == "filename":
        return path
    suffix = _WRITTEN.get(image_format(data))
    if suffix is None:
        raise SchemaError(
            f"cannot name the image in row {row}: its format is unknown; store names in "
            "a column filename"
        )
    return path / f"{row:08d}{suffix}"
