"""Frames -> shards: which frame goes to which file, who writes it, when it appears.

::

    frames -> lane -> shard -> pieces, prepared by any thread -> file, in order

A *lane* is a place where a shard is open: one, in which shards follow each other, or as
many as there are shards. Threads compress and write; the caller only hands over, and
waits where too much is under way. What is done does not depend on the threads.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
from collections import deque
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
from fastrec.tasks import Task, TaskPool
from fastrec.writer.appending import end_of_records
from fastrec.writer.output import AppendedFile, OutputFile, resolved
from fastrec.writer.shard_names import ShardNames, new_token, refuse_existing

__all__ = ["Frames", "ShardWriter", "Sharding"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Frames as they lie in a file, and where each begins and the last one ends.
Frames: TypeAlias = "tuple[NDArray[np.uint8], NDArray[np.uint64]]"

_BYTES_UNDER_WAY = 64 << 20
# Shards that are to be ended are tasks without bytes, but with an open file each.
_TASKS_UNDER_WAY = 128


@dataclass(frozen=True)
class Sharding:
    """How records become files.

    Attributes
    ----------
    overwrite : bool
        Replace what is there.
    max_bytes, max_records : int or None
        Of a shard, before compression; one record is never divided.
    compression : {None, "GZIP", "ZLIB"}
    level : int
        zlib's.
    sync : bool
        Bring each file to the disk before it gets its name.
    together : bool
        Give no file its name before all of them are complete; after an error, keep none.
    n_threads : int
        That compress and write; 0 leaves it to the caller.
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

    Parameters
    ----------
    names : ShardNames
    sharding : Sharding
    n_lanes : int, optional
        As many shards, all open at once; without it they follow each other.
    append : bool
        Go on with the one file, if it is there.

    Raises
    ------
    OSError
        If a file is there that may not be replaced, if another writer is at work on these
        names, or if the disk refuses.
    CorruptionError
        If the file to go on with is damaged.
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
        self._lock = FileLock(names.lock())
        failures: list[BaseException] = []
        self._work = _Work(
            sharding.n_threads,
            failures,
            at_end=partial(
                _remove_rest, self._lock, self._shards, failures, sharding.together
            ),
        )
        self._removal = self._work.removal
        self._is_closed = False
        self.files: list[str] = []
        self.attempt(self._begin, append=append)

    def _begin(self, *, append: bool) -> None:
        names, sharding = self._names, self._sharding
        self._take_lock()
        self._before = names.existing()
        # The number of shards in the names is known at the end only. And shards of two
        # data sets must not exist at once while one of them is written.
        self._waits = (
            sharding.together
            or names.has_num_shards
            or (names.is_pattern and bool(self._before))
        )
        if append and self._before:
            self._lanes = [self._reopen_shard()]
        else:
            if not sharding.overwrite:
                refuse_existing(names)
            self._lanes = [self._open_shard() for _ in range(self._n_lanes or 1)]

    # What is written.

    def write(self, frames: Frames, lane: int = 0) -> None:
        """Take over frames, to be written in order after those before.

        Raises
        ------
        OSError
            If the disk refused, now or before; then nothing more is published.
        """
        self.check()
        self.attempt(self._submit, frames, lane)

    def _submit(self, frames: Frames, lane: int) -> None:
        data, offsets = frames
        while len(offsets) > 1:
            shard = self._lanes[lane]
            n = shard.n_that_fit(offsets, self._sharding)
            if n == 0:
                self._cut(lane)
                continue
            end = int(offsets[n])
            first = int(offsets[0])
            shard.submit(data[first:end], offsets[: n + 1] - offsets[0], self._work)
            offsets = offsets[n:]

    def cut(self) -> None:
        """End the shard that is open, also if it has no records; begin the next one."""
        self.check()
        self.attempt(self._cut, 0)

    def _cut(self, lane: int) -> None:
        self._end(self._lanes[lane])
        self._lanes[lane] = self._open_shard()

    def wait(self) -> None:
        """Return when all that was handed over is in its files; then nothing holds it.

        Raises
        ------
        OSError
            As for `write`.
        """
        self.check()
        self.attempt(self._work.wait)

    @property
    def n_records(self) -> int:
        """Records that were handed over."""
        return sum(shard.n_records for shard in self._shards)

    @property
    def n_bytes(self) -> int:
        """Bytes of their frames, before compression."""
        return sum(shard.n_bytes for shard in self._shards)

    def spread(self, tasks: Iterator[Callable[[], _T]]) -> Iterator[_T]:
        """Yield what tasks return, in their order, done by the threads."""
        self.check()
        return self._work.spread(tasks)

    # How it ends.

    @property
    def closed(self) -> bool:
        """Whether this is closed, abandoned or lost to an error."""
        return self._is_closed or self._work.failure is not None

    @property
    def pool(self) -> TaskPool:
        """The threads, which remove all that is not published when they end."""
        return self._work.pool

    def end(self) -> None:
        """Complete all shards, so that `close` has only their names to give.

        Raises
        ------
        OSError
            If the disk refuses, now or before.
        """
        self.check()
        self.attempt(self._end_all)

    def _end_all(self) -> None:
        lanes, self._lanes = self._lanes, []
        for shard in lanes:
            self._end(shard)
        self._work.wait()

    def close(self) -> None:
        """Publish all shards; does nothing the next time.

        Raises
        ------
        OSError
            If the disk refuses, now or before, or a file has come into being that may not
            be replaced. What was published before stays.
        """
        if self.closed and self._work.failure is None:
            return
        self.end()
        self.attempt(self._publish_all)
        self._work.stop()

    def _publish_all(self) -> None:
        num_shards = len(self._shards)
        for shard in self._shards:
            if not shard.is_published:
                shard.publish(*self._paths(shard.number, num_shards))
        self.files = [shard.path for shard in self._shards]
        self._remove_replaced()
        self._is_closed = True

    def abandon(self) -> None:
        """Remove all that is not published; does nothing once this is closed.

        After an error of the disk, complete shards that wait for their names stay for
        ``fastrec doctor``, unless all shards appear together.
        """
        self._is_closed = True
        self._work.stop()

    def _remove_replaced(self) -> None:
        """Remove the files of the data set that this one takes the place of."""
        written = {self._real(path) for path in self.files}
        for path in self._before:
            if self._real(path) not in written:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._directory, path))  # noqa: PTH108, PTH118

    def _real(self, path: str) -> str:
        return os.path.realpath(os.path.join(self._directory, path))  # noqa: PTH118

    # Shards.

    def _paths(self, number: int, num_shards: int | None) -> tuple[str, str]:
        """Return the name of a shard as the caller has it, and where that is."""
        path = self._names.name(number, num_shards)
        return path, resolved(
            path, overwrite=self._sharding.overwrite, directory=self._directory
        )

    def _open_shard(self) -> _Shard:
        number = len(self._shards)
        path, target = self._paths(number, self._n_lanes)
        temporary = self._names.temporary(
            os.path.dirname(target),  # noqa: PTH120
            self._token,
            number,
        )
        file = OutputFile(path, temporary, overwrite=self._sharding.overwrite)
        shard = _Shard(number, path, target, self._sharding, file)
        self._shards.append(shard)
        file.open()
        return shard

    def _reopen_shard(self) -> _Shard:
        """Open the file to append to. The lock keeps others from cutting its end."""
        path = self._names.path
        target = resolved(path, overwrite=True)
        offsets = end_of_records(path)
        file = AppendedFile(path, target, int(offsets[-1]))
        shard = _Shard(0, path, target, self._sharding, file, offsets)
        self._shards.append(shard)
        file.open()
        return shard

    def _end(self, shard: _Shard) -> None:
        shard.submit_end(self._work, waits=self._waits)

    def _take_lock(self) -> None:
        try:
            self._lock.acquire()
        except ImportError:
            return  # a platform without locks
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:
                raise BlockingIOError(
                    errno.EWOULDBLOCK, "another writer is writing it", self._names.path
                ) from None
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                return  # a file system without locks
            error.filename = self._names.path
            raise

    # Failures.

    def check(self) -> None:
        """Raise what ended this writer, if anything did."""
        if os.getpid() != self._process:
            msg = (
                f"the writer of {printable(self._names.path)} belongs to the process that made it, "
                "not to a fork"
            )
            raise ValueError(msg)
        failure = self._work.failure
        if failure is not None:
            self.abandon()
            raise _again(failure, self._names.path)
        if self.closed:
            msg = f"the writer of {printable(self._names.path)} is closed"
            raise ValueError(msg)

    def attempt(
        self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Call a function. If it raises, by a signal too, give up for good."""
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            # First of all, two calls of C: another signal may come at any later step.
            if not self._work.failures:
                self._work.failures.append(error)
            try:
                _thread.start_new_thread(self._removal, ())
            except RuntimeError:  # the system has no thread to give
                self._removal()
            self.abandon()
            raise


def _remove_rest(
    lock: FileLock,
    shards: Sequence[_Shard],
    failures: Sequence[BaseException],
    together: bool,
) -> None:
    """Remove the files that are not published, and at last the lock."""
    # What the disk refused is no reason to lose what it took before, unless that is to be
    # seen as a whole only.
    keeps_complete = (
        bool(failures) and isinstance(failures[0], OSError) and not together
    )
    with contextlib.ExitStack() as stack:  # all of this, even if a part of it raises
        stack.callback(lock.release)
        for shard in shards:
            if not shard.is_published and not (keeps_complete and shard.is_complete):
                stack.callback(shard.abandon)


def _again(failure: BaseException, path: str) -> BaseException:
    """Return an exception that says what `failure` said."""
    if isinstance(failure, OSError) and failure.errno is not None:
        return OSError(failure.errno, failure.strerror, failure.filename)
    if isinstance(failure, Exception):
        return failure
    return ValueError(
        f"the writer of {printable(path)} was interrupted; its records are lost"
    )


class _Shard:
    """One shard: its file, and the pieces on their way into it."""

    def __init__(
        self,
        number: int,
        path: str,
        target: str,
        sharding: Sharding,
        file: OutputFile | AppendedFile,
        offsets: NDArray[np.uint64] | None = None,
    ) -> None:
        self.number = number
        self.path = path
        self.n_records = 0
        self.is_complete = False
        self.is_published = False
        self._target = target
        self._sharding = sharding
        self._file = file
        self._codec = codec_of(sharding.compression, sharding.level)
        self._offsets = [np.zeros(1, np.uint64) if offsets is None else offsets]
        self._payload_crcs = [np.zeros(0, np.uint32)]
        self.n_bytes = int(self._offsets[0][-1])
        self._n_submitted = 0
        # What is prepared and not yet written, by its place in the order.
        self._ready: dict[int, Callable[[], object]] = {}
        self._n_done = 0
        self._writing = _thread.allocate_lock()  # which no thread waits for

    def n_that_fit(self, offsets: NDArray[np.uint64], sharding: Sharding) -> int:
        """How many of the frames go into this shard: at least one if it has none."""
        n = len(offsets) - 1
        if sharding.max_records is not None:
            n = min(n, sharding.max_records - self.n_records)
        if sharding.max_bytes is not None:
            end = int(offsets[0]) + max(0, sharding.max_bytes - self.n_bytes)
            n = min(n, int(np.searchsorted(offsets, np.uint64(end), "right")) - 1)
        return max(n, 1 if self.n_records == 0 else 0)

    def submit(
        self, data: NDArray[np.uint8], offsets: NDArray[np.uint64], work: _Work
    ) -> None:
        """Have frames written after those before. Frame 0 begins at byte 0 of `data`."""
        self._offsets.append(offsets[1:] + np.uint64(self.n_bytes))
        if self._sharding.compression is not None:
            footers = (offsets[1:] - np.uint64(4))[:, None] + np.arange(4, dtype="u8")
            self._payload_crcs.append(data[footers].view("<u4").ravel())
        self.n_records += len(offsets) - 1
        self.n_bytes += data.size
        place = self._next_place()

        def prepare() -> None:
            prepared = self._codec.prepared(data)  # type: ignore[arg-type]
            self._commit(place, lambda: self._file.write(self._codec.ordered(prepared)))

        work.submit(prepare, data.size)

    def submit_end(self, work: _Work, *, waits: bool) -> None:
        """Have the file ended after all that was submitted, and maybe published."""
        place = self._next_place()
        work.submit(lambda: self._commit(place, lambda: self._finish(waits=waits)), 0)

    def _next_place(self) -> int:
        self._n_submitted += 1
        return self._n_submitted - 1

    def _commit(self, place: int, write: Callable[[], object]) -> None:
        """Do `write` when its turn has come, now or by another thread that is at it."""
        self._ready[place] = write
        while self._n_done in self._ready and self._writing.acquire(blocking=False):
            try:
                while turn := self._ready.pop(self._n_done, None):
                    turn()
                    self._n_done += 1
            finally:
                self._writing.release()

    def _finish(self, *, waits: bool) -> None:
        self._file.write(self._codec.end())
        if self._sharding.sync:
            self._file.sync()
        self._file.close()
        if waits and isinstance(self._file, OutputFile):
            waiting = self._file.complete()
            self.is_complete = True
            self._keep_index(waiting)
        else:
            if isinstance(self._file, OutputFile):
                self._file.publish(self.path, self._target, sync=self._sharding.sync)
            self.is_published = True
            self._keep_index(self._target)

    def _keep_index(self, path: str) -> None:
        """Keep where the records of `path` are, and forget it here."""
        offsets = np.concatenate(self._offsets)
        payload_crcs = np.concatenate(self._payload_crcs)
        self._offsets, self._payload_crcs = [], []
        is_plain = self._sharding.compression is None
        keep = partial(keep_index, path, offsets, None if is_plain else payload_crcs)
        # Not by the caller, whom a signal may interrupt.
        TaskPool(0, at_end=keep).stop()

    def publish(self, path: str, target: str) -> None:
        """Give a file its name that waits for it."""
        assert isinstance(self._file, OutputFile)
        waiting = self._file.temporary
        self._file.publish(path, target, sync=self._sharding.sync)
        self.path = path
        self.is_published = True
        rename_index(waiting, target)

    def abandon(self) -> None:
        """Remove the file."""
        self._file.abandon()


class _Work:
    """Tasks that threads do, and what is under way among them."""

    def __init__(
        self,
        n_threads: int,
        failures: list[BaseException],
        *,
        at_end: Callable[[], object],
    ) -> None:
        self._n_threads = n_threads
        self.pool = TaskPool(n_threads, at_end=at_end)
        self._under_way: deque[tuple[Task[None], int]] = deque()
        self.removal = self.pool.ending.run
        self.failures = failures

    @property
    def failure(self) -> BaseException | None:
        """What ended the work: the first failure."""
        return self.failures[0] if self.failures else None

    def submit(self, task: Callable[[], object], n_bytes: int) -> None:
        """Have `task` done, which holds `n_bytes`, once there is room for it."""
        if self._n_threads == 0:
            task()
            return
        while self._under_way and (
            self._under_way[0][0].is_done
            or len(self._under_way) >= _TASKS_UNDER_WAY
            or sum(n for _, n in self._under_way) + n_bytes > _BYTES_UNDER_WAY
        ):
            self._wait_for_first()
        self._raise_failure()
        done = self.pool.submit(partial(_attempt, task, self.failures))
        self._under_way.append((done, n_bytes))

    def spread(self, tasks: Iterator[Callable[[], _T]]) -> Iterator[_T]:
        """Yield what tasks return, in their order."""
        if self._n_threads < 2:
            for task in tasks:
                yield task()
            return
        under_way: deque[Task[_T]] = deque()
        try:
            for task in tasks:
                under_way.append(self.pool.submit(task))
                if len(under_way) > self._n_threads:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            # The arrays are the caller's again when this returns.
            for waited in under_way:
                while not waited.wait():
                    pass

    def wait(self) -> None:
        """Return when all tasks are done, or raise what one of them raised."""
        while self._under_way:
            self._wait_for_first()
        self._raise_failure()

    def _wait_for_first(self) -> None:
        self._under_way[0][0].result()
        self._under_way.popleft()

    def stop(self) -> None:
        """Let tasks that have not begun not be done, wait for the others, and end."""
        self.pool.stop()

    def _raise_failure(self) -> None:
        if self.failures:
            raise self.failures[0]


def _attempt(task: Callable[[], object], failures: list[BaseException]) -> None:
    """Do a task, unless one before has failed; the caller waits to hear of it."""
    if failures:
        return
    try:
        task()
    except BaseException as failure:  # noqa: BLE001 (raised where it is waited for)
        failures.append(failure)
