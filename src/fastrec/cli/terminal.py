"""What commands print: tables, JSON, progress bars, and formats of numbers.

Results go to stdout as plain lines without wrapping, to be copied and piped. Progress
bars go to stderr if it is a terminal.
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

_MIN_SHOWN_S = 1.0  # of work with a progress bar


@contextlib.contextmanager
def progress_bar(label: str, unit: str = "") -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows the amount done of a total, if stderr is a terminal.

    The bar has the rate and the time left, or sizes if the unit is "bytes". It appears
    after a second, and disappears at the end.
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
            bar.start()  # does nothing the second time

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with a bold head; the first column is left-justified."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = list(map(str.rjust, line, widths))
        cells[:1] = map(str.ljust, line[:1], widths)
        secho("  ".join(cells).rstrip(), bold=line is head)


def rate(per_second: float) -> str:
    """Return a rate to three digits, such as "1,230,000" or "0.5"."""
    value = float(f"{per_second:.3g}")
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def size(n_bytes: float) -> str:
    """Return a size in units of 1,000, such as "47.3 MB"."""
    return decimal(int(n_bytes))


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    echo(json_line(value))


def json_line(value: object) -> str:
    """Return a value as one line of JSON.

    Bytes are text if they are UTF-8, and otherwise ``{"base64": "..."}``. NaN is null, and
    infinities are the strings "Infinity" and "-Infinity".
    """
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if getattr(value, "dtype", None) in (np.float16, np.float32):
        # The shortest digits: 0.1, not 0.10000000149.
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
    if isinstance(value, str):  # perhaps the name of a file with any bytes
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
