"""Measurements as a Markdown table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from peers import SCALES
from protocol import Row, Start

__all__ = ["markdown", "ratio", "starts_markdown"]

HEAD = (
    "workload", "order", "threads", "reader", "checksums", "records/s", "MB/s wall",
    "MB/s cpu", "spread", "x tf.data", "x memcpy", "note",
)  # fmt: skip
STARTS_HEAD = (
    "workload", "reader", "import s", "first batch ms", "peak MB", "private MB", "note",
)  # fmt: skip


def ratio(row: Row, rows: Sequence[Row], peer: str) -> float | None:
    """Return the rate relative to the fastest form of `peer`, if it was measured."""
    rates = [
        other.mb_per_s
        for other in rows
        if (other.workload, other.order, other.threads)
        == (row.workload, row.order, row.threads)
        and other.peer.partition(":")[0] == peer
        and other.measured
    ]
    return row.mb_per_s / max(rates) if rates else None


def shown(value: float | None) -> str:
    """Format a ratio; "" for None."""
    return "" if value is None else f"{value:.3g}"


def why(found: Row | Start) -> str:
    """Return the reason of a failure on one line."""
    reason = " ".join(found.reason.split())
    return f"{found.status}: {reason if len(reason) < 100 else reason[:100] + ' ...'}"


def cells(row: Row, rows: Sequence[Row]) -> list[str]:
    """One line of the table."""
    what = [row.workload, row.order, str(row.threads), row.peer]
    if not row.measured:
        return [*what, *["-"] * (len(HEAD) - 5), why(row)]
    is_reader = row.peer not in SCALES
    return [
        *what,
        row.checks,
        f"{row.records_per_s:,.0f}",
        f"{row.mb_per_s:,.0f}",
        f"{row.mb_per_cpu_s:,.0f}",
        f"{row.spread:.0%}",
        shown(ratio(row, rows, "tf.data")) if is_reader else "",
        shown(ratio(row, rows, "memcpy")) if is_reader else "",
        row.form,
    ]


def start_cells(start: Start) -> list[str]:
    """Return a line of the table of starts: medians."""
    what = [start.workload, start.peer]
    if start.status != "ready":
        return [*what, *["-"] * (len(STARTS_HEAD) - 3), why(start)]
    return [
        *what,
        f"{statistics.median(start.import_s):.2f}",
        f"{statistics.median(start.first_batch_s) * 1e3:,.1f}",
        f"{statistics.median(start.peak_mb):,.0f}",
        f"{statistics.median(start.private_mb):,.0f}",
        "",
    ]


def lines(head: Sequence[str], n_words: int, body: Sequence[Sequence[str]]) -> str:
    """Return a table whose first `n_words` columns and last column are text."""
    rule = ["---"] * n_words + ["---:"] * (len(head) - n_words - 1) + ["---"]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))


def markdown(rows: Sequence[Row]) -> str:
    """Return the table of rates."""
    return lines(HEAD, 5, [cells(row, rows) for row in rows])


def starts_markdown(starts: Sequence[Start]) -> str:
    """Return the table of starts."""
    return lines(STARTS_HEAD, 2, [start_cells(start) for start in starts])
