"""What all feature specs have in common: the columns they ask the core for, and checks.

A spec is a frozen dataclass that checks itself when it is made. What it asks the core
for is one `Column` or several; where it is several, or the core's arrays are not what
users get, the spec composes its arrays of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Array
from fastrec.errors import SchemaError

__all__ = [
    "MOST_VALUES",
    "Column",
    "ComposedColumns",
    "RowRule",
    "Spec",
    "checked_count",
    "checked_dtype",
    "checked_keys",
    "checked_shape",
    "default_array",
    "default_strings",
    "frozen",
    "is_opaque",
    "kind_of",
    "numpy_dtype",
    "value_dtype",
]

# The most values a row may be asked to have: far above any record, far below where
# sizes of batches would overflow.
MOST_VALUES = 2**40

# Kinds of NumPy dtypes that the three kinds of lists of a feature are read into.
_KIND_OF = {"i": "int64", "u": "int64", "b": "int64", "f": "float"}

# NumPy knows it once ml_dtypes is imported, as a dtype of the kind of raw memory.
_BFLOAT16 = "bfloat16"


# Columns by name, in the order of the batch.
ComposedColumns: TypeAlias = "Sequence[tuple[str | bytes, Array]]"


class Column(NamedTuple):
    """A column as the core wants it: see ``ColumnSpec`` in ``src/cpp/batch/schema.h``."""

    name: str | bytes
    key: bytes
    kind: str
    layout: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    text: str
    swap_bytes: int = 0
    default: bytes | list[bytes] | None = None
    length: int | None = None
    multiple_of: int = 1
    truncate: bool = False
    has_lengths: bool = False
    slot: int = 0
    n_slots: int = 1
    tensor_dtype: int = 0
    section: str = "features"
    is_required: bool = False


def checked_shape(shape: object) -> tuple[int, ...]:
    """Return a shape of known sizes as a tuple."""
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
    if math.prod(sizes) > MOST_VALUES:
        msg = f"shape {shape!r} holds more values than any record can"
        raise SchemaError(msg)
    return tuple(int(size) for size in sizes)


def checked_keys(name: str, keys: object) -> tuple[str | bytes, ...]:
    """Return the keys of some features as a tuple."""
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Sequence) or not keys:
        msg = f"{name} must be a list of the features' names, not {keys!r}"
        raise SchemaError(msg)
    for key in keys:
        if not isinstance(key, (str, bytes)):
            msg = f"{name} must be str or bytes, not {key!r}"
            raise SchemaError(msg)
    return tuple(keys)


def checked_count(name: str, value: object, at_least: int = 1) -> int:
    """Return an option that counts something."""
    count = -1
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        count = int(value)
    if not at_least <= count <= MOST_VALUES:
        msg = f"{name} must be an int of at least {at_least}, not {value!r}"
        raise SchemaError(msg)
    return count


def checked_dtype(dtype: object) -> str:
    """Return the name of a dtype that lists are read into: ``"bytes"`` or NumPy's."""
    if isinstance(dtype, str) and dtype in ("bytes", "string"):
        return "bytes"
    if dtype is bytes or dtype is str:
        return "bytes"
    found = numpy_dtype(dtype)
    if found.name == _BFLOAT16:
        return _BFLOAT16
    if found.kind not in _KIND_OF or found.itemsize > 8:
        msg = (
            f"dtype {dtype!r} cannot be read from a tf.train.Example, which holds int64, "
            'float and bytes values: give an integer, bool or float dtype or "bytes"'
        )
        raise SchemaError(msg)
    return str(found.name)


def numpy_dtype(dtype: object) -> np.dtype[Any]:
    """Return a dtype in the machine's byte order."""
    if isinstance(dtype, str) and dtype == _BFLOAT16:
        try:
            import ml_dtypes  # noqa: F401
        except ImportError:
            msg = "dtype 'bfloat16' needs ml_dtypes: pip install ml_dtypes"
            raise SchemaError(msg) from None
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


def frozen(value: object) -> object:
    """Return `value` as nested tuples, so that a spec stays hashable."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    return value


def _flat(values: object) -> Iterator[object]:
    if isinstance(values, (list, tuple)):
        for value in values:
            yield from _flat(value)
    else:
        yield values


def default_strings(default: object, n_values: int) -> list[bytes]:
    """Return `default` as the byte strings of one row."""
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


def default_array(
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


class RowRule(NamedTuple):
    """What must be true of several columns in every row; columns by their number.

    Attributes
    ----------
    values : int
        A ragged column.
    partitions : list of (kind, column, length)
        Which divide its items into rows, outermost first.
    indices : list of (column, size)
        Which have one index in [0, size) for each of its items.
    """

    values: int
    partitions: Sequence[tuple[str, int, int]] = ()
    indices: Sequence[tuple[int, int]] = ()


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

    def _arguments(self, module: str) -> list[str]:
        """Return what makes it again, in a program that has our names in `module`."""
        raise NotImplementedError

    def _text(self, module: str = "") -> str:
        arguments = self._arguments(module)
        if self.key is not None:
            arguments.append(f"key={self.key!r}")
        return f"{module}{type(self).__name__}({', '.join(arguments)})"

    def __repr__(self) -> str:
        return self._text()

    def _key_of(self, name: str | bytes) -> bytes:
        key = name if self.key is None else self.key
        return key.encode() if isinstance(key, str) else key

    def _columns(self, name: str | bytes) -> list[Column]:
        """Return what is asked of the core."""
        raise NotImplementedError

    def _rules(self, first: int) -> list[RowRule]:  # noqa: ARG002
        """Return what must be true of its columns, which begin with number `first`."""
        return []

    def _names(self, name: str | bytes) -> list[str | bytes]:
        """Return the names of the columns that come out."""
        return [name]

    @property
    def _is_plain(self) -> bool:
        """Whether the core's array is the column as it comes out."""
        return True

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        """Return the columns that come out, made of the arrays of `_columns`."""
        raise NotImplementedError

    def _described(self) -> str:
        """Return what rows are: equal texts for columns that can be joined."""
        column = self._columns("")[0]
        of = (
            "bytes"
            if column.kind == "bytes" and column.layout != "raw"
            else column.dtype
        )
        ragged = " ragged" if column.layout == "ragged" else ""
        return f"{of}{list(column.shape)}{ragged}"


def value_dtype(dtype: str) -> np.dtype[Any]:
    """Return the dtype of a column's memory; that of byte strings is their bytes'."""
    return np.dtype(np.uint8) if dtype == "bytes" else numpy_dtype(dtype)


def kind_of(dtype: str) -> str:
    """Return the kind of lists whose values are read into a dtype."""
    if dtype in ("bytes", _BFLOAT16):
        return "bytes" if dtype == "bytes" else "float"
    return _KIND_OF[np.dtype(dtype).kind]


def is_opaque(dtype: np.dtype[Any]) -> bool:
    """Whether a value is no number but memory or text, which has no byte order."""
    return dtype.kind in "SU" or dtype.type is np.void
