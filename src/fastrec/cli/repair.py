"""Repairing: the proven records of a damaged file -> a new file, byte for byte."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import fastrec as fr
from fastrec.cli.examine import Damaged, Examined, examined
from fastrec.printable import printable
from fastrec.storage.atomic import replacement
from fastrec.storage.compression import inflated, plain_name

__all__ = ["repair", "targets_of"]


def targets_of(paths: Sequence[str], out: Path, *, is_file: bool) -> dict[str, Path]:
    """Return the target of each file: `out`, or a file of its name in that directory.

    Targets are not compressed, so names of compressed files lose their suffix. Raises a
    FileExistsError if a target exists already, or two are the same.
    """
    targets = {path: out if is_file else out / plain_name(path) for path in paths}
    sources: dict[Path, str] = {}
    for path, target in targets.items():
        if target in sources:
            reason = (
                f"this would be both {printable(sources[target])} and {printable(path)}"
            )
            raise FileExistsError(errno.EEXIST, reason, str(target))
        sources[target] = path
        if os.path.lexists(target):
            reason = "it exists, and nothing is ever written over"
            raise FileExistsError(errno.EEXIST, reason, str(target))
    return targets


def repair(
    found: Examined, target: Path, n_threads: int, on_write: Callable[[int], object]
) -> int:
    """Write the proven records of a file to `target`; return the bytes written.

    What is written is examined before it gets its name; after an error nothing is left.
    """
    n_bytes = 0
    try:
        with replacement(target) as temporary:
            with temporary.open("xb") as file:
                for piece in _proven(found):
                    file.write(piece)
                    n_bytes += len(piece)
                    on_write(len(piece))
                file.flush()
                os.fsync(file.fileno())
            (written,) = examined([str(temporary)], n_threads)
            is_as_found = not (written.damaged or written.unreadable)
            if not is_as_found or written.n_records != found.n_records:
                reason = "the file changed while its records were copied"
                raise fr.Error(reason, found.path, code="file_changed")
    except OSError as error:
        if error.filename is None:
            error.filename = str(target)
        raise
    return n_bytes


def _proven(found: Examined) -> Iterator[bytes]:
    """Yield the bytes of the content that are proven, and of repaired headers."""
    with closing(inflated(found.path, found.content)) as pieces:
        at = 0  # of the content
        piece = b""
        for begin, end, damaged in _spans(found):
            while at < end:
                piece = piece or next(pieces, b"")
                if not piece:
                    return  # the file has become shorter: the result is compared
                n_before = min(len(piece), max(0, begin - at))
                here = piece[n_before : max(0, end - at)]
                at += n_before + len(here)
                piece = piece[n_before + len(here) :]
                if damaged is not None:
                    here = _mended(here, at - len(here) - begin, damaged)
                if here:
                    yield here


def _spans(found: Examined) -> Iterator[tuple[int, int, Damaged | None]]:
    """Yield the spans of proven frames, and which of them was repaired."""
    at = 0
    for damaged in found.damaged:
        region = damaged.region
        yield at, region.begin, None
        if region.end is None:
            return
        if damaged.bit is not None:
            yield region.begin, region.end, damaged
        at = region.end
    yield at, found.content_bytes, None


def _mended(data: bytes, offset: int, damaged: Damaged) -> bytes:
    """Flip the bit back, if it is in `data`, which begins at byte `offset`."""
    assert damaged.bit is not None
    byte, bit = divmod(damaged.bit, 8)
    if not 0 <= byte - offset < len(data):
        return data
    mended = bytearray(data)
    mended[byte - offset] ^= 1 << bit
    return bytes(mended)
