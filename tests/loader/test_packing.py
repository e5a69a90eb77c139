"""Packing: records joined into rows of one length.

Goal
    The sampler packs every record once, by first fit over a window. The transform makes
    the rows that the sampler planned, on any number of ranks and after any resume, and
    no value is lost, moved or cut unasked.
Method
    Slow, obvious packings in lists; what loaders of several ranks deliver, side by side.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped, Write, open_dataset
from oracle import example, tfrecord_file

N = 150
LENGTH = 40
LENGTHS = [n * n % 37 for n in range(N)]

# Called with arguments that type checkers reject.
pack: Untyped = fr.samplers.pack
pack_columns: Untyped = fr.pack_columns


@pytest.fixture(scope="module")
def ds(write: Write) -> Untyped:
    records = (
        example(
            {
                b"n": ("int64", [n]),
                b"tokens": ("int64", [1000 * n + i for i in range(LENGTHS[n])]),
                b"weights": ("float", [n / 2] * LENGTHS[n]),
            }
        )
        for n in range(N)
    )
    spec = {
        "n": fr.FixedLen((), "int64"),
        "tokens": fr.VarLen("int32"),
        "weights": fr.VarLen("float32"),
    }
    return open_dataset(write(tfrecord_file(records)), features=spec)


def first_fit(
    records: list[int], lengths: list[int], length: int, window: int
) -> list[list[int]]:
    """Return the records of each row: the obvious way."""
    rows: list[list[int]] = []
    is_open: list[bool] = []
    for n in records:
        for row, still_open in zip(rows, is_open, strict=True):
            if still_open and sum(lengths[m] for m in row) + lengths[n] <= length:
                row.append(n)
                break
        else:
            if sum(is_open) == window:
                is_open[is_open.index(True)] = False
            rows.append([n])
            is_open.append(True)
    return rows


def rows_of(batch: Untyped) -> list[list[list[int]]]:
    """Return the records' tokens of each row of a packed batch; check the rest."""
    rows = []
    columns = (
        batch[name] for name in ("tokens", "tokens_segment_ids", "tokens_positions")
    )
    for tokens, ids, positions in zip(*columns, strict=True):
        records = []
        for segment in range(1, ids.max(initial=0) + 1):
            own = tokens[ids == segment].tolist()
            assert positions[ids == segment].tolist() == list(range(len(own)))
            records.append(own)
        padding = ids == 0
        assert not tokens[padding].any()
        assert not positions[padding].any()
        n_used = int((~padding).sum())
        assert not padding[:n_used].any(), "values are contiguous, padding is last"
        rows.append(records)
    return rows


# the sampler


@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    length=st.integers(12, 30),
    rows=st.integers(1, 5),
    window=st.integers(1, 6),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_records_are_packed_by_first_fit_over_a_window(
    lengths: list[int],
    length: int,
    rows: int,
    window: int,
    shuffle: bool,
    drop_last: bool,
    epoch: int,
) -> None:
    make: Untyped = pack(
        lengths, length, rows, window=window, shuffle=shuffle, drop_last=drop_last
    )
    got = [batch.tolist() for batch in make(7, epoch)]
    assert got == [batch.tolist() for batch in make(7, epoch)]
    # The order of the epoch: with one endless row, nothing but it remains.
    (order,) = pack(lengths, 10**6, 1, shuffle=shuffle)(7, epoch)
    assert sorted(order) == list(range(len(lengths)))
    want = first_fit(order.tolist(), lengths, length, window)
    batches = [want[i : i + rows] for i in range(0, len(want), rows)]
    if drop_last and len(batches[-1]) < rows:
        del batches[-1]
    assert got == [[n for row in batch for n in row] for batch in batches]
    # The transform finds the rows in the order of the records.
    for records, batch in zip(got, batches, strict=True):
        ragged = fr.RaggedArray.from_list([[n] * lengths[n] for n in records], "int64")
        info = fr.BatchInfo(0, 0, 0, np.array(records), np.array(records))
        columns = pack_columns(["tokens"], length)({"tokens": ragged}, info)
        planned = [[[n] * lengths[n] for n in row] for row in batch]
        visible = [[own for own in row if own] for row in planned]
        assert [[own for own in row if own] for row in rows_of(columns)] == visible


def test_epochs_and_seeds_pack_differently() -> None:
    make = pack(LENGTHS, LENGTH, 4)
    orders = {
        tuple(np.concatenate(make(seed, epoch)).tolist())
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9
    constant = pack(LENGTHS, LENGTH, 4, shuffle=False)
    for batch, other in zip(constant(0, 0), constant(1, 5), strict=True):
        assert batch.tolist() == other.tolist()


@pytest.mark.parametrize(("mean", "sigma"), [(4.5, 0.8), (5.5, 1.0), (6.0, 1.2)])
def test_rows_of_log_normal_lengths_are_full(mean: float, sigma: float) -> None:
    drawn = np.random.default_rng(0).lognormal(mean, sigma, 20_000)
    lengths = np.clip(drawn.astype(np.int64), 1, 2048)
    batches = fr.samplers.pack(lengths)(0, 0)
    n_rows = 8 * len(list(batches))
    assert lengths.sum() / (n_rows * 2048) > 0.97


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([], 9), TypeError, "lengths must be a 1-D array of integers"),
        ((np.empty(0, int), 9), ValueError, "must not be empty"),
        (([-1], 9), ValueError, "lengths must be at least 0"),
        (([1.5], 9), TypeError, "lengths must be a 1-D array of integers"),
        (([[1]], 9), TypeError, "got 2-D"),
        (([3, 10], 9), ValueError, r"at most length=9 .* record 1 has 10; .*truncate"),
        (([1], 0), ValueError, "length must be at least 1"),
        (([1], 9, 0), ValueError, "rows must be at least 1"),
    ],
    ids=str,
)
def test_impossible_packings_are_refused(
    arguments: Untyped, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        pack(*arguments)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="window must be at least 1"):
        pack([1], window=0)
    for option in ("shuffle", "drop_last", "truncate"):
        with pytest.raises(TypeError, match=f"{option} must be True or False"):
            pack([1], **{option: 2})
    with pytest.raises(TypeError, match="columns must be a list of column names"):
        pack_columns("tokens", 9)


# the loader


def loader_of(ds: Untyped, world_size: int = 1, rank: int = 0, **options: Any) -> Any:
    return ds.loader(
        batches=pack(LENGTHS, LENGTH, 6),
        transform=pack_columns(["tokens", "weights"], LENGTH),
        rank=rank,
        world_size=world_size,
        **options,
    )


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_loader_delivers_every_token_once(ds: Untyped, num_threads: int) -> None:
    for epoch in range(2):
        loader = loader_of(ds, num_threads=num_threads)
        loader.set_epoch(epoch)
        batches = list(loader)
        for batch in batches:
            assert [*batch] == [
                *("tokens", "tokens_segment_ids", "tokens_positions"),
                *("weights", "weights_segment_ids", "weights_positions"),
            ]
            assert {column.shape[1] for column in batch.values()} == {LENGTH}
            assert batch["tokens"].dtype == np.int32
            assert batch["tokens_segment_ids"].dtype == np.int32
            is_value = batch["tokens_segment_ids"] > 0
            weights = np.where(is_value, batch["tokens"] // 1000 / 2, 0)
            assert np.array_equal(batch["weights"], weights)
            for suffix in ("segment_ids", "positions"):
                a, b = batch[f"tokens_{suffix}"], batch[f"weights_{suffix}"]
                assert np.array_equal(a, b)
                assert not np.shares_memory(a, b), "the caller may change them"
        assert {len(batch["tokens"]) for batch in batches[:-1]} == {6}
        records = [own for b in batches for row in rows_of(b) for own in row if own]
        want = [[1000 * n + i for i in range(LENGTHS[n])] for n in range(N)]
        assert sorted(records) == sorted(own for own in want if own)


@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_ranks_divide_the_rows_of_a_batch(ds: Untyped, world_size: int) -> None:
    alone = [batch["tokens"] for batch in loader_of(ds)]
    ranks = [
        list(loader_of(ds, world_size, rank, num_threads=2, pad_last=True))
        for rank in range(world_size)
    ]
    for want, *parts in zip(alone, *ranks, strict=True):
        assert np.array_equal(np.concatenate([p["tokens"] for p in parts]), want)
    for rank in range(world_size):
        loader = loader_of(ds, world_size, rank, pad_last=True)
        for step in range(len(loader)):
            again = loader.batch(step)
            assert np.array_equal(again["tokens"], ranks[rank][step]["tokens"])


def test_a_rank_without_rows_is_refused_or_padded(ds: Untyped) -> None:
    assert len(list(loader_of(ds))[-1]["tokens"]) < 5
    with pytest.raises(ValueError, match="pad_last=True"):
        loader_of(ds, 5, 0)
    fixed = [
        ds.loader(
            batches=pack(LENGTHS, LENGTH, 10),
            transform=pack_columns(["tokens"], LENGTH, rows=2),
            rank=rank,
            world_size=5,
            pad_last=True,
        )
        for rank in range(5)
    ]
    shapes = {b["tokens"].shape for loader in fixed for b in loader}
    assert shapes == {(2, LENGTH)}
    n_values = sum(
        int((b["tokens_segment_ids"] > 0).sum()) for loader in fixed for b in loader
    )
    assert n_values == sum(LENGTHS)


def test_loaders_resume_at_every_batch_on_other_ranks(ds: Untyped) -> None:
    loader = loader_of(ds)
    want = [batch["tokens"] for batch in loader_of(ds)]
    for step, _ in enumerate(loader, 1):
        state = json.loads(json.dumps(loader.state_dict()))
        if step == len(want):
            break
        parts = []
        for rank in range(3):
            resumed = loader_of(ds, 3, rank, pad_last=True)
            resumed.load_state_dict(state)
            assert resumed.step == step
            parts.append([batch["tokens"] for batch in resumed])
            assert resumed.state_dict()["epoch"] == 1
        joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
        for got, rest in zip(joined, want[step:], strict=True):
            assert np.array_equal(got, rest)
    # A state of one rank loads in a loader of all.
    half = loader_of(ds, 2, 1, pad_last=True)
    half.seek(3)
    alone = loader_of(ds)
    alone.load_state_dict(half.state_dict())
    assert np.array_equal(next(iter(alone))["tokens"], want[3])


def test_transforms_know_the_records_of_their_rank(ds: Untyped) -> None:
    seen: dict[int, list[int]] = {}

    def look(batch: fr.Batch, info: fr.BatchInfo) -> fr.Batch:
        assert batch["n"].tolist() == info.records.tolist()
        for position, record in zip(info.positions, info.records, strict=True):
            seen.setdefault(int(position), []).append(int(record))
        return batch

    batches = pack(LENGTHS, LENGTH, 6)
    for rank in range(2):
        loader = ds.loader(batches=batches, transform=look, rank=rank, world_size=2)
        for step, _ in enumerate(loader):
            places = loader.records_at(step)
            assert all(seen[n] for n in range(len(places)))
    order = np.concatenate(batches(0, 0)).tolist()
    assert {n: own for n, (own,) in seen.items()} == dict(enumerate(order))


# the transform


def packed(column: Untyped, *args: Any, **options: Any) -> Any:
    batch = {"tokens": column}
    numbers = np.arange(100, 100 + len(column))
    return pack_columns(["tokens"], *args, **options)(
        batch, fr.BatchInfo(0, 0, 0, numbers, numbers)
    )


def test_a_batch_of_plain_rows_is_packed_in_order() -> None:
    rows = fr.RaggedArray.from_list([[1, 2], [3], [4, 5, 6], [], [7]])
    batch = packed(rows, 4, rows=3)
    assert batch["tokens"].tolist() == [[1, 2, 3, 0], [4, 5, 6, 7], [0, 0, 0, 0]]
    assert batch["tokens_segment_ids"].tolist() == [
        [1, 1, 2, 0],
        [1, 1, 1, 3],  # record 2 of the row is empty
        [0, 0, 0, 0],
    ]
    assert batch["tokens_positions"].tolist() == [
        [0, 1, 0, 0],
        [0, 1, 2, 0],
        [0, 0, 0, 0],
    ]


def test_values_may_have_dimensions() -> None:
    values = np.arange(12, dtype=np.float32).reshape(6, 2)
    batch = packed(fr.RaggedArray(values, [0, 2, 6]), 5)
    assert batch["tokens"].shape == (2, 5, 2)
    assert batch["tokens"].dtype == np.float32
    assert batch["tokens"][1].tolist() == [*values[2:].tolist(), [0, 0]]
    assert batch["tokens_segment_ids"].tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]]


def test_long_records_are_an_error_or_cut() -> None:
    rows = fr.RaggedArray.from_list([[1], [2, 3, 4, 5], [6, 7]])
    with pytest.raises(ValueError, match=r"'tokens' of record 101 has 4; .*truncate"):
        packed(rows, 3)
    assert packed(rows, 3, truncate=True)["tokens"].tolist() == [
        [1, 0, 0],
        [2, 3, 4],
        [6, 7, 0],
    ]


@pytest.mark.parametrize(
    ("column", "options", "error", "words"),
    [
        ([[1, 1], [2, 2]], {"rows": 1}, ValueError, r"needs 2 rows of 3 .* rows=1"),
        (np.zeros((2, 3)), {}, TypeError, "must be a RaggedArray of numbers.*VarLen"),
        ([[b"a"], [b"b"]], {}, TypeError, "must be a RaggedArray of numbers"),
    ],
    ids=["rows", "dense", "bytes"],
)
def test_what_cannot_be_packed_is_refused(
    column: Untyped, options: Untyped, error: type[Exception], words: str
) -> None:
    if isinstance(column, list):
        column = fr.RaggedArray.from_list(column)
    with pytest.raises(error, match=words):
        packed(column, 3, **options)


def test_columns_must_agree_and_exist(ds: Untyped) -> None:
    batch = {
        "a": fr.RaggedArray.from_list([[1], [2]]),
        "b": fr.RaggedArray.from_list([[1], [2, 3]]),
    }
    info = fr.BatchInfo(0, 0, 0, np.arange(2), np.arange(7, 9))
    with pytest.raises(ValueError, match=r"'a' of record 8 has 1 and 'b' has 2"):
        pack_columns(["a", "b"], 9)(batch, info)
    loader = ds.loader(8, transform=pack_columns(["token"], 40))
    with pytest.raises(KeyError, match=r"no column 'token'; .*did you mean 'tokens'"):
        next(iter(loader))


def test_the_transform_can_be_pickled() -> None:
    transform = pickle.loads(pickle.dumps(pack_columns(["tokens"], 4)))
    info = fr.BatchInfo(0, 0, 0, np.arange(1), np.arange(1))
    batch = transform({"tokens": fr.RaggedArray.from_list([[5]])}, info)
    assert batch["tokens"].tolist() == [[5, 0, 0, 0]]
