"""Loaders and threads.

Goal
    Threads that share an iterator get each batch once, and all of them get the error or
    the end. Delivered arrays never change.
Method
    Threads that start together; checksums of all batches of an epoch at delivery and at
    the end, also of views in other libraries.
"""

from __future__ import annotations

import itertools
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fastrec as fr
from children import n_runs, run_campaign
from columns import Untyped, Write, open_dataset
from fastrec.loader.iterator import BatchIterator
from fastrec.loader.progress import Cursor
from numbered import DataSets, N, labels
from oracle import example, tfrecord_file

N_THREADS = 8


@pytest.fixture(scope="module")
def ds(write: Write) -> Untyped:
    return DataSets(write).of((20, N - 20))


def taken_by_threads(iterator: Iterator[Untyped]) -> list[Untyped]:
    """Return the batches and errors of several threads that share an iterator."""
    begin = threading.Barrier(N_THREADS)

    def take() -> list[Untyped]:
        begin.wait()
        got: list[Untyped] = []
        try:
            got.extend(iterator)
        except (RuntimeError, ValueError) as error:
            got.append(error)
        return got

    with ThreadPoolExecutor(N_THREADS) as pool:
        futures = [pool.submit(take) for _ in range(N_THREADS)]
        return [item for future in futures for item in future.result(timeout=60)]


def identity(batch: Untyped) -> Untyped:
    return batch


@pytest.mark.parametrize("num_threads", [0, 3])
@pytest.mark.parametrize("transform", [None, identity])
def test_threads_together_get_every_batch_once(
    ds: Untyped, num_threads: int, transform: Untyped
) -> None:
    loader = ds.loader(1, shuffle=True, num_threads=num_threads, transform=transform)
    for _ in range(n_runs(10)):
        batches = taken_by_threads(iter(loader))
        assert sorted(labels(batches)) == list(range(N))


def test_every_thread_gets_the_error_after_all_batches(
    write: Write,
) -> None:
    records = [example({b"n": ("int64", [n])}) for n in range(40)]
    damaged = bytearray(tfrecord_file(records))
    damaged[-1] ^= 1
    spec = {"n": fr.FixedLen((), "int64")}
    loader = open_dataset(write(bytes(damaged)), features=spec).loader(1, num_threads=2)
    got = taken_by_threads(iter(loader))
    errors = [item for item in got if isinstance(item, fr.CorruptionError)]
    assert len(errors) == N_THREADS
    assert sorted(labels(item for item in got if isinstance(item, dict))) == list(
        range(39)
    )


def test_closing_ends_threads_that_wait_in_next(ds: Untyped) -> None:
    may_go_on = threading.Event()
    is_at_it = threading.Event()

    def stuck(batch: Untyped) -> Untyped:
        is_at_it.set()
        may_go_on.wait()
        return batch

    loader = ds.loader(1, transform=stuck)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(taken_by_threads, iter(loader))
        assert is_at_it.wait(60)
        loader.close()
        got = future.result(timeout=60)
        may_go_on.set()
    assert len(got) == N_THREADS
    assert all("was closed" in str(error) for error in got)


def test_a_loader_dropped_by_another_thread_affects_no_other(ds: Untyped) -> None:
    for _ in range(n_runs(5)):
        doomed = [iter(ds.loader(1, num_threads=2))]
        next(doomed[0])
        kept = iter(ds.loader(1, num_threads=2))
        with ThreadPoolExecutor(1) as pool:
            dropped = pool.submit(doomed.clear)
            assert labels(kept) == list(range(N))
            dropped.result(timeout=60)


@pytest.mark.parametrize("n_before", [0, 1, N])
def test_iterators_that_begin_at_once_share_no_batch(
    ds: Untyped, n_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one begins, and takes batches, while the first one is being created."""
    loader = ds.loader(1)
    second: list[Iterator[Untyped]] = []
    got: list[Untyped] = []

    def create_after_another(*args: Untyped) -> BatchIterator:
        if not second:
            second.append(iter([]))
            second[0] = iter(loader)
            got.extend(itertools.islice(second[0], n_before))
        return BatchIterator(*args)

    monkeypatch.setattr("fastrec.loader.loader.BatchIterator", create_after_another)
    first = iter(loader)
    with pytest.raises(RuntimeError, match="was closed"):
        next(second[0])
    assert labels(got) == list(range(n_before))
    assert labels(first) == list(range(N))
    assert loader.epoch == 1 + (n_before > 0)


def test_an_iterator_that_ends_moves_no_later_one(
    ds: Untyped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread begins the next epoch between the last batch and the end of the first."""
    loader = ds.loader(20)
    first = iter(loader)
    got = [next(first) for _ in range(len(loader))]
    later: list[Untyped] = []
    moved = Cursor.moved

    def moved_after_another(self: Cursor, *place: int) -> Cursor:
        if not later:
            later.append(iter(loader))
            later.append(next(later[0]))
        return moved(self, *place)

    monkeypatch.setattr(Cursor, "moved", moved_after_another)
    with pytest.raises(RuntimeError, match="was closed"):
        next(first)
    assert labels(got) == list(range(N))
    assert labels([later[1], *later[0]]) == list(range(N))
    assert loader.epoch == 2


def test_threads_share_objects_of_every_kind() -> None:
    run_campaign("shared_objects", n_runs(24))


def buffers(batch: Untyped) -> list[Untyped]:
    """Return all memory of a batch, as views."""
    found = []
    for column in batch.values():
        if isinstance(column, fr.BytesArray):
            found += [column.data, column.offsets]
        elif isinstance(column, fr.RaggedArray):
            found.append(column.row_splits)
            values: Untyped = column.values
            while isinstance(values, fr.RaggedArray):
                found.append(values.row_splits)
                values = values.values
            found += (
                [values.data, values.offsets]
                if isinstance(values, fr.BytesArray)
                else [values]
            )
        else:
            found.append(column)
    return [np.asarray(array) for array in found]


def through_dlpack(batch: Untyped) -> list[Untyped]:
    return [np.from_dlpack(array) for array in buffers(batch)]


def as_tensors(batch: Untyped) -> list[Untyped]:
    torch = pytest.importorskip("torch")
    return [torch.from_numpy(array).numpy() for array in buffers(batch)]


def checksums(arrays: list[Untyped]) -> list[int]:
    return [zlib.crc32(np.ascontiguousarray(array).tobytes()) for array in arrays]


@pytest.fixture(scope="module")
def large(write: Write) -> Untyped:
    """Batches of 8 have an image column above 256 KiB, which has a separate block."""
    rng = np.random.default_rng(0)
    records = (
        example(
            {
                b"image": ("bytes", [rng.bytes(40_000)]),
                b"ids": ("int64", rng.integers(0, 99, n % 5).tolist()),
                b"words": ("bytes", [b"w" * (n % 7)] * (n % 3)),
                b"name": ("bytes", [b"%d" % n]),
                b"n": ("int64", [n]),
            }
        )
        for n in range(96)
    )
    spec = {
        "image": fr.Raw((40_000,), "uint8"),
        "ids": fr.VarLen("int64"),
        "words": fr.VarLen("bytes"),
        "name": fr.FixedLen((), "bytes"),
        "n": fr.FixedLen((), "int64"),
    }
    return open_dataset(write(tfrecord_file(records)), features=spec)


@pytest.mark.parametrize("num_threads", [0, 1, 3])
@pytest.mark.parametrize(
    "hold",
    [
        buffers,
        through_dlpack,
        pytest.param(as_tensors, marks=pytest.mark.frameworks),
    ],
)
def test_kept_batches_never_change(
    large: Untyped, num_threads: int, hold: Callable[[Untyped], list[Untyped]]
) -> None:
    loader = large.loader(8, shuffle=True, num_threads=num_threads)
    others = large.loader(8, shuffle=True, seed=1, num_threads=1).repeat()
    held: list[list[Untyped]] = []
    sums = []
    for epoch in range(2):
        for batch in loader:
            arrays = hold(batch)
            if not epoch or len(held) % 2:  # of the others, the memory comes back
                held.append(arrays)
                sums.append(checksums(arrays))
            del batch, arrays
            next(others)
    assert [checksums(arrays) for arrays in held] == sums
