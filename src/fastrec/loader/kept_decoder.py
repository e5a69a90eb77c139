"""KeptDecoder: the batches of an epoch, from rows that are kept or are decoded now."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch, concat_batches, n_rows, take_rows
from fastrec.errors import CorruptionError
from fastrec.features.schema import Schema
from fastrec.kept.key import Kept, encoded
from fastrec.kept.store import RowStore
from fastrec.loader.collate import Parts, RowPolicy, SkippedRow, Transformation
from fastrec.loader.options import LoaderOptions
from fastrec.loader.plan import EpochPlan
from fastrec.loader.prefetch import Delivered, unreadable_rows
from fastrec.loader.progress import Cursor
from fastrec.loader.stats import Times, clock
from fastrec.sources.file_set import FileSet
from fastrec.sources.selection import Numbers, numbers_at
from fastrec.sources.source import Source
from fastrec.storage.paths import versions_of
from fastrec.tasks import TaskPool
from fastrec.transforms.batch_info import BatchInfo


class KeptDecoder:
    """Reads the batches of an epoch, starting at the step of the cursor `at`.

    It has the methods of a `BatchDecoder`. Each batch is read by one thread, with any
    number of batches at the same time: the rows that are kept are copied, and the other
    rows are decoded, transformed and kept.
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
        self._pool = pool
        self._plan = plan
        self._at = at
        self._step = at.step
        self._is_stopped = False
        self._times = times
        self._lock = threading.Lock()
        self._collator = options.collator()
        self._rows = KeptRows(options.source)
        self.last_bytes = 0
        self.transform_pool_bytes = options.memory_limit
        self.pipeline: Any = SimpleNamespace(
            stop=self._stop, helping_ns=0, starving_ns=0
        )
        files = options.source.files
        if files.on_error != "raise":
            at.iteration.add_gaps(files.report())

    def _stop(self) -> None:
        self._is_stopped = True

    def take(self) -> int | None:
        """Return the next step; None at the end of the epoch."""
        step = self._step
        if self._is_stopped or step >= self._plan.n_steps:
            return None
        self._step += 1
        return step

    def next(self) -> Delivered | None:
        """Return the next batch; None at the end of the epoch."""
        return self.collate(self.take())

    def collate(
        self, step: int | None, threads: TaskPool | None = None
    ) -> Delivered | None:
        """Return the batch of a step, after all transforms; None if `step` is None."""
        if step is None:
            return None
        begin = clock()
        source = self._options.source
        positions, records = self._plan.rows(step)
        valid = records[positions >= 0]
        context = f" of step {step} of epoch {self._at.epoch}"
        places = source.row_places(valid, context).padded(len(records))
        info = BatchInfo(
            *(self._at.seed, self._at.epoch, step, positions, records),
            _places=places,
            _threads=threads,
            _pool=self._pool,
        )
        policy = self._options.row_policy
        reader = self._rows.reader(records, self._pool, policy)
        batch, raised = self._collator(reader.parts, info, reader.read)
        n_bytes = sum(getattr(column, "nbytes", 0) for column in batch.values())
        elapsed = clock() - begin
        with _core.HeldLock(self._lock):
            self.last_bytes = n_bytes
            self._times.transform_ns += elapsed
            self._times.n_kept += reader.n_kept
        unreadable = reader.unreadable
        n_records = len(valid) - len(unreadable)
        skipped = [*unreadable, *raised]
        return Delivered(batch, step, n_records, n_bytes, skipped, places)


class KeptRows:
    """Where the records of a source are kept: a store, and the row in it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        counts = source.files.n_records_by_file()
        begins = [0, *itertools.accumulate(counts)]
        ends = [0, *itertools.accumulate(reading.n_files for reading in source.given)]
        self._pieces = None if source.is_walkable else source.records()
        self._begins = np.array([begins[first] for first in ends], np.int64)
        readings, of_files = source.readings()
        # The reading of each run of files.
        self._readings = np.array([of_files[first] for first in ends[:-1]])
        self.stores: list[RowStore | None] = [None] * len(readings)
        self._check_unchanged(range(len(counts)))
        for reading, run in zip(self._readings, itertools.pairwise(ends), strict=True):
            if (kept := readings[reading].kept) is not None:
                files = source.files
                if len(self._readings) > 1:
                    files = files.part(range(*run))
                key = _key(kept, readings[reading].schema, files)
                if (store := self.stores[reading]) is None:
                    self.stores[reading] = _store(source, kept.directory, key)
                else:  # datasets that are joined more than once
                    store.check(key)

    def reader(
        self, records: Numbers, pool: _core.BlockPool, policy: RowPolicy
    ) -> RowReader:
        """Return a reader of one batch; `policy` is for rows that cannot be read."""
        places = self._source.places(records[records >= 0])
        self._check_unchanged(np.unique(places[:, 0]).tolist())
        return RowReader(self._source, self.stores, *self.find(records), pool, policy)

    def _check_unchanged(self, numbers: Sequence[int]) -> None:
        """Raise a CorruptionError if a file changed after it was indexed."""
        files, scans = self._source.files, self._source.files.scans()
        versions = versions_of([files.paths[i] for i in numbers]).tolist()
        for i, version in zip(numbers, versions, strict=True):
            if scans[i].version != tuple(version):
                raise CorruptionError(
                    "the file changed after it was indexed, and rows of both versions "
                    "must not be kept; open the dataset again",
                    files.files[i],
                    code="file_changed",
                )

    def find(self, records: Numbers) -> tuple[npt.NDArray[np.intp], Numbers]:
        """Return each record's reading, and its row in the store; -1 for padding.

        Padding has the reading of the last record.
        """
        valid = records[: np.count_nonzero(records >= 0)]
        numbers = valid if self._pieces is None else numbers_at(self._pieces, valid)
        runs = np.searchsorted(self._begins, numbers, side="right") - 1
        rows = numbers - self._begins[runs]
        n_padding = len(records) - len(valid)
        if not n_padding:
            return self._readings[runs], rows
        if len(self.stores) > 1 and len(rows):
            rows[-1] = -1  # decode it, so that the core knows the schema of the padding
        last = runs[-1:] if len(runs) else np.zeros(1, runs.dtype)
        runs = np.append(runs, np.repeat(last, n_padding))
        return self._readings[runs], np.append(rows, np.full(n_padding, -1))


def _store(source: Source, directory: str, key: dict[str, Any]) -> RowStore:
    """Return the kept rows in a directory; their files stay mapped between epochs."""
    store: RowStore | None = source.row_stores.get(directory)
    if store is None or not store.is_current(key):
        store = source.row_stores[directory] = RowStore(directory, key)
    return store


def _key(kept: Kept, schema: Schema, files: FileSet) -> dict[str, Any]:
    """Return what identifies the rows that are kept of these files, as JSON."""
    digest = hashlib.blake2b(digest_size=16)
    files.add_to(digest)
    digest.update(versions_of(files.files).tobytes())
    features = {
        str(name): [schema._row_type(name), encoded(spec)]
        for name, spec in schema.items()
    }
    return {
        "n_rows": files.n_records,
        "files": digest.hexdigest(),
        "features": features,
        "transforms": [*kept.transforms],
        "selection": None if kept.columns is None else [*kept.columns],
    }


class RowReader:
    """Reads the rows of one batch."""

    def __init__(
        self,
        source: Source,
        stores: Sequence[RowStore | None],
        readings: npt.NDArray[np.intp],
        rows: Numbers,
        pool: _core.BlockPool,
        policy: RowPolicy,
    ) -> None:
        self._source = source
        self._stores = stores
        self._rows = rows
        self._pool = pool
        self._policy = policy
        found = np.unique(readings).tolist() or [0]
        self.parts: Parts = [(found[0], {}, None)]
        if len(found) > 1:
            self.parts = [(i, {}, np.flatnonzero(readings == i)) for i in found]
        self.unreadable: list[SkippedRow] = []
        self.n_kept = 0

    def read(
        self, reading: int, info: BatchInfo, transform: Transformation
    ) -> tuple[Batch, BatchInfo]:
        """Return the rows of a reading, after the transforms before they are kept."""
        kept = self._source.readings()[0][reading].kept
        store = self._stores[reading]
        if kept is None or store is None:
            return self._decoded(info, transform)
        here = np.arange(len(self._rows)) if info._rows is None else info._rows
        info = dataclasses.replace(info, _rows=here)
        rows = self._rows[here]
        batch, is_kept = store.gather(rows, kept.delivered, self._pool)
        self.n_kept += int(np.count_nonzero(is_kept))
        if batch and is_kept.all():
            return batch, info
        missing = info._of_rows(np.flatnonzero(~is_kept))
        decoded, missing = self._decoded(missing, transform)
        if n_rows(decoded) != len(missing.positions):
            raise ValueError(
                "transforms before cache() must return one row per record, got "
                f"{n_rows(decoded):,} rows for {len(missing.positions):,} records"
            )
        assert missing._rows is not None
        of_missing = rows[np.searchsorted(here, missing._rows)]
        to_keep, is_good = kept.to_keep(decoded), missing.positions >= 0
        is_good &= of_missing >= 0
        if not is_good.all():
            of_missing, to_keep = of_missing[is_good], take_rows(to_keep, is_good)
        store.add(of_missing, to_keep)
        if not is_kept.any():
            return decoded, missing
        joined = np.concatenate([here[is_kept], missing._rows])
        order = np.argsort(joined)
        batch = concat_batches([batch, kept.chosen(decoded)])
        info = info._of_rows(np.searchsorted(here, joined[order]))
        failed = missing._rows[missing.positions < 0]
        masked = np.searchsorted(joined[order], failed).tolist()
        return take_rows(batch, order), info._masked(masked)

    def _decoded(
        self, info: BatchInfo, transform: Transformation
    ) -> tuple[Batch, BatchInfo]:
        source = self._source
        with source.files.renewing():
            parts, unreadable = _core.decode_records(
                source.without_padding().to_core(),
                source.catalog(),
                self._pool,
                info.records[info.positions >= 0],
                len(info.positions),
                self._policy,
            )
        if unreadable:
            self.unreadable += unreadable_rows(unreadable)
            rows = [span.row for span in unreadable]
            info = info._without(rows, masks=self._policy == "mask")
        return transform(parts[0][1], info)
