"""RowStore: a directory that keeps decoded rows, filled by any number of processes.

::

    kept.json                 what the rows are: files, features, transforms, columns
    image.npy                 a part with fixed rows: row i is image[i]
    text.npy, text.runs.npy   a part with runs: row i is text[runs[i, 0]:runs[i, 1]]
    checksums.npy             of each row: one for its small fixed parts, and one for each
                              other part; 0 if the row is not kept

Rows are stored first and their checksums last, so the checksums decide which rows are
kept: there is no journal and nothing to repair. A row that does not match its checksum is
decoded again. The arrays are files for ``numpy.load(..., mmap_mode="r")``.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.arrays.layout import offsets_from
from fastrec.caller_warnings import warn_caller
from fastrec.kept.layout import (
    Part,
    PartType,
    column_of,
    part_types,
    parts_of,
    type_of,
)
from fastrec.printable import printable
from fastrec.storage.atomic import held_lock, replacement
from fastrec.tasks import renew_after_fork

VERSION = 1
DESCRIPTION = "kept.json"

_HEADER_BYTES = 256  # of .npy files
_CHUNK_BYTES = 64 << 20  # of runs; each process fills chunks of its own
# Errors after which rows are no longer kept.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_Numbers = npt.NDArray[np.int64]


class RowStore:
    """The kept rows of one dataset, numbered from 0.

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
        self._is_keeping = True
        self._renew_after_fork()
        renew_after_fork(self)
        self._opened()

    def _renew_after_fork(self) -> None:
        self._files: _Files | None = None  # a child must not share chunks

    def is_current(self, key: Mapping[str, Any]) -> bool:
        """Return whether the open files have this key and are still in the directory."""
        return (
            self._files is not None
            and self._key == {"version": VERSION, **key}
            and self._files.version == _version(self._directory)
        )

    def gather(
        self, numbers: _Numbers, names: Sequence[str] | None, pool: _core.BlockPool
    ) -> tuple[Batch, npt.NDArray[np.bool_]]:
        """Return the kept rows with these numbers, and which of them were kept.

        The batch has only the rows that were kept. A number of -1 is never kept.
        """
        files = self._opened()
        if files is None:
            return {}, np.zeros(len(numbers), bool)
        is_kept = numbers >= 0
        is_kept[is_kept] = (files.checksums[numbers[is_kept]] != 0).all(1)
        if not is_kept.any():
            return {}, is_kept
        batch, is_valid = files.gather(numbers[is_kept], names, pool)
        if is_valid.all():
            return batch, is_kept
        is_kept[is_kept] = is_valid  # torn and damaged rows are decoded again
        return self.gather(np.where(is_kept, numbers, -1), names, pool)

    def add(self, numbers: _Numbers, batch: Batch) -> None:
        """Keep the rows of a batch; a warning reports that the disk is full.

        Raises
        ------
        TypeError
            If a column cannot be kept.
        ValueError
            If the rows of a column have another type than those kept before.
        """
        kinds = {name: _type_of(name, column) for name, column in batch.items()}
        if not self._is_keeping or not len(numbers):
            return
        try:
            files = self._opened() or self._created(kinds)
            files.check(kinds)
            if files.is_writable:
                files.add(numbers, batch)
        except OSError as error:
            is_full = error.errno in _NO_ROOM
            if not is_full and error.errno not in (errno.EROFS, errno.EACCES):
                raise
            self._is_keeping = False
            warn_caller(
                f"cannot keep more rows in {printable(str(self._directory))}: "
                f"{os.strerror(error.errno or 0)}; reading continues without keeping them"
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
            self._files = _Files(self._directory, self._key["n_rows"], found["columns"])
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

    def _created(self, kinds: dict[str, list[Any]]) -> _Files:
        """Create the files, unless another process has created them; open them."""
        with held_lock(self._directory / ".lock", threading.Event()):
            if (files := self._opened()) is not None:
                return files
            for name, _, kind in part_paths(self._directory, kinds):
                if kind.is_run and not kind.n_bytes:  # no bytes to verify the lengths
                    raise TypeError(f"column {name!r} has items of 0 bytes")
            _Files.create(self._directory, self._key["n_rows"], kinds)
            found = {**self._key, "columns": kinds}
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


def _type_of(name: object, column: Any) -> list[Any]:
    if not isinstance(name, str):
        raise TypeError(f"column names must be str to be kept, got {name!r}")
    try:
        return type_of(column)
    except TypeError as error:
        raise TypeError(f"column {name!r} {error}") from None


def _difference(found: object, expected: object) -> str:
    """Describe the first difference of two values of a key."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for name in [*expected, *found]:
            if found.get(name) != expected.get(name):
                return f"{name}: {_difference(found.get(name), expected.get(name))}"
    return f"{found} there, but {expected} here"


@dataclass
class _PartFile:
    """The files of a part."""

    path: Path
    kind: PartType
    values: Any  # a _core.RowFile
    n_items: int = 0  # of runs: in the file when it was mapped
    runs: npt.NDArray[np.int64] | None = None  # the begin and end of each row
    rows: npt.NDArray[Any] | None = None  # of small rows, to be stored
    descriptor: int = -1
    chunk: range = range(0)  # of runs: the items that this process may store

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class _Files:
    """The open files of a store.

    The parts with small rows share one checksum per row, which comes first.
    """

    def __init__(
        self, directory: Path, n_rows: int, kinds: Mapping[str, list[Any]]
    ) -> None:
        self._kinds = kinds
        self._lock = threading.Lock()  # guards the chunks
        self.version = _version(directory)
        self.is_writable = os.access(directory / DESCRIPTION, os.W_OK)
        mode: Any = "r+" if self.is_writable else "r"

        def mapped(path: Path, dtype: str, *shape: int) -> Any:
            kind = PartType(dtype, shape, is_run=False)
            # A file that is truncated later, while it is mapped, ends the process.
            if path.stat().st_size != _HEADER_BYTES + n_rows * kind.n_bytes:
                raise _damaged(path)
            shape = (n_rows, *shape)
            return np.memmap(path, kind.numpy_dtype, mode, _HEADER_BYTES, shape)

        self._parts: dict[str, list[_PartFile]] = {}
        for name, path, kind in part_paths(directory, kinds):
            part = _PartFile(path, kind, _core.RowFile(os.fspath(path)))
            if kind.is_run:
                part.runs = mapped(runs_path(path), "int64", 2)
            elif self.is_writable and kind.is_small and kind.n_bytes:
                part.rows = mapped(path, kind.dtype, *kind.shape)
            if self.is_writable and not kind.is_small:
                part.descriptor = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
            self._parts.setdefault(name, []).append(part)
        parts = [
            (name, i, part)
            for name, files in self._parts.items()
            for i, part in enumerate(files)
        ]
        small = [each for each in parts if each[2].kind.is_small]
        # The parts that share a checksum, with their column and their number in it.
        self._groups = [small] if small else []
        self._groups += [[each] for each in parts if not each[2].kind.is_small]
        n_groups = len(self._groups)
        self.checksums = mapped(directory / "checksums.npy", "uint32", n_groups)

    @classmethod
    def create(
        cls, directory: Path, n_rows: int, kinds: Mapping[str, list[Any]]
    ) -> None:
        """Create the files without any row."""
        for _, path, kind in part_paths(directory, kinds):
            if kind.is_run:
                _create_array(path, kind.dtype, (0, *kind.shape))
                _create_array(runs_path(path), "int64", (n_rows, 2))
            else:
                _create_array(path, kind.dtype, (n_rows, *kind.shape))
        is_small = [kind.is_small for _, _, kind in part_paths(directory, kinds)]
        n_checksums = is_small.count(False) + any(is_small)
        _create_array(directory / "checksums.npy", "uint32", (n_rows, n_checksums))

    def check(self, kinds: Mapping[str, list[Any]]) -> None:
        """Raise a ValueError unless the columns have these types."""
        for name in [*kinds, *self._kinds]:
            found, kept = kinds.get(name), self._kinds.get(name)
            if found != kept:
                raise ValueError(
                    f"column {name!r} cannot be kept: its rows are {found}, but were {kept} "
                    "in other batches"
                )

    def gather(
        self, numbers: _Numbers, names: Sequence[str] | None, pool: _core.BlockPool
    ) -> tuple[Batch, npt.NDArray[np.bool_]]:
        """Return the rows with these numbers, and whether each matches its checksums."""
        expected = self.checksums[numbers]
        is_valid = np.ones(len(numbers), bool)
        found: dict[tuple[str, int], Part] = {}
        for at, group in enumerate(self._groups):
            wanted = [names is None or name in names for name, _, _ in group]
            if not any(wanted):
                continue
            name, i, file = group[0]
            if file.kind.is_run:
                found[name, i], sums = _copied_runs(file, numbers, pool)
            else:
                files = [file for _, _, file in group]
                kinds = [
                    file.kind if is_wanted else None
                    for file, is_wanted in zip(files, wanted, strict=True)
                ]
                targets = _arrays(pool, len(numbers), kinds)
                row_bytes = [file.kind.n_bytes for file in files]
                values = [file.values for file in files]
                sums = _core.copy_columns(
                    values, _HEADER_BYTES, row_bytes, targets, numbers
                )
                for (name, i, _), target in zip(group, targets, strict=True):
                    if target is not None:
                        found[name, i] = Part(target, None)
            is_valid &= sums == expected[:, at]
        batch: Batch = {}
        for name, files in self._parts.items():
            if (name, 0) in found:
                parts = [found[name, i] for i in range(len(files))]
                kind = self._kinds[name]
                is_plain = kind[0] == "array"  # spares a call
                batch[name] = (
                    parts[0].values if is_plain else column_of(kind, iter(parts))
                )
        return batch, is_valid

    def add(self, numbers: _Numbers, batch: Batch) -> None:
        """Store the rows of a batch, and then their checksums."""
        parts = {name: [*parts_of(column)] for name, column in batch.items()}
        checksums = np.empty((len(numbers), self.checksums.shape[1]), np.uint32)
        for at, group in enumerate(self._groups):
            stored = [
                self._store(numbers, file, *parts[name][i]) for name, i, file in group
            ]
            data, bounds = stored[0]
            if len(stored) > 1:
                rows = [data.reshape(len(numbers), -1) for data, _ in stored]
                data = np.concatenate(rows, 1)
                ends = np.arange(len(numbers) + 1) * data.shape[1]
                data, bounds = data.reshape(-1), _bounds(ends)
            checksums[:, at] = _core.row_checksums(data, numbers, bounds)
        self.checksums[numbers] = checksums

    def _store(
        self,
        numbers: _Numbers,
        file: _PartFile,
        values: npt.NDArray[Any],
        splits: npt.NDArray[np.int64] | None,
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Store rows of a part; return their bytes, and the bounds of each row in them."""
        item = file.kind.n_bytes
        rows = np.arange(len(numbers) + 1) if splits is None else splits
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        if splits is not None:
            begin = self._append(file, data[: rows[-1] * item], int(rows[-1]))
            assert file.runs is not None
            file.runs[numbers] = begin + _bounds(rows)
        elif file.rows is not None:
            file.rows[numbers] = values
        else:
            for first, last in _consecutive(numbers):
                offset = _HEADER_BYTES + int(numbers[first]) * item
                _write(file.descriptor, data[first * item : last * item], offset)
        return data, _bounds(rows * item)

    def _append(self, file: _PartFile, data: npt.NDArray[np.uint8], n: int) -> int:
        """Append `n` items to a file of runs; return the number of the first."""
        item = max(1, file.kind.n_bytes)
        with _core.HeldLock(self._lock):
            if n > len(file.chunk):
                # Without locks, processes may share a chunk. Then the checksums of the
                # rows that are overwritten do not match.
                with held_lock(file.path.parent / ".lock", threading.Event()):
                    size = os.fstat(file.descriptor).st_size - _HEADER_BYTES
                    begin = size // item
                    end = begin + max(n, _CHUNK_BYTES // item)
                    os.ftruncate(file.descriptor, _HEADER_BYTES + end * item)
                    header = _header(file.kind, (end, *file.kind.shape))
                    _write(file.descriptor, header, 0)
                file.chunk = range(begin, end)
            begin = file.chunk.start
            file.chunk = file.chunk[n:]
        _write(file.descriptor, data, _HEADER_BYTES + begin * item)
        return begin


def _bounds(splits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the begin and end of each run."""
    return np.column_stack([splits[:-1], splits[1:]])


def _copied_runs(
    part: _PartFile, numbers: _Numbers, pool: _core.BlockPool
) -> tuple[Part, npt.NDArray[np.uint32]]:
    """Return the rows of a part with runs, and their checksums."""
    assert part.runs is not None
    item = part.kind.n_bytes
    runs = np.asarray(part.runs[numbers])
    end = int(runs.max(initial=0))
    if end > part.n_items:
        # The file has grown, and may grow further before it is mapped.
        size = part.path.stat().st_size
        part.values = _core.RowFile(os.fspath(part.path))
        part.n_items = (size - _HEADER_BYTES) // item
    is_inside = (runs[:, 0] >= 0) & (runs[:, 0] <= runs[:, 1])
    runs[~is_inside | (runs[:, 1] > part.n_items)] = 0
    splits = offsets_from(runs[:, 1] - runs[:, 0])
    try:
        (values,) = _arrays(pool, int(splits[-1]), [part.kind])
    except MemoryError:  # a damaged run may have any length
        runs[:], splits[:] = 0, 0
        (values,) = _arrays(pool, 0, [part.kind])
    sums = part.values.copy(numbers, runs * item + _HEADER_BYTES, values)
    return Part(values, splits), sums


def _arrays(
    pool: _core.BlockPool, n: int, kinds: Sequence[PartType | None]
) -> list[Any]:
    """Return an uninitialized array of `n` rows or items of each type; None for None."""
    align = 64
    sizes = [
        0 if kind is None else -(-n * kind.n_bytes // align) * align for kind in kinds
    ]
    memory: Any = pool.take(max(align, sum(sizes)))
    return [
        None
        if kind is None
        else np.ndarray((n, *kind.shape), kind.numpy_dtype, memory, begin)
        for kind, begin in zip(
            kinds, itertools.accumulate(sizes, initial=0), strict=False
        )
    ]


def part_paths(
    directory: Path, kinds: Mapping[str, list[Any]]
) -> Iterator[tuple[str, Path, PartType]]:
    """Yield the column, the path and the type of each part, in order."""
    used = {"checksums"}
    for name, column in kinds.items():
        for i, kind in enumerate(part_types(column)):
            stem = re.sub(r"[^\w.-]", "_", str(name), flags=re.ASCII)[:80]
            stem = stem if not i else f"{stem}.{i}"
            while stem in used:
                stem += "_"
            used.add(stem)
            yield name, directory / f"{stem}.npy", kind


def runs_path(path: Path) -> Path:
    """Return the path of the begin and end of each run of the part at `path`."""
    return path.with_suffix(".runs.npy")


def _header(kind: PartType, shape: tuple[int, ...]) -> bytes:
    """Return a .npy header of `_HEADER_BYTES` bytes."""
    described = np.lib.format.dtype_to_descr(kind.numpy_dtype)
    text = repr({"descr": described, "fortran_order": False, "shape": shape})
    length = _HEADER_BYTES - 10
    start = b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little")
    return start + text.encode().ljust(length - 1) + b"\n"


def _create_array(path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    """Create a .npy file of zeros; reserve disk space if its rows are small.

    Small rows are stored through a mapping, which must not meet a full disk. Processes
    may still map an earlier file at `path`, so the file is a new one.
    """
    kind = PartType(dtype, shape[1:], is_run=False)
    size = _HEADER_BYTES + shape[0] * kind.n_bytes
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.write(_header(kind, shape))
        file.flush()
        if hasattr(os, "posix_fallocate") and (kind.is_small or dtype == "uint32"):
            os.posix_fallocate(file.fileno(), 0, size)
        os.ftruncate(file.fileno(), size)


def _consecutive(numbers: _Numbers) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each run of consecutive numbers."""
    ends = np.flatnonzero(np.diff(numbers) != 1) + 1
    bounds = [0, *ends.tolist(), len(numbers)]
    yield from itertools.pairwise(bounds)


def _write(descriptor: int, data: Any, offset: int) -> None:
    rest = memoryview(data).cast("B")
    while rest:
        n = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[n:], offset + n
