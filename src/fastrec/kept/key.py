"""Kept: where the rows of a dataset are kept, and which columns."""

from __future__ import annotations

from dataclasses import dataclass

from fastrec.arrays.batch import Batch
from fastrec.hints import no_column


@dataclass(frozen=True)
class Kept:
    """The directory in which rows are kept after some of their transforms."""

    directory: str
    transforms: tuple[str, ...]  # the cache keys of the transforms before
    columns: tuple[str, ...] | None = None  # that are kept; None: all
    delivered: tuple[str, ...] | None = None  # of these columns; None: all


def only(batch: Batch, names: tuple[str, ...] | None) -> Batch:
    """Return some columns of a batch, or all; raise a KeyError if one is missing."""
    if names is None:
        return batch
    for name in names:
        if name not in batch:
            raise KeyError(no_column(name, batch, "the batch"))
    return {name: batch[name] for name in names}
