"""Measure epochs of kept rows, compared with decoding, memcpy and caches of tf.data.

Every way of reading runs in its own process, and the processes take turns. The first
epochs start with an empty directory. CPU time counts all threads; the rate by the wall
clock is meaningful only on an idle machine. Files are in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from images import BATCH_SIZE, SIDE, Worker, add_run_options, generate, save

__all__: list[str] = []

N_COLUMNS = 40
# The ways of reading, and whether each epoch starts without kept rows.
WAYS = {
    "decode": False,
    "kept, first epoch": True,
    "kept": False,
    "kept, shuffled": False,
    "memcpy": False,
    "tf.data": False,
    "tf.data cache, first epoch": True,
    "tf.data cache": False,
    "tf.data snapshot, first epoch": True,
    "tf.data snapshot": False,
}
PEER_WAYS = [way for way in WAYS if way.startswith("tf.data")]

Epoch = Callable[[], int]  # reads an epoch, and returns the number of rows


def generate_table(path: Path, n_rows: int) -> None:
    """Write rows of 40 integers, unless the file exists."""
    import fastrec as fr

    if not path.exists():
        rng = np.random.default_rng(0)
        columns = {f"f{i}": rng.integers(0, 1 << 20, n_rows) for i in range(N_COLUMNS)}
        fr.write(path, columns)


def is_table(path: str) -> bool:
    """Return whether the rows of the file are integers, instead of images."""
    return Path(path).name.startswith("table")


def fastrec_epoch(path: str, way: str, n_threads: int, directory: Path) -> Epoch:
    """Read through a loader: inside next(), or on `n_threads` threads."""
    import fastrec as fr

    integer = fr.FixedLen((), "int64")
    features: Any = {f"f{i}": integer for i in range(N_COLUMNS)}
    if not is_table(path):
        features = {"image": fr.Image((SIDE, SIDE), fit="resize"), "label": integer}
    ds = fr.open(path, features=features)
    name = next(iter(features))
    threads = 0 if n_threads == 1 else n_threads
    options: Any = {"transform_threads": threads, "num_threads": threads // 2}

    ds = ds if way == "decode" else ds.cache(directory)
    loader = ds.loader(BATCH_SIZE, shuffle="shuffled" in way, **options)

    def epoch() -> int:
        return sum(len(batch[name]) for batch in loader)

    return epoch


def memcpy_epoch(path: str, n_rows: int) -> Epoch:
    """Copy as many bytes, batch by batch, to memory that is used again."""
    shape = (N_COLUMNS * 8,) if is_table(path) else (SIDE, SIDE, 3)
    rows = np.ones((n_rows, *shape), np.uint8)
    target = np.empty((BATCH_SIZE, *shape), np.uint8)

    def epoch() -> int:
        for first in range(0, n_rows, BATCH_SIZE):
            batch = rows[first : first + BATCH_SIZE]
            np.copyto(target[: len(batch)], batch)
        return n_rows

    return epoch


def tf_epoch(path: str, way: str, n_threads: int, directory: Path) -> Epoch:
    """Read through tf.data: parse and decode in a parallel map, cache, then batch."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    integer = tf.io.FixedLenFeature((), tf.int64)
    spec = {f"f{i}": integer for i in range(N_COLUMNS)}
    if not is_table(path):
        spec = {"image": tf.io.FixedLenFeature((), tf.string), "label": integer}

    def decode(record: Any) -> Any:
        row = tf.io.parse_single_example(record, spec)
        if "image" in row:
            image = tf.io.decode_jpeg(row["image"], channels=3)
            image = tf.image.resize(image, (SIDE, SIDE), antialias=True)
            row["image"] = tf.cast(tf.round(image), tf.uint8)
        return row

    options = tf.data.Options()
    options.threading.private_threadpool_size = n_threads
    options.threading.max_intra_op_parallelism = 1
    name = next(iter(spec))

    def epoch() -> int:
        directory.mkdir(parents=True, exist_ok=True)
        dataset = tf.data.TFRecordDataset(path).map(
            decode, num_parallel_calls=n_threads
        )
        if "cache" in way:
            dataset = dataset.cache(str(directory / "cache"))
        elif "snapshot" in way:
            dataset = dataset.snapshot(str(directory), compression=None)
        dataset = dataset.batch(BATCH_SIZE).prefetch(2).with_options(options)
        return sum(len(batch[name]) for batch in dataset)

    return epoch


def work(way: str, path: str, n_threads: int, n_rows: int) -> None:
    """Run an epoch for each line of the input, and print its figures as JSON."""
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        directory = Path(folder, "kept")
        if way == "memcpy":
            epoch = memcpy_epoch(path, n_rows)
        elif way in PEER_WAYS:
            epoch = tf_epoch(path, way, n_threads, directory)
        else:
            epoch = fastrec_epoch(path, way, n_threads, directory)
        for _ in sys.stdin:
            if WAYS[way]:
                shutil.rmtree(directory, ignore_errors=True)
            wall, cpu = time.perf_counter(), time.process_time()
            n = epoch()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            n_bytes = sum(p.stat().st_blocks * 512 for p in directory.rglob("*"))
            figures = {"n": n, "wall": wall, "cpu": cpu, "n_bytes": n_bytes}
            print(json.dumps(figures), flush=True)


def measured(
    ways: dict[str, str], path: Path, n_threads: int, n_rows: int, n_rounds: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each way of reading; their epochs take turns."""
    arguments = [str(path), str(n_threads), str(n_rows)]
    workers = {
        way: Worker(python, [way, *arguments], __file__) for way, python in ways.items()
    }
    failures: dict[str, str] = {}
    epochs: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(n_rounds + 1):  # the first one warms up, and fills directories
        for way, worker in workers.items():
            try:
                epochs[way].append(worker.epoch())
            except RuntimeError as error:
                failures.setdefault(way, str(error))
    for way, worker in workers.items():
        worker.close()
        row: dict[str, Any] = {"data": path.stem, "threads": n_threads, "way": way}
        if way in failures:
            yield row | {"failure": failures[way]}
            continue
        costs = [1e6 * epoch["cpu"] / epoch["n"] for epoch in epochs[way][1:]]
        rates = [epoch["n"] / epoch["wall"] for epoch in epochs[way][1:]]
        yield row | {
            "cpu_us": statistics.median(costs),
            "best_us": min(costs),
            "rows_per_s": max(rates),
            "row_bytes": epochs[way][-1]["n_bytes"] / epochs[way][-1]["n"],
        }


def report(rows: list[dict[str, Any]]) -> None:
    """Print the rows of one case."""
    costs = {row["way"]: row.get("cpu_us", float("nan")) for row in rows}
    for row in rows:
        case = f"| {row['data']} | {row['threads']} | {row['way']} "
        if "failure" in row:
            print(f"{case}| - | - | - | - | - | {row['failure']} |", flush=True)
            continue
        print(
            f"{case}| {row['cpu_us']:,.2f} | {row['best_us']:,.2f} "
            f"| {costs['decode'] / row['cpu_us']:,.2f} "
            f"| {costs['memcpy'] / row['cpu_us']:.2f} | {row['rows_per_s']:,.0f} "
            f"| {row['row_bytes']:,.0f} |",
            flush=True,
        )


def main() -> None:
    """Parse the arguments, generate the data and print the table."""
    if "--worker" in sys.argv:
        way, path, n_threads, n_rows = sys.argv[2:]
        work(way, path, int(n_threads), int(n_rows))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/image-data"))
    parser.add_argument(
        "--rows", nargs="+", choices=["jpeg", "table"], default=["jpeg", "table"]
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument(
        "--tf", metavar="PYTHON", help="an interpreter with TensorFlow, to compare with"
    )
    add_run_options(parser, n_rounds=5)
    options = parser.parse_args()
    n_images, n_rounds = (64, 1) if options.quick else (1024, options.rounds)
    sizes = {"jpeg": n_images, "table": 100 * n_images}
    generate(options.data, n_images)
    generate_table(options.data / f"table-{sizes['table']}.tfrecord", sizes["table"])
    ways = {way: sys.executable for way in WAYS if way not in PEER_WAYS}
    ways |= dict.fromkeys(PEER_WAYS, options.tf) if options.tf else {}
    columns = ("rows", "threads", "way", "CPU us", "best", "of decoding", "of memcpy")
    print(f"| {' | '.join(columns)} | rows/s | bytes/row on disk |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    rows: list[dict[str, Any]] = []
    for name in options.rows:
        path = options.data / f"{name}-{sizes[name]}.tfrecord"
        for n_threads in options.threads:
            found = list(measured(ways, path, n_threads, sizes[name], n_rounds))
            report(found)
            rows += found
    save(options, rows)


if __name__ == "__main__":
    main()
