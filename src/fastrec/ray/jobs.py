"""Jobs: the work of commands on many files, as tasks on a Ray cluster.

All nodes must see the files, and directories that are written to, under the same paths.
Ray repeats tasks whose worker or node fails.
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
from fastrec.ray.staging import check_shared, staging
from fastrec.rewrite.copy import Written, check_existing
from fastrec.rewrite.shuffle import shuffle
from fastrec.storage.parallel import Progress
from fastrec.storage.paths import version_of
from fastrec.writer.shard_names import ShardNames, new_token
from fastrec.writer.shard_options import ShardOptions

_T = TypeVar("_T")

_POLL_SECONDS = 0.1
_CONNECT_SECONDS = 10
_TASKS_PER_CPU = 8  # so that the tasks of the last CPU take little time


@contextlib.contextmanager
def cluster(address: str) -> Iterator[None]:
    """Connect to the Ray cluster at `address`, and disconnect at the end.

    Raises a ConnectionError if there is none.
    """
    try:
        _check_reachable(address)
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


def _check_reachable(address: str) -> None:
    """Raise an OSError if nothing listens there; Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()


def run_tasks(
    tasks: Sequence[Callable[[], _T]],
    sizes: Sequence[int],
    progress: Progress = lambda _done, _total: None,
) -> list[_T]:
    """Run picklable functions as tasks, each on one CPU; return their results.

    Tasks run in the current directory, where a node has it. `progress` receives the sum
    of the sizes of tasks that are done, and the total. The first error cancels the other
    tasks.
    """
    run = ray.remote(_run_in)
    directory = os.getcwd()
    references = [run.remote(directory, task) for task in tasks]
    size_of = dict(zip(references, sizes, strict=True))
    n_done, n_total = 0, sum(sizes)
    waiting = references
    try:
        while waiting:
            done, waiting = ray.wait(waiting, timeout=_POLL_SECONDS)
            for reference in done:
                ray.get(reference)
                n_done += size_of[reference]
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
    with contextlib.suppress(OSError):  # relative paths raise
        os.chdir(directory)
    return task()


def grouped(files: Sequence[str]) -> tuple[list[list[str]], list[int]]:
    """Return lists of consecutive files for one task each, and their sizes in bytes."""
    n_cpus = int(ray.cluster_resources().get("CPU", 1))
    sizes = [_size_of(path) for path in files]
    most = sum(sizes) // (n_cpus * _TASKS_PER_CPU)
    groups: list[list[str]] = []
    n_bytes: list[int] = []
    for path, size in zip(files, sizes, strict=True):
        if not groups or n_bytes[-1] + size > most:
            groups.append([])
            n_bytes.append(0)
        groups[-1].append(path)
        n_bytes[-1] += size
    return groups, n_bytes


def _size_of(path: str) -> int:
    try:
        return version_of(path)[0]
    except OSError:  # the task reports it
        return 0


def index_files(
    files: Sequence[str],
    index_dir: str | os.PathLike[str],
    progress: Progress = lambda _done, _total: None,
) -> dict[str, int]:
    """Build the indexes of files in `index_dir`; return the numbers of records.

    `progress` receives the bytes of the files that are done, and the total. Raises the
    errors of `fastrec.build_index`.
    """
    groups, sizes = grouped(files)
    tasks = [partial(build_index, group, index_dir=index_dir) for group in groups]
    counts: dict[str, int] = {}
    for of_task in run_tasks(tasks, sizes, progress):
        counts |= of_task
    return counts


def shuffle_files(
    files: Sequence[str],
    out: str,
    options: ShardOptions,
    *,
    num_shards: int,
    seed: int,
    memory: int,
    cache_dir: str | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Written:
    """Write the files of `fastrec.rewrite.shuffle`, one task for each shard.

    `memory` limits each task. Raises the errors of `fastrec.rewrite.shuffle`.
    """
    check_shared(out)
    names = ShardNames(out)
    check_existing(names.existing(), files, overwrite=options.overwrite)
    with staging(names, overwrite=options.overwrite, sync=options.sync) as stage:
        index_dir = None
        if cache_dir is None:
            index_dir = os.path.join(stage.directory, "index")
            index_files(files, index_dir)
        task = partial(
            _shuffled,
            files,
            stage.directory,
            dataclasses.replace(options, n_threads=1),
            num_shards=num_shards,
            seed=seed,
            memory=memory,
            cache_dir=cache_dir,
            index_dir=index_dir,
        )
        tasks = [partial(task, shard=shard) for shard in range(num_shards)]
        n_bytes = sum(map(_size_of, files))
        written = run_tasks(tasks, [n_bytes // num_shards] * num_shards, progress)
        published = stage.publish([file for each in written for file in each.files])
    return Written(
        published,
        sum(each.n_records for each in written),
        sum(each.n_bytes for each in written),
    )


def _shuffled(
    files: Sequence[str],
    directory: str,
    options: ShardOptions,
    *,
    shard: int,
    **shuffle_options: Any,
) -> Written:
    """Write one shard under a name that no other attempt uses."""
    out = os.path.join(directory, f"{new_token()}.tfrecord")
    shards = range(shard, shard + 1)
    return shuffle(files, out, options, shards=shards, **shuffle_options)
