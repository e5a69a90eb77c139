"""Collation: join the decoded parts of a batch into the batch to deliver.

The core returns a batch in parts, one for each reading: a set of files and its schema.
Nearly all batches have one part. The collator applies the transforms of each part's
dataset, and joins the rows in order. Then it adds columns such as ``__valid__``, and
calls the transforms of the whole dataset and of the loader.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch, concat_batches, take_rows
from fastrec.arrays.layout import describe_rows
from fastrec.errors import Error, SchemaError, add_note
from fastrec.features.fixed import FixedLenSequence, any_width_columns
from fastrec.features.schema import check_columns
from fastrec.kept.key import only
from fastrec.on_error import SkippedRegion
from fastrec.sources.source import Source
from fastrec.transforms.batch_info import BatchInfo, Places
from fastrec.transforms.decode import DecodeStrings
from fastrec.transforms.transform import CheckedTransform
from fastrec.transforms.windows import Windows

VALID = "__valid__"  # added column: False for padding and masked rows

# (index of the reading, its columns, its rows in the batch or None for all)
Parts: TypeAlias = "list[tuple[int, Batch, npt.NDArray[np.int64] | None]]"

# Transforms a batch; returns it with the BatchInfo of the rows that were not skipped.
Transformation: TypeAlias = "Callable[[Batch, BatchInfo], tuple[Batch, BatchInfo]]"

# Reads the rows of a reading, some of which are kept: read(reading, info, transform),
# where `transform` applies the transforms before rows are kept.
ReadRows: TypeAlias = (
    "Callable[[int, BatchInfo, Transformation], tuple[Batch, BatchInfo]]"
)

# The policies for rows whose transform raises, and for rows that cannot be read.
OnTransformError: TypeAlias = Literal["raise", "skip", "mask"]
RowPolicy: TypeAlias = Literal["raise", "skip", "mask"]


class SkippedRow(NamedTuple):
    """A row that was skipped or masked because of `error`."""

    region: SkippedRegion
    error: Exception
    note: str = ""  # the location, if the error does not contain it


class Collator:
    """Joins the parts of each batch of `source`, adds columns, and calls transforms.

    `on_error` is the policy for rows whose transform raises. `on_unreadable` is the policy
    for rows whose images or stored arrays cannot be decoded.

    Raises
    ------
    SchemaError
        If a feature has the name of an added column, or joined datasets have different
        columns.
    """

    def __init__(
        self,
        source: Source,
        transforms: Sequence[CheckedTransform],
        *,
        adds_valid: bool = False,
        on_error: OnTransformError = "raise",
        on_unreadable: RowPolicy = "raise",
    ) -> None:
        self._readings, _ = source.readings()
        self._extra = source.extra_columns()
        if adds_valid:
            self._extra[VALID] = valid_column
        for name in self._extra:
            if any(
                name in reading.schema._column_names() for reading in self._readings
            ):
                raise SchemaError(
                    f"feature {name!r} has the name of an added column; rename it with "
                    "key="
                )
        source.check_columns()
        self._on_error = on_error
        self._on_unreadable = on_unreadable
        self._decoders = [
            DecodeStrings(reading.schema, source.files.limits, reading.steps)
            if reading.schema._encoded
            else None
            for reading in self._readings
        ]
        table = source.step_table
        windows = [
            Windows(reading.steps, table.counts) if reading.steps and table else None
            for reading in self._readings
        ]
        self._part_transforms = [
            [CheckedTransform(each) for each in reads if each is not None]
            + list(reading.transforms)
            for reading, *reads in zip(
                self._readings, windows, self._decoders, strict=True
            )
        ]
        self._n_before_kept = [
            len(transforms) - len(reading.transforms_after) if reading.kept else 0
            for reading, transforms in zip(
                self._readings, self._part_transforms, strict=True
            )
        ]
        self._has_any_width = bool(
            any_width_columns(reading.schema for reading in self._readings)
        )
        self._source_transforms = bool(source.transforms or source.is_keeping)
        self._part_columns: dict[str, str] = {}  # of the first part after transforms
        self._transforms = tuple(transforms)
        self._has_part_transforms = bool(
            any(self._part_transforms) or source.is_keeping
        )
        is_one = len(self._readings) == 1
        # Whether a batch is complete when its kept rows are copied.
        self.is_copied = (
            is_one
            and self._readings[0].kept is not None
            and self._n_before_kept == [len(self._part_transforms[0])]
            and not (self._transforms or self._extra or self._has_any_width)
        )
        # Whether there are no transforms.
        self.is_plain = not self._transforms and not self._has_part_transforms
        # Whether a batch equals its only part, and no BatchInfo is needed.
        self.is_identity = self.is_plain and not self._extra and is_one
        # Whether a batch has one part, no added column but `__valid__`, and only
        # transforms that need nothing but the batch.
        self.is_direct = (
            is_one
            and not self._has_part_transforms
            and not self._extra.keys() - {VALID}
            and on_error == "raise"
            and not any(t.needs_info or t.is_per_row for t in self._transforms)
        )

    def transformed(self, batch: Batch, places: Callable[[], Places]) -> Batch:
        """Transform `batch` without a BatchInfo; `is_direct` must be true."""
        for transform in self._transforms:
            try:
                batch = transform(batch, None)
            except Exception as error:
                places().note_batch(error, transform.name)
                raise
        return batch

    @property
    def column_names(self) -> list[str | bytes]:
        """The names of the features and of the added columns, before transforms."""
        return [*self._readings[0].schema._column_names(), *self._extra]

    def __call__(
        self,
        parts: Parts,
        info: BatchInfo | None,
        read: ReadRows | None = None,
    ) -> tuple[Batch, list[SkippedRow]]:
        """Return the collated batch, and the rows whose transforms raised an error.

        `info` may be None if `is_identity` is true. If `read` is set, it returns the
        columns of the parts.
        """
        skipped: list[SkippedRow] = []
        if info is None:
            return parts[0][1], skipped
        if len(self._readings) > 1:
            info = dataclasses.replace(info, _rows=np.arange(len(info.positions)))
        done = self._transformed_parts(parts, info, skipped, read)
        batch, info = done[0] if len(self._readings) == 1 else self._joined(done, info)
        if any(name in batch for name in self._extra):
            raise ValueError(
                f"the loader adds the columns {list(self._extra)}, so transforms of "
                "joined datasets cannot return them"
            )
        extra = {name: column(info) for name, column in self._extra.items()}
        batch = {**batch, **extra}
        for transform in self._transforms:
            batch, info = self._call(transform, batch, info, skipped)
        return batch, skipped

    def decoded_bytes(self, parts: Parts, n_rows: int) -> int:
        """Return the decoded size of images and stored arrays in `parts`, in bytes.

        `n_rows` is the number of rows of steps that the records in `parts` have.
        """
        decoders = self._decoders
        return sum(
            decoder.n_bytes(batch, n_rows)
            for reading, batch, _ in parts
            if (decoder := decoders[reading]) is not None
        )

    def _joined(
        self,
        done: list[tuple[Batch, BatchInfo]],
        info: BatchInfo,
    ) -> tuple[Batch, BatchInfo]:
        """Return all rows of transformed parts in batch order, and their BatchInfo."""
        whole, info_of_whole = done[0]
        if len(done) > 1:
            for batch, _ in done[1:]:
                check_columns(_kinds_of(whole), _kinds_of(batch))
            rows = np.concatenate([part._rows for _, part in done])
            order = np.argsort(rows)
            whole = take_rows(concat_batches([batch for batch, _ in done]), order)
            is_row = np.concatenate([part.positions >= 0 for _, part in done])[order]
            masked = np.flatnonzero(~is_row).tolist()
            info_of_whole = info._of_rows(rows[order])._masked(masked)
        if self._source_transforms:
            return whole, info_of_whole
        # The order of columns may differ between readings.
        names: list[Any] = list(self._readings[0].schema._column_names())
        return {name: whole[name] for name in names}, info_of_whole

    def _transformed_parts(
        self,
        parts: Parts,
        info: BatchInfo,
        skipped: list[SkippedRow],
        read: ReadRows | None,
    ) -> list[tuple[Batch, BatchInfo]]:
        """Return the rows of each part, after the transforms of its dataset."""
        found = []
        for reading, batch, rows in parts:
            before = functools.partial(
                self._called,
                self._part_transforms[reading][: self._n_before_kept[reading]],
                skipped=skipped,
            )
            of_part = info._of_part(rows)
            if read is None:
                batch, of_part = before(batch, of_part)
            else:
                batch, of_part = read(reading, of_part, before)
            if (kept := self._readings[reading].kept) is not None:
                batch = only(batch, kept.delivered)
            found.append((reading, batch, of_part))
        if self._has_any_width and (len(parts) > 1 or read is not None):
            self._widen(found)
        return [self._transformed_part(*part, skipped) for part in found]

    def _transformed_part(
        self,
        reading: int,
        batch: Batch,
        info: BatchInfo,
        skipped: list[SkippedRow],
    ) -> tuple[Batch, BatchInfo]:
        """Call the transforms after rows are kept."""
        after = self._part_transforms[reading][self._n_before_kept[reading] :]
        batch, info = self._called(after, batch, info, skipped)
        # Check every part, so that an error does not depend on what a batch contains.
        if self._has_part_transforms and (len(self._readings) > 1 or self._extra):
            for name, column in batch.items():
                shape = getattr(column, "shape", ())
                if not shape or len(column) != len(info.positions):
                    raise ValueError(
                        "the transform of a joined dataset must return "
                        f"{len(info.positions)} rows in column {name!r}, the number of "
                        "rows passed to it"
                    )
            if len(self._readings) > 1:
                columns = dict.fromkeys(batch, "present")
                self._part_columns = self._part_columns or columns
                check_columns(self._part_columns, columns)
        return batch, info

    def _called(
        self,
        transforms: Sequence[CheckedTransform],
        batch: Batch,
        info: BatchInfo,
        skipped: list[SkippedRow],
    ) -> tuple[Batch, BatchInfo]:
        for transform in transforms:
            batch, info = self._call(transform, batch, info, skipped)
        return batch, info

    def _call(
        self,
        transform: CheckedTransform,
        batch: Batch,
        info: BatchInfo,
        skipped: list[SkippedRow],
    ) -> tuple[Batch, BatchInfo]:
        """Return the transformed batch, and the BatchInfo of the rows not skipped."""
        on_error = self._on_unreadable if transform.is_reading else self._on_error
        if on_error == "raise":
            return transform(batch, info), info
        failed: list[tuple[int, Exception]] = []
        if transform.is_per_row:
            batch = transform(batch, dataclasses.replace(info, _failed=failed))
            failed.sort(key=operator.itemgetter(0))  # threads fail in any order
        else:
            try:
                # A copy, because the transform may change the dict before it raises.
                return transform(dict(batch), info), info
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 (in the report)
                valid = np.flatnonzero(info.positions >= 0).tolist()
                failed = [(row, error) for row in valid]
                batch = _empty(transform, batch, info, error)
        if not failed:
            return batch, info
        skipped += [_skipped(transform, info, *each) for each in failed]
        if not transform.is_per_row:
            return batch, info._of_rows(np.empty(0, np.int64))
        rows = [row for row, _ in failed]
        if on_error == "mask":
            info = info._masked(rows)
            if VALID in batch:  # added after the transforms of joined datasets
                batch = batch | {VALID: valid_column(info)}
            return batch, info
        kept = np.delete(np.arange(len(info.positions)), rows)
        return take_rows(batch, kept), info._of_rows(kept)

    def _widen(self, parts: Sequence[tuple[int, Batch, BatchInfo]]) -> None:
        """Pad columns of varying width; parts that all have one share its width."""
        schemas = [self._readings[reading].schema for reading, _, _ in parts]
        for name in schemas[0]:
            specs = [schema.get(name) for schema in schemas]
            padded = [
                (spec, batch)
                for spec, (_, batch, _) in zip(specs, parts, strict=True)
                if isinstance(spec, FixedLenSequence)
                and spec._is_padded
                and name in batch
            ]
            widths = [spec._width(batch[name]) for spec, batch in padded]  # type: ignore[index]
            if len(padded) == len(parts):
                widths = [max(widths)] * len(parts)
            for (spec, batch), width in zip(padded, widths, strict=True):
                batch[name] = spec._widened(batch[name], width)  # type: ignore[index]


def _kinds_of(batch: Batch) -> dict[str, str]:
    return {name: describe_rows(column) for name, column in batch.items()}


def _empty(
    transform: CheckedTransform, batch: Batch, info: BatchInfo, error: Exception
) -> Batch:
    """Return the result of `transform` for no rows; raise `error` if that fails."""
    none = np.empty(0, np.int64)
    try:
        return transform(take_rows(batch, none), info._of_rows(none))
    except Exception as second:  # noqa: BLE001 (in the note)
        add_note(
            error,
            "cannot skip the batch: the transform raises for an empty batch, too: "
            f"{type(second).__name__}: {second}",
        )
        raise error from None


def _skipped(
    transform: CheckedTransform, info: BatchInfo, row: int, error: Exception
) -> SkippedRow:
    """Return a SkippedRow for row `row`, for which `transform` raised `error`."""
    places, name = info._places, transform.name
    assert places is not None
    file, _, begin, end = places.numbers[row].tolist()
    reason = f"{name} raised {type(error).__name__}: {error}"
    if isinstance(error, Error) and not name:
        reason = error.reason
    last = None if end < 0 else end
    region = SkippedRegion(places.files[file], begin, last, reason, 1)
    return SkippedRow(region, error, places.describe_row(row, name))


def valid_column(info: BatchInfo) -> npt.NDArray[np.bool_]:
    """Return a mask: True for records, False for padding and masked rows."""
    return info.positions >= 0
