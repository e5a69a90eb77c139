"""Copy frames to new files: reshard, split and recompress.

::

    files -> (inflate) -> frames -> verify both checksums -> shards -> (deflate) -> files

Frames are copied with their checksums, without decoding. Records keep their order. Files
are published when all are complete, so an error leaves no files.
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
from fastrec.sources.selection import check_fractions, divided, even_bounds
from fastrec.storage.compression import plain_name
from fastrec.storage.parallel import Progress, run_in_threads
from fastrec.storage.paths import is_remote, version_of
from fastrec.storage.remote import RemotePath
from fastrec.storage.stream_readers import byte_streams
from fastrec.storage.urls import redacted
from fastrec.tasks import CancelledError
from fastrec.writer.shard_names import ShardNames
from fastrec.writer.shard_options import ShardOptions
from fastrec.writer.shards import Frames, ShardWriter

PIECE_BYTES = (
    1 << 20
)  # bytes of frames that a task writes, in one member of a GZIP file

_BYTES_AHEAD = 32 << 20
_IDLE_BYTES = 96 << 20
_SUFFIXES = {None: "", "GZIP": ".gz", "ZLIB": ".zz"}


@dataclass(frozen=True)
class Written:
    """The files of a rewrite; `n_bytes` counts frames, before compression."""

    files: list[str]
    n_records: int
    n_bytes: int


def reshard(
    files: Sequence[str],
    out: str,
    options: ShardOptions,
    num_shards: int | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Written:
    """Write the records of all files in order to one file, or to shards.

    `options` limits the size of shards. With `num_shards`, shard k of n gets the records
    ``k * len // n`` up to ``(k + 1) * len // n`` instead. `progress` receives the bytes
    read so far and their total.

    Raises a CorruptionError if a file is damaged, an OSError if a file cannot be read,
    written or replaced, and a ValueError if several shards have no pattern.
    """
    sources = _open_files(files)
    is_counted = num_shards is not None
    bounds = even_bounds(sources.n_records, num_shards) if num_shards else [0, _ALL]
    with (
        _reading(sources, options.n_threads, progress) as read,
        output(files, out, options, num_shards or 1) as writer,
    ):
        for shard, (begin, end) in enumerate(itertools.pairwise(bounds)):
            if shard:
                writer.cut()
            while begin < end and (n := _n_records(piece := read(end - begin))):
                begin += n
                writer.write(piece)
            if is_counted and begin < end:
                raise _file_changed(files)
        if is_counted and _n_records(read(1)):
            raise _file_changed(files)
    return _result(writer)


def split(
    files: Sequence[str],
    out: str,
    parts: Mapping[str, float],
    options: ShardOptions,
    seed: int = 0,
    progress: Progress = lambda _done, _total: None,
) -> dict[str, Written]:
    """Split records at random like `Dataset.split`, and write each part.

    `parts` maps names to fractions; a name replaces ``{part}`` in `out`. Returns the
    files of each part. Raises the errors of `reshard`, and a ValueError for invalid
    fractions or names.
    """
    check_fractions(list(parts.values()))
    paths = [part_path(out, name) for name in parts]
    sources = _open_files(files)
    part_of = divided(sources.n_records, list(parts.values()), seed)
    pool = _core.BlockPool(_IDLE_BYTES)
    buffers = [_core.FrameBuffer(pool) for _ in parts]
    with contextlib.ExitStack() as stack:
        read = stack.enter_context(_reading(sources, options.n_threads, progress))
        writers = [stack.enter_context(output(files, path, options)) for path in paths]
        n_done = 0
        while n := _n_records(piece := read(_ALL)):
            data, offsets = piece
            parts_of_piece = part_of[n_done : n_done + n]
            n_done += n
            if n_done > len(part_of):
                break
            for part, (buffer, writer) in enumerate(zip(buffers, writers, strict=True)):
                selected = np.flatnonzero(parts_of_piece == part)
                n_bytes = buffer.add_frames(data, offsets.view(np.int64), selected)
                if n_bytes >= PIECE_BYTES:
                    writer.write(buffer.take())
        if n_done != len(part_of):
            raise _file_changed(files)
        for buffer, writer in zip(buffers, writers, strict=True):
            writer.write(buffer.take())
        # Complete all parts before the first one is published.
        for writer in writers:
            writer.end()
    return {name: _result(writer) for name, writer in zip(parts, writers, strict=True)}


def part_path(out: str, part: str) -> str:
    """Return the path of a part: `out` with ``{part}`` replaced by its name."""
    if "{part}" not in out:
        raise ValueError(
            f"the output must contain {{part}}, the name of a part, got {redacted(out)!r}"
        )
    if not part or not set(part).isdisjoint("/\\{}\0") or part in (".", ".."):
        raise ValueError(
            f"the name of a part must be valid in a file name, got {part!r}"
        )
    return out.replace("{part}", part)


# File by file.


def targets_of(
    files: Sequence[str], directory: str, compression: str | None
) -> dict[str, str]:
    """Return the target of each file: its name, with the suffix of `compression`.

    Raises an OSError if two targets are equal, a ValueError if one is a pattern.
    """
    targets: dict[str, str] = {}
    sources: dict[str, str] = {}
    for path in files:
        name = plain_name(path) + _SUFFIXES[compression]
        target = os.path.join(directory, name)
        if ShardNames(target).is_pattern:
            raise ValueError(
                f"cannot write {target!r}: it is a shard pattern; rename {path!r}"
            )
        if sources.setdefault(target, path) != path:
            reason = f"both {printable(sources[target])} and {printable(path)} have this output"
            raise FileExistsError(errno.EEXIST, reason, target)
        targets[path] = target
    return targets


def recode(
    targets: Mapping[str, str],
    options: ShardOptions,
    progress: Progress = lambda _done, _total: None,
) -> list[Written]:
    """Copy each file to its target with other compression, several files at a time.

    A file is published when it is complete, and stays after an error in another file.
    Raises the errors of `reshard` for the first file that fails. Existing targets are
    checked before the first file is written. All files together use the threads of
    `options`.
    """
    existing = [
        path for target in targets.values() for path in ShardNames(target).existing()
    ]
    check_existing(existing, targets, overwrite=options.overwrite)
    local = [target for target in targets.values() if not is_remote(target)]
    for directory in {os.path.dirname(target) for target in local}:
        os.makedirs(directory or ".", exist_ok=True)
    is_cancelled = threading.Event()
    n_at_once = max(1, min(len(targets), options.n_threads))
    # One thread per file does all of its work, unless there are more threads than files.
    n_threads = options.n_threads // n_at_once
    for_one = dataclasses.replace(options, n_threads=n_threads if n_threads > 1 else 0)
    bytes_read = _BytesRead(list(targets))

    def recoded(number: int, path: str, target: str) -> Written:
        sources = _open_files([path])
        with (
            _frames(sources, 1, n_at_once, partial(bytes_read.set, number)) as read,
            _writer(ShardNames(target), for_one) as writer,
        ):
            while _n_records(piece := read(_ALL)):
                writer.write(piece)
                if is_cancelled.is_set():
                    raise CancelledError
        return _result(writer)

    return run_in_threads(
        [
            partial(recoded, number, path, target)
            for number, (path, target) in enumerate(targets.items())
        ],
        cancel=is_cancelled.set,
        progress_text=lambda n_done, _seconds: (
            f"rewriting {len(targets)} files: {n_done} done"
        ),
        on_poll=lambda: bytes_read.report(progress),
        n_threads=n_at_once,
    )


# Reading.

_ALL = 2**63


def _open_files(files: Sequence[str]) -> FileSet:
    return open_dataset(files)._source.files


def _n_records(frames: Frames) -> int:
    return len(frames[1]) - 1


def _file_changed(files: Sequence[str]) -> Error:
    return Error(
        "a file changed while it was read: its number of records differs",
        files[0] if len(files) == 1 else None,
        code="file_changed",
    )


class _BytesRead:
    """The bytes read of each file, set by the reader threads."""

    def __init__(self, files: Sequence[str]) -> None:
        self._n_bytes = [0] * len(files)
        self.n_total = sum(version_of(path)[0] for path in files)

    def set(self, first: int, file: int, n_bytes: int) -> None:
        """Set the bytes read of file ``first + file``."""
        self._n_bytes[first + file] = n_bytes

    def report(self, progress: Progress) -> None:
        """Call `progress` with the bytes read of all files."""
        progress(sum(self._n_bytes), self.n_total)


@contextlib.contextmanager
def _reading(
    sources: FileSet, n_threads: int, progress: Progress
) -> Iterator[Callable[[int], Frames]]:
    """Yield the function of `_frames`, wrapped to report progress."""
    bytes_read = _BytesRead(sources.files)
    is_compressed = any(content != "plain" for _, content in sources.contents())
    n_readers = max(1, n_threads) if is_compressed else 1
    with _frames(sources, n_readers, 1, partial(bytes_read.set, 0)) as read:

        def read_and_report(n_records_max: int) -> Frames:
            piece = read(n_records_max)
            bytes_read.report(progress)
            return piece

        yield read_and_report


@contextlib.contextmanager
def _frames(
    sources: FileSet,
    n_readers: int,
    n_sharing: int,
    on_read: Callable[[int, int], object],
) -> Iterator[Callable[[int], Frames]]:
    """Yield a function that returns the next frames of files, after verifying them.

    Its argument is the maximum number of frames. It returns about `PIECE_BYTES`, and no
    frames at the end. `n_sharing` concurrent calls share the memory limits.
    """
    contents = sources.contents()
    pool = _core.BlockPool(_IDLE_BYTES // n_sharing)
    with byte_streams(
        contents,
        n_readers=n_readers,
        bytes_ahead=_BYTES_AHEAD // n_sharing,
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
    files: Sequence[str], out: str, options: ShardOptions, num_shards: int = 1
) -> Iterator[ShardWriter]:
    """Yield a writer of `out`; close it at the end, or discard it after an error."""
    names = ShardNames(out)
    is_limited = options.max_bytes is not None or options.max_records is not None
    if not names.is_pattern and (num_shards > 1 or is_limited):
        raise ValueError(
            "several shards require a shard pattern such as "
            f'"train-{{shard:05d}}-of-{{num_shards:05d}}.tfrecord", got {redacted(out)!r}'
        )
    check_existing(names.existing(), files, overwrite=options.overwrite)
    with _writer(names, options) as writer:
        yield writer


@contextlib.contextmanager
def _writer(names: ShardNames, options: ShardOptions) -> Iterator[ShardWriter]:
    writer = ShardWriter(names, dataclasses.replace(options, together=True))
    try:
        yield writer
        writer.close()
    finally:
        writer.discard()


def check_existing(
    existing: Iterable[str], files: Iterable[str], *, overwrite: bool
) -> None:
    """Raise a FileExistsError if an existing file must not be replaced."""
    inputs: set[_Identity] = set()
    for path in existing:
        inputs = inputs or {_identity(file) for file in files}
        if _identity(path) in inputs:
            reason = "cannot overwrite an input file"
        elif not overwrite:
            reason = "the file exists; --overwrite replaces it"
        else:
            continue
        raise FileExistsError(errno.EEXIST, reason, path)


_Identity: TypeAlias = "tuple[int, int] | str"


def _identity(path: str) -> _Identity:
    """Return the identity of a file, which is the same for all links to it."""
    if isinstance(path, RemotePath):
        return path
    try:
        status = os.stat(path)
    except OSError:
        return path  # a dangling link
    return status.st_dev, status.st_ino


def _result(writer: ShardWriter) -> Written:
    return Written(writer.files, writer.n_records, writer.n_bytes)
