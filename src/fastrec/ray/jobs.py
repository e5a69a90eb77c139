"""Jobs: run fastrec commands on many files, as tasks of a Ray cluster.

All nodes must see input files and output directories under the same paths. Ray retries
tasks if a worker or node fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import ray

from fastrec.dataset.build_index import build_index
from fastrec.errors import Error
from fastrec.ray.ranges import file_spans
from fastrec.ray.write import staging
from fastrec.rewrite.copy import Written, check_existing
from fastrec.rewrite.shuffle import shuffle
from fastrec.storage.parallel import Progress
from fastrec.storage.paths import version_of
from fastrec.writer.shard_names import ShardNames, new_token
from fastrec.writer.shards import ShardOptions

_T = TypeVar("_T")

_POLL_SECONDS = 0.1
_CONNECT_SECONDS = 10
_TASKS_PER_CPU = 8  # small tasks, so that all CPUs finish at about the same time


@contextlib.contextmanager
def cluster(address: str) -> Iterator[None]:
    """Connect to the Ray cluster at `address`; disconnect at the end of the block.

    Raises a ConnectionError if the connection fails.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():  # Ray itself retries for minutes
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConnectionError(
            f"cannot connect to the Ray cluster {address!r}: {reason}"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def run_tasks(
    tasks: Sequence[Callable[[], _T]],
    sizes: Sequence[int],
    progress: Progress = lambda _done, _total: None,
) -> list[_T]:
    """Run picklable functions as tasks, each on one CPU; return their results.

    Tasks run in the current directory, if the node has it. `sizes` has the size of each
    task; `progress` receives the sum for completed tasks, and for all tasks. The first
    error cancels the other tasks.
    """
    run = ray.remote(_run_in)
    references = waiting = [run.remote(os.getcwd(), task) for task in tasks]
    size_of = dict(zip(references, sizes, strict=True))
    n_done, n_total = 0, sum(sizes)
    try:
        while waiting:
            done, waiting = ray.wait(waiting, timeout=_POLL_SECONDS)
            ray.get(done)
            n_done += sum(map(size_of.__getitem__, done))
            progress(n_done, n_total)
        return list(ray.get(references))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, (Error, OSError, ValueError)):
            raise error.cause from error
        raise
    finally:
        for reference in waiting:
            ray.cancel(reference)


def _run_in(directory: str, task: Callable[[], _T]) -> _T:
    with contextlib.suppress(OSError):  # only relative paths then fail
        os.chdir(directory)
    return task()


def map_files(
    function: Callable[[list[str]], _T],
    files: Sequence[str],
    progress: Progress = lambda _done, _total: None,
) -> list[_T]:
    """Call a picklable function on groups of consecutive files, one task per group.

    `progress` receives the total bytes of completed files, and of all files.
    """
    n_cpus = int(ray.cluster_resources().get("CPU", 1))
    sizes = [_size_of(path) for path in files]
    spans = file_spans(sizes, n_cpus * _TASKS_PER_CPU)
    tasks = [partial(function, [files[i] for i in span]) for span in spans]
    return run_tasks(tasks, [sum(sizes[i] for i in span) for span in spans], progress)


def _size_of(path: str) -> int:
    try:
        return version_of(path)[0]
    except OSError:  # the task reports it
        return 0


def shuffle_files(
    files: Sequence[str],
    out: str,
    options: ShardOptions,
    *,
    num_shards: int,
    cache_dir: str | None = None,
    progress: Progress = lambda _done, _total: None,
    **shuffle_options: Any,
) -> Written:
    """Run `fastrec.rewrite.shuffle` with one task per shard.

    The shuffle option `memory` limits each task. Raises the errors of `shuffle`.
    """
    names = ShardNames(out)
    if names.is_remote:
        raise ValueError(
            f"Ray tasks must shuffle to a directory that all nodes share, got {names.path!r}"
        )
    check_existing(names.existing(), files, overwrite=options.overwrite)
    staged = staging(names, overwrite=options.overwrite, sync=options.sync)
    with staged as (directory, writer):
        index_dir = None
        if cache_dir is None:
            index_dir = os.path.join(directory, "index")
            map_files(partial(build_index, index_dir=index_dir), files)
        task = partial(
            _shuffled,
            files,
            directory,
            dataclasses.replace(options, n_threads=1),
            num_shards=num_shards,
            cache_dir=cache_dir,
            index_dir=index_dir,
            **shuffle_options,
        )
        tasks = [partial(task, shard=shard) for shard in range(num_shards)]
        n_bytes = sum(map(_size_of, files))
        written = run_tasks(tasks, [n_bytes // num_shards] * num_shards, progress)
        writer.adopt([file for each in written for file in each.files])
    n_records = sum(each.n_records for each in written)
    return Written(writer.files, n_records, sum(each.n_bytes for each in written))


def _shuffled(
    files: Sequence[str],
    directory: str,
    options: ShardOptions,
    *,
    shard: int,
    **shuffle_options: Any,
) -> Written:
    """Write one shard, under a name that no other attempt of the task uses."""
    out = os.path.join(directory, f"{new_token()}.tfrecord")
    shards = range(shard, shard + 1)
    return shuffle(files, out, options, shards=shards, **shuffle_options)
