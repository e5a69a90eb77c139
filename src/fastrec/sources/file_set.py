"""FileSet: the files of a dataset, in order, opened and scanned lazily."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fastrec import _core
from fastrec.errors import Error, advise_foreign, advise_on_error
from fastrec.features.schema import Schema
from fastrec.lifecycle import renew_after_fork
from fastrec.on_error import ErrorPolicy, Report, SkippedSpan, log_gaps, recovery_of
from fastrec.options import Limits
from fastrec.sources.file_group import FileGroup
from fastrec.sources.selection import Numbers
from fastrec.storage import index
from fastrec.storage.compression import (
    Content,
    FileContent,
)
from fastrec.storage.index import IndexPlace
from fastrec.storage.index_files import joined_names
from fastrec.storage.paths import local_head
from fastrec.storage.pipes import PipePath, refuse_pipe
from fastrec.storage.remote import RemotePath, warn_of_weak_versions

if TYPE_CHECKING:
    import hashlib

    from fastrec.storage.range_readers import RangeReaders

_T = TypeVar("_T")

# Records whose stored checksums are in the fingerprint, in addition to the last one.
_N_FINGERPRINTED = 17


class FileSet:
    """An ordered list of files. They are opened and scanned lazily, once."""

    def __init__(
        self,
        groups: Iterable[FileGroup],
        on_error: ErrorPolicy = "raise",
        limits: Limits | None = None,
        inferred: Mapping[Any, Schema] | None = None,
    ) -> None:
        self._groups = list(groups)
        self.files = _chained([group.paths for group in self._groups])
        self.on_error = on_error
        self.limits = Limits() if limits is None else limits
        # Of sources, by the names of the features and the numbers of the files.
        self.inferred = dict(inferred or {})
        # Not cached_property: its lock, before Python 3.12, may be held during a fork.
        self._is_streamed: bool | None = None
        self._is_remote: bool | None = None
        self._indexes: _core.Indexes | None = None
        self._indexes_version = 0
        self._counts: _core.Indexes | None = None
        self._renew_after_fork()
        renew_after_fork(self)

    def _renew_after_fork(self) -> None:
        self.lock = threading.RLock()
        self._table: _core.FileTable | None = None
        self.readers: RangeReaders | None = None  # of remote files, with the table

    def __reduce__(self) -> tuple[object, ...]:
        return FileSet, (self._groups, self.on_error, self.limits, self.inferred)

    def __len__(self) -> int:
        return len(self.files)

    def __repr__(self) -> str:
        n = len(self) - 1
        more = f" and {n:,} more {'file' if n == 1 else 'files'}" if n else ""
        return repr(self.files[0]) + more

    @classmethod
    def joined(cls, parts: Sequence[FileSet]) -> FileSet:
        """Concatenate file sets, whose `on_error` and `limits` must be equal."""
        first = parts[0]
        if any(part.on_error != first.on_error for part in parts):
            raise ValueError(
                "joined datasets must have equal on_error=; pass it to fastrec.open()"
            )
        if any(part.limits != first.limits for part in parts):
            raise ValueError(
                "joined datasets must have equal limits=; pass it to fastrec.open()"
            )
        groups = [group for part in parts for group in part._groups]
        return cls(groups, first.on_error, first.limits)

    def first(self) -> FileSet:
        """Return the first file alone; nothing is expanded to `cache_dir`."""
        first = self._groups[0]
        group = FileGroup(first.paths[:1], first.options._replace(cache_dir=None))
        return FileSet([group], self.on_error, self.limits)

    def part(self, numbers: Iterable[int]) -> FileSet:
        """Return the files with these numbers."""
        ends = [*itertools.accumulate(len(group.paths) for group in self._groups)]
        by_group = itertools.groupby(numbers, partial(bisect.bisect_right, ends))
        groups = []
        for i, chosen in by_group:
            group = self._groups[i]
            begin = ends[i] - len(group.paths)
            groups.append(group.part([number - begin for number in chosen]))
        return FileSet(groups, self.on_error, self.limits)

    def with_absolute_paths(self) -> FileSet:
        """Return the same files for processes in other directories."""
        groups = [group.rescanned() for group in self._groups]
        for group in groups:
            group.paths = [
                path if isinstance(path, RemotePath) else os.path.abspath(path)
                for path in group.paths
            ]
        return FileSet(groups, self.on_error, self.limits, self.inferred)

    def with_indexes(self, indexes: Sequence[_core.Index | None]) -> FileSet:
        """Return the same files with these indexes; the core checks their versions."""
        known = [index is not None for index in indexes]
        groups = []
        begin = 0
        for group in self._groups:
            end = begin + len(group.paths)
            for _, run in itertools.groupby(range(begin, end), known.__getitem__):
                numbers = list(run)
                part = group.part([number - begin for number in numbers])
                given = [index for i in numbers if (index := indexes[i]) is not None]
                part.indexes = _core.Indexes(given) if given else None
                groups.append(part)
            begin = end
        return FileSet(groups, self.on_error, self.limits)

    def with_on_error(self, on_error: ErrorPolicy) -> FileSet:
        """Return the same files under another error policy."""
        if on_error == self.on_error:
            return self
        groups = {group: group.rescanned() for group in self._groups}
        renewed = [groups[group] for group in self._groups]
        return FileSet(renewed, on_error, self.limits, self.inferred)

    # Contents.

    @property
    def formats(self) -> list[Content]:
        """The compression of each file: `compression`, or detected if "auto"."""
        return _chained([group.detected() for group in self._groups])

    @property
    def is_streamed(self) -> bool:
        """Whether any file is read as a stream: compressed, and not expanded."""
        if self._is_streamed is None:
            contents = set[str]().union(*(group.read_as() for group in self._groups))
            self._is_streamed = bool(contents - {"plain"}) or bool(self.pipes)
        return self._is_streamed

    @property
    def pipes(self) -> list[PipePath]:
        """The files that are pipes."""
        return [path for path in self.files if isinstance(path, PipePath)]

    def check_no_pipes(self, what: str) -> None:
        """Raise an UnsupportedOperation, naming the operation `what`, for a pipe."""
        for path in self.pipes:
            refuse_pipe(path, what)

    @property
    def paths(self) -> list[str]:
        """The paths to read. Copies compressed and remote files to `cache_dir`."""
        return _chained([self._plain(group) for group in self._groups])

    def _plain(self, group: FileGroup) -> list[str]:
        """Return the paths to read in a group."""
        if group.plain is None:
            cache_dir = group.options.cache_dir
            if cache_dir is None:
                group.plain = group.paths
            else:
                from fastrec.storage.local_copies import local_copies

                group.plain = local_copies(
                    group.paths,
                    group.detected(),
                    cache_dir,
                    self.limits.max_expansion_ratio,
                    group.options.cache_bytes,
                )
                warn_of_weak_versions(group.paths)
        return group.plain

    @property
    def is_remote(self) -> bool:
        """Whether any file is read from a remote store."""
        if self._is_remote is None:
            self._is_remote = any(isinstance(path, RemotePath) for path in self.paths)
        return self._is_remote

    def keep_walked(self, pipeline: _core.Pipeline) -> None:
        """Keep the indexes of remote files that a pipeline has read to their end."""
        for i, offsets in pipeline.take_offsets():
            number = i
            for group in self._groups:
                if number < len(group.paths):
                    group.keep_walked(number, self._plain(group), offsets)
                    break
                number -= len(group.paths)

    def contents(self) -> list[FileContent]:
        """Return the path and compression of each file, for sequential reading."""
        read_as = _chained([group.read_as() for group in self._groups])
        return list(zip(self.paths, read_as, strict=True))

    def check_random_access(self, what: str) -> None:
        """Raise a ValueError, naming the operation `what`, if a file is streamed."""
        if not self.is_streamed:
            return
        self.check_no_pipes(what)
        path = next(path for path, content in self.contents() if content != "plain")
        raise ValueError(
            f"{what} requires random access, but {path!r} is compressed; pass "
            "cache_dir= to fastrec.open() to expand compressed files once"
        )

    @property
    def table(self) -> _core.FileTable:
        """The core's table of open files. A forked child creates a new one."""
        with _core.HeldLock(self.lock):
            if self._table is None:
                paths = self.paths
                ios = [group.options.io for group in self._groups]
                if len(ios) > 1:
                    ios = [
                        group.options.io for group in self._groups for _ in group.paths
                    ]
                readers: RangeReaders | None = None
                if self.is_remote:
                    from fastrec.storage.range_readers import RangeReaders, io_of

                    readers = RangeReaders(paths)
                    warn_of_weak_versions(paths)
                    ios = ios * len(paths) if len(ios) == 1 else ios
                    ios = [*map(io_of, paths, ios)]
                table = _core.FileTable(
                    joined_names(paths),
                    ios,
                    b"" if paths == self.files else joined_names(self.files),
                    self.limits.max_record_bytes,
                    None if readers is None else readers.requests,
                    is_assumed_plain=any(group.is_assumed for group in self._groups),
                )
                if readers is not None:
                    readers.start()
                if self._indexes is not None:
                    table.expect(self._indexes)
                # Last, and without a call, so that a signal leaves no half of it.
                self.readers, self._table = readers, table
            return self._table

    # Records.

    def indexes(self) -> _core.Indexes:
        """Return the index of each file, building those that are missing or stale."""
        with _core.HeldLock(self.lock):
            indexes = self._indexes
            is_renewed = self._indexes_version != self._n_renewals
            if indexes is None or is_renewed or indexes.stale:
                self.check_random_access("this operation")
                stale = [] if indexes is None or is_renewed else indexes.stale
                begin = 0
                for group in self._groups:
                    end = begin + len(group.paths)
                    self._index(group, [i - begin for i in stale if begin <= i < end])
                    begin = end
                self._set_indexes()
            assert self._indexes is not None
            return self._indexes

    @property
    def _n_renewals(self) -> int:
        return sum(group.n_renewals for group in self._groups)

    def version(self) -> int:
        """Return a number that changes with the indexes that were loaded."""
        if self._indexes is not None:
            self.indexes()
        return self._n_renewals

    def renew(self, error: Error) -> None:
        """Build stale indexes again after an error of reading; other errors are ignored.

        An error that the index is stale gets a hint. If a file is damaged, raises the
        error of the policy.
        """
        if error.code != "index_mismatch":
            return
        if self.is_streamed:
            for group in self._groups:
                self._count(group, range(len(group.paths)))
            error.hint = "The index was built again: open the dataset again."
        else:
            self.indexes()
            error.hint = "The index was built again: start again with the first batch."

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Call `renew` with an error of reading."""
        try:
            yield
        except Error as error:
            self.renew(error)
            raise

    def _index(self, group: FileGroup, stale: Sequence[int] = ()) -> None:
        """Index the files of a group; those with the numbers `stale` again."""
        if group.indexes is not None and not stale:
            return
        with self._advice():
            group.indexes = index.make_indexes(
                self._plain(group),
                names=group.paths,
                io=group.options.io,
                place=IndexPlace(group.options.index_dir),
                recovery=recovery_of(self.on_error),
                is_assumed_plain=group.is_assumed,
                stale=stale,
            )
        group.n_renewals += bool(stale)
        log_gaps(_gaps(group.indexes))

    def _set_indexes(self) -> None:
        """Join the indexes of all groups, which are known."""
        parts = [g.indexes for g in self._groups if g.indexes is not None]
        self._indexes = parts[0] if len(parts) == 1 else _core.Indexes.joined(parts)
        self._indexes_version = self._n_renewals
        if self._table is not None:
            self._table.expect(self._indexes)

    def is_indexed(self) -> bool:
        """Whether all indexes exist in memory, or in the cache if files are few.

        Of many files, finding out would delay the first batch.
        """
        if self.is_streamed:
            return False
        with _core.HeldLock(self.lock):
            if self._indexes is not None:
                return True
            for group in self._groups:
                # Copies that are not made yet have no index; that of a URL is not theirs.
                is_copied = group.options.cache_dir is None or group.plain is not None
                if group.indexes is None and not group.is_large and is_copied:
                    paths = group.paths if group.plain is None else group.plain
                    group.indexes = index.load_indexes(paths, group.options.index_dir)
                if group.indexes is None:
                    return False
            self._set_indexes()
            return True

    def counts(self) -> _core.Indexes:
        """Return the index of each file's content, scanning files that have none."""
        with _core.HeldLock(self.lock):
            if self._counts is None:
                for path in self.pipes:  # list() ignores a TypeError of len()
                    raise TypeError(
                        f"cannot count the records of {str(path)!r}: it is a pipe; copy "
                        "it to a file first"
                    )
                for group in self._groups:
                    self._count(group)
                parts = [g.counts for g in self._groups if g.counts is not None]
                self._counts = (
                    parts[0] if len(parts) == 1 else _core.Indexes.joined(parts)
                )
            return self._counts

    def _count(self, group: FileGroup, stale: Sequence[int] = ()) -> None:
        """Index the content of the files of a group; of those in `stale` again."""
        if group.counts is not None and not stale:
            return
        files = list(zip(self._plain(group), group.read_as(), strict=True))
        with self._advice():
            group.counts = index.make_counts(
                files,
                place=IndexPlace(group.options.index_dir),
                recovery=recovery_of(self.on_error),
                stale=stale,
            )
        log_gaps(_gaps(group.counts))

    def n_known_records(self) -> int | None:
        """Return the number of records if all files were scanned, else None."""
        scans = [group.counts or group.indexes for group in self._groups]
        return None if None in scans else sum(scan.n_records for scan in scans if scan)

    def known_gaps(self) -> list[SkippedSpan]:
        """Return the gaps in the framing of files that were scanned so far."""
        scans = [scan for group in self._groups for scan in group.scans()]
        return [gap for scan in scans for gap in _gaps(scan)]

    def _scans(self) -> _core.Indexes:
        return self.counts() if self.is_streamed else self.indexes()

    def report(self) -> Report:
        """Return the regions that are skipped because their framing is damaged."""
        return Report(tuple(gap.region for gap in _gaps(self._scans())))

    def n_records_by_file(self) -> list[int]:
        """Return the number of records in each file."""
        counts: list[int] = self._scans().counts.tolist()
        return counts

    @property
    def n_records(self) -> int:
        """Number of records in all files."""
        return self._scans().n_records

    @property
    def n_bytes(self) -> int:
        """Size of all frames in bytes."""
        return int(self.indexes().n_bytes.sum())

    def advise(self, error: Error) -> None:
        """Set the hint of an error about these files: what they are, or on_error=."""
        remote = (path for path in self.files if isinstance(path, RemotePath))
        if error.offset == 0 and (
            path := next((path for path in remote if str(path) == error.path), None)
        ):
            with contextlib.suppress(OSError), local_head(path) as local:
                advise_foreign(error, local)
        if self.on_error == "raise":
            advise_on_error(error)

    @contextlib.contextmanager
    def _advice(self) -> Iterator[None]:
        """Set the hints of errors of scanning files."""
        try:
            yield
        except Error as error:
            self.advise(error)
            raise

    def streamed_places(self, records: Numbers) -> list[tuple[int, int]]:
        """Return the file and the number in the file of each record of streams."""
        begins = np.cumsum([0, *self.n_records_by_file()])
        files = np.searchsorted(begins, records, side="right") - 1
        return list(
            zip(files.tolist(), (records - begins[files]).tolist(), strict=True)
        )

    def add_to(self, digest: hashlib.blake2b) -> None:
        """Update `digest` with sizes, record counts and sampled checksums."""
        n = self.n_records
        sampled = {n * i // _N_FINGERPRINTED for i in range(_N_FINGERPRINTED)}
        chosen = np.array(sorted(sampled | {n - 1}) if n else [], dtype=np.int64)
        scans = self._scans()
        if self.is_streamed:
            places = self.streamed_places(chosen)
            stored = np.array([scans[i].payload_crc(number) for i, number in places])
        else:
            stored = _core.stored_checksums(self.table, _core.Catalog(scans), chosen)
        sizes = zip(scans.n_bytes.tolist(), scans.counts.tolist(), strict=True)
        digest.update("".join([f"{n_bytes} {n};" for n_bytes, n in sizes]).encode())
        digest.update(stored.astype("<u4").tobytes())


def _chained(lists: Sequence[list[_T]]) -> list[_T]:
    return lists[0] if len(lists) == 1 else [*itertools.chain.from_iterable(lists)]


def _gaps(indexes: _core.Indexes) -> list[SkippedSpan]:
    if not indexes.has_gaps:
        return []
    return [gap for of_file in indexes for gap in of_file.gaps]
