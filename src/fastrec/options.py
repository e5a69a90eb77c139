"""What callers pass: names that are nearly right, numbers, sizes, and their defaults."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np

__all__ = [
    "byte_count",
    "check_instance",
    "checked_names",
    "default_memory_limit",
    "default_num_threads",
    "nearest",
    "non_negative_int",
    "positive_int",
    "true_or_false",
]

P = ParamSpec("P")
R = TypeVar("R")

# What other readers call an option, and what to say about it.
_ELSEWHERE = {
    "num_workers": "num_threads= (native threads; there are no worker processes)",
    "num_parallel_calls": "num_threads=",
    "num_parallel_reads": "num_threads=",
    "reader_num_threads": "num_threads=",
    "n_threads": "num_threads=",
    "drop_remainder": "drop_last=",
    "drop_last_batch": "drop_last=",
    "num_epochs": "loader.repeat(epochs)",
    "repeat": "loader.repeat(epochs)",
    "prefetch_factor": "prefetch= (batches)",
    "prefetch_queue_depth": "prefetch= (batches)",
    "buffer_size": "shuffle=True (of all records; fr.Window(n) has a buffer)",
    "shuffle_buffer_size": "shuffle=True (of all records; fr.Window(n) has a buffer)",
    "sampler": "batches= (a function of seed and epoch)",
    "batch_sampler": "batches= (a function of seed and epoch)",
    "num_replicas": "world_size=",
    "num_shards": "world_size=",
    "shard_count": "world_size=",
    "shard_id": "rank=",
    "shard_index": "rank=",
    "pad_last_batch": "pad_last=",
    "shuffle_seed": "seed=",
    "collate_fn": "transform= (it gets the whole batch)",
    "map_fn": "transform= (it gets the whole batch)",
    "description": "features=",
    "schema": "features=",
    "compression_type": "compression=",
    "options": "compression=",
    "index_path": "index_dir=",
    "ignore_errors": 'on_error="skip"',
    "handler": "on_error=",
    "max_corrupted_records_to_skip": "max_errors=",
}


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Return which of `names` was probably meant by `name`, if one is near."""
    close = difflib.get_close_matches(name, names, n=1)
    if not close:  # or one that differs in case alone
        close = [known for known in names if known.lower() == name.lower()]
    return close[0] if close else None


def checked_names(function: Callable[P, R]) -> Callable[P, R]:
    """Make `function` answer an unknown keyword with the name it should have been."""
    names = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY and name != "self"
    ]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name in names:
                continue
            called = function.__qualname__.removesuffix(".__init__").split(".")[-1]
            text = f"{called}() has no option {name!r}"
            right = _ELSEWHERE.get(name, "")
            meant = nearest(name, names)
            if right.split("=")[0] in names or "(" in right.split("=")[0]:
                text += f"; here it is {right}"
            elif meant is not None:
                text += f"; did you mean {meant}=?"
            raise TypeError(text)
        return function(*args, **kwargs)

    return checked


def check_instance(taker: str, value: object, kind: type, example: str) -> None:
    """Raise a TypeError unless `value` is a `kind` of fastrec's, which `taker` takes."""
    if not isinstance(value, kind):
        msg = f"{taker} takes a fastrec.{kind.__name__}, {example}, not {value!r}"
        raise TypeError(msg)


def true_or_false(name: str, value: object) -> bool:
    """Return `value` as a bool, or raise naming the option `name`."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    msg = f"{name} must be True or False, not {value!r}"
    raise TypeError(msg)


def non_negative_int(name: str, value: object, most: int = 2**63 - 1) -> int:
    """Return `value` as an int of 0 to `most`, or raise naming the option `name`."""
    if isinstance(value, bool):
        msg = f"{name} must be an integer, not {value!r}"
        raise TypeError(msg)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        msg = f"{name} must be an integer, not {value!r}"
        raise TypeError(msg) from None
    if number < 0:
        msg = f"{name} must not be negative, but is {number}"
        raise ValueError(msg)
    if number > most:
        msg = f"{name} must be at most {most:,}, but is {number:,}"
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
        msg = f'{name} must be a number of bytes such as "4MB" or 4_000_000, not {value!r}'
        raise ValueError(msg)
    return positive_int(name, int(float(match[1]) * _UNITS[match[2]]))


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _local_world_size() -> int:
    """How many processes of one job share this machine: set by torchrun and others."""
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
