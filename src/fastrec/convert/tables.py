"""CSV, Parquet, Arrow IPC and Feather files, and Arrow tables -> columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fastrec.convert.arrow_columns import columns_of, features_of
from fastrec.convert.source import Columns, Source, select_columns
from fastrec.errors import CorruptionError, Error, SchemaError
from fastrec.options import rows_per_batch
from fastrec.printable import printable
from fastrec.storage.compression import GZIP_MAGIC

# Types are inferred from the first block. A row must fit into a block.
_CSV_BLOCK_BYTES = 4 << 20

# Read pages in small pieces instead of whole row groups, to bound memory.
_PARQUET_OPTIONS: Mapping[str, Any] = {
    "buffer_size": 1 << 20,
    "pre_buffer": False,
    "page_checksum_verification": True,
}

_HF_ROWS = 256  # rows of a Hugging Face dataset in memory at once

# The schema of a file, its rows (0 if unknown), and its record batches.
_Table: TypeAlias = tuple[pa.Schema, int, Iterable[pa.RecordBatch]]


class TableSource(Source):
    """Concatenated table files; later files are cast to the types of the first."""

    def __init__(
        self,
        kind: str,
        paths: Sequence[str],
        columns: Sequence[str] | None,
        types: Mapping[str, str] | None,
    ) -> None:
        super().__init__()
        self._paths, self._open = paths, _FORMATS[kind]
        casts = {
            name: pa.type_for_alias(alias) for name, alias in (types or {}).items()
        }
        self._schema = pa.schema([])
        for path in paths:
            with (
                _fastrec_errors(path),
                self._open(path, casts, None) as (schema, n_rows, _),
            ):
                fields = select_columns(columns, [(f.name, f) for f in schema])
                select_columns(list(casts) or None, fields.items())
                if path is paths[0]:
                    self._schema = pa.schema(
                        [(name, casts.get(name, f.type)) for name, f in fields.items()]
                    )
                    self.features = features_of(self._schema)
                elif differing := set(fields) ^ set(self._schema.names):
                    raise ValueError(
                        f"column {min(differing)!r} must be in all files, but is only in "
                        f"one of {printable(paths[0])} and {printable(path)}; select "
                        "columns with columns= (--columns)"
                    )
                self.n_total += n_rows

    def _batches(self) -> Iterator[Columns]:
        types = {field.name: field.type for field in self._schema}
        for path in self._paths:
            with (
                _fastrec_errors(path),
                self._open(path, types, list(types)) as (_, _, batches),
            ):
                for batch in batches:
                    for part in _slices(self._cast(batch)):
                        yield columns_of(part)

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for field in self._schema:
            array = batch.column(field.name)
            try:
                arrays.append(
                    array.cast(field.type) if array.type != field.type else array
                )
            except pa.ArrowException as error:
                raise SchemaError(
                    f"cannot cast column {field.name!r} from {array.type} to {field.type}: "
                    f"{error}; set its type with types= (--type)",
                    feature=field.name,
                ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class ArrowSource(Source):
    """The record batches of a table in memory, which can be read once.

    Parameters
    ----------
    data : object with ``__arrow_c_stream__``, or datasets.Dataset
    """

    def __init__(self, data: Any) -> None:
        super().__init__()
        self._reader = (
            pa.RecordBatchReader.from_stream(data)
            if hasattr(data, "__arrow_c_stream__")
            else _dataset_reader(data)
        )
        schema = self._reader.schema
        select_columns(None, [(field.name, field) for field in schema])
        self.features = features_of(schema)

    def _batches(self) -> Iterator[Columns]:
        for batch in self._reader:
            yield from map(columns_of, _slices(batch))
        if not self.n_rows:
            raise ValueError(
                "data must have at least one row, got none; use fastrec.Writer to write "
                "an empty file"
            )


def _dataset_reader(dataset: Any) -> pa.RecordBatchReader:
    """Return the rows of a Hugging Face dataset as record batches."""
    schema = dataset.features.arrow_schema
    tables = dataset.with_format("arrow").iter(_HF_ROWS)
    batches = (batch for table in tables for batch in table.cast(schema).to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield views of a batch, each of about 16 MiB."""
    n_rows = rows_per_batch(batch.get_total_buffer_size() / max(len(batch), 1))
    for first in range(0, len(batch), n_rows):
        yield batch.slice(first, n_rows)


@contextlib.contextmanager
def _fastrec_errors(path: str) -> Iterator[None]:
    """Convert errors of Arrow to errors of fastrec with the path."""
    try:
        yield
    except SchemaError as error:
        error.path = error.path or path
        raise
    except pa.ArrowNotImplementedError as error:  # a codec, for example
        raise Error(_one_line(error), path) from error
    except (pa.ArrowException, OSError) as error:
        # Arrow reports damage as an OSError without errno.
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise
        raise CorruptionError(_one_line(error), path) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


# For each format, open a file with the types and names of columns.


@contextlib.contextmanager
def _parquet(path: str, _types: object, columns: list[str] | None) -> Iterator[_Table]:
    with pyarrow.parquet.ParquetFile(path, **_PARQUET_OPTIONS) as file:
        meta = file.metadata
        n_bytes = sum(
            meta.row_group(i).total_byte_size for i in range(meta.num_row_groups)
        )
        n_rows = rows_per_batch(n_bytes / max(meta.num_rows, 1))
        batches = file.iter_batches(n_rows, columns=columns)
        yield file.schema_arrow, meta.num_rows, batches


@contextlib.contextmanager
def _ipc(path: str, _types: object, _columns: object) -> Iterator[_Table]:
    with pa.memory_map(path) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        if is_file:
            reader = pa.ipc.open_file(file)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            reader = batches = pa.ipc.open_stream(file)
        yield reader.schema, 0, map(_validated, batches)


def _validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.validate(full=True)  # because a damaged file may have any offsets
    return batch


@contextlib.contextmanager
def _csv(
    path: str, types: Mapping[str, pa.DataType], columns: list[str] | None
) -> Iterator[_Table]:
    """Open text with column names in its first line; .tsv files have tabs.

    Dates, times, and columns that are empty in the first block are read as text. An empty
    cell is null in a column of numbers, and an empty string in a column of text.
    """
    malformed: list[object] = []

    def refuse(row: object) -> str:
        malformed.append(row)
        return "error"

    with Path(path).open("rb") as file:
        compression = "gzip" if file.read(2) == GZIP_MAGIC else None
    is_tsv = ".tsv" in [suffix.lower() for suffix in Path(path).suffixes]
    try:
        with (
            pa.input_stream(path, compression=compression) as text,
            pyarrow.csv.open_csv(
                text,
                pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
                pyarrow.csv.ParseOptions(
                    delimiter="\t" if is_tsv else ",",
                    newlines_in_values=True,
                    invalid_row_handler=refuse,
                ),
                pyarrow.csv.ConvertOptions(column_types=types, include_columns=columns),
            ) as reader,
        ):
            is_text = [
                f.name not in types
                and (pa.types.is_temporal(f.type) or f.type == pa.null())
                for f in reader.schema
            ]
            fields = [
                (field.name, pa.string() if is_text[i] else field.type)
                for i, field in enumerate(reader.schema)
            ]
            yield pa.schema(fields), 0, reader
    except pa.ArrowInvalid as error:
        if malformed:
            raise
        hint = (
            'set the type of a column with types={NAME: "string"} (--type NAME=string)'
        )
        raise SchemaError(f"{_one_line(error)}; {hint}", path) from error


_FORMATS = {"csv": _csv, "parquet": _parquet, "arrow": _ipc}
