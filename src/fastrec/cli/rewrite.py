"""``fastrec shuffle``, ``merge``, ``reshard``, ``split``, ``compress`` and ``expand``."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

import fastrec as fr
from fastrec.cli.index import files_of, indexed, one_line_errors
from fastrec.cli.terminal import Bar, Stopwatch, console, counted, printable, size
from fastrec.options import byte_count, default_num_threads
from fastrec.rewrite import copy
from fastrec.rewrite import shuffle as shuffling
from fastrec.rewrite.copy import Written
from fastrec.storage.compression import contents_of
from fastrec.storage.parallel import Progress
from fastrec.writer.shard_names import ShardNames
from fastrec.writer.shards import Sharding

__all__ = ["compress", "expand", "merge", "reshard", "shuffle", "split"]

_DEFAULT_SHARD_BYTES = "200MB"


class _Compression(str, enum.Enum):
    GZIP = "GZIP"
    ZLIB = "ZLIB"


def _checked_bytes(text: str | None) -> str | None:
    if text is not None:
        try:
            byte_count("it", text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    return text


_Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="IN",
        help="Files, directories, or globs in quotes. Globs are sorted by name, and "
        "otherwise the order is the one given.",
    ),
]
_File = Annotated[
    str, typer.Option("--out", "-o", metavar="OUT", help="The file to write.")
]
_Pattern = Annotated[
    str,
    typer.Option(
        "--out",
        "-o",
        metavar="OUT",
        help='A pattern such as "train-{shard:05d}-of-{num_shards:05d}.tfrecord".',
    ),
]
_Directory = Annotated[
    Path,
    typer.Option(
        "--out", "-o", metavar="DIR", help="Where to; it is made if it is not there."
    ),
]
_CompressionOption = Annotated[
    _Compression | None,
    typer.Option("--compression", help="Compress what is written."),
]
_Level = Annotated[
    int | None,
    typer.Option(min=0, max=9, help="zlib's level, 6 by default.", show_default=False),
]
_Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace files that are there, of a pattern all that match it.",
    ),
]
_NoSync = Annotated[
    bool,
    typer.Option(
        "--no-sync",
        help="Do not wait for the disk before files get their names.",
    ),
]
_Threads = Annotated[
    int | None,
    typer.Option(
        min=1, help="Threads. By default one for each CPU.", show_default=False
    ),
]
_Seed = Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Of the random order.")]
_MaxShardBytes = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        callback=_checked_bytes,
        help="Begin another shard where one would become larger, such as 200MB.",
    ),
]
_MaxShardRecords = Annotated[
    int | None, typer.Option(min=1, help="Begin another shard after so many records.")
]


def shuffle(
    paths: _Inputs,
    *,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="OUT",
            help='A file, or a pattern such as "train-{shard:05d}.tfrecord".',
        ),
    ],
    shards: Annotated[int, typer.Option(min=1, help="How many files to write.")] = 1,
    seed: _Seed = 0,
    memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            callback=_checked_bytes,
            help="Memory to take at most. The files are read once for each time that it "
            "fills up.",
        ),
    ] = "1GB",
    cache_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Expand compressed files there, once."),
    ] = None,
    compression: _CompressionOption = None,
    level: _Level = None,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: _Threads = None,
) -> None:
    """Write all records in the order of a shuffled epoch, in bounded memory.

    It is the order in which loader(shuffle=True, seed=SEED) delivers them in its first
    epoch. The frames are carried over byte for byte, both checksums verified.
    """
    sharding = _sharding(compression, level, overwrite, no_sync, threads)
    files = files_of(paths, joins=True)
    if cache_dir is None:
        _index(files)

    def rewrite(progress: Progress) -> list[Written]:
        written = shuffling.shuffle(
            files,
            out,
            sharding,
            num_shards=shards,
            seed=seed,
            memory=byte_count("memory", memory),
            cache_dir=None if cache_dir is None else str(cache_dir),
            progress=progress,
        )
        return [written]

    _run("shuffling", rewrite)


def merge(
    paths: _Inputs,
    *,
    out: _File,
    compression: _CompressionOption = None,
    level: _Level = None,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: _Threads = None,
) -> None:
    """Write the records of all files to one.

    The frames are carried over byte for byte, both checksums verified.
    """
    sharding = _sharding(compression, level, overwrite, no_sync, threads)
    files = files_of(paths, joins=True)
    with one_line_errors():
        is_pattern = ShardNames(out).is_pattern
    if is_pattern:
        msg = f"merge writes one file, and {out!r} is a pattern: see fastrec reshard"
        raise fr.Error(msg)
    _run("merging", lambda show: [copy.reshard(files, out, sharding, progress=show)])


def reshard(
    paths: _Inputs,
    *,
    out: _Pattern,
    shards: Annotated[
        int | None,
        typer.Option(min=1, help="So many shards, whose records differ by 1 at most."),
    ] = None,
    max_shard_bytes: _MaxShardBytes = None,
    max_shard_records: _MaxShardRecords = None,
    compression: _CompressionOption = None,
    level: _Level = None,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: _Threads = None,
) -> None:
    """Write the records of all files to shards of other sizes, in their order.

    By default, a shard has at most 200 MB. The frames are carried over byte for byte,
    both checksums verified.
    """
    given = [shards, max_shard_bytes, max_shard_records]
    if sum(option is not None for option in given) > 1:
        msg = "only one of --shards, --max-shard-bytes and --max-shard-records"
        raise typer.BadParameter(msg)
    sharding = _sharding(
        compression,
        level,
        overwrite,
        no_sync,
        threads,
        max_bytes=_DEFAULT_SHARD_BYTES if given == [None] * 3 else max_shard_bytes,
        max_records=max_shard_records,
    )
    files = files_of(paths, joins=True)
    if shards is not None:
        _index(files)
    _run(
        "resharding",
        lambda show: [copy.reshard(files, out, sharding, shards, progress=show)],
    )


def split(
    paths: _Inputs,
    *,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="OUT",
            help='A name with the part in it, "{part}.tfrecord" or '
            '"{part}-{shard:05d}.tfrecord".',
        ),
    ],
    parts: Annotated[
        str,
        typer.Option(
            metavar="NAME=SHARE,...", help="Such as train=0.9,valid=0.1; 1 at most."
        ),
    ],
    seed: _Seed = 0,
    max_shard_bytes: _MaxShardBytes = None,
    max_shard_records: _MaxShardRecords = None,
    compression: _CompressionOption = None,
    level: _Level = None,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: _Threads = None,
) -> None:
    """Divide the records at random, and write each part to files of its own.

    The division is that of Dataset.split; each part keeps the order of the records. The
    frames are carried over byte for byte, both checksums verified.
    """
    is_limited = max_shard_bytes is not None or max_shard_records is not None
    has_shards = "{shard" in out
    sharding = _sharding(
        compression,
        level,
        overwrite,
        no_sync,
        threads,
        max_bytes=_DEFAULT_SHARD_BYTES
        if has_shards and not is_limited
        else max_shard_bytes,
        max_records=max_shard_records,
    )
    shares = _shares(parts)
    files = files_of(paths, joins=True)
    _index(files)

    def rewrite(progress: Progress) -> list[Written]:
        written = copy.split(files, out, shares, sharding, seed, progress=progress)
        return list(written.values())

    _run("splitting", rewrite)


def compress(
    paths: _Inputs,
    *,
    out: _Directory,
    compression: Annotated[
        _Compression, typer.Option("--compression", help="What the files become.")
    ] = _Compression.GZIP,
    level: _Level = None,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: _Threads = None,
) -> None:
    """Compress each file; the names get .gz, or .zz for ZLIB.

    What is compressed already is compressed anew. Both checksums of every record are
    verified.
    """
    sharding = _sharding(compression, level, overwrite, no_sync, threads)
    _recode("compressing", paths, out, sharding)


def expand(
    paths: _Inputs,
    *,
    out: _Directory,
    overwrite: _Overwrite = False,
    no_sync: _NoSync = False,
    threads: _Threads = None,
) -> None:
    """Expand each file; the names lose .gz and the like.

    A plain file is copied. Both checksums of every record are verified.
    """
    sharding = _sharding(None, None, overwrite, no_sync, threads)
    _recode("expanding", paths, out, sharding)


def _recode(what: str, paths: list[str], out: Path, sharding: Sharding) -> None:
    files = files_of(paths, joins=False)
    with one_line_errors():
        targets = copy.targets_of(files, str(out), sharding.compression)
    _run(what, lambda show: copy.recode(targets, sharding, progress=show))


# What the commands share.


def _sharding(
    compression: _Compression | None,
    level: int | None,
    overwrite: bool,
    no_sync: bool,
    threads: int | None,
    *,
    max_bytes: str | None = None,
    max_records: int | None = None,
) -> Sharding:
    if level is not None and compression is None:
        msg = "it goes with --compression"
        raise typer.BadParameter(msg, param_hint="--level")
    return Sharding(
        overwrite=overwrite,
        max_bytes=None if max_bytes is None else byte_count("max_bytes", max_bytes),
        max_records=max_records,
        compression=None if compression is None else compression.value,
        level=-1 if level is None else level,
        sync=not no_sync,
        n_threads=threads or default_num_threads(),
    )


def _index(files: Sequence[str]) -> None:
    """Build the indexes that are missing, if all files are plain."""
    if all(content == "plain" for content in contents_of(files)):
        indexed(files)


def _shares(text: str) -> dict[str, float]:
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.strip().rpartition("=")
        try:
            if not name or name in shares:
                raise ValueError
            shares[name] = float(share)
        except ValueError:
            msg = (
                "parts must look like train=0.9,valid=0.1, each name once, "
                f"got {part!r}"
            )
            raise typer.BadParameter(msg, param_hint="--parts") from None
    return shares


def _run(what: str, rewrite: Callable[[Progress], Sequence[Written]]) -> None:
    """Rewrite behind a progress bar, and print what was written."""
    watch = Stopwatch()
    with Bar(what, "bytes") as bar, one_line_errors():
        written = rewrite(bar)
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
