"""Opening of files that a signal cannot leave halfway."""

from __future__ import annotations

import io
import os

__all__ = ["open_file"]


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
