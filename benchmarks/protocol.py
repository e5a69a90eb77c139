"""The measurement protocol: verify and warm up every reader, then time in rounds.

The readers of one workload, order and number of threads wait in separate processes and
are timed in turn, once per round, so a machine that slows down slows all of them. One
reader runs at a time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from environment import usable_cpus
from peers import PEERS, Peer

__all__ = ["Plan", "Row", "Start", "measure", "measure_starts"]

WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Plan:
    """The options of all measurements of a run."""

    data: Path
    scale: float
    batch_size: int
    repeat: int
    min_s: float
    pythons: Mapping[str, str] = field(
        default_factory=dict
    )  # Python interpreters of peers, if not this one.


@dataclass
class Row:
    """One reader on one workload; the times of an epoch in each round."""

    workload: str
    order: str
    threads: int
    peer: str
    status: str = "ready"  # Or "missing" or "failed", with a reason.
    reason: str = ""
    form: str = ""
    checks: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    n_records: int = 0
    nbytes: int = 0
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)

    @property
    def measured(self) -> bool:
        """Whether it was measured."""
        return bool(self.wall_s)

    @property
    def records_per_s(self) -> float:
        """Median wall time over the rounds."""
        return self.n_records / statistics.median(self.wall_s)

    @property
    def mb_per_s(self) -> float:
        """Megabytes of file per second, median over the rounds."""
        return self.nbytes / statistics.median(self.wall_s) / 1e6

    @property
    def mb_per_cpu_s(self) -> float:
        """Megabytes of file per CPU second of all threads."""
        return self.nbytes / statistics.median(self.cpu_s) / 1e6

    @property
    def spread(self) -> float:
        """(slowest - fastest round) / median."""
        return (max(self.wall_s) - min(self.wall_s)) / statistics.median(self.wall_s)

    def as_json(self) -> dict[str, Any]:
        """Return all fields and derived results."""
        derived = ("records_per_s", "mb_per_s", "mb_per_cpu_s", "spread")
        return asdict(self) | {n: getattr(self, n) for n in derived if self.measured}


@dataclass
class Start:
    """Costs of starting, once per process; see `worker.start`."""

    workload: str
    peer: str
    status: str = "ready"
    reason: str = ""
    import_s: list[float] = field(default_factory=list)
    first_batch_s: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    private_mb: list[float] = field(default_factory=list)

    def add(self, answer: dict[str, Any]) -> None:
        """Add the output of one process."""
        self.status, self.reason = answer["status"], answer.get("reason", "")
        if self.status == "ready":
            for name in ("import_s", "first_batch_s", "peak_mb", "private_mb"):
                getattr(self, name).append(answer[name])


def command(plan: Plan, row: Row, cpus: Sequence[int], *flags: str) -> list[str]:
    """Return the command line of a worker."""
    name = row.peer.partition(":")[0]
    options = {
        "--peer": row.peer,
        "--workload": row.workload,
        "--threads": row.threads,
        "--batch-size": plan.batch_size,
        "--scale": plan.scale,
        "--min-s": plan.min_s,
        "--data": plan.data,
    }
    words = [plan.pythons.get(name, sys.executable), str(WORKER), *flags]
    for option, value in options.items():
        words += [option, str(value)]
    if row.order == "shuffled":
        words.append("--shuffled")
    return [*words, "--cpus", *map(str, cpus)] if cpus else words


class Worker:
    """A reader in a separate process."""

    def __init__(self, row: Row, command: Sequence[str]) -> None:
        self.row = row
        peer = PEERS.get(row.peer.partition(":")[0], Peer("", ""))
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | peer.environment,
        )

    def answer(self) -> dict[str, Any]:
        """Return the next line of the worker."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            return {"status": "failed", "reason": f"ended with {self.process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def round(self) -> None:
        """Time one repetition, unless the reader has failed."""
        if self.row.status != "ready":
            return
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        answer = self.answer()
        if "status" in answer:
            vars(self.row).update(answer)
            return
        self.row.wall_s.append(answer["wall_s"])
        self.row.cpu_s.append(answer["cpu_s"])
        self.row.epochs.append(answer["epochs"])

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def measure(
    plan: Plan, workload: str, order: str, threads: int, peers: Sequence[str]
) -> list[Row]:
    """Verify and time `peers` on one workload, pinned to `threads` CPUs."""
    rows = [Row(workload, order, threads, peer) for peer in peers]
    cpus = usable_cpus()
    if cpus and len(cpus) < threads:
        for row in rows:
            row.status, row.reason = "missing", f"needs {threads} CPUs, has {len(cpus)}"
        return rows
    with ExitStack() as stack:
        workers = []
        for row in rows:
            worker = Worker(row, command(plan, row, cpus[:threads]))
            stack.callback(worker.close)
            vars(row).update(worker.answer())
            workers.append(worker)
        for _ in range(plan.repeat):
            for worker in workers:
                worker.round()
    return rows


def measure_starts(
    plan: Plan, workload: str, threads: int, peers: Sequence[str], repeat: int
) -> list[Start]:
    """Measure import time, first batch and memory of `peers` in `repeat` processes."""
    starts = [Start(workload, peer) for peer in peers]
    cpus = usable_cpus()[:threads]
    for _ in range(repeat):
        for found in starts:
            row = Row(workload, "sequential", threads, found.peer)
            worker = Worker(row, command(plan, row, cpus, "--start"))
            found.add(worker.answer())
            worker.close()
    return starts
