"""Examining files on several threads: what both checksums prove, and what is damaged.

A thread takes the next piece of an open file, or else opens the next file. Plain files
are cut into pieces; one thread inflates all of a compressed file. The findings do not
depend on the threads.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fastrec as fr
from fastrec import _core
from fastrec.cli.brief import hint
from fastrec.errors import CorruptionError, Error, LimitError
from fastrec.storage.inflate import Content, content_of, inflated
from fastrec.tasks import TaskPool

__all__ = ["Damaged", "Examined", "examined"]

_SECONDS_BETWEEN_LOOKS = 0.1
# Files whose findings wait for those of an earlier one.
_FILES_AHEAD = 4096
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

    The `records` of the region are lost or, where a header was repaired, restored. `bit`
    is that of the header, 0 to 95, that was flipped: bit ``bit % 8`` of byte ``bit // 8``;
    None if nothing can be repaired. `code` is that of the error.
    """

    region: fr.Region
    bit: int | None
    code: str


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
    work = _Work(paths, piece_bytes)
    pool = TaskPool(n_threads, cancel=work.stop)
    try:
        for _ in range(n_threads):
            pool.submit(work.run)
        for i in range(len(paths)):
            while (found := work.result(i, _SECONDS_BETWEEN_LOOKS)) is None:
                on_look(work.n_bytes)
            yield found
        on_look(work.n_bytes)
    finally:
        pool.stop()


class _File:
    """A plain file that is being examined."""

    def __init__(self, number: int, found: Examined, core: _core.Examination) -> None:
        self.number = number
        self.found = found
        self.core = core
        self.n_left = core.n_pieces


class _Work:
    """Pieces to examine, and findings, shared by all threads.

    A signal may interrupt the consumer anywhere, so it takes no lock: findings come
    through a queue, and threads that wait for it poll `_n_taken`.
    """

    def __init__(self, paths: Sequence[str], piece_bytes: int | None) -> None:
        self._paths = paths
        self._options = () if piece_bytes is None else (piece_bytes,)
        self._scan = _core.ScanProgress()
        # Of the consumer.
        self._results: queue.SimpleQueue[tuple[int, Examined] | BaseException]
        self._results = queue.SimpleQueue()
        self._received: dict[int, Examined] = {}
        self._n_taken = 0
        # Of the threads, which hold `_changed` for all of these.
        self._changed = threading.Condition()
        self._next = 0
        self._n_opening = 0
        self._pieces: deque[tuple[_File, int]] = deque()
        self._has_failed = False
        self._is_stopped = False
        self._n_inflated = 0  # bytes read of compressed files

    @property
    def n_bytes(self) -> int:
        return self._scan.n_bytes + self._n_inflated

    def result(self, number: int, seconds: float) -> Examined | None:
        """Wait at most `seconds` for the findings of a file."""
        while number not in self._received:
            try:
                result = self._results.get(timeout=seconds)
            except queue.Empty:
                return None
            if isinstance(result, BaseException):
                raise result
            of, found = result
            self._received[of] = found
        self._n_taken += 1
        return self._received.pop(number)

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._scan.cancel()

    def run(self) -> None:
        """Open and examine files until none is left."""
        try:
            while (task := self._take()) is not None:
                if isinstance(task, int):
                    self._open(task)
                else:
                    self._examine(*task)
        except BaseException as error:  # noqa: BLE001 (`result` raises it)
            with self._changed:
                self._has_failed = True
                self._changed.notify_all()
            self._results.put(error)

    def _take(self) -> int | tuple[_File, int] | None:
        with self._changed:
            while not self._is_stopped and not self._has_failed:
                if self._pieces:
                    return self._pieces.popleft()
                is_ahead = self._next >= self._n_taken + _FILES_AHEAD
                if self._next < len(self._paths) and not is_ahead:
                    self._next += 1
                    self._n_opening += 1
                    return self._next - 1
                if self._next == len(self._paths) and not self._n_opening:
                    return None
                self._changed.wait(_SECONDS_BETWEEN_LOOKS)
            return None

    def _open(self, number: int) -> None:
        """Open a file and examine its first piece; offer the others to all threads."""
        found = Examined(self._paths[number])
        file: _File | None = None
        with self._unless_unreadable(found):
            found.content = content_of(found.path)
            if found.content == "plain":
                core = _core.Examination(os.fsencode(found.path), *self._options)
                found.n_bytes = found.content_bytes = core.n_bytes
                file = _File(number, found, core)
        with self._changed:
            self._n_opening -= 1
            if file is not None:
                self._pieces.extend((file, i) for i in range(1, file.n_left))
            self._changed.notify_all()
        if file is not None:
            self._examine(file, 0)
            return
        if not found.unreadable:
            with self._unless_unreadable(found):
                self._inflate(found)
        self._results.put((number, found))

    def _examine(self, file: _File, piece: int) -> None:
        with self._unless_unreadable(file.found):
            if file.core.n_pieces and not file.found.unreadable:
                file.core.examine(piece, self._scan)
        with self._changed:
            file.n_left -= 1
            is_last = file.n_left <= 0
        if not is_last:
            return
        if not file.found.unreadable:
            with self._unless_unreadable(file.found):
                n_records, found = file.core.finish(self._scan)
                file.found.n_records = n_records
                file.found.damaged = [
                    _damaged(finding, file.found) for finding in found
                ]
        self._results.put((file.number, file.found))

    def _inflate(self, found: Examined) -> None:
        found.n_bytes = Path(found.path).stat().st_size
        stream = _core.StreamExamination(os.fsencode(found.path))
        n_told = n_seen = n_fed = 0

        def on_read(n_read: int) -> None:
            nonlocal n_told
            with self._changed:
                if self._is_stopped:
                    raise InterruptedError
                self._n_inflated += n_read - n_told
            n_told = n_read

        rest: Damaged | None = None
        try:
            for piece in inflated(found.path, found.content, on_read=on_read):
                n_seen += len(piece)
                stream.feed(piece)
                n_fed = n_seen
            stream.finish()
        except (CorruptionError, LimitError) as error:
            # Where it is the framing that is damaged, the content may go on.
            end = n_fed if n_fed == n_seen else None
            cause = stream.retract() or error
            reason = cause.reason + ("" if end is not None else _NOT_SEARCHED)
            region = fr.Region(found.path, stream.n_bytes, end, reason, None)
            rest = Damaged(region, None, cause.code)
        found.content_bytes = n_seen
        found.n_records, findings = stream.take_findings()
        found.damaged = [_damaged(finding, found) for finding in findings]
        if rest is not None:
            found.damaged.append(rest)

    @contextlib.contextmanager
    def _unless_unreadable(self, found: Examined) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._is_stopped:
                raise
            found.unreadable = error.strerror or str(error)
        except Error as error:
            found.unreadable = error.reason


def _damaged(
    finding: tuple[int, int, int | None, int | None, Error], of: Examined
) -> Damaged:
    begin, end, records, bit, error = finding
    reason = error.reason
    if records is None and end < of.content_bytes:
        reason += _SEARCHED
    if records is None and begin == 0 and of.n_records == 0:
        reason += _kind_of(of.path)
    if bit is not None:
        reason += (
            f"; one bit was flipped, bit {bit % 8} of byte {bit // 8} of the header"
        )
    return Damaged(fr.Region(of.path, begin, end, reason, records), bit, error.code)


def _kind_of(path: str) -> str:
    """Return the format that a file without records looks like, as the end of a reason."""
    with contextlib.suppress(OSError), Path(path).open("rb") as file:
        if kind := hint(file.read(_BYTES_OF_HINT)):
            return f" It looks like {kind}"
    return ""
