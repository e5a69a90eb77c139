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
from fastrec.padding import FixedLenSequence
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
        self._extra = extra
        self._transforms = transforms

    @property
    def is_plain(self) -> bool:
        """Whether no Python code of the user's is called."""
        return not self._transforms and not any(
            reading.transforms for reading in self._readings
        )

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
            for name, column in self._extra.items():
                batch[name] = column(info)
            for transform in self._transforms:
                batch = transform(batch, info)
        return batch

    def _joined(self, parts: Parts, info: BatchOrigin | None) -> Batch:
        if len(parts) > 1:
            self._widen(parts)
        batches: list[Batch] = []
        places: list[npt.NDArray[np.int64]] = []
        for reading, columns, rows in parts:
            batch = columns
            for transform in self._readings[reading].transforms:
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

    def _widen(self, parts: Parts) -> None:
        """Give padded columns one width, where each part was padded to its own."""
        schemas = [self._readings[reading].features for reading, _, _ in parts]
        for name in schemas[0]:
            specs = [schema.get(name) for schema in schemas]
            padded = [spec for spec in specs if isinstance(spec, FixedLenSequence)]
            if len(padded) < len(parts):
                continue
            width = max(columns[name].shape[1] for _, columns, _ in parts)  # type: ignore[index]
            for spec, (_, columns, _) in zip(padded, parts, strict=True):
                columns[name] = spec._widened(columns[name], width)  # type: ignore[index]


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
