"""Ranges: the records that each task reads, divided by bytes.

A range that is sent to a worker has the offsets of its records instead of an index, and
only its own files. So workers neither scan files nor need the index cache of the driver.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastrec import _core
from fastrec.sources.random_split import even_bounds
from fastrec.sources.selection import Numbers, Selection
from fastrec.sources.view import View
from fastrec.storage.remote import Version


def divided(view: View, versions: Sequence[Version], n_ranges: int) -> list[Range]:
    """Divide the records of a view into at most `n_ranges` ranges.

    All records of files are divided by bytes, and selected records by number. Compressed
    files are not divided. `versions` are those of the files; a worker raises an Error if
    its files have others.
    """
    view.check_selectable()
    files = view.files
    if files.is_streamed:
        return _whole_files(view, versions, n_ranges)
    if view.is_walkable:
        bounds = _bounds_by_bytes(files.indexes(), n_ranges)
    else:
        bounds = even_bounds(len(view), n_ranges)
    pairs = itertools.pairwise(bounds)
    return [Range(view, versions, first, last) for first, last in pairs if first < last]


def _bounds_by_bytes(indexes: _core.Indexes, n_ranges: int) -> list[int]:
    """Return record numbers between which files have about equal bytes."""
    records = np.cumsum([0, *indexes.counts])
    ends = np.cumsum(indexes.n_bytes)
    bounds = [0]
    for byte in even_bounds(int(ends[-1]), n_ranges)[1:-1] if records[-1] else ():
        file = int(np.searchsorted(ends, byte, side="right"))
        offsets = indexes[file].offsets
        byte -= int(ends[file]) - int(offsets[-1])
        bounds.append(int(records[file]) + int(np.searchsorted(offsets, byte)))
    return [*bounds, int(records[-1])]


def _whole_files(view: View, versions: Sequence[Version], n_ranges: int) -> list[Range]:
    """Return ranges of consecutive files with about equal bytes."""
    ends = np.cumsum([size for size, _ in versions])
    bytes_ = even_bounds(int(ends[-1]), n_ranges)[1:]
    bounds = [0, *(np.searchsorted(ends, bytes_) + 1).tolist()]
    return [
        Range(View(view.source.part(range(first, last))), versions[first:last])
        for first, last in itertools.pairwise(bounds)
        if first < last
    ]


@dataclass(frozen=True)
class Range:
    """Records `first` to `last` of a view, or all records of a view of streams."""

    view: View
    versions: Sequence[Version]
    first: int = 0
    last: int | None = None

    @property
    def n_records(self) -> int | None:
        """The number of records, or None if it is unknown."""
        if self.last is None:
            return self.view.n_known_records()
        return self.last - self.first

    @property
    def paths(self) -> list[str]:
        """The files of the range; for selected records, all files of the view."""
        files = self.view.files
        if self.last is None or not self.view.is_walkable:
            return files.files
        ends = np.cumsum(files.n_records_by_file())
        first, last = np.searchsorted(ends, [self.first, self.last - 1], side="right")
        return files.files[first : last + 1]

    def sent(self) -> SentRange:
        """Return what a worker needs to read the range."""
        if self.last is None:
            return SentRange(self.view)
        chosen = range(self.first, self.last)
        numbers = _numbers(self.view.selection().select(chosen))
        begins = np.cumsum([0, *self.view.files.n_records_by_file()])
        file_of = np.searchsorted(begins, numbers, side="right") - 1
        used, file_of = np.unique(file_of, return_inverse=True)
        within = numbers - begins[used][file_of]
        ends = np.zeros(len(used), np.int64)
        np.maximum.at(ends, file_of, within + 1)
        firsts = ends.copy()
        np.minimum.at(firsts, file_of, within)

        part = View(self.view.source.part(used.tolist()))
        indexes = part.files.indexes()
        offsets = [
            _Offsets.of(index, self.versions[file], first, end)
            if path == content_path
            else None  # a worker has another copy of an expanded file
            for path, (content_path, _), index, file, first, end in zip(
                part.files.files,
                part.files.contents(),
                indexes,
                used,
                firsts.tolist(),
                ends.tolist(),
                strict=True,
            )
        ]
        counts = [
            len(index) if sent is None else sent.n_records
            for sent, index in zip(offsets, indexes, strict=True)
        ]
        return SentRange(part, offsets, np.cumsum([0, *counts])[file_of] + within)


def _numbers(selection: Selection) -> Numbers:
    pieces = [
        piece
        if isinstance(piece, np.ndarray)
        else piece[1] + piece[2] * np.arange(piece[0], dtype=np.int64)
        for piece in selection.to_core()
    ]
    return np.concatenate(pieces)


class SentRange:
    """A range as it is pickled: its files, with the offsets of the records.

    `numbers` are those of the records in these files; None is all records. A file
    without offsets is scanned by the worker.
    """

    def __init__(
        self,
        view: View,
        offsets: Sequence[_Offsets | None] = (),
        numbers: Numbers | None = None,
    ) -> None:
        self._view, self._offsets = view, offsets
        self._numbers: range | Numbers | None = numbers
        if numbers is not None and (np.diff(numbers) == 1).all():
            self._numbers = range(int(numbers[0]), int(numbers[-1]) + 1)

    def selected(self) -> View:
        """Return a view of the records; called by the worker."""
        if self._numbers is None:
            return self._view
        source = self._view.source
        indexes = [
            None if offsets is None else offsets.to_index(path)
            for path, offsets in zip(source.files.files, self._offsets, strict=True)
        ]
        files = source.files.with_indexes(indexes)
        return View(source.of(files)).selected(self._numbers)


class _Offsets(NamedTuple):
    """The offsets of consecutive records of a file: `begin`, and compressed lengths.

    `n_records` counts the records in `to_index`: those before `first` and one after the
    last, which must not be read, keep the numbers of the others true.
    """

    version: Version
    first: int
    begin: int
    lengths: bytes
    n_records: int

    @classmethod
    def of(
        cls, index: _core.Index, version: Version, first: int, end: int
    ) -> _Offsets | None:
        """Return the offsets of records `first` to `end`, or None if there are gaps."""
        if index.gaps:
            return None
        offsets = index.offsets[first : end + 1]
        lengths = zlib.compress(np.diff(offsets).tobytes(), 1)
        n_records = min(end + 1, len(index))
        return cls(version, first, int(offsets[0]), lengths, n_records)

    def to_index(self, path: str) -> _core.Index:
        """Return an index of the file that has these offsets."""
        lengths = np.frombuffer(zlib.decompress(self.lengths), np.uint64)
        offsets = np.full(self.n_records + 1, self.version[0], np.uint64)
        offsets[: self.first] = 0
        of_records = offsets[self.first : self.first + len(lengths) + 1]
        of_records[0] = self.begin
        of_records[1:] = self.begin + np.cumsum(lengths)
        return _core.Index.from_offsets(offsets, *self.version, os.fsencode(path))
