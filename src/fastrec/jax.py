"""JAX: batches of arrays on devices, with rows divided by a sharding.

Importing this module registers `RaggedArray`, `BytesArray` and `SparseArray` as
pytrees, so ``jax.tree.map``, ``jax.device_put`` and ``jax.jit`` accept batches.
``jax.jit`` compiles again for every new shape: pad variable-length columns with
`fastrec.FixedLenSequence` or in a transform.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch, BytesArray, RaggedArray, SparseArray
from fastrec.dataset.adapted import loader_of
from fastrec.dataset.dataset import Dataset
from fastrec.display import ShortRow
from fastrec.loader.loader import Loader
from fastrec.loader.options import LoaderKeywords
from fastrec.loader.prefetch import Conversion, with_conversion
from fastrec.loader.ranks import Rank, current_rank, rank_in_group
from fastrec.options import extra, non_negative_int

with extra("jax", "fastrec.jax"):
    import jax

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["loader"]


# Columns by name. Any stands for RaggedArray, SparseArray and BytesArray: see `loader`.
JaxBatch: TypeAlias = "dict[str, jax.Array | Any]"
Sharding: TypeAlias = "jax.sharding.Sharding | jax.Device | None"


def loader(
    source: Dataset | Loader[Any],
    batch_size: int | None = None,
    *,
    sharding: Sharding = None,
    prefetch_to_device: int = 1,
    **options: Unpack[LoaderKeywords],
) -> Loader[JaxBatch]:
    """Return a loader whose batches are dicts of arrays on devices.

    The ``state_dict``, ``step``, ``stats`` and ``report`` of this `fastrec.Loader`
    count delivered batches, not batches in transfer to the devices.

    Parameters
    ----------
    source : Dataset or Loader
        The data to read. A Loader is copied at its current position; the original does
        not move. Pass a Loader without loader options.
    batch_size : int, optional
        Rows in a batch of this rank; see `Dataset.loader`.
    sharding : Sharding or Device, optional
        Sharding of the rows of all columns, such as
        ``NamedSharding(mesh, PartitionSpec("batch"))``; by default, batches go to JAX's
        default device. A sharding over several processes sets rank and world size:
        processes with the same rows have the same rank. Otherwise they are set as in
        `Dataset.loader`; after ``jax.distributed.initialize``, they default to the
        index and number of JAX's processes.
    prefetch_to_device : int, default 1
        Batches to copy to the devices ahead of the current batch.
    **options
        Options of `Dataset.loader`. Processes that share arrays must have batches of
        equal shapes: pass ``drop_last=True`` or ``pad_last=True``, and ``length=`` to
        `fastrec.FixedLenSequence`.

    Returns
    -------
    Loader
        A loader of batches with these columns, also in nested dicts from transforms:

        * ``jax.Array`` of shape ``(batch, *shape)``, or ``(global batch, *shape)`` over
          several processes. Unless ``jax_enable_x64`` is on, 64-bit numbers become
          32-bit numbers; other dtypes do not change.
        * `RaggedArray` and `SparseArray` of such arrays, if rows are not divided.
        * `BytesArray`, and columns that contain one, stay NumPy arrays on the host: JAX
          has no byte strings. Values other than arrays do not change.

        On a CPU, arrays may share the memory of the batch, which is never overwritten.
        A loader with a sharding cannot be pickled.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, the sharding cannot divide a batch or a column of
        variable-length rows, or JAX does not support a dtype, such as datetimes. The
        error is raised before any thread starts if possible, otherwise by ``next()``.
    OverflowError
        If an integer does not fit in 32 bits, unless ``jax_enable_x64`` is on.

    Examples
    --------
    >>> sharding = NamedSharding(mesh, PartitionSpec("batch"))  # doctest: +SKIP
    >>> loader = fr.jax.loader(  # doctest: +SKIP
    ...     ds, batch_size=256, sharding=sharding, shuffle=True, drop_last=True
    ... )
    >>> for batch in loader:  # doctest: +SKIP
    ...     params, loss = step(params, batch)
    """
    n_ahead = non_negative_int("prefetch_to_device", prefetch_to_device)
    shard = ProcessShard.of(sharding)
    find_rank = partial(_rank, shard.place, not shard.is_local)
    made = loader_of("fr.jax.loader", source, batch_size, options, find_rank)
    shard.check(made)
    placed = partial(shard.placed, made.batch_size)
    return with_conversion(made, Conversion(placed, n_ahead))


def _rank(place: tuple[int, int] | None, is_shared: bool, known: Rank) -> Rank:
    """Return this process's Rank at `place`, or the one that `current_rank` finds.

    If arrays have rows of several processes (`is_shared`), a given rank must match.
    """
    if place is None or (known.is_given and not is_shared):
        return current_rank(known)
    return rank_in_group(known, place, "the sharding")


@dataclass(frozen=True)
class ProcessShard:
    """The rows of a global batch that a sharding assigns to this process."""

    sharding: Any
    place: tuple[int, int] | None  # rank and world size, if there are several processes
    n_shards: int = 1  # devices that divide the rows of this process
    is_global: bool = False  # whether arrays have rows of several ranks

    @classmethod
    def of(cls, sharding: Sharding) -> ProcessShard:
        """Return the shard of this process; raise an error for an invalid sharding."""
        if isinstance(sharding, jax.Device):
            sharding = jax.sharding.SingleDeviceSharding(sharding)
        index, n_processes = jax.process_index(), jax.process_count()
        alone = (index, n_processes) if n_processes > 1 else None
        if sharding is None:
            return cls(None, alone)
        if not isinstance(sharding, jax.sharding.Sharding):
            raise TypeError(
                "sharding must be a jax.sharding.Sharding, such as NamedSharding(mesh, "
                f'PartitionSpec("batch")), got {sharding!r}'
            )
        n_rows = len(sharding.device_set)
        try:
            indices = sharding.devices_indices_map((n_rows,))
        except (IndexError, ValueError) as error:
            raise ValueError(
                "sharding must divide rows and nothing else, such as NamedSharding("
                f'mesh, PartitionSpec("batch")), got {sharding}'
            ) from error
        held: dict[int, set[int]] = {}  # rows of each process
        for device, (rows,) in indices.items():
            held.setdefault(device.process_index, set()).update(range(n_rows)[rows])
        if index not in held:
            raise ValueError(f"sharding must have a device of this process: {sharding}")
        n = len(held[index])
        distinct = [set(range(begin, begin + n)) for begin in range(0, n_rows, n)]
        if not all(rows in distinct for rows in held.values()):
            raise ValueError(
                "processes must hold equal or disjoint ranges of adjacent rows, all of "
                f"one size, got {[*map(sorted, held.values())]} of {n_rows}: order the "
                f"devices of the mesh by process: {sharding}"
            )
        n_shards = n // len(range(n_rows)[rows])
        if sharding.is_fully_addressable:
            return cls(sharding, alone, n_shards)
        place = distinct.index(held[index]), len(distinct)
        return cls(sharding, place, n_shards, is_global=len(distinct) > 1)

    @property
    def is_local(self) -> bool:
        """Whether arrays have rows of this process only."""
        return self.sharding is None or bool(self.sharding.is_fully_addressable)

    def check(self, source: Loader) -> None:
        """Raise a ValueError if the sharding cannot divide the batches of a loader."""
        n_rows, n_shards = source.batch_size, self.n_shards
        is_full = source.drop_last or source.pad_last
        if self.is_global:
            n_shards *= source.world_size
            n_rows = n_rows and source._planner.global_batch_size
        if n_rows is not None and n_rows % n_shards:
            raise ValueError(_not_divided("a batch", n_rows, n_shards))
        if self.is_global:
            msg = "processes that share arrays must have batches of equal shapes, "
            if not is_full:
                msg += "including the last batch: pass drop_last=True or pad_last=True"
                raise ValueError(msg)
            if (name := _padded_column(source)) is not None:
                raise ValueError(
                    f"{msg}but column {name!r} is as wide as the longest row of each: pass "
                    "length= to its fr.FixedLenSequence, and truncate=True to cut rows"
                )
        is_divided = self.is_global or self.n_shards > 1
        may_shrink = source.dataset.on_error not in ("raise", "mask")
        if is_divided and may_shrink and not source.pad_last:
            raise ValueError(
                "cannot divide batches with skipped rows over devices: pass "
                'on_error="mask" or pad_last=True'
            )
        is_known = source.batch_size is not None and not source.dataset.is_streamed
        if self.n_shards == 1 or is_full or not is_known:
            return
        plan = source._plan()
        n_rows = len(plan.grid.positions(plan.n_steps - 1)) if plan.n_steps else 0
        if n_rows % self.n_shards:
            what = "the last batch"
            raise ValueError(_not_divided(what, n_rows, self.n_shards, _FULL))

    def placed(self, batch_size: int | None, batch: Batch) -> Batch:
        """Return a copy of a batch, with its numeric columns on devices."""
        found: Batch = {**batch}
        taken: list[tuple[Batch, str]] = []
        arrays: Any = []
        pending = [found]
        for columns in pending:  # including nested dicts
            for name, column in columns.items():
                if isinstance(column, dict):
                    columns[name] = inner = {**column}
                    pending.append(inner)
                elif _is_numeric(name, column):
                    taken.append((columns, name))
                    arrays.append(self._narrowed(name, column, batch_size))
        # One call for all arrays, so that JAX dispatches once.
        if self.is_local:
            arrays = jax.device_put(arrays, self.sharding)
        else:
            arrays = jax.tree.map(self._global_array, arrays)
        for (columns, name), array in zip(taken, arrays, strict=True):
            columns[name] = array
        return found

    def _narrowed(self, name: str, column: Any, batch_size: int | None) -> Any:
        """Return a column in a JAX dtype, or raise if its rows cannot be divided."""
        n_shards, is_global = self.n_shards, self.is_global
        if isinstance(column, RaggedArray | SparseArray):
            if n_shards == 1 and not is_global:
                return jax.tree.map(lambda part: _narrow(name, part, "value"), column)
            # Processes do not know each other's longest row.
            spec = "fr.FixedLenSequence" + " with length=" * is_global
            raise ValueError(
                f"column {name!r} has rows of any lengths, which cannot be divided over "
                f"devices: pad them ({spec}), or leave the column out (ds.select_columns)"
            )
        n_rows = len(column)
        if n_rows % n_shards:
            what = f"column {name!r}: a batch"
            hint = f"{_FULL}, and keep this row count in batches= and transform="
            raise ValueError(_not_divided(what, n_rows, n_shards, hint))
        if is_global and batch_size not in (None, n_rows):
            raise ValueError(
                f"column {name!r} must have {batch_size} rows, as in other "
                f"processes that share the array, got {n_rows}"
            )
        return _narrow(name, column, "row")

    def _global_array(self, array: Any) -> Any:
        _, n_ranks = self.place or (0, 1)
        shape = (len(array) * n_ranks, *array.shape[1:])
        return jax.make_array_from_process_local_data(self.sharding, array, shape)


def _padded_column(source: Loader) -> str | bytes | None:
    """Return the name of a column that batches pad to their longest row, or None."""
    padded = source.dataset._any_width_columns()
    if source._has_transforms or not padded:
        return None
    arrays = (
        name
        for name, column in source._empty_batch().items()
        if name in padded and isinstance(column, np.ndarray)
    )
    return next(arrays, None)


_FULL = ": pass drop_last=True or pad_last=True"


def _not_divided(what: str, n_rows: int, n_shards: int, hint: str = "") -> str:
    return f"{what} of {n_rows:,} rows cannot be divided over {n_shards} devices{hint}"


def _is_numeric(name: str, column: object) -> bool:
    """Return whether a column has numbers; raise an error if JAX lacks its dtype."""
    if isinstance(column, RaggedArray | SparseArray):
        return _is_numeric(name, column.values)
    if not isinstance(column, np.ndarray | jax.Array) or not column.ndim:
        return False
    dtype = column.dtype
    # NumPy reports bfloat16 and similar dtypes as raw data (kind "V").
    is_number = dtype.kind in "biufc" or (
        dtype.kind == "V" and jax.dtypes.issubdtype(dtype, np.number)
    )
    is_wide = dtype.itemsize > (16 if dtype.kind == "c" else 8)
    if is_number and dtype.isnative and not is_wide:
        return True
    raise TypeError(
        f"column {name!r}: JAX has no arrays of {dtype}: convert it in a transform, or "
        "leave it out with ds.select_columns([...])"
    )


def _narrow(name: str, array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Cast integers to JAX's dtype; raise an OverflowError if one does not fit."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if array.dtype.kind not in "iu" or array.dtype == dtype:
        return array
    narrow: npt.NDArray[Any] = array.astype(dtype)
    if not np.array_equal(narrow, array):
        place = tuple(np.argwhere(narrow != array)[0].tolist())
        raise OverflowError(
            f"column {name!r}, {what} {place[0]}: {array[place]} does not fit {dtype}, "
            "which JAX uses unless jax_enable_x64 is on: reduce it in a transform, "
            "or leave it out with ds.select_columns([...])"
        )
    return narrow


def _flatten(array: Any) -> tuple[list[Any], tuple[Any, ...]]:
    """Return the two arrays of a column, each with its key, and its other parts."""
    keys = map(jax.tree_util.GetAttrKey, array._parts)
    first, second, *rest = zip(keys, array._part_values(), strict=True)
    return [first, second], tuple(part for _, part in rest)


def _unflatten(cls: Any, rest: tuple[Any, ...], arrays: Iterable[Any]) -> Any:
    # JAX also passes tracers and placeholders, so do not check the arrays.
    return cls._wrap(*arrays, *rest)


for _cls in (RaggedArray, BytesArray, SparseArray):
    jax.tree_util.register_pytree_with_keys(_cls, _flatten, partial(_unflatten, _cls))
# Rows of a `Dataset` are a subclass of dict, which JAX would treat as a leaf.
jax.tree_util.register_pytree_node(
    ShortRow,
    lambda row: (list(row.values()), tuple(row)),
    lambda names, values: ShortRow(zip(names, values, strict=True)),
)
