"""Columns: convert NumPy columns to tensors that share the memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from fastrec.arrays.batch import Batch, BytesArray, RaggedArray, SparseArray
from fastrec.features.base import numpy_dtype

RaggedAs: TypeAlias = Literal["offsets", "nested"]

# Columns by name. Any stands for Jagged, BytesArray and lists: see `tensors`.
TensorBatch: TypeAlias = "dict[str, torch.Tensor | Any]"

# Types that torch shares with NumPy, in the byte order of this machine.
_DTYPES = {
    *map(np.dtype, ("bool", "uint8", "int8", "int16", "int32", "int64")),
    *map(np.dtype, ("float32", "float64")),
}

# Types of ml_dtypes, whose bits are passed as integers.
_BITS = {
    "bfloat16": np.int16,
    "float8_e4m3fn": np.uint8,
    "float8_e4m3fnuz": np.uint8,
    "float8_e5m2": np.uint8,
    "float8_e5m2fnuz": np.uint8,
}


@dataclass(frozen=True, eq=False)
class Jagged:
    """Variable-length rows as tensors, in the jagged layout of `torch.nested`.

    Attributes
    ----------
    values : torch.Tensor of shape ``(n, *inner)``, or Jagged
        The values of all rows, concatenated; a Jagged if each row is a list of lists.
    offsets : torch.Tensor of int64 or int32, shape (rows + 1,)
        Row ``i`` is ``values[offsets[i]:offsets[i + 1]]``.
    """

    values: torch.Tensor | Jagged
    offsets: torch.Tensor

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> torch.Tensor:
        """The number of values in each row, shape ``(rows,)``."""
        return self.offsets.diff()

    def to(
        self, device: torch.device | str | int, non_blocking: bool = False
    ) -> Jagged:
        """Return the same rows on `device`, as `torch.Tensor.to` does."""
        return self.map(lambda part: part.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Jagged:
        """Return the same rows in page-locked memory; a DataLoader calls this method."""
        return self.map(lambda part: part.pin_memory())

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Jagged:
        """Return a Jagged with `function` applied to the values, then to the offsets."""
        values = self.values
        return Jagged(
            values.map(function) if isinstance(values, Jagged) else function(values),
            function(self.offsets),
        )

    def nested(self) -> torch.Tensor:
        """Return a nested tensor of layout ``torch.jagged`` that shares the memory.

        Raises
        ------
        TypeError
            If rows are lists of lists: `torch.nested` supports one ragged dimension.
        """
        if isinstance(self.values, Jagged):
            raise TypeError(
                "cannot convert lists of lists to a nested tensor: torch.nested has one "
                'ragged dimension; pass ragged="offsets" to get a Jagged'
            )
        return torch.nested.nested_tensor_from_jagged(self.values, self.offsets)


def check_ragged(ragged: object) -> RaggedAs:
    """Return `ragged` if it is valid, or raise a ValueError."""
    if ragged not in ("offsets", "nested"):
        raise ValueError(f'ragged must be "offsets" or "nested", got {ragged!r}')
    return ragged


def tensors(batch: Mapping[str, Any], ragged: RaggedAs = "offsets") -> TensorBatch:
    """Return the columns of a batch as tensors.

    Tensors share the memory of the arrays and keep it alive. Only read-only arrays and
    arrays with unsupported strides are copied; transforms may return such arrays.

    Parameters
    ----------
    batch : mapping of str to column
        The columns by name, such as a batch of a loader.
    ragged : {"offsets", "nested"}, default "offsets"
        Convert a `RaggedArray` to a `Jagged` ("offsets") or to a nested tensor with one
        ragged dimension and layout ``torch.jagged`` ("nested"). Columns with equal row
        lengths share one tensor of offsets, so that torch can add the nested tensors.

    Returns
    -------
    dict
        A `torch.Tensor` for an ndarray, a sparse COO tensor for a `SparseArray`, a list
        of tensors for an object array of arrays. Torch has no byte strings, so columns
        with a `BytesArray` stay unchanged, like columns that are not arrays.

    Raises
    ------
    TypeError
        If torch does not support a column's dtype or byte order, or cannot nest its
        rows. The message names the column.
    """
    if ragged != "offsets":
        check_ragged(ragged)
    columns: TensorBatch = {}
    known: list[torch.Tensor] = []
    for name, column in batch.items():
        if type(column) is np.ndarray and column.dtype in _DTYPES:
            flags = column.flags
            if flags.writeable and flags.c_contiguous:  # nearly always
                columns[name] = torch.from_numpy(column)
                continue
        made = _named(name, _of, column)
        if isinstance(made, Jagged):
            equal = (offsets for offsets in known if offsets.equal(made.offsets))
            offsets = next(equal, made.offsets)
            if offsets is made.offsets:
                known.append(offsets)
            made = Jagged(made.values, offsets)
        columns[name] = made
    return as_asked(columns, ragged)


def as_asked(columns: Batch, ragged: RaggedAs) -> Batch:
    """Convert `Jagged` columns to nested tensors if `ragged` is "nested"."""
    if ragged == "offsets":
        return columns
    return {
        name: _named(name, column.nested) if isinstance(column, Jagged) else column
        for name, column in columns.items()
    }


def as_nested(rows: RaggedArray) -> torch.Tensor:
    """Return a nested tensor of layout ``torch.jagged`` that shares the memory of `rows`.

    The same conversion of all columns of a batch is `tensors` with ``ragged="nested"``.

    Parameters
    ----------
    rows : RaggedArray of numbers with one ragged dimension
        Its values may have further dimensions of fixed sizes.

    Raises
    ------
    TypeError
        If rows are byte strings or lists of lists, or torch does not support the dtype.

    Examples
    --------
    >>> nested = fr.torch.as_nested(batch["steps/action"])  # doctest: +SKIP
    >>> nested.shape  # doctest: +SKIP
    torch.Size([32, j1, 7])
    """
    jagged = _of(rows)
    if not isinstance(jagged, Jagged):
        raise TypeError(f"rows must be a RaggedArray of numbers, got {rows!r}")
    return jagged.nested()


def as_ragged(rows: torch.Tensor | Jagged) -> RaggedArray:
    """Return variable-length rows as a RaggedArray; the inverse of `as_nested`.

    Parameters
    ----------
    rows : nested tensor of layout ``torch.jagged``, or Jagged
        The second dimension of a nested tensor must be the ragged one. Memory on the CPU
        is shared; rows that are not adjacent, as of `torch.nested.narrow`, are copied.

    Raises
    ------
    TypeError
        If `rows` is another tensor, or NumPy does not support its dtype.

    Examples
    --------
    >>> out = model(fr.torch.as_nested(batch["tokens"]))  # doctest: +SKIP
    >>> fr.torch.as_ragged(out).to_padded()  # doctest: +SKIP
    """
    if isinstance(rows, Jagged):
        values = rows.values
        inner = as_ragged(values) if isinstance(values, Jagged) else _array(values)
        return RaggedArray(inner, _array(rows.offsets))
    nested: Any = rows
    if not (isinstance(nested, torch.Tensor) and nested.layout == torch.jagged):
        raise TypeError(
            "rows must be a Jagged or a nested tensor of layout torch.jagged, got "
            f"{getattr(nested, 'layout', nested)!r}"
        )
    if not isinstance(nested.shape[1], torch.SymInt):
        raise TypeError(
            f"the second dimension must be ragged, got shape {tuple(nested.shape)}"
        )
    if nested.lengths() is not None:  # gaps between the rows
        nested = nested.contiguous()
    return RaggedArray(_array(nested.values()), _array(nested.offsets()))


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return a tensor as an array, which shares memory on the CPU."""
    tensor, name = tensor.detach().cpu(), str(tensor.dtype).removeprefix("torch.")
    bits = _BITS.get(name)
    if bits is not None:
        tensor = tensor.view(getattr(torch, np.dtype(bits).name))
    array: npt.NDArray[Any] = tensor.numpy()
    return array if bits is None else array.view(numpy_dtype(name))


def _named(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except TypeError as error:
        raise TypeError(f"column {name!r}: {error}") from None


def _of(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        if column.dtype == object:
            return [_of(value) for value in column]
        return _tensor(column)
    if isinstance(column, RaggedArray) and not isinstance(
        column._flat_values, BytesArray
    ):
        return _jagged(column)
    if isinstance(column, SparseArray) and not isinstance(column.values, BytesArray):
        return torch.sparse_coo_tensor(
            _tensor(column.indices).t(),
            _tensor(column.values),
            column.dense_shape,
            device="cpu",
            check_invariants=False,  # SparseArray has checked them
        )
    return column


def _jagged(column: RaggedArray) -> Jagged:
    values: Any = column.values  # not bytes
    return Jagged(
        _jagged(values) if isinstance(values, RaggedArray) else _tensor(values),
        _tensor(column.row_splits),
    )


def _has_strides(array: npt.NDArray[Any]) -> bool:
    """Return whether torch supports the strides of an array."""
    size = max(1, array.dtype.itemsize)
    return all(n >= 0 and n % size == 0 for n in array.strides)


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    flags, dtype = array.flags, array.dtype
    if not (flags.writeable and (flags.c_contiguous or _has_strides(array))):
        array = array.copy()  # tensors are always writable
    if not dtype.isnative:
        raise TypeError(
            f"torch does not support this byte order ({dtype.str}): let a transform "
            f'call .astype("{dtype.name}")'
        )
    try:
        return torch.from_numpy(array)
    except TypeError:
        known = getattr(torch, dtype.name, None) if dtype.name in _BITS else None
    if known is not None:
        return torch.from_numpy(array.view(_BITS[dtype.name])).view(known)
    raise TypeError(
        f"torch has no dtype for {dtype}: convert the column in a transform, or leave it "
        "out with ds.select_columns([...])"
    )
