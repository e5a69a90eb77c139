"""``fastrec info``: what files contain."""

from __future__ import annotations

import fastrec as fr
from fastrec.cli.arguments import Paths
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.terminal import console, counted, size

__all__ = ["info"]


def info(paths: Paths) -> None:
    """Show the size and schema of files.

    It prints no record, so its output can be pasted into a bug report.
    """
    out = console()
    files = files_of(paths, joins=False)
    indexed(files)  # behind a progress bar, because this may take a while
    ds = fr.open(files)
    n_files = counted(len(ds.files), "file")
    kind = "compressed, " if ds.is_streamed else ""
    out.print(f"{counted(len(ds), 'record')} in {n_files}, {kind}{size(ds.nbytes)}")
    out.print(repr(ds.schema))
