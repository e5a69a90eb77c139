"""Plot a result of run.py: rates relative to tf.data, by workload and peer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peers import SCALES

__all__ = ["draw"]

Json = dict[str, Any]


def rates(rows: Sequence[Json]) -> dict[tuple[str, int], dict[str, dict[str, float]]]:
    """Return MB/s by order and threads, workload, and peer in its fastest form."""
    found: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
    for row in rows:
        if "mb_per_s" in row and row["peer"] not in SCALES:
            panel = found.setdefault((row["order"], row["threads"]), {})
            by_peer = panel.setdefault(row["workload"], {})
            peer = row["peer"].partition(":")[0]
            by_peer[peer] = max(row["mb_per_s"], by_peer.get(peer, 0.0))
    return found


def draw(rows: Sequence[Json], path: Path) -> None:
    """Plot a panel per order and threads, with a group of bars per workload."""
    # Only plotting needs the package.
    from matplotlib.figure import Figure

    panels = {
        key: {name: by_peer for name, by_peer in panel.items() if "tf.data" in by_peer}
        for key, panel in rates(rows).items()
    }
    names = (row["peer"].partition(":")[0] for row in rows)
    peers = [name for name in dict.fromkeys(names) if name not in SCALES]
    width = 0.8 / max(1, len(peers))
    figure = Figure(figsize=(12, 3.4 * max(1, len(panels))), layout="constrained")
    axes = figure.subplots(max(1, len(panels)), 1, sharex=False, squeeze=False)[:, 0]
    for axis, ((order, threads), panel) in zip(axes, panels.items(), strict=False):
        for i, peer in enumerate(peers):
            bars = {
                place: by_peer[peer] / by_peer["tf.data"]
                for place, by_peer in enumerate(panel.values())
                if peer in by_peer
            }
            at = [place + (i - (len(peers) - 1) / 2) * width for place in bars]
            drawn = axis.bar(at, list(bars.values()), width, label=peer, color=f"C{i}")
            if peer == "fastrec":
                axis.bar_label(drawn, fmt="%.2g", fontsize=8)
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_yscale("log")
        axis.set_xticks(range(len(panel)), list(panel))
        axis.set_ylabel("rate / best tf.data")
        axis.set_title(f"{order}, {threads} thread(s)", loc="left")
        axis.margins(x=0.01, y=0.15)
    axes[0].legend(ncols=len(peers), fontsize=8, loc="lower center", frameon=False,
                   bbox_to_anchor=(0.5, 1.08))  # fmt: skip
    figure.savefig(path, dpi=120)


def main() -> None:
    """Plot an existing result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    parser.add_argument("plot", type=Path, help="PNG or SVG")
    args = parser.parse_args()
    draw(json.loads(args.result.read_text())["rows"], args.plot)


if __name__ == "__main__":
    main()
