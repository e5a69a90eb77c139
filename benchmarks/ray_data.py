"""Compare `fastrec.ray.read_tfrecords` with `ray.data.read_tfrecords`, in the same run.

usage: python benchmarks/ray_data.py [--records N] [--large N] [--repeat N] [--json FILE]

Both read the same files on one local cluster, in turn. "read" executes the read tasks and
leaves the blocks in the object store; "batches" also iterates NumPy batches of 1,024 rows
on the driver. Before that, the sum of each column is compared with the expected values.
A tenth of a second of Ray's own overhead dominates the time of fastrec on few records, so
fastrec also reads many. At the end, both read lists of different lengths.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import ray
import ray.data

import fastrec as fr
from environment import describe

__all__: list[str] = []

Untyped: TypeAlias = Any

N_FLOATS, N_INTS = 13, 26
N_FILES = 8
BATCH_SIZE = 1024
# Ray Data makes blocks of at least this size, so each reader has several tasks per CPU.
MIN_BLOCK_BYTES = 1 << 20


def write_tabular(folder: Path, n: int) -> dict[str, Untyped]:
    """Write `n` records of 40 scalars, as the workload "tabular"; return the columns."""
    rng = np.random.default_rng(0)
    columns: dict[str, Untyped] = {"label": rng.integers(0, 2, n)}
    for i in range(N_FLOATS):
        columns[f"float_{i:02d}"] = rng.normal(size=n).astype(np.float32)
    for i in range(N_INTS):
        columns[f"int_{i:02d}"] = rng.integers(0, 128 ** (1 + i % 5), n)
    limit = -(-n // N_FILES)
    pattern = str(folder / "{shard:05d}.tfrecords")
    fr.write(pattern, columns, max_shard_records=limit)
    return columns


def by_fastrec(files: list[str]) -> ray.data.Dataset:
    """Return the dataset of fastrec; its schema is inferred."""
    return fr.ray.read_tfrecords(files)


def by_ray(files: list[str]) -> ray.data.Dataset:
    """Return the dataset of Ray's own reader."""
    return ray.data.read_tfrecords(files)


READERS = {"fastrec": by_fastrec, "ray": by_ray}


def read(ds: ray.data.Dataset) -> int:
    """Execute the read tasks; return the number of rows."""
    return sum(bundle.num_rows() or 0 for bundle in ds.iter_internal_ref_bundles())


def batches(ds: ray.data.Dataset) -> int:
    """Iterate NumPy batches; return the number of rows."""
    numpy = ds.iter_batches(batch_size=BATCH_SIZE)
    return sum(len(batch["label"]) for batch in numpy)


MEASURES: dict[str, Callable[[ray.data.Dataset], int]] = {
    "read": read,
    "batches": batches,
}


def check(ds: ray.data.Dataset, columns: dict[str, Untyped]) -> None:
    """Exit if the sum of a column is wrong."""
    sums = dict.fromkeys(columns, 0.0)
    for batch in ds.iter_batches(batch_size=BATCH_SIZE):
        for name in columns:
            sums[name] += float(np.sum(batch[name], dtype=np.float64))
    for name, column in columns.items():
        if not np.isclose(sums[name], np.sum(column, dtype=np.float64)):
            msg = f"the sum of column {name!r} is wrong: {sums[name]}"
            raise SystemExit(msg)


def measure(
    few: list[str], many: list[str], given: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    """Return the rows per second of each round, by measure and reader."""
    runs = {
        "fastrec": (by_fastrec, few, given.records),
        "ray": (by_ray, few, given.records),
        "fastrec, large": (by_fastrec, many, given.large),
    }
    rates: dict[str, dict[str, list[float]]] = {
        measured: {name: [] for name in runs} for measured in MEASURES
    }
    for _ in range(given.repeat):
        for measured, function in MEASURES.items():
            for name, (reader, files, n) in runs.items():
                start = time.perf_counter()
                n_found = function(reader(files))
                rates[measured][name].append(n / (time.perf_counter() - start))
                assert n_found == n
    return rates


def ratio(over: list[float], under: list[float]) -> str:
    """Return the median ratio of two rates in the same rounds, and its spread."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    spread = f"{min(ratios):,.0f} to {max(ratios):,.0f}"
    return f"{statistics.median(ratios):,.0f} ({spread})"


def lists(folder: Path) -> dict[str, str]:
    """Return what each reader makes of lists with 1, 0 and 2 values."""
    rows = [[1], [], [2, 3]]
    path = folder / "lists.tfrecords"
    fr.write(path, {"ids": [rows[i % 3] for i in range(300)]})
    found = {}
    for name, reader in READERS.items():
        try:
            ids = [row["ids"] for row in reader([str(path)]).take(3)]
        except ray.exceptions.RayTaskError as error:
            reasons = [line for line in str(error).splitlines() if "Error: " in line]
            found[name] = reasons[-1].strip()
        else:
            found[name] = repr([None if x is None else [*x] for x in ids])
    return found


def main() -> None:
    """Measure, and print a table."""
    arguments = argparse.ArgumentParser(description="Compare readers of Ray Data")
    arguments.add_argument("--records", type=int, default=2_000, help="of 640 bytes")
    arguments.add_argument("--large", type=int, default=280_000)
    arguments.add_argument("--cpus", type=int, default=2)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    ray.init(
        num_cpus=given.cpus,
        object_store_memory=400 << 20,
        include_dashboard=False,
        log_to_driver=False,
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_min_block_size = MIN_BLOCK_BYTES
    with tempfile.TemporaryDirectory() as name:
        files = {}
        for n in (given.records, given.large):
            folder = Path(name) / str(n)
            folder.mkdir()
            columns = write_tabular(folder, n)
            files[n] = [str(path) for path in sorted(folder.glob("*.tfrecords"))]
            check(by_fastrec(files[n]), columns)
            if n == given.records:  # this also imports TensorFlow in the workers
                check(by_ray(files[n]), columns)
        rates = measure(files[given.records], files[given.large], given)
        kinds = lists(Path(name))
    ray.shutdown()
    for measured, of_readers in rates.items():
        for reader_name, found in of_readers.items():
            n = given.large if "large" in reader_name else given.records
            print(
                f"{measured:8} {reader_name:15} {n:>8,} records "
                f"{statistics.median(found):>12,.0f} rows/s   over ray: "
                f"{ratio(found, of_readers['ray'])}"
            )
    print("lists [1], [], [2, 3]:")
    for name, text in kinds.items():
        print(f"  {name:8} {text}")
    if given.json is not None:
        result = {**describe(), "rates": rates, "lists": kinds}
        given.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
