"""Record batch readers: datasets and loaders as streams of Arrow record batches."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.arrow.columns import Field, described
from fastrec.arrow.record_batch import (
    RecordBatch,
    check_names,
    requested_text,
    schema_capsule,
)
from fastrec.batch_size import rows_per_batch
from fastrec.dataset.dataset import Dataset
from fastrec.errors import Error, SchemaError
from fastrec.loader.adapting import empty_batch, upcoming
from fastrec.loader.loader import Loader
from fastrec.options import positive_int

__all__ = ["RecordBatchReader", "rows_at_once"]

_SAMPLE_RECORDS = 64


class RecordBatchReader:
    """A dataset or loader that pyarrow, polars, DuckDB and pandas take for a table.

    Datasets and loaders are such tables by themselves; this one has options. It speaks
    the Arrow PyCapsule Interface: ``pyarrow.table(reader)``, ``polars.DataFrame(reader)``,
    ``pandas.DataFrame.from_arrow(reader)``, and in DuckDB ``SELECT ... FROM reader``.
    Iterating gives `RecordBatch` objects.

    Each use of a dataset is a new pass over it, which decodes as batches are asked for;
    each use of a loader is its next epoch. All columns are decoded: leave out what a
    query does not need, with ``ds.columns([...])``. A column of a table keeps its batches
    in memory, with all their columns.

    What `on_error` passes over is in the report of a loader: let that be the table, and
    read ``loader.report`` afterwards.

    Parameters
    ----------
    source : Dataset or Loader
        Of a dataset, all records are read, whatever the rank of this process.
    batch_size : int, optional
        Rows in a record batch of a dataset. By default about 16 MiB of them.
    text, optional : collection of str, default ()
        As `RecordBatch` has them.

    Raises
    ------
    TypeError, ValueError
        If an option makes no sense.

    Notes
    -----
    Types are those of `RecordBatch`. `fastrec.FixedLenSequence` without ``length=``, which
    is also what is inferred for lists of SequenceExamples, has another width in each batch,
    and so is large_list: without padding in the table of a dataset; as the batches have
    it, if there are transforms, or of a loader. What a transform makes is known from the
    first batch; all others must be like it.

    Consumers get an error of a stream as a text: pyarrow raises it as ArrowInvalid or
    OSError, for example. It says which file and record are damaged. In the main
    thread, KeyboardInterrupt and SystemExit are then raised themselves, too.

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
        source: Dataset | Loader,
        *,
        batch_size: int | None = None,
        text: Collection[str] = (),
        optional: Collection[str] = (),
    ) -> None:
        given: object = source
        if not isinstance(given, (Dataset, Loader)):
            msg = f"source must be a Dataset or a Loader, not {type(given).__name__}"
            raise TypeError(msg)
        if isinstance(source, Loader) and batch_size is not None:
            msg = "a loader has a batch_size of its own"
            raise ValueError(msg)
        check_names("text", text)
        check_names("optional", optional)
        self._source = source
        self._batch_size = (
            None if batch_size is None else positive_int("batch_size", batch_size)
        )
        self._text, self._optional = frozenset(text), frozenset(optional)

    def __iter__(self) -> Iterator[RecordBatch]:
        """Yield record batches, all of one schema and each with at least one row.

        Raises
        ------
        SchemaError
            If a batch has other columns than the first, or one that Arrow has not.
        fastrec.Error, OSError
            As the loader.
        """
        return self._begin()[1]

    def __arrow_c_schema__(self) -> object:
        """Return a capsule ``arrow_schema`` with names and types of the columns.

        Decodes nothing, unless there are transforms: then, the first batch.
        """
        return schema_capsule(self._schema())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule ``arrow_array_stream``.

        Parameters
        ----------
        requested_schema : capsule, optional
            Byte strings that it has as text become text; nothing else is converted.
        """
        if requested_schema is not None and (
            more := requested_text(requested_schema, self._schema())
        ):
            reader = RecordBatchReader(
                self._source,
                batch_size=self._batch_size,
                text=self._text | more,
                optional=self._optional,
            )
            return reader.__arrow_c_stream__()
        field, batches = self._begin()
        schema_capsule(field)  # what no schema can name, no stream can
        return _core.arrow_array_stream(field, (batch._values for batch in batches))

    def _schema(self) -> Field:
        """Return the columns as the batches will have them."""
        source = self._source
        if isinstance(source, Dataset):
            # What is in no batch depends on no batch size.
            loader = source.loader(1, rank=0, world_size=1)
            if not loader.has_transforms:
                return self._record_batch(empty_batch(loader), loader)._field
        return self._begin()[0]

    def _begin(self) -> tuple[Field, Iterator[RecordBatch]]:
        """Return the columns, and the batches of a new pass."""
        source = self._source
        loader = source if isinstance(source, Loader) else self._loader_of(source)
        batches: Iterable[Batch] = loader
        first: list[Batch] = []
        sample: Batch | None = None
        if loader.has_transforms and loader is source:
            sample = upcoming(loader)
        elif loader.has_transforms:
            batches = iter(loader)
            first = list(itertools.islice(batches, 1))
            sample = first[0] if first else None
        if sample is None:
            sample = empty_batch(loader)
        field = self._record_batch(sample, loader)._field
        return field, self._checked(itertools.chain(first, batches), loader, field)

    def _loader_of(self, dataset: Dataset) -> Loader:
        batch_size = self._batch_size or rows_at_once(dataset)
        if not dataset.has_transforms:  # they expect what batches have
            dataset = dataset._without_padding()
        # One rank, whatever the environment says: a table is not divided among machines.
        return dataset.loader(batch_size, rank=0, world_size=1)

    def _record_batch(
        self, batch: Batch, loader: Loader, n_before: int = 0
    ) -> RecordBatch:
        """Return a batch with `n_before` rows before it, the last that was delivered."""
        any_width = loader.dataset._any_width_columns()
        try:
            return RecordBatch._of(batch, self._text, self._optional, any_width)
        except SchemaError as error:
            if error.record is None:
                raise
            placed = _placed(error, error.record, loader, n_before)
            raise placed from error.__cause__

    def _checked(
        self, batches: Iterable[Batch], loader: Loader, field: Field
    ) -> Iterator[RecordBatch]:
        n_before = 0
        for batch in batches:
            made = self._record_batch(batch, loader, n_before)
            if not len(made):  # what nothing was left of has no types to speak of
                continue
            if made._field != field:
                raise SchemaError(_difference(field, made._field))
            yield made
            n_before += len(made)


def rows_at_once(dataset: Dataset) -> int:
    """Return how many rows make a batch of a good size, by the memory of the first."""
    plain = dataset._without_transforms()
    loader = plain.loader(_SAMPLE_RECORDS, rank=0, world_size=1, num_threads=0)
    try:
        next(iter(loader), None)
    except Error:  # which whoever reads on will meet, too
        return _SAMPLE_RECORDS
    stats = loader.stats
    return rows_per_batch(stats.n_bytes / max(stats.n_records, 1))


def _placed(error: SchemaError, row: int, loader: Loader, n_before: int) -> SchemaError:
    """Return an error about a row of a batch, with where that row is from."""
    dataset = loader.dataset
    if loader.has_transforms or dataset.is_streamed or dataset.on_error != "raise":
        # Rows need not be those that the step was to have.
        reason = f"{error.reason} (row {n_before + row:,} of the table)"
        return SchemaError(reason, feature=error.feature, code=error.code)
    place = loader.records_at(loader.step - 1)[row]
    return SchemaError(error.reason, *place, feature=error.feature, code=error.code)


def _difference(first: Field, other: Field) -> str:
    """Return how columns differ from those of the first batch."""
    before = {field.name: described(field) for field in first.children}
    after = {field.name: described(field) for field in other.children}
    for name in [*before, *after]:
        if before.get(name) != after.get(name):
            pair = f"{before.get(name, 'missing')} at first and "
            return (
                f"column {name!r} is {pair}{after.get(name, 'missing')} in a later batch: "
                "transforms must make the same columns of all batches"
            )
    return f"columns are {list(before)} at first and {list(after)} in a later batch"
