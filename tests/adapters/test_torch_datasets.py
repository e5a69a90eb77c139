"""Data sets for torch's DataLoader: map-style and iterable.

Goal
    A DataLoader over a map-style data set gives the rows that its sampler chose. Over an
    iterable one it gives the batches of the loader, each once and in its order, for any
    number of workers; passes are epochs; a state leaves exactly the remaining batches.
Method
    Beside the plain loader, asked batch by batch. Workers are forked here, which is
    quick; test_workers.py starts them in all ways.
"""

from __future__ import annotations

import gzip
import itertools
import json
import multiprocessing
import os
import pickle
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import fastrec as fr
from children import SECONDS_TO_HANG
from columns import Untyped, Write, open_dataset
from numbered import ORDERS, loader_of
from oracle import example, tfrecord_file

torch: Untyped = pytest.importorskip("torch")
data: Untyped = torch.utils.data

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is a matter of POSIX"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on few CPUs
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # has threads
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # by torchdata
]

N = 43
BATCH_SIZE = 4
N_STEPS = 11  # the last of 3 rows
WORKERS = [(0, False), (1, True), (2, False), (2, True), (3, False)]
any_workers = pytest.mark.parametrize(("num_workers", "is_persistent"), WORKERS)
SPEC: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "image": fr.Raw((2, 2), "uint16"),
    "name": fr.FixedLen((), "bytes"),
    "x": fr.VarLen("float32"),
}


def content(n_records: int) -> bytes:
    return tfrecord_file(
        example(
            {
                b"n": ("int64", [n]),
                b"image": ("bytes", [bytes([n] * 8)]),
                b"name": ("bytes", [b"%d" % n]),
                b"x": ("float", [n / 2] * (n % 3)),
            }
        )
        for n in range(n_records)
    )


@pytest.fixture(scope="module")
def ds(write: Write) -> Untyped:
    return open_dataset(write(content(N)), features=SPEC)


def dense(ds: Untyped) -> Untyped:
    return ds.select_columns(["n", "image"])


def iterable(ds: Untyped, **options: Untyped) -> Untyped:
    chosen: dict[str, Untyped] = {"shuffle": True, **options}
    return fr.torch.IterableDataset(ds, BATCH_SIZE, **chosen)


def through(
    dataset: Untyped, num_workers: int = 0, is_persistent: bool = False
) -> Untyped:
    """A DataLoader over batches."""
    return data.DataLoader(dataset, batch_size=None, **of(num_workers, is_persistent))


def of(num_workers: int, is_persistent: bool = False) -> dict[str, Untyped]:
    if not num_workers:
        return {}
    return {
        "num_workers": num_workers,
        "persistent_workers": is_persistent,
        "multiprocessing_context": "fork",
        "timeout": SECONDS_TO_HANG,
    }


def numbers(batches: Iterable[Untyped]) -> list[list[int]]:
    return [batch["n"].tolist() for batch in batches]


def flat(batches: Iterable[Untyped]) -> list[int]:
    return [n for batch in numbers(batches) for n in batch]


def epoch_of(ds: Untyped, epoch: int, **options: Untyped) -> list[list[int]]:
    loader = ds.loader(BATCH_SIZE, **{"shuffle": True} | options)
    return numbers(loader.batch(step, epoch) for step in range(len(loader)))


def error_of(batches: Iterable[Untyped]) -> Exception:
    """The error of an iteration. Nothing keeps its DataLoader, whose workers end."""
    try:
        list(batches)
    except Exception as error:  # noqa: BLE001 (tests ask which)
        return error.with_traceback(None)
    pytest.fail("there was no error")


# Map-style.


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_sampler_chooses_rows_and_default_collate_stacks_them(
    ds: Untyped, num_workers: int
) -> None:
    rows = fr.torch.Dataset(ds.select_columns(["n", "image", "name"]))
    order = np.random.default_rng(0).permutation(N).tolist()
    loader = data.DataLoader(rows, batch_size=8, sampler=order, **of(num_workers))
    batches = list(loader)
    assert len(rows) == N
    assert flat(batches) == order
    for batch in batches:
        assert batch["image"].dtype == torch.uint16
        expected = [np.full((2, 2), n * 257).tolist() for n in batch["n"]]
        assert batch["image"].tolist() == expected
        assert batch["name"] == [b"%d" % n for n in batch["n"]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_collate_gives_columns_of_every_kind(ds: Untyped, num_workers: int) -> None:
    rows = fr.torch.Dataset(ds)
    (batch,) = data.DataLoader(
        rows, batch_size=N, collate_fn=fr.torch.collate, **of(num_workers)
    )
    assert batch["n"].tolist() == list(range(N))
    assert batch["name"].tolist() == [b"%d" % n for n in range(N)]
    assert batch["x"].lengths.tolist() == [n % 3 for n in range(N)]
    assert batch["x"].values.tolist() == [n / 2 for n in range(N) for _ in range(n % 3)]


def test_a_batch_is_one_read_whose_memory_the_tensors_share(ds: Untyped) -> None:
    reads = []

    def counted(batch: Untyped) -> Untyped:
        reads.append(batch)
        return batch

    rows = fr.torch.Dataset(ds.with_transform(counted))
    part = data.Subset(rows, range(10, 30))
    loader = data.DataLoader(part, batch_size=10, collate_fn=fr.torch.collate)
    for batch, read in zip(loader, reads, strict=False):
        for name in ("n", "image"):
            assert batch[name].data_ptr() == read[name].ctypes.data
    assert len(reads) == 2
    stacked = [*data.DataLoader(fr.torch.Dataset(dense(ds)), batch_size=N)]
    assert numbers(stacked) == [list(range(N))]


def test_rows_that_are_picked_one_by_one_are_stacked(ds: Untyped) -> None:
    rows = fr.torch.Dataset(dense(ds))
    both = data.ConcatDataset([rows, rows])
    loader = data.DataLoader(both, batch_size=N, collate_fn=fr.torch.collate)
    assert numbers(loader) == [list(range(N))] * 2
    pairs = data.StackDataset(rows, rows)
    ((one, other),) = data.DataLoader(pairs, N, collate_fn=fr.torch.collate)
    assert one["n"].tolist() == other["n"].tolist() == list(range(N))


@pytest.mark.parametrize("name", ["x", "words"])
def test_a_column_that_cannot_be_stacked_is_named(ds: Untyped, name: str) -> None:
    words = SPEC | {"words": fr.FixedLen((1,), "bytes", key="name")}
    rows = fr.torch.Dataset(ds.with_features(words).select_columns(["n", name]))
    both = data.ConcatDataset([rows, rows])
    error = error_of(data.DataLoader(both, 8, collate_fn=fr.torch.collate))
    assert isinstance(error, ValueError)
    assert re.search(rf"column '{name}': .* fr\.concat\(\[", str(error))


def test_a_row_is_tensors_and_a_list_of_numbers_is_a_batch(ds: Untyped) -> None:
    rows = pickle.loads(pickle.dumps(fr.torch.Dataset(ds)))
    row = rows[5]
    assert (row["n"].shape, row["n"].dtype, row["n"].item()) == ((), torch.int64, 5)
    assert row["image"].shape == (2, 2)
    assert row["name"] == b"5"
    assert row["x"].tolist() == [2.5, 2.5]
    assert rows[[7, 3]]["n"].tolist() == [7, 3]
    assert rows[-1]["n"].item() == N - 1
    assert [rows[i]["n"].item() for i in torch.tensor([7, 3])] == [7, 3]
    assert rows[torch.tensor([7, 3])]["n"].tolist() == [7, 3]
    with pytest.raises(TypeError, match="index must be a number"):
        rows[torch.tensor(True)]
    made = rows.__getitems__([4, 5])
    assert len(made) == 2
    assert made[1]["x"].tolist() == [2.5, 2.5]
    sampler = data.BatchSampler(data.SequentialSampler(rows), 16, drop_last=True)
    whole = data.DataLoader(rows, sampler=sampler, batch_size=None)
    assert numbers(whole) == [list(range(16)), list(range(16, 32))]


def test_a_wrong_number_is_an_error(ds: Untyped) -> None:
    rows = fr.torch.Dataset(ds)
    with pytest.raises(IndexError, match="record 43 is out of range"):
        rows[N]
    with pytest.raises(IndexError, match="record 43 is out of range"):
        rows.__getitems__([0, N])


# Iterable: which batches come.


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_batches_are_those_of_the_loader_in_its_order(
    ds: Untyped, num_workers: int
) -> None:
    dataset = iterable(ds)
    batches = [*through(dataset, num_workers)]
    assert numbers(batches) == epoch_of(ds, 0)
    assert len(dataset) == len(batches) == N_STEPS
    for batch in batches:
        lengths = [n % 3 for n in batch["n"].tolist()]
        assert batch["x"].lengths.tolist() == lengths
        assert batch["name"].tolist() == [b"%d" % n for n in batch["n"].tolist()]


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_is_shared_by_steps(order: str, write: Write) -> None:
    records = [
        example({b"n": ("int64", [n]), b"w": ("int64", [n] * (n % 2))})
        for n in range(N)
    ]
    features: Untyped = {"n": fr.FixedLen((), "int64"), "w": fr.VarLen("int64")}
    some = open_dataset(write(tfrecord_file(records)), features=features)
    alone, loader = loader_of(some, order), loader_of(some, order)
    dataset = fr.torch.IterableDataset(loader)
    both = through(dataset, 2, is_persistent=True)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        assert numbers(both) == numbers(alone)


def test_every_pass_without_workers_is_the_next_epoch(ds: Untyped) -> None:
    dataset = iterable(ds)
    loader = through(dataset)
    for epoch in range(2):
        assert numbers(loader) == epoch_of(ds, epoch)
    for _ in loader:
        break
    assert numbers(loader) == epoch_of(ds, 3)
    dataset.set_epoch(1)
    assert numbers(loader) == epoch_of(ds, 1)
    copied = pickle.loads(pickle.dumps(dataset))
    assert numbers(copied) == numbers(dataset) == epoch_of(ds, 2)


@any_workers
def test_a_pass_is_the_epoch_that_was_set(
    ds: Untyped, num_workers: int, is_persistent: bool
) -> None:
    dataset = iterable(ds)
    loader = through(dataset, num_workers, is_persistent)
    for epoch in (0, 1, 5, 2, 2):
        dataset.set_epoch(epoch)
        assert len(dataset) == N_STEPS
        assert numbers(loader) == epoch_of(ds, epoch)


@pytest.mark.parametrize("is_persistent", [False, True])
def test_passes_that_end_early_have_the_epoch_that_was_set(
    ds: Untyped, is_persistent: bool
) -> None:
    dataset = iterable(ds)
    loader = through(dataset, 3, is_persistent)
    for epoch in range(8):
        dataset.set_epoch(epoch)
        n_taken = epoch % 4
        if not n_taken:
            iter(loader)
        found = numbers(itertools.islice(loader, n_taken)) if n_taken else []
        assert found == epoch_of(ds, epoch)[:n_taken]


@pytest.mark.parametrize(("num_workers", "is_persistent"), [(1, False), *WORKERS[2:]])
def test_a_pass_of_workers_never_repeats_an_epoch(
    ds: Untyped, num_workers: int, is_persistent: bool
) -> None:
    dataset = iterable(ds)
    loader = through(dataset, num_workers, is_persistent)
    assert numbers(loader) == epoch_of(ds, 0)
    for again in (loader, through(dataset, 2), through(dataset)):
        error = error_of(again)
        assert isinstance(error, RuntimeError)
        assert "would repeat the epoch" in str(error)
        assert "set_epoch(epoch) before each pass" in str(error)
    dataset.set_epoch(1)
    assert numbers(loader) == epoch_of(ds, 1)
    dataset.set_epoch(1)
    assert numbers(through(dataset)) == epoch_of(ds, 1)
    assert numbers(through(dataset, 2)) == epoch_of(ds, 2)


class Wrapped(data.IterableDataset):  # type: ignore[misc]
    """A dataset whose workers may not begin a pass that ends early."""

    def __init__(self, dataset: Untyped) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Untyped]:
        yield from self.dataset


def test_a_wrapped_data_set_gets_its_epoch_from_set_epoch(ds: Untyped) -> None:
    dataset = iterable(ds)
    loader = through(Wrapped(dataset), 3)
    for epoch in range(4):
        dataset.set_epoch(epoch)
        n_taken = 1 if epoch % 2 else N_STEPS
        found = numbers(itertools.islice(loader, n_taken))
        assert found == epoch_of(ds, epoch)[:n_taken]


def test_memory_is_shared_whatever_the_default_device(ds: Untyped) -> None:
    with torch.device("meta"):
        dataset = iterable(ds)
    assert numbers(dataset) == epoch_of(ds, 0)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_goes_on_where_it_is(ds: Untyped, num_workers: int) -> None:
    whole = ds.loader(BATCH_SIZE, shuffle=True, seed=2**64 - 1)
    whole.seek(3)
    loader = ds.loader(6, shuffle=True)
    loader.load_state_dict(whole.state_dict())  # which cuts its epoch
    expected = [numbers(loader.batch(i) for i in range(loader.step, len(loader)))]
    assert sum(map(len, expected[0])) == N - 12
    expected += [numbers(loader.batch(i, 1) for i in range(8))]
    dataset = fr.torch.IterableDataset(loader)
    both = through(dataset, num_workers)
    found = [numbers(both)]
    dataset.set_epoch(1)
    assert [*found, numbers(both)] == expected


def test_a_loader_that_was_given_stays_where_it_is(ds: Untyped) -> None:
    loader = ds.loader(BATCH_SIZE, shuffle=True)
    loader.seek(3)
    dataset = fr.torch.IterableDataset(loader)
    loader.seek(7)
    assert numbers(dataset) == epoch_of(ds, 0)[3:]
    assert loader.step == 7


def test_a_data_set_reports_passes_without_workers(write: Write) -> None:
    damaged = bytearray(content(N))
    damaged[len(content(20)) + 13] ^= 1
    some = open_dataset(write(bytes(damaged)), features=SPEC, on_error="skip")
    dataset = fr.torch.IterableDataset(
        some, batches=lambda _seed, epoch: [np.arange(18, 22)] * (epoch + 2)
    )
    assert (dataset.epoch, len(dataset), len(dataset.report)) == (0, 2, 0)
    batches = iter(through(dataset))
    next(batches)
    assert (dataset.epoch, len(dataset), len(dataset.report)) == (0, 2, 1)
    assert len([*batches]) == 1
    assert (dataset.epoch, len(dataset), dataset.stats.n_batches) == (1, 3, 2)
    dataset.set_epoch(5)
    assert (dataset.epoch, len(dataset)) == (5, 7)
    assert len([*dataset]) == 7


def test_a_pass_without_workers_ends_the_one_before(ds: Untyped) -> None:
    dataset = iterable(ds)
    first = iter(dataset)
    assert len(numbers(itertools.islice(first, 2))) == 2
    second = iter(dataset)
    next(second)
    with pytest.raises(RuntimeError, match="has one running epoch"):
        next(first)
    assert len(list(second)) == N_STEPS - 1


def test_an_empty_share_ends_a_worker(ds: Untyped) -> None:
    few = ds.select(range(3))
    assert numbers(through(iterable(few, shuffle=False), 3)) == [[0, 1, 2]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_have_the_rank_of_their_parent(
    ds: Untyped, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    dataset = iterable(ds, drop_last=True)
    expected = epoch_of(ds, 0, drop_last=True)
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    assert numbers(through(dataset, num_workers)) == expected
    assert len(expected) == 5


# Iterable: what goes wrong.


def test_streams_are_for_one_process(write: Write) -> None:
    packed = open_dataset(write(gzip.compress(content(N))), features=SPEC)
    for num_workers in (0, 1):
        loader = through(iterable(packed, shuffle=False), num_workers)
        assert flat(loader) == list(range(N))
    error = error_of(through(iterable(packed, shuffle=False), 2))
    assert isinstance(error, ValueError)
    assert re.search(r"cache_dir=.*num_workers=0", str(error))


def test_a_limit_of_errors_is_for_one_process(ds: Untyped) -> None:
    some = ds.loader(1, on_error="skip").dataset
    for num_workers in (0, 1):
        loader = through(iterable(some, max_errors=2), num_workers)
        assert sorted(flat(loader)) == list(range(N))
    error = error_of(through(iterable(some, max_errors=2), 2))
    assert isinstance(error, ValueError)
    assert re.search(r"max_errors= requires num_workers <= 1", str(error))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_comes_after_the_batches_before_it(
    write: Write, num_workers: int
) -> None:
    damaged = bytearray(content(N))
    damaged[len(content(20)) + 13] ^= 1
    some = open_dataset(write(bytes(damaged)), features=SPEC)
    batches = iter(through(iterable(some, shuffle=False), num_workers))
    assert numbers(next(batches) for _ in range(5))[-1] == [16, 17, 18, 19]
    error = error_of(batches)
    assert isinstance(error, fr.CorruptionError)
    assert "record 20" in str(error)


def test_rows_are_passed_over_in_workers_too(write: Write) -> None:
    damaged = bytearray(content(N))
    damaged[len(content(20)) + 13] ^= 1
    some = open_dataset(write(bytes(damaged)), features=SPEC, on_error="skip")
    for num_workers in (0, 2):
        loader = through(iterable(some, shuffle=False), num_workers)
        assert flat(loader) == [*range(20), *range(21, N)]


def test_a_batch_that_a_signal_kept_is_the_next_again(
    ds: Untyped, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_numpy = torch.from_numpy

    def interrupted(*_: object) -> None:
        monkeypatch.setattr(torch, "from_numpy", from_numpy)
        raise KeyboardInterrupt

    batches = iter(iterable(ds))
    found = []
    for _ in range(N_STEPS):
        monkeypatch.setattr(torch, "from_numpy", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        found.append(next(batches)["n"].tolist())
    assert found == epoch_of(ds, 0)
    assert next(batches, None) is None


def passes_elsewhere(dataset: Untyped) -> list[Untyped]:
    alone = numbers(through(dataset))
    return [alone, numbers(through(dataset, 2))]


def passes_of_workers_elsewhere(dataset: Untyped) -> list[Untyped]:
    error = error_of(through(dataset, 2))
    assert isinstance(error, RuntimeError)
    assert "of a process that did not create it" in str(error)
    dataset.set_epoch(1)
    return numbers(through(dataset, 2))


def test_processes_do_not_share_their_epochs(ds: Untyped) -> None:
    dataset = iterable(ds)
    next(iter(dataset))
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        elsewhere = pool.submit(passes_elsewhere, dataset).result(SECONDS_TO_HANG)
        refused = pool.submit(passes_of_workers_elsewhere, dataset)
        assert refused.result(SECONDS_TO_HANG) == epoch_of(ds, 1)
    assert elsewhere == [epoch_of(ds, 1), epoch_of(ds, 2)]
    assert numbers(dataset) == epoch_of(ds, 1)


def test_a_loader_in_a_data_loader_is_refused_with_the_line_to_write(
    ds: Untyped,
) -> None:
    for loader in (ds.loader(4), fr.torch.loader(ds.loader(4))):
        for options in ({"batch_size": None}, {"shuffle": True}, of(1)):
            error = error_of(data.DataLoader(loader, **options))
            assert isinstance(error, TypeError)
            line = "DataLoader(fr.torch.IterableDataset(ds, 256), batch_size=None)"
            assert line in str(error)


def test_wrong_options_are_errors(ds: Untyped) -> None:
    loader = ds.loader(4)
    with pytest.raises(TypeError, match="only with a Dataset, got a Loader and"):
        fr.torch.IterableDataset(loader, 4)
    with pytest.raises(TypeError, match="only with a Dataset, got a Loader and"):
        fr.torch.IterableDataset(loader, seed=1)
    with pytest.raises(TypeError, match=r"did you mean shuffle="):
        fr.torch.IterableDataset(ds, 4, shufle=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="num_workers= is an option of the DataLoader"):
        fr.torch.IterableDataset(ds, 4, num_workers=2)  # type: ignore[call-arg]
    takers: list[Untyped] = [fr.torch.Dataset, fr.torch.IterableDataset]
    for take in takers:
        with pytest.raises(
            TypeError, match=r"requires a fastrec\.Dataset, .*, got 'a\.tf"
        ):
            take("a.tfrecord")
    with pytest.raises(TypeError, match=r"requires a fastrec\.Dataset"):
        fr.torch.Dataset(loader)
    for make in (takers[0], iterable):
        with pytest.raises(ValueError, match=r'must be "offsets" or "nested"'):
            make(ds, ragged="padded")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_that_would_be_stacked_again_are_refused(
    ds: Untyped, num_workers: int
) -> None:
    dataset = iterable(dense(ds))
    for batch_size in (1, 8):
        loader = data.DataLoader(dataset, batch_size=batch_size, **of(num_workers))
        error = error_of(loader)
        assert isinstance(error, ValueError)
        line = "DataLoader(fr.torch.IterableDataset(ds, 256), batch_size=None)"
        assert line in str(error)
    (first, *_) = data.DataLoader(dataset, collate_fn=lambda batches: batches[0])
    assert first["n"].shape == (BATCH_SIZE,)


def test_nested_tensors_come_from_workers(ds: Untyped) -> None:
    some = ds.select_columns(["n", "x"])
    (batch, *_) = through(iterable(some, ragged="nested", shuffle=False), 2)
    assert [row.tolist() for row in batch["x"].unbind()] == [[], [0.5], [1, 1], []]


# States.


@pytest.mark.parametrize(
    ("num_workers", "is_persistent"), [(0, False), (1, True), (2, False), (2, True)]
)
@pytest.mark.parametrize("n_taken", [0, 3, N_STEPS - 1, N_STEPS])
def test_a_state_leaves_exactly_the_remaining_batches(
    ds: Untyped, num_workers: int, is_persistent: bool, n_taken: int
) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def loader_over(dataset: Untyped) -> Untyped:
        options = of(num_workers, is_persistent)
        return torchdata.StatefulDataLoader(dataset, batch_size=None, **options)

    dataset = iterable(ds)
    loader = loader_over(dataset)
    assert numbers(loader) == epoch_of(ds, 0)
    dataset.set_epoch(1)
    batches = iter(loader)
    taken = numbers(next(batches) for _ in range(n_taken))
    assert taken == epoch_of(ds, 1)[:n_taken]
    if n_taken == N_STEPS:
        assert next(batches, None) is None
    state = json.loads(json.dumps(loader.state_dict()))

    dataset = iterable(ds, seed=3)
    resumed = loader_over(dataset)
    resumed.load_state_dict(state)
    dataset.set_epoch(1)
    if remaining := epoch_of(ds, 1)[n_taken:]:
        assert numbers(resumed) == remaining
    for epoch in (2, 3):
        dataset.set_epoch(epoch)
        assert numbers(resumed) == epoch_of(ds, epoch)


def steps_of_snapshots(ds: Untyped, size: int, n_steps: int, state: Untyped) -> Untyped:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    dataset = fr.torch.IterableDataset(ds, size, shuffle=True)
    loader = torchdata.StatefulDataLoader(
        dataset, batch_size=None, snapshot_every_n_steps=n_steps, **of(2)
    )
    if state is not None:
        loader.load_state_dict(state)
    batches = iter(loader)
    taken = flat(itertools.islice(batches, 18 if state is None else None))
    return taken, loader.state_dict()


def test_steps_after_a_snapshot_are_not_counted_in_another_size(ds: Untyped) -> None:
    """StatefulDataLoader skips them itself, in batches of the size that it has then."""
    for n_steps in (1, 14):
        begun, state = steps_of_snapshots(ds, 2, n_steps, None)
        rest, _ = steps_of_snapshots(ds, 2, n_steps, state)
        assert sorted(begun + rest) == list(range(N))
    with pytest.raises(ValueError, match="save with snapshot_every_n_steps=1"):
        steps_of_snapshots(ds, BATCH_SIZE, 14, state)


def test_a_state_is_of_one_worker_of_as_many(ds: Untyped) -> None:
    state = iter(iterable(ds)).state_dict()
    with pytest.raises(
        ValueError, match="saved by worker 1 of 2, but this is worker 0"
    ):
        iter(iterable(ds)).load_state_dict({**state, "worker": [1, 2]})


def test_a_state_is_small_and_of_its_data(ds: Untyped) -> None:
    batches = iter(iterable(ds))
    next(batches)
    state = batches.state_dict()
    assert len(json.dumps(state)) < 500
    with pytest.raises(ValueError, match="a different dataset"):
        iter(iterable(ds.select(range(20)))).load_state_dict(state)
    with pytest.raises(ValueError, match="a different order"):
        iter(iterable(ds, shuffle=False)).load_state_dict(state)
    with pytest.raises(ValueError, match="state of a pass must have the keys"):
        iter(iterable(ds)).load_state_dict(state["loader"])


# Whose memory it is.


def test_batches_that_are_held_or_changed_change_no_other(ds: Untyped) -> None:
    dataset = iterable(ds, num_threads=2)
    held, copies = [], []
    for _ in range(2):
        for batch in through(dataset):
            held.append(batch)
            copies.append({name: batch[name].clone() for name in ("n", "image")})
    for batch, copied in zip(held, copies, strict=True):
        assert all(torch.equal(batch[name], copied[name]) for name in copied)
    found = []
    for batch in through(dataset):
        found.append(batch["n"].tolist())
        batch["n"].fill_(-1)
        batch["image"].zero_()
    assert found == epoch_of(ds, 2)
