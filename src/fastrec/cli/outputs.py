"""The files that a command writes: their options, what is printed, and what Ctrl-C left."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fastrec.cli.arguments import Compression, size_in_bytes
from fastrec.cli.terminal import (
    Stopwatch,
    console,
    counted,
    json_line,
    json_path,
    printable,
    size,
)
from fastrec.storage.compression import COMPRESSED_SUFFIXES
from fastrec.storage.remote import RemotePath
from fastrec.storage.urls import redacted

MaxShardBytes = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        parser=size_in_bytes,
        help="Maximum size of a shard before compression, such as 200MB.",
        show_default=False,
    ),
]
MaxShardRecords = Annotated[
    int | None,
    typer.Option(
        min=1, help="Maximum number of records in a shard.", show_default=False
    ),
]
NoSync = Annotated[
    bool,
    typer.Option(
        "--no-sync", help="Do not flush files to the disk before renaming them."
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace existing files; with a pattern, all files that match it.",
    ),
]


def check_suffix(out: str, compression: Compression) -> None:
    """Refuse a name such as a.gz for a file that is not compressed."""
    suffix = Path(out).suffix.lower()
    if suffix in COMPRESSED_SUFFIXES and compression is Compression.NONE:
        raise typer.BadParameter(
            f"pass --compression, or use a name without {suffix}, got {redacted(out)}",
            param_hint="--out",
        )


@contextlib.contextmanager
def reports_interrupt(existing: Callable[[], Iterable[str]]) -> Iterator[None]:
    """After Ctrl-C, report how many files the body has written.

    `existing` returns the existing files among those that the body may write.
    """
    before = _identities(existing())
    try:
        yield
    except KeyboardInterrupt:
        n_written = len(_identities(existing()) - before)
        note = f"{counted(n_written, 'file')} written" if n_written else ""
        raise KeyboardInterrupt(note or "nothing was written") from None


def _identities(paths: Iterable[str]) -> set[tuple[str, int, int]]:
    found: set[tuple[str, int, int]] = set()
    for path in paths:
        if isinstance(path, RemotePath):
            found.add((path, 0, 0))
            continue
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(path)
            found.add((path, status.st_ino, status.st_mtime_ns))
    return found


def in_summary(files: list[str]) -> str:
    """Return the names of files, abridged if there are several."""
    first, *others = map(printable, files)
    return f"{1 + len(others)} files: {first} ... {others[-1]}" if others else first


def print_written(
    files: list[str], n_records: int, n_bytes: int, watch: Stopwatch, *, as_json: bool
) -> None:
    """Print the sums of a command, or an object with its files as JSON."""
    seconds = watch.seconds
    if as_json:
        fields: dict[str, Any] = {"files": [json_path(path) for path in files]}
        fields |= {"n_records": n_records, "n_bytes": n_bytes, "seconds": seconds}
        console().print(json_line(fields))
        return
    console().print(
        f"{counted(n_records, 'record')}, {size(n_bytes)}, in {seconds:.2f} s "
        f"({size(n_bytes / seconds)}/s)",
        style="bold",
    )
