"""Datasets and loaders in worker processes of the standard library and torch.

Goal
    Workers read the same data as the parent, however they are started, and their errors
    arrive complete.
Method
    Each start method of multiprocessing, with a dataset that the parent has used; torch's
    DataLoader in a program (torch_workers.py), `$FASTREC_TEST_RUNS` times.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import fastrec as fr
from children import SECONDS_TO_HANG, n_runs, run_program
from columns import Untyped, Write, assert_same, open_dataset
from oracle import example, frame, tfrecord_file

N = 100
SPEC = {"n": fr.FixedLen((), "int64")}
METHODS = multiprocessing.get_all_start_methods()


def content(begin: int, end: int) -> bytes:
    return tfrecord_file(example({b"n": ("int64", [n])}) for n in range(begin, end))


@pytest.fixture(scope="module")
def paths(write: Write) -> list[Path]:
    return [write(content(begin, begin + N // 4)) for begin in range(0, N, N // 4)]


@pytest.fixture(scope="module", params=METHODS)
def workers(request: pytest.FixtureRequest) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context(request.param)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        yield pool


def batches_of(loader: Untyped) -> list[Untyped]:
    return list(loader)


def rows_of(ds: Untyped, numbers: list[int]) -> list[Untyped]:
    return [ds[number] for number in numbers]


def test_workers_read_the_same_data(
    workers: ProcessPoolExecutor, paths: list[Path]
) -> None:
    ds = open_dataset(paths, features=SPEC)
    loader = ds.loader(9, shuffle=True, num_threads=2)
    begun = iter(loader)
    next(begun)
    at_work = [
        workers.submit(batches_of, ds.loader(9, shuffle=True, num_threads=threads))
        for threads in (0, 2)
    ]
    rows = workers.submit(rows_of, ds, [3, 99, 0])
    continued = workers.submit(batches_of, loader)
    expected = list(ds.loader(9, shuffle=True))
    for job in at_work:
        for theirs, mine in zip(job.result(SECONDS_TO_HANG), expected, strict=True):
            assert_same(theirs, mine)
    assert [row["n"] for row in rows.result(SECONDS_TO_HANG)] == [3, 99, 0]
    for theirs, mine in zip(
        continued.result(SECONDS_TO_HANG), expected[1:], strict=True
    ):
        assert_same(theirs, mine)


def test_errors_of_workers_arrive_complete(
    workers: ProcessPoolExecutor, write: Write
) -> None:
    damaged = bytearray(content(0, 10))
    at = len(frame(example({b"n": ("int64", [0])}))) * 3
    damaged[at + 13] ^= 1
    path = write(bytes(damaged))
    ds = open_dataset(path, features=SPEC)
    with pytest.raises(fr.CorruptionError) as mine:
        batches_of(ds.loader(4))
    with pytest.raises(fr.CorruptionError) as theirs:
        workers.submit(batches_of, ds.loader(4)).result(SECONDS_TO_HANG)
    assert str(theirs.value) == str(mine.value)
    place = (theirs.value.path, theirs.value.record)
    assert place == (str(path), 3)
    gone = open_dataset(path, features=SPEC)
    path.unlink()
    with pytest.raises(FileNotFoundError) as missing:
        workers.submit(rows_of, gone, [0]).result(SECONDS_TO_HANG)
    assert missing.value.filename == str(path)


@pytest.mark.frameworks
@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is a matter of POSIX")
@pytest.mark.parametrize(
    ("method", "num_workers"),
    [("fork", 0), ("fork", 1), ("fork", 4), ("forkserver", 4), ("spawn", 1)],
)
def test_torch_reads_every_record_once(
    paths: list[Path], method: str, num_workers: int
) -> None:
    pytest.importorskip("torch")
    n = n_runs(1 if method == "spawn" else 2)  # each spawned worker imports torch
    run_program("torch_workers.py", method, num_workers, n, *paths)
