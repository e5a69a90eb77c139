"""Expanding compressed files, once, to plain files in a directory of the caller's.

A file is expanded by one process of the machine while others wait, and appears whole or
not at all. Its name is ``NAME.PATH.MTIME-SIZE-CONTENT.tfrecord``: the name, the hash of the
path, the modification time and the size of the compressed file, and the size of the content,
in hex. So the file is expanded again if it has another size or modification time, or if its
expansion was cut. Expansions of earlier versions are then deleted; a process that has one
open can continue to read it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import glob
import hashlib
import logging
import os
import stat
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastrec.errors import LimitError
from fastrec.printable import printable
from fastrec.storage.atomic import temporary_file
from fastrec.storage.index import builder_lock
from fastrec.storage.inflate import Content, inflated
from fastrec.storage.parallel import pass_over

__all__ = ["expanded"]

_log = logging.getLogger("fastrec")

# Real data reaches high ratios (deflate ends at 1,032) in small files only.
_RATIO_FROM_BYTES = 1 << 30


@dataclass
class _Progress:
    """How far all files together are. A lost update costs a wrong figure in a log."""

    n_bytes: int = 0


def expanded(
    files: Sequence[str],
    contents: Sequence[Content],
    cache_dir: str,
    expansion_max: int,
) -> list[str]:
    """Return where each file lies as a plain one, expanding those that do not yet.

    A file may become `expansion_max` times its size, so that no disk is filled for one
    that says next to nothing.

    Raises
    ------
    CorruptionError
        If a stream is damaged, cut, or followed by anything else: of the first such file.
    LimitError
        If a file is a decompression bomb.
    OSError
        If a file cannot be read, or an expanded one not be written.
    """
    compressed = [i for i, content in enumerate(contents) if content != "plain"]
    stems = {i: _stem(files[i], cache_dir) for i in compressed}
    complete = _complete(cache_dir) if compressed else {}
    missing = [i for i in compressed if stems[i].name not in complete]
    if missing:
        made = _expand_all(
            [(files[i], contents[i], stems[i]) for i in missing], expansion_max
        )
        complete |= {path.name.rpartition("-")[0]: path for path in made}
    return [
        str(complete[stems[i].name]) if i in stems else path
        for i, path in enumerate(files)
    ]


def _stem(path: str, cache_dir: str) -> Path:
    """Return what expansions of `path` are called, up to the size of their content."""
    real = os.path.realpath(path)
    status = os.stat(path)  # noqa: PTH116
    of_path = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    version = f"{max(0, status.st_mtime_ns):016x}-{status.st_size:x}"
    return Path(cache_dir) / f"{Path(real).name[:100]}.{of_path}.{version}"


def _complete(cache_dir: str | Path, stem: str = "") -> dict[str, Path]:
    """Return the expansions in a directory that have their whole size, by their stems.

    Only those whose names begin with `stem`. A link is not an expansion.
    """
    found = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(cache_dir) as entries:
        for entry in entries:
            name, dot, is_expansion = entry.name.rpartition(".tfrecord")
            its_stem, dash, size = name.rpartition("-")
            if not (dot and dash and not is_expansion and name.startswith(stem)):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                is_whole = f"{status.st_size:x}" == size
                if is_whole and stat.S_ISREG(status.st_mode):
                    found[its_stem] = Path(entry.path)
    return found


def _delete_earlier(target: Path) -> None:
    """Delete the expansions of earlier versions of the file that `target` is one of."""
    prefix, version, _ = target.name.rsplit(".", 2)
    for other in target.parent.glob(f"{glob.escape(prefix)}.*.tfrecord"):
        of_path, its_version, _ = other.name.rsplit(".", 2)
        if of_path == prefix and its_version[:16] < version[:16]:
            with contextlib.suppress(OSError):
                other.unlink()
                _log.info(
                    "%s is deleted: %s is a later version",
                    printable(other),
                    printable(target.name),
                )


def _expand_all(
    missing: Sequence[tuple[str, Content, Path]], expansion_max: int
) -> list[Path]:
    is_cancelled = threading.Event()
    progress = _Progress()

    def so_far(_n_done: int, seconds: float) -> str:
        return (
            f"expanding {len(missing)} files: {progress.n_bytes / 1e9:.2f} GB, "
            f"{progress.n_bytes / 1e9 / seconds:.2f} GB/s so far"
        )

    return pass_over(
        [
            partial(_expand, path, content, stem, expansion_max, progress, is_cancelled)
            for path, content, stem in missing
        ],
        cancel=is_cancelled.set,
        so_far=so_far,
    )


def _expand(
    path: str,
    content: Content,
    stem: Path,
    expansion_max: int,
    progress: _Progress,
    is_cancelled: threading.Event,
) -> Path:
    with builder_lock(stem, is_cancelled):
        if is_cancelled.is_set():
            raise concurrent.futures.CancelledError
        made = _complete(stem.parent, stem.name).get(stem.name)
        if made is not None:  # another process expanded it meanwhile
            return made
        with temporary_file(stem) as temporary:
            try:
                n_bytes = _write(
                    path, content, temporary, expansion_max, progress, is_cancelled
                )
            except OSError as error:
                # What a full disk refuses names no file by itself.
                if error.filename is None:
                    error.filename = str(temporary)
                raise
            target = stem.with_name(f"{stem.name}-{n_bytes:x}.tfrecord")
            temporary.replace(target)
        _delete_earlier(target)
        return target


def _write(
    path: str,
    content: Content,
    temporary: Path,
    expansion_max: int,
    progress: _Progress,
    is_cancelled: threading.Event,
) -> int:
    """Write the content of `path` to `temporary`, and return its size."""
    n_bytes_max = max(
        _RATIO_FROM_BYTES,
        expansion_max * os.stat(path).st_size,  # noqa: PTH116
    )
    n_bytes = 0
    with temporary.open("wb", buffering=0) as file:
        for piece in inflated(path, content):
            n_bytes += len(piece)
            if n_bytes > n_bytes_max:
                msg = (
                    f"the file expands to more than {expansion_max} times its size: if "
                    "it is meant to, give limits=fastrec.Limits(expansion=...)"
                )
                raise LimitError(msg, path, code="expansion")
            rest = memoryview(piece)
            while rest:
                rest = rest[file.write(rest) :]
            progress.n_bytes += len(piece)
            if is_cancelled.is_set():
                raise concurrent.futures.CancelledError
        # The name must not be there before the bytes are, whenever the power fails.
        os.fsync(file.fileno())
    return n_bytes
