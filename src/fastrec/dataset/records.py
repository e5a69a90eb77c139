"""Records: the serialized records of a dataset, and checks of record numbers."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import BytesArray
from fastrec.arrays.layout import is_int
from fastrec.errors import Error
from fastrec.loader.order import records_of
from fastrec.sources.source import Source

_READ_AT_ONCE = 16


class Records:
    """The serialized records of a dataset, each verified by both checksums.

    ``records[i]`` is ``bytes``; a slice, index array or mask returns a `BytesArray`.

    Raises
    ------
    CorruptionError
        If a record to read is damaged.
    """

    def __init__(self, source: Source, pool: _core.BlockPool) -> None:
        self._source = source
        self._pool = pool

    def __len__(self) -> int:
        return len(self._source)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(
        self, index: slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]
    ) -> BytesArray: ...
    def __getitem__(self, index: Any) -> bytes | BytesArray:
        source = self._source
        if is_int(index):
            number = checked_number(operator.index(index), len(self))
            if source.is_mixed:
                (number,) = records_of(source, np.array([number], np.int64)).tolist()
            with source.files.renewing():
                return _core.read_record(source.files.table, source.catalog(), number)
        return self._read(record_numbers(index, len(self)))

    def __iter__(self) -> Iterator[bytes]:
        files = self._source.files
        if files.is_streamed and self._source.is_walkable:
            with files.frames(range(len(files))) as frames:
                while (record := frames.next()) is not None:
                    yield record
            return
        for first in range(0, len(self), _READ_AT_ONCE):
            numbers = range(first, min(first + _READ_AT_ONCE, len(self)))
            try:
                records = self._read(np.array(numbers, dtype=np.int64))
            except Error as error:
                if error.code == "index_mismatch":
                    raise  # the numbers may now refer to other records
                # Read one by one, to yield the intact records before the damage.
                yield from map(self.__getitem__, numbers)
            else:
                yield from records

    def __repr__(self) -> str:
        return f"<fastrec.Records of {self._source!r}>"

    def _read(self, numbers: npt.NDArray[np.int64]) -> BytesArray:
        source = self._source
        records = records_of(source, numbers)
        with source.files.renewing():
            data, offsets = _core.read_records(
                source.files.table, source.catalog(), self._pool, records
            )
        return BytesArray._wrap(data, offsets, (len(numbers),))


def checked_number(number: int, n_records: int) -> int:
    """Return `number` as a non-negative record number, or raise an IndexError."""
    if not -n_records <= number < n_records:
        raise IndexError(
            f"record {number} is out of range: the dataset has {n_records:,} records"
        )
    return number % n_records


def record_numbers(index: object, n_records: int) -> npt.NDArray[np.int64]:
    """Return the record numbers that a slice, an index array or a mask selects."""
    if isinstance(index, slice):
        return np.arange(*index.indices(n_records), dtype=np.int64)
    array = np.asarray(() if isinstance(index, tuple) else index)
    if array.ndim == 1 and array.dtype.kind == "b":
        if len(array) != n_records:
            raise IndexError(f"mask must have length {n_records:,}, got {len(array):,}")
        return np.flatnonzero(array).astype(np.int64)
    if array.ndim == 0 and array.dtype.kind in "iu":
        raise TypeError(
            f"index must select several records, got {index!r}; use ds[{index!r}]"
        )
    is_index = array.dtype.kind in "iu" or array.size == 0
    if array.ndim != 1 or not is_index or isinstance(index, tuple):
        raise TypeError(
            f"index must be a number, slice, index array or mask, got {index!r}"
        )
    # Check before the cast to int64, which would make large unsigned numbers negative.
    is_outside = array >= n_records
    if array.dtype.kind == "i":
        is_outside |= array < -n_records
    if is_outside.any():
        checked_number(int(array[is_outside][0]), n_records)
    numbers = array.astype(np.int64)
    return np.where(numbers < 0, numbers + n_records, numbers)


def record_range(numbers: range, n_records: int) -> range | npt.NDArray[np.int64]:
    """Return the record numbers that a range selects, as a range if possible."""
    if not numbers:
        return range(0)
    first, last = numbers[0], numbers[-1]
    checked_number(first, n_records)
    checked_number(last, n_records)
    if first < 0 and last < 0:
        shifted = (numbers.start + n_records, numbers.stop + n_records, numbers.step)
        return range(*shifted)
    if first < 0 or last < 0:
        return np.arange(numbers.start, numbers.stop, numbers.step) % n_records
    return numbers
