"""Source: a file set with the features and transforms of its files."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastrec import _core
from fastrec.errors import CorruptionError
from fastrec.features import infer
from fastrec.features.encoded import encoded_of
from fastrec.features.schema import Schema, check_columns
from fastrec.lifecycle import renew_after_fork
from fastrec.on_error import recovery_of
from fastrec.sources.file_set import FileSet
from fastrec.sources.selection import Selection
from fastrec.storage.stream_readers import frame_stream
from fastrec.transforms.transform import CheckedTransform


@dataclass(frozen=True)
class Reading:
    """The features and transforms of a run of consecutive files."""

    n_files: int
    features: Schema | None = None  # None: inferred lazily
    names: tuple[str | bytes, ...] | None = None  # features to infer; None means all
    transforms: tuple[CheckedTransform, ...] = ()  # applied before datasets are joined
    record_counts: tuple[int, ...] | None = None  # of each file, according to metadata

    @property
    def schema(self) -> Schema:
        """The features, which must be known or inferred."""
        assert self.features is not None
        return self.features

    def gives_columns_of(self, other: Reading) -> bool:
        """Whether both return equal columns, so that their rows can share arrays."""
        return self.transforms == other.transforms and (
            self.schema is other.schema
            or self.schema._columns() == other.schema._columns()
        )


class Source:
    """A file set with the features and transforms of its files. Immutable."""

    def __init__(
        self,
        files: FileSet,
        readings: Sequence[Reading],
        inferred: list[Reading] | None = None,
    ) -> None:
        self.files = files
        self._given = list(readings)
        self._inferred = inferred  # `given`, with inferred features
        counts = [reading.record_counts for reading in self._given]
        # The number of records according to metadata, or None.
        self.n_listed_records = (
            None if None in counts else sum(map(sum, filter(None, counts)))
        )
        self._distinct: tuple[list[Reading], list[int]] | None = None
        self._renew_after_fork()
        renew_after_fork(self)

    def _renew_after_fork(self) -> None:
        self._lock = threading.RLock()
        self._bound: _core.Sources | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return Source, (self.files, self._given, self._inferred)

    @classmethod
    def joined(cls, parts: Sequence[Source]) -> Source:
        """Concatenate sources. Features are inferred again, from all files."""
        files = FileSet.joined([part.files for part in parts])
        return cls(files, [reading for part in parts for reading in part._given])

    def of(self, files: FileSet) -> Source:
        """Return a source of other files with the same features and transforms."""
        return Source(files, self._given, self._inferred)

    def part(self, numbers: Sequence[int]) -> Source:
        """Return a source of some files, with the features of all."""
        of_files = [
            dataclasses.replace(reading, n_files=1)
            for reading in self._known()
            for _ in range(reading.n_files)
        ]
        readings: list[Reading] = []
        for number in numbers:
            reading = of_files[number]
            if readings and dataclasses.replace(readings[-1], n_files=1) == reading:
                n_files = readings.pop().n_files + 1
                reading = dataclasses.replace(reading, n_files=n_files)
            readings.append(reading)
        return Source(self.files.part(numbers), readings)

    def of_first_file(self, sample: int) -> Source:
        """Return a source of the first file, without transforms and without an index.

        If its features are not known, they are inferred from its first `sample` records.
        """
        first = (self._inferred or self._given)[0]
        reading = dataclasses.replace(
            first, n_files=1, transforms=(), record_counts=None
        )
        source = Source(self.files.first(), [reading])
        if reading.features is None:
            features = source.inferred_in_sequence([0], reading.names, sample)
            source = source.changed(lambda r: dataclasses.replace(r, features=features))
        return source

    def known_schema(self) -> Schema | None:
        """Return the schema if it is known, without reading files; None if not."""
        readings = self._inferred or self._given
        known = [reading.features for reading in readings]
        return known[0] if len(known) == 1 else None

    def changed(self, change: Callable[[Reading], Reading]) -> Source:
        """Return a source with `change` applied to the readings."""
        return Source(self.files, [change(reading) for reading in self._given])

    def with_schema(self, change: Callable[[Schema], Schema]) -> Source:
        """Return a source with `change` applied to the schemas."""
        return Source(
            self.files,
            [
                dataclasses.replace(reading, features=change(reading.schema))
                for reading in self._known()
            ],
        )

    def without_transforms(self) -> Source:
        """Return a source without transforms."""
        return self.changed(lambda reading: dataclasses.replace(reading, transforms=()))

    @property
    def transforms(self) -> list[CheckedTransform]:
        """The transforms of all files."""
        return [fn for reading in self._given for fn in reading.transforms]

    @property
    def is_decoding(self) -> bool:
        """Whether Python code decodes columns; no inferred schema has such."""
        return any(encoded_of(reading.features or {}) for reading in self._given)

    def _known(self) -> list[Reading]:
        """Return the readings with inferred features."""
        with _core.HeldLock(self._lock):
            if self._inferred is None:
                readings = list(self._given)
                while any(reading.features is None for reading in readings):
                    readings = self._with_inferred(readings)
                self._inferred = readings
            return self._inferred

    def readings(self) -> tuple[list[Reading], list[int]]:
        """Return the distinct readings, and the index of the reading of each file."""
        with _core.HeldLock(self._lock):
            if self._distinct is None:
                distinct: list[Reading] = []
                of_files: list[int] = []
                for reading in self._known():
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
                {name: reading.schema._row_type(name) for name in reading.schema}
                for reading in readings
            ]
            for other in others:
                check_columns(first, other)

    def check_counts(self, *, allows_gaps: bool = True) -> None:
        """Raise a CorruptionError if a file has another number of records than listed.

        With `allows_gaps`, a file may have fewer if `on_error` skips damage to it.
        """
        if all(reading.record_counts is None for reading in self._given):
            return
        damaged = {gap.path for gap in self.files.report()} if allows_gaps else ()
        listed = itertools.chain.from_iterable(
            reading.record_counts or [None] * reading.n_files for reading in self._given
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

    def to_core(self) -> _core.Sources:
        """Return the files and their schemas in the form that the core accepts."""
        with _core.HeldLock(self._lock):
            if self._bound is None:
                readings, of_files = self.readings()
                self._bound = _core.Sources(
                    self.files.table,
                    [reading.schema._bind() for reading in readings],
                    of_files if len(readings) > 1 else [],
                    self.files.limits.max_padded_bytes,
                )
            return self._bound

    # Inference.

    def _with_inferred(self, readings: Sequence[Reading]) -> list[Reading]:
        """Infer features of the first reading without them, and of similar readings."""
        unknown = next(reading for reading in readings if reading.features is None)
        ends = itertools.accumulate(reading.n_files for reading in readings)
        runs = {
            i: range(end - reading.n_files, end)
            for i, (reading, end) in enumerate(zip(readings, ends, strict=True))
            if dataclasses.replace(reading, n_files=unknown.n_files) == unknown
        }
        # Inference must not depend on an index of remote files, which takes long to build.
        if self.files.is_streamed or self.files.is_remote:
            numbers = [*itertools.chain(*runs.values())]
            schema = self.inferred_in_sequence(numbers, unknown.names)
        else:
            indexes = self.files.indexes()
            begins = [0, *itertools.accumulate(indexes.counts.tolist())]
            records = [range(begins[r.start], begins[r.stop]) for r in runs.values()]
            catalog = _core.Catalog(indexes, Selection(records).to_core())
            schema = self.inferred_of(catalog, unknown.names)
        return [
            dataclasses.replace(reading, features=schema) if i in runs else reading
            for i, reading in enumerate(readings)
        ]

    def inferred_of(
        self,
        catalog: _core.Catalog,
        names: Sequence[str | bytes] | None,
        sample: int | None = infer.SAMPLE_RECORDS,
    ) -> Schema:
        """Infer features from `sample` records of `catalog`; None means all."""
        with self.files.renewing():
            return infer.infer(
                self.files.table,
                catalog,
                names,
                sample,
                skip_unreadable=self.files.on_error != "raise",
                features_max=self.files.limits.max_features,
            )

    def inferred_in_sequence(
        self,
        numbers: Sequence[int],
        names: Sequence[str | bytes] | None,
        sample: int | None = infer.SAMPLE_RECORDS,
    ) -> Schema:
        """Infer features from the first records of the files with these numbers."""
        self.files.check_no_pipes("reading it without features=")
        contents = self.files.contents()
        with frame_stream(
            [contents[i] for i in numbers],
            self.files.table,
            numbers,
            recovery_of(self.files.on_error),
        ) as frames:
            return infer.infer_stream(
                frames,
                names,
                sample,
                skip_unreadable=self.files.on_error != "raise",
                features_max=self.files.limits.max_features,
            )
