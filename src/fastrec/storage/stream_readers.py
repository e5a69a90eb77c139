"""Reader threads: they inflate files into a bounded queue of the core.

The core frames and decodes the content of the queue. The threads hold no reference to
its consumer: stopping the queue ends them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from fastrec import _core
from fastrec.errors import Error
from fastrec.storage.compression import FileContent, inflated
from fastrec.storage.paths import Version, version_of
from fastrec.tasks import Task, start

__all__ = ["frames_of", "started"]

# Bytes read ahead by one thread.
_BYTES_AHEAD = 4 << 20
_SECONDS_TO_END = 5.0


@contextlib.contextmanager
def started(
    files: Sequence[FileContent],
    *,
    n_readers: int,
    bytes_ahead: int,
    versions: Sequence[Version] | None = None,
    on_read: Callable[[int, int], object] | None = None,
) -> Iterator[_core.ByteStreams]:
    """Inflate the contents of `files`, one after another, in `n_readers` threads.

    At most `bytes_ahead` bytes are inflated and not yet consumed, of all files together.
    The caller stops the streams; an error in the body does so, too. A file that is not of
    its version in `versions` is an error. ``on_read(i, n_bytes)`` is called by the threads
    with the bytes of file `i` that were read.
    """
    n_readers = max(1, min(n_readers, len(files)))
    streams = _core.ByteStreams(len(files), n_readers, bytes_ahead // n_readers)
    _all.add(streams)
    try:
        for i in range(n_readers):
            reader = Task(partial(_read, files, versions, on_read, streams))
            _readers.add(reader)
            # After that: a thread that starts now is one that `_end_all` waits for.
            if _is_ending:
                msg = "cannot begin to read compressed files while Python exits"
                raise RuntimeError(msg)
            try:
                start(reader)
            except RuntimeError:
                if i == 0:
                    raise
                break  # the system has no more threads; the others read all files
        yield streams
    except BaseException:
        streams.stop()
        raise


def _read(
    files: Sequence[FileContent],
    versions: Sequence[Version] | None,
    on_read: Callable[[int, int], object] | None,
    streams: _core.ByteStreams,
) -> None:
    while (i := streams.begin()) is not None:
        path, content = files[i]
        try:
            if versions is not None and version_of(path) != versions[i]:
                reason = "the file has changed since its records were counted"
                streams.fail(i, "file_changed", reason, os.fsencode(path), None)
                continue
            report = None if on_read is None else partial(on_read, i)
            with contextlib.closing(inflated(path, content, on_read=report)) as pieces:
                for piece in pieces:
                    if not streams.push(i, piece):
                        break  # the consumer needs no more of it
        except BaseException as error:  # noqa: BLE001 (the consumer raises it)
            _fail(streams, i, path, error)
        else:
            streams.end(i)


def _fail(streams: _core.ByteStreams, i: int, path: str, error: BaseException) -> None:
    name = os.fsencode(path)
    if isinstance(error, OSError):
        streams.fail_with_os_error(i, error.errno or 0, name)
    elif isinstance(error, MemoryError):
        streams.fail(i, "memory", "", name, None)
    elif isinstance(error, Error):
        streams.fail(i, error.code, error.reason, name, error.offset)
    else:
        streams.fail(i, "unexpected", f"{type(error).__name__}: {error}", name, None)


@contextlib.contextmanager
def frames_of(
    files: Sequence[FileContent],
    table: _core.FileTable,
    order: Sequence[int],
    recovery: str,
    *,
    on_read: Callable[[int, int], object] | None = None,
    on_wait: Callable[[], object] | None = None,
) -> Iterator[_core.FrameStream]:
    """Yield the frames of `files`, which are those in `order` of `table`.

    One thread inflates the files; it calls `on_read` as `started` does. The caller's
    thread calls `on_wait` several times a second while it reads, and raises what that
    raises.
    """
    with started(
        files, n_readers=1, bytes_ahead=_BYTES_AHEAD, on_read=on_read
    ) as streams:
        try:
            yield _core.FrameStream(streams, table, order, recovery, on_wait)
        finally:
            streams.stop()


# Streams that may have threads. They must return before the interpreter ends: a thread
# that returned from the core after that would abort.
_all: weakref.WeakSet[_core.ByteStreams] = weakref.WeakSet()
_readers: weakref.WeakSet[Task[None]] = weakref.WeakSet()


_is_ending = False


def _end_all() -> None:
    """Stop all streams, and wait for their threads."""
    global _is_ending
    _is_ending = True
    for streams in list(_all):
        streams.stop()
    until = time.monotonic() + _SECONDS_TO_END
    for reader in list(_readers):
        while not reader.wait() and time.monotonic() < until:
            pass


atexit.register(_end_all)
