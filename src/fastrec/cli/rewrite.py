"""``fastrec shuffle``, ``reshard`` and ``split``: write records to other files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.models import OptionInfo

from fastrec.cli.arguments import (
    AsJson,
    Compression,
    CompressionOption,
    NumShards,
    RayAddress,
    Seed,
    Threads,
    size_in_bytes,
)
from fastrec.cli.inputs import files_of, indexed, one_line_errors
from fastrec.cli.outputs import (
    MaxShardBytes,
    MaxShardRecords,
    NoSync,
    Overwrite,
    check_suffix,
    in_summary,
    print_written,
    reports_interrupt,
)
from fastrec.cli.terminal import Bar, Stopwatch, console, counted
from fastrec.options import default_num_threads
from fastrec.rewrite import copy
from fastrec.rewrite import shuffle as shuffling
from fastrec.rewrite.copy import Written
from fastrec.storage.compression import contents_of
from fastrec.storage.parallel import Progress
from fastrec.storage.urls import redacted
from fastrec.writer.shard_names import ShardNames
from fastrec.writer.shards import ShardOptions

_DEFAULT_SHARD_BYTES = 200_000_000


def _out(text: str) -> OptionInfo:
    option: OptionInfo = typer.Option("--out", "-o", metavar="OUT", help=text)
    return option


_Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="Files, directories (searched recursively), globs in quotes, or - for "
        "stdin, in this order. The files of a glob or directory are sorted by name.",
        show_default=False,
    ),
]
_Level = Annotated[
    int | None,
    typer.Option(min=0, max=9, help="zlib's level, 6 by default.", show_default=False),
]


def shuffle(
    paths: _Inputs,
    *,
    out: Annotated[
        str, _out('A file, or a pattern such as "train-{shard:05d}.tfrecord".')
    ],
    num_shards: NumShards = None,
    seed: Seed = 0,
    memory: Annotated[
        int,
        typer.Option(
            metavar="SIZE",
            parser=size_in_bytes,
            show_default="1GB",
            help="Maximum memory. The files are read once each time it fills up.",
        ),
    ] = 1_000_000_000,
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Expand compressed files to DIR, each once.",
            show_default=False,
        ),
    ] = None,
    compression: CompressionOption = Compression.NONE,
    level: _Level = None,
    overwrite: Overwrite = False,
    no_sync: NoSync = False,
    threads: Threads = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Write all records in the order of a shuffled epoch, in bounded memory.

    The order is that of the first epoch of loader(shuffle=True, seed=SEED). Frames are
    copied byte for byte, and both checksums are verified. The files of OUT appear when all
    are complete. With --ray, a task writes each shard, and --memory limits each task.
    """
    options = _shard_options(out, compression, level, overwrite, no_sync, threads)
    files = files_of(paths, joins=True)
    rewrite_options: dict[str, Any] = {
        "num_shards": num_shards or 1,
        "seed": seed,
        "memory": memory,
        "cache_dir": None if cache_dir is None else str(cache_dir),
    }
    with reports_interrupt(_names_of(out).existing):
        if ray is not None:
            from fastrec.ray import jobs  # slow to import

            rewrite = partial(
                jobs.shuffle_files, files, out, options, **rewrite_options
            )
            with jobs.cluster(ray):
                _run(
                    "shuffling", lambda show: [rewrite(progress=show)], as_json=as_json
                )
            return
        if cache_dir is None:
            _index(files)
        rewrite = partial(shuffling.shuffle, files, out, options, **rewrite_options)
        _run("shuffling", lambda show: [rewrite(progress=show)], as_json=as_json)


def reshard(
    paths: _Inputs,
    *,
    out: Annotated[
        str,
        _out(
            'A pattern such as "train-{shard:05d}-of-{num_shards:05d}.tfrecord" for '
            "shards; a file, to join all files; or a directory (DIR/ or an existing one), "
            "to write each file under its own name."
        ),
    ],
    num_shards: NumShards = None,
    max_shard_bytes: MaxShardBytes = None,
    max_shard_records: MaxShardRecords = None,
    compression: CompressionOption = Compression.NONE,
    level: _Level = None,
    overwrite: Overwrite = False,
    no_sync: NoSync = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Write records in the same order to files of another number, size or compression.

    With a pattern, a shard has at most 200 MB by default, and all files appear when all
    are complete. In a directory, each file appears when it is complete; a suffix such as
    .gz is replaced according to --compression. Frames are copied byte for byte, and both
    checksums are verified.
    """
    limits = num_shards, max_shard_bytes, max_shard_records
    n_limits = sum(option is not None for option in limits)
    if n_limits > 1:
        raise typer.BadParameter(
            "use only one of --num-shards, --max-shard-bytes and --max-shard-records"
        )
    is_directory = out.endswith(os.sep) or Path(out).is_dir()
    if is_directory and n_limits:
        raise typer.BadParameter(
            "a number or size of shards requires a pattern, got the directory "
            f"{redacted(out)}",
            param_hint="--out",
        )
    if not n_limits and not is_directory and _names_of(out).is_pattern:
        max_shard_bytes = _DEFAULT_SHARD_BYTES
    options = _shard_options(
        *(out, compression, level, overwrite, no_sync, threads),
        max_bytes=max_shard_bytes,
        max_records=max_shard_records,
    )
    files = files_of(paths, joins=not is_directory)
    if is_directory:
        with one_line_errors():
            targets = copy.targets_of(files, out, options.compression)
        with reports_interrupt(targets.values):
            _run(
                "rewriting",
                lambda show: copy.recode(targets, options, progress=show),
                as_json=as_json,
            )
        return
    with reports_interrupt(_names_of(out).existing):
        if num_shards is not None:
            _index(files)
        _run(
            "resharding",
            lambda show: [copy.reshard(files, out, options, num_shards, progress=show)],
            as_json=as_json,
        )


def split(
    paths: _Inputs,
    *,
    out: Annotated[
        str, _out('Such as "{part}.tfrecord" or "{part}-{shard:05d}.tfrecord".')
    ],
    parts: Annotated[
        str,
        typer.Option(
            metavar="NAME=FRACTION,...",
            help="Such as train=0.9,valid=0.1; the sum is at most 1.",
        ),
    ],
    seed: Seed = 0,
    max_shard_bytes: MaxShardBytes = None,
    max_shard_records: MaxShardRecords = None,
    compression: CompressionOption = Compression.NONE,
    level: _Level = None,
    overwrite: Overwrite = False,
    no_sync: NoSync = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Divide the records at random, and write each part to separate files.

    The parts are those of Dataset.split; each keeps the order of its records. Frames are
    copied byte for byte, and both checksums are verified. The files of all parts appear
    when all are complete.
    """
    if "{shard" in out and max_shard_bytes is None and max_shard_records is None:
        max_shard_bytes = _DEFAULT_SHARD_BYTES
    options = _shard_options(
        *(out, compression, level, overwrite, no_sync, threads),
        max_bytes=max_shard_bytes,
        max_records=max_shard_records,
    )
    fractions = _fractions(parts)
    with one_line_errors():
        names = [ShardNames(copy.part_path(out, part)) for part in fractions]
    files = files_of(paths, joins=True)
    with reports_interrupt(
        lambda: [path for name in names for path in name.existing()]
    ):
        _index(files)
        _run(
            "splitting",
            lambda show: copy.split(
                files, out, fractions, options, seed, show
            ).values(),
            as_json=as_json,
        )


# Shared by the commands.


def _names_of(out: str) -> ShardNames:
    with one_line_errors():
        return ShardNames(out)


def _shard_options(
    out: str,
    compression: Compression,
    level: int | None,
    overwrite: bool,
    no_sync: bool,
    threads: int | None,
    *,
    max_bytes: int | None = None,
    max_records: int | None = None,
) -> ShardOptions:
    is_compressed = compression is not Compression.NONE
    if level is not None and not is_compressed:
        raise typer.BadParameter(
            "this option requires --compression gzip or zlib", param_hint="--level"
        )
    check_suffix(out, compression)
    return ShardOptions(
        overwrite=overwrite,
        max_bytes=max_bytes,
        max_records=max_records,
        compression=compression.value.upper() if is_compressed else None,
        level=-1 if level is None else level,
        sync=not no_sync,
        n_threads=threads or default_num_threads(),
    )


def _index(files: Sequence[str]) -> None:
    """Build missing indexes, if all files are plain."""
    if all(content == "plain" for content in contents_of(files)):
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
    label: str, rewrite: Callable[[Progress], Iterable[Written]], *, as_json: bool
) -> None:
    """Rewrite with a progress bar, and print the written files."""
    watch = Stopwatch()
    with Bar(label, "bytes") as bar, one_line_errors():
        written = list(rewrite(bar))
    if not as_json:
        for each in written:
            records = counted(each.n_records, "record")
            console().print(f"wrote {records} to {in_summary(each.files)}")
    print_written(
        [file for each in written for file in each.files],
        sum(each.n_records for each in written),
        sum(each.n_bytes for each in written),
        watch,
        as_json=as_json,
    )
