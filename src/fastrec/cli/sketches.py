"""Bounded summaries of unbounded streams of numbers: samples and distinct counts.

Each is merged from the summaries of batches. The result does not depend on how the stream
is divided into batches, nor on the threads that summarize them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_SAMPLE", "Distinct", "Sample", "hashed"]

MAX_SAMPLE = 32_768
_N_SMALLEST = 2048

_Hashes = npt.NDArray[np.uint64]
_EVERY = np.uint64(2**64 - 1)
_ODD_64 = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio
_ODD_32 = np.uint32(0x9E3779B1)


def hashed(numbers: npt.NDArray[np.uint64]) -> _Hashes:
    """Return pseudo-random hashes of numbers, without collisions."""
    # The finalizer of MurmurHash3, less its last step.
    mixed: _Hashes = numbers ^ (numbers >> np.uint64(33))
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    return mixed


class SmallestHashes:
    """The `MAX_SAMPLE` smallest hashes of rows; `limit` is the largest of them."""

    def __init__(self) -> None:
        self.limit = _EVERY
        self._smallest: _Hashes = np.empty(0, np.uint64)

    def add(self, hashes: _Hashes) -> None:
        """Add the hashes of rows."""
        every = np.concatenate([self._smallest, hashes[hashes <= self.limit]])
        if len(every) > MAX_SAMPLE:
            every = np.partition(every, MAX_SAMPLE - 1)[:MAX_SAMPLE]
            self.limit = every.max()
        self._smallest = every


class Sample:
    """A random sample of values: those of the rows with the smallest hashes.

    It holds all values of a row or none, and up to `MAX_SAMPLE` values, or one row.
    `limit` is the largest hash of a row in the sample; it only falls.
    """

    def __init__(self) -> None:
        self.limit = _EVERY
        self._rows: list[_Hashes] = []
        self._values: list[npt.NDArray[Any]] = []
        self._size = 0

    def add(self, rows: _Hashes, values: npt.NDArray[Any]) -> None:
        """Add values, each with the hash of its row."""
        if self.limit != _EVERY:
            kept = rows <= self.limit
            rows, values = rows[kept], values[kept]
        self._rows.append(rows)
        self._values.append(values)
        self._size += len(values)
        if self._size > 4 * MAX_SAMPLE:
            self._shrink()

    def values(self) -> tuple[npt.NDArray[Any], bool]:
        """Return the values of the sample, and whether these are all values."""
        if self._size > MAX_SAMPLE:
            self._shrink()
        values = np.concatenate(self._values) if self._values else np.empty(0)
        return values, bool(self.limit == _EVERY)

    def _shrink(self) -> None:
        rows, values = np.concatenate(self._rows), np.concatenate(self._values)
        self.limit = max(np.partition(rows, MAX_SAMPLE - 1)[MAX_SAMPLE - 1], rows.min())
        if (
            np.count_nonzero(rows <= self.limit) > MAX_SAMPLE
            and self.limit > rows.min()
        ):
            self.limit = rows[rows < self.limit].max()  # a row that fits only in part
        kept = rows <= self.limit
        self._rows, self._values = [rows[kept]], [values[kept]]
        self._size = len(self._values[0])


class Distinct:
    """An estimate of the number of distinct values, from their smallest hashes.

    The hash of a number is its product with an odd constant. That has no collisions, and
    spreads the numbers that files hold evenly (Knuth, volume 3, section 6.4).
    """

    def __init__(self) -> None:
        self._limit = 2**64 - 1
        self._hashes = [np.empty(0, np.uint64)]
        self._size = 0

    def smallest(self, values: npt.NDArray[Any]) -> _Hashes:
        """Return the hashes of numbers that `add` may need; callable in any thread."""
        limit = self._limit
        if values.dtype == np.float32:
            short = values.view(np.uint32) * _ODD_32
            hashes = short[short <= np.uint32(limit >> 32)].astype(np.uint64)
            hashes <<= np.uint64(32)
            hashes[hashes == np.uint64(1 << 63)] = 0  # -0.0 equals 0.0
        else:
            hashes = values.view(np.uint64) * _ODD_64
            hashes = hashes[hashes <= np.uint64(limit)]
        return hashes if len(hashes) <= _N_SMALLEST else _unique(hashes)

    def add(self, hashes: _Hashes) -> None:
        """Add hashes that `smallest` returned."""
        self._hashes.append(hashes)
        self._size += len(hashes)
        if self._size > 4 * _N_SMALLEST:
            self._shrink()

    def _shrink(self) -> None:
        smallest = _unique(np.concatenate(self._hashes))
        if len(smallest) > _N_SMALLEST:
            smallest = smallest[:_N_SMALLEST]
            self._limit = int(smallest[-1])
        self._hashes, self._size = [smallest], len(smallest)

    def add_counted(self, first: int, counts: npt.NDArray[np.int64]) -> None:
        """Add the integers from `first` on whose count is not 0."""
        self.add(self.smallest(np.flatnonzero(counts) + first))

    def count(self) -> tuple[int, bool]:
        """Return the number of distinct values, and whether it is exact."""
        self._shrink()
        if self._limit == 2**64 - 1:
            return self._size, True
        return round((_N_SMALLEST - 1) / (self._limit / 2**64)), False


def _unique(hashes: _Hashes) -> _Hashes:
    """Return the smallest distinct hashes, one more than are kept."""
    if len(hashes) > 4 * _N_SMALLEST:  # a part shows which of the others are too large
        some = _unique(hashes[: 2 * _N_SMALLEST])
        if len(some) > _N_SMALLEST:
            hashes = hashes[hashes <= some[-1]]
    ordered = np.sort(hashes)  # np.unique is slower
    is_new = np.ones(len(ordered), np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new][: _N_SMALLEST + 1]
