"""Views: which records of some sources a dataset has, and in what orders they come."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fastrec import _core
from fastrec.features import infer
from fastrec.features.schema import Schema
from fastrec.loader.order import Blocks, Shuffle, Window, core_shuffle
from fastrec.on_error import OnError, recovery_of
from fastrec.sources.selection import Numbers, Selection
from fastrec.sources.sources import Sources
from fastrec.transforms.batch_info import Extra
from fastrec.transforms.places import Places

__all__ = ["View"]


class View:
    """Records of some sources, numbered from 0.

    Parameters
    ----------
    sources : Sources
    selection : Selection, optional
        Which of their records, and in what order; by default all, as they lie.
    """

    def __init__(self, sources: Sources, selection: Selection | None = None) -> None:
        self.sources = sources
        self._selection = selection
        self._catalog: _core.Catalog | None = None
        self._fingerprint = ""

    def __len__(self) -> int:
        if self.sources.is_streamed and self.is_walkable:
            return self.sources.n_records
        return len(self.catalog())

    def __reduce__(self) -> tuple[object, ...]:
        return View, (self.sources, self._selection)

    def __repr__(self) -> str:
        files = self.sources.files
        text = repr(files[0]) + (f" and {len(files) - 1:,} more" if files[1:] else "")
        if self._catalog is not None:
            text += f", {len(self._catalog):,} records"
        return text + ("" if self._selection is None else " selected")

    # Which records.

    @property
    def is_walkable(self) -> bool:
        """Whether a walk through the files meets the records, in their order."""
        return self._selection is None

    @property
    def is_mixed(self) -> bool:
        """Whether rows are drawn from components, in an order of their own."""
        return False

    def check_selectable(self) -> None:
        """Raise a TypeError if nothing can be left out of these records."""

    def selection(self) -> Selection:
        """Return which records of the sources these are."""
        if self._selection is None:
            return Selection([range(self.sources.n_records)])
        return self._selection

    def selected(self, chosen: range | Numbers) -> View:
        """Return the records that `chosen` names, all in bounds."""
        self.check_selectable()
        self.sources.check_random_access("choosing records")
        return View(self.sources, self.selection().select(chosen))

    def of(self, sources: Sources) -> View:
        """Return the same records of `sources`, which are the same files."""
        return View(sources, self._selection)

    def with_on_error(self, on_error: OnError) -> View:
        """Return the same records; what becomes of damage is another thing.

        Raises
        ------
        ValueError
            If that would change which records the numbers mean that were chosen.
        """
        before = self.sources
        if on_error == before.on_error:
            return self
        if (
            not self.is_walkable
            and before.has_known_gaps()
            and recovery_of(on_error) != recovery_of(before.on_error)
        ):
            msg = (
                "records were chosen from damaged files by numbers that another on_error= "
                "would change: give it to fastrec.open"
            )
            raise ValueError(msg)
        return self.of(before.with_on_error(on_error))

    def catalog(self) -> _core.Catalog:
        """Return where every record is, building the indexes that are missing."""
        if self._catalog is None:
            indexes = self.sources.indexes()
            pieces = [] if self.is_walkable else self.selection().of_core()
            self._catalog = _core.Catalog(indexes, pieces)
        return self._catalog

    def is_indexed(self) -> bool:
        """Whether `catalog` can be had without walking through files."""
        return self._catalog is not None or self.sources.are_indexed()

    def fingerprint(self) -> str:
        """Return what tells these data from others, wherever they lie."""
        if not self._fingerprint:
            digest = hashlib.blake2b(digest_size=8)
            self._add_to(digest)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def _add_to(self, digest: hashlib.blake2b) -> None:
        self.sources.add_to(digest)
        if self._selection is not None:
            self._selection.add_to(digest)

    # What is in them.

    def inferred(self, sample: int | None) -> Schema:
        """Infer the schema of all features of `sample` records, or of all."""
        if self.sources.is_streamed:
            return self.sources.inferred_of_first(lambda _: True, None, sample)
        return infer.infer(
            self.sources.table,
            self.catalog(),
            None,
            sample,
            skips_damage=self.sources.on_error != "raise",
            features_max=self.sources.limits.features,
        )

    # In what order.

    def shuffle_of_core(self, shuffle: Shuffle) -> _core.Shuffle:
        """Return `shuffle` for records of the size that these have."""
        if not isinstance(shuffle, Blocks):
            return core_shuffle(shuffle, 0, 0)
        return core_shuffle(shuffle, self.sources.n_records, self.sources.n_bytes)

    def order(
        self,
        shuffle: Shuffle,
        seed: int,
        epoch: int,
        global_batch_size: int,  # noqa: ARG002 (views that draw whole batches need it)
    ) -> _core.Order:
        """Return which record comes at which position of an epoch."""
        if isinstance(shuffle, Window):
            firsts, counts = self._runs(shuffle, seed, epoch)
            return _core.Order.window(firsts, counts, shuffle.n, seed, epoch)
        return _core.Order.of(self.shuffle_of_core(shuffle), len(self), seed, epoch)

    def _runs(self, window: Window, seed: int, epoch: int) -> tuple[Numbers, Numbers]:
        """Return where the runs of records begin that `window` reads, and their sizes."""
        if not self.is_walkable:
            return np.zeros(1, np.int64), np.array([len(self)], np.int64)
        counts = np.array(self.sources.n_records_by_file(), np.int64)
        files = window.file_order(len(counts), seed, epoch)
        return (np.cumsum(counts) - counts)[files], counts[files]

    def order_state(self, global_batch_size: int) -> dict[str, Any]:  # noqa: ARG002
        """Return what the order depends on besides the shuffle."""
        return {}

    # Rows.

    def by_rows(self) -> View:
        """Return a view whose order is that of `records_of`, for any size of batches."""
        return self

    def places(self, records: Numbers) -> list[tuple[int, int, int]]:
        """Return file, record in the file, and byte of its content, of each record."""
        if not (self.sources.is_streamed and self.is_walkable):
            return self.catalog().places(records)
        counts = self.sources.counts()
        return [
            (file, number, counts[file].offset(number))
            for file, number in self.sources.streamed_places(records)
        ]

    def located(self, records: Numbers, context: str) -> Places:
        """Return the places of `records`, to name them in errors; see `Places`."""
        found = np.array(self.places(records), np.int64).reshape(-1, 3)
        ends = np.full((len(found), 1), -1, np.int64)
        return Places(self.sources.files, np.concatenate([found, ends], 1), context)

    def records_of(self, numbers: Numbers) -> Numbers:
        """Return the numbers in the catalog of the rows `numbers`."""
        return numbers

    def extra_columns(self) -> dict[str, Extra]:
        """Return the columns that rows have besides those of the files."""
        return {}
