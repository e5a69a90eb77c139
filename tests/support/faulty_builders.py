"""A program in which several processes request the same index at once.

Arguments: a file, its number of records, and a new folder. It succeeds if one process
builds the index each time, and the others load it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import fastrec as fr
from fastrec.storage.atomic import builder_lock
from fastrec.storage.index_files import index_path
from faults import Fault, Faults, patience

NEVER = 1 << 30


def forked(work: Callable[[], int]) -> int:
    """Run `work` in a child process, whose exit status it returns."""
    child = os.fork()
    if child == 0:
        os._exit(work())
    return child


def statuses(children: list[int]) -> list[int]:
    """Wait for processes."""
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def main() -> None:
    """Run all situations."""
    path, n_records, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    faults = Faults()

    def build(cache: Path, begin: int | None = None) -> int:
        """Return how many indexes this process has cached, or 99 for a wrong one."""
        if begin is not None:
            os.read(begin, 1)
        with faults.injected(Fault("rename"), str(cache), NEVER):
            n = len(fr.open(path, index_dir=cache))
        return faults.n_calls if n == n_records else 99

    for n_processes in (2, 8):
        cache = folder / f"{n_processes}"
        begin, begins = os.pipe()
        with patience():
            children = [
                forked(lambda: build(cache, begin))  # noqa: B023 (called at once)
                for _ in range(n_processes)
            ]
            os.write(begins, bytes(n_processes))
            assert sum(statuses(children)) == 1

    # Kill the lock's holder while others wait for it.
    cache = folder / "killed"
    target = index_path(path, cache)
    held, holds = os.pipe()

    def linger() -> int:
        signal.pause()
        return 0

    def hold() -> int:
        with builder_lock(target, threading.Event()):
            os.write(holds, b".")
            return linger()

    with patience():
        holder = forked(hold)
        os.read(held, 1)
        children = [forked(lambda: build(cache)) for _ in range(3)]
        time.sleep(0.5)
        assert os.waitpid(-1, os.WNOHANG) == (0, 0), "a process did not wait"
        os.kill(holder, signal.SIGKILL)
        assert statuses([holder]) == [-signal.SIGKILL]
        assert sum(statuses(children)) == 1

    # A fork of the lock's holder stays alive.
    cache = folder / "forked"
    with builder_lock(index_path(path, cache), threading.Event()):
        fork = forked(linger)
    with patience():
        assert statuses([forked(lambda: build(cache))]) == [1]
    os.kill(fork, signal.SIGKILL)
    assert statuses([fork]) == [-signal.SIGKILL]


if __name__ == "__main__":
    main()
