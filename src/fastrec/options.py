"""Arguments of callers: numbers, sizes and limits; and optional packages."""

from __future__ import annotations

import contextlib
import operator
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

__all__ = [
    "BATCH_BYTES",
    "Limits",
    "MissingExtraError",
    "byte_count",
    "check_instance",
    "checked_limits",
    "default_memory_limit",
    "default_num_threads",
    "extra",
    "non_negative_int",
    "positive_int",
    "rows_per_batch",
    "true_or_false",
]


def check_instance(taker: str, value: object, kind: type, example: str) -> None:
    """Raise a TypeError unless `value` is a `kind`, which the function `taker` needs."""
    if not isinstance(value, kind):
        msg = f"{taker} takes a fastrec.{kind.__name__}, {example}, got {value!r}"
        raise TypeError(msg)


def true_or_false(name: str, value: object) -> bool:
    """Return `value` as a bool, or raise naming the option `name`."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    msg = f"{name} must be True or False, got {value!r}"
    raise TypeError(msg)


def non_negative_int(name: str, value: object, most: int = 2**63 - 1) -> int:
    """Return `value` as an int of 0 to `most`, or raise naming the option `name`."""
    if isinstance(value, bool):
        msg = f"{name} must be an integer, got {value!r}"
        raise TypeError(msg)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        msg = f"{name} must be an integer, got {value!r}"
        raise TypeError(msg) from None
    if number < 0:
        msg = f"{name} must not be negative, got {number}"
        raise ValueError(msg)
    if number > most:
        msg = f"{name} must be at most {most:,}, got {number:,}"
        raise ValueError(msg)
    return number


def positive_int(name: str, value: object, most: int = 2**63 - 1) -> int:
    """Return `value` as an int of 1 to `most`, or raise naming the option `name`."""
    number = non_negative_int(name, value, most)
    if number == 0:
        msg = f"{name} must be at least 1"
        raise ValueError(msg)
    return number


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}I": 1024**i for i, unit in enumerate("KMGT", start=1)}


def byte_count(name: str, value: int | str) -> int:
    """Return a number of bytes given as one, or as text such as ``"4MB"``, ``"1GiB"``.

    KB, MB, GB and TB are powers of 1,000; KiB, MiB, GiB and TiB powers of 1,024.
    """
    if not isinstance(value, str):
        return positive_int(name, value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?|)B?\s*", value.upper())
    if match is None:
        msg = f'{name} must be a number of bytes such as "4MB" or 4_000_000, got {value!r}'
        raise ValueError(msg)
    return positive_int(name, int(float(match[1]) * _UNITS[match[2]]))


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 (slow to import)
            return file.read().strip()
    except OSError:
        return ""


def _local_world_size() -> int:
    """Return how many processes of the job share this machine, as torchrun sets it."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdecimal() and int(text) > 0 else 1


def default_num_threads() -> int:
    """Return the CPUs this process may use, shared among the job's local processes.

    Counted from the affinity mask and the cgroup's quota, not from the machine.
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
    """Return the bytes that batches may take before they are delivered.

    An eighth of the memory that the cgroup (or else the machine) has, at most 4 GiB,
    shared among the job's local processes.
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
    """What records may cost; more is a `LimitError`. The defaults suit most data.

    All other costs are bounded by the bytes of the record: a value takes at least one of
    them, and at most 8 bytes in a batch.

    Parameters
    ----------
    max_record_bytes : int or str, default 2**31 - 1
        The bytes of a record, as a number or as text such as ``"64MB"``. The default is
        the limit of protobuf, and the maximum.
    max_padded_bytes : int or str, default "4GiB"
        The memory of a padded column (`FixedLenSequence`) in one batch, where one long
        record makes all others as long.
    max_features : int, default 100_000
        The features of the records whose schema is inferred, and their feature lists.
        It has no effect if the features are given.
    max_expansion_ratio : int, default 500
        How many times its size a compressed file may become in `cache_dir`; any file may
        become 1 GiB.

    Raises
    ------
    TypeError, ValueError
        If a limit is not positive, or `max_record_bytes` is above its default.

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

    def __init__(
        self,
        *,
        max_record_bytes: int | str = _MAX_RECORD_BYTES,
        max_padded_bytes: int | str = "4GiB",
        max_features: int = 100_000,
        max_expansion_ratio: int = 500,
    ) -> None:
        checked = {
            "max_record_bytes": byte_count("max_record_bytes", max_record_bytes),
            "max_padded_bytes": byte_count("max_padded_bytes", max_padded_bytes),
            "max_features": positive_int("max_features", max_features),
            "max_expansion_ratio": positive_int(
                "max_expansion_ratio", max_expansion_ratio
            ),
        }
        if checked["max_record_bytes"] > _MAX_RECORD_BYTES:
            msg = (
                f"max_record_bytes must be at most {_MAX_RECORD_BYTES}, as for protobuf"
            )
            raise ValueError(msg)
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def checked_limits(value: object) -> Limits:
    """Return `value`, or the default limits for None."""
    if value is None:
        return Limits()
    if isinstance(value, Limits):
        return value
    msg = f"limits must be a fastrec.Limits, got {value!r}"
    raise TypeError(msg)


# The batches of tables and conversions, whose size the caller does not choose.
BATCH_BYTES = 16 << 20
_ROWS_MAX = 1 << 16


def rows_per_batch(row_bytes: float) -> int:
    """Return how many rows of a size make a batch."""
    return int(max(1, min(_ROWS_MAX, BATCH_BYTES // max(row_bytes, 1))))


# The packages of extras that have other names, and what people call packages.
_PACKAGES = {
    "arrow": "pyarrow",
    "image": "PIL",
    "plot": "matplotlib",
    "tf": "tensorflow",
}
_CALLED = {"PIL": "Pillow", "tensorflow": "TensorFlow"}


class MissingExtraError(ModuleNotFoundError):
    """An extra is not installed; the text says how to install it."""


@contextlib.contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Import the package of the extra `name` in the body, or raise MissingExtraError."""
    package = _PACKAGES.get(name, name)
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        msg = (
            f"{purpose} needs {_CALLED.get(package, package)}, which is not installed: "
            f'pip install "fastrec-io[{name}]"'
        )
        raise MissingExtraError(msg, name=error.name) from None
