"""Read the same columns of the same records with tf.data, for comparison.

It uses the fastest form found in benchmarks/: records are parsed in batches, on the same
number of threads as fastrec, and tensors are not converted to arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

import fastrec as fr
from fastrec.features.base import Spec
from fastrec.features.sequence_schema import SequenceSchema

__all__ = ["make_batches", "stage"]

_COMPRESSION = {"plain": "", "gzip": "GZIP", "zlib": "ZLIB"}


def make_batches(
    dataset: fr.Dataset, n_records: int, *, batch_size: int, n_threads: int
) -> Iterator[Any]:
    """Return endless batches of tensors of the first `n_records`.

    Raises a ModuleNotFoundError if TensorFlow is not installed, and a ValueError if
    tf.data cannot read the dataset.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
    import tensorflow as tf

    contents = {content for _, content in dataset._view.files.contents()}
    if len(contents) > 1:
        msg = "tf.data cannot read files of different compression together"
        raise ValueError(msg)
    parse = _parser(tf, dataset.schema)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.max_intra_op_parallelism = 1
    options.threading.private_threadpool_size = n_threads
    compression = _COMPRESSION[contents.pop()]
    batches = (
        tf.data.TFRecordDataset(dataset.files, compression, buffer_size=1 << 20)
        .take(n_records)
        .repeat()
        .batch(batch_size)
        .map(parse, num_parallel_calls=n_threads if n_threads > 1 else None)
        .prefetch(2)
        .with_options(options)
    )
    return iter(batches)


def _parser(tf: Any, schema: fr.Schema) -> Callable[[Any], Any]:  # noqa: ANN401
    """Return a function that parses a batch of records into the columns of `schema`."""
    if not isinstance(schema, SequenceSchema):
        features = {str(name): _feature(tf, spec) for name, spec in schema.items()}
        return lambda records: tf.io.parse_example(records, features)
    context: dict[str, Any] = {}
    lists: dict[str, Any] = {}
    for name, spec in schema.items():
        key = getattr(spec, "key", None) or name
        part = lists if name in schema._list_names else context
        part[str(key)] = _feature(tf, spec)
    return lambda records: tf.io.parse_sequence_example(records, context, lists)


def _feature(tf: Any, spec: Spec) -> Any:  # noqa: ANN401
    """Return the tf.io spec for an inferred spec."""
    dtype = getattr(spec, "dtype", None)
    dtype = tf.string if dtype == "bytes" else tf.as_dtype(np.dtype(dtype))
    if isinstance(spec, fr.FixedLen):
        return tf.io.FixedLenFeature(spec.shape, dtype)
    if isinstance(spec, fr.FixedLenSequence):
        return tf.io.FixedLenSequenceFeature(spec.shape, dtype)
    if isinstance(spec, fr.VarLen):
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    msg = f"cannot convert {spec!r} to a spec of tf.io"
    raise ValueError(msg)


def stage(batches: Iterator[Any], batch_size: int, n_records: int) -> Generator[float]:
    """Take the batches of one pass over the records, as a stage of `costs`."""
    for _ in range(0, n_records, batch_size):
        next(batches)
        yield batch_size
