"""Pictures of draws. Needs matplotlib, from the extra ``plot``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastrec.cli.draws import Draws

__all__ = ["Panel", "draw_picture"]

MOST_POINTS = 7_000  # of a panel: more hide each other
JITTER = 0.35  # of labels, to either side
MOST_TICKS = 12  # labels that are named one by one


@dataclass(frozen=True)
class Panel:
    """One column of the picture: an order, and what is written above it."""

    title: str
    draws: Draws


def draw_picture(
    path: Path, panels: Sequence[Panel], labels: npt.NDArray[np.int64] | None
) -> None:
    """Plot record number and, if there are labels, label over draw.

    The suffix of `path` names the format.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    n_rows = 1 if labels is None else 2
    figure = Figure(
        figsize=(1 + 4.2 * len(panels), 0.6 + 2.7 * n_rows), layout="constrained"
    )
    grid = figure.subplots(
        n_rows, len(panels), sharex="col", sharey="row", squeeze=False
    )
    for column, panel in enumerate(panels):
        when = _shown(len(panel.draws))
        records = panel.draws[when]
        _scatter(grid[0, column], when, records)
        grid[0, column].set_title(panel.title, fontsize="medium")
        if labels is not None:
            noise = np.random.default_rng(column).uniform(-JITTER, JITTER, len(when))
            _scatter(grid[1, column], when, labels[records] + noise)
        grid[-1, column].set_xlabel("draw")
    grid[0, 0].set_ylabel("record")
    if labels is not None:
        grid[1, 0].set_ylabel("label")
        kinds = np.unique(labels)
        if len(kinds) <= MOST_TICKS:
            grid[1, 0].set_yticks(kinds)
    # No version in the file: the same command makes the same picture.
    is_png = path.suffix.lower() == ".png"
    figure.savefig(path, dpi=100, metadata={"Software": None} if is_png else None)


def _shown(n_draws: int) -> npt.NDArray[np.int64]:
    """Return which draws are shown: all, or about `MOST_POINTS` at even distances."""
    return np.arange(0, n_draws, max(1, n_draws // MOST_POINTS), dtype=np.int64)


def _scatter(axes: Axes, x: npt.NDArray[np.int64], y: npt.NDArray[np.generic]) -> None:
    axes.plot(x, y, ",", color="tab:blue", rasterized=True)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=5)
    axes.margins(0.01)
