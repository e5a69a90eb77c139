"""Calls: the caller's functions, called as their signatures ask."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["call", "name_of", "second_argument"]


def second_argument(function: Callable[..., object], name: str) -> str | None:
    """Return how `function` takes its second argument: "positional", "keyword" or None.

    It takes one if it has a parameter of that name, or a second one without a default. A
    bare ``*args``, as many wrappers have, does not count.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins and extension types may have none
        return None
    if name in parameters and parameters[name].kind is inspect.Parameter.KEYWORD_ONLY:
        return "keyword"
    positional = [
        p
        for p in parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        and (p.default is inspect.Parameter.empty or p.name == name)
    ]
    return "positional" if len(positional) > 1 else None


def call(
    function: Callable[..., Any],
    first: object,
    how: str | None,
    name: str,
    second: Callable[[], object],
) -> Any:  # noqa: ANN401
    """Call `function` with its first argument, and with the second if it takes one."""
    if how == "keyword":
        return function(first, **{name: second()})
    return function(first, second()) if how == "positional" else function(first)


def name_of(function: object) -> str:
    """Return how errors call a function."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return str(name).rpartition("<locals>.")[2]
