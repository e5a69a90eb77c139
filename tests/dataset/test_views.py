"""Views: selected records and columns of the same files.

Goal
    A view equals a list of record numbers, and so does a view of a view. Views cost what
    their docstrings say, share indexes, and survive pickling and forks.
Method
    Chains of views against the same operations on a plain list; records hold their number.
"""

from __future__ import annotations

import functools
import multiprocessing
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped, Write, open_dataset, snapshot
from fastrec.storage import index as index_module
from oracle import example, tfrecord_file

Batch = dict[str, Any]

FILE_SIZES = (17, 0, 1, 40, 22)
N = sum(FILE_SIZES)
SPEC: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "words": fr.VarLen("bytes"),
}


def record(n: int) -> bytes:
    return example(
        {b"n": ("int64", [n]), b"words": ("bytes", [b"w" * (n % 5)] * (n % 3))}
    )


def write_files(write: Write, sizes: tuple[int, ...] = FILE_SIZES) -> list[Path]:
    numbers = iter(range(sum(sizes)))
    return [
        write(tfrecord_file(record(next(numbers)) for _ in range(size)))
        for size in sizes
    ]


@pytest.fixture(scope="module")
def paths(write: Write) -> list[Path]:
    return write_files(write)


@pytest.fixture(scope="module")
def ds(paths: list[Path]) -> Untyped:
    return open_dataset(paths, features=SPEC)


@pytest.fixture(scope="module")
def empty(write: Write) -> Untyped:
    return open_dataset(write(b""), features=SPEC)


def numbers_of(view: Untyped) -> list[int]:
    """The numbers in the records of a view, all read at once."""
    return [int(n) for n in view[:]["n"]]


def pieces(view: Untyped) -> list[Any]:
    """What the selection of a view is made of."""
    return list(view._source.records())


# Chains of views.


@st.composite
def index_arrays(draw: st.DrawFn, n: int) -> Any:
    """Numbers of `n` records, some from the end, some twice."""
    if n == 0:
        return []
    numbers = draw(st.lists(st.integers(-n, n - 1), max_size=30))
    dtype = draw(st.sampled_from([None, "int8" if n < 128 else "int16", "int64"]))
    return numbers if dtype is None else np.array(numbers, dtype)


@st.composite
def ranges(draw: st.DrawFn, n: int) -> range:
    """A range of which all are records, in either direction."""
    step = draw(st.sampled_from([1, 1, 2, 3, 7, -1, -2, -5]))
    ends = st.integers(-n - 1, n)
    chosen = range(draw(ends), draw(ends), step)
    return range(0) if any(not -n <= i < n for i in chosen) else chosen


def selected(chosen: Untyped, view: Untyped) -> Untyped:
    return view.select(chosen)


def sharded(num_shards: int, index: int, view: Untyped) -> Untyped:
    return view.shard(num_shards=num_shards, index=index)


def doubled(begin: int, end: int, view: Untyped) -> Untyped:
    """A view without [begin, end), and then all of it."""
    return fr.concat(
        [view.select(range(begin)), view.select(np.arange(end, len(view))), view]
    )


def split_and_joined(seed: int, view: Untyped) -> Untyped:
    """The records of a view in their order, by way of a split."""
    both = fr.concat(view.split([0.3, 0.7], seed=seed))
    places = np.empty(len(view), np.int64)
    places[np.argsort(numbers_of(view))] = np.argsort(numbers_of(both))
    return both.select(places)


@st.composite
def chains(draw: st.DrawFn) -> tuple[Callable[[Untyped], Untyped], list[int]]:
    """Some views of views, and the records that they should have."""
    steps: list[Callable[[Untyped], Untyped]] = []
    want = list(range(N))
    for _ in range(draw(st.integers(1, 5))):
        n = len(want)
        kind = draw(
            st.sampled_from(["range", "array", "mask", "shard", "split", "concat"])
        )
        if kind == "range":
            chosen = draw(ranges(n))
            want = [want[i] for i in chosen]
            steps.append(functools.partial(selected, chosen))
        elif kind == "array":
            numbers = draw(index_arrays(n))
            want = [want[i] for i in numbers]
            steps.append(functools.partial(selected, numbers))
        elif kind == "mask":
            mask: Untyped = draw(st.lists(st.booleans(), min_size=n, max_size=n))
            want = [number for number, is_in in zip(want, mask, strict=True) if is_in]
            mask = np.array(mask, bool) if draw(st.booleans()) else mask
            steps.append(functools.partial(selected, mask))
        elif kind == "shard":
            k = draw(st.integers(1, 5))
            i = draw(st.integers(0, k - 1))
            want = want[n * i // k : n * (i + 1) // k]
            steps.append(functools.partial(sharded, k, i))
        elif kind == "split":
            steps.append(functools.partial(split_and_joined, draw(st.integers(0, 9))))
        elif n <= 300:
            begin, end = sorted(draw(st.integers(0, n)) for _ in range(2))
            want = want[:begin] + want[end:] + want
            steps.append(functools.partial(doubled, begin, end))
    return lambda view: functools.reduce(lambda v, step: step(v), steps, view), want


@given(chain=chains(), data=st.data())
@settings(max_examples=150)
def test_a_chain_of_views_is_a_list_of_records(
    ds: Untyped,
    chain: tuple[Callable[[Untyped], Untyped], list[int]],
    data: st.DataObject,
) -> None:
    make, want = chain
    view = make(ds)
    n = len(view)
    assert n == len(want)
    assert numbers_of(view) == want
    assert [int(row["n"]) for row in view] == want
    assert [int(row["n"]) for row in view.head(3)] == want[:3]
    assert view.records[:].tolist() == [record(i) for i in want]
    begin, end, step = (data.draw(st.integers(-9, 9)) for _ in range(3))
    part = slice(begin, end, step or None)
    assert view[part]["n"].tolist() == want[part]
    if n:
        i = data.draw(st.integers(-n, n - 1))
        assert view[i]["n"] == want[i]
        assert view[i]["words"].tolist() == [b"w" * (want[i] % 5)] * (want[i] % 3)
        assert view.records[i] == record(want[i])
    for out in (n, -n - 1):
        with pytest.raises(IndexError, match=f"the dataset has {n:,} records"):
            view[out]

    batch_size = data.draw(st.integers(1, 20))
    shuffle = data.draw(st.sampled_from([False, True, fr.Blocks(100, lanes=3)]))
    loader = view.loader(batch_size, shuffle=shuffle, num_threads=0, seed=n)
    got = [int(k) for batch in loader for k in batch["n"]]
    assert sorted(got) == sorted(want)
    assert got == want or shuffle
    places = [place for step in range(len(loader)) for place in loader.records_at(step)]
    assert len(places) == n

    again = pickle.loads(pickle.dumps(view))
    assert numbers_of(again) == want
    assert again._source.fingerprint() == view._source.fingerprint()
    state = loader.state_dict()
    again.loader(batch_size, shuffle=shuffle).load_state_dict(state)


@given(chosen=st.data())
@settings(max_examples=30)
def test_shards_are_a_partition(ds: Untyped, chosen: st.DataObject) -> None:
    view = ds.select(range(chosen.draw(st.integers(0, N))))
    k = chosen.draw(st.integers(1, N + 3))
    shards = [view.shard(num_shards=k, index=i) for i in range(k)]
    assert [n for shard in shards for n in numbers_of(shard)] == numbers_of(view)
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


@given(
    shares=st.lists(st.integers(0, 50), min_size=1, max_size=5).filter(any),
    rest=st.integers(0, 50),
    seed=st.integers(0, 2**64 - 1),
)
@settings(max_examples=50)
def test_a_split_divides_the_records(
    ds: Untyped, shares: list[int], rest: int, seed: int
) -> None:
    total = sum(shares) + rest
    fractions = [share / total for share in shares]
    parts = ds.split(fractions, seed=seed)
    for part, share in zip(parts, shares, strict=True):
        assert abs(len(part) - N * share / total) <= 1
        assert numbers_of(part) == sorted(set(numbers_of(part)))
    together = [n for part in parts for n in numbers_of(part)]
    assert len(set(together)) == len(together)
    assert rest or len(together) == N
    again = ds.with_features({"n": fr.FixedLen((), "int64")}).split(
        fractions, seed=seed
    )
    assert [numbers_of(part) for part in again] == [numbers_of(part) for part in parts]


def test_splits_depend_on_the_seed_and_differ_from_shuffles(ds: Untyped) -> None:
    first, other = (ds.split([0.5], seed=seed)[0] for seed in (0, 1))
    assert 5 < len(set(numbers_of(first)) - set(numbers_of(other))) < 35
    epoch = [int(n) for batch in ds.loader(N, shuffle=True) for n in batch["n"]]
    assert set(epoch[: N // 2]) != set(numbers_of(first))
    assert len(ds.split([0.9, 0.1])[0]) == 72
    assert ds.split([]) == ()


@pytest.mark.parametrize(
    "fractions",
    [[-0.1, 0.5], [0.6, 0.6], [float("nan")], [float("inf")], 0.5, [[0.5]]],
    ids=str,
)
def test_impossible_splits_are_refused(ds: Untyped, fractions: Untyped) -> None:
    with pytest.raises(ValueError, match="fractions must be"):
        ds.split(fractions)


# What a selection may be, and what it costs.


@pytest.mark.parametrize(
    ("chosen", "error", "words"),
    [
        ([N], IndexError, f"record {N} is out of range: the dataset has {N} records"),
        ([0, -N - 1], IndexError, "out of range"),
        (range(N + 1), IndexError, f"record {N} is out of range"),
        (range(-N - 1, 3), IndexError, "out of range"),
        (range(10**15), IndexError, "out of range"),
        (range(N - 1, -(10**15), -1), IndexError, "out of range"),
        ([True] * (N - 1), IndexError, "mask"),
        (np.ones(N + 1, bool), IndexError, "mask"),
        ([0.5], TypeError, "index must be"),
        (np.ones((2, 2), int), TypeError, "index must be"),
        (3, TypeError, r"several records, got 3; use ds\[3\]"),
        ("n", TypeError, "index must be"),
        ((1, 2), TypeError, "index must be"),
        pytest.param(iter([1]), TypeError, "index must be", id="iterator"),
        (None, TypeError, "index must be"),
    ],
    ids=str,
)
def test_invalid_selections_are_refused(
    ds: Untyped, chosen: Untyped, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ds.select(chosen)


@pytest.mark.parametrize(
    "chosen",
    [range(0), range(9, 3), slice(0), [], np.array([]), np.zeros(N, bool), [False] * N],
    ids=["range", "backwards", "slice", "list", "array", "mask", "bools"],
)
def test_an_empty_selection_is_an_empty_dataset(ds: Untyped, chosen: Untyped) -> None:
    view = ds.select(chosen)
    assert len(view) == 0
    assert list(view) == list(view.records) == view.head() == []
    assert view[:]["n"].shape == (0,)
    for shuffle in (False, True, fr.Blocks()):
        assert list(view.loader(4, shuffle=shuffle)) == []
    with pytest.raises(IndexError):
        view.select([0])
    assert len(fr.concat([view, ds, view])) == N


def test_views_of_an_empty_dataset_are_empty(empty: Untyped) -> None:
    views = [
        empty.select([]),
        empty.select(range(0)),
        empty.shard(num_shards=2, index=1),
        *empty.split([0.5, 0.5]),
        empty.filter(lambda batch: batch["n"] > 0),
        fr.concat([empty, empty]),
    ]
    for view in views:
        assert len(view) == 0
        assert list(view.loader(3, shuffle=True)) == []


def test_ranges_allocate_no_tables(ds: Untyped) -> None:
    assert pieces(ds.select(range(2, 50, 3)).select(range(9, -1, -2))) == [
        range(29, -1, -6)
    ]
    assert pieces(ds.select(slice(None, None, -1))) == [range(N - 1, -1, -1)]
    assert pieces(ds.select(range(-5, 0))) == [range(N - 5, N)]
    both = fr.concat([ds.select(range(10)), ds.select(range(20, 30))])
    for chosen in (range(3, 17), range(19, -1, -3), range(0, 20, 2)):
        view = both.select(chosen)
        assert numbers_of(view) == [[*range(10), *range(20, 30)][i] for i in chosen]
        found = pieces(view)
        assert all(isinstance(piece, range) for piece in found)
        assert len(found) == 2
    assert len(pieces(both.select(range(4)))) == 1


def test_a_slice_of_a_table_releases_the_table(ds: Untyped) -> None:
    table = ds.select(np.arange(N))
    for view in (table, fr.concat([table, table])):
        (small,) = pieces(view.select(range(3)))
        assert small.base is None or small.base.size <= 3


def test_ranges_of_millions_are_cheap(write: Write) -> None:
    n = 2_000_000
    ds = open_dataset(
        write(tfrecord_file([b""]) * n), features={"x": fr.VarLen("int64")}
    )
    assert len(ds) == n
    tracemalloc.start()
    view = ds.select(range(n - 1, -1, -1)).shard(num_shards=4, index=2)
    both = fr.concat([ds, view]).select(slice(1, None, 3))
    begin = view.select(range(10))
    assert (len(view), len(both), len(begin)) == (n // 4, 5 * n // 4 // 3, 10)
    assert list(begin[0]) == ["x"]
    assert len(both.records[n // 3]) == 0
    batch: Untyped = next(iter(both.loader(8, shuffle=True, num_threads=0)))
    assert batch["x"].lengths.tolist() == [0] * 8
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"num_shards": 0, "index": 0}, ValueError, "num_shards"),
        (
            {"num_shards": 3, "index": 3},
            ValueError,
            "index must be less than num_shards",
        ),
        ({"num_shards": 3, "index": -1}, ValueError, "index"),
        ({"num_shards": 2.5, "index": 0}, TypeError, "num_shards"),
        ({"num_shards": 3}, TypeError, "index"),
    ],
)
def test_impossible_shards_are_refused(
    ds: Untyped, options: Untyped, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ds.shard(**options)


# What views share.


@pytest.fixture
def n_scans(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The files whose indexes were asked for, call by call; the cache cannot be used."""
    calls: list[list[str]] = []
    make = index_module.make_indexes

    def counted(paths: Any, **options: Any) -> Any:
        calls.append(list(paths))
        return make(paths, **options)

    monkeypatch.setattr(index_module, "make_indexes", counted)
    monkeypatch.setenv("FASTREC_CACHE", "/proc/nowhere")
    return calls


def test_views_share_the_indexes_whenever_they_are_made(
    write: Write, n_scans: list[list[str]]
) -> None:
    paths = write_files(write)
    ds = open_dataset(paths, features=SPEC)
    early = [
        ds.select_columns(["n"]),
        ds.with_transform(dict),
        ds.with_features({"n": fr.FixedLen((), "int32")}),
        fr.concat([ds, ds.with_transform(dict)]),
        fr.mix({"one": (ds, 1), "two": (ds.with_transform(dict), 2)}),
    ]
    assert not n_scans, "making these views needs no index"
    train, validation = ds.split([0.8, 0.2])
    late = [
        train,
        validation.select(range(3)).select_columns(["n"]),
        ds.filter(lambda batch: batch["n"] % 2 == 0, columns=["n"]),
        fr.concat([train, validation]),
        fr.mix({"train": (train, 1), "validation": (validation, 1)}),
    ]
    for view in early + late:
        assert len(view) > 0
        assert "n" in view[0]
        assert sum(1 for _ in view.loader(30, shuffle=True, num_threads=0)) > 0
    assert n_scans == [[str(path) for path in paths]]


def test_a_schema_is_inferred_from_all_parts(paths: list[Path]) -> None:
    ds = open_dataset(paths)
    train, validation = ds.split([0.95, 0.05])
    one = train.select([3])
    assert validation.schema == train.schema == one.schema == ds.schema
    assert ds.schema["words"] == fr.VarLen("bytes")
    assert snapshot([one[:]]) == snapshot([ds[[numbers_of(one)[0]]]])
    assert pickle.loads(pickle.dumps(validation)).schema == ds.schema


# Filters.


def keep_even(batch: Batch) -> Untyped:
    return batch["n"] % 2 == 0


@given(modulus=st.integers(1, N + 5), begin=st.integers(0, N))
@settings(max_examples=25)
def test_a_filter_equals_a_comprehension(ds: Untyped, modulus: int, begin: int) -> None:
    view = ds.select(range(N - 1, begin - 1, -1)) if begin < N else ds.select([])
    found = view.filter(lambda batch: batch["n"] % modulus == 1, columns=["n"])
    assert numbers_of(found) == [n for n in numbers_of(view) if n % modulus == 1]
    assert list(found.schema) == ["n", "words"]


def test_a_filter_sees_every_record_once_in_order_and_only_its_columns(
    write: Write,
) -> None:
    n = 3000
    ds = open_dataset(write_files(write, (n,)), features=SPEC)
    seen: list[int] = []

    def keep(batch: Batch) -> Untyped:
        assert list(batch) == ["n"]
        seen.extend(batch["n"].tolist())
        return batch["n"] >= n - 10

    assert numbers_of(ds.filter(keep, columns=["n"])) == list(range(n - 10, n))
    assert seen == list(range(n))


def test_a_filter_may_use_any_column(ds: Untyped) -> None:
    found = ds.filter(lambda batch: batch["words"].lengths == 2)
    assert numbers_of(found) == [n for n in range(N) if n % 3 == 2]
    chained = found.filter(keep_even).filter(lambda batch: (batch["n"] > 9).tolist())
    assert numbers_of(chained) == [n for n in range(10, N) if n % 6 == 2]


def test_a_filter_sees_transformed_columns_unless_columns_are_named(
    ds: Untyped,
) -> None:
    def half(batch: Batch) -> Batch:
        return {"words": batch["words"], "half": batch["n"] // 2}

    view = ds.with_transform(half)
    found = view.filter(lambda batch: batch["half"] == 7)
    assert found[:]["half"].tolist() == [7, 7]
    assert found.records[:].tolist() == [record(14), record(15)]
    found = view.filter(lambda batch: batch["n"] == 14, columns=["n"])
    assert [int(row["half"]) for row in found] == [7]
    joined = fr.concat([view, ds.with_transform(half)])
    assert len(joined.filter(lambda batch: batch["n"] < 5, columns=["n"])) == 10
    assert len(joined.filter(lambda batch: batch["half"] < 5)) == 20


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (
            np.ones(N, int),
            rf"\({N},\) for {N} rows, got int64 of shape \({N},\)",
        ),
        (np.ones(N - 1, bool), rf"bool of shape \({N - 1},\)"),
        (np.ones((N, 1), bool), rf"bool of shape \({N}, 1\)"),
        (True, r"bool of shape \(\)"),
        (None, "object of shape"),
        ([0] * N, "int64 of shape"),
    ],
    ids=["int", "short", "2-D", "scalar", "None", "list of int"],
)
def test_a_filter_must_return_a_mask(
    ds: Untyped, returned: Untyped, words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        ds.filter(lambda _: returned)


def test_impossible_filters_are_refused(ds: Untyped) -> None:
    with pytest.raises(TypeError, match="a function of a batch"):
        ds.filter("n > 3")
    with pytest.raises(KeyError, match="no column 'absent'"):
        ds.filter(keep_even, columns=["absent"])
    with pytest.raises(ValueError, match="at least one"):
        ds.filter(keep_even, columns=[])
    with pytest.raises(ZeroDivisionError):
        ds.filter(lambda _: 1 // 0)
    drops = ds.with_transform(lambda batch: {"n": batch["n"][1:]})
    with pytest.raises(ValueError, match="one row per record"):
        drops.filter(keep_even)


# Transforms.


def add_twice(batch: Batch) -> Batch:
    return {**batch, "twice": 2 * batch["n"]}


def add_sum(batch: Batch) -> Batch:
    return {**batch, "sum": batch["n"] + batch["twice"]}


def test_transforms_run_in_order_wherever_rows_are_read(ds: Untyped) -> None:
    view = ds.with_transform(add_twice).with_transform(add_sum)
    assert list(ds[0]) == ["n", "words"]
    columns = ["n", "words", "twice", "sum"]
    assert list(view[3]) == columns
    assert (view[3]["sum"], view[-1]["sum"]) == (9, 3 * (N - 1))
    assert view[2:9:3]["sum"].tolist() == [6, 15, 24]
    assert view[[5, 5]]["sum"].tolist() == [15, 15]
    assert [int(row["sum"]) for row in view] == [3 * n for n in range(N)]
    assert [list(row) for row in view.head(2)] == [columns] * 2
    assert view.records[1] == record(1)
    assert view.schema == ds.schema

    loader = view.loader(
        16, transform=lambda batch: {"last": batch["sum"] + 1}, shuffle=True
    )
    batches = list(loader)
    assert sorted(n for b in batches for n in b["last"]) == [
        3 * n + 1 for n in range(N)
    ]
    assert snapshot([loader.batch(1, epoch=0)]) == snapshot(batches[1:2])
    shards = [view.shard(num_shards=2, index=i) for i in range(2)]
    assert shards[1].select([0])[0]["sum"] == 3 * (N // 2)


@pytest.mark.parametrize("transform_threads", [0, 1, 3])
def test_dataset_and_loader_transforms_receive_the_same_info(
    ds: Untyped, transform_threads: int
) -> None:
    def tell(batch: Batch, info: fr.BatchInfo) -> Batch:
        assert batch["n"].tolist() == (N - 1 - info.records).tolist()
        noise = np.array([info.rng(i).random() for i in range(len(info.positions))])
        return {**batch, "noise": noise, "step": np.full(len(noise), info.step)}

    def compare(batch: Batch, info: fr.BatchInfo) -> Batch:
        assert batch["noise"].tolist() == tell(batch, info)["noise"].tolist()
        return batch

    view = ds.select(range(N - 1, -1, -1)).with_transform(tell)
    loader = view.loader(
        7,
        seed=5,
        shuffle=True,
        transform=compare,
        transform_threads=transform_threads,
    )
    steps = [int(batch["step"][0]) for batch in loader]
    assert steps == list(range(len(loader)))
    assert view[3]["n"] == N - 4


def test_per_row_transforms_apply_to_single_rows(ds: Untyped) -> None:
    out = {"square": fr.FixedLen((2,), "int64")}
    per_row = fr.per_row(
        lambda row: np.array([row["n"] ** 2, len(row["words"])]), out=out
    )
    view = ds.with_transform(per_row)
    assert view[7]["square"].tolist() == [49, 1]
    assert view[3:5]["square"][:, 0].tolist() == [9, 16]
    loader = view.loader(10, transform=add_twice, transform_threads=3, pad_last=True)
    batches = list(loader)
    n = np.concatenate([batch["n"][batch["__valid__"]] for batch in batches])
    squares = np.concatenate([b["square"][b["__valid__"]] for b in batches])
    assert squares[:, 0].tolist() == (n**2).tolist()


def test_transforms_may_change_the_number_of_rows(ds: Untyped) -> None:
    view = ds.with_transform(lambda batch: {"n": batch["n"][batch["n"] % 2 == 1]})
    assert [int(row["n"]) for row in view] == list(range(1, N, 2))
    assert view[3]["n"] == 3
    with pytest.raises(ValueError, match="no row for record 2"):
        view[2]


def test_invalid_transforms_are_refused(ds: Untyped) -> None:
    with pytest.raises(TypeError, match="transform must be callable"):
        ds.with_transform(3)
    with pytest.raises(
        TypeError, match="transform must return a dict or another mapping, got int"
    ):
        ds.with_transform(lambda _: 3)[0]
    with pytest.raises(TypeError, match=r"got tuple; loader.tuples\(\) makes tuples"):
        ds.with_transform(lambda batch: (batch["n"],))[0]
    with pytest.raises(TypeError, match="list of names"):
        ds.select_columns("n")
    with pytest.raises(ValueError, match="at least one name"):
        ds.select_columns([])


# Other processes.


def views(ds: Untyped) -> dict[str, Untyped]:
    """A view of each kind, with functions that can be pickled."""
    train, validation = ds.split([0.8, 0.2])
    return {
        "select": ds.select([5, 1, 1]),
        "filter": ds.filter(keep_even),
        "transform": ds.with_transform(add_twice).with_transform(add_sum),
        "concat": fr.concat([train, validation.with_transform(dict)]),
        "mix": fr.mix({"a": (train, 3), "b": (validation, 1)}),
    }


def rows_of(view: Untyped) -> list[list[Any]]:
    """What a view delivers, in a form that goes through a pipe."""
    loader = view.loader(8, shuffle=True, num_threads=2, seed=3)
    batches = [*loader, view[:5], loader.batch(0)]
    return [
        [batch[name].tolist() for name in batch if name != "words"] for batch in batches
    ]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_views_work_in_other_processes(ds: Untyped, method: str) -> None:
    everything = views(ds)
    want = [rows_of(view) for view in everything.values()]
    loaders = [view.loader(8, num_threads=2) for view in everything.values()]
    running = [iter(loader) for loader in loaders]
    for iterator in running:
        next(iterator)
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        got = pool.map_async(rows_of, list(everything.values())).get(60)
    assert got == want
    assert [sum(1 for _ in iterator) for iterator in running] == [
        len(loader) - 1 for loader in loaders
    ]
