"""The statistics of a loader.

Goal
    Every delivered batch, record and byte is counted once. The time between the first
    and the last next() is divided between the loop and the loader.
Method
    A fake clock; with the real clock, sums that must agree.
"""

from __future__ import annotations

import copy
import gzip
import itertools
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from oracle import example, tfrecord_file

N = 50
BATCH_SIZE = 8
N_BATCHES = 7
THREADS = (0, 2)
SECOND = 10**9


class Clock:
    """Returns `ns`, and advances by `step_ns` at each call."""

    def __init__(self) -> None:
        self.ns = 5 * SECOND
        self.step_ns = 0
        self._lock = threading.Lock()

    def __call__(self) -> int:
        with self._lock:
            self.ns += self.step_ns
            return self.ns

    def advance(self, seconds: float) -> None:
        with self._lock:
            self.ns += int(seconds * SECOND)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    shown = Clock()
    monkeypatch.setattr("fastrec.loader.iterator.clock", shown)
    monkeypatch.setattr("fastrec.loader.decoder.clock", shown)
    return shown


@pytest.fixture(scope="module")
def path(write: Write) -> Path:
    return write(tfrecord_file(example({b"n": ("int64", [n])}) for n in range(N)))


@pytest.fixture(scope="module")
def ds(path: Path) -> Untyped:
    return open_dataset(path, features={"n": fr.FixedLen((), "int64")})


def counts(stats: fr.LoaderStats) -> tuple[int, int]:
    return stats.n_batches, stats.n_records


def same(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


# Counts.


def test_counts_start_at_0(ds: Untyped) -> None:
    loader = ds.loader(BATCH_SIZE)
    iter(loader)
    assert loader.stats == fr.LoaderStats()
    assert loader.stats.bottleneck == ""
    assert loader.stats.waiting_share == 0
    assert repr(loader.stats) == "<fastrec.LoaderStats: no batch yet>"


@pytest.mark.parametrize("num_threads", THREADS)
@pytest.mark.parametrize("transform_threads", [None, 0, 1, 3])
def test_delivered_batches_are_counted_once(
    ds: Untyped, num_threads: int, transform_threads: int | None
) -> None:
    options = {} if transform_threads is None else {"transform": same}
    loader = ds.loader(
        BATCH_SIZE,
        num_threads=num_threads,
        transform_threads=transform_threads,
        **options,
    )
    for epoch in range(1, 4):
        batches = list(loader)
        stats = loader.stats
        assert counts(stats) == (epoch * N_BATCHES, epoch * N)
        assert stats.n_bytes >= epoch * sum(batch["n"].nbytes for batch in batches)
        assert 0 < stats.starting_s <= stats.waiting_s
        assert 0 <= stats.helping_s <= stats.waiting_s
        assert stats.consuming_s > 0
        assert 0 < stats.waiting_share < 1
        assert (stats.transform_s > 0) == (transform_threads is not None)
        assert (stats.starved_s > 0) == bool(transform_threads)


def test_prefetched_batches_do_not_count(ds: Untyped) -> None:
    loader = ds.loader(BATCH_SIZE, num_threads=2, prefetch=8)
    assert len(list(itertools.islice(loader, 3))) == 3
    assert counts(loader.stats) == (3, 3 * BATCH_SIZE)


def test_batch_and_peek_do_not_count(ds: Untyped) -> None:
    loader = ds.loader(BATCH_SIZE)
    loader.peek()
    loader.batch(2)
    assert loader.stats == fr.LoaderStats()


def test_padding_does_not_count(ds: Untyped) -> None:
    loader = ds.loader(BATCH_SIZE, pad_last=True)
    assert sum(len(batch["n"]) for batch in loader) == N_BATCHES * BATCH_SIZE
    assert counts(loader.stats) == (N_BATCHES, N)


@pytest.mark.parametrize("transform_threads", [0, 2])
def test_records_are_counted_before_a_transform(
    ds: Untyped, transform_threads: int
) -> None:
    def first(batch: dict[str, Any]) -> dict[str, Any]:
        return {"n": batch["n"][:1]}

    loader = ds.loader(BATCH_SIZE, transform=first, transform_threads=transform_threads)
    assert sum(len(batch["n"]) for batch in loader) == N_BATCHES
    assert counts(loader.stats) == (N_BATCHES, N)


def test_moving_a_loader_keeps_the_counts(ds: Untyped) -> None:
    loader = ds.loader(BATCH_SIZE)
    state = loader.state_dict()
    next(iter(loader))
    loader.seek(5)
    assert len(list(loader)) == N_BATCHES - 5
    assert counts(loader.stats) == (3, BATCH_SIZE + N - 5 * BATCH_SIZE)
    loader.load_state_dict(state)
    assert len(list(loader)) == N_BATCHES
    assert counts(loader.stats) == (3 + N_BATCHES, 2 * N - 4 * BATCH_SIZE)


@pytest.mark.parametrize("shuffle", [False, fr.Window(20)])
def test_streams_are_counted_without_helping(
    path: Path, tmp_path: Path, shuffle: bool | fr.Window
) -> None:
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    loader = open_dataset(packed).loader(BATCH_SIZE, shuffle=shuffle, num_threads=0)
    assert sum(len(batch["n"]) for batch in loader) == N
    assert counts(loader.stats) == (N_BATCHES, N)
    assert loader.stats.helping_s == 0


def test_an_end_and_an_error_are_counted_once(write: Write, clock: Clock) -> None:
    data = bytearray(tfrecord_file(example({b"n": ("int64", [n])}) for n in range(N)))
    data[-1] ^= 1
    broken = open_dataset(write(bytes(data)), features={"n": "int64"})
    loader = broken.loader(BATCH_SIZE)
    iterator = iter(loader)
    clock.step_ns = SECOND
    for _ in range(N_BATCHES - 1):
        next(iterator)
    for _ in range(3):
        with pytest.raises(fr.CorruptionError):
            next(iterator)
    assert counts(loader.stats) == (N_BATCHES - 1, (N_BATCHES - 1) * BATCH_SIZE)
    assert loader.stats.waiting_s == N_BATCHES


# Times.


@pytest.mark.parametrize("num_threads", THREADS)
def test_time_is_divided_between_waiting_and_consuming(
    ds: Untyped, num_threads: int, clock: Clock
) -> None:
    clock.step_ns = SECOND  # next() reads the clock twice, so it takes a second
    loader = ds.loader(BATCH_SIZE, num_threads=num_threads)
    begin = clock.ns
    for _ in loader:
        clock.advance(3)
    stats = loader.stats
    # The last call finds the end. A call begins a second after the previous one.
    assert stats.waiting_s == N_BATCHES + 1
    assert stats.starting_s == 1
    assert stats.consuming_s == N_BATCHES * (3 + 1)
    assert stats.waiting_s + stats.consuming_s == (clock.ns - begin) / SECOND - 1
    assert stats.waiting_share == 8 / 36
    assert stats.transform_s == 0


def test_time_between_two_loops_does_not_count(ds: Untyped, clock: Clock) -> None:
    loader = ds.loader(BATCH_SIZE)
    for _ in range(2):
        next(iter(loader))
        clock.advance(100)
        list(loader)
        clock.advance(100)
    assert loader.stats.waiting_s + loader.stats.consuming_s == 0


def test_a_transform_in_next_is_waiting(ds: Untyped, clock: Clock) -> None:
    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        clock.advance(2)
        return batch

    loader = ds.loader(BATCH_SIZE, transform=slow, transform_threads=0)
    for _ in loader:
        clock.advance(1)
    stats = loader.stats
    assert stats.waiting_s == stats.transform_s == 2 * N_BATCHES
    assert stats.consuming_s == N_BATCHES
    assert stats.bottleneck == "transform"


def test_transforms_in_threads_are_added_up(ds: Untyped, clock: Clock) -> None:
    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        clock.advance(2)
        return batch

    loader = ds.loader(BATCH_SIZE, transform=slow, transform_threads=1)
    list(loader)
    assert loader.stats.transform_s == 2 * N_BATCHES
    assert loader.stats.helping_s == 0


def test_rows_that_threads_share_count_once(ds: Untyped, clock: Clock) -> None:
    entered = threading.Barrier(2)

    def slow(row: dict[str, Any]) -> np.int64:
        if row["n"] in (0, BATCH_SIZE // 2):  # the first row of either thread
            entered.wait(10)
            clock.advance(2)
            entered.wait(10)
        value: np.int64 = row["n"]
        return value

    rows = fr.per_row(slow, out={"n": fr.FixedLen((), "int64")})
    loader = ds.loader(BATCH_SIZE, transform=rows, transform_threads=2)
    list(loader)
    assert loader.stats.transform_s == 4


# The repr and the bottleneck.


def in_threads(**counted: Any) -> dict[str, Any]:
    """Return times of a loop of 4 s with two transform threads."""
    return {"waiting_s": 1.0, "consuming_s": 3.0, "_n_transforming": 2, **counted}


@pytest.mark.parametrize(
    ("counted", "bottleneck", "share"),
    [
        ({"waiting_s": 1.0, "consuming_s": 99.0}, "consumer", "1 %"),
        ({"waiting_s": 1.0, "consuming_s": 3.0}, "data", "25 %"),
        ({"waiting_s": 1.0, "consuming_s": 3.0, "transform_s": 0.6}, "transform", ""),
        (in_threads(transform_s=0.4, starved_s=0.1), "data", ""),
        (in_threads(transform_s=7.9, starved_s=0.1), "transform", ""),
        # Pure Python: the two threads get the GIL for half of the time each.
        (in_threads(transform_s=3.9, starved_s=0.1), "transform", ""),
        (in_threads(transform_s=3.9, starved_s=0.5), "data", ""),
        # Without other threads, transform threads decode as part of their work.
        (
            in_threads(transform_s=7, starved_s=0.5, _is_decoding_ahead=False),
            "transform",
            "",
        ),
        (
            in_threads(transform_s=1, starved_s=3.0, _is_decoding_ahead=False),
            "data",
            "",
        ),
    ],
)
def test_stats_name_the_bottleneck(
    counted: dict[str, Any], bottleneck: str, share: str
) -> None:
    stats = fr.LoaderStats(n_batches=1, n_records=8, **counted)
    assert stats.bottleneck == bottleneck
    assert f"the {bottleneck} is the bottleneck".replace("the data", "data") in repr(
        stats
    )
    assert f"{share} of the time waiting for data" in repr(stats)


def test_stats_explain_the_waiting() -> None:
    def said(**counted: Any) -> str:
        stats = fr.LoaderStats(1, 8, 64, waiting_s=4, consuming_s=1, **counted)
        return repr(stats)

    assert said() == (
        "<fastrec.LoaderStats: 1 batch, 8 records in 5 s; data is the bottleneck: 80 % "
        "of the time waiting for data>"
    )
    assert said(starting_s=3).endswith("data, mostly for the first batch (3 s)>")
    assert said(helping_s=3).endswith("data, mostly decoding inside next()>")


def test_a_loop_with_an_empty_body_is_not_alarming() -> None:
    stats = fr.LoaderStats(100, 800, 64, waiting_s=4.0, consuming_s=0.0001)
    assert stats.bottleneck == ""
    assert repr(stats) == (
        "<fastrec.LoaderStats: 100 batches, 800 records in 4 s, 200 records/s; the loop "
        "does nothing with its batches, so it has no bottleneck>"
    )
    busy = fr.LoaderStats(100, 800, 64, waiting_s=4.0, consuming_s=0.1)
    assert busy.bottleneck == "data"


def test_the_difference_of_stats_covers_the_time_in_between(
    ds: Untyped, clock: Clock
) -> None:
    loader = ds.loader(BATCH_SIZE)
    for _ in loader:
        clock.advance(1)
    before = loader.stats
    for _ in itertools.islice(loader, 2):
        clock.advance(5)
    since = loader.stats - before
    assert counts(since) == (2, 2 * BATCH_SIZE)
    assert since.consuming_s == 5  # `before` was taken after the second batch
    assert before.consuming_s == N_BATCHES


def test_stats_are_immutable_values(ds: Untyped) -> None:
    loader = ds.loader(BATCH_SIZE)
    list(loader)
    stats: fr.LoaderStats = loader.stats
    assert pickle.loads(pickle.dumps(stats)) == copy.copy(stats) == stats
    assert hash(stats) == hash(loader.stats)
    with pytest.raises(AttributeError):
        stats.n_batches = 3  # type: ignore[misc]
    list(loader)
    assert stats != loader.stats
