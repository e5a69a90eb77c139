"""Remote files: object versions, verified byte ranges, and sequential reading.

A range is returned only if it is complete and belongs to the expected object version.
Requests are retried after transient errors, with exponential backoff and jitter.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar

from fastrec import _core
from fastrec.caller_warnings import warn_caller
from fastrec.errors import CorruptionError
from fastrec.printable import printable
from fastrec.storage.stores import (
    CANNOT_CONNECT,
    Entry,
    StorageOptions,
    Store,
    TransientError,
    Version,
)
from fastrec.storage.urls import (
    hidden_digest,
    is_http,
    redacted,
    refuse_unreadable,
    split_url,
    with_key,
)
from fastrec.tasks import CancelledError, Task, TaskPool

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

_T = TypeVar("_T")

HEAD_BYTES = 16 << 10  # to read from an object to detect its format
MAX_ATTEMPTS = 9  # in about 40 s
_FIRST_DELAY_SECONDS = 0.1
_MAX_DELAY_SECONDS = 10.0
_UNREACHED_SECONDS = 3.0  # time limit for a server that never answered
# Time limit for a request to a store that does not limit its requests.
_REQUEST_SECONDS = 600.0
_POLL_SECONDS = 0.05

_FIRST_PIECE_BYTES = 256 << 10
_PIECE_BYTES = 4 << 20
_PIECES_AHEAD = 8


class RemotePath(str):
    """The redacted URL of an object, with the store that reads it.

    A pickle contains no credentials: another process uses those in its environment.
    Paths with the same redacted URL are equal only if their user and query are equal.
    """

    __slots__ = ("_hidden", "_store", "beginning", "entry", "key")

    key: str
    entry: Entry | None  # from the listing, or from the first request
    beginning: Buffer  # bytes that came with the entry, until they are read
    _store: Store | None  # None if it has credentials that were not pickled
    _hidden: str  # the digest of the user and the query, or ""

    @classmethod
    def of(
        cls, text: str, key: str, entry: Entry | None, store: Store | None, hidden: str
    ) -> RemotePath:
        """Create the path of an object; `text` is its redacted URL."""
        path = cls(text)
        path.key, path.entry, path._store, path._hidden = key, entry, store, hidden
        path.beginning = b""
        return path

    @property
    def store(self) -> Store:
        """The object's store. Raises an error if a pickle omitted its credentials."""
        if self._store is None:
            reason = (
                "the URL's user name, password or query is not passed to other "
                "processes; read it in one process, or set credentials in the environment"
            )
            raise PermissionError(errno.EACCES, reason, str(self))
        return self._store

    @property
    def address(self) -> str:
        """The unquoted URL without user and query; it ends with the key."""
        if not is_http(self):
            return str(self)
        from urllib.parse import unquote  # slow to import

        return unquote(self.partition("?")[0])

    @property
    def identity(self) -> str:
        """The name of the object in caches; contains no credentials."""
        return f"{self.address}?{self._hidden}" if self._hidden else self.address

    def __eq__(self, other: object) -> bool:
        is_other = isinstance(other, RemotePath) and other._hidden != self._hidden
        return not is_other and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def sibling(self, entry: Entry) -> RemotePath:
        """Return the path of another object in the same store."""
        text, known = with_key(str(self), entry.key), entry if entry.size >= 0 else None
        return RemotePath.of(text, entry.key, known, self._store, self._hidden)

    def __reduce__(self) -> tuple[object, ...]:
        had_secrets = self._store is None or self._store.has_secrets
        return _unpickled, (str(self), self.entry, self._hidden, had_secrets)

    def __copy__(self) -> RemotePath:
        return self

    def __deepcopy__(self, _memo: object) -> RemotePath:
        return self


def remote_path(url: str, storage_options: StorageOptions | None = None) -> RemotePath:
    """Return the path of a URL. Without options, URLs with one root share a store."""
    root, key = split_url(url)
    text = redacted(url)
    try:
        refuse_unreadable(url)
        store = Store(root, storage_options) if storage_options else _shared(root)
    except ValueError as error:
        raise ValueError(f"cannot read {text!r}: {error}") from None
    return RemotePath.of(text, key, None, store, hidden_digest(url))


def _shared(root: str) -> Store:
    """Return the shared store of a root, with credentials from the environment."""
    prefixes = ("AWS_", "AZURE_", "GOOGLE_", "HF_")
    found = {item for item in os.environ.items() if item[0].startswith(prefixes)}
    return _store_in(root, frozenset(found))


@lru_cache(maxsize=64)
def _store_in(root: str, _environment: object) -> Store:
    return Store(root, {})


def _unpickled(
    text: str, entry: Entry | None, hidden: str, had_secrets: bool
) -> RemotePath:
    root, key = split_url(text)
    store = None if had_secrets else _shared(root)
    return RemotePath.of(text, key, entry, store, hidden)


# Requests.


class RequestCounters:
    """Counts received bytes and retries, also in `total`, and cancels requests."""

    def __init__(self, total: RequestCounters | None = None) -> None:
        self._total = total
        self.n_bytes = self.n_retries = 0
        self._lock = threading.Lock()
        self.is_cancelled = threading.Event()

    def add(self, n_bytes: int, n_retries: int) -> None:
        """Add to these counters, and to `total`."""
        with _core.HeldLock(self._lock):
            self.n_bytes += n_bytes
            self.n_retries += n_retries
        if self._total is not None:
            self._total.add(n_bytes, n_retries)

    def cancel(self) -> None:
        """Make running and later requests raise a CancelledError within 50 ms."""
        self.is_cancelled.set()

    def check(self, seconds: float = 0) -> None:
        """Wait for `seconds`, and raise a CancelledError if requests are cancelled."""
        if self.is_cancelled.wait(seconds):
            raise CancelledError
        if self._total is not None:
            self._total.check()


def ask(
    path: RemotePath,
    request: Callable[[], _T],
    counters: RequestCounters | None = None,
    *,
    in_this_thread: bool = False,
    n_attempts: int = MAX_ATTEMPTS,
) -> _T:
    """Return the result of `request`; retry the request after transient errors.

    The request runs in another thread, so a signal or `counters.cancel` ends the wait
    within 50 ms. The thread ends at the time-out of the request. With `in_this_thread`,
    small requests are twice as fast, but a signal or `counters.cancel` ends only the
    pauses between attempts.
    """
    import random  # slow to import

    store, counters = path.store, counters or RequestCounters()
    begin = time.monotonic()
    for attempt in range(1, n_attempts + 1):
        task = Task(partial(store.call, str(path), request))
        if in_this_thread:
            task.run()
        else:
            _thread.start_new_thread(task.run, ())
        until = time.monotonic() + _REQUEST_SECONDS
        try:
            while not task.wait(_POLL_SECONDS):
                counters.check()
                if time.monotonic() > until:  # do not retry now
                    reason = f"the request took more than {_REQUEST_SECONDS:g} s"
                    raise OSError(errno.ETIMEDOUT, reason, str(path))
            return task.result()
        except TransientError as error:
            reason = str(error)
        delay = min(_FIRST_DELAY_SECONDS * 2 ** (attempt - 1), _MAX_DELAY_SECONDS)
        is_unreached = reason == CANNOT_CONNECT and not store.has_answered
        until = begin + _UNREACHED_SECONDS if is_unreached else math.inf
        if attempt == n_attempts or time.monotonic() + delay > until:
            break
        counters.add(0, 1)
        # Not the global generator, whose state would depend on the network.
        counters.check(delay * random.SystemRandom().uniform(0.5, 1))
    raise OSError(errno.EIO, f"{reason} ({attempt} attempts)", str(path))


def fetch_beginning(
    path: RemotePath,
    n_bytes: int,
    counters: RequestCounters | None = None,
    version: Version | None = None,
    *,
    n_attempts: int = MAX_ATTEMPTS,
) -> Entry:
    """Set and return the entry of an object; set its beginning if that came along.

    Another version than `version` raises a CorruptionError.
    """
    request = partial(path.store.beginning, path.key, n_bytes)
    data, entry = ask(path, request, counters, n_attempts=n_attempts)
    if entry.size < 0:
        reason = "the server does not report the size; download the file"
        raise OSError(errno.ENOTSUP, reason, str(path))
    if version is not None:
        _check_version(path, entry, version)
    is_whole = memoryview(data).nbytes == min(n_bytes, entry.size)
    path.entry, path.beginning = entry, data if is_whole else b""
    return entry


def exists(path: str) -> bool:
    """Return whether a local file or an object exists."""
    if not isinstance(path, RemotePath):
        return os.path.lexists(path)
    try:
        fetch_beginning(path, 1)
    except FileNotFoundError:
        return False
    return True


def delete(path: RemotePath) -> None:
    """Delete an object; ignore a missing object."""
    with contextlib.suppress(FileNotFoundError):
        ask(path, lambda: path.store.delete(path.key))


def copy(path: RemotePath, target: RemotePath) -> None:
    """Copy an object within its store; the copy appears when it is complete."""
    ask(path, lambda: path.store.copy(path.key, target.key))


def upload(
    file: Path | str, target: RemotePath, *, overwrite: bool = True
) -> Entry | None:
    """Upload a file completely or not at all; an interrupt cancels the upload.

    Returns the entry if the response contains the version.
    The store retries, so that an upload of parts does not begin again.
    """
    counters, store = RequestCounters(), target.store

    def put() -> Entry | None:
        check = counters.check
        return store.put(target.key, str(file), overwrite=overwrite, check=check)

    task = Task(partial(store.call, str(target), put))
    try:
        _thread.start_new_thread(task.run, ())
        return task.result()
    except TransientError as error:
        reason = str(error)
    except BaseException:
        counters.cancel()
        raise
    raise OSError(errno.EIO, reason, str(target))


def is_weak(path: str) -> bool:
    """Return whether a replaced file may have the same version as before."""
    return isinstance(path, RemotePath) and bool(path.entry and path.entry.is_weak)


def warn_of_weak_versions(paths: Sequence[str]) -> None:
    """Warn if any path is an object with a weak version."""
    if weak := [path for path in paths if is_weak(path)]:
        warn_caller(
            f"the server reports no exact version of {len(weak):,} objects, such as "
            f"{printable(weak[0])!r}: readers may not detect that an object was "
            "replaced by one of the same size, and batches may mix both versions; do "
            "not replace objects while they are read"
        )


def fetch(
    path: RemotePath,
    begin: int,
    end: int,
    version: Version,
    counters: RequestCounters | None = None,
    *,
    in_this_thread: bool = False,
) -> Buffer:
    """Return all bytes ``[begin, end)`` of the given version of an object.

    A different version raises a CorruptionError with the code ``"file_changed"``.
    """
    if begin == end:
        return b""
    request = partial(_range, path, begin, end, version)
    try:
        data = ask(path, request, counters, in_this_thread=in_this_thread)
    except FileNotFoundError:
        raise _changed(path) from None
    if counters is not None:
        counters.add(end - begin, 0)
    return data


def _range(path: RemotePath, begin: int, end: int, version: Version) -> Buffer:
    data, entry = path.store.get(path.key, begin, end)
    _check_version(path, entry, version)
    n_bytes = memoryview(data).nbytes
    if n_bytes != end - begin:
        raise TransientError(f"received {n_bytes:,} of {end - begin:,} bytes")
    return data


def _check_version(path: str, entry: Entry, version: Version) -> None:
    if entry.version == version:
        return
    if entry.encoding:
        reason = (
            "the server compresses responses (Content-Encoding: "
            f"{printable(entry.encoding)}), so ranges do not match the object; "
            "turn compression off on the server, or download the file"
        )
        raise OSError(errno.ENOTSUP, reason, str(path))
    raise _changed(path)


def _changed(path: str) -> CorruptionError:
    reason = "the object changed after it was listed or indexed"
    return CorruptionError(reason, str(path), code="file_changed")


def has_ranges(path: str, counters: RequestCounters | None = None) -> bool:
    """Return whether parts of a file can be read.

    A listing does not show it, so the first listed object of a store is requested.
    """
    if not isinstance(path, RemotePath) or (entry := path.entry) is None:
        return True
    if entry.has_ranges is None and not path.store.has_ranges:
        try:
            entry = fetch_beginning(path, HEAD_BYTES, counters, entry.version)
        except FileNotFoundError:
            raise _changed(path) from None
    return entry.has_ranges is not False


def _whole(
    path: RemotePath, version: Version, counters: RequestCounters | None
) -> Generator[Buffer]:
    try:
        chunks, entry = ask(path, lambda: path.store.stream(path.key), counters)
    except FileNotFoundError:
        raise _changed(path) from None
    _check_version(path, entry, version)
    n_bytes = 0
    end = memoryview(b"")
    while chunk := ask(path, lambda: next(chunks, end), counters, n_attempts=1):
        n_bytes += len(chunk)
        if counters is not None:
            counters.add(len(chunk), 0)
        yield chunk
    if n_bytes != version[0]:
        reason = f"received {n_bytes:,} of {version[0]:,} bytes"
        raise OSError(errno.EIO, reason, str(path))


def pieces(
    path: RemotePath, version: Version, counters: RequestCounters | None = None
) -> Generator[Buffer]:
    """Yield the content of an object in order; threads fetch up to 36 MiB ahead.

    The first piece is small, for callers that need only the beginning. An object on a
    server without ranges is one response, which cannot be requested again.
    """
    if not has_ranges(path, counters):
        yield from _whole(path, version, counters)
        return
    own = RequestCounters(counters)
    pool = TaskPool(_PIECES_AHEAD, cancel=own.cancel)
    tasks: deque[Task[Buffer]] = deque()
    size, begin = version[0], 0
    try:
        while begin < size or tasks:
            while begin < size and len(tasks) < _PIECES_AHEAD:
                end = min(size, begin + (_PIECE_BYTES if begin else _FIRST_PIECE_BYTES))
                task = partial(fetch, path, begin, end, version, own)
                tasks.append(pool.submit(task))
                begin = end
            yield tasks.popleft().result()
    finally:
        pool.stop()
