"""Dataset.column, and what takes a column: select, split and samplers.

Goal
    A column has the values of all rows, in the type that batches have. It chooses
    records: as a mask, as strata of a split, and as labels or weights of a sampler.
Method
    A small file with a column of each type. Strings that end with zero bytes, which
    NumPy's own strings would lose, are different labels.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr

N = 120
NAMES = [b"cat", b"cat\0", b"dog\0\0", b""]
COLUMNS: dict[str, Any] = {
    "label": np.arange(N) * 7 % 5,
    "name": [NAMES[i * 5 % 3] if i % 10 else NAMES[3] for i in range(N)],
    "weight": np.linspace(0, 1, N, dtype=np.float32),
    "tokens": [np.arange(i % 4) for i in range(N)],
    "pixels": np.arange(N * 6, dtype=np.uint8).reshape(N, 2, 3),
}
FEATURES: dict[str, Any] = {
    "label": fr.FixedLen((), "int64"),
    "name": fr.FixedLen((), "bytes"),
    "weight": fr.FixedLen((), "float32"),
    "tokens": fr.VarLen("int64"),
    "pixels": fr.Raw((2, 3), "uint8"),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a column of each type."""
    path = tmp_path_factory.mktemp("columns") / "rows.tfrecord"
    fr.write(path, COLUMNS, features=FEATURES)
    return path


@pytest.fixture(params=["decoded", "kept"])
def ds(request: pytest.FixtureRequest, path: Path, tmp_path: Path) -> fr.Dataset:
    """Return the dataset, decoded or with kept rows."""
    ds = fr.open(path, features=FEATURES)
    if request.param == "decoded":
        return ds
    ds = ds.cache(tmp_path / "kept")
    for _ in ds.loader(32):
        pass
    return ds


def listed(column: Any) -> Any:
    return column.tolist()


@pytest.mark.parametrize("name", FEATURES)
def test_a_column_has_the_values_of_all_rows(ds: fr.Dataset, name: str) -> None:
    column, batch = ds.column(name), next(iter(ds.loader(N)))
    assert type(column) is type(batch[name])
    assert column.dtype == batch[name].dtype
    assert listed(column) == listed(batch[name])
    assert len(column) == N


def test_a_column_of_a_view_has_its_rows_in_order(ds: fr.Dataset) -> None:
    view = ds.select([7, 3, 3, 100])
    assert listed(view.column("name")) == [COLUMNS["name"][i] for i in (7, 3, 3, 100)]
    assert len(ds.select([]).column("name")) == 0


def test_a_column_is_that_after_the_transforms(path: Path) -> None:
    ds = fr.open(path, features=FEATURES).with_transform(
        lambda batch: {"sum": batch["label"] + batch["weight"]}
    )
    expected = COLUMNS["label"] + COLUMNS["weight"]
    assert ds.column("sum").tolist() == expected.tolist()


def test_an_unknown_column_is_an_error(ds: fr.Dataset) -> None:
    with pytest.raises(KeyError, match="no column 'lable'"):
        ds.column("lable")


def test_a_comparison_of_a_column_selects_records(ds: fr.Dataset) -> None:
    threes = ds.select(ds.column("label") == 3)
    assert len(threes) == N // 5
    assert set(threes.column("label").tolist()) == {3}
    for name in NAMES:
        chosen = ds.select(ds.column("name") == name)
        assert listed(chosen.column("name")) == [name] * COLUMNS["name"].count(name)
        others = ds.select(ds.column("name") != name)
        assert len(others) + len(chosen) == N


@pytest.mark.parametrize("is_column", [False, True])
@pytest.mark.parametrize("name", ["label", "name"])
def test_strata_are_divided_alike(
    ds: fr.Dataset, name: str, *, is_column: bool
) -> None:
    values = ds.column(name) if is_column else name
    parts = ds.split([0.75, 0.25], seed=3, stratify=values)
    whole = Counter(listed(ds.column(name)))
    for part, fraction in zip(parts, (0.75, 0.25), strict=True):
        found = Counter(listed(part.column(name)))
        assert found == {value: n * fraction for value, n in whole.items()}
    pixels = [tuple(p.ravel()) for part in parts for p in part.column("pixels")]
    assert len(set(pixels)) == N


def test_strata_of_another_length_are_an_error(ds: fr.Dataset) -> None:
    with pytest.raises(ValueError, match=r"each of 120 records, got shape \(119,\)"):
        ds.split([0.5, 0.5], stratify=ds.column("name")[1:])
    with pytest.raises(ValueError, match=r"got shape \(120, 2, 3\)"):
        ds.split([0.5, 0.5], stratify="pixels")
    with pytest.raises(TypeError, match="cannot convert a RaggedArray"):
        ds.split([0.5, 0.5], stratify="tokens")


@pytest.mark.parametrize("name", ["label", "name"])
def test_a_column_balances_classes(ds: fr.Dataset, name: str) -> None:
    labels = ds.column(name)
    n_classes = len(set(listed(labels)))
    batches = fr.samplers.balanced(labels, 10, length=30 * n_classes)
    drawn = Counter[Any]()
    for batch in ds.loader(batches=batches):
        drawn.update(listed(batch[name]))
    assert drawn == dict.fromkeys(listed(labels), 30)


def test_columns_are_weights_and_lengths(ds: fr.Dataset) -> None:
    weighted = fr.samplers.weighted(ds.column("weight"), 16, length=10 * N)
    drawn = [batch["weight"] for batch in ds.loader(batches=weighted)]
    assert np.concatenate(drawn).min() > 0
    tokens: Any = ds.column("tokens")
    lengths = tokens.lengths
    buckets = fr.samplers.bucket_by_length(lengths, [2], [8, 4])
    for batch in ds.loader(batches=buckets):
        tokens = batch["tokens"]
        assert len({n >= 2 for n in tokens.lengths.tolist()}) == 1
    with pytest.raises(TypeError, match="weights must be a 1-D array of numbers"):
        fr.samplers.weighted(ds.column("name"), 16)
