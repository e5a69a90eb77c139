"""``fastrec convert``: convert tables and images to TFRecord files and back."""

from __future__ import annotations

import contextlib
import enum
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import echo

import fastrec as fr
from fastrec.cli.arguments import (
    AsJson,
    Columns,
    Compression,
    CompressionOption,
    MaxShardBytes,
    NumShards,
    Overwrite,
    Where,
    compression_of,
    names_in,
    out_option,
)
from fastrec.cli.files import (
    check_suffix,
    files_of,
    print_written,
    reports_interrupt,
)
from fastrec.cli.sql import matching_rows
from fastrec.cli.terminal import counted, progress_bar
from fastrec.convert.to_files import TABLE_SUFFIXES, write_images, write_table
from fastrec.convert.write import open_source, write_source
from fastrec.storage.paths import is_remote, version_of
from fastrec.storage.urls import redacted
from fastrec.writer.shard_names import ShardNames

_SHOWN_EVERY = 1000  # records
# Suffixes of unsupported output formats.
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
            "table or images as OUT, or with --where: TFRecord files, or - for stdin.",
        ),
    ],
    *,
    out: Annotated[
        str,
        out_option(
            "The output: a table if OUT ends in .parquet, .arrow or .feather; a folder "
            "of images if OUT ends in /; shards if OUT contains {shard:05d} and "
            "optionally {num_shards:05d}; otherwise a TFRecord file."
        ),
    ],
    columns: Columns = None,
    where: Where = None,
    type: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TYPE",
            help="Cast a column of an input table to an Arrow type: int64, float64, "
            "string. Repeat the option for several columns.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...", help="Output table: write these columns as text."
        ),
    ] = None,
    optional: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Output table: write these columns, with at most one value per row, "
            "as values and nulls instead of lists.",
        ),
    ] = None,
    num_shards: NumShards = None,
    max_shard_bytes: MaxShardBytes = None,
    compression: CompressionOption = Compression.NONE,
    on_error: Annotated[
        _OnError,
        typer.Option(
            help="Fail at an unreadable image, or skip and report it. With skip, "
            "the exit status is 0 if at least one image can be read.",
        ),
    ] = _OnError.RAISE,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Convert between TFRecord files and tables or images.

    Tensors of two or more dimensions are written as bytes; the command prints the specs
    for reading them. Images are not re-encoded. A null omits the feature of the record.
    A table or shard appears when it is complete; with {num_shards}, shards appear when
    all are complete. With --where, records are copied to TFRecord files unchanged.
    """
    is_table, is_images = Path(out).suffix.lower() in TABLE_SUFFIXES, out.endswith("/")
    is_records = not is_table and not is_images
    if Path(out).suffix.lower() in _OTHER_SUFFIXES:
        raise typer.BadParameter(
            f"cannot write {Path(out).suffix} files; use one of "
            f"{', '.join(TABLE_SUFFIXES)}",
            param_hint="--out",
        )
    if not is_records and is_remote(out):
        raise typer.BadParameter(
            f"must be a local path for tables and images, got {redacted(out)}",
            param_hint="--out",
        )
    options: dict[str, Any] = {
        "num_shards": num_shards,
        "max_shard_bytes": max_shard_bytes,
        "compression": compression_of(compression),
    }
    of_records = [f"--{name.replace('_', '-')}" for name in options if options[name]]
    of_records += ["--type"] * bool(type) + ["--on-error"] * (on_error.value == "skip")
    of_tables = ["--text"] * bool(text) + ["--optional"] * bool(optional)
    unused = [(name, "TFRecord files") for name in of_records if not is_records]
    unused += [(name, f"one of {TABLE_SUFFIXES}") for name in of_tables if not is_table]
    for name, output in unused:
        raise typer.BadParameter(
            f"this option requires {output} as OUT, got {redacted(out)}",
            param_hint=name,
        )
    for name, value in (("--columns", columns), ("--type", type)):
        if value and where is not None and is_records:
            raise typer.BadParameter(
                "--where copies records unchanged; omit this option", param_hint=name
            )
    check_suffix(out, compression)
    names = names_in(columns)
    types = dict(map(_name_and_type, type or ()))
    shards = ShardNames(out)

    def existing() -> list[str]:
        images = Path(out).rglob("*") if is_images else ()
        return list(map(str, images)) or shards.existing()

    start = time.perf_counter()
    source = None
    try:
        with reports_interrupt(existing), progress_bar("converting") as bar:
            if is_records and where is None:
                source = open_source(
                    sources, columns=names, types=types, on_error=on_error.value
                )
                writer = write_source(
                    source, out, progress=bar, overwrite=overwrite, **options
                )
                files, n_records = writer.files, writer.n_records
            else:
                with _dataset(sources, where) as ds:
                    if is_table:
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
                        image = names[0] if names else "image"
                        files = write_images(
                            ds, out, image=image, overwrite=overwrite, progress=bar
                        )
                        n_records = len(files)
                    else:
                        n_records = len(ds)
                        files = _write_records(
                            ds, out, bar, overwrite=overwrite, **options
                        )
    except FileExistsError as error:
        reason = f"{error.strerror}; --overwrite replaces it"
        raise FileExistsError(error.errno, reason, error.filename) from error
    except KeyError as error:  # a column
        raise fr.Error(error.args[0]) from error
    n_bytes = sum(version_of(file)[0] for file in files)
    seconds = time.perf_counter() - start
    print_written([(files, n_records)], n_bytes, seconds, as_json=as_json)
    if source is not None and on_error is _OnError.SKIP and n_records < source.n_total:
        skipped = counted(source.n_total - n_records, "image")
        echo(f"skipped {skipped} that cannot be read", err=True)
    if source is not None and source.features and not as_json:
        specs = (f"{name!r}: fr.{spec!r}" for name, spec in source.features.items())
        echo(f"to read the files, pass features={{{', '.join(specs)}, ...}}")


@contextlib.contextmanager
def _dataset(sources: list[str], where: str | None) -> Iterator[fr.Dataset]:
    """Yield a dataset of the records that match `where`; None matches all records."""
    files = files_of(sources, joins=True)
    ds = fr.open(files)
    if where is None:
        yield ds
        return
    numbers = matching_rows(ds, where)
    with tempfile.TemporaryDirectory(prefix="fastrec-") as folder:
        if ds.is_streamed:  # select() requires uncompressed files
            ds = fr.open(files, cache_dir=folder)
        yield ds.select(numbers)


def _write_records(
    ds: fr.Dataset, out: str, bar: Callable[[int, int], None], **options: Any
) -> list[str]:
    """Copy records to `out` unchanged; return the paths of the new files."""
    if not len(ds):
        raise fr.Error("no record matches --where")
    with fr.Writer(out, **options) as writer:
        for number, record in enumerate(ds.records):
            writer.write_record(record)
            if not number % _SHOWN_EVERY:
                bar(number, len(ds))
    return list(writer.files)


def _name_and_type(pair: str) -> tuple[str, str]:
    name, _, kind = pair.rpartition("=")
    if not (name and kind):
        raise typer.BadParameter(
            f"--type must be NAME=TYPE, such as score=float64, got {pair!r}",
            param_hint="--type",
        )
    return name, kind
