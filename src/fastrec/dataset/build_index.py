"""Indexes of files, built before they are needed."""

from __future__ import annotations

import os
from collections.abc import Callable

from fastrec.options import checked_names, non_negative_int, positive_int
from fastrec.storage.compression import contents_of
from fastrec.storage.index import make_counts, make_indexes
from fastrec.storage.paths import Paths, expand

__all__ = ["build_index"]


@checked_names
def build_index(
    paths: Paths,
    *,
    index_dir: str | os.PathLike[str] | None = None,
    rank: int = 0,
    world_size: int = 1,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, int]:
    """Build the indexes of files ahead of time, so that later reads need not wait.

    The records of compressed files are counted, which `fastrec.open` needs to read them
    in place.

    Parameters
    ----------
    paths : path-like or sequence of path-like
        As for `fastrec.open`.
    index_dir : path-like, optional
        Keep the indexes there and not in the user's cache; it may be shared between
        machines. Pass the same to `fastrec.open`.
    rank, world_size : int
        Divide the files among machines: this one takes every `world_size`-th file from
        file `rank` on.
    progress : callable, optional
        Called with the bytes walked so far and their total, about ten times a second.

    Returns
    -------
    dict of str to int
        Records in each of this rank's files, by path.

    Raises
    ------
    OSError
        If a file cannot be read, or an index cannot be written.
    CorruptionError
        If the framing of a file is damaged.
    """
    world_size = positive_int("world_size", world_size)
    rank = non_negative_int("rank", rank)
    if rank >= world_size:
        msg = f"rank must be less than world_size, {world_size}, got {rank}"
        raise ValueError(msg)
    mine = expand(paths)[rank::world_size]
    files = list(zip(mine, contents_of(mine), strict=True))
    plain = [path for path, content in files if content == "plain"]
    indexes = make_indexes(
        plain, index_dir=index_dir, progress=progress, must_keep=True
    )
    # Among compressed files, plain ones are read in order, too.
    streams = [] if len(plain) == len(files) else files
    counts = make_counts(streams, index_dir)
    n_records = dict(zip(plain, map(len, indexes), strict=True))
    n_records |= {file[0]: len(n) for file, n in zip(streams, counts, strict=True)}
    return {path: n_records[path] for path in mine}
