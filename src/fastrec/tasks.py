"""Thread pools that stay consistent if a signal handler raises at any point.

Python runs signal handlers in the main thread, between any two bytecodes.
`Thread.start`, `Condition` and `concurrent.futures` are Python code that holds locks; a
handler that raises inside them leaves a lock held or a thread untracked. So the caller
and the threads share only objects with atomic methods, and one C call starts a thread.
Work that must not be interrupted, such as removing files, runs in another thread.

Two registries hold weak references to the objects to renew after a fork or to close at
exit. The callbacks of these references are C functions, because Python ignores an
exception that a signal handler raises in a callback.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import weakref
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

_T = TypeVar("_T")

# `Task._done` wakes one waiter only; other waiters poll at this interval.
_POLL_SECONDS = 0.05

_CANCEL = object()


# Registered objects, in order, with their process ids: a forked child must not wait for
# threads, which exist only in its parent.
_renewable: dict[weakref.ref[Any], int] = {}
_closable: dict[weakref.ref[Any], int] = {}
_is_exiting = False


def renew_after_fork(obj: Any) -> None:
    """In each forked child, call ``obj._renew_after_fork()`` if `obj` still exists."""
    _renewable[weakref.ref(obj, _renewable.pop)] = os.getpid()


def close_at_exit(obj: Any) -> None:
    """Call ``obj._close_at_exit()`` at interpreter exit if `obj` is still alive.

    The last registered object closes first. Forked children do not close the objects.
    """
    _closable[weakref.ref(obj, _closable.pop)] = os.getpid()


def is_exiting() -> bool:
    """Return whether the interpreter is exiting."""
    return _is_exiting


def _renew_all() -> None:
    for ref in list(_renewable):
        if (obj := ref()) is not None:
            obj._renew_after_fork()


def _close_all() -> None:
    global _is_exiting
    _is_exiting = True
    for ref, process in reversed(list(_closable.items())):
        if process == os.getpid() and (obj := ref()) is not None:
            obj._close_at_exit()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class CancelledError(Exception):
    """The task or request was cancelled."""


class Task(Generic[_T]):
    """A function that runs at most once, in the first thread that calls `run`."""

    def __init__(self, function: Callable[[], _T]) -> None:
        self._function: Callable[[], _T] | None = function
        # The first call of `run` or `cancel`; set once, by one atomic call.
        self._first: dict[str, object] = {}
        self._result: _T | None = None
        self._error: BaseException | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()
        self._has_run = False

    @property
    def is_begun(self) -> bool:
        """Whether the task began or was cancelled."""
        return bool(self._first)

    @property
    def is_done(self) -> bool:
        """Whether the task has run or was cancelled."""
        return self._has_run or self._first.get("call") is _CANCEL

    def run(self) -> None:
        """Call the function, unless the task has begun or was cancelled."""
        this = object()
        if self._first.setdefault("call", this) is not this:
            return
        function, self._function = self._function, None
        assert function is not None
        try:
            self._result = function()
        except BaseException as error:  # noqa: BLE001 (`result` raises it)
            self._error = error
        # Release the function's references before a waiter continues. This works only
        # for a local variable: in Python 3.10, callers keep arguments alive.
        del function
        self._has_run = True
        self._done.release()

    def cancel(self) -> None:
        """Cancel the task unless it has begun. `result` then raises CancelledError."""
        # `setdefault` alone cancels the task: a signal cannot leave it half cancelled.
        # If a signal prevents the release, waiters notice at their next poll.
        if self._first.setdefault("call", _CANCEL) is _CANCEL:
            self._function = None
            with contextlib.suppress(RuntimeError):  # released by an earlier call
                self._done.release()

    def wait(self, seconds: float = _POLL_SECONDS) -> bool:
        """Wait for at most `seconds`, and return whether the task is done."""
        return self.is_done or self._done.acquire(timeout=seconds)

    def result(self) -> _T:
        """Wait for the task, then return the function's result or raise its error."""
        while not self.wait():
            pass
        if not self._has_run:
            raise CancelledError
        if self._error is not None:
            raise self._error
        return cast("_T", self._result)


def start(task: Task[_T], started: dict[Task[_T], int]) -> None:
    """Run a task in a new thread, and add the task and the thread's ident to `started`.

    Raises a RuntimeError if no thread can start. Interpreter exit cancels the task if
    it has not begun.
    """
    _running.tasks[task] = None
    try:
        # One C call, unlike `Thread.start`: either the thread runs and the task is in
        # `started`, or neither.
        idents = map(_thread.start_new_thread, (run_registered,), ((task,),))
        started.update(zip((task,), idents, strict=True))
    except RuntimeError:
        del _running.tasks[task]
        raise


def run_at_exit(task: Task[Any]) -> None:
    """Run a task at interpreter exit, unless it has begun or was cancelled before."""
    _running.tasks[task] = True


def forget(task: Task[Any]) -> None:
    """Cancel a task of `run_at_exit` unless it has begun; exit no longer runs it."""
    task.cancel()
    _running.tasks.pop(task, None)


def run_registered(task: Task[Any]) -> None:
    """Run a task, then remove it from the tasks for which interpreter exit waits."""
    task.run()
    if task.is_done:  # another thread may still be running it
        _running.tasks.pop(task, None)


# Run a task of `run_at_exit` in a new thread. ``start_registered((task,))`` is one C
# call, and no signal handler can run before it.
start_registered = partial(_thread.start_new_thread, run_registered)


class _Running:
    """The tasks for which interpreter exit waits.

    A thread that returned from the core after interpreter exit would abort the process.
    Stopping all existing pools is not enough: a thread often holds the last reference
    to its pool, and then destroys the pool and its decoder itself.
    """

    def __init__(self) -> None:
        # Tasks that are not done. Exit runs tasks with a true value and cancels the
        # others. A pool's ending has the weak reference that starts it on collection.
        self.tasks: dict[Task[Any], object] = {}
        close_at_exit(self)  # registered before all pools, so it closes after them
        renew_after_fork(self)

    def _close_at_exit(self) -> None:
        # A thread that ends may release a pool, and so start the pool's ending.
        while self.tasks:
            for task, is_ending in self.tasks.copy().items():
                if is_ending:
                    task.run()
                else:
                    task.cancel()  # its thread may not have begun, or may not exist
                if task.wait():
                    self.tasks.pop(task, None)

    def _renew_after_fork(self) -> None:
        self.tasks.clear()
        close_at_exit(self)  # keeps its position in the order


_running = _Running()


class TaskPool:
    """Threads that run tasks in the order in which `submit` queued them.

    `stop` calls `cancel`, which should make running tasks return early. Then, `stop`
    waits for the tasks and calls `at_end`. Garbage collection also stops the pool.

    Attributes
    ----------
    ending : Task
        The task that stops the pool.
    """

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
        self._workers: dict[Task[None], int] = {}  # with the idents of their threads
        self.idents: set[int] = set()  # of the threads
        self.ending = Task(self._end(cancel, at_end))
        # One C call, because Python ignores an exception of a signal handler in a
        # finalizer. `_running` keeps the reference alive longer than the pool.
        begin = partial(next, map(start_registered, ((self.ending,),)))
        _running.tasks[self.ending] = weakref.ref(self, begin)
        close_at_exit(self)

    def _end(
        self,
        cancel: Callable[[], object] | None,
        at_end: Callable[[], object] | None,
    ) -> Callable[[], None]:
        """Return a function that stops the pool but holds no reference to the pool."""
        process, queue, workers = self._process, self._queue, self._workers
        idents = self.idents

        def end() -> None:
            if os.getpid() != process:
                return
            idents.add(_thread.get_ident())
            if cancel is not None:
                cancel()
            with contextlib.suppress(Empty):
                while (task := queue.get_nowait()) is not None:
                    task.cancel()
            queue.put(None)
            for worker in list(workers):
                worker.cancel()  # its thread may not have begun, or may not exist
                while not worker.wait():
                    pass
            if at_end is not None:
                at_end()

        return end

    def submit(self, function: Callable[[], _T]) -> Task[_T]:
        """Queue a call of `function`; raise a RuntimeError if no thread can start."""
        task = Task(function)
        self._queue.put(task)
        if len(self._workers) < self.n_threads:
            worker = Task(partial(_work, self._queue, self.idents))
            try:
                start(worker, self._workers)
            except RuntimeError:
                if not self._workers:
                    raise
        return task

    @property
    def is_ending(self) -> bool:
        """Whether the pool is stopping or has stopped."""
        return self.ending.is_begun

    def stop(self) -> None:
        """Cancel the tasks that have not begun, and wait for the others.

        A signal interrupts only the wait: the pool still stops.
        """
        if self.ending.is_done or os.getpid() != self._process:
            return  # threads do not exist in a forked child
        try:
            start_registered((self.ending,))
        except RuntimeError:
            run_registered(self.ending)
        # Garbage collection may call `stop` in a thread of the pool, which cannot wait
        # for itself.
        if _thread.get_ident() not in self.idents:
            self.ending.result()

    _close_at_exit = stop


def _work(queue: SimpleQueue[Task[Any] | None], threads: set[int]) -> None:
    threads.add(_thread.get_ident())
    while (task := queue.get()) is not None:
        task.run()
        del task  # release its result before waiting for the next task
    queue.put(None)  # for the other threads
