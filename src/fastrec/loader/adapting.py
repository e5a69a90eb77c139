"""Adapting: loaders for the adapters of frameworks."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.loader.loader import Loader
from fastrec.loader.prefetch import Feed
from fastrec.transforms.batch_info import BatchOrigin

__all__ = ["empty_batch", "fed", "upcoming"]


def fed(loader: Loader, feed: Feed) -> Loader:
    """Return a loader like this one and at its place, whose batches go through `feed`.

    The new loader has its own iterators, statistics and memory. The old one stays where
    it is.
    """
    copied = copy.copy(loader)
    copied._options = dataclasses.replace(copied._options, feed=feed)
    return copied


def upcoming(loader: Loader) -> Batch | None:
    """Return the batch that a loader delivers next; None at the end. Moves no state."""
    with copy.copy(loader) as probe:
        probe._options = dataclasses.replace(
            probe._options, num_threads=0, transform_threads=0, prefetch=1
        )
        return next(iter(probe), None)


def empty_batch(loader: Loader) -> Batch:
    """Return a batch of no rows, as transforms make it."""
    options = loader._options
    readings, _ = options.view.sources.readings()
    schema = readings[0].features._bind()
    none = np.empty(0, np.int64)
    rows = None if len(readings) == 1 else none
    parts = [(0, _core.parse_examples(schema, loader._pool, []), rows)]
    origin = BatchOrigin(loader.seed, loader.epoch, loader.step, none, none)
    batch, _ = options.collator()(parts, origin)
    return batch
