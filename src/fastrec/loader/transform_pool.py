"""TransformPool: threads that transform batches and keep their order."""

from __future__ import annotations

import _thread
import threading
import weakref
from collections import deque
from functools import partial
from queue import SimpleQueue
from typing import Any

from fastrec import _core
from fastrec.lifecycle import close_at_exit
from fastrec.loader.decoder import BatchDecoder, DecodedBatch
from fastrec.loader.prefetch import Delivered
from fastrec.tasks import Task, TaskPool, start

__all__ = ["TransformPool"]


class TransformPool:
    """Transforms the batches of `decoder` in background threads.

    A batch takes two tasks: the first takes the decoded rows, in the order of batches, and
    the second transforms them. With `shares_rows`, one thread runs these tasks and the
    others share the rows of each batch, in transforms by row. The threads stop when
    `owner` is garbage-collected.
    """

    def __init__(
        self,
        decoder: BatchDecoder,
        *,
        shares_rows: bool,
        n_threads: int,
        n_ahead: int,
        owner: object,
    ) -> None:
        self._decoder = decoder
        self._n_threads = 1 if shares_rows else n_threads
        self._n_ahead = n_ahead
        self._rows = TaskPool(n_threads - 1) if shares_rows and n_threads > 1 else None
        self._batches: deque[Task[Delivered | None]] = deque()
        # Pairs of tasks; any other item stops the threads.
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._take_lock = threading.Lock()  # one thread at a time takes rows
        self._workers: list[Task[None]] = []
        self._idents: set[int] = set()
        self._is_closed = False
        # The callback wakes a thread. It must be a C function; see `fastrec.lifecycle`.
        self._owner = weakref.ref(owner, self._queue.put)
        close_at_exit(self)

    def is_own_thread(self) -> bool:
        """Return whether the calling thread belongs to this pool."""
        ident = _thread.get_ident()
        return ident in self._idents or (
            self._rows is not None and ident in self._rows.idents
        )

    def next(self) -> Delivered | None:
        """Return the next batch; None at the end, or if the pool is closed."""
        while len(self._workers) < self._n_threads:
            worker = Task(self._work)
            self._workers.append(worker)
            start(worker)
        last_bytes = max(1, self._decoder.last_bytes)
        n_affordable = self._decoder.transform_pool_bytes // last_bytes
        while len(self._batches) < max(1, min(self._n_ahead, n_affordable)):
            take = Task(self._decoder.take)
            transform = Task(partial(_transformed, self._decoder, take, self._rows))
            self._batches.append(transform)
            self._queue.put((take, transform))
        first = self._batches[0]
        while not first.wait():
            if self._is_closed:
                return None
        self._batches.popleft()
        return first.result()

    def close(self) -> None:
        """Stop the threads when their current transforms return."""
        self._is_closed = True
        self._queue.put(None)

    def wait(self) -> None:
        """Wait for the threads of a closed pool."""
        for worker in self._workers:
            worker.cancel()  # if an interrupt came before its thread was started
            while not worker.wait():
                pass

    def _close_at_exit(self) -> None:
        self.close()
        self.wait()

    def _work(self) -> None:
        ident = _thread.get_ident()
        self._idents.add(ident)
        while self._run_next():
            pass
        self._idents.discard(ident)
        if self._rows is not None:
            self._rows.stop()

    def _run_next(self) -> bool:
        """Run the tasks of the next batch; return False to stop the thread."""
        with _core.HeldLock(self._take_lock):
            tasks = self._queue.get()
            if self._is_closed or self._owner() is None or not isinstance(tasks, tuple):
                self._queue.put(None)  # stops the other threads
                return False
            take, transform = tasks
            take.run()
        transform.run()
        return True


# Not a method, because the tasks and the pool would form a reference cycle.
def _transformed(
    decoder: BatchDecoder, take: Task[DecodedBatch | None], threads: TaskPool | None
) -> Delivered | None:
    return decoder.collate(take.result(), threads)
