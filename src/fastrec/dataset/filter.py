"""Filters: the records for which a caller's function returns True, found in one pass."""

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
from fastrec.storage.index import cache_dir
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.transform import Transform

__all__ = ["kept_records"]

_log = logging.getLogger("fastrec")

_CHECKSUMS_AT_ONCE = 1 << 16

# Kinds of cache files (src/cpp/file/cache_file.h). For the size of a file, they have the
# number of records.
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
        msg = f"filter() takes a function of a batch, got {keep!r}"
        raise TypeError(msg)
    if key is None:
        return _found(loader_with, keep)[0]
    if not isinstance(key, str):
        msg = f"key must be a str, got {key!r}"
        raise TypeError(msg)
    path = _path(view, key)
    kept = _kept(path, len(view))
    if kept is None:
        kept, is_whole = _found(loader_with, keep)
        if is_whole:
            _save(path, _NUMBERS_KIND, len(view), kept.astype("<i8").view(np.uint8))
    return kept


def _found(
    loader_with: Callable[[Transform], Loader],
    keep: Callable[[Batch], npt.ArrayLike],
) -> tuple[Numbers, bool]:
    """Return the numbers, and whether all records could be read."""

    def filter(batch: Batch, info: BatchInfo) -> Batch:
        n, rows = n_rows(batch), info.positions
        if n != len(rows):
            msg = (
                f"filter() needs a row for each record, but the transforms made {n:,} "
                f"of {len(rows):,}"
            )
            raise ValueError(msg)
        mask = np.asarray(keep(batch))
        if mask.shape != (n,) or mask.dtype != bool:
            msg = (
                f"the function of filter() gets {n} rows at once and must return a "
                f"bool array of shape ({n},), not {mask.dtype} of shape {mask.shape}"
            )
            raise TypeError(msg)
        return {"rows": rows[mask & (rows >= 0)]}

    # A transform, so that errors of `keep` name the records.
    with loader_with(filter) as loader:
        found = [np.empty(0, np.int64), *(batch["rows"] for batch in loader)]
        return np.concatenate(found), not loader.report


def _path(view: View, key: str) -> Path:
    """Return the cache file of the result for these records, columns and key."""
    readings, _ = view.source.readings()
    read = [dict(reading.schema) for reading in readings]
    what = (view.fingerprint(), _checksum_of_all(view), read, key)
    digest = hashlib.sha256(repr(what).encode())
    return cache_dir() / "filter" / f"{digest.hexdigest()[:32]}.records"


def _checksum_of_all(view: View) -> bytes:
    """Return a digest of the stored checksums of all records, cached by file versions."""
    versions = [_version(path) for path in view.files.paths]
    of_files = hashlib.sha256(repr((view.fingerprint(), versions)).encode())
    path = cache_dir() / "checksums" / f"{of_files.hexdigest()[:32]}.digest"
    kept = _load(path, _DIGEST_KIND, len(view))
    if kept is not None:
        return kept.tobytes()
    digest = hashlib.sha256()
    for first in range(0, len(view), _CHECKSUMS_AT_ONCE):
        numbers = np.arange(first, min(first + _CHECKSUMS_AT_ONCE, len(view)))
        stored = _core.stored_checksums(view.files.table, view.catalog(), numbers)
        digest.update(stored.astype("<u4").tobytes())
    _save(path, _DIGEST_KIND, len(view), digest.digest())
    return digest.digest()


def _version(path: str) -> tuple[str, int, int, int, int]:
    status = os.stat(path)  # noqa: PTH116 (100,000 files: a Path for each is not free)
    return (
        os.path.realpath(path),
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,  # which changes even if a program restores the mtime
    )


def _kept(path: Path, n_records: int) -> Numbers | None:
    """Return the numbers that `path` has, if they are valid for `n_records` records."""
    content = _load(path, _NUMBERS_KIND, n_records)
    if content is None or content.size % 8:
        return None
    kept = content.view("<i8").astype(np.int64)
    is_possible = not kept.size or (kept[0] >= 0 and kept[-1] < n_records)
    return kept if is_possible and bool((np.diff(kept) > 0).all()) else None


def _load(path: Path, kind: str, n_records: int) -> npt.NDArray[np.uint8] | None:
    return _core.load_cache(os.fsencode(path), kind, n_records, 0)


def _save(
    path: Path, kind: str, n_records: int, content: bytes | npt.NDArray[np.uint8]
) -> None:
    try:
        with replacement(path) as temporary:
            _core.save_cache(os.fsencode(temporary), kind, n_records, 0, content)
    except OSError as error:
        _log.info("the filter is not kept: %s", error)
