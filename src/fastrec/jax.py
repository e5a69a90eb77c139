"""JAX: batches whose columns are arrays on devices, their rows divided by a sharding.

Importing this module makes `RaggedArray`, `BytesArray` and `SparseArray` pytrees of the
arrays they consist of: ``jax.tree.map``, ``jax.device_put`` and ``jax.jit`` take batches
as they are. Under ``jit`` every new number of values is a new shape, which is compiled
anew: columns of rows of any lengths are better padded for it, by `fastrec.FixedLenSequence`
or in a transform.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch, BytesArray, RaggedArray, SparseArray
from fastrec.dataset.dataset import Dataset
from fastrec.extras import extra
from fastrec.loader.adapting import empty_batch, fed
from fastrec.loader.loader import Loader
from fastrec.loader.prefetch import Feed
from fastrec.options import non_negative_int

with extra("jax", "fastrec.jax"):
    import jax

__all__ = ["loader"]

Sharding: TypeAlias = "jax.sharding.Sharding | jax.Device | None"


def loader(
    source: Dataset | Loader,
    sharding: Sharding = None,
    *,
    prefetch_to_device: int = 1,
    **loader_args: Any,  # noqa: ANN401 (what Dataset.loader takes)
) -> Loader:
    """Return a loader whose batches are dicts of arrays on devices.

    It is a `fastrec.Loader` in all else: a ``for`` is an epoch, and ``state_dict``,
    ``step``, ``stats`` and ``report`` count the batches that were delivered, not those
    on their way to the devices.

    Parameters
    ----------
    source : Dataset or Loader
        What is read. Of a loader, a copy at the same place goes to the devices.
    sharding : Sharding or Device, optional
        How rows are divided, the same for all columns: such as
        ``NamedSharding(mesh, PartitionSpec("batch"))``. By default, batches go to JAX's
        default device. A sharding over several processes says which rows this one reads,
        and so its rank and the world size: those that hold the same rows have the same
        rank. Otherwise they are what `Dataset.loader` says, or else, after
        ``jax.distributed.initialize``, the index and number of JAX's processes.
    prefetch_to_device : int, default 1
        Batches on their way to the devices, or there, beyond the one that is delivered.
    **loader_args
        Of `Dataset.loader`. Over several processes it needs ``drop_last=True`` or
        ``pad_last=True``, for all of them must have arrays of equal shapes: columns of a
        `fastrec.FixedLenSequence` need its ``length=``, and transforms must make all
        batches of one shape. `batch_size` counts the rows of this rank.

    Returns
    -------
    Loader
        Of batches with these columns:

        * ``jax.Array`` of shape ``(batch, *shape)``, or ``(global batch, *shape)`` over
          several processes. 64-bit integers become 32-bit ones, and float64 becomes
          float32, unless ``jax_enable_x64`` is on; all other dtypes stay.
        * `RaggedArray` and `SparseArray` of such arrays, where rows are not divided.
        * `BytesArray`, and all that holds one, of NumPy arrays on the host: JAX has no
          byte strings.

        Columns in dicts that a transform makes are placed likewise. What is no array
        stays as it is. A loader that has a sharding cannot be pickled.

        On a CPU, arrays may share the memory of the batch. Nobody writes there, neither
        fastrec nor a jitted function that they are donated to.

    Raises
    ------
    TypeError, ValueError
        If arguments make no sense, or batches cannot be divided as the sharding says:
        before any thread starts, where it can be known. Otherwise with the batch in
        question; so are columns of rows of any lengths, where rows are divided, and
        columns of which JAX has no arrays, such as datetimes.
    OverflowError
        With a batch that has an integer beyond 32 bits, unless ``jax_enable_x64`` is on.

    Examples
    --------
    >>> sharding = NamedSharding(mesh, PartitionSpec("batch"))  # doctest: +SKIP
    >>> loader = fr.jax.loader(  # doctest: +SKIP
    ...     ds, sharding, batch_size=256, shuffle=True, drop_last=True
    ... )
    >>> for batch in loader:  # doctest: +SKIP
    ...     params, loss = step(params, batch)
    """
    n_ahead = non_negative_int("prefetch_to_device", prefetch_to_device)
    share = Share.of(sharding)
    made = _loader_of(source, share, loader_args)
    share.check(made)
    return fed(made, Feed(Placement(share, made.batch_size), n_ahead))


def _loader_of(source: object, share: Share, loader_args: dict[str, Any]) -> Loader:
    if isinstance(source, Loader):
        if loader_args:
            msg = f"a loader has its options already: {', '.join(loader_args)}"
            raise TypeError(msg)
        return source
    if not isinstance(source, Dataset):
        msg = f"source must be a Dataset or a Loader, not {source!r}"
        raise TypeError(msg)
    if share.rank is not None and not {"rank", "world_size"} & set(loader_args):
        loader_args |= {"rank": share.rank, "world_size": share.world_size}
    return source.loader(**loader_args)


@dataclass(frozen=True)
class Share:
    """What a sharding gives this process of the rows of a global batch.

    Attributes
    ----------
    sharding : jax.sharding.Sharding or None
    rank, world_size : int or None
        None where other processes have no part in the arrays, and JAX knows of none.
    n_shards : int
        Over how many devices of this process its rows are divided.
    is_global : bool
        Whether arrays have rows of several ranks.
    """

    sharding: Any
    rank: int | None
    world_size: int | None
    n_shards: int
    is_global: bool

    @classmethod
    def of(cls, sharding: Sharding) -> Share:
        """Return the share of this process.

        Raises
        ------
        TypeError, ValueError
            If it is no sharding of rows, or rows of a process are not next to each other.
        """
        if isinstance(sharding, jax.Device):
            sharding = jax.sharding.SingleDeviceSharding(sharding)
        alone = (None, None)
        if jax.process_count() > 1:
            alone = jax.process_index(), jax.process_count()
        if sharding is None:
            return cls(None, *alone, n_shards=1, is_global=False)
        if not isinstance(sharding, jax.sharding.Sharding):
            msg = (
                "sharding must be a jax.sharding.Sharding, such as NamedSharding(mesh, "
                f'PartitionSpec("batch")), not {sharding!r}'
            )
            if isinstance(sharding, int):
                msg += f"; the number of rows is batch_size={sharding}"
            raise TypeError(msg)
        n_rows = len(sharding.device_set)
        rows_of = _rows_of_devices(sharding, n_rows)
        ranges = _ranges_of_processes(rows_of)
        if jax.process_index() not in ranges:
            msg = f"no device of this process is in the sharding: {sharding}"
            raise ValueError(msg)
        own = ranges[jax.process_index()]
        distinct = sorted(set(ranges.values()), key=lambda rows: rows.start)
        n = len(own)
        if distinct != [range(begin, begin + n) for begin in range(0, n_rows, n)]:
            msg = (
                "processes must hold the same rows, or others and equally many, but of "
                f"{n_rows} rows they hold {list(ranges.values())}: {sharding}"
            )
            raise ValueError(msg)
        n_shards = n // len(next(iter(rows_of.values())))
        if sharding.is_fully_addressable:
            return cls(sharding, *alone, n_shards, is_global=False)
        rank = distinct.index(own)
        is_global = len(distinct) > 1
        return cls(sharding, rank, len(distinct), n_shards, is_global)

    def check(self, source: Loader) -> None:
        """Raise a ValueError if the batches of a loader cannot be divided so."""
        given = source.rank, source.world_size
        if not self.is_local and given != (self.rank, self.world_size):
            msg = (
                f"the sharding makes this process rank {self.rank} of {self.world_size}, "
                f"but the loader is rank {given[0]} of {given[1]}"
            )
            raise ValueError(msg)
        n_rows, n_shards = source.batch_size, self.n_shards
        if self.is_global:
            n_shards *= source.world_size
            n_rows = n_rows and source._planner.global_batch_size
        if n_rows is not None and n_rows % n_shards:
            raise ValueError(_not_divided("a batch", n_rows, n_shards))
        if self.is_global:
            self._check_shapes(source)
        is_divided = self.is_global or n_shards > 1
        may_shrink = source.dataset.on_error not in ("raise", "mask")
        if is_divided and may_shrink and not source.pad_last:
            msg = (
                "rows that are passed over make batches shorter, and these cannot be "
                'divided: give on_error="mask" or pad_last=True'
            )
            raise ValueError(msg)
        if self.n_shards > 1 and not (source.drop_last or source.pad_last):
            self._check_last(source)

    def _check_shapes(self, source: Loader) -> None:
        """Raise a ValueError if processes would have batches of different shapes."""
        if not (source.drop_last or source.pad_last):
            msg = (
                "processes that share arrays must have batches of equal shapes, also "
                "of the last rows: give drop_last=True or pad_last=True"
            )
            raise ValueError(msg)
        # After a transform, columns are what it made of them.
        padded = source.dataset._any_width_columns()
        if source.has_transforms or not padded:
            return
        for name, column in empty_batch(source).items():
            if name in padded and isinstance(column, np.ndarray):
                msg = (
                    "processes that share arrays must have batches of equal shapes, but "
                    f"column {name!r} is as wide as the longest row of each: give its "
                    "fr.FixedLenSequence a length=, and truncate=True if rows may be cut"
                )
                raise ValueError(msg)

    def _check_last(self, source: Loader) -> None:
        # Where all files would have to be read through for it, the batch itself tells.
        if source.batch_size is None or source.dataset.is_streamed:
            return
        plan = source._plan()
        n_rows = len(plan.grid.positions(plan.n_steps - 1)) if plan.n_steps else 0
        if n_rows % self.n_shards:
            what = "the last batch"
            raise ValueError(_not_divided(what, n_rows, self.n_shards, _FULL))

    @property
    def is_local(self) -> bool:
        """Whether arrays are of this process alone, whatever others do."""
        return self.sharding is None or bool(self.sharding.is_fully_addressable)


def _rows_of_devices(sharding: Any, n_rows: int) -> dict[Any, range]:  # noqa: ANN401
    """Return which of `n_rows` rows each device holds."""
    try:
        indices = sharding.devices_indices_map((n_rows,))
    except (IndexError, ValueError) as error:
        msg = (
            "sharding must divide rows, which all columns have, and nothing else, as "
            f'NamedSharding(mesh, PartitionSpec("batch")) does: {sharding}'
        )
        raise ValueError(msg) from error
    return {device: range(n_rows)[rows] for device, (rows,) in indices.items()}


def _ranges_of_processes(rows_of: dict[Any, range]) -> dict[int, range]:
    """Return which rows each process holds, on all of its devices."""
    held: dict[int, set[int]] = {}
    for device, rows in rows_of.items():
        held.setdefault(device.process_index, set()).update(rows)
    ranges = {
        process: range(min(rows), max(rows) + 1) for process, rows in held.items()
    }
    for process, whole in ranges.items():
        if len(held[process]) < len(whole):
            msg = (
                f"process {process} would hold rows that are not next to each other, "
                f"{sorted(held[process])} of {len(rows_of)}: order the devices of the mesh by "
                "process"
            )
            raise ValueError(msg)
    return ranges


_FULL = ": give drop_last=True or pad_last=True"


def _not_divided(what: str, n_rows: int, n_shards: int, cure: str = "") -> str:
    return f"{what} of {n_rows:,} rows cannot be divided over {n_shards} devices{cure}"


class Placement:
    """Puts the columns of batches on devices.

    Parameters
    ----------
    share : Share
        Where rows go.
    batch_size : int or None
        Rows of this rank in every batch that is shared with other processes.
    """

    def __init__(self, share: Share, batch_size: int | None) -> None:
        self._share = share
        self._batch_size = batch_size

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with the columns on devices that can be there."""
        taken = self._taken(batch)
        # All of them at once, which is one dispatch.
        if self._share.is_local:
            placed = jax.device_put(taken, self._share.sharding)
        else:
            placed = jax.tree.map(self._global_array, taken)
        return _replaced(batch, placed)

    def _taken(self, batch: Batch) -> Batch:
        """Return the columns that can be on devices, also of dicts in the batch."""
        taken: Batch = {}
        for name, column in batch.items():
            if isinstance(column, dict):
                taken[name] = self._taken(column)
            elif _is_numeric(name, column):
                taken[name] = self._narrowed(name, column)
        return taken

    def _narrowed(self, name: str, column: Any) -> Any:  # noqa: ANN401
        """Return a column as JAX has it, if its rows can be divided."""
        if isinstance(column, RaggedArray | SparseArray):
            if self._share.n_shards > 1 or self._share.is_global:
                # Processes do not know the longest row of each other.
                spec = "fr.FixedLenSequence" + " with length=" * self._share.is_global
                msg = (
                    f"column {name!r} has rows of any lengths, which cannot be divided "
                    f"over devices: pad them ({spec}), or leave the column out "
                    "(ds.columns)"
                )
                raise ValueError(msg)
            # Row splits and indices are no rows: these are told by the column alone.
            return jax.tree.map(lambda part: _narrow(name, part, "value"), column)
        n_rows = len(column)
        if n_rows % self._share.n_shards:
            what = f"column {name!r}: a batch"
            cure = f"{_FULL}, and no other number of rows in batches= and transform="
            raise ValueError(_not_divided(what, n_rows, self._share.n_shards, cure))
        if self._share.is_global and self._batch_size not in (None, n_rows):
            msg = (
                f"column {name!r} has {n_rows} rows, and {self._batch_size} in other "
                "processes perhaps: they must have batches of equal shapes"
            )
            raise ValueError(msg)
        return _narrow(name, column, "row")

    def _global_array(self, array: Any) -> Any:  # noqa: ANN401
        n_rows = len(array) * (self._share.world_size or 1)
        return jax.make_array_from_process_local_data(
            self._share.sharding, array, (n_rows, *array.shape[1:])
        )


def _is_numeric(name: str, column: object) -> bool:
    """Whether a column can be on a device; what is no array is the user's own affair."""
    if isinstance(column, RaggedArray | SparseArray):
        return _is_numeric(name, column.values)
    if not isinstance(column, np.ndarray | jax.Array) or not column.ndim:
        return False
    if not _is_of_jax(column.dtype):
        msg = (
            f"column {name!r}: JAX has no arrays of {column.dtype}: transform= may make "
            "numbers of it, and ds.columns([...]) leaves columns out"
        )
        raise TypeError(msg)
    return True


def _is_of_jax(dtype: np.dtype[Any]) -> bool:
    # NumPy knows bfloat16 and the like as dtypes of the kind of raw memory.
    if dtype.kind == "V":
        return bool(jax.dtypes.issubdtype(dtype, np.number))
    is_wider = dtype.itemsize > (16 if dtype.kind == "c" else 8)
    return dtype.kind in "biufc" and dtype.isnative and not is_wider


def _replaced(batch: Batch, placed: Batch) -> Batch:
    """Return the batch with what is in `placed` instead, also in its dicts."""
    return {
        name: _replaced(column, placed[name])
        if isinstance(column, dict)
        else placed.get(name, column)
        for name, column in batch.items()
    }


def _narrow(name: str, array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Return integers in the dtype that JAX has for them, all of them unchanged."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if array.dtype.kind not in "iu" or array.dtype == dtype:
        return array
    narrow: npt.NDArray[Any] = array.astype(dtype)
    if not np.array_equal(narrow, array):
        place = tuple(np.argwhere(narrow != array)[0].tolist())
        msg = (
            f"column {name!r}, {what} {place[0]}: {array[place]} does not fit {dtype}, "
            "which JAX has for 64-bit integers unless jax_enable_x64 is on; transform= "
            "may make smaller ones, and ds.columns([...]) leaves columns out"
        )
        raise OverflowError(msg)
    return narrow


# --- Pytrees --------------------------------------------------------------------------


def _register(cls: Any, arrays: tuple[str, ...], rest: tuple[str, ...]) -> None:  # noqa: ANN401
    """Make a class a pytree of the attributes `arrays`; `rest` are part of its type.

    What comes back need not be arrays: JAX also puts tracers and its own marks there.
    """

    def children(array: object) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(array, name) for name in arrays], tuple(
            getattr(array, name) for name in rest
        )

    def children_with_keys(array: object) -> tuple[list[Any], tuple[Any, ...]]:
        found, static = children(array)
        keys = [jax.tree_util.GetAttrKey(name) for name in arrays]
        return list(zip(keys, found, strict=True)), static

    def made(static: tuple[Any, ...], found: Iterable[Any]) -> Any:  # noqa: ANN401
        return cls._wrap(*found, *static)

    jax.tree_util.register_pytree_with_keys(cls, children_with_keys, made, children)


_register(RaggedArray, ("values", "row_splits"), ())
_register(BytesArray, ("data", "offsets"), ("shape",))
_register(SparseArray, ("indices", "values"), ("dense_shape",))
