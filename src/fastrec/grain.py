"""Grain: a dataset as the source of a Grain pipeline, row by row or many rows at once."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

from fastrec.arrays.batch import Row, n_rows, row_of
from fastrec.dataset.dataset import Dataset
from fastrec.extras import extra
from fastrec.options import check_instance

with extra("grain", "fastrec.grain"):
    from grain.python import RandomAccessDataSource

__all__ = ["DataSource"]


class DataSource(RandomAccessDataSource):
    """A dataset as Grain reads it: by number, in the threads and processes of Grain.

    For ``grain.DataLoader`` and ``grain.MapDataset.source``. Can be pickled if the
    transforms of the dataset can, as worker processes need it.

    Grain asks for rows by number, and these are never passed over, whatever `on_error` of
    the dataset says: one that cannot be read raises. Loaders pass over them.

    Grain 0.2 asks for rows one by one. A `fastrec.Loader` reads whole batches, and orders
    and resumes them itself: this is for what only Grain does.

    Parameters
    ----------
    dataset : Dataset
        Rows are those of ``dataset[i]``: dicts of NumPy scalars, arrays and ``bytes``.
        Grain's batches stack them, which needs rows of one shape; of ``bytes`` it makes
        NumPy strings, which lose NUL bytes at the end: read them by `fastrec.Raw`.

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
        return self._dataset[operator.index(index)]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Row]:
        """Return several rows, which are read as one batch.

        Raises
        ------
        IndexError
            If there is no such row.
        ValueError
            If the transforms of the dataset make more or fewer rows of these.
        """
        if not len(indices):
            return []
        batch = self._dataset[np.asarray(indices)]
        if n_rows(batch) != len(indices):
            msg = (
                f"the transforms made {n_rows(batch)} rows of {len(indices)} records: "
                "Grain needs one of each"
            )
            raise ValueError(msg)
        return [row_of(batch, i) for i in range(len(indices))]

    # Where Grain reads many rows at once, it calls the method so.
    _getitems = __getitems__

    def __repr__(self) -> str:
        # Grain compares it with that of a checkpoint: the same data, wherever they lie.
        fingerprint = self._dataset._view.fingerprint()
        return f"<fastrec.grain.DataSource of {len(self):,} records, {fingerprint}>"
