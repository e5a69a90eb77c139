"""BatchReader: the batch of any records, of which some may be kept.

KeptDecoder: the batches of an epoch, each read by a BatchReader.
"""

from __future__ import annotations

import dataclasses
import functools
import threading

import numpy as np

from fastrec import _core
from fastrec.arrays.batch import Batch, concat_batches, n_rows, take_rows
from fastrec.kept.key import only
from fastrec.loader.collate import (
    Collator,
    Parts,
    RowPolicy,
    SkippedRow,
    Transformation,
)
from fastrec.loader.options import LoaderOptions
from fastrec.loader.plan import EpochPlan
from fastrec.loader.prefetch import Delivered, unreadable_rows
from fastrec.loader.progress import Cursor
from fastrec.loader.stats import Times, clock
from fastrec.sources.selection import Numbers
from fastrec.sources.source import Source
from fastrec.tasks import TaskPool
from fastrec.transforms.batch_info import BatchInfo


class BatchReader:
    """Reads batches of any records; threads may do so at the same time.

    Rows that are kept are copied. Other rows are decoded, and kept if the source keeps
    its rows. `policy` is for rows that cannot be read.
    """

    def __init__(
        self,
        source: Source,
        collator: Collator,
        pool: _core.BlockPool,
        policy: RowPolicy = "raise",
    ) -> None:
        self.source = source
        self.collator = collator
        self.pool = pool
        self.policy = policy
        self.kept = None
        if source.is_keeping:
            from fastrec.loader.kept_rows import KeptRows  # slow to import

            self.kept = KeptRows(source)

    @classmethod
    def of(cls, options: LoaderOptions, pool: _core.BlockPool) -> BatchReader:
        """Return a reader of the batches of a loader."""
        return cls(options.source, options.collator(), pool, options.row_policy)

    def whole(self, records: Numbers) -> Batch | None:
        """Return the batch if its rows need only be copied, otherwise None."""
        if self.kept is None or not self.collator.is_copied:
            return None
        return self.kept.whole(records, self.pool)

    def read(self, info: BatchInfo) -> ReadBatch:
        """Return the batch of ``info.records``."""
        return ReadBatch(self, info)

    def read_alone(self, info: BatchInfo) -> Batch:
        """Return a batch that belongs to no epoch; a changed file is an error."""
        if self.kept is not None:
            self.kept.check_records(info.records)
        return self.read(info).batch


class ReadBatch:
    """A batch after all transforms, and the rows that were skipped or masked."""

    def __init__(self, reader: BatchReader, info: BatchInfo) -> None:
        self._reader = reader
        self.unreadable: list[SkippedRow] = []
        self.n_kept = 0
        self.n_read = info._n_valid  # rows whose record can be read
        if reader.kept is None:
            self.batch, self.raised = reader.collator(*self._decoded(info))
            return
        # Transforms of kept rows may need the steps.
        info = dataclasses.replace(reader.source.with_steps(info), _decoded=None)
        readings, self._rows = reader.kept.find(info.records, reader.pool)
        found = np.unique(readings).tolist() or [0]
        parts: Parts = [(found[0], {}, None)]
        if len(found) > 1:
            parts = [(i, {}, np.flatnonzero(readings == i)) for i in found]
        self.batch, self.raised = reader.collator(parts, info, self._read)

    def _read(
        self, reading: int, info: BatchInfo, transform: Transformation
    ) -> tuple[Batch, BatchInfo]:
        """Return the rows of a reading, after the transforms before they are kept."""
        reader = self._reader
        assert reader.kept is not None
        kept, store = reader.kept.readings[reading].kept, reader.kept.stores[reading]
        if kept is None or store is None:
            parts, info = self._decoded(info)
            return transform(parts[0][1], info)
        here = np.arange(len(self._rows)) if info._rows is None else info._rows
        info = dataclasses.replace(info, _rows=here)
        batch, is_kept = store.gather(self._rows[here], kept.delivered, reader.pool)
        self.n_kept += int(np.count_nonzero(is_kept & (info.records >= 0)))
        if batch and is_kept.all():
            return batch, info
        missing = info._of_rows(np.flatnonzero(~is_kept))
        reader.kept.check_records(missing.records)
        parts, missing = self._decoded(missing)
        decoded, missing = transform(parts[0][1], missing)
        if n_rows(decoded) != len(missing.positions):
            raise ValueError(
                "transforms before cache() must return one row per record, got "
                f"{n_rows(decoded):,} rows for {len(missing.positions):,} records"
            )
        assert missing._rows is not None
        rows, to_keep = self._rows[missing._rows], only(decoded, kept.columns)
        is_good = (missing.positions >= 0) | (rows == store.padding)
        is_good &= rows >= 0
        if not is_good.all():
            rows, to_keep = rows[is_good], take_rows(to_keep, is_good)
        store.add(rows, to_keep)
        if not is_kept.any():
            return decoded, missing
        joined = np.concatenate([here[is_kept], missing._rows])
        order = np.argsort(joined)
        batch = concat_batches([batch, only(decoded, kept.delivered)])
        info = info._of_rows(np.searchsorted(here, joined[order]))
        failed = missing._rows[missing.positions < 0]
        masked = np.searchsorted(joined[order], failed).tolist()
        return take_rows(batch, order), info._masked(masked)

    def _decoded(self, info: BatchInfo) -> tuple[Parts, BatchInfo]:
        """Decode rows; return them with the BatchInfo of those that can be read."""
        reader, source = self._reader, self._reader.source
        if reader.kept is not None:
            source = source.without_padding()
        with source.files.renewing():
            info = source.with_steps(info)
            parts, unreadable = _core.decode_records(
                source.to_core(),
                source.catalog(),
                reader.pool,
                info.records[info.positions >= 0],
                len(info.positions),
                reader.policy,
            )
        if unreadable:
            self.unreadable += unreadable_rows(unreadable)
            rows, n_valid = [span.row for span in unreadable], info._n_valid
            info = info._without(rows, masks=reader.policy == "mask")
            self.n_read -= n_valid - info._n_valid
        return parts, info


class _Steps:
    """The numbers of the steps of an epoch, in place of the core's pipeline."""

    helping_ns = starving_ns = 0

    def __init__(self, first: int, n_steps: int) -> None:
        self._rest = iter(range(first, n_steps))

    def next(self) -> int | None:
        """Return the next step; None at the end of the epoch."""
        return next(self._rest, None)

    def stop(self) -> None:
        """End the epoch."""
        self._rest = iter(range(0))


class KeptDecoder:
    """Reads the batches of an epoch of a source that keeps rows, as a `BatchDecoder`.

    Each batch is read by one thread, with any number of batches at the same time.
    """

    def __init__(
        self,
        options: LoaderOptions,
        pool: _core.BlockPool,
        plan: EpochPlan,
        at: Cursor,
        times: Times,
    ) -> None:
        self._options = options
        self._plan = plan
        self._at = at
        self._times = times
        self._lock = threading.Lock()
        self._reader = BatchReader.of(options, pool)
        self.last_bytes = 0
        self.transform_pool_bytes = options.memory_limit
        self.pipeline = _Steps(at.step, plan.n_steps)
        self.take = self.pipeline.next
        files = options.source.files
        if files.on_error != "raise":
            at.iteration.add_gaps(files.report())

    def next(self) -> Delivered | None:
        """Return the next batch; None at the end of the epoch."""
        return self.collate(self.take())

    def collate(
        self, step: int | None, threads: TaskPool | None = None
    ) -> Delivered | None:
        """Return the batch of a step, after all transforms; None if `step` is None."""
        if step is None:
            return None
        begin, at = clock(), self._at
        positions, records = self._plan.rows(step)
        context = f" of step {step} of epoch {at.epoch}"
        places = functools.partial(self._options.source.row_places, records, context)
        skipped: list[SkippedRow] = []
        if (batch := self._reader.whole(records)) is not None:
            n_records = n_kept = len(records)
        else:
            info = BatchInfo(
                *(at.seed, at.epoch, step, positions, records),
                _places=places(),
                _threads=threads,
                _pool=self._reader.pool,
            )
            read = self._reader.read(info)
            batch, n_kept = read.batch, read.n_kept
            skipped = [*read.unreadable, *read.raised]
            n_records = read.n_read
        n_bytes = sum([getattr(column, "nbytes", 0) for column in batch.values()])
        elapsed = clock() - begin
        with _core.HeldLock(self._lock):
            self.last_bytes = n_bytes
            self._times.transform_ns += elapsed
            self._times.n_kept += n_kept
        return Delivered(batch, step, n_records, n_bytes, skipped, places)
