"""Dataset: random access to the rows of TFRecord files, and loaders of batches."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch, Row, concat_columns, n_rows, row_of, rows_of
from fastrec.arrays.layout import is_int
from fastrec.caller_warnings import warn_caller
from fastrec.dataset.records import (
    Records,
    checked_number,
    record_numbers,
    record_range,
)
from fastrec.dataset.statistics import numbers_in, quantile_keys, statistics_of
from fastrec.display import as_text, table
from fastrec.errors import Error, SchemaError, hint_by_number
from fastrec.features.fixed import any_width_columns
from fastrec.features.infer import SAMPLE_RECORDS
from fastrec.features.missing import absence
from fastrec.features.schema import Features, Schema, schema_or_names
from fastrec.features.steps import Edge, checked_windows
from fastrec.hints import checked_names, missing_attribute
from fastrec.kept.key import Kept, only
from fastrec.loader.batch_reader import BatchReader
from fastrec.loader.collate import Collator, OnTransformError
from fastrec.loader.loader import Loader
from fastrec.loader.options import LoaderOptions
from fastrec.loader.order import Shuffle, records_of
from fastrec.loader.plan import Batches
from fastrec.on_error import ErrorPolicy, Report, check_on_error
from fastrec.options import (
    BATCH_BYTES,
    non_negative_int,
    positive_int,
    rows_per_batch,
)
from fastrec.sources.selection import (
    Numbers,
    check_fractions,
    divided,
    divided_strata,
    even_bounds,
)
from fastrec.sources.source import Reading, Source
from fastrec.sources.steps import with_steps
from fastrec.storage.paths import versions_of
from fastrec.tasks import renew_after_fork
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.transform import CheckedTransform, Transform

# Rows that `iter` decodes at once: few enough that images fit into the L2 cache.
_ROWS_AT_ONCE = 16
_SAMPLED_ROWS = 64
_FILTERED_AT_ONCE = 1024  # rows per call of the filter function
_NAMES_SHOWN = 10
_ROWS_SHOWN = 3
_SAMPLE_SHOWN = 16  # records from which to infer an unknown schema
_IDLE_BYTES = 64 << 20  # memory kept for the next batch; loaders have separate pools


class Dataset:
    """The records of TFRecord files, numbered from 0; returned by `fastrec.open`.

    A dataset is a sequence of rows. ``ds[i]`` is a dict of NumPy scalars, arrays and
    ``bytes``. A slice, an index array or a mask returns a dict of columns, like a batch.
    For training, use `loader`.

    `select`, `filter`, `split` and similar methods return views. A view is a dataset
    that numbers its records from 0 and shares files and indexes with the original.

    Files are read when data is first needed. A dataset can be pickled.

    ``ds[i]`` returns row `i` or raises an error, regardless of `on_error`.
    Iteration, `head` and loaders follow `on_error`.

    Examples
    --------
    >>> import fastrec as fr
    >>> ds = fr.open("data/train-*.tfrecord")  # doctest: +SKIP
    >>> ds[0]["label"], ds[10:20]["label"]  # doctest: +SKIP
    >>> train, test = ds.split([0.9, 0.1], seed=1)  # doctest: +SKIP
    >>> for batch in train.loader(256, shuffle=True):  # doctest: +SKIP
    ...     step(batch["image"], batch["label"])
    """

    def __init__(
        self, source: Source, transforms: tuple[CheckedTransform, ...] = ()
    ) -> None:
        given: object = source
        if not isinstance(given, Source):
            raise TypeError(
                f"open a Dataset with fastrec.open(paths), got Dataset({source!r})"
            )
        self._source = source
        self._transforms = transforms
        self._renew_after_fork()
        renew_after_fork(self)

    def _renew_after_fork(self) -> None:
        self._pool = _core.BlockPool(_IDLE_BYTES)
        self._reader: _core.RowReader | None = None
        self._may_have_reader = True  # False if rows require whole batches
        self._is_watched = True  # whether the core watches for missing features
        self._batches: BatchReader | None = None  # opened for rows that are kept

    # Properties.

    @property
    def files(self) -> list[str]:
        """The paths of the files, in the order in which their records are numbered."""
        return self._source.files.files

    @property
    def nbytes(self) -> int:
        """The total size of the files in bytes."""
        return int(versions_of(self.files)[:, 0].sum())

    @property
    def is_streamed(self) -> bool:
        """Whether records can only be read in sequence, as in compressed files.

        If True, `head`, iteration, and loaders in file order or with
        ``shuffle=fr.Window(...)`` work; ``ds[i]`` and ``shuffle=True`` do not. Pass
        ``cache_dir=`` to `fastrec.open` to keep expanded copies without this limit.
        """
        return self._source.files.is_streamed

    @property
    def column_names(self) -> list[str]:
        """The names of the columns to read, which `select_columns` accepts.

        Batches may have more columns: masks, ``__source__`` and columns of transforms.
        """
        names: list[Any] = list(self.schema)  # some may be bytes
        return names

    @property
    def schema(self) -> Schema:
        """The specs of the features to read, passed to `fastrec.open` or inferred.

        Without ``features=``, the schema is inferred once, from up to 4,096 records
        spread evenly over the files; see `infer_schema`. Its repr is valid Python.

        Raises
        ------
        SchemaError
            If no schema can be inferred, or joined datasets have different columns.
        """
        return self._source.schema

    @checked_names
    def infer_schema(self, *, sample: int | None = SAMPLE_RECORDS) -> Schema:
        """Infer the schema of all features from a sample of records.

        A feature that every record has, with the same number of values, becomes
        `FixedLen`; any other feature becomes `VarLen`. If a record has feature lists, the
        records are tf.train.SequenceExamples. A feature list whose steps all have the
        same number of values becomes `FixedLenSequence`; any other becomes `VarLen`. A
        feature list with the same name as a context feature becomes ``name_list``.
        Columns are sorted by name. Features without values in the sample are left out.
        If no record is an Example or SequenceExample, the only column is a `Record`.

        The repr of the schema has comments about the sample: the number of records, the
        share of records with each feature, value ranges, and byte strings that are all
        JPEG, PNG, GIF, WebP or UTF-8 text. Defaults and `Raw` are only suggested there.
        The same records always give the same schema.

        Parameters
        ----------
        sample : int or None, default 4096
            Records to read, spread evenly over the dataset; None reads all. In streamed
            files, the sample is the first records, up to 64 MiB or 16 KiB per record,
            whichever is larger.

        Returns
        -------
        Schema
            The specs by feature name, for ``features=``; empty if there are no records.

        Raises
        ------
        TypeError, ValueError
            If `sample` is not a positive integer.
        SchemaError
            If a feature has values of several kinds, or the records have no features.
        DecodeError
            If only some records are tf.train.Examples or SequenceExamples.
        CorruptionError
            If a sampled record is damaged and `on_error` is ``"raise"``. Other policies
            skip such records.

        Examples
        --------
        >>> import fastrec as fr
        >>> print(fr.open("data/*").infer_schema(sample=100_000))  # doctest: +SKIP
        """
        if sample is not None:
            sample = positive_int("sample", sample)
        return self._source.inferred(sample)

    @property
    def records(self) -> Records:
        """The serialized records, a sequence of ``bytes``."""
        return Records(self._source, self._pool)

    @property
    def on_error(self) -> ErrorPolicy:
        """The policy for damaged records; see `fastrec.open`."""
        return self._source.files.on_error

    @property
    def report(self) -> Report:
        """The regions of files that readers skip because the framing is damaged.

        For streamed files, the report includes damage to the compressed stream.
        `Loader.report` lists rows that cannot be read. The first access indexes
        the files, or counts their records, if no earlier read has done so.

        Raises
        ------
        CorruptionError
            If a file is damaged and ``on_error="raise"``.
        """
        return self._source.files.report()

    def __len__(self) -> int:
        return len(self._source)

    def __reduce__(self) -> tuple[object, ...]:
        return Dataset, (self._source, self._transforms)

    if not TYPE_CHECKING:  # else type checkers would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(type(self), name):  # a property raised: raise its error again
                object.__getattribute__(self, name)
            raise missing_attribute(self, name)

    # Rows.

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Row: ...
    @overload
    def __getitem__(
        self, index: slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]
    ) -> Batch: ...
    def __getitem__(self, index: Any) -> Row | Batch:
        if is_int(index):
            return self._row(operator.index(index))
        if isinstance(index, (str, bytes)):
            raise TypeError(
                f"a dataset is indexed by record number, got {index!r}: write "
                f"ds.select_columns([{index!r}])[:][{index!r}] for a column in memory, or "
                f"for batch in ds.loader(256): batch[{index!r}]"
            )
        return self._batch(record_numbers(index, len(self)))

    def _row(self, index: int) -> Row:
        """Return row `index`; decode it in C++ unless Python code must transform it."""
        if self._reader is None and self._may_have_reader:
            checked_number(index, len(self._source))
            core, catalog = self._source.to_core(), self._source.catalog()
            if Collator(self._source, self._transforms).is_identity:
                self._reader = _core.RowReader(core, catalog, self._pool)
            self._may_have_reader = self._reader is not None
        if self._reader is not None:
            try:
                row = self._reader.row(index)
            except Error as error:
                self._reader = None  # the reader holds the old indexes
                self._set_hint(error)
                raise
            if self._is_watched:
                self._warn_of_absence()
            if row is not None:
                return row
        number = checked_number(index, len(self._source))
        batch = self._batch(np.array([number], dtype=np.int64))
        if not n_rows(batch):
            raise ValueError(
                f"the transforms returned no row for record {number}: read it with "
                "a slice"
            )
        return row_of(batch, 0)

    def _batch(self, numbers: Numbers) -> Batch:
        """Return the records `numbers` as one batch, after the transforms."""
        source = self._source
        if self._batches is None:
            collator = Collator(source, self._transforms)
            self._batches = BatchReader(source, collator, self._pool)
        records = records_of(source, numbers)
        places = source.row_places(records, "")
        info = BatchInfo(0, 0, 0, numbers, records, _places=places)
        try:
            batch = self._batches.read_alone(info)
        except Error as error:
            self._set_hint(error)
            raise
        self._warn_of_absence()
        return batch

    def _warn_of_absence(self) -> None:
        core = self._source.to_core()
        schemas = [reading.record_schema for reading in self._source.readings()[0]]
        if (warning := absence(core, schemas)) is not None:
            warn_caller(warning)
        self._is_watched = core.is_watching

    def _set_hint(self, error: Error) -> None:
        if error.hint and error.path and self.on_error != "raise":
            error.hint = hint_by_number(error.path)
        self._source.files.renew(error)

    def __iter__(self) -> Iterator[Row]:
        by_rows = Dataset(self._source.by_rows(), self._transforms)
        for batch in by_rows._batches_until_damage(_ROWS_AT_ONCE):
            yield from rows_of(batch)

    def head(self, n: int = 5) -> list[Row]:
        """Return the first `n` rows, or all if there are fewer.

        Raises
        ------
        Error
            If one of these rows cannot be read and ``on_error="raise"``.
        """
        return list(itertools.islice(self, non_negative_int("n", n)))

    # Display: never builds an index.

    def __repr__(self) -> str:
        return f"<fastrec.Dataset of {self._described()}>"

    def _repr_html_(self) -> str:
        """Return an HTML table of the schema and the first rows, for notebooks.

        Reads only the start of the first file, and the first records of a selection.
        """
        title = f"Dataset of {self._source!r}"
        try:
            schema, rows = self._first_rows(_ROWS_SHOWN)
        except (Error, OSError) as error:
            return table([], [], title=f"{title}; cannot read its first rows: {error}")
        if not rows and not self._source.is_mixed:
            title += "; no records"
        elif schema._source:
            title += f"; {schema._source}"
        header = ["column", "spec", *(f"row {i}" for i in range(len(rows)))]
        names: list[Any] = list(schema)
        cells = [
            [as_text(name), schema[name]._text("fr."), *(row.get(name) for row in rows)]
            for name in names
        ]
        return table(header, cells, title=title)

    def _first_rows(self, n: int) -> tuple[Schema, list[Row]]:
        """Return the schema and, unless mixed, the first `n` rows before transforms."""
        source, records = self._source, list[bytes]()
        if source.has_steps:
            rows = Dataset(source)[: min(n, len(source))]
            return source.schema, [row_of(rows, i) for i in range(n_rows(rows))]
        first = source.of_first_file(_SAMPLE_SHOWN)
        if source.is_walkable:
            with first.files.frames([0]) as frames:
                records = list(itertools.islice(iter(frames.next, None), n))
        elif not source.is_mixed:  # a selection: its files are indexed
            records = [self.records[i] for i in range(min(n, len(source)))]
        schema = first.schema
        batch: Batch = _core.parse_examples(schema._bind(), self._pool, records)
        return schema, [row_of(batch, i) for i in range(len(records))]

    def _described(self) -> str:
        schema = self._source.known_schema()
        if schema is None:
            return repr(self._source)
        names = list(schema)
        more = f" and {len(names) - _NAMES_SHOWN:,} more" * (len(names) > _NAMES_SHOWN)
        listed = ", ".join(map(repr, names[:_NAMES_SHOWN]))
        noun = "column" if len(names) == 1 else "columns"
        return f"{self._source!r}, {noun} {listed}{more}"

    # Columns.

    def with_features(
        self,
        features: Features | Sequence[str] | None = None,
        *,
        context_features: Features | None = None,
        sequence_features: Features | None = None,
    ) -> Dataset:
        """Return a dataset that reads other features of the same records.

        Parameters
        ----------
        features, context_features, sequence_features
            See `fastrec.open`.

        Raises
        ------
        SchemaError
            If the features are invalid, or all arguments are None.
        """
        if self._source.is_keeping or self._source.has_steps:
            raise TypeError("call with_features() before steps() and cache()")
        schema, names = schema_or_names(features, context_features, sequence_features)
        if schema is None and names is None:
            raise SchemaError(
                "with_features() requires features=, or context_features= and "
                "sequence_features="
            )
        source = self._source.changed(
            lambda reading: dataclasses.replace(reading, features=schema, names=names)
        )
        return Dataset(source, self._transforms)

    def select_columns(self, names: Sequence[str]) -> Dataset:
        """Return a dataset that reads only the columns `names` of the same records.

        Other columns are not decoded, and transforms do not receive them.

        Parameters
        ----------
        names : sequence of str
            Names of columns, or prefixes: ``"steps"`` selects all columns ``"steps/..."``
            if there is no column ``"steps"``. After a `cache` of transforms, prefixes
            require ``columns=`` in `cache`.

        Raises
        ------
        KeyError
            If the schema has no such column.
        """
        _check_names("select_columns()", names)
        return Dataset(self._source.with_columns(names), self._transforms)

    def with_transform(
        self, transform: Transform, *, cache_key: str | None = None
    ) -> Dataset:
        """Return a dataset that calls `transform` on every batch it reads.

        Parameters
        ----------
        transform : callable
            ``transform(batch)`` or ``transform(batch, info)``, as for `loader`. It runs
            after the dataset's earlier transforms and before the loader's. When
            single rows are read, its batches have one or a few rows.
        cache_key : str, optional
            Identifies the transform in `cache`, which keeps its results. Change it
            whenever the results change. Transforms after `cache` need none. The result
            for a row must depend on that row only, not on the rest of the batch, and the
            rows must keep their order.
        """
        checked = CheckedTransform(transform, cache_key)
        return Dataset(self._source, (*self._transforms, checked))

    @checked_names
    def cache(
        self,
        directory: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
    ) -> Dataset:
        """Return a dataset that keeps its rows in a directory once they are decoded.

        The returned dataset keeps each row that it decodes, after the transforms so far,
        and copies the row from the directory when it is read again, as in later epochs.
        Every row is verified with checksums while it is copied. Later transforms, such as
        random crops, run in every epoch. Order, ranks and resuming do not change.
        `LoaderStats.n_kept` counts the copied rows.

        Any epoch fills the directory, in any order, and so do several processes of one
        machine at once. A row that was not written completely is decoded again. If the
        disk is full, a warning is issued and reading continues. The rows are ``.npy``
        files. `Dataset.select` and other views share the directory of their dataset.

        Parameters
        ----------
        directory : path-like
            A local directory for the rows of this dataset only; created when the first
            rows are kept. Joined datasets have a directory in it for each. A directory
            that cannot be written is only read.
        columns : sequence of str, optional
            The columns to keep and to return, as in `select_columns`; by default all.

        Raises
        ------
        TypeError
            If the records are a mix or already kept, or a transform has no `cache_key`;
            in a loader, if a column is not an array of numbers or an array of fastrec.
        KeyError
            If there is no such column.
        ValueError
            If images are cropped at random, a transform takes ``rng`` or ``info``, or
            a padded column comes before a transform. In a loader, if the files, features
            or transforms are not those of the kept rows, a column has rows of
            different shapes, or a transform does not return one row per record.
        CorruptionError
            In a loader, if a file changed after it was indexed.

        Examples
        --------
        >>> image = fr.Image((224, 224), fit="resize")
        >>> ds = fr.open("*.tfrecord", features={"image": image})  # doctest: +SKIP
        >>> loader = ds.cache("kept").loader(256, shuffle=True)  # doctest: +SKIP
        """
        source = self._source
        if source.is_mixed:
            raise TypeError("cannot keep rows of a mix; call cache() on its components")
        if source.is_keeping:
            raise TypeError("rows of this dataset are already kept; call cache() once")
        transforms = [*source.transforms, *self._transforms]
        for transform in transforms:
            name = transform.name.removesuffix("()")
            if (varies := transform.varies_with) is not None:
                raise ValueError(
                    f"{name} takes {varies}, so its results may differ between epochs and "
                    "cannot be kept; call with_transform() after cache()"
                )
            if transform.cache_key is None:
                raise TypeError(
                    f"{name} has no cache_key; write with_transform(..., "
                    f'cache_key="{name}-1") and change the key whenever its results change'
                )
        readings = source.readings_of_files()
        if any(reading.schema._is_random for reading in readings):
            raise ValueError(
                "images with random crops cannot be kept; keep larger images, and crop "
                "them in a transform after cache()"
            )
        is_joined = len(readings) > 1

        def keeping(i: int, reading: Reading) -> Reading:
            path = os.path.join(directory, str(i)) if is_joined else directory
            transforms = *reading.transforms, *self._transforms
            padded = any_width_columns([reading.schema])
            if transforms and padded:
                raise ValueError(
                    f"column {min(padded)!r} cannot be kept after transforms, because its "
                    "width varies by batch; set length= in its FixedLenSequence, or call "
                    "cache() before with_transform()"
                )
            keys = tuple(str(transform.cache_key) for transform in transforms)
            kept = Kept(os.path.abspath(os.fspath(path)), keys)
            reading = dataclasses.replace(reading, transforms=transforms, kept=kept)
            if columns is None:
                return reading
            if not len(columns):
                raise ValueError("cache() requires at least one column, got none")
            reading = reading.with_columns(columns)
            assert reading.kept is not None
            kept = dataclasses.replace(reading.kept, columns=reading.kept.delivered)
            return dataclasses.replace(reading, kept=kept)

        given = tuple(itertools.starmap(keeping, enumerate(readings)))
        return Dataset(dataclasses.replace(source, given=given))

    # Records.

    def select(
        self, indices: range | slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]
    ) -> Dataset:
        """Return a dataset of the records at `indices`, in that order.

        Parameters
        ----------
        indices : range, slice, or 1-D array of integers or bool
            Record numbers, or a mask. Numbers may repeat; negative numbers count from
            the end. A range or slice uses no memory; an array uses 8 bytes per record.

        Raises
        ------
        IndexError
            If a number is out of range.
        TypeError
            If `indices` has another type.
        """
        n_records = len(self._source)
        if isinstance(indices, slice):
            indices = range(*indices.indices(n_records))
        numbers = (
            record_range(indices, n_records)
            if isinstance(indices, range)
            else record_numbers(indices, n_records)
        )
        return Dataset(self._source.selected(numbers), self._transforms)

    @checked_names
    def steps(
        self,
        windows: Mapping[str, int | Sequence[int]],
        *,
        every: int = 1,
        edge: Edge = "repeat",
        keep: Sequence[str] | None = None,
    ) -> Dataset:
        """Return a dataset whose rows are the steps of all records, in order.

        A record has a list for each of some columns, such as the frames and the actions
        of an episode; a step is one item of each. A row has a window of steps around its
        step. The rows are numbered, shuffled, divided among ranks and resumed like
        records. A batch reads and decodes each of its records once, and decodes only the
        images of its windows.

        This call counts the steps of all records in the first window of numbers, or else
        in the first window: it reads the files once, and keeps the counts with the index.
        ``fastrec index --steps`` counts ahead of time.

        Parameters
        ----------
        windows : mapping of str to sequence of int or int
            The steps to read from each column, relative to the row's step: ``[-1, 0]`` is
            the step before and the step itself. The column has shape
            ``(batch, len(window), *item)``; one number instead of a list gives
            ``(batch, *item)``. Columns must have equal numbers of steps in a record.
        every : int, default 1
            Read only every n-th step of a record: steps 0, n, 2n, ...
        edge : {"repeat", "zero", "drop"}, default "repeat"
            For steps before the first and after the last one of the record, ``"repeat"``
            repeats the first or the last. ``"zero"`` gives zeros and empty strings, and
            adds a bool column ``NAME/mask`` of shape ``(batch, len(window))``, which is
            False for them. ``"drop"`` omits rows whose windows do not fit.
        keep : sequence of str, optional
            Other columns, or prefixes as for `select_columns`, whose values are those of
            the record; by default all columns that are not lists.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, the files are streamed, or the dataset is a mix or
            has transforms; call `with_transform` and `cache` after `steps`.
        KeyError
            If there is no such column.
        SchemaError
            If a column of `windows` is not a list, or its items have several shapes. When
            reading, if columns have different numbers of steps in a record;
            `on_error` applies to its rows.
        CorruptionError
            When reading, if a record does not have as many steps as were counted.

        Examples
        --------
        >>> ds = fr.open_tfds("droid/1.0.0", features=["steps"])  # doctest: +SKIP
        >>> rows = ds.steps(  # doctest: +SKIP
        ...     {"steps/observation/image": [-1, 0], "steps/action": range(16)}
        ... )
        >>> for batch in rows.loader(64, shuffle=True):  # doctest: +SKIP
        ...     loss = model(batch["steps/observation/image"], batch["steps/action"])
        """
        source = self._source
        if self._transforms or source.transforms or source.is_keeping:
            raise TypeError("call with_transform() and cache() after steps()")
        if source.is_mixed or source.has_steps:
            raise TypeError(
                "steps() requires a dataset of records; "
                + ("call it once" if source.has_steps else "call it before mix()")
            )
        source.files.check_random_access("steps()")
        offsets = checked_windows(windows)
        if keep:
            _check_names("steps()", keep)
        return Dataset(with_steps(source, offsets, every, edge, keep))

    def filter(
        self,
        keep: Callable[[Batch], npt.ArrayLike],
        *,
        columns: Sequence[str] | None = None,
    ) -> Dataset:
        """Return a dataset of the records for which `keep` returns True.

        Reads all records once, in parallel.

        Parameters
        ----------
        keep : callable
            ``keep(batch)`` receives a dict of columns and returns a bool array of shape
            ``(rows,)``.
        columns : sequence of str, optional
            Decode only these columns for `keep`, and do not call transforms. By default
            `keep` receives all columns, after the transforms.

        Raises
        ------
        TypeError, ValueError
            If `keep` is not callable, or its result is not a bool array of this shape.
        """
        given: object = keep
        if not callable(given):
            raise TypeError(f"filter() requires a function of a batch, got {keep!r}")
        self._source.files.check_random_access("filter()")
        self._source.check_selectable()
        read = self
        if columns is not None:
            read = self._without_transforms().select_columns(columns)

        def filter(batch: Batch, info: BatchInfo) -> Batch:
            n, rows = n_rows(batch), info.positions
            if n != len(rows):
                raise ValueError(
                    "filter() requires one row per record, but the transforms returned "
                    f"{n:,} rows for {len(rows):,} records"
                )
            mask = np.asarray(keep(batch))
            if mask.shape != (n,) or mask.dtype != bool:
                raise TypeError(
                    "the function passed to filter() must return a bool array of shape "
                    f"({n},) for {n} rows, got {mask.dtype} of shape {mask.shape}"
                )
            return {"rows": rows[mask & (rows >= 0)]}

        # `keep` runs as a transform, so that its errors name the records; and in this
        # thread, because it may use thread-local objects. Masked rows have no values to
        # filter by, so the loader skips unreadable rows.
        with read.loader(
            _FILTERED_AT_ONCE,
            rank=0,
            world_size=1,
            transform=filter,
            transform_threads=0,
            on_error="skip" if read.on_error == "mask" else None,
        ) as loader:
            kept = [np.empty(0, np.int64), *(batch["rows"] for batch in loader)]
        return self.select(np.concatenate(kept))

    def column(self, name: str) -> Any:
        """Return one column of all rows, decoded on all threads.

        Other columns are not decoded if there are no transforms. After `cache`, kept rows
        are read from its directory, and all columns of the other rows are decoded and
        kept.

        Returns
        -------
        ndarray, BytesArray, RaggedArray or SparseArray
            The column, in the array type that batches have, with one row per record.

        Raises
        ------
        KeyError
            If there is no such column.
        Error
            If a record cannot be read and ``on_error="raise"``. With other policies,
            skipped rows are missing, so the column is shorter than the dataset, and
            masked rows are zero or empty; to select rows, use `filter`.

        Examples
        --------
        >>> labels = ds.column("label")  # doctest: +SKIP
        >>> cats = ds.select(labels == 3)  # doctest: +SKIP
        """
        return self._columns([name])[name]

    def statistics(
        self, columns: Sequence[str], *, quantiles: Sequence[float] = (0.01, 0.99)
    ) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """Return statistics of columns of numbers, to normalise them.

        Reads all records once, in parallel, and holds these columns in memory. Other
        columns are not decoded if there are no transforms.

        Parameters
        ----------
        columns : sequence of str
            Columns of bool, integer or floating-point numbers.
        quantiles : sequence of float, default (0.01, 0.99)
            Quantiles to compute, 0 to 1, with linear interpolation.

        Returns
        -------
        dict
            For each column, a dict of ndarrays: ``"count"``, the number of items, an
            int64 of shape ``()``; ``"mean"``, ``"std"``, ``"min"``, ``"max"`` and a key
            for each quantile, such as ``"q01"`` and ``"q99"`` or ``"q99.9"``, float64 of
            the shape of an item.

            A RaggedArray of shape ``(rows, None, *item)`` has the items of all its rows,
            such as the actions of all steps. In an ndarray of shape ``(rows, *item)``,
            each row is an item, also padding up to a fixed ``length=``. If an item has a
            NaN, so have the statistics except the count. ``"std"`` divides by the count.

        Raises
        ------
        KeyError
            If there is no such column.
        TypeError
            If a column does not have numbers, or is sparse.
        ValueError
            If a column has no items, or a quantile is not between 0 and 1.
        Error
            If a record cannot be read and ``on_error="raise"``. Other policies skip it.

        Examples
        --------
        >>> found = ds.statistics(["steps/action"])["steps/action"]  # doctest: +SKIP
        >>> low, high = found["q01"], found["q99"]  # doctest: +SKIP
        >>> actions = (
        ...     2 * (batch["steps/action"].values - low) / (high - low) - 1
        ... )  # doctest: +SKIP
        >>> json.dumps({key: x.tolist() for key, x in found.items()})  # doctest: +SKIP
        """
        _check_names("statistics()", columns)
        by_key = quantile_keys(quantiles)
        read = self._with_on_error("skip") if self.on_error == "mask" else self
        values = read._columns(columns, numbers_in)
        if empty := [name for name in values if not len(values[name])]:
            raise ValueError(f"column {empty[0]!r} has no values")
        return {name: statistics_of(values.pop(name), by_key) for name in list(values)}

    def _columns(
        self,
        names: Sequence[str],
        part_of: Callable[[str, Any], Any] = lambda _, column: column,
    ) -> dict[str, Any]:
        """Return columns of all rows; ``part_of(name, column)`` is kept of each batch."""
        read = self
        if not self._transforms and all(map(self._source.can_read_alone, names)):
            read = self.select_columns(names)

        def parts_of(batch: Batch) -> Batch:
            chosen = only(batch, tuple(names))
            return {name: part_of(name, column) for name, column in chosen.items()}

        with read._table_loader(None) as loader:
            batches = list(map(parts_of, loader))
        if not batches:
            batches = [parts_of(loader._empty_batch())]
        return {
            name: concat_columns([batch.pop(name) for batch in batches])
            for name in dict.fromkeys(names)
        }

    def split(
        self,
        fractions: Sequence[float],
        *,
        seed: int = 0,
        stratify: str | npt.ArrayLike | None = None,
        by_step: bool = False,
    ) -> tuple[Dataset, ...]:
        """Split the records at random into one dataset per fraction.

        The parts are disjoint and keep the order of the records. The split depends only
        on `seed`, the number of records and `stratify`.

        Parameters
        ----------
        fractions : sequence of float
            Fractions of the records, such as ``[0.9, 0.1]``; their sum is at most 1.
        seed : int, default 0
        stratify : str or 1-D array, optional
            A column, or one value per record: the records of each value are split
            separately, so each part has the same fraction of each.
        by_step : bool, default False
            Allow that steps of one record are in several parts; see `steps`.

        Raises
        ------
        ValueError
            If a fraction is negative or their sum exceeds 1, or `stratify` does not have
            one value per record.
        """
        if self._source.has_steps and not by_step:
            raise TypeError(
                "split() must be called before steps(), so that the steps of a record stay "
                "in one part; by_step=True splits them"
            )
        check_fractions(fractions)
        seed = non_negative_int("seed", seed, 2**64 - 1)
        self._source.check_selectable()
        if stratify is None:
            part_of = divided(len(self._source), fractions, seed)
        else:
            values = self.column(stratify) if isinstance(stratify, str) else stratify
            values = np.asarray(values)
            if values.shape != (len(self),):
                raise ValueError(
                    f"stratify must have one value for each of {len(self):,} records, got "
                    f"shape {values.shape}"
                )
            _, strata = np.unique(values, return_inverse=True)
            part_of = divided_strata(strata, fractions, seed)
        parts = range(len(fractions))
        return tuple(self.select(np.flatnonzero(part_of == part)) for part in parts)

    def shard(self, *, num_shards: int, index: int) -> Dataset:
        """Return shard `index` of `num_shards` contiguous shards.

        Shard sizes differ by at most one record. Distributed training does not need
        shards: `loader` divides every batch among the ranks.

        Raises
        ------
        ValueError
            If `index` is not less than `num_shards`.
        """
        num_shards = positive_int("num_shards", num_shards)
        index = non_negative_int("index", index)
        if index >= num_shards:
            raise ValueError(
                f"index must be less than num_shards={num_shards}, got {index}"
            )
        bounds = even_bounds(len(self._source), num_shards)
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
        """Return a loader of batches; each ``for`` loop over it is one epoch.

        Exactly one of `batch_size`, `global_batch_size` and `batches` is required.

        Parameters
        ----------
        batch_size : int, optional
            Rows per batch on this rank.
        global_batch_size : int, optional
            Rows per batch over all ranks. The rows of a step then do not depend on the
            world size.
        batches : callable, optional
            ``batches(seed, epoch)`` returns the epoch's global batches as 1-D arrays of
            record numbers, of any sizes. It replaces the batch size and `shuffle`.
            `fastrec.samplers` has samplers by length, weight or class, and for packing.
        shuffle : bool, Blocks or Window, default False
            False keeps the order of the files. True shuffles all records in a new order
            each epoch, without extra memory or a delay. `fastrec.Blocks` shuffles
            blocks of neighbouring records. `fastrec.Window` shuffles through a reservoir
            and also works on streamed files.
        seed : int, default 0
            Seed of the order and of the random generators of `transform`.
        drop_last : bool, default False
            Skip the last batch if it is not full. By default it has fewer rows, divided
            evenly among the ranks. All ranks have the same number of steps.
        pad_last : bool, default False
            Fill every batch to its full size with rows of zeros and empty values, and add
            a bool column ``__valid__`` that is False for padding.
        rank, world_size : int, optional
            Rank of this process, and number of ranks that divide every global batch. By
            default the values of torch.distributed or jax.distributed if initialised,
            else of torchrun, SLURM or Open MPI, else 0 and 1. The loader looks them up
            when an epoch begins, so it may be created before the process group.
        num_threads : int, optional
            Native threads that decode in the background; 0 decodes inside ``next()``. By
            default one per CPU that this process may use, divided by
            ``$LOCAL_WORLD_SIZE``. Streamed files use one more thread, unless they are
            local and this is the default. The same number of threads decompress, at most
            one per file. Batches do not depend on this.
        prefetch : int, optional
            Batches to prepare ahead of the current one; by default ``num_threads + 2``,
            plus ``transform_threads + 1`` with a transform. (`fastrec.per_row` works on
            one batch at a time and adds 2.) The loader warns if `prefetch` is too small
            for all threads.
        on_error : {"raise", "skip", "resync", "mask"}, optional
            Policy for rows that cannot be read; see `fastrec.open`. By default the
            dataset's policy.
        max_errors : int, optional
            Maximum number of rows to skip or mask per epoch and rank, by `on_error` and
            `on_transform_error` together. The next such row raises its error. The
            default is unlimited.
        transform : callable, optional
            ``transform(batch)`` or ``transform(batch, info)``, called on every batch.
            It returns the dict to deliver, with any number of rows. `info` is a
            `fastrec.BatchInfo`; a second parameter that has a default is passed only if
            its name is ``info``. See also `fastrec.per_row`.
        transform_threads : int, optional
            Python threads that call `transform` and decode `Image` columns; 0 does both
            inside ``next()``. By default 1, or with images one per CPU that this process
            may use. By default, the threads divide the rows of one batch, but only one
            thread calls a transform of whole batches.
        on_transform_error : {"raise", "skip", "mask"}, default "raise"
            Policy for rows whose transform raises an exception, except MemoryError. With
            `fastrec.per_row`, ``"skip"`` skips the row, and ``"mask"`` sets the columns
            of ``out`` to zero and ``__valid__`` to False. With any other transform,
            ``"skip"`` skips the whole batch and delivers the transform's result for an
            empty batch, to keep the step count; ``"mask"`` is invalid. With
            ``pad_last=True``, ``"skip"`` masks rows. `Loader.report` lists the rows
            with their errors.
        memory_limit : int or str, optional
            Maximum bytes (``"2GB"``) of undelivered batches; by default an eighth
            of the memory, at most 4 GiB. A single larger batch is delivered with a
            warning.

        Raises
        ------
        TypeError, ValueError
            If an option is invalid, before any thread starts; also if the last batch
            would leave a rank without rows and neither `drop_last` nor `pad_last` is set.

        Examples
        --------
        >>> loader = ds.loader(256, shuffle=True, drop_last=True)  # doctest: +SKIP
        >>> for epoch in range(3):  # doctest: +SKIP
        ...     for batch in loader:
        ...         step(batch["image"], batch["label"])
        """
        given = locals()
        dataset = self if on_error is None else self._with_on_error(on_error)
        options = LoaderOptions.checked(dataset._source, dataset._transforms, given)
        return Loader(options, seed, dataset)

    # The Arrow PyCapsule Interface.

    def __arrow_c_schema__(self) -> object:
        """Return the Arrow schema; see `fastrec.arrow.RecordBatchReader`."""
        from fastrec.arrow.reader import RecordBatchReader

        return RecordBatchReader(self).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all records as a stream of Arrow record batches.

        ``pyarrow.table(ds)``, ``polars.DataFrame(ds)`` and DuckDB's
        ``SELECT ... FROM ds`` call this method. See `fastrec.arrow.RecordBatchReader`.
        """
        from fastrec.arrow.reader import RecordBatchReader

        return RecordBatchReader(self).__arrow_c_stream__(requested_schema)

    # For adapters.

    @property
    def _has_transforms(self) -> bool:
        source = self._source
        is_changed = source.is_decoding or source.is_keeping
        return bool(source.transforms or is_changed or self._transforms)

    def _with_on_error(self, on_error: ErrorPolicy) -> Dataset:
        source = self._source.with_on_error(check_on_error(on_error))
        return Dataset(source, self._transforms)

    def _without_transforms(self) -> Dataset:
        return Dataset(self._source.without_transforms())

    def _batches_until_damage(
        self, batch_size: int, num_threads: int | None = None
    ) -> Iterator[Batch]:
        """Yield batches up to the first damaged record, then raise its error."""
        n_read = 0
        alone: dict[str, Any] = {"rank": 0, "world_size": 1, "num_threads": num_threads}
        try:
            for batch in self.loader(batch_size, **alone):
                yield batch
                n_read += batch_size
        except Error as error:
            source = self._source
            if error.code == "index_mismatch" or source.files.pipes:
                raise  # records cannot be read again by their numbers
            if source.files.is_streamed:
                single_rows = self.loader(1, **alone)
                yield from itertools.islice(single_rows, n_read, None)
            elif not source.is_walkable:
                single_rows = self.loader(1, **alone)
                single_rows.seek(n_read)
                yield from single_rows
            elif error.path is not None and error.record is not None:
                # Index the intact files and the records before the damage.
                file = source.files.files.index(error.path)
                n_intact = error.record
                if file:
                    n_intact += source.files.part(range(file)).n_records
                intact = self._with_on_error("skip").select(range(n_read, n_intact))
                yield from intact.loader(batch_size, **alone)
            raise

    def _table_loader(
        self, batch_size: int | None, num_threads: int | None = None
    ) -> Loader:
        """Return a loader of all records on one rank; pad rows only for transforms."""
        batch_size = batch_size or self._rows_at_once()
        dataset = self
        # Transforms expect padded batches.
        if not (self._source.transforms or self._transforms):
            dataset = Dataset(self._source.without_padding())
        return dataset.loader(batch_size, rank=0, world_size=1, num_threads=num_threads)

    def _rows_at_once(self) -> int:
        """Estimate from the first rows how many rows a batch of 16 MiB has."""
        return rows_per_batch(self._row_bytes())

    def _row_bytes(self) -> float:
        """Return the average size of the first rows in bytes, before transforms."""
        # The first rows of a pipe cannot be read again.
        self._source.files.check_no_pipes("choosing a batch size by the first rows")
        plain = self._without_transforms()
        loader = plain.loader(_SAMPLED_ROWS, rank=0, world_size=1, num_threads=0)
        try:
            batch = next(iter(loader), {})
        except Error:  # reading the table raises it again
            return BATCH_BYTES / _SAMPLED_ROWS
        stats, n_decoded = loader.stats, sum(column.nbytes for column in batch.values())
        return max(stats.n_bytes, n_decoded) / max(stats.n_records, 1)

    def _any_width_columns(self) -> set[str | bytes]:
        readings, _ = self._source.readings()
        return any_width_columns(reading.schema for reading in readings)


def _check_names(function: str, names: Sequence[str]) -> None:
    if isinstance(names, (str, bytes)):
        raise TypeError(f"{function} requires a list of names, got {names!r}")
    if not len(names):
        raise ValueError(f"{function} requires at least one name")
