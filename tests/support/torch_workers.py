"""Read repeatedly through torch's DataLoader with worker processes.

    python torch_workers.py CONTEXT N_WORKERS RUNS FILE...

CONTEXT is the workers' start method; the files contain the records 0, 1, ... in the
feature "n". Every second run keeps its workers for a second epoch. Threads of the
parent use the dataset before workers start and while they run.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import sys
import warnings
from typing import Any, TypeAlias

from torch.utils.data import DataLoader

import fastrec as fr
from children import SECONDS_TO_HANG

Untyped: TypeAlias = Any

BATCH_SIZE = 16


def numbers(loader: Untyped) -> list[int]:
    return [n for batch in loader for n in batch["n"].tolist()]


def check(
    ds: fr.Dataset, context: str, num_workers: int, *, is_persistent: bool
) -> None:
    shuffled = ds.loader(BATCH_SIZE, shuffle=True, num_threads=2)
    other = iter(ds.loader(BATCH_SIZE, num_threads=2).repeat())
    options: Untyped = {"num_workers": num_workers}
    if num_workers:
        options |= {"multiprocessing_context": context, "timeout": SECONDS_TO_HANG}
        options |= {"persistent_workers": is_persistent}
    rows = DataLoader(ds, batch_size=BATCH_SIZE, shuffle=True, **options)
    dataset = fr.torch.IterableDataset(ds, BATCH_SIZE, shuffle=True, num_threads=2)
    batches = DataLoader(dataset, batch_size=None, **options)
    for epoch in range(2):
        next(other)
        dataset.set_epoch(epoch)
        assert numbers(batches) == numbers(shuffled)
        if epoch == 0 or is_persistent:
            assert sorted(numbers(rows)) == list(range(len(ds)))


def main() -> None:
    context, num_workers, runs, *paths = sys.argv[1:]
    multiprocessing.set_forkserver_preload(["fastrec.torch"])
    warnings.filterwarnings("ignore", "This DataLoader will create")  # on few CPUs
    ds = fr.open(paths, features={"n": fr.FixedLen((), "int64")})
    for run in range(int(runs)):
        faulthandler.dump_traceback_later(SECONDS_TO_HANG, exit=True)
        check(ds, context, int(num_workers), is_persistent=run % 2 == 1)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
