"""Arrow tables in memory, and Hugging Face datasets -> columns; needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fastrec.convert.arrow_columns import columns_of, features_of
from fastrec.convert.source import Columns, Source, chosen
from fastrec.convert.tables import slices

__all__ = ["ArrowSource"]

# Rows of a Hugging Face dataset that are in memory at once.
_ROWS_AT_ONCE = 256


class ArrowSource(Source):
    """The record batches of a table, which can be read once.

    Parameters
    ----------
    data : object with ``__arrow_c_stream__``, or datasets.Dataset

    Raises
    ------
    ValueError
        If there is no column, or two have one name; from `batches`, if there is no row.
    SchemaError
        If no feature can hold a column.
    """

    def __init__(self, data: Any) -> None:  # noqa: ANN401
        super().__init__()
        self._reader = (
            pa.RecordBatchReader.from_stream(data)
            if hasattr(data, "__arrow_c_stream__")
            else _reader_of_dataset(data)
        )
        schema = self._reader.schema
        if not chosen(None, [(field.name, field) for field in schema]):
            msg = "data must have at least one column, got none"
            raise ValueError(msg)
        self.features = dict(features_of(schema))

    def _batches(self) -> Iterator[Columns]:
        for batch in self._reader:
            for part in slices(batch):
                self.n_done += len(part)
                yield columns_of(part)
        if not self.n_done:
            msg = (
                "data must have at least one row, got none; use fastrec.Writer to write "
                "an empty file"
            )
            raise ValueError(msg)


def _reader_of_dataset(dataset: Any) -> pa.RecordBatchReader:  # noqa: ANN401
    def batches() -> Iterator[pa.RecordBatch]:
        # In the order of the dataset, which may be shuffled or a selection.
        for table in dataset.with_format("arrow").iter(_ROWS_AT_ONCE):
            yield from table.cast(schema).to_batches()

    schema = dataset.features.arrow_schema
    return pa.RecordBatchReader.from_batches(schema, batches())
