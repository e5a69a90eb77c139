"""Write the records of files in the order of a shuffled epoch, in bounded memory.

::

    positions -> pieces -> chunks that fit into memory -> read in file order, each record
    to its position in the chunk -> write the pieces of the chunk to the shards

Each chunk needs one sequential pass over the files. The output does not depend on the
memory limit or the number of threads.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.dataset.open import open as open_dataset
from fastrec.errors import Error
from fastrec.rewrite.copy import PIECE_BYTES, Written, output
from fastrec.sources.selection import even_bounds
from fastrec.storage.parallel import Progress
from fastrec.writer.shards import ShardOptions

# Memory per record in addition to its frame: for the indexes of input and output, for
# the counts of compressed output, and for the sort order of a chunk.
_INDEX_BYTES, _COUNT_BYTES = 24, 32
_ORDER_BYTES = 64
_READING_BYTES = 12 << 20  # buffers of the reader threads, and the allocator's reserve
_MIN_BYTES = 4 << 20

_POSITIONS_AT_ONCE = 1 << 16  # positions whose records are looked up together
_READ_BYTES = 4 << 20  # bytes per read task

# Consecutive records of a shard: record numbers and frame sizes.
_Piece: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


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
    """Write the records of all files in the order of a shuffled loader's first epoch.

    The loader is ``loader(shuffle=True, seed=seed)``. Of N records in this order, shard
    k of n gets ``k * N // n`` to ``(k + 1) * N // n - 1``. `memory` limits the bytes
    used in addition to the program, unless a single record needs more. `progress`
    receives half of the bytes read plus written, and the total. Compressed files are
    expanded to `cache_dir`; without `cache_dir`, they raise an Error. `shards` selects
    shards to write; the names of the written files are numbered from 0.

    Raises a CorruptionError if a file is damaged, a ValueError if `memory` is too small
    for the number of records, and an OSError if a file cannot be read, written or
    replaced.
    """
    # Mapped pages would count as memory of this process.
    source = open_dataset(
        files, io="pread", cache_dir=cache_dir, index_dir=index_dir
    )._source
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
        output(files, out, options, np.diff(bounds).tolist()) as writer,
    ):
        catalog, n_total = source.catalog(), source.files.n_bytes
        order = _core.Order.of(_core.Shuffle.shuffled(), n_records, seed, 0)
        # Pages take memory when they are first written.
        frames = np.empty(min(capacity, n_total), np.uint8)
        for pieces in _chunks(_pieces(order, catalog, bounds), capacity):
            numbers = np.concatenate([numbers for numbers, _ in pieces])
            sizes = np.concatenate([sizes for _, sizes in pieces])
            offsets = np.zeros(len(sizes) + 1, np.int64)
            np.cumsum(sizes, out=offsets[1:])
            n_bytes, n_done = int(offsets[-1]), writer.n_bytes
            if n_bytes > len(frames):
                del frames  # free memory before allocating
                frames = np.empty(n_bytes, np.uint8)
            n_tasks = min(len(numbers), n_bytes // _READ_BYTES + 1)
            read = partial(_core.read_frames, source.files.table, catalog)
            reads = (
                partial(read, numbers[rows], offsets[rows], frames)
                for rows in np.array_split(np.argsort(numbers), n_tasks)
            )
            for n_read, _ in enumerate(writer.spread(reads), 1):
                progress(n_done + n_bytes * n_read // n_tasks // 2, n_total)
            first = 0
            for piece, _ in pieces:
                ends = offsets[first : first + len(piece) + 1]
                first += len(piece)
                relative = (ends - ends[0]).astype(np.uint64)
                writer.write((frames[ends[0] : ends[-1]], relative))
                progress((n_done + n_bytes + writer.n_bytes) // 2, n_total)
            writer.wait()  # before reusing memory
    return Written(writer.files, writer.n_records, writer.n_bytes)


def _pieces(
    order: _core.Order, catalog: _core.Catalog, bounds: Sequence[int]
) -> Iterator[_Piece]:
    """Split all shards into pieces of about `PIECE_BYTES` bytes; yield the pieces.

    Each piece becomes a member of a GZIP file, so the memory limit must not affect it.
    """
    for begin, end in itertools.pairwise(bounds):
        for first in range(begin, end, _POSITIONS_AT_ONCE):
            last = min(first + _POSITIONS_AT_ONCE, end)
            numbers = order.records(np.arange(first, last, dtype=np.int64))
            sizes = np.diff(catalog.places(numbers)[:, 2:]).ravel()
            begins = np.cumsum(sizes) - sizes
            cuts = np.flatnonzero(np.diff(begins // PIECE_BYTES)) + 1
            yield from zip(np.split(numbers, cuts), np.split(sizes, cuts), strict=True)


def _chunks(pieces: Iterator[_Piece], capacity: int) -> Iterator[list[_Piece]]:
    """Group pieces into chunks of up to `capacity` bytes, but of at least one piece."""
    chunk: list[_Piece] = []
    n_free = capacity
    for numbers, sizes in pieces:
        n_bytes = int(sizes.sum()) + len(numbers) * _ORDER_BYTES
        if chunk and n_bytes > n_free:
            yield chunk
            chunk, n_free = [], capacity
        chunk.append((numbers, sizes))
        n_free -= n_bytes
    if chunk:
        yield chunk
