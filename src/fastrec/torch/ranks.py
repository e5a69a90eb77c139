"""Ranks: whether a loader reads the part of its process group's rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed

if TYPE_CHECKING:
    from fastrec.loader import Loader

__all__ = ["check_group"]


def check_group(
    loader: Loader, process_group: torch.distributed.ProcessGroup | None = None
) -> None:
    """Refuse a loader that disagrees with the process group about rank or world size.

    It would have ranks train on the same records, or leave some out. Does nothing where
    torch.distributed is not initialised.

    Parameters
    ----------
    loader : fastrec.Loader
    process_group : torch.distributed.ProcessGroup, optional
        The ranks that divide the data; by default all. With tensor or pipeline
        parallelism these are fewer, because several processes train on the same rows:
        ``mesh["dp"].get_group()`` of a device mesh.

    Raises
    ------
    ValueError
        If they disagree, or this process is not in the group.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    rank = distributed.get_rank(process_group)
    world_size = distributed.get_world_size(process_group)
    whose = "torch.distributed" if process_group is None else "process_group"
    if rank < 0:
        msg = (
            "this process is not in process_group: pass the group of ranks that divide "
            "the data and that this process is in"
        )
        raise ValueError(msg)
    if (loader.rank, loader.world_size) == (rank, world_size):
        return
    msg = (
        f"the loader is {loader._rank}, but this process is rank {rank} of {world_size} "
        f"in {whose}: make the loader after init_process_group(), or pass "
        f"rank={rank}, world_size={world_size} to it"
    )
    if process_group is None:
        msg += (
            ". If several ranks train on the same rows (tensor or pipeline parallelism), "
            "pass process_group="
        )
    raise ValueError(msg)
