"""``fastrec stats``: summarize columns with DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import typer
from typer import echo

import fastrec as fr
from fastrec.cli.arguments import AsJson, Columns, Paths, Where, names_in
from fastrec.cli.files import opened
from fastrec.cli.preview import preview
from fastrec.cli.schema import check_names
from fastrec.cli.sql import Table, quoted
from fastrec.cli.terminal import counted, print_json, print_table, printable

_N_COMMON = 5
_N_SHOWN = 3  # in the table
_MAX_COMPARED_BYTES = 128
_MAX_DISTINCT = 0.9  # if more are distinct, show no common ones

# Per column: values c, numbers m for the statistics, and values v for comparisons.
_QUARTILES = "approx_quantile(m{0}, [0.25, 0.5, 0.75])"
_AGGREGATES = {
    "count": "count(c{0})",
    "n_not_finite": "greatest(count(c{0}) - count(m{0}), 0)",
    "min": "min(m{0})",
    "max": "max(m{0})",
    "avg": "avg(m{0})",
    "std": "stddev_pop(m{0})",
    **{f"q{q}": f"{_QUARTILES}[{i}]" for i, q in enumerate((25, 50, 75), start=1)},
    "approx_unique": "approx_count_distinct(v{0})",
    "common": f"approx_top_k(v{{0}}, {_N_COMMON})",  # a second query counts them
}
_FINITE = "CASE WHEN isfinite({0}) THEN {0} END"
_SHORT = f"CASE WHEN strlen({{0}}) <= {_MAX_COMPARED_BYTES} THEN {{0}} END"
_PARTS = {  # c, m and v by type
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


# Statistics of a column or, as ``len(column)``, of its list lengths. The keys are
# "name", "type" and the keys of _AGGREGATES.
ColumnSummary: TypeAlias = dict[str, Any]


def stats(
    paths: Paths,
    *,
    columns: Columns = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Summarize each column: range, mean, quartiles, distinct and common values.

    A feature with several values has two rows: the values and, as len(column), the
    number of values. For images, the statistics describe the lengths in bytes.
    """
    ds = opened(paths)
    names = check_names(ds, names_in(columns))
    n_records, found = summary(ds, names, where)
    if as_json:
        print_json({"n_records": n_records, "columns": found})
        return
    echo(f"{counted(n_records, 'record')}, {counted(len(names), 'column')}")
    if found:
        echo()
        print_table(_HEAD, [list(cells(each).values()) for each in found])
        echo(f"\n{_NOTE}")


def summary(
    ds: fr.Dataset, names: Sequence[str] | None = None, where: str | None = None
) -> tuple[int, list[ColumnSummary]]:
    """Return the number of records and a summary of each column.

    `names` selects columns, by default all. `where` is an SQL condition that selects
    records, by default all. Raises an Error if a record cannot be read, or if the kind
    of its values differs from the inferred schema.
    """
    table = Table(ds, "--where")
    while columns := dict(table.columns):
        try:
            return _summary(table, [columns[name] for name in names or columns], where)
        except typer.BadParameter:
            if table.columns == columns:
                raise
            # A record had more values than the sample: its column has lists now.
    return len(ds), []


def _summary(
    table: Table, columns: Sequence[tuple[str, str]], where: str | None
) -> tuple[int, list[ColumnSummary]]:
    source = "records" if where is None else f"records WHERE ({where}\n)"
    of_records: dict[str, tuple[str, str, str]] = {}  # type, key of _PARTS, SQL
    of_values: dict[str, tuple[str, str, str]] = {}
    for name, kind in columns:
        column = quoted(name)
        if kind.endswith("]"):
            values = f"unnest({column}, recursive := true)"
            of_values[name] = kind, kind.partition("[")[0], values
            of_records[f"len({name})"] = "BIGINT", "length", f"len({column})"
        else:
            of_records[name] = kind, kind, column
    n_records, found = _aggregated(table, of_records, source)
    if of_values:
        found |= _aggregated(table, of_values, source)[1]
    listed = [each for name, _ in columns for each in (name, f"len({name})")]
    return n_records, [found[name] for name in listed if name in found]


def _aggregated(
    table: Table, columns: Mapping[str, tuple[str, str, str]], source: str
) -> tuple[int, dict[str, ColumnSummary]]:
    """Return the number of rows in `source`, and the summary of each column by name."""
    read = ", ".join(f"{sql} AS x{i}" for i, (*_, sql) in enumerate(columns.values()))
    parts = ", ".join(
        f"{expression.format(f'x{i}')} AS {part}{i}"
        for i, (_, kind, _) in enumerate(columns.values())
        for part, expression in zip("cmv", _PARTS[kind], strict=True)
    )
    relation = f"FROM (SELECT {parts} FROM (SELECT {read} FROM {source}))"
    n, expressions = len(columns), _AGGREGATES.values()
    wanted = [each.format(i) for i in range(n) for each in expressions]
    [(n_rows, *values)] = table.rows(f"SELECT count(*), {', '.join(wanted)} {relation}")
    found = {}
    frequent: list[tuple[str, int, Any]] = []
    for i, (name, (kind, *_)) in enumerate(columns.items()):
        own = values[i * len(_AGGREGATES) :][: len(_AGGREGATES)]
        summed = dict(zip(_AGGREGATES, own, strict=True))
        common = summed["common"] or ()
        if summed["approx_unique"] <= _MAX_DISTINCT * summed["count"]:
            frequent += [(name, i, value) for value in common]
        found[name] = {"name": name, "type": kind, **summed, "common": []}
    if frequent:
        counts = [f"count_if(v{i} = ?)" for _, i, _ in frequent]
        [exact] = table.rows(
            f"SELECT {', '.join(counts)} {relation}", [value for *_, value in frequent]
        )
        for (name, _, value), n in zip(frequent, exact, strict=True):
            found[name]["common"].append((value, n))
        for each in found.values():
            each["common"].sort(key=lambda pair: -pair[1])
    return n_rows, found


def cells(column: ColumnSummary) -> dict[str, str]:
    """Return the cells that show a column's summary, by table heading."""
    names = (
        *("count", "n_not_finite", "min", "q50", "max", "avg", "std"),
        "approx_unique",
    )
    common = column["common"][:_N_SHOWN]
    texts = [
        *(printable(column["name"]), column["type"]),
        *(_number(column[name]) for name in names),
        ", ".join(f"{preview(value)} ({n:,})" for value, n in common),
    ]
    return dict(zip(_HEAD, texts, strict=True))


def _number(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:,}" if isinstance(number, int) else f"{number:.5g}"
