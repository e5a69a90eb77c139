"""Staging: files that tasks write, and that the driver publishes together.

::

    task -> DIRECTORY/.ray-KEY-TOKEN/ANY NAME -> driver -> final names

KEY belongs to the pattern of the final names, and TOKEN to one driver.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence

from fastrec.storage.index import rename_index
from fastrec.storage.locks import FileLock
from fastrec.storage.paths import is_remote
from fastrec.storage.urls import redacted
from fastrec.writer.output import OutputFile, resolved
from fastrec.writer.shard_names import ShardNames, new_token


def check_shared(path: str) -> None:
    """Raise a ValueError for a URL: object stores cannot rename files."""
    if is_remote(path):
        raise ValueError(
            "tasks on a Ray cluster write to a directory that all nodes share, got "
            f"{redacted(path)!r}; write to such a directory, and copy the files"
        )


@contextlib.contextmanager
def staging(names: ShardNames, *, overwrite: bool) -> Iterator[str]:
    """Lock the files of `names`, and yield a staging directory next to them.

    At the end, the directory is removed. So a task that outlives the job, behind a broken
    network, cannot write files. Raises a FileExistsError if a file must not be replaced.
    """
    lock = FileLock(names.lock)
    parent, name = os.path.split(names.lock)
    # The braces of a pattern have no place in the name of a directory.
    key = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    prefix = os.path.join(parent, f".ray-{key}-")
    directory = f"{prefix}{new_token()}"
    try:
        try:
            lock.acquire()
        except OSError as error:
            error.filename = names.path
            if isinstance(error, BlockingIOError):
                error.strerror = "another writer is writing this file"
            raise
        existing = names.existing()
        if existing and not overwrite:
            reason = os.strerror(errno.EEXIST)
            raise FileExistsError(errno.EEXIST, reason, existing[0])
        # Those of drivers that were killed.
        for leftover in glob.glob(f"{glob.escape(prefix)}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        os.mkdir(directory)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        lock.release()


def publish(
    files: Sequence[str], names: ShardNames, *, overwrite: bool, sync: bool
) -> list[str]:
    """Rename files to the names of shards; remove other shards of the pattern."""
    published = []
    for shard, file in enumerate(files):
        path = names.name(shard, len(files))
        target = resolved(path, overwrite=overwrite)
        OutputFile(path, file, overwrite=overwrite).publish(path, target, sync=sync)
        rename_index(file, target)
        published.append(path)
    for path in set(names.existing() if overwrite else ()).difference(published):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    return published
