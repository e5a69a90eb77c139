"""Decompressed local copies of compressed and remote files, in ``cache_dir=``.

One process makes a copy, which appears atomically, while other processes wait. A copy
is named ``NAME.FILE.VERSION-SIZE-CONTENT.tfrecord``: the name, the hash of the path or
URL, the hash of the times or ETag, the size of the file, and the size of its content,
in hex. So a new version of the file or a truncated copy results in a new copy, and
copies of other versions are deleted.

A copy is unproven if the server reports no exact version of the file, or if the file
was damaged on both reads. The VERSION of such a copy is the random token of the only
dataset that uses the copy.

With ``cache_bytes=``, the least recently used copies are deleted to make room. The time
of the last use is the access time of the copy, which fastrec sets.

Copies in use are never deleted: each dataset locks its *mark*, a file ``.use-TOKEN``
that lists its copies. The names of its temporary files also contain the token.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import mmap
import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fastrec import _core
from fastrec.errors import CorruptionError, Error, LimitError
from fastrec.printable import printable
from fastrec.storage.atomic import (
    builder_lock,
    held_lock,
    open_lock_file,
    temporary_file,
    try_lock,
)
from fastrec.storage.compression import Content, inflated
from fastrec.storage.index_files import hashed_name
from fastrec.storage.parallel import run_in_threads
from fastrec.storage.paths import version_of
from fastrec.storage.remote import RemotePath, RequestCounters, is_weak

_log = logging.getLogger("fastrec")

# Real files above this size do not reach high ratios; deflate's maximum is 1,032.
_MIN_LIMITED_BYTES = 1 << 30

# Remote files that are copied at a time. Several threads read each file.
_N_REMOTE_THREADS = 8

# The prefix of each token. No hash has this prefix.
_TOKEN = "once"

# The name of a copy or a temporary file.
_NAME = re.compile(
    r"(?P<stem>.+\.[0-9a-f]{16}\.[0-9a-z]{16}-[0-9a-f]+)-(?P<size>[0-9a-f]+)\.tfrecord"
    rf"|\.(?P<token>{_TOKEN}[0-9a-f]{{12}})\..+\.tmp",
    re.DOTALL,
)


def local_copies(
    files: Sequence[str],
    contents: Sequence[Content],
    cache_dir: str,
    expansion_max: int,
    cache_bytes: int | None = None,
) -> list[str]:
    """Return the paths to read instead of `files`, after making missing copies.

    A plain remote file that does not fit into `cache_bytes` remains remote. A
    compressed file that does not fit, or that expands to more than `expansion_max`
    times its size, raises a LimitError. A copy remains while its path is referenced.
    """
    copied = [
        i
        for i, (path, content) in enumerate(zip(files, contents, strict=True))
        if content != "plain" or isinstance(path, RemotePath)
    ]
    if not copied:
        return list(files)
    run = _Copying(Path(cache_dir), expansion_max, cache_bytes)
    stems = {i: run.stem(files[i]) for i in copied}
    mark = run.begin({*stems.values()})
    complete = {f.stem: f.path for f in _files(run.directory, is_complete=True)}
    copies = {i: complete.get(stem) for i, stem in stems.items()}
    for path in filter(None, copies.values()):
        with contextlib.suppress(OSError):  # keep the modification time for indexes
            os.utime(path, ns=(time.time_ns(), os.stat(path).st_mtime_ns))
    if missing := [i for i in copied if copies[i] is None]:
        is_remote = any(isinstance(files[i], RemotePath) for i in missing)
        new = run_in_threads(
            [partial(run.copy, files[i], contents[i], stems[i]) for i in missing],
            cancel=run.counters.cancel,
            progress_text=lambda n_done, seconds: (
                f"copying {len(missing):,} files to {printable(cache_dir)}: {n_done:,} "
                f"files and {run.n_bytes / 1e9:.2f} GB so far, "
                f"{run.n_bytes / 1e9 / seconds:.2f} GB/s"
            ),
            n_threads=_N_REMOTE_THREADS if is_remote else None,
        )
        copies.update(zip(missing, new, strict=True))
        if n_left := new.count(None):
            _log.warning(
                "%d of %d remote files do not fit into cache_bytes=%s and are read over "
                "the network in every epoch",
                n_left,
                len(copied),
                cache_bytes,
            )
    local = {i: _CopyPath.of(path, mark) for i, path in copies.items() if path}
    return [local.get(i, path) for i, path in enumerate(files)]


class _CopyPath(str):
    """The path of a copy, with the mark that protects the copy from deletion."""

    __slots__ = ("_mark",)

    _mark: object

    @classmethod
    def of(cls, path: str, mark: object) -> _CopyPath:
        self = cls(path)
        self._mark = mark
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return str, (str(self),)


class _File(NamedTuple):
    """A copy or a temporary file, with the time of its last use."""

    atime_ns: int
    path: str
    stem: str  # the name of a copy without the size of its content, or the token
    size: int
    is_complete: bool

    @property
    def version(self) -> str:
        return self.stem.rpartition(".")[2].partition("-")[0]

    def delete(self, reason: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
            _log.info("deleted %s %s", printable(self.path), reason)


def _files(
    directory: Path, stem: str = "", *, is_complete: bool = False
) -> Iterator[_File]:
    """Yield the cache's copies and temporary files whose names begin with `stem`."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith(stem):
                continue
            if (name := _NAME.fullmatch(entry.name)) is None:
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                has_size = f"{status.st_size:x}" == name["size"]
                file = _File(
                    status.st_atime_ns,
                    entry.path,
                    name["stem"] or name["token"],
                    status.st_size,
                    has_size and stat.S_ISREG(status.st_mode),
                )
                if file.is_complete or not is_complete:
                    yield file


def _unused(directory: Path) -> list[_File]:
    """Return the files in a cache that no dataset uses; [] if marks cannot be read.

    Deletes the marks of datasets that no longer exist.
    """
    used: set[str] = set()
    try:
        for path in directory.glob(".use-*"):
            # Another user's mark may be read-only, and then may not be lockable.
            flags = os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY
            with open_lock_file(path, flags) as mark:
                with contextlib.suppress(ImportError, OSError):
                    if try_lock(mark):
                        path.unlink()
                        continue
                used.update(os.fsdecode(mark.read()).split("\0"))
    except OSError as error:
        _log.info("cannot delete files in %s: %s", printable(directory), error)
        return []
    return [f for f in _files(directory) if used.isdisjoint((f.stem, f.version))]


class _Copying:
    """Copies the files of one dataset to the cache, in several threads."""

    def __init__(
        self, directory: Path, expansion_max: int, cache_bytes: int | None
    ) -> None:
        self.directory = directory
        self._expansion_max = expansion_max
        self._cache_bytes = cache_bytes
        self._token = f"{_TOKEN}{os.urandom(6).hex()}"
        self._lock = threading.Lock()
        # Held while copies are created or deleted. Not a `builder_lock`: a thread that
        # holds the same one would wait for itself.
        self._room_path = directory / ".lock-room"
        self.counters = RequestCounters()  # cancels the copies
        self.n_bytes = 0  # approximate, because threads may lose an update

    def stem(self, path: str, *, is_proven: bool = True) -> str:
        """Return the beginning of the copy's name, ``NAME.FILE.VERSION-SIZE``."""
        if isinstance(path, RemotePath):
            size, tag = version_of(path)
            name, version = path.identity, f"{tag:016x}"
            is_proven = is_proven and tag != 0 and not is_weak(path)
        else:
            status = os.stat(path)
            name, size = os.path.realpath(path), status.st_size
            # ctime changes even if a program restores the mtime.
            times = f"{status.st_mtime_ns} {status.st_ctime_ns}".encode()
            version = hashlib.sha256(times).hexdigest()[:16]
        return f"{hashed_name(name)}.{version if is_proven else self._token}-{size:x}"

    def begin(self, stems: set[str]) -> object:
        """Return a mark that protects the copies `stems` while the mark is referenced.

        Deletes the following files if no dataset uses them: copies of other versions,
        unproven copies, and temporary files. Returns None if locking fails.
        """
        path = self.directory / f".use-{self._token}"
        with held_lock(self._room_path, self.counters.is_cancelled):
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                with open_lock_file(path) as file:
                    try_lock(file)
                    file.write(os.fsencode("\0".join([self._token, *stems])))
                    # A mapping has its own descriptor, which also holds the lock.
                    # Closing it runs no Python code, in which a signal might be lost.
                    mark = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
            except (ImportError, OSError) as error:
                _log.info("cannot protect the copies in use: %s", error)
                with contextlib.suppress(OSError):
                    path.unlink()
                return None
            names = {stem.rpartition(".")[0] for stem in stems}
            for unused in _unused(self.directory):
                is_old = unused.stem.rpartition(".")[0] in names
                if is_old or unused.version.startswith(_TOKEN):
                    with contextlib.suppress(OSError):  # another user's file
                        unused.delete("because no dataset uses it")
        return mark

    def copy(self, path: str, content: Content, stem: str) -> str | None:
        """Return the path of the copy of a file; make the copy if it is missing.

        Returns None for a plain remote file that does not fit into the cache.
        """
        with builder_lock(self.directory / stem, self.counters.is_cancelled):
            self.counters.check()
            for copy in _files(self.directory, stem, is_complete=True):
                if copy.stem == stem:
                    return copy.path
            is_plain = content == "plain"
            with self._room(version_of(path)[0] if is_plain else 0) as fits:
                if is_plain and not fits:
                    return None
            with temporary_file(self.directory / self._token) as temporary:
                n_bytes, is_proven = self._write(path, content, temporary)
                stem = stem if is_proven else self.stem(path, is_proven=False)
                target = self.directory / f"{stem}-{n_bytes:x}.tfrecord"
                with self._room(n_bytes) as fits:
                    if fits:
                        temporary.replace(target)
                        return str(target)
                if is_plain:
                    return None
                raise LimitError(
                    f"the content, {n_bytes:,} bytes, does not fit into "
                    f"cache_bytes={self._cache_bytes:,} with the other files in "
                    "use; raise cache_bytes=",
                    path,
                    code="cache_bytes",
                )

    @contextlib.contextmanager
    def _room(self, n_bytes: int) -> Iterator[bool]:
        """Make room for `n_bytes` in the cache, if possible; yield whether they fit."""
        if self._cache_bytes is None:
            self.counters.check()
            yield True
            return
        # Waiting for a lock file polls, so threads first wait for the mutex.
        with (
            _core.HeldLock(self._lock),
            held_lock(self._room_path, self.counters.is_cancelled),
        ):
            self.counters.check()  # a cancelled wait does not hold the lock
            n_used = sum(file.size for file in _files(self.directory, is_complete=True))
            excess = n_used + n_bytes - self._cache_bytes
            unused: list[_File] = []
            if n_bytes and excess > 0:
                unused = sorted(f for f in _unused(self.directory) if f.is_complete)
            fits = not n_bytes or sum(file.size for file in unused) >= excess
            for file in unused if fits else ():
                if excess > 0:
                    file.delete("to make room")
                    excess -= file.size
            yield fits

    def _write(self, path: str, content: Content, temporary: Path) -> tuple[int, bool]:
        """Write a file's content; return its size, and whether to trust the copy.

        If the copy of a remote file is damaged, the file is read once more: responses
        may have been altered, or may mix two versions. Local files are not checked.
        """
        if not isinstance(path, RemotePath):
            return self._write_once(path, content, temporary), True
        for is_last in (False, True):
            try:
                n_bytes = self._write_once(path, content, temporary)
                if self._is_intact(temporary):
                    return n_bytes, True
            except CorruptionError as error:
                if is_last or error.code == "file_changed":
                    raise
        _log.warning(
            "%s is damaged, even when read again; no other dataset uses its copy",
            printable(path),
        )
        return n_bytes, False

    def _write_once(self, path: str, content: Content, temporary: Path) -> int:
        n_bytes_max = max(_MIN_LIMITED_BYTES, self._expansion_max * version_of(path)[0])
        n_bytes = 0
        with temporary.open("wb") as output:
            for piece in inflated(path, content, counters=self.counters):
                n_bytes += len(piece)
                if content != "plain" and n_bytes > n_bytes_max:
                    raise LimitError(
                        f"the file expands to more than {self._expansion_max} times "
                        "its size; to allow it, pass limits=fastrec.Limits("
                        "max_expansion_ratio=...)",
                        path,
                        code="expansion",
                    )
                output.write(piece)
                self.n_bytes += len(piece)
                self.counters.check()
            # Sync before the rename: a power failure must not leave a partial copy.
            output.flush()
            os.fsync(output.fileno())
        return n_bytes

    def _is_intact(self, copy: Path) -> bool:
        """Return whether the length and payload checksums of all frames match."""
        examination = _core.Examination(os.fsencode(copy))
        progress = _core.ScanProgress()
        for i in range(examination.n_pieces):
            examination.examine(i, progress)
            self.counters.check()
        try:
            return not examination.finish(progress)[1]
        except Error:  # the content is compressed
            return False
