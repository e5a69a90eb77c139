"""Sources -> TFRecord files, and datasets -> tables."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastrec.arrow.reader import RecordBatchReader
from fastrec.arrow.record_batch import RecordBatch
from fastrec.convert.opening import open_source
from fastrec.convert.source import Source
from fastrec.dataset.dataset import Dataset
from fastrec.dataset.open import open as open_dataset
from fastrec.errors import Error
from fastrec.features.base import Spec
from fastrec.features.fixed import Raw
from fastrec.options import extra
from fastrec.printable import printable
from fastrec.storage.atomic import replacement
from fastrec.storage.parallel import Progress
from fastrec.storage.paths import Paths
from fastrec.writer.writer import Writer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TABLE_SUFFIXES", "to_arrow", "write_table", "write_tfrecords"]

TABLE_SUFFIXES = (".parquet", ".arrow", ".feather")


def write_tfrecords(
    source: Source | Paths,
    path: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    **options: Any,  # noqa: ANN401
) -> list[str]:
    """Write a source as TFRecord files, one tf.train.Example per row.

    Parameters
    ----------
    source : Source, or path-like, or iterable of path-like
        A source of `open_source`, or its argument.
    path : path-like
        The file, or a pattern of shards, as for `fastrec.Writer`.
    progress : callable, optional
        Called after each batch with ``source.n_done`` and ``source.n_total``.
    **options
        Of `fastrec.Writer`: ``features=...``, ``overwrite=True``, ``max_shard_bytes="200MB"``,
        ``num_shards=8``, ``compression="GZIP"``, ...

    Returns
    -------
    list of str
        The files.

    Raises
    ------
    ValueError, fastrec.Error, ModuleNotFoundError, OSError
        As `open_source`, ``Source.batches`` and `fastrec.Writer`. After an error, no
        unfinished file has a final name.

    Examples
    --------
    >>> from fastrec import convert
    >>> convert.write_tfrecords("pictures/", "train.tfrecord")  # doctest: +SKIP
    """
    if not isinstance(source, Source):
        source = open_source(source)
    features = {name: _optional(spec) for name, spec in source.features.items()}
    features |= options.pop("features", None) or {}
    with Writer(path, features=features or None, **options) as writer:
        for columns in source.batches():
            writer.write_batch(columns)
            if progress is not None:
                progress(source.n_done, source.n_total)
    return list(writer.files)


def _optional(spec: Spec) -> Spec:
    """Return a spec with a default, so that null rows may leave the feature out."""
    if not isinstance(spec, Raw):
        return spec
    return dataclasses.replace(spec, default=np.zeros(spec.shape, spec.dtype))


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
    """Write a dataset as one Parquet, Arrow IPC or Feather file; needs pyarrow.

    Parameters
    ----------
    dataset : Dataset, or path-like, or iterable of path-like
        A dataset, or the argument of `fastrec.open`. Its schema gives the columns.
    path : path-like
        Its suffix is the format: ``.parquet``, ``.arrow`` (not compressed, to be
        mapped), or ``.feather`` (compressed with LZ4).
    text, optional : collection of str
        As for `to_arrow`.
    batch_size : int, optional
        Records in a row group or record batch. By default about 16 MiB of them.
    overwrite : bool, default False
        Replace an existing file when the new one is complete.
    progress : callable, optional
        Called after each batch with the records written and their total, or 0 if that
        is not known without reading the files.

    Returns
    -------
    int
        The number of records.

    Raises
    ------
    FileExistsError
        If `path` exists, unless `overwrite` is given.
    ValueError
        If the suffix is unknown, or `text` or `optional` names a missing column.
    SchemaError
        As `to_arrow`.
    fastrec.Error, OSError
        As `fastrec.open` and loading; also if there are no records.
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
    n_records = 0
    writer: Any = None
    # Batch by batch, because a stream of Arrow turns errors into text.
    batches = RecordBatchReader(ds, batch_size=batch_size, text=text, optional=optional)
    with replacement(target) as temporary, temporary.open("xb") as file:
        with contextlib.ExitStack() as stack:
            for batch in map(pa.record_batch, batches):
                if writer is None:
                    codec = "lz4" if suffix == ".feather" else None
                    options = pa.ipc.IpcWriteOptions(compression=codec)
                    writer = stack.enter_context(
                        pq.ParquetWriter(file, batch.schema)
                        if suffix == ".parquet"
                        else pa.ipc.new_file(file, batch.schema, options=options)
                    )
                writer.write_batch(batch)
                n_records += len(batch)
                if progress is not None:
                    progress(n_records, n_total)
        if not n_records:
            raise Error(f"cannot write a table without records: {', '.join(ds.files)}")
        file.flush()
        os.fsync(file.fileno())
    return n_records


def to_arrow(
    batch: Mapping[Any, Any],
    *,
    text: Collection[str] = (),
    optional: Collection[str] = (),
) -> pa.RecordBatch:
    """Return a batch as a `pyarrow.RecordBatch`, without a copy where possible.

    Parameters
    ----------
    batch : mapping of str to array
        A batch of a loader.
    text, optional : collection of str
        As for `fastrec.arrow.RecordBatch`.

    Returns
    -------
    pyarrow.RecordBatch
        It shares the memory of the batch and has the types of
        `fastrec.arrow.RecordBatch`.

    Raises
    ------
    SchemaError, TypeError, ValueError
        As `fastrec.arrow.RecordBatch`.
    ModuleNotFoundError
        If pyarrow is not installed.
    """
    with extra("arrow", "making Arrow record batches"):
        import pyarrow as pa
    return pa.record_batch(RecordBatch(batch, text, optional))
