"""Passes over files: a task for each, done in threads while the caller waits."""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from fastrec.options import default_num_threads

__all__ = ["pass_over"]

_T = TypeVar("_T")

_log = logging.getLogger("fastrec")

_SECONDS_BEFORE_LOG = 5.0
_SECONDS_BETWEEN_LOOKS = 0.1


def pass_over(
    name: str,
    tasks: Sequence[Callable[[], _T]],
    *,
    cancel: Callable[[], object],
    so_far: Callable[[int, float], str],
    on_look: Callable[[], object] | None = None,
    n_threads: int | None = None,
) -> list[_T]:
    """Do all `tasks` in threads, and return what they return.

    The first task in order that fails ends it all, and so does a signal.

    Parameters
    ----------
    name : str
        What the names of the threads begin with.
    tasks : sequence of callable
    cancel : callable
        Tells the tasks at work that nobody wants their results any more.
    so_far : callable
        ``so_far(n_done, seconds)`` returns what a pass that takes long says in the log,
        once: at least the first `n_done` tasks are done, after so many seconds.
    on_look : callable, optional
        Called about ten times a second.
    n_threads : int, optional
        By default one for each usable CPU.
    """
    n_threads = n_threads or default_num_threads()
    start = time.monotonic()
    is_logged = False
    with concurrent.futures.ThreadPoolExecutor(n_threads, name) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            for n_done, future in enumerate(futures):
                # A short wait, so that signals are looked at.
                while not concurrent.futures.wait(
                    [future], _SECONDS_BETWEEN_LOOKS
                ).done:
                    if on_look is not None:
                        on_look()
                    seconds = time.monotonic() - start
                    if not is_logged and seconds > _SECONDS_BEFORE_LOG:
                        is_logged = True
                        _log.info("%s", so_far(n_done, seconds))
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            cancel()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
