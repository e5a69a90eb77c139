"""Ranks: a loader reads the part of this process in its process group."""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from typing import Any

import torch.distributed
import torch.utils.data

from fastrec.dataset.adapted import LoaderKeywords, loader_of
from fastrec.dataset.dataset import Dataset
from fastrec.loader.loader import Loader
from fastrec.loader.ranks import Rank, current_rank, rank_in_group

__all__ = ["check_not_divided", "loader_in_group"]


@dataclass(frozen=True)
class GroupRank:
    """Finds the rank of a loader in a process group; refuses a loader of another rank."""

    process_group: torch.distributed.ProcessGroup | None

    def __call__(self, known: Rank) -> Rank:
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return current_rank(known)
        rank = distributed.get_rank(self.process_group)
        if rank < 0:
            msg = (
                "this process is not in process_group: pass the group of ranks that divide "
                "the data and that this process is in"
            )
            raise ValueError(msg)
        place = rank, distributed.get_world_size(self.process_group)
        if self.process_group is not None:
            return rank_in_group(known, place, "process_group")
        hint = (
            ". If several ranks train on the same rows (tensor or pipeline parallelism), "
            "pass process_group="
        )
        return rank_in_group(known, place, "torch.distributed", hint)

    def __reduce__(self) -> tuple[object, ...]:
        # Another process cannot use the group, so a copy there keeps its rank.
        return (GroupRank, (None,)) if self.process_group is None else (KeptRank, ())


class KeptRank:
    """Returns the rank that a loader has."""

    def __call__(self, known: Rank) -> Rank:
        return known


def loader_in_group(
    adapter: str,
    source: Dataset | Loader[Any],
    batch_size: int | None,
    options: LoaderKeywords,
    process_group: torch.distributed.ProcessGroup | None,
) -> Loader[Any]:
    """Return a copy of the loader of `source`, with the rank of this process."""
    find_rank = GroupRank(process_group)
    loader = copy.copy(loader_of(adapter, source, batch_size, options, find_rank))
    loader._follow(find_rank)
    return loader


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
