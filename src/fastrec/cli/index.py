"""``fastrec index``: build indexes ahead of time."""

from __future__ import annotations

import contextlib
import errno
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

import fastrec as fr
from fastrec.cli.arguments import Paths
from fastrec.cli.terminal import Bar, Stopwatch, console, counted, printable, size
from fastrec.storage.index import write_tfrecord2idx
from fastrec.storage.paths import expand

__all__ = ["files_of", "index", "indexed", "one_line_errors"]


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Report a ValueError of the library, about an argument, as one line."""
    try:
        yield
    except fr.Error:
        raise
    except ValueError as error:
        raise fr.Error(str(error)) from error


def files_of(paths: Sequence[str], *, joins: bool) -> list[str]:
    """Return the files that `paths` names, as `fastrec.storage.paths.expand` does."""
    with one_line_errors():
        return expand(paths, joins=joins)


def indexed(
    paths: Iterable[str],
    *,
    index_dir: Path | None = None,
    rank: int = 0,
    world_size: int = 1,
) -> tuple[dict[str, int], int]:
    """Build the indexes that are missing, behind a progress bar.

    Returns the number of records in each file, and the bytes of the files indexed now.
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
            rank=rank,
            world_size=world_size,
            progress=show,
        )
    return counts, n_walked


def index(
    paths: Paths,
    *,
    index_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep the indexes there and not in the user's cache; pass the same "
            "index_dir= to fastrec.open.",
        ),
    ] = None,
    rank: Annotated[
        int, typer.Option(min=0, help="Which of the machines this one is.")
    ] = 0,
    world_size: Annotated[
        int, typer.Option(min=1, help="Machines that share the files.")
    ] = 1,
    tfrecord2idx: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also write NAME.idx for each file NAME there, in the text format of "
            "DALI's tfrecord2idx.",
        ),
    ] = None,
) -> None:
    """Build the indexes of TFRecord files ahead of time."""
    if rank >= world_size:
        msg = f"{rank} is not below the world size, {world_size}"
        raise typer.BadParameter(msg, param_hint="--rank")
    out = console()
    watch = Stopwatch()
    counts, n_walked = indexed(
        paths, index_dir=index_dir, rank=rank, world_size=world_size
    )
    seconds = watch.seconds

    out.print(f"{'records':>15}  file", style="bold")
    for path, count in counts.items():
        out.print(f"{count:>15,}  {printable(path)}")
    total = counted(sum(counts.values()), "record")
    out.print(f"{total} in {counted(len(counts), 'file')}", style="bold")
    if n_walked:
        out.print(
            f"indexed {size(n_walked)} in {seconds:.2f} s "
            f"({size(n_walked / seconds)}/s)"
        )
    else:
        out.print("nothing to do: the indexes were there already")
    if tfrecord2idx is not None:
        _write_texts(counts, tfrecord2idx, index_dir)
        out.print(
            f"wrote {counted(len(counts), '.idx file')} to {printable(tfrecord2idx)}"
        )


def _write_texts(files: Iterable[str], directory: Path, index_dir: Path | None) -> None:
    """Write ``NAME.idx`` for each file into `directory`; no two may be the same."""
    names = {path: Path(path).name for path in files}
    name, count = Counter(names.values()).most_common(1)[0] if names else ("", 0)
    if count > 1:
        reason = f"{count} files would have this index, since they share their name"
        raise FileExistsError(errno.EEXIST, reason, str(directory / f"{name}.idx"))
    directory.mkdir(parents=True, exist_ok=True)
    for path, name in names.items():
        write_tfrecord2idx(path, directory / f"{name}.idx", index_dir=index_dir)
