"""Atomic creation and replacement of files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["replacement", "sync_directory", "temporary_file"]


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
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """Yield a new path in the directory of `target`; the caller renames the file.

    Creates the directory if needed. If the body raises, the file is deleted.
    """
    temporary = target.with_name(
        f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
