"""Parse written files with crc32c and protobuf, independent of fastrec."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import crc32c

from oracle_protobuf import features_by_protobuf, sequence_by_protobuf

HEADER_BYTES, FOOTER_BYTES = 12, 4


def masked_crc(data: bytes) -> int:
    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def payloads(data: bytes) -> list[bytes]:
    """Return the records of a file's bytes, and assert all checksums."""
    found, begin = [], 0
    while begin < len(data):
        length, length_crc = struct.unpack_from("<QI", data, begin)
        assert length_crc == masked_crc(data[begin : begin + 8])
        end = begin + HEADER_BYTES + length
        found.append(data[begin + HEADER_BYTES : end])
        assert struct.unpack_from("<I", data, end) == (masked_crc(found[-1]),)
        begin = end + FOOTER_BYTES
    assert begin == len(data)
    return found


def records_in(path: str | Path) -> list[bytes]:
    """Return the records of a plain file."""
    return payloads(Path(path).read_bytes())


def examples(path: str | Path) -> list[dict[bytes, Any]]:
    """Return the kind and values of every feature of every record."""
    return [features_by_protobuf(record) for record in records_in(path)]


def sequences(path: str | Path) -> list[tuple[dict[bytes, Any], dict[bytes, Any]]]:
    """Return the context and feature lists of every record."""
    return [sequence_by_protobuf(record) for record in records_in(path)]
