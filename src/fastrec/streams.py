"""Streams: files whose records can only be had one after another.

Reader threads inflate the files, several at a time, and push what comes out into a
bounded queue of the core, which frames and decodes it. Nothing that runs in a thread
refers to whoever consumes it: stopping the queue ends the threads.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Iterator, Sequence

from fastrec import _core
from fastrec.errors import CorruptionError, Error, LimitError
from fastrec.inflate import Content, inflated

__all__ = ["FileContent", "first_frames", "started"]

# A file, and what it is.
FileContent = tuple[str, Content]

# What is read ahead where only the first records are wanted.
_FIRST_BYTES_AHEAD = 4 << 20
_SECONDS_TO_END = 5.0


def started(
    files: Sequence[FileContent], *, n_readers: int, bytes_ahead: int
) -> _core.ByteStreams:
    """Return the contents of `files`, one after another, as threads inflate them.

    Parameters
    ----------
    files : sequence of (str, Content)
    n_readers : int
        Threads, and files that are inflated at a time.
    bytes_ahead : int
        What may be inflated and not yet consumed, of all files together.
    """
    n_readers = max(1, min(n_readers, len(files)))
    streams = _core.ByteStreams(len(files), n_readers, bytes_ahead // n_readers)
    for _ in range(n_readers):
        # Daemons: the interpreter waits for other threads before anybody can stop them.
        thread = threading.Thread(
            target=_read, args=(files, streams), name="fastrec-inflate", daemon=True
        )
        _threads.add(thread)
        thread.start()
    return streams


def _read(files: Sequence[FileContent], streams: _core.ByteStreams) -> None:
    while (i := streams.begin()) is not None:
        path, content = files[i]
        try:
            with contextlib.closing(inflated(path, content)) as pieces:
                for piece in pieces:
                    if not streams.push(i, piece):
                        return
        except BaseException as error:  # noqa: BLE001 (whoever consumes gets it)
            _fail(streams, i, path, error)
        else:
            streams.end(i)


def _fail(streams: _core.ByteStreams, i: int, path: str, error: BaseException) -> None:
    name = os.fsencode(path)
    if isinstance(error, OSError):
        streams.fail_of_system(i, error.errno or 0, name)
    elif isinstance(error, Error):
        code = {CorruptionError: "corruption", LimitError: "limit"}.get(type(error), "")
        streams.fail(i, code, error.reason, name, error.offset)
    else:
        streams.fail(i, "", f"{type(error).__name__}: {error}", name, None)


@contextlib.contextmanager
def first_frames(
    files: Sequence[FileContent], table: _core.FileTable, order: Sequence[int]
) -> Iterator[_core.FrameStream]:
    """Frames from the beginning of `files` on, as many as are taken.

    `order` says which files of `table` they are.
    """
    streams = started(files, n_readers=1, bytes_ahead=_FIRST_BYTES_AHEAD)
    try:
        yield _core.FrameStream(streams, table, order)
    finally:
        streams.stop()


# Threads that return soon after their queue was stopped.
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def join_all() -> None:
    """Wait for the threads, whose queues were stopped, before the interpreter ends."""
    for thread in list(_threads):
        if thread.is_alive():
            thread.join(_SECONDS_TO_END)


atexit.register(join_all)
