"""Draws: the records of one epoch, in the order that a training loop gets them.

A draw is a record number, and its index says when it came. The draws of fastrec's orders
are taken from the plan of a loader, so they are what that loader delivers. The draws of a
shuffle buffer are a simulation, for comparison: fastrec has no such buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import fastrec as fr
from fastrec.options import positive_int

__all__ = [
    "Buffer",
    "Draws",
    "Shuffle",
    "as_shuffle",
    "buffer_draws",
    "loader_draws",
    "title",
]

Draws: TypeAlias = "npt.NDArray[np.int64]"
Progress: TypeAlias = "Callable[[int, int], object]"

BATCH_SIZE = 256  # Blocks sorts the rows of a batch by lane


@dataclass(frozen=True)
class Buffer:
    """A shuffle buffer of `size` records, as ``tf.data.Dataset.shuffle`` has it."""

    size: int


Shuffle: TypeAlias = "bool | fr.Blocks | Buffer"


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
        return Buffer(_count("the window", options))
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
    if isinstance(shuffle, Buffer):
        return f"a shuffle buffer of {shuffle.size:,}"
    if isinstance(shuffle, fr.Blocks):
        return f"fr.Blocks({shuffle.block_bytes:_}, {shuffle.lanes})"
    return f"shuffle={shuffle}"


def loader_draws(
    ds: fr.Dataset,
    shuffle: bool | fr.Blocks,
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


def buffer_draws(n_records: int, buffer: Buffer, *, seed: int, epoch: int) -> Draws:
    """Simulate a buffer that is filled with the first records of the files.

    Each draw empties a slot at random and refills it with the next record. When there is
    none left, the slots are emptied in random order.
    """
    size = min(buffer.size, n_records)
    n_refilled = n_records - size
    rng = np.random.default_rng([seed, epoch])
    slots = np.concatenate([rng.integers(size, size=n_refilled), rng.permutation(size)])
    # Draw i refills its slot with record `size + i`, so a draw finds what the draw
    # before it from the same slot left there; the first one finds record `slot`.
    by_slot = np.argsort(slots, kind="stable")
    before, after = by_slot[:-1], by_slot[1:]
    is_same = slots[before] == slots[after]
    draws = slots.astype(np.int64)
    draws[after[is_same]] = size + before[is_same]
    return draws
