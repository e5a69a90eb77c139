"""Rows of datasets by number, and rows before damage.

Goal
    Indexing follows NumPy; intact rows before damage are delivered; invalid indexes raise
    a clear error.
Method
    Records that hold their own number; files truncated and flipped at a known record.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from oracle import example, tfrecord_file

N = 200
SPEC = {"n": fr.FixedLen((), "int64"), "tags": fr.VarLen("bytes")}


def file_of(n_records: int) -> bytes:
    return tfrecord_file(
        example({b"n": ("int64", [n]), b"tags": ("bytes", [b"tag"] * (n % 3))})
        for n in range(n_records)
    )


@pytest.fixture(scope="module")
def ds(write: Write) -> Untyped:
    return open_dataset(write(file_of(N)), features=SPEC)


@pytest.mark.parametrize(
    "index",
    [
        slice(3, 50, 7),
        slice(None, None, -1),
        [5, -1, 5],
        np.array([0, 199], np.uint64),
        np.arange(N) % 5 == 0,
        [],
    ],
    ids=["slice", "backwards", "list", "unsigned", "mask", "empty"],
)
def test_selecting_many_records_follows_numpy(ds: Untyped, index: Untyped) -> None:
    empty = isinstance(index, list) and not index  # an array of floats in NumPy
    expected = np.arange(N)[slice(0) if empty else index]
    assert ds[index]["n"].tolist() == expected.tolist()
    records = ds.records[index]
    assert [len(r) > 0 for r in records.tolist()] == [True] * len(expected)


@pytest.mark.parametrize("index", [0, -1, np.int32(7), np.array(7)], ids=str)
def test_one_record_is_a_row(ds: Untyped, index: Untyped) -> None:
    row = ds[index]
    assert row["n"] == np.arange(N)[index]
    assert row["tags"].tolist() == [b"tag"] * (int(row["n"]) % 3)
    assert row["tags"].data.size < 20, "a row keeps the batch alive that it came from"


@pytest.mark.parametrize(
    ("index", "error", "words"),
    [
        (N, IndexError, "out of range"),
        (np.array([2**64 - 1], np.uint64), IndexError, "out of range"),
        ([0, -N - 1], IndexError, "out of range"),
        (np.ones(3, bool), IndexError, "mask"),
        ("n", TypeError, r"columns\(\['n'\]\)"),
        ((1, 2), TypeError, "index must be"),
        (1.5, TypeError, "index must be"),
        (True, TypeError, "index must be"),
    ],
    ids=str,
)
def test_invalid_indexes_are_refused(
    ds: Untyped, index: Untyped, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ds[index]


def test_views_read_other_columns_of_the_same_records(ds: Untyped) -> None:
    assert list(ds.select_columns(["tags"])[0]) == ["tags"]
    assert ds.with_features({"m": fr.FixedLen((), "int16", key="n")})[9]["m"] == 9
    with pytest.raises(KeyError, match="'absent'"):
        ds.select_columns(["absent"])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["steps"], ["steps/a", "steps/b/c", "steps/b/d"]),
        (["steps/b", "n"], ["steps/b/c", "steps/b/d", "n"]),
        (["steps/b/d", "steps"], ["steps/b/d", "steps/a", "steps/b/c"]),
        (["n", "n/x"], ["n", "n/x"]),
        ([b"steps"], [b"steps"]),
    ],
    ids=str,
)
def test_a_prefix_selects_the_columns_below_it(
    ds: Untyped, names: list[Untyped], expected: list[Untyped]
) -> None:
    features = ["steps/a", "n", "steps/b/c", "n/x", "steps/b/d", b"steps", b"steps/e"]
    nested = ds.with_features({name: fr.VarLen("int64") for name in features})
    assert nested.select_columns(names).column_names == expected


def test_only_whole_names_are_prefixes(ds: Untyped) -> None:
    nested = ds.with_features({"steps/a": fr.VarLen("int64")})
    for name in ("step", "steps/", "", b"steps"):
        with pytest.raises(KeyError, match="no column"):
            nested.select_columns([name])


@pytest.mark.parametrize("n_good", [0, 1, 63, 64, 130])
def test_intact_rows_before_a_damaged_payload_are_delivered(
    write: Write, n_good: int
) -> None:
    data = bytearray(file_of(N))
    data[len(file_of(n_good)) + 20] ^= 1
    ds = open_dataset(write(bytes(data)), features=SPEC)
    for sequence in (ds, ds.records):
        iterator = iter(sequence)
        good = [next(iterator) for _ in range(n_good)]
        with pytest.raises(fr.CorruptionError) as caught:
            next(iterator)
        assert caught.value.record == n_good
        if sequence is ds:
            assert [row["n"] for row in good] == list(range(n_good))
    assert len(ds.head(n_good)) == n_good


@pytest.mark.parametrize("damage", ["header", "payload", "cut", "value"])
@pytest.mark.parametrize("where", [0, 1])
def test_rows_before_damage_are_not_read_one_by_one(
    write: Write, damage: str, where: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, n_good = file_of(N), 137
    begin = len(file_of(n_good))
    data = bytearray(whole)
    if damage == "cut":
        del data[begin + 20 :]
    elif damage == "value":
        data[begin:] = (
            tfrecord_file([example({b"n": ("bytes", [b"text"])})]) + data[begin:]
        )
    else:
        data[begin + (2 if damage == "header" else 20)] ^= 1
    paths = [write(whole)] * where + [write(bytes(data)), write(whole)]
    sizes = []
    loader = fr.Dataset.loader

    def counted(ds: Untyped, batch_size: int, **options: Untyped) -> Untyped:
        sizes.append(batch_size)
        return loader(ds, batch_size, **options)

    monkeypatch.setattr(fr.Dataset, "loader", counted)
    iterator = iter(open_dataset(paths, features=SPEC))
    good = [next(iterator)["n"] for _ in range(where * N + n_good)]
    assert good == [*range(N)] * where + [*range(n_good)]
    with pytest.raises(fr.Error) as caught:
        next(iterator)
    assert (caught.value.record, caught.value.path) == (n_good, str(paths[where]))
    assert min(sizes) > 1


def test_head_reads_a_truncated_file(write: Write) -> None:
    ds = open_dataset(write(file_of(N)[:-3]), features=SPEC)
    assert [row["n"] for row in ds.head(N - 1)] == list(range(N - 1))
    with pytest.raises(fr.CorruptionError, match=f"record {N - 1}"):
        ds.head(N)
    with pytest.raises(fr.CorruptionError):
        len(ds)


def test_a_dataset_can_be_pickled(ds: Untyped) -> None:
    again = pickle.loads(pickle.dumps(ds))
    assert again[3]["n"] == 3
    assert again.schema == ds.schema


def test_no_columns_at_all_are_refused(write: Write) -> None:
    with pytest.raises(
        fr.SchemaError, match="features must not be empty; omit it to read all features"
    ):
        open_dataset(write(file_of(1)), features={})


def test_endless_repetition_of_an_empty_epoch_is_refused(
    ds: Untyped, write: Write
) -> None:
    empty = open_dataset(write(b""), features=SPEC)
    dropping = ds.loader(N + 1, drop_last=True)
    with pytest.warns(UserWarning, match="drop_last=True drops all records"):
        assert list(dropping) == []
    for loader in (empty.loader(4), dropping):
        assert list(loader.repeat(3)) == []
        with pytest.raises(ValueError, match="no batches"):
            next(loader.repeat())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("batch_size", 2**64),
        ("prefetch", 2**20),
        ("num_threads", 2**40),
        ("memory_limit", 2**70),
        ("seed", 2**64),
    ],
)
def test_excessive_numbers_name_their_option(
    ds: Untyped, option: str, value: int
) -> None:
    with pytest.raises(ValueError, match=f"{option} must be at most"):
        ds.loader(**{"batch_size": 4, option: value})
