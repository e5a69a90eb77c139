"""Where records are: indexes of files, built once and kept in the user's cache.

An index is built when it is first needed, in parallel, with the checksum of every length
verified, and kept under ``$FASTREC_CACHE`` (else ``$XDG_CACHE_HOME/fastrec``, else
``~/.cache/fastrec``), never beside the data unless `index_dir` says so. It belongs to one
version of a file: another size or modification time, and it is built again. A cache that
cannot be written is no error; the index is then built in every process.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastrec import _core
from fastrec.options import (
    checked_names,
    default_num_threads,
    non_negative_int,
    positive_int,
)
from fastrec.printable import printable
from fastrec.storage.atomic import replacement
from fastrec.storage.locks import opened_to_lock, try_lock
from fastrec.storage.parallel import pass_over
from fastrec.storage.paths import Paths, expand

__all__ = [
    "build_index",
    "builder_lock",
    "cache_dir",
    "index_path",
    "keep_index",
    "rename_index",
    "write_tfrecord2idx",
]

Progress: TypeAlias = Callable[[int, int], None]

_log = logging.getLogger("fastrec")

# Builders of one machine take turns by locking one of these many files.
_N_LOCKS = 64
_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_BEFORE_LOG = 5.0


def cache_dir() -> Path:
    """Return the directory that indexes are kept in. Read anew at every call."""
    for variable, tail in (("FASTREC_CACHE", "."), ("XDG_CACHE_HOME", "fastrec")):
        if value := os.environ.get(variable):
            return Path(value) / tail
    try:
        return Path.home() / ".cache" / "fastrec"
    except RuntimeError:  # a user without a home, as there are in containers
        return Path(os.devnull)  # where nothing can be kept


def index_path(path: str, index_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return where the index of the file `path` is kept."""
    directory = cache_dir() / "index" if index_dir is None else Path(index_dir)
    real = os.path.realpath(path)
    key = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    return directory / f"{Path(real).name[:100]}.{key}.frecidx"


def load_index(
    path: str, index_dir: str | os.PathLike[str] | None = None
) -> _core.Index | None:
    """Return the kept index of `path`, or None if there is none that fits the file."""
    status = os.stat(path)  # noqa: PTH116 (100,000 files: a Path for each is not free)
    kept = _core.Index.load(
        os.fsencode(index_path(path, index_dir)), status.st_size, status.st_mtime_ns
    )
    if kept is None and index_dir is not None:
        kept = _read_tfrecord2idx(path, Path(index_dir), status)
    return kept


def load_indexes(
    paths: Sequence[str], index_dir: str | os.PathLike[str] | None
) -> list[_core.Index] | None:
    """Return the kept indexes of all `paths`, or None if one is missing."""
    found = []
    for path in paths:
        index = load_index(path, index_dir)
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
    """Return the index of each file, building and keeping those that are missing.

    Errors call the files by their `names`, if they are given. `recovery` says what is
    done where the framing is damaged: "raise", "skip" or "resync". Indexes of damaged
    files are not kept, so those that are hold for all of these.

    Raises
    ------
    OSError
        If a file cannot be read, or, with `must_keep`, an index not be kept.
    CorruptionError
        If the framing of a file is damaged: the first such file in order.
    """
    n_bytes = sum(os.stat(path).st_size for path in paths)  # noqa: PTH116
    scan = _core.ScanProgress()
    is_cancelled = threading.Event()
    not_kept: list[OSError] = []
    n_threads_per_file = max(1, default_num_threads() // max(1, len(paths)))

    def make(path: str, name: str) -> _core.Index:
        kept = load_index(path, index_dir)
        if kept is not None:
            return kept
        target = index_path(path, index_dir)
        with builder_lock(target, is_cancelled):
            kept = load_index(path, index_dir)  # somebody else may have built it
            if kept is not None:
                return kept
            index = _core.Index.build(
                os.fsencode(path),
                io,
                n_threads_per_file,
                scan,
                os.fsencode(name),
                recovery,
            )
            if index.gaps:
                return index
            try:
                with replacement(target) as temporary:
                    index.save(os.fsencode(temporary))
            except OSError as error:
                if must_keep:
                    raise
                not_kept.append(error)
            return index

    def report() -> None:
        if progress is not None:
            progress(min(scan.n_bytes, n_bytes), n_bytes)

    def so_far(_n_done: int, seconds: float) -> str:
        return (
            f"indexing {len(paths)} files, {n_bytes / 1e9:.1f} GB: "
            f"{scan.n_bytes / 1e9 / seconds:.2f} GB/s so far"
        )

    def cancel() -> None:
        scan.cancel()
        is_cancelled.set()

    indexes = pass_over(
        [
            partial(make, path, name)
            for path, name in zip(paths, names or paths, strict=True)
        ],
        cancel=cancel,
        so_far=so_far,
        on_look=report,
    )
    report()
    if not_kept:  # one line, however many files there are
        _log.info(
            "%d of %d indexes are not kept: %s", len(not_kept), len(paths), not_kept[0]
        )
    return indexes


def keep_index(path: str, offsets: NDArray[np.uint64]) -> None:
    """Keep the index of a file that was just written, by whoever knows its offsets.

    Where each frame begins, and where the last one ends. A cache that cannot be written
    is no error.
    """
    status = os.stat(path)  # noqa: PTH116
    index = _core.Index.from_offsets(
        offsets, status.st_size, status.st_mtime_ns, os.fsencode(path)
    )
    try:
        with replacement(index_path(path)) as temporary:
            index.save(os.fsencode(temporary))
    except OSError as error:
        _log.info("the index of %s is not kept: %s", printable(path), error)


def rename_index(path: str, target: str) -> None:
    """Keep the index of a file that was renamed, if there is one."""
    with contextlib.suppress(OSError):
        index_path(path).replace(index_path(target))


@checked_names
def build_index(
    paths: Paths,
    *,
    index_dir: str | os.PathLike[str] | None = None,
    rank: int = 0,
    world_size: int = 1,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Build the indexes of files ahead of time, so that nothing waits for them later.

    Of compressed files, the records are counted: what `fastrec.open` needs of those that
    it reads as they are.

    Parameters
    ----------
    paths : path-like or sequence of path-like
        As for `fastrec.open`.
    index_dir : path-like, optional
        Keep the indexes there and not in the user's cache; it may be shared between
        machines. Pass the same to `fastrec.open`.
    rank, world_size : int
        Divide the files among machines: this one takes every `world_size`-th file from
        file `rank` on.
    progress : callable, optional
        Called with the bytes walked so far and their total, about ten times a second.

    Returns
    -------
    dict of str to int
        Records in each of this rank's files, by path.

    Raises
    ------
    OSError
        If a file cannot be read, or an index not be written.
    CorruptionError
        If the framing of a file is damaged.
    """
    world_size = positive_int("world_size", world_size)
    rank = non_negative_int("rank", rank)
    if rank >= world_size:
        msg = f"rank must be below world_size, but is {rank} of {world_size}"
        raise ValueError(msg)
    mine = expand(paths)[rank::world_size]
    # Here, for both keep what they find as this module does.
    from fastrec.sources.file_set import File, FileSet
    from fastrec.storage.counting import counted

    files = FileSet(map(File, mine)).contents()
    plain = [path for path, content in files if content == "plain"]
    indexes = make_indexes(
        plain, index_dir=index_dir, progress=progress, must_keep=True
    )
    # Among compressed files, plain ones are read in order, too.
    streams = [] if len(plain) == len(files) else files
    counts = counted(streams, None if index_dir is None else os.fspath(index_dir))
    n_records = dict(zip(plain, map(len, indexes), strict=True))
    n_records |= {file[0]: len(n) for file, n in zip(streams, counts, strict=True)}
    return {path: n_records[path] for path in mine}


def write_tfrecord2idx(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    index_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Write the index of one file in the text format of ``tfrecord2idx``.

    One line per record: the byte at which its frame begins, a space, and the size of the
    frame in bytes. Other readers ask for such a file beside the data. A directory that
    holds ``NAME.idx`` for each file can be passed to `fastrec.open` as `index_dir`.
    """
    (index,) = make_indexes([os.fspath(path)], index_dir=index_dir)
    offsets = index.offsets.astype(np.int64)
    lines = np.stack([offsets[:-1], np.diff(offsets)], axis=1)
    np.savetxt(target, lines, fmt="%d")


def _read_tfrecord2idx(
    path: str, directory: Path, status: os.stat_result
) -> _core.Index | None:
    text = directory / f"{Path(path).name}.idx"
    if not text.is_file():
        return None
    try:
        lines = np.loadtxt(text, dtype=np.uint64, ndmin=2, usecols=(0, 1))
        offsets = np.append(lines[:, 0], lines[-1:].sum(dtype=np.uint64))
        return _core.Index.from_offsets(
            offsets, status.st_size, status.st_mtime_ns, os.fsencode(path)
        )
    except (OSError, ValueError) as error:
        _log.warning("%s is not used: %s", printable(text), error)
        return None


@contextlib.contextmanager
def builder_lock(target: Path, is_cancelled: threading.Event) -> Iterator[None]:
    """Hold one of the locks of the directory that `target` is in, if that works there.

    The lock saves work when several processes begin at once. Nothing depends on it, so
    a wait that is cancelled simply ends. A long wait is logged.
    """
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
