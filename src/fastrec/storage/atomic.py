"""Create and replace files so that a signal cannot leave them incomplete."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastrec.storage.locks import FileLock
from fastrec.storage.remote import RemotePath, upload
from fastrec.tasks import Task, forget, run_at_exit, start_registered

if TYPE_CHECKING:
    from pathlib import Path


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
