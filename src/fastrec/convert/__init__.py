"""Convert files of other formats to TFRecord files, and these to tables and images.

IDX, .npy and .npz files need NumPy only. CSV, Parquet, Arrow and Feather files need the
extra ``arrow`` (pyarrow), and folders of images the extra ``image`` (Pillow). Files are
converted batch by batch, except .npz and gzipped IDX files, which are read into memory.

>>> from fastrec import convert
>>> convert.write_tfrecords(
...     ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"],
...     "train-{shard:05d}-of-{num_shards:05d}.tfrecord",
... )  # doctest: +SKIP
>>> convert.write_table("train-*.tfrecord", "train.parquet")  # doctest: +SKIP
"""

from __future__ import annotations

from fastrec.convert.formats import open_source
from fastrec.convert.source import Columns, Source
from fastrec.convert.to_images import write_images
from fastrec.convert.to_table import to_arrow, write_table
from fastrec.convert.to_tfrecords import write_tfrecords

__all__ = [
    "Columns",
    "Source",
    "open_source",
    "to_arrow",
    "write_images",
    "write_table",
    "write_tfrecords",
]


def __dir__() -> list[str]:
    return __all__
