"""Peer: the `tfrecord` package of the Python Package Index, without torch.

It yields records one by one; batches are stacked here, because a batch of arrays is
the work that is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from itertools import chain, islice
from typing import Any

import numpy as np
from tfrecord.iterator_utils import shuffle_iterator
from tfrecord.reader import tfrecord_loader

from peers.reader import Reader, Setup
from truth import Column, Columns, byte_strings
from workloads import Feature

__all__ = ["PeerReader"]

KINDS = {"int64": "int", "float32": "float", "bytes": "byte", "uint8": "byte"}


def stack(feature: Feature, values: list[Any]) -> Any:
    """One column of a batch: an array, or what the package gives for byte strings."""
    if feature.kind == "raw":
        flat = np.frombuffer(b"".join(values), feature.dtype)
        return flat.reshape(len(values), *feature.shape)
    if feature.dtype == "bytes":
        return values
    if feature.kind == "varlen":
        return np.concatenate(values), np.array([len(v) for v in values])
    return np.stack(values).reshape(len(values), *feature.shape)


def column(feature: Feature, values: Any) -> Column:
    """A column in the words of `truth`."""
    if feature.dtype == "bytes" and feature.kind == "varlen":
        # A list of one value comes as the value itself.
        rows = [[v] if isinstance(v, bytes) else v.tolist() for v in values]
        lengths = np.array([len(row) for row in rows])
        return Column(byte_strings(chain.from_iterable(rows)), lengths)
    if feature.dtype == "bytes":
        return Column(byte_strings(values))
    if feature.kind == "varlen":
        return Column(*values)
    return Column(values)


class PeerReader(Reader):
    """`tfrecord_loader` over the files in turn; it knows no threads."""

    checks = "none"

    def __init__(self, setup: Setup) -> None:
        setup.refuse(
            threads="reads on one thread only",
            sequence="its SequenceExamples are not set up here",
        )
        super().__init__(setup)
        # Thousands of records a second: the first file alone takes it seconds.
        self.files = self.files[:1]
        self.form = "tfrecord_loader(path, None, description), stacked; first file only"
        self.buffer = setup.shuffle_buffer if setup.is_shuffled else 0
        if self.buffer:
            self.form += f", shuffle_iterator({self.buffer})"
        self.versions = {name: version(name) for name in ("tfrecord", "protobuf")}

    def epoch(self) -> Iterator[dict[str, Any]]:
        """Batches of stacked records."""
        features = self.workload.features
        description = {f.name: KINDS[f.dtype] for f in features}
        compression = "gzip" if self.workload.is_gzip else None
        records: Iterable[dict[str, Any]] = chain.from_iterable(
            tfrecord_loader(file, None, description, compression_type=compression)
            for file in self.files
        )
        records = iter(records)
        if self.buffer:
            records = shuffle_iterator(records, self.buffer)
        while rows := list(islice(records, self.batch_size)):
            yield {f.name: stack(f, [row[f.name] for row in rows]) for f in features}

    def columns(self, batch: Any) -> Columns:
        """A batch in the words of `truth`."""
        return {f.name: column(f, batch[f.name]) for f in self.workload.features}
