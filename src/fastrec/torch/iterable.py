"""Iterable: the batches of a loader, in a DataLoader with any number of workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

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
from fastrec.torch.ranks import GroupRank
from fastrec.torch.shared_epoch import SharedEpoch, worker_place

if TYPE_CHECKING:
    from typing_extensions import Unpack


class IterableDataset(torch.utils.data.IterableDataset[TensorBatch]):
    """The batches of a loader as an iterable dataset of torch.

    Pass it to a DataLoader with ``batch_size=None``: it yields whole batches, dicts of
    tensors as `tensors` makes them. They are the batches of the loader, in its order, for
    any number of workers: worker `w` of `n` makes the steps `w`, ``w + n``, ``w + 2 * n``
    and so on. Without workers, and with one, the loader's own threads decode; with more,
    each worker decodes in one thread. `fastrec.torch.loader` needs no workers and is
    mostly faster, because batches of workers are copied into shared memory.

    Without workers, each pass is the next epoch, also after a ``break``. With workers,
    call `set_epoch` before each pass, as for torch's DistributedSampler; a second pass
    without it raises a RuntimeError.

    Iterators have the `state_dict` that StatefulDataLoader of torchdata asks for, which
    may resume with another batch size or world size. To resume a run in a plain
    DataLoader, pass a loader that was moved there.

    Parameters
    ----------
    source : Dataset or Loader
        What is read. A Loader is copied at its current position and stays there, and
        must be passed without loader options.
    batch_size : int, optional
        Rows in a batch of this rank, as for `fastrec.Dataset.loader`.
    ragged : {"offsets", "nested"}, default "offsets"
        See `tensors`.
    process_group : torch.distributed.ProcessGroup, optional
        The ranks that divide the data, by default all; see `loader`. Rank and world size
        are those of this process when a pass begins, also in its workers.
    **options
        For `fastrec.Dataset.loader`.

    Raises
    ------
    TypeError, ValueError
        If an option is invalid, or the loader disagrees with the process group.
    ValueError
        When a pass begins, if accelerate with several processes divides the batches
        (`Accelerator.prepare`, the Trainer of transformers): they are one rank's part.
        With more than one worker, if compressed files are read in place, or with
        `max_errors`.

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
        self._shared = SharedEpoch()

    @property
    def epoch(self) -> int:
        """The epoch of the last pass in this process, or that of `set_epoch`."""
        return self._loader.epoch

    @property
    def stats(self) -> LoaderStats:
        """The statistics of passes without workers; see `fastrec.Loader.stats`."""
        return self._loader.stats

    @property
    def report(self) -> Report:
        """What the last pass without workers has skipped; see `fastrec.Loader.report`."""
        return self._loader.report

    def __len__(self) -> int:
        """Return the steps of the pass at `epoch`, of all workers together."""
        return len(self._loader)

    def __repr__(self) -> str:
        return f"<fastrec.torch.IterableDataset of {self._loader!r}>"

    def set_epoch(self, epoch: int) -> None:
        """Begin the next pass at `epoch`, also in workers that are kept.

        Call it before each pass of a DataLoader with workers. Without workers, passes are
        consecutive epochs by themselves.
        """
        self._check()
        self._loader.set_epoch(epoch)
        self._shared.set(epoch)

    def __iter__(self) -> Iterator[TensorBatch]:
        self._check()
        _check_not_stacked(sys._getframe(1).f_locals.get("self"))
        return _Pass(self._loader, self._shared)

    def _check(self) -> None:
        """Raise a ValueError if a pass would lose or repeat records of other ranks."""
        self._loader._follow(self._loader._find_rank)
        check_not_divided(self, self._loader)

    def __getstate__(self) -> dict[str, Any]:
        self._check()  # workers have no process group
        return self.__dict__


def _check_not_stacked(caller: object) -> None:
    """Raise a ValueError if a DataLoader would stack batches to batches of batches."""
    fetch, collate = torch.utils.data._utils.fetch, torch.utils.data.default_collate
    if (
        isinstance(caller, fetch._IterableDatasetFetcher)
        and caller.auto_collation
        and caller.collate_fn is collate
    ):
        raise ValueError(
            "cannot stack batches of a fastrec IterableDataset to batches again: pass "
            "batch_size=None to the DataLoader, and the batch size to the dataset: "
            "DataLoader(fr.torch.IterableDataset(ds, 256), batch_size=None)"
        )


_STATE_KEYS = {"loader", "worker", "batch_size", "interval"}


class _Pass(Iterator[TensorBatch]):
    """One pass: the steps of one worker.

    Without other workers, it iterates the loader; else it asks for each step.
    """

    def __init__(self, loader: Loader[TensorBatch], shared: SharedEpoch) -> None:
        self._loader = loader
        self._shared = shared
        self._worker, self._n_workers = worker_place()
        self._loaded: Mapping[str, Any] | None = None  # until the next batch
        self._batches: Iterator[TensorBatch] | None = None
        self._is_finished = False
        self._error: RuntimeError | None = None  # unless a state is loaded
        if self._worker is not None:
            shared.check(self._n_workers)
        if self._n_workers > 1:
            _check_divisible(loader)
        try:
            shared.begin(self._worker)
        except RuntimeError as error:
            self._error = error
        _, seed, epoch, step, phase, *_ = loader._progress.cursor.begun()
        seed = seed if shared.seed is None else shared.seed
        if shared.epoch is not None and shared.epoch != epoch:
            epoch, step, phase = shared.epoch, 0, 0
        if self._worker is None:
            shared.set(epoch + 1)
        loader._move(seed, epoch, step, phase, loader._current_planner())
        self._begin_at(self._worker or 0)

    def _begin_at(self, turn: int) -> None:
        """Begin at the loader's step, from which this worker makes the `turn`-th."""
        _, self._seed, self._epoch, step, self._phase, *_ = (
            self._loader._progress.cursor
        )
        self._step = step + turn  # the next one, with other workers
        self._state: dict[str, Any] = {}  # of the loader; empty until it is asked for
        self._n_unsaved = 0  # batches since the last call of state_dict
        self._interval = 0  # the most that there were
        if self._n_workers == 1:
            self._batches = iter(self._loader)

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Begin at the first of the next batches in the states of all workers."""
        position, first = self._shared.resumed_at(self._n_workers)
        loader, epoch = self._loader, int(state["epoch"])
        loader.load_state_dict({**state, "position": position})
        if loader.epoch == epoch:
            self._begin_at(((self._worker or 0) - first) % self._n_workers)
            self._loaded = None
        else:
            self._is_finished = True  # the states are of the end of the epoch

    def __next__(self) -> TensorBatch:
        if self._loaded is not None and not self._is_finished:
            self._resume(self._loaded["loader"])
        if self._is_finished:
            raise StopIteration
        if self._error is not None:
            raise self._error
        if self._batches is not None:
            batch = next(self._batches)
        elif self._step < len(self._loader):
            batch = self._loader.batch(self._step)
        else:
            raise StopIteration
        self._step += self._n_workers
        self._n_unsaved += 1
        return batch

    # What StatefulDataLoader asks for.

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loader where the next batch of this worker begins."""
        if self._loaded is not None:
            return dict(self._loaded)
        planner, cursor = self._loader._options.planner, self._loader._progress.cursor
        plan = planner.plan(self._seed, self._epoch, self._phase)
        if not self._state:
            self._state = self._loader.state_dict()
            self._state |= {"seed": self._seed, "epoch": self._epoch}
        step = self._step if self._batches is None else cursor.step
        if step > plan.n_steps or cursor.epoch != self._epoch:
            step = plan.n_steps
        self._interval = max(self._interval, self._n_unsaved)
        self._n_unsaved = 0
        return {
            "loader": {**self._state, "position": plan.begin_of(step)},
            "worker": [self._worker or 0, self._n_workers],
            "batch_size": planner.global_batch_size,
            "interval": self._interval,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to the place of the same worker of the same number of workers.

        Batch size and world size may differ: the rest of the epoch is delivered once.
        """
        if set(state) != _STATE_KEYS:
            raise ValueError(
                f"state of a pass must have the keys {_STATE_KEYS}, got {set(state)}"
            )
        place, here = tuple(state["worker"]), (self._worker or 0, self._n_workers)
        if place != here:
            raise ValueError(
                f"state was saved by worker {place[0]} of {place[1]}, and this is worker "
                f"{here[0]} of {here[1]}: pass num_workers={place[1]}, or "
                "use fr.torch.loader, whose state does not depend on workers"
            )
        batch_size = self._loader._current_planner().global_batch_size
        is_same_size = batch_size == state["batch_size"]
        if self._n_workers > 1 and state["interval"] > 1 and not is_same_size:
            raise ValueError(
                "cannot resume with another batch size or world size from a snapshot of "
                "some steps ago: StatefulDataLoader skips the steps since then in batches "
                "of the new size; save with snapshot_every_n_steps=1"
            )
        loaded = state["loader"]
        self._loader.load_state_dict(loaded)
        position, seed = int(loaded["position"]), int(loaded["seed"])
        self._shared.resume(self._worker, position, seed)
        epoch = int(loaded["epoch"])
        if self._worker is None:
            self._shared.set(epoch + 1)
        elif self._loader.epoch != epoch:
            self._shared.finish(self._worker, epoch)
        self._loaded, self._is_finished, self._error = state, False, None


def _check_divisible(loader: Loader[Any]) -> None:
    """Raise a ValueError if several workers cannot divide the steps of a loader."""
    if loader.dataset.is_streamed:
        raise ValueError(
            "cannot read compressed files in several workers: their records come one "
            "after another; expand the files once with fr.open(..., cache_dir=), or "
            "pass num_workers=0, where threads decode"
        )
    if loader._options.max_errors is not None:
        raise ValueError(
            "max_errors= requires num_workers <= 1, because each worker counts alone"
        )
