"""Records: the bytes of the records of a dataset, whatever they mean."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import BytesArray
from fastrec.dataset.indexing import (
    checked_number,
    is_one,
    record_numbers,
)
from fastrec.errors import Error
from fastrec.on_error import recovery_of
from fastrec.storage.stream_readers import first_frames

if TYPE_CHECKING:
    from fastrec.dataset.dataset import Dataset

__all__ = ["Records"]

# Records that are read at once where they are wanted one by one.
_RECORDS_AT_ONCE = 64


class Records:
    """The bytes of the records of a dataset, both checksums of each verified.

    ``records[i]`` is ``bytes``; a slice, an index array or a mask gives a `BytesArray`.

    Raises
    ------
    CorruptionError
        If a record that is read is damaged.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(
        self, index: slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]
    ) -> BytesArray: ...
    def __getitem__(self, index: Any) -> bytes | BytesArray:
        view = self._dataset._view
        if is_one(index):
            number = checked_number(operator.index(index), len(self))
            (number,) = view.records_of(np.array([number], dtype=np.int64)).tolist()
            return _core.read_record(view.sources.table, view.catalog(), number)
        return self._read(record_numbers(index, len(self)))

    def __iter__(self) -> Iterator[bytes]:
        sources = self._dataset._view.sources
        if sources.is_streamed and self._dataset._view.is_walkable:
            files = sources.contents()
            recovery = recovery_of(sources.on_error)
            with first_frames(
                files, sources.table, range(len(files)), recovery
            ) as frames:
                while (record := frames.next()) is not None:
                    yield record
            return
        for first in range(0, len(self), _RECORDS_AT_ONCE):
            numbers = np.arange(first, min(first + _RECORDS_AT_ONCE, len(self)))
            try:
                found = self._read(numbers)
            except Error:
                # One by one, so that the good records before the damage come first.
                for number in numbers:
                    yield self[int(number)]
            else:
                yield from found

    def __repr__(self) -> str:
        return f"<fastrec.Records of {self._dataset!r}>"

    def _read(self, numbers: npt.NDArray[np.int64]) -> BytesArray:
        view = self._dataset._view
        data, offsets = _core.read_records(
            view.sources.table,
            view.catalog(),
            self._dataset._pool,
            view.records_of(numbers),
        )
        return BytesArray._wrap(data, offsets, (len(numbers),))
