"""Kept: where the rows of a dataset are kept, and the key of these rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastrec.arrays.batch import Batch
from fastrec.hints import no_column


@dataclass(frozen=True)
class Kept:
    """The directory in which rows are kept after some of their transforms."""

    directory: str
    columns: tuple[str, ...] | None  # None: all
    transforms: tuple[str, ...]  # the cache keys of the transforms before
    selected: tuple[str, ...] | None = None  # of these columns; None: all

    @property
    def delivered(self) -> tuple[str, ...] | None:
        """The columns to deliver; None for all."""
        return self.columns if self.selected is None else self.selected

    def chosen(self, batch: Batch) -> Batch:
        """Return the columns of a batch to deliver; raise a KeyError if one is missing."""
        return only(batch, self.delivered)

    def to_keep(self, batch: Batch) -> Batch:
        """Return the columns of a batch to keep; raise a KeyError if one is missing."""
        return only(batch, self.columns)


def only(batch: Batch, names: tuple[str, ...] | None) -> Batch:
    """Return some columns of a batch, or all; raise a KeyError if one is missing."""
    if names is None:
        return batch
    for name in names:
        if name not in batch:
            raise KeyError(no_column(name, batch, "the batch"))
    return {name: batch[name] for name in names}


def encoded(value: Any) -> Any:
    """Return a value as JSON that differs if the value does, such as a spec."""
    if isinstance(value, np.ndarray):
        return ["array", value.dtype.str, [*value.shape], value.tobytes().hex()]
    if isinstance(value, np.generic):
        return encoded(np.asarray(value))
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", value.hex()]
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    if isinstance(value, np.dtype):
        return value.str
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        names = [type(value).__name__, *(field.name for field in fields)]
        values = [None, *(encoded(getattr(value, field.name)) for field in fields)]
        return dict(zip(names, values, strict=True))
    raise TypeError(f"cannot keep rows of a spec with {value!r}")
