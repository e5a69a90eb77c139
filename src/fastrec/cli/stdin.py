"""Copy stdin to a temporary file, because the core reads files."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastrec as fr
from fastrec.cli.terminal import size
from fastrec.storage.index_files import index_path

_PIECE_BYTES = 64 << 10

_copies = contextlib.ExitStack()


@contextlib.contextmanager
def copies() -> Iterator[None]:
    """Delete the copies that the body makes, and their indexes."""
    with _copies:
        yield


def copied_stdin() -> str:
    """Return the path of a copy of stdin, which `copies` deletes.

    The copy takes at most half of the free space of its disk.

    Raises
    ------
    Error
        If stdin is a terminal, or too large.
    """
    refuse_terminal()
    source: Any = sys.stdin.buffer  # a BufferedReader
    folder = _copies.enter_context(tempfile.TemporaryDirectory(prefix="fastrec-"))
    path = Path(folder) / "stdin"
    _copies.callback(index_path(str(path)).unlink, missing_ok=True)
    n_bytes_max = shutil.disk_usage(folder).free // 2
    n_bytes = 0
    with path.open("wb") as target:
        while piece := source.read1(_PIECE_BYTES):
            n_bytes += len(piece)
            if n_bytes > n_bytes_max:
                raise fr.Error(
                    f"cannot copy stdin to {folder}: it has more than "
                    f"{size(n_bytes_max)}, half of the free space; write it to a file, "
                    "and pass the file"
                )
            target.write(piece)
    return str(path)


def refuse_terminal() -> None:
    """Raise an Error if stdin is a terminal."""
    if sys.stdin.isatty():
        raise fr.Error(
            "cannot read stdin: it is a terminal; pipe a file into the command"
        )
