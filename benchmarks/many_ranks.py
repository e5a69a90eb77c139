"""Simulate a job of many ranks over many files on one machine.

It writes sparse files and an index of records that do not exist, and writes real records
only to the files that the measured ranks read. Each rank is measured in a separate
process: memory, time to open, time to the first step, time to resume with another world size,
and the ranges of bytes that its steps read, as a remote store would see them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import fastrec as fr
from environment import describe
from fastrec import _core
from fastrec.storage.index_files import IndexPlace, Scope

__all__: list[str] = []

N_PATTERNS = 16  # files of different contents
BATCH = 256
STEPS = 200  # whose ranges are counted
BLOCK_BYTES = 4_000_000  # as by default

Results: TypeAlias = dict[str, float]

HOW = ("blocks", "shuffle")


def patterns(folder: Path, n_records: int) -> list[Path]:
    """Write the contents that the files have, of records of 500 to 1,500 bytes."""
    rng = np.random.default_rng(0)
    paths = [folder / f"pattern-{i}.bin" for i in range(N_PATTERNS)]
    for path in paths:
        if not path.exists():
            with fr.Writer(path.with_suffix(".tfrecord")) as writer:
                for size in rng.integers(500, 1500, n_records):
                    writer.write_record(bytes(size))
            path.with_suffix(".tfrecord").rename(path)
    return paths


def synthesize(folder: Path, n_files: int, n_records: int) -> float:
    """Write sparse files and their index; return the size of the index file."""
    contents = patterns(folder, n_records)
    (folder / "data").mkdir(exist_ok=True)
    offsets = []
    for content in contents:
        (index,) = fr.open(content)._source.files.indexes()
        offsets.append(index.offsets)
    names, indexes = [], []
    for i in range(n_files):
        path = folder / "data" / f"train-{i:06d}.tfrecord"
        of_file = offsets[i % N_PATTERNS]
        with path.open("ab") as file:
            file.truncate(int(of_file[-1]))
        status = path.stat()
        indexes.append(
            _core.Index.from_offsets(
                of_file, (status.st_size, status.st_mtime_ns), os.fsencode(path)
            )
        )
        names.append(str(path))
    scope = Scope.of(names)
    target: Any = IndexPlace(folder / "index").path(scope)
    target.parent.mkdir(exist_ok=True)
    _core.save_indexes(
        os.fsencode(target), scope.names, _core.Indexes(indexes), [], None
    )
    return int(target.stat().st_size)


def make_real(folder: Path, dataset: fr.Dataset, records: np.ndarray) -> None:
    """Write the contents of these records, keeping the times of their files."""
    contents = patterns(folder, 0)
    for file, _, begin, end in dataset._source.places(records).tolist():
        path = Path(dataset.files[file])
        before = path.stat()
        with contents[file % N_PATTERNS].open("rb") as source, path.open("r+b") as to:
            source.seek(begin)
            to.seek(begin)
            to.write(source.read(end - begin))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def memory() -> Results:
    """Return the MB of this process, its own and shared with others through the cache."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        for key, name in (("RssAnon", "private_mb"), ("RssFile", "shared_mb")):
            if line.startswith(key):
                found[name] = int(line.split()[1]) / 1024
    return found


def ranges(dataset: fr.Dataset, steps: Iterator[np.ndarray], how: str) -> Results:
    """Return the ranges of bytes that steps read.

    The core reads a block of `fastrec.Blocks` in one piece; otherwise, neighbouring
    records are one range.
    """
    seen = [records[records >= 0] for records in steps]
    numbers = np.unique(np.concatenate(seen))
    ends = np.cumsum(dataset._source.files.n_records_by_file())
    files = np.searchsorted(ends, numbers, side="right")
    n_apart = 1
    if how == "blocks":
        n_apart = BLOCK_BYTES * int(ends[-1]) // dataset._source.files.n_bytes
    is_new = (np.diff(numbers, prepend=-n_apart - 1) > n_apart) | (
        np.diff(files, prepend=-1) != 0
    )
    first = np.flatnonzero(is_new)
    last = np.append(first[1:], len(numbers)) - 1
    n_records = int((numbers[last] - numbers[first] + 1).sum())
    n_bytes = n_records / int(ends[-1]) * dataset._source.files.n_bytes
    return {
        "requests_per_step": len(first) / len(seen),
        "kb_per_request": n_bytes / len(first) / 1e3,
    }


def measure(folder: Path, rank: int, world_size: int, how: str) -> Results:
    """Measure one rank."""

    def loader(dataset: fr.Dataset, rank: int, n_ranks: int) -> fr.Loader:
        return dataset.loader(
            BATCH,
            shuffle=fr.Blocks(lanes=world_size) if how == "blocks" else True,
            seed=1,
            drop_last=True,
            rank=rank,
            world_size=n_ranks,
        )

    half = world_size // 2
    begin = time.perf_counter()
    cpu = time.process_time()
    dataset = fr.open(
        str(folder / "data" / "*.tfrecord"),
        features={"record": fr.Record()},
        index_dir=folder / "index",
    )
    n_records = len(dataset)
    result = {"open_s": time.perf_counter() - begin, "n_records": float(n_records)}
    job = loader(dataset, rank, world_size)
    plan = job._options.planner.plan(1, 0, 0)
    ahead = job._options.prefetch + 2
    make_real(
        folder, dataset, np.concatenate([plan.rows(step)[1] for step in range(ahead)])
    )
    begin = time.perf_counter()
    batches = iter(job)
    next(batches)
    result["first_step_s"] = time.perf_counter() - begin
    state = job.state_dict()
    result["state_bytes"] = float(len(json.dumps(state)))
    del batches

    other = loader(dataset, rank % half, half)
    other.load_state_dict(state)
    at = other._progress.cursor
    plan = other._options.planner.plan(1, at.epoch, at.phase)
    steps = range(at.step, at.step + ahead)
    make_real(folder, dataset, np.concatenate([plan.rows(step)[1] for step in steps]))
    begin = time.perf_counter()
    resumed = loader(dataset, rank % half, half)
    resumed.load_state_dict(state)
    next(iter(resumed))
    result["resume_s"] = time.perf_counter() - begin

    middle = job._options.planner.plan(1, 0, 0)
    first = middle.n_steps // 2
    steps = range(first, min(first + STEPS, middle.n_steps))
    result |= ranges(dataset, (middle.rows(step)[1] for step in steps), how)
    result |= memory()
    result["cpu_s"] = time.process_time() - cpu
    result["descriptors"] = float(len(list(Path("/proc/self/fd").iterdir())))
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result


def main() -> None:
    """Write the data, and print a line of JSON for each rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=10_000, help="in each file")
    parser.add_argument("--world-size", type=int, default=1024)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", nargs=2, metavar=("RANK", "SHUFFLE"))
    arguments = parser.parse_args()
    if arguments.measure:
        rank, how = arguments.measure
        found = measure(arguments.folder, int(rank), arguments.world_size, how)
        print(json.dumps({key: round(value, 3) for key, value in found.items()}))
        return
    print(describe())
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        os.environ["FASTREC_CACHE"] = str(folder / "cache")
        begin = time.perf_counter()
        size = synthesize(folder, arguments.files, arguments.records)
        n_records = arguments.files * arguments.records
        print(
            f"index of {n_records:,} records in {arguments.files:,} files: "
            f"{size / 1e6:,.0f} MB, {size / n_records:.2f} bytes a record; written in "
            f"{time.perf_counter() - begin:.0f} s"
        )
        last = arguments.world_size - 1
        for how, rank in itertools.product(HOW, (0, last // 2, last)):
            command = [sys.executable, __file__, "--folder", folder]
            command += ["--world-size", arguments.world_size, "--measure", rank, how]
            run = subprocess.run(
                [*map(str, command)], check=True, capture_output=True, text=True
            )
            print(f"{how}, rank {rank}: {run.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
