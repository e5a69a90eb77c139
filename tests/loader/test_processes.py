"""Datasets and loaders with forks, pickling, signals and interpreter exit.

Goal
    After a fork at any moment, both processes work. Pickled objects arrive complete. A
    signal at any moment loses no batch. An interpreter exits silently at any moment.
    Nothing hangs.
Method
    Programs that repeat a situation `$FASTREC_TEST_RUNS` times and check the results. A
    watchdog prints a traceback and fails if a program hangs.
"""

from __future__ import annotations

import copy
import gzip
import itertools
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from campaigns.interrupted_readers import record
from children import SEED, n_runs, run_campaign
from columns import Untyped, Write, assert_same, open_dataset
from oracle import tfrecord_file

SPEC = {"n": fr.FixedLen((), "int64")}

FORKS = [
    "before",
    "during",
    "during_transforms",
    "after",
    "grandchildren",
    "while_threads_take",
    "while_a_thread_reads_rows",
    "while_a_thread_indexes",
]
EXITS = [
    "live_iterator",
    "live_transform",
    "live_rows",
    "daemon_thread",
    "other_thread",
    "exception_in_flight",
    "cycle",
    "dropped_pool",
    "dropped_transforms",
    "atexit",
    "atexit_transforms",
]


def files(write: Write, n_records: int, *, compressed: bool = False) -> list[Path]:
    """Four files of the records 0, 1, ... of interrupts.py."""
    n = n_records // 4
    contents = [tfrecord_file(map(record, range(k * n, k * n + n))) for k in range(4)]
    return [write(gzip.compress(data) if compressed else data) for data in contents]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is a matter of POSIX")
@pytest.mark.parametrize("situation", FORKS)
def test_both_processes_work_after_a_fork(write: Write, situation: str) -> None:
    run_campaign("forks", situation, n_runs(5), *files(write, 400))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is a matter of POSIX")
def test_both_processes_work_after_a_fork_with_reader_threads(write: Write) -> None:
    paths = files(write, 400, compressed=True)
    run_campaign("forks", "during", n_runs(5), *paths)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc as Linux has it")
@pytest.mark.parametrize("kind", ["readers", "writers", "calls"])
@pytest.mark.parametrize("mode", ["single", "storm"])
def test_an_interrupt_loses_nothing_and_leaves_nothing(mode: str, kind: str) -> None:
    n_signals = n_runs(150)
    printed = run_campaign(
        "interrupts", mode, kind, "--signals", n_signals, "--seed", SEED
    )
    report = json.loads(printed.splitlines()[-1])
    assert report["runs"] >= n_signals
    assert report["slowest_ms"] < 10_000  # 200 on a machine that does nothing else


@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("n_taken", [0, 1, 5])
@pytest.mark.parametrize("transform_threads", [None, 0, 2])
def test_no_python_code_runs_when_an_iterator_is_dropped(
    write: Write,
    threads_end: Callable[[], None],
    num_threads: int,
    n_taken: int,
    transform_threads: int | None,
) -> None:
    """Python would ignore the exception of a signal handler there."""
    loader = open_dataset(files(write, 40), features=SPEC).loader(
        8,
        num_threads=num_threads,
        transform=None if transform_threads is None else dict,
        transform_threads=transform_threads,
    )
    iterator = iter(loader)
    for _ in itertools.islice(iterator, n_taken):
        pass
    calls = []

    def on_event(frame: Untyped, event: str, _: Untyped) -> None:
        if event == "call":
            calls.append(
                frame.f_code.co_qualname if sys.version_info >= (3, 11) else ""
            )

    sys.setprofile(on_event)
    del iterator
    sys.setprofile(None)
    assert calls == []
    del loader
    threads_end()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("situation", EXITS)
def test_an_interpreter_exits_silently(
    write: Write, situation: str, compressed: bool
) -> None:
    paths = files(write, 4000, compressed=compressed)
    for _ in range(n_runs(1)):
        assert run_campaign("exits", situation, *paths) == ""


def doubled(batch: Untyped) -> Untyped:
    return {**batch, "twice": 2 * batch["n"]}


def is_even(batch: Untyped) -> Untyped:
    return batch["n"] % 2 == 0


def in_pairs(seed: int, epoch: int) -> list[Untyped]:
    order = np.random.default_rng([seed, epoch]).permutation(40)
    return list(order.reshape(20, 2))


VIEWS: dict[str, Callable[[Untyped], Untyped]] = {
    "all": lambda ds: ds,
    "columns": lambda ds: ds.select_columns(["n"]),
    "transform": lambda ds: ds.with_transform(doubled),
    "select": lambda ds: ds.select([5, 3, 3]),
    "filter": lambda ds: ds.filter(is_even),
    "shard": lambda ds: ds.shard(num_shards=3, index=1),
    "split": lambda ds: ds.split([0.5, 0.5])[1],
    "concat": lambda ds: fr.concat([ds, ds.select(range(5))]),
    "mix": lambda ds: fr.mix({"a": (ds.select(range(20)), 1), "b": (ds, 2)}),
}


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_a_dataset_can_be_pickled(write: Write, view: str) -> None:
    ds = VIEWS[view](open_dataset(files(write, 40), features=SPEC))
    twin = pickle.loads(pickle.dumps(ds))
    assert len(twin) == len(ds)
    assert twin.files == ds.files
    for mine, its in zip(ds.loader(7), twin.loader(7), strict=True):
        assert_same(its, mine)


LOADERS: dict[str, dict[str, Untyped]] = {
    "in order": {"batch_size": 3},
    "shuffled": {"batch_size": 3, "shuffle": True, "seed": 7},
    "blocks": {"batch_size": 3, "shuffle": fr.Blocks(block_bytes=200, lanes=2)},
    "window": {"batch_size": 3, "shuffle": fr.Window(9)},
    "a rank": {"global_batch_size": 6, "rank": 1, "world_size": 2, "pad_last": True},
    "listed": {"batches": in_pairs},
    "transform": {"batch_size": 3, "transform": doubled},
}


@pytest.mark.parametrize("options", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("n_taken", [0, 1, 5, None], ids=["0", "1", "5", "all"])
def test_a_pickled_loader_continues_at_the_step_of_the_original(
    write: Write, options: dict[str, Untyped], n_taken: int | None
) -> None:
    loader = open_dataset(files(write, 40), features=SPEC).loader(**options)
    iterator = iter(loader)
    for _ in range(n_taken or 0):
        next(iterator)
    if n_taken is None:
        list(iterator)
    for twin in (pickle.loads(pickle.dumps(loader)), copy.copy(loader)):
        assert (twin.rank, twin.world_size) == (loader.rank, loader.world_size)
        assert twin.state_dict() == loader.state_dict()
        assert twin.stats.n_batches == 0
    rest = loader if n_taken is None else iterator
    for mine, its in zip(rest, twin, strict=True):
        assert_same(its, mine)


def test_stats_can_be_pickled(write: Write) -> None:
    loader = open_dataset(files(write, 40), features=SPEC).loader(8)
    list(loader)
    assert pickle.loads(pickle.dumps(loader.stats)) == loader.stats
