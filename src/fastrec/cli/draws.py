"""Draws: the records of one epoch, in the order that a training loop gets them.

A draw is a record number, and its index says when it came. Draws are taken from the plan
of a loader, so they are what that loader delivers.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import fastrec as fr
from fastrec.options import positive_int
from fastrec.storage.parallel import Progress

__all__ = [
    "Draws",
    "Shuffle",
    "as_shuffle",
    "loader_draws",
    "title",
]

Draws: TypeAlias = "npt.NDArray[np.int64]"

BATCH_SIZE = 256  # Blocks sorts the rows of a batch by lane


Shuffle: TypeAlias = "bool | fr.Blocks | fr.Window"


def as_shuffle(text: str) -> Shuffle:
    """Return the order that `text`, an argument of the command, names.

    Raises
    ------
    ValueError
        If there is no such order.
    """
    name, colon, options = text.strip().lower().partition(":")
    if not colon and name in ("true", "false"):
        return name == "true"
    if not colon and name == "blocks":
        return fr.Blocks()
    if name == "blocks":
        size, comma, lanes = options.partition(",")
        if not comma:
            return fr.Blocks(size)
        return fr.Blocks(size, _count("lanes", lanes))
    if colon and name == "window":
        return fr.Window(_count("the window", options))
    msg = (
        f"no order {text!r}: give true, false, blocks, blocks:SIZE, blocks:SIZE,LANES "
        "(such as blocks:4MB,64) or window:RECORDS"
    )
    raise ValueError(msg)


def _count(what: str, text: str) -> int:
    digits = text.strip().replace("_", "")
    if not (digits.isascii() and digits.isdecimal()):
        msg = f"{what} must be a number, not {text!r}"
        raise ValueError(msg)
    return positive_int(what, int(digits))


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
    progress: Progress | None = None,
) -> Draws:
    """Return what one epoch of a loader of `ds` delivers, step by step."""
    loader = ds.loader(BATCH_SIZE, shuffle=shuffle, seed=seed, rank=0, world_size=1)
    plan = loader._plan(epoch)
    steps = []
    for step in range(plan.n_steps):
        _, records = plan.rows(step)
        steps.append(records)
        if progress is not None and step % 1024 == 0:
            progress(step, plan.n_steps)
    return np.concatenate([np.empty(0, np.int64), *steps])
