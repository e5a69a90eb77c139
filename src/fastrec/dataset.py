"""Datasets: what is in a set of TFRecord files, by number."""

from __future__ import annotations

import copy
import itertools
import operator
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from fastrec import _core, index, inference
from fastrec.arrays import Batch, BytesArray
from fastrec.errors import Error
from fastrec.loader import Loader, Transform
from fastrec.options import checked_names, non_negative_int
from fastrec.paths import Paths, expand
from fastrec.schema import Features, Schema, as_schema

__all__ = ["Dataset", "Records", "Row", "open"]

Row = dict[str, Any]

# Rows that are read at once where rows are wanted one by one.
_ROWS_AT_ONCE = 64

# Memory that a dataset keeps for the next batch it reads; loaders have their own.
_IDLE_BYTES = 64 << 20


class Dataset:
    """The records of a set of TFRecord files, numbered from 0 through all of them.

    Made by `fastrec.open`. Nothing is read until it is needed; the files are not held
    open, and a dataset can be pickled and used in other processes.

    A dataset is a sequence of rows: ``ds[i]`` is a dict of NumPy scalars, arrays and
    ``bytes``; a slice, an index array or a mask gives a dict of columns, as a batch does.
    Training loops use `loader`.
    """

    def __init__(
        self,
        files: Sequence[str],
        features: Schema | None,
        *,
        io: str,
        index_dir: str | None,
    ) -> None:
        self._files = list(files)
        self._features = features
        self._io = io
        self._index_dir = index_dir
        self._indexes: list[_core.Index] = []
        self._catalog: _core.Catalog | None = None
        self._bound: _core.Schema | None = None
        self._renew()
        _datasets.add(self)

    def _renew(self) -> None:
        """Make anew what has locks: after a fork, nobody would release them."""
        self._lock = threading.Lock()
        self._table = _core.FileTable(
            [os.fsencode(path) for path in self._files], self._io
        )
        for i, found in enumerate(self._indexes):
            self._table.expect(i, found)
        self._pool = _core.BlockPool(_IDLE_BYTES)

    # What is there.

    @property
    def files(self) -> list[str]:
        """The files, in the order that records are numbered through them."""
        return list(self._files)

    @property
    def nbytes(self) -> int:
        """The size of all files together, in bytes."""
        return sum(os.stat(path).st_size for path in self._files)  # noqa: PTH116

    @property
    def schema(self) -> Schema:
        """What is read: the features that were given, or those the records have.

        Without ``features=``, the schema is inferred from up to 4,096 records spread
        evenly over the data, once. Its repr can be pasted into a program.

        Raises
        ------
        SchemaError
            If no schema can be inferred.
        """
        if self._features is None:
            self._features = inference.infer(self._table, self._indexed())
        return self._features

    @property
    def records(self) -> Records:
        """The bytes of the records, whatever they mean: a sequence of ``bytes``."""
        return Records(self)

    def __len__(self) -> int:
        return len(self._indexed())

    def __repr__(self) -> str:
        n_files = len(self._files)
        files = repr(self._files[0]) + (
            f" and {n_files - 1:,} more" if n_files > 1 else ""
        )
        known = f", {len(self._catalog):,} records" if self._catalog is not None else ""
        return f"<fastrec.Dataset of {files}{known}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self._files, self._features, self._io, self._index_dir)

    # Rows.

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Row: ...
    @overload
    def __getitem__(
        self, index: slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]
    ) -> Batch: ...
    def __getitem__(self, index: Any) -> Row | Batch:
        if isinstance(index, (str, bytes)):
            msg = f"a dataset is indexed by record, not by column: ds.columns([{index!r}])"
            raise TypeError(msg)
        if _is_one(index):
            number = _checked_number(operator.index(index), len(self))
            return _row(self._decode(np.array([number], dtype=np.int64)), 0)
        return self._decode(_numbers(index, len(self)))

    def __iter__(self) -> Iterator[Row]:
        n_rows = 0
        try:
            for batch in self.loader(_ROWS_AT_ONCE):
                for i in range(len(next(iter(batch.values())))):
                    yield _row(batch, i)
                    n_rows += 1
        except Error:
            # One by one, so that the good rows before the damage come first.
            alone = self.loader(1, num_threads=0)
            for batch in itertools.islice(alone, n_rows, None):
                yield _row(batch, 0)

    def head(self, n: int = 5) -> list[Row]:
        """Return the first `n` rows as ``ds[i]`` gives them, or all if there are fewer.

        Raises
        ------
        Error
            If one of these rows cannot be read; what lies behind them does not matter.
        """
        return list(itertools.islice(self, non_negative_int("n", n)))

    # Other views of the same files.

    def with_features(self, features: Features) -> Dataset:
        """Return a dataset of the same records that reads other features.

        Raises
        ------
        SchemaError
            If `features` makes no sense.
        """
        return self._with(as_schema(features))

    def columns(self, names: Sequence[str]) -> Dataset:
        """Return a dataset of the same records that reads only the columns `names`.

        Raises
        ------
        KeyError
            If the schema has no such column.
        """
        if isinstance(names, (str, bytes)):
            msg = f"columns() takes a list of names, not {names!r}"
            raise TypeError(msg)
        missing = [name for name in names if name not in self.schema]
        if missing:
            msg = f"no column {missing[0]!r}; there are {', '.join(map(repr, self.schema))}"
            raise KeyError(msg)
        return self._with(Schema({name: self.schema[name] for name in names}))

    def _with(self, features: Schema) -> Dataset:
        view = Dataset(self._files, features, io=self._io, index_dir=self._index_dir)
        if self._catalog is not None:
            view._use(self._indexes)
        return view

    # Batches.

    @checked_names
    def loader(
        self,
        batch_size: int,
        *,
        drop_last: bool = False,
        seed: int = 0,
        num_threads: int | None = None,
        prefetch: int | None = None,
        transform: Transform | None = None,
        transform_threads: int | None = None,
        memory_limit: int | str | None = None,
    ) -> Loader:
        """Return an iterable of batches; each ``for`` over it is one epoch, in file order.

        Parameters
        ----------
        batch_size : int
            Rows in a batch. The last batch of an epoch may have fewer.
        drop_last : bool, default False
            Leave out a last batch that is not full.
        seed : int, default 0
            What the random generators of `transform` are derived from.
        num_threads : int, optional
            Native threads that decode in the background; 0 decodes inside ``next()``.
            By default, one per CPU this process may use, divided by
            ``$LOCAL_WORLD_SIZE``. The batches are the same for any number.
        prefetch : int, optional
            Batches that may be ready or in work ahead of the one being used; by default
            ``num_threads + 2``.
        transform : callable, optional
            ``transform(batch)`` or ``transform(batch, info)``, called in Python on every
            batch; returns the dict that is delivered instead, of any number of rows.
            `info` is a `fastrec.BatchOrigin`; a second argument that has a default is
            passed only if it is called so. See also `fastrec.per_row`.
        transform_threads : int, optional
            Python threads that call `transform`, 1 by default; 0 calls it in ``next()``.
        memory_limit : int or str, optional
            Bytes (``"2GB"``) that batches may take before they are delivered; by default
            an eighth of the memory, at most 4 GiB. A single larger batch passes, with a
            warning.

        Raises
        ------
        TypeError, ValueError
            If an option makes no sense, before any thread starts.
        """
        return Loader(
            self,
            batch_size=batch_size,
            drop_last=drop_last,
            seed=seed,
            num_threads=num_threads,
            prefetch=prefetch,
            transform=transform,
            transform_threads=transform_threads,
            memory_limit=memory_limit,
        )

    # Behind the scenes, shared with Loader and Records.

    def _indexed(self) -> _core.Catalog:
        """Return where every record is, building the indexes that are missing."""
        with self._lock:
            if self._catalog is None:
                self._use(
                    index.make_indexes(
                        self._files, io=self._io, index_dir=self._index_dir
                    )
                )
            assert self._catalog is not None
            return self._catalog

    def _indexed_if_cheap(self) -> _core.Catalog | None:
        """Return where every record is, if that is known without walking the files."""
        with self._lock:
            if self._catalog is None:
                kept = index.load_indexes(self._files, self._index_dir)
                if kept is not None:
                    self._use(kept)
            return self._catalog

    def _use(self, indexes: list[_core.Index]) -> None:
        for i, found in enumerate(indexes):
            self._table.expect(i, found)
        self._indexes = indexes
        self._catalog = _core.Catalog(indexes)

    def _schema_of_core(self) -> _core.Schema:
        if self._bound is None:
            self._bound = self.schema._bind()
        return self._bound

    def _decode(self, numbers: npt.NDArray[np.int64]) -> Batch:
        return _core.decode_records(
            self._table, self._indexed(), self._schema_of_core(), self._pool, numbers
        )


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
        ds = self._dataset
        if _is_one(index):
            number = _checked_number(operator.index(index), len(self))
            return _core.read_record(ds._table, ds._indexed(), number)
        return self._read(_numbers(index, len(self)))

    def __iter__(self) -> Iterator[bytes]:
        for first in range(0, len(self), _ROWS_AT_ONCE):
            numbers = np.arange(first, min(first + _ROWS_AT_ONCE, len(self)))
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
        ds = self._dataset
        data, offsets = _core.read_records(ds._table, ds._indexed(), ds._pool, numbers)
        return BytesArray._wrap(data, offsets, (len(numbers),))


def _reopen(
    files: list[str], features: Schema | None, io: str, index_dir: str | None
) -> Dataset:
    return Dataset(files, features, io=io, index_dir=index_dir)


def _is_one(index: object) -> bool:
    if isinstance(index, np.ndarray):
        return index.ndim == 0 and index.dtype.kind in "iu"
    return isinstance(index, (int, np.integer)) and not isinstance(index, bool)


def _checked_number(number: int, n_records: int) -> int:
    if not -n_records <= number < n_records:
        msg = f"record {number} is out of range: there are {n_records:,} records"
        raise IndexError(msg)
    return number % n_records


def _numbers(index: object, n_records: int) -> npt.NDArray[np.int64]:
    """Return the record numbers that a slice, an index array or a mask means."""
    if isinstance(index, slice):
        return np.arange(*index.indices(n_records), dtype=np.int64)
    array = np.asarray(() if isinstance(index, tuple) else index)
    if array.ndim == 1 and array.dtype.kind == "b":
        if len(array) != n_records:
            msg = f"the mask has {len(array):,} entries for {n_records:,} records"
            raise IndexError(msg)
        return np.flatnonzero(array).astype(np.int64)
    is_index = array.dtype.kind in "iu" or array.size == 0
    if array.ndim != 1 or not is_index or isinstance(index, tuple):
        msg = f"records are chosen by number, slice, index array or mask, not {index!r}"
        raise TypeError(msg)
    # Compared before it is converted: a large unsigned number would become negative.
    wrong = array >= n_records
    if array.dtype.kind == "i":
        wrong |= array < -n_records
    if wrong.any():
        _checked_number(int(array[wrong][0]), n_records)
    numbers = array.astype(np.int64)
    return np.where(numbers < 0, numbers + n_records, numbers)


def _row(batch: Batch, i: int) -> Row:
    return {name: _copied(column[i]) for name, column in batch.items()}


def _copied(value: Any) -> Any:  # noqa: ANN401 (a NumPy scalar, bytes or an array)
    """Return a value that does not keep the batch alive which it came from."""
    return copy.copy(value) if isinstance(value, (np.ndarray, BytesArray)) else value


# Datasets that a fork would leave with locks that nobody holds.
_datasets: weakref.WeakSet[Dataset] = weakref.WeakSet()


def _renew_after_fork() -> None:
    for dataset in list(_datasets):
        dataset._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


@checked_names
def open(
    paths: Paths,
    *,
    features: Features | None = None,
    io: Literal["auto", "mmap", "pread"] = "auto",
    compression: Literal["auto"] | None = "auto",
    index_dir: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Open TFRecord files as a dataset.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        A file, a glob (its matches sorted by name), a directory (the TFRecord files in
        it, sorted by name), or a list of these, in the order given.
    features : mapping of str to FixedLen, VarLen or Raw, optional
        Which features to read, and as which columns. Features of the files that are not
        named are skipped without being decoded. Without it, all features are read, as
        the records show them: see `Dataset.schema`.
    io : {"auto", "mmap", "pread"}
        How files are read: through a memory mapping, or in blocks. ``"auto"`` maps local
        files and reads those of network file systems in blocks. The results are the same.
    compression : {"auto", None}
        Compressed files cannot be read yet; both values say that there are none.
    index_dir : path-like, optional
        Where indexes are kept, if not in the user's cache.

    Raises
    ------
    OSError
        If a path does not exist, or names no files.
    ValueError
        If an option is none of those above, or a path is a remote URL.
    SchemaError
        If `features` makes no sense.

    Examples
    --------
    >>> import fastrec as fr
    >>> ds = fr.open("data/train-*.tfrecord")  # doctest: +SKIP
    >>> for batch in ds.loader(256):  # doctest: +SKIP
    ...     step(batch["image"], batch["label"])
    """
    if io not in ("auto", "mmap", "pread"):
        msg = f"io must be 'auto', 'mmap' or 'pread', not {io!r}"
        raise ValueError(msg)
    if compression not in ("auto", None):
        msg = f"compression {compression!r} cannot be read yet: only 'auto' and None"
        raise ValueError(msg)
    return Dataset(
        expand(paths),
        None if features is None else as_schema(features),
        io=io,
        index_dir=None if index_dir is None else os.fspath(index_dir),
    )
