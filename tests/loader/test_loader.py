"""The loader: records to batches, in order, on any number of threads.

Goal
    An epoch delivers every record once, in file order, bit for bit the same for any
    number of threads and kind of I/O. Arrays belong to the caller. Threads stop however a
    loop ends.
Method
    A dataset of several files whose labels are record numbers; the threads of the process
    in /proc. Tests that need a separate process are in test_loader_process.py, tests of
    transforms in test_transform.py.
"""

from __future__ import annotations

import gc
import gzip
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset, snapshot
from oracle import example, frame, tfrecord_file

Check = Callable[[], None]

THREADS = (0, 1, 2, 8)
SPEC: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "image": fr.Raw((4, 4), "uint8"),
    "words": fr.VarLen("bytes"),
    "score": fr.FixedLen((2,), "float32", default=[0.0, 0.5]),
}
FILE_SIZES = (13, 0, 1, 40, 46)
N = sum(FILE_SIZES)


def record(n: int) -> bytes:
    return example(
        {
            b"n": ("int64", [n]),
            b"image": ("bytes", [bytes([n % 256]) * 16]),
            b"words": ("bytes", [b"w" * (n % 7)] * (n % 4)),
            b"score": ("float", [n / 4, -n]) if n % 3 else None,
        }
    )


@pytest.fixture(scope="module")
def paths(write: Write) -> list[Path]:
    begins = [0, *itertools.accumulate(FILE_SIZES)]
    return [
        write(tfrecord_file(record(n) for n in range(begin, end)))
        for begin, end in itertools.pairwise(begins)
    ]


@pytest.fixture
def ds(paths: list[Path]) -> Untyped:
    return open_dataset(paths, features=SPEC)


def labels(batches: Any) -> list[int]:
    return [n for batch in batches for n in batch["n"].tolist()]


def test_the_repr_describes_the_loader(ds: fr.Dataset) -> None:
    loader = ds.loader(8, seed=3, drop_last=True)
    assert loader.dataset is ds
    assert (loader.seed, loader.drop_last, loader.pad_last) == (3, True, False)
    assert ds.loader(8, pad_last=True).pad_last
    loader.load_state_dict(ds.loader(8, seed=4, drop_last=True).state_dict())
    assert loader.seed == 4
    assert not ds.is_streamed


def until_error(loader: fr.Loader) -> tuple[list[Any], BaseException]:
    """The batches before the error, and the error."""
    batches = []
    try:
        for batch in loader:
            batches.append(batch)  # noqa: PERF402
    except (fr.Error, OSError) as error:
        return batches, error
    pytest.fail("the epoch ended without an error")


# Order and length.


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 3, 8, N - 1, N, N + 1, 10_000])
def test_an_epoch_is_every_record_once_in_file_order(
    ds: Untyped, batch_size: int, drop_last: bool
) -> None:
    loader = ds.loader(batch_size, drop_last=drop_last)
    batches = [] if drop_last and batch_size > N else list(loader)
    assert (
        len(batches)
        == len(loader)
        == (N // batch_size if drop_last else -(-N // batch_size))
    )
    n_delivered = N // batch_size * batch_size if drop_last else N
    assert labels(batches) == list(range(n_delivered))
    assert [len(batch["n"]) for batch in batches[:-1]] == [batch_size] * (
        len(batches) - 1
    )


def test_batches_equal_the_rows_of_the_dataset(ds: Untyped) -> None:
    batches = list(ds.loader(10))
    assert snapshot(batches) == snapshot([ds[i : i + 10] for i in range(0, N, 10)])


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_threads_prefetch_and_io_change_nothing(
    paths: list[Path], batch_size: int
) -> None:
    want = None
    for io, threads, prefetch in itertools.product(
        ("auto", "mmap", "pread"), THREADS, (None, 1, 5)
    ):
        ds = open_dataset(paths, features=SPEC, io=io)
        with ds.loader(batch_size, num_threads=threads, prefetch=prefetch) as loader:
            got = snapshot(list(loader))
        want = want or got
        assert got == want, (io, threads, prefetch)


def test_the_division_into_files_does_not_matter(
    write: Write, paths: list[Path]
) -> None:
    one = write(b"".join(path.read_bytes() for path in paths))
    together = open_dataset(one, features=SPEC).loader(9, num_threads=2)
    apart = open_dataset(paths, features=SPEC).loader(9, num_threads=2)
    assert snapshot(list(together)) == snapshot(list(apart))


def test_a_batch_larger_than_the_dataset_is_one_batch_or_none(ds: Untyped) -> None:
    assert [len(batch["n"]) for batch in ds.loader(N + 1)] == [N]
    loader = ds.loader(N + 1, drop_last=True)
    with pytest.warns(UserWarning, match=rf"drops all .*has {N}, .*batch has {N + 1}$"):
        assert list(loader) == []
    assert list(loader) == []  # warns once


def test_dropping_no_record_does_not_warn(write: Write) -> None:
    empty = open_dataset(write(b""), features=SPEC)
    assert list(empty.loader(8, drop_last=True)) == []


# Epochs, state, random access.


def test_each_loop_is_an_epoch_and_steps_are_counted(ds: Untyped) -> None:
    loader = ds.loader(10)
    assert (loader.epoch, loader.step) == (0, 0)
    for step, batch in enumerate(loader, 1):
        assert batch["n"][0] == (step - 1) * 10
        if step < len(loader):
            assert (loader.epoch, loader.step) == (0, step)
    assert (loader.epoch, loader.step) == (1, 0)
    assert labels(loader) == list(range(N))
    assert (loader.epoch, loader.step) == (2, 0)


def test_a_loop_after_a_break_starts_the_next_epoch(
    ds: Untyped,
) -> None:
    loader = ds.loader(10, num_threads=2)
    for _ in zip(range(3), loader, strict=False):
        pass
    batches = iter(loader)
    assert next(batches)["n"][0] == 0
    assert (loader.epoch, loader.step) == (1, 1)


def test_a_batch_takes_few_python_calls(write: Write) -> None:
    n_batches = 30
    spec: dict[str, Untyped] = {name: SPEC[name] for name in ("n", "image", "score")}
    path = write(tfrecord_file([record(1)] * 256 * n_batches))
    n_calls, counts = 0, []

    def on_event(_frame: object, event: str, _arg: object) -> None:
        nonlocal n_calls
        n_calls += event == "call"

    sys.setprofile(on_event)
    for _batch in open_dataset(path, features=spec).loader(256):
        counts.append(n_calls)
    sys.setprofile(None)
    assert len(counts) == n_batches
    # Missing features are watched for in the first batches only.
    assert max(np.diff(counts)[n_batches // 2 :]) <= 8


@pytest.mark.parametrize("transform_threads", [0, 1])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_an_interrupted_pass_continues_without_an_index(
    write: Write, is_compressed: bool, transform_threads: int
) -> None:
    """An index would find the damage at the end before the first batch."""
    data = tfrecord_file(record(n) for n in range(41))[:-1]
    path = write(gzip.compress(data) if is_compressed else data)
    to_interrupt = {10, 25}

    def interrupt(batch: Untyped) -> Untyped:
        first = int(batch["n"][0])
        if first in to_interrupt:
            to_interrupt.remove(first)
            raise KeyboardInterrupt
        return batch

    loader = open_dataset(path, features=SPEC).loader(
        5, transform=interrupt, transform_threads=transform_threads
    )
    iterator, got = iter(loader), []
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            got.extend(iterator)
        assert loader.step == len(got)
    with pytest.raises(fr.CorruptionError):
        got.extend(iterator)
    assert labels(got) == list(range(40))
    assert loader.stats.n_batches == 8


def test_a_second_iterator_ends_the_first(ds: Untyped, threads_end: Check) -> None:
    loader = ds.loader(10, num_threads=2)
    first = iter(loader)
    next(first)
    second = iter(loader)
    assert next(second)["n"][0] == 0
    with pytest.raises(RuntimeError, match="iter"):
        next(first)
    assert labels(second) == list(range(10, N))
    loader.close()
    threads_end()


def test_a_finished_iterator_stays_finished(ds: Untyped) -> None:
    batches = iter(ds.loader(50))
    assert labels(batches) == list(range(N))
    assert list(batches) == []


def test_peek_returns_the_next_batch_and_keeps_the_state(ds: Untyped) -> None:
    loader = ds.loader(10)
    assert snapshot([loader.peek()] * 2) == snapshot([ds[0:10]] * 2)
    assert (loader.epoch, loader.step) == (0, 0)
    batches = iter(loader)
    next(batches)
    loader.peek()
    assert (loader.epoch, loader.step) == (0, 1)
    assert labels(batches) == list(range(10, N))


def test_batch_returns_any_batch_and_keeps_the_state(ds: Untyped) -> None:
    loader = ds.loader(7, num_threads=2)
    batches = iter(loader)
    next(batches)
    for step in (3, 0, len(loader) - 1, 3):
        assert snapshot([loader.batch(step)]) == snapshot([ds[step * 7 : step * 7 + 7]])
        assert snapshot([loader.batch(step, epoch=5)]) == snapshot([loader.batch(step)])
    assert (loader.epoch, loader.step) == (0, 1)
    assert labels(batches) == list(range(7, N))
    with pytest.raises(IndexError, match=str(len(loader))):
        loader.batch(len(loader))


def test_repeat_runs_through_epochs(ds: Untyped) -> None:
    loader = ds.loader(30, num_threads=1)
    assert labels(loader.repeat(2)) == [*range(N)] * 2
    assert loader.epoch == 2
    endless = loader.repeat()
    n_batches = 2 * len(loader) + 1
    assert labels(itertools.islice(endless, n_batches)) == [
        *range(N),
        *range(N),
        *range(30),
    ]
    assert list(ds.loader(30).repeat(0)) == []


# The arrays are the caller's.


def test_a_list_of_batches_holds_different_batches(ds: Untyped) -> None:
    for threads in THREADS:
        batches = list(ds.loader(8, num_threads=threads, prefetch=1))
        assert labels(batches) == list(range(N))
        assert len({batch["n"].ctypes.data for batch in batches}) == len(batches)


def test_arrays_do_not_change_while_others_are_decoded(ds: Untyped) -> None:
    loader = ds.loader(8, num_threads=2, prefetch=1)
    kept = next(iter(loader))
    before = snapshot([kept])
    for _ in range(5):
        for batch in loader:
            batch["n"][:] = -1
            batch["image"][:] = 77
    assert snapshot([kept]) == before
    assert labels(loader) == list(range(N)), (
        "what a caller writes stays with the caller"
    )


def test_arrays_outlive_loader_dataset_and_file(
    write: Write, threads_end: Check
) -> None:
    path = write(tfrecord_file(record(n) for n in range(100)))
    ds = open_dataset(path, features=SPEC)
    loader = ds.loader(10, num_threads=2)
    batches = [*loader, ds[0:10], ds[[3, 1]]]
    raw = ds.records[0:100]
    before, raw_before = snapshot(batches), raw.tolist()
    images = [batch["image"][2:5] for batch in batches]
    images_before = [image.tolist() for image in images]
    one = ds.records[7]

    path.unlink()
    del loader, ds
    gc.collect()
    threads_end()
    np.ones(1 << 20)  # would reuse the memory if it were free

    assert snapshot(batches) == before
    del batches
    gc.collect()
    assert [image.tolist() for image in images] == images_before
    assert raw.tolist() == raw_before
    assert one == record(7)


def test_a_view_keeps_only_its_batch_alive(ds: Untyped) -> None:
    words = [batch["words"][3] for batch in ds.loader(20, num_threads=2)]
    gc.collect()
    list(ds.loader(20))
    want = [[b"w" * (n % 7)] * (n % 4) for n in range(3, N, 20)]
    assert [word.tolist() for word in words] == want


# Threads start and stop.


def test_no_thread_before_the_first_batch(ds: Untyped, threads_end: Check) -> None:
    loader = ds.loader(8, num_threads=4)
    batches = iter(loader)
    threads_end()
    next(batches)
    loader.close()


def leave_by_break(loader: fr.Loader) -> None:
    for _ in loader:
        break


def leave_by_error(loader: fr.Loader) -> None:
    with pytest.raises(KeyError, match="consumer"):
        raise_in_loop(loader)


def raise_in_loop(loader: fr.Loader) -> None:
    for _ in loader:
        raise KeyError("consumer")


def leave_at_the_end(loader: fr.Loader) -> None:
    for _ in loader:
        pass


def leave_by_forgetting(loader: fr.Loader) -> None:
    next(iter(loader))


@pytest.mark.parametrize(
    "leave", [leave_by_break, leave_by_error, leave_at_the_end, leave_by_forgetting]
)
@pytest.mark.parametrize("transform", [None, dict])
@pytest.mark.parametrize("threads", THREADS)
def test_threads_stop_however_the_loop_ends(
    ds: Untyped,
    threads_end: Check,
    threads: int,
    transform: Callable[[Any], Any] | None,
    leave: Callable[[fr.Loader], None],
) -> None:
    loader = ds.loader(8, num_threads=threads, transform=transform)
    leave(loader)
    del loader
    gc.collect()
    threads_end()


@pytest.mark.parametrize("transform", [None, dict])
def test_close_and_with_stop_the_threads_at_once(
    ds: Untyped, threads_end: Check, transform: Callable[[Any], Any] | None
) -> None:
    with ds.loader(8, num_threads=3, transform=transform) as loader:
        batches = iter(loader)
        next(batches)
    threads_end()
    with pytest.raises(RuntimeError, match="close"):
        next(batches)
    loader.close()


def test_concurrent_loaders_are_independent(ds: Untyped, threads_end: Check) -> None:
    loaders = [ds.loader(size, num_threads=2) for size in range(5, 15)]
    batches = [iter(loader) for loader in loaders]
    got: list[list[int]] = [[] for _ in loaders]
    for _ in range(N):
        for labels_so_far, it in zip(got, batches, strict=True):
            labels_so_far.extend(labels(itertools.islice(it, 1)))
    assert got == [list(range(N))] * len(loaders)
    for loader in loaders:
        loader.close()
    threads_end()


# Damage.


def damaged_file(write: Write, kind: str, at: int, n_records: int = 100) -> Path:
    """A file whose record `at` is damaged in one of three ways."""
    frames = [frame(record(n)) for n in range(n_records)]
    if kind == "payload":
        spoilt = bytearray(frames[at])
        spoilt[20] ^= 4
        frames[at] = bytes(spoilt)
    elif kind == "header":
        spoilt = bytearray(frames[at])
        spoilt[3] ^= 4
        frames[at] = bytes(spoilt)
    elif kind == "wire":
        frames[at] = frame(record(at) + b"\x07")
    else:
        frames[at] = frame(example({b"n": ("float", [1.0])}))
    return write(b"".join(frames))


DAMAGE = {
    "payload": fr.CorruptionError,
    "header": fr.CorruptionError,
    "wire": fr.DecodeError,
    "kind": fr.SchemaError,
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_intact_batches_before_damage_are_delivered(
    write: Write,
    paths: list[Path],
    threads_end: Check,
    kind: str,
    threads: int,
    io: str,
) -> None:
    bad = damaged_file(write, kind, at=70)
    ds = open_dataset([paths[0], bad], features=SPEC, io=io)
    loader = ds.loader(8, num_threads=threads)
    batches, error = until_error(loader)
    n_good = (FILE_SIZES[0] + 70) // 8 * 8
    assert labels(batches) == [*range(FILE_SIZES[0]), *range(100)][:n_good]
    assert type(error) is DAMAGE[kind]
    assert isinstance(error, fr.Error)
    assert (error.path, error.record) == (str(bad), 70)
    assert (loader.epoch, loader.step) == (0, n_good // 8), (
        "it stands before the failed batch"
    )
    loader.close()
    threads_end()


@pytest.mark.parametrize("threads", THREADS)
def test_the_first_damage_in_the_order_of_delivery_is_raised(
    write: Write, threads: int
) -> None:
    damaged = bytearray(damaged_file(write, "kind", at=90).read_bytes())
    early = bytearray(damaged_file(write, "wire", at=41).read_bytes())
    for _ in range(5):
        ds = open_dataset([write(bytes(early)), write(bytes(damaged))], features=SPEC)
        batches, error = until_error(ds.loader(4, num_threads=threads))
        assert labels(batches) == list(range(40))
        assert type(error) is fr.DecodeError


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_a_missing_file_is_an_os_error_with_its_path(write: Write, io: str) -> None:
    first, second = (write(tfrecord_file([record(n)] * 20)) for n in (1, 2))
    second.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        list(
            open_dataset([first, second], features=SPEC, io=io).loader(5, num_threads=2)
        )
    assert caught.value.filename == str(second)


# Options.


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"batch_size": -4}, ValueError, "batch_size"),
        ({"batch_size": "8"}, TypeError, "batch_size"),
        ({"batch_size": 2.5}, TypeError, "batch_size"),
        ({"batch_size": 8, "num_threads": -1}, ValueError, "num_threads"),
        ({"batch_size": 8, "num_threads": "2"}, TypeError, "num_threads"),
        ({"batch_size": 8, "prefetch": -1}, ValueError, "prefetch"),
        ({"batch_size": 8, "transform": 3}, TypeError, "transform"),
        ({"batch_size": 8, "transform_threads": -1}, ValueError, "transform_threads"),
        ({"batch_size": 8, "seed": "zero"}, TypeError, "seed"),
        ({"batch_size": 8, "num_workers": 2}, TypeError, "num_threads"),
        ({"batch_size": 8, "drop_remainder": True}, TypeError, "drop_last"),
        ({"batch_size": 8, "buffer_size": 100}, TypeError, "prefetch|shuffle"),
        ({"batch_size": 8, "no_such_thing": 1}, TypeError, "no_such_thing"),
    ],
)
def test_options_are_checked_before_any_thread_starts(
    ds: Untyped,
    threads_end: Check,
    options: dict[str, Any],
    error: type[Exception],
    names: str,
) -> None:
    with pytest.raises(error, match=names):
        ds.loader(**options)
    threads_end()


def test_options_are_keyword_only(ds: Untyped) -> None:
    with pytest.raises(TypeError, match="positional"):
        ds.loader(8, True)


def test_numpy_integers_are_accepted(ds: Untyped) -> None:
    assert labels(ds.loader(np.int64(10), num_threads=np.int32(1))) == list(range(N))


def test_a_small_memory_limit_loses_no_batches(ds: Untyped) -> None:
    with pytest.warns(Warning, match="memory_limit") as caught:
        batches = list(ds.loader(16, num_threads=2, memory_limit=1))
    assert [warning.filename for warning in caught] == [__file__]
    assert labels(batches) == list(range(N))


def test_a_loader_is_neither_an_array_nor_a_list(write: Write) -> None:
    loader: Any = open_dataset(write(b"")).loader(4)
    with pytest.raises(TypeError, match="is not an array: loop over it"):
        np.asarray(loader)
    with pytest.raises(
        TypeError, match=r"cannot index a Loader with 3; .*batch\(step\)"
    ):
        loader[3]
    assert not hasattr(loader, "shape")
