"""A slow, independent reader of damaged GZIP and ZLIB files: stored bytes -> content.

It has the content of all stored bytes before the one that shows the damage.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from oracle_recovery import whole_frame_after

WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}
GZIP_MAGIC = b"\x1f\x8b"
PROOF_BYTES = 1 << 10
CHUNK_BYTES = 256


class Seen(NamedTuple):
    """What a file holds: its content up to the damage of the stream."""

    content: bytes
    is_stream: bool
    is_whole: bool


def looks_like(stored: bytes) -> str | None:
    """Return which compression the first two bytes announce."""
    if stored[:2] == GZIP_MAGIC:
        return "GZIP"
    is_text = all(0x20 <= byte < 0x7F or 9 <= byte <= 13 for byte in stored[:64])
    if len(stored) < 2 or is_text:
        return None
    is_zlib = stored[0] & 0x8F == 8 and int.from_bytes(stored[:2], "big") % 31 == 0
    return "ZLIB" if is_zlib else None


def inflates(stored: bytes, compression: str) -> bool:
    """Return whether the beginning of a file decompresses."""
    stream = zlib.decompressobj(WINDOW_BITS[compression])
    try:
        return bool(stream.decompress(stored[:PROOF_BYTES])) or stream.eof
    except zlib.error:
        return False


def seen(stored: bytes, compression: str | None) -> Seen:
    """Return the content of a file that is opened with `compression`."""
    if compression == "auto":
        compression = looks_like(stored)
        # The damaged header of a plain file may look like a compressed one.
        if (
            compression
            and not inflates(stored, compression)
            and whole_frame_after(stored, 0) < len(stored)
        ):
            compression = None
    if compression is None:
        return Seen(stored, is_stream=False, is_whole=True)
    content, at = b"", 0
    while at < len(stored):
        if at and (compression == "ZLIB" or stored[at : at + 2] != GZIP_MAGIC):
            return Seen(content, is_stream=True, is_whole=False)
        inflated, n_bytes = member(stored[at:], WINDOW_BITS[compression])
        content += inflated
        if n_bytes is None:
            return Seen(content, is_stream=True, is_whole=False)
        at += n_bytes
    return Seen(content, is_stream=True, is_whole=True)


def member(stored: bytes, window_bits: int) -> tuple[bytes, int | None]:
    """Return the content of one member, and its size or None if it is damaged."""
    stream = zlib.decompressobj(window_bits)
    content = b""
    at, size = 0, CHUNK_BYTES
    while at < len(stored):
        before, chunk = stream.copy(), stored[at : at + size]
        try:
            content += stream.decompress(chunk)
        except zlib.error:
            if size == 1:
                break
            stream, size = before, 1
            continue
        at += len(chunk)
        if stream.eof:
            return content, at - len(stream.unused_data)
    return content, None
