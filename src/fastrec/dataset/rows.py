"""Rows: records of a dataset decoded by number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastrec import _core
from fastrec.arrays.batch import Batch, Row, n_rows, row_of
from fastrec.caller_warnings import warn_caller
from fastrec.dataset.indexing import checked_number
from fastrec.errors import Error, hint_by_number
from fastrec.features.missing import absence
from fastrec.loader.collate import Collator
from fastrec.loader.order import records_of
from fastrec.sources.selection import Numbers
from fastrec.sources.source import Source
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.transform import CheckedTransform


class Rows:
    """Reads rows of a source by number, in any thread, and calls its transforms.

    One row is read by one call of the core, unless Python code must see its batch: a
    transform, an image, or the columns of a mix.
    """

    def __init__(
        self,
        source: Source,
        transforms: Sequence[CheckedTransform],
        pool: _core.BlockPool,
    ) -> None:
        self._source = source
        self._transforms = transforms
        self._pool = pool
        self._reader: _core.RowReader | None = None
        self._may_have_reader = True
        self._is_watched = True  # the core looks for features that records lack

    def row(self, index: int) -> Row:
        """Return a transformed row.

        Raises
        ------
        IndexError
            If there is no such record.
        ValueError
            If the transforms return no row.
        """
        if self._reader is None and self._may_have_reader:
            checked_number(index, len(self._source))
            self._reader = self._new_reader()
            self._may_have_reader = self._reader is not None
        if self._reader is not None:
            try:
                row = self._reader.row(index)
            except Error as error:
                self._reader = None  # which has the indexes
                self._set_hint(error)
                raise
            if self._is_watched:
                self._warn_of_absence()
            if row is not None:
                return row
        number = checked_number(index, len(self._source))
        batch = self.batch(np.array([number], dtype=np.int64))
        if not n_rows(batch):
            raise ValueError(
                f"the transforms returned no row for record {number}: read it with "
                "a slice"
            )
        return row_of(batch, 0)

    def batch(self, numbers: Numbers) -> Batch:
        """Return the transformed batch of the records `numbers`."""
        source = self._source
        collator = Collator(source, self._transforms)
        records = records_of(source, numbers)
        try:
            parts, _ = _core.decode_records(
                source.to_core(), source.catalog(), self._pool, records
            )
        except Error as error:
            self._set_hint(error)
            raise
        self._warn_of_absence()
        places = None if collator.is_plain else source.row_places(records, "")
        batch, _ = collator(parts, BatchInfo(0, 0, 0, numbers, records, _places=places))
        return batch

    def _new_reader(self) -> _core.RowReader | None:
        """Return the core's reader of rows; None if rows are made from batches."""
        if not Collator(self._source, self._transforms).is_identity:
            return None
        core, catalog = self._source.to_core(), self._source.catalog()
        return _core.RowReader(core, catalog, self._pool)

    def _warn_of_absence(self) -> None:
        core = self._source.to_core()
        schemas = [reading.schema for reading in self._source.readings()[0]]
        if (warning := absence(core, schemas)) is not None:
            warn_caller(warning)
        self._is_watched = core.is_watching

    def _set_hint(self, error: Error) -> None:
        if error.hint and error.path and self._source.files.on_error != "raise":
            error.hint = hint_by_number(error.path)
        self._source.files.renew(error)
