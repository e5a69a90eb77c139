"""Raw arrays in lists or compressed: byte strings -> arrays."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec.errors import SchemaError
from fastrec.features.base import numpy_dtype
from fastrec.features.fixed import Raw


def decode_array(data: npt.NDArray[np.uint8], spec: Raw, row: npt.NDArray[Any]) -> None:
    """Decode `data` into `row`, or raise a SchemaError without a place."""
    if not data.size and spec.default is not None:
        row[...] = spec.default
        return
    memory: Any = data
    if spec.compression is not None:
        memory = _inflated(data, row.nbytes)
    elif data.size != row.nbytes:
        raise SchemaError(
            f"must be a string of {row.nbytes} bytes, got {data.size}",
            code="value_size",
        )
    if row.dtype == np.bool_:
        row[...] = np.frombuffer(memory, np.uint8).reshape(row.shape) != 0
        return
    dtype = numpy_dtype(spec.dtype)
    values = np.frombuffer(memory, dtype).reshape(row.shape)
    row[...] = values.byteswap() if spec._swap_bytes() else values


def _inflated(data: npt.NDArray[np.uint8], n_bytes: int) -> bytes:
    """Decompress `data` to `n_bytes` bytes."""
    inflater = zlib.decompressobj()
    try:
        memory = inflater.decompress(data.data, n_bytes + 1)
    except zlib.error as error:
        raise SchemaError(
            f"must be ZLIB data of {n_bytes} bytes, got damaged data ({error})",
            code="zlib",
        ) from None
    if len(memory) != n_bytes or not inflater.eof or inflater.unused_data:
        found = (
            f"more than {n_bytes}"
            if len(memory) > n_bytes
            else f"{len(memory)} and other data"
            if inflater.unused_data
            else f"{len(memory)}"
            if inflater.eof
            else "truncated data"
        )
        raise SchemaError(
            f"must be ZLIB data of {n_bytes} bytes, got {found}", code="zlib"
        )
    return memory
