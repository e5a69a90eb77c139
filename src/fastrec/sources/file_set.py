"""FileSet: the files of a dataset, with their options and cached indexes."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastrec import _core
from fastrec.errors import Error, advise_on_error
from fastrec.lifecycle import renew_after_fork
from fastrec.on_error import ErrorPolicy, Report, SkippedSpan, log_gaps, recovery_of
from fastrec.options import Limits
from fastrec.sources.selection import Numbers
from fastrec.storage import index
from fastrec.storage.compression import Compression, Content, FileContent, contents_of
from fastrec.storage.index import Count, make_counts
from fastrec.storage.remote import RemotePath

if TYPE_CHECKING:
    import hashlib

    from fastrec.storage.range_readers import RangeReaders

__all__ = ["File", "FileOptions", "FileSet"]

# Records whose stored checksums are in the fingerprint, in addition to the last one.
_N_FINGERPRINTED = 17


class FileOptions(NamedTuple):
    """Options of `fastrec.open` that concern single files."""

    io: str = "auto"
    compression: Compression = "auto"
    cache_dir: str | None = None
    index_dir: str | None = None
    cache_bytes: int | None = None


class File:
    """A file with its options and index. File sets share it."""

    __slots__ = ("content", "count", "index", "options", "path", "plain")

    def __init__(self, path: str, options: FileOptions | None = None) -> None:
        self.path = path
        self.options = FileOptions() if options is None else options
        self.content: Content | None = None
        self.plain: str | None = None  # the path of the decompressed file
        self.index: _core.Index | None = None
        self.count: Count | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return File, (self.path, self.options)

    def gaps(self) -> list[SkippedSpan]:
        """Return the gaps in its framing that were found so far."""
        scans = [scan for scan in (self.index, self.count) if scan is not None]
        return [gap for scan in scans for gap in scan.gaps]

    def rescanned(self) -> File:
        """Return a copy for another error policy, with an index only if still valid."""
        file = File(self.path, self.options)
        file.content, file.plain = self.content, self.plain
        if not self.gaps():
            file.index, file.count = self.index, self.count
        return file


class FileSet:
    """An ordered list of files. They are opened and scanned lazily, once."""

    def __init__(
        self,
        files: Iterable[File],
        on_error: ErrorPolicy = "raise",
        limits: Limits | None = None,
    ) -> None:
        self._files = list(files)
        self.files = [file.path for file in self._files]
        self.on_error = on_error
        self.limits = Limits() if limits is None else limits
        # Not cached_property: its lock, before Python 3.12, may be held during a fork.
        self._formats: list[Content] | None = None
        self._is_streamed: bool | None = None
        self._paths: list[str] | None = None
        self._renew_after_fork()
        renew_after_fork(self)

    def _renew_after_fork(self) -> None:
        self._lock = threading.RLock()
        self._table: _core.FileTable | None = None
        self.readers: RangeReaders | None = None  # of remote files, with the table

    def __reduce__(self) -> tuple[object, ...]:
        return FileSet, (self._files, self.on_error, self.limits)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        n = len(self) - 1
        more = f" and {n:,} more {'file' if n == 1 else 'files'}" if n else ""
        return repr(self._files[0].path) + more

    @classmethod
    def joined(cls, parts: Sequence[FileSet]) -> FileSet:
        """Concatenate file sets, whose `on_error` and `limits` must be equal."""
        first = parts[0]
        if any(part.on_error != first.on_error for part in parts):
            msg = "joined datasets must have equal on_error=; pass it to fastrec.open()"
            raise ValueError(msg)
        if any(part.limits != first.limits for part in parts):
            msg = "joined datasets must have equal limits=; pass it to fastrec.open()"
            raise ValueError(msg)
        files = [file for part in parts for file in part._files]
        return cls(files, first.on_error, first.limits)

    def first(self) -> FileSet:
        """Return the first file alone; nothing is expanded to `cache_dir`."""
        first = self._files[0]
        file = File(first.path, first.options._replace(cache_dir=None))
        return FileSet([file], self.on_error, self.limits)

    def part(self, numbers: Iterable[int]) -> FileSet:
        """Return the files with these numbers."""
        files = [self._files[number] for number in numbers]
        return FileSet(files, self.on_error, self.limits)

    def with_absolute_paths(self) -> FileSet:
        """Return the same files for processes in other directories."""
        files = []
        for file in self._files:
            moved = file.rescanned()
            if not isinstance(file.path, RemotePath):
                moved.path = os.path.abspath(file.path)  # noqa: PTH100
            files.append(moved)
        return FileSet(files, self.on_error, self.limits)

    def with_indexes(self, indexes: Iterable[_core.Index | None]) -> FileSet:
        """Return the same files with these indexes; the core checks their versions."""
        files = []
        for file, given in zip(self._files, indexes, strict=True):
            copy = File(file.path, file.options)
            copy.content, copy.index = file.content, given
            files.append(copy)
        return FileSet(files, self.on_error, self.limits)

    def with_on_error(self, on_error: ErrorPolicy) -> FileSet:
        """Return the same files under another error policy."""
        if on_error == self.on_error:
            return self
        files = [file.rescanned() for file in self._files]
        return FileSet(files, on_error, self.limits)

    def _known(
        self, name: str, find: Callable[[FileOptions, list[File]], Iterable[object]]
    ) -> list[Any]:
        """Return an attribute of all files; `find` computes it for files without it."""
        files = dict.fromkeys(self._files)  # a file may be listed twice
        missing = [file for file in files if getattr(file, name) is None]
        for options, run in itertools.groupby(missing, lambda file: file.options):
            group = list(run)
            for file, value in zip(group, find(options, group), strict=True):
                setattr(file, name, value)
        return [getattr(file, name) for file in self._files]

    # Contents.

    @property
    def formats(self) -> list[Content]:
        """The compression of each file: `compression`, or detected if "auto"."""
        if self._formats is None:
            self._formats = self._known(
                "content",
                lambda options, files: contents_of(
                    [file.path for file in files], options.compression
                ),
            )
        return self._formats

    @property
    def is_streamed(self) -> bool:
        """Whether any file is read as a stream: compressed, and not expanded."""
        if self._is_streamed is None:
            self._is_streamed = any(content != "plain" for content in self._read_as())
        return self._is_streamed

    def _read_as(self) -> list[Content]:
        """Return the compression of each file after expansion to `cache_dir`."""
        return [
            content if file.options.cache_dir is None else "plain"
            for file, content in zip(self._files, self.formats, strict=True)
        ]

    @property
    def paths(self) -> list[str]:
        """The paths to read. Copies compressed and remote files to `cache_dir`."""
        if self._paths is not None:
            return self._paths
        formats = dict(zip(self._files, self.formats, strict=True))

        def plain(options: FileOptions, files: list[File]) -> list[str]:
            paths = [file.path for file in files]
            if options.cache_dir is None:
                return paths
            from fastrec.storage.local_copies import local_copies

            of_files = [formats[file] for file in files]
            return local_copies(
                paths,
                of_files,
                options.cache_dir,
                self.limits.max_expansion_ratio,
                options.cache_bytes,
            )

        self._paths = self._known("plain", plain)
        return self._paths

    @property
    def is_remote(self) -> bool:
        """Whether any file is read from a remote store."""
        return any(isinstance(path, RemotePath) for path in self.paths)

    def keep_walked(self, pipeline: _core.Pipeline) -> None:
        """Keep the indexes of remote files that a pipeline has read to their end."""
        for i, offsets in pipeline.take_offsets():
            file = self._files[i]
            if file.index is None:
                file.index = index.keep_index(
                    self.paths[i], offsets, index_dir=file.options.index_dir
                )

    def contents(self) -> list[FileContent]:
        """Return the path and compression of each file, for sequential reading."""
        return list(zip(self.paths, self._read_as(), strict=True))

    def check_random_access(self, what: str) -> None:
        """Raise a ValueError, naming the operation `what`, if a file is streamed."""
        if not self.is_streamed:
            return
        path = next(path for path, content in self.contents() if content != "plain")
        msg = (
            f"{what} requires random access, but {path!r} is compressed; pass "
            "cache_dir= to fastrec.open() to expand compressed files once"
        )
        raise ValueError(msg)

    @property
    def table(self) -> _core.FileTable:
        """The core's table of open files. A forked child creates a new one."""
        with self._lock:
            if self._table is None:
                names = [os.fsencode(path) for path in self.files]
                paths = [os.fsencode(path) for path in self.paths]
                ios = [file.options.io for file in self._files]
                if self.is_remote:
                    from fastrec.storage.range_readers import RangeReaders, io_of

                    self.readers = RangeReaders(self.paths)
                    ios = [*map(io_of, self.paths, ios)]
                self._table = _core.FileTable(
                    paths,
                    ios,
                    names if paths != names else [],
                    self.limits.max_record_bytes,
                    None if self.readers is None else self.readers.requests,
                )
                self._expect()
            return self._table

    def _expect(self) -> None:
        """Pass the indexes to the core, which raises if a file has changed."""
        if self._table is not None:
            for i, file in enumerate(self._files):
                if file.index is not None:
                    self._table.expect(i, file.index)

    # Records.

    def _scan_attribute(
        self,
        name: str,
        scan: Callable[[FileOptions, list[File]], list[Any]],
    ) -> list[Any]:
        """Return an attribute of all files; `scan` computes it by reading a file."""

        def find(options: FileOptions, files: list[File]) -> list[Any]:
            scans = scan(options, files)
            log_gaps(gap for of_file in scans for gap in of_file.gaps)
            return scans

        try:
            return self._known(name, find)
        except Error as error:
            advise_on_error(error)
            raise

    def indexes(self) -> list[_core.Index]:
        """Return the index of each file, building those that are missing."""
        with self._lock:
            self.check_random_access("this operation")
            plain = dict(zip(self._files, self.paths, strict=True))
            indexes = self._scan_attribute(
                "index",
                lambda options, files: index.make_indexes(
                    [plain[file] for file in files],
                    names=[file.path for file in files],
                    io=options.io,
                    index_dir=options.index_dir,
                    recovery=recovery_of(self.on_error),
                ),
            )
            self._expect()
            return indexes

    def is_indexed(self) -> bool:
        """Whether all indexes exist, in memory or in the cache."""
        if self.is_streamed:
            return False

        def load(options: FileOptions, files: list[File]) -> Iterable[object]:
            paths = [file.path if file.plain is None else file.plain for file in files]
            loaded = index.load_indexes(paths, options.index_dir)
            return [None] * len(files) if loaded is None else loaded

        return None not in self._known("index", load)

    def counts(self) -> list[Count]:
        """Return the count of each compressed file, scanning those that are missing."""
        with self._lock:
            contents = dict(zip(self._files, self.contents(), strict=True))
            return self._scan_attribute(
                "count",
                lambda options, files: make_counts(
                    [contents[file] for file in files],
                    options.index_dir,
                    recovery_of(self.on_error),
                ),
            )

    def n_known_records(self) -> int | None:
        """Return the number of records if all files were scanned, else None."""
        scans = [file.count or file.index for file in self._files]
        return None if None in scans else sum(len(scan) for scan in scans if scan)

    def known_gaps(self) -> list[SkippedSpan]:
        """Return the gaps in the framing of files that were scanned so far."""
        return [gap for file in self._files for gap in file.gaps()]

    def _scans(self) -> list[_core.Index] | list[Count]:
        return self.counts() if self.is_streamed else self.indexes()

    def report(self) -> Report:
        """Return the regions that are skipped because their framing is damaged."""
        gaps = [gap for of_file in self._scans() for gap in of_file.gaps]
        return Report(tuple(gap.region for gap in gaps))

    def n_records_by_file(self) -> list[int]:
        """Return the number of records in each file."""
        return [len(of_file) for of_file in self._scans()]

    @property
    def n_records(self) -> int:
        """Number of records in all files."""
        return sum(self.n_records_by_file())

    @property
    def n_bytes(self) -> int:
        """Size of all frames in bytes."""
        return sum(int(index.offsets[-1]) for index in self.indexes())

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
        if self.is_streamed:
            counts = self.counts()
            sizes = [(count.n_bytes, len(count)) for count in counts]
            places = self.streamed_places(chosen)
            stored = np.array([counts[i].payload_crc(number) for i, number in places])
        else:
            indexes = self.indexes()
            sizes = [(int(index.offsets[-1]), len(index)) for index in indexes]
            stored = _core.stored_checksums(self.table, _core.Catalog(indexes), chosen)
        for n_bytes, n_records in sizes:
            digest.update(f"{n_bytes} {n_records};".encode())
        digest.update(stored.astype("<u4").tobytes())
