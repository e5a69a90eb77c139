"""Ranks: find the rank and world size of this process."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from fastrec.options import non_negative_int, positive_int

__all__ = ["Rank", "find_rank"]

# Variables of launchers: (rank, world size, launcher). SLURM_NTASKS is also set outside
# of srun, so it does not imply that there are several processes.
_VARIABLES = [
    ("RANK", "WORLD_SIZE", "torchrun"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI"),
]


@dataclass(frozen=True)
class Rank:
    """The rank of a process, and the number of processes that share an epoch."""

    rank: int
    world_size: int
    source: str  # how both were found

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size} ({self.source})"


def find_rank(rank: int | None, world_size: int | None) -> Rank:
    """Return the given rank, or that of torch.distributed or a launcher."""
    if rank is not None or world_size is not None:
        if rank is None or world_size is None:
            msg = "rank and world_size must be passed together"
            raise TypeError(msg)
        return _checked(rank, world_size, "given")
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if (
        distributed is not None
        and distributed.is_available()
        and distributed.is_initialized()
    ):
        return _checked(
            distributed.get_rank(), distributed.get_world_size(), "torch.distributed"
        )
    for rank_name, size_name, source in _VARIABLES:
        texts = os.environ.get(rank_name, ""), os.environ.get(size_name, "")
        if all(text.isdecimal() for text in texts):
            return _checked(int(texts[0]), int(texts[1]), source)
    return Rank(0, 1, "alone")


def _checked(rank: int, world_size: int, source: str) -> Rank:
    world_size = positive_int("world_size", world_size)
    rank = non_negative_int("rank", rank)
    if rank >= world_size:
        msg = f"rank must be less than world_size={world_size}, got {rank} ({source})"
        raise ValueError(msg)
    return Rank(rank, world_size, source)
