"""What objects do when the process forks and when the interpreter ends."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["renew_after_fork"]


class _Renewable(Protocol):
    def _renew_after_fork(self) -> None: ...


_renewable: weakref.WeakSet[_Renewable] = weakref.WeakSet()


def renew_after_fork(item: _Renewable) -> None:
    """Call ``item._renew_after_fork()`` in each child process, if `item` lives then.

    A lock that another thread holds during the fork is never released in the child, so
    objects replace their locks there.
    """
    _renewable.add(item)


def _renew_all() -> None:
    for item in list(_renewable):
        item._renew_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
