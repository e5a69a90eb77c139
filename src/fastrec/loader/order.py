"""Orders: which record an epoch delivers at which position, and in which step.

The arithmetic is the core's (loader/order.h); here is how callers choose it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.options import byte_count, positive_int, true_or_false
from fastrec.sources.selection import Numbers
from fastrec.sources.view import View

__all__ = [
    "Batches",
    "BatchesOf",
    "Blocks",
    "ListedBatches",
    "Shuffle",
    "Window",
    "as_shuffle",
    "order_of",
    "order_state",
    "records_of",
    "shuffle_state",
    "shuffled",
]

Batches: TypeAlias = "Callable[[int, int], Iterable[npt.ArrayLike]]"

_MAX_LANES = 2**16  # every step looks at each of them
_MAX_SLOTS = 2**28

# A random stream of one seed and epoch: the order of an epoch is stream 0.
_FILES_STREAM = 1 << 35


@dataclass(frozen=True)
class Blocks:
    """A shuffle that reads whole blocks of neighbouring records: ``shuffle=Blocks()``.

    For disks and networks on which single records are slow to read. All blocks of the
    data are permuted and divided among lanes. Batches draw evenly from all lanes, and the
    records of a block come in a permuted order. So an epoch is nearly a global shuffle:
    the next record comes from one of `lanes` places of the data, and the records of one
    block are spread over ``lanes * block`` positions. If the world size divides `lanes`,
    a rank reads whole lanes.

    Parameters
    ----------
    block_bytes : int or str, default "4MB"
        The approximate size of a block. It becomes a number of records, by their mean
        size.
    lanes : int, default 64
        Blocks that are open at a time.

    Raises
    ------
    TypeError, ValueError
        If they are not positive numbers.
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

    Like ``tf.data.Dataset.shuffle(n)``: each position delivers one of `n` records that
    were read, at random, and the next record takes its place. It needs no random access,
    so it works on compressed files; their `n` records are held in memory. On plain files
    ``shuffle=True`` is better in every way.

    Parameters
    ----------
    n : int
        Records in the reservoir.
    shuffle_files : bool, default True
        Read the files in another order in every epoch. (Views that choose records, such
        as `select`, are read in their order.)

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
        """Return the order in which an epoch reads the files."""
        if not self.shuffle_files:
            return list(range(n_files))
        order = shuffled(n_files, seed=seed, epoch=epoch, stream=_FILES_STREAM)
        found: list[int] = order.tolist()
        return found


Shuffle: TypeAlias = "bool | Blocks | Window"


def as_shuffle(value: object) -> Shuffle:
    """Return the option `shuffle`, or raise a TypeError."""
    if isinstance(value, (Blocks, Window)):
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    msg = f"shuffle must be True, False, fr.Blocks(...) or fr.Window(n), not {value!r}"
    if isinstance(value, int):
        msg += f"; True shuffles all records, fr.Window({value}) those of a buffer"
    raise TypeError(msg)


def _core_shuffle(shuffle: Shuffle, n_records: int, n_bytes: int) -> _core.Shuffle:
    """Return `shuffle` for `n_records` records that take `n_bytes` in their files."""
    if isinstance(shuffle, Blocks):
        assert isinstance(shuffle.block_bytes, int)
        block_records = shuffle.block_bytes * n_records // max(1, n_bytes)
        return _core.Shuffle.blocks(max(1, block_records), shuffle.lanes)
    if isinstance(shuffle, Window):
        msg = (
            "fr.Window reads records one after another, which a mix does not: "
            "shuffle=True"
        )
        raise TypeError(msg)
    return _core.Shuffle.shuffled() if shuffle else _core.Shuffle.sequential()


def shuffle_state(shuffle: Shuffle) -> bool | dict[str, Any]:
    """Return `shuffle` as a loader's state has it."""
    if isinstance(shuffle, Blocks):
        return {"block_bytes": shuffle.block_bytes, "lanes": shuffle.lanes}
    if isinstance(shuffle, Window):
        return {"window": shuffle.n, "shuffle_files": shuffle.shuffle_files}
    return shuffle


def shuffled(
    n: int, *, seed: int, epoch: int = 0, stream: int = 0
) -> npt.NDArray[np.int64]:
    """Return the numbers 0 to `n` - 1 in the order of a shuffled epoch.

    Another `stream` gives another order for the same seed and epoch.
    """
    order = _core.Order.of(_core.Shuffle.shuffled(), n, seed, epoch, stream)
    return order.records(np.arange(n, dtype=np.int64))


@dataclass(frozen=True)
class BatchesOf:
    """``batches(seed, epoch)`` for a dataset of a known number of records."""

    n_records: int
    batches: Batches = field(repr=False)

    def __call__(self, seed: int, epoch: int) -> Iterable[npt.ArrayLike]:
        """Return the batches of an epoch."""
        return self.batches(seed, epoch)


@dataclass(frozen=True)
class ListedBatches:
    """The batches of one epoch, as the caller lists them."""

    records: npt.NDArray[np.int64]  # of all batches
    bounds: npt.NDArray[np.int64]  # where each batch begins, and the number of rows

    @classmethod
    def of(
        cls, make: Batches, *, n_records: int, seed: int, epoch: int
    ) -> ListedBatches:
        """Call `make`, and check that it lists record numbers."""
        if isinstance(make, BatchesOf) and make.n_records != n_records:
            msg = (
                f"these batches are for {make.n_records:,} records, but the dataset has "
                f"{n_records:,}"
            )
            raise ValueError(msg)
        listed: object = make(seed, epoch)
        if not isinstance(listed, Iterable):
            msg = (
                "batches(seed, epoch) must return the epoch's batches, a list of arrays "
                f"of record numbers, not {type(listed).__name__}"
            )
            raise TypeError(msg)
        batches = [_checked(i, batch, n_records) for i, batch in enumerate(listed)]
        empty = np.empty(0, np.int64)
        bounds = np.cumsum([0, *map(len, batches)], dtype=np.int64)
        return cls(np.concatenate([empty, *batches]), bounds)

    @property
    def smallest(self) -> int:
        """The rows of the smallest batch."""
        return int(np.diff(self.bounds).min(initial=self.bounds[-1]))


def _checked(i: int, batch: npt.ArrayLike, n_records: int) -> npt.NDArray[np.int64]:
    numbers = np.asarray(batch)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        msg = (
            f"batch {i} of batches(seed, epoch) must be a 1-D array of record numbers, "
            f"not {numbers.ndim}-D {numbers.dtype}"
        )
        raise TypeError(msg)
    if not numbers.size:
        msg = f"batch {i} of batches(seed, epoch) has no rows"
        raise ValueError(msg)
    lowest, highest = int(numbers.min()), int(numbers.max())
    if lowest < 0 or highest >= n_records:
        wrong = lowest if lowest < 0 else highest
        msg = (
            f"batch {i} of batches(seed, epoch) names record {wrong}, but there are "
            f"{n_records:,} records"
        )
        raise IndexError(msg)
    return numbers.astype(np.int64)


def order_of(
    view: View, shuffle: Shuffle, seed: int, epoch: int, global_batch_size: int
) -> _core.Order:
    """Return which record of `view` an epoch delivers at which position."""
    mix = view.mix
    if mix is not None:
        parts = zip(mix.components.values(), mix.sizes(), strict=True)
        components = [
            (size, weight, _sized(shuffle, part)) for (part, weight), size in parts
        ]
        run = global_batch_size if mix.per_batch else 1
        return _core.Order.mixed(components, len(view), run, mix.seed, seed, epoch)
    if not isinstance(shuffle, Window):
        return _core.Order.of(_sized(shuffle, view), len(view), seed, epoch)
    if view.is_walkable:
        counts = np.array(view.files.n_records_by_file(), np.int64)
    else:
        counts = np.array([len(view)], np.int64)
    files = shuffle.file_order(len(counts), seed, epoch) if view.is_walkable else [0]
    begins = np.cumsum(counts) - counts
    return _core.Order.window(begins[files], counts[files], shuffle.n, seed, epoch)


def _sized(shuffle: Shuffle, view: View) -> _core.Shuffle:
    """Return `shuffle` for records of the size that those of `view` have."""
    if not isinstance(shuffle, Blocks):
        return _core_shuffle(shuffle, 0, 0)
    return _core_shuffle(shuffle, view.files.n_records, view.files.n_bytes)


def order_state(view: View, global_batch_size: int) -> dict[str, Any]:
    """Return what the order depends on in addition to the shuffle, for a loader's state."""
    mix = view.mix
    if mix is None:
        return {}
    import hashlib  # slow to import

    weights = [(name, weight) for name, (_, weight) in mix.components.items()]
    parameters = repr((weights, mix.seed, len(view))).encode()
    digest = hashlib.blake2b(parameters, digest_size=8).hexdigest()
    return {"mix": digest} | ({"run": global_batch_size} if mix.per_batch else {})


def records_of(view: View, numbers: Numbers) -> Numbers:
    """Return the numbers in the catalog of the rows `numbers` of `view`."""
    if view.mix is None:
        return numbers
    return order_of(view, False, 0, 0, 1).records(numbers)
