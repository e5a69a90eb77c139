"""Measure the cost of keeping batches, or one column of each batch.

First table: CPU time and page faults of an epoch of a new loader, with batches dropped,
some kept in a queue, or all kept, in turn. Second table (`--columns`): the bytes of
blocks that one column of a batch keeps alive, compared with the bytes of the column,
for several datasets.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fastrec as fr
from peers.fastrec_loader import spec
from workloads import WORKLOADS, default_data, prepare

__all__: list[str] = []

KEPT = {"dropped": 0, "16 kept": 16, "all kept": None}


N_ROWS = 2560
PAGE_BYTES = 4096


def shapes() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return datasets by name: specs and columns."""
    numbers = np.arange(N_ROWS)
    scalar, string = fr.FixedLen((), "int64"), fr.FixedLen((), "bytes")
    label_of = {"label": numbers}
    yield (
        "image bytes, label, name",
        {"image": string, "label": scalar, "name": string},
        label_of
        | {"image": [bytes(9_000 + i % 2_000) for i in range(N_ROWS)]}
        | {"name": [f"name{i}".encode() for i in range(N_ROWS)]},
    )
    names = [f"f{i}" for i in range(40)]
    yield "40 scalars", dict.fromkeys(names, scalar), dict.fromkeys(names, numbers)
    yield (
        "28 x 28 image, label",
        {"image": fr.Raw((28, 28), "uint8"), "label": scalar},
        label_of | {"image": np.zeros((N_ROWS, 28, 28), np.uint8)},
    )
    lengths = numbers * 7 % 200
    yield (
        "ragged tokens, weights",
        {"tokens": fr.VarLen("int64"), "weights": fr.VarLen("float32")},
        {
            "tokens": [np.arange(n) for n in lengths],
            "weights": [np.ones(n, np.float32) for n in lengths],
        },
    )


def arrays_of(column: Any) -> Iterator[Any]:
    """Yield the arrays of a column."""
    if isinstance(column, fr.RaggedArray):
        yield from (*arrays_of(column.values), column.row_splits)
    elif isinstance(column, fr.BytesArray):
        yield from (column.data, column.offsets)
    else:
        yield column


def kept_bytes(column: Any) -> int:
    """Return the bytes of the blocks that a column keeps alive."""
    blocks = {}
    for array in arrays_of(column):
        while isinstance(array, np.ndarray):
            array = array.base
        blocks[array.address] = array.size
    return sum(blocks.values())


def print_columns() -> None:
    """Print the bytes that columns keep alive, by dataset and batch size."""
    print("| dataset | batch size | column | KB | KB kept | of the limit |")
    print("|---|---:|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for i, (title, features, columns) in enumerate(shapes()):
            path = Path(folder, f"{i}.tfrecord")
            fr.write(path, columns, features=features)
            ds = fr.open(path, features=features)
            for batch_size in (1, 20, 256):
                print_dearest(title, batch_size, ds)


def print_dearest(title: str, batch_size: int, ds: fr.Dataset) -> None:
    """Print the column of an epoch that is closest to the limit."""
    n_batches = -(-len(ds) // batch_size)
    n_bytes, n_kept = Counter[str](), Counter[str]()
    for batch in ds.loader(batch_size):
        for key, column in batch.items():
            name = str(key)
            n_bytes[name] += sum(array.nbytes for array in arrays_of(column))
            n_kept[name] += kept_bytes(column)
    share = {
        name: n_kept[name] / (2 * n_bytes[name] + n_batches * PAGE_BYTES)
        for name in n_bytes
    }
    dearest = max(share, key=lambda name: share[name])
    print(
        f"| {title} | {batch_size} | {dearest} | {n_bytes[dearest] / 1e3:,.0f} "
        f"| {n_kept[dearest] / 1e3:,.0f} | {share[dearest]:.0%} |"
    )


def epoch(ds: fr.Dataset, batch_size: int, n_kept: int | None) -> tuple[float, int]:
    """Return the CPU seconds and page faults of one epoch."""
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
    parser.add_argument(
        "--columns",
        action="store_true",
        help="only print the bytes that one column keeps alive",
    )
    args = parser.parse_args()
    if args.columns:
        print_columns()
        return
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
