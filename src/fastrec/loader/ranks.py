"""Ranks: find the rank and world size of this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from fastrec.options import non_negative_int, positive_int

_GIVEN = "given"

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
    source: str  # where rank and world size come from

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size} ({self.source})"

    @property
    def is_given(self) -> bool:
        """Whether the caller passed `rank` and `world_size`."""
        return self.source == _GIVEN

    def is_same(self, other: Rank) -> bool:
        """Return whether both ranks read the same part of an epoch."""
        return (self.rank, self.world_size) == (other.rank, other.world_size)


# Returns the current rank of this process, given the rank of the loader.
RankFinder: TypeAlias = "Callable[[Rank], Rank]"


ALONE = Rank(0, 1, "alone")


def first_rank(rank: int | Rank | None, world_size: int | None) -> Rank:
    """Return the rank that was passed as an argument; detect it if it is None."""
    if isinstance(rank, Rank):
        return rank
    if rank is None and world_size is None:
        return current_rank(ALONE)
    if rank is None or world_size is None:
        raise TypeError("rank and world_size must be passed together")
    return _checked(rank, world_size, _GIVEN)


def current_rank(known: Rank) -> Rank:
    """Return the rank of this process in its process group or launcher.

    Returns `known` if the caller passed this rank, or if there is no process group or
    launcher, for example in a worker process that unpickled the loader.
    """
    if known.is_given:
        return known
    torch: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if torch is not None and torch.is_available() and torch.is_initialized():
        return Rank(torch.get_rank(), torch.get_world_size(), "torch.distributed")
    jax: Any = sys.modules.get("jax")
    # Old versions of JAX do not have is_initialized.
    is_initialized = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    if is_initialized is not None and is_initialized():
        return Rank(jax.process_index(), jax.process_count(), "jax.distributed")
    for rank_name, size_name, source in _VARIABLES:
        texts = os.environ.get(rank_name, ""), os.environ.get(size_name, "")
        if all(text.isdecimal() for text in texts):
            return _checked(int(texts[0]), int(texts[1]), source)
    return known


def rank_in_group(
    known: Rank, place: tuple[int, int], group: str, hint: str = ""
) -> Rank:
    """Return the Rank of this process in a group; `place` is (rank, world size).

    Raises a ValueError that ends with `hint` if the caller passed a different rank.
    """
    found = Rank(*place, group)
    if known.is_same(found):
        return known
    if not known.is_given:
        return found
    raise ValueError(
        f"the loader is {known}, but this process is rank {found.rank} of "
        f"{found.world_size} in {group}: leave out rank= and world_size=, or pass "
        f"rank={found.rank}, world_size={found.world_size}{hint}"
    )


def _checked(rank: int, world_size: int, source: str) -> Rank:
    world_size = positive_int("world_size", world_size)
    rank = non_negative_int("rank", rank)
    if rank >= world_size:
        raise ValueError(
            f"rank must be less than world_size={world_size}, got {rank} ({source})"
        )
    return Rank(rank, world_size, source)
