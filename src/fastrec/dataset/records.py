"""Records: the serialized records of a dataset."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import BytesArray
from fastrec.dataset.indexing import checked_number, is_one, record_numbers
from fastrec.errors import Error
from fastrec.loader.order import records_of
from fastrec.sources.source import Source
from fastrec.storage.stream_readers import frame_stream

_READ_AT_ONCE = 16


class Records:
    """The serialized records of a dataset, each verified by both checksums.

    ``records[i]`` is ``bytes``; a slice, an index array or a mask gives a `BytesArray`.

    Raises
    ------
    CorruptionError
        When reading a damaged record.
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
        if is_one(index):
            number = checked_number(operator.index(index), len(self))
            if source.is_mixed:
                (number,) = records_of(source, np.array([number], np.int64)).tolist()
            with source.files.renewing():
                return _core.read_record(source.files.table, source.catalog(), number)
        return self._read(record_numbers(index, len(self)))

    def __iter__(self) -> Iterator[bytes]:
        files = self._source.files
        if files.is_streamed and self._source.is_walkable:
            contents, recovery = files.contents(), files.recovery
            numbers = range(len(contents))
            with frame_stream(contents, files.table, numbers, recovery) as frames:
                while (record := frames.next()) is not None:
                    yield record
            return
        for first in range(0, len(self), _READ_AT_ONCE):
            numbers = range(first, min(first + _READ_AT_ONCE, len(self)))
            try:
                records = self._read(np.array(numbers, dtype=np.int64))
            except Error as error:
                if error.code == "index_mismatch":
                    raise  # the numbers may be those of other records now
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
