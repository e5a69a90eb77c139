"""Datasets: the records of TFRecord files, as rows by number and as batches."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch, Row, n_rows, row_of
from fastrec.caller_warnings import warn_caller
from fastrec.dataset.indexing import (
    checked_number,
    is_one,
    record_numbers,
    record_range,
)
from fastrec.dataset.records import Records
from fastrec.errors import Error, SchemaError, hint_by_number
from fastrec.features.infer import SAMPLE_RECORDS
from fastrec.features.missing import absence
from fastrec.features.padded import any_width_columns, without_padding
from fastrec.features.schema import Features, Schema
from fastrec.features.sequence_schema import schema_or_names
from fastrec.lifecycle import renew_after_fork
from fastrec.loader.collate import OnTransformError, collator_of
from fastrec.loader.loader import Loader
from fastrec.loader.options import LoaderOptions
from fastrec.loader.order import Batches, Shuffle, records_of
from fastrec.loader.plan import Planner
from fastrec.loader.ranks import find_rank
from fastrec.on_error import ErrorPolicy, Report, check_on_error
from fastrec.options import (
    checked_names,
    non_negative_int,
    positive_int,
    rows_per_batch,
)
from fastrec.sources.random_split import check_fractions, divided, even_bounds
from fastrec.sources.selection import Numbers
from fastrec.sources.view import View
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.transform import CheckedTransform, Transform

__all__ = ["Dataset"]

_ROWS_AT_ONCE = 64  # rows that `iter` decodes together
_FILTERED_AT_ONCE = 1024

# Memory that a dataset keeps for the next batch it reads; loaders have their own.
_IDLE_BYTES = 64 << 20


class Dataset:
    """The records of a set of TFRecord files, numbered from 0; see `fastrec.open`.

    A dataset is a sequence of rows: ``ds[i]`` is a dict of NumPy scalars, arrays and
    ``bytes``; a slice, an index array or a mask gives a dict of columns, like a batch.
    Training loops use `loader`. Views (`select`, `filter`, `split`, ...) are datasets,
    too, which number their records from 0 and share files and indexes.

    Nothing is read until it is needed. A dataset can be pickled and used in other
    processes.

    Reading a record by number returns it or raises, whatever `on_error` is; iterating,
    `head` and loaders follow `on_error`.
    """

    def __init__(
        self, view: View, transforms: tuple[CheckedTransform, ...] = ()
    ) -> None:
        self._view = view
        self._transforms = transforms
        self._renew_after_fork()
        renew_after_fork(self)

    def _renew_after_fork(self) -> None:
        self._pool = _core.BlockPool(_IDLE_BYTES)

    # Properties.

    @property
    def files(self) -> list[str]:
        """The files, in the order in which their records are numbered."""
        return self._view.files.files

    @property
    def nbytes(self) -> int:
        """The size of all files in bytes."""
        return sum(os.stat(path).st_size for path in self.files)  # noqa: PTH116

    @property
    def is_streamed(self) -> bool:
        """Whether records can only be read in sequence, because files are compressed.

        Then `head`, iterating, and loaders in file order or with
        ``shuffle=fr.Window(...)`` work; ``ds[i]`` and ``shuffle=True`` do not. With
        ``cache_dir=``, `fastrec.open` expands such files once, and this is False.
        """
        return self._view.files.is_streamed

    @property
    def column_names(self) -> list[str]:
        """The columns that are read, as `select_columns` takes them.

        Batches may have more: masks, ``__source__``, and what transforms return.
        """
        names: list[Any] = list(self.schema)  # some may be bytes
        return names

    @property
    def schema(self) -> Schema:
        """The features that are read: those given to `fastrec.open`, or inferred ones.

        Without ``features=``, the schema is inferred from up to 4,096 records spread
        evenly over the files, once; see `infer_schema`. Its repr can be pasted
        into a program.

        Raises
        ------
        SchemaError
            If no schema can be inferred, or datasets that are joined have different
            columns.
        """
        return self._view.source.schema

    @checked_names
    def infer_schema(self, *, sample: int | None = SAMPLE_RECORDS) -> Schema:
        """Infer the schema of all features from a sample of records.

        A feature that all records have, with one number of values, is `FixedLen`, any
        other `VarLen`. If any record has feature lists, they are
        tf.train.SequenceExample: a list all of whose steps have one number of values is
        `FixedLenSequence`, any other `VarLen`; one with the name of a context feature
        becomes a column ``name_list``. Columns are sorted by name. Features without any
        values in the sample are left out.

        The comments of its repr show what was found: the number of records, the share of
        them that has each feature, ranges, and byte strings that are all JPEG, PNG, GIF,
        WebP or UTF-8 text. They suggest defaults and `Raw`, which are never assumed. The
        same records give the same schema.

        Parameters
        ----------
        sample : int or None, default 4096
            How many records are read, spread evenly over the dataset; None means all. Of
            streamed files, the first records are the sample, which ends after 64 MiB or
            16 KiB a record, whichever is more.

        Returns
        -------
        Schema
            For ``features=``. Without features if there are no records.

        Raises
        ------
        TypeError, ValueError
            If `sample` is not a positive integer.
        SchemaError
            If a feature has values of several kinds, or the records have no features.
        DecodeError
            If a record is neither a tf.train.Example nor a SequenceExample.
        CorruptionError
            If a sampled record is damaged and the dataset's `on_error` is ``"raise"``;
            otherwise such records are skipped.

        Examples
        --------
        >>> import fastrec as fr
        >>> print(fr.open("data/*").infer_schema(sample=100_000))  # doctest: +SKIP
        """
        if sample is not None:
            sample = positive_int("sample", sample)
        return self._view.inferred(sample)

    @property
    def records(self) -> Records:
        """The serialized records: a sequence of ``bytes``."""
        return Records(self._view, self._pool)

    @property
    def on_error(self) -> ErrorPolicy:
        """How damage is handled; see `fastrec.open`."""
        return self._view.files.on_error

    @property
    def report(self) -> Report:
        """The parts of files that are skipped because their framing is damaged.

        Of streamed files, also the damage to the compressed stream. Rows that cannot be
        read are in `Loader.report`. Builds the indexes of the files, or counts their
        records, if that was not done yet.

        Raises
        ------
        CorruptionError
            If a file is damaged, and ``on_error="raise"``.
        """
        return self._view.files.report()

    def __len__(self) -> int:
        return len(self._view)

    def __repr__(self) -> str:
        return f"<fastrec.Dataset of {self._view!r}>"

    def __reduce__(self) -> tuple[object, ...]:
        return Dataset, (self._view, self._transforms)

    # Rows.

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Row: ...
    @overload
    def __getitem__(
        self, index: slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]
    ) -> Batch: ...
    def __getitem__(self, index: Any) -> Row | Batch:
        if isinstance(index, (str, bytes)):
            msg = f"a dataset is indexed by record, not by column: ds.select_columns([{index!r}])"
            raise TypeError(msg)
        if is_one(index):
            number = checked_number(operator.index(index), len(self))
            batch = self._decode(np.array([number], dtype=np.int64))
            if not n_rows(batch):
                msg = (
                    f"the transforms made no row of record {number}: read it in a slice"
                )
                raise ValueError(msg)
            return row_of(batch, 0)
        return self._decode(record_numbers(index, len(self)))

    def __iter__(self) -> Iterator[Row]:
        by_rows = Dataset(self._view.by_rows(), self._transforms)
        for batch in by_rows._batches_until_damage(_ROWS_AT_ONCE):
            for i in range(n_rows(batch)):
                yield row_of(batch, i)

    def head(self, n: int = 5) -> list[Row]:
        """Return the first `n` rows, or all if there are fewer.

        Raises
        ------
        Error
            If one of these rows cannot be read, and ``on_error="raise"``.
        """
        return list(itertools.islice(self, non_negative_int("n", n)))

    # Views: other columns.

    def with_features(
        self,
        features: Features | Sequence[str] | None = None,
        *,
        context_features: Features | None = None,
        sequence_features: Features | None = None,
    ) -> Dataset:
        """Return a dataset of the same records that reads other features.

        Parameters
        ----------
        features, context_features, sequence_features
            As `fastrec.open` has them.

        Raises
        ------
        SchemaError
            If they are invalid, or none is given.
        """
        schema, names = schema_or_names(features, context_features, sequence_features)
        if schema is None and names is None:
            msg = (
                "with_features() takes features=, or context_features= and "
                "sequence_features="
            )
            raise SchemaError(msg)
        source = self._view.source.changed(
            lambda reading: dataclasses.replace(reading, features=schema, names=names)
        )
        return Dataset(self._view.of(source), self._transforms)

    def select_columns(self, names: Sequence[str]) -> Dataset:
        """Return a dataset of the same records with only the columns `names`.

        Nothing else is decoded, and transforms get only these columns.

        Raises
        ------
        KeyError
            If the schema has no such column.
        """
        if isinstance(names, (str, bytes)):
            msg = f"select_columns() takes a list of names, got {names!r}"
            raise TypeError(msg)
        if not len(names):
            msg = "select_columns() takes at least one name"
            raise ValueError(msg)

        def chosen(schema: Schema) -> Schema:
            missing = [name for name in names if name not in schema]
            if missing:
                there = ", ".join(map(repr, schema))
                msg = f"no column {missing[0]!r}; there are {there}"
                raise KeyError(msg)
            return schema._chosen(names)

        source = self._view.source.with_schema(chosen)
        return Dataset(self._view.of(source), self._transforms)

    def with_transform(self, transform: Transform) -> Dataset:
        """Return a dataset whose batches and rows go through `transform`.

        Parameters
        ----------
        transform : callable
            As for `loader`: ``transform(batch)`` or ``transform(batch, info)``. It is
            called after the dataset's other transforms and before the loader's. Reading
            single rows calls it with batches of one or a few rows.
        """
        return Dataset(self._view, (*self._transforms, CheckedTransform(transform)))

    # Views: other records.

    def select(
        self, indices: range | slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]
    ) -> Dataset:
        """Return a dataset of some records, in the order given.

        Parameters
        ----------
        indices : range, slice, or 1-D array of integers or bool
            Numbers of records, which may repeat and count from the end, or a mask. A
            range or slice takes no memory, an array 8 bytes per record.

        Raises
        ------
        IndexError, TypeError
            If a number is out of range, or `indices` is something else.
        """
        n_records = len(self)
        if isinstance(indices, slice):
            indices = range(*indices.indices(n_records))
        chosen = (
            record_range(indices, n_records)
            if isinstance(indices, range)
            else record_numbers(indices, n_records)
        )
        return Dataset(self._view.selected(chosen), self._transforms)

    def filter(
        self,
        keep: Callable[[Batch], npt.ArrayLike],
        *,
        columns: Sequence[str] | None = None,
        key: str | None = None,
    ) -> Dataset:
        """Return a dataset of the records for which `keep` returns True.

        All records are read once, in parallel.

        Parameters
        ----------
        keep : callable
            ``keep(batch)`` gets a dict of columns, as a loop does, and returns a bool
            array of shape ``(rows,)``.
        columns : sequence of str, optional
            The columns that `keep` gets; nothing else is decoded, and the transforms of
            the dataset are not called. By default all columns, after the transforms.
        key : str, optional
            A name for `keep` and the transforms before it. The result is cached for the
            same records, columns and key. Records are the same if the stored checksums of
            all of them are; these are read again only when a file has changed.

        Raises
        ------
        TypeError, ValueError
            If `keep` returns something else.
        """
        from fastrec.dataset.filter import kept_records

        self._view.files.check_random_access("filter()")
        self._view.check_selectable()
        read = self
        if columns is not None:
            read = Dataset(self._view).select_columns(columns)._without_transforms()

        # `keep` runs in this thread, because it may use objects that belong to it. Rows
        # that cannot be read are skipped, not masked.
        def loader_with(transform: Transform) -> Loader:
            return read.loader(
                _FILTERED_AT_ONCE,
                rank=0,
                world_size=1,
                transform=transform,
                transform_threads=0,
                on_error="skip" if read.on_error == "mask" else None,
            )

        return self.select(kept_records(read._view, loader_with, keep, key))

    def split(
        self, fractions: Sequence[float], *, seed: int = 0
    ) -> tuple[Dataset, ...]:
        """Split the records at random, and return one dataset for each fraction.

        Parts are disjoint and keep the order of the records. The split depends only on
        `seed` and the number of records.

        Parameters
        ----------
        fractions : sequence of float
            Shares of the records, such as ``[0.9, 0.1]``; their sum is at most 1.
        seed : int, default 0

        Raises
        ------
        ValueError
            If a fraction is negative, or their sum exceeds 1.
        """
        check_fractions(fractions)
        seed = non_negative_int("seed", seed, 2**64 - 1)
        self._view.check_selectable()
        part_of = divided(len(self), fractions, seed)
        return tuple(
            self.select(np.flatnonzero(part_of == part))
            for part in range(len(fractions))
        )

    def shard(self, *, num_shards: int, index: int) -> Dataset:
        """Return part `index` of `num_shards` parts of consecutive records.

        Sizes differ by one record at most. The ranks of one job need no shards, because
        `loader` divides every batch among them.

        Raises
        ------
        ValueError
            If `index` is not below `num_shards`.
        """
        num_shards = positive_int("num_shards", num_shards)
        index = non_negative_int("index", index)
        if index >= num_shards:
            msg = f"index must be less than num_shards, {num_shards}, got {index}"
            raise ValueError(msg)
        bounds = even_bounds(len(self), num_shards)
        return self.select(range(bounds[index], bounds[index + 1]))

    # Batches.

    @checked_names
    def loader(
        self,
        batch_size: int | None = None,
        *,
        global_batch_size: int | None = None,
        batches: Batches | None = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        drop_last: bool = False,
        pad_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        num_threads: int | None = None,
        prefetch: int | None = None,
        on_error: ErrorPolicy | None = None,
        max_errors: int | None = None,
        transform: Transform | None = None,
        transform_threads: int | None = None,
        on_transform_error: OnTransformError = "raise",
        memory_limit: int | str | None = None,
    ) -> Loader:
        """Return an iterable of batches; each ``for`` over it is one epoch.

        Exactly one of `batch_size`, `global_batch_size` and `batches` is required.

        Parameters
        ----------
        batch_size : int, optional
            Rows in a batch of this rank.
        global_batch_size : int, optional
            Rows in the batches of all ranks together. The rows of a step then do not
            depend on the world size.
        batches : callable, optional
            ``batches(seed, epoch)`` returns the epoch's global batches, 1-D arrays of
            record numbers of any sizes; it replaces batch size and shuffle. See
            `fastrec.samplers.bucket_by_length` and `fastrec.samplers.weighted`.
        shuffle : bool, Blocks or Window, default False
            False is the order of the files. True is a new global shuffle in every epoch,
            which takes no memory and starts at once. `fastrec.Blocks` shuffles blocks of
            neighbouring records. `fastrec.Window` shuffles in a reservoir, and also works
            on streamed files.
        seed : int, default 0
            Seeds the orders and the random generators of `transform`.
        drop_last : bool, default False
            Skip a last batch that is not full. Otherwise it has fewer rows, divided
            evenly among the ranks; all ranks make the same number of steps.
        pad_last : bool, default False
            Fill every batch to its full size with rows of zeros and empty values, and add
            a bool column ``__valid__`` that is False for them.
        rank, world_size : int, optional
            Which part of every global batch this process gets. By default those of
            torch.distributed, if that is initialised, else those that torchrun, SLURM or
            Open MPI set in the environment, else 0 of 1.
        num_threads : int, optional
            Native threads that decode in the background; 0 decodes inside ``next()``.
            By default, one per CPU that this process may use, divided by
            ``$LOCAL_WORLD_SIZE``. Streamed files have one more, and the same number of
            inflating threads, at most one per file. Batches do not depend on it.
        prefetch : int, optional
            Batches that may be ready or in work ahead of the current one; by default
            ``num_threads + 2``, and ``transform_threads + 1`` more if there is a
            transform. (`fastrec.per_row` works on one batch at a time and adds 2.) If it
            is too small for all threads, the loader warns.
        on_error : {"raise", "skip", "resync", "mask"}, optional
            How rows that cannot be read are handled; see `fastrec.open`. By default as
            the dataset does.
        max_errors : int, optional
            How many rows of an epoch and rank may be skipped or masked, by `on_error` and
            `on_transform_error` together. The next one raises its error. By default,
            there is no limit.
        transform : callable, optional
            ``transform(batch)`` or ``transform(batch, info)``, called in Python on every
            batch; returns the dict that is delivered instead, of any number of rows.
            `info` is a `fastrec.BatchInfo`; a second argument that has a default is
            passed only if its name is ``info``. See also `fastrec.per_row`.
        transform_threads : int, optional
            Python threads that call `transform`, 1 by default; 0 calls it in ``next()``.
        on_transform_error : {"raise", "skip", "mask"}, default "raise"
            How rows are handled for which a transform raises an exception, other than
            MemoryError. ``"skip"`` skips the row with `fastrec.per_row`. Another
            transform loses all rows of its batch: it is called again for no rows, and
            that empty batch is delivered, so that steps stay the same. ``"mask"``
            requires `fastrec.per_row`: the columns of ``out`` are zero, the others stay,
            and ``__valid__`` is False. With ``pad_last=True``, ``"skip"`` masks, too.
            `Loader.report` lists the rows with their errors.
        memory_limit : int or str, optional
            Bytes (``"2GB"``) that batches may take before they are delivered; by default
            an eighth of the memory, at most 4 GiB. A single larger batch is delivered,
            with a warning.

        Raises
        ------
        TypeError, ValueError
            If an option is invalid, before any thread starts; also if the last batch
            would leave a rank without a row, and neither `drop_last` nor `pad_last` is set.
        """
        dataset = self if on_error is None else self._with_on_error(on_error)
        planner = Planner(
            dataset._view,
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            batches=batches,
            shuffle=shuffle,
            drop_last=drop_last,
            pad_last=pad_last,
            rank=find_rank(rank, world_size),
        )
        options = LoaderOptions.checked(
            dataset._view,
            dataset._transforms,
            planner,
            num_threads=num_threads,
            prefetch=prefetch,
            max_errors=max_errors,
            transform=transform,
            transform_threads=transform_threads,
            on_transform_error=on_transform_error,
            memory_limit=memory_limit,
        )
        return Loader(options, seed, dataset)

    # The Arrow PyCapsule Interface.

    def __arrow_c_schema__(self) -> object:
        """Return names and types of the columns; see `fastrec.arrow.RecordBatchReader`."""
        from fastrec.arrow.reader import RecordBatchReader

        return RecordBatchReader(self).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all records as a stream of record batches, in a new pass over the files.

        So ``pyarrow.table(ds)``, ``polars.DataFrame(ds)`` and DuckDB's
        ``SELECT ... FROM ds`` work. See `fastrec.arrow.RecordBatchReader`.
        """
        from fastrec.arrow.reader import RecordBatchReader

        return RecordBatchReader(self).__arrow_c_stream__(requested_schema)

    # Shared with adapters.

    @property
    def _has_transforms(self) -> bool:
        return bool(self._view.source.transforms or self._transforms)

    def _with_on_error(self, on_error: ErrorPolicy) -> Dataset:
        view = self._view.with_on_error(check_on_error(on_error))
        return Dataset(view, self._transforms)

    def _without_transforms(self) -> Dataset:
        return Dataset(self._view.of(self._view.source.without_transforms()))

    def _batches_until_damage(
        self, batch_size: int, num_threads: int | None = None
    ) -> Iterator[Batch]:
        """Yield the batches of all records; before damage, the good records one by one."""
        n_read = 0
        try:
            for batch in self.loader(
                batch_size, rank=0, world_size=1, num_threads=num_threads
            ):
                yield batch
                n_read += batch_size
        except Error:
            alone = self.loader(1, rank=0, world_size=1, num_threads=0)
            yield from itertools.islice(alone, n_read, None)

    def _table_loader(self, batch_size: int | None) -> Loader:
        """Return a loader of all records for a table: on one rank, without padding."""
        batch_size = batch_size or self._rows_at_once()
        dataset = self
        # Transforms expect padded batches.
        if not self._has_transforms and self._any_width_columns():
            source = self._view.source.with_schema(
                lambda schema: schema._with(without_padding(schema))
            )
            dataset = Dataset(self._view.of(source))
        return dataset.loader(batch_size, rank=0, world_size=1)

    def _rows_at_once(self) -> int:
        """Return how many rows make a batch of about 16 MiB, judged by the first rows."""
        plain = self._without_transforms()
        loader = plain.loader(_ROWS_AT_ONCE, rank=0, world_size=1, num_threads=0)
        try:
            next(iter(loader), None)
        except Error:  # the pass itself raises it again
            return _ROWS_AT_ONCE
        stats = loader.stats
        return rows_per_batch(stats.n_bytes / max(stats.n_records, 1))

    def _any_width_columns(self) -> set[str | bytes]:
        readings, _ = self._view.source.readings()
        return any_width_columns(reading.schema for reading in readings)

    def _decode(self, numbers: Numbers) -> Batch:
        collator = collator_of(self._view, self._transforms)
        records = records_of(self._view, numbers)
        try:
            parts, _ = _core.decode_records(
                self._view.source.to_core(), self._view.catalog(), self._pool, records
            )
        except Error as error:
            if error.hint and error.path and self.on_error != "raise":
                error.hint = hint_by_number(error.path)
            raise
        source = self._view.source
        schemas = [reading.schema for reading in source.readings()[0]]
        if (warning := absence(source.to_core(), schemas)) is not None:
            warn_caller(warning)
        places = None if collator.is_plain else self._view.row_places(records, "")
        info = BatchInfo(0, 0, 0, numbers, records, _places=places)
        batch, _ = collator(parts, info)
        return batch
