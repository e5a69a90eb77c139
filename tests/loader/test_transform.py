"""Transforms: functions of the caller between the core and the loop.

Goal
    Transformed batches are delivered in order, the same for any number of threads. `info`
    depends on seed, epoch and position alone.
Method
    Transforms that record their arguments, on a dataset whose labels are record numbers.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from counted_calls import MAX_CALLS, n_calls_of
from oracle import example, tfrecord_file

Check = Callable[[], None]
Batch = dict[str, Any]

N = 50
SPEC = {"n": fr.FixedLen((), "int64")}
TRANSFORM_THREADS = (0, 1, 3)


@pytest.fixture(scope="module")
def ds(write: Write) -> Untyped:
    records = (example({b"n": ("int64", [n])}) for n in range(N))
    return open_dataset(write(tfrecord_file(records)), features=SPEC)


@pytest.mark.parametrize("transform_threads", TRANSFORM_THREADS)
@pytest.mark.parametrize("num_threads", [0, 2])
def test_transformed_batches_are_delivered_in_order(
    ds: Untyped, num_threads: int, transform_threads: int
) -> None:
    def add(batch: Batch) -> Batch:
        return {**batch, "twice": 2 * batch["n"]}

    loader = ds.loader(
        8, num_threads=num_threads, transform=add, transform_threads=transform_threads
    )
    batches = list(loader)
    assert [list(batch) for batch in batches] == [["n", "twice"]] * 7
    assert np.concatenate([batch["n"] for batch in batches]).tolist() == list(range(N))
    assert np.concatenate([b["twice"] for b in batches]).tolist() == list(
        range(0, 2 * N, 2)
    )
    assert loader.peek()["twice"].tolist() == list(range(0, 16, 2))
    assert loader.batch(3)["twice"].tolist() == list(range(48, 64, 2))


@pytest.mark.parametrize(
    "options", [{}, {"pad_last": True}, {"transform": dict, "transform_threads": 0}]
)
def test_a_batch_runs_few_python_functions(ds: Untyped, options: Untyped) -> None:
    batches = iter(ds.loader(8, num_threads=1, **options))
    for _ in range(2):
        next(batches)
    assert n_calls_of(batches.__next__) <= MAX_CALLS


@pytest.mark.parametrize("transform_threads", TRANSFORM_THREADS)
def test_a_transform_may_return_any_number_of_rows(
    ds: Untyped, transform_threads: int
) -> None:
    def keep_odd(batch: Batch) -> Batch:
        return {"n": batch["n"][batch["n"] % 2 == 1]}

    loader = ds.loader(1, transform=keep_odd, transform_threads=transform_threads)
    batches = list(loader)
    assert len(batches) == len(loader) == N
    assert [n for batch in batches for n in batch["n"]] == list(range(1, N, 2))


@pytest.mark.parametrize("transform_threads", TRANSFORM_THREADS)
def test_info_has_the_step_and_positions_of_a_batch(
    ds: Untyped, transform_threads: int
) -> None:
    def tell(batch: Batch, info: Any) -> Batch:
        return {
            **batch,
            "place": (info.seed, info.epoch, info.step),
            "positions": np.asarray(info.positions).tolist(),
            "records": np.asarray(info.records).tolist(),
        }

    loader = ds.loader(20, seed=9, transform=tell, transform_threads=transform_threads)
    for epoch in range(2):
        for step, batch in enumerate(loader):
            assert batch["place"] == (9, epoch, step)
            assert batch["positions"] == batch["records"] == batch["n"].tolist()
    assert loader.batch(1, epoch=7)["place"] == (9, 7, 1)


def draws(
    ds: Untyped, batch_size: int, transform_threads: int, seed: int, epoch: int
) -> Any:
    """Return random numbers for each record, from `info.rng`."""

    def augment(batch: Batch, info: Any) -> Batch:
        rngs = [info.rng(i) for i in range(len(batch["n"]))]
        assert all(isinstance(rng, np.random.Generator) for rng in rngs)
        return {"noise": np.stack([rng.random(3) for rng in rngs])}

    loader = ds.loader(
        batch_size, seed=seed, transform=augment, transform_threads=transform_threads
    )
    steps = range(len(loader))
    return np.concatenate([loader.batch(step, epoch=epoch)["noise"] for step in steps])


def test_random_numbers_depend_on_seed_epoch_and_position_alone(ds: Untyped) -> None:
    want = draws(ds, batch_size=8, transform_threads=1, seed=0, epoch=0)
    assert len(np.unique(want)) == 3 * N
    for batch_size, transform_threads in ((8, 0), (8, 3), (7, 1), (1, 2), (N, 1)):
        got = draws(ds, batch_size, transform_threads, seed=0, epoch=0)
        assert got.tolist() == want.tolist()
    for seed, epoch in ((1, 0), (0, 1)):
        other = draws(ds, 8, 1, seed, epoch)
        assert not np.isin(other, want).any()


def test_iterating_gives_the_same_random_numbers_as_random_access(
    ds: Untyped,
) -> None:
    def augment(batch: Batch, info: Any) -> Batch:
        return {
            "x": np.array(
                [info.rng(i).integers(1 << 40) for i in range(len(batch["n"]))]
            )
        }

    for transform_threads in TRANSFORM_THREADS:
        loader = ds.loader(
            16, seed=3, transform=augment, transform_threads=transform_threads
        )
        for epoch in range(2):
            got = [batch["x"].tolist() for batch in loader]
            steps = range(len(loader))
            assert got == [
                loader.batch(step, epoch=epoch)["x"].tolist() for step in steps
            ]


class BrokenError(Exception):
    """The error of the transforms of these tests."""


@pytest.mark.parametrize("transform_threads", TRANSFORM_THREADS)
@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_transform_error_is_raised_after_the_batches_before_it(
    ds: Untyped, threads_end: Check, num_threads: int, transform_threads: int
) -> None:
    def fail_late(batch: Batch) -> Batch:
        if batch["n"][0] >= 24:
            raise BrokenError(int(batch["n"][0]))
        return batch

    loader = ds.loader(
        8,
        num_threads=num_threads,
        transform=fail_late,
        transform_threads=transform_threads,
    )
    delivered = []

    def run() -> None:
        for batch in loader:
            delivered.append(int(batch["n"][0]))

    with pytest.raises(BrokenError) as caught:
        run()
    assert delivered == [0, 8, 16]
    assert caught.value.args == (24,), "the first in the order of delivery"
    names = [entry.name for entry in caught.traceback]
    assert "fail_late" in names, "the traceback leads into the transform"
    assert (loader.epoch, loader.step) == (0, 3)
    del caught
    loader.close()
    threads_end()


@pytest.mark.parametrize("transform_threads", TRANSFORM_THREADS)
def test_stop_iteration_in_a_transform_does_not_end_the_epoch(
    ds: Untyped, transform_threads: int
) -> None:
    """Ending the epoch early would lose data silently."""

    def stop(batch: Batch) -> Batch:  # noqa: ARG001
        raise StopIteration

    loader = ds.loader(8, transform=stop, transform_threads=transform_threads)
    with pytest.raises(Exception, match="StopIteration"):
        list(loader)


def test_transforms_run_on_the_callers_thread_with_0_and_on_others_with_1(
    ds: Untyped,
) -> None:
    def where(batch: Batch) -> Batch:  # noqa: ARG001
        return {"thread": threading.get_ident()}

    here = threading.get_ident()
    inline = ds.loader(8, transform=where, transform_threads=0)
    assert {batch["thread"] for batch in inline} == {here}
    apart = ds.loader(8, transform=where, transform_threads=1)
    assert here not in {batch["thread"] for batch in apart}


@pytest.mark.parametrize("transform_threads", TRANSFORM_THREADS)
def test_per_row_fills_the_columns_of_the_batch(
    ds: Untyped, transform_threads: int
) -> None:
    def draw(row: Batch) -> Batch:
        n = int(row["n"])
        return {"image": np.full((2, 3), n, np.uint8), "half": n / 2}

    out = {"image": fr.FixedLen((2, 3), "uint8"), "half": fr.FixedLen((), "float32")}
    loader = ds.loader(
        16, transform=fr.per_row(draw, out=out), transform_threads=transform_threads
    )
    n = 0
    for batch in loader:
        n_rows = len(batch["half"])
        assert batch["image"].shape == (n_rows, 2, 3)
        assert (batch["image"].dtype, batch["half"].dtype) == (np.uint8, np.float32)
        assert batch["image"][:, 1, 2].tolist() == list(range(n, n + n_rows))
        assert batch["half"].tolist() == [k / 2 for k in range(n, n + n_rows)]
        n += n_rows
    assert n == N


def test_per_row_raises_the_error_of_the_function(ds: Untyped) -> None:
    def fail(row: Batch) -> Batch:
        if row["n"] == 21:
            raise BrokenError(21)
        return {"m": row["n"]}

    per_row = fr.per_row(fail, out={"m": fr.FixedLen((), "int64")})
    loader = ds.loader(8, transform=per_row, transform_threads=2)
    with pytest.raises(BrokenError, match="21"):
        list(loader)


@pytest.mark.parametrize("transform_threads", [None, 0, 1, 3])
@pytest.mark.parametrize("n_first", [0, 1])
def test_threads_that_share_an_iterator_get_distinct_batches(
    ds: Untyped, transform_threads: int | None, n_first: int
) -> None:
    transform = None if transform_threads is None else (lambda batch: batch)
    loader = ds.loader(
        1, num_threads=2, transform=transform, transform_threads=transform_threads
    )
    iterator = iter(loader)
    seen = [int(next(iterator)["n"][0]) for _ in range(n_first)]
    errors: list[Exception] = []

    def take() -> None:
        try:
            seen.extend(int(batch["n"][0]) for batch in iterator)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is reported)
            errors.append(error)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors
    assert sorted(seen) == list(range(N))
    assert (loader.epoch, loader.step) == (1, 0)


@pytest.mark.parametrize("transform_threads", [1, 2])
def test_an_error_in_a_transform_is_raised_again(
    ds: Untyped, threads_end: Check, transform_threads: int
) -> None:
    def fail(_: Batch) -> Batch:
        msg = "no such thing"
        raise LookupError(msg)

    loader = ds.loader(
        2, num_threads=2, transform=fail, transform_threads=transform_threads
    )
    iterator = iter(loader)
    for _ in range(3):
        with pytest.raises(LookupError, match="no such thing"):
            next(iterator)
    loader.close()
    threads_end()


def test_the_error_of_a_transform_keeps_no_thread(
    ds: Untyped, threads_end: Check
) -> None:
    def fail(_: Batch) -> Batch:
        raise BrokenError

    iterator = iter(ds.loader(2, transform=fail, transform_threads=2))
    with pytest.raises(BrokenError) as caught:
        next(iterator)
    threads_end()
    assert caught.traceback


@pytest.mark.parametrize("is_per_row", [False, True])
def test_all_epochs_of_a_loader_have_the_same_threads(
    ds: Untyped, threads_end: Check, is_per_row: bool
) -> None:
    """Also after epochs that end in an exception, or are abandoned."""
    threads: set[int] = set()
    barrier = threading.Barrier(2)

    def transform(rows: Untyped) -> Untyped:
        threads.add(threading.get_native_id())
        if way == "meet":
            barrier.wait(60)
        if way == "raise":
            raise BrokenError
        return rows

    per_row = fr.per_row(
        lambda row: transform(row)["n"], out={"n": fr.FixedLen((), "int64")}
    )
    loader = ds.select(range(40)).loader(
        2, transform=per_row if is_per_row else transform, transform_threads=2
    )
    for way in ["meet", "raise", "abandon", "read"] * 3:
        n_batches = 1 if way == "abandon" else None
        with contextlib.suppress(BrokenError):
            collections.deque(itertools.islice(loader, n_batches), maxlen=0)
    assert len(threads) == 2
    loader.close()
    threads_end()


@pytest.mark.parametrize("transform_threads", TRANSFORM_THREADS)
@pytest.mark.parametrize("is_per_row", [False, True])
def test_a_transform_cannot_take_the_next_batch_of_its_own_loader(
    ds: Untyped, threads_end: Check, transform_threads: int, is_per_row: bool
) -> None:
    running: list[Any] = []

    def greedy(_: Batch) -> Batch:
        return next(running[0])

    out = {"n": fr.FixedLen((), "int64")}
    loader = ds.loader(
        8,
        transform=fr.per_row(greedy, out=out) if is_per_row else greedy,
        transform_threads=transform_threads,
    )
    running.append(iter(loader))
    with pytest.raises(RuntimeError, match="inside its own transform"):
        next(running[0])
    running.clear()
    del loader
    threads_end()


def test_a_transform_may_read_the_dataset_and_another_loader(ds: Untyped) -> None:
    def look_up(batch: Batch) -> Batch:
        return {"first": next(iter(ds.loader(1)))["n"], "row": ds[3]["n"], **batch}

    assert next(iter(ds.loader(1, transform=look_up)))["row"] == 3


def test_the_transform_pool_keeps_to_the_memory_limit(ds: Untyped) -> None:
    n_called = 0

    def count(batch: Batch) -> Batch:
        nonlocal n_called
        n_called += 1
        return batch

    # A batch takes one block of 4 KiB. The limit is four blocks, two in the pool.
    loader = ds.loader(
        1, num_threads=1, prefetch=40, transform=count, memory_limit=4 * 4096
    )
    iterator = iter(loader)
    for taken in range(1, 11):
        next(iterator)
        threading.Event().wait(0.02)  # so that the pool runs ahead to its limit
        assert n_called <= taken + 3


def test_the_signature_decides_whether_info_is_passed(ds: Untyped) -> None:
    def by_keyword(batch: Batch, *, info: fr.BatchInfo) -> Batch:
        return {"step": np.full(len(batch["n"]), info.step)}

    def anything(*arguments: Batch) -> Batch:
        (batch,) = arguments
        return batch

    def optional(batch: Batch, scale: int = 2) -> Batch:
        return {"n": batch["n"] * scale}

    def with_default(batch: Batch, info: Any = None) -> Batch:
        return {"step": np.full(len(batch["n"]), info.step)}

    def third(batch: Batch, scale: int = 2, info: Any = None) -> Batch:
        return {"step": np.full(len(batch["n"]), info.step * scale)}

    assert ds.loader(8, transform=with_default).batch(2)["step"].tolist() == [2] * 8
    assert ds.loader(8, transform=third).batch(2)["step"].tolist() == [4] * 8
    assert ds.loader(8, transform=by_keyword).batch(2)["step"].tolist() == [2] * 8
    assert ds.loader(8, transform=anything).batch(0)["n"].tolist() == list(range(8))
    assert ds.loader(2, transform=optional).batch(1)["n"].tolist() == [4, 6]


def test_a_second_argument_of_another_name_is_refused(ds: Untyped) -> None:
    with pytest.raises(TypeError, match=r"must be named 'info', got 'origin'"):
        ds.loader(8, transform=lambda batch, origin: (batch, origin))
    with pytest.raises(TypeError, match=r"must be named 'rng', got 'generator'"):
        fr.per_row(
            lambda row, generator: (row, generator), out={"x": fr.FixedLen((), "int64")}
        )


def test_columns_of_different_lengths_are_refused(ds: Untyped) -> None:
    loader = ds.loader(8, transform=lambda batch: {**batch, "m": batch["n"][:3]})
    with pytest.raises(ValueError, match=r"equal length.*'m': 3"):
        next(iter(loader))


@pytest.mark.parametrize(
    ("value", "dtype", "error"),
    [
        (np.int64(300), "uint8", ValueError),
        (np.float64(-1.5), "uint8", TypeError),
        (-1, "uint16", ValueError),
        ([1, 2], "int64", ValueError),
    ],
)
def test_per_row_neither_wraps_nor_broadcasts(
    ds: Untyped, value: object, dtype: str, error: type[Exception]
) -> None:
    transform = fr.per_row(lambda _: value, out={"x": dtype})  # FixedLen((), dtype)
    with pytest.raises(error, match="column 'x' of record 0"):
        ds.loader(4, transform=transform).peek()


def test_a_transform_may_return_any_mapping(ds: Untyped) -> None:
    for mapping in (types.MappingProxyType, collections.UserDict, collections.ChainMap):
        batch = next(iter(ds.loader(8, transform=mapping)))
        assert type(batch) is dict
        assert batch["n"].tolist() == list(range(8))
    with pytest.raises(TypeError, match="got list"):
        next(iter(ds.loader(8, transform=list)))


@pytest.mark.parametrize("n_threads", [2, 8])
def test_all_transform_threads_work_at_the_same_time(
    ds: Untyped, n_threads: int
) -> None:
    """Also if few threads decode. Each transform waits for the others to begin."""
    barrier = threading.Barrier(n_threads)

    def meet(batch: Batch) -> Batch:
        barrier.wait(30)
        return batch

    some = ds.select(range(N // n_threads * n_threads))
    for num_threads in (0, 1):
        loader = some.loader(
            1, num_threads=num_threads, transform=meet, transform_threads=n_threads
        )
        assert len(list(loader)) == len(some)
    least = some.loader(
        *(1,),
        num_threads=1,
        transform=meet,
        transform_threads=n_threads,
        prefetch=n_threads + 1,
    )
    assert len(list(least)) == len(some)


def test_a_prefetch_that_keeps_threads_idle_warns(ds: Untyped) -> None:
    options: dict[str, Any] = {"transform": dict, "transform_threads": 8}
    loader = ds.loader(5, num_threads=1, prefetch=3, **options)
    with pytest.warns(UserWarning, match="only 2 of 8 .* set prefetch to at least 9"):
        list(loader)
    list(loader)  # once


def test_per_row_names_a_column_that_is_missing(ds: Untyped) -> None:
    out = {"x": fr.FixedLen((), "int64"), "y": fr.FixedLen((), "int64")}
    transform = fr.per_row(lambda row: {"x": row["n"]}, out=out)
    with pytest.raises(
        TypeError, match="column 'y' of record 0 is missing in the function's result"
    ):
        ds.loader(4, transform=transform).peek()
    pair = fr.per_row(lambda row: (row["n"], row["n"]), out=out)
    with pytest.raises(TypeError, match=r"dict with columns \['x', 'y'\], got tuple"):
        ds.loader(4, transform=pair).peek()
