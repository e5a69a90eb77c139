"""Build the indexes of files ahead of time."""

from __future__ import annotations

import os
from collections.abc import Callable

from fastrec.hints import checked_names
from fastrec.options import (
    non_negative_int,
    positive_int,
)
from fastrec.storage.compression import contents_of
from fastrec.storage.index import make_counts, make_indexes
from fastrec.storage.paths import Paths, expand
from fastrec.storage.stores import StorageOptions

__all__ = ["build_index"]


@checked_names
def build_index(
    paths: Paths,
    *,
    index_dir: str | os.PathLike[str] | None = None,
    rank: int = 0,
    world_size: int = 1,
    progress: Callable[[int, int], object] | None = None,
    storage_options: StorageOptions | None = None,
) -> dict[str, int]:
    """Build the indexes of files ahead of time, so that later reads do not wait.

    Compressed files have no index; their records are counted.

    Parameters
    ----------
    paths : path-like or sequence of path-like
        As for `fastrec.open`.
    index_dir : path-like, optional
        Where to keep the indexes, instead of the user's cache. Machines may share it.
        Pass the same directory to `fastrec.open`.
    rank, world_size : int
        Divide the files among machines: this one indexes every `world_size`-th file,
        starting with file `rank`.
    progress : callable, optional
        Called with the bytes read so far and their total, about ten times a second.
    storage_options : mapping, optional
        As for `fastrec.open`.

    Returns
    -------
    dict of str to int
        The number of records in each of this rank's files, by path.

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
        msg = f"rank must be less than world_size={world_size}, got {rank}"
        raise ValueError(msg)
    names = expand(paths, storage_options=storage_options)
    own_files = names[rank::world_size]
    files = list(zip(own_files, contents_of(own_files), strict=True))
    plain = [path for path, content in files if content == "plain"]
    indexes = make_indexes(
        plain, index_dir=index_dir, progress=progress, must_keep=True
    )
    # If any file is compressed, all are read in sequence, and the counts are needed.
    streams = [] if len(plain) == len(files) else files
    counts = make_counts(streams, index_dir)
    n_records = dict(zip(plain, map(len, indexes), strict=True))
    n_records |= {file[0]: len(n) for file, n in zip(streams, counts, strict=True)}
    return {path: n_records[path] for path in own_files}
