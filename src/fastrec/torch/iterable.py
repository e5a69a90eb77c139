"""Iterable: the batches of a loader, in a DataLoader with any number of workers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch.distributed
import torch.utils.data

import fastrec.dataset.dataset
from fastrec.arrays.batch import Batch
from fastrec.dataset.adapted import LoaderKeywords, loader_of
from fastrec.loader.loader import Loader
from fastrec.loader.stats import LoaderStats
from fastrec.on_error import Report
from fastrec.options import non_negative_int
from fastrec.torch.accelerate import check_not_divided
from fastrec.torch.columns import RaggedAs, TensorBatch, check_ragged, tensors
from fastrec.torch.ranks import GroupRank
from fastrec.torch.shared_epoch import EPOCH_MAX, SharedEpoch, Start, worker_place

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["IterableDataset"]


class IterableDataset(torch.utils.data.IterableDataset[TensorBatch]):
    """The batches of a loader as an iterable dataset of torch.

    Pass it to a DataLoader with ``batch_size=None``: it yields whole batches, dicts of
    tensors as `tensors` makes them. They are the batches of the loader, in its order, for
    any number of workers: worker `w` of `n` makes the steps `w`, ``w + n``, ``w + 2 * n``
    and so on. Without workers, and with one, the loader's own threads decode; with more,
    each worker decodes in one thread. `fastrec.torch.loader` needs no workers and is
    mostly faster, because batches of workers are copied into shared memory.

    Each pass is the next epoch, also after a ``break``, and ends the pass before. If
    another dataset wraps this one, call `set_epoch` before each pass.

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
    Each process counts the rows that `on_error` skips for itself, so rows that workers
    skip are not in `report`.

    Examples
    --------
    >>> data = fr.torch.IterableDataset(ds, 256, shuffle=True)  # doctest: +SKIP
    >>> for batch in DataLoader(data, batch_size=None, num_workers=2):  # doctest: +SKIP
    ...     step(batch["image"], batch["label"])
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
            msg = (
                "num_workers= is an option of the DataLoader: "
                "DataLoader(data, batch_size=None, num_workers=...)"
            )
            raise TypeError(msg)
        adapter, find_rank = "fr.torch.IterableDataset", GroupRank(process_group)
        self._loader = loader_of(adapter, source, batch_size, options, find_rank)
        self._ragged = check_ragged(ragged)
        self._shared = SharedEpoch(_start_of(self._loader))

    @property
    def epoch(self) -> int:
        """The epoch of the pass begun last, or the next one once that has ended.

        The end of a pass in workers is not known here, only its beginning.
        """
        return self._loader.epoch if self._shared.is_local else self._shared.epoch

    @property
    def stats(self) -> LoaderStats:
        """The statistics of passes in this process; see `fastrec.Loader.stats`.

        Passes in workers do not count.
        """
        stats = self._loader.stats
        return (
            stats
            if self._shared.is_local
            else dataclasses.replace(stats, _is_elsewhere=True)
        )

    @property
    def report(self) -> Report:
        """The rows that the last pass has skipped; see `fastrec.Loader.report`.

        Raises a RuntimeError if workers have made the last pass.
        """
        if not self._shared.is_local:
            msg = (
                "the last pass was in other processes, which count for themselves: "
                "report is that of passes with num_workers=0"
            )
            raise RuntimeError(msg)
        return self._loader.report

    def __len__(self) -> int:
        """Return the steps of the pass at `epoch`, of all workers together."""
        return self._loader._plan(self.epoch).n_steps

    def __repr__(self) -> str:
        return f"<fastrec.torch.IterableDataset of {self._loader!r}>"

    def set_epoch(self, epoch: int) -> None:
        """Begin the next pass at `epoch`, also in workers that are kept.

        A running pass ends. A loop over consecutive epochs does not need it.
        """
        epoch = non_negative_int("epoch", epoch, EPOCH_MAX)
        self._check()
        if self._shared.set_epoch(epoch):
            _place(self._loader, Start(self._loader.seed, epoch, 0))

    def __iter__(self) -> Iterator[TensorBatch]:
        self._check()
        _check_not_stacked(sys._getframe(1).f_locals.get("self"))
        return _Pass(self._loader, self._shared, self._ragged)

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
        msg = (
            "cannot stack batches of a fastrec IterableDataset to batches again: pass "
            "batch_size=None to the DataLoader, and the batch size to the dataset: "
            "DataLoader(fr.torch.IterableDataset(ds, 256), batch_size=None)"
        )
        raise ValueError(msg)


_STATE_KEYS = {"loader", "worker", "batch_size", "interval"}


class _Pass(Iterator[TensorBatch]):
    """One pass: the steps of one worker. `_step` survives an interrupt anywhere."""

    def __init__(self, loader: Loader, shared: SharedEpoch, ragged: RaggedAs) -> None:
        self._loader = loader
        self._shared = shared
        self._ragged = ragged
        self._worker, self._n_workers = worker_place()
        if self._n_workers > 1 and loader.dataset.is_streamed:
            msg = (
                "cannot read compressed files in several workers: their records come one "
                "after another; expand the files once with fr.open(..., cache_dir=), or "
                "pass num_workers=0, where threads decode"
            )
            raise ValueError(msg)
        if self._n_workers > 1 and loader._options.max_errors is not None:
            msg = (
                "max_errors= counts the rows of an epoch, and several workers read a part "
                "of it each: pass num_workers=0, where threads decode, or 1"
            )
            raise ValueError(msg)
        self._loaded: Mapping[str, Any] | None = None  # until the next batch
        self._pass = shared.begin(self._worker, self._n_workers)
        _place(loader, self._pass.start)
        self._begin(self._worker)

    def _begin(self, turn: int) -> None:
        """Begin at the loader's step, from which this worker makes the `turn`-th."""
        self._step = self._loader.step + turn  # the next one
        self._phase = self._loader._phase
        self._state: dict[str, Any] = {}  # of the loader; empty until it is asked for
        self._n_unsaved = 0  # batches since the last call of state_dict
        self._interval = 0  # the most that there were
        self._batches: Iterator[Batch] | None = None
        self._is_finished = False

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Begin at the first of the next batches in the states of all workers."""
        position, first = self._shared.resumed_at(self._n_workers)
        self._loader.load_state_dict({**state["loader"], "position": position})
        self._begin((self._worker - first) % self._n_workers)
        if self._loader.epoch != self._pass.start.epoch:
            self._is_finished = True  # the states are of the end of the epoch
        else:
            self._loaded = None

    def __next__(self) -> TensorBatch:
        if self._is_finished:
            raise StopIteration
        if not self._shared.is_running(self._pass):
            msg = (
                "a later pass over the same dataset, or set_epoch(), has ended this pass: "
                "a dataset has one pass at a time. If another dataset wraps it, call "
                "set_epoch() before each pass"
            )
            raise RuntimeError(msg)
        if self._loaded is not None:
            self._resume(self._loaded)
        batch = self._next_batch()
        if batch is None:
            self._is_finished = True
            raise StopIteration
        columns = tensors(batch, self._ragged)
        self._step += self._n_workers
        self._n_unsaved += 1
        return columns

    def _next_batch(self) -> Batch | None:
        if self._is_finished:
            return None
        if self._n_workers == 1:
            return self._next_in_order()
        is_over = self._step >= len(self._loader)
        return None if is_over else self._loader.batch(self._step)

    def _next_in_order(self) -> Batch | None:
        loader, epoch = self._loader, self._pass.start.epoch
        if loader.epoch == epoch and loader.step != self._step:
            self._batches = None  # first: a signal may raise once `seek` has closed it
            loader.seek(self._step)
        if loader.epoch != epoch:
            return None  # it has finished this one
        if self._batches is None:
            self._batches = iter(loader)
        return next(self._batches, None)

    # What StatefulDataLoader asks for.

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loader where the next batch of this worker begins."""
        if self._loaded is not None:
            return dict(self._loaded)
        planner, start = self._loader._options.planner, self._pass.start
        plan = planner.plan(start.seed, start.epoch, self._phase)
        if not self._state:
            self._state = self._loader.state_dict() | start._asdict()
        position = plan.begin_of(min(self._step, plan.n_steps))
        self._interval = max(self._interval, self._n_unsaved)
        self._n_unsaved = 0
        return {
            "loader": {**self._state, "position": position},
            "worker": [self._worker, self._n_workers],
            "batch_size": planner.global_batch_size,
            "interval": self._interval,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to the place of the same worker of the same number of workers.

        Batch size and world size may differ: the rest of the epoch is delivered once.
        """
        if set(state) != _STATE_KEYS:
            msg = f"state of a pass must have the keys {_STATE_KEYS}, got {set(state)}"
            raise ValueError(msg)
        worker, n_workers = state["worker"]
        if (worker, n_workers) != (self._worker, self._n_workers):
            msg = (
                f"state was saved by worker {worker} of {n_workers}, and this is worker "
                f"{self._worker} of {self._n_workers}: pass num_workers={n_workers}, or "
                "use fr.torch.loader, whose state does not depend on workers"
            )
            raise ValueError(msg)
        batch_size = self._loader._current_planner().global_batch_size
        is_same_size = batch_size == state["batch_size"]
        if n_workers > 1 and state["interval"] > 1 and not is_same_size:
            msg = (
                "cannot resume with another batch size or world size from a snapshot of "
                "some steps ago: StatefulDataLoader skips the steps since then in batches "
                "of the new size; save with snapshot_every_n_steps=1"
            )
            raise ValueError(msg)
        self._loader.load_state_dict(state["loader"])
        seed, epoch, position = (int(state["loader"][name]) for name in Start._fields)
        start = Start(seed, epoch, position)
        self._pass = self._shared.resume(self._worker, self._n_workers, start)
        self._loaded = state


def _start_of(loader: Loader) -> Start:
    if not loader.step:
        return Start(loader.seed, loader.epoch, 0)
    state = loader.state_dict()
    return Start(state["seed"], state["epoch"], state["position"])


def _place(loader: Loader, start: Start) -> None:
    if start.position or start.seed != loader.seed:
        loader.load_state_dict({**loader.state_dict(), **start._asdict()})
    else:
        # Needs no index.
        loader._move(start.seed, start.epoch, 0, 0, loader._current_planner())
