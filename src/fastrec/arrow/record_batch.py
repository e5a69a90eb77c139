"""RecordBatch: a batch as an Arrow record batch, without a copy where possible.

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

import contextlib
import copy
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrec import _core
from fastrec.arrays.batch import BytesArray, RaggedArray, SparseArray
from fastrec.errors import SchemaError
from fastrec.features.fixed import rows_of_one_length
from fastrec.features.infer import name_of
from fastrec.hints import no_column


class Field(NamedTuple):
    """A column's name, and its type as a format string of the C data interface."""

    name: str
    format: str
    is_nullable: bool = True  # as in pyarrow, even without nulls
    children: tuple[Field, ...] = ()


class Values(NamedTuple):
    """An Arrow array's buffers; the first is a validity bitmap (None: no nulls)."""

    length: int
    null_count: int
    buffers: tuple[NDArray[Any] | None, ...]
    children: tuple[Values, ...] = ()


# NumPy dtype -> format string of the C data interface.
_CODES = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
_FORMATS = dict(zip(_CODES, "bcCsSiIlLefg", strict=True))
_BINARY, _TEXT = "Z", "U"
_NAMES: dict[str, str] = {form: np.dtype(code).name for code, form in _FORMATS.items()}
_NAMES |= {_BINARY: "large_binary", _TEXT: "large_string"}


class RecordBatch:
    """A batch as an Arrow record batch, for pyarrow, polars, DuckDB and pandas.

    RecordBatch implements the Arrow PyCapsule Interface and requires no Arrow package:
    ``pyarrow.record_batch(RecordBatch(batch))``, ``polars.DataFrame(...)``.

    Parameters
    ----------
    batch : mapping of str to array
        A batch of a loader. Its memory is shared: do not modify it while the table is
        in use.
    text : collection of str, default ()
        Columns of UTF-8 strings, which become large_string instead of large_binary.
    optional : collection of str, default ()
        Variable-length columns with at most one value per row. Each row becomes a value
        or null instead of a list.

    Raises
    ------
    SchemaError
        If a column is sparse, or Arrow does not support its dtype (bfloat16, complex);
        if text is not UTF-8, or a row of an optional column has several values (the
        error's `record` is the row); or if column names are duplicate or not UTF-8.
    TypeError, ValueError
        If `text` or `optional` names a missing column, columns differ in length, or a
        name is neither str nor bytes.

    Notes
    -----
    Numbers keep their dtype, but bool is packed into bits. Rows of shape ``(k,)``
    become fixed_size_list, RaggedArrays large_list, BytesArrays large_binary. A table
    may outlive the batch, the loader and the dataset; any thread may release it.

    Examples
    --------
    >>> import numpy as np
    >>> batch = RecordBatch({"label": np.arange(3)})
    >>> len(batch)
    3
    """

    def __init__(
        self,
        batch: Mapping[Any, Any],
        text: Collection[str] = (),
        optional: Collection[str] = (),
        *,
        _any_width: Collection[Any] = (),  # columns whose width varies between batches
    ) -> None:
        columns: dict[str, tuple[Field, Values]] = {}
        for key, column in batch.items():
            name = _text_name(key)
            if name in columns:
                raise SchemaError(
                    f"column names must be unique, got {name!r} twice", feature=name
                )
            try:
                field, values = _column(
                    column, name in text, name in optional, key in _any_width
                )
            except SchemaError as error:
                error.reason = f"column {name!r}: {error.reason}"
                error.feature = name
                raise
            columns[name] = field._replace(name=name), values
        for name in (*text, *optional):
            if name not in columns:
                raise ValueError(no_column(name, columns, "the batch"))
        lengths = {name: values.length for name, (_, values) in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns must have equal lengths, got {lengths}")
        fields = tuple(field for field, _ in columns.values())
        arrays = tuple(values for _, values in columns.values())
        n_rows = next(iter(lengths.values()), 0)
        self._field = Field("", "+s", is_nullable=False, children=fields)
        self._values = Values(n_rows, 0, (None,), arrays)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._values.length

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in order."""
        return [field.name for field in self._field.children]

    def _by_column(self) -> Iterator[RecordBatch]:
        """Yield one RecordBatch per column. Each keeps only its column in memory."""
        columns = zip(self._field.children, self._values.children, strict=True)
        for field, values in columns:
            batch = copy.copy(self)
            batch._field = self._field._replace(children=(field,))
            batch._values = self._values._replace(children=(values,))
            yield batch

    def __arrow_c_schema__(self) -> object:
        """Return a capsule ``arrow_schema`` with the names and types of the columns."""
        return _core.arrow_schema(self._field)

    def __arrow_c_array__(
        self,
        requested_schema: object | None = None,
    ) -> tuple[object, object]:
        """Return capsules ``arrow_schema`` and ``arrow_array``.

        The requested schema is ignored, as the interface allows.
        """
        return self.__arrow_c_schema__(), _core.arrow_array(self._values)


def _text_name(key: object) -> str:
    """Return `key` as a str if it is UTF-8 without NULs; otherwise raise an error."""
    if not isinstance(key, (str, bytes)):
        raise TypeError(f"column names must be str or bytes, got {key!r}")
    name = name_of(key)
    is_text = isinstance(name, str) and name.encode(errors="replace").decode() == name
    if not isinstance(name, str) or not is_text or "\0" in name:
        raise SchemaError(f"column names must be UTF-8 without NULs, got {name!r}")
    return name


def type_names(struct: Field) -> dict[str, str]:
    """Return the Arrow type of each column by name, such as ``large_list<int64>``."""
    return {field.name: _type_name(field) for field in struct.children}


def _type_name(field: Field) -> str:
    if not field.children:
        return _NAMES[field.format]
    inner = _type_name(field.children[0])
    _, _, size = field.format.partition(":")
    return f"fixed_size_list<{inner}>[{size}]" if size else f"large_list<{inner}>"


def _column(
    column: Any, is_text: bool, is_optional: bool, has_any_width: bool
) -> tuple[Field, Values]:
    """Convert a column to Arrow; a SchemaError's `record` is the invalid row."""
    is_padded = isinstance(column, (np.ndarray, BytesArray)) and column.ndim > 1
    if has_any_width and is_padded:
        column = rows_of_one_length(column)
    if is_text:
        _check_text(column)
    present = None
    if is_optional and isinstance(column, RaggedArray):
        column, present = _scalar_rows(column)
    field, values = _array(column, is_text)
    return field, values if present is None else _with_nulls(values, present)


def _array(column: Any, is_text: bool) -> tuple[Field, Values]:
    if isinstance(column, RaggedArray):
        item, inside = _array(column.values, is_text)
        splits = np.ascontiguousarray(column.row_splits, np.int64)
        field = Field("", "+L", children=(item._replace(name="item"),))
        return field, Values(len(column), 0, (None, splits), (inside,))
    is_bytes = isinstance(column, BytesArray)
    field, values = _strings(column, is_text) if is_bytes else _numbers(column)
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
        reason = "Arrow does not support sparse columns; read the values with fr.VarLen"
        raise SchemaError(reason)
    if not isinstance(column, np.ndarray) or not column.ndim:
        reason = f"expected an array of rows, got {type(column).__name__}"
        raise SchemaError(reason)
    code = column.dtype.str[1:]
    if code not in _FORMATS:
        reason = f"Arrow does not support {column.dtype}; convert it in a transform"
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
        reason = "text columns must be byte strings"
        raise SchemaError(reason)
    offsets, data = strings.offsets, strings.data
    joined, begins = strings._joined(), offsets[:-1][np.diff(offsets) > 0]
    if not len(begins) or joined.max() < 0x80:
        return
    with contextlib.suppress(UnicodeDecodeError):
        str(joined.data, "utf-8")
        # No string may begin within a character.
        if not (data[begins] & 0xC0 == 0x80).any():
            return
    for i in range(strings.size):
        try:
            str(data[offsets[i] : offsets[i + 1]].data, "utf-8")
        except UnicodeDecodeError as error:
            reason = f"a value is not UTF-8 text ({error.reason}); remove it from text="
            raise SchemaError(reason, record=_row_of(i, column)) from error


def _row_of(value: int, column: Any) -> int:
    """Return the number of the row that contains the value with number `value`."""
    if isinstance(column, RaggedArray):
        item = _row_of(value, column.values)
        return int(np.searchsorted(column.row_splits, item, "right")) - 1
    return value // int(math.prod(column.shape[1:]))


def _scalar_rows(column: RaggedArray) -> tuple[Any, NDArray[np.bool_] | None]:
    """Return each row's single value, and a mask of nonempty rows (None if all are)."""
    lengths, splits, values = column.lengths, column.row_splits, column.values
    if lengths.max(initial=0) > 1:
        row = int((lengths > 1).argmax())
        reason = f"a row has {lengths[row]} values; remove the column from optional="
        raise SchemaError(reason, record=row)
    present = lengths == 1
    if present.all():
        return values, None
    # Replace missing strings and lists with empty ones.
    if isinstance(values, RaggedArray):
        return RaggedArray._wrap(values.values, values.row_splits[splits]), present
    shape = (len(column), *values.shape[1:])
    if isinstance(values, BytesArray):
        within = np.arange(math.prod(shape[1:]))
        begins = splits[:-1, None] * len(within) + present[:, None] * within
        offsets = values.offsets[np.append(begins, values.size)]
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
