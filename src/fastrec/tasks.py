"""Tasks: functions that threads run for a caller that a signal may interrupt anywhere.

A signal handler runs in the main thread between two steps of Python code, and it may
raise. `Thread.start`, `Condition` and `concurrent.futures` are Python code that holds
locks: a handler that raises there leaves them locked, or leaves a thread that no pool
knows. So the caller shares with the threads only objects whose single calls are atomic,
and it starts threads by one such call. Work that must not be interrupted, such as
removing files, is a task, too: signals never reach the thread that runs it.
"""

from __future__ import annotations

import _thread
import contextlib
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

from fastrec.lifecycle import close_at_exit, renew_after_fork

__all__ = ["CancelledError", "Task", "TaskPool", "start"]

_T = TypeVar("_T")

# A second thread that waits for the same task looks this often.
_SECONDS_BETWEEN_LOOKS = 0.05


class CancelledError(Exception):
    """The task was cancelled."""


class Task(Generic[_T]):
    """A function that is called once, by the first thread that runs the task."""

    def __init__(self, function: Callable[[], _T]) -> None:
        self._functions = [function]  # empty once a thread runs or cancels the task
        self._result: _T | None = None
        self._error: BaseException | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()
        self.is_done = False

    @property
    def is_begun(self) -> bool:
        """Whether a thread has begun to run the task, or it was cancelled."""
        return not self._functions

    def run(self) -> None:
        """Call the function, unless another thread has begun."""
        try:
            function = self._functions.pop()
        except IndexError:
            return
        try:
            self._result = function()
        except BaseException as error:  # noqa: BLE001 (`result` raises it)
            self._error = error
        # And what it holds, before a waiter continues. It must not be an argument: in
        # Python 3.10, the caller holds those until the call returns.
        del function
        self._finish()

    def cancel(self) -> None:
        """Make `result` raise a CancelledError, unless a thread has begun."""
        with contextlib.suppress(IndexError):
            self._functions.pop()
            self._error = CancelledError()
            self._finish()

    def _finish(self) -> None:
        self.is_done = True
        self._done.release()

    def wait(self, seconds: float = _SECONDS_BETWEEN_LOOKS) -> bool:
        """Wait for at most this long, and return whether the task is done."""
        return self.is_done or self._done.acquire(timeout=seconds)

    def result(self) -> _T:
        """Wait for the task, and return or raise what its function did."""
        while not self.wait():
            pass
        if self._error is not None:
            raise self._error
        return cast("_T", self._result)


def start(task: Task[_T]) -> None:
    """Run a task in a new thread; raise a RuntimeError if the system has none left."""
    # One call of C, unlike `Thread.start`: the thread runs, or it does not exist.
    _thread.start_new_thread(task.run, ())


class _Endings:
    """The endings of pools that were dropped, which the interpreter waits for at exit."""

    def __init__(self) -> None:
        self.tasks: deque[Task[None]] = deque()
        close_at_exit(self)
        renew_after_fork(self)

    def _close_at_exit(self) -> None:
        # A thread that returns from the core to an interpreter that has ended would abort.
        for task in list(self.tasks):
            task.run()
            task.result()

    def _renew_after_fork(self) -> None:
        self.tasks.clear()
        close_at_exit(self)


_endings = _Endings()


class TaskPool:
    """Threads that run tasks in the order of `submit`.

    `stop` first calls `cancel`, which asks running tasks to end early, and last, when no
    task is running, `at_end`. A pool that is garbage before it was stopped does so, too.
    """

    # What a thread runs for `stop`; a done one until the pool is initialised.
    ending: Task[None] = Task(lambda: None)
    ending.run()

    def __init__(
        self,
        n_threads: int,
        *,
        cancel: Callable[[], object] | None = None,
        at_end: Callable[[], object] | None = None,
    ) -> None:
        self.n_threads = n_threads
        self._process = os.getpid()
        self._queue: SimpleQueue[Task[Any] | None] = SimpleQueue()
        self._tasks: deque[Task[Any]] = deque()
        self._workers: list[Task[None]] = []
        self.idents: set[int] = set()  # of the threads
        self.ending = Task(
            partial(
                _end,
                self._process,
                self._queue,
                self._tasks,
                self._workers,
                self.idents,
                cancel,
                at_end,
            )
        )
        close_at_exit(self)
        while _endings.tasks and _endings.tasks[0].is_done:
            _endings.tasks.popleft()

    def submit(self, function: Callable[[], _T]) -> Task[_T]:
        """Queue a call of `function`; raise a RuntimeError if there is no thread."""
        task = Task(function)
        while self._tasks and self._tasks[0].is_done:
            self._tasks.popleft()
        self._tasks.append(task)
        self._queue.put(task)
        if len(self._workers) < self.n_threads:
            worker = Task(partial(_work, self._queue, self.idents))
            self._workers.append(worker)
            try:
                start(worker)
            except RuntimeError:
                if len(self._workers) == 1:
                    raise
        return task

    @property
    def is_ending(self) -> bool:
        """Whether the work of `stop` has begun, or is done."""
        return self.ending.is_begun

    def stop(self) -> None:
        """Cancel the tasks that have not begun, and wait for the others.

        A signal interrupts only the waiting.
        """
        if self.ending.is_done or os.getpid() != self._process:
            return  # a fork has none of the threads
        try:
            start(self.ending)
        except RuntimeError:
            self.ending.run()
        # A thread of this pool gets here if it collects garbage: it cannot wait for itself.
        if _thread.get_ident() not in self.idents:
            self.ending.result()

    def _close_at_exit(self) -> None:
        self.stop()

    def __del__(self) -> None:
        # Python ignores what a signal raises here, so there is hardly a step.
        if not self.ending.is_begun:
            _endings.tasks.append(self.ending)
            _thread.start_new_thread(self.ending.run, ())


def _work(queue: SimpleQueue[Task[Any] | None], threads: set[int]) -> None:
    threads.add(_thread.get_ident())
    while (task := queue.get()) is not None:
        task.run()
        del task  # and its result, before the next one comes
    queue.put(None)  # for the other threads


def _end(
    process: int,
    queue: SimpleQueue[Task[Any] | None],
    tasks: deque[Task[Any]],
    workers: list[Task[None]],
    threads: set[int],
    cancel: Callable[[], object] | None,
    at_end: Callable[[], object] | None,
) -> None:
    if os.getpid() != process:
        return
    threads.add(_thread.get_ident())
    if cancel is not None:
        cancel()
    for task in list(tasks):
        task.cancel()
    queue.put(None)
    for worker in list(workers):
        worker.cancel()  # if its thread has not begun, or does not exist
        while not worker.wait():
            pass
    if at_end is not None:
        at_end()
