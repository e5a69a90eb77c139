"""Decompressed copies of compressed files in `cache_dir`.

One process expands a file while others wait, and the copy appears atomically. Its name
is ``NAME.PATH.MTIME-SIZE-CONTENT.tfrecord``: the name, the hash of the path, the
modification time and the size of the compressed file, and the size of its content, in
hex. So a file is expanded again if its size or modification time changes, or if its
copy was truncated. Copies of earlier versions are then deleted; processes can continue
to read open ones.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import logging
import os
import stat
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fastrec.errors import LimitError
from fastrec.printable import printable
from fastrec.storage.atomic import temporary_file
from fastrec.storage.compression import Content, FileContent, inflated
from fastrec.storage.locks import builder_lock
from fastrec.storage.parallel import run_in_threads
from fastrec.storage.paths import version_of
from fastrec.tasks import CancelledError

__all__ = ["expanded"]

_log = logging.getLogger("fastrec")

# Only small files of real data reach high ratios; the maximum of deflate is 1,032.
_MIN_LIMITED_BYTES = 1 << 30


def expanded(
    files: Sequence[str],
    contents: Sequence[Content],
    cache_dir: str,
    expansion_max: int,
) -> list[str]:
    """Return paths of plain versions of the files, expanding those without a copy.

    Raises
    ------
    CorruptionError
        If a stream is damaged, truncated, or followed by other bytes.
    LimitError
        If a file expands to more than `expansion_max` times its size.
    OSError
        If a file cannot be read, or a copy cannot be written.
    """
    compressed = [i for i, content in enumerate(contents) if content != "plain"]
    stems = {i: _stem(files[i], cache_dir) for i in compressed}
    copies = _complete_copies(cache_dir) if compressed else {}
    missing = [i for i in compressed if stems[i].name not in copies]
    if missing:
        run = _Expansion(expansion_max)
        new = run_in_threads(
            [partial(run.expand, (files[i], contents[i]), stems[i]) for i in missing],
            cancel=run.is_cancelled.set,
            progress_text=lambda _n_done, seconds: (
                f"expanding {len(missing)} files: {run.n_bytes / 1e9:.2f} GB, "
                f"{run.n_bytes / 1e9 / seconds:.2f} GB/s so far"
            ),
        )
        copies |= {path.name.rpartition("-")[0]: path for path in new}
    return [
        str(copies[stems[i].name]) if i in stems else path
        for i, path in enumerate(files)
    ]


def _stem(path: str, cache_dir: str) -> Path:
    """Return the path of the copies of `path`, without the size of their content."""
    real = os.path.realpath(path)
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


def _delete_earlier(target: Path) -> None:
    """Delete the copies of earlier versions of the file whose copy is `target`."""
    prefix, version, _ = target.name.rsplit(".", 2)
    for other in target.parent.glob(f"{glob.escape(prefix)}.*.tfrecord"):
        of_path, its_version, _ = other.name.rsplit(".", 2)
        if of_path == prefix and its_version[:16] < version[:16]:
            with contextlib.suppress(OSError):
                other.unlink()
                _log.info(
                    "deleted %s, because %s is a later version",
                    printable(other),
                    printable(target.name),
                )


class _Expansion:
    """Expands files in several threads."""

    def __init__(self, expansion_max: int) -> None:
        self._expansion_max = expansion_max
        self.is_cancelled = threading.Event()
        self.n_bytes = 0  # approximate, because threads may lose an update

    def expand(self, file: FileContent, stem: Path) -> Path:
        """Return the copy of a file; expand it unless another process did."""
        with builder_lock(stem, self.is_cancelled):
            self._check_cancelled()
            copy = _complete_copies(stem.parent, stem.name).get(stem.name)
            if copy is not None:
                return copy
            with temporary_file(stem) as temporary:
                try:
                    n_bytes = self._write(file, temporary)
                except OSError as error:
                    if error.filename is None:  # if the disk is full
                        error.filename = str(temporary)
                    raise
                target = stem.with_name(f"{stem.name}-{n_bytes:x}.tfrecord")
                temporary.replace(target)
            _delete_earlier(target)
            return target

    def _write(self, file: FileContent, temporary: Path) -> int:
        """Write a file's content to `temporary`, and return its size."""
        path, content = file
        size, _ = version_of(path)
        n_bytes_max = max(_MIN_LIMITED_BYTES, self._expansion_max * size)
        n_bytes = 0
        with temporary.open("wb", buffering=0) as output:
            for piece in inflated(path, content):
                n_bytes += len(piece)
                if n_bytes > n_bytes_max:
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
