"""StringSummary: statistics of byte strings, accumulated batch by batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import fastrec as fr
from fastrec.cli.number_summary import (
    Hashes,
    Lengths,
    Numbers,
    NumberSummary,
    Rows,
    most_common,
)
from fastrec.cli.preview import file_format, is_text
from fastrec.cli.sketches import Distinct, Sample, hashed
from fastrec.cli.statistics import Common, Distribution

__all__ = ["StringSummary", "Strings"]

MAX_STRING_BYTES = 128  # of a byte string that is compared with others
_N_RECOGNIZED = 1000  # strings
_EVERY_BIT = np.uint64(2**64 - 1)


@dataclass
class Strings:
    """The summary of the byte strings of one batch."""

    lengths: Numbers
    hashes: Hashes | None  # of small hashes; None if a string is long
    sample: tuple[Hashes, npt.NDArray[np.object_]]


class StringSummary:
    """Accumulates byte strings. `of_batch` may run in other threads than `add`."""

    def __init__(self) -> None:
        self._lengths = NumberSummary()
        self._distinct: Distinct | None = Distinct()
        self._sample = Sample()

    def of_batch(
        self, values: fr.BytesArray, rows: Rows, n_each: int | Lengths
    ) -> Strings:
        """Summarize the strings of a batch."""
        offsets, data = values.offsets, values.data
        lengths = np.diff(offsets)
        hashes, distinct = None, self._distinct
        if distinct is not None and lengths.max(initial=0) <= MAX_STRING_BYTES:
            hashes = distinct.smallest(_numbers_of_strings(data, offsets))
        of_sample, places = rows.sampled(n_each, self._sample.limit)
        begins = offsets[places]
        # One byte more, so that longer strings are recognized.
        ends = np.minimum(offsets[places + 1], begins + MAX_STRING_BYTES + 1)
        sample = np.empty(len(places), np.object_)
        sample[:] = [
            data[begin:end].tobytes()
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
        of_lengths = self._lengths.of_batch(lengths, rows, n_each)
        return Strings(of_lengths, hashes, (of_sample, sample))

    def add(self, batch: Strings) -> None:
        """Add the summary of a batch."""
        self._lengths.add(batch.lengths)
        self._sample.add(*batch.sample)
        if batch.hashes is None:
            self._distinct = None
        elif self._distinct is not None:
            self._distinct.add(batch.hashes)

    def lengths(self) -> Distribution:
        """Return the distribution of the lengths in bytes."""
        return self._lengths.distribution()

    def n_distinct(self) -> tuple[int | None, bool]:
        """Return the number of distinct strings, and whether it is exact."""
        if self._distinct is None:
            return None, False
        return self._distinct.count()

    def common(self) -> tuple[tuple[Common, ...], bool]:
        """Return the most frequent short strings, and whether their counts are exact."""
        strings, is_exact = self._sample.values()
        if not len(strings):
            return (), is_exact
        scale = 1.0 if is_exact else self.lengths().n_values / len(strings)
        counts = Counter(each for each in strings if len(each) <= MAX_STRING_BYTES)
        values = sorted(counts)
        weights = np.array([counts[value] for value in values], np.int64)
        return most_common(values, weights, scale, is_exact), is_exact

    def format(self) -> str:
        """Return the format of all sampled strings, "text", or "" if they differ."""
        strings, _ = self._sample.values()
        formats = {file_format(each) for each in strings[:_N_RECOGNIZED]}
        if formats == {""} and all(is_text(each) for each in strings[:_N_RECOGNIZED]):
            return "text"
        return formats.pop() if len(formats) == 1 else ""


def _numbers_of_strings(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return hashes of strings, from eight bytes of all strings at a time."""
    padded = np.concatenate([data[offsets[0] : offsets[-1]], np.zeros(8, np.uint8)])
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    begins, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    hashes = hashed(lengths.view(np.uint64))
    for at in range(0, int(lengths.max(initial=0)), 8):
        longer = np.flatnonzero(lengths > at)
        n_bits = 8 * np.minimum(lengths[longer] - at, 8).view(np.uint64)
        piece = words[begins[longer] + at] & (_EVERY_BIT >> (np.uint64(64) - n_bits))
        hashes[longer] = hashed(hashes[longer] ^ piece)
    return hashes.view(np.int64)
