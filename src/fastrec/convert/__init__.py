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

from fastrec.convert.to_files import write_images, write_table
from fastrec.convert.write import write_tfrecords

__all__ = ["write_images", "write_table", "write_tfrecords"]
