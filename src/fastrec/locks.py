"""Locks on files: one process, or one owner in it, at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator

__all__ = ["is_locked", "lock_file", "opened_to_lock", "try_lock"]

# A lock file may be in a directory that others can write to. Opening it neither waits
# for a FIFO nor follows a link.
_SAFELY = sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
)

_LOOKS = 5
_SECONDS_BETWEEN_LOOKS = 0.01

# Files that a fork would leave open, and so locked, with nobody to unlock them.
_files: set[int] = set()


@contextlib.contextmanager
def opened_to_lock(path: str | os.PathLike[str]) -> Iterator[int]:
    """Open a file to lock, without which a process forked meanwhile goes on.

    Raises
    ------
    OSError
        If it can neither be opened nor made, or is not a regular file.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | _SAFELY, 0o666)
    _files.add(file)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fspath(path))
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


@contextlib.contextmanager
def lock_file(path: str) -> Iterator[None]:
    """Hold a lock file, and remove it in the end.

    Raises
    ------
    BlockingIOError
        If somebody else holds it.
    ImportError, OSError
        If files cannot be locked, on this platform or this file system.
    """
    with contextlib.ExitStack() as stack:
        while True:
            opened = stack.enter_context(contextlib.ExitStack())
            file = opened.enter_context(opened_to_lock(path))
            # Who only asks whether it is locked has it for microseconds.
            for _ in range(_LOOKS):
                if try_lock(file):
                    break
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            else:
                raise BlockingIOError(errno.EWOULDBLOCK, "it is locked", path)
            # Whoever had it before may have removed it since it was opened.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(path)):  # noqa: PTH116
                    break
            opened.close()
        process = os.getpid()
        try:
            yield
        finally:
            if os.getpid() == process:  # a fork has not locked it
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # noqa: PTH108


def is_locked(path: str) -> bool:
    """Tell whether somebody else holds a lock file, if there is one.

    Raises
    ------
    ImportError, OSError
        If that cannot be told.
    """
    import fcntl  # not on every platform

    try:
        file = os.open(path, os.O_RDONLY | _SAFELY)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that those who ask do not see each other.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _close_after_fork() -> None:
    while _files:
        os.close(_files.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_after_fork)
