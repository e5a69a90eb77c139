"""Reader threads that decompress files into a bounded queue of the core.

The core reads frames from the queue. The threads do not reference its consumer;
stopping the queue ends them.
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
from fastrec.storage.paths import version_of
from fastrec.storage.remote import RequestCounters, Version
from fastrec.tasks import Task, start

_READ_AHEAD_BYTES = 4 << 20  # per thread
_EXIT_TIMEOUT_SECONDS = 5.0


@contextlib.contextmanager
def byte_streams(
    files: Sequence[FileContent],
    *,
    n_readers: int,
    bytes_ahead: int,
    versions: Sequence[Version] | None = None,
    on_read: Callable[[int, int], object] | None = None,
    counters: RequestCounters | None = None,
) -> Iterator[_core.ByteStreams]:
    """Decompress `files` in order, in `n_readers` threads.

    The threads decompress at most `bytes_ahead` bytes ahead of the consumer. The caller
    stops the streams; an error in the body also stops them. A file whose version
    differs from `versions` is an error. The threads call ``on_read(i, n_bytes)`` with
    the number of bytes read from file `i`. Requests for remote files are counted in
    `counters`.
    """
    n_readers = max(1, min(n_readers, len(files)))
    streams = _core.ByteStreams(len(files), n_readers, bytes_ahead // n_readers)
    _all.add(streams)
    own_counters = RequestCounters(counters)
    _counters.add(own_counters)
    try:
        for i in range(n_readers):
            reader = Task(
                partial(_read, files, versions, on_read, own_counters, streams)
            )
            _readers.add(reader)
            # Check after the registration, so that `_end_all` waits for the thread.
            if _is_ending:
                raise RuntimeError(
                    "cannot read compressed files during interpreter exit"
                )
            try:
                start(reader, {})
            except RuntimeError:
                if i == 0:
                    raise
                break  # no more threads available; the others read all files
        yield streams
    except BaseException:
        streams.stop()
        raise


def _read(
    files: Sequence[FileContent],
    versions: Sequence[Version] | None,
    on_read: Callable[[int, int], object] | None,
    counters: RequestCounters,
    streams: _core.ByteStreams,
) -> None:
    while (i := streams.begin()) is not None:
        path, content = files[i]
        try:
            if versions is not None and version_of(path) != versions[i]:
                reason = "the file changed after its records were counted"
                streams.fail(i, "file_changed", reason, os.fsencode(path), None)
                continue
            report = None if on_read is None else partial(on_read, i)
            content_pieces = inflated(
                path,
                content,
                on_read=report,
                on_wait=partial(_check, streams, i),
                counters=counters,
            )
            with contextlib.closing(content_pieces) as pieces:
                for piece in pieces:
                    if not streams.push(i, piece):
                        break  # the consumer stopped
        except BaseException as error:  # noqa: BLE001 (the consumer raises it)
            _fail(streams, i, path, error)
        else:
            streams.end(i)


def _check(streams: _core.ByteStreams, i: int) -> None:
    if not streams.push(i, b""):
        raise BrokenPipeError  # the consumer stopped


def _fail(streams: _core.ByteStreams, i: int, path: str, error: BaseException) -> None:
    name = os.fsencode(path)
    if isinstance(error, OSError):
        streams.fail_with(i, error.with_traceback(None))
    elif isinstance(error, MemoryError):
        streams.fail(i, "memory", "", name, None)
    elif isinstance(error, Error):
        streams.fail(i, error.code, error.reason, name, error.offset)
    else:
        streams.fail(i, "unexpected", f"{type(error).__name__}: {error}", name, None)


@contextlib.contextmanager
def frame_stream(
    files: Sequence[FileContent],
    table: _core.FileTable,
    order: Sequence[int],
    recovery: str,
    *,
    on_read: Callable[[int, int], object] | None = None,
    on_wait: Callable[[], object] | None = None,
) -> Iterator[_core.FrameStream]:
    """Yield a stream of the frames of `files`, whose numbers in `table` are `order`.

    One thread decompresses the files; `on_read` is as for `byte_streams`. The consumer
    calls `on_wait` several times a second while it waits, and propagates its
    exceptions.
    """
    with byte_streams(
        files, n_readers=1, bytes_ahead=_READ_AHEAD_BYTES, on_read=on_read
    ) as streams:
        try:
            yield _core.FrameStream(streams, table, order, recovery, on_wait)
        finally:
            streams.stop()


# The threads must end before the interpreter: a thread that returned from the core
# after that would abort.
_all: weakref.WeakSet[_core.ByteStreams] = weakref.WeakSet()
_counters: weakref.WeakSet[RequestCounters] = weakref.WeakSet()
_readers: weakref.WeakSet[Task[None]] = weakref.WeakSet()
_is_ending = False


def _end_all() -> None:
    """Stop all streams, and wait for their threads."""
    global _is_ending
    _is_ending = True
    for streams in list(_all):
        streams.stop()
    for counters in list(_counters):
        counters.cancel()
    until = time.monotonic() + _EXIT_TIMEOUT_SECONDS
    for reader in list(_readers):
        while not reader.wait() and time.monotonic() < until:
            pass


atexit.register(_end_all)
