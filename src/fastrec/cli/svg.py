"""Charts as inline SVG: histograms and heat maps, in the colours of the page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastrec.display import Html, escaped

__all__ = ["heat_map", "histogram"]

_WIDTH, _HEIGHT = 320, 72


def histogram(counts: Sequence[float], labels: Sequence[str], title: str) -> Html:
    """Return bars; each has its label and count as a tooltip."""
    top = max(counts, default=0) or 1
    step = _WIDTH / max(len(counts), 1)
    bars = []
    for i, (count, label) in enumerate(zip(counts, labels, strict=True)):
        height = max(1.0, (_HEIGHT - 2) * count / top) if count else 0.0
        bars.append(
            f'<rect x="{i * step:.2f}" y="{_HEIGHT - height:.2f}" '
            f'width="{max(step - 1, 0.5):.2f}" height="{height:.2f}">'
            f"<title>{escaped(label)}: {count:,.0f}</title></rect>"
        )
    return _svg(_HEIGHT, title, "".join(bars), stretch=True)


def heat_map(shares: npt.NDArray[np.float64], title: str) -> Html:
    """Return a grid of cells, from transparent for 0 to opaque for the largest share."""
    n_rows, n_columns = shares.shape
    top = float(shares.max()) or 1.0
    width, height = _WIDTH / n_columns, 12
    cells = [
        f'<rect x="{x * width:.2f}" y="{y * height}" width="{width + 0.2:.2f}" '
        f'height="{height - 1}" fill-opacity="{shares[y, x] / top:.2f}"/>'
        for y in range(n_rows)
        for x in range(n_columns)
        if shares[y, x] > 0
    ]
    return _svg(n_rows * height, title, "".join(cells), stretch=True)


def _svg(height: float, title: str, content: str, *, stretch: bool) -> Html:
    aspect = ' preserveAspectRatio="none"' if stretch else ""
    return Html(
        f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img"{aspect} '
        f'aria-label="{escaped(title)}">{content}</svg>'
    )
