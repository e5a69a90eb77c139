"""The sample of records that a report shows, and the summary of each column in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import fastrec as fr
from fastrec.arrays.batch import row_of
from fastrec.cli.statistics import ColumnStats, Common, Distribution, Histogram
from fastrec.features.schema import Schema

__all__ = ["Sample", "column_stats", "flat_values", "sampled"]

_MAX_RECORDS = 4096
_MIN_RECORDS = 16
_MAX_BYTES = 32 << 20
_N_BINS = 32


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


def column_stats(sample: Sample) -> list[ColumnStats]:
    """Return the statistics of the columns of the sample."""
    names: list[Any] = [name for name in sample.schema if name in sample.batch]
    return [_stats(sample, name) for name in names]


def _stats(sample: Sample, name: Any) -> ColumnStats:  # noqa: ANN401
    values, per_record = flat_values(sample.batch[name])
    is_text = isinstance(values, fr.BytesArray)
    counts: dict[Any, int] = {}
    if is_text and values.lengths.max(initial=0) <= 128:
        for value in values.tolist():
            counts[value] = counts.get(value, 0) + 1
    elif not is_text and values.dtype.kind in "iub":
        kinds, found = np.unique(values, return_counts=True)
        counts = dict(zip(kinds.tolist(), found.tolist(), strict=True))
    common = sorted(counts, key=lambda value: -counts[value])[:10]
    return ColumnStats(
        name=name,
        kind="bytes" if is_text else str(values.dtype),
        n_records=len(per_record),
        n_present=int((per_record > 0).sum()),
        per_record=_distribution(per_record),
        numbers=None if is_text else _distribution(values),
        lengths=_distribution(values.lengths) if is_text else None,
        n_distinct=len(counts) or None,
        is_distinct_exact=True,
        common=tuple(Common(v, counts[v]) for v in common if counts[v] > 1),
        is_common_exact=True,
    )


def _distribution(values: npt.NDArray[Any]) -> Distribution:
    finite = values[np.isfinite(values)].astype(np.float64)
    n_nan = int(np.isnan(values).sum())
    n_infinite = len(values) - len(finite) - n_nan
    if not len(finite):
        return Distribution(
            len(values), n_nan, n_infinite, None, None, None, None, {}, None, True
        )
    counts, edges = np.histogram(finite, bins=_N_BINS)
    return Distribution(
        n_values=len(values),
        n_nan=n_nan,
        n_infinite=n_infinite,
        minimum=finite.min().item(),
        maximum=finite.max().item(),
        mean=finite.mean().item(),
        std=finite.std().item(),
        quantiles={p: np.quantile(finite, p).item() for p in (0.05, 0.5, 0.95)},
        histogram=Histogram(tuple(edges.tolist()), tuple(counts.tolist())),
        is_exact=True,
    )


def flat_values(column: Any) -> tuple[Any, npt.NDArray[np.int64]]:  # noqa: ANN401
    """Return all values of a column in one row, and how many each record has."""
    n = len(column)
    if isinstance(column, fr.SparseArray):
        rows = column.indices[:, 0]
        return column.values, np.bincount(rows, minlength=n).astype(np.int64)
    per_record = np.full(n, 1, np.int64)
    if isinstance(column, fr.RaggedArray):
        per_record = column.lengths
        while isinstance(column, fr.RaggedArray):
            column = column.values
    else:
        per_record *= column.size // max(n, 1)
    if isinstance(column, fr.BytesArray):
        return fr.BytesArray._wrap(
            column.data, column.offsets, (column.size,)
        ), per_record
    return np.asarray(column).ravel(), per_record
