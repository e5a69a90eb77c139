"""Rewriting: the frames of files -> other files, byte for byte.

::

    files -> (inflate) -> frames -> both checksums proven -> shards -> (deflate) -> files

Nothing is decoded or encoded, and the checksums are copied. Records keep their order. No
file gets its name before all of them are complete, so an error leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from fastrec import _core
from fastrec.dataset.open import open as open_dataset
from fastrec.errors import Error
from fastrec.printable import printable
from fastrec.sources.file_set import FileSet
from fastrec.sources.random_split import check_fractions, divided, even_bounds
from fastrec.storage.compression import plain_name
from fastrec.storage.parallel import Progress, run_in_threads
from fastrec.storage.stream_readers import byte_streams
from fastrec.tasks import CancelledError
from fastrec.writer.shard_names import ShardNames
from fastrec.writer.shards import Frames, Sharding, ShardWriter

__all__ = [
    "PIECE_BYTES",
    "Written",
    "output",
    "part_path",
    "recode",
    "reshard",
    "split",
    "targets_of",
]

# Written at once: the members of GZIP files, and the work of a thread.
PIECE_BYTES = 1 << 20

_BYTES_AHEAD = 32 << 20
_IDLE_BYTES = 96 << 20
_SUFFIXES = {None: "", "GZIP": ".gz", "ZLIB": ".zz"}


@dataclass(frozen=True)
class Written:
    """What was written; `n_bytes` is that of the frames, before compression."""

    files: list[str]
    n_records: int
    n_bytes: int


def reshard(
    files: Sequence[str],
    out: str,
    sharding: Sharding,
    num_shards: int | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Written:
    """Write the records of all files to one file, or to shards, in their order.

    `sharding` limits the shards, unless their number is given: then shard k of n gets the
    records ``k * len // n`` up to ``(k + 1) * len // n``. `progress` gets the bytes of the
    files that are read, and of all.

    Raises a CorruptionError if a file is damaged, an OSError if a file cannot be read or
    written or may not be replaced, and a ValueError if several shards have no pattern.
    """
    sources = _opened(files)
    is_counted = num_shards is not None
    bounds = even_bounds(sources.n_records, num_shards) if num_shards else [0, _ALL]
    with (
        _reading(sources, sharding.n_threads, progress) as read,
        output(files, out, sharding, num_shards or 1) as writer,
    ):
        for shard, (begin, end) in enumerate(itertools.pairwise(bounds)):
            if shard:
                writer.cut()
            while begin < end and (n := _n_records(piece := read(end - begin))):
                begin += n
                writer.write(piece)
            if is_counted and begin < end:
                raise _changed(files)
        if is_counted and _n_records(read(1)):
            raise _changed(files)
    return _result(writer)


def split(
    files: Sequence[str],
    out: str,
    parts: Mapping[str, float],
    sharding: Sharding,
    seed: int = 0,
    progress: Progress = lambda _done, _total: None,
) -> dict[str, Written]:
    """Divide records at random, as `Dataset.split` does, and write each part.

    `parts` has the share of each part; its name replaces ``{part}`` in `out`. Returns what
    was written, by part. Raises as `reshard`, and a ValueError for wrong shares or names.
    """
    check_fractions(list(parts.values()))
    paths = [part_path(out, name) for name in parts]
    sources = _opened(files)
    part_of = divided(sources.n_records, list(parts.values()), seed)
    pool = _core.BlockPool(_IDLE_BYTES)
    buffers = [_core.FrameBuffer(pool) for _ in parts]
    with contextlib.ExitStack() as stack:
        read = stack.enter_context(_reading(sources, sharding.n_threads, progress))
        writers = [stack.enter_context(output(files, path, sharding)) for path in paths]
        n_done = 0
        while n := _n_records(piece := read(_ALL)):
            data, offsets = piece
            here = part_of[n_done : n_done + n]
            n_done += n
            if n_done > len(part_of):
                break
            for part, (buffer, writer) in enumerate(zip(buffers, writers, strict=True)):
                chosen = np.flatnonzero(here == part)
                n_bytes = buffer.add_frames(data, offsets.view(np.int64), chosen)
                if n_bytes >= PIECE_BYTES:
                    writer.write(buffer.take())
        if n_done != len(part_of):
            raise _changed(files)
        for buffer, writer in zip(buffers, writers, strict=True):
            writer.write(buffer.take())
        # All parts are on the disk before the first one appears.
        for writer in writers:
            writer.end()
    return {name: _result(writer) for name, writer in zip(parts, writers, strict=True)}


def part_path(out: str, part: str) -> str:
    """Return where a part is written: `out` with its name in place of ``{part}``."""
    if "{part}" not in out:
        msg = f"{out!r} has no {{part}}, which the name of a part replaces"
        raise ValueError(msg)
    if not part or not set(part).isdisjoint("/\\{}\0") or part in (".", ".."):
        msg = f"the name of a part must be that of a file, got {part!r}"
        raise ValueError(msg)
    return out.replace("{part}", part)


# File by file.


def targets_of(
    files: Sequence[str], directory: str, compression: str | None
) -> dict[str, str]:
    """Return the target of each file: its name, with the suffix of `compression`.

    Raises an OSError if two targets are the same, a ValueError if one is a pattern.
    """
    targets: dict[str, str] = {}
    sources: dict[str, str] = {}
    for path in files:
        name = plain_name(path) + _SUFFIXES[compression]
        target = os.path.join(directory, name)  # noqa: PTH118 (as the user wrote it)
        if ShardNames(target).is_pattern:
            msg = f"{target!r} would be a pattern of shards: rename {path!r}"
            raise ValueError(msg)
        if sources.setdefault(target, path) != path:
            reason = (
                f"this would be both {printable(sources[target])} and {printable(path)}"
            )
            raise FileExistsError(errno.EEXIST, reason, target)
        targets[path] = target
    return targets


def recode(
    targets: Mapping[str, str],
    sharding: Sharding,
    progress: Progress = lambda _done, _total: None,
) -> list[Written]:
    """Write each file to its target, several at a time.

    A file gets its name when it is complete. After an error, complete ones keep it. Raises
    as `reshard`, for the first file that fails; files that may not be replaced are found
    before anything is written. The threads of `sharding` are those of all files together.
    """
    existing = filter(os.path.lexists, targets.values())
    _refuse(existing, targets, overwrite=sharding.overwrite)
    for directory in {os.path.dirname(target) for target in targets.values()}:  # noqa: PTH120
        os.makedirs(directory or ".", exist_ok=True)  # noqa: PTH103
    is_cancelled = threading.Event()
    n_at_once = max(1, min(len(targets), sharding.n_threads))
    # A thread of a file does all of its work, unless there are more than files.
    n_threads = sharding.n_threads // n_at_once
    for_one = dataclasses.replace(sharding, n_threads=n_threads if n_threads > 1 else 0)
    so_far = _ReadSoFar(list(targets))

    def recoded(number: int, path: str, target: str) -> Written:
        sources = _opened([path])
        with (
            _frames(sources, 1, n_at_once, partial(so_far.add, number)) as read,
            _writer(ShardNames(target), for_one) as writer,
        ):
            while _n_records(piece := read(_ALL)):
                if is_cancelled.is_set():
                    raise CancelledError
                writer.write(piece)
        return _result(writer)

    return run_in_threads(
        [
            partial(recoded, number, path, target)
            for number, (path, target) in enumerate(targets.items())
        ],
        cancel=is_cancelled.set,
        progress_text=lambda n_done, _seconds: (
            f"rewriting {len(targets)} files: {n_done} so far"
        ),
        on_poll=lambda: so_far.report(progress),
        n_threads=n_at_once,
    )


# Reading.

_ALL = 2**63


def _opened(files: Sequence[str]) -> FileSet:
    return open_dataset(files)._view.files


def _n_records(frames: Frames) -> int:
    return len(frames[1]) - 1


def _changed(files: Sequence[str]) -> Error:
    return Error(
        "a file changed while it was read: it has other records than were counted",
        files[0] if len(files) == 1 else None,
        code="file_changed",
    )


class _ReadSoFar:
    """How many bytes of each file were read; the reader threads update it."""

    def __init__(self, files: Sequence[str]) -> None:
        self._n_bytes = [0] * len(files)
        self.n_total = sum(os.stat(path).st_size for path in files)  # noqa: PTH116

    def add(self, first: int, file: int, n_bytes: int) -> None:
        """Set the bytes read of a file, counted from file `first` on."""
        self._n_bytes[first + file] = n_bytes

    def report(self, progress: Progress) -> None:
        """Call `progress` with the bytes read of all files."""
        progress(sum(self._n_bytes), self.n_total)


@contextlib.contextmanager
def _reading(
    sources: FileSet, n_threads: int, progress: Progress
) -> Iterator[Callable[[int], Frames]]:
    """Yield the function of `_frames`, which also reports its progress."""
    so_far = _ReadSoFar(sources.files)
    is_compressed = any(content != "plain" for _, content in sources.contents())
    n_readers = max(1, n_threads) if is_compressed else 1
    with _frames(sources, n_readers, 1, partial(so_far.add, 0)) as read:

        def read_and_report(n_records_max: int) -> Frames:
            piece = read(n_records_max)
            so_far.report(progress)
            return piece

        yield read_and_report


@contextlib.contextmanager
def _frames(
    sources: FileSet,
    n_readers: int,
    n_others: int,
    on_read: Callable[[int, int], object],
) -> Iterator[Callable[[int], Frames]]:
    """Yield a function that returns the next frames of files, both checksums proven.

    It returns about `PIECE_BYTES`, at most as many frames as it is asked for, and none at
    the end. `n_others` readings share the memory.
    """
    contents = sources.contents()
    pool = _core.BlockPool(_IDLE_BYTES // n_others)
    with byte_streams(
        contents,
        n_readers=n_readers,
        bytes_ahead=_BYTES_AHEAD // n_others,
        on_read=on_read,
    ) as streams:
        try:
            stream = _core.FrameStream(
                streams, sources.table, list(range(len(contents))), "raise"
            )
            yield lambda n_records_max: stream.read_frames(
                pool, n_records_max, PIECE_BYTES
            )
        finally:
            streams.stop()


# Writing.


@contextlib.contextmanager
def output(
    files: Sequence[str], out: str, sharding: Sharding, num_shards: int = 1
) -> Iterator[ShardWriter]:
    """Yield a writer of `out`, and close it at the end; after an error, nothing is left."""
    names = ShardNames(out)
    is_limited = sharding.max_bytes is not None or sharding.max_records is not None
    if not names.is_pattern and (num_shards > 1 or is_limited):
        msg = (
            "several shards need a pattern, such as "
            f'"train-{{shard:05d}}-of-{{num_shards:05d}}.tfrecord", got {out!r}'
        )
        raise ValueError(msg)
    _refuse(names.existing(), files, overwrite=sharding.overwrite)
    with _writer(names, sharding) as writer:
        yield writer


@contextlib.contextmanager
def _writer(names: ShardNames, sharding: Sharding) -> Iterator[ShardWriter]:
    writer = ShardWriter(names, dataclasses.replace(sharding, together=True))
    try:
        yield writer
        writer.close()
    finally:
        writer.discard()


def _refuse(existing: Iterable[str], files: Iterable[str], *, overwrite: bool) -> None:
    """Raise a FileExistsError if an existing file may not be replaced."""
    read: set[_Identity] = set()
    for path in existing:
        read = read or {_identity(file) for file in files}
        if _identity(path) in read:
            reason = "it is one of the files to read"
        elif not overwrite:
            reason = "it is there already (--overwrite replaces it)"
        else:
            continue
        raise FileExistsError(errno.EEXIST, reason, path)


_Identity: TypeAlias = "tuple[int, int] | str"


def _identity(path: str) -> _Identity:
    """Return what all names of a file share."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return path  # a link to nothing
    return status.st_dev, status.st_ino


def _result(writer: ShardWriter) -> Written:
    return Written(writer.files, writer.n_records, writer.n_bytes)
