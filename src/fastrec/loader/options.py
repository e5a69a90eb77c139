"""LoaderOptions: the validated options of a loader."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.loader.collate import Collator, OnTransformError, RowPolicy
from fastrec.loader.order import Blocks, Shuffle
from fastrec.loader.plan import Batches, Planner
from fastrec.loader.prefetch import Conversion
from fastrec.loader.ranks import first_rank
from fastrec.on_error import ErrorPolicy
from fastrec.options import (
    byte_count,
    default_memory_limit,
    default_num_threads,
    non_negative_int,
    positive_int,
)
from fastrec.sources.source import Source
from fastrec.transforms.transform import CheckedTransform, Transform

_MAX_THREADS = 4096
_MAX_PREFETCH = 65536  # each slot of the ring takes memory, even if it is unused

# Smaller records are slow to read one by one from a network file system.
_SMALL_RECORD_BYTES = 256 << 10
_SMALL_REMOTE_RECORD_BYTES = 1 << 20
# Half of the memory limit is for fetched ranges, of which some are not read yet.
_BLOCKS_HELD = 6


class LoaderKeywords(TypedDict, total=False):
    """The keyword arguments of `Dataset.loader`, for the ``**options`` of adapters."""

    global_batch_size: int | None
    batches: Batches | None
    shuffle: Shuffle
    seed: int
    drop_last: bool
    pad_last: bool
    rank: int | None
    world_size: int | None
    num_threads: int | None
    prefetch: int | None
    on_error: ErrorPolicy | None
    max_errors: int | None
    transform: Transform | None
    transform_threads: int | None
    on_transform_error: OnTransformError
    memory_limit: int | str | None


@dataclass(frozen=True)
class LoaderOptions:
    """The validated options of a loader."""

    source: Source
    planner: Planner
    transforms: tuple[CheckedTransform, ...]  # of the dataset and the loader
    num_threads: int
    transform_threads: int
    # Whether `transform_threads` share the rows of one batch at a time. By default, a
    # transform of whole batches is called in one thread at a time.
    shares_rows: bool
    prefetch: int
    memory_limit: int
    max_errors: int | None
    on_transform_error: OnTransformError
    conversion: Conversion | None = None  # of an adapter
    # The allocator of batches, by default the system's, and whether to recycle memory.
    allocate: Callable[[int], npt.NDArray[np.uint8]] | None = None
    recycles: bool = True

    @classmethod
    def checked(
        cls,
        source: Source,
        transforms: tuple[CheckedTransform, ...],
        given: Mapping[str, Any],
    ) -> LoaderOptions:
        """Validate `given`, the arguments of `Dataset.loader`; return the options."""
        names = ("batch_size", "global_batch_size", "batches", "shuffle", "drop_last")
        planned = [given[name] for name in (*names, "pad_last")]
        planned.append(first_rank(given["rank"], given["world_size"]))
        planner = Planner(source, *planned)

        def number(name: str, default: int | None, maximum: int) -> Any:
            value = given[name]
            return default if value is None else non_negative_int(name, value, maximum)

        if (transform := given["transform"]) is not None:
            transforms = (*transforms, CheckedTransform(transform))
        is_per_row = all(t.is_per_row for t in (*source.transforms, *transforms))
        n_cpus, prefetch = default_num_threads(), given["prefetch"]
        memory_limit = given["memory_limit"]
        n_transforming = n_cpus if source.is_decoding or source.is_keeping else 1
        options = cls(
            source=source,
            planner=planner,
            transforms=transforms,
            num_threads=number("num_threads", n_cpus, _MAX_THREADS),
            transform_threads=number("transform_threads", n_transforming, _MAX_THREADS),
            shares_rows=(is_per_row or given["transform_threads"] is None)
            and not source.is_keeping,
            prefetch=1
            if prefetch is None
            else positive_int("prefetch", prefetch, _MAX_PREFETCH),
            memory_limit=default_memory_limit()
            if memory_limit is None
            else byte_count("memory_limit", memory_limit),
            max_errors=number("max_errors", None, 2**63 - 1),
            on_transform_error=given["on_transform_error"],
        )
        _check_skipping(options, is_per_row=is_per_row)
        if prefetch is not None:
            return options
        n = options.n_transforming
        n_ahead = options.num_threads + 2 + (n + 1 if n else 0)
        return dataclasses.replace(options, prefetch=n_ahead)

    @property
    def has_transforms(self) -> bool:
        """Whether batches are transformed, or images or stored arrays are decoded."""
        source = self.source
        is_changed = source.is_decoding or source.is_keeping
        return bool(is_changed or self.transforms or source.transforms)

    @property
    def n_transforming(self) -> int:
        """How many batches transform threads process at once; 0 without threads."""
        if not self.has_transforms:
            return 0
        return min(self.transform_threads, 1 if self.shares_rows else _MAX_THREADS)

    @property
    def n_in_transform_pool(self) -> int:
        """The maximum number of prefetched batches in the transform pool."""
        if not (n_transforming := self.n_transforming):
            return 0
        n_decoding = max(1, min(self.num_threads, self.prefetch // 2))
        return min(n_transforming + 1, max(1, self.prefetch - n_decoding))

    @property
    def row_policy(self) -> RowPolicy:
        """The core's policy for rows that cannot be read."""
        on_error = self.source.files.on_error
        if on_error == "raise":
            return "raise"
        return "mask" if self.planner.pad_last or on_error == "mask" else "skip"

    @property
    def transform_policy(self) -> OnTransformError:
        """The policy for rows whose transform raises."""
        if self.on_transform_error == "skip" and self.planner.pad_last:
            return "mask"
        return self.on_transform_error

    def block_pool(self) -> _core.BlockPool:
        """Return a new memory pool for batches."""
        return _core.BlockPool(self.memory_limit, self.allocate, self.recycles)

    def collator(self) -> Collator:
        """Return a new collator for these options."""
        return Collator(
            self.source,
            self.transforms,
            adds_valid=self.planner.pad_last
            or "mask" in (self.source.files.on_error, self.on_transform_error),
            on_error=self.transform_policy,
            on_unreadable=self.row_policy,
        )

    def advice(self) -> str:
        """Return a warning if the options make reading slow, otherwise ""."""
        n_active, n_transforming = self.n_in_transform_pool, self.n_transforming
        if n_active < n_transforming:
            return (
                f"prefetch={self.prefetch} is too small: only {n_active} of "
                f"{n_transforming} transform_threads can work at the same time; set "
                f"prefetch to at least {self.num_threads + n_transforming}"
            )
        shuffle, files = self.planner.shuffle, self.source.files
        if isinstance(shuffle, Blocks) and self.source.has_steps and files.is_remote:
            # Each record is read for many batches.
            needed = _BLOCKS_HELD * shuffle.lanes * int(shuffle.block_bytes)
            if self.memory_limit < min(needed, 2 * files.n_bytes):
                return (
                    f"memory_limit={self.memory_limit:,} is too small for blocks of steps, "
                    f"so records are fetched many times; set it to {needed:,}, or use "
                    'smaller or fewer blocks, such as fr.Blocks("1MB", lanes=16)'
                )
        if shuffle is not True or not len(self.source):
            return ""
        mean_bytes = files.n_bytes // max(1, files.n_records)
        place, hint = "a network file system", ""
        each = " for each of their steps" if self.source.has_steps else ""
        if files.is_remote and (each or mean_bytes < _SMALL_REMOTE_RECORD_BYTES):
            place = "a remote store"
            hint = ", or fastrec.open(..., cache_dir=...) to keep the files on a local disk"
        elif mean_bytes >= _SMALL_RECORD_BYTES or not _core.is_remote(
            os.fsencode(files.paths[0])
        ):
            return ""
        return (
            f"shuffle=True reads records of {mean_bytes:,} bytes one by one{each} from "
            f"{place}, which is slow; use shuffle=fr.Blocks() to read whole blocks of records"
            + hint
        )


def _check_skipping(options: LoaderOptions, *, is_per_row: bool) -> None:
    """Raise a ValueError if options about skipped rows contradict each other."""
    value = options.on_transform_error
    if value not in ("raise", "skip", "mask"):
        raise ValueError(
            f'on_transform_error must be "raise", "skip" or "mask", got {value!r}'
        )
    masks = options.transform_policy == "mask" and options.has_transforms
    if masks and not is_per_row:
        option = (
            'on_transform_error="mask"'
            if value == "mask"
            else 'on_transform_error="skip" with pad_last=True'
        )
        raise ValueError(
            f"{option} masks single rows, so it requires transforms created by "
            "fastrec.per_row, got a transform of whole batches"
        )
    on_error = options.source.files.on_error
    if options.max_errors is not None and on_error == value == "raise":
        raise ValueError(
            "max_errors= requires a policy that skips or masks rows, got "
            'on_error="raise" and on_transform_error="raise"'
        )
