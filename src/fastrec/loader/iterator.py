"""Iterations: one pass of a loader over an epoch, from the core to the consumer."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.caller_warnings import warn_caller
from fastrec.errors import Error, advise_on_error
from fastrec.features.missing import absence
from fastrec.loader.collate import Assembly, Parts
from fastrec.loader.prefetch import Ahead, Forget, Source
from fastrec.loader.stats import clock
from fastrec.loader.steps import Plan, padded
from fastrec.loader.streaming import streamed_plan, streaming_pipeline
from fastrec.loader.transforms import (
    BatchOrigin,
    Decoded,
    Delivered,
    Stage,
    is_stage_of_this_thread,
    wait_for_threads,
)
from fastrec.on_error import Loss, log_gaps, recovery_of
from fastrec.options import nearest
from fastrec.sources.places import Places

if TYPE_CHECKING:
    from fastrec.loader.loader import Loader, Mark

__all__ = ["BatchIterator", "Decoding", "check_columns_exist"]

# The parts of a batch, where it comes from, its step, its records, its memory, and the
# rows that were skipped or masked.
_Found: TypeAlias = "tuple[Parts, BatchOrigin | None, int, int, int, Sequence[Loss]]"


class Decoding:
    """What a pipeline delivers, step by step, and where in the training run it stands."""

    def __init__(
        self, loader: Loader, assembly: Assembly, *, n_ahead: int, memory_limit: int
    ) -> None:
        view, planner = loader._dataset._view, loader._planner
        on_error = loader._dataset.on_error
        self._assembly = assembly
        self._needs_origin = assembly.needs_origin
        # Errors of functions that are called for a batch name its records.
        self._needs_places = not assembly.is_plain or loader._feed is not None
        self._source = view.source
        self._seed = loader._seed
        self._epoch = loader._epoch
        self._memory_limit = loader._memory_limit
        self._last_bytes = 0
        self.warnings: list[str | Warning] = []  # that the consumer issues
        self._is_watching = True  # for columns that no record has
        self._n_watched = 0  # records so far
        self._judge = loader._judge()
        self._found: _Found | None = None  # which was judged, and nobody took yet
        self._may_have_gaps = False  # that nobody has told of
        self._plan: Plan | None = None
        self._walk_batch_size = planner.global_batch_size
        if view.files.is_streamed:
            if not view.is_walkable:
                view.files.check_random_access("a mix or a choice of records")
            self._plan = streamed_plan(loader, is_plain=assembly.is_plain)
            self._pipeline = streaming_pipeline(
                loader,
                self._plan,
                n_ahead=n_ahead,
                memory_limit=memory_limit,
                on_damage=self._judge.on_damage,
            )
            self._may_have_gaps = on_error != "raise" and self._plan is None
            return
        # A walk through the files needs no index, so its first batch comes at once.
        may_walk = planner.is_file_order and view.is_walkable and not loader._step
        may_walk = may_walk and not callable(on_error)  # which is asked before
        if not may_walk or view.is_indexed():
            self._plan = loader._plan()
        self._pipeline = _core.Pipeline(
            view.source.of_core(),
            None if self._plan is None else view.catalog(),
            None if self._plan is None else self._plan.order,
            planner.walk_grid() if self._plan is None else self._plan.grid,
            loader._step,
            loader._pool,
            n_threads=loader._num_threads,
            prefetch=n_ahead,
            memory_limit=memory_limit,
            on_damage=self._judge.on_damage,
            recovery=recovery_of(on_error),
        )
        self._may_have_gaps = on_error != "raise" and self._plan is None

    def stop(self) -> None:
        """End the threads."""
        self._pipeline.stop()

    def batch_bytes(self) -> int:
        """The memory of the last batch, which the next may well take too."""
        return self._last_bytes

    @property
    def helping_ns(self) -> int:
        """Nanoseconds of decoding in the threads that asked for a batch."""
        return self._pipeline.helping_ns

    def next(self) -> Delivered | None:
        """Return the next batch, if nobody transforms it; None at the end.

        This and `next_with_origin` return the same batch until `forget` is called.
        """
        found = self._next()
        if found is None:
            return None
        parts, info, step, n_records, n_bytes, losses = found
        batch = self._assembly(parts, info)
        places = self._places(step) if self._needs_places else None
        return Delivered(batch, step, n_records, n_bytes, losses, places)

    def next_with_origin(self) -> Decoded | None:
        """Return what the assembly makes the next batch of; None at the end."""
        found = self._next()
        if found is None:
            return None
        parts, info, _, n_records, n_bytes, losses = found
        assert info is not None
        return Decoded(parts, info, n_records, n_bytes, losses)

    def _next(self) -> _Found | None:
        if self._found is not None:
            return self._found
        found = self._pipeline.next()
        if self._may_have_gaps:
            # A signal may interrupt this: then gaps are logged again, and none is lost.
            log_gaps(self._pipeline.gaps())
            self._pipeline.forget_gaps()
        if self._is_watching:
            self._look_for_absence(None if found is None else found[3])
        if found is None:
            return None
        parts, step, n_rows, n_valid, n_bytes, damages = found
        if n_bytes != self._last_bytes:
            self._look_at(n_bytes)
        info = self._origin(step, n_rows, n_valid) if self._needs_origin else None
        if not damages:
            return parts, info, step, n_valid, n_bytes, ()
        parts, verdict = self._judge.judge(parts, damages)
        info = None if info is None else verdict.applied_to(info)
        n_records = n_valid - len(damages)
        self._found = parts, info, step, n_records, n_bytes, verdict.losses
        return self._found

    def take_with_origin(self) -> Decoded | None:
        """Return the next batch and forget it: for threads, which get no signals."""
        found = self.next_with_origin()
        self.forget()
        return found

    def forget(self) -> None:
        """Let go of the batch that was returned last. Does nothing the next time."""
        self._pipeline.forget()
        self._found = None

    def _origin(self, step: int, n_rows: int, n_valid: int) -> BatchOrigin:
        if self._plan is not None:
            positions, records = self._plan.rows(step)
        else:
            first = step * self._walk_batch_size
            numbers = np.arange(first, first + n_valid, dtype=np.int64)
            positions, records = padded(numbers, numbers.copy(), n_rows)
        places = self._places(step).padded(n_rows) if self._needs_places else None
        return BatchOrigin(
            *(self._seed, self._epoch, step, positions, records), _places=places
        )

    def _places(self, step: int) -> Places:
        context = f" of step {step} of epoch {self._epoch}"
        return Places(self._source.files.files, self._pipeline.places(), context)

    def _look_for_absence(self, n_records: int | None) -> None:
        """Note columns that no record has; `n_records` are those of a batch, if any."""
        self._is_watching = self._source.of_core().is_watching
        is_end = n_records is None
        self._n_watched += n_records or 0
        schemas = [reading.schema for reading in self._source.readings()[0]]
        n_watched = self._n_watched if is_end else None
        warning = absence(self._source.of_core(), schemas, n_watched)
        if warning is not None:
            self.warnings.append(warning)

    def _look_at(self, n_bytes: int) -> None:
        self._last_bytes = n_bytes
        if n_bytes <= self._memory_limit:
            return
        self.warnings.append(
            f"a single batch takes {n_bytes:,} bytes, more than memory_limit "
            f"({self._memory_limit:,}): nothing is read ahead"
        )
        self._memory_limit = n_bytes  # once is enough


class BatchIterator(Iterator[Any]):
    """One pass over an epoch. Ends its threads when it is dropped.

    With `names`, batches are tuples of these columns.

    Nothing that runs in a thread refers to it, so dropping it is enough. No Python code
    runs then: Python ignores what a signal raises there, and Ctrl-C would be lost.

    A signal may raise an exception anywhere in here, such as a KeyboardInterrupt. No
    batch is lost by it: one that did not reach the consumer is the next again.
    """

    def __init__(
        self, loader: Loader, names: tuple[str | bytes, ...] | None = None
    ) -> None:
        self._loader = loader
        self._names = names
        self._epoch = loader._epoch
        self._lock = threading.RLock()  # one thread at a time takes a batch
        self._is_closed = False
        self._is_finished = False
        self._error: Exception | None = None
        self._kept: Delivered | None = None  # the next batch, which a signal kept here
        self._is_forked = False
        self._decoding: Decoding | None = None
        self._stage: Stage | None = None
        self._ahead: Ahead | None = None
        self._next: Source | None = None
        self._forget_source: Forget | None = None
        self._tally = loader._tally
        self._left_ns: int | None = None  # when the call before this one returned
        self._helping_ns = 0  # that are counted already
        _remember(self)

    def __next__(self) -> Any:  # noqa: ANN401 (a batch, or a tuple of its columns)
        delivered = mark = None
        # A second acquire would wait for a batch that waits for this call. The lock knows
        # its owner; a flag of ours could be stale after a signal.
        if self._lock._is_owned() or (  # type: ignore[attr-defined]
            self._stage is not None and is_stage_of_this_thread(self._stage)
        ):
            msg = (
                "cannot call next() of a loader inside its own transform: the batch "
                "would wait for itself. Read other records with ds[...] or another loader"
            )
            raise RuntimeError(msg)
        try:
            with self._lock:
                delivered = self._advance()
                while self._decoding is not None and self._decoding.warnings:
                    warn_caller(self._decoding.warnings.pop(0))
                if delivered is not None:
                    # Another thread may have moved the loader meanwhile.
                    self._refuse_if_closed()
                    result = delivered.batch
                    if self._names is not None:
                        result = _chosen(result, self._names)
                    mark = self._loader._mark()
                    self._loader._delivered(delivered)
                    self._forget(delivered)
                    return result
                self._loader._finished(self._epoch)
                self._is_finished = True
                self.close()
        except BaseException:
            if delivered is not None:
                self._take_back(delivered, mark)
            raise
        raise StopIteration

    def _advance(self) -> Delivered | None:
        if self._is_finished:
            raise StopIteration
        if self._error is not None:
            raise self._error
        self._refuse_if_closed()
        if self._kept is not None:
            return self._kept
        entered_ns = clock()
        try:
            kept = self._start() if self._next is None else self._next()
            if kept is not None and kept.losses:
                self._loader._check(kept.losses)
            self._kept = kept
        except Exception as error:
            self._refuse_if_closed()
            if isinstance(error, Error) and self._loader.dataset.on_error == "raise":
                advise_on_error(error)
            # Nothing comes after an error, so nothing is kept ready for it.
            self._error = error
            self.close()
            raise
        except BaseException:
            if self._stage is not None and self._stage.is_dirty:
                self._next = None  # begin anew, with this batch
            raise
        finally:
            tally, left_ns = self._tally, clock()
            tally.waiting_ns += left_ns - entered_ns
            if self._left_ns is None:
                tally.starting_ns += left_ns - entered_ns
            else:
                tally.consuming_ns += entered_ns - self._left_ns
            self._left_ns = left_ns
        if self._kept is None:
            self._refuse_if_closed()
        self.count_helping()
        return self._kept

    def _forget(self, delivered: Delivered) -> None:
        """Let go of a batch that is the consumer's now."""
        if self._forget_source is not None:
            self._forget_source(delivered)
        self._kept = None

    def _take_back(self, delivered: Delivered, mark: Mark | None) -> None:
        """Make a batch the next one that did not reach the consumer."""
        with self._lock:
            self._kept = delivered
            if mark is not None and not self._is_closed:
                self._loader._back_to(mark)

    def count_helping(self) -> None:
        """Add to the tally what the core has counted since the last time."""
        # Behind a stage with threads, those help, whether the consumer waits or not.
        if self._decoding is None or self._is_closed or self._tally.n_transforming:
            return
        helping_ns = self._decoding.helping_ns
        self._tally.helping_ns += helping_ns - self._helping_ns
        self._helping_ns = helping_ns

    def _refuse_if_closed(self) -> None:
        if self._is_forked:
            msg = (
                "this iterator belongs to another process, which was forked: begin a new "
                "one here"
            )
            raise RuntimeError(msg)
        if self._is_closed:
            if (
                _is_at_exit
                and threading.current_thread() is not threading.main_thread()
            ):
                raise SystemExit  # which ends a thread without a word
            msg = (
                "this iterator was ended, by a later iter(loader) or by close(): a loader "
                "has one running epoch"
            )
            raise RuntimeError(msg)

    def leave_to_parent(self) -> None:
        """End in a process that was forked: threads and locks are not of this one."""
        self._is_forked = True
        self._lock = threading.RLock()

    def close(self) -> None:
        """End the threads. A running epoch cannot be continued afterwards."""
        if self._is_forked:
            return
        self.count_helping()
        self._is_closed = True
        if self._decoding is not None:
            _stop(self._decoding, self._stage)
        if self._ahead is not None:
            self._ahead.close()

    def _start(self) -> Delivered | None:
        loader = self._loader
        assembly = loader._assembly()
        self._helping_ns = 0
        # The pipeline and the stage behind it share the batches ahead.
        n_ahead, memory_limit = loader._prefetch, loader._memory_limit
        n_staged = loader._staged()
        has_stage = n_staged > 0
        staged_limit = memory_limit // 2 if has_stage else 0
        decoding = self._decoding = Decoding(
            loader,
            assembly,
            n_ahead=max(1, n_ahead - n_staged),
            memory_limit=max(1, memory_limit - staged_limit),
        )
        if advice := loader._advice():
            decoding.warnings.append(advice)
        source: Source = decoding.next
        if not assembly.is_plain:
            self._stage = Stage(
                decoding.take_with_origin if has_stage else decoding.next_with_origin,
                functools.partial(
                    assembly.lossy,
                    on_error=loader._on_transform_error,
                    keeps_shape=loader.pad_last,
                ),
                shares_rows=loader._is_per_row,
                n_threads=loader._transform_threads,
                n_ahead=max(1, n_staged),
                memory_limit=staged_limit,
                batch_bytes=decoding.batch_bytes,
                tally=self._tally,
                owner=self,
            )
            source = self._stage.next
            self._tally.n_transforming = min(self._stage.n_transforming, n_staged)
        # No method of the iterator: it would refer to itself, and outlive being dropped.
        forget: Forget = functools.partial(_forget, decoding, self._stage)
        if loader._feed is not None:
            stop = functools.partial(_stop, decoding, self._stage)
            self._ahead = Ahead(source, forget, stop, loader._feed)
            source, forget = self._ahead.next, self._ahead.forget
        # Last of all, since a signal may come before, and everything is begun anew.
        self._forget_source = forget
        self._next = source
        return self._next()


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
            there = ", ".join(map(repr, known))
            msg = f"no column {name!r}{hint} Batches have {there}"
            raise KeyError(msg)


def _forget(decoding: Decoding, stage: Stage | None, delivered: Delivered) -> None:
    """Let go of a batch that came from `stage`, or from `decoding` where there is none."""
    if stage is None or not stage.n_transforming:
        decoding.forget()
    # Last: until then a signal has the batch decoded anew, for what the transform did.
    if stage is not None:
        stage.forget(delivered)


def _stop(decoding: Decoding, stage: Stage | None) -> None:
    """End the threads of both."""
    decoding.stop()
    if stage is not None:
        stage.close()


# Iterators that may have threads: they end before the interpreter does. References
# without a callback, which would be Python code that runs when one is dropped.
_iterators: list[weakref.ref[BatchIterator]] = []


def _remember(iterator: BatchIterator) -> None:
    _iterators[:] = [known for known in _iterators if known() is not None]
    _iterators.append(weakref.ref(iterator))


def _remembered() -> list[BatchIterator]:
    return [found for known in _iterators if (found := known()) is not None]


_is_at_exit = False


def _close_all() -> None:
    global _is_at_exit
    _is_at_exit = True
    for iterator in _remembered():
        iterator.close()
    wait_for_threads()


def _leave_after_fork() -> None:
    for iterator in _remembered():
        iterator.leave_to_parent()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_after_fork)
