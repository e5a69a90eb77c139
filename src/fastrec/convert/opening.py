"""Which converter reads a file: by its name, else by its first bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastrec import _core
from fastrec.convert.idx import idx_array, looks_like_idx
from fastrec.convert.npy import npy_array, npz_arrays
from fastrec.convert.source import Source
from fastrec.convert.stored import ArraySource
from fastrec.options import extra
from fastrec.printable import printable
from fastrec.storage.paths import Paths, expand, local_path

__all__ = ["is_tfrecord", "open_source"]

_KIND_OF_SUFFIX = {
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".csv": "csv",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".npz": "npz",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".tsv": "csv",
}
_KIND_OF_MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
}
_TABLES = {"csv": "CSV", "parquet": "Parquet", "arrow": "Arrow IPC"}


def open_source(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    on_error: str = "raise",
) -> Source:
    """Open files of another format, to be written as TFRecords.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        Files, globs and directories, all of one kind:

        ==============================  ================================================
        IDX (MNIST and its like; also   columns side by side: ``image`` (uint8 as
        gzipped)                        ``fr.Raw``) and ``label``
        .npy                            columns side by side, called as the files are;
                                        or the fields of structured arrays
        .npz                            its arrays are the columns
        .csv, .tsv (also gzipped),      its columns; needs pyarrow
        .parquet, .arrow, .feather
        a directory                     images in class folders: ``image``, ``height``,
                                        ``width``, ``depth``, ``format``, ``label``,
                                        ``class``, ``filename``. Images directly in the
                                        directory: without ``label`` and ``class``.
                                        Needs Pillow
        ==============================  ================================================

        Where a file has all columns, several files follow one another.
    columns : sequence of str, optional
        Which columns, in this order. By default all.
    types : mapping of str to str, optional
        Columns of tables to cast, and the names of Arrow types to cast them to:
        ``{"when": "int64"}``. In CSV it says what a column is, instead of its first 4 MiB.
    on_error : {"raise", "skip"}, default "raise"
        What to do with an image that cannot be read: raise its error, or skip it, log a
        warning and count it in ``source.n_skipped``. Only for directories of images.

    Returns
    -------
    Source
        ``source.batches()`` yields columns for ``Writer.write_batch``, and
        ``source.features`` has the specs that some of them need.

    Raises
    ------
    ValueError
        If files are of no known kind or do not go together, or a column is not there.
    CorruptionError
        If a file is not what its name says, or its header contradicts its size.
    SchemaError
        If no feature holds a column: text, numbers and lists of them can be written.
    ModuleNotFoundError
        If an extra is needed; says how to install it.
    OSError
        If a file cannot be read.

    Notes
    -----
    Arrays of three or more dimensions are written as one byte string per row, for
    `fastrec.Raw`; of two, as lists. Integers become int64 features, floats float32 ones.
    Null leaves the feature out of that record.

    Examples
    --------
    >>> from fastrec import convert
    >>> source = convert.open_source("*.parquet", columns=["text"])  # doctest: +SKIP
    >>> next(source.batches())  # doctest: +SKIP
    {'text': BytesArray([b'some', b'text'], shape=(2,))}
    """
    files = _expanded(paths)
    kinds = {_kind(file): file for file in reversed(files)}
    if len(kinds) > 1:
        (one, first), (other, second) = list(kinds.items())[:2]
        raise ValueError(
            f"files of different kinds cannot go together: {printable(second)} is {other} and "
            f"{printable(first)} is {one}"
        )
    (kind,) = kinds
    if types and kind not in _TABLES:
        raise ValueError(
            f"types require tables (CSV, Parquet or Arrow), got {printable(files[0])}"
        )
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    if on_error == "skip" and kind != "images":
        raise ValueError(
            f"on_error='skip' requires a directory of images, got {printable(files[0])}"
        )
    if kind in _TABLES:
        with extra("arrow", f"reading {_TABLES[kind]} files"):
            from fastrec.convert.tables import TableSource
        return TableSource(kind, files, columns, types)
    if kind == "images":
        with extra("image", "reading folders of images"):
            from fastrec.convert.images import ImageSource
        return ImageSource(files, columns, skips=on_error == "skip")
    if kind == "npz":
        return ArraySource([npz_arrays(file) for file in files], columns)
    array_of = idx_array if kind == "IDX" else npy_array
    return ArraySource([[array_of(file) for file in files]], columns)


def is_tfrecord(path: str) -> bool:
    """Tell whether a file is a TFRecord file, as far as its first bytes tell."""
    return _core.recognize(os.fsencode(path)) == "tfrecord"


def _expanded(paths: Paths) -> list[str]:
    """Return files and directories; a glob by what it matches."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    found: list[str] = []
    for path in paths:
        # What a directory holds is for its converter to say.
        here = local_path(os.fspath(path))
        found += [here] if Path(here).is_dir() else expand(here)
    if not found:
        msg = "no paths were given"
        raise ValueError(msg)
    return found


def _kind(path: str) -> str:
    if Path(path).is_dir():
        return "images"
    name = Path(path).name.lower().removesuffix(".gz")
    kind = _KIND_OF_SUFFIX.get(Path(name).suffix)
    if kind is not None:
        return kind
    if is_tfrecord(path):
        raise ValueError(
            f"{printable(path)} is a TFRecord file already: a table is written to a name that ends "
            "in .parquet, .arrow or .feather"
        )
    if looks_like_idx(path):
        return "IDX"
    with Path(path).open("rb") as file:
        beginning = file.read(8)
    for magic, kind in _KIND_OF_MAGIC.items():
        if beginning.startswith(magic):
            return kind
    raise ValueError(
        f"{printable(path)} is of no known kind: known are IDX files, .npy, .npz, .csv, .tsv, "
        ".parquet, .arrow, .feather, and directories of images"
    )
