"""Arrow: TFRecords as tables, for whatever reads Arrow, without pyarrow.

A dataset is a table by itself, and so is a loader: they have the methods of the Arrow
PyCapsule Interface. `RecordBatch` makes one of a batch, `RecordBatchReader` has options.

>>> import fastrec as fr
>>> ds = fr.open("train-*.tfrecord")  # doctest: +SKIP
>>> pyarrow.table(ds), polars.DataFrame(ds)  # doctest: +SKIP
>>> pandas.DataFrame.from_arrow(ds)  # doctest: +SKIP
>>> duckdb.sql("SELECT label, count(*) FROM ds GROUP BY label")  # doctest: +SKIP
"""

from __future__ import annotations

from fastrec.arrow.reader import RecordBatchReader
from fastrec.arrow.record_batch import RecordBatch

__all__ = ["RecordBatch", "RecordBatchReader"]
