"""Planning: how the epochs of a loader are ordered, cut into steps and shared."""

from __future__ import annotations

from typing import Any

from fastrec import _core
from fastrec.caller_warnings import warn_caller
from fastrec.loader.file_sharding import FileSharding, ShardedPlan, assign_files
from fastrec.loader.order import (
    Batches,
    Blocks,
    ListedBatches,
    as_shuffle,
    order_of,
    order_state,
    shuffle_state,
)
from fastrec.loader.ranks import Rank
from fastrec.loader.steps import Plan
from fastrec.options import positive_int, true_or_false
from fastrec.sources.view import View

__all__ = ["Planner"]


class Planner:
    """How the epochs of a loader are ordered and cut into steps.

    Attributes
    ----------
    shuffle : bool, Blocks or Window
    drop_last, pad_last : bool
    rank : Rank
    global_batch_size : int
        Rows of a full batch of all ranks together; 1 with ``batches=``.
    sharding : FileSharding or None
        The files of each rank, if ranks read whole streams.
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
        self.shuffle = as_shuffle(shuffle)
        self.drop_last = true_or_false("drop_last", drop_last)
        self.pad_last = true_or_false("pad_last", pad_last)
        self.rank = rank
        self._batches = batches
        given = {
            "batch_size": batch_size,
            "global_batch_size": global_batch_size,
            "batches": batches,
        }
        names = [name for name, value in given.items() if value is not None]
        if len(names) != 1:
            found = " and ".join(names) if names else "none"
            msg = (
                "loader() requires exactly one of batch_size, global_batch_size or "
                f"batches; got {found}"
            )
            raise TypeError(msg)
        if self.drop_last and self.pad_last:
            msg = "the last batch cannot be both left out and filled: drop_last or pad_last"
            raise ValueError(msg)
        self.global_batch_size = 1
        if batches is not None:
            self._check_listed(batches)
        elif batch_size is not None:
            size = positive_int("batch_size", batch_size, 2**31)
            self.global_batch_size = size * rank.world_size
        else:
            size = positive_int("global_batch_size", global_batch_size, 2**31)
            if size < rank.world_size:
                msg = (
                    f"global_batch_size={size} leaves ranks without a row: there are "
                    f"{rank.world_size}"
                )
                raise ValueError(msg)
            self.global_batch_size = size
        if batches is not None or self.shuffle is True or isinstance(shuffle, Blocks):
            what = "batches=" if batches is not None else f"shuffle={self.shuffle}"
            view.files.check_random_access(what)
        self._plans: dict[tuple[int, int, int], Plan] = {}
        self.sharding: FileSharding | None = None
        if rank.world_size > 1 and view.files.is_streamed and view.is_walkable:
            self.sharding = assign_files(
                view.files.n_records_by_file(),
                rank.world_size,
                drop_last=self.drop_last,
            )
            if self.sharding is None:
                _warn_of_shared_streams(rank.world_size)

    def _check_listed(self, batches: object) -> None:
        if not callable(batches):
            msg = (
                "batches must be a function of seed and epoch that returns the epoch's "
                f"batches, not {batches!r}"
            )
            raise TypeError(msg)
        if self.shuffle or self.drop_last:
            msg = "batches= lists the epoch's batches itself, without shuffle and drop_last"
            raise ValueError(msg)
        if self._view.is_mixed:
            msg = "a mix draws its records itself: give batches= to a plain dataset"
            raise TypeError(msg)

    @property
    def batch_size(self) -> int | None:
        """Rows of this rank in a full batch; None where batches are listed."""
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
        """Whether this rank gets all records, in batches of one size."""
        return self._batches is None and self.rank.world_size == 1

    @property
    def is_file_order(self) -> bool:
        """Whether this rank gets all records in the order of the files."""
        return self.is_whole_epoch and not self.shuffle

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plans": {}}

    def _renew_after_fork(self) -> None:
        # A thread of the parent may hold the locks of the plans.
        self._plans.clear()

    def walk_grid(self) -> _core.StepGrid:
        """Return the grid for a walk through files whose records are not counted."""
        return _core.StepGrid(
            n_positions=0,
            batch_size=self.global_batch_size,
            drop_last=self.drop_last,
            pad_last=self.pad_last,
        )

    def state(self) -> dict[str, Any]:
        """Return what must be equal for a position to mean the same record."""
        order: dict[str, Any] = (
            {"batches": True}
            if self._batches is not None
            else {"shuffle": shuffle_state(self.shuffle)}
        )
        if self.sharding is not None:
            order["dealt"] = [self.rank.world_size, self.global_batch_size]
        return order | order_state(self._view, self.global_batch_size)

    def phase(self, position: int) -> int:
        """Return where the grid begins if a step is to begin at `position`."""
        return position % self.global_batch_size

    def plan(self, seed: int, epoch: int, phase: int = 0) -> Plan:
        """Return the steps of an epoch. `phase` positions come before the first full one."""
        key = (seed, epoch, phase)
        if key not in self._plans:
            # The one in use, and one that the caller looks into.
            while len(self._plans) > 1:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = self._made(seed, epoch, phase)
        return self._plans[key]

    def _made(self, seed: int, epoch: int, phase: int) -> Plan:
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
        bounds = None
        if self._batches is not None:
            n_records = len(self._view)
            listed = ListedBatches.of(
                self._batches, n_records=n_records, seed=seed, epoch=epoch
            )
            self._check_shared(listed.smallest, "a batch of batches(seed, epoch)")
            order, bounds = _core.Order.listed(listed.records), listed.bounds
        else:
            order = order_of(
                self._view, self.shuffle, seed, epoch, self.global_batch_size
            )
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
            bounds=bounds,
        )
        return Plan(order, grid)

    def _check_shared(self, n_rows: int, what: str) -> None:
        """Refuse a batch that has no row for some ranks: their loss would be NaN."""
        if 0 < n_rows < self.rank.world_size and not self.pad_last:
            hint = (
                "pad_last=True" if self._batches else "drop_last=True or pad_last=True"
            )
            msg = (
                f"{what} has {n_rows} rows for {self.rank.world_size} ranks, so some "
                f"would get none: give {hint}"
            )
            raise ValueError(msg)


def _warn_of_shared_streams(world_size: int) -> None:
    warn_caller(
        f"compressed files cannot be divided evenly among {world_size} ranks, so each of "
        "them decompresses all and keeps its slice of every batch: "
        "fastrec.open(..., cache_dir=...) expands them once"
    )
