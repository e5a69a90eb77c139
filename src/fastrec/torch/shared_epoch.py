"""Shared epoch: which epoch a pass is, agreed on by the workers of a DataLoader.

A DataLoader calls ``__iter__`` once a pass in every worker, and nothing in their parent.
So the parent and all workers share these words:

::

    epoch | count | n_workers  the pass begun last; without workers, the next one
    seed, position             where that epoch begins: see `fastrec.Loader.state_dict`
    epoch + 1, position        for each worker, the epoch that it has begun last, and
    ...                        where its next batch was in a state that it has loaded

`count` is the number of passes that its workers have begun. A worker joins the pass if it
is one of the same number of workers, has begun as many passes, and has not begun this one.
If it has begun fewer, it is a kept worker that started late, and its pass is over.
Otherwise it begins the next epoch. Workers that begin an epoch at the same time write the
same words.
"""

from __future__ import annotations

import multiprocessing
import os
from typing import NamedTuple

import numpy as np
import torch.utils.data

__all__ = ["EPOCH_MAX", "Pass", "SharedEpoch", "Start", "worker_place"]

EPOCH_MAX = 2**32 - 1
_COUNT_MAX = 2**22 - 1
_WORKERS_MAX = 2**10 - 1

_PASS, _SEED, _POSITION, _FIRST_WORKER = range(4)


class Start(NamedTuple):
    """Where a pass begins; see `fastrec.loader.state.State`."""

    seed: int
    epoch: int
    position: int


class Pass(NamedTuple):
    """A pass that was begun: the word that it wrote, and where it begins."""

    word: int
    start: Start


def worker_place() -> tuple[int, int]:
    """Return the number of this worker and of all workers; (0, 1) in their parent."""
    worker = torch.utils.data.get_worker_info()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


class SharedEpoch:
    """The epoch of one dataset, in the process that made it and in its workers."""

    def __init__(self, start: Start) -> None:
        self._owner = os.getpid()
        self._n_begun = self._last_here = 0
        # A tensor, which can be passed to workers however they are started.
        n_words = _FIRST_WORKER + 2 * _WORKERS_MAX
        self._share(torch.zeros(n_words, dtype=torch.int64, device="cpu"))
        self._restart(start)

    def _share(self, memory: torch.Tensor) -> None:
        self._memory = memory.share_memory_()
        self._words = self._memory.numpy().view(np.uint64)

    def __getstate__(self) -> tuple[int, torch.Tensor]:
        return self._owner, self._memory

    def __setstate__(self, state: tuple[int, torch.Tensor]) -> None:
        self._owner, memory = state
        self._n_begun = self._last_here = 0
        self._share(memory)

    @property
    def epoch(self) -> int:
        """The epoch of the pass begun last, or of the first one."""
        return self._last()[0]

    @property
    def is_local(self) -> bool:
        """Whether no other process has begun the last pass."""
        _, _, n_workers = self._last()
        return not n_workers or int(self._words[_PASS]) == self._last_here

    def set_epoch(self, epoch: int) -> bool:
        """Begin the next pass at `epoch`, and return whether that changes anything."""
        self._own()
        upcoming, _, n_workers = self._last()
        if not n_workers and upcoming == epoch:
            return False
        self._restart(Start(int(self._words[_SEED]), epoch, 0))
        return True

    def begin(self, worker: int, n_workers: int) -> Pass:
        """Begin the next pass, or join the one that other workers have begun."""
        self._check_shared(n_workers)
        self._n_begun += 1
        epoch, count, n_before = self._last()
        start = Start(int(self._words[_SEED]), epoch, int(self._words[_POSITION]))
        has_begun = int(self._words[_FIRST_WORKER + worker]) == epoch + 1
        if n_before and (has_begun or n_before != n_workers or self._n_begun > count):
            start = start._replace(epoch=epoch + 1, position=0)
        elif n_before and self._n_begun < count:
            return Pass(0, start)  # over before it began
        return self._start(worker, n_workers, start)

    def is_running(self, begun: Pass) -> bool:
        """Return whether no later pass was begun."""
        return int(self._words[_PASS]) == begun.word

    def _last(self) -> tuple[int, int, int]:
        """Return the epoch, the count and the number of workers of the last pass."""
        epoch, low = divmod(int(self._words[_PASS]), EPOCH_MAX + 1)
        return epoch, *divmod(low, _WORKERS_MAX + 1)

    def _restart(self, start: Start) -> None:
        """Begin the next pass at `start`. A running pass ends."""
        self._words[:_FIRST_WORKER] = (start.epoch << 32, start.seed, start.position)
        self._words[_FIRST_WORKER:] = 0

    def resume(self, worker: int, n_workers: int, start: Start) -> Pass:
        """Begin the pass of the last `begin` where a state has the next batch of `worker`.

        All its workers do so, each with a state of this epoch.
        """
        self._words[_FIRST_WORKER + _WORKERS_MAX + worker] = start.position
        return self._start(worker, n_workers, start)

    def resumed_at(self, n_workers: int) -> tuple[int, int]:
        """Return the position of the next batch of all workers, and which of them has it.

        A StatefulDataLoader asks for a batch once all workers have loaded their states.
        """
        first = _FIRST_WORKER + _WORKERS_MAX
        positions = self._words[first : first + n_workers]
        worker = int(positions.argmin())
        return int(positions[worker]), worker

    def _start(self, worker: int, n_workers: int, start: Start) -> Pass:
        self._words[_FIRST_WORKER + worker] = start.epoch + 1
        self._words[_SEED], self._words[_POSITION] = start.seed, start.position
        count = min(self._n_begun, _COUNT_MAX)
        word = start.epoch << 32 | count << 10 | n_workers
        self._words[_PASS] = self._last_here = word
        return Pass(word, start)

    def _own(self) -> None:
        """Copy the memory of another process, unless this is one of its workers."""
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._share(self._memory.clone())

    def _check_shared(self, n_workers: int) -> None:
        """Raise an error if workers and their parent would not share the memory."""
        if torch.utils.data.get_worker_info() is None:
            self._own()
            return
        parent = multiprocessing.parent_process()
        if parent is None or parent.pid != self._owner:
            msg = (
                "cannot read a fastrec IterableDataset in workers: it was made in another "
                "process than the DataLoader; make it there, or call its set_epoch() "
                "there, before the DataLoader starts workers"
            )
            raise RuntimeError(msg)
        if n_workers > _WORKERS_MAX:
            msg = f"num_workers must be at most {_WORKERS_MAX}, got {n_workers}"
            raise ValueError(msg)
