"""``fastrec stats``: summarize the columns, in one parallel pass and bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import fastrec as fr
from fastrec.arrays.batch import n_rows
from fastrec.cli.arguments import AsJson, Columns, Paths, names_in
from fastrec.cli.column_summary import ColumnBatch, ColumnSummary
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.number_summary import Rows
from fastrec.cli.preview import preview
from fastrec.cli.schema import opened, with_varying_lengths
from fastrec.cli.sketches import SmallestHashes
from fastrec.cli.statistics import ColumnStats, DatasetStats, Distribution
from fastrec.cli.terminal import Bar, console, counted, json_line, printable
from fastrec.options import default_num_threads
from fastrec.tasks import Task, TaskPool

__all__ = ["dataset_stats", "stats"]

_N_COMMON = 5


def stats(paths: Paths, *, columns: Columns = None, as_json: AsJson = False) -> None:
    """Summarize each column: presence, range, mean, quantiles, frequent values.

    Counts, ranges and means are exact. Other numbers are exact or estimates (~), as
    docs/commands.md explains.
    """
    files = files_of(paths, joins=False)
    indexed(files)  # behind a progress bar
    ds = opened(files, names_in(columns))
    with Bar("reading") as bar:
        result = dataset_stats(ds, progress=bar)
    if as_json:
        console().print(json_line(asdict(result)))
    else:
        _print_stats(result)


def dataset_stats(
    ds: fr.Dataset,
    *,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> DatasetStats:
    """Compute the statistics of all columns of a dataset.

    Parameters
    ----------
    ds : Dataset
        Without transforms. `select_columns` chooses columns.
    progress : callable, optional
        Called with the number of records so far and the total.

    Raises
    ------
    Error
        If a record cannot be read, or has another kind of values than those from which
        the schema was inferred.
    """
    try:
        return _one_pass(ds, progress)
    except fr.SchemaError:
        # A record outside of the sample lacks a feature, or has more values of it.
        return _one_pass(with_varying_lengths(ds), progress)


def _one_pass(ds: fr.Dataset, progress: Callable[[int, int], object]) -> DatasetStats:
    specs: dict[Any, Any] = dict(ds.schema)
    kinds = {name: getattr(spec, "dtype", "bytes") for name, spec in specs.items()}
    summaries = {name: ColumnSummary(kind) for name, kind in kinds.items()}
    smallest = SmallestHashes()
    n_threads = default_num_threads()
    pool = TaskPool(n_threads)
    ahead: deque[Task[list[ColumnBatch]]] = deque()
    n_records, n_total = 0, len(ds)

    def of_batch(batch: Any, rows: Rows) -> list[ColumnBatch]:  # noqa: ANN401
        return [each.of_batch(batch[name], rows) for name, each in summaries.items()]

    def merge() -> None:
        columns = ahead.popleft().result()
        for summary, column in zip(summaries.values(), columns, strict=True):
            summary.add(column)

    try:
        for batch in ds._table_loader(None):
            rows = Rows(n_records, n_rows(batch), smallest)
            ahead.append(pool.submit(partial(of_batch, batch, rows)))
            n_records += len(rows)
            if len(ahead) > n_threads:
                merge()
            progress(n_records, n_total)
        while ahead:
            merge()
    finally:
        pool.stop()
    columns = [
        summary.stats(name, kinds[name], n_records)
        for name, summary in summaries.items()
    ]
    return DatasetStats(n_records, tuple(columns))


# Printing.


def _print_stats(result: DatasetStats) -> None:
    out = console()
    n_columns = counted(len(result.columns), "column")
    out.print(f"{counted(result.n_records, 'record')}, {n_columns}")
    for column in result.columns:
        out.print()
        out.print(f"{printable(column.name)}  ({_kind(column)})", style="bold")
        for line in _lines(column):
            out.print(f"  {line}")


def _kind(column: ColumnStats) -> str:
    kind = f"{column.kind}, {column.format}" if column.format else column.kind
    if column.n_present == column.n_records:
        return kind
    share = column.n_present / column.n_records
    return f"{kind}, {share:.1%} of records have values"


def _lines(column: ColumnStats) -> Iterator[str]:
    per_record = column.per_record
    if per_record.minimum != per_record.maximum or per_record.maximum not in (0, 1):
        yield f"{'per record':<10}  {_range(per_record)}"
    numbers = column.numbers
    if numbers is not None and numbers.quantiles:
        yield f"{'range':<10}  {_range(numbers)}, std {_number(numbers.std)}"
        low, *_, high = numbers.quantiles.values()
        about = "" if numbers.is_exact else "~"
        quartiles = [numbers.quantiles[p] for p in (0.25, 0.5, 0.75)]
        yield (
            f"{'quantiles':<10}  1% {about}{_number(low)}, quartiles "
            f"{' '.join(about + _number(each) for each in quartiles)}, "
            f"99% {about}{_number(high)}"
        )
    if numbers is not None and numbers.n_nan + numbers.n_infinite:
        yield f"{'not finite':<10}  {numbers.n_nan:,} NaN, {numbers.n_infinite:,} infinite"
    if column.lengths is not None and column.lengths.quantiles:
        yield f"{'bytes':<10}  {_range(column.lengths)}"
    if column.n_distinct is not None and column.n_distinct:
        about = "" if column.is_distinct_exact else "~"
        yield f"{'distinct':<10}  {about}{column.n_distinct:,}"
    if column.common:
        about = "" if column.is_common_exact else "~"
        shown = ", ".join(
            f"{_value(common.value)} ({about}{common.count:,.0f})"
            for common in column.common[:_N_COMMON]
        )
        yield f"{'common':<10}  {shown}"


def _range(numbers: Distribution) -> str:
    low, high = _number(numbers.minimum), _number(numbers.maximum)
    return low if low == high else f"{low} to {high}, mean {_number(numbers.mean)}"


def _number(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:,}" if isinstance(number, int) else f"{number:.5g}"


def _value(value: float | bytes) -> str:
    return preview(value) if isinstance(value, bytes) else f"{value:.6g}"
