"""Build the indexes of files ahead of time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from fastrec.dataset.open import open as open_files
from fastrec.errors import Error, advise_repair
from fastrec.features.steps import steps_of
from fastrec.hints import checked_names
from fastrec.options import (
    non_negative_int,
    positive_int,
)
from fastrec.sources.file_set import FileSet
from fastrec.sources.steps import count_steps
from fastrec.storage.compression import contents_of
from fastrec.storage.index import make_indexes
from fastrec.storage.index_files import IndexPlace, Scope
from fastrec.storage.paths import Paths, expand
from fastrec.storage.stores import StorageOptions


@checked_names
def build_index(
    paths: Paths,
    *,
    index_dir: str | os.PathLike[str] | None = None,
    next_to_data: bool = False,
    steps: str | None = None,
    rank: int = 0,
    world_size: int = 1,
    progress: Callable[[int, int], object] | None = None,
    storage_options: StorageOptions | None = None,
) -> dict[str, int]:
    """Build the indexes of TFRecord files, so that later reads start at once.

    One index file holds the indexes of all files. Existing indexes are checked against
    sampled records of their files.

    Parameters
    ----------
    paths : path-like or sequence of path-like
        See `fastrec.open`.
    index_dir : path-like, optional
        Directory for indexes; by default in the user's cache. Machines may share it.
        Pass the same directory to `fastrec.open`.
    next_to_data : bool, default False
        Store the indexes in ``.fastrec/index.frecidx`` in the common directory of the
        files, where `fastrec.open` always looks. You may copy the index file with the
        files: `fastrec.open` uses the index of a file that has the same name and size,
        if sampled records match.
    steps : str, optional
        Also count the values of this list in each record, for `Dataset.steps` of the
        same files: the column must be the first of its windows that has numbers. Reads
        the files once, unless the counts exist.
    rank, world_size : int
        Divide the files among machines: this machine indexes file `rank` and every
        `world_size`-th file after it.
    progress : callable, optional
        Called as ``progress(bytes_read, bytes_total)``, about ten times a second.
    storage_options : mapping, optional
        See `fastrec.open`.

    Returns
    -------
    dict of str to int
        The number of records in each file of this rank, by path.

    Raises
    ------
    OSError
        If a file cannot be read, or an index cannot be written.
    CorruptionError
        If the framing of a file is damaged.
    """
    world_size = positive_int("world_size", world_size)
    rank = non_negative_int("rank", rank)
    if next_to_data and (index_dir is not None or world_size > 1):
        raise ValueError("next_to_data=True excludes index_dir= and world_size=")
    if rank >= world_size:
        raise ValueError(f"rank must be less than world_size={world_size}, got {rank}")
    if steps is not None and world_size > 1:
        raise ValueError("steps= excludes world_size=: counts belong to all files")
    names = expand(paths, storage_options=storage_options)
    own_files = names[rank::world_size]
    place = IndexPlace(
        index_dir,
        part=(rank, world_size) if world_size > 1 else None,
        is_next_to_data=next_to_data,
        must_keep=True,
    )
    if next_to_data:
        place.path(Scope.of(own_files))  # raises an error before the first request
    contents = contents_of(own_files)
    try:
        is_plain = set(contents) <= {"plain"}
        indexes = make_indexes(
            own_files,
            contents=None if is_plain else contents,
            place=place,
            progress=progress,
        )
    except Error as error:
        FileSet(own_files).advise(error)
        advise_repair(error)  # build_index() has no on_error=
        raise
    if steps is not None:
        options: Any = {"index_dir": index_dir, "storage_options": storage_options}
        source = open_files(own_files, features=[steps], **options)._source
        source.files.check_random_access("steps=")
        steps_of(source.schema, {steps: 0}, 1, "repeat", ())  # raises if not a list
        count_steps(source, [steps], place)
    return dict(zip(own_files, indexes.counts.tolist(), strict=True))
