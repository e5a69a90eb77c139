"""``fastrec shuffle-report``: measure and plot how random an order is.

A draw is a record number; its index is the time at which a training loop gets the record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import typer

import fastrec as fr
from fastrec.cli.arguments import AsJson, OptionalPaths, Seed
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.shuffle_metrics import (
    Draws,
    LabelMetrics,
    RecordMetrics,
    label_metrics,
    record_metrics,
)
from fastrec.cli.terminal import (
    Bar,
    console,
    counted,
    json_line,
    print_table,
    printable,
)
from fastrec.options import extra
from fastrec.storage.parallel import Progress
from fastrec.storage.urls import redacted

__all__ = ["as_shuffle", "loader_draws", "shuffle_report"]

Shuffle: TypeAlias = "bool | fr.Blocks | fr.Window"

_N_SYNTHETIC = 70_000
_N_SYNTHETIC_LABELS = 10
_ROWS_AT_ONCE = 4096
_BATCH_SIZE = 256  # matters for Blocks, which sorts the rows of a batch by lane
_PLOT_SUFFIXES = (".png", ".svg", ".pdf")
_ORDER = re.compile(r"true|false|blocks(?::([^,]+)(?:,([\d_]+))?)?|window:([\d_]+)")


def shuffle_report(
    paths: OptionalPaths = None,
    *,
    shuffle: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORDER",
            help="The shuffle of the loader: true, false, blocks, blocks:4MB, "
            "blocks:4MB,64 or window:10000. Repeat the option to compare.  "
            "[default: window:10000 and true]",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="FEATURE",
            help="An integer feature; report how evenly its values are spread.",
        ),
    ] = None,
    seed: Seed = 0,
    epoch: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="The epoch to report on.")
    ] = 0,
    window: Annotated[
        int,
        typer.Option(min=1, help="The number of draws in which labels are counted."),
    ] = 4000,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Plot record and label over draw to a .png, .svg or .pdf file. Requires "
            "matplotlib, from the extra plot.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report how random the order of an epoch is, next to that of a shuffle buffer.

    It reads only the labels, because the order of a loader is computed. Without PATH, it
    uses 70,000 synthetic records, sorted by label in ten classes.
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
            msg = f"no records in {n_files}"
            raise fr.Error(msg)
        source = f"in {n_files}" if paths else "(synthetic, sorted by label)"
        if not paths:
            label = label or "label"
        labels = None if label is None else _labels(ds, label)
        with Bar("drawing") as bar:
            draws = [
                loader_draws(ds, order, seed=seed, epoch=epoch, progress=bar)
                for order in orders
            ]
    window = min(window, n_records)
    metrics = [
        _Metrics(
            record_metrics(each, n_records),
            None if labels is None else label_metrics(each, labels, window),
        )
        for each in draws
    ]
    lines = _lines(metrics, n_records, window)
    if as_json:
        fields: dict[str, object] = {"n_records": n_records, "seed": seed}
        fields |= {"epoch": epoch, "window": window}
        fields["orders"] = [
            {"shuffle": name} | each.fields()
            for name, each in zip(names, metrics, strict=True)
        ]
        out.print(json_line(fields))
    else:
        title = f"{counted(n_records, 'record')} {source}; seed {seed}, epoch {epoch}"
        out.print(title, style="bold")
        print_table(out, ["", *names, "random order"], lines)
    if plot is not None:
        from fastrec.cli.shuffle_plot import save_plot  # needs matplotlib

        _, *correlations, _ = lines[0]
        titles = (
            f"--shuffle {name}\nrank correlation {correlation}"
            for name, correlation in zip(names, correlations, strict=True)
        )
        save_plot(plot, list(zip(titles, draws, strict=True)), labels)
        if not as_json:
            out.print(f"wrote {printable(plot)}")


def as_shuffle(text: str) -> Shuffle:
    """Parse an order of the command line."""
    name = text.strip().lower()
    match = _ORDER.fullmatch(name)
    if match is None:
        msg = (
            "order must be true, false, blocks, blocks:SIZE, blocks:SIZE,LANES (such as "
            f"blocks:4MB,64) or window:RECORDS, got {text!r}"
        )
        raise ValueError(msg)
    size, lanes, n_records = match.groups()
    if n_records:
        return fr.Window(int(n_records))
    if size:
        return fr.Blocks(size, int(lanes)) if lanes else fr.Blocks(size)
    return fr.Blocks() if name == "blocks" else name == "true"


def _check_plot(path: Path) -> None:
    """Raise errors about the plot before reading the data."""
    if path.suffix.lower() not in _PLOT_SUFFIXES:
        msg = (
            f"must end in one of {', '.join(_PLOT_SUFFIXES)}, got {redacted(str(path))}"
        )
        raise typer.BadParameter(msg, param_hint="--plot")
    with extra("plot", "--plot"):
        import matplotlib as _  # noqa: F401


# The data.


@contextlib.contextmanager
def _opened(paths: list[str] | None) -> Iterator[fr.Dataset]:
    """Open files, or synthetic records sorted by label."""
    if paths:
        files = files_of(paths, joins=True)
        indexed(files)  # with a progress bar
        yield fr.open(files)
        return
    with tempfile.TemporaryDirectory(prefix="fastrec-") as folder:
        labels = np.arange(_N_SYNTHETIC) * _N_SYNTHETIC_LABELS // _N_SYNTHETIC
        files = fr.write(Path(folder) / "sorted.tfrecord", {"label": labels})
        # Keep the index of a temporary file out of the user's cache.
        yield fr.open(files, index_dir=folder)


def _labels(ds: fr.Dataset, name: str) -> npt.NDArray[np.int64]:
    """Return the integer feature `name` of every record."""
    if name not in ds.schema:
        features = ", ".join(map(repr, ds.schema))
        msg = f"no feature {name!r}; the records have {features}"
        raise fr.SchemaError(msg)
    spec = ds.schema[name]
    if not (
        isinstance(spec, fr.FixedLen)
        and spec.shape == ()
        and np.dtype(spec.dtype).kind in "iu"
    ):
        msg = f"a label must be one integer per record, got {name!r} with {spec!r}"
        raise fr.SchemaError(msg)
    labels = np.empty(len(ds), np.int64)
    n_read = 0
    loader = ds.select_columns([name]).loader(_ROWS_AT_ONCE, rank=0, world_size=1)
    with Bar("reading labels") as bar:
        for batch in loader:
            column = np.asarray(batch[name])
            labels[n_read : n_read + len(column)] = column
            n_read += len(column)
            bar(n_read, len(labels))
    return labels


def loader_draws(
    ds: fr.Dataset,
    shuffle: Shuffle,
    *,
    seed: int,
    epoch: int,
    progress: Progress = lambda _done, _total: None,
) -> Draws:
    """Return the draws of one epoch, computed by the plan of a loader."""
    loader = ds.loader(_BATCH_SIZE, shuffle=shuffle, seed=seed, rank=0, world_size=1)
    plan = loader._plan(epoch)
    steps = [np.empty(0, np.int64)]
    for step in range(plan.n_steps):
        steps.append(plan.rows(step)[1])
        if step % 1024 == 0:
            progress(step, plan.n_steps)
    return np.concatenate(steps)


# Printing.


class _Metrics(NamedTuple):
    """The metrics of one order; `labels` is None without a label."""

    records: RecordMetrics
    labels: LabelMetrics | None

    def fields(self) -> dict[str, object]:
        """Return all metrics as fields of a JSON object."""
        labels = {} if self.labels is None else dataclasses.asdict(self.labels)
        return dataclasses.asdict(self.records) | labels


def _lines(metrics: list[_Metrics], n_records: int, window: int) -> list[list[str]]:
    """Return table lines: a name, a value for each order, and the random expectation."""
    deviation = f" +- {1 / math.sqrt(n_records - 1):.3f}" if n_records > 1 else ""
    names = ["rank correlation of draw and record"]
    names += ["records drawn more than once", "records never drawn"]
    columns = [
        [_text(each.rank_correlation, 3), f"{each.n_repeated:,}", f"{each.n_lost:,}"]
        for each, _ in metrics
    ]
    at_random = [f"0{deviation}", "0", "0"]
    of_labels = [each.labels for each in metrics if each.labels is not None]
    if of_labels:
        first = of_labels[0]
        names += [
            f"labels in the first {window:,} draws, of {first.n_labels:,}",
            "draws before the last label is seen",
            f"worst |z| of a label in {window:,} draws",
        ]
        for column, each in zip(columns, of_labels, strict=True):
            last = "never seen" if each.last_draw < 0 else f"{each.last_draw:,}"
            column += [f"{each.n_first:,}", last, _text(each.worst_z, 1)]
        usual = f"below {first.usual_z:.1f}" if first.n_counts else ""
        at_random += [f"{first.expected_first:,.1f}", "", usual]
    return [list(line) for line in zip(names, *columns, at_random, strict=True)]


def _text(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
