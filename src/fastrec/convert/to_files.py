"""Write datasets to tables (Parquet, Arrow, Feather) and folders of images."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any

from fastrec.arrow.reader import RecordBatchReader
from fastrec.dataset.dataset import Dataset
from fastrec.dataset.open import open as open_dataset
from fastrec.display import image_format
from fastrec.errors import Error, SchemaError
from fastrec.options import extra
from fastrec.printable import printable
from fastrec.storage.atomic import replacement
from fastrec.storage.parallel import Progress
from fastrec.storage.paths import Paths

TABLE_SUFFIXES = (".parquet", ".arrow", ".feather")

_IMAGE_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "GIF": ".gif", "WebP": ".webp"}
_IMAGES_AT_ONCE = 64


def write_table(
    dataset: Dataset | Paths,
    path: str | os.PathLike[str],
    *,
    text: Collection[str] = (),
    optional: Collection[str] = (),
    batch_size: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write a dataset to one Parquet, Arrow IPC or Feather file; needs pyarrow.

    Parameters
    ----------
    dataset : Dataset, or path-like, or iterable of path-like
        A dataset, or the first argument of `fastrec.open`.
    path : path-like
        The suffix determines the format: ``.parquet``, ``.arrow`` (uncompressed, for
        memory mapping), or ``.feather`` (compressed with LZ4).
    text, optional : collection of str
        As for `fastrec.arrow.RecordBatch`.
    batch_size : int, optional
        Number of records per row group or record batch; by default about 16 MiB.
    overwrite : bool, default False
        Replace an existing file when the new one is complete.
    progress : callable, optional
        Called after each batch with the number of records written and the total number.
        The total is 0 if it is unknown before reading the files.

    Returns
    -------
    int
        The number of records written.

    Raises
    ------
    FileExistsError
        If `path` exists and `overwrite` is False.
    ValueError
        If the suffix is unknown, or `text` or `optional` names a missing column.
    SchemaError
        As for `fastrec.arrow.RecordBatch`.
    fastrec.Error, OSError
        As for `fastrec.open` and loading; also an Error if there are no records.
    ModuleNotFoundError
        If pyarrow is not installed.
    """
    target = Path(path)
    with extra("arrow", f"writing {target.suffix} files"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    suffix = target.suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        listed = ", ".join(TABLE_SUFFIXES)
        raise ValueError(f"path must end in one of {listed}, got {printable(target)}")
    ds = dataset if isinstance(dataset, Dataset) else open_dataset(dataset)
    if os.path.lexists(target) and not overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    n_total = 0 if ds.is_streamed else len(ds)
    # Convert each batch, because an Arrow stream turns errors into strings.
    reader = RecordBatchReader(ds, batch_size=batch_size, text=text, optional=optional)
    batches = map(pa.record_batch, reader)
    first: Any = next(batches, None)
    if first is None:
        raise Error(f"cannot write an empty table: no records in {', '.join(ds.files)}")
    n_records = 0
    with replacement(target) as temporary, temporary.open("wb") as file:
        if suffix == ".parquet":
            writer: Any = pq.ParquetWriter(file, first.schema)
        else:
            codec = "lz4" if suffix == ".feather" else None
            options = pa.ipc.IpcWriteOptions(compression=codec)
            writer = pa.ipc.new_file(file, first.schema, options=options)
        with writer:
            for batch in itertools.chain([first], batches):
                writer.write_batch(batch)
                n_records += len(batch)
                if progress is not None:
                    progress(n_records, n_total)
    return n_records


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
        Created if needed. An image is written to the path in the column ``filename``,
        which `write_tfrecords` stores. Without this column, the file name is the row
        number with the suffix of the image format. A column ``class`` or ``label`` then
        determines the subfolder.
    image : str, default "image"
        The column of the images.
    overwrite : bool, default False
        Replace existing files. New files are not flushed to the disk, so some may be
        incomplete after a power cut.
    progress : callable, optional
        Called after each batch with the number of images written and the total number.
        The total is 0 if it is unknown before reading the files.

    Returns
    -------
    list of str
        The paths of the files.

    Raises
    ------
    KeyError
        If the dataset has no column `image`.
    SchemaError
        If a row does not have exactly one byte string, the format is unknown, or a file
        name points outside `directory`.
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
    for batch in ds.loader(_IMAGES_AT_ONCE, rank=0, world_size=1):
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
    """Return the relative path of an image, from `value` in `column` and from `row`."""
    text = os.fsdecode(value) if isinstance(value, bytes) else ""
    path = PurePosixPath(str(value) if column == "label" else text)
    is_outside = not path.parts or path.is_absolute() or ".." in path.parts
    if column and (is_outside or "\0" in text):
        raise SchemaError(
            f"file name must be a path below the directory, got {value!r} in row {row}"
        )
    if column == "filename":
        return path
    suffix = _IMAGE_SUFFIXES.get(image_format(data))
    if suffix is None:
        raise SchemaError(
            f"cannot name the image in row {row}: its format is unknown; store names in "
            "a column filename"
        )
    return path / f"{row:08d}{suffix}"
