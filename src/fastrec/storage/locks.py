"""Exclusive file locks."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import math
import os
import stat
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastrec.lifecycle import renew_after_fork
from fastrec.printable import printable

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FileLock", "builder_lock", "open_lock_file", "try_lock"]

_log = logging.getLogger("fastrec")

# Processes that build a file lock one of this many files in its directory.
_N_LOCKS = 64
_POLL_SECONDS = 0.1
_LOG_AFTER_SECONDS = 5.0

# Other users may have write access to the directory, so opening a lock file must not
# block on a FIFO or follow a link.
_SAFE_FLAGS = sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
)
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)

# A forked child closes these files, because open files stay locked.
_files: set[int] = set()


@contextlib.contextmanager
def open_lock_file(path: str | os.PathLike[str]) -> Iterator[int]:
    """Open or create a regular file for `try_lock`."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | _SAFE_FLAGS, 0o666)
    _files.add(file)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fspath(path))
        yield file
    finally:
        if file in _files:  # a forked child closed it already
            _files.discard(file)
            os.close(file)


def try_lock(file: int) -> bool:
    """Lock a file until it is closed; return False if another owner holds the lock.

    Raises an ImportError or OSError if the platform or file system does not support
    locks.
    """
    import fcntl  # missing on some platforms

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def builder_lock(target: Path, is_cancelled: threading.Event) -> Iterator[None]:
    """Hold a lock in the directory of `target`, if the file system supports locks.

    The lock saves work if several processes build the same file. Correctness does not
    depend on it, so cancelling the wait enters the body without it. A long wait is
    logged.
    """
    import hashlib

    number = int.from_bytes(hashlib.sha256(os.fsencode(target)).digest()[:2], "big")
    with contextlib.ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            path = target.parent / f".lock-{number % _N_LOCKS:02d}"
            lock = stack.enter_context(open_lock_file(path))
            log_at = time.monotonic() + _LOG_AFTER_SECONDS
            while not try_lock(lock) and not is_cancelled.wait(_POLL_SECONDS):
                if time.monotonic() > log_at:
                    log_at = math.inf
                    _log.warning(
                        "waiting for another process that holds the lock %s",
                        printable(path),
                    )
        except (ImportError, OSError) as error:
            _log.debug("writing the cache without a lock: %s", error)
        yield


class FileLock:
    """A lock file, which `release` removes.

    If a signal interrupts `acquire` at any point, `release` cleans up.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._process = os.getpid()
        self._file: io.FileIO | None = None  # closing it unlocks it

    def acquire(self) -> bool:
        """Lock the file; return False if the file system does not support locks.

        Raises a BlockingIOError if another owner holds the lock.
        """
        renew_after_fork(self)
        while True:
            try:
                self._file = io.FileIO(self._path, "xb")
            except FileExistsError:
                # Another user may have created it: as a link, it could name any file.
                if os.path.islink(self._path):  # noqa: PTH114
                    code = errno.ELOOP
                    raise OSError(code, os.strerror(code), self._path) from None
                try:
                    self._file = io.FileIO(self._path, "r+b")
                except FileNotFoundError:  # the previous owner removed it
                    continue
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
        """Remove the file, unless another owner or a parent process holds the lock."""
        if os.getpid() != self._process:
            return
        # On failure, leave the file: it does not block later owners.
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
