"""BatchDecoder: decode the batches of one epoch with the core's pipeline."""

from __future__ import annotations

import bisect
import itertools
import threading
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from fastrec import _core
from fastrec.loader.collate import VALID, Parts
from fastrec.loader.options import LoaderOptions
from fastrec.loader.order import Window
from fastrec.loader.plan import EpochPlan, padded
from fastrec.loader.prefetch import Delivered, unreadable_rows
from fastrec.loader.progress import Cursor
from fastrec.loader.stats import Times, clock
from fastrec.on_error import SkippedSpan, log_gaps
from fastrec.options import default_num_threads
from fastrec.tasks import TaskPool
from fastrec.transforms.batch_info import BatchInfo, Places

# The frames of one step or window may take this many bytes, even if the memory limit is
# lower.
_FRAME_BYTES = 1 << 30

# A quarter of the memory limit is for decompressed bytes that are not parsed yet.
_READ_AHEAD_SHARE = 4

# A decoded batch before collation: its step and counts, its parts, and its BatchInfo.
Taken: TypeAlias = tuple[Delivered, Parts, "BatchInfo | None"]


def plan_epoch(
    options: LoaderOptions, at: Cursor
) -> tuple[EpochPlan | None, _core.Catalog | None]:
    """Return the plan of an epoch, and the catalog of its records.

    Both are None if the pipeline can read the files in order without an index, so that
    the first batch need not wait for it. For compressed files, the catalog is None.
    """
    source, planner = options.source, options.planner
    if source.is_keeping:
        source.files.check_random_access("cache()")
    if source.files.is_streamed:
        if not source.is_walkable:
            source.files.check_random_access("a mix or a choice of records")
        # BatchInfo contains the record numbers, which a window computes from the plan.
        needs_plan = isinstance(planner.shuffle, Window) and options.has_transforms
        can_walk = planner.is_whole_epoch and not needs_plan and not at.step
    else:
        can_walk = planner.is_whole_epoch and source.is_walkable and not at.step
        can_walk = can_walk and not (planner.shuffle or source.is_keeping)
        can_walk = can_walk and not source.is_indexed()
    if can_walk:
        return None, None
    catalog = None if source.files.is_streamed else source.catalog()
    plan = planner.plan(at.seed, at.epoch, at.phase)
    if catalog is not None and source.catalog() is not catalog:
        return plan_epoch(options, at)  # a stale index was rebuilt in the meantime
    return plan, catalog


class BatchDecoder:
    """Decodes the batches of an epoch, starting at the step of the cursor `at`."""

    def __init__(
        self,
        options: LoaderOptions,
        pool: _core.BlockPool,
        plan: EpochPlan | None,
        catalog: _core.Catalog | None,
        at: Cursor,
        times: Times,
    ) -> None:
        files = options.source.files
        self._options = options
        self._collator = collator = options.collator()
        self._pool = pool
        self._needs_places = not collator.is_plain or options.conversion is not None
        self._adds_valid = VALID in collator.column_names
        finish = None if options.conversion is None else options.conversion.finish
        self._places_are_late = finish is not None  # requested after the next batch
        self._seed, self._epoch = at.seed, at.epoch
        self._times = times
        self._times_lock = threading.Lock()
        self._plan = plan
        self.last_bytes = 0  # the size of the last batch
        self._step = 0  # of the last batch
        self._n_walked = 0  # records read without a plan
        # The transform pool takes a part of the prefetched batches and of the memory.
        n_ahead = max(1, options.prefetch - options.n_in_transform_pool)
        memory_limit = max(1, options.memory_limit - self.transform_pool_bytes)
        self.pipeline = (
            _streaming_pipeline(options, pool, plan, at, n_ahead, memory_limit)
            if files.is_streamed
            else _pipeline(options, pool, plan, catalog, at, n_ahead, memory_limit)
        )
        self._iteration = at.iteration
        # Without a plan, the pipeline finds damaged framing, and indexes of remote files.
        self._finds_indexes = plan is None and files.readers is not None
        self._may_have_found = plan is None and (
            files.on_error != "raise" or self._finds_indexes
        )
        if plan is not None and files.on_error != "raise":
            at.iteration.add_gaps(files.report())

    @property
    def transform_pool_bytes(self) -> int:
        """The memory limit of the transform pool in bytes; 0 if the pool is unused."""
        uses_pool = self._options.n_in_transform_pool > 0
        return self._options.memory_limit // 2 if uses_pool else 0

    def next(self) -> Delivered | None:
        """Return the next batch; None at the end of the epoch."""
        if not self._collator.is_direct:
            return self.collate(self.take())
        decoded = self._next_of_pipeline()
        if decoded is None:
            return None
        parts, step, n_rows, n_valid, n_bytes, unreadable = decoded
        self._step = step
        batch = parts[0][1]
        if self._adds_valid:
            valid = batch[VALID] = np.arange(n_rows) < n_valid
            for span in unreadable:
                valid[span.row] = False
        if not self._collator.is_plain:
            begin = clock()
            batch = self._collator.transformed(batch, self._last_places)
            self._times.transform_ns += clock() - begin
        places: Any = self._last_places
        if self._places_are_late:
            places = self._last_places()
        skipped = unreadable_rows(unreadable) if unreadable else ()
        n_records = n_valid - len(unreadable)
        # Faster than Delivered(...), whose __new__ is Python code.
        return tuple.__new__(
            Delivered, (batch, step, n_records, n_bytes, skipped, places)
        )

    def _last_places(self) -> Places:
        """Return the file locations of the rows in the last decoded batch."""
        files = self._options.source.files.files
        return Places(files, self.pipeline.places(), self._context)

    @property
    def _context(self) -> str:
        return f" of step {self._step} of epoch {self._epoch}"

    def _next_of_pipeline(
        self,
    ) -> tuple[Parts, int, int, int, int, list[SkippedSpan]] | None:
        """Return the next step's parts and counts; None at the end of the epoch."""
        decoded = self.pipeline.next()
        if self._may_have_found:
            self._keep_found()
        if self._plan is None:
            if decoded is not None:
                self._n_walked += decoded[3]
            else:
                planner = self._options.planner
                self._options.source.check_walked(
                    self._n_walked,
                    planner.global_batch_size,
                    drop_last=planner.drop_last,
                )
        return decoded

    def _keep_found(self) -> None:
        """Keep indexes and report damaged framing that the pipeline has found."""
        if self._finds_indexes:
            self._options.source.files.keep_walked(self.pipeline)
        if gaps := self.pipeline.take_gaps():
            log_gaps(gaps)
            self._iteration.add_gaps(gap.region for gap in gaps)

    def take(self) -> Taken | None:
        """Return the next decoded batch for `collate`; None at the end of the epoch."""
        decoded = self._next_of_pipeline()
        if decoded is None:
            return None
        parts, step, n_rows, n_valid, n_bytes, unreadable = decoded
        places = info = None
        if self._needs_places:
            self._step = step
            places = self._last_places()
        n_records, skipped = n_valid - len(unreadable), unreadable_rows(unreadable)
        if not self._collator.is_identity:
            info = self._info(step, n_rows, n_valid, places)
            if unreadable:
                masks = self._options.row_policy == "mask"
                info = info._without([span.row for span in unreadable], masks=masks)
            if info.steps is not None:
                n_rows = len(info.positions)
                n_records = info._n_valid
                places = info._places
        self.last_bytes = n_bytes + self._collator.decoded_bytes(parts, n_rows)
        return Delivered({}, step, n_records, n_bytes, skipped, places), parts, info

    def collate(
        self, taken: Taken | None, threads: TaskPool | None = None
    ) -> Delivered | None:
        """Return the collated and transformed batch; None if `taken` is None."""
        if taken is None:
            return None
        delivered, parts, info = taken
        if info is None or self._collator.is_plain:
            batch, _ = self._collator(parts, info)
            return delivered._replace(batch=batch)
        begin = clock()
        info = replace(info, _threads=threads, _pool=self._pool)
        batch, raised = self._collator(parts, info)
        elapsed = clock() - begin
        with _core.HeldLock(self._times_lock):
            self._times.transform_ns += elapsed
        return delivered._replace(batch=batch, skipped=[*delivered.skipped, *raised])

    def _info(
        self, step: int, n_rows: int, n_valid: int, places: Places | None
    ) -> BatchInfo:
        if self._plan is not None:
            positions, records = self._plan.rows(step)
        else:
            first = step * self._options.planner.global_batch_size
            numbers = np.arange(first, first + n_valid, dtype=np.int64)
            positions, records = padded(numbers, numbers.copy(), n_rows)
        source = self._options.source
        if source.has_steps:
            places = source.row_places(records, self._context)
        elif places is not None:
            places = places.padded(n_rows)
        info = BatchInfo(
            *(self._seed, self._epoch, step, positions, records), _places=places
        )
        return source.with_steps(info)


def _pipeline(
    options: LoaderOptions,
    pool: _core.BlockPool,
    plan: EpochPlan | None,
    catalog: _core.Catalog | None,
    at: Cursor,
    n_ahead: int,
    memory_limit: int,
) -> _core.Pipeline:
    """Return a pipeline over uncompressed files, starting at the step of `at`."""
    files = options.source.files
    of_core = options.source.to_core()  # opens the files
    # Decoding may wait for a remote store, so the consumer does not decode.
    is_remote = files.readers is not None
    return _core.Pipeline(
        of_core,
        catalog,
        None if plan is None else plan.order,
        options.planner.walk_grid() if plan is None else plan.grid,
        at.step,
        pool,
        n_threads=options.num_threads + is_remote,
        n_cpus=default_num_threads(),
        prefetch=n_ahead,
        memory_limit=memory_limit
        if files.readers is None
        else files.readers.share(memory_limit),
        row_policy=options.row_policy,
        recovery=files.recovery,
        is_helping=not is_remote,
    )


def _streaming_pipeline(
    options: LoaderOptions,
    pool: _core.BlockPool,
    plan: EpochPlan | None,
    at: Cursor,
    n_ahead: int,
    memory_limit: int,
) -> _core.Pipeline:
    """Return a pipeline over compressed files, starting at the step of `at`.

    To reach that step, the pipeline decompresses earlier records again; without a
    Window, it skips files that end before the step. ``num_threads + 1`` threads
    decompress and the same number decode, because the consumer does not decode. The
    default for local files is one less: as many as CPUs.
    """
    from fastrec.storage.stream_readers import byte_streams

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
    of_core = options.source.to_core()
    counts = None if plan is None else sources.scans()
    readers = sources.readers
    is_default = options.num_threads == default_num_threads()
    n_threads = options.num_threads + (readers is not None or not is_default)
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
            recovery=sources.recovery,
        )
