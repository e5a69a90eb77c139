"""The spec of a feature that holds a serialized tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Array, BytesArray
from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    ComposedColumns,
    Spec,
    checked_key,
    checked_shape,
    numpy_dtype,
)

__all__ = [
    "SerializedTensor",
    "field_header",
    "serialize_tensor",
    "serialized_rows",
    "tensor_text",
]

# The dtypes of tensorflow/core/framework/types.proto, by their numbers there.
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
    # NumPy knows bfloat16 once ml_dtypes is imported; without it there are its bits.
    try:
        return np.dtype(name)
    except TypeError:
        return np.dtype(np.uint16)


@dataclass(frozen=True, init=False, repr=False)
class SerializedTensor(Spec):
    """A byte string of tf.io.serialize_tensor.

    With `shape` and `dtype`, it is read as one array of shape ``(batch, *shape)``: an
    ndarray, or a `BytesArray` for ``"bytes"``. Without them, tensors may differ, and the
    column is an object array of shape ``(batch,)``. Each item is an ndarray, a
    `BytesArray`, or a NumPy scalar or bytes if it has no axes; padding rows are None.

    Parameters
    ----------
    shape : tuple of int or int, optional
        The shape of every tensor.
    dtype : dtype-like, optional
        The dtype of every tensor, ``"bytes"`` for strings. Nothing is converted.
    key : str or bytes, optional
        The feature's name, if it is not the column's.

    Raises
    ------
    SchemaError
        If an argument is invalid; when reading, if a record does not have exactly one
        byte string, or it is not a tensor of this shape and dtype.

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
            msg = "a SerializedTensor has a shape and a dtype, or neither"
            raise SchemaError(msg)
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
        (forms,) = arrays
        assert isinstance(forms, BytesArray)
        tensors = np.empty(len(forms), object)
        for i in range(len(forms)):
            tensors[i] = _tensor(forms.view(i))
        return [(name, tensors)]

    def _described(self) -> str:
        return "tensors" if self.shape is None else f"{self.dtype}{list(self.shape)}"


def tensor_text(number: int, shape: tuple[int, ...]) -> str:
    """Return the spec of tensors of a dtype of types.proto; 0 is any."""
    return (
        f"fr.SerializedTensor({shape}, {_NAMES[number]!r})"
        if number
        else "fr.SerializedTensor()"
    )


def serialize_tensor(tensor: npt.ArrayLike | BytesArray | str | bytes) -> bytes:
    r"""Serialize an array as tf.io.serialize_tensor does.

    Parameters
    ----------
    tensor : array-like, BytesArray, str or bytes
        Of any shape and of the dtypes that `SerializedTensor` reads; text becomes UTF-8.

    Returns
    -------
    bytes
        A serialized ``tensorflow.TensorProto``, which `SerializedTensor` and
        ``tf.io.parse_tensor`` read.

    Raises
    ------
    TypeError
        If the dtype is not supported, or is NumPy's ``S``, which strips trailing NULs.

    Notes
    -----
    Source: ``tensorflow/core/framework/{tensor,tensor_shape,types}.proto``.

    Examples
    --------
    >>> serialize_tensor(np.array([1, 2], "int8"))
    b'\x08\x06\x12\x04\x12\x02\x08\x02"\x02\x01\x02'
    """
    if isinstance(tensor, (str, bytes)):
        strings = BytesArray.from_list([tensor])
        return b"".join([_head("bytes", ()), *_string_fields(strings)])
    if isinstance(tensor, BytesArray):
        return b"".join([_head("bytes", tensor.shape), *_string_fields(tensor)])
    array = np.asarray(tensor)
    if array.dtype.kind == "S" and isinstance(tensor, np.ndarray):
        raise TypeError(
            f"cannot serialize dtype {array.dtype}: NumPy strips trailing NUL bytes from "
            "it; pass a list of bytes or an object array (.tolist(), if no value ends in "
            "NUL)"
        )
    if array.dtype.kind in "SU" and not isinstance(tensor, np.ndarray):
        array = np.asarray(tensor, object)
    if array.dtype.kind in "UO":
        strings = BytesArray.from_list(array.ravel().tolist())
        return b"".join([_head("bytes", array.shape), *_string_fields(strings)])
    head = _head(array.dtype.name, array.shape) + field_header(4, array.nbytes)
    return head + _little_endian(array).tobytes()


def serialized_rows(rows: npt.NDArray[Any] | BytesArray) -> npt.NDArray[np.uint8]:
    """Return each row of an array, or one row of strings, as a serialized tensor."""
    shape = rows.shape[1:]
    if isinstance(rows, BytesArray):
        parts = [_head("bytes", shape), *_string_fields(rows)]
        return np.frombuffer(b"".join(parts), np.uint8)[None]
    memory = _little_endian(rows).reshape(len(rows), math.prod(shape)).view(np.uint8)
    text = _head(rows.dtype.name, shape) + field_header(4, memory.shape[1])
    head = np.frombuffer(text, np.uint8)
    return np.concatenate(
        [np.broadcast_to(head, (len(rows), len(head))), memory], axis=1
    )


def _little_endian(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    little = array if np.little_endian else array.byteswap()
    return np.ascontiguousarray(little)


def _varint(value: int) -> bytes:
    head = bytearray()
    while value >= 0x80:
        head.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*head, value])


def field_header(number: int, size: int) -> bytes:
    """Return tag and length of a length-delimited field of `size` bytes."""
    return _varint(number << 3 | 2) + _varint(size)


def _head(dtype: str, shape: Sequence[int]) -> bytes:
    """Return the dtype and the shape of a tensor, which precede its values."""
    if dtype not in _NUMBERS:
        raise TypeError(f"tensors of dtype {dtype} cannot be serialized")
    sizes = [b"\x08" + _varint(size) if size else b"" for size in shape]
    dims = b"".join(field_header(2, len(size)) + size for size in sizes)
    return b"\x08" + _varint(_NUMBERS[dtype]) + field_header(2, len(dims)) + dims


def _string_fields(strings: BytesArray) -> list[bytes]:
    flat = strings.tolist() if strings.ndim == 1 else _flat(strings.tolist())
    return [part for text in flat for part in (field_header(8, len(text)), text)]


def _flat(nested: list[Any]) -> list[bytes]:
    return [
        leaf
        for item in nested
        for leaf in (_flat(item) if isinstance(item, list) else [item])
    ]


def _tensor(form: memoryview) -> Any:  # noqa: ANN401 (an array, a scalar or bytes)
    """Return a tensor of the core: see ``ColumnSpec::tensor_dtype``."""
    if not form:
        return None  # a row that only fills the batch
    number, n_axes = np.frombuffer(form, np.int32, 2).tolist()
    shape = tuple(np.frombuffer(form, np.int64, n_axes, 8).tolist())
    begin = 8 + 8 * n_axes
    if number != _STRING:
        dtype = _dtype_named(_NAMES[number])
        memory: npt.NDArray[Any] = np.frombuffer(form, np.uint8, offset=begin)
        found = memory != 0 if dtype == np.bool_ else memory.copy().view(dtype)
        return found.reshape(shape)[()]  # a scalar where there are no axes
    n_strings = math.prod(shape)
    offsets = np.frombuffer(form, np.int64, n_strings + 1, begin).copy()
    data = np.frombuffer(form, np.uint8, offset=begin + offsets.nbytes).copy()
    if not shape:
        return data.tobytes()
    return BytesArray._wrap(data, offsets, shape)
