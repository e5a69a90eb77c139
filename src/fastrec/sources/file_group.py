"""FileGroup: the files of one `fastrec.open`, with their options and indexes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.storage import index
from fastrec.storage.compression import (
    Compression,
    Content,
    contents_of,
    sampled_contents,
)
from fastrec.storage.index_files import joined_names

_T = TypeVar("_T")

# Of more files, only a sample is opened before the first batch.
_MAX_INSPECTED = 1024


class FileOptions(NamedTuple):
    """Options of `fastrec.open` that concern single files."""

    io: str = "auto"
    compression: Compression = "auto"
    cache_dir: str | None = None
    index_dir: str | None = None
    cache_bytes: int | None = None


class FileGroup:
    """The files of one `fastrec.open`, and what is known about them.

    File sets share it. Nothing in it is kept per file except paths, contents and packed
    indexes, because there may be 100,000 files.
    """

    def __init__(
        self, paths: Sequence[str], options: FileOptions | None = None
    ) -> None:
        self.paths = list(paths)
        self.options = FileOptions() if options is None else options
        self.contents: list[Content] | None = None
        self.is_assumed = False  # whether `contents` are those of a sample
        self.plain: list[str] | None = None  # the paths of the decompressed files
        self.indexes: _core.Indexes | None = None
        self.counts: _core.Indexes | None = None  # with checksums, of streams
        self.n_renewals = 0  # how often stale indexes were built again
        self._walked: dict[int, _core.Index] = {}

    def __reduce__(self) -> tuple[object, ...]:
        if all(type(path) is str for path in self.paths):
            packed = zlib.compress(joined_names(self.paths), 1)
            return _unpickled, (packed, self.options)
        return FileGroup, (self.paths, self.options)

    def part(self, numbers: Sequence[int]) -> FileGroup:
        """Return the files with these numbers, and what is known about them."""

        def chosen(values: Sequence[_T] | None) -> list[_T] | None:
            return None if values is None else [values[i] for i in numbers]

        def chosen_of(indexes: _core.Indexes | None) -> _core.Indexes | None:
            return (
                None
                if indexes is None
                else _core.Indexes([indexes[i] for i in numbers])
            )

        group = FileGroup([self.paths[i] for i in numbers], self.options)
        group.contents, group.is_assumed = chosen(self.contents), self.is_assumed
        group.plain = chosen(self.plain)
        group.indexes, group.counts = chosen_of(self.indexes), chosen_of(self.counts)
        return group

    def keep_walked(
        self, number: int, plain: Sequence[str], offsets: npt.NDArray[np.uint64]
    ) -> None:
        """Keep the index of a file that was read to its end."""
        if self.indexes is not None or number in self._walked:
            return
        index_dir = self.options.index_dir
        if self.is_large:
            self._walked[number] = index.index_of(plain[number], offsets)
        else:
            self._walked[number] = index.keep_index(
                plain[number], offsets, index_dir=index_dir
            )
        if len(self._walked) == len(self.paths):
            walked = [self._walked[i] for i in range(len(self.paths))]
            self.indexes = _core.Indexes(walked)
            self._walked.clear()
            index.keep_indexes(plain, self.indexes, index_dir)

    def scans(self) -> list[_core.Indexes]:
        """Return the indexes that are known so far."""
        return [scan for scan in (self.indexes, self.counts) if scan is not None]

    def rescanned(self) -> FileGroup:
        """Return a copy for another error policy, with indexes only if still valid."""
        group = FileGroup(self.paths, self.options)
        group.contents, group.is_assumed = self.contents, self.is_assumed
        group.plain = self.plain
        if not any(scan.has_gaps for scan in self.scans()):
            group.indexes, group.counts = self.indexes, self.counts
        return group

    def detected(self) -> list[Content]:
        """Return the compression of each file: `compression`, or detected if "auto".

        Of many files, only a sample is opened. Then plain files are checked when they
        are first read, and compressed ones are detected again when they are opened.
        """
        if self.contents is None:
            compression = self.options.compression
            if compression != "auto" or not self.is_large or self.options.cache_dir:
                self.contents = contents_of(self.paths, compression)
            else:
                known = index.known_contents(self.paths, self.options.index_dir)
                unknown = [i for i, content in enumerate(known) if content == "auto"]
                sampled = sampled_contents([self.paths[i] for i in unknown])
                for i, content in zip(unknown, sampled, strict=True):
                    known[i] = content
                self.contents, self.is_assumed = known, True
        return self.contents

    @property
    def is_large(self) -> bool:
        """Whether looking at every file would delay the first batch."""
        return len(self.paths) > _MAX_INSPECTED

    def read_as(self) -> list[Content]:
        """Return the compression of each file after expansion to `cache_dir`."""
        contents = self.detected()
        if self.options.cache_dir is not None:
            return ["plain"] * len(contents)
        if self.is_assumed and set(contents) != {"plain"}:
            return ["auto"] * len(contents)
        return contents


def _unpickled(packed: bytes, options: FileOptions) -> FileGroup:
    return FileGroup(os.fsdecode(zlib.decompress(packed)).split("\0"), options)
