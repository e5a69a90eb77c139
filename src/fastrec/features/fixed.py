"""What to read out of each tf.train.Example, and as which arrays: one feature each.

Specs are frozen and compare by value, so one can be a constant, a dict key or a test
parameter; their `repr` is Python that makes them again.

What a requested feature may look like follows ``tf.io.parse_example``, feature for
feature. Differences are listed in ``docs/semantics.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    Spec,
    checked_dtype,
    checked_keys,
    checked_shape,
    default_array,
    default_strings,
    frozen,
    is_opaque,
    kind_of,
    numpy_dtype,
    value_dtype,
)

__all__ = ["FixedLen", "Raw", "Stack", "VarLen"]


def _spelled(dtype: np.dtype[Any]) -> str | np.dtype[Any]:
    """Return the shortest thing that `np.dtype` makes `dtype` of again."""
    if dtype.names is not None:
        return dtype
    return str(dtype.str if is_opaque(dtype) else dtype.name)


@dataclass(frozen=True, repr=False)
class FixedLen(Spec):
    """A feature with the same number of values in every record.

    Read as one array of shape ``(batch, *shape)``: an ndarray of `dtype`, or a
    `BytesArray` for ``"bytes"``. A scalar feature, ``shape=()``, gives ``(batch,)``.

    Parameters
    ----------
    shape : tuple of int or int, default ()
        Values are in row-major order; their number must be the product of `shape`.
    dtype : dtype-like
        ``"int64"``, ``"float32"`` and ``"bytes"`` (alias ``"string"``) are what records
        hold. Any other integer dtype or bool is converted with a check of its range, and
        ``"float16"``, ``"float64"`` and, where ml_dtypes is installed, ``"bfloat16"``
        are converted from float32, rounded to the nearest, ties to even.
    default : scalar or array-like, optional
        Stands in where the feature is missing: absent, or without a kind. As many values
        as `shape` says; nothing is broadcast. A feature that is there but empty is not
        missing.
    key : str or bytes, optional
        The feature's name, where it differs from the column's.

    Raises
    ------
    SchemaError
        If an argument makes no sense; when reading, if a record has another number or
        kind of values, or none and there is no default.

    Examples
    --------
    >>> FixedLen((), "int64", default=0)
    FixedLen((), 'int64', default=0)
    """

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    default: Any = None

    if TYPE_CHECKING:  # what the constructor takes is more than what the fields hold

        def __init__(
            self,
            shape: int | Sequence[int] = (),
            dtype: npt.DTypeLike = "float32",
            default: object = None,
            *,
            key: str | bytes | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("shape", checked_shape(self.shape))
        self._set("dtype", checked_dtype(self.dtype))
        self._set("default", frozen(self.default))
        self._default_of_column()

    def _arguments(self, module: str) -> list[str]:  # noqa: ARG002
        arguments = [repr(self.shape), repr(self.dtype)]
        if self.default is not None:
            arguments.append(f"default={self.default!r}")
        return arguments

    def _default_of_column(self) -> bytes | list[bytes] | None:
        # TensorFlow takes a default without values for none at all.
        if self.default is None or math.prod(self.shape) == 0:
            return None
        if self.dtype == "bytes":
            return default_strings(self.default, math.prod(self.shape))
        values = default_array(self.default, numpy_dtype(self.dtype), self.shape)
        return values.tobytes()

    def _columns(self, name: str | bytes) -> list[Column]:
        return [
            Column(
                name,
                self._key_of(name),
                kind_of(self.dtype),
                "dense",
                value_dtype(self.dtype),
                self.shape,
                repr(self),
                default=self._default_of_column(),
            )
        ]


@dataclass(frozen=True, repr=False)
class VarLen(Spec):
    """A feature with any number of values per record, none among them.

    Read as a `RaggedArray` of ``batch`` rows whose ``values`` have shape
    ``(total, *shape)``, or are a `BytesArray` of ``(total,)`` for ``"bytes"``. A missing
    feature and an empty one both give an empty row.

    Parameters
    ----------
    dtype : dtype-like
        As for `FixedLen`.
    shape : tuple of int or int, default ()
        Shape of one item: ``shape=(7,)`` takes seven values of the record for each. Only
        for numbers.
    key : str or bytes, optional
        The feature's name, where it differs from the column's.

    Raises
    ------
    SchemaError
        If an argument makes no sense; when reading, if a record has another kind of
        values, or a number of them that is no multiple of the product of `shape`.

    Examples
    --------
    >>> VarLen("int64")
    VarLen('int64')
    """

    dtype: str = "float32"
    shape: tuple[int, ...] = ()

    if TYPE_CHECKING:  # what the constructor takes is more than what the fields hold

        def __init__(
            self,
            dtype: npt.DTypeLike = "float32",
            shape: int | Sequence[int] = (),
            *,
            key: str | bytes | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("dtype", checked_dtype(self.dtype))
        self._set("shape", checked_shape(self.shape))
        if math.prod(self.shape) == 0:
            msg = f"an item of shape {self.shape} has no values"
            raise SchemaError(msg)
        if self.shape and self.dtype == "bytes":
            msg = "items of byte strings have no shape"
            raise SchemaError(msg)

    def _arguments(self, module: str) -> list[str]:  # noqa: ARG002
        return [repr(self.dtype), *([f"shape={self.shape!r}"] if self.shape else [])]

    def _columns(self, name: str | bytes) -> list[Column]:
        return [
            Column(
                name,
                self._key_of(name),
                kind_of(self.dtype),
                "ragged",
                value_dtype(self.dtype),
                self.shape,
                repr(self),
            )
        ]


@dataclass(frozen=True, repr=False)
class Raw(Spec):
    """A byte string that is the memory of an array, as ``ndarray.tobytes()`` makes it.

    Read as an ndarray of shape ``(batch, *shape)`` and type `dtype`, copied straight
    into the batch: ``tf.io.decode_raw`` and a reshape in one.

    Parameters
    ----------
    shape : tuple of int or int
        Shape of one row, in row-major order.
    dtype : dtype-like
        Any NumPy dtype of a fixed size that holds no Python objects.
    little_endian : bool, default True
        How the file has the bytes of a value; the column has them as the machine does.
    default : array-like, optional
        Stands in where the feature is missing; of exactly this shape.
    key : str or bytes, optional
        The feature's name, where it differs from the column's.

    Raises
    ------
    SchemaError
        If an argument makes no sense; when reading, if a record has not exactly one
        byte string of exactly the right size, or none and there is no default.

    Examples
    --------
    >>> Raw((28, 28), "uint8")
    Raw((28, 28), 'uint8')
    """

    shape: tuple[int, ...] = ()
    dtype: str | np.dtype[Any] = "uint8"
    little_endian: bool = True
    default: Any = None

    if TYPE_CHECKING:  # what the constructor takes is more than what the fields hold

        def __init__(
            self,
            shape: int | Sequence[int] = (),
            dtype: npt.DTypeLike = "uint8",
            little_endian: bool = True,
            default: object = None,
            *,
            key: str | bytes | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("shape", checked_shape(self.shape))
        dtype = numpy_dtype(self.dtype)
        if dtype.hasobject or dtype.itemsize == 0 or dtype.subdtype is not None:
            msg = f"dtype {self.dtype!r} has no memory of a fixed size"
            raise SchemaError(msg)
        if is_opaque(dtype) and not self.little_endian:
            msg = f"dtype {self.dtype!r} has no byte order"
            raise SchemaError(msg)
        self._set("dtype", _spelled(dtype))
        self._set("default", frozen(self.default))
        self._default_of_column()

    def _arguments(self, module: str) -> list[str]:  # noqa: ARG002
        dtype = numpy_dtype(self.dtype)
        arguments = [repr(self.shape), repr(dtype.descr if dtype.names else self.dtype)]
        if not self.little_endian:
            arguments.append("little_endian=False")
        if self.default is not None:
            arguments.append(f"default={self.default!r}")
        return arguments

    def _default_of_column(self) -> bytes | None:
        if self.default is None or math.prod(self.shape) == 0:
            return None
        return default_array(
            self.default, numpy_dtype(self.dtype), self.shape
        ).tobytes()

    def _swap_bytes(self) -> int:
        """Bytes of a number: both parts of a complex one are numbers of their own."""
        dtype = numpy_dtype(self.dtype)
        if self.little_endian == (np.little_endian or dtype.itemsize == 1):
            return 0
        return dtype.itemsize // (2 if dtype.kind == "c" else 1)

    def _columns(self, name: str | bytes) -> list[Column]:
        return [
            Column(
                name,
                self._key_of(name),
                "bytes",
                "raw",
                numpy_dtype(self.dtype),
                self.shape,
                repr(self),
                swap_bytes=self._swap_bytes(),
                default=self._default_of_column(),
            )
        ]


@dataclass(frozen=True, repr=False)
class Stack(Spec):
    """Many features of one value each, side by side in one column.

    Read as one array of shape ``(batch, len(keys))``, decoded straight into its place:
    an ndarray of `dtype`, or a `BytesArray` for ``"bytes"``.

    Parameters
    ----------
    keys : sequence of str or bytes
        The features, in the order of their values.
    dtype : dtype-like
        As for `FixedLen`.
    default : scalar or sequence of scalars, optional
        Stands in where a feature is missing: one value for all of them, or one for each.

    Raises
    ------
    SchemaError
        If an argument makes no sense; when reading, as `FixedLen` with ``shape=()`` does
        for the feature concerned.

    Examples
    --------
    >>> Stack(["height", "width"], "int32", default=0)
    Stack(('height', 'width'), 'int32', default=0)
    """

    keys: tuple[str | bytes, ...] = ()
    dtype: str = "float32"
    default: Any = None

    if TYPE_CHECKING:  # what the constructor takes is more than what the fields hold

        def __init__(
            self,
            keys: Sequence[str | bytes],
            dtype: npt.DTypeLike = "float32",
            default: object = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key is not None:
            msg = "a Stack has keys, and no key of its own"
            raise SchemaError(msg)
        self._set("keys", checked_keys("keys", self.keys))
        self._set("dtype", checked_dtype(self.dtype))
        self._set("default", frozen(self.default))
        self._defaults()

    def _arguments(self, module: str) -> list[str]:  # noqa: ARG002
        arguments = [repr(self.keys), repr(self.dtype)]
        if self.default is not None:
            arguments.append(f"default={self.default!r}")
        return arguments

    def _defaults(self) -> Sequence[bytes | list[bytes] | None]:
        """Return one default for each feature, as the core wants it."""
        n = len(self.keys)
        if self.default is None:
            return [None] * n
        default = (
            self.default if isinstance(self.default, tuple) else (self.default,) * n
        )
        if self.dtype == "bytes":
            return [[string] for string in default_strings(default, n)]
        values = default_array(default, value_dtype(self.dtype), (n,))
        return [value.tobytes() for value in values]

    def _columns(self, name: str | bytes) -> list[Column]:
        n = len(self.keys)
        return [
            Column(
                name,
                key.encode() if isinstance(key, str) else key,
                kind_of(self.dtype),
                "dense",
                value_dtype(self.dtype),
                (1,) if n == 1 else (),
                repr(self),
                default=default,
                slot=slot,
                n_slots=n,
            )
            for slot, (key, default) in enumerate(
                zip(self.keys, self._defaults(), strict=True)
            )
        ]

    def _described(self) -> str:
        return f"{self.dtype}[{len(self.keys)}]"
