"""Filters: which records a caller's function says yes to, found in one pass."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays import Batch
from fastrec.index import cache_dir
from fastrec.replacement import replacement
from fastrec.rows import n_rows
from fastrec.selection import Numbers

if TYPE_CHECKING:
    from fastrec.dataset import Dataset

__all__ = ["kept_records"]

_log = logging.getLogger("fastrec")

_ROWS_AT_ONCE = 1024

# What is kept is the checksum of the numbers, and the numbers.
_CHECKSUM_BYTES = 4


def kept_records(
    dataset: Dataset,
    keep: object,
    key: object,
) -> Numbers:
    """Return the numbers of the records of `dataset` that `keep` says yes to."""
    if not callable(keep):
        msg = f"filter() takes a function of a batch, not {keep!r}"
        raise TypeError(msg)
    if key is None:
        return _found(dataset, keep)
    if not isinstance(key, str):
        msg = f"key must be a str, not {key!r}"
        raise TypeError(msg)
    path = _path(dataset, key)
    kept = _kept(path, len(dataset))
    if kept is None:
        kept = _found(dataset, keep)
        _keep(kept, path)
    return kept


def _found(dataset: Dataset, keep: Callable[[Batch], npt.ArrayLike]) -> Numbers:
    found = [np.empty(0, np.int64)]
    n_records = len(dataset)
    first = 0
    with dataset.loader(_ROWS_AT_ONCE, rank=0, world_size=1) as loader:
        for batch in loader:
            n, n_wanted = n_rows(batch), min(_ROWS_AT_ONCE, n_records - first)
            if n != n_wanted:
                msg = (
                    f"filter() needs a row for each record, but the transforms made {n:,} "
                    f"of {n_wanted:,}"
                )
                raise ValueError(msg)
            mask = np.asarray(keep(batch))
            if mask.shape != (n,) or mask.dtype != bool:
                msg = (
                    f"the function of filter() gets {n} rows at once and must return a "
                    f"bool array of shape ({n},), not {mask.dtype} of shape {mask.shape}"
                )
                raise TypeError(msg)
            found.append(first + np.flatnonzero(mask).astype(np.int64))
            first += n
    return np.concatenate(found)


def _path(dataset: Dataset, key: str) -> Path:
    """Return where the result is kept for these data, as they are read, and this key."""
    view = dataset._view
    readings, _ = view.sources.readings()
    read = [dict(reading.features) for reading in readings]
    digest = hashlib.sha256(repr((view.fingerprint(), read, key)).encode())
    return cache_dir() / "filter" / f"{digest.hexdigest()[:32]}.records"


def _kept(path: Path, n_records: int) -> Numbers | None:
    """Return what is kept at `path`, if it is whole and can be of `n_records` records."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    checksum, numbers = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
    if checksum != _checksum(numbers) or len(numbers) % 8:
        return None
    kept = np.frombuffer(numbers, "<i8").astype(np.int64)
    is_possible = not kept.size or (kept[0] >= 0 and kept[-1] < n_records)
    return kept if is_possible and bool((np.diff(kept) > 0).all()) else None


def _keep(numbers: Numbers, path: Path) -> None:
    data = numbers.astype("<i8").tobytes()
    try:
        with replacement(path) as temporary:
            temporary.write_bytes(_checksum(data) + data)
    except OSError as error:
        _log.info("the filter is not kept: %s", error)


def _checksum(data: bytes) -> bytes:
    return _core.crc32c(data).to_bytes(_CHECKSUM_BYTES, "little")
