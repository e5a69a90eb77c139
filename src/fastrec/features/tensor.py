"""SerializedTensor: tensors in the format of tf.io.serialize_tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Array, BytesArray
from fastrec.arrays.bytes import reshaped
from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    ComposedColumns,
    Spec,
    checked_key,
    checked_shape,
    numpy_dtype,
)

# The DataType values of tensorflow/core/framework/types.proto.
_STRING = 7
_NUMBERS = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "bytes": _STRING,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}
_NAMES = {number: name for name, number in _NUMBERS.items()}


def _dtype_named(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:  # bfloat16 without ml_dtypes becomes uint16
        return np.dtype(np.uint16)


@dataclass(frozen=True, init=False, repr=False)
class SerializedTensor(Spec):
    """A tensor stored as a byte string by tf.io.serialize_tensor.

    With `shape` and `dtype`, the column is an ndarray of shape ``(batch, *shape)``, or
    a `BytesArray` for ``"bytes"``. Otherwise, tensors may differ in shape and dtype:
    the column is an object array of shape ``(batch,)``, and each item is an ndarray or
    a `BytesArray`. A 0-D tensor becomes a NumPy scalar or bytes; padding becomes None.

    Parameters
    ----------
    shape : tuple of int or int, optional
        The shape of every tensor.
    dtype : dtype-like, optional
        The dtype of every tensor; ``"bytes"`` for strings. Tensors are not converted.
    key : str or bytes, optional
        The feature's name, if it differs from the column name.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, if a record does not have exactly one
        byte string, or the string is not a tensor of this shape and dtype.

    Notes
    -----
    In feature lists and in `List`, each byte string is a tensor. `shape` and a numeric
    `dtype` are required there.

    Examples
    --------
    >>> SerializedTensor((224, 224, 3), "float32")
    SerializedTensor((224, 224, 3), 'float32')
    """

    shape: tuple[int, ...] | None
    dtype: str | None

    def __init__(
        self,
        shape: int | Sequence[int] | None = None,
        dtype: npt.DTypeLike | None = None,
        *,
        key: str | bytes | None = None,
    ) -> None:
        self._set(shape=None, dtype=None, key=checked_key(key))
        if (shape is None) != (dtype is None):
            raise SchemaError(
                "SerializedTensor requires both shape and dtype, or neither"
            )
        if shape is None:
            return
        is_bytes = isinstance(dtype, str) and dtype in ("bytes", "string")
        name = "bytes" if is_bytes else str(numpy_dtype(dtype).name)
        if name not in _NUMBERS:
            raise SchemaError(f"unsupported tensor dtype {dtype!r}")
        self._set(shape=checked_shape(shape), dtype=name)

    def _arguments(self, module: str) -> list[str]:
        arguments = super()._arguments(module)
        return arguments[2:] if self.shape is None else arguments

    def _columns(self, name: str | bytes) -> list[Column]:
        number = 0 if self.dtype is None else _NUMBERS[self.dtype]
        is_bytes = number in (0, _STRING)
        dtype = np.dtype(np.uint8) if is_bytes else numpy_dtype(self.dtype)
        shape = self.shape or ()
        column = Column(
            *(name, self._key_of(name), "bytes", "tensor", dtype, shape, repr(self)),
            tensor_dtype=number,
        )
        return [column]

    @property
    def _is_plain(self) -> bool:
        return self.shape is not None

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        (tensor_bytes,) = arrays
        assert isinstance(tensor_bytes, BytesArray)
        tensors = np.empty(len(tensor_bytes), object)
        for i in range(len(tensor_bytes)):
            tensors[i] = _tensor(tensor_bytes.view(i))
        return [(name, tensors)]

    def _row_type(self) -> str:
        return "tensors" if self.shape is None else f"{self.dtype}{list(self.shape)}"


def tensor_text(number: int, shape: tuple[int, ...]) -> str:
    """Return a SerializedTensor spec as text; `number` is a DataType, or 0 for any."""
    arguments = f"{shape}, {_NAMES[number]!r}" if number else ""
    return f"fr.SerializedTensor({arguments})"


def serialized_rows(rows: npt.NDArray[Any] | BytesArray) -> npt.NDArray[np.uint8]:
    """Serialize each row as a tensor; a BytesArray must have exactly one row."""
    shape = rows.shape[1:]
    if isinstance(rows, BytesArray):
        parts = [_head("bytes", shape)]
        for string in reshaped(rows, (rows.size,)):
            parts += [_field_header(8, len(string)), string]
        return np.frombuffer(b"".join(parts), np.uint8)[None]
    little = np.ascontiguousarray(rows if np.little_endian else rows.byteswap())
    memory = little.reshape(len(rows), math.prod(shape)).view(np.uint8)
    head = np.frombuffer(tensor_prefix(rows.dtype, shape), np.uint8)
    heads = np.broadcast_to(head, (len(rows), len(head)))
    return np.concatenate([heads, memory], axis=1)


def tensor_prefix(dtype: np.dtype[Any], shape: Sequence[int]) -> bytes:
    """Return the bytes that precede the memory of a serialized tensor of numbers."""
    n_bytes = math.prod(shape) * dtype.itemsize
    return _head(dtype.name, shape) + _field_header(4, n_bytes)


def _varint(value: int) -> bytes:
    head = bytearray()
    while value >= 0x80:
        head.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*head, value])


def _field_header(number: int, size: int) -> bytes:
    """Return the tag and length that precede a protobuf field of `size` bytes."""
    return _varint(number << 3 | 2) + _varint(size)


def _head(dtype: str, shape: Sequence[int]) -> bytes:
    """Return the dtype and shape fields of a serialized tensor."""
    if dtype not in _NUMBERS:
        raise TypeError(f"cannot serialize tensors of dtype {dtype}")
    sizes = [b"\x08" + _varint(size) if size else b"" for size in shape]
    dims = b"".join(_field_header(2, len(size)) + size for size in sizes)
    return b"\x08" + _varint(_NUMBERS[dtype]) + _field_header(2, len(dims)) + dims


def _tensor(data: memoryview) -> Any:
    """Parse a tensor laid out as in ``ColumnSpec::tensor_dtype``; None if empty."""
    if not data:
        return None  # padding
    number, n_axes = np.frombuffer(data, np.int32, 2).tolist()
    shape = tuple(np.frombuffer(data, np.int64, n_axes, 8).tolist())
    begin = 8 + 8 * n_axes
    if number != _STRING:
        dtype = _dtype_named(_NAMES[number])
        memory: npt.NDArray[Any] = np.frombuffer(data, np.uint8, offset=begin)
        values = memory != 0 if dtype == np.bool_ else memory.copy().view(dtype)
        return values.reshape(shape)[()]  # a scalar if 0-D
    n_strings = math.prod(shape)
    offsets = np.frombuffer(data, np.int64, n_strings + 1, begin).copy()
    strings = np.frombuffer(data, np.uint8, offset=begin + offsets.nbytes).copy()
    if not shape:
        return strings.tobytes()
    return BytesArray._wrap(strings, offsets, shape)
