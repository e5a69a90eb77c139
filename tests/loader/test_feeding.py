"""Prefetching for adapters, with a conversion to text.

Goal
    A loader that converts batches ahead has the order, state, errors and statistics of
    the plain loader, which cover delivered batches only. No interrupt loses or repeats a
    batch. A dropped loop leaves neither threads nor batches.
Method
    A conversion to strings, compared with plain loaders. A KeyboardInterrupt is raised
    before every line of the modules that move batches, in one run per line.
"""

from __future__ import annotations

import functools
import gc
import itertools
import linecache
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from fastrec.arrays import bytes as bytes_array
from fastrec.arrays import ragged
from fastrec.loader import (
    collate,
    decoder,
    iterator,
    loader,
    prefetch,
    progress,
    transform_pool,
)
from fastrec.loader.prefetch import Conversion, with_conversion
from fastrec.transforms import transform as checked_transform
from numbered import (
    SPEC,
    Batch,
    N,
    labels,
    loader_of,
    record,
    reloaded,
)
from oracle import frame, tfrecord_file

BATCH_SIZE = 5
N_STEPS = -(-N // BATCH_SIZE)


def spelled(batch: Batch) -> Batch:
    """Convert every number to text."""
    return {"n": [str(n) for n in batch["n"]]}


def numbers(batches: Any) -> list[int]:
    return labels(batches)


class Counting:
    """A conversion that counts its calls."""

    def __init__(self) -> None:
        self.n_calls = 0

    def __call__(self, batch: Batch) -> Batch:
        self.n_calls += 1
        return spelled(batch)


def refusing(unwanted: int, batch: Batch) -> Batch:
    """A conversion that fails for the batch with a given number."""
    if unwanted in batch["n"]:
        msg = f"{unwanted} cannot be spelled"
        raise OverflowError(msg)
    return spelled(batch)


def plus_one(batch: Batch) -> Batch:
    batch["n"] += 1
    return batch


# --- Batches --------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["files", "shuffled", "listed", "mixed"])
@pytest.mark.parametrize("n_ahead", [0, 1, 3, 100])
def test_converted_batches_keep_the_order_of_the_loader(
    ds: Untyped, n_ahead: int, order: str
) -> None:
    for num_threads, transform in itertools.product((0, 2), (None, plus_one)):
        options: dict[str, Untyped] = {
            "num_threads": num_threads,
            "transform": transform,
        }
        plain = loader_of(ds, order, **options)
        loader = with_conversion(
            loader_of(ds, order, **options), Conversion(spelled, n_ahead)
        )
        for _ in range(2):
            assert list(loader) == [spelled(batch) for batch in plain]
        assert len(loader) == len(plain)


def test_single_batches_are_converted_too(ds: Untyped) -> None:
    loader = with_conversion(ds.loader(BATCH_SIZE), Conversion(spelled, 1))
    want = list(loader)
    assert [loader.batch(step, epoch=0) for step in range(N_STEPS)] == want
    iterator = iter(loader)
    assert next(iterator) == want[0]
    assert loader.peek() == want[1]
    assert next(iterator) == want[1]
    assert list(loader.repeat(1)) == want


def test_the_original_loader_does_not_move(ds: Untyped) -> None:
    original = ds.loader(BATCH_SIZE)
    original.seek(2)
    loader = with_conversion(original, Conversion(spelled, 1))
    assert len(list(loader)) == N_STEPS - 2
    assert (original.step, original.stats.n_batches) == (2, 0)
    assert isinstance(next(iter(original))["n"], np.ndarray)


def test_a_pickled_loader_converts_batches(ds: Untyped) -> None:
    loader = with_conversion(ds.loader(BATCH_SIZE), Conversion(spelled, 1))
    iterator = iter(loader)
    seen = [next(iterator), next(iterator)]
    copied = pickle.loads(pickle.dumps(loader))
    assert seen + list(copied) == list(
        with_conversion(ds.loader(BATCH_SIZE), Conversion(spelled))
    )


# --- What is counted ------------------------------------------------------------------


@pytest.mark.parametrize("num_threads", [0, 2])
def test_only_delivered_batches_count(ds: Untyped, num_threads: int) -> None:
    counting = Counting()
    plain = ds.loader(BATCH_SIZE, shuffle=True)
    loader = with_conversion(
        ds.loader(BATCH_SIZE, shuffle=True, num_threads=num_threads),
        Conversion(counting, 3),
    )
    for n, (_, _) in enumerate(zip(loader, plain, strict=True), 1):
        assert counting.n_calls == min(n + 3, N_STEPS)
        assert (loader.epoch, loader.step) == (plain.epoch, plain.step)
        assert loader.state_dict() == plain.state_dict()
        stats, want = loader.stats, plain.stats
        assert (stats.n_batches, stats.n_records) == (want.n_batches, want.n_records)
    assert loader.state_dict()["epoch"] == 1


@pytest.mark.parametrize("order", ["files", "shuffled", "listed"])
def test_a_state_continues_after_the_last_delivered_batch(
    ds: Untyped, order: str
) -> None:
    whole = list(with_conversion(loader_of(ds, order), Conversion(spelled)))
    for n in range(len(whole)):
        first = with_conversion(loader_of(ds, order), Conversion(spelled, 2))
        seen = list(itertools.islice(first, n))
        second = with_conversion(loader_of(ds, order), Conversion(spelled, 2))
        second.load_state_dict(reloaded(first.state_dict()))
        assert seen + list(second) == whole


def test_skipped_rows_are_reported_with_their_batch(write: Write) -> None:
    records = [b"\x0a" if n == 12 else record(n) for n in range(20)]
    ds = open_dataset(write(tfrecord_file(records)), features=SPEC, on_error="skip")
    loader = with_conversion(ds.loader(5, num_threads=0), Conversion(spelled, 3))
    counts = [len(loader.report.regions) for _ in loader]
    assert counts == [0, 0, 1, 1]


# --- Errors ---------------------------------------------------------------------------


@pytest.mark.parametrize("n_ahead", [0, 1, 3])
@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_conversion_error_is_raised_after_the_batches_before_it(
    ds: Untyped, n_ahead: int, num_threads: int
) -> None:
    convert = functools.partial(refusing, 12)
    loader = with_conversion(
        ds.loader(BATCH_SIZE, num_threads=num_threads), Conversion(convert, n_ahead)
    )
    iterator = iter(loader)
    assert numbers([next(iterator), next(iterator)]) == list(range(10))
    for _ in range(2):
        with pytest.raises(OverflowError, match="12 cannot be spelled"):
            next(iterator)
        assert loader.step == 2


@pytest.mark.parametrize("transform", [None, plus_one])
def test_a_file_error_is_raised_after_the_batches_before_it(
    write: Write, transform: Callable[[Batch], Batch] | None
) -> None:
    damaged = bytearray(frame(record(12)))
    damaged[14] ^= 1
    file = write(
        tfrecord_file(map(record, range(12)))
        + bytes(damaged)
        + tfrecord_file(map(record, range(13, 20)))
    )
    ds = open_dataset(file, features=SPEC)
    loader = with_conversion(ds.loader(5, transform=transform), Conversion(spelled, 3))
    iterator = iter(loader)
    assert len([next(iterator), next(iterator)]) == 2
    for _ in range(2):
        with pytest.raises(fr.CorruptionError, match="record 12"):
            next(iterator)
        assert loader.step == 2


# --- The end --------------------------------------------------------------------------


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Without garbage collection, objects are freed by reference counts only."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("transform", [None, plus_one])
def test_a_dropped_loop_leaves_no_threads_and_batches(
    ds: Untyped,
    threads_end: Callable[[], None],
    transform: Callable[[Batch], Batch] | None,
) -> None:
    made: list[weakref.ref[Any]] = []

    def convert(batch: Batch) -> Batch:
        made.append(weakref.ref(batch["n"]))
        return batch

    loader = with_conversion(
        ds.loader(BATCH_SIZE, num_threads=2, transform=transform),
        Conversion(convert, 3),
    )
    iterator = iter(loader)
    next(iterator)
    assert len(made) == 4
    del iterator, loader
    threads_end()
    assert not any(ref() is not None for ref in made)


@pytest.mark.usefixtures("uncollected")
def test_a_loop_dropped_before_its_error_leaves_no_threads(
    ds: Untyped, threads_end: Callable[[], None]
) -> None:
    convert = functools.partial(refusing, 12)
    loader = with_conversion(
        ds.loader(BATCH_SIZE, num_threads=2), Conversion(convert, 3)
    )
    iterator = iter(loader)
    next(iterator)
    del iterator
    threads_end()


def test_a_later_loop_ends_the_previous_one(ds: Untyped) -> None:
    loader = with_conversion(ds.loader(BATCH_SIZE), Conversion(spelled, 2))
    first = iter(loader)
    next(first)
    iter(loader)
    with pytest.raises(RuntimeError, match="a loader has one running epoch"):
        next(first)


# --- Interrupts -----------------------------------------------------------------------

MOVING_BATCHES = {
    module.__file__
    for module in (
        bytes_array,
        checked_transform,
        collate,
        decoder,
        iterator,
        loader,
        prefetch,
        progress,
        ragged,
        transform_pool,
    )
}


DAMAGED = (12, 13, 31)


@pytest.fixture(scope="module")
def damaged(write: Write) -> Untyped:
    """Records, some of which have bad checksums and are skipped."""
    frames = [bytearray(frame(record(i))) for i in range(N)]
    for i in DAMAGED:
        frames[i][14] ^= 1
    return open_dataset(write(b"".join(frames)), features=SPEC, on_error="skip")


class InterruptBefore:
    """Raises a KeyboardInterrupt before the n-th line that runs in `MOVING_BATCHES`."""

    def __init__(self, n: int) -> None:
        self._n = n
        self.is_raised = False

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in MOVING_BATCHES or self.is_raised:
            return None
        # A real signal comes before a lock is acquired or after it is released.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not line.lstrip().startswith("with "):
            self._n -= 1
            if self._n < 0:
                self.is_raised = True
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize(
    ("feed", "is_damaged"),
    [
        (Conversion(spelled), False),
        (Conversion(spelled, 1), False),
        (Conversion(spelled, 1), True),
        (Conversion(dict, 1, spelled), False),
        (Conversion(dict, 2), False),
    ],
)
@pytest.mark.parametrize("transform", [None, plus_one])
def test_no_interrupt_loses_or_repeats_a_batch(
    ds: Untyped,
    damaged: Untyped,
    feed: Conversion,
    transform: Callable[[Batch], Batch] | None,
    is_damaged: bool,
) -> None:
    options: dict[str, Any] = {"num_threads": 0, "transform_threads": 0}
    if is_damaged:
        ds, options = damaged, {**options, "max_errors": len(DAMAGED)}
    plain = ds.loader(15, transform=transform, **options)
    want = [spelled(batch) for batch in plain]
    loader = with_conversion(plain, feed)
    for n in itertools.count():
        interrupt = InterruptBefore(n)
        loader.set_epoch(0)
        loader.seek(0)
        iterator, got = iter(loader), []
        n_interrupts, n_batches = 0, loader.stats.n_batches
        while True:
            before = sys.gettrace()
            sys.settrace(interrupt)
            try:
                batch = next(iterator)
            except KeyboardInterrupt:
                n_interrupts += 1
                continue
            except StopIteration:
                break
            finally:
                sys.settrace(before)
            got.append(batch if feed.n_ahead < 2 else spelled(batch))
            assert loader.step == len(got)
        assert got == want, n
        assert (loader.epoch, loader.step) == (1, 0)
        assert loader.report.records_lost == len(DAMAGED) * is_damaged
        n_batches = loader.stats.n_batches - n_batches
        assert n_batches == len(want)
        if not n_interrupts:
            break
    assert n > 30


@pytest.mark.usefixtures("uncollected")
def test_no_interrupt_of_the_first_batch_leaves_threads(
    ds: Untyped, threads_end: Callable[[], None]
) -> None:
    for n in itertools.count():
        interrupt = InterruptBefore(n)
        loader = ds.loader(15, num_threads=1, transform=dict, transform_threads=2)
        iterator = iter(loader)
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            next(iterator)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        del iterator, loader
        if not interrupt.is_raised:
            break
    threads_end()
    assert n > 30
