"""Hooks of objects that run in forked children and at interpreter exit.

The registries hold weak references whose callbacks are C functions. Python ignores an
exception that a signal handler raises in a callback, so no Python code may run there.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any, Protocol


class _Renewable(Protocol):
    def _renew_after_fork(self) -> None: ...


class _Closable(Protocol):
    def _close_at_exit(self) -> None: ...


# In the order of registration. The values are process ids: a forked child must not wait
# for threads, which exist only in its parent.
_renewable: dict[weakref.ref[Any], int] = {}
_closable: dict[weakref.ref[Any], int] = {}
_is_exiting = False


def renew_after_fork(obj: _Renewable) -> None:
    """Call ``obj._renew_after_fork()`` in forked children while `obj` is alive."""
    _renewable[weakref.ref(obj, _renewable.pop)] = os.getpid()


def close_at_exit(obj: _Closable) -> None:
    """Call ``obj._close_at_exit()`` at interpreter exit if `obj` is still alive.

    Objects that were registered later are closed earlier. Forked children do not call it.
    """
    _closable[weakref.ref(obj, _closable.pop)] = os.getpid()


def is_exiting() -> bool:
    """Return whether the interpreter is exiting."""
    return _is_exiting


def _renew_all() -> None:
    for ref in list(_renewable):
        if (obj := ref()) is not None:
            obj._renew_after_fork()


def _close_all() -> None:
    global _is_exiting
    _is_exiting = True
    for ref, process in reversed(list(_closable.items())):
        if process == os.getpid() and (obj := ref()) is not None:
            obj._close_at_exit()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
