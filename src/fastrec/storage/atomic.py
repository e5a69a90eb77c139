"""Opening, creation and replacement of files that a signal cannot leave halfway."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from fastrec.tasks import Task, forget, run_at_exit, start_registered

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["open_file", "replacement", "sync_directory", "temporary_file"]


def open_file(path: str | os.PathLike[str], flags: int, mode: str) -> io.FileIO:
    """Open a file with the flags of `os.open`; `mode` is that of `io.FileIO`.

    A signal between `os.open` and the next line would lose the descriptor. So both are
    one call.
    """
    descriptors: list[int] = []
    files: list[io.FileIO] = []
    try:
        descriptors.extend(map(os.open, (path,), (flags,), (0o666,)))
        files.extend(map(io.FileIO, descriptors, (mode,)))
        return files[0]
    finally:
        if descriptors and not files:  # a directory, or a signal
            os.close(descriptors[0])


@contextlib.contextmanager
def replacement(target: Path, *, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary path; rename it to `target` unless the body raises.

    A power cut leaves the complete new file or the old one. With ``sync=False``, it may
    leave an incomplete file, which the readers of caches detect.
    """
    with temporary_file(target) as temporary:
        yield temporary
        if sync:
            _sync(temporary)
        temporary.replace(target)
    if sync:
        sync_directory(target.parent)


def sync_directory(directory: Path | str) -> None:
    """Flush the names in a directory to the disk, if the file system can."""
    with contextlib.suppress(OSError):
        _sync(directory)


def _sync(path: Path | str) -> None:
    descriptors: list[int] = []  # as in `open_file`
    try:
        descriptors.extend(map(os.open, (path,), (os.O_RDONLY,)))
        os.fsync(descriptors[0])
    finally:
        if descriptors:
            os.close(descriptors[0])


@contextlib.contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """Yield a new path in the directory of `target`; the caller renames the file.

    Creates the directory if needed. If the body raises, the file is deleted, in a thread,
    because a second signal would stop the deletion in this one.
    """
    temporary = target.with_name(
        f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    )
    deletion = Task(partial(_delete, temporary))
    run_at_exit(deletion)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
    except BaseException:
        start_registered((deletion,))
        deletion.result()
        raise
    forget(deletion)


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
