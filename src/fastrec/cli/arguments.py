"""Arguments and options that several commands share."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from fastrec.options import byte_count


class Compression(str, enum.Enum):
    """Compression formats of output files, as spelled on the command line."""

    GZIP = "gzip"
    ZLIB = "zlib"
    NONE = "none"


def compression_of(compression: Compression) -> str | None:
    """Convert a command-line value to the argument ``fastrec.Writer(compression=)``."""
    return None if compression is Compression.NONE else compression.value.upper()


def names_in(text: str | None, option: str = "--columns") -> list[str] | None:
    """Split a comma-separated option value into unique names; return None for None."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise typer.BadParameter(
            f"must be names separated by commas, got {text!r}", param_hint=option
        )
    return list(dict.fromkeys(names))


def size_in_bytes(value: str | int) -> int:
    """Parse a size such as "200MB" into a number of bytes."""
    try:
        return byte_count("size", value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def out_option(text: str, metavar: str = "OUT") -> Any:
    """Return the option ``--out`` with the help `text`."""
    return typer.Option("--out", "-o", metavar=metavar, help=text)


Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="Files, directories (searched recursively), globs in quotes, or - for stdin.",
    ),
]

AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON: one object, or one object per row."),
]
BatchSize = Annotated[int, typer.Option(metavar="N", min=1, help="Records per batch.")]
Columns = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="Use only these columns.")
]
CompressionOption = Annotated[
    Compression,
    typer.Option(
        "--compression", case_sensitive=False, help="Compression of the output."
    ),
]
MaxShardBytes = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        parser=size_in_bytes,
        help="Maximum size of a shard before compression, such as 200MB.",
    ),
]
NumRecords = Annotated[
    int, typer.Option("-n", metavar="N", min=0, help="Number of records.")
]
NumShards = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Number of files to write.")
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace existing files; with a pattern, all files that match it.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help='Run on the Ray cluster at this address, such as "auto" or HOST:PORT; all '
        "nodes must see the files under the same paths.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=2**64 - 1, help="Seed of the random order."),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Number of threads; by default one per CPU."),
]
Where = Annotated[
    str | None,
    typer.Option(
        metavar="EXPR",
        help="Use only records for which this SQL condition is true, such as "
        """'label = 3 AND "image/width" > 500'.""",
    ),
]
