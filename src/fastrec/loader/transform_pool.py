"""Transform pool: threads that transform batches, which keep their order."""

from __future__ import annotations

import _thread
import threading
import weakref
from collections import deque
from functools import partial
from queue import SimpleQueue
from typing import Any

from fastrec.lifecycle import close_at_exit
from fastrec.loader.decoding import Decoded, Decoding
from fastrec.loader.prefetch import Delivered
from fastrec.tasks import Task, TaskPool, start

__all__ = ["TransformPool"]


class TransformPool:
    """Transforms the batches of `decoding` in background threads.

    Each batch is two tasks: one takes its rows, in the order of the batches, and one
    transforms them. If all transforms are made by `per_row`, one thread drives the
    batches and the others share the rows of each. The threads end once `owner` is
    dropped.
    """

    def __init__(
        self,
        decoding: Decoding,
        *,
        is_per_row: bool,
        n_threads: int,
        n_ahead: int,
        owner: object,
    ) -> None:
        self._decoding = decoding
        self._n_threads = 1 if is_per_row else n_threads
        self._n_ahead = n_ahead
        self._rows = TaskPool(n_threads - 1) if is_per_row and n_threads > 1 else None
        self._batches: deque[Task[Delivered | None]] = deque()
        # Pairs of tasks; anything else ends the threads.
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._turn = threading.Lock()  # one thread at a time takes rows
        self._workers: list[Task[None]] = []
        self._idents: set[int] = set()
        self._is_closed = False
        # The callback wakes a thread. It is a C function: see `fastrec.lifecycle`.
        self._owner = weakref.ref(owner, self._queue.put)
        close_at_exit(self)

    def is_own_thread(self) -> bool:
        """Return whether the calling thread runs the transforms of this pool."""
        ident = _thread.get_ident()
        return ident in self._idents or (
            self._rows is not None and ident in self._rows.idents
        )

    def next(self) -> Delivered | None:
        """Return the next batch, or None at the end or if the pool was closed."""
        while len(self._workers) < self._n_threads:
            worker = Task(self._work)
            self._workers.append(worker)
            start(worker)
        last_bytes = max(1, self._decoding.last_bytes)
        n_affordable = self._decoding.staged_bytes // last_bytes
        while len(self._batches) < max(1, min(self._n_ahead, n_affordable)):
            taken = Task(self._decoding.take)
            batch = Task(partial(_transformed, self._decoding, taken, self._rows))
            self._batches.append(batch)
            self._queue.put((taken, batch))
        first = self._batches[0]
        while not first.wait():
            if self._is_closed:
                return None
        self._batches.popleft()
        return first.result()

    def close(self) -> None:
        """End the threads as soon as their transforms return."""
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
        while self._make_batch():
            pass
        self._idents.discard(ident)
        if self._rows is not None:
            self._rows.stop()

    def _make_batch(self) -> bool:
        """Make the next batch, and return whether others may follow."""
        with self._turn:
            tasks = self._queue.get()
            if self._is_closed or self._owner() is None or not isinstance(tasks, tuple):
                self._queue.put(None)  # for the other threads
                return False
            taken, batch = tasks
            taken.run()
        batch.run()
        return True


# No method of the pool: the tasks would keep it alive, and it the tasks.
def _transformed(
    decoding: Decoding, taken: Task[Decoded | None], threads: TaskPool | None
) -> Delivered | None:
    return decoding.collate(taken.result(), threads)
