"""A slow, independent implementation of TFRecord framing: records <-> file bytes.

It shares no code with fastrec, so that the two cannot share a mistake.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

HEADER_BYTES = 12
FOOTER_BYTES = 4
POLYNOMIAL = 0x82F63B78  # Castagnoli polynomial, bits reversed.


def crc_of_byte(byte: int) -> int:
    """Divide one byte by the polynomial, bit by bit."""
    for _ in range(8):
        byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
    return byte


CRC_OF_BYTE = [crc_of_byte(byte) for byte in range(256)]


def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C as RFC 3720 defines it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_OF_BYTE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Mask a checksum as TFRecord stores it."""
    rotated = crc >> 15 | crc << 17 & 0xFFFFFFFF
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF


def header(length: int) -> bytes:
    """Return the 12 header bytes of a payload of `length` bytes."""
    stored = struct.pack("<Q", length)
    return stored + struct.pack("<I", masked(crc32c(stored)))


def frame(payload: bytes, crc: Callable[[bytes], int] = crc32c) -> bytes:
    """Frame one record; `crc` may be a faster CRC-32C."""
    return header(len(payload)) + payload + struct.pack("<I", masked(crc(payload)))


def tfrecord_file(records: Iterable[bytes]) -> bytes:
    """Return the bytes of a file with these records."""
    return b"".join(frame(record) for record in records)


def frame_offsets(data: bytes) -> list[int]:
    """Return the offset of each frame, and the end of the file."""
    offsets = [0]
    while offsets[-1] < len(data):
        at = offsets[-1]
        (length,) = struct.unpack_from("<Q", data, at)
        if data[at : at + HEADER_BYTES] != header(length):
            raise ValueError(f"no frame at byte {at}")
        offsets.append(at + HEADER_BYTES + length + FOOTER_BYTES)
    if offsets[-1] != len(data):
        raise ValueError(f"the last frame ends at byte {offsets[-1]} of {len(data)}")
    return offsets
