"""Pipes: FIFOs and stdin, which one process reads once, from beginning to end."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

from fastrec.storage.atomic import open_file

_STDIN = "/dev/stdin"
# Only on Linux, polling a FIFO opened with O_NONBLOCK waits for its first writer.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | (os.O_NONBLOCK if sys.platform == "linux" else 0)
_POLL_MS = 100


class PipePath(str):
    """The path of a pipe, which is read once, in the process that created the path."""

    __slots__ = ("_is_read", "_process_id")

    def __init__(self, _: str) -> None:
        self._is_read, self._process_id = False, os.getpid()

    def __reduce__(self) -> NoReturn:
        refuse_pipe(self, "sending it to another process")

    @contextlib.contextmanager
    def opened(self, on_wait: Callable[[], object]) -> Iterator[PipeFile]:
        """Open the pipe; reads call `on_wait` while they wait for the writer."""
        if self._is_read or os.getpid() != self._process_id:
            refuse_pipe(self, "reading it again")
        self._is_read = True
        # Opening /dev/stdin fails if stdin is a socket.
        with (
            io.FileIO(os.dup(0)) if self == _STDIN else open_file(self, _FLAGS, "rb")
        ) as file:
            yield PipeFile(file, on_wait)


class PipeFile:
    """Reader of an open pipe."""

    def __init__(self, file: io.FileIO, on_wait: Callable[[], object]) -> None:
        self._file, self._on_wait = file, on_wait
        self._poll = select.poll()
        self._poll.register(file, select.POLLIN)
        self._head = b""

    def head(self, n_bytes: int) -> bytes:
        """Peek at the first `n_bytes` bytes or more; return fewer if the pipe ends."""
        head = b""
        while len(head) < n_bytes and (piece := self.read(n_bytes)):
            head += piece
        self._head = head
        return head

    def read(self, n_bytes: int) -> bytes:
        """Wait for data; return 1 to `n_bytes` bytes, or b"" at the end of the pipe."""
        data: bytes | None
        data, self._head = self._head[:n_bytes] or None, self._head[n_bytes:]
        while data is None:
            if self._poll.poll(_POLL_MS):
                data = self._file.read(n_bytes)
            else:
                self._on_wait()
        return data


def is_pipe(status: os.stat_result) -> bool:
    """Return whether a file is a pipe or a socket; stdin may be either."""
    return stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)


def refuse_pipe(path: str, what: str) -> NoReturn:
    """Raise an UnsupportedOperation: a pipe does not support the operation `what`.

    The exception is an OSError and a ValueError.
    """
    reason = f"{what} requires a file, but this is a pipe; copy it to a file first"
    raise io.UnsupportedOperation(errno.ESPIPE, reason, str(path))
