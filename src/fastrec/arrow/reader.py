"""RecordBatchReader: datasets and loaders as streams of Arrow record batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.arrow.record_batch import Field, RecordBatch, type_names
from fastrec.errors import SchemaError
from fastrec.options import positive_int


class Table(Protocol):
    """The method of a dataset or loader that a RecordBatchReader calls."""

    def _table_loader(self, batch_size: int | None, num_threads: int | None) -> Any: ...


class RecordBatchReader:
    """A dataset or loader as a stream of Arrow record batches, with options.

    The reader implements the Arrow PyCapsule Interface: ``pyarrow.table(reader)``,
    ``polars.DataFrame(reader)``, ``pandas.DataFrame.from_arrow(reader)``, and in DuckDB
    ``SELECT ... FROM reader``. Iteration yields `RecordBatch` objects.

    Each use reads a dataset again, or reads the next epoch of a loader. The loader's
    `report` lists the rows that `on_error` skips. All columns are decoded; to read
    fewer columns, pass ``ds.select_columns([...])``. A column of a table keeps all
    columns of its batches in memory.

    Parameters
    ----------
    source : Dataset or Loader
        All records of a dataset are read, on every rank.
    batch_size : int, optional
        Rows per record batch of a dataset; by default about 16 MiB of rows.
    text, optional : collection of str, default ()
        As for `RecordBatch`. For an inferred schema, pass
        ``**ds.schema.arrow_options``.
    progress : callable, optional
        Called after each record batch with the number of rows so far.

    Attributes
    ----------
    error : Exception or None
        The exception that ended the last stream, or None.

    Raises
    ------
    TypeError, ValueError
        If an option is invalid.

    Notes
    -----
    Column types are as for `RecordBatch`. A `fastrec.FixedLenSequence` without
    ``length=``, whose width varies between batches, becomes large_list: with padding if
    `source` is a loader or has transforms, otherwise without padding. Transforms must
    return the same columns for all batches.

    Arrow consumers convert an error of the stream to their own exception with the same
    text, such as pyarrow's ArrowInvalid or OSError. In the main thread,
    KeyboardInterrupt and SystemExit are also raised.

    Examples
    --------
    >>> import fastrec as fr
    >>> ds = fr.open("train-*.tfrecord")  # doctest: +SKIP
    >>> table = pyarrow.table(
    ...     fr.arrow.RecordBatchReader(ds, text=["name"])
    ... )  # doctest: +SKIP
    """

    def __init__(
        self,
        source: Table,
        *,
        batch_size: int | None = None,
        text: Collection[str] = (),
        optional: Collection[str] = (),
        progress: Callable[[int], object] | None = None,
        _num_threads: int | None = None,
    ) -> None:
        if not hasattr(source, "_table_loader"):
            raise TypeError(
                f"source must be a Dataset or a Loader, got {type(source).__name__}"
            )
        self._is_loader = hasattr(source, "batch_size")
        if batch_size is not None:
            if self._is_loader:
                raise ValueError(
                    "batch_size= requires a Dataset, got a Loader, which has its own"
                )
            batch_size = positive_int("batch_size", batch_size)
        self._source, self._batch_size = source, batch_size
        self._num_threads = _num_threads
        self._text, self._optional = frozenset(text), frozenset(optional)
        self._progress = progress
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[RecordBatch]:
        """Yield nonempty record batches, which all have the same schema.

        Raises
        ------
        SchemaError
            If the columns of a batch differ from the first batch, or Arrow does not
            support the type of a column.
        fastrec.Error, OSError
            As for the loader.
        """
        return self._begin()[1]

    def __arrow_c_schema__(self) -> object:
        """Return a capsule ``arrow_schema`` with the names and types of the columns.

        No records are decoded, except the first batch if there are transforms.
        """
        # The schema does not depend on the batch size; choosing a size would
        # decode records.
        loader = self._source._table_loader(self._batch_size or 1, self._num_threads)
        if loader._has_transforms:
            return _core.arrow_schema(self._begin()[0])
        return self._record_batch(loader._empty_batch(), loader).__arrow_c_schema__()

    def __arrow_c_stream__(
        self,
        requested_schema: object | None = None,
    ) -> object:
        """Return a capsule ``arrow_array_stream``.

        The requested schema is ignored, as the interface allows.
        """
        field, batches = self._begin()
        return _core.arrow_array_stream(field, (batch._values for batch in batches))

    def _begin(self) -> tuple[Field, Iterator[RecordBatch]]:
        """Return a Field that describes the columns, and an iterator over batches."""
        loader = self._source._table_loader(self._batch_size, self._num_threads)
        batches: Iterable[Batch] = loader
        sample: Batch | None = None
        if loader._has_transforms and self._is_loader:
            sample = loader._upcoming()
        elif loader._has_transforms:
            rest = iter(loader)
            sample = next(rest, None)
            batches = rest if sample is None else itertools.chain([sample], rest)
        if sample is None:
            sample = loader._empty_batch()
        field = self._record_batch(sample, loader)._field
        return field, self._checked(batches, loader, field)

    def _record_batch(
        self, batch: Batch, loader: Any, n_before: int = 0
    ) -> RecordBatch:
        """Convert the batch that the loader delivered last, after `n_before` rows."""
        any_width = loader.dataset._any_width_columns()
        try:
            return RecordBatch(batch, self._text, self._optional, _any_width=any_width)
        except SchemaError as error:
            if error.record is not None:
                place = loader._place_of(error.record)
                if place is None:
                    error.reason += f" (row {n_before + error.record:,} of the table)"
                error.path, error.record, error.offset = place or (None, None, None)
            raise

    def _checked(
        self, batches: Iterable[Batch], loader: Any, field: Field
    ) -> Iterator[RecordBatch]:
        n_before = 0
        self.error = None
        try:
            for batch in batches:
                record_batch = self._record_batch(batch, loader, n_before)
                if not len(record_batch):  # types of empty columns may be arbitrary
                    continue
                if record_batch._field != field:
                    raise SchemaError(
                        "transforms must return the same columns for all batches, got "
                        f"{type_names(record_batch._field)} after {type_names(field)}"
                    )
                yield record_batch
                n_before += len(record_batch)
                if self._progress is not None:
                    self._progress(n_before)
        except Exception as error:
            self.error = error
            raise
