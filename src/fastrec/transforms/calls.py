"""Calls of user functions: pass optional arguments, and divide work among threads."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable

from fastrec.tasks import TaskPool


def argument_style(function: Callable[..., object], name: str) -> str | None:
    """Return how to pass the argument `name`: "positional", "keyword", or None.

    The result is None if no parameter of `function` after the first has that name.

    Raises
    ------
    TypeError
        If `function` requires a second argument with another name.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins may not have a signature
        return None
    others = list(parameters.values())[1:]
    second = next((p for p in others if p.kind <= p.POSITIONAL_OR_KEYWORD), None)
    if second is not None and second.name == name:  # a wrapper may take *args only
        return "positional"
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(p.name == name and p.kind in by_name for p in others):
        return "keyword"
    if second is not None and second.default is inspect.Parameter.empty:
        raise TypeError(
            f"the second parameter of {name_of(function)}() must be named {name!r}, "
            f"got {second.name!r}"
        )
    return None


def name_of(function: object) -> str:
    """Return a function's name for error messages."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return str(name).rpartition("<locals>.")[2]


def share(
    functions: Iterable[tuple[Callable[[int, int], None], int]],
    threads: TaskPool | None,
    per_thread: int,
) -> None:
    """Process ``range(n)`` for each (function, n), in this thread and in `threads`.

    ``function(begin, end)`` processes one part of the range; each thread gets about
    `per_thread` parts. Raises the error of the first part that failed.
    """
    if threads is None:
        for function, n in functions:
            function(0, n)
        return
    tasks = []
    n_most = per_thread * (threads.n_threads + 1)
    for function, n in functions:
        parts = min(n, n_most)
        bounds = [n * i // parts for i in range(parts + 1)] if n else []
        for part in itertools.pairwise(bounds):
            tasks.append(threads.submit(functools.partial(function, *part)))
    for task in tasks:
        task.run()  # unless another thread has begun it
    # Wait for every task, so that none writes into a batch that failed.
    for task in tasks:
        while not task.wait():
            pass
    for task in tasks:
        task.result()
