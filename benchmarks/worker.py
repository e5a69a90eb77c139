"""A reader in a separate process: pin, verify, warm up, then time on request.

It writes JSON lines: ``ready``, ``missing`` or ``failed`` once; then it runs one
repetition for each line it reads. With ``--start`` it writes the costs of starting.
Output of frameworks goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from peers import load
from peers.reader import MissingPeerError, Reader, Setup
from truth import MismatchError
from workloads import WORKLOADS, prepare

__all__: list[str] = []


def repetition(reader: Reader, n_batches: int, min_s: float) -> dict[str, float]:
    """Read whole epochs for at least `min_s` seconds."""
    n_epochs = delivered = 0
    wall, cpu = time.perf_counter(), time.process_time()
    while n_epochs == 0 or time.perf_counter() - wall < min_s:
        for _ in reader.epoch():
            delivered += 1
        n_epochs += 1
    result = {
        "wall_s": (time.perf_counter() - wall) / n_epochs,
        "cpu_s": (time.process_time() - cpu) / n_epochs,
        "epochs": n_epochs,
    }
    if delivered != n_epochs * n_batches:
        raise MismatchError(f"{delivered} batches in {n_epochs} epochs of {n_batches}")
    return result


def megabytes(name: str) -> float:
    """Return a size in /proc/self/status; NaN if the file does not exist."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    return float("nan")


def start(setup: Setup, peer: str) -> dict[str, float]:
    """Return the costs of starting, in a process that has imported only NumPy.

    Seconds to import the peer, and from making the reader to its first batch; megabytes
    over those before, in all (with pages of mapped files) and without those of files,
    at the most while an epoch goes by.
    """
    before, private_before = megabytes("VmRSS"), megabytes("RssAnon")
    began = time.perf_counter()
    make = load(peer)
    imported = time.perf_counter()
    reader = make(setup)
    batches = iter(reader.epoch())
    next(batches)
    first = time.perf_counter()
    private = megabytes("RssAnon")
    for _ in batches:
        private = max(private, megabytes("RssAnon"))
    return {
        "import_s": imported - began,
        "first_batch_s": first - imported,
        "peak_mb": megabytes("VmHWM") - before,
        "private_mb": private - private_before,
    }


def serve(args: argparse.Namespace, answers: TextIO) -> None:
    """Set up the reader, and run repetitions until the input ends."""

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    prepared = prepare(WORKLOADS[args.workload], args.data, args.scale)
    name, _, form = args.peer.partition(":")
    setup = Setup(prepared, args.threads, args.batch_size, form, args.shuffled)
    try:
        if args.start:
            answer(status="ready", **start(setup, name))
            return
        reader = load(name)(setup)
    except MissingPeerError as missing:
        answer(status="missing", reason=str(missing))
        return
    except Exception as error:  # noqa: BLE001 - whatever a peer raises is its result.
        answer(status="failed", reason=f"{type(error).__name__}: {error}")
        return
    try:
        n_batches = reader.verify()
        repetition(reader, n_batches, args.min_s)
    except Exception as error:  # noqa: BLE001 - whatever a peer raises is its result.
        answer(status="failed", reason=f"{type(error).__name__}: {error}")
        return
    answer(
        status="ready",
        form=reader.form,
        checks=reader.checks,
        versions={"python": platform.python_version(), **reader.versions},
        n_records=reader.n_records,
        nbytes=reader.nbytes,
    )
    for _ in sys.stdin:
        answer(**repetition(reader, n_batches, args.min_s))


def main() -> None:
    """Pin this process before any thread starts, then run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--scale", type=float, required=True)
    parser.add_argument("--min-s", type=float, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--shuffled", action="store_true")
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--cpus", type=int, nargs="*", default=[])
    args = parser.parse_args()
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        serve(args, answers)


if __name__ == "__main__":
    main()
