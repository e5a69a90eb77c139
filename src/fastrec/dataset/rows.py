"""Rows: records of a dataset decoded by number."""

from __future__ import annotations

from collections.abc import Sequence

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.caller_warnings import warn_caller
from fastrec.errors import Error, hint_by_number
from fastrec.features.missing import absence
from fastrec.loader.collate import collator_of
from fastrec.loader.order import records_of
from fastrec.sources.selection import Numbers
from fastrec.sources.view import View
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.transform import CheckedTransform

__all__ = ["decode_rows", "reader_of", "set_hint"]


def reader_of(
    view: View, transforms: Sequence[CheckedTransform], pool: _core.BlockPool
) -> _core.RowReader | None:
    """Return the core's reader of single rows; None if rows are made from batches."""
    if not collator_of(view, transforms).is_identity:
        return None
    return _core.RowReader(view.source.to_core(), view.catalog(), pool)


def set_hint(error: Error, view: View) -> None:
    """Set the hint of an error that was raised by reading `view` by number."""
    if error.hint and error.path and view.files.on_error != "raise":
        error.hint = hint_by_number(error.path)


def decode_rows(
    view: View,
    transforms: Sequence[CheckedTransform],
    pool: _core.BlockPool,
    numbers: Numbers,
) -> Batch:
    """Return the transformed batch of the records `numbers` of `view`."""
    collator = collator_of(view, transforms)
    records = records_of(view, numbers)
    try:
        parts, _ = _core.decode_records(
            view.source.to_core(), view.catalog(), pool, records
        )
    except Error as error:
        set_hint(error, view)
        raise
    schemas = [reading.schema for reading in view.source.readings()[0]]
    if (warning := absence(view.source.to_core(), schemas)) is not None:
        warn_caller(warning)
    places = None if collator.is_plain else view.row_places(records, "")
    batch, _ = collator(parts, BatchInfo(0, 0, 0, numbers, records, _places=places))
    return batch
