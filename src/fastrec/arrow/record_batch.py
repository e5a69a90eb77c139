"""Record batches: what a loader delivers, to whatever reads Arrow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fastrec import _core
from fastrec.arrow.columns import Field, Values, arrow_column, is_bytes, is_text
from fastrec.errors import SchemaError
from fastrec.features.infer import name_of

__all__ = ["RecordBatch", "check_names", "requested_text", "schema_capsule"]


class RecordBatch:
    """A batch that pyarrow, polars, DuckDB and pandas take for a table.

    It speaks the Arrow PyCapsule Interface, and needs none of them:
    ``pyarrow.record_batch(RecordBatch(batch))``, ``polars.DataFrame(...)``.

    Parameters
    ----------
    batch : mapping of str to array
        As a loader delivers it. Its memory is shared: leave it as it is while the table
        is in use.
    text : collection of str, default ()
        Those columns of byte strings that are UTF-8: large_string, not large_binary.
    optional : collection of str, default ()
        Those variable-length columns that have at most one value in a row: the value or
        null, not lists.

    Raises
    ------
    SchemaError
        If a column is sparse, of a dtype that Arrow does not have (bfloat16, complex),
        named as text and no UTF-8, or has several values in a row though it is optional
        (the row is the error's `record`); or if two columns have one name, or one that is
        no UTF-8.
    TypeError, ValueError
        If `text` or `optional` names a column that is not there, columns differ in their
        number of rows, or a name is neither str nor bytes.

    Notes
    -----
    Numbers stay as they are (bool is packed, a copy), rows of shape ``(k,)`` are
    fixed_size_list, RaggedArrays large_list, BytesArrays large_binary. Tables may
    outlive the batch, its loader and its dataset, and any thread may let go of them.

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
    ) -> None:
        self._make(batch, text, optional, frozenset())

    @classmethod
    def _of(
        cls,
        batch: Mapping[Any, Any],
        text: Collection[str],
        optional: Collection[str],
        any_width: Collection[Any],
    ) -> RecordBatch:
        """Make one whose columns `any_width` are lists of any length."""
        made = cls.__new__(cls)
        made._make(batch, text, optional, any_width)
        return made

    def _make(
        self,
        batch: Mapping[Any, Any],
        text: Collection[str],
        optional: Collection[str],
        any_width: Collection[Any],
    ) -> None:
        self._batch = batch
        self._options = (text, optional, any_width)
        check_names("text", text)
        check_names("optional", optional)
        fields: list[Field] = []
        columns: list[Values] = []
        for key, column in batch.items():
            name = _text_of(key)
            field, values = arrow_column(
                name,
                column,
                is_text=name in text,
                is_optional=name in optional,
                has_any_width=key in any_width,
            )
            fields.append(field)
            columns.append(values)
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaError(f"two columns are named {twice!r}", feature=twice)
        for name in [*text, *optional]:
            if name not in names:
                listed = ", ".join(map(repr, names))
                raise ValueError(f"there is no column {name!r}, only {listed}")
        for name, values in zip(names, columns, strict=True):
            if values.length != columns[0].length:
                pair = f"{values.length} rows, column {names[0]!r} has "
                raise ValueError(f"column {name!r} has {pair}{columns[0].length}")
        n_rows = columns[0].length if columns else 0
        self._field = Field("", "+s", is_nullable=False, children=tuple(fields))
        self._values = Values(n_rows, 0, (None,), tuple(columns))

    def __len__(self) -> int:
        """Rows."""
        return self._values.length

    @property
    def column_names(self) -> list[str]:
        """The columns, in their order."""
        return [field.name for field in self._field.children]

    def _with_names(self, names: Iterable[str]) -> RecordBatch:
        """Return the same columns under other names."""
        fields = zip(self._field.children, names, strict=True)
        return self._with(
            tuple(field._replace(name=name) for field, name in fields),
            self._values.children,
        )

    def _by_column(self) -> list[RecordBatch]:
        """Return a batch of each column alone, which keeps no memory of the others."""
        columns = zip(self._field.children, self._values.children, strict=True)
        return [self._with((field,), (values,)) for field, values in columns]

    def _with(
        self, fields: tuple[Field, ...], columns: tuple[Values, ...]
    ) -> RecordBatch:
        made = type(self).__new__(type(self))
        made._batch, made._options = self._batch, self._options
        made._field = self._field._replace(children=fields)
        made._values = self._values._replace(children=columns)
        return made

    def __arrow_c_schema__(self) -> object:
        """Return a capsule ``arrow_schema`` with names and types of the columns."""
        return schema_capsule(self._field)

    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]:
        """Return capsules ``arrow_schema`` and ``arrow_array``.

        Parameters
        ----------
        requested_schema : capsule, optional
            Byte strings that it has as text become text; nothing else is converted.

        Raises
        ------
        SchemaError
            If they are no UTF-8.
        """
        if more := requested_text(requested_schema, self._field):
            text, *others = self._options
            return RecordBatch._of(
                self._batch, {*text, *more}, *others
            ).__arrow_c_array__()
        return self.__arrow_c_schema__(), _core.arrow_array(self._values)


def schema_capsule(field: Field) -> object:
    """Return a capsule ``arrow_schema``.

    Raises
    ------
    SchemaError
        If a name has a zero byte, which ends it in C, or cannot be encoded.
    """
    for child in field.children:
        if "\0" in child.name or not _is_utf8(child.name):
            reason = f"Arrow has no name for the column {child.name!r}"
            raise SchemaError(reason, feature=child.name)
    return _core.arrow_schema(field)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text_of(key: object) -> str:
    """Return the name of a column as text."""
    if not isinstance(key, (str, bytes)):
        msg = f"a column's name must be str or bytes, not {key!r}"
        raise TypeError(msg)
    name = name_of(key)
    if not isinstance(name, str):
        raise SchemaError(f"Arrow has no name for the column {name!r}")
    return name


def check_names(option: str, names: object) -> None:
    """Raise a TypeError if one name is given where several are expected."""
    if isinstance(names, (str, bytes)):
        msg = f"{option}= takes a list of names, not {names!r}"
        raise TypeError(msg)


def requested_text(requested_schema: object | None, field: Field) -> set[str]:
    """Return the columns of byte strings that a consumer would like to have as text."""
    if requested_schema is None:
        return set()
    ours = {child.name for child in field.children if is_bytes(child)}
    asked = _field(*_core.arrow_field(requested_schema))
    return {child.name for child in asked.children if is_text(child)} & ours


def _field(name: str, format: str, is_nullable: bool, children: list[Any]) -> Field:
    return Field(name, format, is_nullable, tuple(_field(*child) for child in children))
