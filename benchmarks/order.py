"""Measure orders: time per position, memory, size of a state, time to resume.

It writes a dataset of many records without payload, 16 bytes each. Each number of records
is measured in a separate process, because memory is measured per process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fastrec as fr
from environment import describe
from fastrec import _core

__all__: list[str] = []


def frame() -> bytes:
    """Return the frame of a record without payload."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.tfrecord"
        with fr.Writer(path) as writer:
            writer.write_record(b"")
        return path.read_bytes()


def write(path: Path, n_records: int) -> None:
    """Write the file unless it exists."""
    one = frame()
    if path.exists() and path.stat().st_size == n_records * len(one):
        return
    chunk = 1 << 20
    with path.open("wb") as file:
        for begin in range(0, n_records, chunk):
            file.write(one * min(chunk, n_records - begin))


def private_mb() -> float:
    """Return the memory of this process without mapped files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return float("nan")


def nanoseconds(order: _core.Order, batch: int, repeat: int = 9) -> float:
    """Return the median time per position, for batches of random steps."""
    rng = np.random.default_rng(0)
    times = []
    for _ in range(repeat):
        firsts = rng.integers(0, len(order) - batch, 400)
        steps = [np.arange(first, first + batch) for first in firsts]
        start = time.perf_counter()
        for positions in steps:
            order.records(positions)
        times.append((time.perf_counter() - start) / (len(steps) * batch) * 1e9)
    return statistics.median(times)


def measure(path: Path, n_records: int, index_dir: Path) -> dict[str, float]:
    """Measure one number of records."""
    result: dict[str, float] = {"records": n_records}
    ds = fr.open(path, features={"x": fr.FixedLen((), default=0)}, index_dir=index_dir)
    start = time.perf_counter()
    len(ds)
    result["index_s"] = time.perf_counter() - start
    before = private_mb()
    loader = ds.loader(256, shuffle=True, num_threads=1)
    for batch in loader:
        assert len(batch["x"]) == 256
        if loader.step == 2000:
            break
    state = loader.state_dict()
    result["growth_mb"] = private_mb() - before
    result["state_bytes"] = len(json.dumps(state))
    state["position"] = n_records // 2 // 256 * 256
    times = []
    for _ in range(5):
        other = ds.loader(256, shuffle=True, num_threads=1)
        start = time.perf_counter()
        other.load_state_dict(state)
        next(iter(other))
        times.append(time.perf_counter() - start)
    result["resume_ms"] = statistics.median(times) * 1e3
    for name, shuffle in (
        ("shuffled_ns", _core.Shuffle.shuffled()),
        ("blocks_ns", _core.Shuffle.blocks(5000, 64)),
    ):
        result[name] = nanoseconds(_core.Order.of(shuffle, n_records, 0, 0), 1024)
    return result


def main() -> None:
    """Measure, and print a line per number of records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", nargs="+", type=int, default=[10**6, 10**8])
    parser.add_argument("--data", type=Path, help="directory of the files")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        path = args.data / f"order-{args.one}.tfrecord"
        write(path, args.one)
        print(json.dumps(measure(path, args.one, args.data)))
        return
    with tempfile.TemporaryDirectory() as folder:
        data = folder if args.data is None else os.fspath(args.data)
        Path(data).mkdir(parents=True, exist_ok=True)
        for n_records in args.records:
            command = [
                sys.executable,
                __file__,
                "--data",
                data,
                "--one",
                str(n_records),
            ]
            subprocess.run(command, check=True)
    for key, value in describe().items():
        print(f"- {key}: {value}")


if __name__ == "__main__":
    main()
