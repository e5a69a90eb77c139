"""Run many epochs, and check that memory, files and threads do not grow.

usage: python -m campaigns.soak EPOCHS [SEED]

Every epoch has a new loader: of plain, compressed and remote files with a damaged record,
or of a mix; in order and shuffled; with and without threads and transforms. The server of
the remote files injects transient faults. Some epochs are abandoned, others are
interrupted and continued, or end in an exception of a transform. Every record of every
complete epoch is compared.

Memory, open files and threads are measured after each round of all kinds, when the
allocator has returned free memory. Ten lines report the medians; the first is the warm-up.
The last line may report at most 1 % more memory than the second, and the same files and
threads.
"""

from __future__ import annotations

import ctypes
import gc
import gzip
import itertools
import json
import logging
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import fastrec as fr
from campaigns.signals import Signals, left_open
from columns import Untyped
from object_server import Request, random_faults, served

N_FILES = 4
N_RECORDS = 4_000
N_LINES = 10
FAULT_RATE = 0.02
INTERRUPTED_SHARE = 0.1  # of the calls in epochs with signals
SPEC: dict[str, Untyped] = {
    "image": fr.Raw((784,), "uint8"),
    "ids": fr.VarLen("int64"),
    "name": fr.FixedLen((), "bytes"),
    "label": fr.FixedLen((), "int64"),
}
FAILING_LABEL = N_RECORDS * 3 // 4 + 1


class BrokenError(Exception):
    """The exception of a transform."""


def fail(batch: Untyped) -> Untyped:
    """Raise an exception for one batch of an epoch."""
    if FAILING_LABEL in batch["label"]:
        raise BrokenError
    return batch


THREADS: list[dict[str, Untyped]] = [
    {"num_threads": 0},
    {"num_threads": 2},
    {"num_threads": 2, "transform": dict, "transform_threads": 2},
    {"num_threads": 2, "transform": fail, "transform_threads": 2},
]


def write_files(folder: Path) -> None:
    """Write each file plain and compressed, with its first record damaged."""
    rng = np.random.default_rng(0)
    per_file = N_RECORDS // N_FILES
    for i in range(N_FILES):
        path = folder / f"{i}.tfrecord"
        with fr.Writer(path) as writer:
            for n in range(i * per_file, (i + 1) * per_file):
                image = rng.integers(0, 256, 784, np.uint8)
                image[0] = n % 251
                writer.write(
                    {
                        "image": image.tobytes(),
                        "ids": np.arange(n, n + n % 9),
                        "name": b"%d" % n,
                        "label": n,
                    }
                )
        content = bytearray(path.read_bytes())
        content[20] ^= 1  # in the first payload
        path.write_bytes(content)
        path.with_suffix(".gz").write_bytes(gzip.compress(content, 1))


def serve(folder: Path, seed: int, url: Connection) -> None:
    """Serve the files of a folder, with faults, until the process is ended."""
    inject = random_faults(seed, FAULT_RATE, ("500", "reset", "cut", "few"))

    def inject_and_forget(request: Request) -> str | None:
        server.requests.clear()
        return inject(request)

    objects = {path.name: path.read_bytes() for path in folder.iterdir()}
    with served(objects, inject=inject_and_forget) as server:
        url.send(server.url)
        signal.pause()


def check(batch: Untyped, seen: list[np.ndarray]) -> None:
    """Compare the columns with the values that follow from the label."""
    n = batch["label"]
    np.testing.assert_array_equal(batch["image"][:, 0], n % 251)
    np.testing.assert_array_equal(batch["ids"].lengths, n % 9)
    starts = np.repeat(n - np.append(0, np.cumsum(n % 9)[:-1]), n % 9)
    places = np.arange(len(starts))
    np.testing.assert_array_equal(batch["ids"].values, starts + places)
    assert batch["name"].tolist() == [b"%d" % i for i in n.tolist()]
    seen.append(np.array(n))


def rounds(folder: Path, url: str) -> Iterator[list[tuple[str, Untyped]]]:
    """Yield names and loaders of all kinds, of newly opened datasets, endlessly."""

    def opened(files: str, **options: Untyped) -> fr.Dataset:
        return fr.open(files, features=SPEC, on_error="skip", **options)

    def mixed(weight: int) -> fr.Dataset:
        plain = opened(f"{folder}/*.tfrecord")
        return fr.mix({"a": (plain, weight), "b": (plain, 1)}, length=N_RECORDS)

    plain, packed = f"{folder}/*.tfrecord", f"{folder}/*.gz"
    shuffles: list[Untyped] = [False, True, fr.Blocks(), fr.Window(1000)]
    while True:
        kinds: list[tuple[str, Callable[[], fr.Dataset], list[Untyped]]] = [
            ("mmap", lambda: opened(plain, io="mmap"), shuffles),
            ("pread", lambda: opened(plain, io="pread"), shuffles),
            ("gzip", lambda: opened(packed), [False, fr.Window(1000)]),
            ("remote", lambda: opened(f"{url}/*.tfrecord"), [False, fr.Blocks()]),
            ("remote gzip", lambda: opened(f"{url}/*.gz"), [False]),
            ("mix", lambda: mixed(3), [False, True]),
        ]
        yield [
            (kind, make().loader(256, shuffle=shuffle, **threads))
            for kind, make, orders in kinds
            for shuffle in orders
            for threads in THREADS
        ]


def read(
    loader: Untyped, way: int, kind: str, signals: Signals
) -> tuple[int, np.ndarray]:
    """Read an epoch; return its batches, and the labels if it was read to its end."""
    seen: list[np.ndarray] = []
    if way == 0:  # abandoned
        for batch in itertools.islice(loader, 7):
            check(batch, seen)
        return len(seen), np.empty(0, np.int64)
    iterator, is_over = iter(loader), False
    got: list[Untyped] = []

    def take() -> None:
        nonlocal is_over
        for batch in iterator:
            got.append(batch)
            return
        is_over = True

    while not is_over:
        try:
            if way == 1 and signals.draw.random() < INTERRUPTED_SHARE:
                signals.call(kind, take)  # if it gets no batch, the next call gets it
            else:
                take()
        except BrokenError:
            return len(seen), np.empty(0, np.int64)
        for batch in got:
            check(batch, seen)
        got.clear()
    return len(seen), np.concatenate(seen)


def measured() -> tuple[int, int, int]:
    """Return the memory in bytes without mapped files, the open files and the threads."""
    gc.collect()
    counts = []
    for _ in range(20):  # threads take a moment to stop
        time.sleep(0.05)
        files, n_threads = left_open()
        counts.append((files.total(), n_threads))
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return (1024 * int(line.split()[1]), *min(counts))


def soak(folder: Path, url: str, n_wanted: int, seed: int) -> dict[str, Untyped]:
    """Run, and return the figures; fail if memory, files or threads grew."""
    signals = Signals("single", seed)
    complete = np.setdiff1d(
        np.arange(N_RECORDS), np.arange(0, N_RECORDS, N_RECORDS // N_FILES)
    )
    begin = time.monotonic()
    lines: list[tuple[int, ...]] = []
    measures: list[tuple[int, int, int]] = []
    n_epochs = n_batches = n_rounds = 0
    for loaders in rounds(folder, url):
        for place, (kind, loader) in enumerate(loaders):
            n, labels = read(loader, (place + n_rounds) % 3, kind, signals)
            if len(labels) and kind != "mix":
                assert np.array_equal(np.sort(labels), complete), kind
            n_batches += n
            n_epochs += 1
        n_rounds += 1
        loaders.clear()
        del loader
        measures.append(measured())
        if n_epochs < (len(lines) + 1) * n_wanted / N_LINES:
            continue
        lines.append(tuple(map(statistics.median_low, zip(*measures, strict=True))))
        measures.clear()
        memory, n_files, n_threads = lines[-1]
        print(
            f"{(time.monotonic() - begin) / 60:6.1f} min  {n_epochs:8,} epochs  "
            f"{n_batches:10,} batches  {memory / 1e6:8.2f} MB  {n_files} files  "
            f"{n_threads} threads",
            flush=True,
        )
        if len(lines) == N_LINES:
            break
    (first, *counts), (last, *last_counts) = lines[1], lines[-1]
    growth = 100 * (last / first - 1)
    assert growth <= 1, f"memory grew by {growth:.2f} %"
    assert last_counts == counts, (counts, last_counts)
    return {
        "runs": n_epochs,
        "batches": n_batches,
        "signals": signals.n_raised,
        "percent_more_memory": round(growth, 2),
    }


def main() -> None:
    if "MALLOC_ARENA_MAX" not in os.environ:  # without the overhead of many arenas
        os.environ["MALLOC_ARENA_MAX"] = "1"
        os.execv(
            sys.executable, [sys.executable, "-m", "campaigns.soak", *sys.argv[1:]]
        )
    n_wanted, seed = int(sys.argv[1]), int((*sys.argv, "0")[2])
    logging.getLogger("fastrec").setLevel(logging.ERROR)  # of the damaged record
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "data")
        folder.mkdir()
        os.environ["FASTREC_CACHE"] = f"{name}/cache"
        write_files(folder)
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        server = context.Process(target=serve, args=(folder, seed, theirs), daemon=True)
        server.start()
        try:
            figures = soak(folder, ours.recv(), n_wanted, seed)
        finally:
            server.terminate()
            server.join()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
