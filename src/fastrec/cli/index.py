"""``fastrec index``: build indexes ahead of time."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

import fastrec as fr
from fastrec.cli.arguments import AsJson, Paths, RayAddress
from fastrec.cli.inputs import files_of, indexed, one_line_errors
from fastrec.cli.terminal import (
    Bar,
    Stopwatch,
    console,
    counted,
    json_line,
    json_path,
    printable,
    size,
    when_interrupted,
)
from fastrec.storage.compression import contents_of
from fastrec.storage.index import write_tfrecord2idx


def index(
    paths: Paths,
    *,
    index_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to keep the indexes, instead of the user's cache; pass the same "
            "index_dir= to fastrec.open.",
            show_default=False,
        ),
    ] = None,
    next_to_data: Annotated[
        bool,
        typer.Option(
            help="Keep the indexes in .fastrec/index.frecidx in the common directory of "
            "the files, where fastrec.open always looks; it may be copied with them.",
            show_default=False,
        ),
    ] = False,
    rank: Annotated[
        int, typer.Option(min=0, help="Number of this machine, from 0.")
    ] = 0,
    world_size: Annotated[
        int, typer.Option(min=1, help="Number of machines that share the files.")
    ] = 1,
    tfrecord2idx: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also write DIR/NAME.idx for each file NAME, in the text format of "
            "DALI's tfrecord2idx.",
            show_default=False,
        ),
    ] = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Build the indexes of TFRecord files ahead of time.

    An index has the place of each record, so that any of them can be read. fastrec also
    builds it when it is first needed, and again when the file has changed. The indexes of
    all files are one file. Ctrl-C keeps those that are complete.
    """
    if rank >= world_size:
        raise typer.BadParameter(
            f"must be less than the world size ({world_size}), got {rank}",
            param_hint="--rank",
        )
    if ray is not None and (index_dir is None or world_size > 1):
        raise typer.BadParameter(
            "requires --index-dir, a directory that all nodes share, and no --world-size",
            param_hint="--ray",
        )
    out = console()
    watch = Stopwatch()
    with when_interrupted("complete indexes are kept"):
        inputs = files_of(paths, joins=False)
        if ray is not None and index_dir is not None:
            counts, n_walked = _indexed_by_ray(inputs, index_dir, ray)
        else:
            counts, n_walked = indexed(
                inputs,
                index_dir=index_dir,
                next_to_data=next_to_data,
                rank=rank,
                world_size=world_size,
            )
    seconds = watch.seconds
    if tfrecord2idx is not None:
        _write_texts(counts, tfrecord2idx, index_dir)
    if as_json:
        files = [
            {"path": json_path(path), "n_records": count}
            for path, count in counts.items()
        ]
        fields = {"files": files, "n_records": sum(counts.values())}
        fields |= {"n_bytes_indexed": n_walked, "seconds": seconds}
        out.print(json_line(fields))
        return

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
        out.print("nothing to do: all files are indexed")
    if tfrecord2idx is not None:
        out.print(
            f"wrote {counted(len(counts), '.idx file')} to {printable(tfrecord2idx)}"
        )


def _indexed_by_ray(
    files: Sequence[str], index_dir: Path, address: str
) -> tuple[dict[str, int], int]:
    """Return the number of records in each file, and the bytes of all files."""
    from fastrec.ray import jobs  # slow to import

    n_walked = 0
    with jobs.cluster(address), Bar("indexing", "bytes") as bar, one_line_errors():

        def show(done: int, total: int) -> None:
            nonlocal n_walked
            n_walked = done
            bar(done, total)

        counts = jobs.index_files(files, index_dir, show)
    return counts, n_walked


def _write_texts(files: Iterable[str], directory: Path, index_dir: Path | None) -> None:
    """Write ``NAME.idx`` for each file to `directory`; names must be unique."""
    names = {path: Path(path).name for path in files}
    name, count = Counter(names.values()).most_common(1)[0] if names else ("", 0)
    if count > 1:
        reason = f"{count} files have this name"
        raise FileExistsError(errno.EEXIST, reason, str(directory / f"{name}.idx"))
    for path, content in zip(names, contents_of(list(names)), strict=True):
        if content != "plain":
            raise fr.Error(
                f"cannot write an .idx file: {path!r} is compressed, and DALI reads only "
                "plain files; decompress it first, as gunzip does"
            )
    directory.mkdir(parents=True, exist_ok=True)
    for path, name in names.items():
        write_tfrecord2idx(path, directory / f"{name}.idx", index_dir=index_dir)
