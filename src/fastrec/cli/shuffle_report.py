"""``fastrec shuffle-report``: how random an order is, in figures and in a picture.

`draws` returns which record comes when, `mixing` computes the figures, `picture` plots.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

import fastrec as fr
from fastrec.cli.draws import Shuffle, as_shuffle, loader_draws, title
from fastrec.cli.index import files_of, indexed
from fastrec.cli.mixing import LabelMix, Mixing, label_mix, mixing
from fastrec.cli.terminal import Bar, console, counted, print_table, printable

__all__ = ["shuffle_report"]

_N_MADE_UP = 70_000
_N_MADE_UP_LABELS = 10
_ORDERS = ("window:10000", "true")
_ROWS_AT_ONCE = 4096
_PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def shuffle_report(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Your files, directories, or globs in quotes. Without them, the report "
            "is on 70,000 made-up records, sorted by label in ten classes.",
        ),
    ] = None,
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
    seed: Annotated[
        int, typer.Option(min=0, max=2**64 - 1, help="The loader's seed.")
    ] = 0,
    epoch: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Which epoch.")] = 0,
    window: Annotated[
        int, typer.Option(min=1, help="How many draws labels are counted in.")
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

    It reads nothing but the labels, because the order of a loader is arithmetic.
    """
    names = shuffle or list(_ORDERS)
    orders = [_checked_order(name) for name in names]
    if plot is not None:
        _check_plot(plot)
    out = console()
    with _opened(paths) as ds:
        n_records = len(ds)
        if not n_records:
            msg = f"there is no record in {counted(len(ds.files), 'file')}"
            raise fr.Error(msg)
        what = f"in {counted(len(ds.files), 'file')}"
        if not paths:
            label, what = label or "label", "made up, sorted by label"
        labels = None if label is None else _labels(ds, label)
        with Bar("drawing") as bar:
            made = [
                loader_draws(ds, order, seed=seed, epoch=epoch, progress=bar)
                for order in orders
            ]
    out.print(
        f"{counted(n_records, 'record')} {what}; seed {seed}, epoch {epoch}",
        style="bold",
    )
    figures = [mixing(draws, n_records) for draws in made]
    lines = _lines(figures, n_records)
    if labels is not None:
        mixes = [label_mix(draws, labels, window) for draws in made]
        lines += _label_lines(mixes, min(window, n_records))
    print_table(out, ["", *names, "at random"], lines)
    if plot is not None:
        from fastrec.cli.picture import draw_picture  # needs matplotlib

        titles = [
            f"{title(order)}\nrank correlation {_text(found.rank_correlation, 3)}"
            for order, found in zip(orders, figures, strict=True)
        ]
        draw_picture(plot, list(zip(titles, made, strict=True)), labels)
        out.print(f"wrote {printable(plot)}")


def _checked_order(text: str) -> Shuffle:
    try:
        return as_shuffle(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--shuffle") from error


def _check_plot(path: Path) -> None:
    """Refuse early what would fail after all the work."""
    if path.suffix.lower() not in _PLOT_SUFFIXES:
        msg = f"{path} does not end in {', '.join(_PLOT_SUFFIXES)}"
        raise typer.BadParameter(msg, param_hint="--plot")
    try:
        import matplotlib as _  # noqa: F401
    except ModuleNotFoundError as error:
        console(stderr=True).print(
            f"error: --plot needs {error.name}, which is not installed: "
            'pip install "fastrec-io[plot]"'
        )
        raise typer.Exit(2) from None


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
    loader = ds.columns([name]).loader(_ROWS_AT_ONCE, rank=0, world_size=1)
    with Bar("reading labels") as bar:
        for batch in loader:
            column = np.asarray(batch[name])
            found[n_read : n_read + len(column)] = column
            n_read += len(column)
            bar(n_read, len(found))
    return found


# What is printed: a line has a name, a value for each order, and that of a random one.


def _lines(figures: Sequence[Mixing], n_records: int) -> list[list[str]]:
    deviation = f" +- {1 / math.sqrt(n_records - 1):.3f}" if n_records > 1 else ""
    return [
        [
            "rank correlation of draw and record",
            *(_text(found.rank_correlation, 3) for found in figures),
            f"0{deviation}",
        ],
        [
            "records drawn more than once",
            *(f"{found.n_repeated:,}" for found in figures),
            "0",
        ],
        ["records never drawn", *(f"{found.n_lost:,}" for found in figures), "0"],
    ]


def _label_lines(mixes: Sequence[LabelMix], window: int) -> list[list[str]]:
    first = mixes[0]
    last = [
        "never seen" if mix.last_draw < 0 else f"{mix.last_draw:,}" for mix in mixes
    ]
    return [
        [
            f"labels in the first {window:,} draws, of {first.n_labels:,}",
            *(f"{mix.n_first:,}" for mix in mixes),
            f"{first.expected_first:,.1f}",
        ],
        ["draws before the last label is seen", *last, ""],
        [
            f"worst |z| of a label in {window:,} draws",
            *(_text(mix.worst_z, 1) for mix in mixes),
            f"below {first.usual_z:.1f}" if first.n_counts else "",
        ],
    ]


def _text(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
