"""Map-style: the rows of a fastrec dataset, chosen by samplers of torch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.utils.data

import fastrec.dataset.dataset
from fastrec.arrays.batch import Batch, Row, n_rows
from fastrec.arrays.layout import is_int
from fastrec.options import check_instance
from fastrec.torch.columns import (
    RaggedAs,
    TensorBatch,
    check_ragged,
    tensors,
)


class Dataset(torch.utils.data.Dataset[Any]):
    """The records of a `fastrec.Dataset` as a map-style dataset of torch.

    A `torch.utils.data.DataLoader` requests all rows of a batch in one call, and native
    code reads the rows together. Samplers of torch choose the rows; for the shuffles of
    fastrec, use `IterableDataset` or `loader`.

    ``data[i]`` is a row, a dict of tensors and ``bytes``. A slice, an index array, a list
    of numbers or a mask returns a dict of columns, as `tensors` does. An unreadable row
    raises an error, regardless of the dataset's `on_error`. The dataset can be pickled,
    and read in forked or spawned processes.

    Parameters
    ----------
    dataset : fastrec.Dataset
        Compressed files require `cache_dir`, because rows are read by record number.
    ragged : {"offsets", "nested"}, default "offsets"
        See `tensors`.

    Notes
    -----
    Torch's own ``default_collate`` copies, and cannot stack rows of different lengths,
    sparse rows, or rows with several byte strings.

    Examples
    --------
    >>> DataLoader(
    ...     fr.torch.Dataset(ds),
    ...     batch_size=256,
    ...     shuffle=True,
    ...     collate_fn=fr.torch.collate,
    ... )  # doctest: +SKIP
    """

    def __init__(
        self, dataset: fastrec.dataset.dataset.Dataset, *, ragged: RaggedAs = "offsets"
    ) -> None:
        kind = fastrec.dataset.dataset.Dataset
        check_instance("fr.torch.Dataset", dataset, kind, "such as fr.open(...)")
        self._dataset = dataset
        self._ragged = check_ragged(ragged)

    def __len__(self) -> int:
        return len(self._dataset)

    def __repr__(self) -> str:
        return f"<fastrec.torch.Dataset of {self._dataset!r}>"

    def __getitem__(self, index: Any) -> Row | Batch:
        if isinstance(index, torch.Tensor):
            index = index.numpy()
        if is_int(index):
            return _of_row(self._dataset[index], self._ragged)
        return tensors(self._dataset[index], self._ragged)

    def __getitems__(self, indices: Sequence[int]) -> Rows:
        """Read and return the rows of a batch; a DataLoader calls this method."""
        return Rows(self._dataset[indices], self._ragged)


class Rows(Sequence[Row]):
    """The rows of a batch, passed to a ``collate_fn``.

    Torch's ``default_collate`` reads the rows as a list of dicts. `collate` uses the
    columns directly, and creates no rows.
    """

    def __init__(self, batch: Batch, ragged: RaggedAs) -> None:
        self._batch = batch
        self._ragged = ragged

    def __len__(self) -> int:
        return n_rows(self._batch)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def tensors(self) -> TensorBatch:
        """Return the columns as tensors that share the memory of the batch."""
        return tensors(self._batch, self._ragged)

    @functools.cached_property
    def _rows(self) -> list[Row]:
        columns = [self._rows_of(*item) for item in self._batch.items()]
        rows = zip(*columns, strict=True)
        return [dict(zip(self._batch, row, strict=True)) for row in rows]

    def _rows_of(self, name: str, column: Any) -> Sequence[Any]:
        if isinstance(column, np.ndarray) and column.dtype != object:
            (tensor,) = tensors({name: column}).values()
            rows: tuple[torch.Tensor, ...] = tensor.unbind()
            return rows
        return [_of_row({name: value}, self._ragged)[name] for value in column]


def _of_row(row: Row, ragged: RaggedAs) -> Row:
    """Return the row with its arrays and numbers as tensors; bytes stay unchanged."""
    arrays = {
        name: np.array(value) if isinstance(value, np.generic) else value
        for name, value in row.items()
    }
    return tensors(arrays, ragged)


def collate(rows: Sequence[Any]) -> Any:
    """Collate rows into a batch: the ``collate_fn`` of a DataLoader over a `Dataset`.

    The tensors share the memory of the batch, and ragged columns are converted as by
    `tensors`. If another dataset, such as `torch.utils.data.ConcatDataset`, has picked
    the rows one by one, torch's ``default_collate`` copies and stacks them.

    Returns
    -------
    dict of str to tensor
        See `tensors`.

    Raises
    ------
    ValueError
        If ``default_collate`` cannot stack the rows of a column; the message names it.
    """
    if isinstance(rows, Rows):
        return rows.tensors()
    if not isinstance(rows[0], dict):  # values of another dataset
        return torch.utils.data.default_collate(rows)
    return {name: _stacked(name, [row[name] for row in rows]) for name in rows[0]}


def _stacked(name: str, values: list[Any]) -> Any:
    try:
        return torch.utils.data.default_collate(values)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"column {name!r}: torch cannot stack rows that were picked one by one "
            f"({error}); join datasets by fr.concat([...]) instead of ConcatDataset, so "
            "that fr.torch.Dataset reads whole batches"
        ) from error
