"""``fastrec grep``: find the records for which an expression is true."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import typer

import fastrec as fr
from fastrec.arrays.batch import n_rows
from fastrec.cli.arguments import AsJson, Columns, Paths, names_in
from fastrec.cli.expression import Expression, ExpressionError
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.records import PlacedRecord, print_records
from fastrec.cli.schema import opened, with_varying_lengths
from fastrec.cli.terminal import (
    Bar,
    console,
    counted,
    json_line,
    printable,
    when_interrupted,
)

__all__ = ["grep"]

_RECORD = "\0record"  # the column of whole records


def grep(
    paths: Paths,
    expression: Annotated[
        str,
        typer.Argument(
            metavar="EXPRESSION",
            help="Such as 'image/class/text == \"tench\" and label < 3'.",
            show_default=False,
        ),
    ],
    *,
    max_count: Annotated[
        int | None,
        typer.Option(
            *("--max-count", "-n"),
            metavar="N",
            min=1,
            help="Stop after N records.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", help="Print only the number of records.")
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            *("--out", "-o"),
            metavar="OUT",
            help="Write the records unchanged to this file instead of printing them.",
            show_default=False,
        ),
    ] = None,
    columns: Columns = None,
    as_json: AsJson = False,
) -> None:
    """Print the records for which an expression over columns is true.

    An expression has the syntax of Python: == != < <= > >=, in, and, or, not, + - * / //
    %, numbers, "texts", lists, column names, and len(column). Write a name with other
    characters than letters, digits, "_", "/", "." and "-" in backquotes. For a feature of
    several values, a comparison is true if it is true for any of them. The exit status is 1
    if there is no such record.
    """
    files = files_of(paths, joins=False)
    names = names_in(columns)
    counts, _ = indexed(files)  # behind a progress bar
    ds = opened(files)
    try:
        wanted = Expression(
            expression, [name for name in ds.schema if isinstance(name, str)]
        )
    except ExpressionError as error:
        raise typer.BadParameter(str(error), param_hint="EXPRESSION") from None
    found = itertools.islice(_found(ds, files, counts, wanted, not count), max_count)
    screen = console()
    if out is not None:
        n_found = _write(found, out)
        where = f" to {printable(out)}" if n_found else ""
        screen.print(f"wrote {counted(n_found, 'record')}{where}")
    elif count:
        n_found = sum(1 for _ in found)
        screen.print(json_line({"n_records": n_found}) if as_json else str(n_found))
    else:
        n_found = print_records(screen, found, names, as_json=as_json)
    if not n_found:
        raise typer.Exit(1)


def _found(
    ds: fr.Dataset,
    files: Sequence[str],
    counts: Mapping[str, int],
    wanted: Expression,
    with_records: bool,
) -> Iterator[PlacedRecord]:
    """Yield the records for which the expression is true, in order."""
    places = ((path, number) for path in files for number in range(counts[path]))
    read = with_varying_lengths(
        ds.select_columns(wanted.columns), record=_RECORD if with_records else ""
    )
    with Bar("searching") as bar:
        n_read, n_total = 0, sum(counts[path] for path in files)
        for batch in read._table_loader(None):
            n_here = n_rows(batch)
            try:
                mask = wanted.mask(batch, n_here)
            except ExpressionError as error:
                raise typer.BadParameter(str(error), param_hint="EXPRESSION") from None
            here = list(itertools.islice(places, n_here))
            records: Any = batch.get(_RECORD)
            for i in np.flatnonzero(mask).tolist():
                path, number = here[i]
                data = records[i] if with_records else b""
                yield PlacedRecord(path, number, data)
            n_read += n_here
            bar(n_read, n_total)


def _write(found: Iterator[PlacedRecord], out: str) -> int:
    """Write records to a new file, unless there are none; return their number."""
    with when_interrupted("nothing was written"), fr.Writer(out) as writer:
        for record in found:
            writer.write_record(record.data)
        if not (n_found := writer.n_records):
            writer.discard()
        return n_found
