"""Locks on files: one process, or one owner in it, at a time."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator

from fastrec.lifecycle import renew_after_fork

__all__ = ["FileLock", "opened_to_lock", "try_lock"]

# A lock file may be in a directory that others can write to. Opening it neither waits
# for a FIFO nor follows a link.
_SAFELY = sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
)
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)

# A forked child would keep these files open, and so locked.
_files: set[int] = set()


@contextlib.contextmanager
def opened_to_lock(path: str | os.PathLike[str]) -> Iterator[int]:
    """Open a regular file for `try_lock`; a forked child closes it."""
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
    """Lock an open file until it is closed, unless another owner has it locked.

    Raises an ImportError on a platform without locks, an OSError on such a file system.
    """
    import fcntl  # not on every platform

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class FileLock:
    """A lock file that one owner holds at a time, and that `release` removes.

    A signal may interrupt `acquire` anywhere: `release` removes what it left.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._process = os.getpid()
        # Its last reference closes it, which also unlocks it.
        self._file: io.FileIO | None = None

    def acquire(self) -> bool:
        """Lock the file; return False where files cannot be locked.

        Raises a BlockingIOError if another owner holds it.
        """
        renew_after_fork(self)
        while True:
            self._file = io.FileIO(self._path, "ab")
            try:
                if not try_lock(self._file.fileno()):
                    raise BlockingIOError(errno.EWOULDBLOCK, "it is locked", self._path)
            except ImportError:
                return False
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    return False
                raise
            # The previous owner may have removed the file since it was opened.
            if self._is_in_place(self._file):
                return True
            self._file.close()

    def release(self) -> None:
        """Remove the file, unless another owner holds it. Does nothing in a fork."""
        if os.getpid() != self._process:
            return
        # A file that stays locks no one out.
        with contextlib.suppress(OSError, ImportError):
            file = self._file
            if file is None or file.closed:
                file = io.FileIO(self._path, "r+b")
            if try_lock(file.fileno()) and self._is_in_place(file):
                os.unlink(self._path)  # noqa: PTH108
            file.close()

    def close(self) -> None:
        """Close the file without removing it."""
        if self._file is not None:
            self._file.close()

    def _renew_after_fork(self) -> None:
        self.close()

    def _is_in_place(self, file: io.FileIO) -> bool:
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(self._path)  # noqa: PTH116
            return os.path.samestat(os.fstat(file.fileno()), found)
        return False


def _close_after_fork() -> None:
    while _files:
        os.close(_files.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_after_fork)
