"""polars: a LazyFrame of TFRecords that decodes only the columns a query needs.

>>> import fastrec as fr
>>> import polars as pl
>>> frame = fr.polars.scan("train-*.tfrecord")  # doctest: +SKIP
>>> frame.group_by("label").agg(pl.len()).collect()  # doctest: +SKIP

``polars.DataFrame(ds)`` works without this module, but decodes all columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fastrec.arrow.reader import RecordBatchReader
from fastrec.dataset.adapted import reading_columns
from fastrec.dataset.dataset import Dataset
from fastrec.dataset.open import open as open_dataset
from fastrec.loader.loader import Loader
from fastrec.options import extra
from fastrec.storage.paths import Paths

with extra("polars", "fastrec.polars"):
    import polars as pl
    from polars.io.plugins import register_io_source

__all__ = ["scan"]


def scan(
    source: Dataset | Paths,
    *,
    text: Collection[str] = (),
    optional: Collection[str] = (),
) -> pl.LazyFrame:
    """Return a LazyFrame of a dataset.

    A query decodes only the columns it needs, filters rows batch by batch, and stops
    reading after the last row it needs. Each ``collect`` is a new pass over the files.

    Parameters
    ----------
    source : Dataset, or path-like, or iterable of path-like
        A dataset, or paths as for `fastrec.open`. Every rank reads all records. With
        transforms, or `on_error` other than ``"raise"``, queries decode all columns.
    text, optional : collection of str, default ()
        See `fastrec.arrow.RecordBatch`: `text` columns are String, not Binary;
        `optional` columns contain a value or null, not lists.

    Returns
    -------
    polars.LazyFrame
        Columns have the types of `fastrec.arrow.RecordBatchReader`: numbers, Binary or
        String, Array for rows of one shape, and List for rows of any length.

    Raises
    ------
    SchemaError, TypeError, ValueError
        See `fastrec.arrow.RecordBatchReader`; ``collect`` raises errors of records.
    fastrec.Error, OSError
        If a file cannot be opened or read.
    ModuleNotFoundError
        If polars is not installed.

    Examples
    --------
    >>> frame = scan("train-*.tfrecord", text=["name"])  # doctest: +SKIP
    >>> frame.filter(pl.col("label") == 3).select("name").collect()  # doctest: +SKIP
    """
    given: object = source
    if isinstance(given, Loader):
        raise TypeError("source must be a Dataset or paths, got a Loader")
    dataset = source if isinstance(source, Dataset) else open_dataset(source)

    def frames(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        chosen = dataset
        names = {*text, *optional}
        if with_columns is not None:
            chosen = reading_columns(dataset, with_columns)
            names &= {*with_columns}
        sizes = (chosen._rows_at_once(), batch_size, n_rows)
        reader = RecordBatchReader(
            chosen,
            batch_size=max(1, min(size for size in sizes if size is not None)),
            text=names.intersection(text),
            optional=names.intersection(optional),
        )
        n_left = n_rows
        for batch in reader:
            # One frame per column, so that a column does not keep others in memory.
            columns = [pl.DataFrame(column) for column in batch._by_column()]
            frame = pl.concat(columns, how="horizontal").slice(0, n_left)
            if n_left is not None:
                n_left -= len(frame)
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame if with_columns is None else frame.select(with_columns)
            if n_left == 0:
                break

    whole = RecordBatchReader(dataset, text=text, optional=optional)
    # Two passes return equal rows, unless a transform is random.
    return register_io_source(
        frames, schema=dict(pl.Schema(whole)), is_pure=not dataset._has_transforms
    )
