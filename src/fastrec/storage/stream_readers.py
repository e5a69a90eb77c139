"""Reader threads that decompress files into a bounded queue of the core.

The core reads frames from the queue. The threads do not reference the queue's consumer,
and end when the queue stops.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fastrec import _core
from fastrec.errors import CorruptionError, Error
from fastrec.storage.compression import FileContent, inflated
from fastrec.storage.paths import version_of
from fastrec.storage.remote import RemotePath, RequestCounters, has_ranges
from fastrec.storage.stores import Version
from fastrec.tasks import Task, close_at_exit, is_exiting, start

_READ_AHEAD_BYTES = 4 << 20  # per thread


@contextlib.contextmanager
def byte_streams(
    files: Sequence[FileContent],
    *,
    n_readers: int,
    bytes_ahead: int,
    versions: Sequence[Version] | None = None,
    on_read: Callable[[int, int], object] | None = None,
    counters: RequestCounters | None = None,
    read_plain: Callable[[int], Generator[bytes]] | None = None,
) -> Iterator[_core.ByteStreams]:
    """Yield decompressed streams of `files`, which `n_readers` threads read in order.

    The threads decompress at most `bytes_ahead` bytes ahead of the consumer. The caller
    must stop the streams; an error in the body also stops them. A file whose version
    differs from `versions` is an error. The threads call ``on_read(i, n_bytes)`` with
    the number of bytes read from file `i` so far. ``read_plain(i)`` reads file `i` if
    it is a plain object.
    """
    n_readers = max(1, min(n_readers, len(files)))
    streams = _core.ByteStreams(len(files), n_readers, bytes_ahead // n_readers)
    own = RequestCounters(counters)
    reader = _StreamReader(files, versions, on_read, own, streams, read_plain)
    try:
        for i in range(n_readers):
            # Check after the registration, so that interpreter exit ends the thread.
            if is_exiting():
                raise RuntimeError(
                    "cannot read compressed files during interpreter exit"
                )
            try:
                start(Task(reader.run), {})
            except RuntimeError:
                if i == 0:
                    raise
                break  # no more threads available; the others read all files
        yield streams
    except BaseException:
        streams.stop()
        raise


@dataclass(eq=False)
class _StreamReader:
    """The arguments and the `run` method that all threads of one queue share."""

    files: Sequence[FileContent]
    versions: Sequence[Version] | None
    on_read: Callable[[int, int], object] | None
    counters: RequestCounters
    streams: _core.ByteStreams
    read_plain: Callable[[int], Generator[bytes]] | None

    def __post_init__(self) -> None:
        close_at_exit(self)

    def _close_at_exit(self) -> None:
        """Stop the threads: returning from the core after exit aborts the process."""
        self.streams.stop()
        self.counters.cancel()

    def run(self) -> None:
        while (i := self.streams.begin()) is not None:
            try:
                self._read(i)
            except BaseException as error:  # noqa: BLE001 (the consumer raises it)
                self._fail(i, error)
            else:
                self.streams.end(i)

    def _read(self, i: int) -> None:
        path, content = self.files[i]
        if self.versions is not None and version_of(path) != self.versions[i]:
            reason = "the file changed after its records were counted"
            raise CorruptionError(reason, path, code="file_changed")
        is_object = isinstance(path, RemotePath) and has_ranges(path, self.counters)
        if self.read_plain is not None and is_object and content == "plain":
            content_pieces = self.read_plain(i)
        else:
            content_pieces = inflated(
                path,
                content,
                on_read=bool if self.on_read is None else partial(self.on_read, i),
                on_wait=partial(self._check, i),
                counters=self.counters,
            )
        with contextlib.closing(content_pieces) as pieces:
            for piece in pieces:
                if not self.streams.push(i, piece):
                    break  # the consumer stopped

    def _check(self, i: int) -> None:
        if not self.streams.push(i, b""):
            raise BrokenPipeError  # the consumer stopped

    def _fail(self, i: int, error: BaseException) -> None:
        name = os.fsencode(self.files[i][0])
        fail = self.streams.fail
        if isinstance(error, OSError):
            self.streams.fail_with(i, error.with_traceback(None))
        elif isinstance(error, MemoryError):
            fail(i, "memory", "", name, None)
        elif isinstance(error, Error):
            fail(i, error.code, error.reason, name, error.offset)
        else:
            fail(i, "unexpected", f"{type(error).__name__}: {error}", name, None)


@contextlib.contextmanager
def frame_stream(
    files: Sequence[FileContent],
    table: _core.FileTable,
    order: Sequence[int],
    recovery: str,
    *,
    n_readers: int = 1,
    bytes_ahead: int = _READ_AHEAD_BYTES,
    on_read: Callable[[int, int], object] | None = None,
    on_wait: Callable[[], object] | None = None,
    read_plain: Callable[[int], Generator[bytes]] | None = None,
) -> Iterator[_core.FrameStream]:
    """Yield one stream of all frames of `files`; `order` is their numbers in `table`.

    Threads decompress the files. The consumer calls `on_wait` several times a second
    while it waits; exceptions from `on_wait` propagate.
    """
    with byte_streams(
        files,
        n_readers=n_readers,
        bytes_ahead=bytes_ahead,
        on_read=on_read,
        read_plain=read_plain,
    ) as streams:
        try:
            yield _core.FrameStream(streams, table, order, recovery, on_wait)
        finally:
            streams.stop()
