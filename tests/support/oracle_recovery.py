"""A slow, independent recovery of damaged files, and nine ways of damaging one.

It shares no code with fastrec, so that the two cannot share a mistake.
"""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

import crc32c as fast_crc32c

from oracle_frames import FOOTER_BYTES, HEADER_BYTES, masked

Span = tuple[int, int]


class Found(NamedTuple):
    frames: list[Span]
    gaps: list[Span]


def _crc(data: bytes) -> int:
    return masked(fast_crc32c.crc32c(data))


def proven_length(data: bytes, at: int) -> int | None:
    """Return the length that a checksum proves at byte `at`, even beyond the file."""
    if len(data) - at < HEADER_BYTES:
        return None
    length, stored = struct.unpack_from("<QI", data, at)
    return length if stored == _crc(data[at : at + 8]) else None


def frame_end(data: bytes, at: int) -> int | None:
    """Return the end of the frame at byte `at`, or None without a valid header."""
    room = len(data) - at - HEADER_BYTES - FOOTER_BYTES
    if room < 0 or int.from_bytes(data[at : at + 8], "little") > room:
        return None
    length = proven_length(data, at)
    return None if length is None else at + HEADER_BYTES + length + FOOTER_BYTES


def payload_holds(data: bytes, frame: Span) -> bool:
    """Return whether the payload of a frame matches its checksum."""
    begin, end = frame
    (stored,) = struct.unpack_from("<I", data, end - FOOTER_BYTES)
    return bool(stored == _crc(data[begin + HEADER_BYTES : end - FOOTER_BYTES]))


def whole_frame_after(data: bytes, begin: int) -> int:
    """Return the first offset >= `begin` at which both checksums prove a frame."""
    for at in range(begin, len(data)):
        end = frame_end(data, at)
        if end is not None and payload_holds(data, (at, end)):
            return at
    return len(data)


def gaps_and_frames(data: bytes, mode: str) -> Found:
    """Return the frames whose two ends are proven, and the gaps between them."""
    frames: list[Span] = []
    gaps: list[Span] = []
    at = 0
    while at < len(data):
        end = frame_end(data, at)
        if end is not None:
            frames.append((at, end))
            at = end
            continue
        begin = at
        is_proven = proven_length(data, at) is not None
        follows = bool(frames) and frames[-1][1] == at
        if follows and not is_proven and not payload_holds(data, frames[-1]):
            begin = frames.pop()[0]
        at = whole_frame_after(data, begin + 1) if mode == "resync" else len(data)
        gaps.append((begin, at))
    return Found(frames, gaps)


# Nine kinds of corruption. Each accepts a file and a random generator, and returns the
# damaged file and the new offset of every remaining byte.


def _range(data: bytes, rng: random.Random, longest: int = 400) -> Span:
    begin = rng.randrange(len(data))
    return begin, min(len(data), begin + rng.randint(1, longest))


def _in_place(data: bytes, begin: int, new: bytes) -> tuple[bytes, list[Kept]]:
    end = begin + len(new)
    kept = [(0, begin, 0), (end, len(data), end)]
    return data[:begin] + new + data[end:], kept


# Bytes [begin, end) of the good file are at offset `at` of the damaged one.
Kept = tuple[int, int, int]


def flipped_bits(data: bytes, rng: random.Random) -> tuple[bytes, list[Kept]]:
    begin, end = _range(data, rng, 8)
    new = bytearray(data[begin:end])
    for _ in range(rng.randint(1, 8)):
        new[rng.randrange(len(new))] ^= 1 << rng.randrange(8)
    return _in_place(data, begin, bytes(new))


def changed_bytes(data: bytes, rng: random.Random) -> tuple[bytes, list[Kept]]:
    begin, end = _range(data, rng)
    return _in_place(data, begin, rng.randbytes(end - begin))


def zeroed_range(data: bytes, rng: random.Random) -> tuple[bytes, list[Kept]]:
    begin, end = _range(data, rng)
    return _in_place(data, begin, bytes(end - begin))


def deleted_range(data: bytes, rng: random.Random) -> tuple[bytes, list[Kept]]:
    begin, end = _range(data, rng)
    kept = [(0, begin, 0), (end, len(data), begin)]
    return data[:begin] + data[end:], kept


def _inserted(data: bytes, at: int, new: bytes) -> tuple[bytes, list[Kept]]:
    kept = [(0, at, 0), (at, len(data), at + len(new))]
    return data[:at] + new + data[at:], kept


def inserted_range(data: bytes, rng: random.Random) -> tuple[bytes, list[Kept]]:
    return _inserted(
        data, rng.randrange(len(data) + 1), rng.randbytes(rng.randint(1, 400))
    )


def duplicated_block(data: bytes, rng: random.Random) -> tuple[bytes, list[Kept]]:
    begin, end = _range(data, rng)
    return _inserted(data, rng.randrange(len(data) + 1), data[begin:end])


def swapped_blocks(data: bytes, rng: random.Random) -> tuple[bytes, list[Kept]]:
    size = rng.randint(1, min(400, len(data) // 2))
    first = rng.randint(0, len(data) - 2 * size)
    second = rng.randint(first + size, len(data) - size)
    new = (
        data[:first]
        + data[second : second + size]
        + data[first + size : second]
        + data[first : first + size]
        + data[second + size :]
    )
    edges = [(0, first), (first + size, second), (second + size, len(data))]
    return new, [(begin, end, begin) for begin, end in edges]


def truncated(data: bytes, rng: random.Random) -> tuple[bytes, list[Kept]]:
    size = rng.randrange(len(data))
    return data[:size], [(0, size, 0)]


def appended_garbage(data: bytes, rng: random.Random) -> tuple[bytes, list[Kept]]:
    return data + rng.randbytes(rng.randint(1, 400)), [(0, len(data), 0)]


CORRUPTIONS = (
    flipped_bits,
    changed_bytes,
    zeroed_range,
    deleted_range,
    inserted_range,
    duplicated_block,
    swapped_blocks,
    truncated,
    appended_garbage,
)
