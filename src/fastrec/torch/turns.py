"""Turns: which epoch a pass over a data set is, as worker processes agree on it.

A DataLoader tells nobody that an epoch begins: it starts workers, or has those that it
kept iterate anew. So workers count passes themselves, in memory that they share with
their parent, where the count outlives them:

::

    seed epoch position    where the first pass begins; those after it, at later epochs
    count << 32 | key      passes begun since; what the workers of the last one share
    count << 32 | process  for each worker, the pass that it began last, as which process
    ...

A worker that finds the key of its own pass joins it; any other begins the next one. A
word is written at once, and several workers write the same into the first ones. The key
is made of the seed that a DataLoader draws for its workers. It may draw the same one for
the next pass, but then a worker finds that it has begun the last one already, or that
those who have are processes made too long before it.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import zlib
from typing import NamedTuple

import numpy as np
import torch.utils.data

__all__ = ["Caller", "Start", "Turn", "Turns"]

_LAST, _FIRST_WORKER = 3, 4
_MOST_WORKERS = 1024
_LOW_BITS = 32


class Start(NamedTuple):
    """Where a pass begins; see `fastrec.state.State`."""

    seed: int
    epoch: int
    position: int


class Caller(NamedTuple):
    """Whoever iterates: a worker, or else worker 0 of 1, and the key of its pass.

    Processes are numbered by their parent, in the order that it makes them.
    """

    worker: int
    n_workers: int
    key: int
    process: int = 0


class Turn(NamedTuple):
    """A pass that was begun: the words to know it by, and where it begins."""

    word: int
    start: Start


class Turns:
    """The passes over one data set, in the process that made it and in its workers.

    Parameters
    ----------
    start : Start
        Where the first one begins.
    """

    def __init__(self, start: Start) -> None:
        self._owner = os.getpid()
        self._n_callers = 0
        self._last_here = 0
        # A tensor, because that crosses whatever way there is to start a process.
        n_words = _FIRST_WORKER + _MOST_WORKERS
        self._share(torch.zeros(n_words, dtype=torch.int64, device="cpu"))
        self.restart(start)

    def _share(self, memory: torch.Tensor) -> None:
        self._memory = memory.share_memory_()
        self._words = self._memory.numpy().view(np.uint64)

    def __getstate__(self) -> tuple[int, torch.Tensor]:
        return self._owner, self._memory

    def __setstate__(self, state: tuple[int, torch.Tensor]) -> None:
        self._owner, memory = state
        self._n_callers = 0
        self._last_here = 0
        self._share(memory)

    # In the process that has the DataLoader.

    def own(self) -> None:
        """Let go of memory of another process: this one is none of its workers."""
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._share(self._memory.clone())

    def restart(self, start: Start) -> None:
        """Have the next pass begin at `start`. A running one ends."""
        self.own()
        self._words[:_LAST] = np.array(start, np.uint64)
        self._words[_LAST:] = 0

    def next(self) -> Start:
        """Return where the pass after those that were begun begins."""
        count, _ = self._last()
        return self._start(count + 1)

    def last(self) -> Start:
        """Return where the last pass began, or else where the first one will."""
        count, _ = self._last()
        return self._start(max(1, count))

    @property
    def is_local(self) -> bool:
        """Whether the last pass was begun in this process, if any was."""
        return int(self._words[_LAST]) in (0, self._last_here)

    # Where passes are.

    def caller(self) -> Caller:
        """Return who is about to iterate, in this process.

        Raises
        ------
        RuntimeError, ValueError
            If the workers share no memory with the process that started them, or are
            more than there is room for.
        """
        worker = torch.utils.data.get_worker_info()
        self._n_callers += 1
        if worker is None:
            self.own()
            return Caller(0, 1, _key(os.getpid(), 1, self._n_callers))
        parent = multiprocessing.parent_process()
        if parent is None or parent.pid != self._owner:
            msg = (
                "this data set was made in another process than the DataLoader: make it "
                "there, or call its set_epoch() there, before the DataLoader has workers"
            )
            raise RuntimeError(msg)
        if worker.num_workers > _MOST_WORKERS:
            msg = f"num_workers must be {_MOST_WORKERS} at most: {worker.num_workers}"
            raise ValueError(msg)
        drawn = worker.seed - worker.id
        key = _key(drawn, worker.num_workers, self._n_callers)
        return Caller(worker.id, worker.num_workers, key, _process_number())

    def begin(self, caller: Caller) -> Turn:
        """Begin the next pass, or join the one that other workers have begun."""
        return self._written(caller, self._coming(caller))

    def peek(self, caller: Caller) -> Start:
        """Return where the pass begins that `begin` would give."""
        return self._start(self._coming(caller))

    def resume(self, caller: Caller, start: Start) -> Turn:
        """Begin a pass at `start`, where it was saved; all its workers do so."""
        self._words[:_LAST] = np.array(start, np.uint64)
        return self._written(caller, 1)

    def is_running(self, turn: Turn) -> bool:
        """Whether no other pass was begun since."""
        return int(self._words[_LAST]) == turn.word

    def _coming(self, caller: Caller) -> int:
        count, key = self._last()
        is_same = key == caller.key and self._may_join(caller, count)
        return count if is_same else count + 1

    def _may_join(self, caller: Caller, count: int) -> bool:
        words = self._words[_FIRST_WORKER : _FIRST_WORKER + caller.n_workers]
        counts, processes = np.divmod(words.astype(np.int64), 1 << _LOW_BITS)
        workers = np.flatnonzero(counts == count)
        # A DataLoader makes one after another, and another thread some in between. Those
        # of the next pass come after all workers of this one.
        distances = processes[workers] - workers - (caller.process - caller.worker)
        is_near = np.abs(distances) < caller.n_workers
        return caller.worker not in workers and bool(is_near.all())

    def _last(self) -> tuple[int, int]:
        return divmod(int(self._words[_LAST]), 1 << _LOW_BITS)

    def _start(self, count: int) -> Start:
        seed, epoch, position = self._words[:_LAST].tolist()
        return Start(seed, epoch + count - 1, position if count == 1 else 0)

    def _written(self, caller: Caller, count: int) -> Turn:
        word = count << _LOW_BITS | caller.key
        self._words[_LAST] = self._last_here = word
        began = count << _LOW_BITS | caller.process
        self._words[_FIRST_WORKER + caller.worker] = began
        return Turn(word, self._start(count))


def _process_number() -> int:
    # The name says it, unless somebody gave another one.
    digits = re.search(r"\d+$", multiprocessing.current_process().name)
    return int(digits.group()) if digits else 0


def _key(*numbers: int) -> int:
    return zlib.crc32(repr(numbers).encode())
