"""Small steps that an exception interrupts at every point where a signal may raise.

Goal
    No descriptor, temporary file, held lock or thread is left, wherever a handler
    raises, and no thread waits for a lock that it holds itself.
Method
    A profile function raises at the first call or return, at the second, and so on. The
    campaign of interrupts.py draws such points at random, in everything that is public.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from columns import Untyped
from fastrec import _core
from fastrec.storage.atomic import (
    held_lock,
    open_file,
    open_lock_file,
    replacement,
    try_lock,
)
from fastrec.tasks import CancelledError, Task, TaskPool

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="/proc as Linux has it"),
    # Python closes the file that an exception leaves without an owner.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Interrupted(BaseException):
    """The exception of the signal handler."""


def interrupted(function: Callable[[], object], k: int) -> bool:
    """Call a function, raise at the k-th moment, and return whether there was one."""
    n_events = 0

    def on_event(frame: Untyped, event: str, _: Untyped) -> None:
        nonlocal n_events
        # An exception thrown into a generator reaches its handler before any signal.
        is_resumed = event == "call" and frame.f_code.co_flags & inspect.CO_GENERATOR
        # Python ignores what the callback of a weak reference raises.
        is_ignored = frame.f_code.co_name == "_remove"
        n_events += event in ("call", "c_return") and not (is_resumed or is_ignored)
        if n_events == k:
            raise Interrupted

    sys.setprofile(on_event)
    try:
        function()
    except Interrupted:
        return True
    finally:
        sys.setprofile(None)
    return False


def at_every_moment(function: Callable[[], object], check: Callable[[], None]) -> None:
    """Interrupt a function at every moment, and call `check` after each time."""
    k = 1
    while interrupted(function, k):
        check()
        k += 1
    check()  # nothing, or Python ignored the exception
    assert k > 3, "the function makes calls"


def descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_an_interrupt_loses_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"abc")
    before = descriptors()

    def read() -> None:
        with open_file(path, os.O_RDONLY, "rb") as file:
            assert file.read() == b"abc"

    def check() -> None:
        assert descriptors() == before

    at_every_moment(read, check)
    with pytest.raises(IsADirectoryError):
        open_file(tmp_path, os.O_RDONLY, "rb")
    check()


@pytest.mark.parametrize("ends", ["complete", "with an error"])
def test_an_interrupt_leaves_no_temporary_file(tmp_path: Path, ends: str) -> None:
    """The second interrupt of a storm comes while the first one is handled."""
    target = tmp_path / "out"

    def write() -> None:
        with contextlib.suppress(ValueError), replacement(target) as temporary:
            temporary.write_bytes(b"abc")
            if ends != "complete":
                raise ValueError

    def check() -> None:
        until = time.monotonic() + 10
        while list(tmp_path.glob(".*")) and time.monotonic() < until:
            time.sleep(0.001)  # a thread deletes the file
        names = [path.name for path in tmp_path.iterdir()]
        assert names in ([], ["out"])
        if names:
            assert target.read_bytes() == b"abc"
            target.unlink()

    at_every_moment(write, check)


def test_a_task_whose_cancelling_is_interrupted_can_be_waited_for() -> None:
    tasks: list[Task[None]] = []

    def cancel() -> None:
        tasks.append(Task(lambda: None))
        tasks[-1].cancel()

    def check() -> None:
        waiter = threading.Thread(target=wait, args=(tasks[-1],), daemon=True)
        waiter.start()
        waiter.join(10)
        assert not waiter.is_alive()

    def wait(task: Task[None]) -> None:
        task.cancel()
        with contextlib.suppress(CancelledError):
            task.result()

    tasks.append(Task(lambda: None))
    at_every_moment(cancel, check)


class Impatient(threading.Event):
    """Fails the wait for a lock."""

    def wait(self, timeout: float | None = None) -> bool:
        pytest.fail(f"waits {timeout} seconds for a lock of its own thread")


def test_a_lock_that_an_interrupt_leaves_is_replaced(tmp_path: Path) -> None:
    """A notebook keeps the last traceback, and with it what the frames hold."""
    path = tmp_path / "lock"
    kept: list[BaseException] = []

    def build() -> None:
        try:
            with held_lock(path, Impatient()):
                pass
        except Interrupted as error:
            kept.append(error)
            raise

    def check() -> None:
        with held_lock(path, Impatient()), open_lock_file(path) as other:
            assert not try_lock(other)

    at_every_moment(build, check)
    kept.clear()
    gc.collect()


def test_a_descriptor_that_a_fork_copies_while_it_is_closed_keeps_no_lock(
    tmp_path: Path,
) -> None:
    """`close` forgets the descriptor before the system closes it."""
    path = tmp_path / "lock"
    with held_lock(path, Impatient()):
        links = [Path("/proc/self/fd", number) for number in descriptors()]
        lock = next(it for it in links if it.is_symlink() and it.readlink() == path)
        copy = os.dup(int(lock.name))
    try:
        with open_lock_file(path) as other:
            assert try_lock(other)
    finally:
        os.close(copy)


def test_a_pool_that_an_interrupt_drops_ends(threads_end: Callable[[], None]) -> None:
    def drop() -> None:
        pool = TaskPool(1)
        pool.submit(int).result()

    at_every_moment(drop, threads_end)


def test_a_pool_runs_tasks_after_an_interrupted_submit() -> None:
    pools: list[TaskPool] = []

    def submit() -> None:
        pools.append(TaskPool(1))
        pools[0].submit(int)

    def check() -> None:
        for pool in pools:
            assert pool.submit(int).wait(60)
            pool.stop()
        pools.clear()

    at_every_moment(submit, check)


def test_an_interrupt_leaves_no_lock_held() -> None:
    """Python 3.14 runs handlers between `__enter__` and the block."""
    lock = threading.Lock()
    n_interrupted = 0
    is_on = True

    def interrupt(_signal: int, _frame: object) -> None:
        if is_on:
            raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while n_interrupted < 200:
            is_on = True
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4)
                for _ in range(100_000):
                    with _core.HeldLock(lock):
                        pass
                is_on = False
            except Interrupted:
                is_on = False
                n_interrupted += 1
            assert not lock.locked()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
