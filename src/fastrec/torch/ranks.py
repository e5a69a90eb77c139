"""Ranks: whether a loader reads the part of its process group's rank."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch.distributed
import torch.utils.data

if TYPE_CHECKING:
    from fastrec.loader.loader import Loader

__all__ = ["check_group", "check_not_divided", "rank_options"]


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
    place = _place_in(process_group)
    if place is None or place == (loader.rank, loader.world_size):
        return
    rank, world_size = place
    whose = "torch.distributed" if process_group is None else "process_group"
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
    else:
        msg += (
            "; or pass a Dataset with loader options: it takes both from process_group"
        )
    raise ValueError(msg)


def rank_options(
    process_group: torch.distributed.ProcessGroup | None,
) -> dict[str, int]:
    """Return the loader options ``rank`` and ``world_size`` of a process group.

    Empty if `process_group` is None or torch.distributed is not initialised: the loader
    then finds both itself.

    Raises
    ------
    ValueError
        If this process is not in the group.
    """
    place = None if process_group is None else _place_in(process_group)
    return {} if place is None else {"rank": place[0], "world_size": place[1]}


def _place_in(
    process_group: torch.distributed.ProcessGroup | None,
) -> tuple[int, int] | None:
    """Return rank and world size in a group, or None without torch.distributed."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    rank = distributed.get_rank(process_group)
    if rank < 0:
        msg = (
            "this process is not in process_group: pass the group of ranks that divide "
            "the data and that this process is in"
        )
        raise ValueError(msg)
    return rank, distributed.get_world_size(process_group)


def check_not_divided(
    dataset: torch.utils.data.IterableDataset[object], loader: Loader
) -> None:
    """Raise if accelerate divides the batches of `dataset`, which are one rank's part.

    A DataLoader that `Accelerator.prepare` or the Trainer of transformers made expects
    all records from an IterableDataset. It reads them on rank 0 only, or on all ranks,
    and gives each rank a part. Of a part that would be a part again, and the other
    records would be lost.

    Raises
    ------
    ValueError
        If accelerate has several processes, and the DataLoader that it is iterating
        reads `dataset`, or another IterableDataset that may contain it.
    """
    accelerate = sys.modules.get("accelerate.state")
    if loader.world_size == 1 or accelerate is None:
        return
    # The classes share one state each. To make a first PartialState would begin it.
    if not accelerate.PartialState._shared_state:
        return
    n_processes = accelerate.PartialState().num_processes
    read = accelerate.GradientState().active_dataloader
    if n_processes == 1 or read is None:
        return
    while read is not dataset and hasattr(read, "dataset"):
        read = read.dataset
    # The DataLoader may be one of other data, whose loop was left by a break.
    is_other = type(read) is type(dataset) or not isinstance(
        read, torch.utils.data.IterableDataset
    )
    if read is not dataset and is_other:
        return
    msg = (
        f"cannot read a fastrec IterableDataset through accelerate: it has the records of "
        f"{loader._rank} only, and accelerate would divide them among {n_processes} "
        "processes again. Write loader = accelerator.prepare(fr.torch.loader("
        "ds.loader(256), accelerator.device)); for a Trainer, write "
        "train_dataset=fr.torch.Dataset(ds), data_collator=fr.torch.collate"
    )
    raise ValueError(msg)
