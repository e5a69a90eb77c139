"""``fastrec head``: print the first records."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Annotated

import numpy as np
import typer

import fastrec as fr
from fastrec.cli.arguments import AsJson, Columns, Paths, Where, names_in
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.records import (
    PlacedRecord,
    first_records,
    none_found,
    print_records,
    records_at,
)
from fastrec.cli.sql import matching_rows
from fastrec.cli.terminal import console
from fastrec.storage.pipes import PipePath


def head(
    paths: Paths,
    *,
    n: Annotated[
        int, typer.Option("-n", metavar="N", min=0, help="Number of records.")
    ] = 5,
    record: Annotated[
        int | None,
        typer.Option(
            "--record",
            metavar="K",
            min=0,
            help="Print only this record, counted from 0 over all files.",
            show_default=False,
        ),
    ] = None,
    columns: Columns = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Print the first records.

    It reads no more of the files than it prints, so it answers at once. With --record,
    the files up to the record are indexed, but pipes are read in sequence. With --where,
    all files are indexed, and the columns of the condition are decoded first.
    """
    if record is not None and where is not None:
        raise typer.BadParameter("--record and --where exclude each other")
    out = console()
    files = files_of(paths, joins=False, allows_pipes=where is None)
    names = names_in(columns)
    records: Iterable[PlacedRecord]
    if where is not None:
        indexed(files)  # behind a progress bar
        records = records_at(files, matching_rows(fr.open(files), where, n))
    elif record is None:
        records = itertools.islice(first_records(files), n)
    elif any(isinstance(path, PipePath) for path in files):
        records = itertools.islice(first_records(files), record, record + 1)
    else:
        records = records_at(files, np.array([record]))
    n_printed = print_records(out, records, names, as_json=as_json)
    if record is not None and not n_printed:
        raise typer.BadParameter(
            f"must be less than the number of records, got {record}",
            param_hint="--record",
        )
    if n and not n_printed and not as_json:
        out.print(none_found(files, where))
