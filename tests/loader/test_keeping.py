"""Keeping one column of a batch does not keep the others.

Goal
    A column keeps blocks of at most twice its size and a page alive, for every schema and
    batch size, also if rows were skipped. Memory of dropped batches is reused, and
    columns of similar sizes share blocks.
Method
    The arrays of a column refer to their blocks as `base`. Hypothesis generates schemas,
    and the sizes of blocks are compared with those of arrays.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped

PAGE = 4096


def arrays_of(column: Untyped) -> list[Untyped]:
    if isinstance(column, fr.RaggedArray):
        return [*arrays_of(column.values), column.row_splits]
    if isinstance(column, fr.BytesArray):
        return [column.data, column.offsets]
    return [column]


def blocks_of(column: Untyped) -> dict[int, int]:
    """Return the sizes of the blocks of a column, by address."""
    blocks = {}
    for array in arrays_of(column):
        while isinstance(array, np.ndarray):
            array = array.base
        blocks[array.address] = array.size
    return blocks


def assert_cheap_to_keep(batch: Untyped) -> None:
    for name, column in batch.items():
        n_bytes = sum(array.nbytes for array in arrays_of(column))
        kept = sum(blocks_of(column).values())
        assert kept <= 2 * n_bytes + PAGE, f"{name}: {kept} for {n_bytes} bytes"


def values(spec: Untyped, n: int, length: int) -> Untyped:
    """`n` rows that fit a spec; rows of any length have up to `length` items."""
    if isinstance(spec, fr.Raw):
        return np.zeros((n, *spec.shape), spec.dtype)
    is_bytes = spec.dtype == "bytes"
    if isinstance(spec, fr.FixedLen):
        if is_bytes:
            return [b"x" * (i * 7 % (length + 1)) for i in range(n)]
        return np.zeros((n, *spec.shape), spec.dtype)
    item = b"word" if is_bytes else 1
    return [[item] * (i * 7 % (length + 1)) for i in range(n)]


numbers = st.sampled_from(["int64", "float32", "int32", "uint8", "bool"])
sizes = st.one_of(st.just(()), st.tuples(st.integers(1, 2000)))
specs = st.one_of(
    st.builds(fr.FixedLen, sizes, numbers),
    st.builds(fr.FixedLen, st.just(()), st.just("bytes")),
    st.builds(fr.Raw, sizes, st.sampled_from(["uint8", "float64"])),
    st.builds(fr.VarLen, st.sampled_from(["int64", "float32", "bytes"])),
    st.builds(
        fr.FixedLenSequence, st.just(()), st.sampled_from(["int64", "float32", "bytes"])
    ),
)


@settings(max_examples=60, deadline=None)
@given(
    features=st.lists(st.tuples(specs, st.integers(0, 200)), min_size=1, max_size=12),
    n=st.integers(1, 150),
)
def test_a_column_keeps_at_most_twice_its_bytes_and_a_page(
    tmp_path_factory: pytest.TempPathFactory,
    features: list[tuple[Untyped, int]],
    n: int,
) -> None:
    path = tmp_path_factory.mktemp("keeping") / "a.tfrecord"
    spec = {f"f{i}": feature for i, (feature, _) in enumerate(features)}
    columns = {f"f{i}": values(*(f, n, k)) for i, (f, k) in enumerate(features)}
    fr.write(path, columns, features=spec)
    ds = fr.open(path, features=spec)
    for batch_size in (1, 20, 256):
        for batch in ds.loader(batch_size, num_threads=0):
            assert_cheap_to_keep(batch)


def dataset(path: Path, columns: dict[str, Untyped], spec: Untyped) -> fr.Dataset:
    fr.write(path, columns, features=spec)
    return fr.open(path, features=spec)


@pytest.mark.parametrize("batch_size", [1, 20, 256])
def test_one_of_40_scalars_does_not_keep_the_others(
    tmp_path: Path, batch_size: int
) -> None:
    n = 512
    spec = {f"f{i}": fr.FixedLen((), "int64") for i in range(40)}
    ds = dataset(tmp_path / "a.tfrecord", dict.fromkeys(spec, np.arange(n)), spec)
    for batch in ds.loader(batch_size, num_threads=0):
        assert_cheap_to_keep(batch)
        blocks = {k: v for c in batch.values() for k, v in blocks_of(c).items()}
        assert len(blocks) <= 10, "columns of one size share blocks"
        assert sum(blocks.values()) <= 2 * 40 * 8 * batch_size + PAGE


@pytest.mark.parametrize("num_threads", [0, 2])
def test_kept_labels_release_images(tmp_path: Path, num_threads: int) -> None:
    n = 2000
    spec = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}
    columns = {"image": np.zeros((n, 28, 28), np.uint8), "label": np.arange(n)}
    ds = dataset(tmp_path / "a.tfrecord", columns, spec)
    kept: list[Untyped] = []
    images: set[int] = set()
    for batch in ds.loader(20, num_threads=num_threads):
        images |= blocks_of(batch["image"]).keys()
        kept.append(batch["label"])
    assert np.concatenate(kept).tolist() == list(range(n))
    assert sum(sum(blocks_of(label).values()) for label in kept) <= len(kept) * PAGE
    assert len(images) < len(kept) / 2, "memory of images is used again"


def test_skipped_rows_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with fr.Writer(path) as writer:
        for i in range(256):
            writer.write({"n": [i] * (1000 if i % 100 == 0 else 3)})
    ds = fr.open(path, features={"n": fr.FixedLen((1000,), "int64")}, on_error="skip")
    batches = list(ds.loader(256, num_threads=0))
    assert [batch["n"][:, 0].tolist() for batch in batches] == [[0, 100, 200]]
    assert_cheap_to_keep(batches[0])
