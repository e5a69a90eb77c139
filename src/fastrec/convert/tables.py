"""CSV, Parquet, Arrow IPC and Feather files -> columns; needs pyarrow."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import fastrec as fr
from fastrec.convert.arrow_columns import columns_of, feature_kind, features_of
from fastrec.convert.source import Columns, Source, chosen
from fastrec.options import rows_per_batch
from fastrec.printable import printable
from fastrec.storage.compression import GZIP_MAGIC

__all__ = ["TableSource", "slices"]

# Types are inferred from the first block, and no row may be longer.
_CSV_BLOCK_BYTES = 4 << 20

# Pages are read in such pieces, and not a whole row group at once.
_PARQUET_OPTIONS: Mapping[str, Any] = {
    "buffer_size": 1 << 20,
    "pre_buffer": False,
    "page_checksum_verification": True,
}

_IPC_FILE_MAGIC = b"ARROW1"


class TableSource(Source):
    """Tables of equal columns, one after another.

    Parameters
    ----------
    kind : {"csv", "parquet", "arrow"}
        What the files are.
    paths : sequence of str
    columns : sequence of str, optional
        Which of the columns, in this order.
    types : mapping of str to str, optional
        Columns to cast, and the Arrow types to cast them to.

    Raises
    ------
    ValueError
        If tables differ in their columns, or one that is named is not there.
    CorruptionError
        If a file is not what it should be.
    SchemaError
        If no feature holds a column.
    OSError
        If a file cannot be read.
    """

    def __init__(
        self,
        kind: str,
        paths: Sequence[str],
        columns: Sequence[str] | None = None,
        types: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        casts = {name: _type_of(alias) for name, alias in (types or {}).items()}
        self._tables: list[_Table] = []
        for path in paths:
            self._tables.append(_TABLES[kind](path, columns, casts))
        first = self._tables[0]
        self._names = first.schema.names
        for table in self._tables:
            with _blamed(table.path):
                features = features_of(table.schema)
            _check_equal(first, table)
            self.features = dict(features)
        self.n_total = sum(table.n_total for table in self._tables)
        self.unit = first.unit

    def _batches(self) -> Iterator[Columns]:
        n_before = 0
        for table in self._tables:
            # Closed at once, so that no file stays open behind a loop that is left.
            with _blamed(table.path), contextlib.closing(table.batches()) as batches:
                for batch in batches:
                    for part in slices(batch.select(self._names)):
                        yield columns_of(part)
                    self.n_done = n_before + table.n_done
            n_before += table.n_total
        self.n_done = self.n_total


@contextlib.contextmanager
def _blamed(path: str) -> Iterator[None]:
    """Say in errors which file they are about.

    Raises
    ------
    CorruptionError, SchemaError, Error, OSError
        In place of Arrow's errors.
    """
    try:
        yield
    except fr.SchemaError as error:
        if error.path is not None:
            raise
        raise fr.SchemaError(
            error.reason, path, feature=error.feature, code=error.code
        ) from None
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowNotImplementedError as error:  # no codec, for example
        raise fr.Error(" ".join(str(error).split()), path) from error
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        if "conversion error" in reason:
            reason += (
                ': say what the column is, with types={NAME: "string"} '
                "(--type NAME=string)"
            )
            raise fr.SchemaError(reason, path) from error
        raise fr.CorruptionError(reason, path) from error
    except OSError as error:
        if error.errno is not None:
            error.filename = error.filename or path
            raise
        raise fr.CorruptionError(" ".join(str(error).split()), path) from error


def _type_of(alias: str) -> pa.DataType:
    try:
        return pa.type_for_alias(alias)
    except ValueError:
        raise ValueError(
            f"{alias!r} is no type of Arrow that has a name: int64, float64, string, ..."
        ) from None


def _check_equal(first: _Table, table: _Table) -> None:
    """Refuse a table whose features would differ from those of the first."""
    one = {field.name: feature_kind(field.type) for field in first.schema}
    other = {field.name: feature_kind(field.type) for field in table.schema}
    for name in {**one, **other}:
        if one.get(name) != other.get(name):
            raise ValueError(
                f"column {name!r} is {other.get(name, 'missing')} in {printable(table.path)} and "
                f"{one.get(name, 'missing')} in {printable(first.path)}"
            )


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield views of a batch that have the size of a batch; of none, nothing."""
    n_rows = rows_per_batch(batch.get_total_buffer_size() / max(len(batch), 1))
    for first in range(0, len(batch), n_rows):
        yield batch.slice(first, n_rows)


# Each kind of file.


class _Table(ABC):
    """A file as record batches.

    Attributes
    ----------
    path : str
    schema : pyarrow.Schema
        Of those columns that are asked for, after casts.
    n_done, n_total, unit
        As `Source` has them.
    """

    schema: pa.Schema
    n_total: int
    unit = ""

    def __init__(
        self,
        path: str,
        columns: Sequence[str] | None,
        casts: Mapping[str, pa.DataType],
    ) -> None:
        self.path = path
        self.n_done = 0
        self._casts = casts
        with _blamed(path):
            there = self._open()
        fields = chosen(columns, [(field.name, field) for field in there])
        if not fields:
            raise ValueError(f"there is no column in {printable(path)}")
        for name in casts:
            if name not in fields:
                listed = ", ".join(map(repr, fields))
                raise ValueError(f"there is no column {name!r}, only {listed}")
        self._names = list(fields)
        self.schema = pa.schema(
            [(name, casts.get(name, field.type)) for name, field in fields.items()]
        )

    @abstractmethod
    def _open(self) -> pa.Schema:
        """Look at the beginning of the file, and return its schema."""

    @abstractmethod
    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the file in batches that have the columns of `schema`."""

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for field in self.schema:
            array = batch.column(field.name)
            if field.name in self._casts:
                try:
                    array = array.cast(field.type)
                except pa.ArrowException as error:
                    reason = (
                        f"column {field.name!r} of type {array.type} cannot be cast to "
                        f"{field.type}: {error}"
                    )
                    raise fr.SchemaError(reason, feature=field.name) from error
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=self.schema.names)


class _ParquetTable(_Table):
    def _open(self) -> pa.Schema:
        with pyarrow.parquet.ParquetFile(self.path, **_PARQUET_OPTIONS) as file:
            self.n_total = file.metadata.num_rows
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            n_bytes = sum(group.total_byte_size for group in groups)
            self._n_rows = rows_per_batch(n_bytes / max(self.n_total, 1))
            return file.schema_arrow

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        self.n_done = 0
        with pyarrow.parquet.ParquetFile(self.path, **_PARQUET_OPTIONS) as file:
            for batch in file.iter_batches(self._n_rows, columns=self._names):
                self.n_done += len(batch)
                yield self._cast(batch)


class _ArrowTable(_Table):
    """The IPC formats: a file, with its batches counted, or a stream."""

    def _open(self) -> pa.Schema:
        with Path(self.path).open("rb") as file:
            self._is_file = file.read(len(_IPC_FILE_MAGIC)) == _IPC_FILE_MAGIC
            n_bytes = file.seek(0, 2)
        with pa.memory_map(self.path) as file:
            if self._is_file:
                with pa.ipc.open_file(file) as reader:
                    self.n_total = reader.num_record_batches
                    return reader.schema
            self.n_total, self.unit = n_bytes, "bytes"
            with pa.ipc.open_stream(file) as reader:
                return reader.schema

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        self.n_done = 0
        with pa.memory_map(self.path) as file:
            if self._is_file:
                with pa.ipc.open_file(file) as reader:
                    for i in range(reader.num_record_batches):
                        batch = reader.get_batch(i)
                        batch.validate(full=True)  # for offsets are followed blindly
                        self.n_done += 1
                        yield self._cast(batch)
            else:
                with pa.ipc.open_stream(file) as reader:
                    for batch in reader:
                        batch.validate(full=True)
                        self.n_done = file.tell()
                        yield self._cast(batch)


class _CsvTable(_Table):
    """Text with the names in its first line; .tsv has tabs for commas.

    Dates and times stay text, and so does what is empty in the whole first block. An
    empty cell is null in a column of numbers, and an empty string in one of text.
    """

    unit = "bytes"

    def _open(self) -> pa.Schema:
        with Path(self.path).open("rb") as file:
            self._is_gzipped = file.read(2) == GZIP_MAGIC
            self.n_total = file.seek(0, 2)
        self._types = dict(self._casts)
        with self._reader() as (reader, _):
            schema = reader.schema
        for field in schema:
            is_time = pa.types.is_temporal(field.type)
            if is_time or pa.types.is_null(field.type):
                self._types.setdefault(field.name, pa.string())
        types = [self._types.get(field.name, field.type) for field in schema]
        return pa.schema(list(zip(schema.names, types, strict=True)))

    @contextlib.contextmanager
    def _reader(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield what reads batches, and the file below, to ask how far it has come."""
        is_tsv = ".tsv" in [suffix.lower() for suffix in Path(self.path).suffixes]
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(pa.OSFile(self.path))
            text = file
            if self._is_gzipped:
                text = stack.enter_context(pa.CompressedInputStream(file, "gzip"))
            reader = pyarrow.csv.open_csv(
                text,
                pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
                pyarrow.csv.ParseOptions(
                    delimiter="\t" if is_tsv else ",", newlines_in_values=True
                ),
                pyarrow.csv.ConvertOptions(
                    column_types=self._types, include_columns=columns
                ),
            )
            yield stack.enter_context(reader), file

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        self.n_done = 0
        with self._reader(self._names) as (reader, file):
            for batch in reader:
                self.n_done = file.tell()
                yield batch


_TABLES: Mapping[str, type[_Table]] = {
    "csv": _CsvTable,
    "parquet": _ParquetTable,
    "arrow": _ArrowTable,
}
