"""Inflating: a GZIP or ZLIB file -> its content, piece by piece, checked to the end.

A stream is whole only if its checksum and its end are there and nothing follows it. All
members of a GZIP file are read, empty ones too. With the extra ``gzip``, isal inflates;
otherwise the standard library does. Both let other threads run meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import zlib
from collections.abc import Callable, Generator, Iterator
from types import ModuleType
from typing import Literal, TypeAlias

from fastrec import _core
from fastrec.errors import CorruptionError

__all__ = ["Content", "Version", "content_of", "inflated", "version_of"]

# What the bytes of a file are.
Content: TypeAlias = Literal["plain", "gzip", "zlib"]

# What tells a file from an earlier one at the same path: its size, and when it changed.
Version: TypeAlias = tuple[int, int]

_NAMES = {"gzip": "GZIP", "zlib": "ZLIB"}
_WBITS = {"gzip": 31, "zlib": 15}
_GZIP_MAGIC = b"\x1f\x8b"

# What is read, and what comes out, at once: small enough for the second-level cache,
# large enough that Python's share of the work does not show.
_READ_BYTES = 64 << 10
_PIECE_BYTES = 256 << 10
_PLAIN_BYTES = 1 << 20

# What has to inflate for a file to be a compressed one. Other bytes do not get that far.
_PROOF_BYTES = 1 << 10


def _backend() -> ModuleType:
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    module: ModuleType = isal_zlib
    return module


def _opener(path: str, flags: int) -> int:
    """Open a regular file; a FIFO is refused, not waited for."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[io.FileIO]:
    """Open a regular file, and name it in errors of reading."""
    try:
        with io.FileIO(path, opener=_opener) as file:
            yield file
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


def version_of(path: str) -> Version:
    """Return the version of a file, or raise an OSError."""
    status = os.stat(path)  # noqa: PTH116
    return status.st_size, status.st_mtime_ns


def content_of(path: str) -> Content:
    """Return what the file `path` is.

    The damaged first header of a plain file may look like that of a compressed one. So
    a file is taken for compressed only if its beginning inflates, or if no frame of a
    plain file is found in it.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    looks_like = _core.recognize(os.fsencode(path))
    content: Content = "plain"
    if looks_like == "gzip":
        content = "gzip"
    elif looks_like == "zlib":
        content = "zlib"
    if content == "plain" or _inflates(path, content):
        return content
    return "plain" if _core.holds_frames(os.fsencode(path)) else content


def _inflates(path: str, kind: Content) -> bool:
    """Return whether the first KiB of a file inflates, or all of a smaller one."""
    with _opened(path) as file:
        beginning = file.read(_PROOF_BYTES) or b""
    stream = zlib.decompressobj(wbits=_WBITS[kind])
    try:
        return bool(stream.decompress(beginning, _PIECE_BYTES)) or stream.eof
    except zlib.error:
        return False


def inflated(
    path: str, content: Content, *, on_read: Callable[[int], object] | None = None
) -> Generator[bytes]:
    """Yield the content of the file `path`, in pieces of 1 MiB at most.

    `on_read` is told how many bytes of the file were read so far, whenever it was read.

    Content that was yielded before an error is as it was written, as far as the stream
    says.

    Raises
    ------
    CorruptionError
        If the stream is damaged, cut, or followed by anything else. Its `offset` is the
        byte of the compressed file; the text has that of the content, too.
    OSError
        If the file cannot be read.
    """
    with _opened(path) as file:
        if content == "plain":
            while piece := file.read(_PLAIN_BYTES):
                if on_read is not None:
                    on_read(file.tell())
                yield piece
            return
        yield from _Inflation(file, content, path, on_read).pieces()


class _Inflation:
    """One file on its way through the decompressor."""

    def __init__(
        self,
        file: io.FileIO,
        content: Content,
        name: str,
        on_read: Callable[[int], object] | None,
    ) -> None:
        self._file = file
        self._on_read = on_read
        self._content = content
        self._name = name
        self._backend = _backend()
        self._n_read = 0
        self._n_inflated = 0

    def pieces(self) -> Iterator[bytes]:
        data = self._read()
        while data:  # a file without bytes has no content
            if self._n_read > len(data):
                data = self._checked_member(data)
            member = self._backend.decompressobj(wbits=_WBITS[self._content])
            while not member.eof:
                data = data or self._read()
                try:
                    piece = member.decompress(data, _PIECE_BYTES)
                except self._backend.error as error:
                    raise self._error(data, f"is damaged ({error})") from None
                if piece:
                    self._n_inflated += len(piece)
                    yield piece
                elif not data and not member.eof:
                    raise self._error(data, "is cut short")
                data = member.unconsumed_tail
            data = member.unused_data or self._read()

    def _read(self) -> bytes:
        data = self._file.read(_READ_BYTES) or b""
        self._n_read += len(data)
        if self._on_read is not None:
            self._on_read(self._n_read)
        return data

    def _checked_member(self, data: bytes) -> bytes:
        """Return `data`, which follows a whole stream, if that is another member."""
        if len(data) == 1:
            data += self._read()
        if self._content != "gzip" or not data.startswith(_GZIP_MAGIC[: len(data)]):
            raise self._error(data, "is followed by other bytes")
        return data

    def _error(self, data: bytes, what: str) -> CorruptionError:
        """Return the error of the stream in `data`, the bytes that were read last."""
        return CorruptionError(
            f"the {_NAMES[self._content]} stream {what}, after {self._n_inflated:,} "
            "bytes of its content",
            self._name,
            offset=self._n_read - len(data),
            code="damaged_stream",
        )
