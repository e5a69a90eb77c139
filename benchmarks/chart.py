"""Draw the table of docs/performance.md as the bar chart of README.md.

usage: python benchmarks/chart.py [FOLDER]

Writes speed-light.svg and speed-dark.svg to the folder, docs/_static by default. Run it
after a change of the table.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

__all__: list[str] = []

ROOT = Path(__file__).parents[1]
TABLE = "| records/s | fastrec, 1 core | tf.data, 1 core | ratio |"
TITLE = "Records per second on one core, relative to tf.data"
# In pixels. The longest bar is LONGEST wide.
WIDTH, TOP, ROW = 760, 36, 30
BARS_X, LONGEST = 365, 340


class Theme(NamedTuple):
    """Colors of text, of bars, and of the line at the rate of tf.data."""

    text: str
    bar: str
    line: str


THEMES = {
    "light": Theme(text="#1f2328", bar="#0969da", line="#cf222e"),
    "dark": Theme(text="#e6edf3", bar="#58a6ff", line="#ff7b72"),
}


def ratios(page: str) -> dict[str, float]:
    """Return the ratios on one core, by kind of record."""
    rows = page[page.index(TABLE) :].partition("\n\n")[0].splitlines()[2:]
    cells = [re.split(r" *\| *", row) for row in rows]
    return {name: float(ratio.rstrip("x")) for _, name, _, _, ratio, *_ in cells}


def draw(bars: dict[str, float], theme: Theme) -> str:
    """Return an SVG with a bar for each ratio, and a line at 1."""
    scale = LONGEST / max(bars.values())
    bottom = TOP + ROW * len(bars)
    tf_data = round(BARS_X + scale)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 26}">',
        "<style>",
        f"text {{ fill: {theme.text}; font-family: sans-serif; font-size: 14px }}",
        f"rect {{ fill: {theme.bar} }}",
        f"path {{ stroke: {theme.line}; stroke-width: 2 }}",
        "</style>",
        f'<text x="0" y="18" font-weight="bold">{TITLE}</text>',
    ]
    for y, (name, ratio) in zip(range(TOP, bottom, ROW), bars.items(), strict=True):
        width = round(ratio * scale)
        name_at = f'x="{BARS_X - 10}" y="{y + 20}" text-anchor="end"'
        ratio_at = f'x="{BARS_X + width + 8}" y="{y + 20}" font-weight="bold"'
        lines += [
            f"<text {name_at}>{escape(name)}</text>",
            f'<rect x="{BARS_X}" y="{y + 4}" width="{width}" height="{ROW - 8}"/>',
            f"<text {ratio_at}>{ratio:g}x</text>",
        ]
    lines += [
        f'<path d="M{tf_data} {TOP}V{bottom + 4}"/>',
        f'<text x="{tf_data}" y="{bottom + 20}" text-anchor="middle">tf.data</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the chart in each theme."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs/_static"
    bars = ratios((ROOT / "docs/performance.md").read_text("utf-8"))
    for name, theme in THEMES.items():
        (folder / f"speed-{name}.svg").write_text(draw(bars, theme), "utf-8")


if __name__ == "__main__":
    main()
