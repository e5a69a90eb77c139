"""Grain: a dataset as the random-access source of a Grain pipeline."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

from fastrec.arrays.batch import Row, n_rows, rows_of
from fastrec.dataset.dataset import Dataset
from fastrec.options import check_instance, extra

with extra("grain", "fastrec.grain"):
    from grain.python import RandomAccessDataSource

__all__ = ["DataSource"]


class DataSource(RandomAccessDataSource):
    """Random-access source for the threads and processes of Grain.

    Pass it to ``grain.DataLoader`` or ``grain.MapDataset.source``. Grain 0.2 reads rows
    one by one; a `fastrec.Loader` reads, orders and resumes whole batches. A row that
    cannot be read raises an error, regardless of the dataset's `on_error`.

    Parameters
    ----------
    dataset : Dataset
        Each row is ``dataset[i]``: a dict of NumPy scalars, arrays and ``bytes``. Grain
        stacks rows of one shape into batches. It converts ``bytes`` to NumPy strings,
        which lose trailing NUL bytes: read such features with `fastrec.Raw`. For worker
        processes, the transforms of the dataset must be picklable.

    Examples
    --------
    >>> source = fr.grain.DataSource(ds)  # doctest: +SKIP
    >>> for batch in grain.MapDataset.source(source).shuffle(seed=0).batch(256):
    ...     step(batch["image"], batch["label"])  # doctest: +SKIP
    """

    def __init__(self, dataset: Dataset) -> None:
        check_instance("fr.grain.DataSource", dataset, Dataset, "such as fr.open(...)")
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: SupportsIndex) -> Row:
        """Return row `index`: ``dataset[index]``."""
        return dict(self._dataset[operator.index(index)])

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Row]:
        """Return the rows `indices`, which are read as one batch."""
        if not len(indices):
            return []
        batch = self._dataset[np.asarray(indices)]
        if n_rows(batch) != len(indices):
            raise ValueError(
                f"transforms must return a row for each of the {len(indices)} records "
                f"for Grain, got {n_rows(batch)} rows"
            )
        return list(map(dict, rows_of(batch)))

    # The name that Grain calls to read many rows at once.
    _getitems = __getitems__

    def __repr__(self) -> str:
        # Grain compares this repr with a checkpoint: equal data has equal reprs.
        fingerprint = self._dataset._source.fingerprint()
        return f"<fastrec.grain.DataSource of {len(self):,} records, {fingerprint}>"
