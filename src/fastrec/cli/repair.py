"""Copying the proven records of a damaged file to a new file, byte for byte."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

import fastrec as fr
from fastrec.cli.examine import Examined, examined
from fastrec.storage.atomic import replacement
from fastrec.storage.compression import inflated

__all__ = ["repair"]


def repair(
    found: Examined,
    target: Path,
    n_threads: int,
    on_write: Callable[[int], object],
) -> int:
    """Write the proven records of a file to `target`; return the bytes written.

    The new file is examined before it gets its name; after an error nothing is left.
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
    """Yield the proven bytes of the content, with repaired headers."""
    end = found.content_bytes
    if found.damaged and found.damaged[-1].region.end is None:
        end = found.damaged[-1].region.begin
    begins = [each.region.begin for each in found.damaged]
    ends = [
        end if each.region.end is None else each.region.end for each in found.damaged
    ]
    at = 0  # of the content
    with closing(inflated(found.path, found.content)) as pieces:
        while at < end and (piece := next(pieces, b"")):
            data = np.frombuffer(piece, np.uint8)[: end - at].copy()
            is_proven = np.ones(len(data), np.bool_)
            here = slice(bisect_right(ends, at), bisect_left(begins, at + len(data)))
            for each, begin, stop in zip(
                found.damaged[here], begins[here], ends[here], strict=True
            ):
                if each.bit is None:
                    is_proven[max(0, begin - at) : stop - at] = False
                elif 0 <= (byte := begin + each.bit // 8 - at) < len(data):
                    data[byte] ^= 1 << each.bit % 8
            at += len(data)
            yield data[is_proven].tobytes()
