"""RowTransform: compute columns row by row, in the threads that share a batch."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy.typing as npt

from fastrec.arrays.batch import Batch
from fastrec.tasks import TaskPool
from fastrec.transforms.batch_info import BatchInfo


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


class RowTransform:
    """Base class of transforms that compute columns row by row."""

    # More parts than threads, because rows differ and threads start at different times.
    _parts_per_thread = 4

    @property
    def name(self) -> str:
        """The transform's name in errors; "" if its errors contain their place."""
        raise NotImplementedError

    def _columns(self, n_rows: int, info: BatchInfo) -> Mapping[Any, npt.NDArray[Any]]:
        """Return uninitialized columns for `n_rows` rows."""
        raise NotImplementedError

    def _fill_row(
        self,
        batch: Batch,
        info: BatchInfo,
        columns: Mapping[Any, npt.NDArray[Any]],
        i: int,
    ) -> None:
        """Set row `i` of all columns."""
        raise NotImplementedError

    def __call__(self, batch: Batch, info: BatchInfo) -> Batch:
        """Return `batch` with the columns, added or in place of those of their names."""
        n_rows = len(info.positions)
        columns = self._columns(n_rows, info)
        fill = functools.partial(self._fill, batch, info, columns)
        if info._threads is None or n_rows <= 1:
            fill(0, n_rows)
            return {**batch, **columns}
        n_parts = min(n_rows, self._parts_per_thread * (info._threads.n_threads + 1))
        bounds = [n_rows * i // n_parts for i in range(n_parts + 1)]
        parts = itertools.pairwise(bounds)
        run_all([functools.partial(fill, *part) for part in parts], info._threads)
        return {**batch, **columns}

    def _fill(
        self,
        batch: Batch,
        info: BatchInfo,
        columns: Mapping[Any, npt.NDArray[Any]],
        begin: int,
        end: int,
    ) -> None:
        for i in range(begin, end):
            error: Exception | None = None
            if info.positions[i] >= 0:
                try:
                    self._fill_row(batch, info, columns, i)
                    continue
                except Exception as raised:
                    if info._failed is None or isinstance(raised, MemoryError):
                        if info._places is not None and self.name:
                            info._places.note_row(raised, self.name, i)
                        raise
                    error = raised
            for column in columns.values():  # padding and failed rows are zero
                column[i] = 0
            if error is not None and info._failed is not None:
                info._failed.append((i, error))
