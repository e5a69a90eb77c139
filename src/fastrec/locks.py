"""Locks on files: one process, or one owner in it, at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["opened_to_lock", "try_lock"]

# Files that a fork would leave open, and so locked, with nobody to unlock them.
_files: set[int] = set()


@contextlib.contextmanager
def opened_to_lock(path: str | os.PathLike[str]) -> Iterator[int]:
    """Open a file to lock, without which a process forked meanwhile goes on.

    Raises
    ------
    OSError
        If it can neither be opened nor made.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    _files.add(file)
    try:
        yield file
    finally:
        if file in _files:  # a fork has closed it already
            _files.discard(file)
            os.close(file)


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed, unless somebody else has it locked.

    Raises
    ------
    ImportError, OSError
        If files cannot be locked, on this platform or this file system.
    """
    import fcntl  # not on every platform

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _close_after_fork() -> None:
    while _files:
        os.close(_files.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_after_fork)
