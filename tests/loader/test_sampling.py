"""Samplers: batches by length, by weight and by class.

Goal
    Buckets have every record once and only records of similar length. Weights become
    counts, rounded down or up; classes are drawn equally. All depend on seed and epoch
    alone, and work with ranks, padding and resuming.
Method
    Counts of the records that samplers list and loaders deliver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped, Write, open_dataset
from oracle import example, tfrecord_file

N = 90
LENGTHS = [n * n % 37 for n in range(N)]
LABELS = [0 if n % 10 else 1 + n % 3 for n in range(N)]

# Called with arguments that type checkers reject.
buckets: Untyped = fr.samplers.bucket_by_length
weighted: Untyped = fr.samplers.weighted
balanced: Untyped = fr.samplers.balanced


@pytest.fixture(scope="module")
def ds(write: Write) -> Untyped:
    records = (
        example(
            {
                b"n": ("int64", [n]),
                b"tokens": ("int64", [n] * LENGTHS[n]),
                b"label": ("int64", [LABELS[n]]),
            }
        )
        for n in range(N)
    )
    spec = {
        "n": fr.FixedLen((), "int64"),
        "tokens": fr.VarLen("int64"),
        "label": fr.FixedLen((), "int64"),
    }
    return open_dataset(write(tfrecord_file(records)), features=spec)


def listed(batches: Any, seed: int = 0, epoch: int = 0) -> list[list[int]]:
    return [batch.tolist() for batch in batches(seed, epoch)]


def flat(batches: list[list[int]]) -> list[int]:
    return [n for batch in batches for n in batch]


# buckets


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=80),
    edges=st.lists(st.integers(-2, 45), min_size=1, max_size=5, unique=True).map(
        sorted
    ),
    sizes=st.data(),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**40),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
def test_buckets_hold_every_record_once_and_batches_are_of_one_bucket(
    lengths: list[int],
    edges: list[int],
    sizes: st.DataObject,
    seed: int,
    epoch: int,
    shuffle: bool,
    drop_last: bool,
) -> None:
    n_rows = [sizes.draw(st.integers(1, 9)) for _ in range(len(edges) + 1)]
    make = fr.samplers.bucket_by_length(
        lengths, edges, n_rows, shuffle=shuffle, drop_last=drop_last
    )
    batches = listed(make, seed, epoch)
    assert batches == listed(make, seed, epoch)

    def bucket(n: int) -> int:
        return sum(lengths[n] >= edge for edge in edges)

    n_short = [0] * len(n_rows)
    for batch in batches:
        (of,) = {bucket(n) for n in batch}
        assert 0 < len(batch) <= n_rows[of]
        n_short[of] += len(batch) < n_rows[of]
    assert max(n_short) <= (0 if drop_last else 1)
    in_buckets = [
        [n for n in range(len(lengths)) if bucket(n) == i] for i in range(len(n_rows))
    ]
    delivered = sorted(flat(batches))
    if drop_last:
        assert len(set(delivered)) == len(delivered)
        for members, size in zip(in_buckets, n_rows, strict=True):
            assert len(set(members) & set(delivered)) == len(members) // size * size
    else:
        assert delivered == list(range(len(lengths)))
    if not shuffle and not drop_last:
        assert flat(batches) == flat(in_buckets)


def test_buckets_are_shuffled_by_seed_and_epoch() -> None:
    make = fr.samplers.bucket_by_length(LENGTHS, [10, 20], [4, 4, 4])
    first = listed(make)
    for other in (listed(make, seed=1), listed(make, epoch=1)):
        assert other != first
        assert {frozenset(batch) for batch in other} != {frozenset(b) for b in first}
        assert sorted(flat(other)) == list(range(N))
    order = [max(LENGTHS[n] for n in batch) // 10 for batch in first]
    assert order != sorted(order), "batches of all buckets are shuffled, too"
    constant = fr.samplers.bucket_by_length(LENGTHS, [10, 20], [4, 4, 4], shuffle=False)
    assert listed(constant) == listed(constant, seed=1, epoch=5)


def test_buckets_accept_any_numbers() -> None:
    floats = fr.samplers.bucket_by_length(
        [0.5, 2.0, 1.0, np.inf], [1.0, 2.0], np.array([1, 1, 2]), shuffle=False
    )
    assert listed(floats) == [[0], [2], [1, 3]]
    unsigned = fr.samplers.bucket_by_length(
        np.array([3, 250], np.uint8), [100], [1, 1], shuffle=False
    )
    assert listed(unsigned) == [[0], [1]]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([], [1], [1, 1]), ValueError, "lengths must not be empty"),
        (([1], [], [1]), ValueError, "edges must not be empty"),
        (([[1]], [1], [1, 1]), TypeError, "lengths must be a 1-D array of numbers"),
        ((["a"], [1], [1, 1]), TypeError, "lengths must be"),
        (([True], [1], [1, 1]), TypeError, "lengths must be"),
        (([np.nan], [1], [1, 1]), ValueError, "lengths must not be NaN"),
        (([1], [np.nan], [1, 1]), ValueError, "edges must not be NaN"),
        (([1], [2, 2], [1, 1, 1]), ValueError, "edges must increase"),
        (([1], [3, 2], [1, 1, 1]), ValueError, "edges must increase"),
        (([1], [3], [1]), ValueError, "sizes must have 2 entries"),
        (([1], [3], 4), ValueError, "sizes must have 2 entries"),
        (([1], [3], [1, 0]), ValueError, "sizes must be at least 1"),
        (([1], [3], [1, 1.5]), TypeError, "sizes must be an integer"),
    ],
    ids=str,
)
def test_impossible_buckets_are_refused(
    arguments: Untyped, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        buckets(*arguments)


@pytest.mark.parametrize("option", ["shuffle", "drop_last"])
def test_options_of_buckets_must_be_bool(option: str) -> None:
    with pytest.raises(TypeError, match=f"{option} must be True or False"):
        buckets([1], [1], [1, 1], **{option: 7})


# weighted


@given(
    weights=st.lists(
        st.one_of(st.just(0.0), st.integers(1, 50).map(float), st.floats(0.001, 1000)),
        min_size=1,
        max_size=60,
    ).filter(any),
    length=st.one_of(st.none(), st.integers(1, 300)),
    batch_size=st.integers(1, 20),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**40),
)
def test_counts_are_the_weights_rounded_down_or_up(
    weights: list[float], length: int | None, batch_size: int, seed: int, epoch: int
) -> None:
    make = fr.samplers.weighted(weights, batch_size, length=length)
    batches = listed(make, seed, epoch)
    n = len(weights) if length is None else length
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert len(flat(batches)) == n
    counts = np.bincount(flat(batches), minlength=len(weights))
    wanted = n * np.array(weights) / sum(weights)
    assert np.abs(counts - wanted).max() < 1 + 1e-9
    assert not counts[np.array(weights) == 0].any(), "no weight, no draw"
    assert batches == listed(make, seed, epoch)


def test_draws_depend_on_seed_and_epoch() -> None:
    make = fr.samplers.weighted(np.arange(N), 16)
    first = listed(make)
    for other in (listed(make, seed=1), listed(make, epoch=1)):
        assert flat(other) != flat(first)
        assert sorted(flat(other)) != sorted(flat(first))
    assert flat(first) != sorted(flat(first))
    # Over many epochs, a record is drawn in proportion to its weight.
    counts = sum(
        np.bincount(flat(listed(make, epoch=e)), minlength=N) for e in range(200)
    )
    wanted = 200 * N * np.arange(N) / sum(range(N))
    assert np.abs(counts - wanted).max() < 25


class LargestOffset:
    """A generator that returns the largest offset of draws."""

    def __init__(self, *_: object) -> None: ...

    def random(self) -> float:
        return float(np.nextafter(1, 0))


@pytest.mark.parametrize(
    ("n", "n_zeros", "lengths"),
    [(1, 0, [1, 7]), (3, 9, range(1, 200)), (100_000, 1000, [100_000, 99_991])],
)
def test_rounding_never_draws_a_weight_of_0(
    monkeypatch: pytest.MonkeyPatch, n: int, n_zeros: int, lengths: Sequence[int]
) -> None:
    monkeypatch.setattr(np.random, "Generator", LargestOffset)
    weights = [*np.random.RandomState(0).random(n) + 0.1, *[0.0] * n_zeros]
    for length in lengths:
        make = fr.samplers.weighted(weights, 1000, length=length)
        drawn = flat(listed(make, epoch=length))
        assert min(drawn) >= 0
        assert max(drawn) < n


def test_weights_may_have_any_scale() -> None:
    for scale in (1e308, 1.0, 1e-300):
        weights = np.array([1, 1, 0, 0.5]) * scale
        counts = np.bincount(
            flat(listed(fr.samplers.weighted(weights, 50, length=250)))
        )
        assert counts.tolist() == [100, 100, 0, 50]
    assert set(
        flat(listed(fr.samplers.weighted([1e-320, 0, 1e-320], 9, length=10)))
    ) == {0, 2}
    integers = fr.samplers.weighted(np.array([0, 255], np.uint8), 2)
    assert listed(integers) == [[1, 1]]


def test_a_million_weights_are_fast() -> None:
    n = 1_000_000
    batches = fr.samplers.weighted(np.arange(n), 1024)(3, 4)
    drawn = np.concatenate([*batches])
    assert (len(drawn), len([*batches])) == (n, -(-n // 1024))
    counts = np.bincount(drawn, minlength=n)
    wanted = np.arange(n) / ((n - 1) / 2)
    assert np.abs(counts - wanted).max() < 1 + 1e-6


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([], 3), ValueError, "weights must not be empty"),
        (([0, 0], 3), ValueError, "not all 0"),
        (([1, -1], 3), ValueError, "at least 0"),
        (([1, np.inf], 3), ValueError, "finite"),
        (([1, np.nan], 3), ValueError, "weights must not be NaN"),
        (([[1]], 3), TypeError, "weights must be a 1-D array of numbers, got 2-D"),
        ((["a"], 3), TypeError, "weights must be"),
        (([1], 0), ValueError, "batch_size must be at least 1"),
        (([1], 2.5), TypeError, "batch_size"),
        (([1],), TypeError, "batch_size"),
    ],
    ids=str,
)
def test_impossible_weights_are_refused(
    arguments: Untyped, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        weighted(*arguments)
    with pytest.raises(ValueError, match="length must be at least 1"):
        weighted([1], 3, length=0)


def test_classes_are_balanced(ds: Untyped) -> None:
    labels = ds.select_columns(["label"])[:]["label"]
    assert np.bincount(labels).tolist() == [81, 3, 3, 3]
    loader = ds.loader(batches=fr.samplers.balanced(labels, 16), num_threads=2)
    assert len(loader) == 6
    n_epochs = 60
    for _ in range(n_epochs):
        drawn = np.bincount(np.concatenate([batch["label"] for batch in loader]))
        assert np.abs(drawn - N / 4).max() < 1


@given(
    labels=st.lists(st.sampled_from(["a", "a\0", "b", ""]), min_size=1, max_size=50),
    length=st.one_of(st.none(), st.integers(1, 200)),
    epoch=st.integers(0, 100),
)
def test_every_class_and_every_record_of_a_class_is_drawn_equally(
    labels: list[str], length: int | None, epoch: int
) -> None:
    columns: list[Any] = [
        fr.BytesArray.from_list([label.encode() for label in labels]),
        np.array([["a", "a\0", "b", ""].index(label) for label in labels]),
    ]
    of_bytes, of_integers = [
        listed(fr.samplers.balanced(column, 7, length=length), 3, epoch)
        for column in columns
    ]
    counts = np.bincount(flat(of_bytes), minlength=len(labels))
    n = length or len(labels)
    assert counts.sum() == n
    for label in set(labels):
        members = counts[[other == label for other in labels]]
        assert abs(members.sum() - n / len(set(labels))) < 1 + 1e-9
        assert np.ptp(members) <= 1
    assert len(flat(of_integers)) == n


@pytest.mark.parametrize(
    ("labels", "error", "words"),
    [
        ([], TypeError, "labels must be a 1-D array of integers or strings"),
        (np.empty(0, int), ValueError, "labels must not be empty"),
        (fr.BytesArray.from_list([]), ValueError, "labels must not be empty"),
        ([[1]], TypeError, "got 2-D int64"),
        ([0.5], TypeError, "got 1-D float64"),
    ],
    ids=str,
)
def test_impossible_labels_are_refused(
    labels: Untyped, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        balanced(labels, 3)


def test_neighbours_can_be_drawn_in_one_epoch() -> None:
    half = fr.samplers.weighted(np.ones(N), N, length=N // 2)
    epochs = [set(flat(listed(half, epoch=epoch))) for epoch in range(40)]
    assert all(len(drawn) == N // 2 for drawn in epochs)
    assert len({frozenset(drawn) for drawn in epochs}) == 40
    n_pairs = sum(
        n in drawn and n + 1 in drawn for drawn in epochs for n in range(N - 1)
    )
    assert 0.2 < n_pairs / (40 * (N - 1)) < 0.3


# Samplers in a loader.


def of_buckets(ds: Untyped) -> Untyped:
    """The sampler of the documentation."""
    lengths = ds.select_columns(["tokens"])[:]["tokens"].lengths
    assert lengths.tolist() == LENGTHS
    return fr.samplers.bucket_by_length(lengths, [10, 25], [11, 7, 5])


def of_weights(_: Untyped) -> Untyped:
    return fr.samplers.weighted(LENGTHS, 8)


MAKERS = [of_buckets, of_weights]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("num_threads", [0, 2])
def test_loaders_deliver_listed_batches(
    ds: Untyped, make: Callable[[Untyped], Untyped], num_threads: int
) -> None:
    batches = make(ds)
    loader = ds.loader(batches=batches, seed=6, num_threads=num_threads)
    assert loader.batch_size is None
    for epoch in range(2):
        got = [batch["n"].tolist() for batch in loader]
        assert got == listed(batches, 6, epoch)
    assert loader.batch(3, epoch=9)["n"].tolist() == listed(batches, 6, 9)[3]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_ranks_share_listed_batches(
    ds: Untyped, make: Callable[[Untyped], Untyped], world_size: int
) -> None:
    batches = make(ds)
    loaders = [
        ds.loader(batches=batches, pad_last=True, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    got = [list(loader) for loader in loaders]
    for want, *parts in zip(listed(batches), *got, strict=True):
        assert len({len(part["n"]) for part in parts}) == 1
        rows = [part["n"][part["__valid__"]].tolist() for part in parts]
        assert flat(rows) == want


def test_an_attribute_of_the_callers_own_batches_is_not_used(ds: Untyped) -> None:
    class Own:
        groups = ("train", "test")

        def __call__(self, _seed: int, _epoch: int) -> list[list[int]]:
            return [[4, 2, 9, 7]]

    loaders = [ds.loader(batches=Own(), rank=rank, world_size=2) for rank in range(2)]
    assert [loader.peek()["n"].tolist() for loader in loaders] == [[4, 2], [9, 7]]


def test_a_batch_smaller_than_the_world_size_is_refused_with_a_hint(
    ds: Untyped,
) -> None:
    with pytest.raises(ValueError, match="pad_last=True"):
        ds.loader(
            batches=fr.samplers.bucket_by_length(LENGTHS, [5], [4, 7]),
            rank=0,
            world_size=5,
        )
    full = fr.samplers.bucket_by_length(LENGTHS, [5], [5, 7], drop_last=True)
    assert len(ds.loader(batches=full, rank=0, world_size=5)) > 5


@pytest.mark.parametrize("make", MAKERS)
def test_loaders_resume_at_every_listed_batch(
    ds: Untyped, make: Callable[[Untyped], Untyped]
) -> None:
    def fresh(**options: Untyped) -> Untyped:
        return ds.loader(batches=make(ds), num_threads=0, **options)

    want = listed(make(ds), 3, 0) + listed(make(ds), 3, 1)
    loader = fresh(seed=3)
    for n_seen, batch in enumerate(loader.repeat(2), 1):
        assert batch["n"].tolist() == want[n_seen - 1]
        state = json.loads(json.dumps(loader.state_dict()))
        resumed = fresh()
        resumed.load_state_dict(state)
        rest = [b["n"].tolist() for b in resumed.repeat(2 - resumed.epoch)]
        assert rest == want[n_seen:]
    with pytest.raises(ValueError, match="a different order"):
        ds.loader(8).load_state_dict(state)
    loader.seek(2)
    middle = loader.state_dict()
    with pytest.raises(ValueError, match=r"must be the start of a batch"):
        ds.loader(batches=fr.samplers.weighted([1] * N, 89)).load_state_dict(middle)


@settings(max_examples=20)
@given(sizes=st.lists(st.integers(1, 12), min_size=3, max_size=3))
def test_views_and_filters_apply_before_sampling(ds: Untyped, sizes: list[int]) -> None:
    short = ds.select(np.array(LENGTHS) < 30)
    lengths = [length for length in LENGTHS if length < 30]
    loader = short.loader(
        batches=fr.samplers.bucket_by_length(lengths, [10, 20], sizes), num_threads=0
    )
    n = np.concatenate([batch["n"] for batch in loader])
    assert sorted(n.tolist()) == [i for i in range(N) if LENGTHS[i] < 30]


@pytest.mark.parametrize("n", [N - 1, N + 1])
def test_lengths_and_weights_of_another_dataset_are_refused(
    ds: Untyped, n: int
) -> None:
    for batches in (
        fr.samplers.bucket_by_length([1] * n, [1], [5, 5]),
        fr.samplers.weighted([1] * n, 5),
    ):
        with pytest.raises(ValueError, match=f"for {n} records, but .* has {N}"):
            len(ds.loader(batches=batches))
