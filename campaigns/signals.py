"""Signals that arrive during a call, and a check of what the call leaves behind.

The handler of SIGALRM raises at a random moment of a call: once, or several times in a
storm. Watchdogs of programs that use this are `faulthandler.dump_traceback_later`,
which neither signals nor a lock can stop.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

MODES = ("single", "storm")

_SPARED_SHARE = 0.4
_SECONDS_TO_END = 60  # on a machine with other work


class Interrupted(KeyboardInterrupt):
    """The exception of the signal handler."""


class Signals:
    """Signals that arrive, and raise, only during `call`.

    Attributes
    ----------
    n_raised : int
        Signals whose handler raised.
    n_swallowed : int
        Those that Python ignored, because it was destroying an object.
    slowest_ms : float
        The longest time from a signal to its handler.
    """

    def __init__(self, mode: str, seed: int) -> None:
        self.draw = random.Random(seed)
        self.n_raised = 0
        self.n_swallowed = 0
        self.slowest_ms = 0.0
        self._is_storm = mode == "storm"
        self._n_left = 0
        self._due = 0.0  # when the first signal of the call comes
        self._seconds: dict[str, float] = {}  # duration of calls
        signal.signal(signal.SIGALRM, self._interrupt)
        sys.unraisablehook = self._swallowed

    def call(self, name: str, function: Callable[[], object]) -> bool:
        """Call a function, and return whether it was interrupted."""
        begin = time.monotonic()
        seconds = self._seconds.setdefault(name, 0.001)
        if self.draw.random() < _SPARED_SHARE:
            function()
            seconds = time.monotonic() - begin
            self._seconds[name] += 0.2 * (seconds - self._seconds[name])
            return False
        # Most critical steps are at the beginning and at the end.
        longest = min(seconds, self.draw.choice([0.0001, 0.0005, seconds]))
        first = max(1e-6, self.draw.uniform(0, longest))
        self._n_left = self.draw.randint(2, 20) if self._is_storm else 1
        interval = self.draw.uniform(5e-5, 5e-4) if self._is_storm else 0.0
        self._due = begin + first
        try:
            self._interruptible(function, first, interval)
        except Interrupted:
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        seconds = time.monotonic() - begin
        self._seconds[name] += 0.2 * (seconds - self._seconds[name])
        return False

    def _interruptible(
        self, function: Callable[[], object], first: float, interval: float
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, first, interval)
        function()

    def _interrupt(self, _: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code not in _KNOWN:
            frame = frame.f_back
        if frame is None or frame.f_code in _SPARED or self._n_left == 0:
            return
        if self._due:
            ms = 1000 * (time.monotonic() - self._due)
            self.slowest_ms = max(self.slowest_ms, ms)
            self._due = 0.0
        self._n_left -= 1
        self.n_raised += 1
        raise Interrupted

    def _swallowed(self, found: Any) -> None:
        # Python ignores exceptions that are raised while it destroys an object.
        if found.exc_type is not Interrupted:
            sys.__unraisablehook__(found)
            raise AssertionError(found)
        self.n_swallowed += 1


_INTERRUPTIBLE = Signals._interruptible.__code__
# On a busy machine, signals come faster than this handler returns.
_SPARED = (Signals._swallowed.__code__, Signals._interrupt.__code__)
_KNOWN = (_INTERRUPTIBLE, *_SPARED)


def left_open() -> tuple[Counter[str], int]:
    """Return the open files and the number of threads.

    The clients of stores keep connections open for later requests, and the runtime of
    polars keeps its threads until they are idle for 10 seconds.
    """
    files: Counter[str] = Counter()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            file = str(descriptor.readlink())
            files[file] += not file.startswith("socket:")
    n_threads = 0
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            n_threads += (thread / "comm").read_text() != "tokio-rt-worker\n"
    return files, n_threads


def is_locked(path: Path) -> bool:
    """Return whether any process holds the lock of a file."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextlib.contextmanager
def nothing_left(*folders: Path) -> Iterator[None]:
    """Check that the body leaves no thread, descriptor, lock or temporary file."""
    before = left_open()
    yield
    begin = time.monotonic()
    while True:
        now = left_open()
        hidden = [
            path
            for folder in folders
            for path in folder.rglob("*")
            # The cache may keep the index of a file that was not published.
            if path.name.endswith(".tmp")
            or (path.name.startswith(".use-") and is_locked(path))
        ]
        if now[0] <= before[0] and now[1] <= before[1] and not hidden:
            return
        seconds = time.monotonic() - begin
        if seconds > _SECONDS_TO_END:
            faulthandler.dump_traceback()
            raise AssertionError(before, now, hidden)
        time.sleep(0.0002)
        if seconds > 0.01:
            gc.collect()  # a traceback may be part of a cycle
