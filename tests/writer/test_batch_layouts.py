"""Batches of one layout after another.

Goal
    A writer skips the conversion of a batch whose layout it knows. Files and errors do
    not depend on that, and the writer keeps no array alive.
Method
    The same batches as dicts, whose layout is known after the first batch, and as another
    kind of mapping, which is always converted. Files and errors must be equal.
"""

from __future__ import annotations

import gc
import weakref
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped

N_ROWS = 5


def numbers(n: int = N_ROWS, *, seed: int = 0) -> dict[str, Any]:
    """Columns that need no conversion."""
    rng = np.random.default_rng(seed)
    return {
        "id": rng.integers(-9, 1 << 40, n),
        "ids": rng.integers(0, 300, (n, 3)),
        "weight": rng.standard_normal(n).astype(np.float32),
        "weights": rng.standard_normal((n, 2)).astype(np.float32),
    }


def changed(**columns: Untyped) -> dict[str, Any]:
    """`numbers` with other columns."""
    return {**numbers(seed=1), **columns}


ids = numbers()["ids"]
BATCHES: dict[str, dict[Any, Any]] = {
    "the same layout": numbers(seed=2),
    "more rows": numbers(9),
    "no rows": numbers(0),
    "another order": dict(reversed(numbers().items())),
    "fewer columns": {"id": numbers()["id"]},
    "more columns": changed(more=np.arange(N_ROWS)),
    "another name": {
        f"{name}2" if name == "id" else name: column
        for name, column in numbers().items()
    },
    "equal names": {
        "".join(list(name)): column for name, column in numbers(seed=3).items()
    },
    "names of bytes": {name.encode(): column for name, column in numbers().items()},
    "integers instead of floats": changed(weight=np.arange(N_ROWS)),
    "float64": changed(weight=np.arange(N_ROWS) / 3),
    "int32": changed(id=np.arange(N_ROWS, dtype=np.int32)),
    "big-endian": changed(id=np.arange(N_ROWS, dtype=">i8")),
    "longer rows": changed(ids=np.arange(20).reshape(N_ROWS, 4)),
    "one value instead of a list": changed(ids=np.arange(N_ROWS)),
    "column-major": changed(ids=np.asfortranarray(ids)),
    "every other row": changed(id=np.arange(2 * N_ROWS)[::2]),
    "backwards": changed(id=np.arange(N_ROWS)[::-1]),
    "masked": changed(
        id=np.ma.array(np.arange(N_ROWS), mask=np.arange(N_ROWS) % 3 == 0)
    ),
    "a list": changed(id=[*range(N_ROWS)]),
    "ragged": changed(ids=fr.RaggedArray(np.arange(4), np.array([0, 0, 1, 1, 4, 4]))),
    "read-only": changed(id=np.broadcast_to(np.arange(N_ROWS), N_ROWS)),
}
REFUSED: dict[str, dict[str, Any]] = {
    "another number of rows": changed(id=np.arange(N_ROWS + 1)),
    "floats instead of integers": changed(id=np.arange(N_ROWS) / 3),
    "more dimensions": changed(ids=np.zeros((N_ROWS, 2, 2), np.int64)),
    "a single value": changed(id=np.array(3)),
    "objects": changed(id=np.array([object()] * N_ROWS)),
    "large uint64": changed(id=np.full(N_ROWS, 2**63, np.uint64)),
}


def file_of(
    path: Path, kind: type, *batches: dict[Any, Any], features: Untyped = None
) -> bytes:
    """Return what batches as mappings of this kind become."""
    with fr.Writer(path, features=features, overwrite=True) as writer:
        for batch in batches:
            writer.write_batch(kind(batch))
    return path.read_bytes()


@pytest.mark.parametrize("name", BATCHES)
def test_a_known_layout_changes_no_record(tmp_path: Path, name: str) -> None:
    batches = numbers(), BATCHES[name], BATCHES[name], numbers(seed=4)
    path = tmp_path / "data.tfrecord"
    assert file_of(path, dict, *batches) == file_of(path, UserDict, *batches)


@pytest.mark.parametrize("name", REFUSED)
def test_a_known_layout_changes_no_error(tmp_path: Path, name: str) -> None:
    found = []
    for kind in (dict, UserDict):
        with fr.Writer(tmp_path / "data.tfrecord", overwrite=True) as writer:
            writer.write_batch(kind(numbers()))
            with pytest.raises((ValueError, TypeError)) as refusal:
                writer.write_batch(kind(REFUSED[name]))
            writer.write_batch(kind(numbers()))
        found.append((refusal.type, str(refusal.value)))
        assert writer.n_records == 2 * N_ROWS
    assert found[0] == found[1]


FEATURES = {
    "id": fr.FixedLen((), "int64"),
    "ids": fr.FixedLen((3,), "int32"),
    "weight": fr.FixedLen((), "float32"),
    "weights": fr.Raw((2,), "float32"),
}


def test_a_known_layout_keeps_the_specs(tmp_path: Path) -> None:
    batches = [numbers(seed=seed) for seed in range(4)]
    path = tmp_path / "data.tfrecord"
    assert file_of(path, dict, *batches, features=FEATURES) == file_of(
        path, UserDict, *batches, features=FEATURES
    )


def test_every_batch_is_checked(tmp_path: Path) -> None:
    with fr.Writer(tmp_path / "data.tfrecord", features=FEATURES) as writer:
        writer.write_batch(numbers())
        with pytest.raises(ValueError, match="3000000000 is out of range of int32"):
            writer.write_batch(changed(ids=np.full((N_ROWS, 3), 3_000_000_000)))


def test_a_writer_keeps_no_array(tmp_path: Path) -> None:
    with fr.Writer(tmp_path / "data.tfrecord") as writer:
        for seed in range(2):
            batch = numbers(seed=seed)
            kept = [weakref.ref(column) for column in batch.values()]
            writer.write_batch(batch)
            del batch
            gc.collect()
            assert all(array() is None for array in kept)
