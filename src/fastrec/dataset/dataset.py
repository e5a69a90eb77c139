"""Datasets: what is in a set of TFRecord files, by number."""

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
from fastrec.arrays.batch import Batch
from fastrec.caller_warnings import warn_caller
from fastrec.dataset import filter
from fastrec.dataset.indexing import (
    Row,
    batches_until_damage,
    checked_number,
    is_one,
    n_rows,
    record_numbers,
    record_range,
    row_of,
)
from fastrec.dataset.records import Records
from fastrec.errors import Error, SchemaError, hint_by_number
from fastrec.features.missing import absence
from fastrec.features.padded import any_width_columns, without_padding
from fastrec.features.schema import Features, Schema
from fastrec.features.sequence_schema import schema_or_names
from fastrec.lifecycle import renew_after_fork
from fastrec.loader.collate import OnTransformError, collator_of
from fastrec.loader.loader import Loader
from fastrec.loader.order import Batches, Shuffle
from fastrec.on_error import OnError, Report, check_on_error
from fastrec.options import checked_names, non_negative_int, positive_int
from fastrec.sources.random_split import check_fractions, divided
from fastrec.sources.selection import Numbers
from fastrec.sources.sources import Source, Sources
from fastrec.sources.view import View
from fastrec.transforms.batch_info import BatchOrigin
from fastrec.transforms.transform import CheckedTransform, Transform

__all__ = ["Dataset"]

# Rows that are read at once where rows are wanted one by one.
_ROWS_AT_ONCE = 64

# Memory that a dataset keeps for the next batch it reads; loaders have their own.
_IDLE_BYTES = 64 << 20


class Dataset:
    """The records of a set of TFRecord files, numbered from 0 through all of them.

    Made by `fastrec.open`. Nothing is read until it is needed; the files are not held
    open, and a dataset can be pickled and used in other processes.

    A dataset is a sequence of rows: ``ds[i]`` is a dict of NumPy scalars, arrays and
    ``bytes``; a slice, an index array or a mask gives a dict of columns, as a batch does.
    Training loops use `loader`. Views (`select`, `filter`, `split`, ...) are datasets of
    their own, which number their records from 0 and share files and indexes.

    Records that are asked for by number are what was asked for, or raise, whatever
    `on_error` says. Iterating, `head` and loaders pass over rows as it says.
    """

    def __init__(
        self, view: View, transforms: tuple[CheckedTransform, ...] = ()
    ) -> None:
        self._view = view
        self._transforms = transforms
        self._renew_after_fork()
        renew_after_fork(self)

    def _renew_after_fork(self) -> None:
        """Replace what has locks: a thread of the parent may hold them."""
        self._pool = _core.BlockPool(_IDLE_BYTES)

    # What is there.

    @property
    def files(self) -> list[str]:
        """The files, in the order that records are numbered through them."""
        return self._view.sources.files

    @property
    def nbytes(self) -> int:
        """The size of all files together, in bytes."""
        return sum(os.stat(path).st_size for path in self.files)  # noqa: PTH116

    @property
    def is_streamed(self) -> bool:
        """Whether records can only be had one after another, as of compressed files.

        Then there are neither ``ds[i]`` nor ``shuffle=True``, but `head`, iterating and
        loaders in file order or with ``shuffle=fr.Window(...)``. With ``cache_dir=``,
        `fastrec.open` expands such files once, after which this is false.
        """
        return self._view.sources.is_streamed

    @property
    def has_transforms(self) -> bool:
        """Whether functions of the user's make the batches: see `with_transform`."""
        return bool(self._all_transforms())

    @property
    def schema(self) -> Schema:
        """What is read: the features that were given, or those the records have.

        Without ``features=``, the schema is inferred from up to 4,096 records spread
        evenly over the files, once; see `fastrec.infer_schema`. Its repr can be pasted
        into a program.

        Raises
        ------
        SchemaError
            If no schema can be inferred, or datasets that are joined have different
            columns.
        """
        return self._view.sources.schema

    @property
    def records(self) -> Records:
        """The bytes of the records, whatever they mean: a sequence of ``bytes``."""
        return Records(self)

    @property
    def on_error(self) -> OnError:
        """What becomes of damage: see `fastrec.open`."""
        return self._view.sources.on_error

    @property
    def report(self) -> Report:
        """What is left out of the files because their framing is damaged.

        Of compressed files that are read as they are, also where the compressed stream
        is. Rows that cannot be read are in the report of the loader. Builds the indexes
        of the files, or counts their records, if that was not done yet.

        Raises
        ------
        CorruptionError
            If a file is damaged, and ``on_error="raise"``.
        """
        return self._view.sources.report()

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
            msg = f"a dataset is indexed by record, not by column: ds.columns([{index!r}])"
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
        for batch in batches_until_damage(by_rows, _ROWS_AT_ONCE):
            for i in range(n_rows(batch)):
                yield row_of(batch, i)

    def head(self, n: int = 5) -> list[Row]:
        """Return the first `n` rows as iterating gives them, or all if there are fewer.

        Raises
        ------
        Error
            If one of these rows cannot be read, and ``on_error="raise"``; what lies behind
            them does not matter.
        """
        return list(itertools.islice(self, non_negative_int("n", n)))

    # Views: other options.

    def with_options(self, *, on_error: OnError) -> Dataset:
        """Return a dataset of the same files that treats damage in another way.

        Parameters
        ----------
        on_error
            As `fastrec.open` has it.

        Raises
        ------
        TypeError, ValueError
            If it is no such thing; or if this is a view (`select`, `filter`, `mix`, ...)
            of damaged files, and its numbers would mean other records.
        """
        view = self._view.with_on_error(check_on_error(on_error))
        return Dataset(view, self._transforms)

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
            If they make no sense, or none is given.
        """
        schema, names = schema_or_names(features, context_features, sequence_features)
        if schema is None and names is None:
            msg = (
                "with_features() takes features=, or context_features= and "
                "sequence_features="
            )
            raise SchemaError(msg)
        sources = self._view.sources.changed(
            lambda source: source.reading(schema, names)
        )
        return Dataset(self._view.of(sources), self._transforms)

    def columns(self, names: Sequence[str]) -> Dataset:
        """Return a dataset of the same records that reads only the columns `names`.

        Transforms get only these columns, too.

        Raises
        ------
        KeyError
            If the schema has no such column.
        """
        if isinstance(names, (str, bytes)):
            msg = f"columns() takes a list of names, not {names!r}"
            raise TypeError(msg)
        if not len(names):
            msg = "columns() takes at least one name"
            raise ValueError(msg)
        self._view.sources.readings()  # infers what nobody gave

        def chosen(source: Source) -> Source:
            schema = source.features
            assert schema is not None
            missing = [name for name in names if name not in schema]
            if missing:
                there = ", ".join(map(repr, schema))
                msg = f"no column {missing[0]!r}; there are {there}"
                raise KeyError(msg)
            return source.reading(schema._chosen(names))

        sources = self._view.sources.changed(chosen)
        return Dataset(self._view.of(sources), self._transforms)

    def with_transform(self, transform: Transform) -> Dataset:
        """Return a dataset whose batches and rows go through `transform`.

        Parameters
        ----------
        transform : callable
            As for `loader`: ``transform(batch)`` or ``transform(batch, info)``. It is
            called after the transforms that the dataset has, and before the loader's. To
            read single rows, it gets batches of one row, or of a few.
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
            range or slice takes no memory, an array 8 bytes a record.

        Raises
        ------
        IndexError, TypeError
            If there are no such records.
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
        """Return a dataset of the records that `keep` says yes to.

        All records are read once, in parallel, as far as the columns need it.

        Parameters
        ----------
        keep : callable
            ``keep(batch)`` gets a dict of columns, as a loop does, and returns a bool
            array of shape ``(rows,)``.
        columns : sequence of str, optional
            What `keep` looks at: nothing else is decoded. All columns by default, after
            the transforms of the dataset, which are left out if columns are named.
        key : str, optional
            A name for what `keep` does, and the transforms before it. With it, the result
            is kept in the user's cache and used again for the same records, columns and
            key. Records are the same if the stored checksums of all of them are; these are
            read again only when a file has changed.

        Raises
        ------
        TypeError, ValueError
            If `keep` returns anything else.
        """
        self._view.sources.check_random_access("filter()")
        self._view.check_selectable()
        view = self
        if columns is not None:
            chosen = Dataset(self._view).columns(columns)._view
            view = Dataset(chosen)._without_transforms()
        return self.select(filter.kept_records(view, keep, key))

    def split(
        self, fractions: Sequence[float], *, seed: int = 0
    ) -> tuple[Dataset, ...]:
        """Divide the records at random, and return one dataset for each fraction.

        Every record is in one part at most; parts keep the order of the records. The same
        seed divides the same number of records in the same way.

        Parameters
        ----------
        fractions : sequence of float
            Shares of the records, such as ``[0.9, 0.1]``; together 1 at most.
        seed : int, default 0

        Raises
        ------
        ValueError
            If a fraction is negative, or they come to more than 1.
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

        Sizes differ by one record at most, whatever the files. Ranks of one job need no
        shards: `loader` divides every batch among them.

        Raises
        ------
        ValueError
            If there is no such part.
        """
        num_shards = positive_int("num_shards", num_shards)
        index = non_negative_int("index", index)
        if index >= num_shards:
            msg = f"index must be below num_shards, but is {index} of {num_shards}"
            raise ValueError(msg)
        n = len(self)
        return self.select(
            range(n * index // num_shards, n * (index + 1) // num_shards)
        )

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
        on_error: OnError | None = None,
        max_errors: int | None = None,
        transform: Transform | None = None,
        transform_threads: int | None = None,
        on_transform_error: OnTransformError = "raise",
        memory_limit: int | str | None = None,
    ) -> Loader:
        """Return an iterable of batches; each ``for`` over it is one epoch.

        What a batch is, is said by exactly one of `batch_size`, `global_batch_size` and
        `batches`.

        Parameters
        ----------
        batch_size : int, optional
            Rows in a batch of this rank.
        global_batch_size : int, optional
            Rows in the batches of all ranks together. What a step holds then depends on
            the world size no more.
        batches : callable, optional
            ``batches(seed, epoch)`` returns the epoch's global batches, 1-D arrays of
            record numbers of any sizes, in place of batch size and shuffle. See
            `fastrec.buckets` and `fastrec.weighted`.
        shuffle : bool, Blocks or Window, default False
            False is the order of the files. True is a global shuffle, another one in
            every epoch, which takes no memory and no time to begin. `fastrec.Blocks` is
            nearly that, and reads whole blocks of neighbouring records. `fastrec.Window`
            shuffles in a reservoir, also records of compressed files.
        seed : int, default 0
            What orders, and the random generators of `transform`, are derived from.
        drop_last : bool, default False
            Leave out a last batch that is not full. Otherwise it has fewer rows, divided
            evenly among the ranks; all ranks make the same number of steps.
        pad_last : bool, default False
            Fill every batch to its full size with rows of zeros and empty values, and add
            a bool column ``__valid__`` that is False for them.
        rank, world_size : int, optional
            Which part of every global batch this process gets. By default they are those
            of torch.distributed, where that is imported and initialised, else those that
            torchrun, SLURM or Open MPI put into the environment, else 0 of 1.
        num_threads : int, optional
            Native threads that decode in the background; 0 decodes inside ``next()``.
            By default, one per CPU this process may use, divided by
            ``$LOCAL_WORLD_SIZE``. Compressed files that are read as they are have one
            more, and as many threads that inflate, but no more of these than files. The
            batches are the same for any number.
        prefetch : int, optional
            Batches that may be ready or in work ahead of the one being used; by default
            ``num_threads + 2``, and ``transform_threads + 1`` more if there is a
            transform. (`fastrec.per_row` works on one batch at a time and adds 2.) Too
            few for all threads is a warning.
        on_error : {"raise", "skip", "resync", "mask"}, optional
            What becomes of rows that cannot be read, as `fastrec.open` has it: by default
            what the dataset has. Another one is ``ds.with_options(on_error=...)`` first.
        max_errors : int, optional
            How many rows of an epoch and rank may be skipped or masked, by `on_error` and
            `on_transform_error` together. The next one raises its error. By default,
            there is no limit.
        transform : callable, optional
            ``transform(batch)`` or ``transform(batch, info)``, called in Python on every
            batch; returns the dict that is delivered instead, of any number of rows.
            `info` is a `fastrec.BatchOrigin`; a second argument that has a default is
            passed only if it is called so. See also `fastrec.per_row`.
        transform_threads : int, optional
            Python threads that call `transform`, 1 by default; 0 calls it in ``next()``.
        on_transform_error : {"raise", "skip", "mask"}, default "raise"
            What becomes of rows for which a transform raises an exception, other than
            MemoryError. ``"skip"`` leaves out the row if `fastrec.per_row` made the
            transform. A transform of whole batches loses all rows of its batch: it is
            called again for no rows, and that empty batch is delivered, so steps stay the
            same. ``"mask"`` requires `fastrec.per_row`: the columns of ``out`` are zero,
            the other columns stay, and ``__valid__`` is False. With ``pad_last=True``,
            ``"skip"`` masks, too. `Loader.report` lists the rows with their errors.
        memory_limit : int or str, optional
            Bytes (``"2GB"``) that batches may take before they are delivered; by default
            an eighth of the memory, at most 4 GiB. A single larger batch passes, with a
            warning.

        Raises
        ------
        TypeError, ValueError
            If an option makes no sense, before any thread starts; also if the last batch
            would leave a rank without a row, and neither `drop_last` nor `pad_last` says
            what to do about it.
        """
        dataset = self if on_error is None else self.with_options(on_error=on_error)
        return Loader(
            dataset._view,
            dataset._transforms,
            dataset=dataset,
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            batches=batches,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            pad_last=pad_last,
            rank=rank,
            world_size=world_size,
            num_threads=num_threads,
            prefetch=prefetch,
            max_errors=max_errors,
            transform=transform,
            transform_threads=transform_threads,
            on_transform_error=on_transform_error,
            memory_limit=memory_limit,
        )

    # Tables: what the Arrow PyCapsule Interface asks for.

    def __arrow_c_schema__(self) -> object:
        """Return names and types of the columns; see `fastrec.arrow.RecordBatchReader`."""
        from fastrec import arrow

        return arrow.RecordBatchReader(self).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all records as a stream of record batches, in a new pass over the files.

        So ``pyarrow.table(ds)``, ``polars.DataFrame(ds)`` and DuckDB's
        ``SELECT ... FROM ds`` work. See `fastrec.arrow.RecordBatchReader`.
        """
        from fastrec import arrow

        return arrow.RecordBatchReader(self).__arrow_c_stream__(requested_schema)

    # Behind the scenes, shared with Loader and the like.

    def _all_transforms(self) -> list[CheckedTransform]:
        return [*self._view.sources.transforms, *self._transforms]

    def _without_transforms(self) -> Dataset:
        return Dataset(self._view.of(self._view.sources.without_transforms()))

    def _without_padding(self) -> Dataset:
        """Return a dataset whose columns of any width have rows of any lengths."""
        if not self._any_width_columns():
            return self

        def unpadded(source: Source) -> Source:
            assert source.features is not None
            return source.reading(
                source.features._with(without_padding(source.features))
            )

        return Dataset(
            self._view.of(self._view.sources.changed(unpadded)), self._transforms
        )

    def _any_width_columns(self) -> set[str | bytes]:
        readings, _ = self._view.sources.readings()
        return any_width_columns(reading.features for reading in readings)

    def _sources_with_transforms(self) -> Sources:
        """Return the sources, with what is done to the rows of the dataset."""
        if not self._transforms:
            return self._view.sources
        return self._view.sources.changed(
            lambda source: dataclasses.replace(
                source, transforms=(*source.transforms, *self._transforms)
            )
        )

    def _decode(self, numbers: Numbers) -> Batch:
        collator = collator_of(self._view, self._transforms)
        records = self._view.records_of(numbers)
        try:
            parts, _ = _core.decode_records(
                self._view.sources.of_core(), self._view.catalog(), self._pool, records
            )
        except Error as error:
            if error.cure and error.path and self.on_error != "raise":
                error.cure = hint_by_number(error.path)
            raise
        if (warning := absence(self._view.sources)) is not None:
            warn_caller(warning)
        places = None if collator.is_plain else self._view.located(records, "")
        info = BatchOrigin(0, 0, 0, numbers, records, _places=places)
        batch, _ = collator(parts, info)
        return batch
