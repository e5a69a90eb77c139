"""Datasets -> Parquet, Arrow and Feather files."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fastrec.arrow.reader import RecordBatchReader
from fastrec.dataset.dataset import Dataset
from fastrec.dataset.open import open as open_dataset
from fastrec.errors import Error
from fastrec.options import extra
from fastrec.printable import printable
from fastrec.storage.atomic import replacement
from fastrec.storage.parallel import Progress
from fastrec.storage.paths import Paths

TABLE_SUFFIXES = (".parquet", ".arrow", ".feather")


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
        Records per row group or record batch; by default about 16 MiB.
    overwrite : bool, default False
        Replace an existing file when the new one is complete.
    progress : callable, optional
        Called after each batch with the number of records written and their total, or 0
        if the total is unknown without reading the files.

    Returns
    -------
    int
        The number of records.

    Raises
    ------
    FileExistsError
        If `path` exists and `overwrite` is False.
    ValueError
        If the suffix is unknown, or `text` or `optional` names a missing column.
    SchemaError
        As for `fastrec.arrow.RecordBatch`.
    fastrec.Error, OSError
        As for `fastrec.open` and loading; also if there are no records.
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
    # Batch by batch, because an Arrow stream converts errors to text.
    batches = RecordBatchReader(ds, batch_size=batch_size, text=text, optional=optional)
    with replacement(target) as temporary, temporary.open("wb") as file:
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
            raise Error(
                f"cannot write an empty table: no records in {', '.join(ds.files)}"
            )
    return n_records
