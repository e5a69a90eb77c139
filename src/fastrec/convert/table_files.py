"""Record batches -> a Parquet, Arrow IPC or Feather file; needs pyarrow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet

from fastrec.printable import printable
from fastrec.storage.atomic import replacement

__all__ = ["written_table"]


@contextlib.contextmanager
def written_table(path: Path) -> Iterator[Callable[[pa.RecordBatch], object]]:
    """Yield what writes a record batch; the file has its name when all are written.

    After an error it is what it was before.

    Raises
    ------
    ValueError
        If the suffix of `path` is of no format that can be written.
    OSError
        If the disk refuses.
    """
    writer_of = _WRITERS.get(path.suffix.lower())
    if writer_of is None:
        listed = ", ".join(_WRITERS)
        raise ValueError(f"{printable(path)} does not end in {listed}")
    writer: Any = None
    with replacement(path) as temporary, temporary.open("xb") as file:

        def write(batch: pa.RecordBatch) -> None:
            nonlocal writer
            if writer is None:
                writer = writer_of(file, batch.schema)
            writer.write_batch(batch)

        try:
            yield write
        finally:
            if writer is not None:
                writer.close()
        file.flush()
        os.fsync(file.fileno())


def _parquet(file: IO[bytes], schema: pa.Schema) -> Any:  # noqa: ANN401
    return pyarrow.parquet.ParquetWriter(file, schema)


def _arrow(file: IO[bytes], schema: pa.Schema) -> Any:  # noqa: ANN401
    return pa.ipc.new_file(file, schema)


def _feather(file: IO[bytes], schema: pa.Schema) -> Any:  # noqa: ANN401
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    return pa.ipc.new_file(file, schema, options=options)


_WRITERS = {".parquet": _parquet, ".arrow": _arrow, ".feather": _feather}
