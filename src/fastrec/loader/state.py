"""State: the position of a loader in its training run, as JSON-compatible values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_VERSION = 1
_KINDS = {"fingerprint": str, "order": dict, "seed": int, "epoch": int, "position": int}
_KEYS = ("version", *_KINDS)


@dataclass(frozen=True)
class State:
    """A position in a training run, independent of ranks, threads and batch sizes."""

    fingerprint: str  # of the dataset
    order: dict[str, Any]  # the parameters of the order of records
    seed: int
    epoch: int
    position: int  # records of the epoch that were delivered, over all ranks

    def to_dict(self) -> dict[str, Any]:
        """Return the state as a dict of plain values."""
        return {"version": _VERSION} | {name: getattr(self, name) for name in _KINDS}

    @classmethod
    def from_dict(cls, state: object) -> State:
        """Return the state of a dict, or raise a ValueError."""
        if isinstance(state, Mapping) and state.get("version", _VERSION) != _VERSION:
            raise ValueError(
                f"version of the state must be {_VERSION} for this release of fastrec, "
                f"got {state['version']!r}"
            )
        if not isinstance(state, Mapping) or set(state) != set(_KEYS):
            keys = list(state) if isinstance(state, Mapping) else type(state).__name__
            raise ValueError(
                f"state of a loader must be a dict with the keys {_KEYS}, got {keys}"
            )
        values: dict[str, Any] = {}
        for name, kind in _KINDS.items():
            value = values[name] = _plain(state[name])
            is_valid = isinstance(value, kind) and not isinstance(value, bool)
            if not is_valid or (isinstance(value, int) and not 0 <= value < 2**64):
                raise ValueError(f"invalid {name} in the state of a loader: {value!r}")
        return cls(**values)

    def check(self, fingerprint: str | None, order: Mapping[str, Any]) -> None:
        """Raise a ValueError unless the order and, if not None, the dataset match."""
        if self.order != order:
            raise ValueError(
                f"state was saved with a different order: {self.order}, this loader has "
                f"{dict(order)}"
            )
        if fingerprint is not None and self.fingerprint != fingerprint:
            raise ValueError(
                "state was saved for a different dataset (fingerprint "
                f"{self.fingerprint}, expected {fingerprint}): files, their order or the "
                "selection differ; pass strict=False to load it anyway"
            )


def _plain(value: object) -> object:
    """Convert an integer of NumPy, which checkpoints may contain, to an int."""
    if isinstance(value, (np.integer, np.ndarray)) and np.ndim(value) == 0:
        return value.item()
    return value
