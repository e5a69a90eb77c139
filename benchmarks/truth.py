"""The expected values of a workload, and the verification of readers.

An epoch is verified by its multiset of rows: each row is hashed over all its columns,
and the hashes are added up, so that any order of rows is accepted and any changed,
lost, repeated or swapped value is not. The first batch of a reader that keeps the
order is compared value by value, dtypes and shapes included.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FIRST_ROWS",
    "Column",
    "Columns",
    "MismatchError",
    "Truth",
    "byte_strings",
    "unpadded",
]

FIRST_ROWS = 256


class MismatchError(Exception):
    """A reader delivered wrong values."""


@dataclass(frozen=True)
class Column:
    """The values of one feature: dense, or ragged with `row_lengths`."""

    values: NDArray[Any]
    row_lengths: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.values if self.row_lengths is None else self.row_lengths)

    def head(self, n: int) -> Column:
        """Return the first `n` rows."""
        if self.row_lengths is None:
            return Column(self.values[:n])
        lengths = self.row_lengths[:n]
        return Column(self.values[: lengths.sum()], lengths)

    def hashes(self) -> NDArray[np.uint64]:
        """Return one hash per row."""
        bits = np.ascontiguousarray(self.values)
        bits = bits.view(f"u{bits.itemsize}").astype(np.uint64)
        if self.row_lengths is None:
            flat = bits.reshape(len(bits), -1)
            return mix(flat @ multipliers(flat.shape[1]))
        ends = np.cumsum(self.row_lengths)
        starts = ends - self.row_lengths
        place = np.arange(len(bits)) - np.repeat(starts, self.row_lengths)
        longest = int(self.row_lengths.max(initial=0))
        sums = np.zeros(len(bits) + 1, np.uint64)
        np.cumsum(bits * multipliers(longest)[place], out=sums[1:])
        return mix(sums[ends] - sums[starts] + mix(self.row_lengths.astype(np.uint64)))


Columns: TypeAlias = Mapping[str, Column]


def byte_strings(values: Iterable[bytes | memoryview]) -> NDArray[np.uint64]:
    """Convert byte strings to numbers: length and CRC-32 of each."""
    return np.array([len(v) << 32 | zlib.crc32(v) for v in values], np.uint64)


def unpadded(values: NDArray[Any], lengths: NDArray[np.int64]) -> Column:
    """Flatten `values` of shape (rows, steps, ...) without padding."""
    is_step = np.arange(values.shape[1]) < lengths[:, None]
    per_step = int(np.prod(values.shape[2:], dtype=np.int64))
    return Column(values[is_step].ravel(), lengths.astype(np.int64) * per_step)


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of a word (the finalizer of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)


def multipliers(n: int) -> NDArray[np.uint64]:
    """Return `n` fixed odd numbers, which weight the positions in a row."""
    spread = mix(np.arange(1, n + 1, dtype=np.uint64))
    return np.asarray(spread | np.uint64(1), np.uint64)


def same_lengths(got: NDArray[np.int64] | None, want: NDArray[np.int64] | None) -> bool:
    """Return whether both are dense, or ragged in the same way."""
    if got is None or want is None:
        return got is want
    return np.array_equal(got, want)


def rows_hash(columns: Columns) -> int:
    """Return the sum of the hashes of all rows, modulo 2**64."""
    names = sorted(columns)
    weights = multipliers(len(names))
    rows = sum(columns[n].hashes() * w for n, w in zip(names, weights, strict=True))
    return int(mix(np.asarray(rows, np.uint64)).sum())


@dataclass(frozen=True)
class Truth:
    """Records, bytes and hash of the first k + 1 files at index k, and the first rows."""

    records: Sequence[int]
    nbytes: Sequence[int]
    hashes: Sequence[int]
    first: Columns

    def save(self, path: Path) -> None:
        """Write an .npz file."""
        arrays: dict[str, NDArray[Any]] = {
            "records": np.array(self.records, np.int64),
            "nbytes": np.array(self.nbytes, np.int64),
            "hashes": np.array(self.hashes, np.uint64),
        }
        for name, column in self.first.items():
            arrays[f"values/{name}"] = column.values
            if column.row_lengths is not None:
                arrays[f"row_lengths/{name}"] = column.row_lengths
        np.savez(path, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path) -> Truth:
        """Read a file of `save`."""
        with np.load(path) as npz:
            arrays = dict(npz)
        names = [key.split("/", 1)[1] for key in arrays if key.startswith("values/")]
        return cls(
            arrays["records"].tolist(),
            arrays["nbytes"].tolist(),
            arrays["hashes"].tolist(),
            {
                n: Column(arrays[f"values/{n}"], arrays.get(f"row_lengths/{n}"))
                for n in names
            },
        )

    def verify(
        self, batches: Iterable[Columns], n_files: int, *, in_order: bool = True
    ) -> int:
        """Count the rows of `batches`; raise unless they are an epoch of the first files."""
        n_batches = records = total = 0
        for batch in batches:
            if n_batches == 0 and in_order:
                self.verify_first(batch)
            sizes = {name: len(column) for name, column in batch.items()}
            if len(set(sizes.values())) != 1:
                raise MismatchError(f"columns of different lengths: {sizes}")
            records += next(iter(sizes.values()))
            total += rows_hash(batch)
            n_batches += 1
        if records != self.records[n_files - 1]:
            raise MismatchError(f"{records} records, not {self.records[n_files - 1]}")
        if total % 2**64 != self.hashes[n_files - 1]:
            msg = "the rows of the epoch differ from the written rows"
            raise MismatchError(msg)
        return n_batches

    def verify_first(self, batch: Columns) -> None:
        """Raise unless `batch` has the first rows, or begins with them."""
        if sorted(batch) != sorted(self.first):
            raise MismatchError(f"columns {sorted(batch)}, not {sorted(self.first)}")
        for name, column in batch.items():
            n = min(len(column), len(self.first[name]))
            got, want = column.head(n), self.first[name].head(n)
            if got.values.dtype != want.values.dtype:
                raise MismatchError(
                    f"{name} is {got.values.dtype}, not {want.values.dtype}"
                )
            if not np.array_equal(got.values, want.values):
                raise MismatchError(f"{name} has wrong values in the first batch")
            if not same_lengths(got.row_lengths, want.row_lengths):
                raise MismatchError(f"{name} has wrong row lengths in the first batch")
