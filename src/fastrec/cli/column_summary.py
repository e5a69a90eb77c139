"""ColumnSummary: statistics of a column, accumulated batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastrec as fr
from fastrec.cli.number_summary import (
    QUANTILES,
    Lengths,
    Numbers,
    NumberSummary,
    Rows,
)
from fastrec.cli.statistics import ColumnStats, Distribution, Histogram
from fastrec.cli.string_summary import StringSummary

__all__ = ["ColumnBatch", "ColumnSummary", "flattened"]


@dataclass
class ColumnBatch:
    """The summary of one batch of a column."""

    n_present: int
    n_each: int | None  # values per record; None if it varies
    per_record: Numbers | None
    values: Any  # Numbers or Strings


class ColumnSummary:
    """Accumulates a column of numbers or byte strings."""

    def __init__(self, kind: str) -> None:
        self._n_present = 0
        self._n_each: int | None = None
        self._per_record = NumberSummary()
        self._values: NumberSummary | StringSummary
        self._values = StringSummary() if kind == "bytes" else NumberSummary()

    def of_batch(self, column: Any, rows: Rows) -> ColumnBatch:  # noqa: ANN401 (an array)
        """Summarize the column of a batch."""
        values, n_each = flattened(column)
        of_values = self._values.of_batch(values, rows, n_each)
        if isinstance(n_each, int):
            return ColumnBatch(len(rows) * bool(n_each), n_each, None, of_values)
        n_present = int(np.count_nonzero(n_each))
        per_record = self._per_record.of_batch(n_each, rows, 1)
        return ColumnBatch(n_present, None, per_record, of_values)

    def add(self, batch: ColumnBatch) -> None:
        """Add the summary of a batch."""
        self._n_present += batch.n_present
        self._n_each = batch.n_each
        if batch.per_record is not None:
            self._per_record.add(batch.per_record)
        self._values.add(batch.values)

    def stats(self, name: str | bytes, kind: str, n_records: int) -> ColumnStats:
        """Return the statistics of the column, of `n_records` records in total."""
        of_values = self._values
        numbers = lengths = None
        form = ""
        if isinstance(of_values, StringSummary):
            lengths, form = of_values.lengths(), of_values.format()
        else:
            numbers = of_values.distribution()
        n_distinct, is_distinct_exact = of_values.n_distinct()
        common, is_common_exact = of_values.common()
        per_record = self._per_record.distribution()
        if self._n_each is not None:
            per_record = _constant(self._n_each, n_records)
        return ColumnStats(
            name=name,
            kind=kind,
            n_records=n_records,
            n_present=self._n_present,
            per_record=per_record,
            numbers=numbers,
            lengths=lengths,
            n_distinct=n_distinct,
            is_distinct_exact=is_distinct_exact,
            common=common,
            is_common_exact=is_common_exact,
            format=form,
        )


def _constant(value: int, n_values: int) -> Distribution:
    """Return the distribution of equal integers."""
    histogram = Histogram((value - 0.5, value + 0.5), (float(n_values),))
    quantiles = dict.fromkeys(QUANTILES, float(value))
    return Distribution(
        n_values, 0, 0, value, value, float(value), 0.0, quantiles, histogram, True
    )


def flattened(column: Any) -> tuple[Any, int | Lengths]:  # noqa: ANN401 (an array)
    """Return all values of a column, and the number of values of each row."""
    if isinstance(column, fr.BytesArray):
        return column, math.prod(column.shape[1:])
    if isinstance(column, fr.RaggedArray):
        values, inner = flattened(column.values)
        if isinstance(inner, int):
            return values, column.lengths * inner
        ends = np.concatenate([[0], np.cumsum(inner)])[column.row_splits]
        return values, np.diff(ends)
    n_each = math.prod(column.shape[1:])
    return (column if column.ndim == 1 else column.reshape(-1)), n_each
