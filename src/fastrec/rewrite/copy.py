"""Copy frames to new files: reshard, split and recompress.

::

    files -> (inflate) -> frames -> verify both checksums -> shards -> (deflate) -> files

Frames (records with their headers and checksums) are copied without decoding, in order.
The files of one output are published together, when all of them are complete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

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
from fastrec.storage.stream_readers import frame_stream
from fastrec.storage.urls import redacted
from fastrec.tasks import CancelledError
from fastrec.writer.shard_names import ShardNames
from fastrec.writer.shards import Frames, ShardOptions, ShardWriter

# Frame bytes per write task. Each task writes one member of a GZIP file.
PIECE_BYTES = 1 << 20

_BYTES_AHEAD = 32 << 20
_IDLE_BYTES = 96 << 20
_SUFFIXES = {None: "", "GZIP": ".gz", "ZLIB": ".zz"}


@dataclass(frozen=True)
class Written:
    """Written files and record count; `n_bytes` is the size before compression."""

    files: list[str]
    n_records: int
    n_bytes: int


def reshard(
    files: Sequence[str],
    out: str,
    options: ShardOptions,
    num_shards: int | None = None,
    progress: Progress = lambda _done, _total: None,
    *,
    n_at_once: int = 1,
) -> Written:
    """Write the records of all files in order to one file, or to shards.

    `options` limits the size of shards. If instead `num_shards` is n, shard k gets the
    records ``k * N // n`` to ``(k + 1) * N // n - 1`` of all N. `progress` receives the
    bytes read and the total. `n_at_once` concurrent calls share the memory limits.

    Raises a CorruptionError if a file is damaged, an OSError if a file cannot be read,
    written or replaced, and a ValueError if `out` must be a shard pattern but is not.
    """
    sources = open_dataset(files)._source.files
    bounds = even_bounds(sources.n_records, num_shards) if num_shards else [0]
    counts = np.diff(bounds).tolist()
    with (
        contextlib.closing(
            _frames(sources, options.n_threads, progress, n_at_once)
        ) as pieces,
        output(files, out, options, counts) as writer,
    ):
        for piece in pieces:
            writer.write(piece)
        if num_shards is not None and writer.n_records != bounds[-1]:
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
    """Split records at random, as `Dataset.split` does, and write the parts.

    `parts` maps names to fractions; a name replaces ``{part}`` in `out`. Returns the
    results by part. Raises the errors of `reshard`, and a ValueError for invalid
    fractions or names.
    """
    check_fractions(list(parts.values()))
    paths = [part_path(out, name) for name in parts]
    sources = open_dataset(files)._source.files
    part_of = divided(sources.n_records, list(parts.values()), seed)
    pool = _core.BlockPool(_IDLE_BYTES)
    buffers = [_core.FrameBuffer(pool) for _ in parts]
    with contextlib.ExitStack() as stack:
        pieces = _frames(sources, options.n_threads, progress)
        stack.enter_context(contextlib.closing(pieces))
        writers = [stack.enter_context(output(files, path, options)) for path in paths]
        n_done = 0
        for data, offsets in pieces:
            parts_of_piece = part_of[n_done : n_done + len(offsets) - 1]
            n_done += len(offsets) - 1
            for part, (buffer, writer) in enumerate(zip(buffers, writers, strict=True)):
                selected = np.flatnonzero(parts_of_piece == part)
                n_bytes = buffer.add_frames(data, offsets.view(np.int64), selected)
                if n_bytes >= PIECE_BYTES:
                    writer.write(buffer.take())
        if n_done != len(part_of):
            raise _file_changed(files)
        for buffer, writer in zip(buffers, writers, strict=True):
            writer.write(buffer.take())
        # Complete all parts before publishing any files.
        for writer in writers:
            writer.end()
    return {name: _result(writer) for name, writer in zip(parts, writers, strict=True)}


def part_path(out: str, part: str) -> str:
    """Replace ``{part}`` in `out` by the name `part`; raise a ValueError if invalid."""
    if "{part}" not in out:
        raise ValueError(
            f"the output must contain {{part}}, the name of a part, got {redacted(out)!r}"
        )
    if not part or not set(part).isdisjoint("/\\{}\0") or part in (".", ".."):
        raise ValueError(
            f"the name of a part must be valid in a file name, got {part!r}"
        )
    return out.replace("{part}", part)


def targets_of(
    files: Sequence[str], directory: str, compression: str | None
) -> dict[str, str]:
    """Map each file to its output in `directory`, with the suffix of `compression`.

    Raises an OSError if two outputs are equal, a ValueError if one is a shard pattern.
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
    """Copy each file to its target and recompress it, several files at a time.

    Each target is published when it is complete, and remains if another file fails.
    Raises the errors of `reshard` for the first file that fails. Before any file is
    written, raises a FileExistsError if a target exists and must not be replaced. All
    copies share the threads of `options`.
    """
    names = map(ShardNames, targets.values())
    existing = [path for name in names for path in name.existing()]
    check_existing(existing, targets, overwrite=options.overwrite)
    for target in targets.values():
        if not is_remote(target):
            os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
    is_cancelled = threading.Event()
    n_at_once = max(1, min(len(targets), options.n_threads))
    # Each file gets one thread, unless there are more threads than files.
    n_threads = options.n_threads // n_at_once
    for_one = dataclasses.replace(options, n_threads=n_threads if n_threads > 1 else 0)
    n_total = sum(version_of(path)[0] for path in targets)
    n_done = dict.fromkeys(targets, 0)

    def recoded(path: str, target: str) -> Written:
        def report(done: int, _total: int) -> None:
            n_done[path] = done
            if is_cancelled.is_set():
                raise CancelledError

        return reshard([path], target, for_one, None, report, n_at_once=n_at_once)

    return run_in_threads(
        [partial(recoded, path, target) for path, target in targets.items()],
        cancel=is_cancelled.set,
        progress_text=lambda n_done, _seconds: (
            f"rewriting {len(targets)} files: {n_done} done"
        ),
        on_poll=lambda: progress(sum(n_done.values()), n_total),
        n_threads=n_at_once,
    )


def _file_changed(files: Sequence[str]) -> Error:
    return Error(
        "a file changed while it was read: its number of records differs",
        files[0] if len(files) == 1 else None,
        code="file_changed",
    )


def _result(writer: ShardWriter) -> Written:
    return Written(writer.files, writer.n_records, writer.n_bytes)


def _frames(
    sources: FileSet, n_readers: int, progress: Progress, n_at_once: int = 1
) -> Generator[Frames]:
    """Verify the frames of files, and yield pieces of about `PIECE_BYTES` bytes."""
    contents = sources.contents()
    n_total = sum(version_of(path)[0] for path in sources.files)
    n_read = [0] * len(contents)  # bytes of each file, set by the reader threads
    pool = _core.BlockPool(_IDLE_BYTES // n_at_once)
    is_plain = all(content == "plain" for _, content in contents)
    with frame_stream(
        *(contents, sources.table, range(len(contents)), "raise"),
        n_readers=1 if is_plain else n_readers,
        bytes_ahead=_BYTES_AHEAD // n_at_once,
        on_read=n_read.__setitem__,
    ) as stream:
        while True:
            frames = stream.read_frames(pool, 2**63, PIECE_BYTES)
            progress(sum(n_read), n_total)
            if len(frames[1]) == 1:
                return
            yield frames


@contextlib.contextmanager
def output(
    files: Sequence[str], out: str, options: ShardOptions, counts: Sequence[int] = ()
) -> Iterator[ShardWriter]:
    """Yield a writer for the shards of `out`; publish them unless an error occurs.

    `counts` has the number of records of each shard; if empty, `options` limits shards.
    """
    names = ShardNames(out)
    is_limited = options.max_bytes is not None or options.max_records is not None
    if not names.is_pattern and (len(counts) > 1 or is_limited):
        raise ValueError(
            "several shards require a shard pattern such as "
            f'"train-{{shard:05d}}-of-{{num_shards:05d}}.tfrecord", got {redacted(out)!r}'
        )
    check_existing(names.existing(), files, overwrite=options.overwrite)
    together = dataclasses.replace(options, together=True)
    writer = ShardWriter(names, together, counts=counts)
    try:
        yield writer
        writer.close()
    finally:
        writer.discard()


def check_existing(
    existing: Iterable[str], files: Iterable[str], *, overwrite: bool
) -> None:
    """Raise a FileExistsError if an output exists and must not be replaced."""
    inputs: set[object] = set()
    for path in existing:
        inputs = inputs or set(map(_identity, files))
        if _identity(path) in inputs:
            reason = "cannot overwrite an input file"
        elif not overwrite:
            reason = "the file exists; --overwrite replaces it"
        else:
            continue
        raise FileExistsError(errno.EEXIST, reason, path)


def _identity(path: str) -> object:
    """Return a file's device and inode, or the path if it is remote or missing."""
    with contextlib.suppress(OSError):  # for a dangling link
        if not is_remote(path):
            status = os.stat(path)
            return status.st_dev, status.st_ino
    return path
