"""Blocks: which memory of a loader's the tensors of a batch lie in.

A batch has few blocks for many columns. What is to be done to memory, such as a copy to a
device, is done to whole blocks, and the tensors are found again in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastrec import _core
from fastrec.arrays.batch import BytesArray, RaggedArray, SparseArray
from fastrec.torch.columns import Jagged

__all__ = ["BlockTensor", "block_tensors", "mapped", "page_locked"]

_ALIGNMENT = 64  # of columns in a block, so that any dtype can be seen there


def page_locked(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return page-locked memory, which torch keeps and uses again: an allocator."""
    # Memory outlives the modes that torch may be in now.
    with torch.inference_mode(False):
        memory = _locked(n_bytes)
        begin = -memory.data_ptr() % _ALIGNMENT
        if begin:  # torch can be told to lock what malloc returns
            memory = _locked(n_bytes + _ALIGNMENT)
            begin = -memory.data_ptr() % _ALIGNMENT
        array: npt.NDArray[np.uint8] = memory[begin : begin + n_bytes].numpy()
    return array


def _locked(n_bytes: int) -> torch.Tensor:
    return torch.empty(n_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)


class BlockTensor:
    """A block as a tensor of bytes, and tensors that lie in it.

    Attributes
    ----------
    bytes : torch.Tensor of uint8
        The whole block. Where an allocator made its memory, it is the allocator's own
        tensor, whose uses torch keeps track of.
    is_foreign : bool
        Whether an allocator made its memory.
    """

    def __init__(self, block: _core.Block) -> None:
        self._address = block.address
        memory = block.memory
        self.is_foreign = memory is not None
        self.bytes: torch.Tensor = (
            torch.frombuffer(block, dtype=torch.uint8)
            if memory is None
            else memory.base
        )
        self._begin = block.size
        self._end = 0

    def place(self, tensor: torch.Tensor) -> int | None:
        """Return at which byte of the block a tensor begins, if it lies there whole."""
        begin: int = tensor.data_ptr() - self._address
        is_inside = begin >= 0 and begin + tensor.nbytes <= len(self.bytes)
        is_aligned = begin % tensor.element_size() == 0
        return begin if is_inside and is_aligned and tensor.is_contiguous() else None

    def add(self, begin: int, n_bytes: int) -> None:
        """Have `used` reach over `n_bytes` from `begin`, too."""
        self._begin = min(self._begin, begin // _ALIGNMENT * _ALIGNMENT)
        self._end = max(self._end, begin + n_bytes)

    @property
    def is_used(self) -> bool:
        """Whether a tensor was added."""
        return self._begin <= self._end

    @property
    def used(self) -> torch.Tensor:
        """The bytes from the first tensor that was added to the end of the last one."""
        return self.bytes[self._begin : self._end]

    def view_in(
        self, copied: torch.Tensor, tensor: torch.Tensor, begin: int
    ) -> torch.Tensor:
        """Return `tensor`, which begins at `begin`, as it is in a copy of `used`."""
        return view_at(copied, tensor, begin - self._begin)


def view_at(memory: torch.Tensor, tensor: torch.Tensor, begin: int) -> torch.Tensor:
    """Return the bytes of `memory` from `begin` as a tensor like `tensor`."""
    found = memory[begin : begin + tensor.nbytes]
    return found.view(tensor.dtype).view(tensor.shape)


def block_tensors(batch: Mapping[str, Any]) -> list[BlockTensor]:
    """Return the blocks that columns of a batch lie in."""
    blocks = {}
    for column in batch.values():
        for array in _arrays(column):
            owner: Any = array
            while isinstance(owner, np.ndarray):
                owner = owner.base
            if isinstance(owner, _core.Block):
                blocks[owner.address] = owner
    return [BlockTensor(block) for block in blocks.values()]


def _arrays(column: Any) -> Iterator[np.ndarray[Any, Any]]:  # noqa: ANN401
    if isinstance(column, np.ndarray):
        yield column
    elif isinstance(column, RaggedArray):
        yield from _arrays(column.values)
        yield column.row_splits
    elif isinstance(column, SparseArray) and not isinstance(column.values, BytesArray):
        yield from (column.indices, column.values)


def mapped(
    columns: Mapping[str, Any], function: Callable[[torch.Tensor], torch.Tensor]
) -> dict[str, Any]:
    """Return columns with what `function` makes of each of their tensors."""
    return {name: _mapped(column, function) for name, column in columns.items()}


def _mapped(
    column: Any,  # noqa: ANN401 (what a batch holds)
    function: Callable[[torch.Tensor], torch.Tensor],
) -> Any:  # noqa: ANN401
    if isinstance(column, Jagged):
        return column.map(function)
    if isinstance(column, list):
        return [_mapped(value, function) for value in column]
    if not isinstance(column, torch.Tensor):
        return column
    if column.layout == torch.sparse_coo:
        indices, values = function(column._indices()), function(column._values())
        return torch.sparse_coo_tensor(
            indices,
            values,
            column.shape,
            device=values.device,
            check_invariants=False,  # it was one before
        )
    return function(column)
