"""Replacements: files that appear, or change, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

__all__ = ["replacement", "temporary_file"]


@contextlib.contextmanager
def replacement(target: Path) -> Iterator[Path]:
    """Yield where to write what `target` becomes at the end.

    The directory is made if it is not there. After an error, `target` is what it was, and
    nothing else is left.
    """
    with temporary_file(target) as temporary:
        yield temporary
        temporary.replace(target)


@contextlib.contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """Yield a name in the directory of `target`, for a file that the caller renames.

    The directory is made if it does not exist. After an error, the file is deleted.
    """
    temporary = target.with_name(
        f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
