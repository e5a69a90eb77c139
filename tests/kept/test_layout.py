"""Columns as parts that can be kept.

Goal
    A column of any type is the same, bit for bit, after its rows were stored and read in
    any order, several times, in part, and with other columns.
Method
    Generated columns: arrays of every dtype, strings, nested and sparse rows, also
    slices of them, stored in a `RowStore` in random batches.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastrec as fr
from columns import Untyped
from fastrec import _core
from fastrec.arrays.batch import take_rows
from fastrec.features.base import numpy_dtype
from fastrec.kept.store import RowStore
from kept_rows import exactly

DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)


def random_array(rng: random.Random, n: int) -> Untyped:
    dtype = numpy_dtype(rng.choice(DTYPES))
    shape = (n, *rng.choice([(), (), (1,), (3,), (2, 0), (700, 4)]))
    data = rng.randbytes(int(np.prod(shape)) * dtype.itemsize)
    if dtype == bool:
        data = bytes(byte & 1 for byte in data)
    array = np.frombuffer(data, dtype).reshape(shape)
    return np.asfortranarray(array) if rng.random() < 0.3 else array


def random_strings(rng: random.Random, n: int) -> Untyped:
    shape = (n, *rng.choice([(), (), (2,), (1, 3), (0,)]))
    strings = [rng.randbytes(rng.choice((0, 1, 9))) for _ in range(int(np.prod(shape)))]
    offsets = np.cumsum([0, *map(len, strings)])
    data = np.frombuffer(b"".join(strings), np.uint8)
    return fr.BytesArray(data, offsets, shape)


def random_splits(rng: random.Random, n: int) -> Untyped:
    dtype = rng.choice(("int32", "int64"))
    return np.cumsum([0, *(rng.choice((0, 1, 2, 5)) for _ in range(n))], dtype=dtype)


def random_column(rng: random.Random, n: int) -> Untyped:
    """Return a column of `n` rows; sometimes a slice of a larger one."""
    if rng.random() < 0.3:
        first, last = rng.randrange(3), rng.randrange(3)
        return random_column(rng, n + first + last)[first : first + n]
    kind = rng.choice(["array", "strings", "ragged", "ragged", "sparse"])
    if kind == "array":
        return random_array(rng, n)
    if kind == "strings":
        return random_strings(rng, n)
    if kind == "ragged":
        splits = random_splits(rng, n)
        values = random_column(rng, int(splits[-1]))
        while isinstance(values, fr.SparseArray):
            values = random_column(rng, int(splits[-1]))
        return fr.RaggedArray(values, splits)
    sizes = rng.choice([(5,), (3, 4)])
    places = sorted(
        tuple(rng.randrange(size) for size in (n, *sizes))
        for _ in range(rng.randrange(2 * n) if n else 0)
    )
    indices = np.array(sorted(set(places)), np.int64).reshape(-1, 1 + len(sizes))
    values = rng.choice([random_array, random_strings])(rng, len(indices))
    while values.ndim > 1:
        values = rng.choice([random_array, random_strings])(rng, len(indices))
    return fr.SparseArray(indices, values, (n, *sizes))


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_columns_of_any_type_are_read_as_they_were_stored(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng = random.Random(seed)
    n = rng.randrange(1, 12)
    batch = {f"c{i}": random_column(rng, n) for i in range(rng.randrange(1, 5))}
    directory = str(tmp_path_factory.mktemp("kept"))
    pool = _core.BlockPool(1 << 20, None, recycles=True)
    store = RowStore(directory, {"n_rows": n})
    stored = np.zeros(n, bool)
    for _ in range(4):
        rows = np.array(rng.sample(range(n), rng.randrange(n + 1)), np.int64)
        store.add(rows, take_rows(batch, rows))
        stored[rows] = True
        if rng.random() < 0.5:
            store = RowStore(directory, {"n_rows": n})
        wanted = np.array([rng.randrange(-1, n) for _ in range(2 * n)], np.int64)
        names = rng.choice(
            [None, rng.sample([*batch], rng.randrange(1, len(batch) + 1))]
        )
        found, is_kept = store.gather(wanted, names, pool)
        assert is_kept.tolist() == [i >= 0 and bool(stored[i]) for i in wanted.tolist()]
        if is_kept.any():
            some = {
                name: batch[name] for name in batch if names is None or name in names
            }
            assert exactly([found]) == exactly([take_rows(some, wanted[is_kept])])


def test_columns_of_any_name_are_told_apart(tmp_path: Path) -> None:
    names = [
        "",
        "a/b",
        "a_b",
        "a_b_",
        "rows",
        "checksum",
        "\u00e9",
        ".",
        "t.1",
        "x" * 200,
    ]
    strings = fr.BytesArray.from_list([[b"a", b"b"], [b"", b"c"]])
    batch: dict[str, Any] = {name: np.arange(2) + i for i, name in enumerate(names)}
    batch |= {"t": strings, "t:run": strings, "large": np.ones((2, 9999))}
    store, pool = RowStore(str(tmp_path), {"n_rows": 2}), _core.BlockPool(0)
    store.add(np.arange(2), batch)
    for some in (None, ["t"], ["t.1", "a_b"], names[::2]):
        found, _ = store.gather(np.arange(2), some, pool)
        assert exactly([found]) == exactly(
            [{name: batch[name] for name in some or batch}]
        )


def test_a_part_of_the_files_is_read_by_numpy(tmp_path: Path) -> None:
    store = RowStore(str(tmp_path), {"n_rows": 3})
    words = fr.RaggedArray(fr.BytesArray.from_list([b"ab", b"", b"c"]), [0, 2, 2, 3])
    images = np.arange(3 * 5000, dtype="uint16").reshape(3, 5000)
    batch: dict[str, Any] = {"image": images, "n/n": np.arange(3), "words": words}
    store.add(np.arange(3), batch)
    loaded = np.load(tmp_path / "image.npy", mmap_mode="r")
    assert np.array_equal(loaded[:3], images)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")[:3]
    assert rows["n_n"].tolist() == [0, 1, 2]
    text = np.load(tmp_path / "words.1.npy", mmap_mode="r")
    found = [text[begin:end].tobytes() for begin, end in rows["words.1"]["run"]]
    assert found == [b"ab", b"", b"c"]
