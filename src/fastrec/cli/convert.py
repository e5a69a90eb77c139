"""``fastrec convert``: other formats to TFRecord files, and TFRecord files to tables."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import fastrec as fr
from fastrec.cli.terminal import Bar, Stopwatch, console, counted, printable, rate, size
from fastrec.convert import open_source, write_table, write_tfrecords
from fastrec.convert.writing import TABLE_SUFFIXES
from fastrec.options import MissingExtraError

__all__ = ["convert"]


class Compression(str, enum.Enum):
    """What a TFRecord file can be compressed as."""

    GZIP = "GZIP"
    ZLIB = "ZLIB"


class OnError(str, enum.Enum):
    """What to do with an input that cannot be read."""

    RAISE = "raise"
    SKIP = "skip"


def convert(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Files, globs in quotes, or directories: IDX (MNIST and its like), .npy, "
            ".npz, .csv, .tsv, .parquet, .arrow, .feather, or folders of images as "
            "DIR/class/name.jpg or DIR/name.jpg. For a table, TFRecord files.",
        ),
    ],
    *,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="OUT",
            help="A name that ends in .parquet, .arrow or .feather is a table; every "
            "other a TFRecord file, or several where it has {shard:05d} in it, and "
            "{num_shards:05d} if you like.",
        ),
    ],
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Convert this column only; may be repeated."),
    ] = None,
    cast: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="NAME=TYPE",
            help="Cast a column of a table to an Arrow type, such as int64, float64 or "
            "string; may be repeated.",
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="To a table: this column of bytes is UTF-8 text; may be repeated.",
        ),
    ] = None,
    optional: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="To a table: this column has at most one value in a row, so write the "
            "value or null, and not a list; may be repeated.",
        ),
    ] = None,
    compression: Annotated[
        Compression | None,
        typer.Option(case_sensitive=False, help="Compress the TFRecord files."),
    ] = None,
    max_shard_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help='Begin a new shard at this size: "200MB".'),
    ] = None,
    num_shards: Annotated[
        int | None, typer.Option(min=1, help="Write this number of shards.")
    ] = None,
    on_error: Annotated[
        OnError | None,
        typer.Option(
            case_sensitive=False,
            help="What to do with an image that cannot be read: stop (raise, the "
            "default), or skip it and report it on stderr. The exit status is 0 if at "
            "least one image could be read.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what bears these names.")
    ] = False,
) -> None:
    """Convert arrays, tables and images to TFRecord files, or TFRecord files to a table.

    Arrays of three or more dimensions are written as bytes, and the specs are printed
    that read them as arrays again. Images stay as they are encoded. Where a table has
    null, the feature is left out of the record.
    """
    is_to_table = Path(out).suffix.lower() in TABLE_SUFFIXES
    options = {
        "--type": cast,
        "--compression": compression,
        "--max-shard-bytes": max_shard_bytes,
        "--num-shards": num_shards,
        "--on-error": on_error,
    }
    if is_to_table:
        _refuse(options, "for TFRecord files, and OUT is a table")
    else:
        _refuse(
            {"--text": text, "--optional": optional},
            f"for tables, and OUT does not end in {', '.join(TABLE_SUFFIXES)}",
        )
        if "{shard" not in out:
            shards = ("--max-shard-bytes", "--num-shards")
            _refuse(
                {name: options[name] for name in shards},
                "for several files, and OUT has no {shard:05d} in it",
            )
    try:
        if is_to_table:
            _to_table(sources, out, column, text or (), optional or (), overwrite)
        else:
            _to_tfrecords(
                sources,
                out,
                column,
                _types(cast or ()),
                (on_error or OnError.RAISE).value,
                {
                    "overwrite": overwrite,
                    "compression": compression and compression.value,
                    "max_shard_bytes": max_shard_bytes,
                    "num_shards": num_shards,
                },
            )
    except MissingExtraError as error:
        console(stderr=True).print(f"error: {error}")
        raise typer.Exit(2) from None
    except FileExistsError as error:
        reason = f"{error.strerror}; --overwrite replaces it"
        raise FileExistsError(error.errno, reason, error.filename) from error
    except fr.Error:
        raise
    except ValueError as error:  # of the files, or what is asked of them
        raise fr.Error(str(error)) from error


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse options that would be without effect."""
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"this is {why}", param_hint=name)


def _types(given: Iterable[str]) -> dict[str, str]:
    types = {}
    for text in given:
        name, equals, kind = text.rpartition("=")
        if not (name and equals and kind):
            msg = f"{text!r} is not NAME=TYPE, such as score=float64"
            raise typer.BadParameter(msg, param_hint="--type")
        types[name] = kind
    return types


def _to_tfrecords(
    paths: list[str],
    out: str,
    columns: list[str] | None,
    types: dict[str, str],
    on_error: str,
    options: dict[str, Any],
) -> None:
    watch = Stopwatch()
    source = open_source(paths, columns=columns, types=types, on_error=on_error)
    with Bar("converting", source.unit) as bar:
        files = write_tfrecords(source, out, progress=_shown(bar), **options)
    _print_written(files, source.n_rows, watch.seconds)
    if source.n_skipped:
        skipped = counted(source.n_skipped, "image")
        console(stderr=True).print(f"skipped {skipped} that could not be read")
    if source.features:
        specs = (f"{name!r}: fr.{spec!r}" for name, spec in source.features.items())
        console().print(f"read with features={{{', '.join(specs)}, ...}}")


def _to_table(
    paths: list[str],
    out: str,
    columns: list[str] | None,
    text: Iterable[str],
    optional: Iterable[str],
    overwrite: bool,
) -> None:
    watch = Stopwatch()
    ds = fr.open(paths[0] if len(paths) == 1 else paths)
    if columns is not None:
        try:
            ds = ds.columns(columns)
        except KeyError as error:
            raise fr.Error(str(error.args[0])) from error
    with Bar("converting") as bar:
        n_records = write_table(
            ds,
            out,
            text=list(text),
            optional=list(optional),
            overwrite=overwrite,
            progress=_shown(bar),
        )
    _print_written([out], n_records, watch.seconds)


def _shown(bar: Bar) -> Callable[[int, int], None]:
    def show(done: int, total: int) -> None:
        bar(done, max(done, total))

    return show


def _print_written(files: list[str], n_records: int, seconds: float) -> None:
    n_bytes = sum(Path(file).stat().st_size for file in files)
    where = f"{files[0]} to {Path(files[-1]).name}" if len(files) > 1 else files[0]
    console().print(
        f"wrote {counted(n_records, 'record')}, {size(n_bytes)}, in "
        f"{counted(len(files), 'file')}, {printable(where)}, in {seconds:.2f} s "
        f"({rate(n_records, seconds)} records/s)"
    )
