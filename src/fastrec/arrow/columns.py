"""Columns of batches -> Arrow types and buffers, without a copy where possible.

==========================================  =============================================
ndarray ``(n,)``                            the same numbers; bool is packed
ndarray or BytesArray ``(n, k, ...)``       fixed_size_list, nested
RaggedArray                                 large_list
BytesArray                                  large_binary, or large_string for text
padded columns, whose width varies          large_list of the padded rows
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


class Field(NamedTuple):
    """A name and a type, in the format strings of the C data interface."""

    name: str
    format: str
    is_nullable: bool = True  # like arrays of pyarrow, with nulls or without
    children: tuple[Field, ...] = ()


class Values(NamedTuple):
    """The buffers of an array; the first is its validity bitmap, or None."""

    length: int
    null_count: int
    buffers: tuple[NDArray[Any] | None, ...]
    children: tuple[Values, ...] = ()


# The formats of NumPy's dtypes.
_CODES = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
_FORMATS = dict(zip(_CODES, "bcCsSiIlLefg", strict=True))
_BINARY, _TEXT = "Z", "U"
_NAMES: dict[str, str] = {
    format: np.dtype(code).name for code, format in _FORMATS.items()
}
_NAMES |= {_BINARY: "large_binary", _TEXT: "large_string"}


def arrow_column(
    name: str,
    column: Any,
    *,
    is_text: bool,
    is_optional: bool,
    has_any_width: bool,
) -> tuple[Field, Values]:
    """Return a column as Arrow has it; errors about one row have it as `record`."""
    try:
        is_padded = isinstance(column, (np.ndarray, BytesArray)) and column.ndim > 1
        if has_any_width and is_padded:
            column = rows_of_one_length(column)
        if is_text:
            _check_text(column)
        present = None
        if is_optional and isinstance(column, RaggedArray):
            column, present = _scalar_rows(column)
        field, values = _array(column, is_text)
    except SchemaError as error:
        reason = f"column {name!r}: {error.reason}"
        raise SchemaError(
            reason, record=error.record, feature=name
        ) from error.__cause__
    if present is not None:
        values = _with_nulls(values, present)
    return field._replace(name=name), values


def type_name(field: Field) -> str:
    """Return the Arrow name of a type, such as ``large_list<int64>``."""
    if not field.children:
        return _NAMES[field.format]
    inner = type_name(field.children[0])
    _, _, size = field.format.partition(":")
    return f"fixed_size_list<{inner}>[{size}]" if size else f"large_list<{inner}>"


def _array(column: Any, is_text: bool) -> tuple[Field, Values]:
    if isinstance(column, RaggedArray):
        item, inside = _array(column.values, is_text)
        splits = np.ascontiguousarray(column.row_splits, np.int64)
        field = Field("", "+L", children=(item._replace(name="item"),))
        return field, Values(len(column), 0, (None, splits), (inside,))
    field, values = (
        _strings(column, is_text)
        if isinstance(column, BytesArray)
        else _numbers(column)
    )
    shape = column.shape
    for axis in range(len(shape) - 1, 0, -1):
        field = Field("", f"+w:{shape[axis]}", children=(field._replace(name="item"),))
        values = Values(math.prod(shape[:axis]), 0, (None,), (values,))
    return field, values


def _strings(column: BytesArray, is_text: bool) -> tuple[Field, Values]:
    offsets = np.ascontiguousarray(column.offsets, np.int64)
    data = np.ascontiguousarray(column.data, np.uint8)
    values = Values(column.size, 0, (None, offsets, data))
    return Field("", _TEXT if is_text else _BINARY), values


def _numbers(column: Any) -> tuple[Field, Values]:
    if isinstance(column, SparseArray):
        reason = "Arrow has no sparse columns: read it with fr.VarLen"
        raise SchemaError(reason)
    if not isinstance(column, np.ndarray) or not column.ndim:
        reason = f"expected an array of rows, got {type(column).__name__}"
        raise SchemaError(reason)
    code = column.dtype.str[1:]
    if code not in _FORMATS:
        reason = f"Arrow has no dtype {column.dtype}: convert it in a transform"
        if column.dtype.name == "bfloat16":
            reason += ", or read it as float32"
        raise SchemaError(reason)
    native = np.ascontiguousarray(column, column.dtype.newbyteorder("=")).reshape(-1)
    buffer = np.packbits(native, bitorder="little") if code == "b1" else native
    values = Values(native.size, 0, (None, buffer))
    if isinstance(column, np.ma.MaskedArray):
        values = _with_nulls(values, ~np.ma.getmaskarray(column).reshape(-1))
    return Field("", _FORMATS[code]), values


def _check_text(column: Any) -> None:
    """Raise a SchemaError unless each value is a UTF-8 string."""
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
            reason = (
                f"a value is not UTF-8 text ({error.reason}): leave it out of text="
            )
            raise SchemaError(reason, record=_row_of(i, column)) from error


def _row_of(value: int, column: Any) -> int:
    """Return the row of one of all values."""
    if isinstance(column, RaggedArray):
        item = _row_of(value, column.values)
        return int(np.searchsorted(column.row_splits, item, "right")) - 1
    return value // int(math.prod(column.shape[1:]))


def _is_text_throughout(column: BytesArray) -> bool:
    """Return whether all strings are UTF-8, by one check of the joined bytes."""
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


def _scalar_rows(column: RaggedArray) -> tuple[Any, NDArray[np.bool_] | None]:
    """Return the single value of each row, and which rows have one if not all do."""
    lengths, splits, values = column.lengths, column.row_splits, column.values
    if lengths.max(initial=0) > 1:
        row = int((lengths > 1).argmax())
        reason = f"a row has {lengths[row]} values: leave the column out of optional="
        raise SchemaError(reason, record=row)
    present = lengths == 1
    if present.all():
        return values, None
    # Missing strings and lists are empty.
    if isinstance(values, RaggedArray):
        return RaggedArray._wrap(values.values, values.row_splits[splits]), present
    shape = (len(column), *values.shape[1:])
    if isinstance(values, BytesArray):
        sizes = np.zeros(shape, np.int64)
        sizes[present] = np.diff(values.offsets).reshape(values.shape)
        offsets = values.offsets[0] + offsets_from(sizes.reshape(-1))
        return BytesArray._wrap(values.data, offsets, shape), present
    spread = np.zeros(shape, values.dtype)
    spread[present] = values
    return spread, present


def _with_nulls(values: Values, present: NDArray[np.bool_]) -> Values:
    bitmap = np.packbits(present, bitorder="little")
    return values._replace(
        null_count=int(present.size - np.count_nonzero(present)),
        buffers=(bitmap, *values.buffers[1:]),
    )
