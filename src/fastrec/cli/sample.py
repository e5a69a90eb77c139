"""``fastrec sample``: print random records."""

from __future__ import annotations

from typing import Annotated

import typer

from fastrec.cli.arguments import AsJson, Columns, Paths, Seed, Where, names_in
from fastrec.cli.inputs import files_of
from fastrec.cli.records import none_found, print_records, sampled_records
from fastrec.cli.terminal import console


def sample(
    paths: Paths,
    *,
    n: Annotated[
        int, typer.Option("-n", metavar="N", min=0, help="Number of records.")
    ] = 5,
    seed: Seed = 0,
    columns: Columns = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Print random records, in the order of the files.

    All records are equally likely. The same seed gives the same records. It indexes the
    files; compressed files are read once.
    """
    files = files_of(paths, joins=False)
    records = sampled_records(files, n, seed, where)
    n_printed = print_records(console(), records, names_in(columns), as_json=as_json)
    if n and not n_printed and not as_json:
        console().print(none_found(files, where))
