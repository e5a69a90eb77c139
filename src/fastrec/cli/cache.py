"""``fastrec cache``: keep decoded rows in a directory ahead of time."""

from __future__ import annotations

import runpy
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import echo

import fastrec as fr
from fastrec.cli.arguments import AsJson, Columns, Paths, names_in, out_option
from fastrec.cli.files import files_of, indexed
from fastrec.cli.terminal import (
    counted,
    print_json,
    printable,
    progress_bar,
    rate,
    size,
)
from fastrec.kept.description import descriptions

_BATCH_SIZE = 64


def cache(
    paths: Paths,
    *,
    out: Annotated[
        Path, out_option("Directory for the rows; pass it to Dataset.cache.", "DIR")
    ],
    features: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Python file that defines features, the specs for fastrec.open; start "
            "from the output of fastrec schema.",
        ),
    ],
    columns: Columns = None,
    as_json: AsJson = False,
) -> None:
    """Decode all rows once and keep them in a directory, for Dataset.cache.

    ``fastrec.open(PATH, features=features).cache(DIR)`` then copies the rows instead of
    decoding them. Rows that the directory has are read and verified. Ctrl-C keeps the
    rows so far, and the same command continues.
    """
    options = _options(features)
    files = files_of(paths, joins=True)
    indexed(files)
    ds = fr.open(files, **options)
    n_rows = len(ds)
    start = time.perf_counter()
    try:
        ds = ds.cache(out, columns=names_in(columns))
        with (
            progress_bar("decoding", "rows") as bar,
            ds.loader(_BATCH_SIZE, rank=0, world_size=1) as loader,
        ):
            for _ in loader:
                bar(loader.stats.n_records, n_rows)
    except KeyboardInterrupt:
        note = f"kept {_kept(out, n_rows)}; run the command again to continue"
        raise KeyboardInterrupt(note) from None
    except KeyError as error:  # a column
        raise fr.Error(error.args[0]) from error
    seconds = time.perf_counter() - start
    n_decoded = n_rows - loader.stats.n_kept
    found = descriptions(out)
    if sum(part["n_kept"] for part in found) < n_rows:
        raise fr.Error(f"{printable(out)} keeps only {_kept(out, n_rows)}")
    if as_json:
        fields = {"n_decoded": n_decoded, "seconds": seconds}
        print_json({"directories": found, **fields})
        return
    echo(f"{printable(out)} keeps {_kept(out, n_rows)}")
    if n_decoded:
        speed = rate(n_decoded / seconds)
        echo(f"decoded {n_decoded:,} in {seconds:.2f} s ({speed} rows/s)")
    else:
        echo("nothing to do: all rows were kept")


def _options(path: Path) -> dict[str, Any]:
    """Return the arguments for `fastrec.open` that a Python file defines."""
    names = runpy.run_path(str(path))
    if "features" in names:
        return {"features": names["features"]}
    if "options" in names:  # of SequenceExamples, as fastrec schema prints
        return dict(names["options"])
    raise typer.BadParameter(
        f"must define features, as the output of fastrec schema does, got {path}",
        param_hint="--features",
    )


def _kept(directory: Path, n_rows: int) -> str:
    """Describe how many of `n_rows` rows a directory keeps, and their size."""
    parts = descriptions(directory)
    n_kept, n_bytes = (sum(part[k] for part in parts) for k in ("n_kept", "n_bytes"))
    of_all = "all " if n_kept == n_rows else f"{n_kept:,} of "
    return f"{of_all}{counted(n_rows, 'row')}, {size(n_bytes)} on disk"
