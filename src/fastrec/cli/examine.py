"""Examining files on several threads: what both checksums prove, and what is damaged.

The threads are some files ahead. The first piece of a plain file is a task, and in its
turn so are the others; one thread inflates all of a compressed file. The findings do not
depend on the threads.
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

import fastrec as fr
from fastrec import _core
from fastrec.cli.brief import hint
from fastrec.errors import Error
from fastrec.on_error import Finding
from fastrec.storage.compression import Content, content_of
from fastrec.storage.stream_readers import frame_stream
from fastrec.tasks import Task, TaskPool

__all__ = ["Damaged", "Examined", "examined"]

_SECONDS_BETWEEN_LOOKS = 0.1
# Files for each thread that are examined before it is their turn.
_FILES_AHEAD = 8
_BYTES_OF_HINT = 64

_SEARCHED = (
    "; what follows was found by searching: if a record here contained a TFRecord file, "
    "it may belong to that file"
)
_NOT_SEARCHED = (
    "; compressed files are not searched: expand it, and examine the expanded file"
)


@dataclass(frozen=True)
class Damaged:
    """Damaged bytes of a file, or of the content of a compressed one.

    The `records` of the region are lost or, if a header was repaired, restored. `bit` is
    the bit of the header, 0 to 95, that was flipped: bit ``bit % 8`` of byte ``bit // 8``;
    None if nothing can be repaired.
    """

    region: fr.SkippedRegion
    bit: int | None = None


@dataclass
class Examined:
    """The findings of one file.

    `content_bytes` is the size of the content that was seen. `n_records` are proven by
    both checksums, repaired ones included. `damaged` is in the order of the bytes.
    `unreadable` says why the file could not be examined; "" if it was.
    """

    path: str
    content: Content = "plain"
    n_bytes: int = 0
    content_bytes: int = 0
    n_records: int = 0
    damaged: list[Damaged] = field(default_factory=list)
    unreadable: str = ""


def examined(
    paths: Sequence[str],
    n_threads: int,
    on_look: Callable[[int], object] = lambda _: None,
    *,
    piece_bytes: int | None = None,
) -> Generator[Examined]:
    """Examine files, and yield the findings in their order.

    About ten times a second, `on_look` gets the number of bytes read so far. The pieces
    that plain files are cut into do not change the findings.
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
        while not task.wait(_SECONDS_BETWEEN_LOOKS):
            on_look(
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
                file.found.unreadable = error.strerror or str(error)
            except Error as error:
                file.found.unreadable = error.reason
            ahead.popleft()
            n_inflated += file.n_inflated
            yield file.found
        on_look(scan.n_bytes + n_inflated)
    finally:
        pool.stop()


class _File:
    """A file that is being examined: `n_pieces` is 0 if it is compressed or empty."""

    def __init__(
        self,
        path: str,
        scan: _core.ScanProgress,
        is_stopped: threading.Event,
        piece_bytes: int | None,
    ) -> None:
        self.found = Examined(path)
        self.n_inflated = 0  # bytes read of a compressed file
        self.n_pieces = 0
        self._scan = scan
        self._is_stopped = is_stopped
        self._options = () if piece_bytes is None else (piece_bytes,)

    def begin(self) -> None:
        """Examine the file, or the first of several pieces."""
        found = self.found
        found.content = content_of(found.path)
        if found.content != "plain":
            self._inflate()
            return
        self._core = _core.Examination(os.fsencode(found.path), *self._options)
        found.n_bytes = found.content_bytes = self._core.n_bytes
        self.n_pieces = self._core.n_pieces
        if self.n_pieces:
            self.examine(0)
        if self.n_pieces <= 1:
            self.finish()

    def examine(self, piece: int) -> None:
        """Examine one piece of a plain file."""
        self._core.examine(piece, self._scan)

    def finish(self) -> None:
        """Combine the findings of the pieces, and close the file."""
        self.found.n_records, findings = self._core.finish(self._scan)
        del self._core
        self.found.damaged = [_damaged(each, self.found) for each in findings]

    def _inflate(self) -> None:
        found = self.found
        found.n_bytes = Path(found.path).stat().st_size

        def on_read(_file: int, n_read: int) -> None:
            self.n_inflated = n_read

        def check() -> None:
            if self._is_stopped.is_set():
                raise InterruptedError

        name = os.fsencode(found.path)
        table = _core.FileTable([name], ["pread"])
        file = (found.path, found.content)
        with frame_stream(
            [file], table, [0], "skip", on_read=on_read, on_wait=check
        ) as frames:
            found.n_records, findings = frames.examine(name)
            found.content_bytes = frames.n_bytes
        found.damaged = [_damaged(each, found) for each in findings]


def _damaged(finding: Finding, of: Examined) -> Damaged:
    begin, end, records, bit, error = finding
    reason = error.reason
    if end is None:  # what follows may be sound
        reason += _NOT_SEARCHED
    elif records is None and end < of.content_bytes:
        reason += _SEARCHED
    if records is None and begin == 0 and of.n_records == 0 and of.content == "plain":
        reason += _kind_of(of.path)
    if bit is not None:
        reason += (
            f"; one bit was flipped, bit {bit % 8} of byte {bit // 8} of the header"
        )
    return Damaged(fr.SkippedRegion(of.path, begin, end, reason, records), bit)


def _kind_of(path: str) -> str:
    """Return the format that a file without records looks like, as the end of a reason."""
    with contextlib.suppress(OSError), Path(path).open("rb") as file:
        if kind := hint(file.read(_BYTES_OF_HINT)):
            return f" It looks like {kind}"
    return ""
