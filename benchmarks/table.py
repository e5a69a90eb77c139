"""Measurements as a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence

from protocol import Row

__all__ = ["markdown"]

HEAD = (
    "workload", "threads", "reader", "checksums", "records/s", "MB/s wall", "MB/s cpu",
    "spread", "x tf.data", "x memcpy",
)  # fmt: skip


def ratio(row: Row, rows: Sequence[Row], peer: str) -> str:
    """Rate over that of the fastest form of `peer` in the same rounds."""
    rates = [
        other.mb_per_s
        for other in rows
        if (other.workload, other.threads) == (row.workload, row.threads)
        and other.peer.partition(":")[0] == peer
        and other.measured
    ]
    return f"{row.mb_per_s / max(rates):.3g}" if rates else ""


def cells(row: Row, rows: Sequence[Row]) -> list[str]:
    """One line of the table."""
    what = [row.workload, str(row.threads), row.peer]
    if not row.measured:
        return [*what, f"{row.status}: {row.reason}", *[""] * (len(HEAD) - 4)]
    is_reader = row.peer != "memcpy"
    return [
        *what,
        row.checks,
        f"{row.records_per_s:,.0f}",
        f"{row.mb_per_s:,.0f}",
        f"{row.mb_per_cpu_s:,.0f}",
        f"{row.spread:.0%}",
        ratio(row, rows, "tf.data") if is_reader else "",
        ratio(row, rows, "memcpy") if is_reader else "",
    ]


def markdown(rows: Sequence[Row]) -> str:
    """The whole table."""
    rule = ["---"] * 4 + ["---:"] * 6
    lines = [HEAD, rule, *(cells(row, rows) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
