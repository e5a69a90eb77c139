"""Frames -> shards: which frame goes to which file, who writes it, when it appears.

::

    frames -> lane -> shard -> pieces, prepared by any thread -> file, in order

A *lane* is a place where a shard is open: one, in which shards follow each other, or as
many as there are shards. Threads compress and write; the caller only hands over, and
waits where too much is under way. What is done does not depend on the threads.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastrec.appending import end_of_records
from fastrec.counting import keep_count, rename_count
from fastrec.deflate import codec_of
from fastrec.index import keep_index, rename_index
from fastrec.locks import lock_file
from fastrec.output import AppendedFile, OutputFile, resolved
from fastrec.printable import printable
from fastrec.shard_names import ShardNames, new_token, refuse_existing

__all__ = ["Frames", "ShardWriter", "Sharding"]

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
        self._resources = contextlib.ExitStack()
        self._work = _Work(sharding.n_threads)
        self._shards: list[_Shard] = []
        self.closed = False
        self.files: list[str] = []
        try:
            self._lock()
            self._before = names.existing()
            # The number of shards in the names is known at the end only. And shards of
            # two data sets must not lie side by side for as long as one is written.
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
                self._lanes = [self._open_shard() for _ in range(n_lanes or 1)]
        except BaseException:
            self.abandon()
            raise

    # What is written.

    def write(self, frames: Frames, lane: int = 0) -> None:
        """Take over frames, to be written in order after those before.

        Raises
        ------
        OSError
            If the disk refused, now or before; then nothing more is published.
        """
        self.check()
        data, offsets = frames
        while len(offsets) > 1:
            shard = self._lanes[lane]
            n = shard.n_that_fit(offsets, self._sharding)
            if n == 0:
                self._cut(lane)
                continue
            end = int(offsets[n])
            first = int(offsets[0])
            with self._failing():
                shard.submit(data[first:end], offsets[: n + 1] - offsets[0], self._work)
            offsets = offsets[n:]

    def cut(self) -> None:
        """End the shard that is open, also if it has no records; begin the next one."""
        self.check()
        self._cut(0)

    def _cut(self, lane: int) -> None:
        with self._failing():
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
        with self._failing():
            self._work.wait()

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

    def end(self) -> None:
        """Complete all shards, so that `close` has only their names to give.

        Raises
        ------
        OSError
            If the disk refuses, now or before.
        """
        self.check()
        with self._failing():
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
        with self._failing():
            num_shards = len(self._shards)
            for shard in self._shards:
                if not shard.is_published:
                    shard.publish(*self._paths(shard.number, num_shards))
            self.files = [shard.path for shard in self._shards]
            self._remove_replaced()
        self.closed = True
        self._work.stop()
        self._resources.close()

    def abandon(self, *, keeps_complete: bool = False) -> None:
        """Remove all that is not published; does nothing once this is closed.

        Parameters
        ----------
        keeps_complete : bool
            Whether complete shards that wait for their names go on waiting, for
            ``fastrec doctor``.
        """
        if self.closed:
            return
        self.closed = True
        if os.getpid() != self._process:
            return
        self._work.stop()
        with self._resources:  # all of this, whatever a part of it says
            for shard in self._shards:
                if not shard.is_published and not (
                    keeps_complete and shard.is_complete
                ):
                    self._resources.callback(shard.abandon)

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
        """Open the file to append to, which is locked: nobody else cuts its end."""
        path = self._names.path
        target = resolved(path, overwrite=True)
        offsets = end_of_records(path)
        file = AppendedFile(path, target, int(offsets[-1]))
        shard = _Shard(0, path, target, self._sharding, file, offsets)
        self._shards.append(shard)
        return shard

    def _end(self, shard: _Shard) -> None:
        shard.submit_end(self._work, waits=self._waits)

    def _lock(self) -> None:
        try:
            self._resources.enter_context(lock_file(self._names.lock()))
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
            self._give_up(failure)
            raise _again(failure, self._names.path)
        if self.closed:
            msg = f"the writer of {printable(self._names.path)} is closed"
            raise ValueError(msg)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Give up for good if what is done fails, by a signal too."""
        try:
            yield
        except BaseException as error:
            self._work.fail(error)
            self._give_up(error)
            raise

    def _give_up(self, failure: BaseException) -> None:
        # What the disk refused is no reason to lose what it took before, unless that is
        # to be seen as a whole only.
        is_refused = isinstance(failure, OSError)
        self.abandon(keeps_complete=is_refused and not self._sharding.together)


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
        self._is_writing = False
        self._lock = threading.Lock()

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
        with self._lock:
            self._ready[place] = write
            if self._is_writing:
                return
            self._is_writing = True
        while True:
            with self._lock:
                turn = self._ready.pop(self._n_done, None)
                if turn is None:
                    self._is_writing = False
                    return
            turn()
            self._n_done += 1

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
        """Keep where the records of `path` are, which nobody here needs any more."""
        offsets = np.concatenate(self._offsets)
        payload_crcs = np.concatenate(self._payload_crcs)
        self._offsets, self._payload_crcs = [], []
        if self._sharding.compression is None:
            keep_index(path, offsets)
        else:
            keep_count(path, offsets, payload_crcs)

    def publish(self, path: str, target: str) -> None:
        """Give a file its name that waits for it."""
        assert isinstance(self._file, OutputFile)
        waiting = self._file.temporary
        self._file.publish(path, target, sync=self._sharding.sync)
        self.path = path
        self.is_published = True
        rename_index(waiting, target)
        rename_count(waiting, target)

    def abandon(self) -> None:
        """Remove the file."""
        self._file.abandon()


class _Work:
    """Tasks that threads do, and what is under way among them."""

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._changed = threading.Condition()
        self._n_tasks = 0
        self._n_bytes = 0
        self._is_stopped = False
        self.failure: BaseException | None = None

    def fail(self, failure: BaseException) -> None:
        """Let nothing more be done. The first failure counts."""
        if self.failure is None:
            self.failure = failure

    def submit(self, task: Callable[[], object], n_bytes: int) -> None:
        """Have `task` done, which holds `n_bytes`, once there is room for it."""
        if self._n_threads == 0:
            task()
            return
        with self._changed:
            while self._n_tasks >= _TASKS_UNDER_WAY or (
                self._n_bytes and self._n_bytes + n_bytes > _BYTES_UNDER_WAY
            ):
                self._changed.wait()
            self._raise_failure()
            self._n_tasks += 1
            self._n_bytes += n_bytes
        self._threads().submit(self._do, task, n_bytes)

    def spread(self, tasks: Iterator[Callable[[], _T]]) -> Iterator[_T]:
        """Yield what tasks return, in their order."""
        if self._n_threads < 2:
            for task in tasks:
                yield task()
            return
        under_way: list[concurrent.futures.Future[_T]] = []
        try:
            for task in tasks:
                under_way.append(self._threads().submit(task))
                if len(under_way) > self._n_threads:
                    yield under_way.pop(0).result()
            while under_way:
                yield under_way.pop(0).result()
        finally:
            # The arrays are the caller's again when this returns.
            concurrent.futures.wait(under_way)

    def wait(self) -> None:
        """Return when all tasks are done, or raise what one of them raised."""
        with self._changed:
            while self._n_tasks:
                self._changed.wait()
            self._raise_failure()

    def stop(self) -> None:
        """Let tasks that have not begun not be done, and wait for the others."""
        self._is_stopped = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)

    def _threads(self) -> concurrent.futures.ThreadPoolExecutor:
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(
                self._n_threads, "fastrec-write"
            )
        return self._pool

    def _do(self, task: Callable[[], object], n_bytes: int) -> None:
        try:
            if self.failure is None and not self._is_stopped:
                task()
        except BaseException as failure:  # noqa: BLE001 (raised where it is waited for)
            self.fail(failure)
        with self._changed:
            self._n_tasks -= 1
            self._n_bytes -= n_bytes
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure
