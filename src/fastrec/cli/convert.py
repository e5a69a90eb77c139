"""``fastrec convert``: other formats -> TFRecord files, TFRecord files -> tables, images."""

from __future__ import annotations

import contextlib
import enum
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import fastrec as fr
from fastrec.cli.arguments import (
    AsJson,
    Columns,
    Compression,
    CompressionOption,
    NumShards,
    Where,
    names_in,
)
from fastrec.cli.inputs import files_of, one_line_errors
from fastrec.cli.outputs import (
    MaxShardBytes,
    Overwrite,
    check_suffix,
    in_summary,
    print_written,
    reports_interrupt,
)
from fastrec.cli.sql import matching_rows
from fastrec.cli.terminal import Bar, Stopwatch, console, counted
from fastrec.convert import (
    Source,
    open_source,
    write_images,
    write_table,
    write_tfrecords,
)
from fastrec.convert.to_table import TABLE_SUFFIXES
from fastrec.storage.paths import is_remote, version_of
from fastrec.storage.urls import redacted
from fastrec.writer.shard_names import ShardNames

_SHOWN_EVERY = 1000  # records
# Formats that cannot be written.
_OTHER_SUFFIXES = (".csv", ".tsv", ".npy", ".npz", ".json", ".jsonl")


class _OnError(str, enum.Enum):
    RAISE = "raise"
    SKIP = "skip"


def convert(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Files, globs in quotes, or directories: .csv, .tsv, .parquet, .arrow, "
            ".feather, or folders of images as DIR/class/name.jpg or DIR/name.jpg. For a "
            "table or images, or with --where, TFRecord files, or - for stdin.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[
        str,
        typer.Option(
            *("--out", "-o"),
            metavar="OUT",
            help="The output. A path that ends in .parquet, .arrow or .feather is a "
            "table; one that ends in / is a folder for images; one with {shard:05d}, and optionally {num_shards:05d}, is a shard "
            "pattern; any other is a TFRecord file.",
        ),
    ],
    columns: Columns = None,
    where: Where = None,
    cast: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="NAME=TYPE",
            help="Cast a column of an input table to an Arrow type: int64, float64, "
            "string. Repeat the option for several columns.",
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Output table: write these columns as text.",
            show_default=False,
        ),
    ] = None,
    optional: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Output table: these columns have at most one value per row; write the "
            "value or null, not a list.",
            show_default=False,
        ),
    ] = None,
    num_shards: NumShards = None,
    max_shard_bytes: MaxShardBytes = None,
    compression: CompressionOption = Compression.NONE,
    on_error: Annotated[
        _OnError,
        typer.Option(
            help="Fail at an image that cannot be read, or skip and report it. With skip, "
            "the exit status is 0 if at least one image can be read.",
        ),
    ] = _OnError.RAISE,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Convert tables and images to TFRecord files, or TFRecord files back.

    Tensors of two or more dimensions are written as bytes; the command prints the specs
    to read them. Images are not re-encoded. A null omits the feature of the record. A
    table appears when it is complete, a shard as well, and files with {num_shards} when
    all are. With --where, records that are written to TFRecord files are unchanged.
    """
    is_table = Path(out).suffix.lower() in TABLE_SUFFIXES
    compressed = None if compression is Compression.NONE else compression.value.upper()
    is_images = out.endswith("/")
    if (is_table or is_images) and is_remote(out):
        raise typer.BadParameter(
            f"only TFRecord files are written to URLs, got {redacted(out)}",
            param_hint="--out",
        )
    if where is not None and not is_table and not is_images:
        for option, value in (("--columns", columns), ("--type", cast)):
            if value is not None:
                raise typer.BadParameter(
                    "with --where, records are written unchanged", param_hint=option
                )
    _check_used(
        out,
        is_records=not is_table and not is_images,
        records={
            "--num-shards": num_shards,
            "--max-shard-bytes": max_shard_bytes,
            "--compression": compressed,
            "--type": cast,
            "--on-error": None if on_error is _OnError.RAISE else on_error,
        },
        table={"--text": text, "--optional": optional},
    )
    check_suffix(out, compression)
    types = dict(_name_and_type(pair) for pair in cast or ())
    names = names_in(columns)
    watch = Stopwatch()
    source = None
    options: dict[str, Any] = {
        "overwrite": overwrite,
        "num_shards": num_shards,
        "max_shard_bytes": max_shard_bytes,
        "compression": compressed,
    }
    is_read = is_table or is_images or where is not None
    opened = _dataset(sources, where) if is_read else contextlib.nullcontext()
    try:
        with one_line_errors():
            existing = ShardNames(out).existing
            if is_images:
                existing = functools.partial(_files_in, out)
        with (
            reports_interrupt(existing),
            Bar("converting") as bar,
            one_line_errors(),
            opened as ds,
        ):
            if ds is None:
                source = open_source(
                    sources, columns=names, types=types, on_error=on_error.value
                )
                files = write_tfrecords(source, out, progress=bar, **options)
                n_records = source.n_rows
            elif is_table:
                n_records = write_table(
                    ds if names is None else ds.select_columns(names),
                    out,
                    text=names_in(text, "--text") or (),
                    optional=names_in(optional, "--optional") or (),
                    overwrite=overwrite,
                    progress=bar,
                )
                files = [out]
            elif is_images:
                files = write_images(
                    ds,
                    out,
                    image=names[0] if names else "image",
                    overwrite=overwrite,
                    progress=bar,
                )
                n_records = len(files)
            else:
                files, n_records = _write_records(ds, out, bar, options)
    except FileExistsError as error:
        reason = f"{error.strerror}; --overwrite replaces it"
        raise FileExistsError(error.errno, reason, error.filename) from error
    except KeyError as error:  # a column
        raise fr.Error(error.args[0]) from error
    n_bytes = sum(version_of(file)[0] for file in files)
    if not as_json:
        console().print(f"wrote {counted(n_records, 'record')} to {in_summary(files)}")
    print_written(files, n_records, n_bytes, watch, as_json=as_json)
    if source is not None:
        _print_source(source, as_json=as_json)


@contextlib.contextmanager
def _dataset(sources: list[str], where: str | None) -> Iterator[fr.Dataset]:
    """Open the records of TFRecord files for which a condition is true."""
    files = files_of(sources, joins=True)
    ds = fr.open(files)
    if where is None:
        yield ds
        return
    numbers = matching_rows(ds, where)
    with tempfile.TemporaryDirectory(prefix="fastrec-") as folder:
        if ds.is_streamed:  # records are selected from expanded files only
            ds = fr.open(files, cache_dir=folder)
        yield ds.select(numbers)


def _write_records(
    ds: fr.Dataset, out: str, bar: Bar, options: dict[str, Any]
) -> tuple[list[str], int]:
    """Write records unchanged; return the files and the number of records."""
    n_records = len(ds)
    if not n_records:
        raise fr.Error("no such records")
    with fr.Writer(out, **options) as writer:
        for number, record in enumerate(ds.records):
            writer.write_record(record)
            if not number % _SHOWN_EVERY:
                bar(number, n_records)
    return list(writer.files), n_records


def _files_in(directory: str) -> list[str]:
    return [str(path) for path in Path(directory).rglob("*")]


def _check_used(
    out: str, *, is_records: bool, records: dict[str, object], table: dict[str, object]
) -> None:
    """Refuse options that the output cannot use, and outputs that cannot be written."""
    suffix = Path(out).suffix.lower()
    if suffix in _OTHER_SUFFIXES:
        raise typer.BadParameter(
            f"cannot write {suffix} files; use one of {', '.join(TABLE_SUFFIXES)}",
            param_hint="--out",
        )
    is_table = suffix in TABLE_SUFFIXES
    unused = {} if is_table else dict.fromkeys(table, f"one of {TABLE_SUFFIXES}")
    if not is_records:
        unused |= dict.fromkeys(records, "TFRecord files")
    for name, output in unused.items():
        if (records | table)[name] is not None:
            raise typer.BadParameter(
                f"this option requires {output} as OUT, got {redacted(out)}",
                param_hint=name,
            )


def _print_source(source: Source, *, as_json: bool) -> None:
    """Print how to read what was written, and what was skipped."""
    if source.n_skipped:
        skipped = counted(source.n_skipped, "image")
        console(stderr=True).print(f"skipped {skipped} that cannot be read")
    if source.features and not as_json:
        specs = (f"{name!r}: fr.{spec!r}" for name, spec in source.features.items())
        console().print(f"read with features={{{', '.join(specs)}, ...}}")


def _name_and_type(pair: str) -> tuple[str, str]:
    name, _, kind = pair.rpartition("=")
    if not (name and kind):
        raise typer.BadParameter(
            f"--type must be NAME=TYPE, such as score=float64, got {pair!r}",
            param_hint="--type",
        )
    return name, kind
