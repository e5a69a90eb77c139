"""Concatenated and mixed datasets.

Goal
    Concatenated datasets act as one, even if their files use different keys. A mix
    follows its weights at every row, reads each component epoch by epoch, and resumes at
    every step.
Method
    Records that hold their number and that of their component; counts of draws.
"""

from __future__ import annotations

import itertools
import json
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped, Write, open_dataset, snapshot
from oracle import example, tfrecord_file

Batch = dict[str, Any]

SPEC: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "image": fr.FixedLen((2,), "uint8"),
    "words": fr.VarLen("bytes"),
    "tags": fr.VarLen("int64"),
    "name": fr.FixedLen((), "bytes"),
}
# The same columns in files with other keys and storage.
OTHER_SPEC: dict[str, Untyped] = {
    "name": fr.FixedLen((), "bytes", default=b"none"),
    "n": fr.FixedLen((), "int64", key="number"),
    "image": fr.Raw((2,), "uint8", key="pixels"),
    "words": fr.VarLen("bytes"),
    "tags": fr.VarLen("int64", key="labels"),
}
FIRST_N = 1000  # numbers of the other files begin here


def values(n: int) -> dict[str, Untyped]:
    return {
        "n": n,
        "image": [n % 256, n % 7],
        "words": [b"w" * (n % 4)] * (n % 3),
        "tags": list(range(n % 5)),
        "name": b"name" * (n % 3),
    }


def record(n: int) -> bytes:
    row = values(n)
    return example(
        {
            b"n": ("int64", [n]),
            b"image": ("int64", row["image"]),
            b"words": ("bytes", row["words"]),
            b"tags": ("int64", row["tags"]),
            b"name": ("bytes", [row["name"]]),
        }
    )


def other_record(n: int) -> bytes:
    row = values(n)
    return example(
        {
            b"number": ("int64", [n]),
            b"pixels": ("bytes", [bytes(row["image"])]),
            b"words": ("bytes", row["words"]),
            b"labels": ("int64", row["tags"]),
            b"name": ("bytes", [row["name"]]),
        }
    )


@pytest.fixture(scope="module")
def a_paths(write: Write) -> list[Path]:
    sizes = (13, 0, 8, 19)
    numbers = iter(range(sum(sizes)))
    return [
        write(tfrecord_file(record(next(numbers)) for _ in range(size)))
        for size in sizes
    ]


@pytest.fixture(scope="module")
def b_path(write: Write) -> Path:
    return write(tfrecord_file(other_record(FIRST_N + n) for n in range(25)))


@pytest.fixture(scope="module")
def a(a_paths: list[Path]) -> Untyped:
    return open_dataset(a_paths, features=SPEC)


@pytest.fixture(scope="module")
def b(b_path: Path) -> Untyped:
    return open_dataset(b_path, features=OTHER_SPEC)


@pytest.fixture(scope="module")
def empty(write: Write) -> Untyped:
    return open_dataset(write(b""), features=SPEC)


A, B = range(40), range(FIRST_N, FIRST_N + 25)


def plain(batch: Batch) -> list[dict[str, Untyped]]:
    """The rows of a batch as Python values."""
    columns = {name: column.tolist() for name, column in batch.items()}
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]


def numbers(batches: Any) -> list[int]:
    return [int(n) for batch in batches for n in batch["n"]]


# concat


@given(data=st.data())
@settings(max_examples=60)
def test_concat_keeps_the_order_of_rows_with_different_keys(
    a: Untyped, b: Untyped, data: st.DataObject
) -> None:
    parts: list[Untyped] = []
    want: list[int] = []
    for _ in range(data.draw(st.integers(1, 4))):
        ds, own = data.draw(st.sampled_from([(a, A), (b, B)]))
        chosen = data.draw(st.lists(st.integers(0, len(own) - 1), max_size=12))
        if data.draw(st.booleans()):
            parts.append(ds)
            want += own
        else:
            parts.append(ds.select(chosen))
            want += [own[i] for i in chosen]
    both = fr.concat(parts)
    assert len(both) == len(want)
    expected = [values(n) for n in want]
    order = (
        data.draw(st.lists(st.integers(0, len(want) - 1), max_size=20)) if want else []
    )
    assert plain(both[order]) == [expected[i] for i in order]
    batch_size = data.draw(st.integers(1, 30))
    batches = list(both.loader(batch_size, num_threads=0))
    assert [row for batch in batches for row in plain(batch)] == expected
    assert all(list(batch) == list(both.schema) for batch in batches)
    if want:
        i = data.draw(st.integers(-len(want), len(want) - 1))
        assert both[i]["n"] == want[i]
        assert both[i]["words"].tolist() == expected[i]["words"]
        raw = record(want[i]) if want[i] < FIRST_N else other_record(want[i])
        assert both.records[i] == raw


def test_concatenated_datasets_act_as_one_dataset(
    a: Untyped, b: Untyped, a_paths: list[Path], b_path: Path
) -> None:
    both = fr.concat([b, a.select(range(9, -1, -1))])
    want = [*B, *range(9, -1, -1)]
    assert both.files == [str(path) for path in [b_path, *a_paths]]
    assert both.schema == b.schema
    assert numbers([both[:]]) == [int(row["n"]) for row in both] == want
    assert [int(row["n"]) for row in both.head(3)] == want[:3]
    loader = both.loader(35)
    places = loader.records_at(0)
    assert places[:25] == [(str(b_path), n, places[n][2]) for n in range(25)]
    assert places[-1][:2] == (str(a_paths[0]), 0)
    assert places[-1][2] == 0
    for shuffle in (True, fr.Blocks(200, lanes=3)):
        loader = both.loader(8, shuffle=shuffle, num_threads=2, seed=4)
        got = numbers(loader)
        assert sorted(got) == sorted(want)
        again = both.loader(8, shuffle=shuffle, num_threads=0, seed=4)
        assert snapshot(list(again)) == snapshot(
            [loader.batch(step, epoch=0) for step in range(len(loader))]
        )
    shards = [
        fr.concat([b, a]).loader(
            7, rank=rank, world_size=3, pad_last=True, shuffle=True
        )
        for rank in range(3)
    ]
    rows = [b["n"][b["__valid__"]].tolist() for loader in shards for b in loader]
    assert sorted(itertools.chain(*rows)) == [*A, *B]
    nested = fr.concat([fr.concat([a, b]), fr.concat([b])])
    assert numbers([nested[:]]) == [*A, *B, *B]
    again = pickle.loads(pickle.dumps(nested))
    assert snapshot([again[30:50]]) == snapshot([nested[30:50]])


def test_concatenated_files_are_read_without_an_index(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path))
    parts = [
        open_dataset(write(tfrecord_file([record(1), record(2)])), features=SPEC),
        open_dataset(write(tfrecord_file([other_record(3)])), features=OTHER_SPEC),
        open_dataset(write(tfrecord_file([record(4)])), features=SPEC),
    ]
    loader = fr.concat(parts).loader(3)
    batches = [*itertools.chain(loader)]  # list(loader) would ask for its length
    assert numbers(batches) == [1, 2, 3, 4]
    assert not list(tmp_path.rglob("*.frecidx"))


def test_different_columns_are_listed(a: Untyped, write: Write) -> None:
    spec: Untyped = {
        "n": fr.FixedLen((), "int32"),
        "image": fr.FixedLen((2, 1), "uint8"),
        "words": fr.FixedLen((1,), "bytes"),
        "tags": fr.VarLen("int64"),
        "more": fr.Raw((3,), "float32"),
    }
    other = open_dataset(write(tfrecord_file([record(0)])), features=spec)
    both = fr.concat([a, other])
    assert len(both) == 41
    reads: list[Callable[[], Untyped]] = [
        lambda: both.schema,
        lambda: both[0],
        lambda: both.head(1),
        lambda: both.loader(1).peek(),
        lambda: next(iter(both.loader(1))),
        lambda: fr.mix({"a": (a, 1), "other": (other, 1)})[0],
    ]
    for read in reads:
        with pytest.raises(fr.SchemaError) as caught:
            read()
        text = str(caught.value)
        for words in (
            r"'n' is int64[] in one and int32[] in another",
            "'image' is uint8[2] in one and uint8[2, 1] in another",
            "'words' is bytes[] ragged in one and bytes[1] in another",
            "'name' is bytes[] in one and missing in another",
            "'more' is missing in one and float32[3] in another",
            "features=",
        ):
            assert words in text
        assert "tags" not in text
    assert both.records[40] == record(0), "bytes have no columns"


def as_b(batch: Batch) -> Batch:
    return {"n": batch["number"], "twice": batch["number"] * 2}


def as_a(batch: Batch, info: fr.BatchInfo) -> Batch:
    assert len(info.records) == len(batch["n"])
    return {"n": batch["n"], "twice": batch["n"] * 2}


@pytest.mark.parametrize("transform_threads", [0, 1, 3])
def test_transforms_of_parts_may_make_columns_equal(
    a: Untyped, b_path: Path, transform_threads: int
) -> None:
    other = open_dataset(b_path, features={"number": fr.FixedLen((), "int64")})
    both = fr.concat([a.with_transform(as_a), other.with_transform(as_b)])
    for view in (both, pickle.loads(pickle.dumps(both))):
        loader = view.with_transform(
            lambda batch: {**batch, "last": batch["n"]}
        ).loader(7, shuffle=True, transform_threads=transform_threads)
        batches = list(loader)
        assert sorted(numbers(batches)) == [*A, *B]
        for batch in batches:
            assert list(batch) == ["n", "twice", "last"]
            assert batch["twice"].tolist() == (2 * batch["n"]).tolist()
    assert both[41]["twice"] == 2 * (FIRST_N + 1)
    assert [int(row["twice"]) for row in both] == [2 * n for n in [*A, *B]]


def test_invalid_transforms_of_parts_are_refused(a: Untyped, b: Untyped) -> None:
    thin = a.with_transform(lambda batch: {"n": batch["n"][batch["n"] % 2 == 0]})
    other = b.select_columns(["n"])
    for whole in (fr.concat([thin, other]), fr.mix({"a": (thin, 1), "b": (other, 1)})):
        with pytest.raises(ValueError, match=r"must return \d+ rows in column 'n'"):
            list(whole.loader(4))
    alone = fr.mix({"a": (thin, 1)})
    with pytest.raises(ValueError, match="number of rows passed to it"):
        alone[:]
    renamed = a.with_transform(lambda batch: {"q": batch["n"]})
    for per_batch in (False, True):
        mixed = fr.mix({"a": (renamed, 1), "b": (other, 1)}, per_batch=per_batch)
        with pytest.raises(fr.SchemaError, match=r"'[qn]' is .*; '[qn]' is"):
            list(mixed.loader(4))
    floats = a.with_transform(lambda batch: {"n": batch["n"].astype(np.float32)})
    with pytest.raises(fr.SchemaError, match=r"'n' is .*int64.*float32|float32.*int64"):
        fr.concat([other, floats])[20:30]
    marked = a.with_transform(lambda batch: {**batch, "__source__": batch["n"]})
    with pytest.raises(ValueError, match="__source__"):
        fr.mix({"a": (marked, 1)})[0]


def test_inference_samples_all_parts(write: Write) -> None:
    one = write(tfrecord_file([example({b"x": ("int64", [1])})] * 3))
    two = write(tfrecord_file([example({b"x": ("int64", [1, 2])})] * 3))
    alone = fr.open(one)
    assert alone.schema["x"] == fr.FixedLen((), "int64")
    both: Untyped = fr.concat([alone, fr.open(two)])
    assert both.schema["x"] == fr.VarLen("int64")
    assert both[:]["x"].lengths.tolist() == [1, 1, 1, 2, 2, 2]
    known = fr.concat(
        [open_dataset(one, features={"x": fr.VarLen("int64")}), fr.open(one)]
    )
    with pytest.raises(fr.SchemaError, match="'x' is int64"):
        known[0]


# Called with what no type checker would let pass.
concat: Untyped = fr.concat
mix: Untyped = fr.mix


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda _: concat([]), ValueError, "got none"),
        (lambda _: mix({}), ValueError, "got none"),
        (lambda a: concat(a), TypeError, "requires a list of datasets"),
        (lambda a: concat([a, "b.tfrecord"]), TypeError, "got 'b.tfrecord'"),
        (lambda a: concat([mix({"a": (a, 1)})]), TypeError, "got a mix"),
        (lambda a: mix({"m": (mix({"a": (a, 1)}), 1)}), TypeError, "in one mix"),
        (lambda a: mix({"a": a}), TypeError, r"dict of name: \(dataset, weight\)"),
        (lambda a: mix([(a, 1)]), TypeError, r"dict of name: \(dataset, weight\)"),
        (lambda a: mix({"a": (a, 1, 2)}), TypeError, "weight"),
        (lambda a: mix({"a": (a, 0)}), ValueError, "weight of 'a' must be positive"),
        (lambda a: mix({"a": (a, -1)}), ValueError, "weight of 'a'"),
        (lambda a: mix({"a": (a, float("nan"))}), ValueError, "weight of 'a'"),
        (lambda a: mix({"a": (a, float("inf"))}), ValueError, "weight of 'a'"),
        (lambda a: mix({"a": (a, "x")}), TypeError, "weight of 'a'"),
        (lambda a: mix({"a": (a, 1)}, length=0), ValueError, "length"),
        (lambda a: mix({"a": (a, 1)}, seed=-1), ValueError, "seed"),
        (lambda a: mix({"a": (a, 1)}, per_batch=3), TypeError, "per_batch"),
    ],
)
def test_invalid_components_are_refused(
    a: Untyped, make: Untyped, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        make(a)


# mix


@st.composite
def mixes(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    """Sizes of components, and their weights."""
    k = draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(1, 30), min_size=k, max_size=k))
    weight = st.one_of(st.integers(1, 9).map(float), st.floats(0.01, 100))
    return sizes, draw(st.lists(weight, min_size=k, max_size=k))


@pytest.fixture(scope="module")
def many(write: Write) -> Untyped:
    path = write(tfrecord_file(record(n) for n in range(200)))
    return open_dataset(path, features=SPEC).select_columns(["n"])


def mix_of(
    many: Untyped, sizes: Sequence[int], weights: Sequence[float], **options: Untyped
) -> Untyped:
    """A mix of neighbouring ranges: record n is of the component it falls into."""
    begins = [0, *itertools.accumulate(sizes)]
    parts = zip(itertools.pairwise(begins), weights, strict=True)
    return fr.mix(
        {str(i): (many.select(range(*ends)), w) for i, (ends, w) in enumerate(parts)},
        **options,
    )


def draws(mixed: Untyped, n_epochs: int, **options: Untyped) -> list[tuple[int, int]]:
    """(component, record) of all rows of some epochs."""
    loader = mixed.loader(options.pop("batch_size", 16), num_threads=0, **options)
    return [
        (int(source), int(n))
        for batch in loader.repeat(n_epochs)
        for source, n in zip(batch["__source__"], batch["n"], strict=True)
    ]


@given(
    parts=mixes(),
    seed=st.integers(0, 2**64 - 1),
    length=st.one_of(st.none(), st.integers(1, 150)),
    shuffle=st.sampled_from([False, True, fr.Blocks(60, lanes=2)]),
)
@settings(max_examples=80)
def test_a_mix_follows_its_weights_and_reads_each_component_in_epochs(
    many: Untyped,
    parts: tuple[list[int], list[float]],
    seed: int,
    length: int | None,
    shuffle: Any,
) -> None:
    sizes, weights = parts
    mixed = mix_of(many, sizes, weights, seed=seed, length=length)
    assert len(mixed) == (length or sum(sizes))
    drawn = draws(mixed, 3, shuffle=shuffle, seed=seed // 2)
    assert len(drawn) == 3 * len(mixed)

    begins = [0, *itertools.accumulate(sizes)]
    for i, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        is_it = np.array([source == i for source, _ in drawn])
        wanted = np.arange(1, len(drawn) + 1) * weight / sum(weights)
        assert np.abs(np.cumsum(is_it) - wanted).max() < len(sizes).bit_length() + 1
        own = [n for source, n in drawn if source == i]
        assert all(begins[i] <= n < begins[i + 1] for n in own)
        epochs = [own[at : at + size] for at in range(0, len(own), size)]
        for epoch in epochs:
            assert len(set(epoch)) == len(epoch), "no record twice in an epoch"
        if shuffle is False:
            assert all(epoch == sorted(epoch) for epoch in epochs)
        elif size > 8 and len(epochs) > 2 and shuffle is True:
            assert epochs[0] != epochs[1], "each of its epochs has its own order"


def test_a_mix_depends_on_its_seeds(many: Untyped) -> None:
    def sources(mix_seed: int, seed: int) -> list[tuple[int, int]]:
        return draws(
            mix_of(many, (50, 50), (2, 1), seed=mix_seed), 1, shuffle=True, seed=seed
        )

    assert sources(0, 0) == sources(0, 0)
    assert [s for s, _ in sources(0, 0)] == [s for s, _ in sources(0, 1)]
    assert sources(0, 0) != sources(0, 1)
    patterns = {tuple(s for s, _ in sources(seed, 0)) for seed in range(9)}
    assert len(patterns) == 3, "these weights allow three different starts"


def test_rows_by_number_are_those_of_the_first_epoch_of_a_mix(
    many: Untyped,
) -> None:
    for per_batch in (False, True):
        mixed = mix_of(many, (7, 20, 90), (3, 1, 2), seed=5, per_batch=per_batch)
        mixed = mixed.with_transform(lambda batch: {**batch, "m": batch["n"] + 1})
        rows = [(int(row["__source__"]), int(row["n"])) for row in mixed]
        assert rows == draws(mixed, 1, batch_size=1)
        assert rows == [
            (int(mixed[i]["__source__"]), int(mixed[i]["n"])) for i in range(117)
        ]
        batch = mixed[3:99:5]
        assert list(zip(batch["__source__"], batch["n"], strict=True)) == rows[3:99:5]
        assert mixed[-1]["m"] == rows[-1][1] + 1
        assert [int(row["n"]) for row in mixed.head(70)] == [n for _, n in rows[:70]]
        assert mixed.records[:].tolist() == list(mixed.records)
        assert mixed.records[9] == record(rows[9][1])


@pytest.mark.parametrize("world_size", [1, 2, 5])
@pytest.mark.parametrize("shuffle", [False, True, fr.Blocks(100, lanes=4)], ids=str)
def test_ranks_share_the_batches_of_a_mix(
    many: Untyped, world_size: int, shuffle: Untyped
) -> None:
    mixed = mix_of(many, (40, 60, 10), (1, 1, 5), seed=1)
    whole = mixed.loader(global_batch_size=20, shuffle=shuffle)
    ranks = [
        mixed.loader(
            global_batch_size=20, shuffle=shuffle, rank=rank, world_size=world_size
        )
        for rank in range(world_size)
    ]
    for step in range(len(whole)):
        parts = fr.concat_batches([loader.batch(step) for loader in ranks])
        assert Counter(plain_rows(parts)) == Counter(plain_rows(whole.batch(step)))
        assert sorted(p for loader in ranks for p in loader.records_at(step)) == sorted(
            whole.records_at(step)
        )


def plain_rows(batch: Batch) -> list[tuple[int, int]]:
    return list(zip(batch["__source__"].tolist(), batch["n"].tolist(), strict=True))


def test_padding_rows_have_source_minus_one(a: Untyped, b: Untyped) -> None:
    mixed = fr.mix({"b": (b, 1), "a": (a, 2)}, length=50)
    loaders = [
        mixed.loader(8, pad_last=True, rank=rank, world_size=3, shuffle=True)
        for rank in range(3)
    ]
    n_valid = 0
    for loader in loaders:
        for batch in loader:
            assert len(batch["n"]) == 8
            is_valid = batch["__valid__"]
            assert (batch["__source__"][~is_valid] == -1).all()
            is_a = batch["n"] < FIRST_N
            assert batch["__source__"][is_valid].tolist() == is_a[is_valid].tolist()
            assert plain({k: v[is_valid] for k, v in batch.items() if k in SPEC}) == [
                values(n) for n in batch["n"][is_valid].tolist()
            ]
            n_valid += int(is_valid.sum())
            assert batch["__source__"].dtype == np.int64
    assert n_valid == 50
    assert list(loaders[0].peek())[-2:] == ["__source__", "__valid__"]


@pytest.mark.parametrize("transform_threads", [0, 2])
def test_components_have_separate_transforms(
    many: Untyped, transform_threads: int
) -> None:
    def scaled(by: int) -> Callable[..., Batch]:
        return lambda batch: {"n": batch["n"], "x": batch["n"] * by}

    mixed = fr.mix(
        {str(by): (many.with_transform(scaled(by)), by) for by in (1, 2, 3)}
    ).with_transform(lambda batch: {**batch, "of": batch["__source__"] + 1})
    loader = mixed.loader(10, shuffle=True, transform_threads=transform_threads)
    for batch in loader:
        assert list(batch) == ["n", "x", "__source__", "of"]
        assert batch["x"].tolist() == (batch["n"] * batch["of"]).tolist()
    again = pickle.loads(pickle.dumps(mix_of(many, (9, 9), (1, 2), seed=3)))
    assert draws(again, 2) == draws(mix_of(many, (9, 9), (1, 2), seed=3), 2)


@pytest.mark.parametrize("shuffle", [False, True, fr.Blocks(100, lanes=2)], ids=str)
def test_per_batch_draws_whole_batches_on_all_ranks(
    many: Untyped, shuffle: Untyped
) -> None:
    mixed = mix_of(many, (24, 36, 60), (1, 2, 3), seed=2, length=240, per_batch=True)
    loaders = [
        mixed.loader(6, shuffle=shuffle, rank=rank, world_size=2) for rank in range(2)
    ]
    of_steps = []
    drawn: list[tuple[int, int]] = []
    for epoch in range(2):
        for step in range(len(loaders[0])):
            batch = fr.concat_batches([loader.batch(step, epoch) for loader in loaders])
            (source,) = set(batch["__source__"].tolist())
            of_steps.append(source)
            drawn += plain_rows(batch)
    assert len(of_steps) == 40
    counts = Counter(of_steps)
    for i, weight in enumerate((1, 2, 3)):
        assert abs(counts[i] - 40 * weight / 6) <= 2
    for i, size in enumerate((24, 36, 60)):
        own = [n for source, n in drawn if source == i]
        for at in range(0, len(own), size):
            epoch_of_it = own[at : at + size]
            assert len(set(epoch_of_it)) == len(epoch_of_it)


@pytest.mark.parametrize("per_batch", [False, True])
@pytest.mark.parametrize("shuffle", [False, True, fr.Blocks(100, lanes=2)], ids=str)
def test_a_mix_resumes_at_every_step(
    many: Untyped, shuffle: Untyped, per_batch: bool
) -> None:
    def fresh(batch_size: int = 12, **options: Untyped) -> Untyped:
        mixed = mix_of(many, (20, 31), (1, 2), length=70, per_batch=per_batch)
        return mixed.loader(
            batch_size, shuffle=shuffle, num_threads=0, seed=8, **options
        )

    loader = fresh()
    want = [plain_rows(batch) for batch in loader.repeat(3)]
    loader = fresh()
    for n_seen, batch in enumerate(loader.repeat(3), 1):
        state = json.loads(json.dumps(loader.state_dict()))
        assert len(json.dumps(state)) < 400
        if n_seen in (1, 4, 6, 7, 15):
            resumed = fresh()
            resumed.load_state_dict(state)
            rest = [plain_rows(b) for b in resumed.repeat(3 - resumed.epoch)]
            assert rest == want[n_seen:]
            other = fresh(5)
            if per_batch:
                with pytest.raises(ValueError, match="a different order"):
                    other.load_state_dict(state)
                halves = [fresh(6, rank=rank, world_size=2) for rank in range(2)]
                for half in halves:
                    half.load_state_dict(state)
                rows = [
                    r
                    for parts in zip(*halves, strict=True)
                    for b in parts
                    for r in plain_rows(b)
                ]
            else:
                other.load_state_dict(state)
                rows = [row for b in other for row in plain_rows(b)]
            n_of_epoch = 6 - n_seen % 6
            assert Counter(rows) == Counter(
                itertools.chain(*want[n_seen : n_seen + n_of_epoch])
            )
        assert plain_rows(batch) == want[n_seen - 1]


def test_a_state_belongs_to_its_mix(many: Untyped) -> None:
    state = mix_of(many, (20, 30), (1, 2)).loader(5).state_dict()
    mix_of(many, (20, 30), (1, 2)).loader(7).load_state_dict(state)
    for other in (
        mix_of(many, (20, 30), (1, 3)),
        mix_of(many, (20, 30), (1, 2), seed=1),
        mix_of(many, (20, 30), (1, 2), length=60),
        mix_of(many, (20, 30), (1, 2), per_batch=True),
        mix_of(many, (21, 29), (1, 2)),
        fr.concat([many.select(range(20)), many.select(range(20, 50))]),
    ):
        with pytest.raises(ValueError, match=r"a different order|a different dataset"):
            other.loader(5).load_state_dict(state)


def test_a_mix_has_no_selections(many: Untyped) -> None:
    mixed = mix_of(many, (20, 30), (1, 2))

    def never(batch: Batch) -> Untyped:
        pytest.fail(f"it was read: {batch}")

    attempts: list[Callable[[], Untyped]] = [
        lambda: mixed.select(range(3)),
        lambda: mixed.filter(never),
        lambda: mixed.filter(never, columns=["n"]),
        lambda: mixed.split([0.5]),
        lambda: mixed.shard(num_shards=2, index=0),
    ]
    for attempt in attempts:
        with pytest.raises(
            TypeError, match="select, filter, split or shard its components instead"
        ):
            attempt()
    with pytest.raises(TypeError, match="cannot use batches= with a mix"):
        mixed.loader(batches=lambda seed, epoch: [[seed, epoch]])


def test_a_mix_can_select_columns(a: Untyped, b: Untyped) -> None:
    mixed = fr.mix({"a": (a, 1), "b": (b, 1)}, seed=3)
    assert list(mixed.select_columns(["name"])[0]) == ["name", "__source__"]
    assert len(mixed) == 65
    assert "'a' (1)" in repr(mixed)
    part = mixed.select_columns(["n"])
    assert [int(r["n"]) for r in part] == [int(r["n"]) for r in mixed]


def test_a_component_without_records_is_named(a: Untyped, empty: Untyped) -> None:
    for length in (None, 10):
        mixed = fr.mix({"a": (a, 1), "none": (empty, 1)}, length=length)
        with pytest.raises(
            ValueError,
            match="mix components must not be empty, got no records in 'none'",
        ):
            list(mixed.loader(4))
        with pytest.raises(ValueError, match="'none'"):
            mixed[0]


def test_a_feature_named_like_an_added_column_is_refused(write: Write) -> None:
    path = write(tfrecord_file([example({b"__source__": ("int64", [1])})]))
    ds = fr.open(path)
    assert ds[0]["__source__"] == 1
    mixed = fr.mix({"ds": (ds, 1)})
    for read in (lambda: mixed[0], lambda: list(mixed.loader(1))):
        with pytest.raises(
            fr.SchemaError, match=r"'__source__' has the name of an added column.*key="
        ):
            read()
    cured = ds.with_features({"mine": fr.FixedLen((), "int64", key="__source__")})
    assert fr.mix({"ds": (cured, 1)})[0] == {"mine": 1, "__source__": 0}
