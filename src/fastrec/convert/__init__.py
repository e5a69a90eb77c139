"""Converters: files of other formats to TFRecord files, and TFRecords to tables.

::

    IDX, .npy, .npz                       (NumPy)             Parquet       (pyarrow)
    CSV, Parquet, Arrow, Feather          (pyarrow)   -->     Arrow IPC, Feather
    folders of images                     (Pillow)
         open_source -> Source -> write_tfrecords       fr.open -> write_table

Everything goes batch by batch, in memory that does not depend on the size of the files.
pyarrow comes with the extra ``arrow`` and Pillow with the extra ``image``; both are
imported when they are needed.

>>> from fastrec import convert
>>> convert.write_tfrecords(
...     ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"],
...     "train-{shard:05d}-of-{num_shards:05d}.tfrecord",
... )  # doctest: +SKIP
>>> convert.write_table("train-*.tfrecord", "train.parquet")  # doctest: +SKIP
"""

from __future__ import annotations

from fastrec.convert.opening import open_source
from fastrec.convert.source import Columns, Source
from fastrec.convert.writing import to_arrow, write_table, write_tfrecords

__all__ = [
    "Columns",
    "Source",
    "open_source",
    "to_arrow",
    "write_table",
    "write_tfrecords",
]
