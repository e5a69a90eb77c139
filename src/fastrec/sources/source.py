"""Source: records of files, with the features and transforms of each file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fastrec import _core
from fastrec.errors import CorruptionError
from fastrec.features import infer
from fastrec.features.fixed import any_width_columns, without_padding
from fastrec.features.schema import Schema, check_columns, expanded
from fastrec.features.steps import Steps
from fastrec.hints import no_column
from fastrec.kept.key import Kept
from fastrec.on_error import ErrorPolicy
from fastrec.sources.file_set import FileSet
from fastrec.sources.selection import Numbers, Pieces, chosen, numbers_at, shifted
from fastrec.sources.step_table import StepTable
from fastrec.transforms.batch_info import BatchInfo, Extra, Places
from fastrec.transforms.transform import CheckedTransform

SOURCE = "__source__"  # the column that names the component of each row of a mix


@dataclass(frozen=True)
class Reading:
    """The features and transforms that several consecutive files share."""

    n_files: int
    features: Schema | None = None  # None: inferred lazily
    names: tuple[str | bytes, ...] | None = None  # features to infer; None means all
    transforms: tuple[CheckedTransform, ...] = ()  # applied before datasets are joined
    record_counts: tuple[int, ...] | None = None  # of each file, according to metadata
    kept: Kept | None = None  # after the first transforms, one for each of its keys
    steps: Steps | None = None  # if rows are steps of records

    @property
    def record_schema(self) -> Schema:
        """The features, which must have been passed or inferred before."""
        assert self.features is not None
        return self.features

    @property
    def schema(self) -> Schema:
        """The columns of a row before transforms."""
        return self.record_schema if self.steps is None else self.steps.schema

    def with_schema(self, change: Callable[[Schema], Schema]) -> Reading:
        """Return a reading with changed features, of records and of rows."""
        features, steps = change(self.record_schema), self.steps
        if steps is not None:
            steps = replace(steps, schema=change(steps.schema))
        return replace(self, features=features, steps=steps)

    def with_columns(self, names: Sequence[str]) -> Reading:
        """Return a reading of the features `names`, or of the columns of kept rows."""
        kept, schema = self.kept, self.schema
        known: Collection[Any] = schema
        if kept and kept.transforms:  # which may return any columns
            known = names if kept.columns is None else kept.columns
        elif kept and kept.columns is not None:  # kept lengths are not in the schema
            known = [name for name in kept.columns if name in schema]
        names = expanded(names, known)
        if missing := [name for name in names if name not in known]:
            raise KeyError(no_column(missing[0], known, "the dataset"))
        if kept and kept.transforms:
            return replace(self, kept=replace(kept, delivered=tuple(names)))
        if self.steps is None:
            features = schema._with({name: schema[name] for name in names})
            reading = replace(self, features=features)
        else:
            steps = self.steps.with_columns(names)
            features = steps.features(self.record_schema)
            reading = replace(self, features=features, steps=steps)
        if kept is None:
            return reading
        delivered = tuple(map(str, reading.schema._column_names()))
        return replace(self, kept=replace(kept, delivered=delivered))

    @property
    def transforms_after(self) -> tuple[CheckedTransform, ...]:
        """The transforms after rows are kept, or all."""
        return self.transforms[len(self.kept.transforms) if self.kept else 0 :]

    def gives_columns_of(self, other: Reading) -> bool:
        """Return whether both readings have equal columns, so rows can share arrays."""
        return (self.transforms, self.kept, self.steps) == (
            *(other.transforms, other.kept, other.steps),
        ) and (
            self.record_schema is other.record_schema
            or self.record_schema._columns() == other.record_schema._columns()
        )


@dataclass(frozen=True)
class Mix:
    """Options of `fastrec.mix`, which draws rows from weighted sources."""

    components: dict[str, tuple[Source, float]]
    seed: int
    length: int | None
    per_batch: bool

    def __len__(self) -> int:
        return sum(self.sizes()) if self.length is None else self.length

    def sizes(self) -> list[int]:
        """Return each component's record count; raise a ValueError if one is empty."""
        for name, (source, _) in self.components.items():
            if not len(source):
                raise ValueError(
                    f"mix components must not be empty, got no records in {name!r}"
                )
        return [len(source) for source, _ in self.components.values()]


@dataclass(eq=False, repr=False)
class Source:
    """Records of files, numbered from 0, with each file's features and transforms.

    A source has all records in file order, or the records of `pieces`, or the rows that
    `mix` draws. If the readings have `steps`, steps are numbered in place of records.
    Fields never change: `dataclasses.replace` returns a changed copy.
    """

    files: FileSet
    given: tuple[Reading, ...]
    pieces: Pieces | None = None  # the numbers of selected records in the files
    n_before: int | None = None  # number of records in the files at selection
    mix: Mix | None = None

    # Computed when first needed. A fork replaces the table of `files`, to which
    # `_bound` belongs.
    _known: tuple[Reading, ...] | None = field(default=None, init=False)
    _distinct: tuple[list[Reading], list[int]] | None = field(default=None, init=False)
    _unpadded: Source | None = field(default=None, init=False)
    _table: StepTable | None = field(default=None, init=False)
    _bound: tuple[_core.FileTable, _core.Sources] | None = field(
        default=None, init=False
    )
    _catalog: tuple[_core.Indexes, _core.Catalog] | None = field(
        default=None, init=False
    )
    _fingerprint: tuple[int, str] | None = field(default=None, init=False)
    row_stores: dict[str, Any] = field(default_factory=dict, init=False)  # by directory

    def __reduce__(self) -> tuple[object, ...]:
        return Source, (self.files, self.given, self.pieces, self.n_before, self.mix)

    @classmethod
    def joined(cls, parts: Sequence[Source]) -> Source:
        """Return a source of all files in `parts`, with all their records."""
        readings = tuple(reading for part in parts for reading in part.given)
        return cls(FileSet.joined([part.files for part in parts]), readings)

    def __repr__(self) -> str:
        if self.mix is not None:
            return "a mix of " + "; ".join(
                f"{name!r} ({weight:g}): {source!r}"
                for name, (source, weight) in self.mix.components.items()
            )
        text, n = repr(self.files), self.n_known_records()
        noun = "step" if self.has_steps else "record"
        text += "" if n is None else f", {n:,} {noun}{'' if n == 1 else 's'}"
        return text + ("" if self.pieces is None else " selected")

    # Features and transforms.

    def changed(self, change: Callable[[Reading], Reading]) -> Source:
        """Return a source of the same records; `change` is applied to each reading."""
        return replace(self, given=tuple(map(change, self.given)))

    def with_schema(self, change: Callable[[Schema], Schema]) -> Source:
        """Return a source of the same records; `change` is applied to each schema."""
        readings = self.readings_of_files()
        return replace(self, given=tuple(r.with_schema(change) for r in readings))

    def without_padding(self) -> Source:
        """Return a source that reads columns of varying width as RaggedArrays."""
        if self._unpadded is None:
            has_any = any_width_columns(
                reading.schema for reading in self.readings()[0]
            )
            self._unpadded = self
            if has_any:
                self._unpadded = self.with_schema(
                    lambda schema: schema._with(without_padding(schema))
                )
        return self._unpadded

    def without_transforms(self) -> Source:
        """Return a source of the same records, without transforms and kept rows."""
        return self.changed(lambda reading: replace(reading, transforms=(), kept=None))

    def with_columns(self, names: Sequence[str]) -> Source:
        """Return a source of the same rows that reads or decodes only some columns."""
        readings = self.readings_of_files()
        return replace(self, given=tuple(each.with_columns(names) for each in readings))

    def can_read_alone(self, name: str) -> bool:
        """Return whether a column is the same if only this column is read."""
        return all(
            not reading.transforms_after
            and (name in reading.schema or (reading.kept and reading.kept.transforms))
            and name not in self.extra_columns()
            for reading in self.readings_of_files()
        )

    @property
    def transforms(self) -> list[CheckedTransform]:
        """The transforms of all files."""
        return [fn for reading in self.given for fn in reading.transforms]

    @property
    def is_keeping(self) -> bool:
        """Whether rows of any file are kept in a directory."""
        return any(reading.kept for reading in self.given)

    @property
    def is_decoding(self) -> bool:
        """Whether Python code decodes any column; false for inferred schemas."""
        schemas = (reading.features for reading in self.given)
        return any(schema and schema._encoded for schema in schemas)

    def known_schema(self) -> Schema | None:
        """Return the schema if it is known without reading files, else None."""
        if len(self.given) > 1:
            return None
        (reading,) = self.given
        if reading.features is not None:
            return reading.schema
        return self.files.inferred.get((reading.names, (range(reading.n_files),)))

    def readings_of_files(self) -> tuple[Reading, ...]:
        """Return all readings, after inferring the features that are unknown."""
        with _core.HeldLock(self.files.lock):
            if self._known is None:
                readings = list(self.given)
                for reading in self.given:
                    if reading.features is None:
                        self._infer(reading, readings)
                self._known = tuple(readings)
            return self._known

    def _infer(self, unknown: Reading, readings: list[Reading]) -> None:
        """Infer the features of `unknown`, and set them in all equal `readings`."""
        ends = itertools.accumulate(reading.n_files for reading in readings)
        runs = {
            i: range(end - reading.n_files, end)
            for i, (reading, end) in enumerate(zip(readings, ends, strict=True))
            if replace(reading, n_files=unknown.n_files) == unknown
        }
        key = unknown.names, tuple(runs.values())
        if runs and key not in self.files.inferred:
            self.files.inferred[key] = self._inferred(*key)
        for i in runs:
            readings[i] = replace(readings[i], features=self.files.inferred[key])

    def _inferred(
        self, names: Sequence[str | bytes] | None, runs: Sequence[range]
    ) -> Schema:
        """Infer the features `names` from the files whose numbers are in `runs`."""
        # Inference must not wait for an index of remote files, which is slow to build.
        if self.files.is_streamed or self.files.is_remote:
            return self._sampled(names, numbers=[*itertools.chain(*runs)])
        indexes = self.files.indexes()
        begins = [0, *itertools.accumulate(indexes.counts.tolist())]
        records = [range(begins[run.start], begins[run.stop]) for run in runs]
        return self._sampled(names, catalog=_core.Catalog(indexes, _to_core(records)))

    def inferred(self, sample: int | None) -> Schema:
        """Infer a schema of all features from `sample` records; None means all."""
        if self.files.is_streamed:
            return self._sampled(None, sample, numbers=range(len(self.files)))
        catalog = _core.Catalog(self.files.indexes()) if self.has_steps else None
        return self._sampled(None, sample, catalog=catalog or self.catalog())

    def _sampled(
        self,
        names: Sequence[str | bytes] | None,
        sample: int | None = infer.SAMPLE_RECORDS,
        *,
        catalog: _core.Catalog | None = None,
        numbers: Sequence[int] = (),
    ) -> Schema:
        """Infer features from the records in `catalog`, or from the files `numbers`."""
        files = self.files
        limits: dict[str, Any] = {
            "skip_unreadable": files.on_error != "raise",
            "features_max": files.limits.max_features,
        }
        if catalog is not None:
            with files.renewing():
                return infer.infer(files.table, catalog, names, sample, **limits)
        files.check_no_pipes("reading it without features=")
        with files.frames(numbers) as frames:
            return infer.infer_stream(frames, names, sample, **limits)

    def readings(self) -> tuple[list[Reading], list[int]]:
        """Return the distinct readings, and the index of the reading of each file."""
        if self._distinct is None:
            distinct: list[Reading] = []
            of_files: list[int] = []
            for reading in self.readings_of_files():
                equal = [known.gives_columns_of(reading) for known in distinct]
                if not any(equal):
                    distinct.append(reading)
                    equal.append(True)
                of_files += [equal.index(True)] * reading.n_files
            self._distinct = distinct, of_files
        return self._distinct

    @property
    def schema(self) -> Schema:
        """The schema of all files. Raises a SchemaError if files differ."""
        self.check_columns()
        return self.readings()[0][0].schema

    def check_columns(self) -> None:
        """Raise a SchemaError if files have different columns and no transforms."""
        readings, _ = self.readings()
        if len(readings) > 1 and not any(reading.transforms for reading in readings):
            first, *others = [
                {
                    name: reading.schema._row_type(name)
                    for name in (reading.kept and reading.kept.delivered)
                    or reading.schema
                    if name in reading.schema  # kept lengths are not
                }
                for reading in readings
            ]
            for other in others:
                check_columns(first, other)

    def to_core(self) -> _core.Sources:
        """Return the files and their schemas in the form that the core accepts."""
        with _core.HeldLock(self.files.lock):
            table = self.files.table
            if self._bound is None or self._bound[0] is not table:
                readings, of_files = self.readings()
                core = _core.Sources(
                    table,
                    [reading.record_schema._bind() for reading in readings],
                    of_files if len(readings) > 1 else [],
                    self.files.limits.max_padded_bytes,
                )
                self._bound = table, core
            return self._bound[1]

    # Files.

    def part(self, numbers: Sequence[int]) -> Source:
        """Return a source of some files, with the features inferred from all files.

        The numbers of records in these files are not checked.
        """
        assert not self.has_steps
        of_files = [
            replace(reading, n_files=1, record_counts=None, kept=None)
            for reading in self.readings_of_files()
            for _ in range(reading.n_files)
        ]
        runs = itertools.groupby(of_files[number] for number in numbers)
        readings = [replace(reading, n_files=len([*run])) for reading, run in runs]
        return Source(self.files.part(numbers), tuple(readings))

    def of_first_file(self, sample: int) -> Source:
        """Return a source of the first file, without transforms; it needs no index.

        Unknown features are inferred from the first `sample` records of the file.
        """
        reading = (self._known or self.given)[0]
        schema = reading.features or self.known_schema()
        source = Source(self.files.first(), (Reading(1, schema),))
        if schema is not None:
            return source
        schema = source._sampled(reading.names, sample, numbers=[0])
        return source.changed(lambda reading: replace(reading, features=schema))

    def with_on_error(self, on_error: ErrorPolicy) -> Source:
        """Set `on_error` in a copy; a ValueError if record numbers would change."""
        before = self.files
        if on_error == before.on_error:
            return self
        files = before.with_on_error(on_error)
        is_same = self.is_walkable or files.recovery == before.recovery
        if not is_same and before.known_gaps():
            raise ValueError(
                "cannot change on_error= of records selected from damaged files, "
                "because record numbers would change; set on_error= in fastrec.open()"
            )
        return replace(self, files=files)

    # Counts.

    def __len__(self) -> int:
        if self.mix is not None:
            return len(self.mix)
        if (n_listed := self._n_exactly_listed()) is not None:
            return n_listed
        if self.is_walkable and self.files.is_streamed:
            return self.files.n_records
        return len(self.catalog())

    def n_known_records(self) -> int | None:
        """Return the number of records, or None if files must be read to count them."""
        if self.pieces is not None:
            return sum(map(len, self.pieces))
        if self.is_mixed:
            return None
        if self.has_steps:
            return self.n_numbered
        n_listed = self._n_exactly_listed()
        return self.files.n_known_records() if n_listed is None else n_listed

    def _n_listed(self) -> int | None:
        """Return the total record count according to metadata; None if unknown."""
        counts = [reading.record_counts for reading in self.given]
        return None if None in counts else sum(map(sum, filter(None, counts)))

    def _n_exactly_listed(self) -> int | None:
        is_exact = self.is_walkable and self.files.on_error == "raise"
        return self._n_listed() if is_exact else None

    def check_walked(self, n_records: int, batch_size: int, *, drop_last: bool) -> None:
        """Raise a CorruptionError if the size of an epoch contradicts the metadata."""
        n_listed = self._n_listed()
        if n_listed is None:
            return
        if drop_last:
            n_listed -= n_listed % batch_size
        if n_records != n_listed:
            self.check_counts()

    def check_counts(self, *, allows_gaps: bool = True) -> None:
        """Raise a CorruptionError if a file's record count contradicts the metadata.

        With `allows_gaps`, a file may have fewer records if `on_error` skips damage.
        """
        if all(reading.record_counts is None for reading in self.given):
            return
        damaged = {gap.path for gap in self.files.report()} if allows_gaps else ()
        listed = itertools.chain.from_iterable(
            reading.record_counts or [None] * reading.n_files for reading in self.given
        )
        found = self.files.n_records_by_file()
        for path, count, n_records in zip(self.files.files, listed, found, strict=True):
            if count in (None, n_records) or (path in damaged and n_records < count):
                continue
            raise CorruptionError(
                f"the file must have {count:,} records, as dataset_info.json lists, got "
                f"{n_records:,}; copy or prepare the data set again",
                path,
                code="record_count",
            )

    # Records.

    @property
    def is_whole(self) -> bool:
        """Whether the source has all records or steps of the files, in file order."""
        return self.pieces is None and self.mix is None

    @property
    def has_steps(self) -> bool:
        """Whether the rows are steps of records."""
        return self.given[0].steps is not None

    @property
    def is_walkable(self) -> bool:
        """Whether the rows are all records of the files, in file order."""
        return self.is_whole and not self.has_steps

    @property
    def step_table(self) -> StepTable | None:
        """The rows of all records if the rows are steps, else None."""
        if self._table is None and self.has_steps:
            steps = [reading.steps for reading in self.given if reading.steps]
            self._table = StepTable(steps)
        return self._table

    @property
    def n_numbered(self) -> int:
        """The number of records in the files, or of their steps if rows are steps."""
        table = self.step_table
        return self.files.n_records if table is None else table.n_rows

    def n_numbered_by_file(self) -> list[int]:
        """Return the number of each file's records, or of their steps."""
        counts = self.files.n_records_by_file()
        if (table := self.step_table) is None:
            return counts
        ends = np.append(0, table.ends)[np.cumsum([0, *counts])]
        return np.diff(ends).tolist()  # type: ignore[no-any-return]

    def with_steps(self, info: BatchInfo) -> BatchInfo:
        """Return a BatchInfo with steps if the rows are steps.

        The core decodes the record of each row once, in file order. Padding belongs to the
        last one, so that it is in one part of a batch.
        """
        if (table := self.step_table) is None:
            return info
        is_row = info.positions >= 0
        valid = info.records[is_row]
        numbers = valid if self.is_whole else numbers_at(self.records(), valid)
        found = table.find(numbers)
        records, decoded = np.unique(found[:, 0], return_inverse=True)
        n_rows = len(info.positions)
        steps = np.full((n_rows, 2), -1, np.int64)
        rows = np.full(n_rows, max(0, len(records) - 1), np.int64)
        steps[is_row], rows[is_row] = found, decoded
        return replace(info, steps=steps, _decoded=rows)

    @property
    def is_mixed(self) -> bool:
        """Whether the rows are drawn from the components of a mix."""
        return self.mix is not None

    def check_selectable(self) -> None:
        """Raise a TypeError if the source is a mix, because selection is impossible."""
        if self.is_mixed:
            raise TypeError(
                "cannot select records of a mix; select, filter, split or shard its "
                "components instead"
            )

    def records(self) -> Pieces:
        """Return the numbers of the records, counted across all files."""
        if self.mix is not None:
            return joined_records(
                [source for source, _ in self.mix.components.values()]
            )
        if self.pieces is None:
            return (range(self.n_numbered),)
        if self.n_before is not None and (n := self.files.n_records) != self.n_before:
            raise CorruptionError(
                f"the files have {n:,} records, but had {self.n_before:,} when records "
                "were selected; open and select again",
                self.files.files[0],
                code="file_changed",
            )
        return self.pieces

    def selected(self, positions: range | Numbers) -> Source:
        """Return a source of the records at `positions`, which must be in bounds."""
        self.check_selectable()
        self.files.check_random_access("selecting records")
        return self.with_records(chosen(self.records(), positions))

    def with_records(self, pieces: Pieces) -> Source:
        """Return a source of the records in `pieces`, numbered across all files."""
        return replace(self, pieces=pieces, n_before=self.files.n_records)

    def by_rows(self) -> Source:
        """Return a source whose mix draws rows instead of whole batches."""
        if self.mix is None:
            return self
        return replace(self, mix=replace(self.mix, per_batch=False))

    def catalog(self) -> _core.Catalog:
        """Return the core's catalog of all record offsets; build missing indexes."""
        indexes = self.files.indexes()
        if self._catalog is None or self._catalog[0] is not indexes:
            self.check_counts()
            pieces = [] if self.is_whole else _to_core(self.records())
            table = self.step_table
            ends = None if table is None else table.ends
            self._catalog = indexes, _core.Catalog(indexes, pieces, ends)
        return self._catalog[1]

    def is_indexed(self) -> bool:
        """Return whether `catalog` needs no scan of files, and no request."""
        return self._catalog is not None or self.files.is_indexed()

    def fingerprint(self) -> str:
        """Return a hash of the records, independent of the files' paths."""
        version = self.files.version()
        if self._fingerprint is None or self._fingerprint[0] != version:
            import hashlib  # slow to import

            digest = hashlib.blake2b(digest_size=8)
            if self.mix is not None:
                for source, _ in self.mix.components.values():
                    digest.update(source.fingerprint().encode())
            else:
                self.files.add_to(digest)
                for reading in self.given:
                    if reading.steps is not None:
                        digest.update(repr(reading.steps.rule).encode())
                        digest.update(reading.steps.counts.astype("<i4").tobytes())
                for piece in self.pieces or ():
                    if isinstance(piece, range):
                        text = repr((piece.start, len(piece), piece.step))
                        digest.update(text.encode())
                    else:
                        digest.update(piece.astype("<i8", copy=False).tobytes())
            self._fingerprint = version, digest.hexdigest()
        return self._fingerprint[1]

    def places(self, records: Numbers) -> Numbers:
        """Return the `numbers` of the `Places` of `records`."""
        if self.is_walkable and self.files.is_streamed:
            return _core.Catalog(self.files.scans()).places(records)
        return self.catalog().places(records)

    def row_places(self, records: Numbers, context: str) -> Places:
        """Return the `Places` of `records`, for error messages; -1 is padding."""
        valid = records[records >= 0]
        places = Places(self.files.files, partial(self.places, valid), context)
        return places.padded(len(records)) if len(valid) < len(records) else places

    def extra_columns(self) -> dict[str, Extra]:
        """Return the additional columns: functions of a BatchInfo, by column name."""
        if self.mix is None:
            return {}
        ends = np.cumsum(self.mix.sizes())

        def component(info: BatchInfo) -> Numbers:
            found: Numbers
            found = np.searchsorted(ends, info.records, side="right").astype(np.int64)
            found[info.records < 0] = -1
            return found

        return {SOURCE: component}


def joined_records(sources: Sequence[Source]) -> Pieces:
    """Return the records of `sources`, numbered across the joined files."""
    counts = [source.n_numbered for source in sources]
    begins = itertools.accumulate(counts, initial=0)
    return tuple(
        itertools.chain.from_iterable(
            shifted(source.records(), begin)
            for source, begin in zip(sources, begins, strict=False)
        )
    )


def _to_core(pieces: Sequence[range | Numbers]) -> list[tuple[int, int, int] | Numbers]:
    """Convert pieces for `_core.Catalog`, in which an empty list means all records."""
    return [
        (len(piece), piece.start, piece.step) if isinstance(piece, range) else piece
        for piece in pieces or (range(0),)
    ]
