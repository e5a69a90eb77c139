"""Kinds of numbers: arrays of any dtype -> what a record has of them: int64 or float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrec.caller_warnings import warn_caller

__all__ = ["INT64_MAX", "number_kind", "number_values"]

INT64_MAX = 2**63 - 1


def number_kind(name: str | bytes, dtype: np.dtype[Any]) -> str:
    """Return the kind that numbers of a dtype have in a record."""
    if dtype.kind in "biu":
        return "int64"
    if (dtype.kind == "f" and dtype.itemsize <= 8) or dtype.name == "bfloat16":
        return "float"
    if dtype.kind == "S":
        msg = (
            f"feature {name!r}: cannot write dtype {dtype}: NumPy strips trailing NUL "
            "bytes from it; pass a list of bytes or an object array (.tolist(), if no "
            "value ends in NUL)"
        )
        raise TypeError(msg)
    target = "float32" if dtype.kind in "fc" else "int64"
    msg = (
        f"feature {name!r}: cannot write dtype {dtype}; convert it, for example with "
        f'.astype("{target}")'
    )
    raise TypeError(msg)


def number_values(name: str | bytes, values: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """Return the kind that numbers have in a record, and them as the core takes them."""
    dtype = values.dtype
    if values.size == 0 and dtype.kind == "O":
        return "", np.zeros(0, np.int64)
    kind = number_kind(name, dtype)
    if kind == "int64":
        if dtype.kind == "u" and dtype.itemsize == 8 and (values > INT64_MAX).any():
            msg = (
                f"feature {name!r} has a uint64 of 2**63 or more, which int64 cannot "
                'hold: write its bits with .view("int64")'
            )
            raise ValueError(msg)
        return kind, np.ascontiguousarray(values, np.int64)
    with np.errstate(over="ignore"):
        floats = np.ascontiguousarray(values, np.float32)
    if dtype.itemsize == 8 and (np.isinf(floats) & np.isfinite(values)).any():
        text = f"feature {name!r} has a float outside of float32, written as inf"
        warn_caller(text, RuntimeWarning)
    return kind, floats
