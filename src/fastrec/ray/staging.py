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


class Staging:
    """The staging directory of one driver."""

    def __init__(
        self, names: ShardNames, directory: str, *, overwrite: bool, sync: bool
    ) -> None:
        self.directory = directory
        self._names, self._overwrite, self._sync = names, overwrite, sync
        self._replaced = names.existing()

    def publish(self, files: Sequence[str]) -> list[str]:
        """Rename files to the names of shards; remove other shards of the pattern."""
        published = []
        for shard, file in enumerate(files):
            path = self._names.name(shard, len(files))
            target = resolved(path, overwrite=self._overwrite)
            output = OutputFile(path, file, overwrite=self._overwrite)
            output.publish(path, target, sync=self._sync)
            rename_index(file, target)
            published.append(path)
        for path in set(self._replaced).difference(published):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        return published


@contextlib.contextmanager
def staging(names: ShardNames, *, overwrite: bool, sync: bool) -> Iterator[Staging]:
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
        yield Staging(names, directory, overwrite=overwrite, sync=sync)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        lock.release()
