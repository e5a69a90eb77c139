"""``fastrec shuffle-report``: how random an order is, in figures and in a picture.

`mixing` computes the figures, `picture` plots. A draw is a record number; its index is
the time at which a training loop gets that record.
"""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt
import typer

import fastrec as fr
from fastrec.cli.arguments import OptionalPaths, Seed
from fastrec.cli.index import files_of, indexed
from fastrec.cli.mixing import Draws, label_mix, mixing
from fastrec.cli.terminal import Bar, console, counted, print_table, printable
from fastrec.options import extra
from fastrec.storage.parallel import Progress

__all__ = ["as_shuffle", "loader_draws", "shuffle_report"]

Shuffle: TypeAlias = "bool | fr.Blocks | fr.Window"

_N_MADE_UP = 70_000
_N_MADE_UP_LABELS = 10
_ROWS_AT_ONCE = 4096
_BATCH_SIZE = 256  # Blocks sorts the rows of a batch by lane
_PLOT_SUFFIXES = (".png", ".svg", ".pdf")
_ORDER = re.compile(r"true|false|blocks(?::([^,]+)(?:,([\d_]+))?)?|window:([\d_]+)")


def shuffle_report(
    paths: OptionalPaths = None,
    *,
    shuffle: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORDER",
            help="true, false, blocks, blocks:4MB, blocks:4MB,64 or window:10000, as "
            "shuffle= of a loader has it. Give it several times to compare.  "
            "[default: window:10000 and true]",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="FEATURE",
            help="An integer feature of each record: report how evenly its values come.",
        ),
    ] = None,
    seed: Seed = 0,
    epoch: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Which epoch.")] = 0,
    window: Annotated[
        int,
        typer.Option(min=1, help="The number of draws in which labels are counted."),
    ] = 4000,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Plot record and label over draw into a .png, .svg or .pdf file. Needs "
            "matplotlib, from the extra named plot.",
        ),
    ] = None,
) -> None:
    """Report how random the order of an epoch is, compared with that of a window.

    It reads only the labels, because the order of a loader is computed. Without PATH, the
    report is on 70,000 made-up records, sorted by label in ten classes.
    """
    names = shuffle or ["window:10000", "true"]
    try:
        orders = [as_shuffle(name) for name in names]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--shuffle") from error
    if plot is not None:
        _check_plot(plot)
    out = console()
    with _opened(paths) as ds:
        n_records, n_files = len(ds), counted(len(ds.files), "file")
        if not n_records:
            msg = f"there is no record in {n_files}"
            raise fr.Error(msg)
        what = f"in {n_files}" if paths else "made up, sorted by label"
        if not paths:
            label = label or "label"
        labels = None if label is None else _labels(ds, label)
        with Bar("drawing") as bar:
            made = [
                loader_draws(ds, order, seed=seed, epoch=epoch, progress=bar)
                for order in orders
            ]
    title = f"{counted(n_records, 'record')} {what}; seed {seed}, epoch {epoch}"
    out.print(title, style="bold")
    lines = _lines(made, n_records, labels, min(window, n_records))
    print_table(out, ["", *names, "at random"], lines)
    if plot is not None:
        from fastrec.cli.picture import draw_picture  # needs matplotlib

        _, *correlations, _ = lines[0]
        titles = (
            f"--shuffle {name}\nrank correlation {correlation}"
            for name, correlation in zip(names, correlations, strict=True)
        )
        draw_picture(plot, list(zip(titles, made, strict=True)), labels)
        out.print(f"wrote {printable(plot)}")


def as_shuffle(text: str) -> Shuffle:
    """Return the order that an argument of the command names."""
    name = text.strip().lower()
    match = _ORDER.fullmatch(name)
    if match is None:
        msg = (
            "the order must be true, false, blocks, blocks:SIZE, blocks:SIZE,LANES (such "
            f"as blocks:4MB,64) or window:RECORDS, got {text!r}"
        )
        raise ValueError(msg)
    size, lanes, n_records = match.groups()
    if n_records:
        return fr.Window(int(n_records))
    if size:
        return fr.Blocks(size, int(lanes)) if lanes else fr.Blocks(size)
    return fr.Blocks() if name == "blocks" else name == "true"


def _check_plot(path: Path) -> None:
    """Raise the errors of plotting before the work."""
    if path.suffix.lower() not in _PLOT_SUFFIXES:
        msg = f"the file must end in {', '.join(_PLOT_SUFFIXES)}, got {path}"
        raise typer.BadParameter(msg, param_hint="--plot")
    with extra("plot", "--plot"):
        import matplotlib as _  # noqa: F401


# What is reported on.


@contextlib.contextmanager
def _opened(paths: list[str] | None) -> Iterator[fr.Dataset]:
    """Open files, or made-up records that are sorted by label."""
    if paths:
        files = files_of(paths, joins=True)
        indexed(files)  # behind a progress bar, because this may take a while
        yield fr.open(files)
        return
    with tempfile.TemporaryDirectory(prefix="fastrec-") as folder:
        labels = np.arange(_N_MADE_UP) * _N_MADE_UP_LABELS // _N_MADE_UP
        files = fr.write(Path(folder) / "sorted.tfrecord", {"label": labels})
        # The index of a temporary file stays out of the cache.
        yield fr.open(files, index_dir=folder)


def _labels(ds: fr.Dataset, name: str) -> npt.NDArray[np.int64]:
    """Return the integer `name` of every record."""
    if name not in ds.schema:
        there = ", ".join(map(repr, ds.schema))
        msg = f"no feature {name!r}; there are {there}"
        raise fr.SchemaError(msg)
    spec = ds.schema[name]
    if not (
        isinstance(spec, fr.FixedLen)
        and spec.shape == ()
        and np.dtype(spec.dtype).kind in "iu"
    ):
        msg = f"a label must be one integer for each record, but {name!r} is {spec!r}"
        raise fr.SchemaError(msg)
    found = np.empty(len(ds), np.int64)
    n_read = 0
    loader = ds.select_columns([name]).loader(_ROWS_AT_ONCE, rank=0, world_size=1)
    with Bar("reading labels") as bar:
        for batch in loader:
            column = np.asarray(batch[name])
            found[n_read : n_read + len(column)] = column
            n_read += len(column)
            bar(n_read, len(found))
    return found


def loader_draws(
    ds: fr.Dataset,
    shuffle: Shuffle,
    *,
    seed: int,
    epoch: int,
    progress: Progress = lambda _done, _total: None,
) -> Draws:
    """Return the draws of one epoch, from the plan of a loader of `ds`."""
    loader = ds.loader(_BATCH_SIZE, shuffle=shuffle, seed=seed, rank=0, world_size=1)
    plan = loader._plan(epoch)
    steps = [np.empty(0, np.int64)]
    for step in range(plan.n_steps):
        steps.append(plan.rows(step)[1])
        if step % 1024 == 0:
            progress(step, plan.n_steps)
    return np.concatenate(steps)


# What is printed: a line has a name, a value for each order, and that of a random one.


def _lines(
    made: list[Draws],
    n_records: int,
    labels: npt.NDArray[np.int64] | None,
    window: int,
) -> list[list[str]]:
    deviation = f" +- {1 / math.sqrt(n_records - 1):.3f}" if n_records > 1 else ""
    figures = [mixing(draws, n_records) for draws in made]
    names = ["rank correlation of draw and record"]
    names += ["records drawn more than once", "records never drawn"]
    columns = [
        [_text(each.rank_correlation, 3), f"{each.n_repeated:,}", f"{each.n_lost:,}"]
        for each in figures
    ]
    at_random = [f"0{deviation}", "0", "0"]
    if labels is not None:
        mixes = [label_mix(draws, labels, window) for draws in made]
        first = mixes[0]
        names += [
            f"labels in the first {window:,} draws, of {first.n_labels:,}",
            "draws before the last label is seen",
            f"worst |z| of a label in {window:,} draws",
        ]
        for column, mix in zip(columns, mixes, strict=True):
            last = "never seen" if mix.last_draw < 0 else f"{mix.last_draw:,}"
            column += [f"{mix.n_first:,}", last, _text(mix.worst_z, 1)]
        usual = f"below {first.usual_z:.1f}" if first.n_counts else ""
        at_random += [f"{first.expected_first:,.1f}", "", usual]
    return [list(line) for line in zip(names, *columns, at_random, strict=True)]


def _text(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
