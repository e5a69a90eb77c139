"""Indexes: the offsets of a file's records, built once per version and cached.

A plain file has a `_core.Index`; a compressed file has a `Count`, from one scan of
its content. Both are built in parallel when they are first needed, and cached in
``$FASTREC_CACHE`` (else ``$XDG_CACHE_HOME/fastrec``, else ``~/.cache/fastrec``) or in
`index_dir`. The cache files (``src/cpp/file/cache_file.h``) have a checksum and the
size and modification time of the data file; if these do not match, the index is
rebuilt. If the cache is not writable, each process builds its own.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.on_error import SkippedSpan
from fastrec.options import default_num_threads
from fastrec.printable import printable
from fastrec.storage.atomic import replacement
from fastrec.storage.compression import FileContent
from fastrec.storage.locks import open_lock_file, try_lock
from fastrec.storage.parallel import Progress, run_in_threads
from fastrec.storage.paths import Version, version_of
from fastrec.storage.remote import RemotePath
from fastrec.storage.stream_readers import frame_stream
from fastrec.tasks import CancelledError

if TYPE_CHECKING:
    from pathlib import Path

# hashlib and pathlib are slow to import, so the functions that need them do it.

__all__ = [
    "Count",
    "builder_lock",
    "cache_dir",
    "index_path",
    "keep_index",
    "load_indexes",
    "make_counts",
    "make_indexes",
    "rename_index",
    "write_tfrecord2idx",
]

_log = logging.getLogger("fastrec")

# Processes that build indexes lock one of this many files in the cache directory.
_N_LOCKS = 64
_POLL_SECONDS = 0.1
_N_REMOTE_THREADS = 16  # they wait for the network
_LOG_AFTER_SECONDS = 5.0

_ROW = np.dtype([("offset", "<u8"), ("payload_crc", "<u4")])
_COUNT_KIND = "freccnt2"


class Count:
    """The number of records in a compressed file, and their offsets in its content.

    The table has a row for each record: the offset of its frame, and the stored
    checksum of its payload. The last row is the size of the content, and 0.

    Attributes
    ----------
    version : Version
        The version of the file that was counted.
    gaps : list of SkippedSpan
        The skipped part of the content: everything behind the first damage.
    """

    def __init__(
        self,
        table: npt.NDArray[Any],
        version: Version,
        gaps: Sequence[SkippedSpan] = (),
    ) -> None:
        self._table = table
        self.version = version
        self.gaps = list(gaps)

    @classmethod
    def of(
        cls,
        offsets: npt.NDArray[np.uint64],
        payload_crcs: npt.NDArray[np.uint32],
        gaps: Sequence[SkippedSpan],
        version: Version,
    ) -> Count:
        """Make the count of n frames from n + 1 offsets and n checksums."""
        table = np.zeros(len(offsets), _ROW)
        table["offset"] = offsets
        table["payload_crc"][:-1] = payload_crcs
        return cls(table, version, gaps)

    @classmethod
    def load(cls, path: bytes, size: int, mtime_ns: int) -> Count | None:
        """Load the count at `path`, or return None if its version differs."""
        content = _core.load_cache(path, _COUNT_KIND, size, mtime_ns)
        if content is None or not content.size or content.size % _ROW.itemsize:
            return None
        return cls(content.view(_ROW), (size, mtime_ns))

    def save(self, path: bytes) -> None:
        """Write a cache file for `load`, or raise an OSError."""
        _core.save_cache(path, _COUNT_KIND, *self.version, self._table.view(np.uint8))

    def __len__(self) -> int:
        return len(self._table) - 1

    @property
    def n_bytes(self) -> int:
        """Size of the content."""
        return int(self._table["offset"][-1])

    @property
    def offsets(self) -> npt.NDArray[np.uint64]:
        """The offset of each record's frame in the content, and the end of the last."""
        return np.asarray(self._table["offset"])

    def offset(self, record: int) -> int:
        """Return the offset of a record's frame in the content."""
        return int(self._table["offset"][record])

    def payload_crc(self, record: int) -> int:
        """Return the stored checksum of a record's payload."""
        return int(self._table["payload_crc"][record])


_Entry = TypeVar("_Entry", _core.Index, Count)


def cache_dir() -> Path:
    """Return the cache directory, from the current environment."""
    from pathlib import Path

    for variable, tail in (("FASTREC_CACHE", "."), ("XDG_CACHE_HOME", "fastrec")):
        if value := os.environ.get(variable):
            return Path(value) / tail
    try:
        return Path.home() / ".cache" / "fastrec"
    except RuntimeError:  # no home directory, as in containers
        return Path(os.devnull)  # nothing can be written there


def index_path(
    path: str,
    index_dir: str | os.PathLike[str] | None = None,
    kind: type = _core.Index,
) -> Path:
    """Return the cache path of a file's index or count."""
    import hashlib
    from pathlib import Path

    directory = (
        cache_dir() / "index" if index_dir is None else Path(index_dir).expanduser()
    )
    real = path if isinstance(path, RemotePath) else os.path.realpath(path)
    key = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    suffix = "freccnt" if kind is Count else "frecidx"
    return directory / f"{Path(real).name[:100]}.{key}.{suffix}"


def load_indexes(
    paths: Sequence[str], index_dir: str | os.PathLike[str] | None
) -> list[_core.Index] | None:
    """Load the cached indexes of all `paths`, or return None if one is missing."""
    found = []
    for path in paths:
        index = _load(_core.Index, path, index_dir)
        if index is None:
            return None
        found.append(index)
    return found


def make_indexes(
    paths: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    io: str = "auto",
    index_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    must_keep: bool = False,
    recovery: str = "raise",
) -> list[_core.Index]:
    """Return the index of each plain file, building those that are not cached.

    Errors name the files by `names`. `recovery` is "raise", "skip" or "resync"; an
    index with gaps is not cached, so cached indexes are valid for all three. With
    `must_keep`, an index that cannot be cached raises an OSError.
    """
    n_bytes = sum(version_of(path)[0] for path in paths)
    scan = _core.ScanProgress()
    n_threads = max(1, default_num_threads() // max(1, len(paths)))
    is_remote = any(isinstance(path, RemotePath) for path in paths)
    table: list[_core.FileTable] = []
    if is_remote:
        from fastrec.storage.range_readers import remote_table

        table.append(remote_table(paths, io))

    def build(i: int, _is_cancelled: threading.Event) -> _core.Index:
        if table:
            return _core.Index.build_in(table[0], i, n_threads, scan, recovery)
        name = os.fsencode((names or paths)[i])
        path = os.fsencode(paths[i])
        return _core.Index.build(path, io, n_threads, scan, name, recovery)

    def report() -> None:
        if progress is not None:
            progress(min(scan.n_bytes, n_bytes), n_bytes)

    indexes = _load_or_build(
        _core.Index,
        paths,
        build,
        index_dir=index_dir,
        progress_text=lambda _n_done, seconds: (
            f"indexing {len(paths)} files, {n_bytes / 1e9:.1f} GB: "
            f"{scan.n_bytes / 1e9 / seconds:.2f} GB/s so far"
        ),
        cancel=scan.cancel,
        on_poll=report,
        must_keep=must_keep,
        n_threads=_N_REMOTE_THREADS if is_remote else None,
    )
    report()
    return indexes


def make_counts(
    files: Sequence[FileContent],
    index_dir: str | os.PathLike[str] | None,
    recovery: str = "raise",
) -> list[Count]:
    """Return the count of each compressed file, scanning those that are not cached.

    With a `recovery` other than "raise", the content behind the first damage is
    skipped.
    """
    return _load_or_build(
        Count,
        [path for path, _ in files],
        lambda i, is_cancelled: _scan_count(files[i], recovery, is_cancelled),
        index_dir=index_dir,
        progress_text=lambda n_done, _seconds: (
            f"counting the records of compressed files: {n_done} of {len(files)} files "
            "so far"
        ),
    )


def keep_index(
    path: str,
    offsets: npt.NDArray[np.uint64],
    payload_crcs: npt.NDArray[np.uint32] | None = None,
    index_dir: str | os.PathLike[str] | None = None,
) -> _core.Index | None:
    """Cache the index of a file that was just written or read, if the cache is writable.

    Returns the index of a plain file, which is valid also if it cannot be cached.
    `offsets` are the beginnings of all frames and the end of the last one. For a
    compressed file, they are offsets in its content, and `payload_crcs` is required.
    """
    index = None
    try:
        version = version_of(path)
        if payload_crcs is None:
            index = _core.Index.from_offsets(offsets, *version, os.fsencode(path))
            _save(index, path, index_dir)
        else:
            _save(Count.of(offsets, payload_crcs, (), version), path, index_dir)
    except OSError as error:
        _log.info("cannot cache the index of %s: %s", printable(path), error)
    return index


def rename_index(path: str, target: str) -> None:
    """Rename the cached index or count of a file that was renamed to `target`."""
    for kind in (_core.Index, Count):
        with contextlib.suppress(OSError):
            index_path(path, None, kind).replace(index_path(target, None, kind))


def write_tfrecord2idx(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    index_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Write the index of one file in the text format of ``tfrecord2idx``.

    One line per record: the offset of its frame and the size of the frame, in bytes. A
    directory with a ``NAME.idx`` for each file is valid as `index_dir` of
    `fastrec.open`.
    """
    (index,) = make_indexes([os.fspath(path)], index_dir=index_dir)
    offsets = index.offsets.astype(np.int64)
    lines = np.stack([offsets[:-1], np.diff(offsets)], axis=1)
    np.savetxt(target, lines, fmt="%d")


def _load(
    kind: type[_Entry], path: str, index_dir: str | os.PathLike[str] | None
) -> _Entry | None:
    """Return the cached entry of `path`, or None if it is missing or out of date."""
    version = version_of(path)
    entry = kind.load(os.fsencode(index_path(path, index_dir, kind)), *version)
    if entry is None and index_dir is not None and kind is _core.Index:
        return _read_tfrecord2idx(path, index_path(path, index_dir).parent, version)
    return entry


def _save(
    entry: _core.Index | Count,
    path: str,
    index_dir: str | os.PathLike[str] | None = None,
) -> None:
    with replacement(index_path(path, index_dir, type(entry))) as temporary:
        entry.save(os.fsencode(temporary))


def _load_or_build(
    kind: type[_Entry],
    paths: Sequence[str],
    build: Callable[[int, threading.Event], _Entry],
    *,
    index_dir: str | os.PathLike[str] | None,
    progress_text: Callable[[int, float], str],
    cancel: Callable[[], object] = lambda: None,
    on_poll: Callable[[], object] | None = None,
    must_keep: bool = False,
    n_threads: int | None = None,
) -> list[_Entry]:
    """Return the entry of each file, building and caching those that are missing."""
    is_cancelled = threading.Event()
    errors: list[OSError] = []

    def load_or_build(i: int) -> _Entry:
        path = paths[i]
        if (entry := _load(kind, path, index_dir)) is not None:
            return entry
        with builder_lock(index_path(path, index_dir, kind), is_cancelled):
            # Another process may have built it meanwhile.
            if (entry := _load(kind, path, index_dir)) is not None:
                return entry
            entry = build(i, is_cancelled)
            if not entry.gaps:
                try:
                    _save(entry, path, index_dir)
                except OSError as error:
                    if must_keep:
                        raise
                    errors.append(error)
            return entry

    def cancel_all() -> None:
        is_cancelled.set()
        cancel()

    entries = run_in_threads(
        [partial(load_or_build, i) for i in range(len(paths))],
        cancel=cancel_all,
        progress_text=progress_text,
        on_poll=on_poll,
        n_threads=n_threads,
    )
    if errors:
        _log.info(
            "cannot cache %d of %d indexes: %s", len(errors), len(paths), errors[0]
        )
    return entries


def _scan_count(
    file: FileContent, recovery: str, is_cancelled: threading.Event
) -> Count:
    """Count the records of a compressed file by scanning its content."""
    path, _ = file
    version = version_of(path)

    def check() -> None:
        if is_cancelled.is_set():
            raise CancelledError

    table = _core.FileTable([os.fsencode(path)], ["pread"])
    with frame_stream([file], table, [0], recovery, on_wait=check) as frames:
        return Count.of(*frames.scan(), version)


def _read_tfrecord2idx(
    path: str, directory: Path, version: Version
) -> _core.Index | None:
    text = directory / f"{os.path.basename(path)}.idx"  # noqa: PTH119
    if not text.is_file():
        return None
    try:
        lines = np.loadtxt(text, dtype=np.uint64, ndmin=2, usecols=(0, 1))
        offsets = np.append(lines[:, 0], lines[-1:].sum(dtype=np.uint64))
        return _core.Index.from_offsets(offsets, *version, os.fsencode(path))
    except (OSError, ValueError) as error:
        _log.warning("ignoring index file %s: %s", printable(text), error)
        return None


@contextlib.contextmanager
def builder_lock(target: Path, is_cancelled: threading.Event) -> Iterator[None]:
    """Hold a lock in the directory of `target`, if the file system supports locks.

    The lock saves work if several processes build the same file. Correctness does not
    depend on it, so cancelling the wait enters the body without it. A long wait is
    logged.
    """
    import hashlib

    number = int.from_bytes(hashlib.sha256(os.fsencode(target)).digest()[:2], "big")
    with contextlib.ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            path = target.parent / f".lock-{number % _N_LOCKS:02d}"
            lock = stack.enter_context(open_lock_file(path))
            log_at = time.monotonic() + _LOG_AFTER_SECONDS
            while not try_lock(lock) and not is_cancelled.wait(_POLL_SECONDS):
                if time.monotonic() > log_at:
                    log_at = math.inf
                    _log.warning(
                        "waiting for another process that holds the lock %s",
                        printable(path),
                    )
        except (ImportError, OSError) as error:
            _log.debug("writing the cache without a lock: %s", error)
        yield
