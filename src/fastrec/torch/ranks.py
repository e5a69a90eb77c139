"""Ranks: a loader reads the part of this process in its process group."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed

from fastrec.loader.ranks import Rank, current_rank, rank_in_group


@dataclass(frozen=True)
class GroupRank:
    """Finds the rank of a loader in a process group; refuses a loader of another rank."""

    process_group: torch.distributed.ProcessGroup | None
    keeps: bool = False  # the rank that a loader has

    def __call__(self, known: Rank) -> Rank:
        """Return the rank of this process, or `known` if it stays."""
        distributed = torch.distributed
        if self.keeps:
            return known
        if not (distributed.is_available() and distributed.is_initialized()):
            return current_rank(known)
        rank = distributed.get_rank(self.process_group)
        if rank < 0:
            raise ValueError(
                "this process is not in process_group: pass the group of ranks that divide "
                "the data and that this process is in"
            )
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
        return GroupRank, (None, self.keeps or self.process_group is not None)
