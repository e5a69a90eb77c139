"""Datasets -> folders of images: the inverse of `fastrec.convert.images`."""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePosixPath
from typing import Any

from fastrec.dataset.dataset import Dataset
from fastrec.dataset.open import open as open_dataset
from fastrec.display import image_format
from fastrec.errors import SchemaError
from fastrec.storage.atomic import replacement
from fastrec.storage.parallel import Progress
from fastrec.storage.paths import Paths

_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "GIF": ".gif", "WebP": ".webp"}
_BATCH_SIZE = 64


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
    present = [name for name in ("filename", "class", "label") if name in ds.schema]
    ds = ds.select_columns([image, *present[:1]])
    folder = Path(directory)
    n_total = 0 if ds.is_streamed else len(ds)
    written: dict[PurePosixPath, None] = {}
    for batch in ds.loader(_BATCH_SIZE, rank=0, world_size=1):
        files: Any = batch[image]
        for i, data in enumerate(files):
            place = f"row {len(written)}"
            if not isinstance(data, bytes):
                raise SchemaError(
                    f"column {image!r} must have one byte string per row, got "
                    f"{type(data).__name__} in {place}",
                    feature=image,
                )
            path = _path_of(batch, i, len(written), data)
            target = folder / path
            if path in written or (not overwrite and os.path.lexists(target)):
                raise FileExistsError(
                    errno.EEXIST, f"cannot write {place}: file exists", str(target)
                )
            with replacement(target, sync=False) as temporary:
                temporary.write_bytes(data)
            written[path] = None
        if progress is not None:
            progress(len(written), n_total)
    return [str(folder / path) for path in written]


def _path_of(batch: Any, i: int, row: int, data: bytes) -> PurePosixPath:
    """Return the path of the image in row `i` of a batch, below the directory."""
    if "filename" in batch:
        return _checked(batch["filename"][i], row)
    suffix = _SUFFIXES.get(image_format(data))
    if suffix is None:
        raise SchemaError(
            f"cannot name the image in row {row}: its format is unknown; store names in "
            "a column filename"
        )
    name = f"{row:08d}{suffix}"
    if "class" in batch:
        return _checked(batch["class"][i], row) / name
    return PurePosixPath(str(batch["label"][i]) if "label" in batch else "", name)


def _checked(name: object, row: int) -> PurePosixPath:
    """Return a relative path that stays below the directory, or raise a SchemaError."""
    text = os.fsdecode(name) if isinstance(name, bytes) else "/"
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in text:
        raise SchemaError(
            f"file name must be a path below the directory, got {name!r} in row {row}"
        )
    return path
