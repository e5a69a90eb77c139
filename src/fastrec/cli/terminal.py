"""What the commands share on the screen: consoles, progress bars, and short forms.

Results go to stdout as plain lines that are never wrapped, so that they can be copied
and piped. Progress bars go to stderr, and only where that is a terminal.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from fastrec.printable import printable

if TYPE_CHECKING:
    from typing_extensions import Self

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

_UNITS = ("kB", "MB", "GB", "TB")


def console(*, stderr: bool = False) -> Console:
    """Return a console for plain text: nothing in it is markup, and no line is wrapped."""
    return Console(
        stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True
    )


class Bar:
    """A progress bar on stderr, gone when its ``with`` block ends.

    Call it with the amount done and the total, in whatever unit.

    Parameters
    ----------
    label : str
        What is going on.
    unit : {"", "bytes"}
        ``"bytes"`` shows sizes and their rate, otherwise counts are shown.
    """

    def __init__(self, label: str, unit: str = "") -> None:
        columns: list[ProgressColumn] = [
            TextColumn("{task.description}", markup=False),
            BarColumn(),
        ]
        if unit == "bytes":
            columns += [DownloadColumn(), TransferSpeedColumn()]
        else:
            columns.append(TextColumn("{task.completed:,.0f} of {task.total:,.0f}"))
        screen = console(stderr=True)
        self._progress = Progress(
            *columns,
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=screen,
            transient=True,
            disable=not screen.is_terminal,
        )
        self._task = self._progress.add_task(label, total=0, note="")

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` is done, and `note` behind it."""
        self._progress.update(self._task, completed=done, total=total, note=note)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()


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
    """Print lines under a bold head, the first column at the left, the others right."""
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    for style, line in [("bold", head), *(("", line) for line in lines)]:
        name, *values = line
        cells = [f"{name:<{widths[0]}}"]
        cells += [f"{value:>{w}}" for value, w in zip(values, widths[1:], strict=True)]
        out.print("  ".join(cells).rstrip(), style=style)


def rate(amount: float, seconds: float) -> str:
    """Return amount per second to three digits, such as "1,230,000" or "0.5"."""
    value = float(f"{amount / seconds:.3g}")
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def size(n_bytes: float) -> str:
    """Return a size in units of 1,000, such as "47.3 MB"."""
    if n_bytes < 1000:
        return f"{n_bytes:,.0f} bytes"
    power = min(int(math.log10(n_bytes)) // 3, len(_UNITS))
    return f"{n_bytes / 1000**power:,.1f} {_UNITS[power - 1]}"
