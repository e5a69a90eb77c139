"""GZIP and ZLIB: detect, decompress and compress.

A file is complete only if it ends with a valid checksum and no other bytes follow. All
members of a GZIP file are read, including empty ones. isal (extra ``gzip``) inflates
files if it is installed; otherwise, zlib does. Both libraries release the GIL.

Source: RFC 1950, RFC 1952.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import itertools
import os
import stat
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

import numpy as np

from fastrec import _core
from fastrec.errors import CorruptionError
from fastrec.storage.atomic import open_file
from fastrec.storage.paths import asked_in_threads, local_head, version_of
from fastrec.storage.pipes import PipeFile, PipePath
from fastrec.storage.remote import RemotePath, RequestCounters, pieces

if TYPE_CHECKING:
    from typing_extensions import Buffer

Compression: TypeAlias = Literal["auto", "GZIP", "ZLIB"] | None

# The compression of a file; "auto" means that opening the file detects it.
Content: TypeAlias = Literal["plain", "gzip", "zlib", "auto"]
FileContent: TypeAlias = tuple[str, Content]

# The core's codes.
CODES: dict[Content, int] = {"plain": 0, "gzip": 1, "zlib": 2, "auto": 255}

COMPRESSIONS = ("GZIP", "ZLIB")
COMPRESSED_SUFFIXES = frozenset({".gz", ".gzip", ".zlib", ".zz", ".z"})
GZIP_MAGIC = b"\x1f\x8b"
# The fourth byte of a GZIP header contains the flags; higher values are invalid.
_FLAGS_END = 4
_MAX_FLAGS = b"\x1f"

CONTENTS: dict[object, Content] = {None: "plain", "GZIP": "gzip", "ZLIB": "zlib"}
_WBITS = {"gzip": 31, "zlib": 15}

# Bytes per read and per yield: small enough for the L2 cache, and large enough to
# amortise the overhead of Python.
_READ_BYTES = 64 << 10
_PIECE_BYTES = 256 << 10
_PLAIN_BYTES = 1 << 20
_STEP_BYTES = 16 << 10  # per read of a damaged stream

# Detection decompresses at most this much of a file.
_PROOF_BYTES = 1 << 10
_FRAME_HEADER_BYTES = 12

# Maximum number of files per suffix that `sampled_contents` opens.
_MAX_SAMPLED = 64

# Threads that detect compression. They mostly wait for I/O.
_DETECTION_THREADS = 16


# Detection.


def check_compression(value: object) -> None:
    """Raise a ValueError unless `value` is valid for the option ``compression=``."""
    if value not in ("auto", None, *COMPRESSIONS):
        raise ValueError(
            f"compression must be 'auto', None, 'GZIP' or 'ZLIB', got {value!r}"
        )


def contents_of(
    files: Sequence[str], compression: Compression = "auto"
) -> list[Content]:
    """Return the compression of each file; detect it if `compression` is "auto"."""
    if compression != "auto":
        return [CONTENTS[compression]] * len(files)
    if any(isinstance(path, (RemotePath, PipePath)) for path in files):
        return asked_in_threads(content_of, files)
    names = os.fsencode("\0".join(files))
    looks_like = _core.recognize_files(names, _DETECTION_THREADS)
    contents: list[Content] = ["plain"] * len(files)
    for i in np.flatnonzero(looks_like).tolist():
        contents[i] = content_of(files[i])
    return contents


def sampled_contents(files: Sequence[str], known: Sequence[Content]) -> list[Content]:
    """Return the compression of each file, detected in a sample of files per suffix.

    `known` is the compression of each file, or "auto" if it is unknown. If the
    compression differs within a sample, all files with that suffix are opened.
    """
    groups: dict[str, list[int]] = {}
    for i in [i for i, content in enumerate(known) if content == "auto"]:
        suffix = os.path.splitext(files[i])[1].lower()
        suffix = suffix if suffix in COMPRESSED_SUFFIXES else ""
        groups.setdefault(suffix, []).append(i)
    found: dict[int, Content] = {}
    for numbers in groups.values():
        step = -(-len(numbers) // _MAX_SAMPLED)
        contents = contents_of([files[i] for i in numbers[::step]])
        if len(set(contents)) > 1:
            contents = contents_of([files[i] for i in numbers])
        found |= zip(numbers, itertools.cycle(contents), strict=False)
    return [found.get(i, content) for i, content in enumerate(known)]


def content_of(path: str, counters: RequestCounters | None = None) -> Content:
    """Detect the compression of a file; raise an OSError if it cannot be read.

    A damaged plain file may begin like a compressed file. So a file counts as
    compressed only if its first bytes decompress, or if it does not contain a valid
    TFRecord frame. The result for a pipe is "auto", because a pipe is read only once.
    """
    if isinstance(path, PipePath):
        return "auto"
    with local_head(path, counters) as local:
        name = os.fsencode(local)
        looks_like = _core.recognize(name)
        if looks_like not in _WBITS:
            return "plain"
        content: Content = "gzip" if looks_like == "gzip" else "zlib"
        stream = zlib.decompressobj(wbits=_WBITS[content])
        with _opened(local) as file, contextlib.suppress(zlib.error):
            beginning = file.read(_PROOF_BYTES) or b""
            if stream.decompress(beginning, _PIECE_BYTES) or stream.eof:
                return content
        return "plain" if _core.holds_frames(name) else content


def _content_of_head(head: bytes) -> Content:
    """Detect the compression of a pipe from its first bytes."""
    length, crc = head[:8], head[8:_FRAME_HEADER_BYTES]
    if _core.masked_crc32c(length) == int.from_bytes(crc, "little"):
        return "plain"
    for content in ("gzip", "zlib"):
        with contextlib.suppress(zlib.error):
            zlib.decompressobj(wbits=_WBITS[content]).decompress(head)
            return content
    return "plain"


def plain_name(path: str) -> str:
    """Return the base name of a file without a compression suffix such as ``.gz``."""
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in COMPRESSED_SUFFIXES else name


# Decompression.


def inflated(
    path: str,
    content: Content,
    *,
    on_read: Callable[[int], object] = bool,
    on_wait: Callable[[], object] = bool,
    counters: RequestCounters | None = None,
) -> Generator[bytes]:
    """Yield the decompressed content of a file, piece by piece.

    `on_read` is called with the number of bytes read from the file so far, and
    `on_wait` while a pipe has no data. `counters` counts and cancels remote requests.
    The offset of a CorruptionError refers to the compressed file.
    """
    if content == "auto":
        content = content_of(path)
    n_read = 0
    with _opened(path, counters, on_wait) as file:
        if isinstance(file, PipeFile) and content == "auto":
            content = _content_of_head(file.head(_FRAME_HEADER_BYTES))
        if content == "plain":
            while piece := file.read(_PLAIN_BYTES):
                n_read += len(piece)
                on_read(n_read)
                yield piece
        else:
            yield from _inflated_members(file, content, path, on_read, counters)


def _inflated_members(
    file: io.FileIO | PipeFile | _RemoteFile,
    content: Content,
    name: str,
    on_read: Callable[[int], object],
    counters: RequestCounters | None,
) -> Generator[bytes]:
    """Yield the decompressed content of one ZLIB stream or of all GZIP members."""
    backend = _backend()
    n_read = n_inflated = 0

    def read() -> bytes:
        nonlocal n_read
        data = file.read(_READ_BYTES) or b""
        n_read += len(data)
        on_read(n_read)
        return data

    def fail(what: str, at: int) -> NoReturn:
        raise CorruptionError(
            f"the {content.upper()} stream {what}, at decompressed byte {n_inflated:,}",
            name,
            offset=at,
            code="damaged_stream",
        ) from None

    data = read()
    while data:  # an empty file is valid
        if n_read > len(data):  # `data` follows a complete stream
            data += read() if len(data) < _FLAGS_END else b""
            if content != "gzip" or not data.startswith(GZIP_MAGIC[: len(data)]):
                fail("is followed by other bytes", n_read - len(data))
        begin, n_before = n_read - len(data), n_inflated
        # isal would accept reserved flags; zlib rejects them.
        if content == "gzip" and data[_FLAGS_END - 1 : _FLAGS_END] > _MAX_FLAGS:
            fail("is damaged (unknown header flags set)", begin)
        member = backend.decompressobj(wbits=_WBITS[content])
        while not member.eof:
            data = data or read()
            try:
                piece = member.decompress(data, _PIECE_BYTES)
            except backend.error as error:
                end, n_yielded = begin, n_inflated - n_before
                for rest, at in _before_damage(
                    name, content, begin, n_yielded, counters
                ):
                    n_inflated += len(rest)
                    end = at
                    yield rest
                fail(f"is damaged ({error})", end)
            if piece:
                n_inflated += len(piece)
                yield piece
            elif not data and not member.eof:
                fail("is truncated", n_read)
            data = member.unconsumed_tail
        data = member.unused_data or read()


def _before_damage(
    name: str,
    content: Content,
    begin: int,
    n_yielded: int,
    counters: RequestCounters | None,
) -> Iterator[tuple[bytes, int]]:
    """Yield a damaged member's content from byte `n_yielded` up to the damage.

    Yields each piece with the file offset at which its compressed bytes end. A failed
    call of zlib or isal discards its output. So the member, which begins at file offset
    `begin`, is inflated again with zlib, one input byte at a time near the damage.
    """
    if isinstance(name, PipePath):  # cannot be read again
        return
    stream = zlib.decompressobj(wbits=_WBITS[content])
    at = 0
    with _opened(name, counters) as file, contextlib.suppress(zlib.error):
        while at < begin and (data := file.read(min(begin - at, _READ_BYTES))):
            at += len(data)
        while not stream.eof and (data := file.read(_STEP_BYTES)):
            before = stream.copy()
            try:
                steps = iter([(len(data), stream.decompress(data))])
            except zlib.error:
                stream = before
                single = (data[i : i + 1] for i in range(len(data)))
                steps = ((1, stream.decompress(byte)) for byte in single)
            for n_bytes, piece in steps:
                at += n_bytes
                if len(piece) > n_yielded:
                    yield piece[n_yielded:], at
                n_yielded = max(0, n_yielded - len(piece))


def _backend() -> ModuleType:
    """Return the module of isal, or zlib if isal is not installed."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("isal.isal_zlib")
    return zlib


class _RemoteFile:
    """Sequential reader of a remote object."""

    def __init__(self, pieces: Iterator[Buffer]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def read(self, n_bytes: int) -> bytes:
        """Return at most `n_bytes` bytes; empty only at the end."""
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b"")).cast("B")
        data, self._rest = bytes(self._rest[:n_bytes]), self._rest[n_bytes:]
        return data


@contextlib.contextmanager
def _opened(
    path: str,
    counters: RequestCounters | None = None,
    on_wait: Callable[[], object] = bool,
) -> Iterator[io.FileIO | PipeFile | _RemoteFile]:
    """Open a regular file, a pipe or a remote object for sequential reading."""
    if isinstance(path, PipePath):
        with path.opened(on_wait) as pipe:
            yield pipe
        return
    if isinstance(path, RemotePath):
        with contextlib.closing(pieces(path, version_of(path), counters)) as content:
            yield _RemoteFile(content)
        return
    try:
        # With O_NONBLOCK, opening a FIFO does not wait for a writer.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        with open_file(path, flags, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
            yield file
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


# Compression.


class Codec:
    """Encoder of one file, piece by piece; `level` is the zlib level, -1 to 9.

    In a GZIP file, each piece becomes a member. So several threads can compress one
    file, and complete members remain readable if the writer is killed.
    """

    def __init__(self, compression: str | None, level: int) -> None:
        self._is_gzip, self._level = compression == "GZIP", level
        self._stream = zlib.compressobj(level) if compression == "ZLIB" else None
        self._is_empty = True

    def prepared(self, piece: Buffer) -> Buffer:
        """Compress a piece of a GZIP file; return others unchanged. Thread-safe."""
        if not self._is_gzip:
            return piece
        member = zlib.compressobj(self._level, zlib.DEFLATED, _WBITS["gzip"])
        return member.compress(piece) + member.flush()

    def ordered(self, prepared: Buffer) -> Buffer:
        """Return the bytes to write for a prepared piece; pass pieces in file order."""
        self._is_empty = False
        return prepared if self._stream is None else self._stream.compress(prepared)

    def end(self) -> Buffer:
        """Return the bytes to write after the last piece."""
        if self._stream is not None:
            return self._stream.flush()
        # Some readers stop at an empty member, so only an empty file has one.
        return self.prepared(b"") if self._is_empty else b""
