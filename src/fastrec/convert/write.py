"""Write columns, rows, tables and files of other formats to TFRecord files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fastrec import _core
from fastrec.convert.source import MEDIA, NO_ROWS, Source, media_bytes
from fastrec.features.fixed import Raw
from fastrec.options import extra
from fastrec.printable import printable
from fastrec.storage.parallel import Progress
from fastrec.storage.paths import Paths, expand, is_remote, path_of_url
from fastrec.storage.urls import redacted
from fastrec.writer.writer import Writer

_KIND_OF_SUFFIX = {
    **dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
_KIND_OF_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow"}

_ACCEPTED = (
    "pass a mapping of columns, an iterable of rows (mappings), an Arrow table or a "
    "datasets.Dataset"
)


def write(
    path: str | os.PathLike[str],
    data: object,
    **options: Any,
) -> list[str]:
    """Write columns, rows or a table to a TFRecord file or shards.

    Parameters
    ----------
    path : str or os.PathLike
        As for `Writer`.
    data : mapping, iterable of mappings, Arrow stream or datasets.Dataset
        One of:

        ============================  ==================================================
        mapping of names to columns   of the same length, as for `Writer.write_batch`
        iterable of mappings          rows, as for `Writer.write`: a list or a generator
        Arrow table                   an object with ``__arrow_c_stream__``: pyarrow,
                                      pandas, polars, DuckDB, ...; needs pyarrow
        ``datasets.Dataset``          Hugging Face; needs pyarrow. Images are written
                                      unchanged, also from an IterableDataset
        ============================  ==================================================

        Rows and tables are written in pieces, so a generator may yield more data than
        fits into memory. A null omits the feature from its row.
    **options
        Keyword arguments of `Writer`.

    Returns
    -------
    list of str
        The paths of the files.

    Raises
    ------
    TypeError, ValueError
        As for `Writer`; also if `data` has a wrong type, has no rows (unless it is a
        mapping of columns), or mixes rows and other objects.
    SchemaError
        If no feature can store a column of a table.
    OSError
        As for `Writer`. After an error, only complete shards of a pattern without
        ``{num_shards}`` remain.
    ModuleNotFoundError
        If `data` requires pyarrow, and pyarrow is not installed.

    Examples
    --------
    >>> import fastrec as fr
    >>> fr.write("t.tfrecord", {"x": [1.5, 2.5], "name": ["a", "b"]})  # doctest: +SKIP
    ['t.tfrecord']
    >>> rows = ({"x": i / 2, "name": str(i)} for i in range(1000))
    >>> fr.write("rows.tfrecord", rows)  # doctest: +SKIP
    ['rows.tfrecord']
    """
    if isinstance(data, Mapping):
        with Writer(path, **options) as writer:
            writer.write_batch(data)
        return writer.files
    is_hugging_face = hasattr(data, "with_format") and hasattr(data, "num_rows")
    if hasattr(data, "__arrow_c_stream__") or is_hugging_face:
        with extra("arrow", "writing Arrow tables"):
            from fastrec.convert.tables import open_arrow
        return write_source(open_arrow(data), path, **options).files
    if getattr(data, "features", None) and hasattr(data, "decode"):
        # Keep a Hugging Face IterableDataset from decoding images.
        data = map(_as_stored, data.decode(False))
    if isinstance(data, (str, bytes, bytearray)) or not isinstance(data, Iterable):
        raise TypeError(f"cannot write {type(data).__name__}: {_ACCEPTED}")
    with Writer(path, **options) as writer:
        for i, row in enumerate(data):
            _write_row(writer, i, row)
        if not writer.n_records:
            raise ValueError(NO_ROWS)
    return writer.files


def _as_stored(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: media_bytes(value)
        if isinstance(value, Mapping) and set(value) == MEDIA
        else value
        for name, value in row.items()
    }


def _write_row(writer: Writer, i: int, row: object) -> None:
    if not isinstance(row, Mapping):
        raise TypeError(
            f"row {i} must be a mapping of features, got {type(row).__name__}; {_ACCEPTED}"
        )
    try:
        writer.write(row)
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError) or writer.closed:
            raise
        raise type(error)(f"row {i}: {error}") from error


def write_tfrecords(
    paths: Paths,
    out: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    on_error: str = "raise",
    progress: Progress | None = None,
    **options: Any,
) -> list[str]:
    """Write each row of tables, or each image of folders, as a tf.train.Example.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        Files, globs and directories, all of one kind:

        ==============================  ================================================
        .csv, .tsv (also gzipped),      the columns of the table; needs pyarrow
        .parquet, .arrow, .feather
        a directory of images           ``image``, ``height``, ``width``, ``depth``,
                                        ``format``, ``filename``; with class folders also
                                        ``label`` and ``class``; needs Pillow
        ==============================  ================================================

        Several tables are concatenated, and cast to the types of the first table.
    out : path-like
        The file or shard pattern, as for `fastrec.Writer`.
    columns : sequence of str, optional
        The columns to write; by default all.
    types : mapping of str to str, optional
        Arrow types for columns of tables, such as ``{"when": "int64"}``. For CSV, these
        replace the types inferred from the first 4 MiB.
    on_error : {"raise", "skip"}, default "raise"
        Policy for an unreadable image: raise an error, or skip the image and log a
        warning.
    progress : callable, optional
        Called after each batch with the number of rows written and the total number,
        which includes skipped images. The total is 0 if it is unknown before reading.
    **options
        Keyword arguments of `fastrec.Writer`: ``features=...``, ``overwrite=True``,
        ``max_shard_bytes="200MB"``, ``num_shards=8``, ``compression="GZIP"``, ...

    Returns
    -------
    list of str
        The paths of the files.

    Raises
    ------
    ValueError
        If the kind of a file is unknown, files cannot be combined, or a column is
        missing.
    CorruptionError
        If a file is damaged or does not have the format of its suffix.
    SchemaError
        If no feature can store a column. Features store text, numbers and flat lists.
    ModuleNotFoundError
        If pyarrow or Pillow is required but not installed.
    OSError, fastrec.Error
        If a file cannot be read, or as for `fastrec.Writer`. After an error, only
        complete files have their final names.

    Notes
    -----
    Tensors of two or more dimensions are written as one byte string per row, for
    `fastrec.Raw`. A null omits the feature. To convert .npy files, read the arrays with
    NumPy and write the arrays with `fastrec.write`.

    Examples
    --------
    >>> from fastrec import convert
    >>> convert.write_tfrecords("pictures/", "train.tfrecord")  # doctest: +SKIP
    """
    source = open_source(paths, columns=columns, types=types, on_error=on_error)
    return write_source(source, out, progress=progress, **options).files


def write_source(
    source: Source,
    out: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Writer:
    """Write a source as `write_tfrecords` does, and return the closed writer."""
    features = {
        # A null row may omit the feature.
        name: dataclasses.replace(spec, default=np.zeros(spec.shape, spec.dtype))
        if isinstance(spec, Raw)
        else spec
        for name, spec in source.features.items()
    }
    features |= options.pop("features", None) or {}
    with Writer(out, features=features or None, **options) as writer:
        for columns in source.batches:
            writer.write_batch(columns)
            if progress is not None:
                progress(writer.n_records, source.n_total)
    return writer


def open_source(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    on_error: str = "raise",
) -> Source:
    """Open tables or folders of images; see `write_tfrecords`."""
    files: list[str] = []
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        if is_remote(os.fspath(path)):
            raise ValueError(
                f"cannot read {redacted(os.fspath(path))!r}: only TFRecord files can be "
                "read from URLs"
            )
        local = path_of_url(os.fspath(path))
        files += [local] if os.path.isdir(local) else expand(local)
    if not files:
        raise ValueError("paths must name at least one file, got none")
    kinds = {_kind(file): printable(file) for file in files}
    if len(kinds) > 1:
        raise ValueError(f"files must all be of one kind, got {kinds}")
    ((kind, name),) = kinds.items()
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    if kind == "images":
        if types:
            raise ValueError(f"types= requires CSV, Parquet or Arrow, got {name}")
        with extra("image", "reading folders of images"):
            from fastrec.convert.images import open_images
        return open_images(files, columns, skips=on_error == "skip")
    if on_error == "skip":
        raise ValueError(f"on_error='skip' requires a directory of images, got {name}")
    with extra("arrow", f"reading {kind} files"):
        from fastrec.convert.tables import open_tables
    return open_tables(kind, files, columns, types)


def _kind(path: str) -> str:
    if os.path.isdir(path):
        return "images"
    suffix = os.path.splitext(path.lower().removesuffix(".gz"))[1]
    if kind := _KIND_OF_SUFFIX.get(suffix):
        return kind
    if _core.recognize(os.fsencode(path)) == "tfrecord":
        raise ValueError(
            f"{printable(path)} is already a TFRecord file; to write a table, use an "
            "output path that ends in .parquet, .arrow or .feather"
        )
    with open(path, "rb") as file:
        first_bytes = file.read(6)
    for magic, kind in _KIND_OF_MAGIC.items():
        if first_bytes.startswith(magic):
            return kind
    raise ValueError(
        f"cannot recognize the format of {printable(path)}; supported are .csv, .tsv, "
        ".parquet, .arrow and .feather files, and directories of images; read arrays (IDX, "
        ".npy, .npz) with NumPy: fr.write(path, {...}); see docs/writing.md"
    )
