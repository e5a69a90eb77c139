"""Terminal output: tables, JSON, progress bars, and number formats.

Results go to stdout as plain lines without wrapping, for copying and piping. Progress
bars go to stderr if stderr is a terminal.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.filesize import decimal
from typer import echo, secho

from fastrec.printable import counted, printable

__all__ = [
    "counted",
    "json_line",
    "print_json",
    "print_table",
    "printable",
    "progress_bar",
    "rate",
    "size",
]

_MIN_SHOWN_S = 1.0  # before the progress bar appears


@contextlib.contextmanager
def progress_bar(label: str, unit: str = "") -> Iterator[Callable[[int, int], None]]:
    """Yield a function ``show(done, total)`` that updates a progress bar.

    The bar shows the amount, the rate and the remaining time. It appears after a
    second, and disappears at the end. If stderr is not a terminal, `show` does nothing.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich import console, progress  # slow to import, and used on terminals only

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> str:
            return "" if task.speed is None else f"{rate(task.speed)}/s"

    amounts: list[progress.ProgressColumn] = [progress.DownloadColumn()]
    if unit != "bytes":
        text = f"{{task.completed:,.0f}} of {{task.total:,.0f}} {unit}"
        amounts = [progress.TextColumn(text.strip())]
    speed = progress.TransferSpeedColumn() if unit == "bytes" else Rate()
    bar = progress.Progress(
        *(progress.TextColumn(label), progress.BarColumn(), *amounts, speed),
        progress.TimeRemainingColumn(),
        console=console.Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(label, total=0)
    start = time.perf_counter()

    def show(done: int, total: int) -> None:
        bar.update(task, completed=min(done, total), total=total)
        if time.perf_counter() - start > _MIN_SHOWN_S:
            bar.start()  # has no effect on a started bar

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with a bold header and a left-justified first column."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = list(map(str.rjust, line, widths))
        cells[:1] = map(str.ljust, line[:1], widths)
        secho("  ".join(cells).rstrip(), bold=line is head)


def rate(per_second: float) -> str:
    """Format a rate with three significant digits, such as "1,230,000" or "0.5"."""
    value = float(f"{per_second:.3g}")
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def size(n_bytes: float) -> str:
    """Format a byte count in decimal units, such as "47.3 MB"."""
    return decimal(int(n_bytes))


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    echo(json_line(value))


def json_line(value: object) -> str:
    """Return a value as one line of JSON.

    UTF-8 bytes become strings, other bytes become ``{"base64": "..."}``, NaN becomes
    null, and infinities become the strings "Infinity" and "-Infinity".
    """
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if getattr(value, "dtype", None) in (np.float16, np.float32):
        # Use the shortest decimal form: 0.1, not 0.10000000149.
        value = value.astype(str).astype(float)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, str):  # a file name may have undecodable bytes
        value = value.encode(errors="surrogateescape")
        return value.decode(errors="backslashreplace")
    if isinstance(value, Mapping):
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _plain_key(key: object) -> str:
    if isinstance(key, bytes):
        return key.decode(errors="backslashreplace")
    return str(key)
