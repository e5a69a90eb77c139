"""Run one task per file in threads while the caller waits."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from fastrec.options import default_num_threads
from fastrec.tasks import TaskPool

# Called with the number of bytes done so far, and the total.
Progress: TypeAlias = Callable[[int, int], object]

_T = TypeVar("_T")

_log = logging.getLogger("fastrec")

_LOG_AFTER_SECONDS = 5.0
_POLL_SECONDS = 0.1


def run_in_threads(
    tasks: Sequence[Callable[[], _T]],
    *,
    cancel: Callable[[], object],
    progress_text: Callable[[int, float], str],
    on_poll: Callable[[], object] | None = None,
    n_threads: int | None = None,
) -> list[_T]:
    """Run all `tasks` in threads, and return their results.

    Raises the error of the failed task that is first in `tasks`. An error or a signal
    cancels the other tasks. `cancel` makes running tasks return early, and also runs
    after success. ``progress_text(n_done, seconds)`` returns a line that is logged
    once, after 5 seconds. `on_poll` is called about ten times a second.
    """
    start, log_after = time.monotonic(), _LOG_AFTER_SECONDS
    pool = TaskPool(n_threads or default_num_threads(), cancel=cancel)
    try:
        results = []
        for n_done, task in enumerate([pool.submit(task) for task in tasks]):
            while not task.wait(_POLL_SECONDS):
                if on_poll is not None:
                    on_poll()
                seconds = time.monotonic() - start
                if seconds > log_after:
                    log_after = math.inf
                    _log.info("%s", progress_text(n_done, seconds))
            results.append(task.result())
        return results
    finally:
        pool.stop()
