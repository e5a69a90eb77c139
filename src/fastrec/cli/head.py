"""``fastrec head``: print the first records."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer

from fastrec.cli.arguments import AsJson, Columns, Paths, names_in
from fastrec.cli.inputs import files_of
from fastrec.cli.records import first_records, print_records, record_at
from fastrec.cli.terminal import console, counted
from fastrec.storage.pipes import PipePath

__all__ = ["head"]


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
    as_json: AsJson = False,
) -> None:
    """Print the first records.

    It reads no more of the files than it prints, so it answers at once. With --record,
    the files up to the record are indexed; pipes are read in sequence. Both checksums of each record are verified.
    """
    out = console()
    files = files_of(paths, joins=False, allows_pipes=True)
    names = names_in(columns)
    if record is not None:
        if any(isinstance(path, PipePath) for path in files):
            following = itertools.islice(first_records(files), record, None)
            found = next(following, None)
        else:
            found = record_at(files, record)
        if found is None:
            msg = f"must be less than the number of records, got {record}"
            raise typer.BadParameter(msg, param_hint="--record")
        print_records(out, [found], names, as_json=as_json)
        return
    records = itertools.islice(first_records(files), n)
    n_printed = print_records(out, records, names, as_json=as_json)
    if n and not n_printed and not as_json:
        out.print(f"no records in {counted(len(files), 'file')}")
