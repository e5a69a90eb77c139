"""Inject faults of system calls, in a process that has faults.c preloaded."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

Left = tuple[list[str], int]

SECONDS_MOST = 5


@dataclass(frozen=True)
class Fault:
    """A fault of faults.c; on command lines ``call,error,most,count``."""

    call: str
    error: int = 0
    most: int = 0
    count: int = 1

    @classmethod
    def of(cls, text: str) -> Fault:
        """Parse a fault."""
        call, *numbers = text.split(",")
        return cls(call, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.call},{self.error},{self.most},{self.count}"

    @property
    def is_of_all_calls(self) -> bool:
        """Whether it applies to all calls, so that a later begin changes nothing."""
        return self.count > 3


class Faults:
    """Makes one kind of call fail at a time, while no other thread uses files."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])
        self.n_made = 0
        self.n_calls = 0

    @contextlib.contextmanager
    def injected(self, fault: Fault, part: str, first: int = 1) -> Iterator[None]:
        """Make calls for paths that contain `part` fail, beginning with the `first`."""
        self._library.faults_set(
            fault.call.encode(),
            part.encode(),
            ctypes.c_long(first),
            ctypes.c_long(fault.count),
            fault.error,
            ctypes.c_long(fault.most),
        )
        try:
            yield
        finally:
            self._library.faults_end()
            self.n_made = self._library.faults_made()
            self.n_calls = self._library.faults_calls()


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """Abort the process with its stacks if the body hangs."""
    faulthandler.dump_traceback_later(SECONDS_MOST, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def left_open() -> Left:
    """Return the open files and the number of threads, after garbage collection."""
    gc.collect()
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            found.append(str(link.readlink()))
    return sorted(found), sum(1 for _ in Path("/proc/self/task").iterdir())


def check_nothing_more(before: Left) -> None:
    """Fail if more files or threads are open than before."""
    # A joined thread remains in /proc for a moment.
    deadline = time.monotonic() + 2
    while left_open() != before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert left_open() == before, (before, left_open())


def is_killed(
    work: Callable[[], object],
    seconds: float,
    is_due: Callable[[], bool] = lambda: True,
) -> bool:
    """Run `work` in a process that is killed a delay after `is_due()`."""
    begun, begins = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(begins, b".")
        work()
        os._exit(0)
    os.read(begun, 1)
    os.close(begun)
    os.close(begins)
    while not is_due():
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status != 0
