"""FileSet: the files of a dataset, in order, opened and scanned lazily."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import operator
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from fastrec import _core
from fastrec.errors import Error, advise_foreign, advise_on_error
from fastrec.features.schema import Schema
from fastrec.on_error import ErrorPolicy, Report, SkippedSpan, log_gaps
from fastrec.options import Limits
from fastrec.storage import index
from fastrec.storage.compression import (
    Compression,
    Content,
    FileContent,
    contents_of,
    sampled_contents,
)
from fastrec.storage.index_files import IndexPlace, joined_names
from fastrec.storage.paths import local_head, version_of, versions_of
from fastrec.storage.pipes import PipePath, refuse_pipe
from fastrec.storage.remote import (
    RemotePath,
    has_ranges,
    warn_of_weak_versions,
)
from fastrec.storage.stream_readers import frame_stream
from fastrec.tasks import renew_after_fork

if TYPE_CHECKING:
    import hashlib

    from fastrec.storage.range_readers import RangeReaders

_T = TypeVar("_T")

# Records whose stored checksums are in the fingerprint, in addition to the last one.
_N_FINGERPRINTED = 17

# Limits of the files that are streamed at a time to infer a schema.
_MAX_FRAME_READERS = 16
_SAMPLED_BYTES = 32 << 20

# With more files, only a sample is opened before the first batch.
_MAX_INSPECTED = 1024


class FileOptions(NamedTuple):
    """Options of `fastrec.open` that concern single files."""

    io: str = "auto"
    compression: Compression = "auto"
    cache_dir: str | None = None
    index_dir: str | None = None
    cache_bytes: int | None = None


class FileSet:
    """The files of one `fastrec.open` call, or of several joined sets.

    Files are opened and scanned once, when needed. A joined set shares formats, paths
    and indexes with its parts. A set may have 100,000 files.
    """

    def __init__(
        self,
        files: Sequence[str] | bytes,
        options: FileOptions | None = None,
        on_error: ErrorPolicy = "raise",
        limits: Limits | None = None,
        inferred: Mapping[Any, Schema] | None = None,
        parts: Sequence[FileSet] = (),
    ) -> None:
        if isinstance(files, bytes):  # from a pickle
            files = os.fsdecode(zlib.decompress(files)).split("\0")
        self.files = [*files]
        self._options = FileOptions() if options is None else options
        self._given_parts = tuple(parts)
        self.on_error = on_error
        # How the core treats broken framing.
        self.recovery = "skip" if on_error == "mask" else on_error
        self.limits = Limits() if limits is None else limits
        # Inferred schemas, by feature names and file numbers.
        self.inferred = dict(inferred or {})
        self._formats: list[Content] | None = None
        self._is_assumed = False  # whether `formats` come from a sample
        self._is_streamed: bool | None = None
        self._paths: list[str] | None = None
        # The indexes of a part, keyed by whether they contain payload checksums.
        self._indexes: dict[bool, _core.Indexes] = {}
        self._n_renewals = 0  # number of times stale indexes were rebuilt
        self._joined: tuple[list[_core.Indexes], _core.Indexes] | None = None
        self._walked: dict[int, _core.Index] = {}
        self._renew_after_fork()
        renew_after_fork(self)

    def _renew_after_fork(self) -> None:
        self.lock = threading.RLock()
        self._table: _core.FileTable | None = None
        self.readers: RangeReaders | None = None  # set with the table
        self._found: index.FileIndexes | None = None  # requested by `formats`

    def __reduce__(self) -> tuple[object, ...]:
        if self._given_parts:
            return FileSet._of_parts, (self._given_parts, self.inferred)
        files: Sequence[str] | bytes = self.files
        if all(type(path) is str for path in files):
            files = zlib.compress(joined_names(self.files), 1)
        options = self._options, self.on_error, self.limits, self.inferred
        return FileSet, (files, *options)

    def __len__(self) -> int:
        return len(self.files)

    def __repr__(self) -> str:
        n = len(self) - 1
        more = f" and {n:,} more {'file' if n == 1 else 'files'}" if n else ""
        return repr(self.files[0]) + more

    @property
    def _parts(self) -> Sequence[FileSet]:
        return self._given_parts or (self,)

    @classmethod
    def joined(cls, parts: Sequence[FileSet]) -> FileSet:
        """Concatenate file sets, whose `on_error` and `limits` must be equal."""
        for option in ("on_error", "limits"):
            if len({getattr(part, option) for part in parts}) > 1:
                raise ValueError(
                    f"joined datasets must have equal {option}=; pass it to "
                    "fastrec.open()"
                )
        return cls._of_parts([each for part in parts for each in part._parts])

    @classmethod
    def _of_parts(
        cls, parts: Sequence[FileSet], inferred: Mapping[Any, Schema] | None = None
    ) -> FileSet:
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        files = _chained([part.files for part in parts])
        return cls(files, None, first.on_error, first.limits, inferred, parts)

    def first(self) -> FileSet:
        """Return a FileSet of only the first file, without `cache_dir`."""
        options = self._parts[0]._options._replace(cache_dir=None)
        return FileSet(self.files[:1], options, self.on_error, self.limits)

    def part(self, numbers: Iterable[int]) -> FileSet:
        """Return a FileSet of the files with these numbers."""
        ends = [*itertools.accumulate(map(len, self._parts))]
        by_part = itertools.groupby(numbers, partial(bisect.bisect_right, ends))
        return FileSet._of_parts(
            [
                self._parts[i]._copied(
                    self.on_error, [n - ends[i] + len(self._parts[i]) for n in chosen]
                )
                for i, chosen in by_part
            ]
        )

    def with_absolute_paths(self) -> FileSet:
        """Return a FileSet of the same files, with absolute paths."""
        files = self.with_on_error(self.on_error)
        for part in files._parts:
            part.files = [
                path if isinstance(path, RemotePath) else os.path.abspath(path)
                for path in part.files
            ]
            if part._options.cache_dir is None:
                part._paths = None
        return FileSet._of_parts(files._parts, self.inferred)

    def with_indexes(self, indexes: Sequence[_core.Index]) -> FileSet:
        """Return a copy with an index for each file; the core checks the versions."""
        files = self.with_on_error(self.on_error)
        rest = iter(indexes)
        for part in files._parts:
            part._indexes[False] = _core.Indexes([*itertools.islice(rest, len(part))])
        return files

    def with_on_error(self, on_error: ErrorPolicy) -> FileSet:
        """Return a copy with the policy `on_error` and all still valid indexes."""
        copies = {part: part._copied(on_error) for part in self._parts}
        return FileSet._of_parts([copies[part] for part in self._parts], self.inferred)

    def _copied(
        self, on_error: ErrorPolicy, numbers: Sequence[int] | None = None
    ) -> FileSet:
        """Copy a part, or only its files `numbers`, with indexes that remain valid."""

        def of(values: Any) -> Any:
            if values is None or numbers is None:
                return values
            return [values[i] for i in numbers]

        inferred = self.inferred if numbers is None else None
        copy = FileSet(of(self.files), self._options, on_error, self.limits, inferred)
        copy._formats, copy._paths = of(self._formats), of(self._paths)
        copy._is_assumed = self._is_assumed
        for has_crcs, indexes in self._indexes.items():
            if on_error == self.on_error or not indexes.has_gaps:
                chosen = of(indexes)
                is_all = numbers is None
                copy._indexes[has_crcs] = chosen if is_all else _core.Indexes(chosen)
        return copy

    # Contents.

    @property
    def formats(self) -> list[Content]:
        """The compression of each file, detected if ``compression="auto"`` was passed.

        If the set is large, only a sample is opened. Plain files are then checked when
        they are first read, and the format of compressed files is detected again.
        """
        options = self._options
        if self._formats is None and self._given_parts:
            self._formats = _chained([part.formats for part in self._given_parts])
        elif self._formats is None:
            is_detected = options.compression == "auto" and options.cache_dir is None
            if is_detected and (n := index.n_optional_attempts(self.files)):
                self._search(n_attempts=n)
            if False in self._indexes:
                self._formats = ["plain"] * len(self)
            elif is_detected and self._is_large:
                known = index.known_contents(self.files, options.index_dir)
                self._formats = sampled_contents(self.files, known)
                self._is_assumed = True
            else:
                self._formats = contents_of(self.files, options.compression)
        return self._formats

    @property
    def _is_large(self) -> bool:
        """Whether inspecting every file would delay the first batch."""
        return len(self) > _MAX_INSPECTED

    def _read_as(self) -> list[Content]:
        """Return the compression of each of `paths`; copies in the cache are plain."""
        if self._given_parts:
            return _chained([part._read_as() for part in self._given_parts])
        if self._options.cache_dir is not None:
            return ["plain"] * len(self)
        if set(self.formats) != {"plain"} and self._is_assumed:
            return ["auto"] * len(self)
        return self.formats

    def _has_ranges(self) -> bool:
        """Return whether parts of all files can be read; copies in the cache can."""
        remote = [path for path in self.files if isinstance(path, RemotePath)]
        if self._options.cache_dir is not None or not remote:
            return True
        versions_of(remote)  # asks the server
        return all(map(has_ranges, remote))

    @property
    def is_streamed(self) -> bool:
        """Whether any file can only be read in order.

        It is a pipe, or has no copy in the cache and is compressed or on a server
        without ranges.
        """
        if self._is_streamed is None:
            self._is_streamed = bool(
                set(self._read_as()) - {"plain"}
                or self.pipes
                or not all(part._has_ranges() for part in self._parts)
            )
        return self._is_streamed

    @property
    def pipes(self) -> list[PipePath]:
        """The files that are pipes."""
        return [path for path in self.files if isinstance(path, PipePath)]

    def check_no_pipes(self, what: str) -> None:
        """Raise an UnsupportedOperation about operation `what` if a file is a pipe."""
        for path in self.pipes:
            refuse_pipe(path, what)

    @property
    def paths(self) -> list[str]:
        """The paths to read; the first access makes the copies in ``cache_dir=``."""
        if self._paths is None:
            options = self._options
            if self._given_parts:
                self._paths = _chained([part.paths for part in self._given_parts])
            elif options.cache_dir is None:
                self._paths = self.files
            else:
                from fastrec.storage.local_copies import local_copies

                self._paths = local_copies(
                    self.files,
                    self.formats,
                    options.cache_dir,
                    self.limits.max_expansion_ratio,
                    options.cache_bytes,
                )
                warn_of_weak_versions(self.files)
        return self._paths

    @property
    def is_remote(self) -> bool:
        """Whether any file is read from a remote store."""
        return any(isinstance(path, RemotePath) for path in self.paths)

    def contents(self) -> list[FileContent]:
        """Return the path and compression of each file, for sequential reading."""
        return list(zip(self.paths, self._read_as(), strict=True))

    def frames(
        self, numbers: Sequence[int]
    ) -> contextlib.AbstractContextManager[_core.FrameStream]:
        """Return a stream of the frames of the files with these numbers.

        The first remote files are requested together, up to `_SAMPLED_BYTES` of them.
        An epoch that follows finds the bytes of plain ones in memory.
        """
        contents = self.contents()
        chosen = [contents[i] for i in numbers]
        first = [path for path, _ in chosen[:_MAX_FRAME_READERS]]
        versions_of([path for path in first if isinstance(path, RemotePath)])
        sizes = [
            version_of(path)[0] if isinstance(path, RemotePath) else _SAMPLED_BYTES
            for path in first
        ]
        n_whole = bisect.bisect_left([*itertools.accumulate(sizes)], _SAMPLED_BYTES)
        n_readers = min(n_whole + 1, len(sizes))
        table, readers = self.table, self.readers
        return frame_stream(
            chosen,
            table,
            numbers,
            self.recovery,
            n_readers=n_readers,
            read_plain=None
            if readers is None
            else lambda i: readers.content(numbers[i]),
        )

    def check_random_access(self, what: str) -> None:
        """Raise a ValueError about operation `what` if a file is streamed."""
        if not self.is_streamed:
            return
        self.check_no_pipes(what)
        for path, content in self.contents():
            if content != "plain":
                reason = "is compressed", "expand compressed files once"
                break
            if not has_ranges(path):
                reason = "is on a server without range requests", "copy it once"
                break
        raise ValueError(
            f"{what} requires random access, but {path!r} {reason[0]}; pass "
            f"cache_dir= to fastrec.open() to {reason[1]}"
        )

    @property
    def table(self) -> _core.FileTable:
        """The core's table of open files. A forked child creates a new one."""
        with _core.HeldLock(self.lock):
            if self._table is None:
                from fastrec.storage.range_readers import table_of

                paths, parts = self.paths, self._parts
                ios = [part._options.io for part in parts]
                if len(parts) > 1:
                    ios = [part._options.io for part in parts for _ in part.files]
                table, readers = table_of(
                    paths,
                    ios,
                    names=b"" if paths == self.files else joined_names(self.files),
                    record_bytes_max=self.limits.max_record_bytes,
                    is_assumed_plain=any(part._is_assumed for part in parts),
                )
                warn_of_weak_versions(paths)
                if self._joined is not None and not self.is_streamed:
                    table.expect(self._joined[1])
                # Last, and without a call, so that a signal cannot leave only one set.
                self.readers, self._table = readers, table
            return self._table

    # Records.

    def indexes(self) -> _core.Indexes:
        """Return the index of each file, after building missing and stale indexes."""
        self.check_random_access("this operation")
        return self.scans()

    def scans(self) -> _core.Indexes:
        """Return each file's index, or the index of its content if files are streamed.

        Scans files whose index is missing or stale.
        """
        with _core.HeldLock(self.lock):
            stale = [] if self._joined is None else self._joined[1].stale
            parts: list[_core.Indexes] = []
            begin, is_streamed = 0, self.is_streamed
            for part in self._parts:
                end = begin + len(part)
                here = [i - begin for i in stale if begin <= i < end]
                opened = None
                if False not in part._indexes and part.is_remote and not is_streamed:
                    opened = self.table, begin  # an epoch finds the bytes in memory
                parts.append(part._scan(here, has_crcs=is_streamed, opened=opened))
                begin = end
            joined = self._joined
            if joined is None or any(map(operator.is_not, parts, joined[0])):
                whole = parts[0] if len(parts) == 1 else _core.Indexes.joined(parts)
                joined = self._joined = parts, whole
                if self._table is not None and not self.is_streamed:
                    self._table.expect(whole)
            return joined[1]

    def _scan(
        self,
        stale: Sequence[int] = (),
        *,
        has_crcs: bool,
        opened: tuple[_core.FileTable, int] | None = None,
    ) -> _core.Indexes:
        """Return the indexes of a part, after rebuilding indexes of `stale` files."""
        with _core.HeldLock(self.lock):
            if has_crcs in self._indexes and not stale:
                return self._indexes[has_crcs]
            for path in self.pipes:  # list() ignores a TypeError of len()
                raise TypeError(
                    f"cannot count the records of {str(path)!r}: it is a pipe; copy it "
                    "to a file first"
                )
            try:
                found = index.make_indexes(
                    self.paths,
                    contents=self._read_as() if has_crcs else None,
                    names=self.files,
                    io=self._options.io,
                    place=IndexPlace(self._options.index_dir),
                    recovery=self.recovery,
                    is_assumed_plain=self._is_assumed,
                    stale=stale,
                    opened=opened,
                    found=None if stale or has_crcs else self._found,
                )
            except Error as error:
                self.advise(error)
                raise
            self._indexes[has_crcs], self._found = found, None
            self._n_renewals += bool(stale)
            log_gaps(_gaps(found))
            return found

    def is_indexed(self) -> bool:
        """Return whether all indexes exist in memory, or in the cache for small sets.

        For a large set, searching the cache would delay the first batch, and so would a
        request for an index next to remote files; `formats` makes one for listed files.
        """
        if self.is_streamed:
            return False
        for part in self._parts:
            # A copy that does not exist yet has no index, and cannot use the URL's.
            is_copied = part._options.cache_dir is None or part._paths is not None
            if False not in part._indexes and is_copied and not part._is_large:
                part._search(n_attempts=0)
            if False not in part._indexes:
                return False
        return True

    def _search(self, n_attempts: int) -> None:
        """Search for the indexes of a part, as if its files are plain.

        Requests the index next to remote files up to `n_attempts` times.
        """
        place = IndexPlace(self._options.index_dir)
        found = index.FileIndexes(self.paths, None, place)
        found.search(n_attempts)
        if not found.missing.size:
            self._indexes[False] = found.indexes()
        elif n_attempts:
            self._found = found

    def keep_walked(self, pipeline: _core.Pipeline) -> None:
        """Collect indexes of fully read remote files; cache them once all are read."""
        for i, offsets in pipeline.take_offsets():
            self._walked[i] = index.index_of(self.paths[i], offsets)
        if len(self._walked) < len(self):
            return
        begin = 0
        for part in self._parts:
            numbers = range(begin, begin + len(part))
            begin = numbers.stop
            if False not in part._indexes:
                walked = _core.Indexes([self._walked[i] for i in numbers])
                part._indexes[False] = walked
                index.keep_indexes(part.paths, walked, part._options.index_dir)
        self._walked.clear()

    def version(self) -> int:
        """Return a number that changes when stale indexes are rebuilt."""
        if self._joined is not None:
            self.scans()
        return sum(part._n_renewals for part in self._parts)

    def renew(self, error: Error) -> None:
        """Rebuild stale indexes if `error` reports a stale index; ignore other errors.

        Sets the hint of the error. Raises if `on_error` does not allow a damaged file.
        """
        if error.code != "index_mismatch":
            return
        if self.is_streamed:
            for part in self._parts:
                part._scan(range(len(part)), has_crcs=True)
            error.hint = "The index was rebuilt: open the dataset again."
        else:
            self.indexes()
            error.hint = "The index was rebuilt: start again with the first batch."

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Call `renew` with an error that the body raises, and re-raise the error."""
        try:
            yield
        except Error as error:
            self.renew(error)
            raise

    def n_known_records(self) -> int | None:
        """Return the number of records if all files were scanned, else None."""
        scans = [next(iter(part._indexes.values()), None) for part in self._parts]
        return None if None in scans else sum(scan.n_records for scan in scans if scan)

    def known_gaps(self) -> list[SkippedSpan]:
        """Return the unreadable spans in the framing of the files scanned so far."""
        scans = [scan for part in self._parts for scan in part._indexes.values()]
        return [gap for scan in scans for gap in _gaps(scan)]

    def report(self) -> Report:
        """Report the regions that are skipped because of damaged framing."""
        return Report(tuple(gap.region for gap in _gaps(self.scans())))

    @property
    def index_place(self) -> IndexPlace:
        """The place of the index of the files, or of the first of joined datasets."""
        return IndexPlace(self._parts[0]._options.index_dir)

    def n_records_by_file(self) -> list[int]:
        """Return the number of records in each file."""
        counts: list[int] = self.scans().counts.tolist()
        return counts

    @property
    def n_records(self) -> int:
        """Number of records in all files."""
        return self.scans().n_records

    @property
    def n_bytes(self) -> int:
        """Total size of all frames, in bytes."""
        return int(self.indexes().n_bytes.sum())

    def advise(self, error: Error) -> None:
        """Add a hint to an error: the file's format, or advice on ``on_error=``."""
        remote = (path for path in self.files if isinstance(path, RemotePath))
        if error.offset == 0 and (
            path := next((path for path in remote if str(path) == error.path), None)
        ):
            with contextlib.suppress(OSError), local_head(path) as local:
                advise_foreign(error, local)
        if self.on_error == "raise":
            advise_on_error(error)

    def add_to(self, digest: hashlib.blake2b) -> None:
        """Add file sizes, record counts and sampled payload checksums to a digest."""
        n = self.n_records
        sampled = {n * i // _N_FINGERPRINTED for i in range(_N_FINGERPRINTED)}
        chosen = np.array(sorted(sampled | {n - 1}) if n else [], dtype=np.int64)
        scans = self.scans()
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
