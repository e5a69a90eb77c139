"""Specs of features that are read into one array: FixedLen, VarLen, Raw and Stack.

Specs are frozen and compare by value, and their `repr` is Python that makes them again.
The rules are those of ``tf.io.parse_example``; ``docs/semantics.md`` lists the
differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    Spec,
    as_bytes,
    checked_dtype,
    checked_item,
    checked_key,
    checked_keys,
    checked_shape,
    default_array,
    default_bytes,
    default_strings,
    frozen,
    is_opaque,
    numpy_dtype,
    value_dtype,
)

__all__ = ["FixedLen", "Raw", "Stack", "VarLen"]


def _spelled(dtype: np.dtype[Any]) -> str | np.dtype[Any]:
    """Return the shortest argument of `np.dtype` that makes `dtype`."""
    if dtype.names is not None:
        return dtype
    return str(dtype.str if is_opaque(dtype) else dtype.name)


@dataclass(frozen=True, init=False, repr=False)
class FixedLen(Spec):
    """A feature with the same number of values in every record.

    Read as one array of shape ``(batch, *shape)``: an ndarray of `dtype`, or a
    `BytesArray` for ``"bytes"``.

    Parameters
    ----------
    shape : tuple of int or int, default ()
        Shape of the values of a record, in row-major order.
    dtype : dtype-like
        Records hold ``"int64"``, ``"float32"`` and ``"bytes"`` (alias ``"string"``). Other
        integers and bool are converted with a check of their range; ``"float16"``,
        ``"float64"`` and, with ml_dtypes, ``"bfloat16"`` are rounded to the nearest.
    default : scalar or array-like of `shape`, optional
        The values where the feature is missing: absent, or without a kind. An empty
        feature is not missing.
    key : str or bytes, optional
        The feature's name, if it is not the column's.

    Raises
    ------
    SchemaError
        If an argument is invalid; when reading, if a record has another number or
        kind of values, or none and there is no default.

    Examples
    --------
    >>> FixedLen((), "int64", default=0)
    FixedLen((), 'int64', default=0)
    """

    shape: tuple[int, ...]
    dtype: str
    default: Any

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        dtype: npt.DTypeLike = "float32",
        default: object = None,
        *,
        key: str | bytes | None = None,
    ) -> None:
        self._set(shape=checked_shape(shape), dtype=checked_dtype(dtype))
        self._set(default=frozen(default), key=checked_key(key))
        self._default_bytes()

    def _default_bytes(self) -> bytes | list[bytes] | None:
        # TensorFlow treats a default without values as missing.
        default = None if 0 in self.shape else self.default
        return default_bytes(default, self.dtype, self.shape)

    def _columns(self, name: str | bytes) -> list[Column]:
        default = self._default_bytes()
        return [self._column(name, "dense", self.shape, default=default)]


@dataclass(frozen=True, init=False, repr=False)
class VarLen(Spec):
    """A feature with any number of values per record.

    Read as a `RaggedArray` of ``batch`` rows, whose ``values`` have shape
    ``(total, *shape)``. The row of a missing feature is empty.

    Parameters
    ----------
    dtype : dtype-like
        As for `FixedLen`.
    shape : tuple of int or int, default ()
        Shape of one item, of numbers: an item of ``(7,)`` is seven values of the record.
    key : str or bytes, optional
        The feature's name, if it is not the column's.

    Raises
    ------
    SchemaError
        If an argument is invalid; when reading, if a record has another kind of
        values, or a number of them that is no multiple of the product of `shape`.

    Examples
    --------
    >>> VarLen("int64")
    VarLen('int64')
    """

    dtype: str
    shape: tuple[int, ...]
    _n_shown = 1

    def __init__(
        self,
        dtype: npt.DTypeLike = "float32",
        shape: int | Sequence[int] = (),
        *,
        key: str | bytes | None = None,
    ) -> None:
        self._set(dtype=checked_dtype(dtype), shape=checked_item(shape))
        self._set(key=checked_key(key))
        if self.shape and self.dtype == "bytes":
            msg = "items of byte strings have no shape"
            raise SchemaError(msg)

    def _columns(self, name: str | bytes) -> list[Column]:
        return [self._column(name, "ragged", self.shape)]


@dataclass(frozen=True, init=False, repr=False)
class Raw(Spec):
    """A byte string that is the memory of an array, as ``ndarray.tobytes()`` makes it.

    Read as an ndarray of shape ``(batch, *shape)`` and type `dtype`, like
    ``tf.io.decode_raw`` and a reshape.

    Parameters
    ----------
    shape : tuple of int or int
        Shape of one row, in row-major order.
    dtype : dtype-like
        Any NumPy dtype of a fixed size that holds no Python objects.
    little_endian : bool, default True
        The byte order in the file; columns have the machine's.
    default : array-like of `shape`, optional
        The values where the feature is missing.
    key : str or bytes, optional
        The feature's name, if it is not the column's.

    Raises
    ------
    SchemaError
        If an argument is invalid; when reading, if a record does not have exactly one
        byte string of the right size, or no feature and there is no default.

    Examples
    --------
    >>> Raw((28, 28), "uint8")
    Raw((28, 28), 'uint8')
    """

    shape: tuple[int, ...]
    dtype: str | np.dtype[Any]
    little_endian: bool
    default: Any

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        dtype: npt.DTypeLike = "uint8",
        little_endian: bool = True,
        default: object = None,
        *,
        key: str | bytes | None = None,
    ) -> None:
        found = numpy_dtype(dtype)
        if found.hasobject or found.itemsize == 0 or found.subdtype is not None:
            raise SchemaError(f"dtype {dtype!r} has no memory of a fixed size")
        if is_opaque(found) and not little_endian:
            raise SchemaError(f"dtype {dtype!r} has no byte order")
        self._set(shape=checked_shape(shape), dtype=_spelled(found))
        self._set(little_endian=little_endian, default=frozen(default))
        self._set(key=checked_key(key))
        self._default_bytes()

    def _default_bytes(self) -> bytes | None:
        if self.default is None or 0 in self.shape:
            return None
        dtype = numpy_dtype(self.dtype)
        return default_array(self.default, dtype, self.shape).tobytes()

    def _swap_bytes(self) -> int:
        """Return the size of the numbers whose bytes are swapped, or 0."""
        dtype = numpy_dtype(self.dtype)
        if self.little_endian == (np.little_endian or dtype.itemsize == 1):
            return 0
        return dtype.itemsize // (2 if dtype.kind == "c" else 1)

    def _columns(self, name: str | bytes) -> list[Column]:
        column = Column(
            *(name, self._key_of(name), "bytes", "raw"),
            *(numpy_dtype(self.dtype), self.shape, repr(self)),
            swap_bytes=self._swap_bytes(),
            default=self._default_bytes(),
        )
        return [column]


@dataclass(frozen=True, init=False, repr=False)
class Stack(Spec):
    """Many features of one value each, stacked into one column.

    Read as one array of shape ``(batch, len(keys))``: an ndarray of `dtype`, or a
    `BytesArray` for ``"bytes"``.

    Parameters
    ----------
    keys : sequence of str or bytes
        The features, in the order of their values.
    dtype : dtype-like
        As for `FixedLen`.
    default : scalar or sequence of scalars, optional
        The value where a feature is missing: one for all features, or one for each.

    Raises
    ------
    SchemaError
        If an argument is invalid; when reading, as for `FixedLen` with ``shape=()``.

    Examples
    --------
    >>> Stack(["height", "width"], "int32", default=0)
    Stack(('height', 'width'), 'int32', default=0)
    """

    keys: tuple[str | bytes, ...]
    dtype: str
    default: Any

    def __init__(
        self,
        keys: Sequence[str | bytes],
        dtype: npt.DTypeLike = "float32",
        default: object = None,
    ) -> None:
        self._set(keys=checked_keys("keys", keys), dtype=checked_dtype(dtype))
        self._set(default=frozen(default), key=None)
        self._defaults()

    def _defaults(self) -> Sequence[bytes | list[bytes] | None]:
        """Return the default of each feature."""
        n, default = len(self.keys), self.default
        if default is None:
            return [None] * n
        default = default if isinstance(default, tuple) else (default,) * n
        if self.dtype == "bytes":
            return [[string] for string in default_strings(default, n)]
        values = default_array(default, value_dtype(self.dtype), (n,))
        return [value.tobytes() for value in values]

    def _columns(self, name: str | bytes) -> list[Column]:
        n = len(self.keys)
        column = self._column(name, "dense", (1,) if n == 1 else (), n_slots=n)
        return [
            column._replace(key=as_bytes(key), default=default, slot=slot)
            for slot, (key, default) in enumerate(
                zip(self.keys, self._defaults(), strict=True)
            )
        ]

    def _described(self) -> str:
        return f"{self.dtype}[{len(self.keys)}]"
