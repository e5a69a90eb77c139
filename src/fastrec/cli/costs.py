"""Measure the time of each stage from files to batches, on the same records.

Each stage is measured together with all stages before it, in rounds over the same sample,
so the cost of a stage is a difference.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import TypeAlias

import numpy as np

import fastrec as fr
from fastrec import _core
from fastrec.arrays.batch import n_rows
from fastrec.cli.terminal import counted
from fastrec.cli.verdict import Timing
from fastrec.features.record import Record
from fastrec.loader.order import records_of
from fastrec.storage.compression import inflated
from fastrec.storage.parallel import Progress
from fastrec.storage.paths import version_of
from fastrec.storage.remote import RemotePath, pieces
from fastrec.storage.stream_readers import frame_stream

__all__ = [
    "FirstRead",
    "Measured",
    "Sample",
    "Stage",
    "decode",
    "first_read",
    "inflate",
    "measure",
    "memcpy",
    "read",
    "sample_of",
    "verify",
]

# More than CPU caches hold, and small enough to read many times.
SAMPLE_BYTES = 256 << 20
_COMPRESSED_BYTES = SAMPLE_BYTES // 4
_MIN_FIRST_BYTES = 4 << 20  # read even if it exceeds the time limit
_COPIED_BYTES = 64 << 20

_N_ROUNDS = 6

_BLOCK_BYTES = 256 << 10
# Amounts between two checks of the clock.
_COPIED_AT_ONCE = 8 << 20
_VERIFIED_AT_ONCE = 1024

# One run over the sample, which yields numbers of records, perhaps fractions.
Stage: TypeAlias = "Callable[[], Generator[float]]"


@dataclass(frozen=True)
class FirstRead:
    """The first read of the files; `ranges` maps each file to the bytes read.

    `disk_bytes` is the number of bytes that came from the disk; some systems report 0.
    """

    ranges: dict[str, int]
    seconds: float
    disk_bytes: int

    @property
    def bytes_per_s(self) -> float:
        """The rate in bytes per second."""
        return sum(self.ranges.values()) / self.seconds

    @property
    def is_from_disk(self) -> bool:
        """Whether most bytes were not in the page cache."""
        return 2 * self.disk_bytes > sum(self.ranges.values())


@dataclass(frozen=True)
class Sample:
    """The measured records; `ranges` maps each file to the bytes they take in it.

    `n_bytes` is the size of their frames. `not_decoded` is the reason if records are read
    as bytes; "" if they are decoded.
    """

    dataset: fr.Dataset
    ranges: dict[str, int]
    n_records: int
    n_bytes: int
    not_decoded: str = ""

    @property
    def file_bytes(self) -> int:
        """The bytes of all files."""
        return sum(self.ranges.values())


@dataclass(frozen=True)
class Measured:
    """The times of all stages, and what else happened while they were measured.

    `free_cpus` is the number of CPUs that other processes did not use, all CPUs on systems
    other than Linux. `disk_bytes` is the number of bytes read from the disk.
    """

    timings: dict[str, Timing]
    free_cpus: float
    disk_bytes: int


# The sample.


def first_read(files: Sequence[str], *, is_streamed: bool, seconds: float) -> FirstRead:
    """Read the first files once, for at most `seconds` and the bytes of a sample."""
    n_max = _COMPRESSED_BYTES if is_streamed else SAMPLE_BYTES
    ranges: dict[str, int] = {}
    disk_bytes, begin = _disk_bytes(), perf_counter()
    n_bytes = 0
    for path in files:
        ranges[path] = 0
        for n_read in _blocks(path, n_max - n_bytes):
            ranges[path] += n_read
            n_bytes += n_read
            if perf_counter() - begin > seconds and n_bytes >= _MIN_FIRST_BYTES:
                n_max = n_bytes
                break
        if n_bytes >= n_max:
            break
    elapsed = perf_counter() - begin
    return FirstRead(ranges, elapsed, _disk_bytes() - disk_bytes)


def _disk_bytes() -> int:
    if sys.platform == "win32":
        return 0
    import resource

    blocks = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
    return blocks * 512


def _blocks(path: str, n_bytes: int) -> Generator[int]:
    """Read the first `n_bytes` of a file, and yield the size of each block."""
    if isinstance(path, RemotePath):
        for piece in pieces(path, version_of(path)):
            size = min(n_bytes, memoryview(piece).nbytes)
            n_bytes -= size
            yield size
            if not n_bytes:
                return
        return
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        while n_bytes and (n_read := file.readinto(buffer[:n_bytes])):
            n_bytes -= n_read
            yield n_read


def sample_of(first: FirstRead, columns: Sequence[str] | None = None) -> Sample:
    """Return the records in the bytes of the first read, at least one.

    Records that are not tf.train.Examples are read as bytes. Raises a KeyError for a
    missing column.
    """
    dataset = fr.open(list(first.ranges))
    if columns:
        dataset = dataset.select_columns(columns)
    sample = (_streamed if dataset.is_streamed else _indexed)(dataset, first.ranges)
    if not sample.n_records:
        msg = f"no records in {counted(len(dataset.files), 'file')}"
        raise fr.Error(msg)
    try:
        if dataset.schema:
            return sample
        reason = "the records have no features"
    except (fr.DecodeError, fr.SchemaError) as error:
        reason = error.reason
    serialized = sample.dataset.with_features({"record": Record()})
    return dataclasses.replace(sample, dataset=serialized, not_decoded=reason)


def _indexed(dataset: fr.Dataset, n_read: Mapping[str, int]) -> Sample:
    ranges: dict[str, int] = {}
    n_records = 0
    for path, index in zip(dataset.files, dataset._view.files.indexes(), strict=True):
        n_in_file = int(np.searchsorted(index.offsets, n_read[path], side="right")) - 1
        if not n_records and not n_in_file:
            n_in_file = min(1, len(index))  # the first record, whatever its size
        n_records += n_in_file
        ranges[path] = int(index.offsets[n_in_file])
        if n_in_file < len(index):
            break
    n_bytes = sum(ranges.values())
    return Sample(dataset.select(range(n_records)), ranges, n_records, n_bytes)


def _streamed(dataset: fr.Dataset, n_read: Mapping[str, int]) -> Sample:
    ranges: dict[str, int] = {}
    n_content = n_records = n_bytes = 0
    is_full = False
    for path, content in dataset._view.files.contents():
        ranges[path] = 0

        def count(n_bytes: int, path: str = path) -> None:
            ranges[path] = n_bytes

        with contextlib.closing(inflated(path, content, on_read=count)) as pieces:
            for piece in pieces:
                n_content += len(piece)
                is_full = n_content >= SAMPLE_BYTES or ranges[path] > n_read[path]
                if is_full:
                    break
        if is_full:
            break
    with _frames(dataset) as frames:
        while n_bytes < n_content and (verified := frames.verify(1))[0]:
            n_records += verified[0]
            n_bytes += verified[1]
    return Sample(dataset, ranges, n_records, n_bytes)


def _frames(
    dataset: fr.Dataset,
) -> contextlib.AbstractContextManager[_core.FrameStream]:
    files = dataset._view.files
    return frame_stream(
        files.contents(), files.table, range(len(dataset.files)), "raise"
    )


# The stages.


def read(sample: Sample) -> Generator[float]:
    """Copy the bytes of the files into private memory."""
    n_per_byte = sample.n_records / sample.file_bytes
    table = sample.dataset._view.files.table
    for file, (path, n_bytes) in enumerate(sample.ranges.items()):
        if sample.dataset.is_streamed:
            for n_read in _blocks(path, n_bytes):
                yield n_per_byte * n_read
            continue
        for begin in range(0, n_bytes, _COPIED_AT_ONCE):
            end = min(begin + _COPIED_AT_ONCE, n_bytes)
            yield n_per_byte * _core.copy_bytes(table, file, begin, end)


def inflate(sample: Sample) -> Generator[float]:
    """Read and inflate."""
    n_left = sample.n_bytes
    for path, content in sample.dataset._view.files.contents():
        for piece in inflated(path, content):
            yield sample.n_records * min(len(piece), n_left) / sample.n_bytes
            n_left -= len(piece)
            if n_left <= 0:
                return


def verify(sample: Sample) -> Generator[float]:
    """Read, inflate if necessary, and verify both checksums of each record."""
    n_left = sample.n_records
    view = sample.dataset._view
    if sample.dataset.is_streamed:
        with _frames(sample.dataset) as frames:
            while n_left:
                n_done, _ = frames.verify(min(n_left, _VERIFIED_AT_ONCE))
                n_left -= n_done
                yield n_done
        return
    table, catalog = view.files.table, view.catalog()
    for first in range(0, n_left, _VERIFIED_AT_ONCE):
        numbers = np.arange(first, min(first + _VERIFIED_AT_ONCE, n_left))
        _core.verify_records(table, catalog, records_of(view, numbers))
        yield len(numbers)


def decode(loader: fr.Loader, sample: Sample) -> Generator[float]:
    """Read, verify and decode: take the batches of a loader."""
    n_done = 0
    for batch in loader:
        n_done += n_rows(batch)
        yield n_rows(batch)
        if n_done >= sample.n_records:
            return


def memcpy(sample: Sample) -> Stage:
    """Return a stage that copies more memory than CPU caches hold."""
    source, target = np.ones((2, _COPIED_BYTES), np.uint8)
    n_per_copy = sample.n_records * source.nbytes / sample.n_bytes

    def copy() -> Generator[float]:
        while True:
            np.copyto(target, source)
            yield n_per_copy

    return copy


# Measuring.


def measure(
    stages: Mapping[str, Stage],
    seconds: float,
    progress: Progress = lambda _done, _total: None,
) -> Measured:
    """Run rounds of all stages for about `seconds`; discard the first round.

    Calls ``progress(seconds_so_far, seconds)`` after each stage.
    """
    slice_s = seconds / (_N_ROUNDS * len(stages))
    rounds: list[list[tuple[float, float]]] = []
    begin = perf_counter()
    while len(rounds) < 2 or perf_counter() - begin <= seconds:
        if len(rounds) == 1:
            busy_s, disk_bytes = _busy_s(), _disk_bytes()
            wall_s, cpu_s = perf_counter(), process_time()
        rounds.append([])
        for stage in stages.values():
            rounds[-1].append(_passes(stage, slice_s))
            progress(int(perf_counter() - begin), int(seconds))
    cpu_s, wall_s = process_time() - cpu_s, perf_counter() - wall_s
    others_s = max(0.0, _busy_s() - busy_s - cpu_s)
    return Measured(
        {
            name: _timing(passes)
            for name, passes in zip(stages, zip(*rounds[1:], strict=True), strict=True)
        },
        free_cpus=(os.cpu_count() or 1) - others_s / wall_s,
        disk_bytes=_disk_bytes() - disk_bytes,
    )


def _timing(passes: Sequence[tuple[float, float]]) -> Timing:
    wall, cpu = zip(*passes, strict=True)
    return Timing(min(wall), min(cpu), statistics.median(wall) / min(wall) - 1)


def _busy_s() -> float:
    """Return the CPU seconds of all processes; 0 on systems other than Linux."""
    try:
        sums = Path("/proc/stat").read_text("ascii").split("\n", 1)[0]
    except OSError:
        return 0
    user, nice, system, _idle, _iowait, irq, softirq, steal = sums.split()[1:9]
    ticks = sum(map(int, (user, nice, system, irq, softirq, steal)))
    return ticks / os.sysconf("SC_CLK_TCK")


def _passes(stage: Stage, seconds: float) -> tuple[float, float]:
    """Run passes for at least `seconds`, the last one perhaps in part, or one pass.

    Returns the wall and CPU time in nanoseconds per record.
    """
    n_done = 0.0
    is_over = False
    wall, cpu = perf_counter(), process_time()
    while not is_over:
        with contextlib.closing(stage()) as progress:
            for n_more in progress:
                n_done += n_more
                is_over = n_done > 0 and perf_counter() - wall >= seconds
                if is_over:
                    break
    wall_s, cpu_s = perf_counter() - wall, process_time() - cpu
    return 1e9 * wall_s / n_done, 1e9 * cpu_s / n_done
