"""Vectorised encoder: NumPy arrays -> bytes of TFRecord files.

It supports the parts of tf.train.Example and SequenceExample that the workloads use, and
shares no code with fastrec, so that both cannot have the same bug.

Source: tensorflow/core/example/{example,feature}.proto; the protobuf encoding guide.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Cells",
    "bytes_feature",
    "example",
    "fixed",
    "float_feature",
    "frames",
    "int64_feature",
    "join",
    "list_of_bytes",
    "list_of_floats",
    "list_of_int64",
    "prefixes",
    "sequence_example",
    "steps",
    "varints",
]


@dataclass(frozen=True)
class Cells:
    """The bytes of n messages: row i is ``data[i][keep[i]]``."""

    data: NDArray[np.uint8]
    keep: NDArray[np.bool_]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes in each row."""
        counts: NDArray[np.int64] = self.keep.sum(axis=1, dtype=np.int64)
        return counts


def fixed(values: NDArray[Any]) -> Cells:
    """Return the little-endian bytes of the values of each row."""
    rows = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    data = rows.view(np.uint8).reshape(len(values), -1)
    return Cells(data, np.ones(data.shape, np.bool_))


def prefixes(data: NDArray[np.uint8], lengths: NDArray[np.int64]) -> Cells:
    """Return the first ``lengths[i]`` bytes of row i."""
    return Cells(data, np.arange(data.shape[1]) < lengths[:, None])


def varints(
    values: NDArray[np.int64], counts: NDArray[np.int64] | None = None
) -> Cells:
    """Return varints of the first ``counts[i]`` values of row i, or of all."""
    n, k = values.shape
    bits = values.astype(np.uint64)
    width = max(1, -(-int(bits.max(initial=np.uint64(0))).bit_length() // 7))
    shifted = bits[:, :, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(7))
    keep = shifted != 0
    keep[:, :, 0] = True
    data = (shifted & np.uint64(0x7F)).astype(np.uint8)
    data[:, :, :-1] |= keep[:, :, 1:].astype(np.uint8) << 7
    if counts is not None:
        keep &= (np.arange(k) < counts[:, None])[:, :, None]
    return Cells(data.reshape(n, -1), keep.reshape(n, -1))


def join(cells: Sequence[Cells]) -> Cells:
    """Concatenate rows."""
    return Cells(
        np.concatenate([c.data for c in cells], axis=1),
        np.concatenate([c.keep for c in cells], axis=1),
    )


def field(number: int, body: Cells, present: NDArray[np.bool_] | None = None) -> Cells:
    """Return a length-delimited field per row, or nothing if not `present`."""
    n = len(body.data)
    tag = constant(n, bytes([number << 3 | 2]))
    whole = join([tag, varints(body.lengths[:, None]), body])
    if present is None:
        return whole
    return Cells(whole.data, whole.keep & present[:, None])


def constant(n: int, value: bytes) -> Cells:
    """Return the same bytes in every row."""
    return fixed(np.tile(np.frombuffer(value, np.uint8), (n, 1)))


def entry(key: str, message: Cells) -> Cells:
    """Return an entry of Features.feature or FeatureLists.feature_list."""
    name = field(1, constant(len(message.data), key.encode()))
    return field(1, join([name, field(2, message)]))


def list_of_bytes(values: Sequence[Cells], counts: NDArray[np.int64]) -> Cells:
    """Return a bytes Feature; row i has the first ``counts[i]`` of the values."""
    fields = [field(1, value, counts > i) for i, value in enumerate(values)]
    return field(1, join(fields))


def list_of_floats(values: NDArray[np.float32]) -> Cells:
    """Return a Feature with a packed float list."""
    return field(2, field(1, fixed(values)))


def list_of_int64(values: Cells) -> Cells:
    """Return a Feature with a packed int64 list; an empty row is an empty list."""
    return field(3, field(1, values, values.lengths > 0))


def bytes_feature(
    key: str, values: Sequence[Cells], counts: NDArray[np.int64]
) -> Cells:
    """Return a bytes list; row i has the first ``counts[i]`` of the values."""
    return entry(key, list_of_bytes(values, counts))


def float_feature(key: str, values: NDArray[np.float32]) -> Cells:
    """A packed float list."""
    return entry(key, list_of_floats(values))


def int64_feature(key: str, values: Cells) -> Cells:
    """Return a packed int64 list of varints."""
    return entry(key, list_of_int64(values))


def steps(key: str, features: Sequence[Cells], counts: NDArray[np.int64]) -> Cells:
    """Return a feature list; row i has the first ``counts[i]`` of the features."""
    fields = [field(1, feature, counts > i) for i, feature in enumerate(features)]
    return entry(key, join(fields))


def sequence_example(context: Sequence[Cells], lists: Sequence[Cells]) -> Cells:
    """Return SequenceExamples of context entries and feature lists."""
    return join([field(1, join(context)), field(2, join(lists))])


def example(entries: Sequence[Cells], order: NDArray[np.int64] | None = None) -> Cells:
    """Return Examples; `order`, of shape (n, features), orders each record's entries."""
    if order is None:
        return field(1, join(entries))
    n, width = len(order), max(e.data.shape[1] for e in entries)
    pad = [(0, width - e.data.shape[1]) for e in entries]
    data = [np.pad(e.data, ((0, 0), p)) for e, p in zip(entries, pad, strict=True)]
    keep = [np.pad(e.keep, ((0, 0), p)) for e, p in zip(entries, pad, strict=True)]
    by_row = order[:, :, None]
    return field(
        1,
        Cells(
            np.take_along_axis(np.stack(data, axis=1), by_row, axis=1).reshape(n, -1),
            np.take_along_axis(np.stack(keep, axis=1), by_row, axis=1).reshape(n, -1),
        ),
    )


def masked(crc: int) -> int:
    """Return the masked CRC-32C that TFRecord stores."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frames(records: Cells) -> bytes:
    """Return TFRecord frames, one per row."""
    # Only the generator needs the package, not the reader processes.
    import crc32c

    flat = memoryview(records.data[records.keep])  # type: ignore[arg-type]
    parts: list[bytes | memoryview] = []
    begin = 0
    for length in records.lengths.tolist():
        record = flat[begin : begin + length]
        begin += length
        size = struct.pack("<Q", length)
        parts += (
            size,
            struct.pack("<I", masked(crc32c.crc32c(size))),
            record,
            struct.pack("<I", masked(crc32c.crc32c(record))),
        )
    return b"".join(parts)
