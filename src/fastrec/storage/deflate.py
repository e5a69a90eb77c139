"""Deflating: frames -> the bytes of a GZIP or ZLIB file, piece by piece.

Each piece of a GZIP file is a member of its own, so that several threads can deflate one
file, and what a process left that was killed can be read to its last member. Members may
follow each other; TensorFlow, gzip and fastrec read all of them. A ZLIB file is one
stream, which one thread after another deflates.

Source: RFC 1952 (members), RFC 1950; `zlib` does the work.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["COMPRESSED_SUFFIXES", "COMPRESSIONS", "Codec", "codec_of", "plain_name"]

COMPRESSIONS = ("GZIP", "ZLIB")

# Names that would say of a plain file that it is compressed.
COMPRESSED_SUFFIXES = frozenset({".gz", ".gzip", ".zlib", ".zz", ".z"})

_GZIP_WBITS = 31


class Codec(Protocol):
    """What becomes of the pieces of a file."""

    def prepared(self, piece: Buffer) -> Buffer:
        """Return what is written of a piece; several threads may ask at once."""

    def ordered(self, prepared: Buffer) -> Buffer:
        """Return the same where it depends on the pieces before."""

    def end(self) -> Buffer:
        """Return what comes after the last piece."""


class _Plain:
    def prepared(self, piece: Buffer) -> Buffer:
        return piece

    def ordered(self, prepared: Buffer) -> Buffer:
        return prepared

    def end(self) -> Buffer:
        return b""


class _Gzip:
    def __init__(self, level: int) -> None:
        self._level = level
        self._is_empty = True

    def prepared(self, piece: Buffer) -> Buffer:
        member = zlib.compressobj(self._level, zlib.DEFLATED, _GZIP_WBITS)
        return member.compress(piece) + member.flush()

    def ordered(self, prepared: Buffer) -> Buffer:
        self._is_empty = False
        return prepared

    def end(self) -> Buffer:
        # Readers of some kinds stop at an empty member, so there is one only where there
        # is nothing else.
        return self.prepared(b"") if self._is_empty else b""


class _Zlib:
    def __init__(self, level: int) -> None:
        self._stream = zlib.compressobj(level)

    def prepared(self, piece: Buffer) -> Buffer:
        return piece

    def ordered(self, prepared: Buffer) -> Buffer:
        return self._stream.compress(prepared)

    def end(self) -> Buffer:
        return self._stream.flush()


def plain_name(path: str) -> str:
    """Return the name of a file, without the suffix that says that it is compressed."""
    name = Path(path)
    is_compressed = name.suffix.lower() in COMPRESSED_SUFFIXES and name.stem
    return name.stem if is_compressed else name.name


def codec_of(compression: str | None, level: int) -> Codec:
    """Return a codec for one file; `level` is zlib's, -1 to 9."""
    if compression is None:
        return _Plain()
    return _Gzip(level) if compression == "GZIP" else _Zlib(level)
