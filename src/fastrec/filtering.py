"""Filters: which records a caller's function says yes to, found in one pass."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastrec.arrays import Batch
from fastrec.index import cache_dir
from fastrec.rows import n_rows
from fastrec.selection import Numbers

if TYPE_CHECKING:
    from fastrec.dataset import Dataset

__all__ = ["kept_records"]

_log = logging.getLogger("fastrec")

_ROWS_AT_ONCE = 1024


def kept_records(
    dataset: Dataset,
    keep: object,
    columns: Sequence[str] | None,
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
    path = _path(dataset, columns, key)
    kept = _kept(path, len(dataset))
    if kept is None:
        kept = _found(dataset, keep)
        _keep(kept, path)
    return kept


def _found(dataset: Dataset, keep: Callable[[Batch], npt.ArrayLike]) -> Numbers:
    found: list[Numbers] = []
    first = 0
    for batch in dataset.loader(_ROWS_AT_ONCE, rank=0, world_size=1):
        n = n_rows(batch)
        mask = np.asarray(keep(batch))
        if mask.shape != (n,) or mask.dtype != bool:
            msg = (
                f"the function of filter() gets {n} rows at once and must return a bool "
                f"array of shape ({n},), not {mask.dtype} of shape {mask.shape}"
            )
            raise TypeError(msg)
        found.append(first + np.flatnonzero(mask).astype(np.int64))
        first += n
    if first != len(dataset):
        msg = (
            f"filter() needs one row for each record, but the transforms made {first:,} "
            f"of {len(dataset):,}"
        )
        raise ValueError(msg)
    return np.concatenate([np.empty(0, np.int64), *found])


def _path(dataset: Dataset, columns: Sequence[str] | None, key: str) -> Path:
    digest = hashlib.sha256(repr((dataset._view.fingerprint(), columns, key)).encode())
    return cache_dir() / "filter" / f"{digest.hexdigest()[:32]}.npy"


def _kept(path: Path, n_records: int) -> Numbers | None:
    """Return what is kept at `path`, if it can be that of `n_records` records."""
    try:
        numbers = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    is_possible = (
        numbers.ndim == 1
        and numbers.dtype == np.int64
        and (not numbers.size or (numbers[0] >= 0 and numbers[-1] < n_records))
        and bool((np.diff(numbers) > 0).all())
    )
    return numbers if is_possible else None


def _keep(numbers: Numbers, path: Path) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.save(file, numbers)
        temporary.replace(path)
    except OSError as error:
        _log.info("the filter is not kept: %s", error)
        with contextlib.suppress(OSError):
            temporary.unlink()
