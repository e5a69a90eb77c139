"""The spec of a feature whose items other features divide into rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Array, BytesArray, RaggedArray, RowValues
from fastrec.arrays.layout import offsets_from
from fastrec.errors import SchemaError
from fastrec.features.base import (
    Column,
    ComposedColumns,
    RowRule,
    Spec,
    checked_count,
    checked_dtype,
    checked_keys,
    kind_of,
    value_dtype,
)

__all__ = ["Partition", "Ragged"]

Splits: TypeAlias = "npt.NDArray[np.int64]"


def _check_not_empty(name: str, key: str | bytes | None) -> None:
    if key is not None and not key:
        msg = f"{name} must be the name of a feature, got {key!r}"
        raise SchemaError(msg)


@dataclass(frozen=True, repr=False)
class _Keyed:
    """Base of the partitions that a feature holds."""

    key: str | bytes
    _kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        checked_keys("the key of a partition", [self.key])
        _check_not_empty("the key of a partition", self.key)

    def __repr__(self) -> str:
        return f"Ragged.{type(self).__name__}({self.key!r})"


class _RowSplits(_Keyed):
    """The feature holds where rows begin, and where the last one ends."""

    _kind = "row_splits"


class _RowLengths(_Keyed):
    """The feature holds how many items each row has."""

    _kind = "row_lengths"


class _RowStarts(_Keyed):
    """The feature holds where each row begins."""

    _kind = "row_starts"


class _RowLimits(_Keyed):
    """The feature holds where each row ends."""

    _kind = "row_limits"


class _ValueRowIds(_Keyed):
    """The feature holds the row of each item."""

    _kind = "value_rowids"


@dataclass(frozen=True, repr=False)
class _UniformRowLength:
    """All rows have `length` items."""

    length: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", checked_count("length", self.length))

    def __repr__(self) -> str:
        return f"Ragged.UniformRowLength({self.length})"


Partition: TypeAlias = "_Keyed | _UniformRowLength"

for _class in (
    *(_RowSplits, _RowLengths, _RowStarts, _RowLimits, _ValueRowIds),
    _UniformRowLength,
):
    _class.__name__ = _class.__name__.removeprefix("_")
    _class.__qualname__ = f"Ragged.{_class.__name__}"


@dataclass(frozen=True, repr=False)
class Ragged(Spec):
    """A feature whose items are in rows, of rows, as other features say.

    Read as a `RaggedArray` of ``batch`` rows, with another one in its ``values`` for each
    partition, outermost first. Uniform partitions at the end are inner dimensions of the
    values. Without partitions it is what `VarLen` gives.

    In a feature list, the partitions are feature lists, too. They have the same number of
    steps as the values, and each of their steps divides the values of the same step.

    Parameters
    ----------
    dtype : dtype-like
        As for `FixedLen`.
    partitions : sequence of partitions
        ``Ragged.RowSplits(key)``, ``RowLengths``, ``RowStarts``, ``RowLimits``,
        ``ValueRowIds``, which hold int64, and ``Ragged.UniformRowLength(n)``; outermost
        first.
    row_splits_dtype : {"int64", "int32"}
        Of all row splits; those that int32 cannot hold stay int64.
    key : str or bytes, optional
        The feature of the values, where its name differs from the column's.

    Raises
    ------
    SchemaError
        If an argument makes no sense; when reading, if a record has another kind of
        values, or its partitions do not fit them.

    Examples
    --------
    >>> Ragged("bytes", [Ragged.RowLengths("n_words")], key="words")
    Ragged('bytes', partitions=[Ragged.RowLengths('n_words')], key='words')
    """

    dtype: str = "float32"
    partitions: tuple[Partition, ...] = ()
    row_splits_dtype: str = "int64"

    RowSplits = _RowSplits
    RowLengths = _RowLengths
    RowStarts = _RowStarts
    RowLimits = _RowLimits
    ValueRowIds = _ValueRowIds
    UniformRowLength = _UniformRowLength

    if TYPE_CHECKING:  # what the constructor takes is more than what the fields hold

        def __init__(
            self,
            dtype: npt.DTypeLike = "float32",
            partitions: Sequence[Partition] = (),
            row_splits_dtype: npt.DTypeLike = "int64",
            *,
            key: str | bytes | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_not_empty("key", self.key)
        self._set("dtype", checked_dtype(self.dtype))
        self._set("partitions", tuple(self.partitions))
        partitions: tuple[object, ...] = self.partitions
        for partition in partitions:
            if not isinstance(partition, (_Keyed, _UniformRowLength)):
                msg = f"a partition is Ragged.RowSplits(key) or the like, not {partition!r}"
                raise SchemaError(msg)
        self._set("row_splits_dtype", checked_dtype(self.row_splits_dtype))
        if self.row_splits_dtype not in ("int64", "int32"):
            msg = (
                f"row_splits_dtype must be int64 or int32, not {self.row_splits_dtype}"
            )
            raise SchemaError(msg)

    def _arguments(self, module: str) -> list[str]:
        arguments = [repr(self.dtype)]
        if self.partitions:
            texts = [f"{module}{partition!r}" for partition in self.partitions]
            arguments.append(f"partitions=[{', '.join(texts)}]")
        if self.row_splits_dtype != "int64":
            arguments.append(f"row_splits_dtype={self.row_splits_dtype!r}")
        return arguments

    def _keyed(self) -> list[_Keyed]:
        return [part for part in self.partitions if isinstance(part, _Keyed)]

    def _columns(self, name: str | bytes) -> list[Column]:
        text = repr(self)
        values = Column(
            name,
            self._key_of(name),
            kind_of(self.dtype),
            "ragged",
            value_dtype(self.dtype),
            (),
            text,
        )
        numbers = [
            values._replace(
                key=part.key.encode() if isinstance(part.key, str) else part.key,
                kind="int64",
                dtype=np.dtype(np.int64),
            )
            for part in self._keyed()
        ]
        return [values, *numbers]

    def _rules(self, first: int) -> list[RowRule]:
        if not self.partitions:
            return []
        partitions: list[tuple[str, int, int]] = []
        column = first
        for part in self.partitions:
            if isinstance(part, _UniformRowLength):
                partitions.append(("uniform_row_length", first, part.length))
            else:
                column += 1
                partitions.append((part._kind, column, 1))
        return [RowRule(first, partitions)]

    @property
    def _is_plain(self) -> bool:
        return not self.partitions and self.row_splits_dtype == "int64"

    def _compose(self, name: str | bytes, arrays: Sequence[Array]) -> ComposedColumns:
        whole, *numbers = arrays
        assert isinstance(whole, RaggedArray)
        values: RowValues = whole.values
        splits: Splits = np.asarray(whole.row_splits, np.int64)
        for part in reversed(self.partitions):
            if isinstance(part, _UniformRowLength):
                if isinstance(values, RaggedArray):
                    inner = np.arange(0, len(values) + 1, part.length, dtype=np.int64)
                    values = RaggedArray._wrap(values, self._as_splits(inner))
                else:
                    values = _in_rows_of(part.length, values)
                splits = splits // part.length
            else:
                found = numbers.pop()
                assert isinstance(found, RaggedArray)
                inner, n_rows = _divided(part._kind, found, splits)
                values = RaggedArray._wrap(values, self._as_splits(inner))
                splits = offsets_from(n_rows)
        return [(name, RaggedArray._wrap(values, self._as_splits(splits)))]

    def _as_splits(self, splits: Splits) -> Splits | npt.NDArray[np.int32]:
        is_small = splits[-1] <= np.iinfo(np.int32).max
        if self.row_splits_dtype == "int32" and is_small:
            return splits.astype(np.int32)
        return splits

    def _described(self) -> str:
        levels = [
            str(part.length) if isinstance(part, _UniformRowLength) else "ragged"
            for part in self.partitions
        ]
        return f"{self.dtype}[{', '.join(['ragged', *levels])}] {self.row_splits_dtype}"


def _divided(
    kind: str, numbers: RaggedArray, splits: Splits
) -> tuple[Splits, npt.NDArray[np.int64]]:
    """Return where the rows of all records begin and end, and how many each has.

    `numbers` are what a partition holds of each record, which the core has proven to fit
    its items; `splits` say which items are in which record.
    """
    values, lengths = np.asarray(numbers.values), numbers.lengths
    if kind == "row_lengths":
        return offsets_from(values), lengths
    if kind == "value_rowids":
        n_rows = np.zeros(len(lengths), np.int64)
        # Ids are in order, so the last is the largest.
        is_some = lengths > 0
        n_rows[is_some] = values[numbers.row_splits[1:][is_some] - 1] + 1
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


def _in_rows_of(length: int, values: npt.NDArray[Any] | BytesArray) -> RowValues:
    """Return values with one more dimension, after the first."""
    shape = (len(values) // length, length, *values.shape[1:])
    if isinstance(values, BytesArray):
        return BytesArray._wrap(values.data, values.offsets, shape)
    return values.reshape(shape)
