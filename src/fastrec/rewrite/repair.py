"""Copy the intact records of a damaged file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from fastrec.errors import Error
from fastrec.rewrite.check import FileCheck, check_files
from fastrec.storage.atomic import replacement
from fastrec.storage.compression import inflated


def copy_intact(
    check: FileCheck,
    target: Path,
    n_threads: int,
    on_write: Callable[[int], object],
) -> int:
    """Write the intact records of a file to `target`; return the bytes written.

    The new file is checked before it is renamed to `target`, and removed on error.
    """
    n_bytes = 0
    with replacement(target) as temporary:
        with temporary.open("wb") as file:
            for piece in _intact_bytes(check):
                file.write(piece)
                n_bytes += len(piece)
                on_write(len(piece))
        (written,) = check_files([str(temporary)], n_threads)
        is_intact = not (written.damaged or written.unreadable)
        if not is_intact or written.n_records != check.n_records:
            reason = "the file changed while its records were copied"
            raise Error(reason, check.path, code="file_changed")
    return n_bytes


def _intact_bytes(check: FileCheck) -> Iterator[bytes]:
    """Yield the bytes of a file without damaged regions, and with repaired headers."""
    begins = [each.begin for each in check.damaged]
    ends = [each.end for each in check.damaged]
    stops = [check.content_bytes if end is None else end for end in ends]
    size = begins[-1] if None in ends else check.content_bytes
    offset = 0  # in the uncompressed content
    with closing(inflated(check.path, check.content)) as pieces:
        while offset < size and (piece := next(pieces, b"")):
            data = np.frombuffer(piece, np.uint8)[: size - offset].copy()
            is_intact = np.ones(len(data), np.bool_)
            first = bisect_right(stops, offset)
            for i in range(first, bisect_left(begins, offset + len(data))):
                bit = check.damaged[i].bit
                if bit is None:
                    is_intact[max(0, begins[i] - offset) : stops[i] - offset] = False
                elif 0 <= (byte := begins[i] + bit // 8 - offset) < len(data):
                    data[byte] ^= 1 << bit % 8
            offset += len(data)
            yield data[is_intact].tobytes()
