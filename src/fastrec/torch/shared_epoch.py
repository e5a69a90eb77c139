"""Shared epoch: what a DataLoader's workers and their parent agree on.

A DataLoader calls ``__iter__`` once a pass in every worker, and nothing in their parent.
So they share rows of words: the number of epochs that were set and the last one, the seed
of a loaded state, the epochs that were set before each worker began its pass, and the
position of each worker's next batch in the state that it has loaded.
"""

from __future__ import annotations

import multiprocessing
import os

import torch.utils.data

_MAX_WORKERS = 1024

_SET, _SEED, _BEGUN, _POSITION = range(4)
_SEED_BIAS = 1 << 63  # seeds are unsigned, words are signed


def worker_place() -> tuple[int | None, int]:
    """Return the number of this worker and of all workers; (None, 1) in their parent."""
    worker = torch.utils.data.get_worker_info()
    return (None, 1) if worker is None else (worker.id, worker.num_workers)


class SharedEpoch:
    """The epoch of one dataset, in the process that made it and in its workers."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._n_set = 0  # in the parent, also in the copies of its workers
        self._n_begun = 0  # by this worker
        # A tensor can be passed to workers however they are started.
        words = torch.zeros((4, _MAX_WORKERS), dtype=torch.int64, device="cpu")
        self._words = words.share_memory_()

    def set(self, epoch: int) -> None:
        """Set the epoch of the next pass. Only the parent calls it."""
        if self._owner != os.getpid():  # the words belong to another process
            SharedEpoch.__init__(self)
        self._n_set += 1
        self._words[_SET, :3] = torch.tensor([self._n_set, 1, epoch])

    @property
    def epoch(self) -> int | None:
        """The epoch of the next pass; None for the position of the loader."""
        _, is_known, epoch = self._words[_SET, :3].tolist()
        return epoch if is_known else None

    @property
    def seed(self) -> int | None:
        """The seed of the last state that was loaded."""
        is_known, seed = self._words[_SEED, :2].tolist()
        return seed + _SEED_BIAS if is_known else None

    def begin(self, worker: int | None) -> None:
        """Begin a pass in a worker, or in their parent if None.

        Raises a RuntimeError if no epoch was set since the pass of this worker before.
        """
        known, n_set = self._words[_BEGUN], int(self._words[_SET, 0])
        if worker is None:
            is_again = self._owner == os.getpid() and self._n_set + 1 in known
        elif self._n_begun:  # a kept worker may begin late, when the next epoch was set
            is_again = n_set - self._n_set < self._n_begun
        else:
            is_again = int(known[worker]) == self._n_set + 1
            known[worker] = self._n_set + 1
        if is_again:
            raise RuntimeError(
                "a second pass over a fastrec IterableDataset in workers would repeat the "
                "epoch; call its set_epoch(epoch) before each pass"
            )
        if worker is not None:
            self._n_begun += 1

    def resume(self, worker: int | None, position: int, seed: int) -> None:
        """Report where the state of a worker has its next batch, and its seed."""
        self._words[_SEED, :2] = torch.tensor([1, seed - _SEED_BIAS])
        self._words[_POSITION, worker or 0] = position

    def finish(self, worker: int, epoch: int) -> None:
        """Count the pass of a worker with the state of the end of an epoch as none."""
        self._words[_SET, 1:3] = torch.tensor([1, epoch + 1])
        self._words[_BEGUN, worker] = 0
        self._n_begun = max(0, self._n_begun - 1)

    def resumed_at(self, n_workers: int) -> tuple[int, int]:
        """Return the position of the next batch of all workers, and which of them has it.

        A StatefulDataLoader asks for a batch once all workers have loaded their states.
        """
        positions = self._words[_POSITION, :n_workers]
        worker = int(positions.argmin())
        return int(positions[worker]), worker

    def check(self, n_workers: int) -> None:
        """Raise an error in a worker that does not share the words with its parent."""
        parent = multiprocessing.parent_process()
        if parent is None or parent.pid != self._owner:
            raise RuntimeError(
                "cannot read a fastrec IterableDataset in workers: it was made in another "
                "process than the DataLoader; make it there, or call its set_epoch() "
                "there, before the DataLoader starts workers"
            )
        if n_workers > _MAX_WORKERS:
            raise ValueError(
                f"num_workers must be at most {_MAX_WORKERS}, got {n_workers}"
            )
