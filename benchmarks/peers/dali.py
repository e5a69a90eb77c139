"""Peer: NVIDIA DALI, a pipeline on the CPU with `fn.readers.tfrecord`.

Outputs are taken as DALI's own tensor lists. The index that its reader wants is made
beforehand, with the package's `tfrecord2idx`.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali.tfrecord as tfrec
from nvidia.dali import fn, pipeline_def

from peers.reader import MissingPeerError, Reader, Setup
from truth import Column, Columns, byte_strings
from workloads import Feature

__all__ = ["PeerReader"]

DTYPES = {"int64": (tfrec.int64, 0), "float32": (tfrec.float32, 0.0)}
PREFETCH = 2


def spec(feature: Feature) -> Any:
    """The feature as DALI names it."""
    dtype, default = DTYPES.get(feature.dtype, (tfrec.string, ""))
    if feature.kind == "varlen":
        return tfrec.VarLenFeature(dtype, default)
    shape = [] if feature.kind == "raw" else [*feature.shape]
    return tfrec.FixedLenFeature(shape, dtype, default)


def index(path: str) -> str:
    """The index of a file, made if it does not exist."""
    file = Path(path)
    target = file.parent / "dali" / file.with_suffix(".idx").name
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        draft = target.with_suffix(".draft")
        tool = Path(sys.executable).with_name("tfrecord2idx")
        subprocess.run([tool, path, draft], check=True)
        draft.rename(target)
    return str(target)


def column(feature: Feature, values: Any, n: int) -> Column:
    """The first `n` of a list of tensors in the words of `truth`."""
    if feature.kind == "varlen" or feature.dtype == "bytes":
        rows = [values.at(i) for i in range(n)]
        if feature.dtype == "bytes":
            return Column(byte_strings(row.data for row in rows))
        return Column(np.concatenate(rows), np.array([len(row) for row in rows]))
    array = np.array(values.as_array()[:n])
    return Column(array.reshape(n, *feature.shape))


class PeerReader(Reader):
    """One pipeline, which runs on from epoch to epoch."""

    checks = "none"

    def __init__(self, setup: Setup) -> None:
        setup.refuse(
            gzip="reads no compressed files", sequence="knows no SequenceExamples"
        )
        super().__init__(setup)
        features = self.workload.features
        if any(f.dtype == "bytes" and f.kind == "varlen" for f in features):
            msg = "reads one byte string per feature and record"
            raise MissingPeerError(msg)
        self.form = "fn.readers.tfrecord, device_id=None"
        if len(features) > 10:
            # Thousands of records a second: the first file is enough.
            self.files = self.files[:1]
            self.form += "; first file only"
        self.versions = {"dali": version("nvidia-dali-cuda130")}
        shuffle: dict[str, Any] = {}
        if setup.is_shuffled:
            shuffle = {"random_shuffle": True, "initial_fill": setup.shuffle_buffer}
            self.form += f", initial_fill={setup.shuffle_buffer}"

        @pipeline_def(  # type: ignore[untyped-decorator]
            batch_size=self.batch_size,
            num_threads=self.threads,
            device_id=None,
            prefetch_queue_depth=PREFETCH,
        )
        def pipeline() -> tuple[Any, ...]:
            outputs = fn.readers.tfrecord(
                path=self.files,
                index_path=[index(file) for file in self.files],
                features={f.name: spec(f) for f in features},
                pad_last_batch=True,
                **shuffle,
            )
            return tuple(outputs[f.name] for f in features)

        self.pipeline = pipeline()
        self.pipeline.build()

    def epoch(self) -> Iterator[tuple[tuple[Any, ...], int]]:
        """Outputs of the pipeline, and how many rows of them are not padding."""
        for i in range(math.ceil(self.n_records / self.batch_size)):
            rows = min(self.batch_size, self.n_records - i * self.batch_size)
            yield self.pipeline.run(), rows

    def columns(self, batch: Any) -> Columns:
        """A batch in the words of `truth`."""
        outputs, n = batch
        pairs = zip(self.workload.features, outputs, strict=True)
        return {f.name: column(f, values, n) for f, values in pairs}
