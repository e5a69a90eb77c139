"""Check files on several threads: count intact records, and find damaged regions.

Threads work some files ahead of the file that is reported next. The first piece of each
plain file is checked ahead, its other pieces when it is next. A compressed file is
inflated by one thread. Results do not depend on the threads.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fastrec import _core
from fastrec.errors import Error
from fastrec.on_error import SkippedRegion, SkippedSpan
from fastrec.storage.compression import Content, content_of
from fastrec.storage.index import renew_stale
from fastrec.storage.paths import local_head, version_of
from fastrec.storage.remote import RemotePath
from fastrec.storage.stream_readers import frame_stream
from fastrec.tasks import Task, TaskPool

_PROGRESS_INTERVAL_S = 0.1
_FILES_AHEAD = 8  # per thread
_FORMAT_BYTES = 64  # enough to recognize a format

_SEARCHED = (
    "; the records after it were found by searching, so if a record contained a TFRecord "
    "file, they may belong to that file"
)
_NOT_SEARCHED = (
    "; compressed files are not searched: decompress the file, and verify the result"
)


@dataclass(frozen=True)
class DamagedRegion:
    """A damaged region of a file, or of the content of a compressed file.

    The `records` of the region are lost or, if the header was repaired, restored. `bit`
    is the flipped bit of the header, 0 to 95 (bit ``bit % 8`` of byte ``bit // 8``), or
    None if the region cannot be repaired.
    """

    region: SkippedRegion
    bit: int | None = None


@dataclass
class FileCheck:
    """The result of checking one file.

    `content_bytes` is the number of uncompressed bytes that were read. `n_records` counts
    records whose checksums match, including repaired ones. `damaged` is sorted by offset.
    `unreadable` is the reason if the file could not be read, else "". `had_stale_index`
    is whether the cached index of the file had other records, and was built again.
    """

    path: str
    content: Content = "plain"
    n_bytes: int = 0
    content_bytes: int = 0
    n_records: int = 0
    damaged: list[DamagedRegion] = field(default_factory=list)
    unreadable: str = ""
    had_stale_index: bool = False


def check_files(
    paths: Sequence[str],
    n_threads: int,
    on_progress: Callable[[int], object] = lambda _: None,
    *,
    piece_bytes: int | None = None,
) -> Generator[FileCheck]:
    """Check files, and yield the results in order.

    Calls ``on_progress(n_bytes_read)`` about ten times a second. Results do not depend on
    `piece_bytes`.
    """
    scan = _core.ScanProgress()
    is_stopped = threading.Event()

    def cancel() -> None:
        is_stopped.set()
        scan.cancel()

    pool = TaskPool(n_threads, cancel=cancel)
    rest = iter(paths)
    ahead: deque[tuple[_File, Task[None]]] = deque()
    n_inflated = 0

    def wait(task: Task[None]) -> None:
        while not task.wait(_PROGRESS_INTERVAL_S):
            on_progress(
                scan.n_bytes + n_inflated + sum(file.n_inflated for file, _ in ahead)
            )
        task.result()

    try:
        while True:
            for path in itertools.islice(rest, _FILES_AHEAD * n_threads - len(ahead)):
                file = _File(path, scan, is_stopped, piece_bytes)
                ahead.append((file, pool.submit(file.begin)))
            if not ahead:
                break
            file, task = ahead[0]
            try:
                wait(task)
                later = range(1, file.n_pieces)
                for task in [pool.submit(partial(file.examine, i)) for i in later]:
                    wait(task)
                if later:
                    wait(pool.submit(file.finish))
            except OSError as error:
                file.check.unreadable = error.strerror or str(error)
            except Error as error:
                file.check.unreadable = error.reason
            ahead.popleft()
            n_inflated += file.n_inflated
            yield file.check
        on_progress(scan.n_bytes + n_inflated)
    finally:
        pool.stop()


class _File:
    """A file to check; `n_pieces` is 0 if it is compressed, remote or empty."""

    def __init__(
        self,
        path: str,
        scan: _core.ScanProgress,
        is_stopped: threading.Event,
        piece_bytes: int | None,
    ) -> None:
        self.check = FileCheck(path)
        self.n_inflated = 0  # bytes read of a file that is read in order
        self.n_pieces = 0
        self._scan = scan
        self._is_stopped = is_stopped
        self._options = () if piece_bytes is None else (piece_bytes,)

    def begin(self) -> None:
        """Check the whole file, or its first piece."""
        check = self.check
        check.content = content_of(check.path)
        if check.content != "plain" or isinstance(check.path, RemotePath):
            self._read_in_order()
            return
        self._core = _core.Examination(os.fsencode(check.path), *self._options)
        check.n_bytes = check.content_bytes = self._core.n_bytes
        self.n_pieces = self._core.n_pieces
        if self.n_pieces:
            self.examine(0)
        if self.n_pieces <= 1:
            self.finish()

    def examine(self, piece: int) -> None:
        """Check one piece of a plain file."""
        self._core.examine(piece, self._scan)

    def finish(self) -> None:
        """Combine the results of the pieces, and close the file."""
        self.check.n_records, findings = self._core.finish(self._scan)
        del self._core
        self._end(findings)

    def _end(self, findings: Sequence[SkippedSpan]) -> None:
        check = self.check
        check.damaged = [_damaged_region(each, check) for each in findings]
        lost = [each.records for each in findings if each.bit is None]
        n_records = None if None in lost else check.n_records + sum(filter(None, lost))
        check.had_stale_index = renew_stale(check.path, check.content, n_records)

    def _read_in_order(self) -> None:
        check = self.check
        check.n_bytes = version_of(check.path)[0]

        def on_read(_file: int, n_read: int) -> None:
            self.n_inflated = n_read

        def raise_if_stopped() -> None:
            if self._is_stopped.is_set():
                raise InterruptedError

        name = os.fsencode(check.path)
        table = _core.FileTable(name, ["pread"])
        file = (check.path, check.content)
        with frame_stream(
            [file], table, [0], "skip", on_read=on_read, on_wait=raise_if_stopped
        ) as frames:
            check.n_records, findings = frames.examine(name)
            check.content_bytes = frames.n_bytes
        self._end(findings)


def _damaged_region(span: SkippedSpan, check: FileCheck) -> DamagedRegion:
    begin, end, records, bit = span.begin, span.end, span.records, span.bit
    reason = span.error.reason
    if end is None:  # intact records may follow
        reason += _NOT_SEARCHED
    elif records is None and end < check.content_bytes:
        reason += _SEARCHED
    is_whole_file = records is None and begin == 0 and check.n_records == 0
    if is_whole_file and check.content == "plain" and "looks like" not in reason:
        reason += _format_hint(check.path)
    if bit is not None:
        reason += (
            f"; one bit was flipped, bit {bit % 8} of byte {bit // 8} of the header"
        )
    return DamagedRegion(SkippedRegion(check.path, begin, end, reason, records), bit)


def _format_hint(path: str) -> str:
    """Return the format of a file without records, for a reason; "" if unknown."""
    with (
        contextlib.suppress(OSError),
        local_head(path) as local,
        Path(local).open("rb") as file,
    ):
        if kind := _core.describe_foreign(file.read(_FORMAT_BYTES)):
            return f"; it looks like {kind}"
    return ""
