"""Write queue: tasks with a bounded number of bytes in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from fastrec.tasks import Task, TaskPool, run_registered

_T = TypeVar("_T")

_MAX_BYTES_IN_FLIGHT = 64 << 20
# Also limits the tasks that end a shard, which have no bytes but an open file.
_MAX_TASKS_IN_FLIGHT = 128


class WriteQueue:
    """Runs tasks on threads until one fails; `failures` lists the errors in order."""

    def __init__(self, n_threads: int, *, at_end: Callable[[], object]) -> None:
        self._n_threads = n_threads
        self.pool = TaskPool(n_threads, at_end=at_end)
        self.removal = partial(run_registered, self.pool.ending)
        self.failures: list[BaseException] = []
        self._in_flight: deque[tuple[Task[None], int]] = deque()

    def submit(self, task: Callable[[], object], n_bytes: int) -> None:
        """Submit a task that holds `n_bytes`; wait while too much is in flight."""
        if self._n_threads == 0:
            task()
            return
        while self._in_flight and (
            self._in_flight[0][0].is_done
            or len(self._in_flight) >= _MAX_TASKS_IN_FLIGHT
            or sum(n for _, n in self._in_flight) + n_bytes > _MAX_BYTES_IN_FLIGHT
        ):
            self._wait_for_first()
        self._raise_failure()
        done = self.pool.submit(partial(_attempt, task, self.failures))
        self._in_flight.append((done, n_bytes))

    def spread(self, tasks: Iterator[Callable[[], _T]]) -> Iterator[_T]:
        """Run tasks concurrently and yield their results in order."""
        if self._n_threads < 2:
            for task in tasks:
                yield task()
            return
        in_flight: deque[Task[_T]] = deque()
        try:
            for task in tasks:
                in_flight.append(self.pool.submit(task))
                if len(in_flight) > self._n_threads:
                    yield in_flight.popleft().result()
            while in_flight:
                yield in_flight.popleft().result()
        finally:
            # The caller may reuse the arrays when this returns.
            for waited in in_flight:
                while not waited.wait():
                    pass

    def wait(self) -> None:
        """Wait for all tasks; raise the error of the first that failed."""
        while self._in_flight:
            self._wait_for_first()
        self._raise_failure()

    def _wait_for_first(self) -> None:
        self._in_flight[0][0].result()
        self._in_flight.popleft()

    def _raise_failure(self) -> None:
        if self.failures:
            raise self.failures[0]


def _attempt(task: Callable[[], object], failures: list[BaseException]) -> None:
    """Run a task unless an earlier one has failed; record its error."""
    if failures:
        return
    try:
        task()
    except BaseException as failure:  # noqa: BLE001 (raised by submit and wait)
        failures.append(failure)
