"""Terminal output: consoles, progress bars, tables, JSON, and formats of numbers.

Results go to stdout as plain lines without wrapping, to be copied and piped. Progress
bars go to stderr if it is a terminal.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fastrec.printable import counted, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from typing_extensions import Self

__all__ = [
    "Bar",
    "Stopwatch",
    "console",
    "counted",
    "end_at_broken_pipe",
    "json_line",
    "json_path",
    "print_table",
    "printable",
    "rate",
    "size",
    "when_interrupted",
]

_WIDTH = 10_000  # of stdout, so that lines are not wrapped and tables not truncated
_MIN_SHOWN_S = 1.0  # of work with a progress bar
_PIPE_STATUS = 128 + 13  # as shells report SIGPIPE
_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def console(*, stderr: bool = False) -> Console:
    """Return a console for plain text, without markup and line wrapping."""
    from rich.console import Console  # slow to import

    screen = Console(
        stderr=stderr,
        width=None if stderr else _WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=True,
    )
    screen.on_broken_pipe = end_at_broken_pipe  # type: ignore[method-assign]
    return screen


def end_at_broken_pipe() -> NoReturn:
    """Exit like a program that SIGPIPE ended: the reader of stdout wants no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(_PIPE_STATUS)


@contextlib.contextmanager
def when_interrupted(note: str) -> Iterator[None]:
    """Add a note to the message after Ctrl-C, such as "nothing was written"."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(note) from None


class Bar:
    """A progress bar on stderr, with rate and time left, if stderr is a terminal.

    It appears after a second, and is removed when its ``with`` block ends. Call it with
    the amount done and the total. The unit ``"bytes"`` shows sizes, and ``"seconds"`` no
    rate.
    """

    def __init__(self, label: str, unit: str = "") -> None:
        self._progress: Progress | None = None
        self._watch = Stopwatch()
        self._amounts = 0, 0
        if sys.stderr.isatty():
            self._progress = _progress(unit)
            self._bar = self._progress.add_task(label, total=0, note="")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._progress is not None and self._progress.live.is_started:
            self._progress.stop()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Show `done` of `total`, followed by `note`."""
        self._amounts = done, total
        if self._progress is not None:
            self._progress.update(
                self._bar, completed=min(done, total), total=total, note=note
            )
            if self._watch.seconds > _MIN_SHOWN_S:
                self._progress.start()  # does nothing the second time

    def advance_by(self, amount: int) -> None:
        """Add to the amount done."""
        done, total = self._amounts
        self(done + amount, total)


def _progress(unit: str) -> Progress:
    from rich import progress  # slow to import, and used on terminals only
    from rich.text import Text

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{rate(speed, 1)}/s")

    amounts: list[progress.ProgressColumn] = [
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
    ]
    if unit != "bytes":
        of = f"{{task.completed:,.0f}} of {{task.total:,.0f}} {unit}"
        amounts = [progress.TextColumn(of.strip()), *([] if unit else [Rate()])]
    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        *amounts,
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[note]}", markup=False),
        console=console(stderr=True),
        transient=True,
    )


class Stopwatch:
    """Measures wall time from its construction on."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds so far, never 0."""
        return max(time.perf_counter() - self._start, 1e-9)


def print_table(
    out: Console, head: Sequence[str], lines: Sequence[Sequence[str]]
) -> None:
    """Print a table with a bold head; the first column is left-justified."""
    from rich.table import Table

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
    if n_bytes < 1000:
        return counted(int(n_bytes), "byte")
    exponent = min(int(math.log10(n_bytes)) // 3, len(_UNITS))
    return f"{n_bytes / 1000**exponent:,.1f} {_UNITS[exponent - 1]}"


def json_path(path: str) -> str:
    """Return a path as valid UTF-8, with other bytes escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def json_line(value: object) -> str:
    """Return a value as one line of JSON.

    Bytes are text if they are UTF-8, and otherwise ``{"base64": "..."}``. NaN is null, and
    infinities are the strings "Infinity" and "-Infinity".
    """
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if getattr(value, "dtype", None) in (np.float16, np.float32):
        value = value.astype(str).astype(
            float
        )  # the shortest digits: 0.1, not 0.10000000149
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, Mapping):
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _plain_key(key: object) -> str:
    return (
        key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)
    )
