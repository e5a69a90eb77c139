"""The sample of records that a report shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import fastrec as fr
from fastrec.arrays.batch import row_of
from fastrec.arrays.bytes import reshaped
from fastrec.features.schema import Schema

__all__ = ["Sample", "flat_values", "sampled"]

_MAX_RECORDS = 4096
_MIN_RECORDS = 16
_MAX_BYTES = 32 << 20


@dataclass(frozen=True)
class Sample:
    """Some records of a dataset, in the order of the files."""

    schema: Schema
    batch: dict[str, Any]
    following: dict[str, Any]  # the next record of each, except of the last one
    n_records: int
    is_spread: bool  # evenly over the files; otherwise the first records

    def row(self, i: int) -> dict[str, Any]:
        """Return one record of the sample; a single value is not in an array."""
        row = row_of(self.batch, i)
        for name, value in row.items():
            if np.ndim(value) == 1 and len(value) == 1:
                row[name] = value[0]
        return row


def sampled(ds: fr.Dataset) -> Sample:
    """Read up to 4,096 records or 32 MiB, evenly spread, or the first of streams."""
    n, schema = len(ds), ds.schema
    n_wanted = _MAX_BYTES * n // max(ds.nbytes, 1)
    n_wanted = min(n, max(_MIN_RECORDS, min(_MAX_RECORDS, n_wanted)))
    # Any number of values fits, so that a record which the schema does not expect is
    # part of the sample instead of an error.
    if type(schema) is Schema:
        ds = ds.with_features(
            {
                name: fr.VarLen(spec.dtype) if isinstance(spec, fr.FixedLen) else spec
                for name, spec in schema.items()
            }
        )
    batch: dict[str, Any]
    if ds.is_streamed:
        batch = next(iter(ds.loader(n_wanted, rank=0, world_size=1, num_threads=0)))
        following = fr.take_rows(batch, slice(1, None))
        return Sample(schema, batch, following, n_wanted, is_spread=n_wanted == n)
    numbers = np.linspace(0, n - 1, n_wanted).astype(np.int64)
    following = ds[numbers[numbers < n - 1] + 1]
    return Sample(schema, ds[numbers], following, n_wanted, is_spread=True)


def flat_values(column: Any) -> tuple[Any, npt.NDArray[np.int64]]:  # noqa: ANN401
    """Return all values of a column in one row, and how many each record has."""
    if isinstance(column, fr.RaggedArray):
        values, n_inner = flat_values(column.values)
        ends = np.concatenate([[0], np.cumsum(n_inner)])[column.row_splits]
        return values, np.diff(ends)
    values = (
        reshaped(column, (column.size,))
        if isinstance(column, fr.BytesArray)
        else column.reshape(-1)
    )
    return values, np.full(len(column), math.prod(column.shape[1:]), np.int64)
