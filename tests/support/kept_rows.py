"""Compare datasets that keep their rows with those that decode them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import fastrec as fr
from columns import Untyped


def exact(column: Untyped) -> Untyped:
    """Return a column as plain values that compare bit for bit, with its types."""
    if isinstance(column, fr.BytesArray):
        return "bytes", column.shape, column.tolist()
    if isinstance(column, fr.RaggedArray):
        splits = np.asarray(column.row_splits)
        lengths = np.diff(splits).tolist()
        inner = column.values[int(splits[0]) : int(splits[-1])]
        return "ragged", splits.dtype.name, lengths, exact(inner)
    if isinstance(column, fr.SparseArray):
        indices = exact(column.indices)
        return "sparse", column.dense_shape, indices, exact(column.values)
    return column.dtype.name, column.shape, np.ascontiguousarray(column).tobytes()


def exactly(batches: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return batches as plain values; an error that ends them is the last item."""
    found: list[dict[str, Any]] = []
    try:
        for batch in batches:
            found += [{name: exact(column) for name, column in batch.items()}]
    except fr.Error as error:
        found.append({"error": (type(error).__name__, str(error))})
    return found


def with_rows_of_every_kind(batch: dict[str, Any]) -> dict[str, Any]:
    """Add columns of every kind that can be kept."""
    n, rows = batch["n"], np.arange(len(batch["n"]))
    nested = [[[i] * 2, [], [i]] for i in n.tolist()]
    return {
        **batch,
        "large": (n[:, np.newaxis] + np.arange(5)).astype("float32"),
        "nested": fr.RaggedArray.from_list(nested),
        "sparse": fr.SparseArray(np.column_stack([rows, n % 4]), n, (len(n), 4)),
        "pairs": fr.BytesArray.from_list([[b"a" * i, b"b"] for i in n.tolist()]),
    }
