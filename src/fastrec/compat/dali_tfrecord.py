"""Drop-in replacement for nvidia.dali.tfrecord, without DALI.

>>> import fastrec.compat.dali_tfrecord as tfrec
>>> tfrec.FixedLenFeature((), tfrec.int64, -1)
FixedLen((), 'int64', default=-1)
>>> tfrec.VarLenFeature(tfrec.float32, 0.0)
VarLen('float32')
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastrec.features.fixed import FixedLen, VarLen

__all__ = ["FixedLenFeature", "VarLenFeature", "float32", "int64", "string"]

int64 = "int64"
float32 = "float32"
string = "bytes"


def FixedLenFeature(
    shape: Sequence[int],
    dtype: str,
    default_value: Any = None,
) -> FixedLen:
    """Return a `fastrec.FixedLen`; a scalar default is repeated to fill the shape."""
    n_values = math.prod(shape)
    if isinstance(default_value, (int, float, str, bytes)) and len(shape) > 0:
        default_value = [default_value] * n_values
    return FixedLen(shape, dtype, default_value)


def VarLenFeature(*arguments: Any) -> VarLen:
    """Return a `fastrec.VarLen`; ignore the default: a missing feature is empty.

    The arguments are ``(dtype, default)`` or ``(shape, dtype, default)``.
    """
    if isinstance(arguments[0], str):
        return VarLen(arguments[0])
    return VarLen(arguments[1], arguments[0])
