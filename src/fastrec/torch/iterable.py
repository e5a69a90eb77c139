"""Iterable: batches of a loader for a DataLoader with any number of workers."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch.distributed
import torch.utils.data

import fastrec.dataset.dataset
from fastrec.dataset.adapted import loader_of
from fastrec.loader.loader import Loader
from fastrec.loader.options import LoaderKeywords
from fastrec.loader.prefetch import Conversion, with_conversion
from fastrec.loader.stats import LoaderStats
from fastrec.on_error import Report
from fastrec.torch.accelerate import check_not_divided
from fastrec.torch.columns import RaggedAs, TensorBatch, check_ragged, tensors
from fastrec.torch.loading import GroupRank

if TYPE_CHECKING:
    from typing_extensions import Unpack


class IterableDataset(torch.utils.data.IterableDataset[TensorBatch]):
    """The batches of a loader as an iterable dataset of torch.

    Pass the dataset to a DataLoader with ``batch_size=None``: it yields whole batches,
    dicts of tensors as returned by `tensors`. Any number of workers keeps the order
    of the loader's batches: worker `w` of `n` reads the steps `w`, ``w + n`` and so on.
    With at most one worker, the loader's own threads decode; with more workers, each
    worker decodes in one thread. `fastrec.torch.loader` needs no workers and is usually
    faster, because workers copy batches into shared memory.

    Without workers, each pass reads the next epoch, even after a ``break``. With workers,
    call `set_epoch` before each pass, as for torch's DistributedSampler; otherwise the
    second pass raises a RuntimeError.

    Iterators have a `state_dict` method for StatefulDataLoader of torchdata, which may
    resume with a different batch size or world size. To resume a run in a plain
    DataLoader, pass a Loader after calling its `load_state_dict`.

    Parameters
    ----------
    source : Dataset or Loader
        The data to read. A Loader is copied at its current position and is not changed;
        it must be passed without loader options.
    batch_size : int, optional
        Rows in a batch of this rank, as for `fastrec.Dataset.loader`.
    ragged : {"offsets", "nested"}, default "offsets"
        See `tensors`.
    process_group : torch.distributed.ProcessGroup, optional
        The ranks that divide the data, by default all ranks; see `loader`. When a pass
        begins, it uses this process's rank and world size, also in workers.
    **options
        Options of `fastrec.Dataset.loader`.

    Raises
    ------
    TypeError, ValueError
        If an option is invalid, or the loader disagrees with the process group.
    ValueError
        When a pass begins, if accelerate would divide the batches of this rank again
        (`Accelerator.prepare`, the Trainer of transformers). With more than one worker,
        if files are compressed and have no `cache_dir`, or if `max_errors` is set.

    Notes
    -----
    `stats` and `report` cover passes without workers. Workers log the rows that they skip.

    Examples
    --------
    >>> data = fr.torch.IterableDataset(ds, 256, shuffle=True)  # doctest: +SKIP
    >>> for epoch in range(3):  # doctest: +SKIP
    ...     data.set_epoch(epoch)
    ...     for batch in DataLoader(data, batch_size=None, num_workers=2):
    ...         step(batch["image"], batch["label"])
    """

    def __init__(
        self,
        source: fastrec.dataset.dataset.Dataset | Loader[Any],
        batch_size: int | None = None,
        *,
        ragged: RaggedAs = "offsets",
        process_group: torch.distributed.ProcessGroup | None = None,
        **options: Unpack[LoaderKeywords],
    ) -> None:
        if "num_workers" in options:
            raise TypeError(
                "num_workers= is an option of the DataLoader: "
                "DataLoader(data, batch_size=None, num_workers=...)"
            )
        adapter, find_rank = "fr.torch.IterableDataset", GroupRank(process_group)
        loader = loader_of(adapter, source, batch_size, options, find_rank)
        conversion = Conversion(partial(tensors, ragged=check_ragged(ragged)))
        self._loader = with_conversion(loader, conversion)
        begin = self._loader._progress.cursor.begun()
        self._shared = _SharedEpoch(begin.seed, begin.epoch)

    @property
    def epoch(self) -> int:
        """The epoch set by `set_epoch`, or reached by passes in this process."""
        return self._loader.epoch

    @property
    def stats(self) -> LoaderStats:
        """The statistics of passes without workers; see `fastrec.Loader.stats`."""
        return self._loader.stats

    @property
    def report(self) -> Report:
        """The report of the last pass without workers; see `fastrec.Loader.report`."""
        return self._loader.report

    def __len__(self) -> int:
        """Return the number of steps in the current epoch, summed over all workers."""
        return len(self._loader)

    def __repr__(self) -> str:
        return f"<fastrec.torch.IterableDataset of {self._loader!r}>"

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, also in persistent workers.

        Call this method before each pass of a DataLoader with workers. Without workers,
        each pass advances to the next epoch automatically.
        """
        self._check()
        self._loader.set_epoch(epoch)
        self._shared.set(epoch)

    def __iter__(self) -> Iterator[TensorBatch]:
        self._check()
        _check_not_stacked(sys._getframe(1).f_locals.get("self"))
        return _Pass(self._loader, self._shared)

    def _check(self) -> None:
        """Update the rank; raise a ValueError if ranks would lose or repeat records."""
        self._loader._follow(self._loader._find_rank)
        check_not_divided(self, self._loader)

    def __getstate__(self) -> dict[str, Any]:
        self._check()  # workers have no process group
        return self.__dict__


def _check_not_stacked(caller: object) -> None:
    """Raise a ValueError if `caller`, a DataLoader's fetcher, would stack batches."""
    fetch, collate = torch.utils.data._utils.fetch, torch.utils.data.default_collate
    if (
        isinstance(caller, fetch._IterableDatasetFetcher)
        and caller.auto_collation
        and caller.collate_fn is collate
    ):
        raise ValueError(
            "cannot stack the batches of a fastrec IterableDataset: pass "
            "batch_size=None to the DataLoader, and the batch size to the dataset: "
            "DataLoader(fr.torch.IterableDataset(ds, 256), batch_size=None)"
        )


_STATE_KEYS = {"loader", "worker", "batch_size", "interval"}

_MAX_WORKERS = 1024
_SEED_BIAS = 1 << 63  # seeds are unsigned, words are signed


class _SharedEpoch:
    """Epochs and positions, in memory that a process shares with its workers.

    A DataLoader calls ``__iter__`` in every worker once per pass, but not in the parent.
    So all processes share rows of integers. Row 0: the number of calls of `set`, the
    epoch and the seed of the next pass. Row 1, for each worker: the number of calls of
    `set` before its pass, plus one. Row 2, for each worker: the position of its state.
    """

    def __init__(self, seed: int, epoch: int) -> None:
        self._owner = os.getpid()
        self._n_set = 0  # calls of `set`: in the parent, or before a worker started
        self._has_begun = False  # whether a pass has begun in this worker
        # A tensor can be passed to both forked and spawned workers.
        memory = torch.zeros((3, _MAX_WORKERS), dtype=torch.int64, device="cpu")
        self._memory = memory.share_memory_()
        self._words[0, :3] = 0, epoch, seed - _SEED_BIAS

    @property
    def _words(self) -> npt.NDArray[np.int64]:
        words: npt.NDArray[np.int64] = self._memory.numpy()
        return words

    @property
    def place(self) -> tuple[int, int]:
        """The epoch and the seed of the next pass."""
        _, epoch, seed = self._words[0, :3].tolist()
        return epoch, seed + _SEED_BIAS

    def set(self, epoch: int) -> None:
        """Set the epoch of the next pass; only the parent calls this method."""
        if self._owner != os.getpid():  # the words belong to another process
            _SharedEpoch.__init__(self, self.place[1], epoch)
        self._n_set += 1
        self._words[0, :2] = self._n_set, epoch

    def is_again(self, worker: int | None) -> bool:
        """Begin a pass; return True if no epoch was set since the previous pass."""
        begun, n_set = self._words[1], self._n_set
        if worker is None:
            return self._owner == os.getpid() and int(begun.max()) > n_set
        n_before = int(begun[worker])
        if self._has_begun:  # a persistent worker may begin after the next `set`
            n_set = int(self._words[0, 0])
        if n_before > n_set:
            return True
        begun[worker] = (n_before if self._has_begun else n_set) + 1
        self._has_begun = True
        return False

    def resume(self, worker: int, position: int, seed: int) -> None:
        """Share the position and the seed of a worker's state with all processes."""
        self._words[0, 2] = seed - _SEED_BIAS
        self._words[2, worker] = position

    def finish(self, worker: int, epoch: int) -> None:
        """Move to the next epoch; the pass of `worker` in `epoch` does not count."""
        self._words[0, 1] = epoch + 1
        self._words[1, worker] -= 1

    def resumed_at(self, n_workers: int) -> tuple[int, int]:
        """Return the earliest position of all workers, and the worker that has it.

        A StatefulDataLoader requests a batch only after all workers have loaded a state.
        """
        positions = self._words[2, :n_workers]
        worker = int(positions.argmin())
        return int(positions[worker]), worker

    def check(self) -> None:
        """Raise a RuntimeError if this worker does not share memory with its parent."""
        parent = multiprocessing.parent_process()
        if parent is None or parent.pid != self._owner:
            raise RuntimeError(
                "cannot read a fastrec IterableDataset in workers of a process that did "
                "not create it: create the dataset in the process of the DataLoader, or "
                "call its set_epoch() there, before the DataLoader starts workers"
            )


class _Pass(Iterator[TensorBatch]):
    """An iterator over the steps of one worker in one pass.

    A single worker iterates over the loader; several workers read step by step.
    """

    def __init__(self, loader: Loader[TensorBatch], shared: _SharedEpoch) -> None:
        self._loader = loader
        self._shared = shared
        info = torch.utils.data.get_worker_info()
        self._is_worker = info is not None
        self._worker = 0 if info is None else info.id
        self._n_workers = 1 if info is None else info.num_workers
        self._loaded: Mapping[str, Any] | None = None  # until the next batch
        self._batches: Iterator[TensorBatch] | None = None
        self._is_finished = False
        if self._is_worker:
            shared.check()
        _check_workers(loader, self._n_workers)
        # If true, __next__ raises an error, unless a state is loaded first.
        self._is_again = shared.is_again(self._worker if self._is_worker else None)
        _, _, epoch, step, phase, *_ = loader._progress.cursor.begun()
        next_epoch, seed = shared.place
        if next_epoch != epoch:
            epoch, step, phase = next_epoch, 0, 0
        if not self._is_worker:
            shared.set(epoch + 1)
        loader._move(seed, epoch, step, phase, loader._current_planner())
        self._begin_at(self._worker)

    def _begin_at(self, turn: int) -> None:
        """Start `turn` steps after the loader's current step."""
        self._begin = self._loader._progress.cursor
        self._step = self._begin.step + turn  # the next step, with several workers
        self._state: dict[str, Any] = {}  # of the loader; empty until state_dict
        self._n_unsaved = 0  # batches since the last call of state_dict
        self._interval = 0  # the maximum of _n_unsaved
        if self._n_workers == 1:
            self._batches = iter(self._loader)

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Resume from `state` at the earliest position that any worker has loaded."""
        position, first = self._shared.resumed_at(self._n_workers)
        self._loader.load_state_dict({**state, "position": position})
        self._is_finished = self._loader.epoch != state["epoch"]  # at its end
        if not self._is_finished:
            self._begin_at((self._worker - first) % self._n_workers)
            self._loaded = None

    def __next__(self) -> TensorBatch:
        if self._loaded is not None and not self._is_finished:
            self._resume(self._loaded["loader"])
        if self._is_finished:
            raise StopIteration
        if self._is_again:
            raise RuntimeError(
                "a second pass over a fastrec IterableDataset in workers would repeat the "
                "epoch; call its set_epoch(epoch) before each pass"
            )
        if self._batches is not None:
            batch = next(self._batches)
        elif self._step < len(self._loader):
            batch = self._loader.batch(self._step)
        else:
            raise StopIteration
        self._step += self._n_workers
        self._n_unsaved += 1
        return batch

    # Methods for StatefulDataLoader.

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state before the next batch of this worker."""
        if self._loaded is not None:
            return dict(self._loaded)
        planner, cursor = self._loader._options.planner, self._loader._progress.cursor
        _, seed, epoch, _, phase, *_ = self._begin
        plan = planner.plan(seed, epoch, phase)
        if not self._state:
            self._state = {**self._loader.state_dict(), "seed": seed, "epoch": epoch}
        step = self._step if self._batches is None else cursor.step
        if step > plan.n_steps or cursor.epoch != epoch:
            step = plan.n_steps
        self._interval = max(self._interval, self._n_unsaved)
        self._n_unsaved = 0
        return {
            "loader": {**self._state, "position": plan.begin_of(step)},
            "worker": [self._worker, self._n_workers],
            "batch_size": planner.global_batch_size,
            "interval": self._interval,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to a state of this worker; the number of workers must be unchanged.

        Batch size and world size may differ; the rest of the epoch is delivered once.
        """
        if set(state) != _STATE_KEYS:
            raise ValueError(
                f"state of a pass must have the keys {_STATE_KEYS}, got {set(state)}"
            )
        place, here = tuple(state["worker"]), (self._worker, self._n_workers)
        if place != here:
            raise ValueError(
                f"state was saved by worker {place[0]} of {place[1]}, but this is worker "
                f"{here[0]} of {here[1]}: pass num_workers={place[1]}, or "
                "use fr.torch.loader, whose state does not depend on workers"
            )
        batch_size = self._loader._current_planner().global_batch_size
        is_same_size = batch_size == state["batch_size"]
        if self._n_workers > 1 and state["interval"] > 1 and not is_same_size:
            raise ValueError(
                "cannot resume with a different batch size or world size from an older "
                "snapshot: StatefulDataLoader skips the steps since the snapshot in batches "
                "of the new size; save with snapshot_every_n_steps=1"
            )
        loaded = state["loader"]
        self._loader.load_state_dict(loaded)
        epoch, position, seed = (int(loaded[k]) for k in ("epoch", "position", "seed"))
        self._shared.resume(self._worker, position, seed)
        if not self._is_worker:
            self._shared.set(epoch + 1)
        elif self._loader.epoch != epoch:
            self._shared.finish(self._worker, epoch)
        self._loaded, self._is_finished, self._is_again = state, False, False


def _check_workers(loader: Loader[Any], n_workers: int) -> None:
    """Raise a ValueError if workers cannot divide the steps of a loader."""
    if n_workers > _MAX_WORKERS:
        raise ValueError(f"num_workers must be at most {_MAX_WORKERS}, got {n_workers}")
    if n_workers > 1 and loader.dataset.is_streamed:
        raise ValueError(
            "cannot read compressed files in several workers, because their records can "
            "only be read in order; decompress the files once with fr.open(..., "
            "cache_dir=), or pass num_workers=0 to decode in threads"
        )
    if n_workers > 1 and loader._options.max_errors is not None:
        raise ValueError(
            "max_errors= requires num_workers <= 1: a worker counts only its own errors"
        )
