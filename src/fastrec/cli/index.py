"""``fastrec index``: build indexes ahead of time."""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from typer import echo, secho

import fastrec as fr
from fastrec.cli.arguments import AsJson, Paths, RayAddress
from fastrec.cli.files import files_of, indexed
from fastrec.cli.terminal import counted, print_json, print_table, printable, size
from fastrec.storage.atomic import replacement
from fastrec.storage.compression import contents_of
from fastrec.storage.index import make_indexes
from fastrec.storage.index_files import IndexPlace


def index(
    paths: Paths,
    *,
    index_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory for the indexes, instead of the user cache; pass the same "
            "index_dir= to fastrec.open.",
        ),
    ] = None,
    next_to_data: Annotated[
        bool,
        typer.Option(
            help="Keep the indexes in .fastrec/index.frecidx in the common directory of "
            "the files. fastrec.open always looks there, also in a copy of the files."
        ),
    ] = False,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Also count the values of this list in each record, for Dataset.steps.",
        ),
    ] = None,
    rank: Annotated[int, typer.Option(min=0, help="Rank of this machine, from 0.")] = 0,
    world_size: Annotated[
        int, typer.Option(min=1, help="Number of machines that share the files.")
    ] = 1,
    tfrecord2idx: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also write DIR/NAME.idx for each file NAME, in the text format of "
            "DALI's tfrecord2idx.",
        ),
    ] = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Build the indexes of TFRecord files ahead of time.

    An index stores the offset of each record, for random access. fastrec builds missing
    indexes when it first needs them, and rebuilds an index after its file changes. One
    index file contains the indexes of all files. Ctrl-C keeps saved indexes.
    """
    if rank >= world_size:
        raise typer.BadParameter(
            f"must be less than the world size ({world_size}), got {rank}",
            param_hint="--rank",
        )
    if ray is not None and (index_dir is None or world_size > 1 or steps is not None):
        raise typer.BadParameter(
            "requires --index-dir, a directory that all nodes share; omit --world-size "
            "and --steps",
            param_hint="--ray",
        )
    files = files_of(paths, joins=False)
    start = time.perf_counter()
    try:
        counts, n_read = indexed(
            files,
            ray,
            index_dir=index_dir,
            next_to_data=next_to_data,
            steps=steps,
            rank=rank,
            world_size=world_size,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("saved indexes are kept") from None
    seconds = time.perf_counter() - start
    if tfrecord2idx is not None:
        _write_texts(counts, tfrecord2idx, index_dir)
    n_records = sum(counts.values())
    if as_json:
        listed = [{"path": path, "n_records": n} for path, n in counts.items()]
        fields = {"n_bytes_indexed": n_read, "seconds": seconds}
        print_json({"files": listed, "n_records": n_records, **fields})
        return
    rows = [[printable(path), f"{n:,}"] for path, n in counts.items()]
    print_table(["file", "records"], rows)
    total = f"{counted(n_records, 'record')} in {counted(len(counts), 'file')}"
    secho(total, bold=True)
    if n_read:
        speed = size(n_read / seconds)
        echo(f"indexed {size(n_read)} in {seconds:.2f} s ({speed}/s)")
    else:
        echo("nothing to do: all files are indexed")
    if tfrecord2idx is not None:
        texts = counted(len(counts), ".idx file")
        echo(f"wrote {texts} to {printable(tfrecord2idx)}")


def _write_texts(files: Iterable[str], directory: Path, index_dir: Path | None) -> None:
    """Write a DALI index ``NAME.idx`` to `directory` per file; names must differ.

    Each line contains the offset and the size of one record's frame, in bytes.
    """
    names = {path: Path(path).name for path in files}
    name, count = Counter(names.values()).most_common(1)[0] if names else ("", 0)
    if count > 1:
        reason = f"{count} files have this name"
        raise FileExistsError(errno.EEXIST, reason, str(directory / f"{name}.idx"))
    for path, content in zip(names, contents_of(list(names)), strict=True):
        if content != "plain":
            raise fr.Error(
                f"cannot write an .idx file: {path!r} is compressed, and DALI reads only "
                "plain files; decompress it first, for example with gunzip"
            )
    directory.mkdir(parents=True, exist_ok=True)
    for path, name in names.items():
        (index,) = make_indexes([path], place=IndexPlace(index_dir))
        offsets = index.offsets.astype(np.int64)
        lines = np.stack([offsets[:-1], np.diff(offsets)], axis=1)
        with replacement(directory / f"{name}.idx") as temporary:
            np.savetxt(temporary, lines, fmt="%d")
