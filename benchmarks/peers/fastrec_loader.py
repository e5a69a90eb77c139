"""Peer: fastrec itself, ``fastrec.open(...).loader(...)`` in file order."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np

import fastrec as fr
from fastrec import _core, inflate
from peers import MissingPeerError
from peers.reader import Reader
from truth import Column, Columns, byte_strings
from workloads import Feature, Prepared

__all__ = ["open_reader"]


def spec(feature: Feature) -> Any:  # noqa: ANN401
    """The feature as fastrec names it."""
    if feature.kind == "varlen":
        return fr.VarLen(feature.dtype)
    if feature.kind == "raw":
        return fr.Raw(feature.shape, feature.dtype)
    return fr.FixedLen(feature.shape, feature.dtype)


def column(values: Any) -> Column:  # noqa: ANN401
    """A column of fastrec in the words of `truth`."""
    if isinstance(values, fr.RaggedArray):
        inner = column(values.values)
        return Column(inner.values, np.diff(values.row_splits))
    if isinstance(values, fr.BytesArray):
        data, offsets = values.data.data, values.offsets.tolist()
        ends = pairwise(offsets)
        return Column(byte_strings(data[begin:end] for begin, end in ends))
    return Column(values)


class FastrecReader(Reader):
    """One thread decodes inline; more are background threads beside the consumer."""

    checks = "both"

    def __init__(
        self, prepared: Prepared, threads: int, batch_size: int, form: str
    ) -> None:
        super().__init__(prepared, threads, batch_size)
        features = {f.name: spec(f) for f in self.workload.features}
        num_threads = threads - 1
        self.form = f"loader({batch_size}, num_threads={num_threads})"
        self.versions = {
            "fastrec": version("fastrec-io"),
            "crc32c kernel of fastrec": _core.crc32c_kernel(),
        }
        if form == "zlib":
            # What inflates where the extra `gzip` is not installed.
            inflate._backend = lambda: zlib
        elif self.workload.is_gzip:
            self.versions["fastrec inflates with"] = inflate._backend().__name__
        dataset = fr.open(self.files, features=features)
        self.loader = dataset.loader(
            batch_size, drop_last=False, num_threads=num_threads
        )

    def epoch(self) -> Iterable[Any]:
        """One `for` over the loader."""
        epoch: Iterable[Any] = self.loader
        return epoch

    def columns(self, batch: Any) -> Columns:  # noqa: ANN401
        """A batch in the words of `truth`."""
        return {name: column(values) for name, values in batch.items()}


def open_reader(prepared: Prepared, threads: int, batch_size: int, form: str) -> Reader:
    """Make the reader."""
    if form not in ("", "zlib"):
        raise MissingPeerError(f"fastrec has no form {form!r}; there is zlib")
    return FastrecReader(prepared, threads, batch_size, form)
