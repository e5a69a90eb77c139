"""Calls: the caller's functions, called as their signatures ask."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["call", "name_of", "passed_as"]

_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_BY_NAME = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def passed_as(function: Callable[..., object], name: str) -> str | None:
    """Return how to pass the argument `name`: "positional", "keyword", or None for not.

    It is passed if and only if `function` has a parameter of that name after the first.

    Raises
    ------
    TypeError
        If `function` requires a second argument of another name.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins and extension types may have none
        return None
    others = list(parameters.values())[1:]
    second = next((p for p in others if p.kind in _POSITIONAL), None)
    if second is not None and second.name == name:  # a wrapper may take *args only
        return "positional"
    if any(p.name == name and p.kind in _BY_NAME for p in others):
        return "keyword"
    if second is not None and second.default is inspect.Parameter.empty:
        msg = (
            f"the second parameter of {name_of(function)}() must be named {name!r}, "
            f"got {second.name!r}"
        )
        raise TypeError(msg)
    return None


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
