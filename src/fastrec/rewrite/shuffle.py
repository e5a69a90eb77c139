"""Write the records of files in the order of a shuffled epoch, in bounded memory.

::

    positions -> pieces -> chunks that fit into memory -> read in file order, each record
    to its position in the chunk -> write the pieces of the chunk to the shards

Each chunk takes one sequential pass over the files. The output does not depend on the
memory limit or the threads.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.dataset.open import open as open_dataset
from fastrec.errors import Error
from fastrec.rewrite.copy import PIECE_BYTES, Written, output
from fastrec.sources.selection import even_bounds
from fastrec.sources.source import Source
from fastrec.storage.parallel import Progress
from fastrec.writer.shard_options import ShardOptions
from fastrec.writer.shards import ShardWriter

# Memory per record in addition to its frame: in the indexes of input and output, in the
# counts of compressed output, and in the sort order of a chunk.
_INDEX_BYTES, _COUNT_BYTES = 24, 32
_ORDER_BYTES = 64
_READING_BYTES = 12 << 20  # buffers of the reader threads, and the allocator's reserve
_MIN_BYTES = 4 << 20

_POSITIONS_AT_ONCE = 1 << 16  # positions whose records are looked up together
_READ_BYTES = 4 << 20  # bytes of a read task


def shuffle(
    files: Sequence[str],
    out: str,
    options: ShardOptions,
    *,
    num_shards: int = 1,
    seed: int = 0,
    memory: int,
    cache_dir: str | None = None,
    index_dir: str | None = None,
    shards: range | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Written:
    """Write the records of all files in the order of epoch 0 of a shuffled loader.

    The order is that of ``loader(shuffle=True, seed=seed)``. Shard k of n gets the
    positions ``k * len // n`` up to ``(k + 1) * len // n``. `memory` limits the bytes
    used in addition to the program, unless a single record needs more. `progress`
    receives bytes of frames, counting half for reading and half for writing. Compressed
    files are expanded to `cache_dir`; without it, they raise an Error. With `shards`,
    only these are written, and numbered from 0 in `out`.

    Raises a CorruptionError if a file is damaged, a ValueError if `memory` is too small
    for the number of records, and an OSError if a file cannot be read, written or
    replaced.
    """
    # Mapped pages would count as memory of this process.
    source = open_dataset(
        files, io="pread", cache_dir=cache_dir, index_dir=index_dir
    )._source
    _check_random_access(source)
    n_records = len(source)
    is_counted = options.compression is not None
    overhead = n_records * (_INDEX_BYTES + is_counted * _COUNT_BYTES) + _READING_BYTES
    capacity = memory - overhead
    if capacity < _MIN_BYTES:
        raise ValueError(
            f"memory must be at least {overhead + _MIN_BYTES:,} bytes for {n_records:,} "
            f"records, got {memory:,}"
        )
    bounds = even_bounds(n_records, num_shards)
    if shards is not None:
        bounds = bounds[shards.start : shards.stop + 1]
    with (
        source.files.renewing(),
        output(files, out, options, len(bounds) - 1) as writer,
    ):
        _write(source, seed, bounds, capacity, writer, progress)
    return Written(writer.files, writer.n_records, writer.n_bytes)


def _write(
    source: Source,
    seed: int,
    bounds: Sequence[int],
    capacity: int,
    writer: ShardWriter,
    progress: Progress,
) -> None:
    """Write all shards, leaving the last one open."""
    n_bytes = source.files.n_bytes
    order = _core.Order.of(_core.Shuffle.shuffled(), len(source), seed, 0)
    chunk = _Chunk(source, min(capacity, n_bytes), writer)
    shard = n_done = 0
    for pieces in _chunks(_pieces(order, source.catalog(), bounds), capacity):
        for n_read in chunk.read(pieces):
            progress((n_done + n_read + writer.n_bytes) // 2, n_bytes)
        n_done += n_read
        for piece, frames in zip(pieces, chunk.frames(), strict=True):
            for _ in range(shard, piece.shard):
                writer.cut()
            shard = piece.shard
            writer.write((frames, piece.offsets))
            progress((n_done + writer.n_bytes) // 2, n_bytes)
        writer.wait()  # before reusing the memory of the chunk
    for _ in range(shard, len(bounds) - 2):
        writer.cut()


def _check_random_access(source: Source) -> None:
    for path, content in source.files.contents():
        if content != "plain":
            error = Error(
                "a shuffle requires random access, but this file is compressed",
                path,
                code="compressed",
            )
            error.hint = (
                "Expand it once with --cache-dir DIR, or run: "
                f"fastrec reshard {shlex.quote(path)} -o DIR/"
            )
            raise error


@dataclass(frozen=True)
class _Piece:
    """Consecutive records of a shard: their numbers, and offsets of frames and end."""

    shard: int
    numbers: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.uint64]

    @property
    def n_bytes(self) -> int:
        """The size of the frames in bytes."""
        return int(self.offsets[-1])


def _pieces(
    order: _core.Order, catalog: _core.Catalog, bounds: Sequence[int]
) -> Iterator[_Piece]:
    """Yield the pieces of all shards, each of about `PIECE_BYTES`.

    Pieces become the members of GZIP files, so they must not depend on the memory limit.
    """
    for shard, (begin, end) in enumerate(itertools.pairwise(bounds)):
        numbers = np.empty(0, np.int64)
        for first in range(begin, end, _POSITIONS_AT_ONCE):
            last = min(first + _POSITIONS_AT_ONCE, end)
            more = order.records(np.arange(first, last, dtype=np.int64))
            numbers = np.concatenate([numbers, more])
            offsets = np.zeros(len(numbers) + 1, np.uint64)
            np.cumsum(catalog.frame_bytes(numbers), out=offsets[1:], dtype=np.uint64)
            at = 0
            while at < len(numbers):
                wanted = offsets[at] + np.uint64(PIECE_BYTES)
                stop = int(np.searchsorted(offsets, wanted))
                if stop > len(numbers) and last < end:
                    break
                stop = min(stop, len(numbers))
                # Copies, because a piece would keep the whole arrays alive.
                yield _Piece(
                    shard,
                    numbers[at:stop].copy(),
                    offsets[at : stop + 1] - offsets[at],
                )
                at = stop
            numbers = numbers[at:]


def _chunks(pieces: Iterator[_Piece], capacity: int) -> Iterator[list[_Piece]]:
    """Yield lists of pieces that fit into memory, with at least one piece each."""
    chunk: list[_Piece] = []
    n_free = capacity
    for piece in pieces:
        n_bytes = piece.n_bytes + len(piece.numbers) * _ORDER_BYTES
        if chunk and n_bytes > n_free:
            yield chunk
            chunk, n_free = [], capacity
        chunk.append(piece)
        n_free -= n_bytes
    if chunk:
        yield chunk


class _Chunk:
    """Memory that holds the pieces of one chunk, reused for the next."""

    def __init__(self, source: Source, n_bytes: int, writer: ShardWriter) -> None:
        self._files = source.files.table
        self._catalog = source.catalog()
        self._writer = writer
        # Pages take memory when they are first written.
        self._frames = np.empty(n_bytes, np.uint8)
        self._ends = np.zeros(1, np.int64)

    def read(self, pieces: Sequence[_Piece]) -> Iterator[int]:
        """Read the frames of all pieces; yield the approximate bytes read so far."""
        self._ends = np.cumsum([0, *(piece.n_bytes for piece in pieces)])
        n_bytes = int(self._ends[-1])
        if n_bytes > len(self._frames):
            self._frames = np.empty(0, np.uint8)  # free it before allocating
            self._frames = np.empty(n_bytes, np.uint8)
        numbers = np.concatenate([piece.numbers for piece in pieces])
        begins = np.concatenate(
            [
                piece.offsets[:-1].view(np.int64) + begin
                for piece, begin in zip(pieces, self._ends, strict=False)
            ]
        )
        by_number = np.argsort(numbers)
        numbers, begins = numbers[by_number], begins[by_number]
        n_tasks = min(len(numbers), n_bytes // _READ_BYTES + 1)
        tasks = (
            partial(
                _core.read_frames,
                self._files,
                self._catalog,
                numbers[first:last],
                begins[first:last],
                self._frames,
            )
            for first, last in itertools.pairwise(even_bounds(len(numbers), n_tasks))
        )
        for n_done, _ in enumerate(self._writer.spread(tasks), 1):
            yield n_bytes * n_done // n_tasks

    def frames(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the frames of each piece."""
        for begin, end in itertools.pairwise(self._ends):
            yield self._frames[begin:end]
