"""Ragged and Sparse: specs that combine values with partitions or indices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Array, BytesArray, RaggedArray, RowValues, SparseArray
from fastrec.arrays.bytes import reshaped
from fastrec.arrays.layout import offsets_from
from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    ComposedColumns,
    RowRule,
    Spec,
    as_bytes,
    checked_choice,
    checked_count,
    checked_dtype,
    checked_key,
    checked_keys,
    checked_shape,
)

Splits: TypeAlias = "npt.NDArray[np.int64]"


def _check_not_empty(name: str, key: str | bytes | None) -> None:
    if key is not None and not key:
        raise SchemaError(f"{name} must be a feature name, got {key!r}")


@dataclass(frozen=True)
class Keyed:
    """Base class of partitions that are stored in an int64 feature."""

    key: str | bytes
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        checked_keys("partition key", [self.key])
        _check_not_empty("partition key", self.key)

    def _text(self, module: str = "") -> str:
        (argument,) = vars(self).values()
        return f"{module}{type(self).__qualname__}({argument!r})"

    __repr__ = _text


@dataclass(frozen=True, init=False, repr=False)
class Ragged(Spec):
    """A feature whose values are divided into nested rows by other features.

    The column is a `RaggedArray` of ``batch`` rows. Each partition adds one nested
    RaggedArray; the outermost partition is first. Uniform partitions at the end become
    inner dimensions of the values instead. If the values are a feature list, so are the
    partitions, and all these lists must have the same number of steps.

    Parameters
    ----------
    dtype : dtype-like
        As for `FixedLen`.
    partitions : sequence of partitions
        ``Ragged.RowSplits(key)``, ``RowLengths``, ``RowStarts``, ``RowLimits`` or
        ``ValueRowIds`` with an int64 feature's key, or ``Ragged.UniformRowLength(n)``.
    row_splits_dtype : {"int64", "int32"}
        The dtype of the row splits. Splits too large for int32 stay int64.
    key : str or bytes, optional
        The name of the feature with the values, if it differs from the column name.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, if a record has the wrong kind of
        values, or partitions that do not fit the values.

    Examples
    --------
    >>> Ragged("bytes", [Ragged.RowLengths("n_words")], key="words")
    Ragged('bytes', partitions=[Ragged.RowLengths('n_words')], key='words')
    """

    dtype: str
    partitions: tuple[Keyed | UniformRowLength, ...]
    row_splits_dtype: str
    _n_positional = 1

    class RowSplits(Keyed):
        """A partition stored as the start of each row and the end of the last row."""

        kind = "row_splits"

    class RowLengths(Keyed):
        """A partition stored as the number of items in each row."""

        kind = "row_lengths"

    class RowStarts(Keyed):
        """A partition stored as the start of each row."""

        kind = "row_starts"

    class RowLimits(Keyed):
        """A partition stored as the end of each row."""

        kind = "row_limits"

    class ValueRowIds(Keyed):
        """A partition stored as the row number of each item."""

        kind = "value_rowids"

    @dataclass(frozen=True)
    class UniformRowLength:
        """A partition into rows of `length` items each. No feature stores it."""

        length: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "length", checked_count("length", self.length))

        __repr__ = _text = Keyed._text

    def __init__(
        self,
        dtype: npt.DTypeLike = "float32",
        partitions: Sequence[Keyed | UniformRowLength] = (),
        row_splits_dtype: npt.DTypeLike = "int64",
        *,
        key: str | bytes | None = None,
    ) -> None:
        _check_not_empty("key", checked_key(key))
        given: tuple[object, ...] = tuple(partitions)
        self._set(dtype=checked_dtype(dtype), partitions=given, key=key)
        for partition in given:
            if not isinstance(partition, (Keyed, Ragged.UniformRowLength)):
                raise SchemaError(
                    "partitions must be Ragged.RowSplits(key) or similar, got "
                    f"{partition!r}"
                )
        splits = checked_dtype(row_splits_dtype)
        checked_choice("row_splits_dtype", splits, ("int64", "int32"))
        self._set(row_splits_dtype=splits)

    def _keyed(self) -> list[Keyed]:
        return [part for part in self.partitions if isinstance(part, Keyed)]

    def _columns(self, name: str | bytes) -> list[Column]:
        values = self._column(name, "ragged")
        int64 = np.dtype(np.int64)
        numbers = [
            values._replace(key=as_bytes(part.key), kind="int64", dtype=int64)
            for part in self._keyed()
        ]
        return [values, *numbers]

    def _rules(self) -> list[RowRule]:
        column = itertools.count(1)
        partitions = [
            ("uniform_row_length", 0, part.length)
            if isinstance(part, Ragged.UniformRowLength)
            else (part.kind, next(column), 1)
            for part in self.partitions
        ]
        return [RowRule(0, partitions)] if partitions else []

    @property
    def _is_plain(self) -> bool:
        return not self.partitions and self.row_splits_dtype == "int64"

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        whole, *numbers = arrays
        assert isinstance(whole, RaggedArray)
        dtype = self.row_splits_dtype
        values: RowValues = whole.values
        splits: Splits = np.asarray(whole.row_splits, np.int64)
        for part in reversed(self.partitions):
            if isinstance(part, Ragged.UniformRowLength):
                if isinstance(values, RaggedArray):
                    inner = np.arange(0, len(values) + 1, part.length, dtype=np.int64)
                    values = RaggedArray._wrap(values, as_splits(inner, dtype))
                else:
                    shape = (len(values) // part.length, part.length)
                    values = reshaped(values, (*shape, *values.shape[1:]))
                splits = splits // part.length
            else:
                partition = numbers.pop()
                assert isinstance(partition, RaggedArray)
                inner, n_rows = _partition_splits(part.kind, partition, splits)
                values = RaggedArray._wrap(values, as_splits(inner, dtype))
                splits = offsets_from(n_rows)
        return [(name, RaggedArray._wrap(values, as_splits(splits, dtype)))]

    def _row_type(self) -> str:
        levels = [
            str(part.length) if isinstance(part, Ragged.UniformRowLength) else "ragged"
            for part in self.partitions
        ]
        return f"{self.dtype}[{', '.join(['ragged', *levels])}] {self.row_splits_dtype}"


def as_splits(splits: Splits, dtype: str) -> Splits | npt.NDArray[np.int32]:
    """Return `splits` in `dtype`, or unchanged if they are too large for `dtype`."""
    fits = splits[-1] <= np.iinfo(dtype).max
    return splits.astype(dtype, copy=False) if fits else splits


def _partition_splits(
    kind: str, numbers: RaggedArray, splits: Splits
) -> tuple[Splits, npt.NDArray[np.int64]]:
    """Return the row splits of a partition, and the number of rows in each record.

    `numbers` holds the partition as stored, which the core has checked. Record ``i``
    has the items ``splits[i]:splits[i + 1]``.
    """
    values, lengths = np.asarray(numbers.values), numbers.lengths
    if kind == "row_lengths":
        return offsets_from(values), lengths
    if kind == "value_rowids":
        n_rows = np.zeros(len(lengths), np.int64)
        # The ids are sorted, so the last id is the largest.
        is_nonempty = lengths > 0
        n_rows[is_nonempty] = values[numbers.row_splits[1:][is_nonempty] - 1] + 1
        rows_before = offsets_from(n_rows)
        rows = values + np.repeat(rows_before[:-1], lengths)
        return offsets_from(np.bincount(rows, minlength=rows_before[-1])), n_rows
    places = values + np.repeat(splits[:-1], lengths)
    if kind == "row_starts":
        return np.append(places, splits[-1]), lengths
    if kind == "row_splits":
        is_limit = np.ones(len(places), bool)
        is_limit[numbers.row_splits[:-1][lengths > 0]] = False
        places, lengths = places[is_limit], np.maximum(lengths - 1, 0)
    return np.insert(places, 0, 0), lengths


@dataclass(frozen=True, init=False, repr=False)
class Sparse(Spec):
    """A sparse array, stored as a feature of values and features of indices.

    The column is a `SparseArray` of shape ``(batch, *size)``. Records without the
    features have an empty row.

    Parameters
    ----------
    index_key : str, bytes, or sequence of str or bytes
        The names of the int64 features with the indices, one for each dimension.
    value_key : str or bytes
        The name of the feature with the values.
    dtype : dtype-like
        As for `FixedLen`.
    size : int, or sequence of int
        The shape of the array, with one size for each index feature.
    already_sorted : bool, default False
        Pass True to skip sorting if the indices of each record are sorted.

    Raises
    ------
    SchemaError
        If an argument is invalid. When reading, if a record does not have one index for
        each value and dimension, or an index is out of bounds.

    Examples
    --------
    >>> Sparse("ix", "value", "float32", 100)
    Sparse('ix', 'value', 'float32', 100)
    """

    index_key: str | bytes | tuple[str | bytes, ...]
    value_key: str | bytes
    dtype: str
    size: int | tuple[int, ...]
    already_sorted: bool
    _n_positional = 4

    def __init__(
        self,
        index_key: str | bytes | Sequence[str | bytes],
        value_key: str | bytes,
        dtype: npt.DTypeLike,
        size: int | Sequence[int],
        already_sorted: bool = False,
    ) -> None:
        if not isinstance(index_key, (str, bytes)):
            index_key = checked_keys("index_key", index_key)
        checked_keys("value_key", [value_key])
        sizes = checked_shape(size)
        if not isinstance(size, (int, np.integer)):
            size = sizes
        self._set(index_key=index_key, value_key=value_key, dtype=checked_dtype(dtype))
        self._set(size=size, already_sorted=already_sorted, key=None)
        if len(self._index_keys()) != len(sizes):
            raise SchemaError(
                f"size must have one entry for each of {index_key!r}, got {size!r}"
            )

    def _index_keys(self) -> tuple[str | bytes, ...]:
        is_one = isinstance(self.index_key, (str, bytes))
        return (self.index_key,) if is_one else self.index_key  # type: ignore[return-value]

    def _sizes(self) -> tuple[int, ...]:
        return checked_shape(self.size)

    def _columns(self, name: str | bytes) -> list[Column]:
        values = self._column(name, "ragged")._replace(key=as_bytes(self.value_key))
        int64 = np.dtype(np.int64)
        indices = [
            values._replace(key=as_bytes(key), kind="int64", dtype=int64)
            for key in self._index_keys()
        ]
        return [values, *indices]

    def _rules(self) -> list[RowRule]:
        return [RowRule(0, indices=[*enumerate(self._sizes(), start=1)])]

    @property
    def _is_plain(self) -> bool:
        return False

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        columns = [array for array in arrays if isinstance(array, RaggedArray)]
        values = columns[0].values
        assert isinstance(values, (np.ndarray, BytesArray))
        n_rows = len(columns[0])
        rows = np.repeat(np.arange(n_rows), columns[0].lengths)
        axes = [rows, *(np.asarray(column.values) for column in columns[1:])]
        indices = np.stack(axes, axis=1)
        if not self.already_sorted:
            order = np.lexsort(axes[::-1])
            indices, values = indices[order], values[order]
        shape = (n_rows, *self._sizes())
        return [(name, SparseArray._wrap(indices, values, shape))]

    def _row_type(self) -> str:
        return f"{self.dtype}{list(self._sizes())} sparse"
