"""Peer: tf.data of TensorFlow, in the form that is fastest for each workload.

A form is how the pipeline is put together. By a search that README.md tells how
to repeat, "batch" is fastest on one core and level with "interleave" on two; on images,
"record" and "reads" are level with both. Batches are taken as TensorFlow's own tensors: they are turned
into NumPy arrays for verification, never while the clock runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from peers.reader import MissingPeerError, Reader, Setup
from truth import Column, Columns, byte_strings, unpadded
from workloads import Feature

__all__ = ["PeerReader"]

# Of TFRecordDataset; between 64 KiB and 2 MiB no difference was found.
BUFFER_BYTES = 1 << 20
PREFETCH = 2
BEST = ("batch", "interleave")  # On one CPU, and on several.

Parse: TypeAlias = Callable[[Any], dict[str, Any]]


def spec(feature: Feature) -> Any:
    """The feature as tf.io names it."""
    dtype = {"int64": tf.int64, "float32": tf.float32}.get(feature.dtype, tf.string)
    if feature.kind in ("varlen", "varlen_steps"):
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    if feature.kind == "steps":
        return tf.io.FixedLenSequenceFeature(feature.shape, dtype)
    return tf.io.FixedLenFeature(() if feature.kind == "raw" else feature.shape, dtype)


def column(values: Any) -> Column:
    """A tensor or ragged tensor in the words of `truth`."""
    if isinstance(values, tf.RaggedTensor):
        return Column(column(values.values).values, np.diff(values.row_splits.numpy()))
    array = values.numpy()
    return Column(byte_strings(array.tolist()) if array.dtype == object else array)


def by_step(name: str, values: Any) -> dict[str, Column]:
    """Lists of lists: all values of a row, and how many each step has."""
    steps, splits = values.values, values.row_splits.numpy()
    ends = steps.row_splits.numpy()
    return {
        name: Column(column(steps.values).values, np.diff(ends[splits])),
        f"{name}/counts": Column(np.diff(ends), np.diff(splits)),
    }


class PeerReader(Reader):
    """TFRecordDataset -> parsed batches, on `threads` threads and no more."""

    checks = "both"

    def __init__(self, setup: Setup) -> None:
        setup.refuse(forms=FORMS)
        super().__init__(setup)
        threads = setup.threads
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        self.compression = "GZIP" if self.workload.is_gzip else ""
        self.spec = {f.name: spec(f) for f in self.workload.features}
        self.raw = [f for f in self.workload.features if f.kind == "raw"]
        form = setup.form or BEST[threads > 1]
        if form == "record" and self.workload.is_sequence:
            msg = "sequences are parsed by the batch"
            raise MissingPeerError(msg)
        self.form, self.buffer = form, 0
        self.in_order = self.in_order and form != "reads"
        if setup.is_shuffled:
            self.buffer = setup.shuffle_buffer
            self.form += f", shuffle({self.buffer})"
        self.versions = {"tensorflow": tf.__version__}
        options = tf.data.Options()
        options.autotune.enabled = False
        options.deterministic = True
        options.threading.max_intra_op_parallelism = 1
        options.threading.private_threadpool_size = threads
        dataset = FORMS[form](self, threads if threads > 1 else None)
        self.dataset = dataset.prefetch(PREFETCH).with_options(options)

    def records(self, files: Any, n_at_once: int | None = None) -> Any:
        """Serialized examples; shuffled through a buffer, which holds them as they are."""
        dataset = tf.data.TFRecordDataset(
            files,
            compression_type=self.compression,
            buffer_size=BUFFER_BYTES,
            num_parallel_reads=n_at_once,
        )
        return dataset.shuffle(self.buffer) if self.buffer else dataset

    def names(self) -> Any:
        """Names of the files, in a new order in each shuffled epoch."""
        names = tf.data.Dataset.from_tensor_slices(self.files)
        return names.shuffle(len(self.files)) if self.buffer else names

    def batches(self, files: Any) -> Any:
        """Batches of serialized examples."""
        return self.records(files).batch(self.batch_size)

    def parse_batch(self, serialized: Any) -> dict[str, Any]:
        """One `parse_example` for the whole batch."""
        if self.workload.is_sequence:
            return self.parse_sequences(serialized)
        return self.decode(tf.io.parse_example(serialized, self.spec), (-1,))

    def parse_sequences(self, serialized: Any) -> dict[str, Any]:
        """One `parse_sequence_example` for the whole batch."""
        lists = {f.name for f in self.workload.features if f.is_list}
        context, steps, lengths = tf.io.parse_sequence_example(
            serialized,
            {k: v for k, v in self.spec.items() if k not in lists},
            {k: v for k, v in self.spec.items() if k in lists},
        )
        padded = {f"{name}/n": n for name, n in lengths.items()}
        return {**context, **steps, **padded}

    def parse_record(self, serialized: Any) -> dict[str, Any]:
        """One `parse_single_example` for the record."""
        return self.decode(tf.io.parse_single_example(serialized, self.spec), ())

    def decode(self, parsed: dict[str, Any], rows: tuple[int, ...]) -> dict[str, Any]:
        """Raw bytes to arrays."""
        for f in self.raw:
            flat = tf.io.decode_raw(parsed[f.name], tf.as_dtype(f.dtype))
            parsed[f.name] = tf.reshape(flat, (*rows, *f.shape))
        return parsed

    def epoch(self) -> Iterable[Any]:
        """One `for` over the dataset."""
        epoch: Iterable[Any] = self.dataset
        return epoch

    def columns(self, batch: Any) -> Columns:
        """A batch in the words of `truth`."""
        columns: dict[str, Column] = {}
        for f in self.workload.features:
            values = batch[f.name]
            if f.kind == "steps":
                lengths = batch[f"{f.name}/n"].numpy()
                columns[f.name] = unpadded(values.numpy(), lengths)
            elif f.kind == "varlen_steps":
                columns |= by_step(f.name, values)
            else:
                columns[f.name] = column(values)
        return columns


def batch_form(reader: PeerReader, calls: int | None) -> Any:
    """Read in sequence, batch, parse whole batches."""
    return reader.batches(reader.names()).map(
        reader.parse_batch, num_parallel_calls=calls
    )


def record_form(reader: PeerReader, calls: int | None) -> Any:
    """Read in sequence, parse record by record, batch."""
    rows = reader.records(reader.names()).map(
        reader.parse_record, num_parallel_calls=calls
    )
    ragged = any(f.kind == "varlen" for f in reader.workload.features)
    return (rows.ragged_batch if ragged else rows.batch)(reader.batch_size)


def interleave_form(reader: PeerReader, calls: int | None) -> Any:
    """Read, batch and parse several files side by side."""
    return reader.names().interleave(
        lambda file: reader.batches(file).map(reader.parse_batch),
        cycle_length=calls or 1,
        num_parallel_calls=calls,
    )


def reads_form(reader: PeerReader, calls: int | None) -> Any:
    """As `batch_form`, with `num_parallel_reads`: what TensorFlow's guide shows."""
    batches = reader.records(reader.names(), reader.threads).batch(reader.batch_size)
    return batches.map(reader.parse_batch, num_parallel_calls=calls)


FORMS: dict[str, Callable[[PeerReader, int | None], Any]] = {
    "batch": batch_form,
    "record": record_form,
    "interleave": interleave_form,
    "reads": reads_form,
}
