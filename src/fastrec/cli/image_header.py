"""The width and height of an image, from the first bytes of its file.

Sources: ITU-T T.81 (JPEG), the PNG specification, GIF89a, RFC 9649 (WebP), and
BITMAPINFOHEADER (BMP).
"""

from __future__ import annotations

__all__ = ["image_size"]


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of a JPEG, PNG, GIF, WebP or BMP; None if unknown."""
    if data.startswith(b"\xff\xd8"):
        return _jpeg_size(data)
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        return _pair(data[16:24], 4, "big")
    if data.startswith((b"GIF87a", b"GIF89a")):
        return _pair(data[6:10], 2, "little")
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp_size(data)
    if data.startswith(b"BM"):
        size = _pair(data[18:26], 4, "little")
        if size is not None and size[1] >= 1 << 31:  # negative: rows from top to bottom
            return size[0], (1 << 32) - size[1]
        return size
    return None


def _pair(data: bytes, n_bytes: int, order: str) -> tuple[int, int] | None:
    if len(data) < 2 * n_bytes:
        return None
    first, second = data[:n_bytes], data[n_bytes:]
    if order == "big":
        return int.from_bytes(first, "big"), int.from_bytes(second, "big")
    return int.from_bytes(first, "little"), int.from_bytes(second, "little")


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Find the frame header (SOF) of a JPEG among its segments."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            size = _pair(data[at + 5 : at + 9], 2, "big")
            return None if size is None else (size[1], size[0])
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        width = int.from_bytes(data[24:27], "little")
        return width + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        size = _pair(data[26:30], 2, "little")
        return None if size is None else (size[0] & 0x3FFF, size[1] & 0x3FFF)
    return None
