"""Skipped rows: rows that cannot be read, or whose transform raises."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from fastrec.errors import Error, add_note
from fastrec.on_error import ErrorPolicy, Report, SkippedRegion, SkippedSpan, counted
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.places import Places

__all__ = [
    "RowPolicy",
    "SkippedRow",
    "SkippedRows",
    "check_limit",
    "row_policy",
    "skipped_by_transform",
    "unreadable_rows",
    "without_rows",
]

_log = logging.getLogger("fastrec")

RowPolicy: TypeAlias = Literal["raise", "skip", "mask"]

_MAX_REGIONS = 10_000  # in the report of a loader


def row_policy(on_error: ErrorPolicy, *, keeps_shape: bool) -> RowPolicy:
    """Return what the core does with rows that it cannot read."""
    if on_error == "raise":
        return "raise"
    return "mask" if keeps_shape or on_error == "mask" else "skip"


class SkippedRow(NamedTuple):
    """A row that is skipped or masked, and the error that ``"raise"`` would raise."""

    region: SkippedRegion
    error: Exception
    note: str = ""  # where it happened, if the error does not say so


def unreadable_rows(damages: Sequence[SkippedSpan]) -> list[SkippedRow]:
    """Return the rows that the core has skipped or masked."""
    return [SkippedRow(damage.region, damage.error) for damage in damages]


def skipped_by_transform(
    places: Places, row: int, error: Exception, name: str
) -> SkippedRow:
    """Return a row for which the transform `name` has raised `error`."""
    file, _, begin, end = places.numbers[row].tolist()
    reason = f"{name} raised {type(error).__name__}: {error}"
    region = SkippedRegion(
        places.files[file], begin, None if end < 0 else end, reason, 1
    )
    return SkippedRow(region, error, places.describe_row(row, name))


def without_rows(
    info: BatchInfo, damages: Sequence[SkippedSpan], policy: RowPolicy
) -> BatchInfo:
    """Return the origin of a batch whose damaged rows are masked or skipped."""
    rows = [damage.row for damage in damages if damage.row is not None]
    if policy == "mask":
        return info._masked(rows)
    return info._of_rows(np.delete(np.arange(len(info.positions)), rows))


class SkippedRows:
    """The rows of one epoch that were skipped or masked, in the order of delivery.

    The caller knows how many of them belong to batches that were delivered.
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
        """Log how many there are at the end of an epoch."""
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
    limit = f"max_errors={max_errors} allows no more rows to be skipped or masked"
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
