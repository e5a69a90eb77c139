"""Suggest specs for byte strings that may be arrays or serialized tensors."""

from __future__ import annotations

import numpy as np

from fastrec import _core
from fastrec.features.tensor import tensor_text

# Nonzero values that make a dtype more likely than a coincidence.
_MIN_NONZERO = 32
# Sign- or zero-extended values that make a wider dtype more likely than a coincidence.
_MIN_EXTENDED = 4

_ITEM_BYTES = {"bfloat16": 2}  # known to NumPy only if ml_dtypes is imported


def suggestion(seen: _core.FeatureSurvey) -> str:
    """Return a comment with the specs that may fit the byte strings, or ""."""
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
    """Return the likely dtypes; an empty list if all bytes are zeros."""
    # Of two possible dtypes, the wider one is likely if its additional bytes only
    # extend the value: in an array of the narrower dtype, every second item would have
    # to be such an extension. Otherwise the narrower one is likely.
    possible = {dtype: (extended, n) for dtype, extended, n in seen.dtypes}
    _, n_nonzero = possible.pop("uint8")
    if n_nonzero == 0:
        return []
    possible = {dtype: evidence for dtype, evidence in possible.items() if evidence[1]}
    likely = dict(possible)
    for wide, (is_extended, n_wide) in possible.items():
        for narrow, (_, n_narrow) in possible.items():
            if _item_bytes(narrow) >= _item_bytes(wide):
                continue
            if is_extended and n_wide >= _MIN_EXTENDED:
                likely.pop(narrow, None)
            elif not is_extended and n_narrow >= _MIN_NONZERO:
                likely.pop(wide, None)
    if len(likely) == 1 and all(n >= _MIN_NONZERO for _, n in likely.values()):
        return list(likely)
    return ["uint8", *likely]  # uint8 is always possible


def _raw(dtype: str, size: int) -> str:
    return f"fr.Raw(({size // _item_bytes(dtype)},), {dtype!r})"


def _item_bytes(dtype: str) -> int:
    return _ITEM_BYTES.get(dtype) or np.dtype(dtype).itemsize
