"""Batches from records that come one by one, each feature as a Python list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from truth import Column, byte_strings
from workloads import Feature

__all__ = ["column", "stack"]


def stack(feature: Feature, rows: Sequence[Sequence[Any]]) -> Any:
    """One column of a batch: an array, an array and lengths, or byte strings."""
    if feature.kind == "raw":
        flat = np.frombuffer(b"".join(row[0] for row in rows), feature.dtype)
        return flat.reshape(len(rows), *feature.shape)
    if feature.dtype == "bytes":
        return rows if feature.kind == "varlen" else [row[0] for row in rows]
    if feature.kind == "fixed" and not feature.shape:
        return np.array([row[0] for row in rows], feature.dtype)
    values = np.fromiter(chain.from_iterable(rows), feature.dtype)
    if feature.kind == "varlen":
        return values, np.array([len(row) for row in rows])
    return values.reshape(len(rows), *feature.shape)


def column(feature: Feature, values: Any) -> Column:
    """What `stack` made, in the words of `truth`."""
    if feature.dtype == "bytes" and feature.kind == "varlen":
        lengths = np.array([len(row) for row in values])
        return Column(byte_strings(chain.from_iterable(values)), lengths)
    if feature.dtype == "bytes":
        return Column(byte_strings(values))
    return Column(*values) if feature.kind == "varlen" else Column(values)
