"""Indexes: the offsets of files' records, built once per version and cached.

The index of a plain file comes from a walk over its frame headers. The index of a
compressed file comes from one scan of its content, and has the stored checksum of each
payload. Missing indexes are built in parallel when they are first needed, and cached
together (`fastrec.storage.index_files`). If the cache is not writable, each process
builds its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.options import default_num_threads
from fastrec.printable import printable
from fastrec.storage.atomic import replacement
from fastrec.storage.compression import CODES, Content, FileContent, content_of
from fastrec.storage.index_files import (
    IndexSearch,
    Scope,
    contents_by_name,
    index_path,
    joined_names,
)
from fastrec.storage.locks import builder_lock
from fastrec.storage.parallel import Progress, run_in_threads
from fastrec.storage.paths import version_of, versions_of
from fastrec.storage.remote import RemotePath, Version
from fastrec.storage.stream_readers import frame_stream
from fastrec.tasks import CancelledError

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("fastrec")

# Files that one task scans, and how often a long build saves what it has.
_MAX_FILES_PER_TASK = 512
_TASKS_PER_THREAD = 8
_SAVE_SECONDS = 60.0
_N_REMOTE_THREADS = 16  # they wait for the network


class _Scan(Protocol):
    """Returns the indexes of the files with these numbers; `stop` ends it early."""

    def __call__(self, numbers: list[int], stop: threading.Event) -> _core.Indexes: ...


class IndexPlace:
    """Where indexes are kept: a cache, or next to the data."""

    def __init__(
        self,
        index_dir: str | os.PathLike[str] | None = None,
        *,
        part: tuple[int, int] | None = None,
        is_next_to_data: bool = False,
        must_keep: bool = False,
    ) -> None:
        self.index_dir = index_dir
        self._part = part
        self._is_next_to_data = is_next_to_data
        self.must_keep = must_keep

    def path(self, scope: Scope) -> Path:
        """Return the path of the index file of these files."""
        return scope.path(
            self.index_dir, part=self._part, is_next_to_data=self._is_next_to_data
        )


def known_contents(
    paths: Sequence[str], index_dir: str | os.PathLike[str] | None
) -> list[Content]:
    """Return the compression of each file by an index file, without opening the files.

    It is "auto" for files without an index. The files may have changed since.
    """
    names = {code: name for name, code in CODES.items()}
    return [names[code] for code in contents_by_name(paths, index_dir).tolist()]


def load_indexes(
    paths: Sequence[str], index_dir: str | os.PathLike[str] | None
) -> _core.Indexes | None:
    """Load the cached indexes of all plain `paths`, or return None if one is missing."""
    search = _search(paths, ["plain"] * len(paths), False, index_dir)
    return search.indexes() if search.is_complete else None


def n_indexed(files: Sequence[FileContent]) -> int:
    """Return the number of files with a cached index, or count if compressed."""
    paths = [path for path, _ in files]
    contents = [content for _, content in files]
    return len(paths) - len(_search(paths, contents, False, None).missing)


def make_indexes(
    paths: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    io: str = "auto",
    place: IndexPlace | None = None,
    progress: Progress | None = None,
    recovery: str = "raise",
    is_assumed_plain: bool = False,
    stale: Sequence[int] = (),
) -> _core.Indexes:
    """Return the indexes of plain files, building those that are not cached.

    Errors name the files by `names`. `recovery` is "raise", "skip" or "resync"; an
    index with gaps is not cached, so cached indexes are valid for all three. With
    `is_assumed_plain`, a compressed file raises. The cached indexes of the files with the
    numbers `stale` are replaced.
    """
    scan = _core.ScanProgress()
    n_threads = max(1, default_num_threads() // max(1, len(paths)))
    table: list[_core.FileTable] = []
    if any(isinstance(path, RemotePath) for path in paths):
        from fastrec.storage.range_readers import table_of

        table.append(table_of(paths, io))

    def build(numbers: list[int], stop: threading.Event) -> _core.Indexes:  # noqa: ARG001 (`scan` stops)
        if table:
            chosen = np.array(numbers, np.int64)
            return _core.Indexes.build_in(table[0], chosen, n_threads, scan, recovery)
        return _core.Indexes.build(
            joined_names([paths[i] for i in numbers]),
            io,
            n_threads,
            scan,
            joined_names([names[i] for i in numbers]) if names else b"",
            recovery,
            is_assumed_plain,
        )

    return _load_or_build(
        paths,
        ["plain"] * len(paths),
        build,
        place=place or IndexPlace(),
        needs_crcs=False,
        stale=stale,
        n_bytes_done=lambda: scan.n_bytes,
        progress=progress,
        cancel=scan.cancel,
        n_threads=_N_REMOTE_THREADS if table else None,
    )


def make_counts(
    files: Sequence[FileContent],
    *,
    place: IndexPlace | None = None,
    recovery: str = "raise",
    stale: Sequence[int] = (),
) -> _core.Indexes:
    """Return the indexes of compressed files, scanning those that are not cached.

    With a `recovery` other than "raise", the content behind the first damage is
    skipped. The cached indexes of the files with the numbers `stale` are replaced.
    """

    def count(numbers: list[int], stop: threading.Event) -> _core.Indexes:
        return _core.Indexes([_scan_stream(files[i], recovery, stop) for i in numbers])

    return _load_or_build(
        [path for path, _ in files],
        [content for _, content in files],
        count,
        place=place or IndexPlace(),
        needs_crcs=True,
        stale=stale,
    )


def renew_stale(path: str, content: Content, n_records: int | None) -> bool:
    """Build the cached index of a file again if it is stale, and return whether it was.

    The file has `n_records` records, intact or damaged; None if that is unknown. A plain
    file is walked.
    """
    from fastrec.storage.range_readers import table_of

    search = _search([path], [content], content != "plain", None)
    if not search.is_complete:
        return False
    indexes = search.indexes()
    if content == "plain":
        is_stale = indexes.is_stale(0, table_of([path], "pread"))
        if is_stale:
            make_indexes([path], recovery="resync", stale=[0])
    else:
        is_stale = n_records not in (None, indexes.n_records)
        if is_stale:
            make_counts([(path, content)], recovery="skip", stale=[0])
    return is_stale


def index_of(path: str, offsets: npt.NDArray[np.uint64]) -> _core.Index:
    """Return the index of a plain file from the offsets of its frames."""
    return _core.Index.from_offsets(offsets, *version_of(path), os.fsencode(path))


def keep_index(
    path: str,
    offsets: npt.NDArray[np.uint64],
    payload_crcs: npt.NDArray[np.uint32] | None = None,
    content: Content = "plain",
    index_dir: str | os.PathLike[str] | None = None,
) -> _core.Index:
    """Cache the index of a file that was just written or read, if the cache is writable.

    Returns the index, which is valid even if it cannot be cached. `offsets` are the
    beginnings of all frames and the end of the last one. For a
    compressed file, they are offsets in its content, and `payload_crcs` is required.
    """
    if payload_crcs is None:
        index = index_of(path, offsets)
    else:
        version, code = version_of(path), CODES[content]
        index = _core.Index.of_stream(offsets, payload_crcs, *version, code)
    try:
        target = index_path(path, index_dir)
        with replacement(target, sync=False) as temporary:
            names = Scope.of([path]).names_in(target)
            indexes = _core.Indexes([index])
            _core.save_indexes(os.fsencode(temporary), names, indexes, [], None)
    except OSError as error:
        _log.info("cannot cache the index of %s: %s", printable(path), error)
    return index


def keep_indexes(
    paths: Sequence[str],
    indexes: _core.Indexes,
    index_dir: str | os.PathLike[str] | None,
) -> None:
    """Cache the indexes of plain files together, if the cache is writable."""
    search = IndexSearch(
        paths,
        versions_of(paths),
        ["plain"] * len(paths),
        needs_crcs=False,
        index_dir=index_dir,
    )
    search.add(search.missing, indexes)
    _save(search, IndexPlace(index_dir).path(search.scope), must_keep=False)


def rename_index(path: str, target: str) -> None:
    """Rename the cached index of a file that was renamed to `target`."""
    try:
        index_path(path).replace(index_path(target))
    except OSError as error:
        _log.debug("cannot rename the index of %s: %s", printable(path), error)


def write_tfrecord2idx(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    index_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Write the index of one file in the text format of ``tfrecord2idx``.

    One line per record: the offset of its frame and the size of the frame, in bytes. A
    directory with a ``NAME.idx`` for each file is valid as `index_dir` of
    `fastrec.open`.
    """
    from pathlib import Path  # slow to import

    (index,) = make_indexes([os.fspath(path)], place=IndexPlace(index_dir))
    offsets = index.offsets.astype(np.int64)
    lines = np.stack([offsets[:-1], np.diff(offsets)], axis=1)
    with replacement(Path(target)) as temporary:
        np.savetxt(temporary, lines, fmt="%d")


def _search(
    paths: Sequence[str],
    contents: Sequence[Content],
    needs_crcs: bool,
    index_dir: str | os.PathLike[str] | None,
    *,
    is_probing: bool = False,
    stale: Sequence[int] = (),
) -> IndexSearch:
    """Search all places for the indexes of files."""
    search = IndexSearch(
        paths,
        versions_of(paths),
        contents,
        needs_crcs=needs_crcs,
        index_dir=index_dir,
        is_probing=is_probing,
        stale=stale,
    )
    search.search()
    if not search.is_complete:
        search.fetch()
    if not search.is_complete and (index_dir is not None or len(paths) > 1):
        search.search_scattered()
        if index_dir is not None and not needs_crcs:
            _search_texts(search, paths, index_dir)
    return search


def _load_or_build(
    paths: Sequence[str],
    contents: Sequence[Content],
    scan: _Scan,
    *,
    place: IndexPlace,
    needs_crcs: bool,
    stale: Sequence[int] = (),
    n_bytes_done: Callable[[], int] = lambda: 0,
    progress: Progress | None = None,
    cancel: Callable[[], object] = lambda: None,
    n_threads: int | None = None,
) -> _core.Indexes:
    """Return the index of each file, building and caching those that are missing."""
    if not paths:
        return _core.Indexes([])
    unique = [*dict.fromkeys(paths)]
    if len(unique) < len(paths):  # a file is listed twice
        first = {path: i for i, path in reversed([*enumerate(paths)])}
        found = _load_or_build(
            unique,
            [contents[first[path]] for path in unique],
            lambda numbers, stop: scan([first[unique[i]] for i in numbers], stop),
            place=place,
            needs_crcs=needs_crcs,
            stale=[unique.index(paths[i]) for i in stale],
            n_bytes_done=n_bytes_done,
            progress=progress,
            cancel=cancel,
            n_threads=n_threads,
        )
        by_path = dict(zip(unique, found, strict=True))
        return _core.Indexes([by_path[path] for path in paths])
    search = _search(
        *(paths, contents, needs_crcs, place.index_dir),
        is_probing=place.must_keep,
        stale=stale,
    )
    n_bytes = int(search.versions[:, 0].sum())
    target = place.path(search.scope)

    def report() -> None:
        if progress is not None:
            progress(min(n_bytes_done(), n_bytes), n_bytes)

    def is_kept() -> bool:
        if not search.is_complete or search.scattered or search.is_fetched:
            return False
        return not place.must_keep or search.is_only_from(target)

    if not is_kept():
        is_cancelled = threading.Event()

        def cancel_all() -> None:
            is_cancelled.set()
            cancel()

        with builder_lock(target, is_cancelled):
            if not search.is_complete:
                search.search()  # another process may have built them meanwhile
            if not is_kept():
                _build_missing(
                    search,
                    partial(scan, stop=is_cancelled),
                    save=partial(_save, search, target, must_keep=place.must_keep),
                    cancel=cancel_all,
                    on_poll=report,
                    n_threads=n_threads,
                    progress_text=lambda seconds: (
                        f"indexing {len(search.missing):,} files: "
                        f"{n_bytes_done() / 1e9 / seconds:.2f} GB/s so far"
                    ),
                )
    report()
    return search.indexes()


def _build_missing(
    search: IndexSearch,
    scan: Callable[[list[int]], _core.Indexes],
    *,
    save: Callable[[], object],
    cancel: Callable[[], object],
    on_poll: Callable[[], object],
    progress_text: Callable[[float], str],
    n_threads: int | None,
) -> None:
    """Scan the missing files in threads, and save the indexes, also after an error."""
    missing = search.missing
    n_tasks = _TASKS_PER_THREAD * (n_threads or default_num_threads())
    n_each = min(max(1, len(missing) // n_tasks), _MAX_FILES_PER_TASK)
    pieces = [missing[i : i + n_each] for i in range(0, len(missing), n_each)]
    built: dict[int, _core.Indexes] = {}

    def scan_piece(i: int) -> None:
        built[i] = scan(pieces[i].tolist())

    def add_built() -> None:
        for i in [*built]:
            search.add(pieces[i], built.pop(i))

    save_at = time.monotonic() + _SAVE_SECONDS

    def poll() -> None:
        nonlocal save_at
        on_poll()
        if time.monotonic() > save_at:
            add_built()
            save()
            save_at = time.monotonic() + _SAVE_SECONDS

    try:
        run_in_threads(
            [partial(scan_piece, i) for i in range(len(pieces))],
            cancel=cancel,
            progress_text=lambda _n_done, seconds: progress_text(seconds),
            on_poll=poll,
            n_threads=n_threads,
        )
    finally:
        add_built()
        if search.parts:
            save()


def _save(search: IndexSearch, target: Path, *, must_keep: bool) -> None:
    try:
        search.save(target)
    except OSError as error:
        if must_keep:
            raise
        _log.info(
            "cannot cache the indexes of %d files: %s", search.scope.n_files, error
        )


def _scan_stream(
    file: FileContent, recovery: str, is_cancelled: threading.Event
) -> _core.Index:
    """Index a compressed file by scanning its content."""
    path, content = file
    version = version_of(path)

    def check() -> None:
        if is_cancelled.is_set():
            raise CancelledError

    if content == "auto":
        content = content_of(path)
    table = _core.FileTable(os.fsencode(path), ["pread"])
    files = [(path, content)]
    with frame_stream(files, table, [0], recovery, on_wait=check) as frames:
        return frames.scan(*version, CODES[content])


def _search_texts(
    search: IndexSearch, paths: Sequence[str], index_dir: str | os.PathLike[str]
) -> None:
    """Add the indexes of missing files in the text format of ``tfrecord2idx``."""
    folder = index_path(paths[0], index_dir).parent
    with contextlib.suppress(OSError):
        listed = set(os.listdir(folder))
        for number in search.missing.tolist():
            path = paths[number]
            name = path.key if isinstance(path, RemotePath) else path
            text = f"{os.path.basename(name)}.idx"
            if text not in listed:
                continue
            index = _read_tfrecord2idx(
                path, folder / text, search.versions[number].tolist()
            )
            if index is not None:
                search.add(np.array([number], np.int64), _core.Indexes([index]))


def _read_tfrecord2idx(path: str, text: Path, version: Version) -> _core.Index | None:
    try:
        lines = np.loadtxt(text, dtype=np.uint64, ndmin=2, usecols=(0, 1))
        offsets = np.append(lines[:, 0], lines[-1:].sum(dtype=np.uint64))
        return _core.Index.from_offsets(offsets, *version, os.fsencode(path))
    except (OSError, ValueError) as error:
        _log.warning("ignoring index file %s: %s", printable(text), error)
        return None
