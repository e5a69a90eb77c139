"""Iterable: the batches of a loader, in a DataLoader with any number of workers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch.distributed
import torch.utils.data

import fastrec.dataset.dataset
from fastrec.arrays.batch import Batch
from fastrec.loader.loader import Loader
from fastrec.loader.stats import LoaderStats
from fastrec.on_error import Report
from fastrec.options import non_negative_int
from fastrec.torch.columns import RaggedAs, check_ragged, tensors
from fastrec.torch.ranks import check_group, check_not_divided
from fastrec.torch.source import loader_of
from fastrec.torch.turns import Start, Turn, Turns

__all__ = ["IterableDataset"]


class IterableDataset(torch.utils.data.IterableDataset[Any]):
    """The batches of a loader as an iterable data set of torch's.

    Give it to a DataLoader with ``batch_size=None``, or torch stacks batches once more: it
    yields whole ones, dicts of tensors as `tensors` makes them. They are those of the
    loader, in its order, for any number of workers: worker `w` of `n` makes the steps
    `w`, ``w + n``, ``w + 2 * n`` and so on, and the DataLoader asks them in turn. Without
    workers, and with one, the loader's own threads decode; with more, each worker decodes
    in one thread.

    Each pass is the next epoch, wherever it takes place, after a ``break`` too, and a new
    pass ends the one before. Loaders of fastrec need no workers, so `fastrec.torch.loader`
    is mostly faster: batches of workers are copied into the memory they share.

    Its iterators have the `state_dict` that StatefulDataLoader of torchdata asks for. To
    go on with a run in a plain DataLoader, give it a loader that was moved there.

    Parameters
    ----------
    dataset : fastrec.Dataset or fastrec.Loader
        A loader must be given without the options below; the first pass begins where it
        is. It stays there: what it is asked for later changes nothing here.
    batch_size : int, optional
        As `fastrec.Dataset.loader` has it, like all `options`.
    ragged : {"offsets", "nested"}, default "offsets"
        See `tensors`.
    process_group : torch.distributed.ProcessGroup, optional
        The ranks that divide the data, by default all; see `check_group`. A Dataset
        takes rank and world size from it.
    **options
        For `fastrec.Dataset.loader`. Rank and world size are those of this process now;
        its workers use the same ones.

    Raises
    ------
    TypeError, ValueError
        If an option is invalid, or the loader disagrees with the process group.
    ValueError
        When a pass begins, if accelerate with several processes divides the batches
        (`Accelerator.prepare`, the Trainer of transformers): they are one rank's part.
    ValueError
        In a DataLoader with more than one worker, if the files are streams (compressed
        ones that are read as they are), whose records come one after another; or with
        `max_errors`.

    Notes
    -----
    Rows that `on_error` passes over are counted by each process for itself. So they are
    in no `report` if workers read, and several workers cannot have `max_errors`.

    Examples
    --------
    >>> data = fr.torch.IterableDataset(ds, 256, shuffle=True)  # doctest: +SKIP
    >>> for batch in DataLoader(data, batch_size=None, num_workers=2):  # doctest: +SKIP
    ...     step(batch["image"], batch["label"])
    """

    def __init__(
        self,
        dataset: fastrec.dataset.dataset.Dataset | Loader,
        batch_size: int | None = None,
        *,
        ragged: RaggedAs = "offsets",
        process_group: torch.distributed.ProcessGroup | None = None,
        **options: Any,  # noqa: ANN401 (those of Dataset.loader)
    ) -> None:
        if "num_workers" in options:
            msg = (
                "num_workers= is an option of the DataLoader: "
                "DataLoader(data, batch_size=None, num_workers=...)"
            )
            raise TypeError(msg)
        if batch_size is not None:
            options["batch_size"] = batch_size
        example = "as in fr.torch.IterableDataset(ds, 256)"
        taker = "fr.torch.IterableDataset"
        loader = loader_of(taker, dataset, options, process_group, example)
        self._loader = copy.copy(loader) if loader is dataset else loader
        self._ragged = check_ragged(ragged)
        self._process_group = process_group
        check_group(self._loader, process_group)
        self._turns = Turns(_start_of(self._loader))

    @property
    def epoch(self) -> int:
        """The epoch of the pass begun last, or the next one once it has ended.

        Of passes in workers it is known when they begin, and not when they end.
        """
        if self._turns.is_local:
            return self._loader.epoch
        return self._turns.last().epoch

    @property
    def stats(self) -> LoaderStats:
        """What passes in this process delivered; see `fastrec.Loader.stats`.

        Raises
        ------
        RuntimeError
            If workers have made the last pass.
        """
        return self._local_loader().stats

    @property
    def report(self) -> Report:
        """The rows that the last pass has passed over; see `fastrec.Loader.report`.

        Raises
        ------
        RuntimeError
            If workers have made the last pass.
        """
        return self._local_loader().report

    def _local_loader(self) -> Loader:
        if not self._turns.is_local:
            msg = (
                "the last pass was in other processes, which count for themselves: "
                "stats and report are those of passes with num_workers=0"
            )
            raise RuntimeError(msg)
        return self._loader

    def __len__(self) -> int:
        """Steps of the pass at `epoch`, of all workers together."""
        return self._loader._plan(self.epoch).n_steps

    def __repr__(self) -> str:
        return f"<fastrec.torch.IterableDataset of {self._loader!r}>"

    def set_epoch(self, epoch: int) -> None:
        """Have the next pass begin `epoch`, in worker processes that are kept, too.

        In a loop over consecutive epochs it changes nothing: passes are counted.
        """
        epoch = non_negative_int("epoch", epoch)
        self._check()
        self._turns.own()
        upcoming = self._turns.next()
        if upcoming.epoch != epoch:
            start = Start(upcoming.seed, epoch, 0)
            self._turns.restart(start)
            _place(self._loader, start)

    def __iter__(self) -> Iterator[Batch]:
        self._check()
        return _Pass(self._loader, self._turns, self._ragged)

    def _check(self) -> None:
        """Raise a ValueError if this pass would lose or repeat records of other ranks."""
        check_group(self._loader, self._process_group)
        check_not_divided(self, self._loader)

    def __getstate__(self) -> dict[str, Any]:
        # Workers have no process group to ask.
        self._check()
        return self.__dict__ | {"_process_group": None}


class _Pass(Iterator[Batch]):
    """One pass: the steps of one worker. Begins with its first batch.

    A signal may raise an exception anywhere. `_step` moves with each batch that goes out,
    so the loader can be put back to one that did not.
    """

    def __init__(self, loader: Loader, turns: Turns, ragged: RaggedAs) -> None:
        self._loader = loader
        self._turns = turns
        self._ragged = ragged
        self._caller = turns.caller()
        self._is_alone = self._caller.n_workers == 1
        if not self._is_alone and loader.dataset.is_streamed:
            msg = (
                "compressed files that are read as they are have records one after "
                "another, which several workers cannot share: fr.open(..., cache_dir=) "
                "expands them once; or take num_workers=0, where threads decode"
            )
            raise ValueError(msg)
        if not self._is_alone and loader._options.max_errors is not None:
            msg = (
                "max_errors= counts the rows of an epoch, and several workers read a part "
                "of it each: take num_workers=0, where threads decode, or 1"
            )
            raise ValueError(msg)
        self._turn: Turn | None = None
        self._state: dict[str, Any] = {}  # of the loader, where the pass begins
        self._batches: Iterator[Batch] | None = None
        self._step = 0  # the next one
        self._is_finished = False

    def __next__(self) -> Batch:
        if self._is_finished:
            raise StopIteration
        if self._turn is None:
            self._turn = self._turns.begin(self._caller)
            self._state = {}
            _place(self._loader, self._turn.start)
            self._step = self._loader.step + self._caller.worker
        elif not self._turns.is_running(self._turn):
            msg = (
                "this pass was ended, by a later one over the same data set or by "
                "set_epoch(): a data set has one pass at a time"
            )
            raise RuntimeError(msg)
        batch = self._next_in_order() if self._is_alone else self._next_share()
        if batch is None:
            self._is_finished = True
            raise StopIteration
        batch = tensors(batch, self._ragged)
        self._step += self._caller.n_workers
        return batch

    def _next_in_order(self) -> Batch | None:
        loader = self._loader
        assert self._turn is not None
        epoch = self._turn.start.epoch
        if loader.epoch == epoch and loader.step != self._step:
            loader.seek(self._step)
            self._batches = None
        if loader.epoch != epoch:
            return None  # it has finished this one
        if self._batches is None:
            self._batches = iter(loader)
        return next(self._batches, None)

    def _next_share(self) -> Batch | None:
        if self._step >= len(self._loader):
            return None
        return self._loader.batch(self._step)

    # What StatefulDataLoader asks for.

    def state_dict(self) -> dict[str, Any]:
        """Return where this worker is: after the batch that it made last.

        The state is less than 500 bytes of JSON-able values.
        """
        if self._turn is not None:
            return {"pass": self._begin_state(self._turn.start), "step": self._step}
        return {"pass": self._begin_state(self._turns.peek(self._caller)), "step": None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go where the same worker of the same number was, in another process.

        Raises
        ------
        ValueError
            If it is no such state, or one of other data or another order.
        """
        if set(state) != {"pass", "step"}:
            msg = f"not the state of a pass, which has the keys pass and step: {state}"
            raise ValueError(msg)
        loader, step = self._loader, state["step"]
        loader.load_state_dict(state["pass"])
        start = _start_of(loader)
        self._turn = self._turns.resume(self._caller, start)
        self._step = loader.step + self._caller.worker if step is None else step
        self._state, self._batches, self._is_finished = {}, None, False

    def _begin_state(self, start: Start) -> dict[str, Any]:
        if not self._state or self._turn is None:
            self._state = {**self._loader.state_dict(), **start._asdict()}
        return self._state


def _start_of(loader: Loader) -> Start:
    if not loader.step:
        return Start(loader.seed, loader.epoch, 0)
    state = loader.state_dict()
    return Start(state["seed"], state["epoch"], state["position"])


def _place(loader: Loader, start: Start) -> None:
    if start.position or start.seed != loader.seed:
        loader.load_state_dict({**loader.state_dict(), **start._asdict()})
    else:
        loader._move(start.epoch, 0, 0)  # without an index, which nobody may need
