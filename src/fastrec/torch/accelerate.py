"""Support for accelerate: report the end of epochs, and refuse to divide data twice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch.utils.data

from fastrec.caller_warnings import warn_caller
from fastrec.loader.loader import Loader


def _accelerate() -> Any:
    """Return the module ``accelerate.state``; None if there is no Accelerator."""
    accelerate = sys.modules.get("accelerate.state")
    # All instances share one state; creating an instance here would initialize it.
    if accelerate is None or not accelerate.PartialState._shared_state:
        return None
    return accelerate


class Announcer:
    """Reports the running loader and its last batch to accelerate.

    `Accelerator.accumulate` must know the end of the epoch to apply the gradients of the
    last group of batches, which may be smaller.
    """

    remainder = 0  # no row is repeated, so gather_for_metrics keeps all rows

    def __init__(self) -> None:
        self._is_last: Callable[[], bool] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return Announcer, ()

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the batch delivered most recently is the last of its epoch."""
        return self._is_last is not None and self._is_last()

    def __call__(self, is_last: Callable[[], bool] | None) -> None:
        """Report a delivered batch; at the end of the epoch, `is_last` is None."""
        accelerate = _accelerate()
        if accelerate is None:
            return
        state = accelerate.GradientState()
        self._is_last = is_last
        if is_last is None or state.active_dataloader is not self:
            state._remove_dataloader(self)
            if is_last is not None:
                state._add_dataloader(self)


def warn_of_gathering(loader: Loader[Any]) -> None:
    """Warn if ranks have unequal last batches, which accelerate cannot gather."""
    accelerate, planner = _accelerate(), loader._planner
    if accelerate is None or planner.rank.world_size == 1 or planner.shuffle:
        return
    plan = loader._plan()
    if planner.pad_last or not plan.n_steps:
        return
    n_last = plan.n_positions - plan.begin_of(plan.n_steps - 1)
    if not planner.drop_last and n_last % planner.rank.world_size:
        warn_caller(
            f"the last batch has {n_last} rows for {planner.rank.world_size} ranks, and "
            "gather_for_metrics() of accelerate fails on unequal sizes: for metrics, "
            "pass pad_last=True and keep the rows where batch['__valid__'] is true, or "
            "read fr.torch.Dataset(ds) in a DataLoader with collate_fn=fr.torch.collate"
        )


def check_not_divided(
    dataset: torch.utils.data.IterableDataset[object], loader: Loader[Any]
) -> None:
    """Raise a ValueError if accelerate would divide the batches of `dataset` again.

    A DataLoader from `Accelerator.prepare`, or from the Trainer of transformers, expects
    all records from an IterableDataset, and gives each rank a part of the records.
    """
    accelerate = _accelerate()
    if loader.world_size == 1 or accelerate is None:
        return
    n_processes = accelerate.PartialState().num_processes
    read = accelerate.GradientState().active_dataloader
    if n_processes == 1 or read is None:
        return
    while read is not dataset and hasattr(read, "dataset"):
        read = read.dataset
    # `read` may be the DataLoader of other data, whose loop ended with a break.
    is_other = type(read) is type(dataset) or not isinstance(
        read, torch.utils.data.IterableDataset
    )
    if read is not dataset and is_other:
        return
    raise ValueError(
        f"cannot read a fastrec IterableDataset through accelerate: it has the records of "
        f"{loader._rank} only, and accelerate would divide them among {n_processes} "
        "processes again. Write loader = accelerator.prepare(fr.torch.loader("
        "ds, batch_size=256, device=accelerator.device)); for a Trainer, write "
        "train_dataset=fr.torch.Dataset(ds), data_collator=fr.torch.collate"
    )
