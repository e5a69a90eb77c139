"""Epochs of streams: from reader threads to a pipeline that takes records as they come."""

from __future__ import annotations

import bisect
import itertools
from typing import TYPE_CHECKING

from fastrec import _core
from fastrec.loader.file_sharding import own_files
from fastrec.loader.order import Window
from fastrec.loader.steps import Plan
from fastrec.on_error import recovery_of
from fastrec.storage.stream_readers import started

if TYPE_CHECKING:
    from fastrec.loader.loader import Loader

__all__ = ["streamed_plan", "streaming_pipeline"]

# Frames of one step, or in a window, may take as much as this whatever the limit: the
# largest record takes twice as much.
_FRAME_BYTES = 1 << 30

# The share of the memory limit that content may take before records are made of it.
_READ_AHEAD_SHARE = 4


def streamed_plan(loader: Loader, *, is_plain: bool) -> Plan | None:
    """Return the steps of the epoch, or None where it can begin without counting records.

    `is_plain` says that nobody asks which records a batch has.
    """
    planner = loader._planner
    needs_order = isinstance(planner.shuffle, Window) and not is_plain
    # Where a function decides about damage, it is asked before anything is left out.
    needs_counts = needs_order or callable(loader._dataset.on_error)
    if planner.is_whole_epoch and not loader._step and not needs_counts:
        return None
    return loader._plan()


def streaming_pipeline(
    loader: Loader,
    plan: Plan | None,
    *,
    n_ahead: int,
    memory_limit: int,
    on_damage: str,
) -> _core.Pipeline:
    """Return a pipeline over the streams of a loader, from its step on.

    What lies before that step is inflated again, but for whole files where no window
    needs their records. As many threads inflate as decode: one more than the loader
    has, because the consumer, which would wait for others, does not help here.
    """
    view, shuffle = loader._dataset._view, loader._planner.shuffle
    sources = view.files
    files = sources.contents()
    seed, epoch, deal = loader._seed, loader._epoch, loader._planner.deal
    first_position = 0
    window = None
    if deal is not None:
        order = own_files(deal, shuffle, seed=seed, epoch=epoch, rank=loader.rank)
    elif isinstance(shuffle, Window):
        order = shuffle.file_order(len(files), seed, epoch)
    else:
        order = list(range(len(files)))
    if isinstance(shuffle, Window):
        window = (shuffle.n, seed, epoch, 0 if deal is None else loader.rank)
    elif plan is not None and loader._step < plan.n_steps:
        n_records = sources.n_records_by_file()
        begins = [0, *itertools.accumulate(n_records[file] for file in order)]
        first = bisect.bisect_right(begins, plan.grid.range(loader._step)[0]) - 1
        first = min(first, len(order) - 1)
        order, first_position = order[first:], begins[first]
    bytes_ahead = memory_limit // _READ_AHEAD_SHARE
    n_threads = loader._num_threads + 1
    of_core = view.source.of_core()
    counts = None if plan is None else sources.counts()
    with started(
        [files[i] for i in order],
        n_readers=n_threads,
        bytes_ahead=bytes_ahead,
        versions=None if counts is None else [counts[i].version for i in order],
    ) as streams:
        return _core.Pipeline.of_streams(
            of_core,
            streams,
            order,
            loader._planner.walk_grid() if plan is None else plan.grid,
            is_counted=plan is not None,
            first_step=loader._step,
            first_position=first_position,
            bytes_max=max(memory_limit, _FRAME_BYTES),
            window=window,
            pool=loader._pool,
            n_threads=n_threads,
            prefetch=n_ahead,
            memory_limit=memory_limit - bytes_ahead,
            on_damage=on_damage,
            recovery=recovery_of(sources.on_error),
        )
