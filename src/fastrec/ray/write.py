"""write_tfrecords: Ray tasks write files, and the driver publishes them together.

::

    blocks -> write tasks -> DIRECTORY/.ray-KEY-TOKEN/ANY NAME -> driver -> final names

KEY identifies the pattern of the final names, and TOKEN one driver. Each attempt of a
task writes files with unique names. The driver publishes the files of successful
attempts in task order, then removes the staging directory with all other files.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import itertools
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import ray
import ray.data
from ray.data.block import BlockAccessor
from ray.data.datasource import Datasink

from fastrec.errors import Error
from fastrec.features.base import Spec
from fastrec.features.schema import Features, as_schema
from fastrec.hints import checked_names
from fastrec.options import positive_int
from fastrec.ray.blocks import columns_of_batch, features_of_schema
from fastrec.storage.paths import is_remote, names_below
from fastrec.storage.remote import RemotePath, delete
from fastrec.storage.stores import Entry, StorageOptions
from fastrec.storage.urls import redacted, split_url
from fastrec.writer.shard_names import ShardNames, new_token
from fastrec.writer.shards import ShardOptions, ShardWriter
from fastrec.writer.writer import Writer

if TYPE_CHECKING:
    from ray.data._internal.execution.interfaces import TaskContext
    from ray.data.block import Block
    from ray.data.datasource.datasink import WriteResult

_log = logging.getLogger("fastrec")

# The index of a task, its number of records, and its files.
_Written: TypeAlias = "tuple[int, int, list[str]]"


@checked_names
def write_tfrecords(
    dataset: ray.data.Dataset,
    path: str | os.PathLike[str],
    *,
    features: Features | None = None,
    overwrite: bool = False,
    max_shard_bytes: int | str | None = None,
    max_shard_records: int | None = None,
    min_rows_per_file: int | None = None,
    compression: str | None = None,
    compression_level: int | None = None,
    sync: bool = True,
    storage_options: StorageOptions | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
) -> list[str]:
    """Write the rows of a Ray Data dataset as TFRecord files of tf.train.Examples.

    The files appear under their final names when all are complete. Each row is written
    exactly once, even if tasks are retried. If the job fails, it leaves no files. If
    objects are replaced, and copying fails, those that were copied remain.

    Parameters
    ----------
    dataset : ray.data.Dataset
        Columns of numbers, strings, binary, lists and tensors. A null omits the feature.
        Tensor columns of three or more dimensions ``(n, ...)`` are written as bytes,
        which `fastrec.Raw` reads.
    path : str or os.PathLike
        A shard pattern, such as ``"train-{shard:05d}-of-{num_shards:05d}.tfrecord"``. All
        nodes must see its directory under the same path. If it is a URL, the store
        copies each complete object to its final name; S3 copies objects of up to 5 GB.
    features : mapping of str to specs, optional
        See `fastrec.Writer`.
    overwrite : bool, default False
        Replace existing files that match the pattern, when the new files are complete.
    max_shard_bytes, max_shard_records, compression, compression_level, sync
        See `fastrec.Writer`. Each write task with rows writes at least one file.
    min_rows_per_file : int, optional
        Pass at least this many rows to each write task, as in Ray's own writers. By
        default each block becomes a file.
    storage_options : mapping, optional
        See `fastrec.open`. Ray sends the options to the write tasks. Without them, the
        tasks read credentials from their environment variables.
    concurrency, ray_remote_args
        See ``ray.data.Dataset.write_datasink``.

    Returns
    -------
    list of str
        The files, in the order of the blocks.

    Raises
    ------
    FileExistsError
        If a file exists and `overwrite` is not set.
    BlockingIOError
        If another writer is writing files of the same pattern.
    SchemaError, TypeError, ValueError
        If an argument is invalid, or a column cannot be written.
    OSError
        If a file cannot be written.

    Examples
    --------
    >>> fr.ray.write_tfrecords(
    ...     ds, "out/train-{shard:05d}.tfrecord", overwrite=True
    ... )  # doctest: +SKIP
    """
    given: object = dataset
    if not isinstance(given, ray.data.Dataset):
        raise TypeError(
            f"dataset must be a ray.data.Dataset, got {type(given).__name__}"
        )
    name = os.fsdecode(path)
    located = name if is_remote(name) else os.path.abspath(name)
    names = ShardNames(located, storage_options)
    if not names.is_pattern:
        raise ValueError(
            'path must be a shard pattern such as "train-{shard:05d}.tfrecord", '
            f"got {redacted(name)!r}"
        )
    if names.is_remote and redacted(name) != name:
        raise ValueError(
            "Ray does not send the user name and password in a URL to the write tasks; "
            "pass storage_options="
        )
    if min_rows_per_file is not None:
        min_rows_per_file = positive_int("min_rows_per_file", min_rows_per_file)
    options = {
        "max_shard_bytes": max_shard_bytes,
        "max_shard_records": max_shard_records,
        "compression": compression,
        "compression_level": compression_level,
        "sync": sync,
        "storage_options": storage_options,
    }
    specs = {} if features is None else dict(as_schema(features))
    with staging(names, overwrite=overwrite, sync=sync) as (directory, writer):
        sink = TFRecordsDatasink(str(directory), specs, options, min_rows_per_file)
        # This writer checks the options; its empty file is used if there are no rows.
        with sink.writer("empty") as empty:
            pass
        try:
            dataset.write_datasink(
                sink, concurrency=concurrency, ray_remote_args=ray_remote_args
            )
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, (Error, OSError)):
                raise error.cause from error
            raise
        files = sink.files or empty.files
        if isinstance(directory, RemotePath):  # with the driver's credentials
            files = [directory.sibling(Entry(split_url(file)[1])) for file in files]
        writer.adopt(files)
    return writer.files


@dataclass(eq=False)
class TFRecordsDatasink(Datasink):
    """Ray datasink that writes TFRecord files; Ray names its tasks TFRecords."""

    directory: str
    features: dict[Any, Spec]
    options: dict[str, Any]
    min_rows_per_write: int | None = None  # per task, except the last task
    files: list[str] = field(default_factory=list)

    def writer(self, name: str, features: dict[str, Spec] | None = None) -> Writer:
        """Return a writer for one attempt of a task; file names begin with `name`."""
        pattern = os.path.join(self.directory, f"{name}-{{shard:06d}}.tfrecord")
        features = {**(features or {}), **self.features}
        return Writer(pattern, features=features or None, num_threads=0, **self.options)

    def write(self, blocks: Iterable[Block], ctx: TaskContext) -> _Written:
        """Write the blocks of a task; return its index, record count and files."""
        tables = (BlockAccessor.for_block(block).to_arrow() for block in blocks)
        batches = (b for table in tables for b in table.to_batches() if len(b))
        first = next(batches, None)
        if first is None:
            return ctx.task_idx, 0, []
        with self.writer(new_token(), features_of_schema(first.schema)) as writer:
            for batch in itertools.chain([first], batches):
                writer.write_batch(columns_of_batch(batch))
        return ctx.task_idx, writer.n_records, [*map(str, writer.files)]

    def on_write_complete(self, write_result: WriteResult[_Written]) -> None:
        """Set `files` to the files of all tasks, in the order of the tasks."""
        tasks = sorted(write_result.write_returns)
        n_records = sum(n for _, n, _ in tasks)
        if n_records != write_result.num_rows:
            raise Error(
                f"write tasks must write {write_result.num_rows} rows, got {n_records}"
            )
        self.files = [file for _, _, files in tasks for file in files]


@contextlib.contextmanager
def staging(
    names: ShardNames, *, overwrite: bool, sync: bool
) -> Iterator[tuple[str, ShardWriter]]:
    """Yield a staging directory next to the final files, and a writer of `names`.

    The writer locks the names, and at the end publishes the files that it adopted. Then
    the directory is removed: a task that outlives the job, for example after a network
    failure, cannot write local files. Raises a FileExistsError if a file must be kept.
    """
    options = ShardOptions(overwrite=overwrite, sync=sync, together=True)
    writer = ShardWriter(names, options)
    parent, name = os.path.split(names.lock)
    # Hash the pattern: a directory name should not contain its braces.
    key = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    final = names.name(0, 1)
    if isinstance(final, RemotePath):
        parent = os.path.dirname(final.key)
    prefix = os.path.join(parent, f".ray-{key}-")
    directory = f"{prefix}{new_token()}"
    if isinstance(final, RemotePath):
        directory = final.sibling(Entry(directory))
    try:
        if not isinstance(directory, RemotePath):
            # Remove the staging directories of killed drivers. In a bucket, such a
            # driver may be running on another machine.
            for leftover in glob.glob(f"{glob.escape(prefix)}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            os.mkdir(directory)
        yield directory, writer
        writer.close()
    finally:
        try:
            _remove(directory)
        except OSError as error:  # the job may have succeeded
            _log.warning("cannot remove the staged files: %s", error)
        finally:
            writer.discard()


def _remove(directory: str) -> None:
    if not isinstance(directory, RemotePath):
        shutil.rmtree(directory, ignore_errors=True)
        return
    for name in names_below(directory, directory.key):
        delete(directory.sibling(Entry(f"{directory.key}/{name}")))
