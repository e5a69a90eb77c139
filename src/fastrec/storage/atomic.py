"""Files that appear, or change, whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["replacement", "temporary_file"]


@contextlib.contextmanager
def replacement(target: Path) -> Iterator[Path]:
    """Yield a path to write to, which replaces `target` unless there is an error."""
    with temporary_file(target) as temporary:
        yield temporary
        temporary.replace(target)


@contextlib.contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """Yield a new path in the directory of `target`, for a file that the caller renames.

    The directory is created if it does not exist. After an error, the file is deleted.
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
