"""Peer: the Arrow decoder of tfx_bsl behind tf.data's reader.

`RecordBatches` of its TFXIO classes does the same: `TFRecordDataset`, `batch`,
`as_numpy_iterator`, `DecodeBatch`. It is not called, because it reads every file once
to tell whether it is compressed, and it lets TensorFlow take as many threads as it likes.
Batches stay Arrow record batches, whose columns are lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from peers.reader import Reader, Setup
from truth import Column, Columns, byte_strings
from workloads import Feature

__all__ = ["PeerReader"]

BUFFER_BYTES = 1 << 20
PREFETCH = 2
TYPES = {"int64": "INT", "float32": "FLOAT"}


def column(feature: Feature, values: Any) -> Column:
    """A column of lists in the words of `truth`."""
    flat, lengths = values.flatten(), np.diff(values.offsets.to_numpy())
    rows = (len(values), *feature.shape)
    if feature.kind == "raw":
        joined = b"".join(flat.to_pylist())
        return Column(np.frombuffer(joined, feature.dtype).reshape(rows))
    if feature.dtype == "bytes":
        array = byte_strings(flat.to_pylist())
    else:
        array = flat.to_numpy()
    if feature.kind == "varlen":
        return Column(array, lengths.astype(np.int64))
    return Column(array.reshape(rows))


class PeerReader(Reader):
    """TFRecordDataset -> NumPy array of bytes -> Arrow record batch."""

    checks = "both"

    def __init__(self, setup: Setup) -> None:
        setup.refuse(sequence="its SequenceExamples are not set up here")
        super().__init__(setup)
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(setup.threads)
        self.form = "TFRecordDataset.batch, ExamplesToRecordBatchDecoder"
        self.versions = {name: version(name) for name in ("tfx-bsl", "pyarrow")}
        schema = schema_pb2.Schema()
        for f in self.workload.features:
            schema.feature.add(name=f.name, type=TYPES.get(f.dtype, "BYTES"))
        self.decoder = ExamplesToRecordBatchDecoder(schema.SerializeToString())
        names = tf.data.Dataset.from_tensor_slices(self.files)
        compression = "GZIP" if self.workload.is_gzip else ""
        if setup.is_shuffled:
            names = names.shuffle(len(self.files))
        dataset = tf.data.TFRecordDataset(
            names, compression_type=compression, buffer_size=BUFFER_BYTES
        )
        if setup.is_shuffled:
            dataset = dataset.shuffle(setup.shuffle_buffer)
            self.form += f", shuffle({setup.shuffle_buffer})"
        options = tf.data.Options()
        options.autotune.enabled = False
        options.threading.private_threadpool_size = setup.threads
        dataset = dataset.batch(self.batch_size).prefetch(PREFETCH)
        self.dataset = dataset.with_options(options)

    def epoch(self) -> Iterator[Any]:
        """Record batches."""
        return map(self.decoder.DecodeBatch, self.dataset.as_numpy_iterator())

    def columns(self, batch: Any) -> Columns:
        """A batch in the words of `truth`."""
        return {f.name: column(f, batch[f.name]) for f in self.workload.features}
