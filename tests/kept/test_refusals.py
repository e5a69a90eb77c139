"""What cannot be kept, and rows of another dataset.

Goal
    `cache` refuses what it cannot keep, at the call if it can, and says what to write
    instead. Kept rows of other files, features or transforms are an error that says what
    differs; they are never delivered and never deleted.
Method
    A table of each refusal. For kept rows: two datasets that differ in one thing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write
from fastrec.kept import store
from kept_rows import exactly
from numbered import SPEC, record
from oracle import example, tfrecord_file
from oracle_example import sequence

ALONE: dict[str, Any] = {"num_threads": 0, "transform_threads": 0}


def doubled(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "n": batch["n"] * 2}


def with_info(batch: dict[str, Any], info: fr.BatchInfo) -> dict[str, Any]:
    return {**batch, "position": info.positions}


def jitter(row: dict[str, Any], rng: np.random.Generator) -> float:
    return float(row["n"] + rng.random())


RANDOM = fr.Image((8, 8), fit="random_resized_crop")
PADDED = {"n": fr.FixedLenSequence((), "int64")}

AT_THE_CALL: dict[str, tuple[Callable[[Untyped], Untyped], type[Exception], str]] = {
    "mix": (
        lambda ds: fr.mix({"a": (ds, 1)}),
        TypeError,
        r"cannot keep rows of a mix; call cache\(\) on its components",
    ),
    "cached": (
        lambda ds: ds.cache("never-created"),
        TypeError,
        r"already kept; call cache\(\) once",
    ),
    "no key": (
        lambda ds: ds.with_transform(doubled),
        TypeError,
        r'doubled has no cache_key; write with_transform\(\.\.\., cache_key="doubled-1"\)',
    ),
    "no key of a part": (
        lambda ds: fr.concat([ds.with_transform(doubled), ds.with_transform(doubled)]),
        TypeError,
        "doubled has no cache_key",
    ),
    "rng": (
        lambda ds: ds.with_transform(
            fr.per_row(jitter, out={"x": "float64"}), cache_key="1"
        ),
        ValueError,
        r"takes rng, so its results may differ .*call with_transform\(\) after cache\(\)",
    ),
    "info": (
        lambda ds: ds.with_transform(with_info, cache_key="1"),
        ValueError,
        "with_info takes info, so its results may differ",
    ),
    "random image": (
        lambda ds: ds.with_features({"image": RANDOM}),
        ValueError,
        r"random crops cannot be kept; .* crop them in a transform after cache\(\)",
    ),
    "random images": (
        lambda ds: ds.with_features({"images": fr.List(RANDOM)}),
        ValueError,
        "random crops cannot be kept",
    ),
    "padded": (
        lambda ds: ds.with_features(PADDED).with_transform(doubled, cache_key="1"),
        ValueError,
        r"column 'n' cannot be kept after transforms, .* set length=",
    ),
}


@pytest.mark.parametrize("name", AT_THE_CALL)
def test_cache_refuses(ds: Untyped, tmp_path: Path, name: str) -> None:
    change, kind, message = AT_THE_CALL[name]
    changed = change(ds)
    with pytest.raises(kind, match=message):
        changed.cache(tmp_path / "kept")
    assert not [*tmp_path.iterdir()]


def test_columns_must_exist(ds: Untyped, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match=r"no column 'word'; .* did you mean 'words'"):
        ds.cache(tmp_path, ["word"])
    kept = ds.cache(tmp_path, ["n", "words"])
    for columns in (["word"], ["pixels"]):
        with pytest.raises(KeyError, match=f"no column '{columns[0]}'"):
            kept.select_columns(columns)[:]
    kept = ds.with_transform(doubled, cache_key="1").cache(tmp_path, ["word"])
    with pytest.raises(KeyError, match=r"no column 'word'; .* did you mean 'words'"):
        next(iter(kept.loader(5, **ALONE)))


def nested(batch: dict[str, Any]) -> dict[str, Any]:
    return {"n": batch["n"], "a/n": batch["n"], "a/m": batch["n"] * 2}


def test_prefixes_select_kept_columns(ds: Untyped, tmp_path: Path) -> None:
    spec = fr.FixedLenSequence((), "int64", key="n", lengths="a/lengths")
    kept = ds.with_features({"a/n": spec, "n": "int64"}).cache(tmp_path / "1", ["a"])
    assert list(kept[:2]) == ["a/n", "a/lengths"]
    assert list(kept.select_columns(["a"])[:2]) == ["a/n", "a/lengths"]
    with pytest.raises(KeyError, match=r"no column 'a/lengths'; the dataset has 'a/n'"):
        kept.select_columns(["a/lengths"])
    ds = ds.with_transform(nested, cache_key="1")
    kept = ds.cache(tmp_path / "2", ["a/m", "n", "a/n"])
    assert list(kept.select_columns(["a"])[:2]) == ["a/m", "a/n"]
    kept = ds.cache(tmp_path / "3")  # whose columns are known when rows are read
    with pytest.raises(
        KeyError, match=r"no column 'a'; the batch has 'n', 'a/n', 'a/m'"
    ):
        kept.select_columns(["a"])[:2]


def test_features_are_chosen_before_rows_are_kept(ds: Untyped, tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=r"call with_features\(\) before steps\(\) and cache\(\)"
    ):
        ds.cache(tmp_path).with_features({"n": "int64"})


# In a loader.


def objects(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "x": np.array([{}] * len(batch["n"]))}


def lists(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "x": batch["n"].tolist()}


def numbered_names(batch: dict[str, Any]) -> dict[Any, Any]:
    return {**batch, 7: batch["n"]}


def widening(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "x": np.zeros((len(batch["n"]), int(batch["n"].max())))}


def dropping(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: column[1:] for name, column in batch.items()}


def tensors(batch: dict[str, Any]) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    return {**batch, "x": torch.from_numpy(batch["n"])}


UNSUPPORTED: dict[str, tuple[Untyped, type[Exception], str]] = {
    "objects": (objects, TypeError, "column 'x' must be an array .* got object array"),
    "tensors": (tensors, TypeError, "column 'x' must be an array .* got Tensor"),
    "lists": (lists, TypeError, "column 'x' must be an array .* got list"),
    "names": (numbered_names, TypeError, "column names must be str to be kept, got 7"),
    "shapes": (widening, ValueError, "column 'x' cannot be kept: its rows are"),
    "rows": (dropping, ValueError, "must return one row per record, got 4 rows for 5"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_loader_refuses_columns(ds: Untyped, tmp_path: Path, name: str) -> None:
    transform, kind, message = UNSUPPORTED[name]
    kept = ds.with_transform(transform, cache_key="1").cache(tmp_path)
    with pytest.raises(kind, match=message):
        for _ in kept.loader(5, **ALONE):
            pass


# Rows of another dataset.

ULP = float(np.nextafter(0.1, 1))


def spec(**options: Untyped) -> Callable[[Untyped], Untyped]:
    """Return a dataset with one feature of these options."""
    feature = fr.FixedLen(**{"shape": (), "dtype": "float64", **options})
    return lambda ds: ds.with_features({"x": feature})


def transformed(*keys: str) -> Callable[[Untyped], Untyped]:
    def change(ds: Untyped) -> Untyped:
        for key in keys:
            ds = ds.with_transform(doubled, cache_key=key)
        return ds

    return change


# What differs in the message, and datasets of which each differs from the others.
DIFFERENT: dict[str, tuple[str, list[Callable[[Untyped], Untyped]]]] = {
    "default": (
        "its features differ: x",
        [spec(default=0.1), spec(default=ULP), spec(default=-0.0), spec(default=0.0)],
    ),
    "dtype": (
        "its features differ: x",
        [
            spec(default=1, dtype="float32"),
            spec(default=1),
            spec(default=[1], shape=(1,)),
            spec(default=1, key="y"),
        ],
    ),
    "names": (
        "its features differ",
        [
            lambda ds: ds.with_features({"n": "int64"}),
            lambda ds: ds.with_features({"m": fr.FixedLen((), "int64", key="n")}),
            lambda ds: ds,
        ],
    ),
    "transforms": (
        "its transforms differ",
        [transformed(), transformed("1"), transformed("2"), transformed("1", "2")],
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_rows_of_other_features_and_transforms(
    write: Write, tmp_path: Path, name: str
) -> None:
    what, changes = DIFFERENT[name]
    records = [
        example({b"n": ("int64", [n]), b"pixels": ("bytes", [b"abc"])})
        for n in range(9)
    ]
    path = write(tfrecord_file(records))
    datasets = [
        change(fr.open(path, features={"n": "int64", "pixels": "bytes"}))
        for change in changes
    ]
    for i, first in enumerate(datasets):
        directory = tmp_path / str(i)
        wanted = exactly(first.cache(directory).loader(4, **ALONE))
        for other in datasets[:i] + datasets[i + 1 :]:
            with pytest.raises(ValueError, match=what) as caught:
                next(iter(other.cache(directory).loader(4, **ALONE)))
            assert "pass another directory, or delete this one" in str(caught.value)
        loader = first.cache(directory).loader(4, **ALONE)
        assert exactly(loader) == wanted
        assert loader.stats.n_kept == 9


def test_the_order_of_features_does_not_matter(ds: Untyped, tmp_path: Path) -> None:
    exactly(ds.cache(tmp_path).loader(5, **ALONE))
    other = ds.with_features(dict(reversed(SPEC.items())))
    loader = other.cache(tmp_path).loader(5, **ALONE)
    n = len([*loader])
    assert n == 9
    assert loader.stats.n_kept == loader.stats.n_records


def test_rows_of_other_columns(ds: Untyped, tmp_path: Path) -> None:
    exactly(ds.cache(tmp_path, ["n"]).loader(5, **ALONE))
    for columns in (None, ["words"], ["n", "words"]):
        with pytest.raises(
            ValueError, match="keeps rows of another dataset: its selection"
        ):
            next(iter(ds.cache(tmp_path, columns).loader(5, **ALONE)))


def test_rows_of_a_context_are_not_those_of_a_list(
    write: Write, tmp_path: Path
) -> None:
    path = write(tfrecord_file([sequence({}, {})] * 3))
    spec = {"x": fr.VarLen("int64")}
    datasets = [
        fr.open(path, context_features=spec, sequence_features={}),
        fr.open(path, context_features={}, sequence_features=spec),
    ]
    exactly(datasets[0].cache(tmp_path).loader(2, **ALONE))
    with pytest.raises(ValueError, match="its features differ: x"):
        next(iter(datasets[1].cache(tmp_path).loader(2, **ALONE)))


def test_rows_of_other_files(write: Write, tmp_path: Path) -> None:
    path = write(tfrecord_file([record(n) for n in range(9)]))
    ds = fr.open(path, features=SPEC)
    exactly(ds.cache(tmp_path).loader(5, **ALONE))
    before = path.stat()
    # The same size, other content, and the time of the first file.
    path.write_bytes(tfrecord_file([record(n, pixel=8) for n in range(9)]))
    for later in (1, 0):
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + later))
        with pytest.raises(ValueError, match="another dataset: its files differ"):
            next(iter(fr.open(path, features=SPEC).cache(tmp_path).loader(5, **ALONE)))
    other = write(tfrecord_file([record(n) for n in range(10)]))
    with pytest.raises(ValueError, match="its n_rows differ: 9 there, but 10 here"):
        next(iter(fr.open(other, features=SPEC).cache(tmp_path).loader(5, **ALONE)))


def test_files_that_change_between_epochs(write: Write, tmp_path: Path) -> None:
    path = write(tfrecord_file([record(n) for n in range(9)]))
    loader = fr.open(path, features=SPEC).cache(tmp_path).loader(5, **ALONE)
    exactly(loader)
    path.write_bytes(tfrecord_file([record(n, pixel=8) for n in range(9)]))
    os.utime(path, ns=(1, 1))
    with pytest.raises(fr.CorruptionError, match="changed after it was indexed"):
        next(iter(loader))


def test_rows_of_another_version(
    ds: Untyped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exactly(ds.cache(tmp_path).loader(5, **ALONE))
    monkeypatch.setattr(store, "VERSION", store.VERSION + 1)
    with pytest.raises(ValueError, match="its version differs: 2 there, but 3 here"):
        next(iter(ds.cache(tmp_path).loader(5, **ALONE)))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "7", '{"checksum": 1}', "\xff"])
def test_a_damaged_description(ds: Untyped, tmp_path: Path, text: str) -> None:
    exactly(ds.cache(tmp_path).loader(5, **ALONE))
    (tmp_path / "kept.json").write_text(text, "latin-1")
    with pytest.raises(
        ValueError, match=r"kept\.json'? is damaged; delete the directory"
    ):
        next(iter(ds.cache(tmp_path).loader(5, **ALONE)))


def test_the_description_is_readable(ds: Untyped, tmp_path: Path) -> None:
    kept = ds.with_transform(doubled, cache_key="doubled-1").cache(tmp_path, ["n"])
    exactly(kept.loader(5, **ALONE))
    found = json.loads((tmp_path / "kept.json").read_text())
    assert found["n_rows"] == len(ds)
    assert found["transforms"] == ["doubled-1"]
    assert found["columns"] == {"n": [[], [["int64", [], False]]]}
    assert {*found["features"]} == {*SPEC}
