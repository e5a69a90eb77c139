"""Draws: the records of one epoch, in the order in which a training loop gets them.

A draw is a record number; its index says when it came. Draws come from the plan of a
loader, so that loader delivers them.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import fastrec as fr
from fastrec.storage.parallel import Progress

__all__ = ["Draws", "Shuffle", "as_shuffle", "loader_draws", "title"]

Draws: TypeAlias = "npt.NDArray[np.int64]"
Shuffle: TypeAlias = "bool | fr.Blocks | fr.Window"

_BATCH_SIZE = 256  # Blocks sorts the rows of a batch by lane


def as_shuffle(text: str) -> Shuffle:
    """Return the order that `text`, an argument of the command, names."""
    name, colon, options = text.strip().lower().partition(":")
    if not colon and name in ("true", "false"):
        return name == "true"
    if name == "blocks":
        size, comma, lanes = options.partition(",")
        if comma:
            return fr.Blocks(size, _count("lanes", lanes))
        return fr.Blocks(size) if colon else fr.Blocks()
    if colon and name == "window":
        return fr.Window(_count("the window", options))
    msg = (
        "the order must be true, false, blocks, blocks:SIZE, blocks:SIZE,LANES (such as "
        f"blocks:4MB,64) or window:RECORDS, got {text!r}"
    )
    raise ValueError(msg)


def _count(what: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        msg = f"{what} must be a number, got {text!r}"
        raise ValueError(msg) from None


def title(shuffle: Shuffle) -> str:
    """Return what a picture calls an order."""
    if isinstance(shuffle, fr.Window):
        return f"fr.Window({shuffle.n:_})"
    if isinstance(shuffle, fr.Blocks):
        return f"fr.Blocks({shuffle.block_bytes:_}, {shuffle.lanes})"
    return f"shuffle={shuffle}"


def loader_draws(
    ds: fr.Dataset,
    shuffle: Shuffle,
    *,
    seed: int,
    epoch: int,
    progress: Progress = lambda _done, _total: None,
) -> Draws:
    """Return the draws of one epoch of a loader of `ds`."""
    loader = ds.loader(_BATCH_SIZE, shuffle=shuffle, seed=seed, rank=0, world_size=1)
    plan = loader._plan(epoch)
    steps = [np.empty(0, np.int64)]
    for step in range(plan.n_steps):
        steps.append(plan.rows(step)[1])
        if step % 1024 == 0:
            progress(step, plan.n_steps)
    return np.concatenate(steps)
