"""Atomic creation and replacement of files."""

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
    """Yield a temporary path; rename it to `target` unless the body raises."""
    with temporary_file(target) as temporary:
        yield temporary
        temporary.replace(target)


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
