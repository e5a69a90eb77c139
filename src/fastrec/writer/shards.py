"""Divide frames into shards, and write the shards to files.

::

    frames -> lane -> shard -> pieces, compressed by any thread -> file, in order

A *lane* holds one open shard. There is either one lane, in which shards follow each
other, or one lane per shard. Threads compress and write. The caller submits frames, and
waits while too many bytes are in flight. The files do not depend on the thread count.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastrec import _core
from fastrec.printable import printable
from fastrec.storage.atomic import FileLock, sync_directory
from fastrec.storage.compression import CONTENTS, Codec
from fastrec.storage.index import index_of, keep_indexes
from fastrec.storage.paths import versions_of
from fastrec.storage.remote import RemotePath, delete
from fastrec.tasks import Task, TaskPool, run_registered
from fastrec.writer.output import OutputFile, end_of_records, resolved
from fastrec.writer.shard_names import ShardNames, new_token

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The bytes of frames, and the offset of each frame and of the end.
Frames: TypeAlias = "tuple[NDArray[np.uint8], NDArray[np.uint64]]"

_MAX_BYTES_IN_FLIGHT = 64 << 20
# Also limits the tasks that end a shard, which have no bytes but an open file.
_MAX_TASKS_IN_FLIGHT = 128


@dataclass(frozen=True)
class ShardOptions:
    """Options for dividing records into shards and writing them.

    `max_bytes` and `max_records` limit a shard, before compression. With `together`, no
    file is published before all are complete. With `sync`, files are flushed to the
    disk before they are renamed. If `n_threads` is 0, the caller compresses and writes.
    """

    overwrite: bool = False
    max_bytes: int | None = None
    max_records: int | None = None
    compression: str | None = None
    level: int = -1
    sync: bool = True
    together: bool = False
    n_threads: int = 0


class ShardWriter:
    """Writer of frames to shards whose paths come from `names`.

    `n_lanes` shards are open at once. If it is None, shards are written one after
    another, and `counts` may set the number of records in each shard. `append`
    continues a single file, if it exists. The constructor raises an OSError if a file
    must not be replaced or another writer has locked these names.
    """

    def __init__(
        self,
        names: ShardNames,
        options: ShardOptions,
        n_lanes: int | None = None,
        *,
        append: bool = False,
        counts: Sequence[int] = (),
    ) -> None:
        self._names = names
        self._options = options
        self._n_lanes = n_lanes
        self._counts = counts
        self._process = os.getpid()
        self._token = new_token()
        # The base of relative paths, because the process may change its directory.
        is_absolute = names.is_remote or os.path.isabs(names.path)
        self._directory = "" if is_absolute else os.getcwd()
        self._shards: list[_Shard] = []
        self._lock = FileLock(names.lock)
        # The threads; when stopped, they remove unpublished files.
        self.pool = TaskPool(
            options.n_threads, at_end=partial(_remove_rest, self._lock, self._shards)
        )
        self._removal = partial(run_registered, self.pool.ending)
        self._failures: list[BaseException] = []
        self._in_flight: deque[tuple[Task[None], int]] = deque()
        self._is_closed = False
        self.files: list[str] = []
        self.attempt(self._begin, append=append)

    def _begin(self, *, append: bool) -> None:
        names, options = self._names, self._options
        if append and names.is_remote:
            raise ValueError(f"append=True requires a local path, got {names.path!r}")
        try:
            is_alone = self._lock.acquire()
        except OSError as error:
            error.filename = names.path
            if isinstance(error, BlockingIOError):
                error.strerror = "another writer is writing this file"
            raise
        self._replaced = names.existing()
        # Publish at the end if names need the number of shards, or if shards are
        # replaced, so that readers never see a mix of old and new shards.
        self._waits = (
            options.together
            or names.has_num_shards
            or (names.is_pattern and bool(self._replaced))
        )
        if self._replaced and not (append or options.overwrite):
            reason = os.strerror(errno.EEXIST)
            raise FileExistsError(errno.EEXIST, reason, self._replaced[0])
        if is_alone:
            names.remove_leftovers()
        is_appended = append and bool(self._replaced)
        lanes = range(self._n_lanes or 1)
        self._lanes = [self._open_shard(is_appended=is_appended) for _ in lanes]

    # Writing.

    def write(self, frames: Frames, lane: int = 0) -> None:
        """Submit frames to a lane, or raise the error of an earlier write."""
        self.attempt(self._submit, frames, lane)

    def _submit(self, frames: Frames, lane: int) -> None:
        data, offsets = frames
        while len(offsets) > 1:
            shard = self._lanes[lane]
            n = self._n_that_fit(shard, offsets)
            if n == 0:
                self._end(shard)
                self._lanes[lane] = self._open_shard()
                continue
            first, end = int(offsets[0]), int(offsets[n])
            write = shard.add(data[first:end], offsets[: n + 1] - offsets[0])
            self._run(write, end - first)
            offsets = offsets[n:]

    def _n_that_fit(self, shard: _Shard, offsets: NDArray[np.uint64]) -> int:
        """Return how many of the frames at `offsets` still fit into the shard."""
        n = len(offsets) - 1
        if shard.number + 1 < len(self._counts):
            return min(n, self._counts[shard.number] - shard.n_records)
        if self._options.max_records is not None:
            n = min(n, self._options.max_records - shard.n_records)
        if self._options.max_bytes is not None:
            end = int(offsets[0]) + max(0, self._options.max_bytes - shard.n_bytes)
            n = min(n, int(np.searchsorted(offsets, np.uint64(end), "right")) - 1)
        return n or int(shard.n_records == 0)  # an empty shard accepts any record

    def _end(self, shard: _Shard) -> None:
        self._run(shard.end(waits=self._waits), 0)

    def _run(self, task: Callable[[], object], n_bytes: int) -> None:
        """Run a task that writes `n_bytes`, after waiting if too much is in flight."""
        if self._options.n_threads == 0:
            task()
            return
        while self._in_flight and (
            self._in_flight[0][0].is_done
            or len(self._in_flight) >= _MAX_TASKS_IN_FLIGHT
            or sum(n for _, n in self._in_flight) + n_bytes > _MAX_BYTES_IN_FLIGHT
        ):
            self._wait_for_first()
        self._raise_failure()
        done = self.pool.submit(partial(_unless_failed, task, self._failures))
        self._in_flight.append((done, n_bytes))

    def wait(self) -> None:
        """Wait until all submitted frames have been written to their files."""
        self.attempt(self._wait)

    def _wait(self) -> None:
        while self._in_flight:
            self._wait_for_first()
        self._raise_failure()

    def _wait_for_first(self) -> None:
        self._in_flight[0][0].result()
        self._in_flight.popleft()

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures[0]

    def spread(self, tasks: Iterator[Callable[[], _T]]) -> Iterator[_T]:
        """Run tasks in the writer's threads; yield results in the order of `tasks`."""
        self.check()
        if self._options.n_threads < 2:
            yield from (task() for task in tasks)
            return
        in_flight: deque[Task[_T]] = deque()
        try:
            for task in tasks:
                in_flight.append(self.pool.submit(task))
                if len(in_flight) > self._options.n_threads:
                    yield in_flight.popleft().result()
            while in_flight:
                yield in_flight.popleft().result()
        finally:
            # The caller may reuse the arrays when this returns.
            for waited in in_flight:
                while not waited.wait():
                    pass

    @property
    def n_records(self) -> int:
        """The number of submitted records."""
        return sum(shard.n_records for shard in self._shards)

    @property
    def n_bytes(self) -> int:
        """The size of the submitted frames in bytes, before compression."""
        return sum(shard.n_bytes for shard in self._shards)

    def adopt(self, files: Sequence[str]) -> None:
        """Discard the open shards, which are empty, and use complete files instead.

        Raises an OSError if the store cannot copy one of the files.
        """
        remote = [file for file in files if isinstance(file, RemotePath)]
        limit = remote[0].store.max_copy_bytes if remote else None
        if limit and (largest := int(versions_of(remote)[:, 0].max())) > limit:
            reason = (
                f"the store copies objects of up to {limit:,} bytes, got a shard of "
                f"{largest:,} bytes; pass max_shard_bytes="
            )
            raise OSError(errno.EFBIG, reason, self._names.path)
        for shard in self._shards:
            shard.file.discard()
        self._lanes = []
        self._shards.clear()
        for number, file in enumerate(files):
            path, target = self._paths(number, len(files))
            output = OutputFile(path, file, overwrite=self._options.overwrite)
            no_records = np.zeros(1, np.uint64)
            shard = _Shard(number, output, target, self._options, no_records)
            self._shards.append(shard)

    # Closing.

    @property
    def closed(self) -> bool:
        """Whether the writer was closed or discarded, or has failed."""
        return self._is_closed or bool(self._failures)

    def end(self) -> None:
        """Complete all shards, so that `close` only has to publish them."""
        self.attempt(self._end_all)

    def _end_all(self) -> None:
        lanes, self._lanes = self._lanes, []
        for shard in lanes:
            self._end(shard)
        while len(self._shards) < len(self._counts):  # the rest has no records
            self._end(self._open_shard())
        self._wait()

    def close(self) -> None:
        """Complete and publish all shards; further calls do nothing."""
        if self._is_closed and not self._failures:
            return
        self.end()
        self.attempt(self._publish_all)
        self.pool.stop()

    def _publish_all(self) -> None:
        copied: list[RemotePath] = []
        try:
            for shard in self._shards:
                if not shard.file.is_published:
                    path, target = self._paths(shard.number, len(self._shards))
                    is_staged = isinstance(shard.file.current_path, RemotePath)
                    if is_staged and isinstance(target, RemotePath):
                        copied.append(target)
                    shard.file.publish(path, target, sync=self._options.sync)
        except BaseException:
            with contextlib.suppress(OSError):  # of a store that fails
                for target in copied:
                    if target not in self._replaced:
                        delete(target)
            raise
        self.files = [shard.file.path for shard in self._shards]
        written = {self._real(path) for path in self.files}
        rest = [path for path in self._replaced if self._real(path) not in written]
        for path in rest:
            if isinstance(path, RemotePath):
                delete(path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._directory, path))
        if rest and self._options.sync and not self._names.is_remote:
            # A power cut must not bring back the old shards next to the new ones.
            sync_directory(os.path.dirname(self._real(rest[0])))
        self._is_closed = True

    def discard(self) -> None:
        """Remove unpublished files; do nothing if the writer is closed."""
        self._is_closed = True
        self.pool.stop()

    def _real(self, path: str) -> str:
        if isinstance(path, RemotePath):
            return path
        return os.path.realpath(os.path.join(self._directory, path))

    # Shards.

    def _paths(self, number: int, num_shards: int | None) -> tuple[str, str]:
        """Return the path of a shard as the caller wrote it, and its resolved path."""
        path = self._names.name(number, num_shards)
        overwrite = self._options.overwrite
        return path, resolved(path, overwrite=overwrite, directory=self._directory)

    def _open_shard(self, *, is_appended: bool = False) -> _Shard:
        number, options = len(self._shards), self._options
        offsets = np.zeros(1, np.uint64)
        if is_appended:  # the lock keeps other writers out
            path = self._names.path
            target = resolved(path, overwrite=True)
            offsets = end_of_records(path)
            file = OutputFile(path, target, append_at=int(offsets[-1]))
        else:
            path, target = self._paths(number, self._n_lanes)
            directory = os.path.dirname(target)
            temporary = self._names.temporary(directory, self._token, number)
            file = OutputFile(path, temporary, overwrite=options.overwrite)
        shard = _Shard(number, file, target, options, offsets)
        self._shards.append(shard)  # first, so that an interrupt removes its file
        file.open()
        return shard

    # Failures.

    def check(self) -> None:
        """Raise an error if the writer failed or is closed, or in a forked process."""
        path = printable(self._names.path)
        if os.getpid() != self._process:
            raise ValueError(
                f"cannot use the writer of {path} in a forked process; create a new one"
            )
        if self._failures:
            failure = self._failures[0]
            self.discard()
            if isinstance(failure, OSError) and failure.errno is not None:
                raise OSError(failure.errno, failure.strerror, failure.filename)
            if isinstance(failure, Exception):
                raise failure
            raise ValueError(
                f"the writer of {path} was interrupted; its records are lost"
            )
        if self._is_closed:
            raise ValueError(f"the writer of {path} is closed")

    def attempt(
        self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Call a function; if it raises an exception, all later calls fail, too."""
        self.check()
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            # Call only C code first, because another signal may interrupt Python code.
            if not self._failures:
                self._failures.append(error)
            try:
                _thread.start_new_thread(self._removal, ())
            except RuntimeError:  # the system cannot start a thread
                self._removal()
            self.discard()
            raise


def _unless_failed(task: Callable[[], object], failures: list[BaseException]) -> None:
    """Run a task unless `failures` has an error; add an error of this task to it."""
    if failures:
        return
    try:
        task()
    except BaseException as failure:  # noqa: BLE001 (raised later, to the caller)
        failures.append(failure)


def _remove_rest(lock: FileLock, shards: Sequence[_Shard]) -> None:
    """Discard all unpublished files and appended records, then release the lock."""
    with contextlib.ExitStack() as stack:  # continues if a callback raises
        stack.callback(lock.release)
        for shard in shards:
            stack.callback(shard.file.discard)


class _Shard:
    """One shard: its file, and the pieces that are to be written in sequence."""

    def __init__(
        self,
        number: int,
        file: OutputFile,
        target: str,
        options: ShardOptions,
        offsets: NDArray[np.uint64],
    ) -> None:
        self.number = number
        self.file = file
        self.n_records = 0
        self.n_bytes = int(offsets[-1])
        self._target = target
        self._options = options
        self._codec = Codec(options.compression, options.level)
        self._offsets = [offsets]
        self._payload_crcs = [np.zeros(0, np.uint32)]
        self._sequence = itertools.count()
        # Writes of prepared pieces, by their number in the sequence.
        self._ready: dict[int, Callable[[], object]] = {}
        self._n_done = 0
        self._writing = _thread.allocate_lock()  # only acquired without blocking

    def add(
        self, data: NDArray[np.uint8], offsets: NDArray[np.uint64]
    ) -> Callable[[], object]:
        """Add frames, whose offsets begin at 0; return the task that writes them."""
        self._offsets.append(offsets[1:] + np.uint64(self.n_bytes))
        if self._options.compression is not None:
            footers = (offsets[1:] - np.uint64(4))[:, None] + np.arange(4, dtype="u8")
            self._payload_crcs.append(data[footers].view("<u4").ravel())
        self.n_records += len(offsets) - 1
        self.n_bytes += data.size
        number = next(self._sequence)

        def write() -> None:
            prepared = self._codec.prepared(data)  # type: ignore[arg-type]
            self._commit(number, lambda: self.file.write(self._codec.ordered(prepared)))

        return write

    def end(self, *, waits: bool) -> Callable[[], object]:
        """Return the task that completes the file and, unless `waits`, publishes it."""
        finish = partial(self._finish, waits=waits)
        return partial(self._commit, next(self._sequence), finish)

    def _commit(self, number: int, write: Callable[[], object]) -> None:
        """Queue a write; run queued writes in sequence, unless another thread does."""
        self._ready[number] = write
        while self._n_done in self._ready and self._writing.acquire(blocking=False):
            try:
                while write_next := self._ready.pop(self._n_done, None):
                    write_next()
                    self._n_done += 1
            finally:
                self._writing.release()

    def _finish(self, *, waits: bool) -> None:
        self.file.write(self._codec.end())
        if self._options.sync:
            self.file.sync()
        self.file.close()
        if not waits:
            self.file.publish(self.file.path, self._target, sync=self._options.sync)
        # Store the index, and free the memory of the offsets.
        offsets = np.concatenate(self._offsets)
        payload_crcs = np.concatenate(self._payload_crcs)
        self._offsets, self._payload_crcs = [], []
        compression = self._options.compression
        path, crcs = self.file.current_path, payload_crcs if compression else None

        def keep() -> None:
            index = index_of(path, offsets, crcs, CONTENTS[compression])
            keep_indexes([path], _core.Indexes([index]), None)

        # In a thread, because a signal may interrupt the caller.
        TaskPool(0, at_end=keep).stop()
