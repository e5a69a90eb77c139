"""What it costs to keep batches: memory that is used again beside memory that is new.

The same epoch of a new loader, with every batch dropped as it comes, with some kept as a
queue would keep them, and with all kept. They take turns.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections import deque
from pathlib import Path

import fastrec as fr
from peers.fastrec_loader import spec
from workloads import WORKLOADS, default_data, prepare

__all__: list[str] = []

KEPT = {"dropped": 0, "16 kept": 16, "all kept": None}


def epoch(ds: fr.Dataset, batch_size: int, n_kept: int | None) -> tuple[float, int]:
    """CPU seconds of one epoch, and its page faults."""
    loader = ds.loader(batch_size, num_threads=0)
    kept: deque[object] = deque(maxlen=n_kept)
    cpu = time.process_time()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for batch in loader:
        kept.append(batch)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return time.process_time() - cpu, faults


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="*", default=["mnist", "embeddings"])
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--data", type=Path, default=default_data())
    args = parser.parse_args()
    print("| workload | batches | ns/record | faults/1,000 records |")
    print("|---|---|---:|---:|")
    for name in args.workloads:
        prepared = prepare(WORKLOADS[name], args.data, args.scale)
        features = {f.name: spec(f) for f in prepared.workload.features}
        ds = fr.open([str(path) for path in prepared.files], features=features)
        found: dict[str, list[tuple[float, int]]] = {way: [] for way in KEPT}
        for _ in range(args.repeat + 1):
            for way, n_kept in KEPT.items():
                found[way].append(epoch(ds, args.batch_size, n_kept))
        for way, epochs in found.items():
            ns = 1e9 * statistics.median(cpu for cpu, _ in epochs[1:]) / len(ds)
            faults = 1e3 * statistics.median(n for _, n in epochs[1:]) / len(ds)
            print(f"| {name} | {way} | {ns:,.0f} | {faults:,.1f} |")


if __name__ == "__main__":
    main()
