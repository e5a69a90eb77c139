"""Decoding: batches from the core, step by step, and what the collator makes of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastrec import _core
from fastrec.loader.collate import Parts
from fastrec.loader.options import LoaderOptions
from fastrec.loader.order import Window
from fastrec.loader.prefetch import Delivered
from fastrec.loader.progress import Progress
from fastrec.loader.skipped_rows import unreadable_rows, without_rows
from fastrec.loader.stats import clock
from fastrec.loader.steps import Plan, padded
from fastrec.on_error import Damage, log_gaps, recovery_of
from fastrec.options import default_num_threads
from fastrec.tasks import TaskPool
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.places import Places

__all__ = ["Decoded", "Decoding", "planned"]


class Decoded(NamedTuple):
    """The decoded rows of a step, and where they come from."""

    parts: Parts
    info: BatchInfo | None
    places: Places | None
    step: int
    n_records: int
    n_bytes: int
    damages: Sequence[Damage]


def planned(options: LoaderOptions, progress: Progress) -> Plan | None:
    """Return the steps of the epoch, or None if it begins with a walk through the files.

    A walk needs no index, so its first batch comes at once.
    """
    view, planner, at = options.view, options.planner, progress.mark
    if view.files.is_streamed:
        if not view.is_walkable:
            view.files.check_random_access("a mix or a choice of records")
        # A transform may ask which records a batch has.
        needs_order = isinstance(planner.shuffle, Window) and options.has_transforms
        may_walk = planner.is_whole_epoch and not needs_order and not at.step
    else:
        may_walk = planner.is_file_order and view.is_walkable and not at.step
        may_walk = may_walk and not view.is_indexed()
    return None if may_walk else planner.plan(progress.seed, at.epoch, at.phase)


class Decoding:
    """The batches of an epoch from one step on, as the core delivers them."""

    def __init__(
        self,
        options: LoaderOptions,
        progress: Progress,
        pool: _core.BlockPool,
        plan: Plan | None,
    ) -> None:
        view, planner = options.view, options.planner
        files = view.files
        self._options = options
        self._collator = collator = options.collator()
        self._needs_places = not collator.is_plain or options.conversion is not None
        self._is_identity = collator.is_identity and not self._needs_places
        self._policy = options.row_policy
        self._files = files.files if self._needs_places else []
        self._seed, self._epoch = progress.seed, progress.mark.epoch
        self._times = progress.times
        self._counting = threading.Lock()  # guards the time of transforms
        self._plan = plan
        self.last_bytes = 0  # the memory of the last batch
        # The pipeline and the transform pool behind it share the batches ahead.
        n_ahead = max(1, options.prefetch - options.n_staged)
        memory_limit = max(1, options.memory_limit - self.staged_bytes)
        if files.is_streamed:
            from fastrec.loader.streaming import streaming_pipeline

            self.pipeline = streaming_pipeline(
                options,
                progress,
                pool,
                plan,
                n_ahead=n_ahead,
                memory_limit=memory_limit,
            )
        else:
            self.pipeline = _core.Pipeline(
                view.source.to_core(),
                None if plan is None else view.catalog(),
                None if plan is None else plan.order,
                planner.walk_grid() if plan is None else plan.grid,
                progress.mark.step,
                pool,
                n_threads=options.num_threads,
                n_cpus=default_num_threads(),
                prefetch=n_ahead,
                memory_limit=memory_limit,
                on_damage=self._policy,
                recovery=recovery_of(files.on_error),
            )
        self._may_have_gaps = plan is None and files.on_error != "raise"

    @property
    def staged_bytes(self) -> int:
        """How much memory batches in the transform pool may take."""
        return self._options.memory_limit // 2 if self._options.n_staged else 0

    def next(self) -> Delivered | None:
        """Return the next batch; None at the end."""
        if not self._is_identity:
            return self.collate(self.take())
        found = self.pipeline.next()
        if self._may_have_gaps:
            log_gaps(self.pipeline.take_gaps())
        if found is None:
            return None
        parts, step, _, n_valid, n_bytes, damages = found
        skipped = unreadable_rows(damages) if damages else ()
        n_records = n_valid - len(damages)
        # Delivered(...) is a call of Python code, which small batches notice.
        return tuple.__new__(
            Delivered, (parts[0][1], step, n_records, n_bytes, skipped, None)
        )

    def take(self) -> Decoded | None:
        """Return the next rows, which `collate` makes a batch of; None at the end."""
        found = self.pipeline.next()
        if self._may_have_gaps:
            log_gaps(self.pipeline.take_gaps())
        if found is None:
            return None
        parts, step, n_rows, n_valid, n_bytes, damages = found
        self.last_bytes = n_bytes
        places = info = None
        if self._needs_places:
            context = f" of step {step} of epoch {self._epoch}"
            places = Places(self._files, self.pipeline.places(), context)
        if self._collator.needs_origin:
            info = self._origin(step, n_rows, n_valid, places)
            if damages:
                info = without_rows(info, damages, self._policy)
        n_records = n_valid - len(damages)
        return Decoded(parts, info, places, step, n_records, n_bytes, damages)

    def collate(
        self, decoded: Decoded | None, threads: TaskPool | None = None
    ) -> Delivered | None:
        """Return what the transforms make of decoded rows; `threads` share the rows."""
        if decoded is None:
            return None
        parts, info, places, step, n_records, n_bytes, damages = decoded
        skipped = unreadable_rows(damages)
        if info is None or self._collator.is_plain:
            batch, _ = self._collator(parts, info)
        else:
            begin = clock()
            batch, raised = self._collator(
                parts,
                info if threads is None else replace(info, _threads=threads),
                self._options.transform_policy,
            )
            taken = clock() - begin
            with self._counting:
                self._times.transform_ns += taken
            skipped += raised
        return Delivered(batch, step, n_records, n_bytes, skipped, places)

    def _origin(
        self, step: int, n_rows: int, n_valid: int, places: Places | None
    ) -> BatchInfo:
        if self._plan is not None:
            positions, records = self._plan.rows(step)
        else:
            first = step * self._options.planner.global_batch_size
            numbers = np.arange(first, first + n_valid, dtype=np.int64)
            positions, records = padded(numbers, numbers.copy(), n_rows)
        places = None if places is None else places.padded(n_rows)
        return BatchInfo(
            *(self._seed, self._epoch, step, positions, records), _places=places
        )
