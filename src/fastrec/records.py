"""Records: the bytes of the records of a dataset, whatever they mean."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays import BytesArray
from fastrec.errors import Error
from fastrec.located import Compression
from fastrec.options import checked_names, positive_int
from fastrec.paths import Paths
from fastrec.rows import (
    batches_until_damage,
    checked_number,
    is_one,
    record_numbers,
)
from fastrec.spec import Column, Spec
from fastrec.streams import first_frames

if TYPE_CHECKING:
    from fastrec.dataset import Dataset

__all__ = ["Records", "read_records"]

# Records that are read at once where they are wanted one by one.
_RECORDS_AT_ONCE = 64

_RECORD = "record"  # the column that read_records() reads


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
            with first_frames(files, sources.table, range(len(files))) as frames:
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


@dataclass(frozen=True, repr=False)
class _Serialized(Spec):
    """The serialized record itself, whatever it is."""

    def _arguments(self, module: str) -> list[str]:  # noqa: ARG002
        return []

    def _columns(self, name: str | bytes) -> list[Column]:
        dtype = np.dtype(np.uint8)
        return [Column(name, b"", "bytes", "record", dtype, (), repr(self))]


@overload
def read_records(
    paths: Paths,
    *,
    compression: Compression = "auto",
    batch_size: None = None,
    num_threads: int | None = None,
) -> Iterator[bytes]: ...
@overload
def read_records(
    paths: Paths,
    *,
    compression: Compression = "auto",
    batch_size: int,
    num_threads: int | None = None,
) -> Iterator[BytesArray]: ...
@checked_names
def read_records(
    paths: Paths,
    *,
    compression: Compression = "auto",
    batch_size: int | None = None,
    num_threads: int | None = None,
) -> Iterator[bytes] | Iterator[BytesArray]:
    """Read the records of files one after another, whatever they hold.

    Both checksums of every record are verified. No index is needed: the first records
    come at once.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        As for `fastrec.open`.
    compression : {"auto", None, "GZIP", "ZLIB"}
        As for `fastrec.open`.
    batch_size : int, optional
        Yield a `BytesArray` of this many records at a time; the last may have fewer.
    num_threads : int, optional
        Native threads that read ahead; 0 reads inside ``next()``. By default as
        `Dataset.loader` has it.

    Yields
    ------
    bytes, or BytesArray

    Raises
    ------
    CorruptionError
        Where a record is damaged, after all records before it.
    """
    from fastrec.dataset import open as open_dataset

    dataset = open_dataset(
        paths, features={_RECORD: _Serialized()}, compression=compression
    )
    if batch_size is not None:
        batch_size = positive_int("batch_size", batch_size)
        return _batches(dataset, batch_size, num_threads)
    return _one_by_one(dataset, num_threads)


def _one_by_one(dataset: Dataset, num_threads: int | None) -> Iterator[bytes]:
    for batch in batches_until_damage(dataset, _RECORDS_AT_ONCE, num_threads):
        yield from batch[_RECORD]


def _batches(
    dataset: Dataset, batch_size: int, num_threads: int | None
) -> Iterator[BytesArray]:
    few: list[bytes] = []  # the last records, and the good ones before damage
    try:
        for batch in batches_until_damage(dataset, batch_size, num_threads):
            records = batch[_RECORD]
            if len(records) == batch_size:
                yield records
            else:
                few.extend(records)
    except Error:
        if few:
            yield BytesArray.from_list(few)
        raise
    if few:
        yield BytesArray.from_list(few)
