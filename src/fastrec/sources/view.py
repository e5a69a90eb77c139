"""View: the records of a source that a dataset selects."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastrec import _core
from fastrec.errors import CorruptionError
from fastrec.features.schema import Schema
from fastrec.on_error import ErrorPolicy, recovery_of
from fastrec.sources.file_set import FileSet
from fastrec.sources.selection import Numbers, Selection
from fastrec.sources.source import Source
from fastrec.transforms.batch_info import BatchInfo, Extra
from fastrec.transforms.places import Places

SOURCE = "__source__"  # the column that names the component of each row of a mix


@dataclass(frozen=True)
class Mix:
    """Options of `fastrec.mix`: views with weights, from which rows are drawn."""

    components: dict[str, tuple[View, float]]
    seed: int
    length: int | None
    per_batch: bool

    def __len__(self) -> int:
        return sum(self.sizes()) if self.length is None else self.length

    def sizes(self) -> list[int]:
        """Return the size of each component, or raise a ValueError if one is empty."""
        for name, (view, _) in self.components.items():
            if not len(view):
                raise ValueError(
                    f"mix components must not be empty, got no records in {name!r}"
                )
        return [len(view) for view, _ in self.components.values()]


class View:
    """Records of a source, numbered from 0: all, a selection, or the rows of a mix."""

    def __init__(
        self, source: Source, selection: Selection | None = None, mix: Mix | None = None
    ) -> None:
        self.source = source
        self.mix = mix
        self._selection = selection
        self._catalog: tuple[_core.Indexes, _core.Catalog] | None = None
        self._fingerprint: tuple[int, str] | None = None  # of a version of the files

    @property
    def files(self) -> FileSet:
        """The files of the source."""
        return self.source.files

    def __len__(self) -> int:
        if self.mix is not None:
            return len(self.mix)
        n_listed = self.n_listed_records()
        if n_listed is not None:
            return n_listed
        if self.is_walkable and self.files.is_streamed:
            return self.files.n_records
        return len(self.catalog())

    def __reduce__(self) -> tuple[object, ...]:
        return View, (self.source, self._selection, self.mix)

    def __repr__(self) -> str:
        if self.mix is not None:
            return "a mix of " + "; ".join(
                f"{name!r} ({weight:g}): {view!r}"
                for name, (view, weight) in self.mix.components.items()
            )
        text, n = repr(self.files), self.n_known_records()
        text += "" if n is None else f", {n:,} record{'' if n == 1 else 's'}"
        return text + ("" if self._selection is None else " selected")

    def n_known_records(self) -> int | None:
        """Return the number of records, or None if finding it would read files."""
        if self._selection is not None:
            return len(self._selection)
        if self.is_mixed:
            return None
        n_listed = self.n_listed_records()
        return self.files.n_known_records() if n_listed is None else n_listed

    def n_listed_records(self) -> int | None:
        """Return the number of records according to metadata, if it must be exact."""
        is_exact = self.is_walkable and self.files.on_error == "raise"
        return self.source.n_listed_records if is_exact else None

    def check_walked(self, n_records: int, batch_size: int, *, drop_last: bool) -> None:
        """Raise a CorruptionError if an epoch did not have all listed records."""
        n_listed = self.source.n_listed_records
        if n_listed is None:
            return
        if drop_last:
            n_listed -= n_listed % batch_size
        if n_records != n_listed:
            self.source.check_counts()

    @property
    def is_walkable(self) -> bool:
        """Whether these are all records of the files, in file order."""
        return self._selection is None and self.mix is None

    @property
    def is_mixed(self) -> bool:
        """Whether rows are drawn from components."""
        return self.mix is not None

    def check_selectable(self) -> None:
        """Raise a TypeError unless records can be selected from this view."""
        if self.is_mixed:
            raise TypeError(
                "cannot select records of a mix; select, filter, split or shard its "
                "components instead"
            )

    def selection(self) -> Selection:
        """Return the record numbers in the source."""
        if self.mix is not None:
            views = [view for view, _ in self.mix.components.values()]
            return joined_selection(views)
        if self._selection is None:
            n_records = self.files.n_records
            return Selection([range(n_records)], n_records)
        n_before = self._selection.n_source
        if n_before is not None and (n := self.files.n_records) != n_before:
            raise CorruptionError(
                f"the files have {n:,} records, but had {n_before:,} when records were "
                "selected; open and select again",
                self.files.files[0],
                code="file_changed",
            )
        return self._selection

    def selected(self, chosen: range | Numbers) -> View:
        """Return a view of the records at positions `chosen`, all in bounds."""
        self.check_selectable()
        self.files.check_random_access("selecting records")
        return View(self.source, self.selection().select(chosen))

    def of(self, source: Source) -> View:
        """Return a view of the same records of another source of the same files."""
        return View(source, self._selection, self.mix)

    def by_rows(self) -> View:
        """Return a view whose mix draws rows instead of whole batches."""
        if self.mix is None or not self.mix.per_batch:
            return self
        mix = dataclasses.replace(self.mix, per_batch=False)
        return View(self.source, self._selection, mix)

    def with_on_error(self, on_error: ErrorPolicy) -> View:
        """Return a view with another error policy, or raise a ValueError."""
        before = self.files
        if on_error == before.on_error:
            return self
        if (
            not self.is_walkable
            and before.known_gaps()
            and recovery_of(on_error) != recovery_of(before.on_error)
        ):
            raise ValueError(
                "cannot change on_error= of records selected from damaged files, "
                "because their numbers would change; pass it to fastrec.open()"
            )
        return self.of(self.source.of(before.with_on_error(on_error)))

    def catalog(self) -> _core.Catalog:
        """Return the offsets of all records, building missing indexes."""
        indexes = self.files.indexes()
        if self._catalog is None or self._catalog[0] is not indexes:
            self.source.check_counts()
            pieces = [] if self.is_walkable else self.selection().to_core()
            self._catalog = indexes, _core.Catalog(indexes, pieces)
        return self._catalog[1]

    def is_indexed(self) -> bool:
        """Whether `catalog` returns without scanning files."""
        return self._catalog is not None or self.files.is_indexed()

    def fingerprint(self) -> str:
        """Return a hash of the records, independent of the files' paths."""
        version = self.files.version()
        if self._fingerprint is None or self._fingerprint[0] != version:
            import hashlib  # slow to import

            digest = hashlib.blake2b(digest_size=8)
            if self.mix is not None:
                for view, _ in self.mix.components.values():
                    digest.update(view.fingerprint().encode())
            else:
                self.files.add_to(digest)
                if self._selection is not None:
                    self._selection.add_to(digest)
            self._fingerprint = version, digest.hexdigest()
        return self._fingerprint[1]

    def inferred(self, sample: int | None) -> Schema:
        """Infer a schema of all features from `sample` records; None means all."""
        if self.files.is_streamed:
            numbers = range(len(self.files))
            return self.source.inferred_in_sequence(numbers, None, sample)
        return self.source.inferred_of(self.catalog(), None, sample)

    def places(self, records: Numbers) -> list[tuple[int, int, int]]:
        """Return the file, the record in the file, and the offset of each record."""
        if not (self.is_walkable and self.files.is_streamed):
            return self.catalog().places(records)
        counts = self.files.counts()
        return [
            (file, number, counts[file].offset(number))
            for file, number in self.files.streamed_places(records)
        ]

    def row_places(self, records: Numbers, context: str) -> Places:
        """Return the `Places` of `records`, for errors."""
        found = np.array(self.places(records), np.int64).reshape(-1, 3)
        ends = np.full((len(found), 1), -1, np.int64)
        return Places(self.files.files, np.concatenate([found, ends], 1), context)

    def extra_columns(self) -> dict[str, Extra]:
        """Return functions that compute additional columns from a BatchInfo."""
        if self.mix is None:
            return {}
        ends = np.cumsum(self.mix.sizes())

        def component(info: BatchInfo) -> Numbers:
            found: Numbers
            found = np.searchsorted(ends, info.records, side="right").astype(np.int64)
            found[info.records < 0] = -1
            return found

        return {SOURCE: component}


def joined_selection(views: Sequence[View]) -> Selection:
    """Return the records of `views`, numbered across the joined files."""
    counts = [view.files.n_records for view in views]
    begins = itertools.accumulate(counts, initial=0)
    shifted = (
        view.selection().shifted(begin)
        for view, begin in zip(views, begins, strict=False)
    )
    return Selection.joined(shifted, sum(counts))
