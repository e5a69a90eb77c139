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
    of_readings : sequence of tuple of CheckedTransform
        What is done to each part alone.
    extra : dict of str to callable
        Columns to add; each is computed from the batch's origin.
    transforms : tuple of CheckedTransform
        What is done to the whole batch.
    """

    def __init__(
        self,
        of_readings: Sequence[tuple[CheckedTransform, ...]],
        extra: dict[str, Extra],
        transforms: tuple[CheckedTransform, ...],
    ) -> None:
        self._of_readings = list(of_readings)
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
            for name, column in self._extra.items():
                batch[name] = column(info)
            for transform in self._transforms:
                batch = transform(batch, info)
        return batch

    def _joined(self, parts: Parts, info: BatchOrigin | None) -> Batch:
        batches: list[Batch] = []
        places: list[npt.NDArray[np.int64]] = []
        for reading, columns, rows in parts:
            batch = columns
            for transform in self._of_readings[reading]:
                assert info is not None
                batch = transform(batch, info if rows is None else info._of_rows(rows))
            if rows is None:
                return batch
            batches.append(batch)
            places.append(rows)
        _check_equal_length(batches, places)
        try:
            together = concatenate(batches)
        except ValueError as error:
            msg = f"rows of several data sets do not fit together: {error}"
            raise ValueError(msg) from None
        return take(together, np.argsort(np.concatenate(places)))


def _check_equal_length(
    batches: list[Batch], places: list[npt.NDArray[np.int64]]
) -> None:
    for batch, rows in zip(batches, places, strict=True):
        for name, column in batch.items():
            if not getattr(column, "shape", ()) or len(column) != len(rows):
                msg = (
                    f"column {name!r}: the transform of one of several data sets must "
                    f"return an array of the {len(rows)} rows that it was given"
                )
                raise ValueError(msg)


def valid_column(info: BatchOrigin) -> npt.NDArray[np.bool_]:
    """Return which rows are records, and not there to fill the batch."""
    return info.positions >= 0
