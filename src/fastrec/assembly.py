"""Assembly: what becomes of decoded rows before a loop sees them.

The core delivers a batch as parts, one for each way of reading (nearly always one). Each
part goes through the transforms of its own sources; then rows are joined in their order,
columns that tell about them are added, and the transforms of the whole are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.arrays import Batch, concatenate, take
from fastrec.ragged_array import describe_rows
from fastrec.schema import check_columns
from fastrec.stage import BatchOrigin, CheckedTransform

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
    names : sequence of str or bytes
        The columns of the first reading: their order is that of all.
    of_readings : sequence of tuple of CheckedTransform
        What is done to each part alone.
    extra : dict of str to callable
        Columns to add; each is computed from the batch's origin.
    transforms : tuple of CheckedTransform
        What is done to the whole batch.
    """

    def __init__(
        self,
        names: Sequence[Any],
        of_readings: Sequence[tuple[CheckedTransform, ...]],
        extra: dict[str, Extra],
        transforms: tuple[CheckedTransform, ...],
    ) -> None:
        self._names = list(names)
        self._of_readings = list(of_readings)
        self._made: dict[str, str] = {}  # the columns that transforms made before
        self._extra = extra
        self._transforms = transforms

    @property
    def is_plain(self) -> bool:
        """Whether no Python code of the user's is called."""
        return not self._transforms and not any(self._of_readings)

    @property
    def needs_origin(self) -> bool:
        """Whether anything asks where the rows come from."""
        return not self.is_plain or bool(self._extra)

    @property
    def is_per_row(self) -> bool:
        """Whether all of it may spread the rows of one batch over threads."""
        every = [*self._transforms, *(t for of in self._of_readings for t in of)]
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
        batches = [self._part(*part, info) for part in parts]
        if len(self._of_readings) == 1:
            return batches[0]
        if len(batches) == 1:
            (whole,) = batches
        else:
            for batch in batches[1:]:
                check_columns(_kinds_of(batches[0]), _kinds_of(batch))
            rows = np.concatenate([rows for _, _, rows in parts if rows is not None])
            whole = take(concatenate(batches), np.argsort(rows))
        if any(self._of_readings):
            return whole
        # Each way of reading has an order of columns of its own.
        return {name: whole[name] for name in self._names}

    def _part(
        self,
        reading: int,
        batch: Batch,
        rows: npt.NDArray[np.int64] | None,
        info: BatchOrigin | None,
    ) -> Batch:
        transforms = self._of_readings[reading]
        if info is None or not any(self._of_readings):
            return batch
        if rows is not None:
            info = info._of_rows(rows)
        for transform in transforms:
            batch = transform(batch, info)
        # What holds for some batches must hold for all, whatever they are joined with.
        if len(self._of_readings) > 1 or self._extra:
            _check_rows(batch, len(info.positions))
        if len(self._of_readings) > 1:
            made = dict.fromkeys(batch, "there")
            self._made = self._made or made
            check_columns(self._made, made)
        return batch


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
