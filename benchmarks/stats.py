"""The cost of ``fastrec stats``, as a ratio to decoding the same files.

Both read the same files from the page cache in the same large batches, and alternate. CPU
time is that of the whole process. The bar is 8 seconds per GB for tabular data.

    python benchmarks/stats.py
    python benchmarks/stats.py --gigabytes 0.1 --rounds 3
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fastrec as fr
from environment import describe
from fastrec.cli.stats import summary

__all__: list[str] = []

_ROWS = {"tabular": 20_000, "images": 100}
_RECORD_BYTES = {"tabular": 855, "images": 110_000}


def tabular(rng: np.random.Generator) -> dict[str, Any]:
    """Return rows of 40 scalars, like the Criteo dataset."""
    n = _ROWS["tabular"]
    columns: dict[str, Any] = {"label": rng.integers(0, 2, n)}
    for i in range(13):
        columns[f"I{i}"] = rng.standard_normal(n, np.float32)
    for i in range(26):
        columns[f"category_{i}"] = np.exp2(rng.uniform(0, 31, n)).astype(np.int64)
    return columns


def images(rng: np.random.Generator) -> dict[str, Any]:
    """Return rows of byte strings of about 110 KB, and labels."""
    n = _ROWS["images"]
    sizes = rng.integers(100_000, 120_000, n).tolist()
    return {
        "image": [rng.bytes(size) for size in sizes],
        "label": rng.integers(0, 9, n),
    }


def written(path: Path, n_bytes: float) -> fr.Dataset:
    """Write a file of about `n_bytes`, and open it."""
    draw = {"tabular": tabular, "images": images}[path.stem]
    rng = np.random.default_rng(0)
    n_batches = max(1, round(n_bytes / _RECORD_BYTES[path.stem] / _ROWS[path.stem]))
    with fr.Writer(path) as writer:
        for _ in range(n_batches):
            writer.write_batch(draw(rng))
    return fr.open(path)


def decode(ds: fr.Dataset) -> None:
    """Read the batches that `summary` reads."""
    for _ in ds._table_loader(None):
        pass


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Print one line per kind of data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    print(describe())
    print(
        f"{'data':<10}{'decode s':>10}{'stats s':>10}{'wall':>8}{'CPU':>8}{'spread':>16}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in _ROWS:
            ds = written(Path(folder) / f"{name}.tfrecord", args.gigabytes * 1e9)
            rounds = []
            for _ in range(args.rounds + 1):
                decoding = timed(partial(decode, ds))
                summing = timed(partial(summary, ds))
                rounds.append((*decoding, *summing))
            rounds = rounds[1:]  # the first fills the page cache
            reading, _, summing_s, _ = map(statistics.median, zip(*rounds, strict=True))
            wall = statistics.median(each[2] / each[0] for each in rounds)
            ratios = sorted(each[3] / each[1] for each in rounds)
            spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            print(
                f"{name:<10}{reading:>10.2f}{summing_s:>10.2f}{wall:>8.2f}"
                f"{statistics.median(ratios):>8.2f}{spread:>16}"
            )


if __name__ == "__main__":
    main()
