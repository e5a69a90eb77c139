"""Sources -> TFRecord files, and datasets -> tables."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import fastrec as fr
from fastrec.convert.opening import open_source
from fastrec.convert.source import Source
from fastrec.features.base import Spec
from fastrec.options import extra
from fastrec.storage.parallel import Progress
from fastrec.storage.paths import Paths

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
    """Write a source as TFRecord files, a tf.train.Example for each row.

    Parameters
    ----------
    source : Source, or path-like, or iterable of path-like
        What `open_source` returns, or takes.
    path : path-like
        The file, or a pattern of shards, as `fastrec.Writer` has it.
    progress : callable, optional
        Called after each batch with what is done and the total, as `Source` counts.
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
        As `open_source`, ``Source.batches`` and `fastrec.Writer`. Then nothing
        unfinished bears a final name.

    Examples
    --------
    >>> from fastrec import convert
    >>> convert.write_tfrecords("pictures/", "train.tfrecord")  # doctest: +SKIP
    """
    if not isinstance(source, Source):
        source = open_source(source)
    features = {name: _optional(spec) for name, spec in source.features.items()}
    features |= options.pop("features", None) or {}
    with fr.Writer(path, features=features or None, **options) as writer:
        for columns in source.batches():
            writer.write_batch(columns)
            if progress is not None:
                progress(source.n_done, source.n_total)
    return list(writer.files)


def _optional(spec: Spec) -> Spec:
    """Return a spec that lets rows be without the feature, as tables have nulls."""
    if not isinstance(spec, fr.Raw):
        return spec
    shape, dtype = spec.shape, np.dtype(spec.dtype)
    return dataclasses.replace(spec, default=np.zeros(shape, dtype))


def write_table(
    dataset: fr.Dataset | Paths,
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
        What `fastrec.open` returns, or takes. Its schema says what the columns are.
    path : path-like
        The suffix says the format: ``.parquet``, ``.arrow`` (not compressed, to be
        mapped), or ``.feather`` (the same with LZ4, as pandas writes it).
    text, optional : collection of str
        As `to_arrow` has them.
    batch_size : int, optional
        Records in a row group or record batch. By default about 16 MiB of them.
    overwrite : bool, default False
        Replace an existing file when the new one is complete.
    progress : callable, optional
        Called after each batch with the records written and, where that is known
        without a pass over the data, their number, else 0.

    Returns
    -------
    int
        The number of records.

    Raises
    ------
    FileExistsError
        If there is a file at `path`, and `overwrite` is not given.
    ValueError
        If the suffix is another one, or a column that is named is not there.
    SchemaError
        If a column cannot be written to a table, is named as text and is none, or has
        several values in a row though it is optional.
    fastrec.Error, OSError
        What `fastrec.open` and loading raise; also if there are no records.
    ModuleNotFoundError
        If pyarrow is not installed.
    """
    target = Path(path)
    with extra("arrow", f"writing {target.suffix} files"):
        from fastrec.convert.table_files import written_table
    if not isinstance(dataset, fr.Dataset):
        dataset = fr.open(dataset)
    if os.path.lexists(target) and not overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    batches = fr.arrow.RecordBatchReader(
        dataset, batch_size=batch_size, text=text, optional=optional
    )
    n_total = 0 if dataset.is_streamed else len(dataset)
    n_records = 0
    with written_table(target) as write:
        # Batch by batch, and not as a stream: errors stay what they are.
        for batch in batches:
            write(_as_pyarrow(batch))
            n_records += len(batch)
            if progress is not None:
                progress(n_records, n_total)
        if not n_records:
            listed = ", ".join(dataset.files)
            raise fr.Error(f"there is no record to write, in {listed}")
    return n_records


def to_arrow(
    batch: Mapping[Any, Any],
    *,
    text: Collection[str] = (),
    optional: Collection[str] = (),
) -> pa.RecordBatch:
    """Return a batch as a `pyarrow.RecordBatch`, without a copy where that can be.

    Parameters
    ----------
    batch : mapping of str to array
        As a loader delivers it.
    text : collection of str
        Those columns of byte strings that are UTF-8: large_string, not large_binary.
    optional : collection of str
        Those variable-length columns that have at most one value in a row: the value or
        null, not lists.

    Returns
    -------
    pyarrow.RecordBatch
        The types are those of `fastrec.arrow.RecordBatch`. It shares the memory of the
        batch.

    Raises
    ------
    SchemaError
        If a column is sparse, of a dtype that Arrow does not have, named as text and no
        UTF-8, or has several values in a row though it is optional.
    ValueError
        If a column that is named is not there.
    ModuleNotFoundError
        If pyarrow is not installed.
    """
    with extra("arrow", "making Arrow record batches"):
        import pyarrow  # noqa: F401
    return _as_pyarrow(fr.arrow.RecordBatch(batch, text, optional))


def _as_pyarrow(batch: fr.arrow.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    # By numbers, because names may have zero bytes, which would end them in C.
    numbered = batch._with_names(map(str, range(len(batch.column_names))))
    return pa.record_batch(numbered).rename_columns(batch.column_names)
