"""ListedBatches: the batches of an epoch that the caller lists, and their plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.loader.epoch_plan import EpochPlan
from fastrec.loader.ranks import Rank
from fastrec.sources.selection import Numbers

Batches: TypeAlias = "Callable[[int, int], Iterable[npt.ArrayLike]]"


@dataclass(frozen=True)
class BatchesOf:
    """``batches(seed, epoch)`` for a dataset of a known number of records.

    Ranks divide a batch by records, or by groups of records if ``groups(batch)`` returns
    the bounds of the groups: the first record of each, and the number of records.
    """

    n_records: int
    batches: Batches = field(repr=False)
    groups: Callable[[Numbers], Numbers] | None = field(default=None, repr=False)

    def __call__(self, seed: int, epoch: int) -> Iterable[npt.ArrayLike]:
        """Return the batches of an epoch."""
        return self.batches(seed, epoch)


@dataclass(frozen=True)
class ListedBatches:
    """The batches of one epoch that ``batches(seed, epoch)`` returned."""

    records: npt.NDArray[np.int64]  # of all batches
    bounds: npt.NDArray[np.int64]  # the first row of each batch, and the number of rows
    group_bounds: list[Numbers] | None = None  # of each batch, if ranks divide groups

    @classmethod
    def of(
        cls,
        batches: Batches,
        *,
        n_records: int,
        seed: int,
        epoch: int,
        world_size: int,
    ) -> ListedBatches:
        """Call `batches`, and check that it returns record numbers."""
        if isinstance(batches, BatchesOf) and batches.n_records != n_records:
            raise ValueError(
                f"batches= is for {batches.n_records:,} records, but the dataset has "
                f"{n_records:,}"
            )
        listed: object = batches(seed, epoch)
        if not isinstance(listed, Iterable):
            raise TypeError(
                "batches(seed, epoch) must return a list of arrays of record numbers, "
                f"got {type(listed).__name__}"
            )
        arrays = [_checked(i, batch, n_records) for i, batch in enumerate(listed)]
        empty = np.empty(0, np.int64)
        bounds = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        groups = None
        if world_size > 1 and isinstance(batches, BatchesOf) and batches.groups:
            groups = [batches.groups(array) for array in arrays]
        return cls(np.concatenate([empty, *arrays]), bounds, groups)

    def n_smallest(self) -> int:
        """Return the number of rows, or of groups, in the smallest batch."""
        if self.group_bounds is None:
            return int(np.diff(self.bounds).min(initial=self.bounds[-1]))
        return min((len(bounds) - 1 for bounds in self.group_bounds), default=0)

    def plan(self, rank: Rank, *, pad_last: bool) -> EpochPlan:
        """Return the plan of the epoch on one rank."""
        if self.group_bounds is not None:
            return self._grouped_plan(rank, self.group_bounds)
        grid = _core.StepGrid(
            n_positions=len(self.records),
            batch_size=1,
            pad_last=pad_last,
            rank=rank.rank,
            world_size=rank.world_size,
            bounds=self.bounds,
        )
        return EpochPlan(_core.Order.listed(self.records), grid)

    def _grouped_plan(self, rank: Rank, group_bounds: list[Numbers]) -> GroupedPlan:
        shares = []
        for bounds in group_bounds:
            n = len(bounds) - 1
            first, end = rank.rank * n, (rank.rank + 1) * n
            shares.append(bounds[[first // rank.world_size, end // rank.world_size]])
        within = np.array(shares, np.int64).reshape(-1, 2)
        begins, ends = self.bounds[:-1] + within[:, 0], self.bounds[:-1] + within[:, 1]
        own_bounds = np.cumsum([0, *(ends - begins)], dtype=np.int64)
        own = np.arange(own_bounds[-1]) + np.repeat(
            begins - own_bounds[:-1], ends - begins
        )
        grid = _core.StepGrid(n_positions=len(own), batch_size=1, bounds=own_bounds)
        order = _core.Order.listed(self.records[own])
        return GroupedPlan(order, grid, self.bounds, begins)


@dataclass(frozen=True)
class GroupedPlan(EpochPlan):
    """The steps of an epoch of listed batches, of which this rank reads whole groups.

    `order` and `grid` count only the records of this rank.
    """

    bounds: Numbers  # the positions of the steps, over all ranks
    begins: Numbers  # the first position of this rank in each step

    @property
    def n_positions(self) -> int:
        """The number of positions in the epoch, over all ranks."""
        return int(self.bounds[-1])

    def begin_of(self, step: int) -> int:
        """Return the first position of a step, or the end of the last one."""
        return int(self.bounds[step])

    def step_at(self, position: int) -> int:
        """Return the step that begins at a position, or the number of steps."""
        return int(np.searchsorted(self.bounds, position))

    def rows(self, step: int) -> tuple[Numbers, Numbers]:
        """Return positions and records of this rank's rows."""
        own = self.grid.positions(step)
        positions = self.begins[step] + np.arange(len(own), dtype=np.int64)
        return positions, self.order.records(own)


def _checked(i: int, batch: npt.ArrayLike, n_records: int) -> npt.NDArray[np.int64]:
    numbers = np.asarray(batch)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise TypeError(
            f"batch {i} of batches(seed, epoch) must be a 1-D array of record numbers, "
            f"got {numbers.ndim}-D {numbers.dtype}"
        )
    if not numbers.size:
        raise ValueError(
            f"batch {i} of batches(seed, epoch) must have at least one row, got none"
        )
    lowest, highest = int(numbers.min()), int(numbers.max())
    if lowest < 0 or highest >= n_records:
        number = lowest if lowest < 0 else highest
        raise IndexError(
            f"record {number} in batch {i} of batches(seed, epoch) is out of range: the "
            f"dataset has {n_records:,} records"
        )
    return numbers.astype(np.int64)
