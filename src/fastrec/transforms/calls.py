"""Call the caller's functions, with an optional argument, and parts of a batch."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable

from fastrec.tasks import TaskPool

_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_BY_NAME = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def argument_style(function: Callable[..., object], name: str) -> str | None:
    """Return how to pass the argument `name`: "positional", "keyword", or not (None).

    It is passed if and only if `function` has a parameter of that name after the first.

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
    second = next((p for p in others if p.kind in _POSITIONAL), None)
    if second is not None and second.name == name:  # a wrapper may take *args only
        return "positional"
    if any(p.name == name and p.kind in _BY_NAME for p in others):
        return "keyword"
    if second is not None and second.default is inspect.Parameter.empty:
        raise TypeError(
            f"the second parameter of {name_of(function)}() must be named {name!r}, "
            f"got {second.name!r}"
        )
    return None


def name_of(function: object) -> str:
    """Return a function's name for errors."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return str(name).rpartition("<locals>.")[2]


def divided(
    function: Callable[[int, int], None],
    n: int,
    threads: TaskPool | None,
    per_thread: int,
) -> list[Callable[[], None]]:
    """Divide ``function(0, n)`` into `per_thread` calls for each thread, at most `n`."""
    n_parts = 1 if threads is None else min(n, per_thread * (threads.n_threads + 1))
    bounds = [n * i // n_parts for i in range(n_parts + 1)] if n else []
    return [functools.partial(function, *part) for part in itertools.pairwise(bounds)]


def run_all(functions: Iterable[Callable[[], None]], threads: TaskPool | None) -> None:
    """Call all functions, in this thread and in `threads`; raise the first's error."""
    if threads is None:
        for function in functions:
            function()
        return
    tasks = [threads.submit(function) for function in functions]
    for task in tasks:
        task.run()  # unless another thread has begun it
    # Wait for every task, so that none writes into a batch that failed.
    for task in tasks:
        while not task.wait():
            pass
    for task in tasks:
        task.result()
