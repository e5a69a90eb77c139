"""Error messages for byte strings that do not fit their spec, with one that reads them."""

from __future__ import annotations

import math

from fastrec import _core
from fastrec.errors import Error
from fastrec.features.infer import item_bytes

_FEATURES_MAX = 10_000  # of a record that is worth a hint


def advice(record: bytes, key: bytes, shape: tuple[int, ...], dtype: str) -> str:
    """Return the end of the error message for the byte string of feature `key`.

    The core calls this function. `shape` and `dtype` are those of the spec that does
    not read the string; `dtype` is "" for raw bytes. Returns "" if no spec fits.
    """
    survey = _core.Survey(_FEATURES_MAX)
    try:
        survey.add(record)
    except Error:
        return ""  # of another feature
    seen = dict(survey.features).get(key)
    if seen is None or seen.kinds != {"bytes": 1} or seen.n_values != 1:
        return ""
    n_bytes, n_values = seen.bytes_max, math.prod(shape)
    if not n_bytes or not n_values:
        return ""
    if seen.tensor is not None:
        return "; fr.SerializedTensor() reads it: it is a serialized tensor"
    if seen.format not in ("", "UTF-8 text"):
        return f'; fr.FixedLen((), "bytes") reads it: it is a {seen.format} file'
    size, rest = divmod(n_bytes, n_values)
    if rest:
        shape, dtype = (n_bytes,), "uint8"
    elif not dtype or size != item_bytes(dtype):
        dtype = _likely(seen, size)
        if not dtype:
            shape, dtype = (*shape, size), "uint8"
    return f'; fr.Raw({shape}, "{dtype}") reads its {n_bytes} bytes'


def _likely(seen: _core.FeatureSurvey, size: int) -> str:
    """Return the likely dtype of values of `size` bytes, or ""."""
    likely = {1: "uint8", 2: "int16"}.get(size, "")
    for dtype, *_ in seen.dtypes:  # floats are last: they are rarely possible by chance
        if dtype in (f"int{8 * size}", f"float{8 * size}"):
            likely = dtype
    return likely
