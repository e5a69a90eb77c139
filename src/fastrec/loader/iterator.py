"""BatchIterator: iterate over one epoch of a loader."""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from fastrec import _core
from fastrec.caller_warnings import warn_caller
from fastrec.errors import Error, add_note
from fastrec.features.missing import absence
from fastrec.hints import no_column
from fastrec.loader.batch_reader import KeptDecoder
from fastrec.loader.collate import SkippedRow
from fastrec.loader.decoder import BatchDecoder, plan_epoch
from fastrec.loader.options import LoaderOptions
from fastrec.loader.plan import EpochPlan
from fastrec.loader.prefetch import Delivered, Prefetcher, Source
from fastrec.loader.progress import Cursor, Progress
from fastrec.loader.stats import clock
from fastrec.loader.transform_pool import TransformedBatches, TransformPool
from fastrec.printable import counted
from fastrec.tasks import close_at_exit, is_exiting, renew_after_fork

B = TypeVar("B")

_log = logging.getLogger("fastrec")


class BatchIterator(Iterator[Any]):
    """An iterator over one epoch; when it is garbage-collected, decoding stops.

    The threads of `transform_pool` transform batches; if it is None, ``next()`` does.
    With `names`, each batch is a tuple of these columns. Threads do not refer to the
    iterator, and its destruction runs no Python code; see `fastrec.tasks`.

    A signal handler may raise at any point (an interrupt). Then ``next()`` reopens the
    epoch at the step of `progress`; seed and epoch determine the order of its batches.
    """

    def __init__(
        self,
        options: LoaderOptions,
        progress: Progress,
        pool: _core.BlockPool,
        begin: Cursor,
        transform_pool: TransformPool | None,
        names: tuple[str | bytes, ...] | None = None,
    ) -> None:
        self._options = options
        self._progress = progress
        self._pool = pool
        self._names = names
        self._begin = begin
        self._transform_pool = transform_pool
        self._lock = threading.RLock()  # held by the thread that takes a batch
        self._is_closed = False
        self._is_finished = False
        self._is_forked = False
        self._error: Exception | None = None
        # The cursor after the last batch of the source; None while a batch is taken.
        self._cursor: Cursor | None = None
        # The plan and its catalog; empty until the epoch is opened. Kept, because a
        # rebuilt index must not change the order of a running epoch.
        self._plans: list[tuple[EpochPlan | None, _core.Catalog | None]] = []
        self._decoder: BatchDecoder | KeptDecoder | None = None
        self._transformed: TransformedBatches | None = None
        self._source: Source | None = None
        self._warnings: list[str | Warning] = []
        self._is_watching = True  # for columns that no record has
        self._warned_bytes = options.memory_limit  # warn about larger batches
        self._left_ns: int | None = None  # when the previous call returned
        self._helping_ns = self._starving_ns = 0  # of the pipeline, already counted
        self._fetched = np.zeros(3, np.int64)  # of the files, already counted
        renew_after_fork(self)

    def __next__(self) -> Any:
        if self._lock._is_owned() or (  # type: ignore[attr-defined]
            self._transform_pool is not None
            and TransformPool.owns_thread(self._transform_pool)
        ):
            raise RuntimeError(
                "cannot call next() of a loader inside its own transform, which would "
                "deadlock; read other records with ds[...] or another loader"
            )
        progress = self._progress
        before: Cursor | None = None
        after: Cursor | None = None
        try:
            with _core.HeldLock(self._lock):
                while True:
                    before = progress.cursor
                    delivered = self._advance(before)
                    is_end = delivered is None and self._finish(before)
                    while self._warnings:
                        warn_caller(self._warnings.pop(0))
                    if is_end:
                        raise StopIteration
                    if delivered is None or self._is_closed:
                        continue
                    after = before.after(*delivered[1:5])
                    # Another thread may have begun a `for`, or an interrupt may have
                    # restored an earlier cursor.
                    if progress.replace(before, after):
                        self._cursor = after
                        return delivered.batch
        except Exception:
            raise
        except BaseException:
            # The batch did not reach the consumer. The next call finds that the source is
            # ahead of the cursor, and reopens the epoch. A second interrupt can only
            # arrive after this call.
            if before is not None:
                progress.replace(after, before)
            raise

    def _advance(self, at: Cursor) -> Delivered | None:
        """Return the next batch; None at the end of the epoch."""
        if not self._plans and at.iteration is self._begin.iteration:
            self._begin = at  # set_epoch may have moved the cursor
        begin = self._begin
        is_of_this_epoch = at.iteration is begin.iteration and at.epoch == begin.epoch
        if self._is_closed or self._is_finished or not is_of_this_epoch:
            self._raise_closed(at)
        entered_ns = clock()
        try:
            source = self._source if at is self._cursor else self._open(at)
            self._cursor = None
            assert source is not None
            delivered = source()
            if self._is_closed:
                self._raise_closed(at)
            if self._is_watching:
                self._watch(at, delivered)
            if delivered is None:
                return None
            if delivered.n_bytes > self._warned_bytes:
                self._warnings.append(
                    f"a batch of {delivered.n_bytes:,} bytes exceeds memory_limit="
                    f"{self._warned_bytes:,}, so the loader does not read ahead; use "
                    "smaller batches or a higher limit"
                )
                self._warned_bytes = delivered.n_bytes
            if delivered.skipped:
                limit = self._options.max_errors
                _check_limit(delivered.skipped, at.n_skipped, limit)
            if self._names is not None:
                columns: dict[Any, Any] = delivered.batch
                check_columns(self._names, columns)
                values = tuple(columns[name] for name in self._names)
                delivered = delivered._replace(batch=values)  # type: ignore[arg-type]
            return delivered
        except Exception as error:
            if self._is_closed:
                self._raise_closed(at)
            self._error = error
            self.close()
            files = self._options.source.files
            if isinstance(error, Error):
                files.renew(error)
                files.advise(error)
            raise
        finally:
            times, left_ns = self._progress.times, clock()
            times.waiting_ns += left_ns - entered_ns
            if self._left_ns is None:
                times.starting_ns += left_ns - entered_ns
            else:
                times.consuming_ns += entered_ns - self._left_ns
            self._left_ns = left_ns
            readers = self._options.source.files.readers
            if readers is not None:
                fetched = readers.fetched()
                times.fetched += fetched - self._fetched
                self._fetched = fetched
            # The threads of a transform pool help and starve, not the consumer.
            if self._decoder is not None and self._transformed is None:
                helping_ns = self._decoder.pipeline.helping_ns
                times.helping_ns += helping_ns - self._helping_ns
                self._helping_ns = helping_ns
            elif self._decoder is not None:
                starving_ns = self._decoder.pipeline.starving_ns
                times.starving_ns += starving_ns - self._starving_ns
                self._starving_ns = starving_ns

    def _open(self, at: Cursor) -> Source:
        """Start reading at the step of `at`; return the source of the next batches."""
        self._stop()
        options, progress = self._options, self._progress
        readers = options.source.files.readers  # None before the first request
        self._fetched = np.zeros(3, np.int64) if readers is None else readers.fetched()
        if not self._plans:
            self._plans.append(plan_epoch(options, at))
        plan, catalog = self._plans[0]
        decoder: BatchDecoder | KeptDecoder
        if options.source.is_keeping and plan is not None:
            decoder = KeptDecoder(options, self._pool, plan, at, progress.times)
        else:
            decoder = BatchDecoder(
                options, self._pool, plan, catalog, at, progress.times
            )
        self._decoder, self._helping_ns, self._starving_ns = decoder, 0, 0
        if not progress.is_advised and (advice := options.advice()):
            progress.is_advised = True
            self._warnings.append(advice)
        source: Source = decoder.next
        transformed = self._transformed = None
        n_transforming = min(options.n_transforming, options.n_in_transform_pool)
        progress.times.n_transforming = n_transforming
        is_streamed = options.source.files.is_streamed
        progress.times.is_decoding_ahead = is_streamed or options.num_threads > 0
        if self._transform_pool is not None:
            transformed = self._transformed = TransformedBatches(
                decoder, self._transform_pool, n_ahead=options.n_in_transform_pool
            )
            source = transformed.next
        close_at_exit(self)  # after the pool, so that exit stops the pipeline first
        if options.conversion is not None:
            stop = functools.partial(_stop, decoder, transformed)
            source = Prefetcher(
                source,
                stop,
                options.conversion,
                lambda: options.planner.plan(at.seed, at.epoch, at.phase).n_steps,
            ).next
        self._source = source
        return source

    def _finish(self, at: Cursor) -> bool:
        """Move the cursor to the next epoch; return False if it is no longer `at`.

        An interrupt takes effect either before or after the move.
        """
        options, progress = self._options, self._progress
        is_empty = options.planner.drop_last and not at.step
        if is_empty and not progress.is_warned_of_drop and (n := len(options.source)):
            progress.is_warned_of_drop = True
            self._warnings.append(
                f"drop_last=True drops all records: the dataset has {n:,}, but a full batch "
                f"has {options.planner.global_batch_size:,}"
            )
        if not progress.replace(at, at.moved(at.seed, at.epoch + 1)):
            return False
        self._is_finished = True
        self.close()
        if at.n_skipped:
            n_skipped = counted(at.n_skipped, "record")
            text = "skipped %s in epoch %d (see loader.report)"
            _log.warning(text, n_skipped, at.epoch)
        return True

    def _watch(self, at: Cursor, delivered: Delivered | None) -> None:
        """Queue a warning if a column was missing in all records."""
        source, is_end = self._options.source, delivered is None
        core = (source.without_padding() if source.is_keeping else source).to_core()
        self._is_watching = core.is_watching
        n_delivered = at.n_records - self._begin.n_records
        n_delivered += 0 if delivered is None else delivered.n_records
        schemas = [reading.record_schema for reading in source.readings()[0]]
        if warning := absence(core, schemas, n_delivered, is_end=is_end):
            self._warnings.append(warning)

    def _raise_closed(self, at: Cursor) -> NoReturn:
        """Raise StopIteration after a complete epoch, otherwise an error."""
        is_running = not self._is_closed and at.iteration is self._begin.iteration
        if self._is_finished or (is_running and at.epoch != self._begin.epoch):
            raise StopIteration
        if self._error is not None:
            raise self._error
        if self._is_forked:
            raise RuntimeError(
                "cannot use an iterator of the parent process after a fork; call "
                "iter(loader) in this process"
            )
        if is_exiting() and threading.current_thread() is not threading.main_thread():
            raise SystemExit  # ends the thread silently
        raise RuntimeError(
            "this iterator was closed: a loader has one running epoch, and a later "
            "iter(loader), set_epoch(), seek(), load_state_dict() or close() ends it"
        )

    @property
    def is_unopened(self) -> bool:
        """Whether no batch has been requested yet."""
        return not self._plans

    def close(self) -> None:
        """Stop the pipeline's threads, and end the epoch of this iterator."""
        self._is_closed = True
        self._transform_pool = None  # or the traceback of an error would keep the pool
        if not self._is_forked:
            self._stop()
        self._source = None

    def _stop(self) -> None:
        if self._decoder is not None:
            _stop(self._decoder, self._transformed)

    def _renew_after_fork(self) -> None:
        """Close the iterator in a forked process, where its threads do not exist."""
        self._is_forked = self._is_closed = True
        self._lock = threading.RLock()

    def _close_at_exit(self) -> None:
        self.close()


def check_columns(names: Iterable[object], columns: Collection[object]) -> None:
    """Raise a KeyError if one of `names` is not in `columns`."""
    for name in names:
        if name not in columns:
            raise KeyError(no_column(name, columns, "the batch"))


class TupleBatches:
    """The batches of a loader as tuples of columns; see `Loader.tuples`."""

    def __init__(self, loader: Any, names: tuple[str | bytes, ...]) -> None:
        self._loader = loader
        self._names = names

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        iterator: Iterator[tuple[Any, ...]] = self._loader._iterate(self._names)
        return iterator

    def __len__(self) -> int:
        return len(self._loader)

    def __repr__(self) -> str:
        return f"<tuples {self._names} of {self._loader!r}>"


class RepeatedEpochs(Iterator[B]):
    """An iterator over the batches of several epochs; interrupts lose no batch."""

    def __init__(self, loader: Iterable[B], n_epochs: float) -> None:
        self._loader = loader
        self._n_left = n_epochs
        self._epoch: Iterator[B] | None = None
        self._is_empty = True

    def __next__(self) -> B:
        while self._n_left:
            if self._epoch is None:
                self._is_empty = True
                self._epoch = iter(self._loader)
            for batch in self._epoch:
                # Python handles signals only at calls and jumps. Neither occurs between
                # taking the batch and returning it, so no batch is lost.
                self._is_empty = False
                return batch
            if self._is_empty and self._n_left == math.inf:
                raise ValueError(
                    "cannot repeat an epoch that has no batches; pass epochs="
                )
            self._n_left -= 1
            self._epoch = None
        raise StopIteration


def _stop(
    decoder: BatchDecoder | KeptDecoder, transformed: TransformedBatches | None
) -> None:
    """Stop the threads of the pipeline, and skip the transforms that have not begun."""
    decoder.pipeline.stop()
    if transformed is not None:
        transformed.close()


def _check_limit(
    rows: Sequence[SkippedRow], n_before: int, max_errors: int | None
) -> None:
    """Raise the error of the first row that exceeds the limit `max_errors`, if any."""
    if max_errors is None or n_before + len(rows) <= max_errors:
        return
    _, error, note = rows[max(0, max_errors - n_before)]
    limit = f"cannot skip or mask more rows: max_errors={max_errors}"
    if isinstance(error, Error):
        error.reason += f"; {limit}"
    else:
        if note:
            add_note(error, note)
        add_note(error, limit)
    raise error
