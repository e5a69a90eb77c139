"""EpochPlan: the records of each step of an epoch on one rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastrec import _core
from fastrec.sources.selection import Numbers


@dataclass(frozen=True)
class EpochPlan:
    """The steps of one epoch on one rank."""

    order: _core.Order  # position in the epoch -> record
    grid: _core.StepGrid  # step -> positions of this rank

    @property
    def n_steps(self) -> int:
        """The number of steps in the epoch."""
        return self.grid.n_steps

    @property
    def n_positions(self) -> int:
        """The number of positions in the epoch, over all ranks."""
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
        """Return positions and records of this rank's rows; -1 for padding."""
        positions = self.grid.positions(step)
        return padded(
            positions,
            self.order.records(positions),
            self.grid.n_rows(step, len(positions)),
        )


def padded(
    positions: Numbers, records: Numbers, n_rows: int
) -> tuple[Numbers, Numbers]:
    """Append -1 to both until they have `n_rows` rows."""
    n_missing = n_rows - len(positions)
    if not n_missing:
        return positions, records
    padding = np.full(n_missing, -1, np.int64)
    return np.append(positions, padding), np.append(records, padding)
