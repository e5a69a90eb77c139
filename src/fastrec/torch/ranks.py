"""Ranks: whether a loader reads the part of its process group's rank."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed
import torch.utils.data

from fastrec.dataset.adapted import LoaderKeywords, loader_of
from fastrec.dataset.dataset import Dataset
from fastrec.loader.loader import Loader

__all__ = ["check_group", "check_not_divided", "loader_in_group"]


def loader_in_group(
    adapter: str,
    source: Dataset | Loader[Any],
    batch_size: int | None,
    options: LoaderKeywords,
    process_group: torch.distributed.ProcessGroup | None,
) -> Loader[Any]:
    """Return the loader of `source`, which must have the rank of this process."""
    place = None if process_group is None else _place_in(process_group)
    loader = loader_of(adapter, source, batch_size, options, place)
    check_group(loader, process_group)
    return loader


def check_group(
    loader: Loader[Any], process_group: torch.distributed.ProcessGroup | None = None
) -> None:
    """Raise a ValueError if a loader has another rank than this process in its group.

    Ranks would then train on the same records, or leave some out. Does nothing if
    torch.distributed is not initialised.

    Parameters
    ----------
    loader : fastrec.Loader
    process_group : torch.distributed.ProcessGroup, optional
        The ranks that divide the data; by default all. They are fewer if several
        processes train on the same rows, as in tensor or pipeline parallelism: pass
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
    dataset: torch.utils.data.IterableDataset[object], loader: Loader[Any]
) -> None:
    """Raise a ValueError if accelerate divides the batches of `dataset` among ranks.

    A DataLoader of `Accelerator.prepare`, or of the Trainer of transformers, expects all
    records from an IterableDataset, and gives each rank a part of them.
    """
    accelerate = sys.modules.get("accelerate.state")
    if loader.world_size == 1 or accelerate is None:
        return
    # All instances share a state, which a first instance would create.
    if not accelerate.PartialState._shared_state:
        return
    n_processes = accelerate.PartialState().num_processes
    read = accelerate.GradientState().active_dataloader
    if n_processes == 1 or read is None:
        return
    while read is not dataset and hasattr(read, "dataset"):
        read = read.dataset
    # It may be the DataLoader of other data, whose loop was left by a break.
    is_other = type(read) is type(dataset) or not isinstance(
        read, torch.utils.data.IterableDataset
    )
    if read is not dataset and is_other:
        return
    msg = (
        f"cannot read a fastrec IterableDataset through accelerate: it has the records of "
        f"{loader._rank} only, and accelerate would divide them among {n_processes} "
        "processes again. Write loader = accelerator.prepare(fr.torch.loader("
        "ds, batch_size=256, device=accelerator.device)); for a Trainer, write "
        "train_dataset=fr.torch.Dataset(ds), data_collator=fr.torch.collate"
    )
    raise ValueError(msg)
