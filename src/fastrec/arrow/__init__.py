"""Arrow: TFRecords as tables of pyarrow, polars, DuckDB and pandas, without pyarrow.

Datasets and loaders are tables: they have the methods of the Arrow PyCapsule Interface.
`RecordBatch` wraps one batch; `RecordBatchReader` adds options.

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
