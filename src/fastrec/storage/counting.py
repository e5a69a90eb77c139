"""Counting the records of streams: one pass over each file, kept in the index cache.

The table of a file has a row for each record: where its frame begins in the content, and
the checksum that is stored with its payload. A last row has the end of the content and 0.
The table belongs to one version of the file, and is kept in a cache file
(``src/cpp/file/cache_file.h``).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.errors import CorruptionError
from fastrec.on_error import Gap
from fastrec.printable import printable
from fastrec.storage.atomic import replacement
from fastrec.storage.index import builder_lock, index_path
from fastrec.storage.inflate import Version, inflated, version_of
from fastrec.storage.parallel import pass_over
from fastrec.storage.stream_readers import FileContent

__all__ = ["Count", "counted", "keep_count", "rename_count"]

_log = logging.getLogger("fastrec")

_ROW = np.dtype([("offset", "<u8"), ("payload_crc", "<u4")])
_KIND = "freccnt2"


class Count:
    """How many records a stream has, and where in the content.

    Attributes
    ----------
    version : Version
        Of the file that was counted.
    gaps : list of Gap
        What is left out of the content: its rest, if it is damaged.
    """

    def __init__(
        self, table: npt.NDArray[Any], version: Version, gaps: Sequence[Gap] = ()
    ) -> None:
        self._table = table
        self.version = version
        self.gaps = list(gaps)

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


def counted(
    files: Sequence[FileContent], index_dir: str | None, recovery: str = "raise"
) -> list[Count]:
    """Return the count of each file, making those that are missing in parallel.

    With any other `recovery`, the rest of a damaged content is left out; such a count is
    not kept.

    Raises
    ------
    CorruptionError, LimitError
        If a stream or its framing is damaged: of the first such file in order.
    OSError
        If a file cannot be read.
    """
    is_cancelled = threading.Event()
    not_kept: list[OSError] = []

    def so_far(n_done: int, _seconds: float) -> str:
        return (
            f"counting the records of compressed files: {n_done} of {len(files)} files "
            "so far"
        )

    counts = pass_over(
        [
            partial(_count, file, index_dir, recovery, is_cancelled, not_kept)
            for file in files
        ],
        cancel=is_cancelled.set,
        so_far=so_far,
    )
    if not_kept:  # one line, however many files there are
        _log.info(
            "%d of %d counts are not kept: %s", len(not_kept), len(files), not_kept[0]
        )
    return counts


def _count(
    file: FileContent,
    index_dir: str | None,
    recovery: str,
    is_cancelled: threading.Event,
    not_kept: list[OSError],
) -> Count:
    path, _ = file
    version = version_of(path)
    target = _count_path(path, version, index_dir)
    kept = _kept(target, version)
    if kept is not None:
        return kept
    with builder_lock(target, is_cancelled):
        kept = _kept(target, version)  # somebody else may have counted
        if kept is not None:
            return kept
        table, gaps = _passed(file, recovery, is_cancelled)
        if not gaps:
            try:
                _keep(table, target, version)
            except OSError as error:
                not_kept.append(error)
        return Count(table, version, gaps)


def _passed(
    file: FileContent, recovery: str, is_cancelled: threading.Event
) -> tuple[npt.NDArray[Any], list[Gap]]:
    path, content = file
    scan = _core.StreamScan(os.fsencode(path))
    gaps: list[Gap] = []
    n_bytes = n_fed = 0
    try:
        for piece in inflated(path, content):
            n_fed += len(piece)
            scan.feed(piece)
            n_bytes = n_fed
            if is_cancelled.is_set():
                raise concurrent.futures.CancelledError
        scan.finish()
    except CorruptionError as error:
        if recovery == "raise":
            raise
        # Where it is the framing that is damaged, the content may go on.
        end = n_bytes if n_bytes == n_fed else None
        unproven = scan.retract()
        gaps.append((int(scan.offsets[-1]), end, unproven or error))
    return _table(scan.offsets, scan.payload_crcs), gaps


def _table(
    offsets: npt.NDArray[np.uint64], payload_crcs: npt.NDArray[np.uint32]
) -> npt.NDArray[Any]:
    table = np.zeros(len(offsets), _ROW)
    table["offset"] = offsets
    table["payload_crc"][:-1] = payload_crcs
    return table


def keep_count(
    path: str, offsets: npt.NDArray[np.uint64], payload_crcs: npt.NDArray[np.uint32]
) -> None:
    """Keep the count of a file that was just written, by whoever knows its content.

    Where the frames begin in it, and where the last one ends; and the checksums that are
    stored with the payloads. A cache that cannot be written is no error.
    """
    try:
        version = version_of(path)
        _keep(_table(offsets, payload_crcs), _count_path(path, version, None), version)
    except OSError as error:
        _log.info("the count of %s is not kept: %s", printable(path), error)


def rename_count(path: str, target: str) -> None:
    """Keep the count of a file that was renamed to `target`, if there is one."""
    with contextlib.suppress(OSError):
        version = version_of(target)
        _count_path(path, version, None).replace(_count_path(target, version, None))


def _count_path(path: str, version: Version, index_dir: str | None) -> Path:
    size, time_ns = version
    return index_path(path, index_dir).with_suffix(f".{size:x}-{time_ns:x}.freccnt")


def _kept(path: Path, version: Version) -> Count | None:
    """Return the count that is kept at `path`, if the file there can be used."""
    content = _core.load_cache(os.fsencode(path), _KIND, *version)
    if content is None or not content.size or content.size % _ROW.itemsize:
        return None
    return Count(content.view(_ROW), version)


def _keep(table: npt.NDArray[Any], path: Path, version: Version) -> None:
    with replacement(path) as temporary:
        content = table.view(np.uint8)
        _core.save_cache(os.fsencode(temporary), _KIND, *version, content)
