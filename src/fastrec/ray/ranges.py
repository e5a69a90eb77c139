"""Ranges: divide records by bytes into one range per task.

A range is a callable that returns the source to read. Its pickle contains its files and
record offsets only, so workers do not scan files or need the driver's cache.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from fastrec import _core
from fastrec.sources.selection import Numbers, even_bounds, numbers_at
from fastrec.sources.source import Source
from fastrec.storage.paths import version_of

# A file's version, the number and offset of the first record to read, the compressed
# frame sizes, and the number of records in the worker's index.
_Offsets: TypeAlias = "tuple[tuple[int, int], int, int, bytes, int]"


@dataclass(frozen=True)
class Range:
    """Records ``first:last`` of a source, or all records if `last` is None."""

    source: Source
    first: int = 0
    last: int | None = None

    @property
    def n_records(self) -> int | None:
        """The number of records, or None if it is unknown."""
        if self.last is None:
            return self.source.n_known_records()
        return self.last - self.first

    @property
    def paths(self) -> list[str]:
        """The files of the range; if records are selected, all files of the source."""
        files = self.source.files
        if self.last is None or not self.source.is_walkable:
            return files.files
        ends = np.cumsum(files.n_records_by_file())
        first, last = np.searchsorted(ends, [self.first, self.last - 1], side="right")
        return files.files[first : last + 1]

    def __call__(self) -> Source:
        """Return a source of the records in this range."""
        _, (function, *arguments) = self.__reduce__()
        source: Source = function(*arguments)
        return source

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if self.last is None:
            return partial, (_selected, self.source, (), None)
        if self.source.has_steps:
            return partial, (_selected, self.source, (), range(self.first, self.last))
        positions = np.arange(self.first, self.last)
        numbers = numbers_at(self.source.records(), positions)
        begins = np.cumsum([0, *self.source.files.n_records_by_file()])
        file_of = np.searchsorted(begins, numbers, side="right") - 1
        used, file_of = np.unique(file_of, return_inverse=True)
        numbers -= begins[used][file_of]
        firsts, lasts = np.full(len(used), np.iinfo(int).max), np.zeros(len(used), int)
        np.minimum.at(firsts, file_of, numbers)
        np.maximum.at(lasts, file_of, numbers)

        part = self.source.part(used.tolist())
        files, indexes = part.files, [*part.files.indexes()]
        sent: list[_Offsets] = []
        # Workers scan expanded copies and damaged files themselves.
        if files.paths == files.files and not any(index.gaps for index in indexes):
            sent = [*map(_sent, indexes, firsts.tolist(), lasts.tolist())]
        counts = [offsets[-1] for offsets in sent] or [*map(len, indexes)]
        numbers += np.cumsum([0, *counts])[file_of]
        is_run = bool((np.diff(numbers) == 1).all())
        chosen = range(int(numbers[0]), int(numbers[-1]) + 1) if is_run else numbers
        return partial, (_selected, part, sent, chosen)


def _selected(
    source: Source, sent: Sequence[_Offsets], chosen: range | Numbers | None
) -> Source:
    """Return a source of the records `chosen` (None: all), with offsets in `sent`."""
    if chosen is None:
        return source
    if sent:
        indexes = [*map(_index, source.files.files, sent)]
        source = replace(source, files=source.files.with_indexes(indexes))
    return source.selected(chosen)


def _sent(index: _core.Index, first: int, last: int) -> _Offsets:
    """Return the packed offsets of records `first` to `last`, inclusive."""
    offsets = index.offsets[first : last + 2]
    sizes = zlib.compress(np.diff(offsets).tobytes(), 1)
    return index.version, first, int(offsets[0]), sizes, min(last + 2, len(index))


def _index(path: str, sent: _Offsets) -> _core.Index:
    """Return an index with the offsets that `_sent` returned.

    Placeholders before and after the records of `sent` keep record numbers correct.
    Tasks never read the placeholders.
    """
    version, first, begin, sizes, n_records = sent
    offsets = np.full(n_records + 1, version[0], np.uint64)
    offsets[:first] = 0
    ends = begin + np.cumsum(np.frombuffer(zlib.decompress(sizes), np.uint64))
    offsets[first] = begin
    offsets[first + 1 : first + 1 + len(ends)] = ends
    return _core.Index.from_offsets(offsets, version, os.fsencode(path))


def divided(source: Source, n_ranges: int) -> list[Range]:
    """Divide the records of a source into at most `n_ranges` ranges.

    The ranges have about equal bytes or, if records of the source are selected, equal
    numbers of records. A compressed file is never divided.
    """
    source.check_selectable()
    files = source.files
    if files.is_streamed:
        spans = file_spans([version_of(path)[0] for path in files.files], n_ranges)
        return [Range(source.part(span)) for span in spans]
    source.check_counts()
    if source.is_walkable:
        bounds = _bounds_by_bytes(files.indexes(), n_ranges)
    else:
        bounds = even_bounds(len(source), n_ranges)
    pairs = itertools.pairwise(bounds)
    return [Range(source, first, last) for first, last in pairs if first < last]


def _bounds_by_bytes(indexes: _core.Indexes, n_ranges: int) -> list[int]:
    """Return record numbers that divide the files into ranges of about equal bytes."""
    records = np.cumsum([0, *indexes.counts])
    ends = np.cumsum(indexes.n_bytes)
    bounds = [0]
    for byte in even_bounds(int(ends[-1]), n_ranges)[1:-1] if records[-1] else ():
        file = int(np.searchsorted(ends, byte, side="right"))
        offsets = indexes[file].offsets
        byte -= int(ends[file]) - int(offsets[-1])
        bounds.append(int(records[file]) + int(np.searchsorted(offsets, byte)))
    return [*bounds, int(records[-1])]


def file_spans(sizes: Sequence[int], n_spans: int) -> list[range]:
    """Return at most `n_spans` ranges of file numbers, which have about equal bytes."""
    ends = np.cumsum([0, *sizes])
    bytes_ = even_bounds(int(ends[-1]), n_spans)[1:-1]
    bounds = [0, *np.searchsorted(ends, bytes_).tolist(), len(sizes)]
    return [
        range(begin, end) for begin, end in itertools.pairwise(bounds) if begin < end
    ]
