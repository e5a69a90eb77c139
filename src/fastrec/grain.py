"""Grain: a dataset as the source of a Grain pipeline, row by row or many rows at once."""

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


def __dir__() -> list[str]:
    return __all__


class DataSource(RandomAccessDataSource):
    """Random-access source for Grain, which reads it in its threads and processes.

    For ``grain.DataLoader`` and ``grain.MapDataset.source``. Grain 0.2 reads rows one
    by one; a `fastrec.Loader` reads whole batches, and orders and resumes them itself.
    A row that cannot be read raises, whatever `on_error` of the dataset is.

    Parameters
    ----------
    dataset : Dataset
        Rows are those of ``dataset[i]``: dicts of NumPy scalars, arrays and ``bytes``.
        Grain's batches stack them, which needs rows of one shape; from ``bytes`` they
        make NumPy strings, which lose trailing NUL bytes: read them by `fastrec.Raw`.
        For worker processes, the transforms of the dataset must be picklable.

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
        """Return several rows, which are read as one batch."""
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
        # Grain compares it with that of a checkpoint: equal for equal data.
        fingerprint = self._dataset._source.fingerprint()
        return f"<fastrec.grain.DataSource of {len(self):,} records, {fingerprint}>"
