"""fastrec.write: columns, rows, Arrow tables and datasets -> TFRecord files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from fastrec.convert.source import MEDIA, media_bytes
from fastrec.options import extra
from fastrec.writer.writer import Writer


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
        mapping of columns            of the same length, as for `Writer.write_batch`
        iterable of mappings          rows, as for `Writer.write`: a list or a generator
        Arrow table                   an object with ``__arrow_c_stream__``: of pyarrow,
                                      pandas, polars, DuckDB, ...; needs pyarrow
        ``datasets.Dataset``          of Hugging Face; needs pyarrow. Images are written
                                      as they are stored, also of an IterableDataset
        ============================  ==================================================

        Rows and tables are written in pieces, so a generator may yield more than fits
        into memory. A null omits the feature of its row.
    **options
        Keyword arguments of `Writer`.

    Returns
    -------
    list of str
        The paths of the files.

    Raises
    ------
    TypeError, ValueError
        As for `Writer`; also if `data` has another type, has no rows (unless it is a
        mapping of columns), or mixes rows and other objects.
    SchemaError
        If no feature can store a column of a table.
    OSError
        As for `Writer`. After an error, only complete shards of a pattern without
        ``{num_shards}`` remain.
    ModuleNotFoundError
        If `data` needs pyarrow, and it is not installed.

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
            from fastrec.convert.tables import ArrowSource
            from fastrec.convert.to_tfrecords import write_tfrecords
        return write_tfrecords(ArrowSource(data), path, **options)
    if getattr(data, "features", None) and hasattr(data, "decode"):
        # An IterableDataset of Hugging Face would decode images.
        data = map(_as_stored, data.decode(False))
    if isinstance(data, (str, bytes, bytearray)) or not isinstance(data, Iterable):
        raise TypeError(f"cannot write {type(data).__name__}: {_ACCEPTED}")
    with Writer(path, **options) as writer:
        for i, row in enumerate(data):
            _write_row(writer, i, row)
        if not writer.n_records:
            raise ValueError(
                "data must have at least one row, got none; use fastrec.Writer to write "
                "an empty file"
            )
    return writer.files


_ACCEPTED = (
    "pass a mapping of columns, an iterable of rows (mappings), an Arrow table or a "
    "datasets.Dataset"
)


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
