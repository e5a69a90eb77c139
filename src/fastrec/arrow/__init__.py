"""Read TFRecord files as Arrow tables in pyarrow, polars, DuckDB and pandas.

Datasets and loaders implement the Arrow PyCapsule Interface, which does not require
pyarrow. `RecordBatch` wraps one batch; `RecordBatchReader` adds options to a dataset.

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
