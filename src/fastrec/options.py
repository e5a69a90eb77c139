"""Check options, limits and optional packages, and compute default options."""

from __future__ import annotations

import contextlib
import operator
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


def check_instance(function: str, value: object, kind: type, example: str) -> None:
    """Raise a TypeError unless `value`, an argument of `function`, is a `kind`."""
    if not isinstance(value, kind):
        raise TypeError(
            f"{function} requires a fastrec.{kind.__name__}, {example}, got {value!r}"
        )


def true_or_false(name: str, value: object) -> bool:
    """Return `value` as a bool, or raise a TypeError that names option `name`."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {value!r}")


def non_negative_int(name: str, value: object, maximum: int = 2**63 - 1) -> int:
    """Check that option `name` is an integer from 0 to `maximum`; return it as int."""
    return _int_between(name, value, 0, maximum)


def _int_between(name: str, value: object, minimum: int, maximum: int) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}")
    if number > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, got {number:,}")
    return number


def positive_int(name: str, value: object, maximum: int = 2**63 - 1) -> int:
    """Check that option `name` is an integer from 1 to `maximum`; return it as int."""
    return _int_between(name, value, 1, maximum)


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}I": 1024**i for i, unit in enumerate("KMGT", start=1)}


def byte_count(name: str, value: int | str) -> int:
    """Convert an option, an int or a string such as ``"4MB"``, to a number of bytes.

    KB, MB, GB and TB are powers of 1,000; KiB, MiB, GiB and TiB are powers of 1,024.
    """
    if not isinstance(value, str):
        return positive_int(name, value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?|)B?\s*", value.upper())
    if match is None:
        raise ValueError(
            f'{name} must be a number of bytes such as "4MB" or 4_000_000, '
            f"got {value!r}"
        )
    return positive_int(name, int(float(match[1]) * _UNITS[match[2]]))


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _local_world_size() -> int:
    """Return LOCAL_WORLD_SIZE, torchrun's process count on this machine, or else 1."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdecimal() and int(text) > 0 else 1


def default_num_threads() -> int:
    """Return the number of usable CPUs divided by the job's processes on this machine.

    The result is at least 1. The affinity mask and the cgroup's quota limit the CPUs.
    """
    if hasattr(os, "sched_getaffinity"):
        n_cpus = len(os.sched_getaffinity(0))
    else:
        n_cpus = os.cpu_count() or 1
    quota, _, period = _read_text("/sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal():
        n_cpus = min(n_cpus, max(1, int(quota) // int(period)))
    return max(1, n_cpus // _local_world_size())


def default_memory_limit() -> int:
    """Return the default memory limit for prefetched batches, in bytes.

    The job's processes on this machine share an eighth of the memory, at most 4 GiB.
    The memory is the cgroup's limit, or else the memory of the machine.
    """
    limit = _read_text("/sys/fs/cgroup/memory.max")
    if limit.isdecimal():
        total = int(limit)
    else:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(4 * 1024**3, total // 8) // _local_world_size()


_MAX_RECORD_BYTES = 2**31 - 1


@dataclass(frozen=True, init=False)
class Limits:
    """Limits on the memory and disk space that files may use.

    Exceeding a limit raises `LimitError`. All other memory is proportional to the size
    of records: a value uses at least 1 byte in a record and at most 8 bytes in a batch.

    Parameters
    ----------
    max_record_bytes : int or str, default 2**31 - 1
        Maximum size of a record, in bytes or as a string such as ``"64MB"``. The
        default is protobuf's limit and the highest allowed value.
    max_padded_bytes : int or str, default "4GiB"
        Maximum size of a padded column (`FixedLenSequence`) in one batch. One long
        record widens all rows of its batch.
    max_features : int, default 100_000
        Maximum number of features and feature lists in the records from which a schema
        is inferred. The limit has no effect if ``features=`` is passed.
    max_expansion_ratio : int, default 500
        Maximum ratio of decompressed to compressed size for files in
        ``cache_dir=``. Expansion to 1 GiB is always allowed.
    max_image_pixels : int, default 178_956_970
        Maximum width times height of an `Image`, according to its header. The default
        equals Pillow's limit and is close to TensorFlow's.
    max_image_scans : int, default 100
        Maximum number of scans in a JPEG file. Each scan of a progressive file covers
        all pixels; encoders write about 10.

    Raises
    ------
    TypeError, ValueError
        If a limit is not a positive number, or `max_record_bytes` is above its default.

    Examples
    --------
    >>> import fastrec as fr
    >>> limits = fr.Limits(max_record_bytes="64MB")
    >>> ds = fr.open("uploads/*.tfrecord", limits=limits)  # doctest: +SKIP
    """

    max_record_bytes: int
    max_padded_bytes: int
    max_features: int
    max_expansion_ratio: int
    max_image_pixels: int
    max_image_scans: int

    def __init__(
        self,
        *,
        max_record_bytes: int | str = _MAX_RECORD_BYTES,
        max_padded_bytes: int | str = "4GiB",
        max_features: int = 100_000,
        max_expansion_ratio: int = 500,
        max_image_pixels: int = 178_956_970,
        max_image_scans: int = 100,
    ) -> None:
        sizes = {"max_record_bytes": max_record_bytes}
        sizes["max_padded_bytes"] = max_padded_bytes
        counts = {"max_features": max_features}
        counts["max_expansion_ratio"] = max_expansion_ratio
        counts["max_image_pixels"] = max_image_pixels
        counts["max_image_scans"] = max_image_scans
        checked = {name: byte_count(name, size) for name, size in sizes.items()}
        checked |= {name: positive_int(name, count) for name, count in counts.items()}
        if checked["max_record_bytes"] > _MAX_RECORD_BYTES:
            raise ValueError(
                f"max_record_bytes must be at most {_MAX_RECORD_BYTES:,} (protobuf's "
                f"limit), got {checked['max_record_bytes']:,}"
            )
        vars(self).update(checked)


def checked_limits(value: object) -> Limits:
    """Return `value`, which must be a Limits, or the default limits if it is None."""
    if value is None:
        return Limits()
    if isinstance(value, Limits):
        return value
    raise TypeError(f"limits must be a fastrec.Limits, got {value!r}")


# Size of batches in tables and conversions, if the caller sets no row count.
BATCH_BYTES = 16 << 20
_ROWS_MAX = 1 << 16


def rows_per_batch(row_bytes: float) -> int:
    """Return how many rows of `row_bytes` bytes fit in a batch, from 1 to 65,536."""
    return int(max(1, min(_ROWS_MAX, BATCH_BYTES // max(row_bytes, 1))))


# Extras whose package has another name, and packages whose display name differs.
_PACKAGES = {"arrow": "pyarrow", "compat": "google", "image": "PIL", "tf": "tensorflow"}
_DISPLAY_NAMES = {"PIL": "Pillow", "cv2": "OpenCV", "duckdb": "DuckDB"}
_DISPLAY_NAMES |= {"google": "protobuf", "tensorflow": "TensorFlow"}


class MissingExtraError(ModuleNotFoundError):
    """An optional dependency is not installed; the message contains the pip command."""


@contextlib.contextmanager
def extra(name: str, purpose: str, package: str | None = None) -> Iterator[None]:
    """Raise a MissingExtraError if the body fails to import the package of an extra."""
    package = package or _PACKAGES.get(name, name)
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtraError(
            f"{purpose} requires {_DISPLAY_NAMES.get(package, package)}, which is not "
            f'installed: pip install "fastrec-io[{name}]"',
            name=error.name,
        ) from None
