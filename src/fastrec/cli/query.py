"""``fastrec query``: run SQL over the records, with DuckDB."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import echo

from fastrec.cli.arguments import AsJson, Overwrite, Paths, out_option
from fastrec.cli.files import local_output, opened, reports_interrupt
from fastrec.cli.preview import preview
from fastrec.cli.sql import Table
from fastrec.cli.terminal import counted, json_line, print_table, printable
from fastrec.storage.atomic import replacement

_MAX_SHOWN = 1000  # rows of a table
_MAX_CHARACTERS = 50  # of a string in a cell
_FORMATS = {
    ".parquet": "FORMAT parquet",
    ".csv": "FORMAT csv",
    ".tsv": "FORMAT csv, DELIMITER '\t'",
    ".jsonl": "",  # DuckDB would write NaN, which is not JSON
}


def query(
    paths: Paths,
    sql: Annotated[
        str,
        typer.Argument(
            metavar="SQL",
            help="A DuckDB query over the table records, such as "
            "'SELECT label, count(*) FROM records GROUP BY label'.",
        ),
    ],
    *,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    out: Annotated[
        str | None,
        out_option("Write the rows to a .parquet, .csv, .tsv or .jsonl file."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Run an SQL query over the table "records", and print the rows.

    Each feature is a column of numbers, VARCHAR (UTF-8 text) or BLOB, or of lists of
    these. Put column names in double quotes if they contain other characters than
    letters, digits and "_". Put text in single quotes. Unused columns are not decoded.
    """
    if as_json + as_csv + (out is not None) > 1:
        raise typer.BadParameter("use only one of --json, --csv and --out")
    table = Table(opened(paths))
    if out is not None:
        with reports_interrupt():
            n_rows = _write(table, sql, out, overwrite=overwrite)
        echo(f"wrote {counted(n_rows, 'row')} to {printable(out)}")
    elif as_csv:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "rows.csv")
            _write(table, sql, str(path), overwrite=False)
            with path.open(encoding="utf-8", newline="") as file:
                shutil.copyfileobj(file, sys.stdout)
    elif as_json:
        for line in _json_lines(table, sql):
            echo(line)
    else:
        rows = table.rows(sql)
        shown = [list(map(_cell, row)) for row in itertools.islice(rows, _MAX_SHOWN)]
        print_table([printable(name) for name, _ in table.head], shown)
        if next(rows, None) is not None:
            echo("... and more rows; use --csv, --json or --out for all")


def _write(table: Table, sql: str, out: str, *, overwrite: bool) -> int:
    """Write the rows of a query to a file, and return the number of rows."""
    path = local_output(out, _FORMATS, overwrite=overwrite)
    form = _FORMATS[path.suffix.lower()]
    with replacement(path) as temporary:
        if not form:
            with temporary.open("w", encoding="utf-8") as file:
                lines = _json_lines(table, sql)
                return sum(1 for line in lines if file.write(f"{line}\n"))
        target = str(temporary).replace("'", "''")
        inner = sql.strip().rstrip(";")
        [(n_rows,)] = table.rows(f"COPY (\n{inner}\n) TO '{target}' ({form})")
    return int(n_rows)


def _json_lines(table: Table, sql: str) -> Iterator[str]:
    for row in table.rows(sql):
        pairs = zip(table.head, row, strict=True)
        yield json_line({name: _plain(value, kind) for (name, kind), value in pairs})


def _plain(value: Any, kind: str) -> Any:
    """Convert a value of the DuckDB type `kind` to one that `json_line` supports."""
    if isinstance(value, (list, tuple)):
        return [_plain(item, kind) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item, "") for name, item in value.items()}
    if isinstance(value, float) and kind.startswith("FLOAT"):
        return np.float32(value)  # prints fewer digits
    if isinstance(value, Decimal):
        return float(value)
    is_known = value is None or isinstance(value, (bool, int, float, str, bytes))
    return value if is_known else str(value)


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (float, bytes, list, tuple)):
        return preview(value)
    text = printable(value)
    return f"{text[:_MAX_CHARACTERS]}..." if len(text) > _MAX_CHARACTERS else text
