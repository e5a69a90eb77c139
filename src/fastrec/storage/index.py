"""Where the records of files are: found once for each version of a file, and kept.

A plain file has a `_core.Index`. A compressed file has a `Count`, from one pass over its
content. Either is built when it is first needed, in parallel, and kept under
``$FASTREC_CACHE`` (else ``$XDG_CACHE_HOME/fastrec``, else ``~/.cache/fastrec``), or in
`index_dir`. Both are cache files (``src/cpp/file/cache_file.h``): one that was altered, or
belongs to another size or modification time of the file, is built again. If the cache
cannot be written, every process builds for itself.
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
from fastrec.storage.locks import opened_to_lock, try_lock
from fastrec.storage.parallel import Progress, run_in_threads
from fastrec.storage.paths import Version, version_of
from fastrec.storage.stream_readers import frames_of
from fastrec.tasks import CancelledError

if TYPE_CHECKING:
    from pathlib import Path

# hashlib and pathlib are slow to import, so the functions that need them do it.

__all__ = [
    "Count",
    "builder_lock",
    "cache_dir",
    "counted",
    "index_path",
    "keep_index",
    "load_indexes",
    "make_indexes",
    "rename_index",
    "write_tfrecord2idx",
]

_log = logging.getLogger("fastrec")

# Builders of one machine take turns by locking one of this many files.
_N_LOCKS = 64
_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_BEFORE_LOG = 5.0

_ROW = np.dtype([("offset", "<u8"), ("payload_crc", "<u4")])
_COUNT_KIND = "freccnt2"


class Count:
    """How many records the content of a file has, and where.

    The table has a row for each record: where its frame begins in the content, and the
    checksum that is stored with its payload. A last row has the end of the content and 0.

    Attributes
    ----------
    version : Version
        Of the file that was counted.
    gaps : list of SkippedSpan
        What is left out of the content: its rest, if it is damaged.
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
        """Return the count of n frames, from n + 1 offsets and n checksums."""
        table = np.zeros(len(offsets), _ROW)
        table["offset"] = offsets
        table["payload_crc"][:-1] = payload_crcs
        return cls(table, version, gaps)

    @classmethod
    def load(cls, path: bytes, size: int, mtime_ns: int) -> Count | None:
        """Return the count kept at `path`, or None if it does not fit the version."""
        content = _core.load_cache(path, _COUNT_KIND, size, mtime_ns)
        if content is None or not content.size or content.size % _ROW.itemsize:
            return None
        return cls(content.view(_ROW), (size, mtime_ns))

    def save(self, path: bytes) -> None:
        """Write a file that `load` reads, or raise an OSError."""
        _core.save_cache(path, _COUNT_KIND, *self.version, self._table.view(np.uint8))

    def __len__(self) -> int:
        return len(self._table) - 1

    @property
    def n_bytes(self) -> int:
        """The size of the content."""
        return int(self._table["offset"][-1])

    def offset(self, record: int) -> int:
        """Return where the frame of a record begins."""
        return int(self._table["offset"][record])

    def payload_crc(self, record: int) -> int:
        """Return the checksum that is stored with a record."""
        return int(self._table["payload_crc"][record])


_Entry = TypeVar("_Entry", _core.Index, Count)


def cache_dir() -> Path:
    """Return the directory of the cache. The environment is read at every call."""
    from pathlib import Path

    for variable, tail in (("FASTREC_CACHE", "."), ("XDG_CACHE_HOME", "fastrec")):
        if value := os.environ.get(variable):
            return Path(value) / tail
    try:
        return Path.home() / ".cache" / "fastrec"
    except RuntimeError:  # a user without a home, as in containers
        return Path(os.devnull)  # where nothing can be kept


def index_path(
    path: str,
    index_dir: str | os.PathLike[str] | None = None,
    kind: type = _core.Index,
) -> Path:
    """Return where the index of the file `path`, or its count, is kept."""
    import hashlib
    from pathlib import Path

    directory = cache_dir() / "index" if index_dir is None else Path(index_dir)
    real = os.path.realpath(path)
    key = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    suffix = "freccnt" if kind is Count else "frecidx"
    return directory / f"{Path(real).name[:100]}.{key}.{suffix}"


def load_indexes(
    paths: Sequence[str], index_dir: str | os.PathLike[str] | None
) -> list[_core.Index] | None:
    """Return the kept indexes of all `paths`, or None if one is missing."""
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
    """Return the index of each plain file, building those that are not kept.

    Errors call the files by `names`. `recovery` is "raise", "skip" or "resync"; an index
    with gaps is not kept, so a kept one holds for all three. With `must_keep`, an index
    that cannot be kept is an OSError.
    """
    n_bytes = sum(os.stat(path).st_size for path in paths)  # noqa: PTH116
    scan = _core.ScanProgress()
    n_threads = max(1, default_num_threads() // max(1, len(paths)))

    def build(i: int, _is_cancelled: threading.Event) -> _core.Index:
        name = os.fsencode((names or paths)[i])
        path = os.fsencode(paths[i])
        return _core.Index.build(path, io, n_threads, scan, name, recovery)

    def report() -> None:
        if progress is not None:
            progress(min(scan.n_bytes, n_bytes), n_bytes)

    indexes = _kept_or_built(
        _core.Index,
        paths,
        build,
        index_dir=index_dir,
        so_far=lambda _n_done, seconds: (
            f"indexing {len(paths)} files, {n_bytes / 1e9:.1f} GB: "
            f"{scan.n_bytes / 1e9 / seconds:.2f} GB/s so far"
        ),
        cancel=scan.cancel,
        on_look=report,
        must_keep=must_keep,
    )
    report()
    return indexes


def counted(
    files: Sequence[FileContent],
    index_dir: str | os.PathLike[str] | None,
    recovery: str = "raise",
) -> list[Count]:
    """Return the count of each file, by a pass over those whose count is not kept.

    With a `recovery` other than "raise", the rest of a damaged content is left out.
    """
    return _kept_or_built(
        Count,
        [path for path, _ in files],
        lambda i, is_cancelled: _scanned(files[i], recovery, is_cancelled),
        index_dir=index_dir,
        so_far=lambda n_done, _seconds: (
            f"counting the records of compressed files: {n_done} of {len(files)} files "
            "so far"
        ),
    )


def keep_index(
    path: str,
    offsets: npt.NDArray[np.uint64],
    payload_crcs: npt.NDArray[np.uint32] | None = None,
) -> None:
    """Keep the index of a plain file that was just written, if the cache can be written.

    `offsets` are the beginnings of all frames and the end of the last one. Those of a
    compressed file are offsets in its content, and come with `payload_crcs`.
    """
    try:
        version = version_of(path)
        if payload_crcs is None:
            index = _core.Index.from_offsets(offsets, *version, os.fsencode(path))
            _save(index, path)
        else:
            _save(Count.of(offsets, payload_crcs, (), version), path)
    except OSError as error:
        _log.info("the index of %s is not kept: %s", printable(path), error)


def rename_index(path: str, target: str) -> None:
    """Keep what is kept of a file that was renamed to `target`."""
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

    One line per record: the byte at which its frame begins, a space, and the size of the
    frame in bytes. A directory that holds ``NAME.idx`` for each file can be passed to
    `fastrec.open` as `index_dir`.
    """
    (index,) = make_indexes([os.fspath(path)], index_dir=index_dir)
    offsets = index.offsets.astype(np.int64)
    lines = np.stack([offsets[:-1], np.diff(offsets)], axis=1)
    np.savetxt(target, lines, fmt="%d")


def _load(
    kind: type[_Entry], path: str, index_dir: str | os.PathLike[str] | None
) -> _Entry | None:
    """Return what is kept of `path`, or None if nothing is that fits the file."""
    version = version_of(path)
    kept = kind.load(os.fsencode(index_path(path, index_dir, kind)), *version)
    if kept is None and index_dir is not None and kind is _core.Index:
        return _read_tfrecord2idx(path, index_path(path, index_dir).parent, version)
    return kept


def _save(
    entry: _core.Index | Count,
    path: str,
    index_dir: str | os.PathLike[str] | None = None,
) -> None:
    with replacement(index_path(path, index_dir, type(entry))) as temporary:
        entry.save(os.fsencode(temporary))


def _kept_or_built(
    kind: type[_Entry],
    paths: Sequence[str],
    build: Callable[[int, threading.Event], _Entry],
    *,
    index_dir: str | os.PathLike[str] | None,
    so_far: Callable[[int, float], str],
    cancel: Callable[[], object] = lambda: None,
    on_look: Callable[[], object] | None = None,
    must_keep: bool = False,
) -> list[_Entry]:
    """Return the entry of each file, building and keeping those that are missing."""
    is_cancelled = threading.Event()
    not_kept: list[OSError] = []

    def made(i: int) -> _Entry:
        path = paths[i]
        if (kept := _load(kind, path, index_dir)) is not None:
            return kept
        with builder_lock(index_path(path, index_dir, kind), is_cancelled):
            # Another process may have built it meanwhile.
            if (kept := _load(kind, path, index_dir)) is not None:
                return kept
            entry = build(i, is_cancelled)
            if not entry.gaps:
                try:
                    _save(entry, path, index_dir)
                except OSError as error:
                    if must_keep:
                        raise
                    not_kept.append(error)
            return entry

    def cancel_all() -> None:
        is_cancelled.set()
        cancel()

    entries = run_in_threads(
        [partial(made, i) for i in range(len(paths))],
        cancel=cancel_all,
        so_far=so_far,
        on_look=on_look,
    )
    if not_kept:  # one line for any number of files
        _log.info(
            "%d of %d indexes are not kept: %s", len(not_kept), len(paths), not_kept[0]
        )
    return entries


def _scanned(file: FileContent, recovery: str, is_cancelled: threading.Event) -> Count:
    """Count the records of a file by a pass over its content."""
    path, _ = file
    version = version_of(path)

    def check() -> None:
        if is_cancelled.is_set():
            raise CancelledError

    table = _core.FileTable([os.fsencode(path)], ["pread"])
    with frames_of([file], table, [0], recovery, on_wait=check) as frames:
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
        _log.warning("%s is not used: %s", printable(text), error)
        return None


@contextlib.contextmanager
def builder_lock(target: Path, is_cancelled: threading.Event) -> Iterator[None]:
    """Hold a lock in the directory of `target`, if locks work there.

    The lock saves work when several processes begin at once. Correctness does not depend
    on it, so a wait that is cancelled simply ends. A long wait is logged.
    """
    import hashlib

    number = int.from_bytes(hashlib.sha256(os.fsencode(target)).digest()[:2], "big")
    with contextlib.ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            path = target.parent / f".lock-{number % _N_LOCKS:02d}"
            lock = stack.enter_context(opened_to_lock(path))
            log_at = time.monotonic() + _SECONDS_BEFORE_LOG
            while not try_lock(lock) and not is_cancelled.wait(_SECONDS_BETWEEN_LOOKS):
                if time.monotonic() > log_at:
                    log_at = math.inf
                    _log.warning(
                        "waiting for another process that holds the lock %s",
                        printable(path),
                    )
        except (ImportError, OSError) as error:
            _log.debug("the cache is written without a lock: %s", error)
        yield
