"""RowStore: a directory that keeps decoded rows, filled by any number of processes.

::

    kept.json    what the rows are: files, features, transforms, columns
    rows.npy     a table: row i has the small values of row i, and a checksum
    image.npy    a part with large rows: row i is image[i]
    text.npy     a part with runs: row i is text[begin:end]

The table also has the checksum of each row of another part, and the begin and end of its
run. A row of the table is stored last, so it decides whether the row is kept: there is no
journal and nothing to repair. A row that does not match a checksum is decoded again. The
arrays are files for ``numpy.load(..., mmap_mode="r")``; the table has a field for each of
its columns.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import re
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.arrays.layout import offsets_from
from fastrec.caller_warnings import warn_caller
from fastrec.features.base import numpy_dtype
from fastrec.kept.layout import Divided, Part, composed, divided
from fastrec.printable import printable
from fastrec.storage.atomic import held_lock, replacement
from fastrec.tasks import renew_after_fork

VERSION = 2
DESCRIPTION = "kept.json"
TABLE = "rows.npy"

_SMALL_ROW_BYTES = 4096  # larger rows are in a file of their own
_HEADER_BYTES = 256  # of .npy files, or a multiple
# The field of a part in a file: its checksum, and the begin and end of its items.
_IN_FILE = np.dtype([("checksum", np.uint32), ("run", np.int64, 2)])
_CHUNK_BYTES = 64 << 20  # of runs; each process fills chunks of its own
# Errors after which rows are no longer kept.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_Numbers = npt.NDArray[np.int64]


class RowStore:
    """The kept rows of one dataset, numbered from 0, and a row of padding.

    Parameters
    ----------
    directory : str
        Created when the first rows are kept.
    key : mapping
        Identifies the rows, as JSON; ``n_rows`` is their number. Rows of another key are
        an error.

    Raises
    ------
    ValueError
        If the directory has rows of another key or of another version, or is damaged.
    """

    def __init__(self, directory: str, key: Mapping[str, Any]) -> None:
        self._directory = Path(directory)
        self._key = {"version": VERSION, **key}
        self.padding: int = key["n_rows"]  # the number of the row that is padding
        self._is_keeping = True
        self._is_warned = False
        self._renew_after_fork()
        renew_after_fork(self)
        self._opened()

    def _renew_after_fork(self) -> None:
        self._files: _Files | None = None  # a child must not share chunks

    def renewed(self, key: Mapping[str, Any]) -> bool:
        """Prepare for an epoch; return False if a new store is needed.

        That is so if the key is another one or the files are no longer in the directory.
        If the disk was full, the epoch tries again to keep rows.
        """
        self._is_keeping = True
        open_version = None if self._files is None else self._files.version
        is_same = open_version == _version(self._directory)
        return is_same and self._key == {"version": VERSION, **key}

    def gather(
        self, numbers: _Numbers, names: Sequence[str] | None, pool: _core.BlockPool
    ) -> tuple[Batch, npt.NDArray[np.bool_]]:
        """Return the kept rows with these numbers, and which of them were kept.

        The batch has only the rows that were kept. A number of -1 is never kept.
        """
        files = self._opened()
        if files is None:
            return {}, np.zeros(len(numbers), bool)
        return files.gather(numbers, None if names is None else tuple(names), pool)

    def add(self, numbers: _Numbers, batch: Batch) -> None:
        """Keep the rows of a batch; a warning reports that the disk is full.

        Raises
        ------
        TypeError
            If a column cannot be kept.
        ValueError
            If the rows of a column have another type than those kept before.
        """
        parts = {name: _divided(name, column) for name, column in batch.items()}
        if not self._is_keeping or not len(numbers):
            return
        columns = {name: _described_column(column) for name, column in parts.items()}
        try:
            files = self._opened() or self._created(columns)
            files.check(columns)
            if files.is_writable:
                files.add(numbers, parts)
        except OSError as error:
            is_full = error.errno in _NO_ROOM
            if not is_full and error.errno not in (errno.EROFS, errno.EACCES):
                raise
            self._is_keeping = False
            if not self._is_warned:
                self._is_warned = True
                warn_caller(
                    f"cannot keep more rows in {printable(str(self._directory))}: "
                    f"{os.strerror(error.errno or 0)}; reading continues without keeping "
                    "them"
                )

    def _opened(self) -> _Files | None:
        """Return the open files, or None if no process has created them.

        Raises a ValueError if their key differs.
        """
        if self._files is not None:
            return self._files
        if (found := described(self._directory)) is None:
            return None
        self.check(found)
        try:
            self._files = _Files(self._directory, found["columns"])
        except FileNotFoundError as error:
            raise _damaged(self._directory) from error
        return self._files

    def check(self, found: Mapping[str, Any]) -> None:
        """Raise a ValueError if a key, found for the same directory, differs."""
        for name, expected in self._key.items():
            if (value := found.get(name, expected)) != expected:
                raise ValueError(
                    f"{printable(str(self._directory))} keeps rows of another dataset: "
                    f"its {name} differ{'s' * (not name.endswith('s'))}: "
                    f"{_difference(value, expected)}; pass another directory, or delete "
                    "this one to decode its rows again"
                )

    def _created(self, columns: dict[str, Any]) -> _Files:
        """Create the files, unless another process has created them; open them."""
        with held_lock(self._directory / ".lock", threading.Event()):
            if (files := self._opened()) is not None:
                return files
            _Files.create(self._directory, self.padding + 1, columns)
            found = {**self._key, "columns": columns}
            text = json.dumps({**found, "checksum": _checksum(found)}, indent=1)
            with replacement(self._directory / DESCRIPTION, sync=False) as temporary:
                temporary.write_text(text, "utf-8")
        files = self._opened()
        assert files is not None
        return files


def described(directory: Path) -> dict[str, Any] | None:
    """Return the key and columns of the rows in a directory; None if it has no rows.

    Raises a ValueError if the description is damaged.
    """
    path = directory / DESCRIPTION
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if found.pop("checksum") != _checksum(found):
            raise ValueError
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, AttributeError, TypeError):
        raise _damaged(path) from None
    return found


def checksums(directory: Path, described: Mapping[str, Any]) -> npt.NDArray[np.uint32]:
    """Return the checksum of each row; 0 if it is not kept."""
    table, n = table_type(part_types(described["columns"])), described["n_rows"]
    first = len(_header(table, n + 1))
    try:
        rows = np.memmap(directory / TABLE, table, "r", first, (n + 1,))
    except (OSError, ValueError) as error:
        raise _damaged(directory) from error
    return np.asarray(rows["checksum"][:n])


def _described_column(column: Divided) -> list[Any]:
    """Return the type of a column as JSON."""
    parts = [
        [values.dtype.name, [*values.shape[1:]], splits is not None]
        for values, splits in column.parts
    ]
    return [column.levels, parts]


def _version(directory: Path) -> tuple[int, int] | None:
    """Return the identity of the files in a directory; None if it was deleted."""
    try:
        found = os.stat(directory / DESCRIPTION)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _checksum(description: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(description).encode())


def _damaged(path: Path) -> ValueError:
    return ValueError(
        f"{printable(str(path))} is damaged; delete the directory to decode its rows again"
    )


def _divided(name: object, column: Any) -> Divided:
    if not isinstance(name, str):
        raise TypeError(f"column names must be str to be kept, got {name!r}")
    try:
        return divided(column)
    except TypeError as error:
        raise TypeError(f"column {name!r} {error}") from None


def _difference(found: object, expected: object) -> str:
    """Describe the first difference of two values of a key."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for name in [*expected, *found]:
            if found.get(name) != expected.get(name):
                return f"{name}: {_difference(found.get(name), expected.get(name))}"
    return f"{found} there, but {expected} here"


@dataclass(frozen=True)
class PartType:
    """A part of a column, with a field in the table and, if it is not small, a file."""

    column: str
    stem: str  # the name of the field, and of the file without its suffix
    key: Any  # `column` if the field is the whole column, otherwise no column's name
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of a row, or of an item of a run
    is_run: bool
    is_small: bool

    @property
    def field(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """The dtype and shape of its field in the table."""
        return (self.dtype, self.shape) if self.is_small else (_IN_FILE, ())

    def path(self, directory: Path) -> Path:
        """Return the path of its file."""
        return directory / f"{self.stem}.npy"


def part_types(columns: Mapping[str, Any]) -> list[PartType]:
    """Return the parts of columns, which are described as JSON."""
    types: list[PartType] = []
    used = {"rows", "checksum"}
    for name, (levels, parts) in columns.items():
        for i, (dtype_name, shape, is_run) in enumerate(parts):
            stem = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[:80] or "_"
            stem = stem if not i else f"{stem}.{i}"
            while stem in used:
                stem += "_"
            used.add(stem)
            dtype = numpy_dtype(dtype_name)
            n_bytes = math.prod(shape) * dtype.itemsize
            is_small = not is_run and n_bytes <= _SMALL_ROW_BYTES
            key = name if is_small and not levels else (stem,)
            types.append(
                PartType(name, stem, key, dtype, tuple(shape), is_run, is_small)
            )
    return types


def table_type(types: Sequence[PartType]) -> np.dtype[Any]:
    """Return the dtype of a row of the table."""
    fields = [(each.stem, *each.field) for each in types]
    return np.dtype([("checksum", np.uint32), *fields])


class _File:
    """A .npy file of rows, or of the items of runs, to be read and written."""

    _descriptor = -1

    def __init__(
        self, path: Path, dtype: np.dtype[Any], *shape: int, is_writable: bool
    ) -> None:
        self._path = path
        self._dtype, self._shape = dtype, shape  # of a row or an item
        self.n_bytes = math.prod(shape) * dtype.itemsize
        self.first = len(_header(dtype, 0, *shape))
        if is_writable:
            # Opened now: another process may put other rows in a new file of this name.
            flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
            self._descriptor = os.open(path, flags)
        self._n_mapped = 0  # items that were there at the last mapping
        self._map()
        self._lock = threading.Lock()  # guards the chunk
        self._chunk = range(0)  # the items that this process may store

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    @staticmethod
    def create(path: Path, dtype: np.dtype[Any], n: int, *shape: int) -> None:
        """Create a file of `n` rows or items of zeros, which need no disk space.

        Processes may still map an earlier file at `path`, so the file is a new one.
        """
        path.unlink(missing_ok=True)
        with path.open("wb") as file:
            file.write(_header(dtype, n, *shape))
            file.truncate(file.tell() + n * math.prod(shape) * dtype.itemsize)

    def _map(self) -> None:
        n_bytes = self._path.stat().st_size - self.first
        self.mapped = _core.RowFile(os.fspath(self._path))
        self._n_mapped = n_bytes // max(1, self.n_bytes)

    def read(
        self, numbers: _Numbers, runs: _Numbers, pool: _core.BlockPool
    ) -> tuple[Part, npt.NDArray[np.uint32]]:
        """Return the runs of rows, and their checksums."""
        if int(runs.max(initial=0)) > self._n_mapped:
            self._map()  # the file has grown
        splits = offsets_from(runs[:, 1] - runs[:, 0])
        n = int(splits[-1])
        memory: Any = pool.take(max(1, n * self.n_bytes))
        values = np.ndarray((n, *self._shape), self._dtype, memory)
        bounds = self.first + runs * self.n_bytes
        return Part(values, splits), self.mapped.copy(numbers, bounds, values)

    def write(self, numbers: _Numbers, data: npt.NDArray[np.uint8]) -> None:
        """Write rows with these numbers."""
        ends = np.flatnonzero(np.diff(numbers) != 1) + 1
        for begin, end in itertools.pairwise([0, *ends.tolist(), len(numbers)]):
            rows = data[begin * self.n_bytes : end * self.n_bytes]
            self._write(rows, self.first + int(numbers[begin]) * self.n_bytes)

    def append(self, data: npt.NDArray[np.uint8], n: int) -> int:
        """Append `n` items; return the number of the first."""
        with _core.HeldLock(self._lock):
            if n > len(self._chunk):
                # Without locks, processes may share a chunk. Then the checksums of the
                # rows that are overwritten do not match.
                with held_lock(self._path.parent / ".lock", threading.Event()):
                    self._chunk = self._new_chunk(n)
            begin = self._chunk.start
            self._chunk = self._chunk[n:]
        self._write(data, self.first + begin * self.n_bytes)
        return begin

    def _new_chunk(self, n_min: int) -> range:
        """Append a chunk to the file; return the numbers of its items."""
        n_bytes = max(1, self.n_bytes)
        begin = (os.fstat(self._descriptor).st_size - self.first) // n_bytes
        end = begin + max(n_min, _CHUNK_BYTES // n_bytes)
        os.ftruncate(self._descriptor, self.first + end * n_bytes)
        self._write(_header(self._dtype, end, *self._shape), 0)
        return range(begin, end)

    def _write(self, data: Any, offset: int) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            n = os.pwrite(self._descriptor, rest, offset)
            rest, offset = rest[n:], offset + n


class _Files:
    """The open files of a store."""

    def __init__(self, directory: Path, columns: Mapping[str, Any]) -> None:
        self._columns = columns
        self.version = _version(directory)
        self.is_writable = os.access(directory / DESCRIPTION, os.W_OK)
        self._types = part_types(columns)
        self._table = table_type(self._types)
        mode = {"is_writable": self.is_writable}
        self._rows = _File(directory / TABLE, self._table, **mode)
        self._files = {
            each.stem: _File(each.path(directory), each.dtype, *each.shape, **mode)
            for each in self._types
            if not each.is_small
        }
        self._is_table = all(each.key == each.column for each in self._types)
        self._readers: dict[Any, tuple[_core.RowColumns, list[PartType]]] = {}

    @staticmethod
    def create(directory: Path, n_rows: int, columns: Mapping[str, Any]) -> None:
        """Create the files without any row."""
        types = part_types(columns)
        _File.create(directory / TABLE, table_type(types), n_rows)
        for each in types:
            if not each.is_small:
                n = 0 if each.is_run else n_rows
                _File.create(each.path(directory), each.dtype, n, *each.shape)

    def check(self, columns: Mapping[str, Any]) -> None:
        """Raise a ValueError unless the columns have these types."""
        for name in [*columns, *self._columns]:
            found, kept = columns.get(name), self._columns.get(name)
            if found != kept:
                raise ValueError(
                    f"column {name!r} cannot be kept: its rows are {found}, but were {kept} "
                    "in other batches"
                )

    def _reader(
        self, names: tuple[str, ...] | None
    ) -> tuple[_core.RowColumns, list[PartType]]:
        """Return a reader of the table for some columns, and the parts of the columns."""
        if names not in self._readers:
            types = [t for t in self._types if names is None or t.column in names]
            offsets: Any = self._table.fields
            fields = [(each.key, offsets[each.stem][1], *each.field) for each in types]
            file = self._rows
            reader = _core.RowColumns(file.mapped, file.first, file.n_bytes, fields)
            self._readers[names] = reader, types
        return self._readers[names]

    def gather(
        self, numbers: _Numbers, names: tuple[str, ...] | None, pool: _core.BlockPool
    ) -> tuple[Batch, npt.NDArray[np.bool_]]:
        """Return the kept rows with these numbers, and which of them were kept."""
        reader, types = self._reader(names)
        found, is_kept = reader.gather(numbers, pool)
        if self._is_table:
            return found, is_kept
        rows = numbers[is_kept]
        is_intact = np.ones(len(rows), bool)
        parts: dict[str, list[Part]] = {}
        for each in types:
            part = Part(found[each.key])
            if not each.is_small:
                field = part.values
                part, checksums = self._files[each.stem].read(rows, field["run"], pool)
                is_intact &= checksums == field["checksum"]
            parts.setdefault(each.column, []).append(part)
        if not is_intact.all():  # the disk changed a row, which is decoded again
            is_kept[is_kept] = is_intact
            return self.gather(np.where(is_kept, numbers, -1), names, pool)
        batch = {
            name: composed(self._columns[name][0], of_column)
            for name, of_column in parts.items()
        }
        return batch, is_kept

    def add(self, numbers: _Numbers, columns: Mapping[str, Divided]) -> None:
        """Store the rows of a batch, and then the rows of the table."""
        parts = [part for name in self._columns for part in columns[name].parts]
        rows = np.zeros(len(numbers), self._table)
        for each, (values, splits) in zip(self._types, parts, strict=True):
            if each.is_small:
                rows[each.stem] = values
                continue
            file, field = self._files[each.stem], rows[each.stem]
            if splits is None:
                data, begins = _bytes(values), np.arange(len(numbers))
                runs = np.column_stack([begins, begins + 1])
                file.write(numbers, data)
                field["run"] = runs + (numbers - begins)[:, np.newaxis]
            else:
                data = _bytes(values[splits[0] : splits[-1]])
                runs = np.column_stack([splits[:-1], splits[1:]]) - splits[0]
                field["run"] = runs + file.append(data, int(runs[-1, 1]))
            bounds = runs * file.n_bytes
            field["checksum"] = _core.row_checksums(data, numbers, bounds)
        begins, size = np.arange(len(numbers)), self._table.itemsize
        bounds = np.column_stack([begins * size + 4, (begins + 1) * size])
        rows["checksum"] = _core.row_checksums(_bytes(rows), numbers, bounds)
        self._rows.write(numbers, _bytes(rows))


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _header(dtype: np.dtype[Any], n: int, *shape: int) -> bytes:
    """Return the header of a .npy file; its size does not depend on `n`."""
    described = np.lib.format.dtype_to_descr(dtype)
    sides = "".join(f"{side}, " for side in shape)
    text = f"{{'descr': {described!r}, 'fortran_order': False, 'shape': ({n:20}, {sides})}}"
    n_bytes = -(-(len(text) + 13) // _HEADER_BYTES) * _HEADER_BYTES
    start = b"\x93NUMPY\x02\x00" + (n_bytes - 12).to_bytes(4, "little")
    return start + text.encode().ljust(n_bytes - 13) + b"\n"
