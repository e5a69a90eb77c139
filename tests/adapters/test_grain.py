"""Grain: a dataset as the source of its pipelines.

Goal
    Grain gets the rows of the dataset, one by one or many at once, in its own threads and
    processes, and resumes where it stopped, also when the files have moved; a checkpoint
    of other data is refused.
Method
    Records that say their number, through Grain's two ways of making pipelines.
"""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

grain = pytest.importorskip("grain")
flags = pytest.importorskip("absl.flags")

import fastrec as fr
import fastrec.grain
from columns import Untyped, Write, open_dataset
from numbered import NUMBERS, SPEC, Batch, N
from oracle import example, tfrecord_file

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def ds(paths: list[Path]) -> Untyped:
    return open_dataset(paths, features=NUMBERS)


def loader_of(source: Untyped, **options: Untyped) -> Untyped:
    """A `grain.DataLoader` of one shuffled epoch in batches of 5."""
    sampler = grain.samplers.IndexSampler(
        num_records=len(source), num_epochs=1, shuffle=True, seed=3
    )
    return grain.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[grain.transforms.Batch(5)],
        **options,
    )


def numbers(batches: Any) -> list[int]:
    return [int(n) for batch in batches for n in batch["n"]]


# --- Rows -----------------------------------------------------------------------------


def test_rows_are_those_of_the_dataset(paths: list[Path]) -> None:
    ds = open_dataset(paths, features=SPEC)
    source = fr.grain.DataSource(ds)
    assert len(source) == N
    for i in (0, np.int64(7), N - 1, -1):
        assert repr(source[i]) == repr(dict(ds[i]))
        assert type(source[i]) is dict, "Grain looks into plain dicts only"
    indices = [3, 1, 1, N - 1, -2]
    rows = source.__getitems__(indices)
    assert list(map(repr, rows)) == [repr(dict(ds[i])) for i in indices]
    assert source.__getitems__([]) == []
    with pytest.raises(IndexError):
        source[N]
    with pytest.raises(IndexError):
        source.__getitems__([0, N])


def test_what_is_no_dataset_or_no_number_is_refused(ds: Untyped) -> None:
    wrongs: Untyped = ["a.tfrecord", ds.loader(3)]
    for wrong in wrongs:
        with pytest.raises(
            TypeError, match=r"requires a fastrec\.Dataset, such as fr\.open"
        ):
            fr.grain.DataSource(wrong)
    indices: Untyped = [slice(0, 3), [1, 2]]
    for index in indices:
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            fr.grain.DataSource(ds)[index]


def test_many_rows_are_one_read(ds: Untyped) -> None:
    sizes = []

    def counting(batch: Batch) -> Batch:
        sizes.append(len(batch["n"]))
        return batch

    source = fr.grain.DataSource(ds.with_transform(counting))
    wanted = [5, 40, 2]
    rows = grain.MapDataset.source(source)._getitems(wanted)
    assert [row["n"] for row in rows] == wanted
    assert sizes == [3]


def test_rows_do_not_keep_their_batch(ds: Untyped) -> None:
    rows = fr.grain.DataSource(ds).__getitems__([1, 2])
    assert all(row["pixels"].base is None for row in rows)


def test_transforms_that_change_the_number_of_rows_are_refused(ds: Untyped) -> None:
    halved = ds.with_transform(lambda batch: fr.take_rows(batch, slice(0, None, 2)))
    with pytest.raises(ValueError, match="each of the 4 records for Grain, got 2 rows"):
        fr.grain.DataSource(halved).__getitems__([0, 1, 2, 3])


# --- Pipelines ------------------------------------------------------------------------


def test_a_map_dataset_delivers_every_record_once(ds: Untyped) -> None:
    source = fr.grain.DataSource(ds)
    batches = list(grain.MapDataset.source(source).shuffle(seed=1).batch(5))
    assert numbers(batches) != list(range(N))
    assert sorted(numbers(batches)) == list(range(N))
    want = ds[numbers(batches)]
    np.testing.assert_array_equal(
        np.concatenate([batch["pixels"] for batch in batches]), want["pixels"]
    )


@pytest.mark.parametrize("worker_count", [0, 1])
def test_a_data_loader_delivers_every_record_once(
    ds: Untyped, worker_count: int
) -> None:
    flags.FLAGS.mark_as_parsed()  # which Grain asks for before it starts a process
    source = fr.grain.DataSource(ds)
    batches = list(loader_of(source, worker_count=worker_count))
    assert sorted(numbers(batches)) == list(range(N))
    assert numbers(batches) == numbers(loader_of(source))


def test_a_data_loader_resumes_where_the_same_data_lie(
    paths: list[Path], ds: Untyped, tmp_path: Path
) -> None:
    source = fr.grain.DataSource(ds)
    iterator = iter(loader_of(source))
    seen = [next(iterator), next(iterator)]
    state = iterator.get_state()

    for path in paths:
        shutil.copy(path, tmp_path)
    moved = fr.grain.DataSource(fr.open(tmp_path, features=NUMBERS))
    resumed = iter(loader_of(moved))
    resumed.set_state(state)
    assert numbers(seen) + numbers(resumed) == numbers(loader_of(source))

    other = fr.grain.DataSource(ds.select(np.roll(np.arange(N), 1)))
    with pytest.raises(ValueError, match="source"):
        iter(loader_of(other)).set_state(state)


def test_a_pickled_source_is_the_same_source(ds: Untyped) -> None:
    source = fr.grain.DataSource(ds)
    copied = pickle.loads(pickle.dumps(source))
    assert repr(copied) == repr(source)
    assert repr(copied[3]) == repr(source[3])


def test_packed_rows_are_those_of_grain(write: Write) -> None:
    import grain.experimental

    rng = np.random.default_rng(0)
    texts = [rng.integers(1, 99, n) for n in rng.integers(1, 40, 200)]
    records = [example({b"tokens": ("int64", text.tolist())}) for text in texts]
    spec = {"tokens": fr.VarLen("int64")}
    ds = open_dataset(write(tfrecord_file(records)), features=spec)
    packing = fr.samplers.pack(
        [*map(len, texts)], length=64, rows=1000, window=1000, shuffle=False
    )
    packed = fr.pack_columns(["tokens"], length=64)
    (batch,) = ds.loader(batches=packing, transform=packed)
    source = grain.python.MapDataset.source([{"tokens": text} for text in texts])
    rows = grain.experimental.FirstFitPackIterDataset(
        source.to_iter_dataset(),
        length_struct={"tokens": 64},
        num_packing_bins=1000,
        shuffle_bins=False,
    )
    want = [*rows]
    assert {*batch} == {*want[0]}
    for name, column in batch.items():
        stacked = np.stack([row[name] for row in want])
        assert column.dtype == stacked.dtype
        assert np.array_equal(column, stacked)
