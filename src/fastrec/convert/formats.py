"""Open files of other formats, recognized by their names or first bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastrec import _core
from fastrec.convert.source import Source
from fastrec.options import extra
from fastrec.printable import printable
from fastrec.storage.paths import Paths, expand, local_path

_KIND_OF_SUFFIX = {
    **dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
_KIND_OF_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow"}


def open_source(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    on_error: str = "raise",
) -> Source:
    """Open files of another format, to write them as TFRecord files.

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

        Several tables are concatenated, and cast to the types of the first one.
    columns : sequence of str, optional
        The columns to read, in this order; by default all.
    types : mapping of str to str, optional
        Arrow types to cast columns of tables to: ``{"when": "int64"}``. For CSV they
        replace the types inferred from the first 4 MiB.
    on_error : {"raise", "skip"}, default "raise"
        Policy for an image that cannot be read: raise an error, or skip it, log it and
        count it in ``source.n_skipped``.

    Returns
    -------
    Source
        ``source.batches()`` yields columns for ``Writer.write_batch``;
        ``source.features`` has the specs of columns that need one.

    Raises
    ------
    ValueError
        If the kind of a file is unknown, files cannot be combined, or a column is
        missing.
    CorruptionError
        If a file is damaged or does not have the format of its suffix.
    SchemaError
        If no feature can store a column. Features store text, numbers and lists of them.
    ModuleNotFoundError
        If an extra is not installed.
    OSError
        If a file cannot be read.

    Notes
    -----
    Tensors of two or more dimensions are written as one byte string per row, for
    `fastrec.Raw`. A null omits the feature. Arrays are read with NumPy and written with
    `fastrec.write`.

    Examples
    --------
    >>> from fastrec import convert
    >>> source = convert.open_source("*.parquet", columns=["text"])  # doctest: +SKIP
    >>> next(source.batches())  # doctest: +SKIP
    {'text': BytesArray([b'some', b'text'], shape=(2,))}
    """
    files = _expanded(paths)
    kinds = {_kind(file): printable(file) for file in files}
    if len(kinds) > 1:
        raise ValueError(f"files must all be of one kind, got {kinds}")
    (kind,) = kinds
    if types and kind == "images":
        raise ValueError(
            f"types= requires tables (CSV, Parquet, Arrow), got {kinds[kind]}"
        )
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    if on_error == "skip" and kind != "images":
        raise ValueError(
            f"on_error='skip' requires a directory of images, got {kinds[kind]}"
        )
    if kind == "images":
        with extra("image", "reading folders of images"):
            from fastrec.convert.images import ImageSource
        return ImageSource(files, columns, skips=on_error == "skip")
    with extra("arrow", f"reading {kind} files"):
        from fastrec.convert.tables import TableSource
    return TableSource(kind, files, columns, types)


def _expanded(paths: Paths) -> list[str]:
    """Return files and directories, with globs replaced by their matches."""
    expanded: list[str] = []
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        local = local_path(os.fspath(path))
        expanded += [local] if Path(local).is_dir() else expand(local)
    if not expanded:
        raise ValueError("paths must name at least one file, got none")
    return expanded


def _kind(path: str) -> str:
    if Path(path).is_dir():
        return "images"
    name = Path(path).name.lower().removesuffix(".gz")
    if kind := _KIND_OF_SUFFIX.get(Path(name).suffix):
        return kind
    if _core.recognize(os.fsencode(path)) == "tfrecord":
        raise ValueError(
            f"{printable(path)} is already a TFRecord file; to write a table, use an "
            "output path that ends in .parquet, .arrow or .feather"
        )
    with Path(path).open("rb") as file:
        first_bytes = file.read(6)
    for magic, kind in _KIND_OF_MAGIC.items():
        if first_bytes.startswith(magic):
            return kind
    raise ValueError(
        f"cannot recognize the format of {printable(path)}; supported are .csv, .tsv, "
        ".parquet, .arrow and .feather files, and directories of images; read arrays (IDX, "
        ".npy, .npz) with NumPy: fr.write(path, {...}); see docs/writing.md"
    )
