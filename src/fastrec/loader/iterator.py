"""Iterators: one pass of a loader over an epoch, from the core to the consumer."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.caller_warnings import warn_caller
from fastrec.errors import Error, advise_on_error
from fastrec.features.missing import absence
from fastrec.lifecycle import close_at_exit, is_exiting, renew_after_fork
from fastrec.loader.decoding import Decoding, planned
from fastrec.loader.options import LoaderOptions
from fastrec.loader.prefetch import Delivered, Prefetcher, Source
from fastrec.loader.progress import Mark, Progress
from fastrec.loader.skipped_rows import check_limit
from fastrec.loader.stats import clock
from fastrec.loader.steps import Plan
from fastrec.loader.transform_pool import TransformPool
from fastrec.options import nearest

__all__ = ["BatchIterator", "check_columns_exist"]


class BatchIterator(Iterator[Any]):
    """One pass over an epoch. Its threads end when it is dropped.

    With `names`, batches are tuples of these columns. No thread refers to it, so dropping
    it is enough. No Python code runs then: see `fastrec.lifecycle`.

    A signal handler may raise anywhere in here: an interrupt. The order of batches is
    arithmetic, so the iterator then opens the epoch again, at the step of `progress`.
    """

    def __init__(
        self,
        options: LoaderOptions,
        progress: Progress,
        pool: _core.BlockPool,
        names: tuple[str | bytes, ...] | None = None,
    ) -> None:
        self._options = options
        self._progress = progress
        self._pool = pool
        self._names = names
        self._epoch = progress.mark.epoch
        self._records_before = progress.mark.n_records
        self._lock = threading.RLock()  # one thread at a time takes a batch
        self._is_closed = False
        self._is_finished = False
        self._is_forked = False
        self._error: Exception | None = None
        # The mark after the last batch of the source; None while a batch is on its way.
        self._mark: Mark | None = None
        self._plans: list[Plan | None] = []  # of this epoch, once it was opened
        self._decoding: Decoding | None = None
        self._threads: TransformPool | None = None
        self._source: Source | None = None  # of these two
        self._warnings: list[str | Warning] = []
        self._is_watching = True  # for columns that no record has
        self._largest_bytes = options.memory_limit  # of a batch, without a warning
        self._left_ns: int | None = None  # when the call before this one returned
        self._helping_ns = 0  # of the pipeline, that are counted already
        renew_after_fork(self)
        close_at_exit(self)

    def __next__(self) -> Any:  # noqa: ANN401 (a batch, or a tuple of its columns)
        # A second acquire would wait for a batch that waits for this call.
        if self._lock._is_owned() or (  # type: ignore[attr-defined]
            self._threads is not None and self._threads.is_own_thread()
        ):
            msg = (
                "cannot call next() of a loader inside its own transform: the batch "
                "would wait for itself. Read other records with ds[...] or another loader"
            )
            raise RuntimeError(msg)
        progress = self._progress
        before: Mark | None = None
        after: Mark | None = None
        try:
            with self._lock:
                while True:
                    before = progress.mark
                    delivered = self._advance(before)
                    while self._warnings:
                        warn_caller(self._warnings.pop(0))
                    if delivered is None:
                        raise StopIteration
                    after = progress.mark_after(*delivered[1:5])
                    # Another thread may have closed the iterator, or an interrupt may
                    # have restored the mark before its batch.
                    if progress.mark is before and not self._is_closed:
                        progress.mark = self._mark = after
                        return delivered.batch
        except Exception:
            raise
        except BaseException:
            # The batch did not reach the consumer. The next call sees that the mark is
            # not that of the source, and opens the epoch again. No call comes in between,
            # so a second interrupt finds all done or nothing.
            if before is not None and progress.mark is after:
                progress.mark = before
            raise

    def _advance(self, at: Mark) -> Delivered | None:
        """Return the next batch; None when the epoch ends."""
        if self._is_closed or self._is_finished or at.epoch != self._epoch:
            self._raise_closed(at)
        entered_ns = clock()
        try:
            source = self._source if at is self._mark else self._open()
            self._mark = None
            assert source is not None
            delivered = source()
            if self._is_closed:
                self._raise_closed(at)
            if self._is_watching:
                self._watch(delivered)
            if delivered is None:
                self._finish(at)
                return None
            if delivered.n_bytes > self._largest_bytes:
                self._warn_of_size(delivered.n_bytes)
            if delivered.skipped:
                limit = self._options.max_errors
                check_limit(delivered.skipped, at.n_skipped, limit)
            if self._names is not None:
                chosen = _chosen(delivered.batch, self._names)
                delivered = delivered._replace(batch=chosen)
            return delivered
        except Exception as error:
            if self._is_closed:
                self._raise_closed(at)
            policy = self._options.view.files.on_error
            if isinstance(error, Error) and policy == "raise":
                advise_on_error(error)
            # Nothing comes after an error, so nothing is kept ready for it.
            self._error = error
            self.close()
            raise
        finally:
            times, left_ns = self._progress.times, clock()
            times.waiting_ns += left_ns - entered_ns
            if self._left_ns is None:
                times.starting_ns += left_ns - entered_ns
            else:
                times.consuming_ns += entered_ns - self._left_ns
            self._left_ns = left_ns
            # The threads of a transform pool help, whether the consumer waits or not.
            if self._decoding is not None and self._threads is None:
                helping_ns = self._decoding.pipeline.helping_ns
                times.helping_ns += helping_ns - self._helping_ns
                self._helping_ns = helping_ns

    def _open(self) -> Source:
        """Begin to read at the present step, and return where batches come from."""
        self._stop()
        if self._threads is not None:
            self._threads.wait()  # a transform is not called by more threads than asked for
        options, progress = self._options, self._progress
        if not self._plans:
            self._plans.append(planned(options, progress))
        decoding = Decoding(options, progress, self._pool, self._plans[0])
        self._decoding, self._helping_ns = decoding, 0
        if not progress.is_advised and (advice := options.advice()):
            progress.is_advised = True
            self._warnings.append(advice)
        source: Source = decoding.next
        threads = self._threads = None
        progress.times.n_transforming = min(options.n_transforming, options.n_staged)
        if options.n_transforming:
            threads = self._threads = TransformPool(
                decoding,
                is_per_row=options.is_per_row,
                n_threads=options.transform_threads,
                n_ahead=options.n_staged,
                owner=self,
            )
            source = threads.next
        if options.conversion is not None:
            stop = functools.partial(_stop, decoding, threads)
            source = Prefetcher(source, stop, options.conversion).next
        self._source = source
        return source

    def _finish(self, at: Mark) -> None:
        """End the epoch. An interrupt finds the loader before its end or after it."""
        self._progress.skipped.log(at.n_skipped, at.epoch)
        self._progress.move(at.epoch + 1)
        self._is_finished = True
        self.close()

    def _watch(self, delivered: Delivered | None) -> None:
        """Note columns that no record has."""
        source = self._options.view.source
        core = source.to_core()
        self._is_watching = core.is_watching
        n_delivered = self._progress.mark.n_records - self._records_before
        if delivered is not None:
            n_delivered += delivered.n_records
        schemas = [reading.schema for reading in source.readings()[0]]
        is_end = delivered is None
        warning = absence(core, schemas, n_delivered, is_end=is_end)
        if warning is not None:
            self._warnings.append(warning)

    def _warn_of_size(self, n_bytes: int) -> None:
        self._warnings.append(
            f"a single batch takes {n_bytes:,} bytes, more than memory_limit "
            f"({self._largest_bytes:,}): nothing is read ahead"
        )
        self._largest_bytes = n_bytes  # one warning is enough

    def _raise_closed(self, at: Mark) -> NoReturn:
        """Raise what ended this iterator."""
        is_closed = self._is_closed
        if self._is_finished or (not is_closed and at.epoch != self._epoch):
            raise StopIteration
        if self._error is not None:
            raise self._error
        if self._is_forked:
            msg = (
                "this iterator belongs to another process, which was forked: begin a new "
                "one here"
            )
            raise RuntimeError(msg)
        if is_exiting() and threading.current_thread() is not threading.main_thread():
            raise SystemExit  # which ends a thread without a message
        msg = (
            "this iterator was ended, by a later iter(loader) or by close(): a loader "
            "has one running epoch"
        )
        raise RuntimeError(msg)

    def close(self) -> None:
        """End the threads. A running epoch cannot be continued afterwards."""
        self._is_closed = True
        if not self._is_forked:
            self._stop()
        self._source = None

    def _stop(self) -> None:
        if self._decoding is not None:
            _stop(self._decoding, self._threads)

    def _renew_after_fork(self) -> None:
        """Leave threads and locks to the parent process."""
        self._is_forked = self._is_closed = True
        self._lock = threading.RLock()

    def _close_at_exit(self) -> None:
        self.close()


def _stop(decoding: Decoding, threads: TransformPool | None) -> None:
    """End the threads of both."""
    decoding.pipeline.stop()
    if threads is not None:
        threads.close()


def _chosen(batch: Batch, names: tuple[str | bytes, ...]) -> Any:  # noqa: ANN401
    check_columns_exist(names, batch)
    columns: dict[Any, Any] = batch
    return tuple(columns[name] for name in names)


def check_columns_exist(names: Iterable[object], columns: Iterable[object]) -> None:
    """Raise a KeyError unless all `names` are among `columns`."""
    known = list(columns)
    for name in names:
        if name not in known:
            meant = nearest(str(name), [str(column) for column in known])
            hint = "." if meant is None else f"; did you mean {meant!r}?"
            msg = f"no column {name!r}{hint} Batches have {', '.join(map(repr, known))}"
            raise KeyError(msg)
