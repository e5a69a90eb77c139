"""Skipped rows: unreadable rows, and rows whose transform raises."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from fastrec.errors import Error, add_note
from fastrec.on_error import ErrorPolicy, Report, SkippedRegion, SkippedSpan, counted
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.places import Places

_log = logging.getLogger("fastrec")

RowPolicy: TypeAlias = Literal["raise", "skip", "mask"]

_MAX_REGIONS = 10_000  # in the report of a loader


def row_policy(on_error: ErrorPolicy, *, keeps_shape: bool) -> RowPolicy:
    """Return the core's policy for rows that it cannot read."""
    if on_error == "raise":
        return "raise"
    return "mask" if keeps_shape or on_error == "mask" else "skip"


class SkippedRow(NamedTuple):
    """A row that was skipped or masked, and the error that ``"raise"`` would raise."""

    region: SkippedRegion
    error: Exception
    note: str = ""  # the location, if the error does not contain it


def unreadable_rows(unreadable: Sequence[SkippedSpan]) -> list[SkippedRow]:
    """Return the rows that the core skipped or masked."""
    return [SkippedRow(span.region, span.error) for span in unreadable]


def skipped_by_transform(
    places: Places, row: int, error: Exception, name: str
) -> SkippedRow:
    """Return the skipped row for an `error` raised by the transform `name`."""
    file, _, begin, end = places.numbers[row].tolist()
    reason = (
        error.reason
        if isinstance(error, Error) and not name
        else (f"{name} raised {type(error).__name__}: {error}")
    )
    region = SkippedRegion(
        places.files[file], begin, None if end < 0 else end, reason, 1
    )
    return SkippedRow(region, error, places.describe_row(row, name))


def without_rows(
    info: BatchInfo, unreadable: Sequence[SkippedSpan], policy: RowPolicy
) -> BatchInfo:
    """Return the info of a batch after masking or skipping its damaged rows."""
    rows = [span.row for span in unreadable if span.row is not None]
    if policy == "mask":
        return info._masked(rows)
    return info._of_rows(np.delete(np.arange(len(info.positions)), rows))


class SkippedRows:
    """The skipped and masked rows of one epoch, in order.

    It may have rows of batches that an interrupt has discarded, so the caller counts the
    rows of delivered batches.
    """

    def __init__(self) -> None:
        self._regions: list[SkippedRegion] = []

    def report(self, n_rows: int) -> Report:
        """Return a report of the first `n_rows` rows."""
        regions = tuple(self._regions[:n_rows])
        return Report(regions, n_rows - len(regions))

    def add(self, n_before: int, rows: Sequence[SkippedRow]) -> None:
        """Add the rows of a batch after the first `n_before`."""
        regions = [row.region for row in rows]
        if not n_before:
            _log.warning(
                "skipping or masking a row (loader.report lists all of them): %s",
                regions[0],
            )
        if n_before < _MAX_REGIONS:
            self._regions[n_before:] = regions[: _MAX_REGIONS - n_before]

    def log(self, n_rows: int, epoch: int) -> None:
        """Log the number of rows at the end of an epoch."""
        if n_rows:
            _log.warning(
                "skipped %s in epoch %d (see loader.report)",
                counted(n_rows, "record"),
                epoch,
            )


def check_limit(
    rows: Sequence[SkippedRow], n_before: int, max_errors: int | None
) -> None:
    """Raise the error of the first of `rows` that exceeds `max_errors`."""
    if max_errors is None or n_before + len(rows) <= max_errors:
        return
    _, error, note = rows[max(0, max_errors - n_before)]
    limit = f"cannot skip or mask more rows: max_errors={max_errors}"
    if isinstance(error, Error):
        raise type(error)(
            f"{error.reason}; {limit}",
            *(error.path, error.record, error.offset, error.feature),
            code=error.code,
        )
    if note:
        add_note(error, note)
    add_note(error, limit)
    raise error
