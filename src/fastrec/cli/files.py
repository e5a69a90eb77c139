"""Input and output files of the commands."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

import fastrec as fr
from fastrec.cli.arguments import Compression
from fastrec.cli.terminal import counted, print_json, printable, progress_bar, size
from fastrec.storage.compression import COMPRESSED_SUFFIXES
from fastrec.storage.index_files import index_path
from fastrec.storage.paths import expand, is_remote
from fastrec.storage.urls import redacted

_copies = contextlib.ExitStack()


@contextlib.contextmanager
def copies() -> Iterator[None]:
    """Context manager that deletes copies of stdin and their indexes when it exits."""
    with _copies:
        yield


def files_of(
    paths: Sequence[str], *, joins: bool, allows_pipes: bool = False
) -> list[str]:
    """Return the files that `paths` name; search directories recursively.

    ``-`` means a temporary copy of stdin or, with `allows_pipes`, stdin itself. With
    `joins`, a directory with several splits raises an error, as in `fastrec.open`.
    """
    files = []
    for path in map(os.path.expanduser, paths):
        if path == "-":
            if sys.stdin.isatty():
                raise fr.Error("cannot read stdin: it is a terminal; pipe a file to it")
            path = "/dev/stdin" if allows_pipes else _copied_stdin()
        files += expand(path, joins=joins, allows_pipes=allows_pipes)
    return files


def _copied_stdin() -> str:
    folder = _copies.enter_context(tempfile.TemporaryDirectory(prefix="fastrec-"))
    path = f"{folder}/stdin"
    with open(path, "wb") as target:
        shutil.copyfileobj(sys.stdin.buffer, target)
    _copies.callback(index_path(path).unlink, missing_ok=True)
    return path


def indexed(
    paths: Sequence[str], ray: str | None = None, **options: Any
) -> tuple[dict[str, int], int]:
    """Call ``build_index(**options)``, which builds missing indexes; show its progress.

    If `ray` is the address of a Ray cluster, its tasks build the indexes. Returns the
    number of records of each file, by path, and the number of bytes read.
    """
    n_read = 0
    with progress_bar("indexing", "bytes") as bar:

        def show(done: int, total: int) -> None:
            nonlocal n_read
            n_read = done
            bar(done, total)

        if ray is None:
            return fr.build_index(paths, progress=show, **options), n_read
        from fastrec.ray import jobs  # slow to import

        with jobs.cluster(ray):
            parts = jobs.map_files(partial(fr.build_index, **options), paths, show)
        return {path: n for part in parts for path, n in part.items()}, n_read


def opened(paths: Sequence[str]) -> fr.Dataset:
    """Build missing indexes, show the progress, and return a dataset of `paths`."""
    files = files_of(paths, joins=False)
    indexed(files)
    return fr.open(files)


# Output files.


@contextlib.contextmanager
def reports_interrupt(
    existing: Callable[[], Iterable[str]] = lambda: (),
) -> Iterator[None]:
    """On Ctrl-C, raise a KeyboardInterrupt whose message has the number of new files.

    `existing` lists the current output files; it is called at the start and on Ctrl-C.
    """
    before = _versions(existing())
    try:
        yield
    except KeyboardInterrupt:
        n_written = len(_versions(existing()) - before)
        note = f"{counted(n_written, 'file')} written" if n_written else ""
        raise KeyboardInterrupt(note or "nothing was written") from None


def _versions(paths: Iterable[str]) -> set[tuple[str, int, int]]:
    found = set()
    for path in paths:
        inode = modified = 0  # for a URL
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            inode, modified = status.st_ino, status.st_mtime_ns
        if inode or "://" in path:
            found.add((path, inode, modified))
    return found


def local_output(
    out: str, suffixes: Iterable[str], option: str = "--out", *, overwrite: bool
) -> Path:
    """Return `out` as a Path; raise a BadParameter if it is not a valid output."""
    path = Path(out)
    if path.suffix.lower() not in suffixes or is_remote(out):
        raise typer.BadParameter(
            f"must be a local file that ends in one of {', '.join(suffixes)}, got "
            f"{redacted(out)}",
            param_hint=option,
        )
    if os.path.lexists(path) and not overwrite:
        raise typer.BadParameter(
            f"{path} exists; --overwrite replaces it", param_hint=option
        )
    return path


def check_suffix(out: str, compression: Compression) -> None:
    """Raise a BadParameter if `out` has a suffix such as .gz without compression."""
    suffix = Path(out).suffix.lower()
    if suffix in COMPRESSED_SUFFIXES and compression is Compression.NONE:
        raise typer.BadParameter(
            f"must not end in {suffix} without --compression, got {redacted(out)}",
            param_hint="--out",
        )


def print_written(
    written: Iterable[tuple[Sequence[str], int]],
    n_bytes: int,
    seconds: float,
    *,
    as_json: bool,
) -> None:
    """Print the paths of written files, record counts and totals, as text or JSON."""
    groups = list(written)
    n_records = sum(n for _, n in groups)
    if as_json:
        files = [path for paths, _ in groups for path in paths]
        fields = {"n_records": n_records, "n_bytes": n_bytes, "seconds": seconds}
        print_json({"files": files, **fields})
        return
    for (first, *others), n in groups:
        names = printable(first)
        if others:
            names = f"{1 + len(others)} files: {names} ... {printable(others[-1])}"
        typer.echo(f"wrote {counted(n, 'record')} to {names}")
    typer.secho(
        f"{counted(n_records, 'record')}, {size(n_bytes)}, in {seconds:.2f} s "
        f"({size(n_bytes / seconds)}/s)",
        bold=True,
    )
