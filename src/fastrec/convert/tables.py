"""Read CSV, Parquet, Arrow IPC and Feather files, and Arrow tables, as columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fastrec.convert.arrow_columns import columns_of, features_of
from fastrec.convert.source import NO_ROWS, Columns, Source, selected
from fastrec.errors import CorruptionError, Error, SchemaError
from fastrec.options import rows_per_batch
from fastrec.printable import printable
from fastrec.storage.compression import GZIP_MAGIC

# Types are inferred from the first block. A row must fit into one block.
_CSV_BLOCK_BYTES = 4 << 20

_HF_ROWS = 256  # rows of a Hugging Face dataset in memory at once

# Schema of a file, number of rows (0 if unknown), and record batches.
_Table: TypeAlias = tuple[pa.Schema, int, Iterable[pa.RecordBatch]]


def open_tables(
    kind: str,
    paths: Sequence[str],
    columns: Sequence[str] | None,
    types: Mapping[str, str] | None,
) -> Source:
    """Open table files, which are cast to the types of the first file."""
    casts = {name: pa.type_for_alias(alias) for name, alias in (types or {}).items()}
    first, n_total = pa.schema([]), 0
    for path in paths:
        with _fastrec_errors(path):
            schema, n_rows, _ = _FORMATS[kind](path, casts, None)
            names = selected(columns, schema.names)
            if casts:
                selected(list(casts), names)
            if path is paths[0]:
                first = pa.schema(
                    (name, casts.get(name, schema.field(name).type)) for name in names
                )
                features = features_of(first)
            elif differing := {*names} ^ {*first.names}:
                raise ValueError(
                    f"column {min(differing)!r} must be in all files, but is only in one "
                    f"of {printable(paths[0])} and {printable(path)}; select columns "
                    "with columns= (--columns)"
                )
            n_total += n_rows
    return Source(_batches(kind, paths, first), features, n_total)


def _batches(kind: str, paths: Sequence[str], schema: pa.Schema) -> Iterator[Columns]:
    types = {field.name: field.type for field in schema}
    for path in paths:
        with _fastrec_errors(path):
            _, _, batches = _FORMATS[kind](path, types, list(types))
            for batch in batches:
                arrays = [_cast(batch.column(field.name), field) for field in schema]
                cast = pa.RecordBatch.from_arrays(arrays, schema=schema)
                yield from map(columns_of, _slices(cast))


def open_arrow(data: Any) -> Source:
    """Open an object with ``__arrow_c_stream__``, or a `datasets.Dataset`."""
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
    else:
        schema = data.features.arrow_schema
        tables = data.with_format("arrow").iter(_HF_ROWS)
        reader = pa.RecordBatchReader.from_batches(
            schema, (b for table in tables for b in table.cast(schema).to_batches())
        )
    selected(None, reader.schema.names)

    def batches() -> Iterator[Columns]:
        n_rows = 0
        for batch in reader:
            n_rows += len(batch)
            yield from map(columns_of, _slices(batch))
        if not n_rows:
            raise ValueError(NO_ROWS)

    return Source(batches(), features_of(reader.schema))


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return array if array.type == field.type else array.cast(field.type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"cannot cast column {field.name!r} from {array.type} to {field.type}: "
            f"{error}; set its type with types= (--type)",
            feature=field.name,
        ) from error


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield consecutive slices of a batch, as views of about 16 MiB each."""
    n_rows = rows_per_batch(batch.get_total_buffer_size() / max(len(batch), 1))
    for first in range(0, len(batch), n_rows):
        yield batch.slice(first, n_rows)


@contextlib.contextmanager
def _fastrec_errors(path: str) -> Iterator[None]:
    """In a with block, convert Arrow errors to fastrec errors that contain `path`."""
    try:
        yield
    except SchemaError as error:
        error.path = error.path or path
        raise
    except (pa.ArrowException, OSError) as error:
        # Arrow reports damage as an OSError without errno.
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise
        reason = " ".join(str(error).split())
        if isinstance(error, pa.ArrowNotImplementedError):  # for example, a codec
            raise Error(reason, path) from error
        if "CSV conversion error" in reason:
            reason += (
                "; set the type of a column with types={NAME: "
                '"string"} (--type NAME=string)'
            )
            raise SchemaError(reason, path) from error
        raise CorruptionError(reason, path) from error


# Each function opens a file of one format, with the types and names of columns.


def _parquet(path: str, _types: object, columns: list[str] | None) -> _Table:
    # Read pages in small pieces instead of whole row groups, to bound memory.
    file = pyarrow.parquet.ParquetFile(
        path, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True
    )
    meta = file.metadata
    n_bytes = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
    n_rows = rows_per_batch(n_bytes / max(meta.num_rows, 1))
    batches = file.iter_batches(n_rows, columns=columns)
    return file.schema_arrow, meta.num_rows, batches


def _ipc(path: str, _types: object, _columns: object) -> _Table:
    file = pa.memory_map(path)
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    if not is_file:
        reader = pa.ipc.open_stream(file)
        return reader.schema, 0, map(_validated, reader)
    reader = pa.ipc.open_file(file)
    batches = map(reader.get_batch, range(reader.num_record_batches))
    return reader.schema, 0, map(_validated, batches)


def _validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.validate(full=True)  # a damaged file may have invalid offsets
    return batch


def _csv(
    path: str, types: Mapping[str, pa.DataType], columns: list[str] | None
) -> _Table:
    """Open a CSV or TSV file whose first line contains the column names.

    Dates, times and columns empty in the first block are text, except those in `types`.
    An empty cell is null in a column of numbers, and an empty string in a text column.
    """
    is_tsv = ".tsv" in [suffix.lower() for suffix in Path(path).suffixes]
    with open(path, "rb") as file:
        compression = "gzip" if file.read(2) == GZIP_MAGIC else None
    reader = pyarrow.csv.open_csv(
        pa.input_stream(path, compression=compression),
        pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
        pyarrow.csv.ParseOptions(
            delimiter="\t" if is_tsv else ",", newlines_in_values=True
        ),
        pyarrow.csv.ConvertOptions(column_types=types, include_columns=columns),
    )
    fields = []
    for field in reader.schema:
        is_text = pa.types.is_temporal(field.type) or field.type == pa.null()
        is_read_as_text = is_text and field.name not in types
        fields.append((field.name, pa.string() if is_read_as_text else field.type))
    return pa.schema(fields), 0, reader


_FORMATS = {"csv": _csv, "parquet": _parquet, "arrow": _ipc}
