"""Streaming: a pipeline over compressed files, which are read in sequence."""

from __future__ import annotations

import bisect
import itertools

from fastrec import _core
from fastrec.loader.options import LoaderOptions
from fastrec.loader.order import Window
from fastrec.loader.plan import EpochPlan
from fastrec.loader.progress import Cursor
from fastrec.on_error import recovery_of
from fastrec.storage.stream_readers import byte_streams

# The frames of one step, or of a window, may take this much even if the memory limit is
# lower.
_FRAME_BYTES = 1 << 30

# 1 / 4 of the memory limit is for decompressed bytes that are not parsed yet.
_READ_AHEAD_SHARE = 4


def streaming_pipeline(
    options: LoaderOptions,
    pool: _core.BlockPool,
    plan: EpochPlan | None,
    at: Cursor,
    *,
    n_ahead: int,
    memory_limit: int,
) -> _core.Pipeline:
    """Return a pipeline over the streams of a source, starting at a step.

    Bytes before that step are decompressed again, except for files that end before it if
    there is no window. It uses one more thread than `num_threads`, because the consumer
    does not decode, and the same number of threads to decompress.
    """
    sources, planner = options.source.files, options.planner
    shuffle = planner.shuffle
    files = sources.contents()
    first_position = 0
    window = None
    order = planner.file_order(at.seed, at.epoch)
    if isinstance(shuffle, Window):
        rank = 0 if planner.files_of_ranks is None else planner.rank.rank
        window = (shuffle.n, at.seed, at.epoch, rank)
    elif plan is not None and at.step < plan.n_steps:
        n_records = sources.n_records_by_file()
        begins = [0, *itertools.accumulate(n_records[file] for file in order)]
        first = bisect.bisect_right(begins, plan.grid.range(at.step)[0]) - 1
        first = min(first, len(order) - 1)
        order, first_position = order[first:], begins[first]
    bytes_ahead = memory_limit // _READ_AHEAD_SHARE
    n_threads = options.num_threads + 1
    of_core = options.source.to_core()
    counts = None if plan is None else sources.scans()
    readers = sources.readers
    with byte_streams(
        [files[i] for i in order],
        counters=None if readers is None else readers.counters,
        n_readers=n_threads,
        bytes_ahead=bytes_ahead,
        versions=None if counts is None else [counts[i].version for i in order],
    ) as streams:
        return _core.Pipeline.of_streams(
            of_core,
            streams,
            order,
            planner.walk_grid() if plan is None else plan.grid,
            is_counted=plan is not None,
            first_step=at.step,
            first_position=first_position,
            bytes_max=max(memory_limit, _FRAME_BYTES),
            window=window,
            pool=pool,
            n_threads=n_threads,
            prefetch=n_ahead,
            memory_limit=memory_limit - bytes_ahead,
            row_policy=options.row_policy,
            recovery=recovery_of(sources.on_error),
        )
