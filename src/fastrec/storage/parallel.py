"""Work on many files: a task for each, run in threads while the caller waits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from fastrec.options import default_num_threads
from fastrec.tasks import TaskPool

__all__ = ["Progress", "run_in_threads"]

# Called with what is done so far, and the total.
Progress: TypeAlias = Callable[[int, int], object]

_T = TypeVar("_T")

_log = logging.getLogger("fastrec")

_SECONDS_BEFORE_LOG = 5.0
_SECONDS_BETWEEN_LOOKS = 0.1


def run_in_threads(
    tasks: Sequence[Callable[[], _T]],
    *,
    cancel: Callable[[], object],
    so_far: Callable[[int, float], str],
    on_look: Callable[[], object] | None = None,
    n_threads: int | None = None,
) -> list[_T]:
    """Run all `tasks` in threads, and return their results.

    The first task in order that fails ends all of them, and so does a signal.

    Parameters
    ----------
    tasks : sequence of callable
    cancel : callable
        Asks the running tasks to end early. A thread calls it, also when all are done.
    so_far : callable
        ``so_far(n_done, seconds)`` returns the line that is logged once if all this takes
        long: at least the first `n_done` tasks are done, after this many seconds.
    on_look : callable, optional
        Called about ten times a second.
    n_threads : int, optional
        By default one for each usable CPU.
    """
    start = time.monotonic()
    is_logged = False
    pool = TaskPool(n_threads or default_num_threads(), cancel=cancel)
    try:
        submitted = [pool.submit(task) for task in tasks]
        results = []
        for n_done, task in enumerate(submitted):
            while not task.wait(_SECONDS_BETWEEN_LOOKS):
                if on_look is not None:
                    on_look()
                seconds = time.monotonic() - start
                if not is_logged and seconds > _SECONDS_BEFORE_LOG:
                    is_logged = True
                    _log.info("%s", so_far(n_done, seconds))
            results.append(task.result())
        return results
    finally:
        pool.stop()
