"""Count the Python functions that run in one call: the fixed cost of a batch."""

from __future__ import annotations

import sys
from collections.abc import Callable

MAX_CALLS = 12  # for one batch, also with an adapter or a transform


def n_calls_of(function: Callable[[], object]) -> int:
    """Call `function`, and return how many Python functions run in this thread."""
    calls: list[str] = []

    def count(_frame: object, event: str, _argument: object) -> None:
        if event == "call":
            calls.append(event)

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(calls)
