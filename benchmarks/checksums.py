"""CRC32C in GB/s by size: fastrec's kernels, the `crc32c` package, and memcpy.

Every size is measured twice: hot, the same bytes again and again, and cold, walking
through a buffer larger than the last-level cache. Each figure includes the call from
Python, which is what it costs to use them from there and dominates below 4 KiB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from crc32c import crc32c as package_crc32c

from environment import describe, usable_cpus

__all__: list[str] = []

SIZES = (64, 256, 1 << 10, 4 << 10, 16 << 10, 110_000, 1 << 20, 16 << 20)
COLD_BYTES = 256 << 20

Checksum: TypeAlias = Callable[[memoryview], int | None]


@dataclass(frozen=True)
class Speed:
    """One cell: GB/s, the median of the rounds, and (max - min) / median."""

    name: str
    cache: str
    size: int
    gb_per_s: float
    spread: float


def subjects() -> dict[str, Checksum]:
    """What to measure, fastrec's kernels best first; every checksum proven first."""
    found: dict[str, Checksum] = {}
    try:
        from fastrec import _core
    except ModuleNotFoundError:
        print("fastrec is not installed: its kernels are missing", file=sys.stderr)
    else:
        for kernel in _core.crc32c_kernels():
            found[f"fastrec {kernel}"] = partial(_core.crc32c, kernel=kernel)
    found["crc32c package"] = package_crc32c
    noise = memoryview(np.random.default_rng(0).bytes(1 << 16))
    for name, checksum in found.items():
        if checksum(memoryview(b"123456789")) != 0xE3069283:
            sys.exit(f"{name} fails the known vector")
        for size in (*range(300), 4095, 4097, 1 << 16):
            if checksum(noise[:size]) != package_crc32c(noise[:size]):
                sys.exit(f"{name} differs from the crc32c package at {size} bytes")
    return found


def copier(size: int) -> Checksum:
    """Copying instead of checksumming, into a recycled buffer of that size."""
    target = memoryview(bytearray(size))

    def copy(piece: memoryview) -> None:
        target[:] = piece

    return copy


def seconds(work: Checksum, pieces: Sequence[memoryview], min_s: float) -> float:
    """Time per pass over the pieces."""
    n_passes, start = 0, time.perf_counter()
    while n_passes == 0 or time.perf_counter() - start < min_s:
        for piece in pieces:
            work(piece)
        n_passes += 1
    return (time.perf_counter() - start) / n_passes


def measure(
    sizes: Sequence[int], repeat: int, min_s: float, cold_bytes: int
) -> list[Speed]:
    """Every subject at every size, taking turns."""
    source = memoryview(np.random.default_rng(1).bytes(cold_bytes))
    checksums = subjects()
    speeds = []
    for size in sizes:
        works = checksums | {"memcpy": copier(size)}
        starts = range(0, len(source) - size + 1, size)
        cold = [source[start : start + size] for start in starts[: max(1, 1 << 20)]]
        for cache, pieces in (
            ("hot", cold[:1] * max(1, 20_000 // size)),
            ("cold", cold),
        ):
            times: dict[str, list[float]] = {name: [] for name in works}
            for _ in range(repeat):
                for name, work in works.items():
                    times[name].append(seconds(work, pieces, min_s))
            for name, values in times.items():
                median = statistics.median(values)
                spread = (max(values) - min(values)) / median
                rate = size * len(pieces) / median / 1e9
                speeds.append(Speed(name, cache, size, rate, spread))
    return speeds


def markdown(speeds: Sequence[Speed], cache: str) -> str:
    """One table: a line per size, a column per subject."""
    rows = [s for s in speeds if s.cache == cache]
    names = list(dict.fromkeys(s.name for s in rows))
    lines = [["bytes", *names], ["---:"] * (len(names) + 1)]
    for size in dict.fromkeys(s.size for s in rows):
        found = {s.name: s for s in rows if s.size == size}
        values = [f"{found[n].gb_per_s:.2f} ({found[n].spread:.0%})" for n in names]
        lines.append([f"{size:,}", *values])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measure on one CPU and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--min-s", type=float, default=0.05, help="seconds per repetition"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a smoke test, no result")
    args = parser.parse_args()
    if args.quick:
        args.repeat, args.min_s = 1, 0.0
    cpus = usable_cpus()
    if cpus:
        os.sched_setaffinity(0, cpus[:1])
    environment = describe()
    cold_bytes = 32 << 20 if args.quick else COLD_BYTES
    speeds = measure(args.sizes, args.repeat, args.min_s, cold_bytes)
    for cache in ("hot", "cold"):
        print(f"GB/s (spread), {cache}:\n\n{markdown(speeds, cache)}\n")
    for key, value in environment.items():
        print(f"- {key}: {value}")
    if args.json:
        rows = [asdict(speed) for speed in speeds]
        result = {"environment": environment, "quick": args.quick, "rows": rows}
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
