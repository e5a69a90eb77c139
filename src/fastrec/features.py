"""What to read out of each tf.train.Example, and as which arrays.

Specs are frozen and compare by value, so one can be a constant, a dict key or a test
parameter; their `repr` is Python that makes them again.

What a requested feature may look like follows ``tf.io.parse_example``, feature for
feature. Differences are listed in ``docs/semantics.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.errors import SchemaError

__all__ = ["Column", "FixedLen", "Raw", "Spec", "VarLen"]

# The most values a row may be asked to have: far above any record, far below where
# sizes of batches would overflow.
_MOST_VALUES = 2**40

# Kinds of NumPy dtypes that the three kinds of lists of a feature are read into.
_KIND_OF = {"i": "int64", "u": "int64", "b": "int64", "f": "float"}

# A column as the core wants it: (name, key, kind, layout, dtype, shape, bytes to swap,
# default, text).
Column: TypeAlias = tuple[
    "str | bytes",
    bytes,
    str,
    str,
    np.dtype[Any],
    tuple[int, ...],
    int,
    "bytes | list[bytes] | None",
    str,
]


def _checked_shape(shape: object) -> tuple[int, ...]:
    sizes = [shape] if isinstance(shape, (int, np.integer)) else shape
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Sequence):
        msg = f"shape must be a tuple of sizes such as () or (28, 28), not {shape!r}"
        raise SchemaError(msg)
    for size in sizes:
        if (
            isinstance(size, bool)
            or not isinstance(size, (int, np.integer))
            or size < 0
        ):
            msg = (
                f"shape must hold known sizes, not {shape!r}; "
                "VarLen takes any number of values"
            )
            raise SchemaError(msg)
    if math.prod(sizes) > _MOST_VALUES:
        msg = f"shape {shape!r} holds more values than any record can"
        raise SchemaError(msg)
    return tuple(int(size) for size in sizes)


def _checked_dtype(dtype: object) -> str:
    """Return the name of a dtype that lists are read into: ``"bytes"`` or NumPy's."""
    if isinstance(dtype, str) and dtype in ("bytes", "string"):
        return "bytes"
    if dtype is bytes or dtype is str:
        return "bytes"
    found = _numpy_dtype(dtype)
    if found.kind not in _KIND_OF or found.itemsize > 8:
        msg = (
            f"dtype {dtype!r} cannot be read from a tf.train.Example, which holds int64, "
            'float and bytes values: give an integer, bool or float dtype or "bytes"'
        )
        raise SchemaError(msg)
    return str(found.name)


def _numpy_dtype(dtype: object) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError:
        msg = f"{dtype!r} is not a dtype"
        raise SchemaError(msg) from None
    if not found.isnative:
        msg = (
            f"dtype {dtype!r} has a byte order; columns are in the machine's own, and "
            "Raw(..., little_endian=False) says how the file has them"
        )
        raise SchemaError(msg)
    return found  # type: ignore[no-any-return]


def _spelled(dtype: np.dtype[Any]) -> str | np.dtype[Any]:
    """Return the shortest thing that `np.dtype` makes `dtype` of again."""
    if dtype.names is not None:
        return dtype
    return str(dtype.name if dtype.kind in "biufcmM" else dtype.str)


def _frozen(value: object) -> object:
    """Return `value` as nested tuples, so that a spec stays hashable."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    return value


def _flat(values: object) -> Iterator[object]:
    if isinstance(values, (list, tuple)):
        for value in values:
            yield from _flat(value)
    else:
        yield values


def _default_strings(default: object, n_values: int) -> list[bytes]:
    strings = []
    for value in _flat(default):
        if not isinstance(value, (bytes, str)):
            msg = f"default of a bytes feature must be bytes or str, not {value!r}"
            raise SchemaError(msg)
        strings.append(value.encode() if isinstance(value, str) else value)
    if len(strings) != n_values:
        msg = f"default holds {len(strings)} values, shape says {n_values}"
        raise SchemaError(msg)
    return strings


def _default_array(
    default: object, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Return `default` as the values of one row. As in TensorFlow, nothing is broadcast."""
    try:
        array = np.asarray(default)
    except ValueError:  # rows of different lengths
        msg = f"default {default!r} is not an array"
        raise SchemaError(msg) from None
    # Safe casts, and those within a kind: 0 for a float, but not 0.5 for an integer.
    is_exact = array.dtype.kind in {"b": "b", "i": "iub", "u": "iub"}.get(
        dtype.kind, "iubfc" if dtype.kind == "c" else "iubf"
    )
    if not is_exact and array.dtype != dtype:
        msg = f"default {default!r} is not a value of {dtype.name}"
        raise SchemaError(msg)
    if array.size != math.prod(shape):
        msg = (
            f"default holds {array.size} values, shape {shape} says {math.prod(shape)}"
        )
        raise SchemaError(msg)
    values = array.astype(dtype).reshape(shape)
    if dtype.kind in "iub" and not np.array_equal(values, array.reshape(shape)):
        msg = f"default {default!r} does not fit {dtype.name}"
        raise SchemaError(msg)
    return values


@dataclass(frozen=True, repr=False)
class Spec:
    """Base of all specs: a feature's key, which may differ from its column's name."""

    key: str | bytes | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        key: object = self.key
        if key is not None and not isinstance(key, (str, bytes)):
            msg = f"key must be a str or bytes, not {key!r}"
            raise SchemaError(msg)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _arguments(self) -> list[str]:
        raise NotImplementedError

    def __repr__(self) -> str:
        arguments = self._arguments()
        if self.key is not None:
            arguments.append(f"key={self.key!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _key_of(self, name: str | bytes) -> bytes:
        key = name if self.key is None else self.key
        return key.encode() if isinstance(key, str) else key

    def _column(self, name: str | bytes) -> Column:
        raise NotImplementedError


def _value_dtype(dtype: str) -> np.dtype[Any]:
    """Return the dtype of a column's memory; that of byte strings is their bytes'."""
    return np.dtype(np.uint8 if dtype == "bytes" else dtype)


def _kind(dtype: str) -> str:
    return "bytes" if dtype == "bytes" else _KIND_OF[np.dtype(dtype).kind]


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
        ``"float16"`` and ``"float64"`` are converted from float32.
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
        self._set("shape", _checked_shape(self.shape))
        self._set("dtype", _checked_dtype(self.dtype))
        self._set("default", _frozen(self.default))
        self._default_of_column()

    def _arguments(self) -> list[str]:
        arguments = [repr(self.shape), repr(self.dtype)]
        if self.default is not None:
            arguments.append(f"default={self.default!r}")
        return arguments

    def _default_of_column(self) -> bytes | list[bytes] | None:
        # TensorFlow takes a default without values for none at all.
        if self.default is None or math.prod(self.shape) == 0:
            return None
        if self.dtype == "bytes":
            return _default_strings(self.default, math.prod(self.shape))
        values = _default_array(self.default, np.dtype(self.dtype), self.shape)
        return values.tobytes()

    def _column(self, name: str | bytes) -> Column:
        return (
            name,
            self._key_of(name),
            _kind(self.dtype),
            "dense",
            _value_dtype(self.dtype),
            self.shape,
            0,
            self._default_of_column(),
            repr(self),
        )


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
        self._set("dtype", _checked_dtype(self.dtype))
        self._set("shape", _checked_shape(self.shape))
        if math.prod(self.shape) == 0:
            msg = f"an item of shape {self.shape} has no values"
            raise SchemaError(msg)
        if self.shape and self.dtype == "bytes":
            msg = "items of byte strings have no shape"
            raise SchemaError(msg)

    def _arguments(self) -> list[str]:
        return [repr(self.dtype), *([f"shape={self.shape!r}"] if self.shape else [])]

    def _column(self, name: str | bytes) -> Column:
        return (
            name,
            self._key_of(name),
            _kind(self.dtype),
            "ragged",
            _value_dtype(self.dtype),
            self.shape,
            0,
            None,
            repr(self),
        )


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
        self._set("shape", _checked_shape(self.shape))
        dtype = _numpy_dtype(self.dtype)
        if dtype.hasobject or dtype.itemsize == 0 or dtype.subdtype is not None:
            msg = f"dtype {self.dtype!r} has no memory of a fixed size"
            raise SchemaError(msg)
        if dtype.kind in "VSU" and not self.little_endian:
            msg = f"dtype {self.dtype!r} has no byte order"
            raise SchemaError(msg)
        self._set("dtype", _spelled(dtype))
        self._set("default", _frozen(self.default))
        self._default_of_column()

    def _arguments(self) -> list[str]:
        dtype = np.dtype(self.dtype)
        arguments = [repr(self.shape), repr(dtype.descr if dtype.names else self.dtype)]
        if not self.little_endian:
            arguments.append("little_endian=False")
        if self.default is not None:
            arguments.append(f"default={self.default!r}")
        return arguments

    def _default_of_column(self) -> bytes | None:
        if self.default is None or math.prod(self.shape) == 0:
            return None
        return _default_array(self.default, np.dtype(self.dtype), self.shape).tobytes()

    def _swap_bytes(self) -> int:
        """Bytes of a number: both parts of a complex one are numbers of their own."""
        dtype = np.dtype(self.dtype)
        if self.little_endian == (np.little_endian or dtype.itemsize == 1):
            return 0
        return dtype.itemsize // (2 if dtype.kind == "c" else 1)

    def _column(self, name: str | bytes) -> Column:
        return (
            name,
            self._key_of(name),
            "bytes",
            "raw",
            np.dtype(self.dtype),
            self.shape,
            self._swap_bytes(),
            self._default_of_column(),
            repr(self),
        )
