"""Plots of draws, with matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastrec.cli.shuffle_metrics import Draws

__all__ = ["save_plot"]

_MAX_POINTS = 7_000  # per panel; more points overlap
_MAX_TICKS = 12  # show a tick for each label up to this number


def save_plot(
    path: Path, panels: Sequence[tuple[str, Draws]], labels: Draws | None
) -> None:
    """Plot record, and label if given, over draw; one column for each (title, draws).

    The suffix of `path` determines the format.
    """
    n_rows = 1 if labels is None else 2
    size = (1 + 4.2 * len(panels), 0.6 + 2.7 * n_rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(
        n_rows, len(panels), sharex="col", sharey="row", squeeze=False
    )
    for column, (title, draws) in enumerate(panels):
        times = np.arange(0, len(draws), max(1, len(draws) // _MAX_POINTS))
        _scatter(grid[0, column], times, draws[times])
        grid[0, column].set_title(title, fontsize="medium")
        if labels is not None:
            noise = np.random.default_rng(column).uniform(-0.35, 0.35, len(times))
            _scatter(grid[1, column], times, labels[draws[times]] + noise)
        grid[-1, column].set_xlabel("draw")
    grid[0, 0].set_ylabel("record")
    if labels is not None:
        grid[1, 0].set_ylabel("label")
        if len(kinds := np.unique(labels)) <= _MAX_TICKS:
            grid[1, 0].set_yticks(kinds)
    # Omit the version of matplotlib, so that the same command writes the same file.
    is_png = path.suffix.lower() == ".png"
    figure.savefig(path, dpi=100, metadata={"Software": None} if is_png else None)


def _scatter(axes: Axes, x: npt.NDArray[np.int64], y: npt.NDArray[np.generic]) -> None:
    axes.plot(x, y, ",", color="tab:blue", rasterized=True)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=5)
    axes.margins(0.01)
