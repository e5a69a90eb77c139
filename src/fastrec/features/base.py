"""What all feature specs share: the columns that they request from the core, and checks.

A spec is a frozen dataclass whose constructor checks its arguments. It requests one
`Column` or several from the core, and composes the arrays that users get of these.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

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
    "as_bytes",
    "checked_count",
    "checked_dtype",
    "checked_item",
    "checked_key",
    "checked_keys",
    "checked_shape",
    "default_array",
    "default_bytes",
    "default_strings",
    "frozen",
    "is_opaque",
    "kind_of",
    "numpy_dtype",
    "value_dtype",
]

# Far above any record, and far below where sizes of batches would overflow.
MOST_VALUES = 2**40

# Kinds of lists that are read into kinds of NumPy dtypes.
_KIND_OF = {"i": "int64", "u": "int64", "b": "int64", "f": "float"}

# NumPy knows it once ml_dtypes is imported.
_BFLOAT16 = "bfloat16"

# Columns by name, in the order of the batch.
ComposedColumns: TypeAlias = "Sequence[tuple[str | bytes, Array]]"


class Column(NamedTuple):
    """A column to request: see ``ColumnSpec`` in ``src/cpp/batch/schema.h``."""

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
        raise SchemaError(
            f"shape must be a tuple of sizes such as () or (28, 28), not {shape!r}"
        )
    for size in sizes:
        is_int = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
        if not is_int or size < 0:
            raise SchemaError(
                f"shape must hold known sizes, not {shape!r}; "
                "VarLen takes any number of values"
            )
    if math.prod(sizes) > MOST_VALUES:
        raise SchemaError(f"shape {shape!r} holds more values than any record can")
    return tuple(int(size) for size in sizes)


def checked_item(shape: object) -> tuple[int, ...]:
    """Return the shape of an item, which must have values."""
    checked = checked_shape(shape)
    if 0 in checked:
        raise SchemaError(f"an item of shape {checked} has no values")
    return checked


def as_bytes(key: str | bytes) -> bytes:
    """Return the name of a feature as UTF-8."""
    return key.encode() if isinstance(key, str) else key


def checked_key(key: object) -> str | bytes | None:
    """Return the name of a feature, if one is given."""
    if key is not None and not isinstance(key, (str, bytes)):
        raise SchemaError(f"key must be a str or bytes, not {key!r}")
    return key


def checked_keys(name: str, keys: object) -> tuple[str | bytes, ...]:
    """Return the keys of some features as a tuple."""
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Sequence) or not keys:
        raise SchemaError(f"{name} must be a list of the features' names, not {keys!r}")
    for key in keys:
        if not isinstance(key, (str, bytes)):
            raise SchemaError(f"{name} must be str or bytes, not {key!r}")
    return tuple(keys)


def checked_count(name: str, value: object, at_least: int = 1) -> int:
    """Return an option that counts something."""
    count = -1
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        count = int(value)
    if not at_least <= count <= MOST_VALUES:
        raise SchemaError(
            f"{name} must be an int of at least {at_least}, not {value!r}"
        )
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
        raise SchemaError(
            f"dtype {dtype!r} cannot be read from a tf.train.Example, which holds int64, "
            'float and bytes values: give an integer, bool or float dtype or "bytes"'
        )
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
        raise SchemaError(f"{dtype!r} is not a dtype") from None
    if not found.isnative:
        raise SchemaError(
            f"dtype {dtype!r} has a byte order; columns are in the machine's own, and "
            "Raw(..., little_endian=False) says how the file has them"
        )
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
            raise SchemaError(
                f"default of a bytes feature must be bytes or str, not {value!r}"
            )
        strings.append(value.encode() if isinstance(value, str) else value)
    if len(strings) != n_values:
        raise SchemaError(f"default holds {len(strings)} values, shape says {n_values}")
    return strings


def default_bytes(
    default: object, dtype: str, shape: tuple[int, ...]
) -> bytes | list[bytes] | None:
    """Return `default` as the memory, or the byte strings, of one row."""
    if default is None:
        return None
    if dtype == "bytes":
        return default_strings(default, math.prod(shape))
    return default_array(default, numpy_dtype(dtype), shape).tobytes()


def default_array(
    default: object, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Return `default` as the values of one row. As in TensorFlow, nothing is broadcast."""
    try:
        array = np.asarray(default)
    except ValueError:  # rows of different lengths
        raise SchemaError(f"default {default!r} is not an array") from None
    # Safe casts, and those within a kind: 0 for a float, but not 0.5 for an integer.
    is_exact = array.dtype.kind in {"b": "b", "i": "iub", "u": "iub"}.get(
        dtype.kind, "iubfc" if dtype.kind == "c" else "iubf"
    )
    if not is_exact and array.dtype != dtype:
        raise SchemaError(f"default {default!r} is not a value of {dtype.name}")
    if array.size != math.prod(shape):
        raise SchemaError(
            f"default holds {array.size} values, shape {shape} says {math.prod(shape)}"
        )
    values = array.astype(dtype).reshape(shape)
    if dtype.kind in "iub" and not np.array_equal(values, array.reshape(shape)):
        raise SchemaError(f"default {default!r} does not fit {dtype.name}")
    return values


class RowRule(NamedTuple):
    """A rule about several columns of every row, which are given by number."""

    values: int  # a ragged column
    partitions: Sequence[tuple[str, int, int]] = ()  # kind, column and length
    indices: Sequence[tuple[int, int]] = ()  # column and size of the dimension


@dataclass(frozen=True, repr=False)
class Spec:
    """Base of all specs: a feature's key, which may differ from its column's name."""

    key: str | bytes | None = field(default=None, kw_only=True)

    # Arguments that the repr shows without their names, and always.
    _n_shown: ClassVar[int] = 2

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _arguments(self, module: str) -> list[str]:
        """Return the arguments of the repr; `module` is the prefix of our names."""
        texts = []
        cls: Any = type(self)
        for i, (name, default) in enumerate(_parameters(cls)):
            value = getattr(self, name)
            if i < self._n_shown:
                texts.append(self._argument_text(value, module))
            elif value != default:
                texts.append(f"{name}={self._argument_text(value, module)}")
        return texts

    def _argument_text(self, value: object, module: str) -> str:  # noqa: ARG002
        return repr(value.descr if isinstance(value, np.dtype) else value)

    def _text(self, module: str = "") -> str:
        return f"{module}{type(self).__name__}({', '.join(self._arguments(module))})"

    def __repr__(self) -> str:
        return self._text()

    def _key_of(self, name: str | bytes) -> bytes:
        return as_bytes(name if self.key is None else self.key)

    def _columns(self, name: str | bytes) -> list[Column]:
        """Return the columns to request from the core."""
        raise NotImplementedError

    def _column(
        self,
        name: str | bytes,
        layout: str,
        shape: tuple[int, ...] = (),
        **options: Any,  # noqa: ANN401
    ) -> Column:
        """Return a column of this spec's key and dtype."""
        dtype: str = self.dtype  # type: ignore[attr-defined]
        key, kind = self._key_of(name), kind_of(dtype)
        text = repr(self)
        return Column(
            name, key, kind, layout, value_dtype(dtype), shape, text, **options
        )

    def _rules(self, first: int) -> list[RowRule]:  # noqa: ARG002
        """Return the rules of its columns, of which the first has number `first`."""
        return []

    def _names(self, name: str | bytes) -> list[str | bytes]:
        """Return the names of the columns of batches."""
        return [name]

    @property
    def _is_plain(self) -> bool:
        """Whether the core's array is the column of batches."""
        return True

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        """Return the columns of batches, given the arrays of `_columns`."""
        raise NotImplementedError

    def _described(self) -> str:
        """Return what rows are: equal texts for columns that can be joined."""
        column = self._columns("")[0]
        is_bytes = column.kind == "bytes" and column.layout != "raw"
        of = "bytes" if is_bytes else column.dtype
        ragged = " ragged" if column.layout == "ragged" else ""
        return f"{of}{list(column.shape)}{ragged}"


@functools.cache
def _parameters(spec: Any) -> list[tuple[str, object]]:  # noqa: ANN401 (a class)
    parameters = inspect.signature(spec).parameters.values()
    return [(parameter.name, parameter.default) for parameter in parameters]


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
