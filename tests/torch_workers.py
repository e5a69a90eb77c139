"""Read through torch's DataLoader with worker processes, again and again.

    python torch_workers.py CONTEXT N_WORKERS RUNS FILE...

CONTEXT is how workers are started; the files hold the records 0, 1, ... in the feature
"n". Every second run keeps its workers for a second epoch. The dataset is used in the
parent, by threads, before workers are made and while they are at work.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch.utils.data
from torch.utils.data import DataLoader, get_worker_info

import fastrec as fr
from children import SECONDS_TO_HANG

Untyped: TypeAlias = Any

BATCH_SIZE = 16


class Epoch(torch.utils.data.IterableDataset[Untyped]):
    """Batches of a loader, of which each worker makes its share."""

    def __init__(self, ds: fr.Dataset) -> None:
        self._ds = ds

    def __iter__(self) -> Iterator[Untyped]:
        worker = get_worker_info()
        rank, world_size = (worker.id, worker.num_workers) if worker else (0, 1)
        yield from self._ds.loader(
            BATCH_SIZE, shuffle=True, rank=rank, world_size=world_size, num_threads=2
        )


def numbers(loader: Untyped) -> list[int]:
    return sorted(n for batch in loader for n in batch["n"].tolist())


def check(
    ds: fr.Dataset, context: str, num_workers: int, *, is_persistent: bool
) -> None:
    expected = list(range(len(ds)))
    beside = iter(ds.loader(BATCH_SIZE, num_threads=2).repeat())
    options: Untyped = {"num_workers": num_workers}
    if num_workers:
        options |= {"multiprocessing_context": context, "timeout": SECONDS_TO_HANG}
        options |= {"persistent_workers": is_persistent}
    for loader in (
        DataLoader(ds, batch_size=BATCH_SIZE, shuffle=True, **options),
        DataLoader(Epoch(ds), batch_size=None, **options),
    ):
        for _ in range(1 + is_persistent):
            next(beside)
            assert numbers(loader) == expected


def main() -> None:
    context, num_workers, runs, *paths = sys.argv[1:]
    multiprocessing.set_forkserver_preload(["torch", "fastrec"])
    warnings.filterwarnings("ignore", "This DataLoader will create")  # on few CPUs
    ds = fr.open(paths, features={"n": fr.FixedLen((), "int64")})
    for run in range(int(runs)):
        faulthandler.dump_traceback_later(SECONDS_TO_HANG, exit=True)
        check(ds, context, int(num_workers), is_persistent=run % 2 == 1)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
