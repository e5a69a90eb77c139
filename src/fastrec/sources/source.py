"""Sources: a file set, and how its files are read."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastrec import _core
from fastrec.features import infer
from fastrec.features.schema import Schema, check_columns
from fastrec.lifecycle import renew_after_fork
from fastrec.on_error import recovery_of
from fastrec.sources.file_set import FileSet
from fastrec.sources.selection import Selection
from fastrec.storage.stream_readers import frames_of
from fastrec.transforms.transform import CheckedTransform

__all__ = ["Reading", "Source"]


@dataclass(frozen=True)
class Reading:
    """How some consecutive files are read."""

    n_files: int
    features: Schema | None = None  # None is inferred when it is needed
    names: tuple[str | bytes, ...] | None = None  # features to infer; None means all
    transforms: tuple[CheckedTransform, ...] = ()  # applied before files are joined

    @property
    def schema(self) -> Schema:
        """The features, which are known."""
        assert self.features is not None
        return self.features

    def gives_columns_of(self, other: Reading) -> bool:
        """Whether both make equal columns, so that their rows share arrays."""
        return self.transforms == other.transforms and (
            self.schema is other.schema
            or self.schema._columns() == other.schema._columns()
        )


class Source:
    """A file set, and how its files are read. It does not change; views share it."""

    def __init__(
        self,
        files: FileSet,
        readings: Sequence[Reading],
        inferred: list[Reading] | None = None,
    ) -> None:
        self.files = files
        self._given = list(readings)
        self._inferred = inferred  # the readings, all with features
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
        """Return the files of all parts; features are inferred again, of all of them."""
        files = FileSet.joined([part.files for part in parts])
        return cls(files, [reading for part in parts for reading in part._given])

    def of(self, files: FileSet) -> Source:
        """Return `files`, read in the same way."""
        return Source(files, self._given, self._inferred)

    def changed(self, change: Callable[[Reading], Reading]) -> Source:
        """Return the same files, each read as `change` makes it."""
        return Source(self.files, [change(reading) for reading in self._given])

    def with_schema(self, change: Callable[[Schema], Schema]) -> Source:
        """Return the same files, with the columns that `change` makes of theirs."""
        return Source(
            self.files,
            [
                dataclasses.replace(reading, features=change(reading.schema))
                for reading in self._known()
            ],
        )

    def without_transforms(self) -> Source:
        """Return the same files, whose rows are not transformed."""
        return self.changed(lambda reading: dataclasses.replace(reading, transforms=()))

    @property
    def transforms(self) -> list[CheckedTransform]:
        """The transforms of all files."""
        return [made for reading in self._given for made in reading.transforms]

    def _known(self) -> list[Reading]:
        """Return the readings, all with features."""
        with self._lock:
            if self._inferred is None:
                readings = list(self._given)
                while any(reading.features is None for reading in readings):
                    readings = self._with_inferred(readings)
                self._inferred = readings
            return self._inferred

    def readings(self) -> tuple[list[Reading], list[int]]:
        """Return the distinct readings, and the number of the one of each file."""
        with self._lock:
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
        """The columns that are read, which must be those of all files."""
        self.check_columns()
        return self.readings()[0][0].schema

    def check_columns(self) -> None:
        """Raise a SchemaError if files give different columns before any transform."""
        readings, _ = self.readings()
        if len(readings) > 1 and not any(reading.transforms for reading in readings):
            first, *others = [
                {name: reading.schema._row_type(name) for name in reading.schema}
                for reading in readings
            ]
            for other in others:
                check_columns(first, other)

    def of_core(self) -> _core.Sources:
        """Return the files and their schemas as the core takes them."""
        with self._lock:
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
        """Infer features for the first reading without them, and for those like it."""
        unknown = next(reading for reading in readings if reading.features is None)
        ends = itertools.accumulate(reading.n_files for reading in readings)
        runs = {
            i: range(end - reading.n_files, end)
            for i, (reading, end) in enumerate(zip(readings, ends, strict=True))
            if dataclasses.replace(reading, n_files=unknown.n_files) == unknown
        }
        if self.files.is_streamed:
            numbers = [*itertools.chain(*runs.values())]
            found = self.inferred_in_sequence(numbers, unknown.names)
        else:
            indexes = self.files.indexes()
            begins = [0, *itertools.accumulate(map(len, indexes))]
            records = [range(begins[r.start], begins[r.stop]) for r in runs.values()]
            catalog = _core.Catalog(indexes, Selection(records).of_core())
            found = self.inferred_of(catalog, unknown.names)
        return [
            dataclasses.replace(reading, features=found) if i in runs else reading
            for i, reading in enumerate(readings)
        ]

    def inferred_of(
        self,
        catalog: _core.Catalog,
        names: Sequence[str | bytes] | None,
        sample: int | None = infer.SAMPLE_RECORDS,
    ) -> Schema:
        """Infer features from a sample of the records of `catalog`; None is all."""
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
        """Infer features from the first records of some files, given by number."""
        contents = self.files.contents()
        with frames_of(
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
