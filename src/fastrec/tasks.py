"""Thread pools that stay consistent if a signal handler raises at any point.

Python runs signal handlers in the main thread, between any two bytecodes.
`Thread.start`, `Condition` and `concurrent.futures` are Python code that holds locks; a
handler that raises inside them leaves a lock held or a thread untracked. So the caller
shares only objects with atomic methods with the threads, and starts each thread with
one C call. Work that must not be interrupted, such as removing files, is also a task:
signals never reach the thread that runs it.
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

# `Task._done` wakes one waiter only; other waiters poll at this interval.
_POLL_SECONDS = 0.05


class CancelledError(Exception):
    """The task was cancelled."""


class Task(Generic[_T]):
    """A function that runs once, in the first thread that calls `run`."""

    def __init__(self, function: Callable[[], _T]) -> None:
        self._functions = [function]  # empty once the task began or was cancelled
        self._result: _T | None = None
        self._error: BaseException | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()
        self.is_done = False

    @property
    def is_begun(self) -> bool:
        """Whether the task began or was cancelled."""
        return not self._functions

    def run(self) -> None:
        """Call the function, unless the task began or was cancelled."""
        try:
            function = self._functions.pop()
        except IndexError:
            return
        try:
            self._result = function()
        except BaseException as error:  # noqa: BLE001 (`result` raises it)
            self._error = error
        # Release what the function references before a waiter continues. This works
        # only for a local variable: in Python 3.10, callers keep arguments alive.
        del function
        self._finish()

    def cancel(self) -> None:
        """Make `result` raise a CancelledError, unless the task began."""
        with contextlib.suppress(IndexError):
            self._functions.pop()
            self._error = CancelledError()
            self._finish()

    def _finish(self) -> None:
        self.is_done = True
        self._done.release()

    def wait(self, seconds: float = _POLL_SECONDS) -> bool:
        """Wait for at most `seconds`, and return whether the task is done."""
        return self.is_done or self._done.acquire(timeout=seconds)

    def result(self) -> _T:
        """Wait for the task; return the function's result or raise its exception."""
        while not self.wait():
            pass
        if self._error is not None:
            raise self._error
        return cast("_T", self._result)


def start(task: Task[_T]) -> None:
    """Run a task in a new thread, or raise a RuntimeError if none can start."""
    _running.tasks[task] = None
    try:
        # Unlike `Thread.start`, one C call: afterwards the thread runs or does not exist.
        _thread.start_new_thread(_run, (task,))
    except RuntimeError:
        del _running.tasks[task]
        raise


def _run(task: Task[Any]) -> None:
    task.run()
    _running.tasks.pop(task, None)


class _Running:
    """The tasks that interpreter exit waits for.

    A thread that returned from the core after interpreter exit would abort. It may do so
    when its pool no longer exists: the last reference to a pool is often that of its
    thread, which then destroys the pool and what the pool decodes with.
    """

    def __init__(self) -> None:
        self.tasks: dict[Task[Any], None] = {}  # passed to `start`, and not done
        self.endings: deque[Task[None]] = deque()  # of garbage-collected pools
        close_at_exit(self, last=True)
        renew_after_fork(self)

    def _close_at_exit(self) -> None:
        for ending in list(self.endings):
            ending.run()
            ending.result()
        for task in list(self.tasks):
            task.cancel()  # its thread may not have begun, or may not exist
            while not task.wait():
                pass

    def _renew_after_fork(self) -> None:
        self.tasks.clear()
        self.endings.clear()
        close_at_exit(self, last=True)


_running = _Running()


class TaskPool:
    """Threads that run tasks in the order of `submit`.

    `stop` calls `cancel`, which should make running tasks return early, waits for them,
    and then calls `at_end`. Garbage collection of the pool stops it, too.
    """

    # The task that stops the pool. Until `__init__` sets it, a task that is done.
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
        while _running.endings and _running.endings[0].is_done:
            _running.endings.popleft()

    def submit(self, function: Callable[[], _T]) -> Task[_T]:
        """Queue a call of `function`; raise a RuntimeError if no thread can start."""
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
        """Whether the pool is stopping or has stopped."""
        return self.ending.is_begun

    def stop(self) -> None:
        """Cancel the tasks that have not begun, and wait for the others.

        A signal interrupts only the waiting.
        """
        if self.ending.is_done or os.getpid() != self._process:
            return  # threads do not exist in a forked child
        try:
            start(self.ending)
        except RuntimeError:
            self.ending.run()
        # Garbage collection may call this in a thread of the pool, which cannot wait
        # for itself.
        if _thread.get_ident() not in self.idents:
            self.ending.result()

    def _close_at_exit(self) -> None:
        self.stop()

    def __del__(self) -> None:
        # Python ignores what a signal handler raises here, so keep this short.
        if not self.ending.is_begun:
            _running.endings.append(self.ending)
            _thread.start_new_thread(self.ending.run, ())


def _work(queue: SimpleQueue[Task[Any] | None], threads: set[int]) -> None:
    threads.add(_thread.get_ident())
    while (task := queue.get()) is not None:
        task.run()
        del task  # release its result before waiting for the next task
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
        worker.cancel()  # its thread may not have begun, or may not exist
        while not worker.wait():
            pass
    if at_end is not None:
        at_end()
