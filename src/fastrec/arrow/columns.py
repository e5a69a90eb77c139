"""Columns of batches -> Arrow types and buffers, without a copy where that can be.

==========================================  =============================================
ndarray ``(n,)``                            the same numbers; bool is packed
ndarray or BytesArray ``(n, k, ...)``       fixed_size_list, one within the other
RaggedArray                                 large_list
BytesArray                                  large_binary, or large_string if it is text
padded columns, of another width per batch  large_list, of the rows as they are padded
==========================================  =============================================

Source: Apache Arrow, "Columnar format" and "The Arrow C data interface".
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrec.arrays.batch import BytesArray, RaggedArray, SparseArray
from fastrec.arrays.layout import offsets_from
from fastrec.errors import SchemaError
from fastrec.features.padded import rows_of_one_length

__all__ = ["Field", "Values", "arrow_column", "described", "is_bytes", "is_text"]


class Field(NamedTuple):
    """A type and its name, as `batch/arrow.h` has them.

    Attributes
    ----------
    name : str
    format : str
        The type, as the C data interface spells it.
    is_nullable : bool
    children : tuple of Field
    """

    name: str
    format: str
    is_nullable: bool = (
        True  # as pyarrow says of arrays, whether nulls are there or not
    )
    children: tuple[Field, ...] = ()


class Values(NamedTuple):
    """What an array of some type holds.

    Attributes
    ----------
    length, null_count : int
    buffers : tuple of (ndarray or None)
        The first is a bitmap of what is no null; None, where nothing is null.
    children : tuple of Values
    """

    length: int
    null_count: int
    buffers: tuple[NDArray[Any] | None, ...]
    children: tuple[Values, ...] = ()


# What `Field.format` is for NumPy's dtypes, and what people call it.
_NUMBERS = {
    "b1": ("b", "bool"),
    "i1": ("c", "int8"),
    "u1": ("C", "uint8"),
    "i2": ("s", "int16"),
    "u2": ("S", "uint16"),
    "i4": ("i", "int32"),
    "u4": ("I", "uint32"),
    "i8": ("l", "int64"),
    "u8": ("L", "uint64"),
    "f2": ("e", "float16"),
    "f4": ("f", "float32"),
    "f8": ("g", "float64"),
}
_BINARY, _TEXT = "Z", "U"
_TEXTS = ("u", "U", "vu")  # utf8, large_utf8, utf8_view
_CALLED = dict(_NUMBERS.values()) | {_BINARY: "large_binary", _TEXT: "large_string"}


def arrow_column(
    name: str,
    column: Any,  # noqa: ANN401 (arrays of the four kinds, or what a transform made)
    *,
    is_text: bool,
    is_optional: bool,
    has_any_width: bool,
) -> tuple[Field, Values]:
    """Return a column as Arrow has it.

    Parameters
    ----------
    name : str
    column : ndarray, RaggedArray or BytesArray
    is_text : bool
        Its byte strings are UTF-8.
    is_optional : bool
        Rows that have any number of values have at most one: that value or null.
    has_any_width : bool
        Its second axis is as long as the longest row of the batch.

    Raises
    ------
    SchemaError
        If Arrow has no such column, it is no text, or has several values in a row; with
        the row as its `record`, where it is one of them.
    """
    try:
        if has_any_width and getattr(column, "ndim", 1) > 1:
            column = rows_of_one_length(column)
        if is_text:
            _check_text(column)
        there = None
        if is_optional and isinstance(column, RaggedArray):
            column, there = _one_by_row(column)
        field, values = _array(column, is_text)
    except SchemaError as error:
        reason = f"column {name!r}: {error.reason}"
        raise SchemaError(
            reason, record=error.record, feature=name
        ) from error.__cause__
    if there is not None:
        values = _with_nulls(values, there)
    return field._replace(name=name), values


def described(field: Field) -> str:
    """Return what a type is called."""
    if not field.children:
        return _CALLED[field.format]
    inner = described(field.children[0])
    _, _, size = field.format.partition(":")
    return f"fixed_size_list<{inner}>[{size}]" if size else f"large_list<{inner}>"


def is_bytes(field: Field) -> bool:
    """Whether the innermost values are byte strings that could be text."""
    return is_bytes(field.children[0]) if field.children else field.format == _BINARY


def is_text(field: Field) -> bool:
    """Whether the innermost values are text of any kind."""
    if len(field.children) == 1:
        return is_text(field.children[0])
    return field.format in _TEXTS


def _array(column: Any, is_text: bool) -> tuple[Field, Values]:  # noqa: ANN401
    if isinstance(column, RaggedArray):
        child, inside = _array(column.values, is_text)
        splits = np.ascontiguousarray(column.row_splits, np.int64)
        values = Values(len(column), 0, (None, splits), (inside,))
        return Field("", "+L", children=(_item(child),)), values
    if isinstance(column, BytesArray):
        return _in_lists(*_strings(column, is_text), column.shape)
    return _in_lists(*_numbers(column), column.shape)


def _numbers(column: Any) -> tuple[Field, Values]:  # noqa: ANN401
    """Return all numbers of an array, one after the other."""
    dtype = getattr(column, "dtype", None)
    code = "" if dtype is None else dtype.str[1:]
    if not isinstance(column, np.ndarray) or code not in _NUMBERS or not column.ndim:
        raise SchemaError(_trouble(column))
    native = np.ascontiguousarray(column, column.dtype.newbyteorder("=")).reshape(-1)
    buffer = np.packbits(native, bitorder="little") if code == "b1" else native
    values = Values(native.size, 0, (None, buffer))
    if isinstance(column, np.ma.MaskedArray):
        values = _with_nulls(values, ~np.ma.getmaskarray(column).reshape(-1))
    return Field("", _NUMBERS[code][0]), values


def _trouble(column: object) -> str:
    """Return why something is no column of numbers."""
    if isinstance(column, SparseArray):
        return "Arrow has no sparse columns: read it with fr.VarLen"
    if not isinstance(column, np.ndarray):
        return f"a {type(column).__name__} is no array of rows"
    if not column.ndim:
        return "a single value is no array of rows"
    reason = f"Arrow has no values of dtype {column.dtype}"
    if column.dtype.name == "bfloat16":
        reason += ": read it as float32, or convert it in a transform"
    return reason


def _strings(column: BytesArray, is_text: bool) -> tuple[Field, Values]:
    """Return all strings of an array, one after the other."""
    offsets = np.ascontiguousarray(column.offsets, np.int64)
    data = np.ascontiguousarray(column.data, np.uint8)
    values = Values(column.size, 0, (None, offsets, data))
    return Field("", _TEXT if is_text else _BINARY), values


def _check_text(column: Any) -> None:  # noqa: ANN401
    """Raise a SchemaError unless all are strings, and each is UTF-8 by itself."""
    strings = column._flat_values if isinstance(column, RaggedArray) else column
    if not isinstance(strings, BytesArray):
        reason = "only byte strings can be text"
        raise SchemaError(reason)
    if _is_text_throughout(strings):
        return
    for i in range(strings.size):
        string = strings.data[strings.offsets[i] : strings.offsets[i + 1]]
        try:
            str(string.data, "utf-8")
        except UnicodeDecodeError as error:
            reason = f"it is no text, so it must stay bytes ({error.reason})"
            raise SchemaError(reason, record=_row_of(i, column)) from error


def _row_of(value: int, column: Any) -> int:  # noqa: ANN401
    """Return the row that one of all values is in."""
    if isinstance(column, RaggedArray):
        item = _row_of(value, column.values)
        return int(np.searchsorted(column.row_splits, item, "right")) - 1
    return value // int(math.prod(column.shape[1:]))


def _is_text_throughout(column: BytesArray) -> bool:
    """Tell whether strings are one text, and none begins inside of a character."""
    first, last = int(column.offsets[0]), int(column.offsets[-1])
    strings = column.data[first:last]
    if strings.size == 0 or strings.max() < 0x80:
        return True
    try:
        str(strings.data, "utf-8")
    except UnicodeDecodeError:
        return False
    begins = column.offsets[column.offsets < last]
    return not (column.data[begins] & 0xC0 == 0x80).any()


def _in_lists(
    field: Field, values: Values, shape: tuple[int, ...]
) -> tuple[Field, Values]:
    """Return rows of a shape, whose values are there one after the other."""
    for axis in range(len(shape) - 1, 0, -1):
        field = Field("", f"+w:{shape[axis]}", children=(_item(field),))
        values = Values(math.prod(shape[:axis]), 0, (None,), (values,))
    return field, values


def _item(field: Field) -> Field:
    return field._replace(name="item")


def _one_by_row(column: RaggedArray) -> tuple[Any, NDArray[np.bool_] | None]:
    """Return the value of each row, and which rows have one if not all do.

    Raises
    ------
    SchemaError
        If a row has several.
    """
    lengths, splits, values = column.lengths, column.row_splits, column.values
    if lengths.max(initial=0) > 1:
        row = int((lengths > 1).argmax())
        reason = f"a row has {lengths[row]} values, so it is a list"
        raise SchemaError(reason, record=row)
    there = lengths == 1
    if there.all():
        return values, None
    # Strings and lists that are not there have no bytes and no items, wherever they are.
    if isinstance(values, RaggedArray):
        return RaggedArray._wrap(values.values, values.row_splits[splits]), there
    shape = (len(column), *values.shape[1:])
    if isinstance(values, BytesArray):
        sizes = np.zeros(shape, np.int64)
        sizes[there] = np.diff(values.offsets).reshape(values.shape)
        offsets = values.offsets[0] + offsets_from(sizes.reshape(-1))
        return BytesArray._wrap(values.data, offsets, shape), there
    spread = np.zeros(shape, values.dtype)
    spread[there] = values
    return spread, there


def _with_nulls(values: Values, there: NDArray[np.bool_]) -> Values:
    bitmap = np.packbits(there, bitorder="little")
    return values._replace(
        null_count=int(there.size - np.count_nonzero(there)),
        buffers=(bitmap, *values.buffers[1:]),
    )
