"""Run epochs for a long time, and check that memory and open files do not grow.

Every epoch has a new loader, of plain and compressed files with a damaged record, in
order and shuffled, with and without threads and transforms; some epochs are abandoned.
About ten lines report the memory and the open files, each after the same number of
epochs of each kind, and after the allocator has returned free memory. Exits with 1 if
the last line reports over 1 % more memory than the second, or other open files.
The first line is the warm-up.

    MALLOC_ARENA_MAX=1 python benchmarks/soak.py --minutes 20

One arena excludes the overhead of per-thread arenas in the C library.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import gzip
import itertools
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fastrec as fr

N_FILES = 4
N_RECORDS = 20_000
SPEC = {
    "image": fr.Raw((784,), "uint8"),
    "ids": fr.VarLen("int64"),
    "name": fr.FixedLen((), "bytes"),
    "label": fr.FixedLen((), "int64"),
}


def write_files(folder: Path) -> None:
    """Write each file plain and compressed."""
    rng = np.random.default_rng(0)
    for i in range(N_FILES):
        path = folder / f"{i}.tfrecord"
        with fr.Writer(path) as writer:
            for n in range(N_RECORDS // N_FILES):
                writer.write(
                    {
                        "image": rng.bytes(784),
                        "ids": rng.integers(0, 1000, n % 9),
                        "name": b"%d" % n,
                        "label": n,
                    }
                )
        content = bytearray(path.read_bytes())
        content[20] ^= 1  # in the first payload
        path.write_bytes(content)
        path.with_suffix(".gz").write_bytes(gzip.compress(content, 1))


def rounds(folder: Path) -> Iterator[list[Any]]:
    """Yield loaders of all kinds, of newly opened datasets, endlessly."""
    shapes: list[dict[str, Any]] = [
        {"num_threads": 0},
        {"num_threads": 2},
        {"num_threads": 2, "transform": dict, "transform_threads": 2},
    ]
    shuffles: dict[str, list[Any]] = {
        "tfrecord": [False, True, fr.Blocks(), fr.Window(1000)],
        "gz": [False, fr.Window(1000)],
    }
    kinds = [(k, s, o) for k in shuffles for s in shuffles[k] for o in shapes]
    while True:
        yield [
            fr.open(folder / f"*.{kind}", features=SPEC, on_error="skip", io=io).loader(
                256, shuffle=shuffle, **options
            )
            for kind, shuffle, options in kinds
            for io in (("mmap", "pread") if kind == "tfrecord" else ("auto",))
        ]


def give_back() -> None:
    """Make the C library return free memory to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def open_files() -> int:
    """Return the open files, after waiting for threads to stop."""
    time.sleep(0.05)
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def resident_bytes() -> int:
    """Return the memory of this process without mapped files."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return 1024 * int(line.split()[1])


def soak(folder: Path, minutes: float) -> bool:
    """Run, and return whether memory and open files stayed constant."""
    begin = time.monotonic()
    interval = 6 * minutes  # ten lines, after the first tenth
    lines: list[tuple[int, int]] = []
    n_batches = n_epochs = 0
    for loaders in rounds(folder):
        while loaders:
            loader = loaders.pop()
            # Abandon every third epoch.
            n = 7 if n_epochs % 3 == 2 else None
            n_batches += sum(1 for _ in itertools.islice(loader, n))
            n_epochs += 1
        if time.monotonic() - begin < (len(lines) + 1) * interval:
            continue
        del loader
        gc.collect()
        give_back()
        n_files = min(open_files() for _ in range(10))
        lines.append((resident_bytes(), n_files))
        print(
            f"{(time.monotonic() - begin) / 60:6.1f} min  {n_epochs:8,} epochs  "
            f"{n_batches:10,} batches  {lines[-1][0] / 1e6:8.2f} MB  {n_files} files",
            flush=True,
        )
        if len(lines) == 10:
            break
    (first, n_first), (last, n_last) = lines[1], lines[-1]
    print(f"memory {100 * (last / first - 1):+.2f} %, files {n_last - n_first:+d}")
    return last <= 1.01 * first and n_last == n_first


def main() -> None:
    """Run for the time given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    arguments = parser.parse_args()
    logging.getLogger("fastrec").setLevel(logging.ERROR)  # of the damaged record
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        is_flat = soak(Path(folder), arguments.minutes)
    sys.exit(0 if is_flat else 1)


if __name__ == "__main__":
    main()
