"""Threads that fetch ranges of remote files at the request of the core.

The core requests ranges that it needs now or later (``src/cpp/file/range_requests.h``).
Each thread fetches one range at a time. A thread starts if none is left to wait for the
next request, which must not have to wait for a stalled one. Other idle threads end. All
threads end with the file table and at interpreter exit.
"""

from __future__ import annotations

import _thread
import os
import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.storage.paths import version_of, versions_of
from fastrec.storage.remote import RemotePath, RequestCounters, fetch
from fastrec.tasks import close_at_exit

# Requests of several MiB need few threads, because the core limits the bytes in flight.
# Small requests, for shuffled records, need many threads.
_N_THREADS = 64
_IDLE_MS = 5_000
_PIECE_BYTES = 256 << 10  # of the content
_AHEAD_BYTES = 16 << 20
_EXIT_TIMEOUT_SECONDS = 1.0


class RangeReaders:
    """Threads that fetch ranges of those files in `paths` that are remote.

    `requests` serves one `_core.FileTable` of `paths`. The threads do not reference the
    table, and stop when it is destroyed. `counters` also counts streamed bytes.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = list(paths)
        remote = [path for path in paths if isinstance(path, RemotePath)]
        versions_of(remote)
        self._versions = [
            version_of(path) if isinstance(path, RemotePath) else (0, 0)
            for path in paths
        ]
        self._process = os.getpid()
        self.counters = RequestCounters()
        self._idle = deque(range(_N_THREADS))  # one item per thread that is not running
        self.requests = _core.RangeRequests(self._versions)
        for i, path in enumerate(paths):
            if isinstance(path, RemotePath):
                self.requests.provide(i, path.beginning)
                path.beginning = b""
        close_at_exit(self)

    def share(self, memory_limit: int) -> int:
        """Reserve half of `memory_limit` for fetched ranges; return the other half."""
        self.requests.set_memory_bytes(memory_limit // 2)
        return memory_limit - memory_limit // 2

    def fetched(self) -> npt.NDArray[np.int64]:
        """Return the numbers of fetched bytes, retries, and nanoseconds of waiting."""
        if os.getpid() != self._process:
            return np.zeros(3, np.int64)
        counters, waiting_ns = self.counters, self.requests.waiting_ns
        return np.array([counters.n_bytes, counters.n_retries, waiting_ns])

    def content(self, file: int) -> Generator[bytes]:
        """Yield the content of a file, which stays in memory for the next readers."""
        at = 0
        while data := self.requests.read(file, at, _PIECE_BYTES, _AHEAD_BYTES):
            at += len(data)
            yield data

    def start(self, patience_ms: int | None = None) -> None:
        """Start another thread, unless the maximum number is running.

        The file table must exist, because its destruction stops the threads. With
        `patience_ms`, the thread is optional, and ends after this idle time.
        """
        try:
            self._idle.pop()
        except IndexError:
            return
        try:
            _thread.start_new_thread(self._run, (patience_ms,))
        except RuntimeError:
            self._idle.append(0)
            if patience_ms is None:
                raise

    def _run(self, patience_ms: int | None) -> None:
        try:
            while (request := self.requests.take(patience_ms)) is not None:
                number, file, begin, end, needs_thread = request
                if needs_thread:
                    self.start(_IDLE_MS)
                self._fetch(number, file, begin, end)
        finally:
            self._idle.append(0)

    def _fetch(self, number: int, file: int, begin: int, end: int) -> None:
        path, version = self._paths[file], self._versions[file]
        assert isinstance(path, RemotePath)
        try:
            data = fetch(path, begin, end, version, self.counters, in_this_thread=True)
            self.requests.complete(number, data)
        except BaseException as error:  # noqa: BLE001 (the reader raises it)
            self.requests.fail(number, error.with_traceback(None))

    def _close_at_exit(self) -> None:
        """Stop the threads: returning from the core after exit aborts the process."""
        self.counters.cancel()
        self.requests.stop()
        until = time.monotonic() + _EXIT_TIMEOUT_SECONDS
        while len(self._idle) < _N_THREADS and time.monotonic() < until:
            time.sleep(0.005)


def table_of(
    paths: Sequence[str], ios: Sequence[str], **options: Any
) -> tuple[_core.FileTable, RangeReaders | None]:
    """Return a file table, and the readers of remote files (None if all are local).

    `ios` has one I/O mode, or one per path. `options` are passed to the table.
    """
    names = os.fsencode("\0".join(paths))
    if not any(isinstance(path, RemotePath) for path in paths):
        return _core.FileTable(names, ios, **options), None
    if len(ios) == 1:
        ios = [ios[0]] * len(paths)
    readers = RangeReaders(paths)
    of_core = [
        "ranges" if isinstance(path, RemotePath) else io
        for path, io in zip(paths, ios, strict=True)
    ]
    table = _core.FileTable(names, of_core, requests=readers.requests, **options)
    readers.start()
    return table, readers
