"""Convert tables and folders of images to TFRecord files and back.

CSV, Parquet, Arrow and Feather files require the extra ``arrow`` (pyarrow). Folders of
images require the extra ``image`` (Pillow). Files are converted batch by batch.

>>> from fastrec import convert
>>> convert.write_tfrecords(
...     "train.csv", "train-{shard:05d}-of-{num_shards:05d}.tfrecord"
... )  # doctest: +SKIP
>>> convert.write_table("train-*.tfrecord", "train.parquet")  # doctest: +SKIP
"""

from __future__ import annotations

from fastrec.convert.source import Columns, Source
from fastrec.convert.to_files import write_images, write_table
from fastrec.convert.write import open_source, write_tfrecords

__all__ = [
    "Columns",
    "Source",
    "open_source",
    "write_images",
    "write_table",
    "write_tfrecords",
]


def __dir__() -> list[str]:
    return __all__
