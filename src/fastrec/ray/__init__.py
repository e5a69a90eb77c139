"""Ray: read TFRecord files as Ray Data datasets, and write TFRecord files.

>>> import fastrec as fr
>>> ds = fr.ray.read_tfrecords("train-*.tfrecord")  # doctest: +SKIP
>>> ds.map_batches(resize).iter_torch_batches(batch_size=256)  # doctest: +SKIP
>>> fr.ray.write_tfrecords(ds, "out/part-{shard:05d}.tfrecord")  # doctest: +SKIP
"""

from __future__ import annotations

from fastrec.options import extra

with extra("ray", "fastrec.ray"):
    import ray.data as _  # noqa: F401 (the modules below import it)

from fastrec.ray.read import read_tfrecords
from fastrec.ray.write import write_tfrecords

__all__ = ["read_tfrecords", "write_tfrecords"]
