"""Sources: the files behind a dataset, and how each is read.

Views of a dataset share its sources, and so its indexes and open files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fastrec import _core
from fastrec.features import infer
from fastrec.features.schema import Schema, check_columns
from fastrec.lifecycle import renew_after_fork
from fastrec.limits import Limits
from fastrec.on_error import OnError, Report, recovery_of, region_of
from fastrec.sources.file_set import Files
from fastrec.sources.selection import Numbers, Selection
from fastrec.storage.counting import Count
from fastrec.storage.stream_readers import FileContent, first_frames
from fastrec.transforms.transform import CheckedTransform

__all__ = ["Reading", "Source", "Sources"]

# Records whose stored checksums stand for all of them, besides the first and the last.
_N_FINGERPRINTED = 16


@dataclass(frozen=True)
class Source:
    """Files that are read in one way.

    Attributes
    ----------
    files : Files
    features : Schema or None
        What is read of them; None is inferred when it is needed.
    transforms : tuple of CheckedTransform
        What is done to rows of these files before they are joined with others.
    is_inferred : bool
        Whether the features are what the records say, and nobody's choice.
    names : tuple of str or bytes, or None
        The features to infer; None are all.
    """

    files: Files
    features: Schema | None
    transforms: tuple[CheckedTransform, ...] = ()
    is_inferred: bool = False
    names: tuple[str | bytes, ...] | None = None

    def reading(
        self, features: Schema | None, names: tuple[str | bytes, ...] | None = None
    ) -> Source:
        """Return the same files, of which a caller wants these features."""
        return dataclasses.replace(
            self, features=features, is_inferred=False, names=names
        )


@dataclass(frozen=True)
class Reading:
    """What several sources may have in common: rows of one reading come in one array."""

    features: Schema
    transforms: tuple[CheckedTransform, ...]

    def is_that_of(self, source: Source) -> bool:
        """Whether `source`, whose features are known, is read in this way."""
        assert source.features is not None
        return self.transforms == source.transforms and (
            self.features is source.features
            or self.features._columns() == source.features._columns()
        )


class Sources:
    """Some sources, one after another: their files, indexes and schemas.

    Nothing is read until it is needed, and then once.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self._indexes: list[_core.Index] | None = None
        self._counts: list[Count] | None = None
        self._n_records: int | None = None
        self._n_bytes: int | None = None
        self._readings: tuple[list[Reading], list[int]] | None = None
        self._renew_after_fork()
        renew_after_fork(self)

    @classmethod
    def joined(cls, parts: Iterable[Sources]) -> Sources:
        """Return the sources of all parts, one part after another.

        What was inferred of a part alone is inferred again, of all together.

        Raises
        ------
        ValueError
            If the parts treat damage in different ways, or have different limits.
        """
        parts = list(parts)
        if any(part.on_error != parts[0].on_error for part in parts):
            msg = (
                "the datasets that are joined have different on_error=: give them one "
                "with ds.with_options(on_error=...)"
            )
            raise ValueError(msg)
        if any(part.limits != parts[0].limits for part in parts):
            msg = "the datasets that are joined have different limits="
            raise ValueError(msg)
        return cls(
            [
                dataclasses.replace(source, features=None)
                if source.is_inferred
                else source
                for part in parts
                for source in part._sources
            ]
        )

    def _renew_after_fork(self) -> None:
        """Replace what has locks: a thread of the parent may hold them."""
        self._lock = threading.RLock()
        self._table: _core.FileTable | None = None
        self._bound: _core.Sources | None = None

    def _expect(self) -> None:
        if self._table is not None:
            for i, found in enumerate(self._indexes or ()):
                self._table.expect(i, found)

    def __reduce__(self) -> tuple[object, ...]:
        return Sources, (self._sources,)

    def changed(self, change: Callable[[Source], Source]) -> Sources:
        """Return the same files, with each source as `change` makes it."""
        return Sources([change(source) for source in self._sources])

    @property
    def transforms(self) -> list[CheckedTransform]:
        """The functions that make the rows of any of the files."""
        return [made for source in self._sources for made in source.transforms]

    def without_transforms(self) -> Sources:
        """Return the same files, whose rows are left as they are."""
        return self.changed(lambda source: dataclasses.replace(source, transforms=()))

    # Damage.

    @property
    def on_error(self) -> OnError:
        """What becomes of damage: the same for all sources."""
        return self._sources[0].files.on_error

    @property
    def limits(self) -> Limits:
        """What records may cost: the same for all sources."""
        return self._sources[0].files.limits

    def with_on_error(self, on_error: OnError) -> Sources:
        """Return the same files, whose damage is treated in another way."""
        return self.changed(
            lambda source: dataclasses.replace(
                source, files=source.files.with_on_error(on_error)
            )
        )

    def has_known_gaps(self) -> bool:
        """Whether parts of files are known to be left out."""
        return any(source.files.gaps_if_known() for source in self._sources)

    def report(self) -> Report:
        """Return what is left out of the files."""
        found = self.counts() if self.is_streamed else self.indexes()
        gaps = [gap for of_file in found for gap in of_file.gaps]
        return Report(tuple(region_of(gap) for gap in gaps))

    # Files.

    @property
    def files(self) -> list[str]:
        """All files, in the order that records are numbered through them."""
        return [path for source in self._sources for path in source.files.located.files]

    @property
    def paths(self) -> list[str]:
        """Where the content of each file is. Expands compressed files if needed."""
        return [path for source in self._sources for path in source.files.located.paths]

    @property
    def table(self) -> _core.FileTable:
        """The files as the core opens them. Another one after a fork."""
        with self._lock:
            if self._table is None:
                self._table = self._opened()
                self._expect()
            return self._table

    def _opened(self) -> _core.FileTable:
        names = [os.fsencode(path) for path in self.files]
        paths = [os.fsencode(path) for path in self.paths]
        ios = [
            source.files.io
            for source in self._sources
            for _ in source.files.located.files
        ]
        return _core.FileTable(
            paths, ios, names if paths != names else [], self.limits.record_bytes
        )

    # Records.

    def indexes(self) -> list[_core.Index]:
        """Return where every record is, building the indexes that are missing."""
        with self._lock:
            if self._indexes is None:
                self.check_random_access("this")
                found = [source.files.indexes() for source in self._sources]
                self._indexes = [*itertools.chain.from_iterable(found)]
                self._expect()
            return self._indexes

    def are_indexed(self) -> bool:
        """Whether `indexes` can be had without walking through files."""
        if self.is_streamed:
            return False
        return self._indexes is not None or all(
            source.files.indexes_if_cheap() is not None for source in self._sources
        )

    @property
    def n_records(self) -> int:
        """How many records there are in all files."""
        if self._n_records is None:
            self._n_records = sum(self.n_records_by_file())
        return self._n_records

    @property
    def n_bytes(self) -> int:
        """How many bytes the frames of all records take."""
        if self._n_bytes is None:
            self._n_bytes = sum(int(found.offsets[-1]) for found in self.indexes())
        return self._n_bytes

    def n_records_by_file(self) -> list[int]:
        """Return how many records there are in each file."""
        if self.is_streamed:
            return [len(found) for found in self.counts()]
        return [len(found) for found in self.indexes()]

    # Streams.

    @property
    def is_streamed(self) -> bool:
        """Whether records can only be had one after another."""
        return any(source.files.located.is_streamed for source in self._sources)

    def check_random_access(self, what: str) -> None:
        """Raise a ValueError that says what to do if `what` is asked of streams."""
        if not self.is_streamed:
            return
        path = next(path for path, content in self.contents() if content != "plain")
        msg = (
            f"{what} needs random access, but {path!r} is compressed: "
            "fastrec.open(..., cache_dir=...) expands such files once, after which "
            "everything works"
        )
        raise ValueError(msg)

    def contents(self) -> list[FileContent]:
        """Return all files to read one after another, and what each is."""
        return [
            (path, content)
            for source in self._sources
            for path, content in source.files.located.to_stream()
        ]

    def counts(self) -> list[Count]:
        """Return how many records each file has, by a pass over those not counted."""
        with self._lock:
            if self._counts is None:
                found = [source.files.counts() for source in self._sources]
                self._counts = [*itertools.chain.from_iterable(found)]
            return self._counts

    def streamed_places(self, records: Numbers) -> list[tuple[int, int]]:
        """Return the file of each record of streams, and its number in the file."""
        begins = np.cumsum([0, *self.n_records_by_file()])
        files = np.searchsorted(begins, records, side="right") - 1
        return list(
            zip(files.tolist(), (records - begins[files]).tolist(), strict=True)
        )

    # Data.

    def add_to(self, digest: hashlib.blake2b) -> None:
        """Add to `digest` what tells these files from others, wherever they are.

        Their sizes and record counts, and the checksums that are stored with some
        records.
        """
        if self.is_streamed:
            self._add_counts_to(digest)
            return
        indexes = self.indexes()
        for found in indexes:
            digest.update(f"{int(found.offsets[-1])} {len(found)};".encode())
        catalog = _core.Catalog(indexes)
        numbers = _fingerprinted(len(catalog))
        stored = _core.stored_checksums(self.table, catalog, numbers)
        digest.update(stored.astype("<u4").tobytes())

    def _add_counts_to(self, digest: hashlib.blake2b) -> None:
        """Add what `add_to` would if the streams were plain files."""
        counts = self.counts()
        for found in counts:
            digest.update(f"{found.n_bytes} {len(found)};".encode())
        for file, number in self.streamed_places(_fingerprinted(self.n_records)):
            crc = counts[file].payload_crc(number)
            digest.update(crc.to_bytes(4, "little"))

    # Columns.

    @property
    def schema(self) -> Schema:
        """What is read, and inferred where nobody said it.

        Raises
        ------
        SchemaError
            If no schema can be inferred, or sources would give different columns.
        """
        self.check_columns()
        readings, _ = self.readings()
        return readings[0].features

    def check_columns(self) -> None:
        """Raise a SchemaError if sources would give different columns.

        What transforms make of them shows only when they are called.
        """
        readings, _ = self.readings()
        if len(readings) > 1 and not any(reading.transforms for reading in readings):
            first, *others = [_described_columns(found.features) for found in readings]
            for other in others:
                check_columns(first, other)

    def readings(self) -> tuple[list[Reading], list[int]]:
        """Return the different ways of reading, and which is that of each file."""
        with self._lock:
            if self._readings is None:
                self._infer()
                self._readings = self._found_readings()
            return self._readings

    def _found_readings(self) -> tuple[list[Reading], list[int]]:
        readings: list[Reading] = []
        of_files: list[int] = []
        for source in self._sources:
            is_its = [reading.is_that_of(source) for reading in readings]
            if not any(is_its):
                assert source.features is not None
                readings.append(Reading(source.features, source.transforms))
                is_its.append(True)
            of_files += [is_its.index(True)] * len(source.files)
        return readings, of_files

    def of_core(self) -> _core.Sources:
        """Return the files and their schemas as the core takes them."""
        with self._lock:
            if self._bound is None:
                readings, of_files = self.readings()
                self._bound = _core.Sources(
                    self.table,
                    [reading.features._bind() for reading in readings],
                    of_files if len(readings) > 1 else [],
                    self.limits.padded_bytes,
                )
            return self._bound

    def _infer(self) -> None:
        """Fill in the features that nobody gave; what is treated alike is one data set."""
        while True:
            unknown = [source for source in self._sources if source.features is None]
            if not unknown:
                return
            transforms, names = unknown[0].transforms, unknown[0].names

            def is_alike(source: Source) -> bool:
                is_unknown = source.features is None and source.names == names  # noqa: B023
                return is_unknown and source.transforms == transforms  # noqa: B023

            found = (
                self.inferred_of_first(is_alike, names)
                if self.is_streamed
                else self._inferred_of_all(is_alike, names)
            )
            self._sources = [
                dataclasses.replace(source, features=found, is_inferred=True)
                if is_alike(source)
                else source
                for source in self._sources
            ]

    def _inferred_of_all(
        self, is_alike: Callable[[Source], bool], names: Sequence[str | bytes] | None
    ) -> Schema:
        """Infer the features of what is treated alike from all its records."""
        indexes = self.indexes()
        begins = [0, *itertools.accumulate(len(found) for found in indexes)]
        pieces: list[range] = []
        n_files = 0
        for source in self._sources:
            end = n_files + len(source.files)
            if is_alike(source):
                pieces.append(range(begins[n_files], begins[end]))
            n_files = end
        catalog = _core.Catalog(indexes, Selection(pieces).of_core())
        return infer.infer(
            self.table,
            catalog,
            names,
            skips_damage=self.on_error != "raise",
            features_max=self.limits.features,
        )

    def inferred_of_first(
        self,
        is_alike: Callable[[Source], bool],
        names: Sequence[str | bytes] | None = None,
        sample: int | None = infer.SAMPLE_RECORDS,
    ) -> Schema:
        """Infer the features of what is treated alike from its first records."""
        files: list[FileContent] = []
        order: list[int] = []
        n_files = 0
        for source in self._sources:
            if is_alike(source):
                files += source.files.located.to_stream()
                order += range(n_files, n_files + len(source.files))
            n_files += len(source.files)
        recovery = recovery_of(self.on_error)
        with first_frames(files, self.table, order, recovery) as frames:
            return infer.infer_stream(
                frames,
                names,
                sample,
                skips_damage=self.on_error != "raise",
                features_max=self.limits.features,
            )


def _fingerprinted(n_records: int) -> Numbers:
    """Return the records whose checksums stand for those of all."""
    n = n_records
    chosen = {n * i // (_N_FINGERPRINTED + 1) for i in range(_N_FINGERPRINTED + 1)}
    return np.array(sorted(chosen | {n - 1}) if n else [], dtype=np.int64)


def _described_columns(schema: Schema) -> dict[str | bytes, str]:
    return {name: schema._described(name) for name in schema}
