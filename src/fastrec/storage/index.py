"""Indexes: the record offsets of files, built once per file version and cached.

The index of a plain file comes from a walk over its frame headers. The index of a
compressed file comes from one scan of its content, and contains its payload checksums.
Missing indexes are built in parallel when they are first needed, and cached
together. If the cache is not writable, each process builds its own indexes.

An index is valid if it has the file's current size and modification time (or ETag).
For an index next to the data, the time may differ, but sampled records must match.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.errors import CorruptionError
from fastrec.options import default_num_threads
from fastrec.printable import printable
from fastrec.storage.atomic import builder_lock, replacement
from fastrec.storage.compression import CODES, Content, content_of
from fastrec.storage.index_files import (
    ONLY_FILE,
    IndexPlace,
    Scope,
    hashed_name,
    index_path,
    joined_names,
    short_name,
)
from fastrec.storage.parallel import Progress, run_in_threads
from fastrec.storage.paths import version_of, versions_of
from fastrec.storage.remote import (
    MAX_ATTEMPTS,
    RemotePath,
    fetch,
    fetch_beginning,
    is_weak,
)
from fastrec.storage.stream_readers import frame_stream
from fastrec.tasks import CancelledError

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("fastrec")

Numbers = npt.NDArray[np.int64]

# Maximum number of files that one task scans.
_MAX_FILES_PER_TASK = 512
_TASKS_PER_THREAD = 8
_SAVE_SECONDS = 60.0  # a process that is killed loses what it built since the last save
_N_REMOTE_THREADS = 16  # they wait for the network
_INDEX_BYTES = 1 << 20  # of the first request for a remote index
_MIN_LISTED = 64  # objects, above which a request for an index saves requests
_MAX_OPTIONAL_ATTEMPTS = 4  # in less than a second


def known_contents(
    paths: Sequence[str], index_dir: str | os.PathLike[str] | None
) -> list[Content]:
    """Read the compression of each file from an index file, without opening the files.

    A file without an index is "auto". A file may have changed after it was indexed.
    """
    names = {code: name for name, code in CODES.items()}
    for path, names_in_it, _ in IndexPlace(index_dir).candidates(Scope.of(paths)):
        if (file := _core.IndexFile.load(os.fsencode(path))) is not None:
            return [names[code] for code in file.contents(names_in_it).tolist()]
    return ["auto"] * len(paths)


def n_optional_attempts(paths: Sequence[str]) -> int:
    """Return how often to request an optional index next to files; 0 if it is useless.

    The indexes of many listed objects show that they are plain. Without them, each
    object must be requested. So there is one attempt for each 64 objects, up to 4.
    """
    known = [p for p in paths if isinstance(p, RemotePath) and p.entry is not None]
    n_listed = sum(memoryview(path.beginning).nbytes == 0 for path in known)
    if n_listed < len(paths):
        return 0
    return min(n_listed // _MIN_LISTED, _MAX_OPTIONAL_ATTEMPTS)


def n_indexed(paths: Sequence[str], contents: Sequence[Content]) -> int:
    """Return the number of files with a cached index."""
    is_plain = set(contents) <= {"plain"}
    found = FileIndexes(paths, None if is_plain else contents, IndexPlace())
    found.search()
    return len(paths) - len(found.missing)


def make_indexes(
    paths: Sequence[str],
    *,
    contents: Sequence[Content] | None = None,
    names: Sequence[str] | None = None,
    io: str = "auto",
    place: IndexPlace | None = None,
    progress: Progress | None = None,
    recovery: str = "raise",
    is_assumed_plain: bool = False,
    stale: Sequence[int] = (),
    opened: tuple[_core.FileTable, int] | None = None,
    found: FileIndexes | None = None,
) -> _core.Indexes:
    """Return the indexes of files, after building the indexes that are not cached.

    `contents` is the compression of each file. Without it, files must be plain. With
    it, indexes contain payload checksums, and files are read as streams. Errors name
    files by `names`. `recovery` is "raise", "skip" or "resync"; an index with gaps is
    not cached, so cached indexes are valid for all three. With `is_assumed_plain`, a
    compressed file is an error. `stale` has the numbers of files to index again.
    `opened` is a table of open files, and the number of the first file in it. The table
    keeps the bytes of remote files. `found` has the result of an earlier search.
    """
    if not paths:
        return _core.Indexes([])
    scan = _core.ScanProgress()
    stop = threading.Event()
    n_threads = max(1, default_num_threads() // max(1, len(paths)))
    table, first = opened or (None, 0)
    if contents is None and table is None:
        from fastrec.storage.range_readers import table_of

        table, _ = table_of(
            paths,
            [io],
            names=joined_names(names or ()),
            is_assumed_plain=is_assumed_plain,
        )

    def build(numbers: Numbers) -> _core.Indexes:
        if contents is not None:
            return _core.Indexes(
                [_scan_stream(paths[i], contents[i], recovery, stop) for i in numbers]
            )
        assert table is not None
        return _core.Indexes.build(table, numbers + first, n_threads, scan, recovery)

    def cancel() -> None:
        stop.set()
        scan.cancel()

    found = found or FileIndexes(paths, contents, place or IndexPlace(), stale)
    is_remote = any(isinstance(path, RemotePath) for path in paths)
    n_at_once = _N_REMOTE_THREADS if is_remote and contents is None else None
    return found.complete(build, scan, cancel, n_at_once, progress)


def _scan_stream(
    path: str, content: Content, recovery: str, is_cancelled: threading.Event
) -> _core.Index:
    version = version_of(path)

    def check() -> None:
        if is_cancelled.is_set():
            raise CancelledError

    if content == "auto":
        content = content_of(path)
    table = _core.FileTable(os.fsencode(path), ["pread"])
    with frame_stream([(path, content)], table, [0], recovery, on_wait=check) as frames:
        return frames.scan(version, CODES[content])


def renew_stale(path: str, content: Content, n_records: int | None) -> bool:
    """Rebuild the cached index of a file if it is stale; return whether it was stale.

    The index of a plain file is compared with the frames of the file. The index of a
    compressed file is compared with `n_records`, the number of intact and damaged
    records; None if the number is unknown.
    """
    from fastrec.storage.range_readers import table_of

    contents = None if content == "plain" else [content]
    found = FileIndexes([path], contents, IndexPlace())
    found.search()
    if found.missing.size:
        return False
    indexes = found.indexes()
    if contents is None:
        is_stale = indexes.is_stale(0, table_of([path], ["pread"])[0])
    else:
        is_stale = n_records not in (None, indexes.n_records)
    if is_stale:
        recovery = "resync" if contents is None else "skip"
        make_indexes([path], contents=contents, recovery=recovery, stale=[0])
    return is_stale


def index_of(
    path: str,
    offsets: npt.NDArray[np.uint64],
    payload_crcs: npt.NDArray[np.uint32] | None = None,
    content: Content = "plain",
) -> _core.Index:
    """Create the index of a file from the beginnings of its frames, and the last end.

    For a compressed file, the offsets are in its content, and `payload_crcs` is required.
    """
    version = version_of(path)
    if payload_crcs is None:
        return _core.Index.from_offsets(offsets, version, os.fsencode(path))
    return _core.Index.of_stream(offsets, payload_crcs, version, CODES[content])


def keep_indexes(
    paths: Sequence[str],
    indexes: _core.Indexes,
    index_dir: str | os.PathLike[str] | None,
) -> None:
    """Cache the indexes of files in one index file, if the cache is writable."""
    found = FileIndexes(paths, None, IndexPlace(index_dir))
    if len(found.missing) < len(paths):  # files that are listed twice
        indexes = _core.Indexes([indexes[i] for i in found.missing.tolist()])
    found.add(found.missing, indexes)
    found.save()


def rename_index(path: str, target: str) -> None:
    """Rename the cached index of `path` after the file was renamed to `target`."""
    try:
        index_path(path).replace(index_path(target))
    except OSError as error:
        _log.debug("cannot rename the index of %s: %s", printable(path), error)


class FileIndexes:
    """Finds, builds and saves the indexes of several files.

    If `contents` is passed, an index must contain payload checksums. `stale` has the
    numbers of files whose stored indexes are ignored.
    """

    def __init__(
        self,
        paths: Sequence[str],
        contents: Sequence[Content] | None,
        place: IndexPlace,
        stale: Sequence[int] = (),
    ) -> None:
        self._paths, self._place = paths, place
        self._needs_crcs = contents is not None
        codes = [CODES[content] for content in contents or ["plain"] * len(paths)]
        self._contents = np.array(codes, np.uint8)
        self._scope = Scope.of(self._paths)
        self._target = place.path(self._scope)
        self._versions = versions_of(self._paths)
        # A file that is listed twice is searched and scanned once.
        first = {path: i for i, path in reversed([*enumerate(self._paths)])}
        self._first = np.array([first[path] for path in self._paths], np.int64)
        # Not np.unique: its first call imports a module, and another thread may fork
        # during the import.
        numbers, stale_numbers = first.values(), {first[paths[i]] for i in stale}
        self.missing: Numbers = np.array(sorted(numbers), np.int64)  # not yet added
        self._stale = np.array(sorted(stale_numbers), np.int64)
        self._parts: list[tuple[Numbers, _core.Indexes]] = []  # files and indexes
        self._is_fetched = False  # the index file next to remote files, if it exists
        self._table: _core.FileTable | None = None  # to compare indexes with files
        self._sources: set[Path | RemotePath] = set()  # index files that were used
        # Index files of single files or parts, which `save` merges into one index file.
        self._scattered: dict[Path, _core.IndexFile | None] = {}

    def indexes(self) -> _core.Indexes:
        """Return the indexes of all files; no index may be missing."""
        n_files = len(self._paths)
        if len(self._parts) == 1 and len(self._parts[0][0]) == n_files:
            return self._parts[0][1]
        if (self._first == np.arange(n_files)).all():
            return _core.Indexes.merged(n_files, self._parts)
        found = {
            number: index
            for numbers, indexes in self._parts
            for number, index in zip(numbers.tolist(), indexes, strict=True)
        }
        return _core.Indexes([found[number] for number in self._first.tolist()])

    def add(self, numbers: Numbers, indexes: _core.Indexes) -> None:
        """Add the indexes of the files `numbers`, and remove them from `missing`."""
        if numbers.size:
            self._parts.append((numbers, indexes))
            self.missing = np.setdiff1d(self.missing, numbers, assume_unique=True)

    # Searching.

    def search(self, n_attempts: int = MAX_ATTEMPTS) -> None:
        """Search all locations for the missing indexes; only local ones if 0 attempts."""
        for path, names, is_next_to_data in self._place.candidates(self._scope):
            if self.missing.size:
                self._look_into(path, names, is_next_to_data=is_next_to_data)
        if self.missing.size and n_attempts and not self._is_fetched:
            self._fetch(n_attempts)
        is_shared = self._place.index_dir is not None or len(self._paths) > 1
        if self.missing.size and is_shared:
            self._search_scattered(self._place.folder())

    def _fetch(self, n_attempts: int) -> None:
        """Fetch the index file next to the remote files, and search it."""
        path, names = self._scope.next_to_data()
        if not isinstance(path, RemotePath):
            return
        try:
            file = _fetched(path, n_attempts)
        except (OSError, CorruptionError) as error:
            # Some stores deny access to missing objects. Or the index was replaced.
            _log.info("cannot read the index %s: %s", path, error)
            return
        self._is_fetched = True
        if file is None:
            return
        # Probe only objects whose version is inexact or differs, as that of a copy does.
        exact = [i for i in self.missing.tolist() if not is_weak(self._paths[i])]
        numbers, n_missing = np.array(exact, np.int64), self.missing.size
        self._find(file, names, numbers, is_next_to_data=False)
        if self.missing.size:
            self._find(file, names, self.missing, is_next_to_data=True)
        if self.missing.size < n_missing:
            self._sources.add(path)

    def _search_scattered(self, folder: Path) -> None:
        """Search index files of single files, and those that several machines built."""
        try:
            listed = os.listdir(folder)
        except OSError:
            return
        is_single = len(self._paths) == 1
        for directory, names in self._scope.above():
            stem = f"{hashed_name(directory + os.sep)}."
            parts = {name for name in listed if name.startswith(stem)}
            for name in sorted(parts - {f"{stem}frecidx"}):
                part = self._look_into(folder / name, names)
                if part and directory == self._scope.directory and not is_single:
                    self._scattered[folder / name] = part
        single = {name.rsplit(".", 2)[0] for name in listed}
        only = b"\0".join([ONLY_FILE] * len(self._paths))
        for number in [] if is_single else self.missing.tolist():
            path = self._paths[number]
            identity = path.identity if isinstance(path, RemotePath) else path
            if short_name(identity) in single:
                file = index_path(path, self._place.index_dir)
                if self._look_into(file, only, np.array([number])) is not None:
                    self._scattered[file] = None

    def _look_into(
        self,
        path: Path,
        names: bytes,
        numbers: Numbers | None = None,
        *,
        is_next_to_data: bool = False,
    ) -> _core.IndexFile | None:
        """Load an index file; return it if it contains a missing index, else None."""
        file = _core.IndexFile.load(os.fsencode(path))
        numbers = self.missing if numbers is None else numbers
        if file is None or not self._find(
            file, names, numbers, is_next_to_data=is_next_to_data
        ):
            return None
        self._sources.add(path)
        return file

    def _find(
        self,
        file: _core.IndexFile,
        names: bytes,
        numbers: Numbers,
        *,
        is_next_to_data: bool,
    ) -> bool:
        is_probing = is_next_to_data or self._place.must_keep
        if is_probing and self._table is None:
            from fastrec.storage.range_readers import table_of

            self._table, _ = table_of(self._paths, ["pread"])
        found = file.find(
            names,
            np.setdiff1d(numbers, self._stale, assume_unique=True),
            self._versions,
            self._contents,
            needs_crcs=self._needs_crcs,
            ignores_times=is_next_to_data,
            probed=self._table if is_probing else None,
        )
        self.add(*found)
        return bool(found[0].size)

    # Building.

    def complete(
        self,
        scan: Callable[[Numbers], _core.Indexes],
        scanned: _core.ScanProgress,
        cancel: Callable[[], object],
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> _core.Indexes:
        """Return all indexes, after building and saving the missing ones."""
        self.search()
        n_bytes = int(self._versions[:, 0].sum())

        def report() -> None:
            if progress is not None:
                progress(min(scanned.n_bytes, n_bytes), n_bytes)

        if not self._is_kept():
            with contextlib.ExitStack() as lock:
                if not isinstance(self._target, RemotePath):
                    lock.enter_context(builder_lock(self._target, threading.Event()))
                self.search(n_attempts=0)  # another process may have built them
                if not self._is_kept():
                    self._build(scan, scanned, cancel, n_threads, report)
        report()
        return self.indexes()

    def _is_kept(self) -> bool:
        """Return whether no index has to be built, merged or saved."""
        if self.missing.size or self._scattered:
            return False
        if self._place.must_keep:
            return self._sources == {self._target}
        return not any(isinstance(path, RemotePath) for path in self._sources)

    def _build(
        self,
        scan: Callable[[Numbers], _core.Indexes],
        scanned: _core.ScanProgress,
        cancel: Callable[[], object],
        n_threads: int | None,
        report: Callable[[], object],
    ) -> None:
        """Scan missing files in threads; save indexes once a minute and at the end."""
        missing = self.missing
        n_tasks = _TASKS_PER_THREAD * (n_threads or default_num_threads())
        n_each = min(max(1, len(missing) // n_tasks), _MAX_FILES_PER_TASK)
        built: list[tuple[Numbers, _core.Indexes]] = []

        def scan_piece(numbers: Numbers) -> None:
            built.append((numbers, scan(numbers)))

        def save_built() -> None:
            while built:
                self.add(*built.pop())
            self.save()

        save_at = time.monotonic() + _SAVE_SECONDS

        def poll() -> None:
            nonlocal save_at
            report()
            if time.monotonic() > save_at:
                save_built()
                save_at = time.monotonic() + _SAVE_SECONDS

        try:
            run_in_threads(
                [
                    partial(scan_piece, missing[i : i + n_each])
                    for i in range(0, len(missing), n_each)
                ],
                cancel=cancel,
                progress_text=lambda _, seconds: (
                    f"indexing {len(missing):,} files: "
                    f"{scanned.n_bytes / 1e9 / seconds:.2f} GB/s so far"
                ),
                on_poll=poll,
                n_threads=n_threads,
            )
        except BaseException:
            if not isinstance(self._target, RemotePath):  # requests may stall or fail
                save_built()
            raise
        else:
            save_built()

    def save(self) -> None:
        """Write the indexes to one index file; delete the index files merged into it.

        The index file keeps its indexes of other files: of local files only those that
        still exist, and of remote files all.
        """
        parts = [part for each in self._parts if len((part := _without_gaps(*each))[0])]
        if self._stale.size:
            # An index with gaps is not written, but the file's stale index is removed.
            parts = self._parts
        if not parts:
            return
        path = self._target
        names = self._scope.names_in(path).split(b"\0")
        numbers = np.concatenate([part[0] for part in parts]).tolist()
        is_own = self._place.part is None and not self._place.is_next_to_data
        scattered = self._scattered if is_own else {}
        others = [part for part in scattered.values() if part is not None]
        if names != [ONLY_FILE]:
            known = (
                _fetched(path)
                if isinstance(path, RemotePath)
                else _core.IndexFile.load(os.fsencode(path))
            )
            others[:0] = [] if known is None else [known]
        directory = os.fsencode(self._scope.directory)
        try:
            with replacement(path, sync=False) as temporary:
                _core.save_indexes(
                    os.fsencode(temporary),
                    b"\0".join([names[number] for number in numbers]),
                    _core.Indexes.joined([part[1] for part in parts]),
                    others,
                    None if self._scope.remote else directory,
                )
        except OSError as error:
            if self._place.must_keep:
                raise
            _log.info("cannot cache %d indexes: %s", len(self._paths), error)
        else:
            for merged in scattered:
                with contextlib.suppress(OSError):
                    merged.unlink()


def _fetched(
    path: RemotePath, n_attempts: int = MAX_ATTEMPTS
) -> _core.IndexFile | None:
    """Fetch an index file; return None if it is missing or has another format.

    Starts again if another machine replaced the index file between two requests.
    """
    try:
        version = fetch_beginning(path, _INDEX_BYTES, n_attempts=n_attempts).version
        content = bytes(path.beginning)
        content += fetch(path, len(content), version[0], version)
    except FileNotFoundError:
        return None
    except CorruptionError:  # the index file changed
        if n_attempts == 1:
            raise
        return _fetched(path, n_attempts - 1)
    return _core.IndexFile.of(content)


def _without_gaps(
    numbers: Numbers, indexes: _core.Indexes
) -> tuple[Numbers, _core.Indexes]:
    """Drop the indexes that have gaps: indexes of damaged files are not cached."""
    if not indexes.has_gaps:
        return numbers, indexes
    whole = [i for i, index in enumerate(indexes) if not index.gaps]
    return numbers[whole], _core.Indexes([indexes[i] for i in whole])
