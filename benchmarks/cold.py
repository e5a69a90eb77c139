"""Measure cold reads: epochs and an index of a file that is not in the page cache.

It writes a file of 110 KB records and drops its pages from the page cache before each
measurement, which runs in a separate process. The scale is `dd iflag=direct` on the same
file in the same round. Memory is the growth of private memory (RssAnon), with batches of 16
records. Linux only.
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
from worker import megabytes

__all__: list[str] = []

FEATURES = {"image": fr.FixedLen((), "bytes")}
WORKS = ("epoch", "shuffle=Blocks()", "index")


def write(path: Path, nbytes: int) -> None:
    """Write records of 110 KB unless the file exists."""
    size = 110_000
    n = max(1, nbytes // size)
    if path.exists() and path.stat().st_size > n * size:
        return
    rng = np.random.default_rng(0)
    with fr.Writer(path) as writer:
        for _ in range(n):
            writer.write({"image": rng.bytes(size)})


def drop(path: Path) -> None:
    """Drop the pages of the file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_read() -> int:
    """Return the bytes that this process has read from disks."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes"):
            return int(line.split()[1])
    return 0


def measure(path: Path, work: str, num_threads: int) -> dict[str, float]:
    """Run one work on a cold file."""
    with tempfile.TemporaryDirectory() as index_dir:
        ds = fr.open(path, features=FEATURES, index_dir=index_dir)
        shuffle = fr.Blocks() if "Blocks" in work else False
        if shuffle:
            len(ds)  # keeps an index
        drop(path)
        n_before = bytes_read()
        peak = before = megabytes("RssAnon")
        start = time.perf_counter()
        if work == "index":
            len(ds)
        else:
            for _ in ds.loader(16, shuffle=shuffle, num_threads=num_threads):
                peak = max(peak, megabytes("RssAnon"))
        seconds = time.perf_counter() - start
        peak = max(peak, megabytes("RssAnon"))
    return {
        "s": seconds,
        "private_mb": peak - before,
        "read": (bytes_read() - n_before) / path.stat().st_size,
    }


def dd(path: Path) -> dict[str, float]:
    """Read the file without the page cache."""
    start = time.perf_counter()
    command = ["dd", f"if={path}", "of=/dev/null", "bs=8M", "iflag=direct"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return {"s": time.perf_counter() - start, "private_mb": 0.0, "read": 1.0}


def main() -> None:
    """Measure in rounds, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=2000, help="size of the file")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--num-threads", type=int, default=1)
    parser.add_argument("--data", type=Path, help="directory of the file")
    parser.add_argument("--one", choices=WORKS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = args.data or Path(folder)
        data.mkdir(parents=True, exist_ok=True)
        path = data / f"cold-{args.mb}.tfrecord"
        if args.one is not None:
            print(json.dumps(measure(path, args.one, args.num_threads)))
            return
        write(path, args.mb * 10**6)
        nbytes = path.stat().st_size
        child = [sys.executable, __file__, "--mb", str(args.mb), "--data", str(data)]
        child += ["--num-threads", str(args.num_threads), "--one"]
        results: dict[str, list[dict[str, float]]] = {}
        for _ in range(args.repeat):
            results.setdefault("dd iflag=direct", []).append(dd(path))
            for work in WORKS:
                found = subprocess.run([*child, work], check=True, capture_output=True)
                results.setdefault(work, []).append(json.loads(found.stdout))
    if min(one["read"] for one in results["epoch"]) < 0.5:
        parser.error("--data must be on a disk: the file stays in memory")
    scale = statistics.median(one["s"] for one in results["dd iflag=direct"])
    print("|  | GB/s | ratio to dd | read from disk | private MB |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for work, all_of in results.items():
        seconds = statistics.median(one["s"] for one in all_of)
        private = max(one["private_mb"] for one in all_of)
        read = statistics.median(one["read"] for one in all_of)
        print(
            f"| {work} | {nbytes / seconds / 1e9:.2f} | {scale / seconds:.2f} "
            f"| {read:.0%} | {private:.0f} |"
        )
    for key, value in describe().items():
        if key != "files":
            print(f"- {key}: {value}")


if __name__ == "__main__":
    main()
