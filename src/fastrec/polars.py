"""polars: TFRecords as a LazyFrame, of which only what a query needs is decoded.

>>> import fastrec as fr
>>> import polars as pl
>>> frame = fr.polars.scan("train-*.tfrecord")  # doctest: +SKIP
>>> frame.group_by("label").agg(pl.len()).collect()  # doctest: +SKIP

``polars.DataFrame(ds)`` works without this module, and decodes all columns of all records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from fastrec.arrow.reader import RecordBatchReader, rows_at_once
from fastrec.dataset.dataset import Dataset
from fastrec.dataset.open import open as open_dataset
from fastrec.features.infer import name_of
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

    What a query asks of it is pushed down: of the columns it leaves out, nothing is
    decoded; rows that it filters out are dropped batch by batch; behind the rows it
    wants, nothing is read. Each ``collect`` is a new pass over the files.

    Parameters
    ----------
    source : Dataset, or path-like, or iterable of path-like
        What `fastrec.open` returns, or takes. All its records are read, whatever the rank
        of this process. Where it has transforms, or `on_error` passes over rows that
        cannot be read, all columns are decoded: for them, or to tell which rows those are.
    text : collection of str, default ()
        Those columns of byte strings that are UTF-8: String, not Binary.
    optional : collection of str, default ()
        Those variable-length columns that have at most one value in a row: the value or
        null, not lists.

    Returns
    -------
    polars.LazyFrame
        Columns as `fastrec.arrow.RecordBatchReader` has them: numbers, Binary or String,
        Array for rows of one shape and List for rows of any length.

    Raises
    ------
    SchemaError, TypeError, ValueError
        As `fastrec.arrow.RecordBatchReader`; about records, when they are collected.
    fastrec.Error, OSError
        What `fastrec.open` and loading raise.
    ModuleNotFoundError
        If polars is not installed.

    Examples
    --------
    >>> frame = scan("train-*.tfrecord", text=["name"])  # doctest: +SKIP
    >>> frame.filter(pl.col("label") == 3).select("name").collect()  # doctest: +SKIP
    """
    given: object = source
    if isinstance(given, Loader):
        msg = "scan() takes a dataset or files, not a Loader: pass the dataset"
        raise TypeError(msg)
    dataset = source if isinstance(source, Dataset) else open_dataset(source)

    def frames(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        chosen = dataset
        if with_columns is not None:
            chosen = _reading(dataset, with_columns)
        sizes = [rows_at_once(chosen), batch_size, n_rows]
        reader = RecordBatchReader(
            chosen,
            batch_size=max(1, min(size for size in sizes if size is not None)),
            text=_there(text, with_columns),
            optional=_there(optional, with_columns),
        )
        n_left = n_rows
        for batch in reader:
            # One by one, so that a column that is left keeps no memory of the others.
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
    # Two passes give the same, unless a transform has a mind of its own.
    return register_io_source(
        frames, schema=dict(pl.Schema(whole)), is_pure=not dataset.has_transforms
    )


def _reading(dataset: Dataset, names: Collection[str]) -> Dataset:
    """Return a dataset that reads the features which the columns `names` are made of."""
    # What is passed over must be the same for each query.
    if dataset.has_transforms or dataset.on_error != "raise":
        return dataset
    schema: Any = dataset.schema  # its names may be bytes
    asked = set(names)
    features = [
        feature
        for feature, spec in schema.items()
        if any(name_of(column) in asked for column in spec._names(feature))
    ]
    # Columns that datasets add to rows come with any other.
    return dataset.columns(features or list(schema)[:1])


def _there(names: Collection[str], columns: list[str] | None) -> list[str]:
    return [name for name in names if columns is None or name in columns]
