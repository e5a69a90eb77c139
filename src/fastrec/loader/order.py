"""Orders: the record at each position of an epoch.

The core computes orders (src/cpp/loader/order.h). This module defines the shuffles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.options import byte_count, positive_int, true_or_false
from fastrec.sources.selection import Numbers
from fastrec.sources.source import Source

_MAX_LANES = 2**16  # the cost of a step is proportional to the lanes
_MAX_SLOTS = 2**28

# The random stream that orders files; stream 0 orders records.
_FILES_STREAM = 1 << 35


@dataclass(frozen=True)
class Blocks:
    """A shuffle that reads whole blocks of adjacent records: ``shuffle=Blocks()``.

    Use blocks on disks and networks where reading single records is slow. An epoch
    permutes the blocks and divides them among lanes. Batches draw evenly from all lanes,
    and the records within a block are permuted. The result is close to a global shuffle:
    the next record comes from one of `lanes` blocks, and the `n` records of one block are
    spread over ``lanes * n`` positions. If `lanes` is a multiple of the world size, a
    rank reads whole lanes.

    Parameters
    ----------
    block_bytes : int or str, default "4MB"
        The approximate size of a block in bytes, converted to a number of records by the
        mean record size.
    lanes : int, default 64
        The number of blocks that are open at a time.

    Raises
    ------
    TypeError, ValueError
        If `block_bytes` or `lanes` is not a positive number.
    """

    block_bytes: int | str = "4MB"
    lanes: int = 64

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "block_bytes", byte_count("block_bytes", self.block_bytes)
        )
        object.__setattr__(self, "lanes", positive_int("lanes", self.lanes, _MAX_LANES))


@dataclass(frozen=True)
class Window:
    """A shuffle through a reservoir of `n` records: ``shuffle=Window(10_000)``.

    As in ``tf.data.Dataset.shuffle(n)``, each position delivers a random record of the
    reservoir, and the next record of the files replaces it. A window needs no random
    access, so it works on compressed files; the loader keeps `n` records in memory. For
    uncompressed files, use ``shuffle=True``.

    Parameters
    ----------
    n : int
        The number of records in the reservoir.
    shuffle_files : bool, default True
        Permute the files in each epoch. This has no effect on views that select records,
        such as `Dataset.select`.

    Raises
    ------
    TypeError, ValueError
        If an option is invalid.
    """

    n: int
    shuffle_files: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive_int("n", self.n, _MAX_SLOTS))
        object.__setattr__(
            self, "shuffle_files", true_or_false("shuffle_files", self.shuffle_files)
        )

    def file_order(self, n_files: int, seed: int, epoch: int) -> list[int]:
        """Return the file numbers in the order in which an epoch reads the files."""
        if not self.shuffle_files:
            return list(range(n_files))
        files: list[int] = shuffled(n_files, seed, epoch, _FILES_STREAM).tolist()
        return files


Shuffle: TypeAlias = "bool | Blocks | Window"


def as_shuffle(value: object) -> Shuffle:
    """Return `value` if it is a valid `shuffle` option, or raise a TypeError."""
    if isinstance(value, (Blocks, Window)):
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    msg = f"shuffle must be True, False, fr.Blocks(...) or fr.Window(n), got {value!r}"
    if isinstance(value, int):
        msg += f"; use True to shuffle all records, or fr.Window({value}) for a buffer"
    raise TypeError(msg)


def _core_shuffle(shuffle: Shuffle, source: Source) -> _core.Shuffle:
    """Convert `shuffle` to the core's type, for the records of `source`."""
    if isinstance(shuffle, Blocks):
        assert isinstance(shuffle.block_bytes, int)
        files = source.files
        block_records = shuffle.block_bytes * source.n_numbered // max(1, files.n_bytes)
        return _core.Shuffle.blocks(max(1, block_records), shuffle.lanes)
    if isinstance(shuffle, Window):
        raise TypeError(
            "cannot use fr.Window with a mix, which does not read records in sequence; "
            "use shuffle=True"
        )
    return _core.Shuffle.shuffled() if shuffle else _core.Shuffle.sequential()


def shuffled(n: int, seed: int, epoch: int, stream: int) -> npt.NDArray[np.int64]:
    """Return the permutation of ``range(n)`` for a seed, an epoch and a stream."""
    order = _core.Order.of(_core.Shuffle.shuffled(), n, seed, epoch, stream)
    return order.records(np.arange(n, dtype=np.int64))


def order_of(
    source: Source, shuffle: Shuffle, seed: int, epoch: int, global_batch_size: int
) -> _core.Order:
    """Return the order of an epoch: the record of `source` at each position."""
    mix = source.mix
    if mix is not None:
        parts = zip(mix.components.values(), mix.sizes(), strict=True)
        components = [
            (size, weight, _core_shuffle(shuffle, part))
            for (part, weight), size in parts
        ]
        run = global_batch_size if mix.per_batch else 1
        return _core.Order.mixed(components, len(source), run, mix.seed, seed, epoch)
    if not isinstance(shuffle, Window):
        return _core.Order.of(_core_shuffle(shuffle, source), len(source), seed, epoch)
    if source.is_walkable:
        counts = np.array(source.files.n_records_by_file(), np.int64)
    else:
        counts = np.array([len(source)], np.int64)
    files = shuffle.file_order(len(counts), seed, epoch) if source.is_walkable else [0]
    begins = np.cumsum(counts) - counts
    return _core.Order.window(begins[files], counts[files], shuffle.n, seed, epoch)


def records_of(source: Source, numbers: Numbers) -> Numbers:
    """Convert row numbers of `source` to record numbers of its catalog."""
    if source.mix is None:
        return numbers
    return order_of(source, False, 0, 0, 1).records(numbers)
