"""Plans: the records that one rank reads in each step of an epoch.

Ranks divide the rows of each step. Compressed files cannot be divided, so each rank reads
whole files instead. Files are assigned in order of record count, largest first, each to
the rank with the fewest records. All processes compute the same assignment, and all ranks
make the same number of steps:

* by default, a rank divides its records evenly among the steps, so its batch sizes differ
  by at most one row, and all records are delivered;
* with ``drop_last``, all batches are full, and ranks with more records drop the surplus;
* with ``pad_last``, the last batches of ranks with fewer records are padded.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.caller_warnings import warn_caller
from fastrec.loader.order import Blocks, Shuffle, Window, as_shuffle, order_of
from fastrec.loader.ranks import Rank
from fastrec.options import positive_int, true_or_false
from fastrec.sources.selection import Numbers
from fastrec.sources.source import Source

Batches: TypeAlias = "Callable[[int, int], Iterable[npt.ArrayLike]]"

# The maximum ratio of the largest rank's records to the mean over ranks. The maximum is
# lower with drop_last, which drops the surplus.
_MAX_IMBALANCE = 2.0
_MAX_IMBALANCE_TO_DROP = 1.1


@dataclass(frozen=True)
class BatchesOf:
    """A function ``batches(seed, epoch)`` for a dataset of `n_records` records.

    Ranks divide a batch by records, or by groups of records if `groups` is set.
    ``groups(batch)`` returns the index of each group's first record and ``len(batch)``.
    """

    n_records: int
    batches: Batches = field(repr=False)
    groups: Callable[[Numbers], Numbers] | None = field(default=None, repr=False)

    def __call__(self, seed: int, epoch: int) -> Iterable[npt.ArrayLike]:
        """Return the batches of an epoch."""
        return self.batches(seed, epoch)


@dataclass(frozen=True)
class EpochPlan:
    """The steps of one epoch, as read by one rank."""

    order: _core.Order  # position in the epoch -> record
    grid: _core.StepGrid  # step -> positions of this rank
    n_positions: int  # over all ranks
    # If `order` has only this rank's records: the steps over all ranks, and for each step
    # the position over all ranks minus the position in `order`.
    whole: _core.StepGrid | None = None
    shifts: Numbers | None = None

    @property
    def n_steps(self) -> int:
        """The number of steps in the epoch."""
        return self.grid.n_steps

    def step_at(self, position: int) -> int:
        """Return the step that begins at a position; `n_steps` for the end."""
        return (self.whole or self.grid).step_at(position)

    def begin_of(self, step: int) -> int:
        """Return the first position of `step`; the end position if it is `n_steps`."""
        grid = self.whole or self.grid
        if step < self.n_steps:
            return grid.range(step)[0]
        return sum(grid.range(step - 1)) if step else 0

    def rows(self, step: int) -> tuple[Numbers, Numbers]:
        """Return positions and records of this rank's rows of a step; -1 is padding."""
        positions = self.grid.positions(step)
        if self.shifts is not None:
            positions = positions[positions < len(self.order)]
        records = self.order.records(positions)
        n_rows = self.grid.n_rows(step, len(positions))
        if self.shifts is not None:
            positions += self.shifts[step]
        return padded(positions, records, n_rows)


def padded(
    positions: Numbers, records: Numbers, n_rows: int
) -> tuple[Numbers, Numbers]:
    """Return `positions` and `records` padded with -1 to `n_rows` rows."""
    n_missing = n_rows - len(positions)
    if not n_missing:
        return positions, records
    padding = np.full(n_missing, -1, np.int64)
    return np.append(positions, padding), np.append(records, padding)


@dataclass(eq=False)
class Planner:
    """Plans each epoch: the order of records, the steps, and the rows of one rank."""

    source: Source
    batch_size_per_rank: int | None
    given_global_batch_size: int | None
    batches: Batches | None
    shuffle: Shuffle
    drop_last: bool
    pad_last: bool
    rank: Rank
    # Rows in a full batch over all ranks; 1 with ``batches=``.
    global_batch_size: int = field(init=False, default=1)
    # The files of each rank, if ranks read whole compressed files.
    files_of_ranks: list[list[int]] | None = field(init=False, default=None)
    _plans: dict[tuple[int, ...], EpochPlan] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.shuffle = as_shuffle(self.shuffle)
        self.drop_last = true_or_false("drop_last", self.drop_last)
        self.pad_last = true_or_false("pad_last", self.pad_last)
        sizes = {
            "batch_size": self.batch_size_per_rank,
            "global_batch_size": self.given_global_batch_size,
            "batches": self.batches,
        }
        names = [name for name, value in sizes.items() if value is not None]
        if len(names) != 1:
            raise TypeError(
                "loader() requires exactly one of batch_size, global_batch_size or "
                f"batches; got {' and '.join(names) or 'none'}"
            )
        if self.drop_last and self.pad_last:
            raise ValueError("drop_last and pad_last cannot both be True")
        files, world_size = self.source.files, self.rank.world_size
        if self.batches is not None:
            self._check_batches()
        else:
            size = positive_int(names[0], sizes[names[0]], 2**31)
            if self.batch_size_per_rank is not None:
                size *= world_size
            if size < world_size:
                raise ValueError(
                    f"global_batch_size must be at least the world size ({world_size}), "
                    f"got {size}"
                )
            self.global_batch_size = size
        if self.is_listed or self.shuffle is True or isinstance(self.shuffle, Blocks):
            option = "batches=" if self.is_listed else f"shuffle={self.shuffle}"
            files.check_random_access(option)
        if world_size > 1 and files.is_streamed and self.source.is_walkable:
            limit = _MAX_IMBALANCE_TO_DROP if self.drop_last else _MAX_IMBALANCE
            counts = files.n_records_by_file()
            self.files_of_ranks = assign_files(counts, world_size, limit)
            if self.files_of_ranks is None:
                warn_caller(
                    f"compressed files cannot be divided evenly among {world_size} ranks, "
                    "so each rank decompresses all files; use fastrec.open(..., "
                    "cache_dir=...) to decompress them once"
                )

    def _check_batches(self) -> None:
        if not callable(self.batches):
            raise TypeError(
                "batches must be a function of seed and epoch that returns the epoch's "
                f"batches, got {self.batches!r}"
            )
        if self.shuffle or self.drop_last:
            raise ValueError("batches= cannot be combined with shuffle or drop_last")
        if self.source.is_mixed:
            raise TypeError(
                "cannot use batches= with a mix; use a dataset that is not a mix"
            )

    @property
    def is_listed(self) -> bool:
        """Whether a function ``batches=`` determines the records of each step."""
        return self.batches is not None

    @property
    def batch_size(self) -> int | None:
        """The number of this rank's rows in a full batch; None with ``batches=``."""
        return None if self.is_listed else self._batch_size_of(self.rank.rank)

    def _batch_size_of(self, rank: int) -> int:
        n, world_size = self.global_batch_size, self.rank.world_size
        if self.pad_last:
            return -(-n // world_size)
        return (rank + 1) * n // world_size - rank * n // world_size

    @property
    def is_whole_epoch(self) -> bool:
        """Whether this rank reads all records, in batches of equal size."""
        return not self.is_listed and self.rank.world_size == 1

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plans": {}}

    def renew_after_fork(self) -> None:
        """Drop all plans: a thread of the parent may have held the locks of a plan."""
        self._plans.clear()

    def file_order(self, seed: int, epoch: int) -> list[int]:
        """Return the numbers of the files that this rank reads in an epoch, in order."""
        files: Sequence[int] = range(len(self.source.files.files))
        if self.files_of_ranks is not None:
            files = self.files_of_ranks[self.rank.rank]
        if not isinstance(self.shuffle, Window):
            return list(files)
        return [files[i] for i in self.shuffle.file_order(len(files), seed, epoch)]

    def walk_grid(self) -> _core.StepGrid:
        """Return the step grid for reading files in order without an index."""
        return _core.StepGrid(
            n_positions=0,
            batch_size=self.global_batch_size,
            drop_last=self.drop_last,
            pad_last=self.pad_last,
        )

    def state(self) -> dict[str, Any]:
        """Return the order's parameters; a state to load must have the same ones."""
        shuffle, mix = self.shuffle, self.source.mix
        order: dict[str, Any] = {"shuffle": shuffle}
        if self.batches is not None:
            order = {"batches": True}
        elif isinstance(shuffle, Blocks):
            order["shuffle"] = asdict(shuffle)
        elif isinstance(shuffle, Window):
            order["shuffle"] = {
                "window": shuffle.n,
                "shuffle_files": shuffle.shuffle_files,
            }
        if self.files_of_ranks is not None:
            order["file_sharding"] = [self.rank.world_size, self.global_batch_size]
        if mix is not None:
            import hashlib  # slow to import

            weights = [(name, weight) for name, (_, weight) in mix.components.items()]
            parameters = repr((weights, mix.seed, len(self.source))).encode()
            order["mix"] = hashlib.blake2b(parameters, digest_size=8).hexdigest()
            if mix.per_batch:
                order["run"] = self.global_batch_size
        return order

    def plan(self, seed: int, epoch: int, phase: int = 0) -> EpochPlan:
        """Return the plan of an epoch; a nonzero `phase` is the size of step 0."""
        key = (seed, epoch, phase, self.source.files.version())
        plan = self._plans.get(key)
        if plan is None:
            if self.files_of_ranks is not None:
                plan = self._plan_of_files(self.files_of_ranks, seed, epoch)
            elif self.batches is not None:
                plan = self._plan_of_batches(self.batches, seed, epoch)
            else:
                plan = self._plan_of_records(seed, epoch, phase)
            self._plans[key] = plan
            # Keep two plans: the one in use, and one for Loader.batch and records_at.
            # Other threads may add and remove plans at the same time.
            for old in list(self._plans)[:-2]:
                self._plans.pop(old, None)
        return plan

    def settled(
        self, seed: int, epoch: int, step: int, phase: int
    ) -> tuple[int, int, int, int]:
        """Return the arguments, or the start of the next epoch if `step` is the end."""
        if step and step == self.plan(seed, epoch, phase).n_steps:
            epoch, step, phase = epoch + 1, 0, 0
        return seed, epoch, step, phase

    def _plan_of_records(self, seed: int, epoch: int, phase: int) -> EpochPlan:
        order = order_of(self.source, self.shuffle, seed, epoch, self.global_batch_size)
        if not self.drop_last:
            n_last = (len(order) - phase) % self.global_batch_size
            self._check_shared(n_last, "the last batch")
        grid = _core.StepGrid(
            n_positions=len(order),
            batch_size=self.global_batch_size,
            phase=phase,
            drop_last=self.drop_last,
            pad_last=self.pad_last,
            rank=self.rank.rank,
            world_size=self.rank.world_size,
            n_lanes=order.n_lanes,
        )
        return EpochPlan(order, grid, len(order))

    def _check_shared(self, n_rows: int, what: str) -> None:
        """Raise a ValueError if a rank would get no rows, so its loss would be NaN."""
        if 0 < n_rows < self.rank.world_size and not self.pad_last:
            hint = "drop_last=True or " * (not self.is_listed) + "pad_last=True"
            raise ValueError(
                f"{what} has {n_rows} rows for {self.rank.world_size} ranks, so some "
                f"ranks would get none; pass {hint}"
            )

    def _plan_of_files(
        self, files_of_ranks: list[list[int]], seed: int, epoch: int
    ) -> EpochPlan:
        """Return the plan of an epoch in which each rank reads whole files."""
        counts = np.array(self.source.files.n_records_by_file(), np.int64)
        rank = self.rank.rank
        sizes = [self._batch_size_of(i) for i in range(self.rank.world_size)]
        n_records = [int(counts[files].sum()) for files in files_of_ranks]
        size, bounds = sizes[rank], None
        if self.drop_last:
            n_steps = min(n // b for n, b in zip(n_records, sizes, strict=True))
            bounds = np.arange(n_steps + 1, dtype=np.int64) * size
        else:
            n_steps = max(-(-n // b) for n, b in zip(n_records, sizes, strict=True))
        if not (self.drop_last or self.pad_last):
            if min(n_records) < n_steps:
                raise ValueError(
                    f"a rank has only {min(n_records):,} records for {n_steps:,} steps, so "
                    "some steps would have no rows; pass drop_last=True or pad_last=True"
                )
            bounds = np.array(
                [n_records[rank] * i // n_steps for i in range(n_steps + 1)], np.int64
            )
        files = self.file_order(seed, epoch)
        n_slots = self.shuffle.n if isinstance(self.shuffle, Window) else 1
        begins = np.cumsum(counts) - counts
        n_positions = n_steps * self.global_batch_size
        own = _core.StepGrid(
            n_positions=n_steps * size,
            batch_size=size,
            drop_last=self.drop_last,
            pad_last=self.pad_last,
            bounds=bounds,
        )
        return EpochPlan(
            _core.Order.window(
                begins[files], counts[files], n_slots, seed, epoch, rank
            ),
            own,
            n_positions,
            _core.StepGrid(n_positions=n_positions, batch_size=self.global_batch_size),
            np.full(n_steps, sum(n_records[:rank])),
        )

    def _plan_of_batches(self, batches: Batches, seed: int, epoch: int) -> EpochPlan:
        """Return a plan whose steps are the batches from ``batches(seed, epoch)``."""
        rank, world_size = self.rank.rank, self.rank.world_size
        n_records = len(self.source)
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
        records = np.concatenate([np.empty(0, np.int64), *arrays])
        bounds = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        groups = batches.groups if isinstance(batches, BatchesOf) else None
        if world_size == 1 or groups is None:
            if world_size > 1 and arrays:
                n = min(map(len, arrays))
                self._check_shared(n, "a batch of batches(seed, epoch)")
            grid = _core.StepGrid(
                n_positions=len(records),
                batch_size=1,
                pad_last=self.pad_last,
                rank=rank,
                world_size=world_size,
                bounds=bounds,
            )
            return EpochPlan(_core.Order.listed(records), grid, len(records))
        shares = []
        for array in arrays:
            of_groups = groups(array)
            n = len(of_groups) - 1
            self._check_shared(n, "a batch of batches(seed, epoch)")
            ends = [rank * n // world_size, (rank + 1) * n // world_size]
            shares.append(of_groups[ends])
        within = np.array(shares, np.int64).reshape(-1, 2)
        own = np.cumsum([0, *(within[:, 1] - within[:, 0])], dtype=np.int64)
        shifts = bounds[:-1] + within[:, 0] - own[:-1]
        numbers = np.arange(own[-1]) + np.repeat(shifts, np.diff(own))
        return EpochPlan(
            _core.Order.listed(records[numbers]),
            _core.StepGrid(n_positions=len(numbers), batch_size=1, bounds=own),
            len(records),
            _core.StepGrid(n_positions=len(records), batch_size=1, bounds=bounds),
            shifts,
        )


def assign_files(
    n_records_by_file: Sequence[int], world_size: int, max_imbalance: float
) -> list[list[int]] | None:
    """Return the files of each rank, or None if record counts would differ too much."""
    files: list[list[int]] = [[] for _ in range(world_size)]
    ranks = [
        (0, rank) for rank in range(world_size)
    ]  # a heap: the fewest records first
    for file in np.argsort(-np.array(n_records_by_file), kind="stable").tolist():
        n, rank = ranks[0]
        files[rank].append(file)
        heapq.heapreplace(ranks, (n + n_records_by_file[file], rank))
    least, most = ranks[0][0], max(ranks)[0]
    if not least or most * world_size > max_imbalance * sum(n_records_by_file):
        return None
    return [sorted(of_rank) for of_rank in files]


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
