"""Dataset.statistics.

Goal
    Statistics are those of NumPy over all items of a column, in float64: of each step of
    ragged rows, of each row of other columns. Columns without numbers are refused before
    the rest of the records is read.
Method
    Columns of each type, compared with NumPy's functions on the values that were written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped
from fastrec.dataset import statistics

N = 300
RNG = np.random.default_rng(5)
LENGTHS = RNG.integers(0, 6, N)
COLUMNS: dict[str, Any] = {
    "scalar": RNG.normal(1e6, 1, N).astype("float32"),
    "wide": RNG.integers(-(2**62), 2**62, N),
    "small": RNG.choice(np.array([-128, 127], "int8"), (N, 3)),
    "half": RNG.normal(0, 1e4, (N, 2)).astype("float16"),
    "is_last": RNG.random(N) < 0.3,
    "steps/action": [RNG.normal(size=(n, 7)).astype("float32") for n in LENGTHS],
    "steps/reward": [RNG.normal(size=n) for n in LENGTHS],
    "steps/text": [[b"go"] * n for n in LENGTHS],
    "name": [b"x"] * N,
}
FEATURES: dict[str, Any] = {
    "scalar": fr.FixedLen((), "float32"),
    "wide": fr.FixedLen((), "int64"),
    "small": fr.Raw((3,), "int8"),
    "half": fr.FixedLen((2,), "float16"),
    "is_last": fr.FixedLen((), "bool"),
    "steps/action": fr.VarLen("float32", (7,)),
    "steps/reward": fr.VarLen("float64"),
    "steps/text": fr.VarLen("bytes"),
    "name": fr.FixedLen((), "bytes"),
}
NUMBERS = [name for name in FEATURES if name not in ("steps/text", "name")]


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> fr.Dataset:
    """Return the dataset of all columns."""
    path = tmp_path_factory.mktemp("statistics") / "rows.tfrecord"
    fr.write(path, COLUMNS, features=FEATURES)
    return fr.open(path, features=FEATURES)


def items_of(name: str) -> Untyped:
    """Return the items of a column as float64, as they are when read back."""
    column = COLUMNS[name]
    items = np.concatenate(column) if isinstance(column, list) else column
    stored = "float32" if FEATURES[name].dtype == "float64" else items.dtype
    return items.astype(stored).astype("float64")


def expected(items: Untyped, **quantiles: float) -> dict[str, Untyped]:
    """Return the statistics of float64 items by NumPy's functions."""
    return {
        "count": np.array(len(items)),
        "mean": items.mean(axis=0),
        "std": items.std(axis=0),
        "min": items.min(axis=0),
        "max": items.max(axis=0),
        **{key: np.quantile(items, q, axis=0) for key, q in quantiles.items()},
    }


def check(found: dict[str, Untyped], wanted: dict[str, Untyped]) -> None:
    assert found.keys() == wanted.keys()
    for key, value in found.items():
        assert type(value) is np.ndarray
        assert value.dtype == ("int64" if key == "count" else "float64")
        assert value.shape == wanted[key].shape
        scale = np.abs(wanted["max"]).max(initial=0)
        np.testing.assert_allclose(value, wanted[key], 1e-12, 1e-14 * scale)


@pytest.mark.parametrize("chunk_values", [1, 50, 1 << 20])
def test_statistics_are_those_of_numpy(
    ds: fr.Dataset, monkeypatch: pytest.MonkeyPatch, chunk_values: int
) -> None:
    monkeypatch.setattr(statistics, "_CHUNK_VALUES", chunk_values)
    found = ds.statistics(NUMBERS)
    assert list(found) == NUMBERS
    for name in NUMBERS:
        check(found[name], expected(items_of(name), q01=0.01, q99=0.99))


def test_quantiles_have_keys_in_percent(ds: fr.Dataset) -> None:
    keys = {"q00": 0, "q0.5": 0.005, "q07": 0.07, "q50": 0.5, "q99.9": 0.999, "q100": 1}
    found = ds.statistics(["steps/action"], quantiles=list(keys.values()))
    check(found["steps/action"], expected(items_of("steps/action"), **keys))
    assert list(ds.statistics(["wide"], quantiles=())["wide"])[-1] == "max"
    text = json.dumps({key: x.tolist() for key, x in found["steps/action"].items()})
    assert json.loads(text)["count"] == LENGTHS.sum()


def test_statistics_are_of_the_rows_of_a_view_after_the_transforms(
    ds: fr.Dataset,
) -> None:
    view = ds.select(range(10, 20)).with_transform(
        lambda batch: {"twice": 2 * batch["scalar"].astype("float64")}
    )
    items = 2 * items_of("scalar")[10:20]
    check(
        view.statistics(["twice"], quantiles=[0.5])["twice"], expected(items, q50=0.5)
    )


def test_values_that_are_not_finite_propagate(tmp_path: Path) -> None:
    items = RNG.normal(size=(50, 4)).astype("float32")
    items[7, 0], items[[0, -1], 1], items[:, 2], items[3, 3] = (
        np.nan,
        np.inf,
        -np.inf,
        0,
    )
    fr.write(tmp_path / "x", {"x": items}, features={"x": fr.FixedLen((4,), "float32")})
    ds = fr.open(tmp_path / "x", features={"x": fr.FixedLen((4,), "float32")})
    found = ds.statistics(["x"], quantiles=[0, 0.3, 1])["x"]
    with np.errstate(invalid="ignore"):
        wanted = expected(items.astype("float64"), q00=0, q30=0.3, q100=1)
    wanted["q00"][2] = wanted["q30"][2] = wanted["q100"][2] = -np.inf  # or NaN in NumPy
    for key, value in found.items():
        np.testing.assert_allclose(value, wanted[key], 1e-12)


def test_masked_rows_do_not_count(tmp_path: Path) -> None:
    path, spec = tmp_path / "x", {"x": fr.FixedLen((), "int64")}
    fr.write(path, {"x": np.arange(100, 200)}, features={"x": spec["x"]})
    data = bytearray(path.read_bytes())
    size = len(data) // 100
    data[size * 3 + 20] ^= 1  # a byte of the fourth record
    path.write_bytes(data)
    found = fr.open(path, features=spec, on_error="mask").statistics(["x"])["x"]
    check(found, expected(np.delete(np.arange(100.0, 200), 3), q01=0.01, q99=0.99))
    with pytest.raises(fr.CorruptionError):
        fr.open(path, features=spec).statistics(["x"])


@pytest.mark.parametrize(
    ("columns", "options", "error", "message"),
    [
        (["name"], {}, TypeError, "column 'name' must have numbers, got bytes"),
        (["steps/text"], {}, TypeError, "must have numbers, got ragged rows of bytes"),
        (["scaler"], {}, KeyError, "no column 'scaler'; .* did you mean 'scalar'"),
        ("scalar", {}, TypeError, r"statistics\(\) requires a list of names"),
        ([], {}, ValueError, r"statistics\(\) requires at least one name"),
        (["wide"], {"quantiles": [99]}, ValueError, "quantiles must be 0 to 1"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(
    ds: fr.Dataset,
    columns: Untyped,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        ds.statistics(columns, **options)


def test_a_column_without_items_is_refused(ds: fr.Dataset) -> None:
    none = ds.select(np.flatnonzero(LENGTHS == 0))
    for empty in (ds.select([]), none):
        with pytest.raises(ValueError, match="column 'steps/action' has no values"):
            empty.statistics(["steps/action"])
