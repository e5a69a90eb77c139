"""Create, lock and replace files so that a signal cannot leave them incomplete."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import logging
import math
import os
import stat
import threading
import time
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastrec.printable import printable
from fastrec.storage.remote import RemotePath, upload
from fastrec.tasks import Task, forget, run_at_exit, start_registered

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("fastrec")

# Processes that build a file lock one of this many files in its directory.
_N_LOCKS = 64
_POLL_SECONDS = 0.1
_LOG_AFTER_SECONDS = 5.0

# Other users may have write access to the directory, so opening a lock file must not
# block on a FIFO or follow a link.
_FLAG_NAMES = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
_SAFE_FLAGS = sum(getattr(os, name, 0) for name in _FLAG_NAMES)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)

# A forked child closes these files, because open files stay locked.
_files: weakref.WeakSet[io.FileIO] = weakref.WeakSet()

# The lock file that `held_lock` opened last, by thread and path. After a signal, a
# traceback may keep it open.
_held: dict[tuple[int, Path], weakref.ref[io.FileIO]] = {}


def open_file(path: str | os.PathLike[str], flags: int, mode: str) -> io.FileIO:
    """Open a file, with `flags` for `os.open` and `mode` for `io.FileIO`.

    A signal between opening a file and storing its descriptor would leak the
    descriptor. So one C call does both.
    """
    descriptors: list[int] = []
    files: list[io.FileIO] = []
    try:
        descriptors.extend(map(os.open, (path,), (flags,), (0o666,)))
        files.extend(map(io.FileIO, descriptors, (mode,)))
        return files[0]
    finally:
        if descriptors and not files:  # `path` is a directory, or a signal came
            os.close(descriptors[0])


def open_lock_file(
    path: str | os.PathLike[str], flags: int = os.O_RDWR | os.O_CREAT
) -> io.FileIO:
    """Open or create a regular file for `try_lock`."""
    file = open_file(path, flags | _SAFE_FLAGS, "r+b")
    _files.add(file)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fspath(path))
    return file


def try_lock(file: io.FileIO) -> bool:
    """Lock a file until it closes; return False if another owner holds the lock.

    Raises an ImportError or OSError if the platform or file system does not support
    locks.
    """
    import fcntl  # missing on some platforms

    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(file: io.FileIO) -> None:
    """Unlock a file before it is closed.

    Closing is not enough: if the process forks meanwhile, the child may have a copy of
    the descriptor that no object closes. The lock lives as long as any copy.
    """
    import fcntl

    with contextlib.suppress(OSError):
        if not file.closed:  # `held_lock` in the same thread may have closed it
            fcntl.flock(file.fileno(), fcntl.LOCK_UN)


def builder_lock(
    target: Path, is_cancelled: threading.Event
) -> contextlib.AbstractContextManager[None]:
    """Hold the lock for building `target`: one of 64 lock files in its directory.

    Different targets may share a lock, so a thread must hold at most one builder lock.
    """
    import hashlib

    digest = hashlib.sha256(os.fsencode(target.name)).digest()
    number = int.from_bytes(digest[:2], "big")
    return held_lock(target.parent / f".lock-{number % _N_LOCKS:02d}", is_cancelled)


@contextlib.contextmanager
def held_lock(path: Path, is_cancelled: threading.Event) -> Iterator[None]:
    """Hold a lock on the file at `path`, if the file system supports locks.

    The lock saves work if several processes build the same file. Correctness does not
    depend on the lock, so the body runs without the lock if the wait is cancelled. A
    long wait is logged.
    """
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open_lock_file(path))
            owner = (threading.get_ident(), path)
            left = _held[owner]() if owner in _held else None
            if left is not None:  # otherwise, this thread would wait for itself
                left.close()
            _held[owner] = weakref.ref(lock)
            log_at = time.monotonic() + _LOG_AFTER_SECONDS
            while not try_lock(lock) and not is_cancelled.wait(_POLL_SECONDS):
                if time.monotonic() > log_at:
                    log_at = math.inf
                    _log.warning(
                        "waiting for another process that holds the lock %s",
                        printable(path),
                    )
            stack.callback(_unlock, lock)
        except (ImportError, OSError) as error:
            _log.debug("writing the cache without a lock: %s", error)
        yield


class FileLock:
    """An exclusive lock on the file at `path`; `release` removes the file.

    If a signal interrupts `acquire` at any point, `release` cleans up.
    """

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._process = os.getpid()
        self._file: io.FileIO | None = None  # closing it unlocks it
        self._has_locks = True

    def acquire(self, flags: int = os.O_CREAT) -> bool:
        """Create and lock the file; return False on a file system without locks.

        Raises a BlockingIOError if another owner holds the lock.
        """
        while True:
            # Another user may have created the path as a link to any other file.
            self._file = open_file(self.path, os.O_RDWR | _SAFE_FLAGS | flags, "r+b")
            _files.add(self._file)
            try:
                is_locked = try_lock(self._file)
            except (ImportError, OSError) as error:
                if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
                    raise
                self._has_locks = False
                return False
            if not is_locked:
                self._file.close()
                raise BlockingIOError(errno.EWOULDBLOCK, "file is locked", self.path)
            # The previous owner may have removed the file since it was opened.
            if self._is_in_place(self._file):
                return True
            self._file.close()

    def release(self) -> None:
        """Remove the file, unless another owner or a parent process holds the lock."""
        if os.getpid() != self._process:
            return
        # Ignore failures: a remaining file does not block later owners.
        with contextlib.suppress(OSError, ImportError):
            if self._file is None or self._file.closed:
                self._file = open_lock_file(self.path, os.O_RDWR)
            with self._file as file:
                is_owner = not self._has_locks or try_lock(file)
                if is_owner and self._is_in_place(file):
                    os.unlink(self.path)

    def _is_in_place(self, file: io.FileIO) -> bool:
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(self.path)
            return os.path.samestat(os.fstat(file.fileno()), found)
        return False


def _close_after_fork() -> None:
    for file in list(_files):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_after_fork)


@contextlib.contextmanager
def replacement(target: Path | RemotePath, *, sync: bool = True) -> Iterator[Path]:
    """Yield the path of a temporary file; rename it to `target` if the body succeeds.

    After a power failure, `target` is the complete old or new file. It may be
    incomplete with ``sync=False``; the readers of cached files detect this. A remote
    file is uploaded.
    """
    if isinstance(target, RemotePath):
        import tempfile  # slow to import, as is pathlib
        from pathlib import Path

        with tempfile.TemporaryDirectory(prefix="fastrec-") as directory:
            file = Path(directory, "object")
            yield file
            upload(file, target)
        return
    with temporary_file(target) as temporary:
        yield temporary
        if sync:
            _sync(temporary)
        temporary.replace(target)
    if sync:
        sync_directory(target.parent)


def sync_directory(directory: Path | str) -> None:
    """Flush a directory to disk, if the file system supports it."""
    with contextlib.suppress(OSError):
        _sync(directory)


def _sync(path: Path | str) -> None:
    descriptors: list[int] = []  # kept by one C call, as in `open_file`
    try:
        descriptors.extend(map(os.open, (path,), (os.O_RDONLY,)))
        os.fsync(descriptors[0])
    finally:
        if descriptors:
            os.close(descriptors[0])


@contextlib.contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """Yield the path of a new file next to `target`; the caller may rename the file.

    The file is named ``.NAME.NUMBER.tmp`` and is locked while the body runs. So the
    next writer of `target` can remove the unlocked file of a killed writer. Creates the
    directory if needed. If the body raises, another thread deletes the file, because a
    second signal could interrupt a deletion in the calling thread.
    """
    lock = FileLock()
    deletion = Task(lock.release)
    run_at_exit(deletion)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for path in itertools.takewhile(os.path.lexists, _temporary_paths(target)):
            FileLock(str(path)).release()  # unless its writer is still running
        for temporary in _temporary_paths(target):
            lock.path = str(temporary)
            with contextlib.suppress(FileExistsError, BlockingIOError):
                lock.acquire(os.O_CREAT | os.O_EXCL)
                break
        yield temporary
    except BaseException as error:
        start_registered((deletion,))
        deletion.result()
        names = (None, lock.path)  # None if the disk is full
        if isinstance(error, OSError) and error.errno and error.filename in names:
            error.filename = str(target)
            del error.filename2
        raise
    forget(deletion)
    lock.release()


def _temporary_paths(target: Path) -> Iterator[Path]:
    numbers = itertools.count()
    return (target.with_name(f".{target.name}.{number}.tmp") for number in numbers)
