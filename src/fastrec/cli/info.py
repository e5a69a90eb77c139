"""``fastrec info``: the versions in use, and what files contain."""

from __future__ import annotations

import importlib.metadata
import platform

import fastrec as fr
from fastrec import _core
from fastrec.cli.arguments import OptionalPaths
from fastrec.cli.index import indexed
from fastrec.cli.terminal import console, counted, size
from fastrec.options import default_num_threads

__all__ = ["info"]

_OPTIONAL = (
    "isal",
    "pyarrow",
    "polars",
    "torch",
    "jax",
    "keras",
    "grain",
    "tensorflow",
)


def info(paths: OptionalPaths = None) -> None:
    """Show the versions in use and, with PATH, the size and schema of the files.

    It prints no record, so its output can be pasted into a bug report.
    """
    out = console()
    out.print(", ".join(_versions()))
    out.print(
        f"{platform.platform()}, {counted(default_num_threads(), 'usable CPU')}, "
        f"instruction set {_core.isas()[0]}"
    )
    if not paths:
        return
    indexed(paths)  # behind a progress bar, because this may take a while
    ds = fr.open(paths)
    n_files = counted(len(ds.files), "file")
    kind = "compressed, " if ds.is_streamed else ""
    out.print(f"{counted(len(ds), 'record')} in {n_files}, {kind}{size(ds.nbytes)}")
    out.print(repr(ds.schema))


def _versions() -> list[str]:
    """Return name and version of Python and of each installed package that matters."""
    found = [f"fastrec {fr.__version__}", f"Python {platform.python_version()}"]
    for name in ("numpy", *_OPTIONAL):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
