"""Compare shuffled with sequential epochs, by kind of I/O and state of the page cache.

Orders alternate, a whole epoch each. The labels are compared with those of the
sequential order before timing. ``--data`` chooses the file system: tmpfs has pages of
4 KiB, ext4 and xfs larger ones.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

import fastrec as fr
from environment import describe, usable_cpus
from peers.fastrec_loader import spec
from workloads import WORKLOADS, Prepared, default_data, prepare

__all__: list[str] = []

Io: TypeAlias = Literal["auto", "mmap", "pread"]

ORDERS: dict[str, bool | fr.Blocks] = {
    "sequential": False,
    "shuffle=True": True,
    "Blocks()": fr.Blocks(),
}


@dataclass(frozen=True)
class Speed:
    """One cell of the table: median records/s, and (max - min) / median."""

    workload: str
    threads: int
    io: str
    order: str
    records_per_s: float
    ratio: float  # relative to sequential epochs
    spread: float


def forget(files: Sequence[Path]) -> None:
    """Evict the files from the page cache."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def epoch(loader: fr.Loader, n_records: int) -> float:
    """Return the seconds of one epoch."""
    n_rows, start = 0, time.perf_counter()
    for batch in loader:
        n_rows += len(batch["label"])
    seconds = time.perf_counter() - start
    if n_rows != n_records:
        sys.exit(f"{n_rows} rows of {n_records} records")
    return seconds


def verify(ds: fr.Dataset, loaders: dict[str, fr.Loader]) -> None:
    """Check that every order delivers the same rows."""
    expected = np.sort(ds.select_columns(["label"])[:]["label"])
    for order, loader in loaders.items():
        found = np.concatenate([batch["label"] for batch in loader])
        if not np.array_equal(np.sort(found), expected):
            sys.exit(f"{order} delivers other rows")


def measure(
    prepared: Prepared, threads: int, io: Io, args: argparse.Namespace
) -> list[Speed]:
    """Measure all orders of one workload in turn; threads include the consumer's."""
    files = [str(path) for path in prepared.files]
    features = {feature.name: spec(feature) for feature in prepared.workload.features}
    batch_size = args.batch_size
    ds = fr.open(files, features=features, io=io)
    loaders = {
        name: ds.loader(batch_size, shuffle=shuffle, num_threads=threads - 1)
        for name, shuffle in ORDERS.items()
    }
    verify(ds, loaders)
    times: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(args.repeat):
        for name, shuffle in ORDERS.items():
            if args.files != "open":
                # Mapped pages stay in the cache, so start with new mappings.
                del loaders[name]
                if args.files == "cold":
                    forget(prepared.files)
                reopened = fr.open(files, features=features, io=io)
                loaders[name] = reopened.loader(
                    batch_size, shuffle=shuffle, num_threads=threads - 1
                )
            times[name].append(epoch(loaders[name], len(ds)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return [
        Speed(
            prepared.workload.name,
            threads,
            io,
            name,
            len(ds) / medians[name],
            medians["sequential"] / medians[name],
            (max(values) - min(values)) / medians[name],
        )
        for name, values in times.items()
    ]


def markdown(speeds: Sequence[Speed]) -> str:
    """Print a line per workload, number of threads and kind of I/O."""
    lines = [
        ["workload", "threads", "io", *ORDERS],
        ["---", "---:", "---", *["---:"] * len(ORDERS)],
    ]
    for what in dict.fromkeys((s.workload, s.threads, s.io) for s in speeds):
        cells = [
            f"{s.records_per_s:,.0f} ({s.ratio:.2f}, spread {s.spread:.0%})"
            for s in speeds
            if (s.workload, s.threads, s.io) == what
        ]
        lines.append([*map(str, what), *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measure, and print a table of records/s relative to sequential epochs."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [
        n for n, w in WORKLOADS.items() if any(f.name == "label" for f in w.features)
    ]
    parser.add_argument(
        "--workloads", nargs="+", choices=names, default=["mnist", "tabular", "images"]
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument(
        "--io", nargs="+", choices=("auto", "mmap", "pread"), default=["auto"]
    )
    parser.add_argument(
        "--files",
        choices=("open", "opened", "cold"),
        default="open",
        help="open since the epoch before, reopened for each epoch, or that and gone "
        "from the page cache (Linux only)",
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cpus = usable_cpus()
    speeds: list[Speed] = []
    for name in args.workloads:
        prepared = prepare(WORKLOADS[name], args.data, args.scale)
        for threads in args.threads:
            if cpus:
                os.sched_setaffinity(0, cpus[:threads])
            for io in args.io:
                speeds += measure(prepared, threads, io, args)
    print(markdown(speeds))
    environment = describe()
    for key, value in environment.items():
        print(f"- {key}: {value}")
    if args.json:
        rows = [asdict(speed) for speed in speeds]
        args.json.write_text(
            json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
