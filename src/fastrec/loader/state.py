"""States: where a loader is in its training run, as a few JSON-able values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["State"]

_VERSION = 1
_KINDS = {"fingerprint": str, "order": dict, "seed": int, "epoch": int, "position": int}
_KEYS = ("version", *_KINDS)


@dataclass(frozen=True)
class State:
    """A place in a training run. It does not depend on ranks, threads or batch sizes."""

    fingerprint: str  # of the data
    order: dict[str, Any]  # how records are ordered
    seed: int
    epoch: int
    position: int  # records of the epoch that all ranks together have delivered

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {"version": _VERSION} | {name: getattr(self, name) for name in _KINDS}

    @classmethod
    def from_dict(cls, state: object) -> State:
        """Return the state of a dict, or raise a ValueError."""
        if isinstance(state, Mapping) and state.get("version", _VERSION) != _VERSION:
            msg = (
                f"the state is of version {state['version']!r}, this release of fastrec "
                f"reads version {_VERSION}"
            )
            raise ValueError(msg)
        if not isinstance(state, Mapping) or set(state) != set(_KEYS):
            found = list(state) if isinstance(state, Mapping) else type(state).__name__
            msg = f"not the state of a loader, which has the keys {_KEYS}: {found}"
            raise ValueError(msg)
        values: dict[str, Any] = {}
        for name, kind in _KINDS.items():
            value = values[name] = _plain(state[name])
            is_right = isinstance(value, kind) and not isinstance(value, bool)
            if not is_right or (isinstance(value, int) and not 0 <= value < 2**64):
                msg = f"not the state of a loader: {name} is {value!r}"
                raise ValueError(msg)
        return cls(**values)

    def check(self, fingerprint: str | None, order: Mapping[str, Any]) -> None:
        """Raise a ValueError unless it is of this order and, if not None, these data."""
        if self.order != order:
            msg = (
                f"the state is of another order: {self.order}; this loader has "
                f"{dict(order)}"
            )
            raise ValueError(msg)
        if fingerprint is not None and self.fingerprint != fingerprint:
            msg = (
                f"the state is of other data (fingerprint {self.fingerprint}, these have "
                f"{fingerprint}): files, their order or the selection differ. "
                "Pass strict=False to load it anyway"
            )
            raise ValueError(msg)


def _plain(value: object) -> object:
    """Return an integer of NumPy, as checkpoints may have them, as Python's own."""
    if isinstance(value, (np.integer, np.ndarray)) and np.ndim(value) == 0:
        return value.item()
    return value
