"""TrainingRun: the position of a loader, moving it, and its checkpoints."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from fastrec.loader.iterator import BatchIterator
from fastrec.loader.options import LoaderOptions
from fastrec.loader.plan import EpochPlan, Planner
from fastrec.loader.progress import Progress
from fastrec.loader.ranks import Rank, RankFinder
from fastrec.loader.state import State
from fastrec.options import non_negative_int
from fastrec.sources.selection import Numbers

_log = logging.getLogger("fastrec")


class RecordLocation(NamedTuple):
    """Where a record is stored."""

    path: str
    record: int  # in the file, from 0
    offset: int  # byte where its frame begins


class TrainingRun:
    """Base class of `Loader`: its position in the training run."""

    def __init__(
        self, options: LoaderOptions, progress: Progress, find_rank: RankFinder
    ) -> None:
        self._options = options
        self._progress = progress
        self._find_rank = find_rank

    @property
    def batch_size(self) -> int | None:
        """Rows of this rank in a full batch; None with ``batches=``."""
        return self._planner.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is skipped."""
        return self._planner.drop_last

    @property
    def pad_last(self) -> bool:
        """Whether the last batch is filled with padding."""
        return self._planner.pad_last

    @property
    def seed(self) -> int:
        """The seed of the order and of the transforms' random generators."""
        return self._progress.cursor.seed

    @property
    def rank(self) -> int:
        """The rank of this process among those that share the epoch."""
        return self._planner.rank.rank

    @property
    def world_size(self) -> int:
        """The number of processes that share the epoch."""
        return self._planner.rank.world_size

    @property
    def epoch(self) -> int:
        """The epoch of the last delivered batch, or the next one after the epoch's end."""
        return self._progress.cursor.epoch

    @property
    def step(self) -> int:
        """The number of steps of this epoch that were delivered, or skipped by `seek`."""
        return self._progress.cursor.step

    def __len__(self) -> int:
        """Return the steps of the current epoch, the same on all ranks.

        Builds the index of the dataset if it has none.
        """
        at = self._progress.cursor
        if not at.is_begun:
            self._begin_at(at.step)
        return self._plan().n_steps

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """An object with the attribute ``sampler``, which is this loader.

        Lightning calls ``batch_sampler.sampler.set_epoch`` before each epoch, so a run
        that it resumes at the end of an epoch has the order of the next one.
        """
        return SimpleNamespace(sampler=self)

    @property
    def _planner(self) -> Planner:
        return self._planner_at(self._progress.cursor.step)

    def _planner_at(self, step: int) -> Planner:
        """Return the planner of the epoch; at step 0, of the rank of this process now."""
        if not step:
            self._adopt(self._current_planner())
        return self._options.planner

    def _current_planner(self) -> Planner:
        """Return the planner of the rank that this process has now."""
        planner = self._options.planner
        rank = self._find_rank(planner.rank)
        return (
            planner
            if rank.is_same(planner.rank)
            else dataclasses.replace(planner, rank=rank)
        )

    def _adopt(self, planner: Planner) -> None:
        if planner is self._options.planner:
            return
        self._options = dataclasses.replace(self._options, planner=planner)
        if planner.rank.world_size > 1:
            _log.info("this loader is %s", planner.rank)

    def _follow(self, find_rank: RankFinder) -> None:
        """Take the rank from `find_rank`, now and at each beginning of an epoch.

        Raises a ValueError as `_begin_at` does.
        """
        self._find_rank = find_rank
        self._begin_at(self._progress.cursor.begun().step)

    def _begin_at(self, step: int) -> None:
        """Prepare to read from a step, as the rank that this process has now.

        Raises a ValueError if the loader has reached the step as another rank.
        """
        planner = self._current_planner()
        if step and planner is not self._options.planner:
            raise ValueError(
                f"the loader reached step {step} of epoch {self.epoch} as {self._rank}, "
                f"but this process is {planner.rank} now: make the process group first, "
                "then call loader.load_state_dict(state) or loader.seek(step)"
            )
        self._adopt(planner)

    @property
    def _phase(self) -> int:
        return self._progress.cursor.phase

    def _plan(self, epoch: int | None = None) -> EpochPlan:
        at = self._progress.cursor
        planner = self._planner_at(at.step)
        if epoch is None or epoch == at.epoch:
            return planner.plan(at.seed, at.epoch, at.phase)
        return planner.plan(at.seed, epoch)

    def seek(self, step: int) -> None:
        """Move to a step of the current epoch, with which the next ``for`` starts.

        Ends a running iteration. ``seek(len(loader))`` moves to the next epoch. After
        `load_state_dict` with another batch size, steps are those of the rest of the
        epoch; step 0 restarts the whole epoch.

        Raises
        ------
        IndexError
            If the epoch has no such step.
        """
        step = non_negative_int("step", step)
        planner, at = self._current_planner(), self._progress.cursor
        # The first step of a cut epoch may be too short for all ranks.
        phase = at.phase if step and planner is self._options.planner else 0
        n_steps = planner.plan(at.seed, at.epoch, phase).n_steps
        if step > n_steps:
            raise IndexError(
                f"step {step} is out of range: the epoch has {n_steps:,} steps"
            )
        self._move(at.seed, at.epoch, step, phase, planner)

    def set_epoch(self, epoch: int) -> None:
        """Start `epoch` with the next ``for``.

        A loop ``for epoch in ...: loader.set_epoch(epoch)`` works but does not need the
        call: the loader counts epochs itself. The call keeps a step that
        `load_state_dict` or `seek` has set in this epoch, and an iterator that has
        delivered no batch yet, which then delivers those of `epoch`.
        """
        epoch = non_negative_int("epoch", epoch)
        at, iterator = self._progress.cursor, self._running()
        if epoch == at.epoch and not at.is_begun:
            return
        if iterator is not None and iterator.is_unopened:
            self._progress.move(at.seed, epoch, 0, 0)
        else:
            self._move(at.seed, epoch, 0, 0, self._options.planner)

    def _move(
        self, seed: int, epoch: int, step: int, phase: int, planner: Planner
    ) -> None:
        if step and step == planner.plan(seed, epoch, phase).n_steps:
            epoch, step, phase = epoch + 1, 0, 0
        self._end_epoch()
        self._progress.move(seed, epoch, step, phase)
        self._adopt(planner)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last delivered batch.

        The state has less than 400 bytes of JSON-compatible values and is the same on all
        ranks. It does not depend on batch size, ranks or threads. After an error, it is
        the position before the batch that failed; after an epoch, the start of the next
        one. Builds the index of the dataset if it has none.
        """
        at = self._progress.cursor  # read once: another thread may take a batch
        planner = self._planner_at(at.step)
        plan = planner.plan(at.seed, at.epoch, at.phase)
        epoch, position = at.epoch, plan.begin_of(at.step)
        if at.step and at.step == plan.n_steps:
            epoch, position = epoch + 1, 0
        fingerprint = self._options.view.fingerprint()
        order = planner.state()
        return State(fingerprint, order, at.seed, epoch, position).to_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Resume at a saved position, where the next ``for`` continues.

        The state may come from a loader with another batch size, world size or number of
        threads. The rest of the epoch is delivered exactly once, in batches of this
        loader's size. The seed of the state replaces this loader's. Ends a running
        iteration.

        Parameters
        ----------
        state : mapping
            The result of `state_dict`, also after a round trip through JSON.
        strict : bool, default True
            Raise an error if the state was saved for a different dataset: other records,
            another order of files or another selection. Copies of the files are equal.

        Raises
        ------
        ValueError
            If `state` is invalid, was saved with another order or, with `strict`, for a
            different dataset; or if the ranks cannot share the rest of the epoch.
        """
        loaded, planner = State.from_dict(state), self._current_planner()
        fingerprint = self._options.view.fingerprint() if strict else None
        loaded.check(fingerprint, planner.state())
        phase = loaded.position % planner.global_batch_size
        first = planner.plan(loaded.seed, loaded.epoch)
        if loaded.position > first.n_positions:
            raise ValueError(
                f"position of the state must be at most {first.n_positions:,}, the "
                f"positions of an epoch, got {loaded.position:,}"
            )
        plan = planner.plan(loaded.seed, loaded.epoch, phase)
        step = plan.step_at(loaded.position)
        if plan.begin_of(step) != loaded.position:
            raise ValueError(
                f"position {loaded.position:,} of the state must be the start of a batch "
                "of batches(seed, epoch), which returns other batches than when the state "
                "was saved"
            )
        self._move(loaded.seed, loaded.epoch, step, phase, planner)

    def records_at(self, step: int, epoch: int | None = None) -> list[RecordLocation]:
        """Return the records of this rank in a step.

        Returns
        -------
        list of RecordLocation
            Named tuples ``(path, record, offset)``, one for each row except padding: the
            file, the number of the record in it, and the byte where its frame begins.

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

    def _plan_with(self, step: int, epoch: int | None) -> EpochPlan:
        """Return the plan of an epoch; raise an IndexError unless it has the step."""
        step = non_negative_int("step", step)
        epoch = self.epoch if epoch is None else non_negative_int("epoch", epoch)
        plan = self._plan(epoch)
        if step >= plan.n_steps:
            raise IndexError(
                f"step {step} is out of range: the epoch has {plan.n_steps:,} steps"
            )
        return plan

    def _end_epoch(self) -> None:
        if (iterator := self._running()) is not None:
            iterator.close()

    def _running(self) -> BatchIterator | None:
        ref = self._progress.cursor.iteration.iterator
        return None if ref is None else ref()

    @property
    def _rank(self) -> Rank:
        return self._options.planner.rank
