"""Empty lists in columns: their kind is never guessed.

Goal
    An empty array has the kind of its dtype. An empty list has the kind of its spec, of
    its column or of earlier records, or else is an error. None rows next to them stay
    absent.
Method
    Records are decoded by the oracle, which knows the kind of empty lists, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from oracle import features_of

STRINGS = fr.BytesArray.from_list


def kinds_and_values(path: Path) -> list[Any]:
    """Return each record's kind and values of the feature x, or None."""
    found = []
    for record in fr.open(path).records:
        features: Any = features_of(bytes(record))
        found.append(features.get(b"x"))
    return found


def written(path: Path, column: Any, features: Any = None) -> list[Any]:
    fr.write(path, {"x": column}, features=features)
    return kinds_and_values(path)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([np.zeros(0, "i8"), None], [("int64", []), None]),
        ([None, np.zeros(0, "f4")], [None, ("float", [])]),
        ([None, STRINGS([])], [None, ("bytes", [])]),
        ([np.zeros(0, "i8"), np.arange(2)], [("int64", []), ("int64", [0, 1])]),
        ([[], None, [1, 2]], [("int64", []), None, ("int64", [1, 2])]),
        ([["a"], [], None], [("bytes", [b"a"]), ("bytes", []), None]),
        (
            [STRINGS(["a", "b"]), None, STRINGS([])],
            [("bytes", [b"a", b"b"]), None, ("bytes", [])],
        ),
    ],
)
def test_empty_rows_have_the_kind_of_their_column(
    tmp_path: Path, column: list[Any], expected: list[Any]
) -> None:
    assert written(tmp_path / "a.tfrecord", column) == expected


@pytest.mark.parametrize(
    ("dtype", "kind"), [("int64", "int64"), ("float32", "float"), ("bytes", "bytes")]
)
def test_a_spec_determines_the_kind_of_empty_lists(
    tmp_path: Path, dtype: str, kind: str
) -> None:
    found = written(tmp_path / "a.tfrecord", [[], None, []], {"x": fr.VarLen(dtype)})
    assert found == [(kind, []), None, (kind, [])]


def test_earlier_records_determine_the_kind_of_empty_lists(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with fr.Writer(path) as writer:
        writer.write_batch({"x": [[1]]})
        writer.write_batch({"x": [[], None]})
    assert kinds_and_values(path) == [("int64", [1]), ("int64", []), None]


@pytest.mark.parametrize("column", [[[]], [[], None], [(), []]])
def test_empty_lists_of_unknown_kind_raise(tmp_path: Path, column: list[Any]) -> None:
    with pytest.raises(
        ValueError, match="'x': cannot determine the kind of empty lists; pass a spec"
    ):
        written(tmp_path / "a.tfrecord", column)
    assert list(tmp_path.iterdir()) == []


def test_arrays_next_to_none_use_their_spec(tmp_path: Path) -> None:
    pixels = np.arange(4, dtype=np.uint8).reshape(2, 2)
    found = written(
        tmp_path / "a.tfrecord",
        [None, pixels, None],
        {"x": fr.Raw((2, 2), "uint8", default=np.zeros((2, 2), "u1"))},
    )
    assert found == [None, ("bytes", [pixels.tobytes()]), None]
