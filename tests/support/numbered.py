"""Datasets whose labels are their record numbers, and loaders of every order."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from oracle import example, tfrecord_file

Batch: TypeAlias = dict[str, Any]

THREADS = (0, 1, 2, 8)
SPEC: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "pixels": fr.Raw((3,), "uint8"),
    "words": fr.VarLen("bytes"),
}
NUMBERS = {name: SPEC[name] for name in ("n", "pixels")}  # what can be stacked
FILE_SIZES = (7, 0, 1, 23, 0, 12)
N = sum(FILE_SIZES)


def record(n: int, pixel: int = 7) -> bytes:
    return example(
        {
            b"n": ("int64", [n]),
            b"pixels": ("bytes", [bytes([n % 256, pixel, 0])]),
            b"words": ("bytes", [b"w" * (n % 5)] * (n % 3)),
        }
    )


def write_files(write: Write, sizes: tuple[int, ...]) -> list[Path]:
    ends = itertools.accumulate(sizes, initial=0)
    return [
        write(tfrecord_file(record(n) for n in range(begin, end)))
        for begin, end in itertools.pairwise(ends)
    ]


class DataSets:
    """Datasets with files of any sizes, each written once."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._made: dict[tuple[int, ...], Untyped] = {}

    def of(self, sizes: tuple[int, ...]) -> Untyped:
        if sizes not in self._made:
            files = write_files(self._write, sizes)
            self._made[sizes] = open_dataset(files, features=SPEC)
        return self._made[sizes]


def listed(n_records: int, seed: int, epoch: int) -> list[Any]:
    """Return batches of 4 to 9 records, or one of fewer; each record once."""
    rng = np.random.default_rng([seed, epoch])
    rest = rng.permutation(n_records)
    batches = []
    while len(rest):
        size = int(rng.integers(4, 10))
        size = size if len(rest) - size >= 4 else len(rest)
        batches.append(rest[:size])
        rest = rest[size:]
    return batches


# Loader options for every kind of order of N records.
ORDERS: dict[str, dict[str, Any]] = {
    "files": {"shuffle": False},
    "shuffled": {"shuffle": True},
    "blocks": {"shuffle": fr.Blocks(block_bytes=300, lanes=3)},
    "listed": {"batches": functools.partial(listed, N)},
    "mixed": {"shuffle": True},
    "mixed per batch": {"shuffle": True},
}
every_order = pytest.mark.parametrize("order", ORDERS)


def loader_of(
    ds: Untyped, order: str, batch_size: int | None = 5, **options: Untyped
) -> Untyped:
    """Return a loader with one of `ORDERS`; listed batches need no batch size."""
    if order.startswith("mixed"):
        halves = {"a": (ds.select(range(20)), 2), "b": (ds.select(range(20, N)), 1)}
        ds = fr.mix(halves, per_batch=order == "mixed per batch")
    size = {} if order == "listed" else {"batch_size": batch_size}
    return ds.loader(**{"num_threads": 0, **size, **ORDERS[order], **options})


def reloaded(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state after a round trip through a file."""
    loaded = json.loads(json.dumps(state))
    assert isinstance(loaded, dict)
    return loaded


def labels(batches: Iterable[Batch]) -> list[int]:
    return [int(n) for batch in batches for n in batch["n"]]


def take(batches: Iterable[Batch], n_steps: int) -> list[Batch]:
    return list(itertools.islice(batches, n_steps))
