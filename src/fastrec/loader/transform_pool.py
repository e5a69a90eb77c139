"""TransformPool: threads that transform batches and keep their order."""

from __future__ import annotations

import _thread
import threading
import weakref
from collections import deque
from functools import partial
from typing import Any

from fastrec import _core
from fastrec.loader.batch_reader import KeptDecoder
from fastrec.loader.decoder import BatchDecoder
from fastrec.loader.options import LoaderOptions
from fastrec.loader.prefetch import Delivered
from fastrec.tasks import Task, TaskPool


class TransformPool:
    """The threads that transform the batches of a loader, in all epochs.

    If ``options.shares_rows`` is true, one thread transforms batches, and the other
    threads share the rows of each batch in per-row transforms.
    """

    def __init__(self, options: LoaderOptions) -> None:
        n_threads, shares_rows = options.transform_threads, options.shares_rows
        self._n_for_batches = 1 if shares_rows else n_threads
        self._n_for_rows = n_threads - self._n_for_batches
        self._lock = threading.Lock()
        self._pools: tuple[TaskPool, TaskPool | None] | None = None

    def task_pools(self) -> tuple[TaskPool, TaskPool | None]:
        """Return the pools for batches and rows; the second is None if it is unused."""
        with _core.HeldLock(self._lock):
            if self._pools is None:
                rows = TaskPool(self._n_for_rows) if self._n_for_rows else None
                # The traceback of an error in a transform may keep `rows` alive.
                at_end = None if rows is None else rows.stop
                self._pools = TaskPool(self._n_for_batches, at_end=at_end), rows
            return self._pools

    @staticmethod
    def owns_thread(pool: TransformPool | None) -> bool:
        """Return whether the calling thread belongs to `pool`."""
        ident = _thread.get_ident()
        pools = () if pool is None else pool._pools or ()
        return any(threads and ident in threads.idents for threads in pools)

    def close(self) -> None:
        """Stop each thread as soon as its current transform returns."""
        self._pools = None


class TransformedBatches:
    """The batches of `decoder`, transformed by the threads of `pool`, in order.

    Each batch has two tasks: the first takes the decoded rows, in batch order, and the
    second transforms the rows. Threads skip the remaining batches after this object is
    closed or garbage-collected.
    """

    def __init__(
        self, decoder: BatchDecoder | KeptDecoder, pool: TransformPool, *, n_ahead: int
    ) -> None:
        self._decoder = decoder
        self._pools: tuple[TaskPool, TaskPool | None] | None = pool.task_pools()
        self._n_ahead = n_ahead
        self._batches: deque[Task[Delivered | None]] = deque()
        self._pending: deque[tuple[Task[Any], Task[Any]]] = deque()  # not begun
        self._take_lock = threading.Lock()  # one thread at a time takes rows

    def next(self) -> Delivered | None:
        """Return the next batch; None at the end of the epoch or after `close`."""
        self._submit()
        while self._pools is not None:
            if self._batches[0].wait():
                return self._batches.popleft().result()
        return None

    # Not a part of `next`: the traceback of an error would keep the threads alive.
    def _submit(self) -> None:
        """Submit tasks until the limit on batches or on memory is reached."""
        if (pools := self._pools) is None:
            return
        threads, rows = pools
        if threads.is_ending:
            raise RuntimeError("cannot transform batches during interpreter exit")
        last_bytes = max(1, self._decoder.last_bytes)
        n_affordable = self._decoder.transform_pool_bytes // last_bytes
        while len(self._batches) < max(1, min(self._n_ahead, n_affordable)):
            take = Task(self._decoder.take)
            transform = Task(partial(_transformed, self._decoder, take, rows))
            self._batches.append(transform)
            self._pending.append((take, transform))
            threads.submit(partial(_run_next, weakref.ref(self), self._take_lock))

    def close(self) -> None:
        """Skip the batches whose transforms have not begun."""
        self._pools = None


def _run_next(ref: weakref.ref[TransformedBatches], take_lock: threading.Lock) -> None:
    """Run both tasks of the next batch, unless the batches were closed."""
    with _core.HeldLock(take_lock):
        batches = ref()
        if batches is None or batches._pools is None:
            return
        take, transform = batches._pending.popleft()
        del batches  # a thread must not keep an abandoned epoch alive
        take.run()
    transform.run()


# Not a method, because the tasks and their owner would form a reference cycle.
def _transformed(
    decoder: BatchDecoder | KeptDecoder, take: Task[Any], threads: TaskPool | None
) -> Delivered | None:
    return decoder.collate(take.result(), threads)
