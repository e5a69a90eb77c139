"""File sharding: assign whole compressed files to ranks.

A rank decompresses only its own files. Files are assigned by their number of records,
largest first, each to the rank with the fewest records, so all processes compute the same
assignment. The ranks have nearly the same number of records and make the same number of
steps:

* by default, a rank divides its records evenly among the steps, so batches differ by one
  row, and all records are delivered;
* with ``drop_last``, all batches are full, and the surplus of larger ranks is skipped;
* with ``pad_last``, the last batches of smaller ranks are padded.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastrec import _core
from fastrec.loader.epoch_plan import EpochPlan, padded
from fastrec.loader.order import Shuffle, Window
from fastrec.sources.selection import Numbers

# The maximum of records of the largest rank / mean over ranks. It is smaller with
# drop_last, which skips the surplus.
_MAX_IMBALANCE = 2.0
_MAX_IMBALANCE_TO_DROP = 1.1


@dataclass(frozen=True)
class FileSharding:
    """The files of each rank, in order, and the number of records of each rank."""

    files: list[list[int]]
    n_records: list[int]


def assign_files(
    n_records_by_file: Sequence[int], world_size: int, *, drop_last: bool
) -> FileSharding | None:
    """Assign files to ranks, or return None if the ranks would be too imbalanced."""
    files: list[list[int]] = [[] for _ in range(world_size)]
    ranks = [
        (0, rank) for rank in range(world_size)
    ]  # a heap: the fewest records first
    for file in np.argsort(-np.array(n_records_by_file), kind="stable").tolist():
        n, rank = ranks[0]
        files[rank].append(file)
        heapq.heapreplace(ranks, (n + n_records_by_file[file], rank))
    n_records = [n for n, _ in sorted(ranks, key=operator.itemgetter(1))]
    n_all = sum(n_records)
    limit = _MAX_IMBALANCE_TO_DROP if drop_last else _MAX_IMBALANCE
    if not min(n_records) or max(n_records) * world_size > limit * n_all:
        return None
    return FileSharding([sorted(of_rank) for of_rank in files], n_records)


@dataclass(frozen=True)
class ShardedPlan(EpochPlan):
    """The steps of an epoch in which this rank reads its own files."""

    global_batch_size: int  # positions per step, whatever its number of rows
    first_row: int  # records of lower ranks; makes the keys of rows unique

    @property
    def n_positions(self) -> int:
        """The number of positions in the epoch, over all ranks."""
        return self.n_steps * self.global_batch_size

    def begin_of(self, step: int) -> int:
        """Return the first position of a step, over all ranks."""
        return step * self.global_batch_size

    def step_at(self, position: int) -> int:
        """Return the step that begins at a position, or the number of steps."""
        return position // self.global_batch_size

    def rows(self, step: int) -> tuple[Numbers, Numbers]:
        """Return unique keys and records of this rank's rows; -1 for padding."""
        positions = self.grid.positions(step)
        positions = positions[positions < len(self.order)]
        return padded(
            positions + self.first_row,
            self.order.records(positions),
            self.grid.n_rows(step, len(positions)),
        )

    @classmethod
    def of(
        cls,
        sharding: FileSharding,
        n_records_by_file: Sequence[int],
        shuffle: Shuffle,
        *,
        seed: int,
        epoch: int,
        rank: int,
        batch_sizes: Sequence[int],
        drop_last: bool,
        pad_last: bool,
    ) -> ShardedPlan:
        """Return the plan of a rank; `batch_sizes` are those of all ranks."""
        size, n_own = batch_sizes[rank], sharding.n_records[rank]
        pairs = list(zip(sharding.n_records, batch_sizes, strict=True))
        bounds = None
        if drop_last:
            n_steps = min(n // b for n, b in pairs)
            bounds = np.arange(n_steps + 1, dtype=np.int64) * size
        else:
            n_steps = max(-(-n // b) for n, b in pairs)
            if not pad_last:
                if min(sharding.n_records) < n_steps:
                    raise ValueError(
                        f"a rank has only {min(sharding.n_records):,} records for "
                        f"{n_steps:,} steps, so some steps would have no row; pass "
                        "drop_last=True or pad_last=True"
                    )
                bounds = np.array(
                    [n_own * i // n_steps for i in range(n_steps + 1)], np.int64
                )
        counts = np.array(n_records_by_file, np.int64)
        files = own_files(sharding, shuffle, seed=seed, epoch=epoch, rank=rank)
        n_slots = shuffle.n if isinstance(shuffle, Window) else 1
        return cls(
            _core.Order.window(
                (np.cumsum(counts) - counts)[files],
                counts[files],
                n_slots,
                seed,
                epoch,
                rank,
            ),
            _core.StepGrid(
                n_positions=n_steps * size,
                batch_size=size,
                drop_last=drop_last,
                pad_last=pad_last,
                bounds=bounds,
            ),
            sum(batch_sizes),
            sum(sharding.n_records[:rank]),
        )


def own_files(
    sharding: FileSharding, shuffle: Shuffle, *, seed: int, epoch: int, rank: int
) -> list[int]:
    """Return the files of a rank in the order of an epoch."""
    files = sharding.files[rank]
    if not isinstance(shuffle, Window):
        return files
    return [files[i] for i in shuffle.file_order(len(files), seed, epoch)]
