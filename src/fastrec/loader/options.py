"""Loader options: what iterators read of a loader, checked and frozen."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.loader.collate import Collator, OnTransformError, collator_of
from fastrec.loader.plan import Planner
from fastrec.loader.prefetch import Feed
from fastrec.loader.skipped_rows import RowPolicy, row_policy
from fastrec.sources.view import View
from fastrec.transforms.transform import CheckedTransform

__all__ = ["MAX_THREADS", "LoaderOptions"]

MAX_THREADS = 4096

# Records below this many bytes are slow to read one by one from a network file system.
_SMALL_RECORD_BYTES = 256 << 10


@dataclass(frozen=True)
class LoaderOptions:
    """The options of a loader, as an iterator needs them."""

    view: View
    planner: Planner
    transforms: tuple[CheckedTransform, ...]  # of the dataset and the loader
    num_threads: int
    transform_threads: int
    prefetch: int
    memory_limit: int
    max_errors: int | None
    on_transform_error: OnTransformError
    feed: Feed | None = None  # what an adapter makes of batches
    # What allocates memory for batches, if not the system, and whether it is recycled.
    allocate: Callable[[int], npt.NDArray[np.uint8]] | None = None
    recycles: bool = True

    @property
    def has_transforms(self) -> bool:
        """Whether functions of the caller make the batches."""
        return bool(self.transforms or self.view.sources.transforms)

    @property
    def is_per_row(self) -> bool:
        """Whether all transforms are made by `per_row`."""
        return all(
            transform.is_per_row
            for transform in (*self.view.sources.transforms, *self.transforms)
        )

    @property
    def n_transforming(self) -> int:
        """Batches that threads transform at the same time; 0 if `next` does."""
        if not self.has_transforms:
            return 0
        return min(self.transform_threads, 1 if self.is_per_row else MAX_THREADS)

    @property
    def n_staged(self) -> int:
        """How many of the batches ahead are in the transform pool."""
        if not (n_transforming := self.n_transforming):
            return 0
        n_decoding = max(1, min(self.num_threads, self.prefetch // 2))
        return min(n_transforming + 1, max(1, self.prefetch - n_decoding))

    @property
    def row_policy(self) -> RowPolicy:
        """What happens to rows that cannot be read."""
        return row_policy(self.view.sources.on_error, keeps_shape=self.planner.pad_last)

    @property
    def transform_policy(self) -> OnTransformError:
        """What happens to rows for which a transform raises."""
        if self.on_transform_error == "skip" and self.planner.pad_last:
            return "mask"
        return self.on_transform_error

    def block_pool(self) -> _core.BlockPool:
        """Return a new pool of memory for batches."""
        return _core.BlockPool(self.memory_limit, self.allocate, self.recycles)

    def collator(self) -> Collator:
        """Return what makes batches of decoded rows."""
        adds_valid = (
            self.planner.pad_last
            or self.view.sources.on_error == "mask"
            or self.on_transform_error == "mask"
        )
        return collator_of(self.view, self.transforms, adds_valid=adds_valid)

    def advice(self) -> str:
        """Return a warning about slow options, or ""."""
        if (n_staged := self.n_staged) < (n_transforming := self.n_transforming):
            return (
                f"prefetch={self.prefetch} lets only {n_staged} of "
                f"{n_transforming} transform_threads work at the same time: set prefetch "
                f"to at least {self.num_threads + n_transforming}"
            )
        if self.planner.shuffle is not True or not len(self.view):
            return ""
        # Single records, each of them a round trip over the network.
        sources = self.view.sources
        mean_bytes = sources.n_bytes // max(1, sources.n_records)
        if mean_bytes >= _SMALL_RECORD_BYTES or not _core.is_remote(
            os.fsencode(sources.files[0])
        ):
            return ""
        return (
            f"shuffle=True reads records of {mean_bytes:,} bytes one by one from a "
            "network file system, which is slow: shuffle=fr.Blocks() reads whole blocks "
            "of them"
        )
