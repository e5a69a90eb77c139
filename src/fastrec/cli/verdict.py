"""The verdict of ``fastrec bench``: the most expensive stage, and the threads to use.

Both are functions of measured times. Every comparison has a margin larger than the noise
between two runs on an idle machine. On a busy machine, the verdict is provisional.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Timing", "Verdict", "busy_reason", "own_shares", "verdict_of"]

TIE = "tie"
_TIE_SHARE = 0.1  # of all CPU time: stages closer than this cost about the same
_THREAD_MARGIN = 1.1  # more threads must be faster by this factor to be recommended

# On an idle machine, one thread has a CPU all of the time, and rounds repeat.
_MAX_WALL_PER_CPU = 1.15
_MAX_SPREAD = 0.25
_MIN_FREE_SHARE = 0.9  # CPUs free of other processes, per thread
_MAX_DISK_SHARE = 0.1  # of the bytes, after the first round

_NAMES = {
    "read": "reading",
    "inflate": "decompression",
    "checksums": "checksums",
    "decode": "decoding",
    "deliver": "delivering the bytes",
}
_ADVICE = {
    "read": "copying from the page cache is limited by memory: smaller records help",
    "inflate": "expand the files once with cache_dir=, or install the extra gzip",
    "checksums": "checksums are one pass over the bytes: smaller records help",
    "decode": "decode fewer columns (try --columns), and store arrays as bytes (fr.Raw)",
    "deliver": "the bytes are copied once: smaller records help",
    TIE: "no single stage dominates",
}


class Timing(NamedTuple):
    """Nanoseconds per record, each the least of all rounds.

    `cpu_ns` is summed over threads. `spread` is the median wall time of the rounds over
    the least, minus 1.
    """

    wall_ns: float
    cpu_ns: float
    spread: float = 0.0

    @property
    def records_per_s(self) -> float:
        """Records per second by the wall clock."""
        return 1e9 / self.wall_ns


class Verdict(NamedTuple):
    """The most expensive stage, or "tie", and the fewest threads that are fast enough."""

    stage: str
    num_threads: int
    text: str
    advice: str


def own_shares(stages: Mapping[str, Timing]) -> dict[str, float]:
    """Return the share of CPU time that each stage adds to those before it, 0 to 1."""
    own: dict[str, float] = {}
    before = 0.0
    for name, timing in stages.items():
        own[name] = max(0.0, timing.cpu_ns - before)
        before = max(before, timing.cpu_ns)
    return {name: cpu_ns / before for name, cpu_ns in own.items()}


def verdict_of(stages: Mapping[str, Timing], loaders: Mapping[int, Timing]) -> Verdict:
    """Return the verdict, which is provisional on a busy machine.

    `stages` maps each stage to the times of it and all stages before it. `loaders` maps
    `num_threads` to the times of all stages with these threads.
    """
    shares = own_shares(stages)
    first, second, *_ = [*sorted(shares, key=shares.__getitem__, reverse=True), ""]
    if second and shares[first] - shares[second] < _TIE_SHARE:
        stage = TIE
        text = (
            f"{_NAMES[first]} and {_NAMES[second]} cost about the same: "
            f"{shares[first]:.0%} and {shares[second]:.0%} of the CPU time"
        )
    else:
        stage = first
        text = (
            f"{_NAMES[first]} is the largest cost, {shares[first]:.0%} of the CPU time"
        )
    n_threads, threads = _threads(loaders)
    return Verdict(stage, n_threads, text, f"{_ADVICE[stage]}; {threads}")


def _threads(loaders: Mapping[int, Timing]) -> tuple[int, str]:
    """Return the fewest threads that are about as fast as the fastest, and why."""
    least = min(timing.wall_ns for timing in loaders.values())
    fewest = min(
        n for n, timing in loaders.items() if timing.wall_ns <= least * _THREAD_MARGIN
    )
    most = max(loaders)
    if not fewest:
        return 0, f"threads do not make it faster (num_threads=0 to {most} measured)"
    gain = loaders[0].wall_ns / loaders[fewest].wall_ns
    text = f"num_threads={fewest} is {gain:.1f} times as fast as num_threads=0"
    if fewest < most:
        text += ", and more threads do not help"
    return fewest, text


def busy_reason(
    one_thread: Timing,
    spread: float,
    *,
    free_cpus: float,
    num_threads: int,
    disk_share: float,
) -> str:
    """Return why timings are unreliable; "" on an idle machine.

    `spread` is the largest of all rows, `free_cpus` the number of CPUs that other processes
    did not use, and `disk_share` the share of bytes that came from the disk again.
    """
    if disk_share > _MAX_DISK_SHARE:
        return "the files do not stay in the page cache"
    if free_cpus < _MIN_FREE_SHARE * num_threads:
        return (
            f"other processes leave {free_cpus:.1f} CPUs for num_threads={num_threads}"
        )
    share = one_thread.cpu_ns / one_thread.wall_ns
    if share * _MAX_WALL_PER_CPU < 1:
        return f"one thread had a CPU for only {share:.0%} of the time"
    if spread > _MAX_SPREAD:
        return f"rounds of the same work differ by {spread:.0%}"
    return ""
