"""Filters: which records a caller's function says yes to, found in one pass."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
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
from fastrec.stage import BatchOrigin

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
        return _found(dataset, keep)[0]
    if not isinstance(key, str):
        msg = f"key must be a str, not {key!r}"
        raise TypeError(msg)
    path = _path(dataset, key)
    kept = _kept(path, len(dataset))
    if kept is None:
        kept, is_whole = _found(dataset, keep)
        if is_whole:
            _keep(kept, path)
    return kept


def _found(
    dataset: Dataset, keep: Callable[[Batch], npt.ArrayLike]
) -> tuple[Numbers, bool]:
    """Return what `keep` says yes to, and whether all records could be read."""
    found = [np.empty(0, np.int64)]
    n_records = len(dataset)
    first = 0
    leaves_out = dataset.on_error != "raise"
    positions: deque[Numbers] = deque()  # of the batches, as they come
    if leaves_out:

        def note(batch: Batch, info: BatchOrigin) -> Batch:
            positions.append(info.positions)
            return batch

        # A record that cannot be read needs no row and no column that says so.
        if dataset.on_error == "mask":
            dataset = dataset.with_options(on_error="skip")
        dataset = dataset.with_transform(note)
    with dataset.loader(_ROWS_AT_ONCE, rank=0, world_size=1) as loader:
        for batch in loader:
            n, end = n_rows(batch), min(first + _ROWS_AT_ONCE, n_records)
            rows = positions.popleft() if leaves_out else np.arange(first, end)
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
            found.append(rows[mask & (rows >= 0)])
            first = end
        return np.concatenate(found), not loader.report


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
