"""Steps: what one rank delivers in an epoch, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastrec import _core
from fastrec.sources.selection import Numbers

__all__ = ["Plan", "padded"]


@dataclass(frozen=True)
class Plan:
    """The steps of one epoch."""

    order: _core.Order  # position in the epoch -> record
    grid: _core.StepGrid  # step -> positions of this rank

    @property
    def n_steps(self) -> int:
        """How many steps the epoch has."""
        return self.grid.n_steps

    @property
    def n_positions(self) -> int:
        """How many positions the epoch has, of all ranks together."""
        return len(self.order)

    def step_at(self, position: int) -> int:
        """Return the step that begins at a position, or the number of steps."""
        return self.grid.step_at(position)

    def begin_of(self, step: int) -> int:
        """Return the first position of a step, or the end of the last one."""
        if step < self.n_steps:
            return self.grid.range(step)[0]
        return sum(self.grid.range(step - 1)) if step else 0

    def rows(self, step: int) -> tuple[Numbers, Numbers]:
        """Return positions and records of this rank's rows; -1 where one is padding."""
        positions = self.grid.positions(step)
        return padded(
            positions,
            self.order.records(positions),
            self.grid.n_rows(step, len(positions)),
        )


def padded(
    positions: Numbers, records: Numbers, n_rows: int
) -> tuple[Numbers, Numbers]:
    """Return both with -1 for the rows that pad the batch to `n_rows`."""
    n_missing = n_rows - len(positions)
    if not n_missing:
        return positions, records
    padding = np.full(n_missing, -1, np.int64)
    return np.append(positions, padding), np.append(records, padding)
