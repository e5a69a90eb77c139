"""The input files of a command: expanded paths, stdin, and indexes behind a progress bar."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import fastrec as fr
from fastrec.cli.stdin import copied_stdin, refuse_terminal
from fastrec.cli.terminal import Bar
from fastrec.storage.paths import expand

_STDIN = "-"
_STDIN_PATH = "/dev/stdin"


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Convert a ValueError of the library to an Error, which prints as one line."""
    try:
        yield
    except (fr.Error, OSError):
        raise
    except ValueError as error:
        raise fr.Error(str(error)) from error


def files_of(
    paths: Sequence[str], *, joins: bool, allows_pipes: bool = False
) -> list[str]:
    """Return the files of `paths`. Directories are searched recursively.

    ``-`` is a copy of stdin; with `allows_pipes`, it is stdin itself, and pipes are read
    in sequence. With `joins`, a directory that mixes splits is an error, as in
    `fastrec.open`.
    """
    files = []
    for path in paths:
        home = os.path.expanduser(path)
        if path == _STDIN:
            if not allows_pipes:
                files.append(copied_stdin())
                continue
            refuse_terminal()
            home = _STDIN_PATH
        with one_line_errors():
            files += expand(home, joins=joins, allows_pipes=allows_pipes)
    return files


def indexed(
    paths: Iterable[str],
    *,
    index_dir: Path | None = None,
    next_to_data: bool = False,
    rank: int = 0,
    world_size: int = 1,
) -> tuple[dict[str, int], int]:
    """Build missing indexes, with a progress bar.

    Returns the number of records in each file, and the number of bytes that were read.
    """
    n_walked = 0
    with Bar("indexing", "bytes") as bar, one_line_errors():

        def show(done: int, total: int) -> None:
            nonlocal n_walked
            n_walked = done
            bar(done, total)

        counts = fr.build_index(
            list(paths),
            index_dir=index_dir,
            next_to_data=next_to_data,
            rank=rank,
            world_size=world_size,
            progress=show,
        )
    return counts, n_walked
