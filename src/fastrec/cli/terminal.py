"""Terminal output: consoles, progress bars, tables, and formats of numbers.

Results go to stdout as plain lines without wrapping, to be copied and piped. Progress
bars go to stderr if it is a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from fastrec.printable import printable

__all__ = [
    "Bar",
    "Stopwatch",
    "console",
    "counted",
    "print_table",
    "printable",
    "rate",
    "size",
]

_WIDTH = 10_000  # of stdout, so that lines are not wrapped and tables not truncated


def console(*, stderr: bool = False) -> Console:
    """Return a console for plain text, without markup and line wrapping."""
    return Console(
        stderr=stderr,
        width=None if stderr else _WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=True,
    )


class Bar(Progress):
    """A progress bar on stderr, removed when its ``with`` block ends.

    Call it with the amount done and the total. The unit ``"bytes"`` shows sizes and a
    rate.
    """

    def __init__(self, label: str, unit: str = "") -> None:
        amounts = (
            [DownloadColumn(), TransferSpeedColumn()]
            if unit == "bytes"
            else [TextColumn("{task.completed:,.0f} of {task.total:,.0f}")]
        )
        screen = console(stderr=True)
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *amounts,
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=screen,
            transient=True,
            disable=not screen.is_terminal,
        )
        self._bar = self.add_task(label, total=0, note="")

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Show `done` of `total`, followed by `note`."""
        self.update(self._bar, completed=min(done, total), total=total, note=note)

    def advance_by(self, amount: int) -> None:
        """Add to the amount done."""
        self.advance(self._bar, amount)


class Stopwatch:
    """Measures wall time from its construction on."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds so far, never 0."""
        return max(time.perf_counter() - self._start, 1e-9)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: "1 file", "60,000 records"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def print_table(
    out: Console, head: Sequence[str], lines: Sequence[Sequence[str]]
) -> None:
    """Print a table with a bold head; the first column is left-justified."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    out.print(table)


def rate(amount: float, seconds: float) -> str:
    """Return amount per second to three digits, such as "1,230,000" or "0.5"."""
    value = float(f"{amount / seconds:.3g}")
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def size(n_bytes: float) -> str:
    """Return a size in units of 1,000, such as "47.3 MB"."""
    return decimal(int(n_bytes))
