"""``fastrec convert``: other formats -> TFRecord files, TFRecord files -> tables, images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import fastrec as fr
from fastrec.cli.inputs import one_line_errors
from fastrec.cli.terminal import Bar, Stopwatch, console, counted, printable, rate, size
from fastrec.convert import open_source, write_images, write_table, write_tfrecords
from fastrec.convert.to_table import TABLE_SUFFIXES

__all__ = ["convert"]

Names = list[str] | None


def convert(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Files, globs in quotes, or directories: IDX (MNIST), .npy, .npz, .csv, "
            ".tsv, .parquet, .arrow, .feather, or folders of images as "
            "DIR/class/name.jpg or DIR/name.jpg. For a table or images, TFRecord files.",
        ),
    ],
    *,
    out: Annotated[
        str,
        typer.Option(
            *("--out", "-o"),
            metavar="OUT",
            help="The output. A path that ends in .parquet, .arrow or .feather is a "
            "table; one that ends in / is a folder for the images; one with {shard:05d}, and optionally {num_shards:05d}, is a shard "
            "pattern; any other is a TFRecord file.",
        ),
    ],
    column: Annotated[
        Names,
        typer.Option(metavar="NAME", help="Convert only this column; repeatable."),
    ] = None,
    cast: Annotated[
        Names,
        typer.Option(
            "--type",
            metavar="NAME=TYPE",
            help="Cast a column of an input table to an Arrow type: int64, float64, "
            "string.",
        ),
    ] = None,
    text: Annotated[
        Names,
        typer.Option(metavar="NAME", help="Output table: write this column as text."),
    ] = None,
    optional: Annotated[
        Names,
        typer.Option(
            metavar="NAME",
            help="Output table: this column has at most one value per row; write the "
            "value or null, not a list.",
        ),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(metavar="GZIP|ZLIB", help="Compress the TFRecord files."),
    ] = None,
    max_shard_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help='Maximum size of a shard: "200MB".'),
    ] = None,
    num_shards: Annotated[
        int | None, typer.Option(min=1, help="Number of shards to write.")
    ] = None,
    on_error: Annotated[
        str | None,
        typer.Option(
            metavar="raise|skip",
            help="Fail at an image that cannot be read (the default), or skip and report "
            "it. With skip, the exit status is 0 if at least one image can be read.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing files.")
    ] = False,
) -> None:
    """Convert arrays, tables and images to TFRecord files, or TFRecord files back.

    Arrays of three or more dimensions are written as bytes; the command prints the specs
    to read them. Images are not re-encoded. A null omits the feature of the record.
    """
    is_table = Path(out).suffix.lower() in TABLE_SUFFIXES
    to_records = {
        "compression": compression and compression.upper(),
        "max_shard_bytes": max_shard_bytes,
        "num_shards": num_shards,
    }
    is_images = out.endswith("/")
    unused: dict[str, object] = {"text": text, "optional": optional}
    if is_images:
        unused |= {**to_records, "type": cast, "on_error": on_error}
    elif is_table:
        unused = {**to_records, "type": cast, "on_error": on_error}
    for name, value in unused.items():
        if value is not None:
            output = (
                f"one of {TABLE_SUFFIXES}"
                if name in ("text", "optional")
                else "TFRecord files"
            )
            msg = f"this option requires {output} as OUT, got {out}"
            raise typer.BadParameter(msg, param_hint=f"--{name.replace('_', '-')}")
    types = dict(_name_and_type(pair) for pair in cast or ())
    watch = Stopwatch()
    source = None
    try:
        with Bar("converting") as bar, one_line_errors():
            if is_table:
                ds = fr.open(sources)
                n_records = write_table(
                    ds if column is None else ds.select_columns(column),
                    out,
                    text=text or (),
                    optional=optional or (),
                    overwrite=overwrite,
                    progress=bar,
                )
                files = [out]
            elif is_images:
                name = column[0] if column else "image"
                files = write_images(
                    sources, out, image=name, overwrite=overwrite, progress=bar
                )
                n_records = len(files)
            else:
                source = open_source(
                    sources, columns=column, types=types, on_error=on_error or "raise"
                )
                files = write_tfrecords(
                    source, out, progress=bar, overwrite=overwrite, **to_records
                )
                n_records = source.n_rows
    except FileExistsError as error:
        reason = f"{error.strerror}; --overwrite replaces it"
        raise FileExistsError(error.errno, reason, error.filename) from error
    except KeyError as error:  # a column
        raise fr.Error(error.args[0]) from error
    n_bytes = sum(Path(file).stat().st_size for file in files)
    names = f"{files[0]} to {Path(files[-1]).name}" if len(files) > 1 else files[0]
    console().print(
        f"wrote {counted(n_records, 'record')}, {size(n_bytes)}, to "
        f"{counted(len(files), 'file')}, {printable(names)}, in {watch.seconds:.2f} s "
        f"({rate(n_records, watch.seconds)} records/s)"
    )
    if source and source.n_skipped:
        skipped = counted(source.n_skipped, "image")
        console(stderr=True).print(f"skipped {skipped} that cannot be read")
    if source and source.features:
        specs = (f"{name!r}: fr.{spec!r}" for name, spec in source.features.items())
        console().print(f"read with features={{{', '.join(specs)}, ...}}")


def _name_and_type(pair: str) -> tuple[str, str]:
    name, _, kind = pair.rpartition("=")
    if not (name and kind):
        msg = f"--type must be NAME=TYPE, such as score=float64, got {pair!r}"
        raise typer.BadParameter(msg, param_hint="--type")
    return name, kind
