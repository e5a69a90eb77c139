"""Batches in memory of an allocator, such as page-locked memory.

Goal
    After the first batches, all memory comes from the allocator. Only the thread that
    calls next() calls it. Memory returns to it when the last array and the pool are
    freed. Its errors reach the loop.
Method
    An allocator that returns NumPy arrays and records its callers, and weak references to
    the arrays.
"""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import fastrec as fr
from children import SECONDS_TO_HANG
from columns import Untyped

N = 600
SPEC = {
    "n": fr.FixedLen((), "int64"),
    "image": fr.Raw((30_000,), "uint8"),
    "words": fr.VarLen("bytes"),
}


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> fr.Dataset:
    path = tmp_path_factory.mktemp("allocator") / "a.tfrecord"
    n = np.arange(N)
    columns = {
        "n": n,
        "image": np.repeat((n % 251).astype("uint8"), 30_000).reshape(N, -1),
        "words": [["word"] * (i % 5) for i in range(N)],
    }
    fr.write(path, columns, features=SPEC)
    return fr.open(path, features=SPEC)


class Memory(np.ndarray[Untyped, Untyped]):
    """An array that can be referred to weakly."""


class Allocator:
    def __init__(self) -> None:
        self.made: list[weakref.ref[Memory]] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        whole = np.full(n_bytes + 64, 77, np.uint8)
        begin = -whole.ctypes.data % 64
        memory = whole[begin : begin + n_bytes].view(Memory)
        self.made.append(weakref.ref(memory))
        self.threads.add(threading.current_thread())
        return memory

    @property
    def n_alive(self) -> int:
        gc.collect()
        return sum(memory() is not None for memory in self.made)


def is_foreign(array: Untyped) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return array.memory is not None


def is_right(batch: Untyped) -> bool:
    n, image = batch["n"], batch["image"]
    wanted = (n % 251).astype("uint8")[:, None]
    return bool((image == wanted).all()) and batch["words"].lengths.tolist() == [
        i % 5 for i in n
    ]


@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("recycles", [True, False])
def test_batches_use_only_the_allocators_memory_after_warm_up(
    ds: fr.Dataset, num_threads: int, recycles: bool
) -> None:
    allocator = Allocator()
    loader = ds.loader(20, shuffle=True, num_threads=num_threads)
    loader._allocate_by(allocator, recycles=recycles)
    # Threads allocate from the system if no block is ready. How often depends on their
    # timing, but each time adds a block, so some epoch finds enough of them.
    for _ in range(20):
        n_made = len(allocator.made)
        found = [(is_right(batch), is_foreign(batch["image"])) for batch in loader]
        assert all(right for right, _ in found)
        n_foreign = sum(foreign for _, foreign in found)
        n_new = len(allocator.made) - n_made
        if n_foreign >= len(found) - 3 and (not recycles or n_new <= 3):
            break
    else:
        pytest.fail(f"the last epoch got {n_foreign} of {len(found)}, and made {n_new}")
    assert allocator.threads == {threading.current_thread()}
    if not recycles:
        assert n_new >= len(found)


@pytest.mark.parametrize("recycles", [True, False])
def test_memory_returns_when_arrays_and_pool_are_freed(
    ds: fr.Dataset, recycles: bool
) -> None:
    allocator = Allocator()
    loader = ds.loader(20, num_threads=2)
    loader._allocate_by(allocator, recycles=recycles)
    held = [batch["image"] for batch in loader][-3:]
    wanted = [image.copy() for image in held]
    assert allocator.n_alive > 0
    del loader
    assert allocator.n_alive <= 3, "what is idle is not kept by what is in use"
    assert all(np.array_equal(*pair) for pair in zip(held, wanted, strict=True))
    del held
    assert allocator.n_alive == 0


def test_errors_of_the_allocator_reach_the_loop(ds: fr.Dataset) -> None:
    n_calls = 0

    def allocate(n_bytes: int) -> npt.NDArray[np.uint8]:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 3:
            msg = f"no {n_bytes} bytes can be locked"
            raise RuntimeError(msg)
        return Allocator()(n_bytes)

    loader = ds.loader(20, num_threads=1)
    loader._allocate_by(allocate, recycles=True)
    found: list[int] = []

    def read() -> None:
        for batch in loader:
            found.extend(batch["n"].tolist())

    with pytest.raises(RuntimeError, match="bytes can be locked"):
        read()
    assert n_calls == 3
    loader.load_state_dict(loader.state_dict())
    read()
    assert found == list(range(N)), (
        "the loader stood before the batch it was called for"
    )


@pytest.mark.parametrize(
    "bad", [lambda n: bytearray(n - 1), lambda n: memoryview(bytearray(n + 64))[1:]]
)
def test_small_or_unaligned_memory_is_refused(ds: fr.Dataset, bad: Untyped) -> None:
    loader = ds.loader(20, num_threads=0)
    loader._allocate_by(bad, recycles=True)
    with pytest.raises(ValueError, match="aligned to 64"):
        list(loader)


def test_transforms_and_single_batches_use_the_allocator(ds: fr.Dataset) -> None:
    allocator = Allocator()
    foreign = []

    def look(batch: Untyped) -> Untyped:
        foreign.append(is_foreign(batch["image"]))
        return batch

    loader = ds.loader(20, transform=look)
    loader._allocate_by(allocator, recycles=True)
    assert all(is_right(batch) for batch in loader)
    assert foreign[-1]
    assert is_right(loader.batch(3))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is a matter of POSIX")
def test_a_forked_process_does_not_call_the_allocator(
    ds: fr.Dataset, tmp_path: Path
) -> None:
    allocator = Allocator()
    loader = ds.loader(20, num_threads=0)
    loader._allocate_by(allocator, recycles=True)
    held = list(loader)
    child = os.fork()
    if child == 0:
        n_before, n_alive = len(allocator.made), allocator.n_alive
        held.clear()
        is_good = all(is_right(batch) for batch in loader)
        del loader
        n_made, n_freed = len(allocator.made) - n_before, n_alive - allocator.n_alive
        (tmp_path / "said").write_text(f"{is_good} {n_made} {n_freed}")
        os._exit(0)
    watch = threading.Timer(SECONDS_TO_HANG, os.kill, (child, 9))
    watch.start()
    _, status = os.waitpid(child, 0)
    watch.cancel()
    assert status == 0
    assert (tmp_path / "said").read_text() == "True 0 0"
