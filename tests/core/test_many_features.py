"""Goal: the cost of a feature does not grow with the number of features.

Method: names that count how often they are compared; and records of so many features that
work for each pair of them would take minutes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fastrec as fr

N_FEATURES = 100_000


class Name(str):
    """A name that counts comparisons."""

    __slots__ = ()
    n_compared = 0

    def __eq__(self, other: object) -> bool:
        Name.n_compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_schema_compares_names_a_few_times_each() -> None:
    n_features = 3000
    names: list[str] = [Name(f"f{i}") for i in range(n_features)]
    Name.n_compared = 0
    schema = fr.Schema(dict.fromkeys(names, "int64"))
    repr(schema)
    assert Name.n_compared < 20 * n_features


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(
        fr.SchemaError, match="column names must be unique, got 'n' twice"
    ):
        fr.Schema({"a": fr.FixedLenSequence((), "int64", lengths="n"), "n": "int64"})


@pytest.mark.parametrize("ending", ["", "_with_one_ending"])
def test_very_many_features_are_written_inferred_and_read(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / "many.tfrecord"
    row = {f"f{i:06}{ending}": i for i in range(N_FEATURES)}
    with fr.Writer(path) as writer:
        for _ in range(3):
            writer.write(row)
    ds = fr.open(path)
    assert len(ds.schema) == N_FEATURES
    assert len(repr(ds.schema).splitlines()) == N_FEATURES + 2
    features = {name: fr.VarLen("int64") for name in row}
    for read in (ds, fr.open(path, features=features)):
        batch = next(iter(read.loader(3)))
        assert list(batch) == list(row)
        last = batch[f"f{N_FEATURES - 1:06}{ending}"]
        values = last.values if isinstance(last, fr.RaggedArray) else last
        assert np.asarray(values).tolist() == [N_FEATURES - 1] * 3
