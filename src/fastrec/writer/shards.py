"""Frames -> shards: which frame goes to which file, who writes it, when it appears.

::

    frames -> lane -> shard -> pieces, prepared by any thread -> file, in order

A *lane* is a place where a shard is open: either one, in which shards follow each other,
or one for each shard. Threads compress and write; the caller only submits, and waits
while too much is in flight. The files do not depend on the threads.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastrec.printable import printable
from fastrec.storage.compression import codec_of
from fastrec.storage.index import keep_index, rename_index
from fastrec.storage.locks import FileLock
from fastrec.tasks import TaskPool
from fastrec.writer.appending import end_of_records
from fastrec.writer.output import AppendedFile, OutputFile, resolved
from fastrec.writer.shard_names import ShardNames, new_token
from fastrec.writer.work import Work

__all__ = ["Frames", "ShardWriter", "Sharding"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The bytes of frames, and where each begins and the last one ends.
Frames: TypeAlias = "tuple[NDArray[np.uint8], NDArray[np.uint64]]"


@dataclass(frozen=True)
class Sharding:
    """How records become files.

    `max_bytes` and `max_records` are those of a shard, before compression. `together`
    publishes no file before all are complete. With `sync`, a file is on the disk before
    it gets its name. With 0 threads the caller compresses and writes.
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
    """Writes frames to the shards that `names` stands for.

    With `n_lanes`, that many shards are open at once; otherwise they follow each other.
    `append` continues the one file if it exists. Opening raises an OSError if a file
    may not be replaced or another writer is writing these names.
    """

    def __init__(
        self,
        names: ShardNames,
        sharding: Sharding,
        n_lanes: int | None = None,
        *,
        append: bool = False,
    ) -> None:
        self._names = names
        self._sharding = sharding
        self._n_lanes = n_lanes
        self._process = os.getpid()
        self._token = new_token()
        # Where relative paths begin, whatever the process does later.
        self._directory = "" if os.path.isabs(names.path) else os.getcwd()  # noqa: PTH109, PTH117
        self._shards: list[_Shard] = []
        self._lock = FileLock(names.lock)
        self._work = Work(
            sharding.n_threads, at_end=partial(_remove_rest, self._lock, self._shards)
        )
        self._is_closed = False
        self.files: list[str] = []
        self.attempt(self._begin, append=append)

    def _begin(self, *, append: bool) -> None:
        names, sharding = self._names, self._sharding
        try:
            is_alone = self._lock.acquire()
        except OSError as error:
            error.filename = names.path
            if isinstance(error, BlockingIOError):
                error.strerror = "another writer is writing it"
            raise
        self._replaced = names.existing()
        # The number of shards in the names is known at the end only. And shards of two
        # datasets must not exist at once while one of them is written.
        self._waits = (
            sharding.together
            or names.has_num_shards
            or (names.is_pattern and bool(self._replaced))
        )
        is_appended = append and bool(self._replaced)
        if self._replaced and not (is_appended or sharding.overwrite):
            raise FileExistsError(
                errno.EEXIST, os.strerror(errno.EEXIST), self._replaced[0]
            )
        if is_alone:
            names.remove_leftovers()
        if is_appended:
            self._lanes = [self._reopen_shard()]
        else:
            self._lanes = [self._open_shard() for _ in range(self._n_lanes or 1)]

    # What is written.

    def write(self, frames: Frames, lane: int = 0) -> None:
        """Submit frames, to be written after those before; raise earlier errors."""
        self.check()
        self.attempt(self._submit, frames, lane)

    def _submit(self, frames: Frames, lane: int) -> None:
        data, offsets = frames
        while len(offsets) > 1:
            shard = self._lanes[lane]
            n = shard.n_that_fit(offsets)
            if n == 0:
                self._cut(lane)
                continue
            first, end = int(offsets[0]), int(offsets[n])
            shard.submit(data[first:end], offsets[: n + 1] - offsets[0], self._work)
            offsets = offsets[n:]

    def cut(self) -> None:
        """End the open shard, even if it has no records; begin the next one."""
        self.check()
        self.attempt(self._cut, 0)

    def _cut(self, lane: int) -> None:
        self._lanes[lane].submit_end(self._work, waits=self._waits)
        self._lanes[lane] = self._open_shard()

    def wait(self) -> None:
        """Return when all that was submitted is in its files, and release it."""
        self.check()
        self.attempt(self._work.wait)

    @property
    def n_records(self) -> int:
        """Records that were submitted."""
        return sum(shard.n_records for shard in self._shards)

    @property
    def n_bytes(self) -> int:
        """Bytes of their frames, before compression."""
        return sum(shard.n_bytes for shard in self._shards)

    def spread(self, tasks: Iterator[Callable[[], _T]]) -> Iterator[_T]:
        """Yield the results of tasks in their order; the threads run them."""
        self.check()
        return self._work.spread(tasks)

    # How it ends.

    @property
    def closed(self) -> bool:
        """Whether this is closed, discarded or failed."""
        return self._is_closed or bool(self._work.failures)

    @property
    def pool(self) -> TaskPool:
        """The threads, which remove all that is not published when they end."""
        return self._work.pool

    def end(self) -> None:
        """Complete all shards, so that `close` only has to rename them."""
        self.check()
        self.attempt(self._end_all)

    def _end_all(self) -> None:
        lanes, self._lanes = self._lanes, []
        for shard in lanes:
            shard.submit_end(self._work, waits=self._waits)
        self._work.wait()

    def close(self) -> None:
        """Publish all shards; does nothing the next time. What is published stays."""
        if self._is_closed and not self._work.failures:
            return
        self.end()
        self.attempt(self._publish_all)
        self._work.pool.stop()

    def _publish_all(self) -> None:
        num_shards = len(self._shards)
        for shard in self._shards:
            if not shard.is_published:
                shard.publish(*self._paths(shard.number, num_shards))
        self.files = [shard.path for shard in self._shards]
        written = {self._real(path) for path in self.files}
        for path in self._replaced:
            if self._real(path) not in written:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._directory, path))  # noqa: PTH108, PTH118
        self._is_closed = True

    def discard(self) -> None:
        """Remove all that is not published; does nothing once this is closed."""
        self._is_closed = True
        self._work.pool.stop()

    def _real(self, path: str) -> str:
        return os.path.realpath(os.path.join(self._directory, path))  # noqa: PTH118

    # Shards.

    def _paths(self, number: int, num_shards: int | None) -> tuple[str, str]:
        """Return the path of a shard as the caller has it, and its real place."""
        path = self._names.name(number, num_shards)
        overwrite = self._sharding.overwrite
        return path, resolved(path, overwrite=overwrite, directory=self._directory)

    def _open_shard(self) -> _Shard:
        number = len(self._shards)
        path, target = self._paths(number, self._n_lanes)
        temporary = self._names.temporary(
            os.path.dirname(target),  # noqa: PTH120
            self._token,
            number,
        )
        file = OutputFile(path, temporary, overwrite=self._sharding.overwrite)
        return self._opened(_Shard(number, path, target, self._sharding, file))

    def _reopen_shard(self) -> _Shard:
        """Open the file to append to. The lock keeps others from cutting its end."""
        path = self._names.path
        target = resolved(path, overwrite=True)
        offsets = end_of_records(path)
        file = AppendedFile(path, target, int(offsets[-1]))
        return self._opened(_Shard(0, path, target, self._sharding, file, offsets))

    def _opened(self, shard: _Shard) -> _Shard:
        self._shards.append(shard)  # first, so that an interrupt removes its file
        shard.file.open()
        return shard

    # Failures.

    def check(self) -> None:
        """Raise what ended this writer, if anything did."""
        path = printable(self._names.path)
        if os.getpid() != self._process:
            msg = f"the writer of {path} belongs to the process that made it, not to a fork"
            raise ValueError(msg)
        if self._work.failures:
            failure = self._work.failures[0]
            self.discard()
            if isinstance(failure, OSError) and failure.errno is not None:
                raise OSError(failure.errno, failure.strerror, failure.filename)
            if isinstance(failure, Exception):
                raise failure
            msg = f"the writer of {path} was interrupted; its records are lost"
            raise ValueError(msg)
        if self._is_closed:
            msg = f"the writer of {path} is closed"
            raise ValueError(msg)

    def attempt(
        self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Call a function. If it raises, also by a signal, give up for good."""
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            # First of all, two calls of C: another signal may come at any later step.
            if not self._work.failures:
                self._work.failures.append(error)
            try:
                _thread.start_new_thread(self._work.removal, ())
            except RuntimeError:  # the system has no thread to give
                self._work.removal()
            self.discard()
            raise


def _remove_rest(lock: FileLock, shards: Sequence[_Shard]) -> None:
    """Remove the files that are not published, and at last the lock."""
    with contextlib.ExitStack() as stack:  # all of this, even if a part of it raises
        stack.callback(lock.release)
        for shard in shards:
            if not shard.is_published:
                stack.callback(shard.file.discard)


class _Shard:
    """One shard: its file, and the pieces on their way into it."""

    def __init__(
        self,
        number: int,
        path: str,
        target: str,
        sharding: Sharding,
        file: OutputFile,
        offsets: NDArray[np.uint64] | None = None,
    ) -> None:
        self.number = number
        self.path = path
        self.file = file
        self.n_records = 0
        self.is_published = False
        self._target = target
        self._sharding = sharding
        self._codec = codec_of(sharding.compression, sharding.level)
        self._offsets = [np.zeros(1, np.uint64) if offsets is None else offsets]
        self._payload_crcs = [np.zeros(0, np.uint32)]
        self.n_bytes = int(self._offsets[0][-1])
        self._turns = itertools.count()
        # What is prepared and not yet written, by its turn.
        self._ready: dict[int, Callable[[], object]] = {}
        self._n_done = 0
        self._writing = _thread.allocate_lock()  # no thread waits for it

    def n_that_fit(self, offsets: NDArray[np.uint64]) -> int:
        """Return how many of the frames fit into this shard: at least one if it is empty."""
        n = len(offsets) - 1
        if self._sharding.max_records is not None:
            n = min(n, self._sharding.max_records - self.n_records)
        if self._sharding.max_bytes is not None:
            end = int(offsets[0]) + max(0, self._sharding.max_bytes - self.n_bytes)
            n = min(n, int(np.searchsorted(offsets, np.uint64(end), "right")) - 1)
        return max(n, 1 if self.n_records == 0 else 0)

    def submit(
        self, data: NDArray[np.uint8], offsets: NDArray[np.uint64], work: Work
    ) -> None:
        """Submit frames. Frame 0 begins at byte 0 of `data`."""
        self._offsets.append(offsets[1:] + np.uint64(self.n_bytes))
        if self._sharding.compression is not None:
            footers = (offsets[1:] - np.uint64(4))[:, None] + np.arange(4, dtype="u8")
            self._payload_crcs.append(data[footers].view("<u4").ravel())
        self.n_records += len(offsets) - 1
        self.n_bytes += data.size
        turn = next(self._turns)

        def prepare() -> None:
            prepared = self._codec.prepared(data)  # type: ignore[arg-type]
            self._commit(turn, lambda: self.file.write(self._codec.ordered(prepared)))

        work.submit(prepare, data.size)

    def submit_end(self, work: Work, *, waits: bool) -> None:
        """Submit the end of the file, and, unless it waits, its publication."""
        turn = next(self._turns)
        work.submit(lambda: self._commit(turn, lambda: self._finish(waits=waits)), 0)

    def _commit(self, turn: int, write: Callable[[], object]) -> None:
        """Call `write` in its turn: now, or by another thread that is committing."""
        self._ready[turn] = write
        while self._n_done in self._ready and self._writing.acquire(blocking=False):
            try:
                while write_next := self._ready.pop(self._n_done, None):
                    write_next()
                    self._n_done += 1
            finally:
                self._writing.release()

    def _finish(self, *, waits: bool) -> None:
        self.file.write(self._codec.end())
        if self._sharding.sync:
            self.file.sync()
        self.file.close()
        if not waits:
            self.publish(self.path, self._target)
        # Keep where the records are, which takes memory here.
        offsets = np.concatenate(self._offsets)
        payload_crcs = np.concatenate(self._payload_crcs)
        self._offsets, self._payload_crcs = [], []
        is_plain = self._sharding.compression is None
        keep = partial(
            keep_index, self.file.place, offsets, None if is_plain else payload_crcs
        )
        # Not by the caller, whom a signal may interrupt.
        TaskPool(0, at_end=keep).stop()

    def publish(self, path: str, target: str) -> None:
        """Give the file its final name."""
        waiting = self.file.place
        self.file.publish(path, target, sync=self._sharding.sync)
        self.path = path
        self.is_published = True
        rename_index(waiting, target)
