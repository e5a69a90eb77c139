"""Peer: fastrec itself, ``fastrec.open(...).loader(...)``."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np

import fastrec as fr
from fastrec import _core
from fastrec.storage import compression
from peers.reader import Reader, Setup
from truth import Column, Columns, byte_strings, unpadded
from workloads import Feature

__all__ = ["PeerReader", "spec"]


def spec(feature: Feature) -> Any:
    """The feature as fastrec names it."""
    if feature.kind == "steps":
        lengths = f"{feature.name}/n"
        return fr.FixedLenSequence(feature.shape, feature.dtype, lengths=lengths)
    if feature.kind == "varlen_steps":
        return fr.Ragged(feature.dtype)
    if feature.kind == "varlen":
        return fr.VarLen(feature.dtype)
    if feature.kind == "raw":
        return fr.Raw(feature.shape, feature.dtype)
    return fr.FixedLen(feature.shape, feature.dtype)


def column(values: Any) -> Column:
    """A column of fastrec in the words of `truth`."""
    if isinstance(values, fr.RaggedArray):
        inner = column(values.values)
        return Column(inner.values, np.diff(values.row_splits))
    if isinstance(values, fr.BytesArray):
        data, offsets = values.data.data, values.offsets.tolist()
        ends = pairwise(offsets)
        return Column(byte_strings(data[begin:end] for begin, end in ends))
    return Column(values)


def by_step(name: str, values: Any) -> dict[str, Column]:
    """Lists of lists: all values of a row, and how many each step has."""
    steps, splits = values.values, values.row_splits
    flat = column(steps.values).values
    counts = np.diff(steps.row_splits)
    return {
        name: Column(flat, np.diff(steps.row_splits[splits])),
        f"{name}/counts": Column(counts, np.diff(splits)),
    }


class PeerReader(Reader):
    """One thread decodes inline; more are threads in addition to the consumer."""

    checks = "both"

    def __init__(self, setup: Setup) -> None:
        setup.refuse(forms=["zlib"])
        super().__init__(setup)
        num_threads = setup.threads - 1
        # What is compressed is shuffled through a reservoir, as there is no cache_dir.
        window = fr.Window(setup.shuffle_buffer) if self.workload.is_gzip else True
        shuffle = setup.is_shuffled and window
        asked = f", shuffle={shuffle}" if shuffle else ""
        self.form = f"loader({setup.batch_size}, num_threads={num_threads}{asked})"
        self.versions = {
            "fastrec": version("fastrec-io"),
            "crc32c kernel of fastrec": _core.crc32c_kernel(),
        }
        if setup.form == "zlib":
            # What inflates where the extra `gzip` is not installed.
            compression._backend = lambda: zlib
        elif self.workload.is_gzip:
            self.versions["fastrec inflates with"] = compression._backend().__name__
        specs = {f.name: spec(f) for f in self.workload.features}
        if self.workload.is_sequence:
            lists = {f.name for f in self.workload.features if f.is_list}
            dataset = fr.open(
                self.files,
                context_features={k: v for k, v in specs.items() if k not in lists},
                sequence_features={k: v for k, v in specs.items() if k in lists},
            )
        else:
            dataset = fr.open(self.files, features=specs)
        self.loader = dataset.loader(
            setup.batch_size,
            shuffle=shuffle,
            drop_last=False,
            num_threads=num_threads,
        )

    def epoch(self) -> Iterable[Any]:
        """One `for` over the loader."""
        epoch: Iterable[Any] = self.loader
        return epoch

    def columns(self, batch: Any) -> Columns:
        """A batch in the words of `truth`."""
        columns: dict[str, Column] = {}
        for f in self.workload.features:
            values = batch[f.name]
            if f.kind == "steps":
                columns[f.name] = unpadded(values, batch[f"{f.name}/n"])
            elif f.kind == "varlen_steps":
                columns |= by_step(f.name, values)
            else:
                columns[f.name] = column(values)
        return columns
