"""``fastrec count``: count records."""

from __future__ import annotations

from fastrec.cli.arguments import AsJson, Paths
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.terminal import console, json_line, json_path

__all__ = ["count"]


def count(paths: Paths, *, as_json: AsJson = False) -> None:
    """Count the records of all files, and print one number.

    It uses the indexes of the files, and builds those that are missing.
    """
    files = files_of(paths, joins=False)
    counts, _ = indexed(files)
    n_records = sum(counts[path] for path in files)
    if not as_json:
        console().print(str(n_records))
        return
    listed = [{"path": json_path(path), "n_records": counts[path]} for path in files]
    console().print(json_line({"n_records": n_records, "files": listed}))
