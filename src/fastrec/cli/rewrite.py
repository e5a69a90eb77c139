"""``fastrec shuffle``, ``reshard`` and ``split``: rewrite records to new files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fastrec.cli.arguments import (
    AsJson,
    Compression,
    CompressionOption,
    MaxShardBytes,
    NumShards,
    Overwrite,
    RayAddress,
    Seed,
    Threads,
    compression_of,
    out_option,
    size_in_bytes,
)
from fastrec.cli.files import (
    check_suffix,
    files_of,
    indexed,
    print_written,
    reports_interrupt,
)
from fastrec.cli.terminal import progress_bar
from fastrec.options import default_num_threads
from fastrec.rewrite import copy
from fastrec.rewrite import shuffle as shuffling
from fastrec.storage.compression import contents_of
from fastrec.storage.urls import redacted
from fastrec.writer.shard_names import ShardNames
from fastrec.writer.shards import ShardOptions

_DEFAULT_SHARD_BYTES = 200_000_000

_Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="Files, directories (searched recursively), globs in quotes, or - for "
        "stdin, in this order. The files of a glob or directory are sorted by name.",
    ),
]
_Level = Annotated[
    int | None, typer.Option(min=0, max=9, help="zlib level; 6 by default.")
]
_MaxShardRecords = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of records in a shard.")
]
_NoSync = Annotated[
    bool,
    typer.Option(
        "--no-sync", help="Do not flush files to the disk before renaming them."
    ),
]


def shuffle(
    paths: _Inputs,
    *,
    out: Annotated[
        str, out_option('A file, or a pattern such as "train-{shard:05d}.tfrecord".')
    ],
    num_shards: NumShards = None,
    seed: Seed = 0,
    memory: Annotated[
        int,
        typer.Option(
            metavar="SIZE",
            parser=size_in_bytes,
            show_default="1GB",
            help="Maximum memory. With less, the files are read more often.",
        ),
    ] = 1_000_000_000,
    cache_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Decompress files to DIR, each once."),
    ] = None,
    compression: CompressionOption = Compression.NONE,
    level: _Level = None,
    overwrite: Overwrite = False,
    no_sync: _NoSync = False,
    threads: Threads = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Write all records in the order of a shuffled epoch, in bounded memory.

    The order matches the first epoch of loader(shuffle=True, seed=SEED). Frames are
    copied byte for byte, and both checksums are verified. Output files appear when all
    are complete. With --ray, one task writes each shard, and --memory limits each task.
    """
    options = _shard_options(out, compression, level, overwrite, no_sync, threads)
    files = files_of(paths, joins=True)
    arguments: dict[str, Any] = {
        "num_shards": num_shards or 1,
        "seed": seed,
        "memory": memory,
        "cache_dir": None if cache_dir is None else str(cache_dir),
    }
    with reports_interrupt(ShardNames(out).existing):
        if ray is None:
            if cache_dir is None:
                _index(files)
            rewrite = partial(shuffling.shuffle, files, out, options, **arguments)
            _run("shuffling", lambda show: [rewrite(progress=show)], as_json=as_json)
            return
        from fastrec.ray import jobs  # slow to import

        rewrite = partial(jobs.shuffle_files, files, out, options, **arguments)
        with jobs.cluster(ray):
            _run("shuffling", lambda show: [rewrite(progress=show)], as_json=as_json)


def reshard(
    paths: _Inputs,
    *,
    out: Annotated[
        str,
        out_option(
            'A pattern such as "train-{shard:05d}-of-{num_shards:05d}.tfrecord" for '
            "shards; a file, to join all files; or a directory (DIR/ or an existing one), "
            "to write each file under its own name."
        ),
    ],
    num_shards: NumShards = None,
    max_shard_bytes: MaxShardBytes = None,
    max_shard_records: _MaxShardRecords = None,
    compression: CompressionOption = Compression.NONE,
    level: _Level = None,
    overwrite: Overwrite = False,
    no_sync: _NoSync = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite records in order, with another shard count, shard size or compression.

    With a pattern, a shard has at most 200 MB by default, and all files appear when all
    are complete. In a directory, each file appears when it is complete. Its suffix,
    such as .gz, follows --compression. Frames are copied byte for byte, and both
    checksums are verified.
    """
    limits = num_shards, max_shard_bytes, max_shard_records
    n_limits = len(limits) - limits.count(None)
    if n_limits > 1:
        raise typer.BadParameter(
            "use only one of --num-shards, --max-shard-bytes and --max-shard-records"
        )
    is_directory = out.endswith(os.sep) or Path(out).is_dir()
    if is_directory and n_limits:
        raise typer.BadParameter(
            "a shard count or size requires a pattern, got the directory "
            f"{redacted(out)}",
            param_hint="--out",
        )
    if not n_limits and not is_directory and ShardNames(out).is_pattern:
        max_shard_bytes = _DEFAULT_SHARD_BYTES
    shard = max_shard_bytes, max_shard_records
    options = _shard_options(
        out, compression, level, overwrite, no_sync, threads, shard
    )
    files = files_of(paths, joins=not is_directory)
    if is_directory:
        targets = copy.targets_of(files, out, options.compression)
        rewrite: Any = partial(copy.recode, targets, options)
        with reports_interrupt(targets.values):
            _run("rewriting", lambda show: rewrite(progress=show), as_json=as_json)
        return
    rewrite = partial(copy.reshard, files, out, options, num_shards)
    with reports_interrupt(ShardNames(out).existing):
        if num_shards is not None:
            _index(files)
        _run("resharding", lambda show: [rewrite(progress=show)], as_json=as_json)


def split(
    paths: _Inputs,
    *,
    out: Annotated[
        str, out_option('Pattern: "{part}.tfrecord" or "{part}-{shard:05d}.tfrecord".')
    ],
    parts: Annotated[
        str,
        typer.Option(
            metavar="NAME=FRACTION,...",
            help="Parts such as train=0.9,valid=0.1; the sum is at most 1.",
        ),
    ],
    seed: Seed = 0,
    max_shard_bytes: MaxShardBytes = None,
    max_shard_records: _MaxShardRecords = None,
    compression: CompressionOption = Compression.NONE,
    level: _Level = None,
    overwrite: Overwrite = False,
    no_sync: _NoSync = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Split the records at random, and write each part to separate files.

    The parts match Dataset.split, and each part keeps its records in order. Frames are
    copied byte for byte, and both checksums are verified. The files of all parts appear
    when all are complete.
    """
    if "{shard" in out and max_shard_bytes is None and max_shard_records is None:
        max_shard_bytes = _DEFAULT_SHARD_BYTES
    shard = max_shard_bytes, max_shard_records
    options = _shard_options(
        out, compression, level, overwrite, no_sync, threads, shard
    )
    fractions = _fractions(parts)
    names = [ShardNames(copy.part_path(out, part)) for part in fractions]
    files = files_of(paths, joins=True)
    rewrite = partial(copy.split, files, out, fractions, options, seed)
    with reports_interrupt(
        lambda: [path for name in names for path in name.existing()]
    ):
        _index(files)
        _run("splitting", lambda show: rewrite(show).values(), as_json=as_json)


# Shared by the commands.


def _shard_options(
    out: str,
    compression: Compression,
    level: int | None,
    overwrite: bool,
    no_sync: bool,
    threads: int | None,
    shard: tuple[int | None, int | None] = (None, None),
) -> ShardOptions:
    if level is not None and compression is Compression.NONE:
        raise typer.BadParameter(
            "this option requires --compression gzip or zlib", param_hint="--level"
        )
    check_suffix(out, compression)
    return ShardOptions(
        *(overwrite, *shard),
        compression=compression_of(compression),
        level=-1 if level is None else level,
        sync=not no_sync,
        n_threads=threads or default_num_threads(),
    )


def _index(files: Sequence[str]) -> None:
    """Build missing indexes if all files are uncompressed."""
    if set(contents_of(files)) == {"plain"}:
        indexed(files)


def _fractions(text: str) -> dict[str, float]:
    pairs = [part.strip().rpartition("=") for part in text.split(",")]
    try:
        fractions = {name: float(fraction) for name, _, fraction in pairs}
    except ValueError:
        fractions = {}
    if len(fractions) < len(pairs) or "" in fractions:
        raise typer.BadParameter(
            f"parts must be like train=0.9,valid=0.1 with unique names, got {text!r}",
            param_hint="--parts",
        )
    return fractions


def _run(
    label: str, rewrite: Callable[[Any], Iterable[copy.Written]], *, as_json: bool
) -> None:
    """Call `rewrite` with a progress bar, and print the files that it wrote."""
    start = time.perf_counter()
    with progress_bar(label, "bytes") as bar:
        written = list(rewrite(bar))
    print_written(
        [(each.files, each.n_records) for each in written],
        sum(each.n_bytes for each in written),
        time.perf_counter() - start,
        as_json=as_json,
    )
