"""Base class of the feature specs, and functions that check their arguments.

A spec is a frozen dataclass whose constructor checks its arguments. A spec requests
columns from the core, and builds batch columns from the arrays that the core returns.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Array
from fastrec.arrays.layout import is_int
from fastrec.errors import SchemaError

# Larger than any record, but small enough that batch sizes do not overflow.
MAX_VALUES = 2**40

# NumPy dtype kind -> kind of the tf.train.Feature that stores the values.
_KIND_OF = {"i": "int64", "u": "int64", "b": "int64", "f": "float"}

_BFLOAT16 = "bfloat16"  # importing ml_dtypes registers it with NumPy

_T = TypeVar("_T")

# (name, column) pairs in batch order.
ComposedColumns: TypeAlias = "Sequence[tuple[str | bytes, Array]]"


class Column(NamedTuple):
    """A request to the core for a column, like ``ColumnSpec`` in batch/schema.h."""

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
    reach: tuple[int, int, int, int] | None = None  # followed by an array of extents

    @property
    def core_dtype(self) -> str:
        """The values' ``DType`` in batch/schema.h; "" if they are only copied."""
        if self.layout == "tensor":
            is_string = self.tensor_dtype in (0, 7)  # any tensor, or strings
        else:
            is_string = self.kind == "bytes" and self.layout != "raw"
        if is_string or self.dtype.kind == "b":
            return "bytes" if is_string else "bool"
        return "" if self.layout in ("raw", "tensor") else self.dtype.name


def checked_shape(shape: object) -> tuple[int, ...]:
    """Return `shape` as a tuple of non-negative ints, or raise a SchemaError."""
    sizes = [shape] if isinstance(shape, (int, np.integer)) else shape
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Sequence):
        raise SchemaError(
            f"shape must be a tuple of sizes such as () or (28, 28), got {shape!r}"
        )
    if not all(is_int(size) and size >= 0 for size in sizes):
        raise SchemaError(
            f"shape must have known sizes, got {shape!r}; use VarLen for any number of "
            "values"
        )
    if math.prod(sizes) > MAX_VALUES:
        raise SchemaError(f"shape must have at most 2**40 values, got {shape!r}")
    return tuple(int(size) for size in sizes)


def checked_item(shape: object) -> tuple[int, ...]:
    """Return an item's `shape` as a tuple of positive ints, or raise a SchemaError."""
    checked = checked_shape(shape)
    if 0 in checked:
        raise SchemaError(f"item shape must not have a size of 0, got {checked}")
    return checked


def as_bytes(key: str | bytes) -> bytes:
    """Return a feature's `key` as bytes; a str is encoded as UTF-8."""
    return key.encode() if isinstance(key, str) else key


def checked_key(key: object, name: str = "key") -> str | bytes | None:
    """Return `key` if it is a str, bytes or None; otherwise raise a SchemaError."""
    if key is not None and not isinstance(key, (str, bytes)):
        raise SchemaError(f"{name} must be a str or bytes, got {key!r}")
    return key


def checked_keys(name: str, keys: object) -> tuple[str | bytes, ...]:
    """Return `keys` as a nonempty tuple of str or bytes, or raise a SchemaError."""
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Sequence) or not keys:
        raise SchemaError(f"{name} must be a list of feature names, got {keys!r}")
    for key in keys:
        if not isinstance(key, (str, bytes)):
            raise SchemaError(f"{name} must be str or bytes, got {key!r}")
    return tuple(keys)


def checked_count(name: str, value: object, minimum: int = 1) -> int:
    """Return `value` as an int of at least `minimum`, or raise a SchemaError."""
    number: Any = value
    if not is_int(value) or not minimum <= number <= MAX_VALUES:
        raise SchemaError(f"{name} must be an int of at least {minimum}, got {value!r}")
    return int(number)


def checked_choice(name: str, value: _T, choices: Sequence[object]) -> _T:
    """Return `value` if it is one of `choices`; otherwise raise a SchemaError."""
    if value not in choices:
        listed = ", ".join(map(repr, choices[:-1]))
        raise SchemaError(f"{name} must be {listed} or {choices[-1]!r}, got {value!r}")
    return value


def checked_dtype(dtype: object) -> str:
    """Return the NumPy name of `dtype`, or ``"bytes"`` for bytes, str and "string"."""
    if isinstance(dtype, str) and dtype in ("bytes", "string"):
        return "bytes"
    if dtype is bytes or dtype is str:
        return "bytes"
    checked = numpy_dtype(dtype)
    if checked.name == _BFLOAT16:
        return _BFLOAT16
    if checked.kind not in _KIND_OF or checked.itemsize > 8:
        raise SchemaError(
            "dtype must be an integer, bool or float dtype of at most 8 bytes, or "
            f'"bytes", got {dtype!r}'
        )
    return str(checked.name)


def numpy_dtype(dtype: object) -> np.dtype[Any]:
    """Return `dtype` as a native-endian NumPy dtype, or raise a SchemaError."""
    if isinstance(dtype, str) and dtype == _BFLOAT16:
        try:
            import ml_dtypes  # noqa: F401
        except ImportError:
            raise SchemaError(
                "dtype 'bfloat16' requires ml_dtypes: pip install ml_dtypes"
            ) from None
    try:
        checked = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError:
        raise SchemaError(f"dtype must be a NumPy dtype, got {dtype!r}") from None
    if not checked.isnative:
        raise SchemaError(
            f"dtype must have native byte order, got {dtype!r}; if the file is "
            "big-endian, pass Raw(..., little_endian=False)"
        )
    return checked  # type: ignore[no-any-return]


def frozen(value: object) -> object:
    """Convert a list or array to nested, hashable tuples; return others unchanged."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    return value


def default_strings(default: object, n_values: int) -> list[bytes]:
    """Return `default` as a list of `n_values` byte strings, or raise a SchemaError."""
    strings = []
    for value in np.array(default, object).ravel().tolist():
        if not isinstance(value, (bytes, str)):
            raise SchemaError(
                f"default of a bytes feature must be bytes or str, got {value!r}"
            )
        strings.append(value.encode() if isinstance(value, str) else value)
    if len(strings) != n_values:
        raise SchemaError(f"default must have {n_values} values, got {len(strings)}")
    return strings


def default_bytes(
    default: object, dtype: str, shape: tuple[int, ...]
) -> bytes | list[bytes] | None:
    """Return `default` as a list of byte strings or as raw bytes; None stays None."""
    if default is None:
        return None
    if dtype == "bytes":
        return default_strings(default, math.prod(shape))
    return default_array(default, numpy_dtype(dtype), shape).tobytes()


def default_array(
    default: object, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Return `default` as an array of `dtype` and `shape`, or raise a SchemaError.

    `default` is not broadcast to `shape`, as in TensorFlow.
    """
    try:
        array = np.asarray(default)
    except ValueError:  # rows of different lengths
        raise SchemaError(f"default must be an array, got {default!r}") from None
    # Accept integers for a float dtype, such as 0, but not floats for an integer
    # dtype, such as 0.5.
    is_exact = array.dtype.kind in {"b": "b", "i": "iub", "u": "iub"}.get(
        dtype.kind, "iubfc" if dtype.kind == "c" else "iubf"
    )
    if not is_exact and array.dtype != dtype:
        raise SchemaError(f"default must be of dtype {dtype.name}, got {default!r}")
    if array.size != math.prod(shape):
        raise SchemaError(
            f"default must have {math.prod(shape)} values (shape {shape}), got "
            f"{array.size}"
        )
    values = array.astype(dtype).reshape(shape)
    if dtype.kind in "iub" and not np.array_equal(values, array.reshape(shape)):
        raise SchemaError(f"default {default!r} is out of range of {dtype.name}")
    return values


class RowRule(NamedTuple):
    """A requirement that the partitions or indices of each row fit the row's values."""

    values: int  # number of a ragged column
    partitions: Sequence[tuple[str, int, int]] = ()  # kind, column, length
    indices: Sequence[tuple[int, int]] = ()  # column, size of the dimension

    def placed(self, first: int, step: int = 1) -> RowRule:
        """Return the rule with ``first + step * i`` in place of column number ``i``."""
        return RowRule(
            first + step * self.values,
            [(kind, first + step * i, length) for kind, i, length in self.partitions],
            [(first + step * i, size) for i, size in self.indices],
        )


@dataclass(frozen=True, repr=False)
class Spec:
    """Base class of the feature specs.

    `key` is the feature's name; None means the column name.
    """

    key: str | bytes | None = field(default=None, kw_only=True)

    _n_positional: ClassVar[int] = 2  # number of positional arguments in the repr
    _is_item: ClassVar[bool] = False  # True: Python decodes it, like an item of a List
    # The items of a list that rows of steps need: `Column.reach`.
    _reach: ClassVar[tuple[int, int, int, int] | None] = None

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _arguments(self, module: str) -> list[str]:
        """Return the repr's arguments as text; `module` is a prefix of class names."""
        cls: Any = type(self)
        given = [(getattr(self, k), k, default) for k, default in _parameters(cls)]
        n = self._n_positional
        return [_text_of(value, module) for value, _, _ in given[:n]] + [
            f"{name}={_text_of(value, module)}"
            for value, name, default in given[n:]
            if value != default
        ]

    def _text(self, module: str = "") -> str:
        return f"{module}{type(self).__name__}({', '.join(self._arguments(module))})"

    def __repr__(self) -> str:
        return self._text()

    def _key_of(self, name: str | bytes) -> bytes:
        return as_bytes(name if self.key is None else self.key)

    def _columns(self, name: str | bytes) -> list[Column]:
        """Return the spec's requests to the core, one for each column."""
        raise NotImplementedError

    def _column(
        self,
        name: str | bytes,
        layout: str,
        shape: tuple[int, ...] = (),
        **options: Any,
    ) -> Column:
        """Return a request for a column with this spec's key and dtype."""
        dtype: str = self.dtype  # type: ignore[attr-defined]
        key, kind = self._key_of(name), kind_of(dtype)
        text = repr(self)
        return Column(
            name, key, kind, layout, value_dtype(dtype), shape, text, **options
        )

    def _strings(self, name: str | bytes, layout: str = "dense") -> Column:
        """Return a request for a column of byte strings, such as encoded images."""
        default = None if getattr(self, "default", None) is None else [b""]
        head = (name, self._key_of(name), "bytes", layout, np.dtype(np.uint8), ())
        return Column(*head, repr(self), default=default)

    def _rules(self) -> list[RowRule]:
        """Return rules for the columns of `_columns`, which are numbered from 0."""
        return []

    def _names(self, name: str | bytes) -> list[str | bytes]:
        """Return the names of the batch columns that this spec produces."""
        return [name]

    @property
    def _is_plain(self) -> bool:
        """Whether the core's array is the batch column; otherwise call `_compose`."""
        return True

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        """Build this spec's batch columns from the arrays that the core returns."""
        raise NotImplementedError

    def _windowed(self, length: int | None) -> Spec | None:  # noqa: ARG002
        """Return the spec of a window of `length` items of each list, or of one item.

        None: rows are not lists of items that have one shape.
        """
        return None

    def _row_type(self) -> str:
        """Return a row's type as text; columns with equal types can be concatenated."""
        column = self._columns("")[0]
        is_bytes = column.kind == "bytes" and column.layout != "raw"
        of = "bytes" if is_bytes else column.dtype
        ragged = " ragged" if column.layout == "ragged" else ""
        return f"{of}{list(column.shape)}{ragged}"


def _text_of(value: Any, module: str) -> str:
    """Return the repr of a spec's argument; `module` is a prefix of class names."""
    if hasattr(value, "_text"):
        return str(value._text(module))
    if isinstance(value, tuple) and value and hasattr(value[0], "_text"):
        return f"[{', '.join(item._text(module) for item in value)}]"
    return repr(value.descr if isinstance(value, np.dtype) else value)


@functools.cache
def _parameters(spec: Any) -> list[tuple[str, object]]:
    parameters = inspect.signature(spec).parameters.values()
    return [(parameter.name, parameter.default) for parameter in parameters]


def value_dtype(dtype: str) -> np.dtype[Any]:
    """Return the dtype of a column's buffer: uint8 if `dtype` is ``"bytes"``."""
    return np.dtype(np.uint8) if dtype == "bytes" else numpy_dtype(dtype)


def kind_of(dtype: str) -> str:
    """Return the kind of the tf.train.Feature that stores values of `dtype`."""
    if dtype in ("bytes", _BFLOAT16):
        return "bytes" if dtype == "bytes" else "float"
    return _KIND_OF[np.dtype(dtype).kind]


def is_opaque(dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype` is void, bytes or str. `Raw` does not byte-swap these."""
    return dtype.kind in "SU" or dtype.type is np.void
