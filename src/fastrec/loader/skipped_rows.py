"""Skipped rows: unreadable rows, and rows whose transform raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from fastrec.errors import Error, add_note
from fastrec.on_error import ErrorPolicy, SkippedRegion, SkippedSpan
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.places import Places

RowPolicy: TypeAlias = Literal["raise", "skip", "mask"]


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
