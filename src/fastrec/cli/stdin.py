"""Copy stdin to a temporary file, because the core reads files."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastrec as fr
from fastrec.cli.terminal import size
from fastrec.storage.index_files import index_path

__all__ = ["FrameCounter", "copied_stdin", "copies"]

_PIECE_BYTES = 64 << 10
_LENGTH_BYTES = 8
_FRAMING_BYTES = 16  # of a frame, besides its record
_ANY_WBITS = 47  # GZIP or ZLIB

_copies = contextlib.ExitStack()


@contextlib.contextmanager
def copies() -> Iterator[None]:
    """Delete the copies that the body makes, and their indexes."""
    with _copies:
        yield


def copied_stdin(n_records: int | None = None) -> str:
    """Return the path of a copy of stdin, which `copies` deletes.

    With `n_records`, it returns as soon as these records have arrived, so stdin may be
    endless. The copy takes at most half of the free space of its disk.

    Raises
    ------
    Error
        If stdin is a terminal, or too large.
    """
    source: Any = sys.stdin.buffer  # a BufferedReader
    if source.isatty():
        msg = "cannot read stdin: it is a terminal; pipe a file into the command"
        raise fr.Error(msg)
    folder = _copies.enter_context(tempfile.TemporaryDirectory(prefix="fastrec-"))
    path = Path(folder) / "stdin"
    _copies.callback(index_path(str(path)).unlink, missing_ok=True)
    n_bytes_max = shutil.disk_usage(folder).free // 2
    counter, n_bytes = FrameCounter(), 0
    with path.open("wb") as target:
        while piece := source.read1(_PIECE_BYTES):
            n_bytes += len(piece)
            if n_bytes > n_bytes_max:
                msg = (
                    f"cannot copy stdin to {folder}: it has more than "
                    f"{size(n_bytes_max)}, half of the free space; write it to a file, "
                    "and pass the file"
                )
                raise fr.Error(msg)
            target.write(piece)
            if n_records is not None and counter.add(piece) >= n_records:
                break
    return str(path)


class FrameCounter:
    """Counts the frames of a stream that arrives in pieces, compressed or not.

    It only reads lengths: checksums are verified when the copy is read. It does not count
    frames behind damage.
    """

    def __init__(self) -> None:
        self._n_frames = 0
        self._n_missing = 0  # bytes from the end of `_tail` to the end of its frame
        self._tail = b""  # a part of the length of the next frame
        self._member = zlib.decompressobj(_ANY_WBITS)
        self._is_compressed: bool | None = None
        self._undecided = b""

    def add(self, piece: bytes) -> int:
        """Return the number of complete frames so far."""
        if self._is_compressed is None:
            self._undecided += piece
        try:
            for plain in self._inflated(piece):
                self._add_plain(plain)
        except zlib.error:
            if self._is_compressed is None:
                self._is_compressed = False
                self._add_plain(self._undecided)
        return self._n_frames

    def _inflated(self, piece: bytes) -> Iterator[bytes]:
        if self._is_compressed is False:
            yield piece
            return
        while piece:
            if plain := self._member.decompress(piece):
                self._is_compressed, self._undecided = True, b""
                yield plain
            piece = self._member.unused_data
            if self._member.eof:
                self._member = zlib.decompressobj(_ANY_WBITS)

    def _add_plain(self, piece: bytes) -> None:
        data = self._tail + piece
        at = 0
        while True:
            if self._n_missing:
                n_here = min(self._n_missing, len(data) - at)
                at += n_here
                self._n_missing -= n_here
                if self._n_missing:
                    break
                self._n_frames += 1
            if len(data) - at < _LENGTH_BYTES:
                break
            length = data[at : at + _LENGTH_BYTES]
            self._n_missing = int.from_bytes(length, "little") + _FRAMING_BYTES
        self._tail = data[at:]
