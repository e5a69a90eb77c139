"""Check files on several threads: count intact records, and find damaged regions.

Threads check files before the caller requests the results. Of a large plain file, they
check the first piece in advance, and the other pieces on request. A compressed file
takes one thread. The results do not depend on the number of threads.
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
from typing import TypeVar

from fastrec import _core
from fastrec.errors import Error
from fastrec.on_error import SkippedSpan
from fastrec.storage.compression import Content, content_of
from fastrec.storage.index import renew_stale
from fastrec.storage.paths import local_head, version_of
from fastrec.storage.remote import RemotePath
from fastrec.storage.stream_readers import frame_stream
from fastrec.tasks import Task, TaskPool

_T = TypeVar("_T")

_POLL_SECONDS = 0.1
_FILES_AHEAD = 8  # per thread
_FORMAT_BYTES = 64  # enough to recognize a format

_SEARCHED = (
    "; later records were found by searching, and may belong to a TFRecord file inside "
    "a record"
)
_NOT_SEARCHED = (
    "; compressed files are not searched: decompress the file, and verify the result"
)


@dataclass
class FileCheck:
    """The result of checking one file.

    `content_bytes` is the number of uncompressed bytes read. `n_records` counts records
    whose checksums match, including repaired ones. `damaged` is sorted by offset; the
    records in it are lost, except those with a flipped `bit`, which can be repaired.
    `unreadable` is the reason why the file cannot be read, or "". `had_stale_index` is
    True if the cached index did not match the file and was rebuilt.
    """

    path: str
    content: Content = "plain"
    n_bytes: int = 0
    content_bytes: int = 0
    n_records: int = 0
    damaged: list[SkippedSpan] = field(default_factory=list)
    unreadable: str = ""
    had_stale_index: bool = False


def check_files(
    paths: Sequence[str],
    n_threads: int,
    on_progress: Callable[[int], object] = lambda _: None,
    *,
    piece_bytes: int | None = None,
) -> Generator[FileCheck]:
    """Check files, and yield one result per file in order.

    Calls ``on_progress(n_bytes_read)`` about ten times a second. `piece_bytes`, the
    size of the pieces of a plain file, does not affect the results.
    """
    scan = _core.ScanProgress()
    n_inflated: dict[int, int] = {}  # bytes read of each sequential file
    is_stopped = threading.Event()
    options = () if piece_bytes is None else (piece_bytes,)

    def cancel() -> None:
        is_stopped.set()
        scan.cancel()

    def begin(number: int, check: FileCheck) -> _core.Examination | None:
        """Check a file, except the later pieces of a large plain file; return these."""
        check.content = content_of(check.path)
        if check.content != "plain" or isinstance(check.path, RemotePath):
            on_read = partial(n_inflated.__setitem__, number)
            _read_in_order(check, on_read, is_stopped)
            return None
        plain = _core.Examination(os.fsencode(check.path), *options)
        check.n_bytes = check.content_bytes = plain.n_bytes
        if plain.n_pieces:
            plain.examine(0, scan)
        if plain.n_pieces > 1:
            return plain
        _end(check, *plain.finish(scan))
        return None

    def finish(check: FileCheck, plain: _core.Examination) -> None:
        _end(check, *plain.finish(scan))

    def result(task: Task[_T]) -> _T:
        while not task.wait(_POLL_SECONDS):
            on_progress(scan.n_bytes + sum([*n_inflated.values()]))
        return task.result()

    pool = TaskPool(n_threads, cancel=cancel)
    rest = enumerate(map(FileCheck, paths))
    ahead: deque[tuple[FileCheck, Task[_core.Examination | None]]] = deque()
    try:
        while True:
            for each in itertools.islice(rest, _FILES_AHEAD * n_threads - len(ahead)):
                ahead.append((each[1], pool.submit(partial(begin, *each))))
            if not ahead:
                break
            check, begun = ahead.popleft()
            try:
                if plain := result(begun):
                    later = range(1, plain.n_pieces)
                    examine = partial(plain.examine, progress=scan)
                    for task in [pool.submit(partial(examine, i)) for i in later]:
                        result(task)
                    result(pool.submit(partial(finish, check, plain)))
            except OSError as error:
                check.unreadable = error.strerror or str(error)
            except Error as error:
                check.unreadable = error.reason
            yield check
        on_progress(scan.n_bytes + sum(n_inflated.values()))
    finally:
        pool.stop()


def _read_in_order(
    check: FileCheck, on_read: Callable[[int], object], is_stopped: threading.Event
) -> None:
    def raise_if_stopped() -> None:
        if is_stopped.is_set():
            raise InterruptedError

    check.n_bytes = version_of(check.path)[0]
    name = os.fsencode(check.path)
    with frame_stream(
        *([(check.path, check.content)], _core.FileTable(name, ["pread"]), [0], "skip"),
        on_read=lambda _file, n_read: on_read(n_read),
        on_wait=raise_if_stopped,
    ) as frames:
        n_records, findings = frames.examine(name)
        check.content_bytes = frames.n_bytes
    _end(check, n_records, findings)


def _end(check: FileCheck, n_records: int, findings: Sequence[SkippedSpan]) -> None:
    """Set the record count and the damage in `check`, and rebuild a stale index."""
    check.n_records = n_records
    check.damaged = [*findings]
    for each in findings:
        _explain(each, check)
    lost = [each.records for each in findings if each.bit is None]
    total = None if None in lost else n_records + sum(filter(None, lost))
    check.had_stale_index = renew_stale(check.path, check.content, total)


def _explain(span: SkippedSpan, check: FileCheck) -> None:
    """Add the path to the error of a damaged region, and advice to its reason."""
    begin, end, error, records, _, bit = span
    error.path = check.path
    if end is None:  # later records may be intact
        error.reason += _NOT_SEARCHED
    elif records is None and end < check.content_bytes:
        error.reason += _SEARCHED
    is_whole_file = records is None and begin == 0 and check.n_records == 0
    if is_whole_file and check.content == "plain" and "looks like" not in error.reason:
        error.reason += _format_hint(check.path)
    if bit is not None:
        place = f"bit {bit % 8} of byte {bit // 8} of the header"
        error.reason += f"; one bit was flipped, {place}"


def _format_hint(path: str) -> str:
    """Return a hint about the format of a file without records, or "" if unknown."""
    with (
        contextlib.suppress(OSError),
        local_head(path) as local,
        Path(local).open("rb") as file,
    ):
        if kind := _core.describe_foreign(file.read(_FORMAT_BYTES)):
            return f"; it looks like {kind}"
    return ""
