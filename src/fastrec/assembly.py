"""Assembly: what becomes of decoded rows before a loop sees them.

The core delivers a batch as parts, one for each way of reading (nearly always one). Each
part goes through the transforms of its own sources; then rows are joined in their order,
columns that tell about them are added, and the transforms of the whole are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.arrays import Batch, concatenate, take
from fastrec.padding import FixedLenSequence, Unpadded
from fastrec.ragged_array import describe_rows
from fastrec.schema import check_columns
from fastrec.stage import BatchOrigin, CheckedTransform

if TYPE_CHECKING:
    from fastrec.sources import Reading

__all__ = ["SOURCE", "VALID", "Assembly", "Parts", "valid_column"]

# Columns that the loader adds: whether a row is a record, and which data set it is of.
VALID = "__valid__"
SOURCE = "__source__"

# (which reading, its columns, where its rows stand in the batch or None for all)
Parts: TypeAlias = "list[tuple[int, Batch, npt.NDArray[np.int64] | None]]"
Extra: TypeAlias = "Callable[[BatchOrigin], npt.NDArray[Any]]"


class Assembly:
    """Makes of the parts of a batch what is delivered.

    Parameters
    ----------
    readings : sequence of Reading
        How the parts were read, and what is done to each alone.
    extra : dict of str to callable
        Columns to add; each is computed from the batch's origin.
    transforms : tuple of CheckedTransform
        What is done to the whole batch.
    """

    def __init__(
        self,
        readings: Sequence[Reading],
        extra: dict[str, Extra],
        transforms: tuple[CheckedTransform, ...],
    ) -> None:
        self._readings = list(readings)
        self._made: dict[str, str] = {}  # the columns that transforms made before
        self._extra = extra
        self._transforms = transforms

    @property
    def is_plain(self) -> bool:
        """Whether no Python code of the user's is called."""
        return not self._transforms and not self._has_own_transforms

    @property
    def _has_own_transforms(self) -> bool:
        return any(reading.transforms for reading in self._readings)

    @property
    def needs_origin(self) -> bool:
        """Whether anything asks where the rows come from."""
        return not self.is_plain or bool(self._extra)

    @property
    def is_per_row(self) -> bool:
        """Whether all of it may spread the rows of one batch over threads."""
        every = [*self._transforms, *(t for r in self._readings for t in r.transforms)]
        return all(transform.is_per_row for transform in every)

    def __call__(self, parts: Parts, info: BatchOrigin | None) -> Batch:
        """Return the batch of `parts`; `info` may be None if `needs_origin` is False."""
        batch = self._joined(parts, info)
        if info is not None:
            if any(name in batch for name in self._extra):
                msg = (
                    f"the columns {list(self._extra)} are added here: the transforms of "
                    "data sets that are joined cannot make them"
                )
                raise ValueError(msg)
            extra = {name: column(info) for name, column in self._extra.items()}
            batch = {**batch, **extra}
            for transform in self._transforms:
                batch = transform(batch, info)
        return batch

    def _joined(self, parts: Parts, info: BatchOrigin | None) -> Batch:
        if len(self._readings) == 1:
            (part,) = parts
            return self._part(*part, info)
        if len(parts) > 1:
            self._widen(parts)
        batches = [self._part(*part, info) for part in parts]
        if len(batches) == 1:
            (whole,) = batches
        else:
            for batch in batches[1:]:
                check_columns(_kinds_of(batches[0]), _kinds_of(batch))
            rows = np.concatenate([rows for _, _, rows in parts if rows is not None])
            whole = take(concatenate(batches), np.argsort(rows))
        if self._has_own_transforms:
            return whole
        # Each way of reading has an order of columns of its own.
        names: list[Any] = list(self._readings[0].features._column_names())
        return {name: whole[name] for name in names}

    def _part(
        self,
        reading: int,
        batch: Batch,
        rows: npt.NDArray[np.int64] | None,
        info: BatchOrigin | None,
    ) -> Batch:
        transforms = self._readings[reading].transforms
        if info is None or not self._has_own_transforms:
            return batch
        if rows is not None:
            info = info._of_rows(rows)
        for transform in transforms:
            batch = transform(batch, info)
        # What holds for some batches must hold for all, whatever they are joined with.
        if len(self._readings) > 1 or self._extra:
            _check_rows(batch, len(info.positions))
        if len(self._readings) > 1:
            made = dict.fromkeys(batch, "there")
            self._made = self._made or made
            check_columns(self._made, made)
        return batch

    def _widen(self, parts: Parts) -> None:
        """Give padded columns one width, where each part was padded to its own."""
        schemas = [self._readings[reading].features for reading, _, _ in parts]
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
            msg = (
                f"column {name!r}: the transform of a data set that is joined with others "
                f"must return arrays of the {n_rows} rows that it was given"
            )
            raise ValueError(msg)


def valid_column(info: BatchOrigin) -> npt.NDArray[np.bool_]:
    """Return which rows are records, and not there to fill the batch."""
    return info.positions >= 0
