"""Batches of columns -> Arrow record batches, without a copy where that can be.

======================================  ==============================================
ndarray ``(n,)``                        the same numbers; bool is packed
ndarray or BytesArray ``(n, k, ...)``   fixed_size_list, one within the other
RaggedArray                             large_list
BytesArray                              large_binary, or large_string if it is text
======================================  ==============================================
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

import fastrec as fr
from fastrec.inference import name_of

__all__ = ["record_batch"]


def record_batch(
    batch: Mapping[Any, Any],
    text: Collection[str] = (),
    optional: Collection[str] = (),
) -> pa.RecordBatch:
    """Return a batch as a record batch; see `fastrec.convert.to_arrow`."""
    arrays, names = [], []
    for key, column in batch.items():
        name = key if isinstance(key, str) else name_of(key)
        if not isinstance(name, str):
            raise fr.SchemaError(f"Arrow has no name for the column {name!r}")
        try:
            if name in optional:
                array = _at_most_one(column, name in text)
            else:
                array = _array(column, name in text)
        except fr.SchemaError as error:
            reason = f"column {name!r}: {error.reason}"
            raise fr.SchemaError(reason, feature=name) from error.__cause__
        arrays.append(array)
        names.append(name)
    for name in [*text, *optional]:
        if name not in names:
            listed = ", ".join(map(repr, names))
            raise ValueError(f"there is no column {name!r}, only {listed}")
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _array(column: Any, is_text: bool) -> pa.Array:  # noqa: ANN401
    if isinstance(column, fr.RaggedArray):
        values = _array(column.values, is_text)
        splits = pa.array(column.row_splits.astype(np.int64, copy=False))
        return pa.LargeListArray.from_arrays(splits, values)
    if isinstance(column, fr.BytesArray):
        return _in_lists(_strings(column, is_text), column.shape)
    if is_text:
        reason = "only byte strings can be text"
        raise fr.SchemaError(reason)
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "biuf":
        kind = getattr(column, "dtype", None) or type(column).__name__
        if isinstance(column, fr.SparseArray):
            reason = "Arrow has no sparse columns: read it with fr.VarLen"
        else:
            reason = f"values of {kind} cannot be written to a table"
        raise fr.SchemaError(reason)
    native = column.astype(column.dtype.newbyteorder("="), copy=False)
    return _in_lists(pa.array(native.reshape(-1)), column.shape)


def _strings(column: fr.BytesArray, is_text: bool) -> pa.Array:
    kind = pa.large_string() if is_text else pa.large_binary()
    buffers = [None, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    array = pa.Array.from_buffers(kind, column.size, buffers)
    if is_text:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            reason = f"it is no text, so it must stay bytes ({error})"
            raise fr.SchemaError(reason) from error
    return array


def _in_lists(array: pa.Array, shape: tuple[int, ...]) -> pa.Array:
    """Return rows of a shape, whose values `array` has one after the other."""
    n_lists = len(array)
    for axis in range(len(shape) - 1, 0, -1):
        n_lists = int(np.prod(shape[:axis]))
        kind = pa.list_(array.type, shape[axis])
        array = pa.Array.from_buffers(kind, n_lists, [None], children=[array])
    return array


def _at_most_one(column: Any, is_text: bool) -> pa.Array:  # noqa: ANN401
    """Return rows of at most one value as that value, or null."""
    if not isinstance(column, fr.RaggedArray):
        return _array(column, is_text)
    lengths = column.lengths
    if lengths.max(initial=0) > 1:
        row = int((lengths > 1).argmax())
        reason = f"row {row} of a batch has {lengths[row]} values, so it is a list"
        raise fr.SchemaError(reason)
    # Index -1 becomes null, so each row takes its value or none.
    places = np.where(lengths == 1, column.row_splits[:-1], 0)
    index = pa.array(places, mask=lengths == 0)
    return _array(column.values, is_text).take(index)
