"""Blocks: pieces of memory that each hold many columns of a batch.

A block is copied to a device as a whole, and the tensors become views of the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastrec import _core
from fastrec.arrays.batch import Batch, BytesArray, RaggedArray, SparseArray
from fastrec.torch.columns import Jagged, tensors

_ALIGNMENT = 64  # of columns in a block, enough for any dtype


def page_locked(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return `n_bytes` of page-locked memory, which torch recycles."""
    # The memory may outlive an inference mode of the caller.
    with torch.inference_mode(False):
        memory = _locked(n_bytes)
        begin = -memory.data_ptr() % _ALIGNMENT
        if begin:  # torch may be configured to lock memory from malloc
            memory = _locked(n_bytes + _ALIGNMENT)
            begin = -memory.data_ptr() % _ALIGNMENT
        array: npt.NDArray[np.uint8] = memory[begin : begin + n_bytes].numpy()
    return array


def _locked(n_bytes: int) -> torch.Tensor:
    return torch.empty(n_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)


class BlockTensor:
    """The memory of a block as a tensor of bytes."""

    def __init__(self, block: _core.Block) -> None:
        self._address = block.address
        memory = block.memory
        self.is_foreign = memory is not None  # whether the memory is an adapter's
        # Torch tracks uses of the allocator's own tensor only.
        self.bytes: torch.Tensor = (
            torch.frombuffer(block, dtype=torch.uint8)
            if memory is None
            else memory.base
        )

    def place(self, tensor: torch.Tensor) -> int | None:
        """Return a tensor's offset in the block; None if it cannot be a view of it."""
        begin: int = tensor.data_ptr() - self._address
        is_inside = begin >= 0 and begin + tensor.nbytes <= len(self.bytes)
        is_aligned = begin % tensor.element_size() == 0
        return begin if is_inside and is_aligned and tensor.is_contiguous() else None


def view_at(memory: torch.Tensor, tensor: torch.Tensor, begin: int) -> torch.Tensor:
    """View `memory` at `begin` as a tensor with the dtype and shape of `tensor`."""
    found = memory[begin : begin + tensor.nbytes]
    return found.view(tensor.dtype).view(tensor.shape)


def block_tensors(batch: Mapping[str, Any]) -> list[BlockTensor]:
    """Return a BlockTensor for each block of memory that holds columns of `batch`."""
    blocks = {}
    for column in batch.values():
        for array in _arrays(column):
            owner: Any = array
            while isinstance(owner, np.ndarray):
                owner = owner.base
            if isinstance(owner, _core.Block):
                blocks[owner.address] = owner
    return [BlockTensor(block) for block in blocks.values()]


def _arrays(column: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(column, np.ndarray):
        yield column
    elif isinstance(column, RaggedArray):
        yield from _arrays(column.values)
        yield column.row_splits
    elif isinstance(column, SparseArray) and not isinstance(column.values, BytesArray):
        yield from (column.indices, column.values)


def copied(
    batch: Batch, copy: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[Batch, list[torch.Tensor]]:
    """Copy each block of a batch with `copy`; return the new columns and all copies."""
    blocks = block_tensors(batch)
    columns = tensors(batch)
    places: list[tuple[BlockTensor, int] | None] = []
    ends: dict[BlockTensor, tuple[int, int]] = {}  # the used range of each block

    def find(tensor: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            if (begin := block.place(tensor)) is not None:
                low, high = ends.get(block, (begin, begin))
                low = min(low, begin // _ALIGNMENT * _ALIGNMENT)
                ends[block] = low, max(high, begin + tensor.nbytes)
                places.append((block, begin))
                return tensor
        places.append(None)
        return tensor

    mapped(columns, find)
    whole = {block: copy(block.bytes[low:high]) for block, (low, high) in ends.items()}
    copies = [*whole.values()]
    next_place = iter(places)

    def take(tensor: torch.Tensor) -> torch.Tensor:
        if (place := next(next_place)) is None:
            copies.append(copy(tensor))
            return copies[-1]
        block, begin = place
        return view_at(whole[block], tensor, begin - ends[block][0])

    return mapped(columns, take), copies


def mapped(
    columns: Mapping[str, Any], function: Callable[[torch.Tensor], torch.Tensor]
) -> dict[str, Any]:
    """Return the columns with `function` applied to each tensor.

    Offsets that several columns share are passed to `function` only once.
    """
    known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in known:  # `known` keeps tensors, so ids are unique
            known[id(tensor)] = tensor, function(tensor)
        return known[id(tensor)][1]

    return {name: _mapped(column, once) for name, column in columns.items()}


def _mapped(
    column: Any,
    function: Callable[[torch.Tensor], torch.Tensor],
) -> Any:
    if isinstance(column, Jagged):
        return column.map(function)
    if isinstance(column, list):
        return [_mapped(value, function) for value in column]
    if not isinstance(column, torch.Tensor):
        return column
    if column.layout == torch.sparse_coo:
        indices, values = function(column._indices()), function(column._values())
        return torch.sparse_coo_tensor(
            indices, values, column.shape, device=values.device, check_invariants=False
        )
    return function(column)
