"""Local copies of compressed and remote files in `cache_dir`, decompressed.

One process makes a copy while others wait, and it appears atomically. Its name is
``NAME.PATH.VERSION-SIZE-CONTENT.tfrecord``: the name, the hash of the path or URL, the
modification time or hash of the ETag, the size of the file, and the size of its content,
in hex. So a copy is made again if the version of the file changes, or if the copy was
truncated. Copies of earlier versions are then deleted; processes can continue to read
open ones.

With `cache_bytes`, the least recently used copies are deleted to make room. The time of
access, which is set explicitly, is the time of use. Copies that a process uses are never
deleted: it holds a lock on a file ``.use-TOKEN`` that lists them.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import logging
import os
import stat
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fastrec.errors import LimitError
from fastrec.printable import printable
from fastrec.storage.atomic import temporary_file
from fastrec.storage.compression import Content, FileContent, inflated
from fastrec.storage.locks import builder_lock, held_lock, open_lock_file, try_lock
from fastrec.storage.parallel import run_in_threads
from fastrec.storage.paths import version_of
from fastrec.storage.remote import RemotePath
from fastrec.tasks import CancelledError

__all__ = ["local_copies"]

_log = logging.getLogger("fastrec")

# Only small files of real data reach high ratios; the maximum of deflate is 1,032.
_MIN_LIMITED_BYTES = 1 << 30

# Remote files that are copied at a time. Each is read by several threads.
_N_REMOTE_THREADS = 8


def local_copies(
    files: Sequence[str],
    contents: Sequence[Content],
    cache_dir: str,
    expansion_max: int,
    cache_bytes: int | None = None,
) -> list[str]:
    """Return paths of local, plain versions of the files, copying those without one.

    A remote file that is not compressed and does not fit into `cache_bytes` remains
    remote.

    Raises
    ------
    CorruptionError
        If a stream is damaged, truncated, or followed by other bytes.
    LimitError
        If a file expands to more than `expansion_max` times its size, or the content of
        a compressed file does not fit into `cache_bytes`.
    OSError
        If a file cannot be read, or a copy cannot be written.
    """
    copied = [
        i
        for i, (path, content) in enumerate(zip(files, contents, strict=True))
        if content != "plain" or isinstance(path, RemotePath)
    ]
    if not copied:
        return list(files)
    stems = {i: _stem(files[i], cache_dir) for i in copied}
    if cache_bytes is not None:
        _use(Path(cache_dir), [stem.name for stem in stems.values()])
    copies = _complete_copies(cache_dir)
    missing = [i for i in copied if stems[i].name not in copies]
    for stem in stems.values():
        if stem.name in copies:
            _touch(copies[stem.name])
    if missing:
        run = _Copying(expansion_max, cache_bytes)
        n_remote = sum(isinstance(files[i], RemotePath) for i in missing)
        new = run_in_threads(
            [partial(run.copy, (files[i], contents[i]), stems[i]) for i in missing],
            cancel=run.is_cancelled.set,
            progress_text=lambda n_done, seconds: (
                f"copying {len(missing):,} files to {printable(cache_dir)}: {n_done:,} "
                f"files and {run.n_bytes / 1e9:.2f} GB so far, "
                f"{run.n_bytes / 1e9 / seconds:.2f} GB/s"
            ),
            n_threads=_N_REMOTE_THREADS if n_remote else None,
        )
        if (n_left := new.count(None)) > 0:
            _log.warning(
                "%d of %d remote files do not fit into cache_bytes=%s and are read over "
                "the network in every epoch",
                n_left,
                len(copied),
                cache_bytes,
            )
        copies |= {path.name.rpartition("-")[0]: path for path in new if path}
    return [
        str(copies[stems[i].name]) if i in stems and stems[i].name in copies else path
        for i, path in enumerate(files)
    ]


def _stem(path: str, cache_dir: str) -> Path:
    """Return the path of the copies of `path`, without the size of their content."""
    real = path if isinstance(path, RemotePath) else os.path.realpath(path)
    of_path = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    size, mtime_ns = version_of(path)
    name = f"{Path(real).name[:100]}.{of_path}.{max(0, mtime_ns):016x}-{size:x}"
    return Path(cache_dir) / name


def _complete_copies(cache_dir: str | Path, stem: str = "") -> dict[str, Path]:
    """Return the complete copies whose stems begin with `stem`, by stem."""
    copies = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(cache_dir) as entries:
        for entry in entries:
            name, dot, rest = entry.name.rpartition(".tfrecord")
            its_stem, dash, size = name.rpartition("-")
            if not (dot and dash and not rest and name.startswith(stem)):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                is_complete = f"{status.st_size:x}" == size
                if is_complete and stat.S_ISREG(status.st_mode):
                    copies[its_stem] = Path(entry.path)
    return copies


def _touch(copy: Path) -> None:
    """Set the time of the last use; the modification time belongs to the index."""
    with contextlib.suppress(OSError):
        os.utime(copy, ns=(time.time_ns(), copy.stat().st_mtime_ns))


# The files that list the copies which this process uses; closing them unlocks them.
_uses = contextlib.ExitStack()


def _use(directory: Path, stems: Sequence[str]) -> None:
    """Protect copies from deletion until this process ends."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f".use-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        lock = _uses.enter_context(open_lock_file(path))
        try_lock(lock)
        with path.open("w") as file:
            file.write("\n".join(stems))
    except (ImportError, OSError) as error:
        _log.debug("cannot protect the copies in use: %s", error)


def _used(directory: Path) -> set[str]:
    """Return the stems that running processes use; remove the lists of others."""
    stems: set[str] = set()
    for path in directory.glob(".use-*"):
        with contextlib.suppress(OSError, ImportError):
            with open_lock_file(path) as lock:
                if try_lock(lock):
                    path.unlink()
                    continue
            stems.update(path.read_text().splitlines())
    return stems


def _make_room(directory: Path, n_bytes: int, cache_bytes: int) -> bool:
    """Delete the least recently used copies, and return whether `n_bytes` fit."""
    copies = []
    for stem, path in _complete_copies(directory).items():
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            copies.append((status.st_atime_ns, status.st_size, stem, path))
    excess = sum(size for _, size, _, _ in copies) + n_bytes - cache_bytes
    if excess <= 0:
        return True
    used = _used(directory)
    unused = sorted(copy for copy in copies if copy[2] not in used)
    if sum(size for _, size, _, _ in unused) < excess:
        return False
    for _, size, _, path in unused:
        if excess <= 0:
            break
        path.unlink(missing_ok=True)
        _log.info("deleted %s to make room", printable(path))
        excess -= size
    return True


def _delete_earlier(target: Path, *, is_remote: bool) -> None:
    """Delete the copies of earlier versions of the file whose copy is `target`.

    ETags have no order, so all other versions of a remote file are deleted.
    """
    prefix, version, _ = target.name.rsplit(".", 2)
    for other in target.parent.glob(f"{glob.escape(prefix)}.*.tfrecord"):
        of_path, its_version, _ = other.name.rsplit(".", 2)
        is_earlier = is_remote or its_version[:16] < version[:16]
        if of_path == prefix and its_version != version and is_earlier:
            with contextlib.suppress(OSError):
                other.unlink()
                _log.info(
                    "deleted %s, because %s is a later version",
                    printable(other),
                    printable(target.name),
                )


class _Copying:
    """Copies files in several threads."""

    def __init__(self, expansion_max: int, cache_bytes: int | None) -> None:
        self._expansion_max = expansion_max
        self._cache_bytes = cache_bytes
        self.is_cancelled = threading.Event()
        self.n_bytes = 0  # approximate, because threads may lose an update

    def copy(self, file: FileContent, stem: Path) -> Path | None:
        """Return the copy of a file; make it unless another process did.

        Returns None for a plain remote file that does not fit into the cache.
        """
        with builder_lock(stem, self.is_cancelled):
            self._check_cancelled()
            copy = _complete_copies(stem.parent, stem.name).get(stem.name)
            if copy is not None:
                return copy
            path, content = file
            is_plain = content == "plain"
            if is_plain and not self._has_room(stem.parent, version_of(path)[0]):
                return None
            with temporary_file(stem) as temporary:
                try:
                    n_bytes = self._write(file, temporary)
                except OSError as error:
                    if error.filename is None:  # if the disk is full
                        error.filename = str(temporary)
                    raise
                target = stem.with_name(f"{stem.name}-{n_bytes:x}.tfrecord")
                with self._room(stem.parent):
                    if self._has_room(stem.parent, n_bytes):
                        temporary.replace(target)
                    elif is_plain:
                        temporary.unlink()
                        return None
                    else:
                        msg = (
                            f"the content, {n_bytes:,} bytes, does not fit into "
                            f"cache_bytes={self._cache_bytes:,} with the other files in "
                            "use; raise cache_bytes="
                        )
                        raise LimitError(msg, path, code="cache_bytes")
            _delete_earlier(target, is_remote=isinstance(path, RemotePath))
            return target

    def _room(self, directory: Path) -> contextlib.AbstractContextManager[None]:
        """Hold the lock under which copies appear, if there is a limit."""
        if self._cache_bytes is None:
            return contextlib.nullcontext()
        # Not a lock of `builder_lock`: the thread may hold that one, and would wait for
        # itself.
        return held_lock(directory / ".lock-room", self.is_cancelled)

    def _has_room(self, directory: Path, n_bytes: int) -> bool:
        limit = self._cache_bytes
        return limit is None or _make_room(directory, n_bytes, limit)

    def _write(self, file: FileContent, temporary: Path) -> int:
        """Write a file's content to `temporary`, and return its size."""
        path, content = file
        size, _ = version_of(path)
        n_bytes_max = max(_MIN_LIMITED_BYTES, self._expansion_max * size)
        n_bytes = 0
        with temporary.open("wb", buffering=0) as output:
            for piece in inflated(path, content):
                n_bytes += len(piece)
                if content != "plain" and n_bytes > n_bytes_max:
                    msg = (
                        f"the file expands to more than {self._expansion_max} times "
                        "its size; to allow it, pass limits=fastrec.Limits("
                        "max_expansion_ratio=...)"
                    )
                    raise LimitError(msg, path, code="expansion")
                rest = memoryview(piece)
                while rest:
                    rest = rest[output.write(rest) :]
                self.n_bytes += len(piece)
                self._check_cancelled()
            # Sync before the rename, so that the file is complete after a power
            # failure.
            os.fsync(output.fileno())
        return n_bytes

    def _check_cancelled(self) -> None:
        if self.is_cancelled.is_set():
            raise CancelledError
