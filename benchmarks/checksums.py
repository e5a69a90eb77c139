"""CRC32C in GB/s by size and cache: fastrec's kernels, two packages, and memcpy.

Every size is measured from each cache that can hold it, and from memory: pieces of that
size in a working set of half of the cache, or much larger than all caches. Each figure
includes the call from Python, which dominates below 4 KiB; the first line is that call
on 0 bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import google_crc32c
import numpy as np
from crc32c import crc32c as package_crc32c

from environment import cache_sizes, describe, usable_cpus

__all__: list[str] = []

SIZES = (100, 800, 4 << 10, 16 << 10, 110_000, 1 << 20)
MEMORY_BYTES = 256 << 20
# Each piece is a Python object, so small pieces do not fill the cache.
MOST_PIECES = 1 << 19
# If the system does not report it.
USUAL_CACHES = {"L1": 32 << 10, "L2": 512 << 10, "L3": 16 << 20}

Checksum: TypeAlias = Callable[[bytes], int | None]


@dataclass(frozen=True)
class Speed:
    """One cell of the table: ns per call in the fastest round."""

    name: str
    place: str
    size: int
    ns: float

    @property
    def gb_per_s(self) -> float:
        """Bytes per ns are GB/s."""
        return self.size / self.ns


def working_sets(memory_bytes: int) -> dict[str, int]:
    """Return the size of the working set for each cache and memory."""
    found = dict(USUAL_CACHES)
    for cache, size in cache_sizes().items():
        level, _, kind = cache.partition(" ")
        if kind != "Instruction" and size.endswith("K"):
            found[level] = int(size[:-1]) << 10
    return {level: size // 2 for level, size in found.items()} | {
        "memory": memory_bytes
    }


def subjects() -> dict[str, Checksum]:
    """Return the functions to measure, after verifying their checksums."""
    found: dict[str, Checksum] = {}
    try:
        from fastrec import _core
    except ModuleNotFoundError:
        print("fastrec is not installed: its kernels are missing", file=sys.stderr)
    else:
        for kernel in _core.crc32c_kernels():
            found[f"fastrec {kernel}"] = partial(_core.crc32c, kernel=kernel)
    found["crc32c package"] = package_crc32c
    found[f"google-crc32c ({google_crc32c.implementation})"] = google_crc32c.value
    noise = np.random.default_rng(0).bytes(1 << 16)
    for name, checksum in found.items():
        if checksum(b"123456789") != 0xE3069283:
            sys.exit(f"{name} fails the known vector")
        for size in (*range(300), 4095, 4097, 1 << 16):
            if checksum(noise[:size]) != package_crc32c(noise[:size]):
                sys.exit(f"{name} differs from the crc32c package at {size} bytes")
    return found


def copier(size: int) -> Checksum:
    """Return a copy into a recycled buffer of that size, for comparison."""
    target = memoryview(bytearray(size))

    def copy(piece: bytes) -> None:
        target[:] = piece

    return copy


def seconds(work: Checksum, pieces: Sequence[bytes], min_s: float) -> float:
    """Return the time of one pass over the pieces."""
    n_passes, start = 0, time.perf_counter()
    while n_passes == 0 or time.perf_counter() - start < min_s:
        for piece in pieces:
            work(piece)
        n_passes += 1
    return (time.perf_counter() - start) / n_passes


def measure(
    sizes: Sequence[int], repeat: int, min_s: float, memory_bytes: int
) -> list[Speed]:
    """Measure every function at every size from every cache, in turn."""
    source = np.random.default_rng(1).bytes(memory_bytes)
    checksums = subjects()
    speeds = []
    for size in (0, *sizes):
        works = checksums | {"memcpy": copier(size)}
        for place, set_bytes in working_sets(memory_bytes).items():
            if size > set_bytes or (size == 0 and place != "L1"):
                continue
            n_pieces = min(set_bytes // size, MOST_PIECES) if size else 1000
            pieces = [source[i * size : (i + 1) * size] for i in range(n_pieces)]
            times: dict[str, list[float]] = {name: [] for name in works}
            for _ in range(repeat):
                for name, work in works.items():
                    times[name].append(seconds(work, pieces, min_s))
            for name, values in times.items():
                ns = min(values) / n_pieces * 1e9
                speeds.append(Speed(name, place, size, ns))
    return speeds


def markdown(speeds: Sequence[Speed]) -> str:
    """Print a line per size and cache, and a column per function."""
    cells = {(s.size, s.place, s.name): s for s in speeds}
    names = list(dict.fromkeys(s.name for s in speeds))
    lines = [["bytes", "from", *names], ["---:", "---", *["---:"] * len(names)]]
    for size, place in dict.fromkeys((s.size, s.place) for s in speeds):
        found = [cells[size, place, name] for name in names]
        if size == 0:
            values = [f"{s.ns:.0f} ns" for s in found]
        else:
            values = [f"{s.gb_per_s:.2f}" for s in found]
        lines.append([f"{size:,}", place if size else "", *values])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measure on one CPU, and print a table."""
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
    memory_bytes = 64 << 20 if args.quick else MEMORY_BYTES
    speeds = measure(args.sizes, args.repeat, args.min_s, memory_bytes)
    print(f"GB/s:\n\n{markdown(speeds)}\n")
    for key, value in environment.items():
        print(f"- {key}: {value}")
    if args.json:
        rows = [asdict(speed) for speed in speeds]
        result = {"environment": environment, "quick": args.quick, "rows": rows}
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
