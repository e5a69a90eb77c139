"""``fastrec count``: count records."""

from __future__ import annotations

import numpy as np

import fastrec as fr
from fastrec.cli.arguments import AsJson, Paths, Where
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.sql import matching_rows
from fastrec.cli.terminal import console, json_line, json_path


def count(paths: Paths, *, where: Where = None, as_json: AsJson = False) -> None:
    """Count the records of all files, and print one number.

    It uses the indexes of the files, and builds those that are missing. With --where,
    only the columns of the condition are decoded.
    """
    files = files_of(paths, joins=False)
    counts, _ = indexed(files)
    n_each = [counts[path] for path in files]
    if where is not None:
        numbers = matching_rows(fr.open(files), where)
        bounds = np.searchsorted(numbers, np.cumsum([0, *n_each]))
        n_each = np.diff(bounds).tolist()
    n_records = sum(n_each)
    if not as_json:
        console().print(str(n_records))
        return
    listed = [
        {"path": json_path(path), "n_records": n}
        for path, n in zip(files, n_each, strict=True)
    ]
    console().print(json_line({"n_records": n_records, "files": listed}))
