"""Pictures of draws. Needs matplotlib, from the extra ``plot``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastrec.cli.mixing import Draws

__all__ = ["draw_picture"]

_MAX_POINTS = 7_000  # of a panel: more hide each other
_MAX_TICKS = 12  # labels that are named one by one


def draw_picture(
    path: Path, panels: Sequence[tuple[str, Draws]], labels: Draws | None
) -> None:
    """Plot record number and, if there are labels, label over draw, a column per panel.

    A panel is a title and its draws. The suffix of `path` names the format.
    """
    n_rows = 1 if labels is None else 2
    size = (1 + 4.2 * len(panels), 0.6 + 2.7 * n_rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(
        n_rows, len(panels), sharex="col", sharey="row", squeeze=False
    )
    for column, (title, draws) in enumerate(panels):
        when = np.arange(0, len(draws), max(1, len(draws) // _MAX_POINTS))
        _scatter(grid[0, column], when, draws[when])
        grid[0, column].set_title(title, fontsize="medium")
        if labels is not None:
            noise = np.random.default_rng(column).uniform(-0.35, 0.35, len(when))
            _scatter(grid[1, column], when, labels[draws[when]] + noise)
        grid[-1, column].set_xlabel("draw")
    grid[0, 0].set_ylabel("record")
    if labels is not None:
        grid[1, 0].set_ylabel("label")
        if len(kinds := np.unique(labels)) <= _MAX_TICKS:
            grid[1, 0].set_yticks(kinds)
    # No version in the file: the same command makes the same picture.
    is_png = path.suffix.lower() == ".png"
    figure.savefig(path, dpi=100, metadata={"Software": None} if is_png else None)


def _scatter(axes: Axes, x: npt.NDArray[np.int64], y: npt.NDArray[np.generic]) -> None:
    axes.plot(x, y, ",", color="tab:blue", rasterized=True)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=5)
    axes.margins(0.01)
