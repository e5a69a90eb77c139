"""RecordBatch: a batch as an Arrow record batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fastrec import _core
from fastrec.arrow.columns import Field, Values, arrow_column
from fastrec.errors import SchemaError
from fastrec.features.infer import name_of
from fastrec.hints import no_column


class RecordBatch:
    """A batch as an Arrow record batch, for pyarrow, polars, DuckDB and pandas.

    It implements the Arrow PyCapsule Interface and requires none of these packages:
    ``pyarrow.record_batch(RecordBatch(batch))``, ``polars.DataFrame(...)``.

    Parameters
    ----------
    batch : mapping of str to array
        A batch of a loader. Its memory is shared: do not modify it while the table is
        in use.
    text : collection of str, default ()
        Columns of UTF-8 strings: large_string instead of large_binary.
    optional : collection of str, default ()
        Variable-length columns with at most one value per row: the value or null
        instead of a list.

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
    Numbers keep their dtype (bool is copied to bits), rows of shape ``(k,)`` become
    fixed_size_list, RaggedArrays large_list, BytesArrays large_binary. Tables may
    outlive the batch, its loader and its dataset; any thread may release them.

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
        text, optional = frozenset(text), frozenset(optional)
        columns: dict[str, tuple[Field, Values]] = {}
        for key, column in batch.items():
            name = _text_name(key)
            if name in columns:
                raise SchemaError(
                    f"column names must be unique, got {name!r} twice", feature=name
                )
            columns[name] = arrow_column(
                name,
                column,
                is_text=name in text,
                is_optional=name in optional,
                has_any_width=key in _any_width,
            )
        for name in sorted(text | optional):
            if name not in columns:
                raise ValueError(no_column(name, columns, "the batch"))
        lengths = {name: values.length for name, (_, values) in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns must have equal lengths, got {lengths}")
        self._set(next(iter(lengths.values()), 0), list(columns.values()))

    def _set(self, n_rows: int, columns: list[tuple[Field, Values]]) -> None:
        fields = tuple(field for field, _ in columns)
        self._field = Field("", "+s", is_nullable=False, children=fields)
        self._values = Values(
            n_rows, 0, (None,), tuple(values for _, values in columns)
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._values.length

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in order."""
        return [field.name for field in self._field.children]

    def _by_column(self) -> list[RecordBatch]:
        """Return one batch per column, which does not keep the others in memory."""
        batches = []
        columns = zip(self._field.children, self._values.children, strict=True)
        for field, values in columns:
            batch = object.__new__(RecordBatch)
            batch._set(len(self), [(field, values)])
            batches.append(batch)
        return batches

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
    """Return a column name as UTF-8 text without NULs, or raise."""
    if not isinstance(key, (str, bytes)):
        raise TypeError(f"column names must be str or bytes, got {key!r}")
    name = name_of(key)
    is_text = isinstance(name, str) and name.encode(errors="replace").decode() == name
    if not isinstance(name, str) or not is_text or "\0" in name:
        raise SchemaError(f"column names must be UTF-8 without NULs, got {name!r}")
    return name
