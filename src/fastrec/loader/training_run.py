"""Training runs: the place of a loader, how it moves, and which records come where."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastrec.loader.iterator import BatchIterator
from fastrec.loader.options import LoaderOptions
from fastrec.loader.plan import Planner
from fastrec.loader.progress import Progress
from fastrec.loader.ranks import Rank
from fastrec.loader.state import State
from fastrec.loader.steps import Plan
from fastrec.options import non_negative_int
from fastrec.sources.selection import Numbers

__all__ = ["RecordLocation", "TrainingRun"]


class RecordLocation(NamedTuple):
    """Where a record is stored."""

    path: str
    record: int  # in the file, from 0
    offset: int  # byte where its frame begins


class TrainingRun:
    """The place of a loader in its training run."""

    def __init__(self, options: LoaderOptions, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._iterator: weakref.ref[BatchIterator] | None = None

    @property
    def batch_size(self) -> int | None:
        """Rows of this rank in a full batch; None with ``batches=``."""
        return self._planner.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether rows that do not fill a batch of all ranks are left out."""
        return self._planner.drop_last

    @property
    def pad_last(self) -> bool:
        """Whether the last batch is filled with padding."""
        return self._planner.pad_last

    @property
    def seed(self) -> int:
        """The seed of the order and of the transforms' random generators."""
        return self._progress.seed

    @property
    def rank(self) -> int:
        """The rank of this process among those that share the epoch."""
        return self._planner.rank.rank

    @property
    def world_size(self) -> int:
        """How many processes share the epoch."""
        return self._planner.rank.world_size

    @property
    def epoch(self) -> int:
        """The epoch of the batch delivered last, or the next one once it has ended."""
        return self._progress.mark.epoch

    @property
    def step(self) -> int:
        """The steps of this epoch that were delivered, or skipped by `seek`."""
        return self._progress.mark.step

    def __len__(self) -> int:
        """Steps of the current epoch, the same on all ranks.

        Builds the index of the dataset if there is none.
        """
        return self._plan().n_steps

    @property
    def _planner(self) -> Planner:
        return self._options.planner

    @property
    def _phase(self) -> int:
        return self._progress.mark.phase

    def _plan(self, epoch: int | None = None) -> Plan:
        at = self._progress.mark
        if epoch is None or epoch == at.epoch:
            return self._planner.plan(self.seed, at.epoch, at.phase)
        return self._planner.plan(self.seed, epoch)

    def seek(self, step: int) -> None:
        """Go to a step of the current epoch: the next ``for`` begins with it.

        A running iteration ends. The step after the last is the first of the next epoch.
        In an epoch that `load_state_dict` cut, steps count through the cut grid; step 0
        starts the epoch again.

        Raises
        ------
        IndexError
            If the epoch has no such step.
        """
        step = non_negative_int("step", step)
        n_steps = self._plan().n_steps
        if step > n_steps:
            msg = f"step {step} is out of range: the epoch has {n_steps:,} steps"
            raise IndexError(msg)
        # The first step of a cut epoch may be too short for all ranks.
        self._move(self.epoch, step, self._phase if step else 0)

    def set_epoch(self, epoch: int) -> None:
        """Start `epoch` with the next ``for``.

        In a loop of the form ``for epoch in ...: loader.set_epoch(epoch)`` it changes
        nothing: the loader counts epochs itself, and continues in the middle of one after
        `load_state_dict` or `seek`.
        """
        epoch = non_negative_int("epoch", epoch)
        if epoch != self.epoch or self._progress.mark.is_begun:
            self._move(epoch, 0, 0)

    def _move(self, epoch: int, step: int, phase: int) -> None:
        if step and step == self._planner.plan(self.seed, epoch, phase).n_steps:
            epoch, step, phase = epoch + 1, 0, 0
        self.close()
        self._progress.move(epoch, step, phase)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is: after the batch that was delivered last.

        The state is less than 400 bytes of JSON-able values, the same on all ranks. It
        does not depend on the number of ranks or threads or on the batch size. After an
        error, it is the place before the batch that failed; a finished epoch is the start
        of the next one. Builds the index of the dataset if there is none.
        """
        plan = self._plan()
        epoch, position = self.epoch, plan.begin_of(self.step)
        if self.step and self.step == plan.n_steps:
            epoch, position = epoch + 1, 0
        fingerprint = self._options.view.fingerprint()
        order = self._planner.state()
        return State(fingerprint, order, self.seed, epoch, position).to_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Go where another loader was; the next ``for`` continues there.

        The other loader may have had another batch size, world size or number of threads:
        the rest of its epoch comes exactly once, in batches of this loader's size. The
        seed of the state replaces this loader's. A running iteration ends.

        Parameters
        ----------
        state : mapping
            The result of `state_dict`, also after a round trip through JSON.
        strict : bool, default True
            Refuse the state of other data: files with other records, in another order, or
            another selection of them. Copies of the files are the same data.

        Raises
        ------
        ValueError
            If it is not a state, or one of another order or, with `strict`, of other
            data; or if the rest of the epoch cannot be divided among the ranks.
        """
        loaded = State.from_dict(state)
        fingerprint = self._options.view.fingerprint() if strict else None
        loaded.check(fingerprint, self._planner.state())
        phase = self._planner.phase(loaded.position)
        first = self._planner.plan(loaded.seed, loaded.epoch)
        if loaded.position > first.n_positions:
            msg = (
                f"the state is at position {loaded.position:,}, but an epoch has "
                f"{first.n_positions:,}"
            )
            raise ValueError(msg)
        plan = self._planner.plan(loaded.seed, loaded.epoch, phase)
        step = plan.step_at(loaded.position)
        if plan.begin_of(step) != loaded.position:
            msg = (
                f"the state is at position {loaded.position:,}, where none of the "
                "batches(seed, epoch) begins: they are not those it was saved with"
            )
            raise ValueError(msg)
        self.close()
        self._progress.seed = loaded.seed
        self._move(loaded.epoch, step, phase)

    def records_at(self, step: int, epoch: int | None = None) -> list[RecordLocation]:
        """Return which records this rank gets in a step.

        Returns
        -------
        list of RecordLocation
            Named tuples ``(path, record, offset)`` of the rows that are records: file,
            number of the record in it, and byte where its frame begins.

        Raises
        ------
        IndexError
            If the epoch has no such step.
        """
        plan = self._plan_with(step, epoch)
        _, records = plan.rows(step)
        return self._places(records[records >= 0])

    def _places(self, records: Numbers) -> list[RecordLocation]:
        files = self._options.view.files.files
        places = self._options.view.places(records)
        return [
            RecordLocation(files[file], record, offset)
            for file, record, offset in places
        ]

    def _plan_with(self, step: int, epoch: int | None) -> Plan:
        """Return the plan of an epoch that has a step `step`, or raise an IndexError."""
        step = non_negative_int("step", step)
        epoch = self.epoch if epoch is None else non_negative_int("epoch", epoch)
        plan = self._plan(epoch)
        if step >= plan.n_steps:
            msg = f"step {step} is out of range: the epoch has {plan.n_steps:,} steps"
            raise IndexError(msg)
        return plan

    def close(self) -> None:
        """End the running epoch's threads. The next ``for`` starts new ones."""
        if (iterator := self._running()) is not None:
            iterator.close()

    def _running(self) -> BatchIterator | None:
        return None if self._iterator is None else self._iterator()

    @property
    def _rank(self) -> Rank:
        return self._planner.rank
