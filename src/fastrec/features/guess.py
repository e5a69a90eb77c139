"""Guess what byte strings of a feature are: arrays of a dtype, or serialized tensors."""

from __future__ import annotations

import numpy as np

from fastrec import _core
from fastrec.features.tensor import tensor_text

__all__ = ["suggestion"]

# Non-zero values that make a dtype more than a coincidence.
_ENOUGH = 32
# Values that are not at every other place by chance.
_SOME = 4

_ITEM_BYTES = {"bfloat16": 2}


def suggestion(seen: _core.FeatureSurvey) -> str:
    """Return the specs that the byte strings may fit, for a comment, or ""."""
    if seen.tensor is not None:
        return f"a tensor? {tensor_text(*seen.tensor)}"
    size = seen.bytes_max
    if size <= 1 or size != seen.bytes_min:
        return ""
    likely = _likely(seen)
    if not likely:
        return f"an array of any dtype (zeros)? {_raw('uint8', size)}"
    arrays = " or ".join(_raw(dtype, size) for dtype in likely)
    return f"an array? {arrays}" + (" (ambiguous)" if len(likely) > 1 else "")


def _likely(seen: _core.FeatureSurvey) -> list[str]:
    """Return the likely dtypes; none if all bytes are zeros."""
    # Of two possible dtypes, the wider one is likely if its additional bytes only extend
    # the value: an array of the other one would not have such a value at every other
    # place. Otherwise the narrower one is likely.
    found = {dtype: (extended, n) for dtype, extended, n in seen.dtypes}
    _, n_bytes = found.pop("uint8")
    if n_bytes == 0:
        return []
    found = {dtype: evidence for dtype, evidence in found.items() if evidence[1]}
    likely = dict(found)
    for wide, (is_extended, n_wide) in found.items():
        for narrow, (_, n_narrow) in found.items():
            if _item_bytes(narrow) >= _item_bytes(wide):
                continue
            if is_extended and n_wide >= _SOME:
                likely.pop(narrow, None)
            elif not is_extended and n_narrow >= _ENOUGH:
                likely.pop(wide, None)
    if len(likely) == 1 and all(n >= _ENOUGH for _, n in likely.values()):
        return list(likely)
    return ["uint8", *likely]  # which is always possible


def _raw(dtype: str, size: int) -> str:
    return f"fr.Raw(({size // _item_bytes(dtype)},), {dtype!r})"


def _item_bytes(dtype: str) -> int:
    return _ITEM_BYTES.get(dtype) or np.dtype(dtype).itemsize
