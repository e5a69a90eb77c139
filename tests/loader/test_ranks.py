"""Ranks: processes that share an epoch.

Goal
    Each process finds and logs its rank. All ranks make the same number of steps and
    together deliver what one rank would. No rank gets an empty batch.
Method
    All ranks of a job as loaders of one process, and once as processes with barriers; the
    environments of launchers, and a fake `torch`.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped, Write, open_dataset, snapshot
from numbered import (
    FILE_SIZES,
    SPEC,
    Batch,
    DataSets,
    N,
    every_order,
    labels,
    listed,
    loader_of,
    record,
    take,
)
from oracle import example, tfrecord_file

VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_JOB_ID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
)


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture(scope="module")
def data_sets(write: Write) -> DataSets:
    return DataSets(write)


@pytest.fixture(scope="module")
def ds(data_sets: DataSets) -> Untyped:
    return data_sets.of(FILE_SIZES)


# Finding the rank.


def where(ds: Untyped, **options: Untyped) -> tuple[int, int, str]:
    """Return rank, world size and source, from the repr."""
    loader = ds.loader(6, **options)
    text = repr(loader)
    said = f"rank {loader.rank} of {loader.world_size} ("
    assert said in text
    return loader.rank, loader.world_size, text.split(said)[1].split(")")[0]


TORCHRUN = {"RANK": "2", "WORLD_SIZE": "3"}
SRUN = {
    "SLURM_JOB_ID": "17",
    "SLURM_PROCID": "1",
    "SLURM_NTASKS": "3",
    "SLURM_STEP_NUM_TASKS": "3",
}
SBATCH = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "0", "SLURM_NTASKS": "3"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}

ENVIRONMENTS: dict[str, tuple[dict[str, str], tuple[int, int, str]]] = {
    "nothing": ({}, (0, 1, "alone")),
    "torchrun": (TORCHRUN, (2, 3, "torchrun")),
    "torchrun with one process": (
        {"RANK": "0", "WORLD_SIZE": "1"},
        (0, 1, "torchrun"),
    ),
    "srun": (SRUN, (1, 3, "SLURM")),
    "sbatch without srun": (SBATCH, (0, 1, "alone")),
    "srun with one task in a job of three": (
        {**SBATCH, "SLURM_STEP_NUM_TASKS": "1"},
        (0, 1, "SLURM"),
    ),
    "Open MPI": (OPEN_MPI, (0, 3, "Open MPI")),
    "torchrun under srun": ({**SRUN, **TORCHRUN}, (2, 3, "torchrun")),
    "torchrun in a batch script": ({**SBATCH, **TORCHRUN}, (2, 3, "torchrun")),
    "mpirun in a batch script": ({**SBATCH, **OPEN_MPI}, (0, 3, "Open MPI")),
    "half of torchrun": ({"RANK": "1"}, (0, 1, "alone")),
    "the other half": ({"WORLD_SIZE": "3"}, (0, 1, "alone")),
    "half of torchrun and srun": ({"WORLD_SIZE": "3", **SRUN}, (1, 3, "SLURM")),
    "no numbers": ({"RANK": "one", "WORLD_SIZE": "3"}, (0, 1, "alone")),
    "empty": ({"RANK": "", "WORLD_SIZE": ""}, (0, 1, "alone")),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_ranks_are_found_in_the_variables_of_launchers(
    ds: Untyped, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    variables, want = ENVIRONMENTS[name]
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert where(ds) == want
    assert where(ds, rank=1, world_size=2) == (1, 2, "given")


@pytest.mark.parametrize(("rank", "world_size"), [("3", "3"), ("0", "0"), ("17", "4")])
def test_an_invalid_environment_is_refused(
    ds: Untyped, monkeypatch: pytest.MonkeyPatch, rank: str, world_size: str
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world_size)
    with pytest.raises(ValueError, match=r"rank|world_size"):
        ds.loader(6)


def torch_with(*, is_available: bool = True, is_initialized: bool = True) -> Untyped:
    """The parts of torch that fastrec uses."""
    torch: Untyped = types.ModuleType("torch")
    torch.distributed = types.SimpleNamespace(
        is_available=lambda: is_available,
        is_initialized=lambda: is_initialized,
        get_rank=lambda: 1,
        get_world_size=lambda: 4,
    )
    return torch


@pytest.mark.parametrize("has_environment", [False, True])
def test_torch_distributed_is_used_if_initialised(
    ds: Untyped, monkeypatch: pytest.MonkeyPatch, has_environment: bool
) -> None:
    otherwise = (0, 1, "alone")
    if has_environment:
        for variable, value in TORCHRUN.items():
            monkeypatch.setenv(variable, value)
        otherwise = (2, 3, "torchrun")
    monkeypatch.setitem(sys.modules, "torch", torch_with())
    assert where(ds, pad_last=True) == (1, 4, "torch.distributed")
    assert where(ds, rank=0, world_size=2) == (0, 2, "given")
    for torch in (
        torch_with(is_initialized=False),
        torch_with(is_available=False),
        types.ModuleType("torch"),
        None,
    ):
        monkeypatch.setitem(sys.modules, "torch", torch)
        assert where(ds) == otherwise


def test_torch_is_not_imported(ds: Untyped) -> None:
    ds.loader(6)
    assert "torch" not in sys.modules


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"rank": 0}, TypeError, "must be passed together"),
        ({"world_size": 2}, TypeError, "must be passed together"),
        ({"rank": 2, "world_size": 2}, ValueError, "less than world_size"),
        ({"rank": 5, "world_size": 2}, ValueError, "less than world_size=2, got 5"),
        ({"rank": -1, "world_size": 2}, ValueError, "rank"),
        ({"rank": 0, "world_size": 0}, ValueError, "world_size"),
        ({"rank": 0, "world_size": -1}, ValueError, "world_size"),
        ({"rank": "0", "world_size": 2}, TypeError, "rank"),
        ({"rank": 0, "world_size": 2.0}, TypeError, "world_size"),
        ({"rank": False, "world_size": 2}, TypeError, "rank"),
    ],
)
def test_an_invalid_rank_is_refused(
    ds: Untyped, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ds.loader(6, **options)


def test_one_log_line_reports_the_rank(
    ds: Untyped, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "fastrec"):
        ds.loader(6)
        assert not caplog.messages, "one process alone has nothing to say"
        loader = ds.loader(6, rank=1, world_size=3)
        list(loader)
    assert len(caplog.messages) == 1
    assert "rank 1 of 3 (given)" in caplog.messages[0]


def test_single_rows_and_filters_ignore_ranks(
    ds: Untyped, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in TORCHRUN.items():
        monkeypatch.setenv(variable, value)
    assert [int(row["n"]) for row in ds] == list(range(N))
    assert len(ds.head(9)) == 9
    assert len(ds.filter(lambda batch: batch["n"] % 2 == 0)) == (N + 1) // 2


# The rows of each rank.


def cut(n: int, world_size: int) -> list[int]:
    """Return the rows of each rank, by the contract."""
    bounds = [rank * n // world_size for rank in range(world_size + 1)]
    return [end - begin for begin, end in itertools.pairwise(bounds)]


def all_ranks(ds: Untyped, world_size: int, **options: Untyped) -> list[Untyped]:
    return [
        ds.loader(rank=rank, world_size=world_size, num_threads=0, **options)
        for rank in range(world_size)
    ]


SHUFFLES = (False, True, fr.Blocks(block_bytes=200, lanes=3))


@pytest.mark.filterwarnings("ignore:drop_last=True drops all records")
@given(
    sizes=st.sampled_from([(60,), (0, 60), FILE_SIZES, (1,) * 9, (30, 0, 1, 29), (0,)]),
    world_size=st.integers(1, 9),
    batch_size=st.integers(1, 30),
    is_global=st.booleans(),
    shuffle=st.sampled_from(SHUFFLES),
    tail=st.sampled_from(["keep", "drop", "pad"]),
    seed=st.integers(0, 3),
)
def test_ranks_share_an_epoch_without_loss_or_repetition(
    data_sets: DataSets,
    sizes: tuple[int, ...],
    world_size: int,
    batch_size: int,
    is_global: bool,
    shuffle: bool | fr.Blocks,
    tail: str,
    seed: int,
) -> None:
    ds = data_sets.of(sizes)
    n = len(ds)
    size = max(batch_size, world_size) if is_global else batch_size * world_size
    options = {
        "global_batch_size" if is_global else "batch_size": size
        if is_global
        else batch_size,
        "shuffle": shuffle,
        "seed": seed,
        "drop_last": tail == "drop",
        "pad_last": tail == "pad",
    }
    if tail == "keep" and 0 < n % size < world_size:
        with pytest.raises(ValueError, match=r"drop_last=True or pad_last=True"):
            all_ranks(ds, world_size, **options)
        return
    ranks = all_ranks(ds, world_size, **options)
    n_steps = n // size if tail == "drop" else -(-n // size)
    assert [len(loader) for loader in ranks] == [n_steps] * world_size
    seen: list[int] = []
    for step, batches in enumerate(zip(*ranks, strict=True)):
        n_here = min(size, n - step * size)
        if tail == "pad":
            n_rows = {len(batch["n"]) for batch in batches}
            assert n_rows == {-(-size // world_size)} == {ranks[0].batch_size}
            valid = [int(batch["__valid__"].sum()) for batch in batches]
        else:
            valid = [len(batch["n"]) for batch in batches]
            assert min(valid) > 0
        assert valid == cut(n_here, world_size)
        assert max(valid) - min(valid) <= 1
        if n_here == size and tail != "pad":
            assert valid == [loader.batch_size for loader in ranks]
        seen += [
            int(label)
            for batch, k in zip(batches, valid, strict=True)
            for label in batch["n"][:k]
        ]
    assert len(set(seen)) == len(seen) == min(n, n_steps * size)
    if shuffle is False:
        assert seen == list(range(len(seen)))


@every_order
def test_steps_do_not_depend_on_the_number_of_ranks(ds: Untyped, order: str) -> None:
    """For all orders, even the order of rows is the same, from rank to rank."""
    want = None
    for world_size in (1, 2, 3, 4):
        size = {} if order == "listed" else {"global_batch_size": 12}
        ranks = [
            loader_of(ds, order, None, rank=rank, world_size=world_size, **size)
            for rank in range(world_size)
        ]
        epochs = zip(*(loader.repeat(2) for loader in ranks), strict=True)
        got = [labels(step) for step in epochs]
        want = want or got
        assert got == want, world_size


def test_augmentation_does_not_depend_on_the_number_of_ranks(ds: Untyped) -> None:
    def draw(batch: Batch, info: fr.BatchInfo) -> Batch:
        rows = [i for i in range(len(batch["n"])) if info.positions[i] >= 0]
        return {
            "n": batch["n"][rows],
            "x": np.array([info.rng(i).random() for i in rows]),
        }

    drawn = []
    for world_size in (1, 2, 5):
        ranks = all_ranks(
            ds,
            world_size,
            global_batch_size=11,
            shuffle=True,
            pad_last=True,
            transform=draw,
        )
        drawn.append(
            {
                (int(n), float(x))
                for loader in ranks
                for batch in loader
                for n, x in zip(batch["n"], batch["x"], strict=True)
            }
        )
    assert drawn[0] == drawn[1] == drawn[2]
    assert len({x for _, x in drawn[0]}) == N


def test_the_global_batch_is_at_least_one_row_for_each_rank(ds: Untyped) -> None:
    with pytest.raises(ValueError, match=r"at least the world size \(4\), got 3"):
        ds.loader(global_batch_size=3, rank=0, world_size=4)
    with pytest.raises(ValueError, match="at least the world size"):
        ds.loader(global_batch_size=3, rank=0, world_size=4, pad_last=True)
    least = ds.loader(global_batch_size=4, rank=0, world_size=4, drop_last=True)
    assert least.batch_size == 1


@pytest.mark.parametrize("rank", range(4))
def test_a_last_batch_without_a_row_for_a_rank_is_refused(
    ds: Untyped, rank: int
) -> None:
    rank_of = {"rank": rank, "world_size": 4}
    with pytest.raises(ValueError, match=r"last batch has 3 rows for 4 ranks"):
        ds.loader(10, **rank_of)  # on every rank, so that none hangs
    dropped = ds.loader(10, **rank_of, drop_last=True)
    assert [len(batch["n"]) for batch in dropped] == [10]
    padded = ds.loader(10, **rank_of, pad_last=True)
    n_valid = [int(batch["__valid__"].sum()) for batch in padded]
    assert n_valid == [10, cut(3, 4)[rank]]


def test_listed_batches_that_leave_a_rank_without_a_row_are_refused(
    ds: Untyped,
) -> None:
    def batches(_seed: int, epoch: int) -> list[list[int]]:
        return [[0, 1, 2], [3, 4]] if epoch == 0 else [[0, 1, 2]]

    with pytest.raises(ValueError, match=r"2 rows for 3 ranks.*pass pad_last=True"):
        ds.loader(batches=batches, rank=0, world_size=3)
    ranks = all_ranks(ds, 3, batches=batches, pad_last=True)
    got = [
        [(batch["n"].tolist(), batch["__valid__"].tolist()) for batch in step]
        for step in zip(*ranks, strict=True)
    ]
    assert got == [
        [([0], [True]), ([1], [True]), ([2], [True])],
        [([0], [False]), ([3], [True]), ([4], [True])],
    ]


# Padding.


SEVERAL: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "pair": fr.FixedLen((2,), "float32", default=[1.0, 2.0], key="score"),
    "pixels": fr.Raw((3,), "uint8"),
    "words": fr.VarLen("bytes"),
    "word": fr.FixedLen((), "bytes", default=b"none", key="absent"),
    "numbers": fr.VarLen("int64", key="n"),
}


def filled_rows(batch: Batch) -> list[int]:
    """Return the padding rows, after checking their values."""
    rows: list[int] = np.flatnonzero(~batch["__valid__"]).tolist()
    for i in rows:
        assert batch["n"][i] == 0
        assert batch["pair"][i].tolist() == [0, 0], "not the default: that is a value"
        assert batch["pixels"][i].tolist() == [0, 0, 0]
        assert batch["words"][i].tolist() == []
        assert batch["word"][i] == b""
        assert batch["numbers"][i].tolist() == []
    return rows


@pytest.mark.filterwarnings("ignore::fastrec.MissingFeatureWarning")
@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("threads", [0, 2])
def test_padding_fills_every_batch_with_zeros_and_empty_values(
    ds: Untyped, threads: int, shuffle: bool | fr.Blocks
) -> None:
    wide = ds.with_features(SEVERAL)
    n_filled = 0
    seen: list[int] = []
    for rank in range(4):
        loader = wide.loader(
            10,
            rank=rank,
            world_size=4,
            shuffle=shuffle,
            pad_last=True,
            num_threads=threads,
        )
        assert len(loader) == 2
        for step, batch in enumerate(loader):
            assert list(batch) == [*SEVERAL, "__valid__"]
            assert batch["__valid__"].dtype == bool
            assert {len(column) for column in batch.values()} == {10}
            rows = filled_rows(batch)
            assert rows == list(range(10 - len(rows), 10)), "they come last"
            n_filled += len(rows)
            seen += batch["n"][batch["__valid__"]].tolist()
            assert snapshot([loader.batch(step, epoch=0)]) == snapshot([batch])
    assert n_filled == 80 - N
    assert sorted(seen) == list(range(N))


def test_a_batch_may_be_all_padding(ds: Untyped) -> None:
    loader = ds.with_features(SEVERAL).loader(10, rank=0, world_size=4, pad_last=True)
    batch = loader.batch(1)
    assert filled_rows(batch) == list(range(10))
    assert loader.records_at(1) == []
    assert len(loader.records_at(0)) == 10


def test_an_epoch_without_an_index_is_padded(write: Write) -> None:
    files = [write(tfrecord_file(map(record, range(13)))) for _ in range(2)]
    ds = open_dataset(files, features=SPEC)
    batches = list(ds.loader(10, pad_last=True, num_threads=1))  # without an index
    assert len(ds) == 26
    again = list(ds.loader(10, pad_last=True, num_threads=1))
    assert snapshot(batches) == snapshot(again)
    assert [int(b["__valid__"].sum()) for b in batches] == [10, 10, 6]
    assert [len(b["words"]) for b in batches] == [10] * 3


def test_an_epoch_is_padded_to_full_batches_only(ds: Untyped) -> None:
    assert [b["__valid__"].all() for b in ds.loader(43, pad_last=True)] == [True]
    assert len(list(ds.loader(43, pad_last=True))) == 1


def test_without_padding_there_is_no_valid_column(ds: Untyped) -> None:
    for loader in (ds.loader(10), ds.loader(10, drop_last=True)):
        assert {tuple(batch) for batch in loader} == {tuple(SPEC)}


def test_listed_batches_are_padded_to_the_same_size_on_all_ranks(ds: Untyped) -> None:
    def batches(seed: int, epoch: int) -> list[Any]:
        return listed(N, seed, epoch)

    sizes = [len(batch) for batch in batches(0, 0)]
    ranks = all_ranks(ds, 3, batches=batches, pad_last=True)
    for size, *step in zip(sizes, *ranks, strict=True):
        assert {len(batch["n"]) for batch in step} == {-(-size // 3)}
        assert [int(batch["__valid__"].sum()) for batch in step] == cut(size, 3)


@pytest.mark.parametrize("transform_threads", [0, 1, 3])
def test_a_transform_receives_positions_of_minus_one_for_padding(
    ds: Untyped, transform_threads: int
) -> None:
    def look(batch: Batch, info: fr.BatchInfo) -> Batch:
        assert (info.positions >= 0).tolist() == batch["__valid__"].tolist()
        assert (info.records >= 0).tolist() == batch["__valid__"].tolist()
        for i in np.flatnonzero(info.positions < 0).tolist():
            assert (info.positions[i], info.records[i]) == (-1, -1)
            with pytest.raises(IndexError, match="is padding"):
                info.rng(i)
        return batch

    for shuffle, world_size in itertools.product(SHUFFLES, (1, 4)):
        for rank in range(world_size):
            loader = ds.loader(
                10,
                rank=rank,
                world_size=world_size,
                shuffle=shuffle,
                pad_last=True,
                transform=look,
                transform_threads=transform_threads,
            )
            assert labels(loader).count(0) > 0 or rank


@pytest.mark.parametrize("transform_threads", [0, 1, 3])
def test_per_row_is_not_called_for_padding(ds: Untyped, transform_threads: int) -> None:
    called: list[int] = []

    def double(row: Batch, rng: np.random.Generator) -> int:
        called.append(int(row["n"]))
        assert 0 <= rng.random() < 1
        return 2 * int(row["n"]) + 1

    transform = fr.per_row(double, out={"m": fr.FixedLen((), "int64")})
    for rank in range(4):
        loader = ds.loader(
            10,
            rank=rank,
            world_size=4,
            pad_last=True,
            transform=transform,
            transform_threads=transform_threads,
        )
        for batch in loader:
            want = np.where(batch["__valid__"], 2 * batch["n"] + 1, 0)
            assert batch["m"].tolist() == want.tolist()
    assert sorted(called) == list(range(N))


def test_joined_datasets_are_padded_as_one(ds: Untyped) -> None:
    def negative(batch: Batch) -> Batch:
        return {"n": -batch["n"] - 1, "words": batch["words"]}

    some = ds.select_columns(["n", "words"])
    both = fr.concat([some, some.with_transform(negative)])
    want = [*range(N), *range(-1, -N - 1, -1)]
    ranks = all_ranks(both, 4, batch_size=9, pad_last=True)
    got: list[int] = []
    for batches in zip(*ranks, strict=True):
        for batch in batches:
            assert len(batch["n"]) == len(batch["words"]) == 9
            assert batch["__valid__"].sum() in (9, 3, 4)
            got += batch["n"][batch["__valid__"]].tolist()
    assert got == want


def test_padding_of_a_mix_has_source_minus_one(ds: Untyped) -> None:
    mix = fr.mix({"a": (ds, 1), "b": (ds, 2)}, length=41)
    ranks = all_ranks(mix, 3, batch_size=6, pad_last=True, shuffle=True)
    n_valid = 0
    for batch in itertools.chain(*ranks):
        assert (batch["__source__"] >= 0).tolist() == batch["__valid__"].tolist()
        assert set(batch["__source__"]) <= {-1, 0, 1}
        n_valid += int(batch["__valid__"].sum())
    assert n_valid == 41


def test_a_feature_named_like_the_valid_column_is_refused(ds: Untyped) -> None:
    clash = ds.with_features({"__valid__": fr.FixedLen((), "int64", key="n")})
    assert labels([{"n": clash.loader(10).peek()["__valid__"]}]) == list(range(10))
    loader = clash.loader(10, pad_last=True)
    for read in (loader.peek, lambda: next(iter(loader))):
        with pytest.raises(fr.SchemaError, match=r"'__valid__'.*key="):
            read()
    renamed = ds.with_features({"n": fr.FixedLen((), "int64", key="n")})
    assert list(renamed.loader(10, pad_last=True).peek()) == ["n", "__valid__"]


# Processes with barriers, like DistributedDataParallel.

WORLD_SIZE = 2
EPOCHS = 2


def train(rank: int, files: list[Path], barrier: Untyped, results: Untyped) -> None:
    """Run one rank; a step ends when all ranks have made it."""
    try:
        ds = open_dataset(files, features=SPEC)
        loader = ds.loader(
            4, shuffle=True, rank=rank, world_size=WORLD_SIZE, num_threads=1
        )
        seen = []
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            for batch in loader:
                barrier.wait()
                seen.append((epoch, batch["n"].tolist()))
        results.put((rank, seen))
    except BaseException as error:
        barrier.abort()
        results.put((rank, repr(error)))
        raise


def test_processes_with_a_barrier_at_every_step_do_not_hang(
    write: Write,
) -> None:
    sizes = (30, 0, 7)  # 37 records: 4 steps of 8, and 5 rows for two ranks
    ds = DataSets(write).of(sizes)
    files = [Path(file) for file in ds.files]
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WORLD_SIZE, timeout=60)
    results = context.Queue()
    processes = [
        context.Process(target=train, args=(rank, files, barrier, results))
        for rank in range(WORLD_SIZE)
    ]
    for process in processes:
        process.start()
    try:
        seen = dict(results.get(timeout=90) for _ in processes)
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    assert [process.exitcode for process in processes] == [0, 0], seen
    assert [len(seen[rank]) for rank in range(WORLD_SIZE)] == [5 * EPOCHS] * 2
    assert [len(rows) for _, rows in seen[0][:5]] == [4, 4, 4, 4, 2]
    assert [len(rows) for _, rows in seen[1][:5]] == [4, 4, 4, 4, 3]
    for epoch in range(EPOCHS):
        rows = [n for rank in seen for e, ns in seen[rank] if e == epoch for n in ns]
        assert sorted(rows) == list(range(37))


# Options.


def no_batches(_seed: int, _epoch: int) -> list[list[int]]:
    return [[0]]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({}, TypeError, "exactly one of.*none"),
        ({"batch_size": 4, "global_batch_size": 4}, TypeError, "exactly one of"),
        ({"batch_size": 4, "batches": no_batches}, TypeError, "exactly one of"),
        ({"global_batch_size": 4, "batches": no_batches}, TypeError, "exactly one"),
        (
            {"batch_size": 4, "global_batch_size": 4, "batches": no_batches},
            TypeError,
            "batch_size and global_batch_size and batches",
        ),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"batch_size": True}, TypeError, "batch_size"),
        ({"global_batch_size": 0}, ValueError, "global_batch_size"),
        ({"global_batch_size": 2.0}, TypeError, "global_batch_size"),
        ({"batches": [[0]]}, TypeError, "function of seed and epoch"),
        ({"batches": no_batches, "shuffle": True}, ValueError, "batches="),
        ({"batches": no_batches, "shuffle": fr.Blocks()}, ValueError, "batches="),
        ({"batches": no_batches, "drop_last": True}, ValueError, "batches="),
        (
            {"batch_size": 4, "drop_last": True, "pad_last": True},
            ValueError,
            "drop_last and pad_last",
        ),
        ({"batch_size": 4, "drop_last": 1}, TypeError, "drop_last"),
        ({"batch_size": 4, "pad_last": "yes"}, TypeError, "pad_last"),
        ({"batch_size": 4, "shuffle": 10_000}, TypeError, r"True.*fr\.Window\(10000\)"),
        ({"batch_size": 4, "shuffle": 1}, TypeError, "True, False, fr.Blocks"),
        ({"batch_size": 4, "shuffle": "blocks"}, TypeError, "fr.Blocks"),
        ({"batch_size": 4, "shuffle": None}, TypeError, "shuffle"),
        ({"batch_size": 4, "shuffle": fr.Blocks}, TypeError, "shuffle"),
        ({"batch_size": 4, "seed": -1}, ValueError, "seed"),
        ({"batch_size": 4, "seed": 2**64}, ValueError, "seed"),
        ({"batch_size": 4, "seed": None}, TypeError, "seed"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    ds: Untyped, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ds.loader(**options)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("shuffle_buffer_size", "shuffle=True"),
        ("buffer_size", "shuffle=True"),
        ("num_shards", "world_size="),
        ("num_replicas", "world_size="),
        ("shard_count", "world_size="),
        ("shard_id", "rank="),
        ("shard_index", "rank="),
        ("batch_sampler", "batches="),
        ("sampler", "batches="),
        ("pad_last_batch", "pad_last="),
        ("drop_remainder", "drop_last="),
        ("drop_last_batch", "drop_last="),
        ("shuffle_seed", "seed="),
        ("num_epochs", "repeat(epochs)"),
        ("num_workers", "num_threads="),
        ("worldsize", "world_size="),
        ("global_batchsize", "global_batch_size="),
    ],
)
def test_an_option_of_another_library_is_answered_with_ours(
    ds: Untyped, name: str, right: str
) -> None:
    with pytest.raises(TypeError) as caught:
        ds.loader(4, **{name: 2})
    assert name in str(caught.value)
    assert right in str(caught.value)


@pytest.mark.parametrize(
    ("batches", "error", "text"),
    [
        (3, TypeError, "int"),
        ([3], TypeError, "batch 0.*0-D"),
        ([[0], [0.5]], TypeError, "batch 1.*float64"),
        ([[[0]]], TypeError, "2-D"),
        ([[0], []], (TypeError, ValueError), "batch 1"),
        ([np.empty(0, np.int64)], ValueError, "at least one row"),
        ([[0], [N]], IndexError, rf"batch 1.*{N}"),
        ([[-1]], IndexError, "-1"),
        ([[True, False]], TypeError, "bool"),
        ([np.array([2**63], np.uint64)], IndexError, "9223372036854775808"),
    ],
)
def test_listed_batches_are_checked(
    ds: Untyped, batches: Untyped, error: Untyped, text: str
) -> None:
    loader = ds.loader(batches=lambda _seed, _epoch: batches)
    with pytest.raises(error, match=text):
        next(iter(loader))


# Network file systems.


@pytest.fixture
def _far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastrec._core.is_remote", lambda _: True)


@pytest.mark.usefixtures("_far_away")
@pytest.mark.parametrize("transform", [None, dict])
def test_a_shuffle_over_the_network_warns_once(ds: Untyped, transform: Untyped) -> None:
    loader = ds.loader(4, shuffle=True, transform=transform)
    with pytest.warns(UserWarning, match=r"network.*shuffle=fr.Blocks\(\)") as caught:
        take(loader, 2)
    assert len(caught) == 1
    assert caught[0].filename == take.__code__.co_filename, "it points at the loop"
    take(loader, 2)
    assert len(labels(loader)) == N


@pytest.mark.usefixtures("_far_away")
@pytest.mark.parametrize("shuffle", [False, fr.Blocks()])
def test_reading_in_blocks_does_not_warn(
    ds: Untyped, shuffle: bool | fr.Blocks
) -> None:
    take(ds.loader(4, shuffle=shuffle), 2)


@pytest.mark.usefixtures("_far_away")
def test_large_records_and_no_records_do_not_warn(
    write: Write, data_sets: DataSets
) -> None:
    large = example({b"n": ("int64", [1]), b"image": ("bytes", [b"x" * 300_000])})
    ds = open_dataset(write(tfrecord_file([large] * 2)), features={"n": SPEC["n"]})
    assert labels(ds.loader(1, shuffle=True)) == [1, 1]
    assert labels(data_sets.of((0,)).loader(1, shuffle=True)) == []


def test_a_local_shuffle_does_not_warn(ds: Untyped) -> None:
    take(ds.loader(4, shuffle=True), 2)
