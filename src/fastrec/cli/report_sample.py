"""The sample of records that a report shows, and the summary of each column in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import fastrec as fr
from fastrec.arrays.batch import row_of
from fastrec.features.schema import Schema

__all__ = ["ColumnSummary", "Sample", "Shares", "flat_values", "sampled", "summaries"]

_MAX_RECORDS = 4096
_MIN_RECORDS = 16
_MAX_BYTES = 64 << 20
_N_BINS = 32
_MAX_KINDS = 12  # values in a list of the most common ones


@dataclass(frozen=True)
class Sample:
    """Some records of a dataset, in the order of the files."""

    schema: Schema
    batch: dict[str, Any]
    n_records: int
    is_spread: bool  # evenly over the files; otherwise the first records

    def row(self, i: int) -> dict[str, Any]:
        """Return one record of the sample; a single value is not in an array."""
        return {
            name: value[0] if self._is_single(name) and len(value) == 1 else value
            for name, value in row_of(self.batch, i).items()
        }

    def _is_single(self, name: str) -> bool:
        spec = self.schema.get(name)
        return isinstance(spec, fr.FixedLen) and spec.shape == ()


@dataclass(frozen=True)
class Shares:
    """How often the most common values occur, of all values of a column."""

    values: list[object]
    counts: list[int]
    n_others: int


@dataclass(frozen=True)
class ColumnSummary:
    """What the sample has of one column.

    `histogram` is of numbers, or of the lengths of byte strings.
    """

    name: str | bytes
    spec: str
    note: str
    n_values: int
    n_missing: int  # records without a value
    is_text: bool
    minimum: float | None = None
    mean: float | None = None
    median: float | None = None
    maximum: float | None = None
    n_not_finite: int = 0
    histogram: tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]] | None = None
    shares: Shares | None = None


def sampled(ds: fr.Dataset) -> Sample:
    """Read up to 4,096 records or 64 MiB: spread evenly, or the first of streams."""
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
        return Sample(schema, batch, n_wanted, is_spread=n_wanted == n)
    numbers = np.linspace(0, n - 1, n_wanted).astype(np.int64)
    return Sample(schema, ds[numbers], n_wanted, is_spread=True)


def summaries(sample: Sample, n_max: int) -> list[ColumnSummary]:
    """Summarize the first `n_max` columns."""
    names: list[Any] = [name for name in sample.schema if name in sample.batch]
    return [_summary(sample, name) for name in names[:n_max]]


def _summary(sample: Sample, name: Any) -> ColumnSummary:  # noqa: ANN401
    column = sample.batch[name]
    values, per_record = flat_values(column)
    known: dict[str, Any] = {
        "name": name,
        "spec": sample.schema[name]._text("fr."),
        "note": sample.schema._notes.get(name, ""),
        "n_values": len(values),
        "n_missing": int((per_record == 0).sum()),
        "is_text": isinstance(values, fr.BytesArray),
    }
    if not len(values):
        return ColumnSummary(**known)
    if isinstance(values, fr.BytesArray):
        lengths = values.lengths.astype(np.float64)
        shares = _text_shares(values) if lengths.max() <= 64 else None
        known |= _numbers(lengths)
        return ColumnSummary(**known, shares=shares)
    finite = values[np.isfinite(values)].astype(np.float64)
    known["n_not_finite"] = len(values) - len(finite)
    if not len(finite):
        return ColumnSummary(**known)
    shares = _number_shares(values) if values.dtype.kind in "iub" else None
    return ColumnSummary(**known, **_numbers(finite), shares=shares)


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


def _numbers(values: npt.NDArray[np.float64]) -> dict[str, Any]:
    counts, edges = np.histogram(values, bins=_N_BINS)
    return {
        "minimum": float(values.min()),
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "maximum": float(values.max()),
        "histogram": (counts.astype(np.int64), edges),
    }


def _text_shares(values: fr.BytesArray) -> Shares | None:
    counts: dict[bytes, int] = {}
    for value in values.tolist():
        counts[value] = counts.get(value, 0) + 1
    return _shares(list(counts), list(counts.values()), len(values))


def _number_shares(values: npt.NDArray[Any]) -> Shares | None:
    kinds, counts = np.unique(values, return_counts=True)
    if len(kinds) > _MAX_KINDS:
        return None
    return _shares(kinds.tolist(), counts.tolist(), len(values))


def _shares(kinds: list[Any], counts: list[int], n_values: int) -> Shares | None:
    """Return the most common values, unless nearly all values are different."""
    if len(kinds) > max(1, n_values // 2):
        return None
    order = sorted(range(len(kinds)), key=lambda i: -counts[i])[:_MAX_KINDS]
    shown = [counts[i] for i in order]
    return Shares([kinds[i] for i in order], shown, n_values - sum(shown))
