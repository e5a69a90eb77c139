"""Convert between fastrec and the oracle: specs one way, columns the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import fastrec as fr
from oracle import Cell, Fixed, Raw, Spec, Var, objects

# The type of a column depends on its spec, which a type checker cannot follow.
Untyped: TypeAlias = Any

# The fixture `write` of conftest.py.
Write: TypeAlias = Callable[[bytes], Path]


def open_dataset(paths: Untyped, **options: Untyped) -> Untyped:
    """Call `fastrec.open` untyped, for invalid arguments and columns of any type."""
    return fr.open(paths, **options)


def fastrec_spec(spec: Spec) -> dict[str, Any]:
    """Convert the oracle's spec to fastrec's."""
    return {name: fastrec_feature(want) for name, want in spec.items()}


def fastrec_feature(want: Fixed | Var | Raw) -> Untyped:
    """Convert one feature of a spec."""
    if isinstance(want, Fixed):
        return fr.FixedLen(want.shape, want.dtype, default=want.default, key=want.key)
    if isinstance(want, Var):
        return fr.VarLen(want.dtype, want.shape, key=want.key)
    return fr.Raw(
        want.shape,
        want.dtype,
        little_endian=want.little_endian,
        default=want.default,
        key=want.key,
    )


def flat(nested: Untyped) -> list[bytes]:
    """Return the byte strings in nested lists."""
    if isinstance(nested, bytes):
        return [nested]
    return [value for inner in nested for value in flat(inner)]


def cell(value: Untyped) -> Cell:
    """Return one value of a single row as a cell."""
    if isinstance(value, bytes):
        return objects([value], ())
    if isinstance(value, fr.BytesArray):
        return objects(flat(value.tolist()), tuple(value.shape))
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(f"a row holds NumPy values or bytes, not {type(value)}")
    return np.asarray(value)


def cells(column: Untyped) -> list[Cell]:
    """Return the cells of a batch's column."""
    if isinstance(column, fr.RaggedArray):
        values = cell(column.values)
        splits = np.asarray(column.row_splits)
        pairs = itertools.pairwise(splits.tolist())
        return [values[begin:end] for begin, end in pairs]
    whole = cell(column)
    return [whole[i : i + 1].reshape(whole.shape[1:]) for i in range(len(whole))]


def rows(batch: Mapping[str, Any]) -> list[dict[str, Cell]]:
    """Return the rows of a batch as dicts of cells."""
    columns = {name: cells(column) for name, column in batch.items()}
    counts = {len(column) for column in columns.values()}
    assert len(counts) == 1, f"columns of different lengths: {counts}"
    return [
        {name: column[i] for name, column in columns.items()}
        for i in range(counts.pop())
    ]


def same(a: Cell, b: Cell) -> bool:
    """Return whether two cells are equal, floats bit for bit."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if a.dtype == object:
        return bool(a.tolist() == b.tolist())
    return a.tobytes() == b.tobytes()


def assert_same(got: Mapping[str, Cell], want: Mapping[str, Cell]) -> None:
    """Assert equal names and order, dtypes, shapes and bits."""
    assert list(got) == list(want)
    for name, cell_wanted in want.items():
        assert same(got[name], cell_wanted), (
            f"{name}: {got[name]!r}, not {cell_wanted!r}"
        )


def snapshot(batches: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return batches as plain values that compare bit for bit."""
    return [
        [
            {
                name: (
                    str(c.dtype),
                    c.shape,
                    c.tolist() if c.dtype == object else c.tobytes(),
                )
                for name, c in row.items()
            }
            for row in rows(batch)
        ]
        for batch in batches
    ]
