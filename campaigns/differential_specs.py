"""The specs of `differential_cases`, as those of fastrec."""

from __future__ import annotations

from typing import Any

import fastrec as fr
from campaigns.differential_cases import Spec

DTYPES = {"int64": "int64", "float": "float32", "bytes": "bytes"}


def fastrec_feature(spec: Spec) -> Any:
    dtype = DTYPES[spec.kind]
    if spec.form == "fixed":
        return fr.FixedLen(spec.shape, dtype, spec.default)
    if spec.form == "sequence":
        return fr.FixedLenSequence(
            spec.shape, dtype, spec.default, allow_missing=spec.allow_missing
        )
    if spec.form == "var":
        return fr.VarLen(dtype)
    if spec.form == "ragged":
        parts = [getattr(fr.Ragged, kind)(value) for kind, value in spec.partitions]
        return fr.Ragged(dtype, parts, spec.splits, key=spec.keys[0])
    if spec.form == "sparse":
        return fr.Sparse(
            spec.keys[1:], spec.keys[0], dtype, spec.shape, spec.already_sorted
        )
    if spec.form == "raw":
        return fr.Raw(spec.shape, spec.dtype, spec.little_endian)
    if spec.form == "stack":
        return fr.Stack(spec.keys, dtype, spec.default)
    if spec.shape is None:
        return fr.SerializedTensor()
    return fr.SerializedTensor(
        spec.shape, "bytes" if spec.dtype == "string" else spec.dtype
    )
