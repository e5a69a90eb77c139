"""Planner: the order of epochs, their steps, and the share of each rank."""

from __future__ import annotations

from typing import Any

from fastrec import _core
from fastrec.caller_warnings import warn_caller
from fastrec.loader.epoch_plan import EpochPlan
from fastrec.loader.file_sharding import FileSharding, ShardedPlan, assign_files
from fastrec.loader.listed_batches import Batches, ListedBatches
from fastrec.loader.order import (
    Blocks,
    as_shuffle,
    order_of,
    order_state,
    shuffle_state,
)
from fastrec.loader.ranks import Rank
from fastrec.options import positive_int, true_or_false
from fastrec.sources.view import View


class Planner:
    """Plans epochs: their order, their steps, and the share of this rank.

    Attributes
    ----------
    shuffle : bool, Blocks or Window
    drop_last, pad_last : bool
    rank : Rank
    global_batch_size : int
        Rows in a full batch over all ranks; 1 with ``batches=``.
    sharding : FileSharding or None
        The files of each rank, if ranks read whole compressed files.
    """

    def __init__(
        self,
        view: View,
        *,
        batch_size: int | None,
        global_batch_size: int | None,
        batches: Batches | None,
        shuffle: object,
        drop_last: bool,
        pad_last: bool,
        rank: Rank,
    ) -> None:
        self._view = view
        self._arguments: dict[str, Any] = {
            "batch_size": batch_size,
            "global_batch_size": global_batch_size,
            "batches": batches,
            "shuffle": shuffle,
            "drop_last": drop_last,
            "pad_last": pad_last,
        }
        self.shuffle = as_shuffle(shuffle)
        self.drop_last = true_or_false("drop_last", drop_last)
        self.pad_last = true_or_false("pad_last", pad_last)
        self.rank = rank
        self._batches = batches
        sizes = ("batch_size", "global_batch_size", "batches")
        names = [name for name in sizes if self._arguments[name] is not None]
        if len(names) != 1:
            listed = " and ".join(names) if names else "none"
            raise TypeError(
                "loader() requires exactly one of batch_size, global_batch_size or "
                f"batches; got {listed}"
            )
        if self.drop_last and self.pad_last:
            raise ValueError("drop_last and pad_last cannot both be True")
        self.global_batch_size = 1
        if batches is not None:
            self._check_listed(batches)
        elif batch_size is not None:
            size = positive_int("batch_size", batch_size, 2**31)
            self.global_batch_size = size * rank.world_size
        else:
            size = positive_int("global_batch_size", global_batch_size, 2**31)
            if size < rank.world_size:
                raise ValueError(
                    f"global_batch_size must be at least the world size "
                    f"({rank.world_size}), got {size}"
                )
            self.global_batch_size = size
        if batches is not None or self.shuffle is True or isinstance(shuffle, Blocks):
            option = "batches=" if batches is not None else f"shuffle={self.shuffle}"
            view.files.check_random_access(option)
        self._plans: dict[tuple[int, int, int, int], EpochPlan] = {}
        self.sharding: FileSharding | None = None
        if rank.world_size > 1 and view.files.is_streamed and view.is_walkable:
            self.sharding = assign_files(
                view.files.n_records_by_file(),
                rank.world_size,
                drop_last=self.drop_last,
            )
            if self.sharding is None:
                _warn_of_shared_streams(rank.world_size)

    def with_rank(self, rank: Rank) -> Planner:
        """Return the planner of another rank."""
        return Planner(self._view, **self._arguments, rank=rank)

    def _check_listed(self, batches: object) -> None:
        if not callable(batches):
            raise TypeError(
                "batches must be a function of seed and epoch that returns the epoch's "
                f"batches, got {batches!r}"
            )
        if self.shuffle or self.drop_last:
            raise ValueError("batches= cannot be combined with shuffle or drop_last")
        if self._view.is_mixed:
            raise TypeError(
                "cannot use batches= with a mix; pass it to a plain dataset"
            )

    @property
    def batch_size(self) -> int | None:
        """Rows of this rank in a full batch; None with ``batches=``."""
        if self._batches is not None:
            return None
        return self._batch_size_of(self.rank.rank)

    def _batch_size_of(self, rank: int) -> int:
        n, world_size = self.global_batch_size, self.rank.world_size
        if self.pad_last:
            return -(-n // world_size)
        return (rank + 1) * n // world_size - rank * n // world_size

    @property
    def is_whole_epoch(self) -> bool:
        """Whether this rank reads all records, in batches of one size."""
        return self._batches is None and self.rank.world_size == 1

    @property
    def is_file_order(self) -> bool:
        """Whether this rank reads all records in the order of the files."""
        return self.is_whole_epoch and not self.shuffle

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plans": {}}

    def _renew_after_fork(self) -> None:
        # A thread of the parent may have held their locks during the fork.
        self._plans.clear()

    def walk_grid(self) -> _core.StepGrid:
        """Return the grid of steps for reading without an index."""
        return _core.StepGrid(
            n_positions=0,
            batch_size=self.global_batch_size,
            drop_last=self.drop_last,
            pad_last=self.pad_last,
        )

    def state(self) -> dict[str, Any]:
        """Return the parameters of the order, which a loaded state must share."""
        order: dict[str, Any] = (
            {"batches": True}
            if self._batches is not None
            else {"shuffle": shuffle_state(self.shuffle)}
        )
        if self.sharding is not None:
            order["file_sharding"] = [self.rank.world_size, self.global_batch_size]
        return order | order_state(self._view, self.global_batch_size)

    def phase(self, position: int) -> int:
        """Return the phase of a grid that has a step beginning at `position`."""
        return position % self.global_batch_size

    def plan(self, seed: int, epoch: int, phase: int = 0) -> EpochPlan:
        """Return the plan of an epoch; step 0 has `phase` positions unless it is 0."""
        key = (seed, epoch, phase, self._view.files.version())
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._new_plan(seed, epoch, phase)
            # Keep two: the plan in use, and one for Loader.batch and records_at. Other
            # threads may add and remove plans meanwhile.
            for old in list(self._plans)[:-2]:
                self._plans.pop(old, None)
        return plan

    def _new_plan(self, seed: int, epoch: int, phase: int) -> EpochPlan:
        if self.sharding is not None:
            sizes = [self._batch_size_of(rank) for rank in range(self.rank.world_size)]
            return ShardedPlan.of(
                self.sharding,
                self._view.files.n_records_by_file(),
                self.shuffle,
                seed=seed,
                epoch=epoch,
                rank=self.rank.rank,
                batch_sizes=sizes,
                drop_last=self.drop_last,
                pad_last=self.pad_last,
            )
        if self._batches is not None:
            n_records = len(self._view)
            listed = ListedBatches.of(
                self._batches,
                n_records=n_records,
                seed=seed,
                epoch=epoch,
                world_size=self.rank.world_size,
            )
            if self.rank.world_size > 1:
                smallest = listed.n_smallest()
                self._check_shared(smallest, "a batch of batches(seed, epoch)")
            return listed.plan(self.rank, pad_last=self.pad_last)
        order = order_of(self._view, self.shuffle, seed, epoch, self.global_batch_size)
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
        return EpochPlan(order, grid)

    def _check_shared(self, n_rows: int, what: str) -> None:
        """Refuse a batch with fewer rows than ranks: an empty batch has a NaN loss."""
        if 0 < n_rows < self.rank.world_size and not self.pad_last:
            hint = (
                "pad_last=True" if self._batches else "drop_last=True or pad_last=True"
            )
            raise ValueError(
                f"{what} has {n_rows} rows for {self.rank.world_size} ranks, so some "
                f"ranks would get none; pass {hint}"
            )


def _warn_of_shared_streams(world_size: int) -> None:
    warn_caller(
        f"compressed files cannot be divided evenly among {world_size} ranks, so each "
        "rank decompresses all files; use fastrec.open(..., cache_dir=...) to expand "
        "them once"
    )
