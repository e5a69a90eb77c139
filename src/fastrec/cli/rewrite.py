"""``fastrec shuffle``, ``merge``, ``reshard``, ``split``, ``compress`` and ``expand``."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

import fastrec as fr
from fastrec.cli.arguments import Seed, Threads
from fastrec.cli.inputs import files_of, indexed, one_line_errors
from fastrec.cli.terminal import Bar, Stopwatch, console, counted, printable, size
from fastrec.options import byte_count, default_num_threads
from fastrec.rewrite import copy
from fastrec.rewrite import shuffle as shuffling
from fastrec.rewrite.copy import Written
from fastrec.storage.compression import contents_of
from fastrec.storage.parallel import Progress
from fastrec.writer.shard_names import ShardNames
from fastrec.writer.shard_options import ShardOptions

__all__ = ["compress", "expand", "merge", "reshard", "shuffle", "split"]

_DEFAULT_SHARD_BYTES = 200_000_000


class _Compression(str, enum.Enum):
    GZIP = "GZIP"
    ZLIB = "ZLIB"


def _byte_count(value: str | int) -> int:
    try:
        return byte_count("it", value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _out(metavar: str, text: str) -> OptionInfo:
    option: OptionInfo = typer.Option("--out", "-o", metavar=metavar, help=text)
    return option


_Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="IN",
        help="Files, directories, or globs in quotes, in this order. The files of a glob "
        "or directory are sorted by name.",
    ),
]
_Directory = Annotated[Path, _out("DIR", "The directory to write to.")]
_CompressionOption = Annotated[
    _Compression | None, typer.Option("--compression", help="Compress the output.")
]
_Level = Annotated[
    int | None,
    typer.Option(min=0, max=9, help="zlib's level, 6 by default.", show_default=False),
]
_Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace existing files; with a pattern, all files that match it.",
    ),
]
_NoSync = Annotated[
    bool,
    typer.Option(
        "--no-sync", help="Do not flush files to the disk before renaming them."
    ),
]
_MaxShardBytes = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        parser=_byte_count,
        help="Maximum size of a shard, such as 200MB.",
    ),
]
_MaxShardRecords = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of records in a shard.")
]


def shuffle(
    paths: _Inputs,
    *,
    out: Annotated[
        str, _out("OUT", 'A file, or a pattern such as "train-{shard:05d}.tfrecord".')
    ],
    shards: Annotated[int, typer.Option(min=1, help="Number of files to write.")] = 1,
    seed: Seed = 0,
    memory: Annotated[
        int,
        typer.Option(
            metavar="SIZE",
            parser=_byte_count,
            show_default="1GB",
            help="Maximum memory. The files are read once each time it fills up.",
        ),
    ] = 1_000_000_000,
    cache_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Expand compressed files to DIR, each once."),
    ] = None,
    compression: _CompressionOption = None,
    level: _Level = None,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: Threads = None,
) -> None:
    """Write all records in the order of a shuffled epoch, in bounded memory.

    The order is that of the first epoch of loader(shuffle=True, seed=SEED). Frames are
    copied byte for byte, and both checksums are verified.
    """
    options = _shard_options(compression, level, overwrite, no_sync, threads)
    files = files_of(paths, joins=True)
    if cache_dir is None:
        _index(files)
    rewrite = partial(
        shuffling.shuffle,
        files,
        out,
        options,
        num_shards=shards,
        seed=seed,
        memory=memory,
        cache_dir=None if cache_dir is None else str(cache_dir),
    )
    _run("shuffling", lambda show: [rewrite(progress=show)])


def merge(
    paths: _Inputs,
    *,
    out: Annotated[str, _out("OUT", "The file to write.")],
    compression: _CompressionOption = None,
    level: _Level = None,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: Threads = None,
) -> None:
    """Write the records of all files to one file.

    Frames are copied byte for byte, and both checksums are verified.
    """
    options = _shard_options(compression, level, overwrite, no_sync, threads)
    files = files_of(paths, joins=True)
    with one_line_errors():
        is_pattern = ShardNames(out).is_pattern
    if is_pattern:
        msg = f"--out must be one file, got the pattern {out!r}; use fastrec reshard"
        raise fr.Error(msg)
    _run("merging", lambda show: [copy.reshard(files, out, options, progress=show)])


def reshard(
    paths: _Inputs,
    *,
    out: Annotated[
        str,
        _out("OUT", 'Such as "train-{shard:05d}-of-{num_shards:05d}.tfrecord".'),
    ],
    shards: Annotated[
        int | None,
        typer.Option(min=1, help="Number of shards, of equal numbers of records."),
    ] = None,
    max_shard_bytes: _MaxShardBytes = None,
    max_shard_records: _MaxShardRecords = None,
    compression: _CompressionOption = None,
    level: _Level = None,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: Threads = None,
) -> None:
    """Write the records of all files in order to shards of another size.

    By default, a shard has at most 200 MB. Frames are copied byte for byte, and both
    checksums are verified.
    """
    n_options = sum(
        option is not None for option in (shards, max_shard_bytes, max_shard_records)
    )
    if not n_options:
        max_shard_bytes = _DEFAULT_SHARD_BYTES
    elif n_options > 1:
        msg = "use only one of --shards, --max-shard-bytes and --max-shard-records"
        raise typer.BadParameter(msg)
    limits = max_shard_bytes, max_shard_records
    options = _shard_options(compression, level, overwrite, no_sync, threads, *limits)
    files = files_of(paths, joins=True)
    if shards is not None:
        _index(files)
    _run(
        "resharding",
        lambda show: [copy.reshard(files, out, options, shards, progress=show)],
    )


def split(
    paths: _Inputs,
    *,
    out: Annotated[
        str, _out("OUT", 'Such as "{part}.tfrecord" or "{part}-{shard:05d}.tfrecord".')
    ],
    parts: Annotated[
        str,
        typer.Option(
            metavar="NAME=FRACTION,...",
            help="Such as train=0.9,valid=0.1; the sum is at most 1.",
        ),
    ],
    seed: Seed = 0,
    max_shard_bytes: _MaxShardBytes = None,
    max_shard_records: _MaxShardRecords = None,
    compression: _CompressionOption = None,
    level: _Level = None,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: Threads = None,
) -> None:
    """Split the records at random, and write each part to separate files.

    The split is that of Dataset.split; each part keeps the order of the records. Frames
    are copied byte for byte, and both checksums are verified.
    """
    if "{shard" in out and max_shard_bytes is None and max_shard_records is None:
        max_shard_bytes = _DEFAULT_SHARD_BYTES
    limits = max_shard_bytes, max_shard_records
    options = _shard_options(compression, level, overwrite, no_sync, threads, *limits)
    fractions = _fractions(parts)
    files = files_of(paths, joins=True)
    _index(files)
    _run(
        "splitting",
        lambda show: copy.split(files, out, fractions, options, seed, show).values(),
    )


def compress(
    paths: _Inputs,
    *,
    out: _Directory,
    compression: Annotated[
        _Compression, typer.Option("--compression", help="The compression format.")
    ] = _Compression.GZIP,
    level: _Level = None,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: Threads = None,
) -> None:
    """Compress each file, and append .gz, or .zz for ZLIB, to its name.

    Compressed files are recompressed. Both checksums of every record are verified.
    """
    options = _shard_options(compression, level, overwrite, no_sync, threads)
    _recode("compressing", paths, out, options)


def expand(
    paths: _Inputs,
    *,
    out: _Directory,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: Threads = None,
) -> None:
    """Decompress each file, and remove suffixes such as .gz from its name.

    A plain file is copied. Both checksums of every record are verified.
    """
    options = _shard_options(None, None, overwrite, no_sync, threads)
    _recode("expanding", paths, out, options)


def _recode(label: str, paths: list[str], out: Path, options: ShardOptions) -> None:
    files = files_of(paths, joins=False)
    with one_line_errors():
        targets = copy.targets_of(files, str(out), options.compression)
    _run(label, lambda show: copy.recode(targets, options, progress=show))


# Shared by the commands.


def _shard_options(
    compression: _Compression | None,
    level: int | None,
    overwrite: bool,
    no_sync: bool,
    threads: int | None,
    max_bytes: int | None = None,
    max_records: int | None = None,
) -> ShardOptions:
    if level is not None and compression is None:
        msg = "this option requires --compression"
        raise typer.BadParameter(msg, param_hint="--level")
    return ShardOptions(
        overwrite=overwrite,
        max_bytes=max_bytes,
        max_records=max_records,
        compression=None if compression is None else compression.value,
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
        msg = f"parts must be like train=0.9,valid=0.1 with unique names, got {text!r}"
        raise typer.BadParameter(msg, param_hint="--parts")
    return fractions


def _run(label: str, rewrite: Callable[[Progress], Iterable[Written]]) -> None:
    """Rewrite with a progress bar, and print the written files."""
    watch = Stopwatch()
    with Bar(label, "bytes") as bar, one_line_errors():
        written = list(rewrite(bar))
    out = console()
    for each in written:
        first, *others = map(printable, each.files)
        to = f"{1 + len(others)} files: {first} ... {others[-1]}" if others else first
        out.print(f"wrote {counted(each.n_records, 'record')} to {to}")
    n_bytes = sum(each.n_bytes for each in written)
    out.print(
        f"{counted(sum(each.n_records for each in written), 'record')}, {size(n_bytes)}, "
        f"in {watch.seconds:.2f} s ({size(n_bytes / watch.seconds)}/s)",
        style="bold",
    )
