"""Filters: find the records for which a function returns True, with a cache."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch, n_rows
from fastrec.loader.loader import Loader
from fastrec.sources.selection import Numbers
from fastrec.sources.view import View
from fastrec.storage.atomic import replacement
from fastrec.storage.index_files import cache_dir
from fastrec.storage.paths import version_of
from fastrec.storage.remote import RemotePath, is_weak
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.transform import Transform

__all__ = ["kept_records"]

_log = logging.getLogger("fastrec")

_CHECKSUMS_AT_ONCE = 1 << 16

# Kinds of cache files (src/cpp/file/cache_file.h). Where other kinds store the size of a
# file, these store the number of records.
_NUMBERS_KIND = "frecflt1"
_DIGEST_KIND = "frecsum1"


def kept_records(
    view: View,
    loader_with: Callable[[Transform], Loader],
    keep: object,
    key: object,
) -> Numbers:
    """Return the numbers of the records of `view` for which `keep` returns True."""
    if not callable(keep):
        msg = f"filter() requires a function of a batch, got {keep!r}"
        raise TypeError(msg)
    if key is None:
        return _matching(loader_with, keep)[0]
    if not isinstance(key, str):
        msg = f"key must be a str, got {key!r}"
        raise TypeError(msg)
    path = _cache_path(view, key)
    kept = _cached_numbers(path, len(view))
    if kept is None:
        kept, is_complete = _matching(loader_with, keep)
        if is_complete:
            _save(path, _NUMBERS_KIND, len(view), kept.astype("<i8").view(np.uint8))
    return kept


def _matching(
    loader_with: Callable[[Transform], Loader],
    keep: Callable[[Batch], npt.ArrayLike],
) -> tuple[Numbers, bool]:
    """Return the numbers of matching records, and whether all records were readable."""

    def filter(batch: Batch, info: BatchInfo) -> Batch:
        n, rows = n_rows(batch), info.positions
        if n != len(rows):
            msg = (
                f"filter() requires one row per record, but the transforms returned "
                f"{n:,} rows for {len(rows):,} records"
            )
            raise ValueError(msg)
        mask = np.asarray(keep(batch))
        if mask.shape != (n,) or mask.dtype != bool:
            msg = (
                f"the function passed to filter() must return a bool array of shape "
                f"({n},) for {n} rows, got {mask.dtype} of shape {mask.shape}"
            )
            raise TypeError(msg)
        return {"rows": rows[mask & (rows >= 0)]}

    # `keep` runs as a transform, so that its errors name the records.
    with loader_with(filter) as loader:
        kept = [np.empty(0, np.int64), *(batch["rows"] for batch in loader)]
        return np.concatenate(kept), not loader._progress.cursor.n_skipped


def _cache_path(view: View, key: str) -> Path:
    """Return the cache file for these records, columns and key."""
    readings, _ = view.source.readings()
    schemas = [dict(reading.schema) for reading in readings]
    identity = (view.fingerprint(), _records_digest(view), schemas, key)
    digest = hashlib.sha256(repr(identity).encode())
    return cache_dir() / "filter" / f"{digest.hexdigest()[:32]}.records"


def _records_digest(view: View) -> bytes:
    """Return a digest of the stored checksums of all records, cached by file versions."""
    versions = [_version(path) for path in view.files.paths]
    of_files = hashlib.sha256(repr((view.fingerprint(), versions)).encode())
    path = cache_dir() / "checksums" / f"{of_files.hexdigest()[:32]}.digest"
    cached = _load(path, _DIGEST_KIND, len(view))
    if cached is not None and not any(map(is_weak, view.files.paths)):
        return cached.tobytes()
    digest = hashlib.sha256()
    for first in range(0, len(view), _CHECKSUMS_AT_ONCE):
        numbers = np.arange(first, min(first + _CHECKSUMS_AT_ONCE, len(view)))
        stored = _core.stored_checksums(view.files.table, view.catalog(), numbers)
        digest.update(stored.astype("<u4").tobytes())
    _save(path, _DIGEST_KIND, len(view), digest.digest())
    return digest.digest()


def _version(path: str) -> tuple[str | int, ...]:
    if isinstance(path, RemotePath):
        return path.identity, *version_of(path)
    status = os.stat(path)  # noqa: PTH116 (a Path per file is slow for 100,000 files)
    return (
        os.path.realpath(path),
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,  # changes even if a program restores the mtime
    )


def _cached_numbers(path: Path, n_records: int) -> Numbers | None:
    """Return the record numbers cached in `path`, or None if they are invalid."""
    content = _load(path, _NUMBERS_KIND, n_records)
    if content is None or content.size % 8:
        return None
    numbers = content.view("<i8").astype(np.int64)
    is_in_range = not numbers.size or (numbers[0] >= 0 and numbers[-1] < n_records)
    is_valid = is_in_range and bool((np.diff(numbers) > 0).all())
    return numbers if is_valid else None


def _load(path: Path, kind: str, n_records: int) -> npt.NDArray[np.uint8] | None:
    return _core.load_cache(os.fsencode(path), kind, n_records, 0)


def _save(
    path: Path, kind: str, n_records: int, content: bytes | npt.NDArray[np.uint8]
) -> None:
    try:
        with replacement(path, sync=False) as temporary:
            _core.save_cache(os.fsencode(temporary), kind, n_records, 0, content)
    except OSError as error:
        _log.info("cannot cache the filter: %s", error)
