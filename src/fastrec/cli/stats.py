"""``fastrec stats``: summarize the columns with DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import typer

import fastrec as fr
from fastrec.cli.arguments import AsJson, Columns, Paths, Where, names_in
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.preview import preview
from fastrec.cli.schema import check_names
from fastrec.cli.sql import Table, quoted
from fastrec.cli.terminal import console, counted, json_line, print_table, printable

_N_COMMON = 5
_N_SHOWN = 3  # of them
_MAX_COMPARED_BYTES = 128
_MAX_DISTINCT = 0.9  # of the values; if more are distinct, none is common

_AGGREGATES = (
    *("count(c{0})", "count(c{0}) - count(m{0})"),
    *("min(m{0})", "max(m{0})", "avg(m{0})", "stddev_pop(m{0})"),
    "approx_quantile(m{0}, [0.25, 0.5, 0.75])",
    *("approx_count_distinct(v{0})", f"approx_top_k(v{{0}}, {_N_COMMON})"),
)
_FINITE = "CASE WHEN isfinite({0}) THEN {0} END"
_SHORT = f"CASE WHEN strlen({{0}}) <= {_MAX_COMPARED_BYTES} THEN {{0}} END"
# By type: the values, the numbers that are measured, and the values that are compared.
_EXPRESSIONS = {
    "BIGINT": ("{0}", "{0}", "{0}"),
    "FLOAT": ("{0}", _FINITE, _FINITE),
    "VARCHAR": ("{0}", "strlen({0})", _SHORT),
    "BLOB": ("{0}", "octet_length({0})", "NULL::BIGINT"),
    "length": ("nullif({0}, 0)", "{0}", "{0}"),
}
_HEAD = (
    *("column", "type", "values", "not finite", "min", "median", "max", "mean", "std"),
    *("distinct", "common"),
)
_NOTE = "min to std of VARCHAR and BLOB are lengths in bytes; median and distinct are estimates"


@dataclass(frozen=True)
class ColumnSummary:
    """The summary of a column, or of the lengths of its lists.

    Attributes
    ----------
    name : str
        The column, or ``len(column)``.
    type : str
        As in SQL. Of lists, the values are summarized.
    count, n_not_finite : int
        The number of values, and of those that are NaN or infinite. Of ``len(column)``,
        the number of lists that are not empty.
    min, max, avg, std, q25, q50, q75 : float or None
        Of the finite numbers, or of the lengths of byte strings. Quartiles are estimates.
    approx_unique : int
        An estimate of the number of distinct values. Only numbers and text of up to 128
        bytes are compared.
    common : list of (value, count)
        Frequent values; the counts are exact.
    """

    name: str
    type: str
    count: int
    n_not_finite: int
    min: float | None
    max: float | None
    avg: float | None
    std: float | None
    q25: float | None
    q50: float | None
    q75: float | None
    approx_unique: int
    common: list[tuple[Any, int]]


def stats(
    paths: Paths,
    *,
    columns: Columns = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Summarize each column: range, mean, quartiles, distinct and common values.

    Of a feature of several values, it summarizes the values and, as len(column), their
    number. Of images, it summarizes the lengths.
    """
    files = files_of(paths, joins=False)
    indexed(files)  # behind a progress bar
    ds = fr.open(files)
    names = check_names(ds, names_in(columns))
    n_records, found = summary(ds, names, where)
    out = console()
    if as_json:
        out.print(
            json_line({"n_records": n_records, "columns": list(map(asdict, found))})
        )
        return
    out.print(f"{counted(n_records, 'record')}, {counted(len(names), 'column')}")
    if found:
        out.print()
        print_table(out, _HEAD, list(map(_cells, found)))
        out.print(f"\n{_NOTE}")


def summary(
    ds: fr.Dataset, names: Sequence[str] | None = None, where: str | None = None
) -> tuple[int, list[ColumnSummary]]:
    """Return the number of records, and the summaries of columns or of all columns.

    Parameters
    ----------
    ds : Dataset
    names : sequence of str, optional
    where : str, optional
        Only of the records for which this condition of SQL is true.

    Raises
    ------
    Error
        If a record cannot be read, or has another kind of values than those from which
        the schema was inferred.
    """
    table = Table(ds, "--where")
    while columns := dict(table.columns):
        chosen = [columns[name] for name in names or columns]
        try:
            return _summary(table, chosen, where)
        except typer.BadParameter:
            if table.columns == columns:
                raise
            # A record has more values than those of the sample: its column has lists now.
    return len(ds), []


def _summary(
    table: Table, columns: Sequence[tuple[str, str]], where: str | None
) -> tuple[int, list[ColumnSummary]]:
    source = "records" if where is None else f"records WHERE ({where}\n)"
    of_records: list[_Column] = []
    of_values: list[_Column] = []
    for name, kind in columns:
        column = quoted(name)
        if not kind.endswith("]"):
            of_records.append(_Column(name, kind, kind, column))
            continue
        length = f"len({column})"
        of_records.append(_Column(f"len({name})", "BIGINT", "length", length))
        values = f"unnest({column}, recursive := true)"
        of_values.append(_Column(name, kind, kind.partition("[")[0], values))
    n_records, found = _aggregated(table, of_records, source)
    if of_values:
        found |= _aggregated(table, of_values, source)[1]
    listed = [each for name, _ in columns for each in (name, f"len({name})")]
    return n_records, [found[name] for name in listed if name in found]


class _Column(NamedTuple):
    name: str
    type: str
    kind: str  # of _EXPRESSIONS
    sql: str


def _aggregated(
    table: Table, columns: Sequence[_Column], source: str
) -> tuple[int, dict[str, ColumnSummary]]:
    """Return the number of rows of columns, and their summaries by name."""
    read = ", ".join(f"{column.sql} AS x{i}" for i, column in enumerate(columns))
    parts = ", ".join(
        f"{expression.format(f'x{i}')} AS {part}{i}"
        for i, column in enumerate(columns)
        for part, expression in zip("cmv", _EXPRESSIONS[column.kind], strict=True)
    )
    relation = f"FROM (SELECT {parts} FROM (SELECT {read} FROM {source}))"
    wanted = [each.format(i) for i in range(len(columns)) for each in _AGGREGATES]
    [(n_rows, *values)] = table.rows(f"SELECT count(*), {', '.join(wanted)} {relation}")
    n_each = len(_AGGREGATES)
    found = {}
    frequent: list[tuple[str, int, Any]] = []
    for i, (name, kind, *_) in enumerate(columns):
        count, n_not_finite, low, high, mean, std, quartiles, n_distinct, top = values[
            i * n_each : (i + 1) * n_each
        ]
        q25, q50, q75 = quartiles or (None, None, None)
        found[name] = ColumnSummary(
            name=name,
            type=kind,
            count=count,
            n_not_finite=max(n_not_finite, 0),
            min=low,
            max=high,
            avg=mean,
            std=std,
            q25=q25,
            q50=q50,
            q75=q75,
            approx_unique=n_distinct,
            common=[],
        )
        if n_distinct <= _MAX_DISTINCT * count:
            frequent += [(name, i, value) for value in top or ()]
    if frequent:
        counts = [f"count_if(v{i} = ?)" for _, i, _ in frequent]
        [numbers] = table.rows(
            f"SELECT {', '.join(counts)} {relation}", [value for *_, value in frequent]
        )
        for (name, _, value), n in zip(frequent, numbers, strict=True):
            found[name].common.append((value, n))
        for each in found.values():
            each.common.sort(key=lambda pair: -pair[1])
    return n_rows, found


def _cells(column: ColumnSummary) -> list[str]:
    numbers = (column.min, column.q50, column.max, column.avg, column.std)
    common = column.common[:_N_SHOWN]
    return [
        *(printable(column.name), column.type),
        *(f"{column.count:,}", f"{column.n_not_finite:,}"),
        *map(_number, numbers),
        f"{column.approx_unique:,}",
        ", ".join(f"{preview(value)} ({n:,})" for value, n in common),
    ]


def _number(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:,}" if isinstance(number, int) else f"{number:.5g}"
