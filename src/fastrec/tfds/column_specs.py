"""The columns of a TFDS data set -> specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastrec.arrays.batch import Array, RaggedArray
from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    ComposedColumns,
    RowRule,
    Spec,
    checked_shape,
    numpy_dtype,
)
from fastrec.features.encoded import List
from fastrec.features.fixed import FixedLen, Raw, VarLen
from fastrec.features.image import Image
from fastrec.features.ragged import Ragged
from fastrec.features.schema import Schema
from fastrec.tfds.connectors import Shape, StoredColumn

_N_NAMES_SHOWN = 5


@dataclass(frozen=True, repr=False)
class _Uint64(Spec):
    """A spec of int64 values whose bits are those of uint64."""

    spec: Any

    def _text(self, module: str = "") -> str:
        return str(self.spec._text(module))

    def _columns(self, name: str | bytes) -> list[Column]:
        columns: list[Column] = self.spec._columns(name)
        return columns

    def _rules(self) -> list[RowRule]:
        rules: list[RowRule] = self.spec._rules()
        return rules

    @property
    def _is_plain(self) -> bool:
        return False

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        array: Any = arrays[0]
        if not self.spec._is_plain:
            ((_, array),) = self.spec._compose(name, arrays)
        return [(name, _as_uint64(array))]

    def _row_type(self) -> str:
        return f"uint64 bits of {self.spec._row_type()}"


def _as_uint64(array: Any) -> Any:
    if isinstance(array, RaggedArray):
        return RaggedArray._wrap(_as_uint64(array.values), array.row_splits)
    return array.view(np.uint64)


def schema_of(
    columns: Mapping[str, StoredColumn],
    names: Sequence[str],
    images: Mapping[str, Image],
    class_names: Mapping[str, Sequence[str]],
    source: str,
) -> Schema:
    """Return the schema of the columns `names`.

    Parameters
    ----------
    columns : mapping of str to StoredColumn
    names : sequence of str
    images : mapping of str to Image
        Specs of columns with images, in place of those that features.json describes.
    class_names : mapping of str to sequence of str
        The names of the classes of columns.
    source : str
        For the repr and for errors.

    Raises
    ------
    SchemaError
        If a column cannot be read, or `images` names a column without images.
    """
    for name in images:
        if name not in columns or columns[name].encoding != "image":
            listed = [each for each in columns if columns[each].encoding == "image"]
            having = ", ".join(map(repr, listed)) or "none"
            raise SchemaError(
                f"images= must name columns of images, got {name!r}; there are {having}"
            )
    specs = {name: _spec(columns[name], images.get(name)) for name in names}
    notes = {name: _note(columns[name], class_names.get(name, ())) for name in names}
    return Schema(
        specs,
        notes={name: note for name, note in notes.items() if note},
        source=source,
        class_names={name: class_names[name] for name in names if name in class_names},
    )


def _spec(column: StoredColumn, image: Image | None) -> Spec:
    """Return the spec of a column, or raise a SchemaError that names it."""
    try:
        if column.unsupported:
            raise SchemaError(column.unsupported)
        if column.encoding == "image":
            return _image(column, image)
        if column.encoding != "none":
            return _encoded(column)
        if column.dtype == "uint64":
            return _Uint64(spec=_stored(column, column.shape, "int64"))
        return _stored(column, column.shape, column.dtype)
    except SchemaError as error:
        raise SchemaError(
            f"cannot read column {column.name!r}, a {column.connector}: {error.reason}; "
            "pass features= with other columns, or with a spec of the stored feature"
        ) from None


def _stored(column: StoredColumn, shape: Shape, dtype: str) -> Spec:
    """Return the spec of a list of values, as ``example_serializer.py`` writes it."""
    name, rank, sizes = column.name, len(column.lengths), column.lengths + shape
    n_unknown = sizes.count(None)
    if None in shape and (rank > 1 or n_unknown > 1):
        raise SchemaError(f"several unknown sizes {sizes}")
    is_nested = rank > 1
    key = f"{name}/ragged_flat_values" if is_nested else None
    if not n_unknown:
        default = _default(dtype, sizes) if column.is_optional and not rank else None
        return FixedLen(_known(sizes), dtype, default, key=key)
    last = max(i for i, size in enumerate(sizes) if size is None)
    item = _known(sizes[last + 1 :])
    if last >= max(rank, 1):
        raise SchemaError(f"an unknown size after the first, in {sizes}")
    if not last and (dtype != "string" or not item):
        return VarLen(dtype, item, key=key)
    lengths = [
        Ragged.RowLengths(f"{name}/ragged_row_lengths_{level}") for level in range(last)
    ]
    rows = [Ragged.UniformRowLength(size) for size in item]
    return Ragged(dtype, [*lengths, *rows], key=key)


def _known(sizes: Shape) -> tuple[int, ...]:
    return checked_shape([size for size in sizes if size is not None])


def _default(dtype: str, shape: Shape) -> object:
    """Return the value that TFDS reads from records without an optional feature."""
    if dtype == "string":
        return np.full(_known(shape), b"", object)
    kind = numpy_dtype(dtype)
    if kind.kind not in "biuf":
        return None
    if kind.kind == "b":
        return np.full(_known(shape), fill_value=False)
    limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    return np.full(_known(shape), limits.min, kind)


def _encoded(column: StoredColumn) -> Spec:
    """Return the spec of arrays stored as byte strings."""
    if column.encoding not in ("bytes", "zlib"):
        raise SchemaError(f"encoding {column.encoding!r}")
    if None in column.shape:
        raise SchemaError(f"unknown sizes {column.shape} of encoded arrays")
    compression: Any = "ZLIB" if column.encoding == "zlib" else None
    array = Raw(_known(column.shape), column.dtype, compression=compression)
    return _listed(column, array)


def _image(column: StoredColumn, image: Image | None) -> Spec:
    """Return the spec of images: of their files, if their sizes are not known."""
    *sizes, n_channels = column.shape
    is_fixed = len(sizes) == 2 and None not in sizes
    is_readable = is_fixed and n_channels in (1, 3, 4) and len(column.lengths) < 2
    if image is None and is_readable:
        dtype: Any = column.dtype
        image = Image(_known(tuple(sizes)), channels=int(n_channels or 0), dtype=dtype)
    return _listed(column, image)


def _listed(column: StoredColumn, item: Image | Raw | None) -> Spec:
    """Return the spec of byte strings in the sequences of a column."""
    if item is None:
        return _stored(column, (), "string")
    if not column.lengths:
        return item
    if len(column.lengths) > 1:
        raise SchemaError("encoded values in nested sequences")
    return List(item, column.lengths[0])


def _note(column: StoredColumn, class_names: Sequence[str]) -> str:
    note = "" if column.connector in ("Tensor", "Scalar") else column.connector
    if column.dtype == "uint64" and column.encoding == "none":
        note = "bits of uint64"
    if column.encoding == "image" and column.dtype != "uint8":
        note += f" of {column.dtype}"
    if class_names:
        shown = ", ".join(map(repr, class_names[:_N_NAMES_SHOWN]))
        more = ", ..." if len(class_names) > _N_NAMES_SHOWN else ""
        note += f", {len(class_names):,} classes: {shown}{more}"
    return note
