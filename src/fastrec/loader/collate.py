"""Collation: decoded parts -> the batch that is delivered.

The core delivers a batch as parts, one per reading (file set and schema), nearly always
one. Each part goes through the transforms of its dataset. The collator joins the rows in
order, adds columns such as ``__valid__``, and calls the transforms of the whole dataset
and the loader.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch, concat_batches, take_rows
from fastrec.arrays.layout import describe_rows
from fastrec.errors import SchemaError, add_note
from fastrec.features.encoded import encoded_of
from fastrec.features.padded import FixedLenSequence, Unpadded
from fastrec.features.schema import check_columns
from fastrec.loader.skipped_rows import RowPolicy, SkippedRow, skipped_by_transform
from fastrec.options import Limits
from fastrec.sources.source import Reading, Source
from fastrec.transforms.batch_info import BatchInfo, Extra
from fastrec.transforms.decode import DecodeStrings
from fastrec.transforms.places import Places
from fastrec.transforms.transform import CheckedTransform

VALID = "__valid__"  # added column: False for padding and masked rows

# (index of the reading, its columns, its rows in the batch or None for all)
Parts: TypeAlias = "list[tuple[int, Batch, npt.NDArray[np.int64] | None]]"

# The policy for rows whose transform raises.
OnTransformError: TypeAlias = Literal["raise", "skip", "mask"]


def collator_of(
    source: Source, transforms: Sequence[CheckedTransform], *, adds_valid: bool = False
) -> Collator:
    """Return a collator for the rows of a source.

    Raises
    ------
    SchemaError
        If a feature has the name of an added column, or joined datasets have different
        columns.
    """
    extra = source.extra_columns()
    if adds_valid:
        extra[VALID] = valid_column
    readings, _ = source.readings()
    for name in extra:
        if any(name in reading.schema._column_names() for reading in readings):
            raise SchemaError(
                f"feature {name!r} has the name of an added column; rename it with key="
            )
    source.check_columns()
    return Collator(readings, extra, transforms, source.files.limits)


class _TransformCalls:
    """Calls the transforms of one batch, and collects the rows for which they raise."""

    def __init__(self, on_error: OnTransformError, on_unreadable: RowPolicy) -> None:
        self._on_error = on_error
        self._on_unreadable = on_unreadable
        self.skipped: list[SkippedRow] = []

    def __call__(
        self, transform: CheckedTransform, batch: Batch, info: BatchInfo
    ) -> tuple[Batch, BatchInfo]:
        """Return the transformed batch, and the info of the remaining rows."""
        on_error = self._on_unreadable if transform.is_reading else self._on_error
        if on_error == "raise":
            return transform(batch, info), info
        if not transform.is_per_row:
            return self._call_or_skip_batch(transform, batch, info)
        failed: list[tuple[int, Exception]] = []
        batch = transform(batch, dataclasses.replace(info, _failed=failed))
        if not failed:
            return batch, info
        failed.sort(key=operator.itemgetter(0))  # threads fail in any order
        rows = [row for row, _ in failed]
        self._skip(transform, info, failed)
        if on_error == "mask":
            info = info._masked(rows)
            if VALID in batch:  # added after the transforms of joined datasets
                batch = batch | {VALID: valid_column(info)}
            return batch, info
        kept = np.delete(np.arange(len(info.positions)), rows)
        return take_rows(batch, kept), info._of_rows(kept)

    def _call_or_skip_batch(
        self, transform: CheckedTransform, batch: Batch, info: BatchInfo
    ) -> tuple[Batch, BatchInfo]:
        """Call a transform of whole batches; if it raises, transform an empty batch."""
        none = np.empty(0, np.int64)
        try:
            # A copy, because the transform may change the dict before it raises.
            return transform(dict(batch), info), info
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 (in the report)
            try:
                empty = transform(take_rows(batch, none), info._of_rows(none))
            except Exception as second:  # noqa: BLE001 (in the note)
                add_note(
                    error,
                    "cannot skip the batch: the transform raises for an empty batch, too: "
                    f"{type(second).__name__}: {second}",
                )
                raise error from None
            rows = np.flatnonzero(info.positions >= 0).tolist()
            self._skip(transform, info, [(row, error) for row in rows])
            return empty, info._of_rows(none)

    def _skip(
        self,
        transform: CheckedTransform,
        info: BatchInfo,
        failed: list[tuple[int, Exception]],
    ) -> None:
        assert info._places is not None
        self.skipped += [
            skipped_by_transform(info._places, row, error, transform.name)
            for row, error in failed
        ]


class Collator:
    """Joins the parts of a batch and calls the transforms."""

    def __init__(
        self,
        readings: Sequence[Reading],
        extra: dict[str, Extra],
        transforms: Sequence[CheckedTransform],
        limits: Limits,
    ) -> None:
        self._readings = list(readings)
        self._decoders = [
            DecodeStrings(reading.schema, limits)
            if encoded_of(reading.schema)
            else None
            for reading in readings
        ]
        self._part_transforms = [
            (
                *(() if decoder is None else (CheckedTransform(decoder),)),
                *reading.transforms,
            )
            for reading, decoder in zip(readings, self._decoders, strict=True)
        ]
        self._part_columns: dict[str, str] = {}  # of the first part after transforms
        self._extra = extra
        self._transforms = tuple(transforms)
        self._has_part_transforms = any(self._part_transforms)
        # Whether there are no transforms.
        self.is_plain = not self._transforms and not self._has_part_transforms
        # Whether a transform or an added column depends on the BatchInfo.
        self.needs_info = not self.is_plain or bool(extra)
        # Whether a batch equals its only part.
        self.is_identity = not self.needs_info and len(self._readings) == 1
        self.decodes = any(self._decoders)
        # Whether a batch is its only part, with `__valid__` and after transforms that
        # know nothing but the batch.
        self.is_direct = (
            len(self._readings) == 1
            and not self._has_part_transforms
            and not extra.keys() - {VALID}
            and not any(t.needs_info or t.is_per_row for t in self._transforms)
        )

    def transformed(self, batch: Batch, places: Callable[[], Places]) -> Batch:
        """Return a direct batch after the transforms."""
        for transform in self._transforms:
            try:
                batch = transform(batch, None)
            except Exception as error:
                places().note_batch(error, transform.name)
                raise
        return batch

    @property
    def column_names(self) -> list[str | bytes]:
        """The columns before transforms."""
        return [*self._readings[0].schema._column_names(), *self._extra]

    def __call__(
        self,
        parts: Parts,
        info: BatchInfo | None,
        on_error: OnTransformError = "raise",
        on_unreadable: RowPolicy = "raise",
    ) -> tuple[Batch, list[SkippedRow]]:
        """Return the batch of `parts`, and the rows for which transforms raised.

        `on_error` is the policy for rows whose transform raises, `on_unreadable` that for
        rows whose image cannot be decoded.

        `info` may be None if `needs_info` is False.
        """
        calls = _TransformCalls(on_error, on_unreadable)
        batch, info = self._joined(parts, info, calls)
        if info is not None:
            if any(name in batch for name in self._extra):
                raise ValueError(
                    f"the loader adds the columns {list(self._extra)}, so transforms of "
                    "joined datasets cannot return them"
                )
            extra = {name: column(info) for name, column in self._extra.items()}
            batch = {**batch, **extra}
            for transform in self._transforms:
                batch, info = calls(transform, batch, info)
        return batch, calls.skipped

    def decoded_bytes(self, parts: Parts) -> int:
        """Return the size that decoded images and arrays of `parts` will have."""
        decoders = self._decoders
        return sum(
            decoder.n_bytes(batch)
            for reading, batch, _ in parts
            if (decoder := decoders[reading]) is not None
        )

    def _joined(
        self, parts: Parts, info: BatchInfo | None, calls: _TransformCalls
    ) -> tuple[Batch, BatchInfo | None]:
        if len(self._readings) == 1:
            (part,) = parts
            return self._transformed_part(*part, info, calls)
        if len(parts) > 1:
            self._widen(parts)
        if info is not None:
            info = dataclasses.replace(info, _rows=None)
        transformed = [self._transformed_part(*part, info, calls) for part in parts]
        batches = [batch for batch, _ in transformed]
        if len(transformed) == 1:
            ((whole, info),) = transformed
        else:
            for batch in batches[1:]:
                check_columns(_kinds_of(batches[0]), _kinds_of(batch))
            infos = [part for _, part in transformed if part is not None]
            rows = np.concatenate(
                [part._rows for part in infos if part._rows is not None]
                or [rows for _, _, rows in parts if rows is not None]
            )
            order = np.argsort(rows)
            whole = take_rows(concat_batches(batches), order)
            if info is not None and infos and infos[0]._rows is not None:
                is_row = np.concatenate([part.positions >= 0 for part in infos])[order]
                info = info._of_rows(rows[order])
                info = info._masked(np.flatnonzero(~is_row).tolist())
        if self._has_part_transforms:
            return whole, info
        # The order of columns may differ between readings.
        names: list[Any] = list(self._readings[0].schema._column_names())
        return {name: whole[name] for name in names}, info

    def _transformed_part(
        self,
        reading: int,
        batch: Batch,
        rows: npt.NDArray[np.int64] | None,
        info: BatchInfo | None,
        calls: _TransformCalls,
    ) -> tuple[Batch, BatchInfo | None]:
        transforms = self._part_transforms[reading]
        if info is None or not self._has_part_transforms:
            return batch, info
        if rows is not None:
            info = info._of_rows(rows)
        for transform in transforms:
            batch, info = calls(transform, batch, info)
        # Check every part, so that an error does not depend on what a batch contains.
        if len(self._readings) > 1 or self._extra:
            _check_rows(batch, len(info.positions))
        if len(self._readings) > 1:
            columns = dict.fromkeys(batch, "present")
            self._part_columns = self._part_columns or columns
            check_columns(self._part_columns, columns)
        return batch, info

    def _widen(self, parts: Parts) -> None:
        """Pad columns to the same width, because each part has a separate width."""
        schemas = [self._readings[reading].schema for reading, _, _ in parts]
        for name in schemas[0]:
            specs = [schema.get(name) for schema in schemas]
            padded = [
                spec
                for spec in specs
                if isinstance(spec, FixedLenSequence) and not isinstance(spec, Unpadded)
            ]
            if len(padded) < len(parts):
                continue
            width = max(columns[name].shape[1] for _, columns, _ in parts)  # type: ignore[index]
            for spec, (_, columns, _) in zip(padded, parts, strict=True):
                columns[name] = spec._widened(columns[name], width)  # type: ignore[index]


def _kinds_of(batch: Batch) -> dict[str, str]:
    return {name: describe_rows(column) for name, column in batch.items()}


def _check_rows(batch: Batch, n_rows: int) -> None:
    for name, column in batch.items():
        if not getattr(column, "shape", ()) or len(column) != n_rows:
            raise ValueError(
                f"the transform of a joined dataset must return {n_rows} rows in column "
                f"{name!r}, the number of rows passed to it"
            )


def valid_column(info: BatchInfo) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that are records, not padding."""
    return info.positions >= 0
