"""Loading: a loader whose batches are tensors, on the CPU or on a device.

::

    files -> page-locked blocks --(a separate stream, one batch ahead)--> device tensors
               ^                                       |
               '--- when the copy is complete <--------'

Each block is page-locked once and reused for many batches. A block is recycled only after
its copy is complete.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.distributed

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.dataset.adapted import loader_of
from fastrec.dataset.dataset import Dataset
from fastrec.loader.loader import Loader
from fastrec.loader.options import LoaderKeywords
from fastrec.loader.prefetch import Conversion, with_conversion
from fastrec.loader.ranks import Rank, current_rank, rank_in_group
from fastrec.torch.accelerate import Announcer, warn_of_gathering
from fastrec.torch.blocks import block_tensors, copied, mapped, page_locked, view_at
from fastrec.torch.columns import (
    RaggedAs,
    TensorBatch,
    as_asked,
    check_ragged,
    tensors,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

_N_AHEAD = 1  # batches copied to the device before the loop requests them

# The maximum number of copies in progress. A loop that runs further ahead of its device
# waits for the oldest copy.
_UNDER_WAY_MAX = _N_AHEAD + 2


def loader(
    source: Dataset | Loader[Any],
    batch_size: int | None = None,
    *,
    device: torch.device | str | int | None = None,
    pin_memory: bool | None = None,
    ragged: RaggedAs = "offsets",
    process_group: torch.distributed.ProcessGroup | None = None,
    **options: Unpack[LoaderKeywords],
) -> Loader[TensorBatch]:
    """Return a loader whose batches are tensors.

    On the CPU, tensors share the memory of the batch, and nothing is copied. For a CUDA
    device, a separate stream copies each block of columns from page-locked memory, while
    the loop uses the previous batch. When a batch is delivered, only the current stream
    waits for its copy.

    Parameters
    ----------
    source : Dataset or Loader
        The data to read. A Loader is copied at its current position and is not changed;
        it must be passed without loader options. Transforms receive NumPy batches.
    batch_size : int, optional
        Rows in a batch of this rank, as for `fastrec.Dataset.loader`.
    device : torch.device, str or int, optional
        The device of the tensors, by default the CPU.
    pin_memory : bool, optional
        Whether to decode batches into page-locked memory, by default only for a CUDA
        device. Without a device, such memory is used for one batch and returns to torch,
        which tracks copies that the caller began with ``non_blocking=True``. Batches
        decoded into other memory are copied to page-locked memory.
    ragged : {"offsets", "nested"}, default "offsets"
        The result for a `RaggedArray`; see `tensors`.
    process_group : torch.distributed.ProcessGroup, optional
        The processes that divide the data, by default all of torch.distributed. For
        tensor or pipeline parallelism, pass ``mesh["dp"].get_group()``. An epoch begins
        with this process's rank and world size in the group, unless options set them.
    **options
        Options of `fastrec.Dataset.loader`, if `source` is a Dataset.

    Returns
    -------
    Loader
        A loader whose batches are dicts as returned by `tensors`. Its state counts the
        delivered batches, not the batches copied ahead.

    Raises
    ------
    TypeError, ValueError
        If an option is invalid, or `source` is a Loader and has loader options.
    ValueError
        If the rank passed to the loader differs from this process's rank in the group.
    RuntimeError
        If torch finds no GPU for a CUDA device, or has no page-locked memory for
        ``pin_memory=True``.

    Examples
    --------
    >>> batches = fr.torch.loader(  # doctest: +SKIP
    ...     ds, batch_size=256, shuffle=True, device="cuda"
    ... )
    >>> for batch in batches:  # doctest: +SKIP
    ...     loss = model(batch["image"]), batch["label"]
    """
    check_ragged(ragged)
    target = torch.device("cpu" if device is None else device)
    find_rank = GroupRank(process_group)
    loader = loader_of("fr.torch.loader", source, batch_size, options, find_rank)
    warn_of_gathering(loader)
    is_cuda = target.type == "cuda"
    if pin_memory is None:
        pin_memory = is_cuda
    if pin_memory:
        _check_page_locked(target)
    if is_cuda and pin_memory:
        copies = CopiesAhead(partial(SideStream, target), ragged)
        conversion = Conversion(copies.begin, _N_AHEAD, copies.finish)
    elif target.type != "cpu":
        conversion = Conversion(partial(_moved, device=target, ragged=ragged))
    else:
        convert = _pinned if pin_memory else tensors
        conversion = Conversion(partial(convert, ragged=ragged))
    conversion = dataclasses.replace(conversion, announce=Announcer())
    result = with_conversion(loader, conversion)
    if pin_memory and target.type in ("cpu", "cuda"):
        result._allocate_by(page_locked, recycles=is_cuda)
    return result


def _check_page_locked(target: torch.device) -> None:
    """Raise a RuntimeError before the loop if page-locked memory is unavailable."""
    exists = target.type == "cuda" and torch.cuda.is_available()
    try:
        # Without the context, torch would initialise the first GPU, too.
        with torch.cuda.device(target if exists else -1):
            page_locked(1)
    except RuntimeError as error:
        if target.type != "cuda" or exists:
            raise
        raise RuntimeError(
            f"cannot copy batches to device {str(target)!r}: torch finds no NVIDIA or AMD "
            "GPU; leave out the device for tensors on the CPU"
        ) from error


def _moved(batch: Batch, device: torch.device, ragged: RaggedAs) -> Batch:
    columns, _ = copied(batch, lambda source: source.to(device))
    return as_asked(columns, ragged)


def _pinned(batch: Batch, ragged: RaggedAs) -> Batch:
    """Return tensors in page-locked memory; copy only tensors in other memory."""
    blocks = [block for block in block_tensors(batch) if block.is_foreign]

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            # Torch tracks uses of its own tensors only, not of NumPy's views of them.
            if (begin := block.place(tensor)) is not None:
                return view_at(block.bytes, tensor, begin)
        return tensor.pin_memory()

    return as_asked(mapped(tensors(batch), pinned), ragged)


class SideStream:
    """A separate CUDA stream for copies to the device."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._device = self._stream.device  # with its index, whatever is current later

    def begin(self) -> None:
        """Make later copies wait for the computation so far, to bound device memory."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def copied(self, source: torch.Tensor) -> torch.Tensor:
        """Start to copy a tensor to the device, and return the copy."""
        if source.device.type == "cpu" and source.nbytes and not source.is_pinned():
            # A copy from pageable memory blocks the caller until the stream reaches it.
            # Torch keeps the pinned copy while it is read.
            source = source.pin_memory()
        current = torch.cuda.current_stream()
        on_device = torch.cuda.current_stream(self._device)
        try:
            with torch.cuda.stream(self._stream):
                return source.to(self._device, non_blocking=True)
        except BaseException:
            # A signal may have interrupted the context before it restored the streams.
            torch.cuda.set_stream(on_device)
            torch.cuda.set_stream(current)
            raise

    def mark(self) -> torch.cuda.Event:
        """Record and return an event that completes after all copies so far."""
        return self._stream.record_event(torch.cuda.Event(blocking=True))

    def join(self, event: torch.cuda.Event, copies: list[torch.Tensor]) -> None:
        """Make the current stream wait for `event`, and mark `copies` as used by it."""
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        for copy in copies:
            copy.record_stream(current)  # allocated on the copy stream

    def finish(self) -> None:
        """Wait until all copies are complete."""
        self._stream.synchronize()


@dataclass
class _UnderWay:
    """A batch that is being copied; `event` is set once all its copies have begun."""

    batch: Batch
    event: Any = None


# The columns of a batch on the device, the copied memory, and the event after the copies.
_Arriving: TypeAlias = "tuple[Batch, list[torch.Tensor], Any]"


class CopiesAhead:
    """Copies batches to a device during computation; any thread may begin a copy.

    A batch is kept until its copies are complete, so that its memory is not reused.
    """

    def __init__(self, side: Callable[[], SideStream], ragged: RaggedAs) -> None:
        self._make_side = side
        self._ragged = ragged
        self._lock = threading.Lock()
        self._side: SideStream | None = None
        self._under_way: deque[_UnderWay] = deque()  # the oldest first

    def __reduce__(self) -> tuple[object, ...]:
        return CopiesAhead, (self._make_side, self._ragged)

    def begin(self, batch: Batch) -> _Arriving:
        """Begin to copy a batch; return its columns, copies and event."""
        # The consumer may have left an inference mode on.
        with _core.HeldLock(self._lock), torch.inference_mode(False):
            if self._side is None:
                side = self._make_side()
                weakref.finalize(self, _wait, side, self._under_way, os.getpid())
                self._side = side
            side = self._side
            self._release(side)
            under_way = _UnderWay(dict(batch))
            self._under_way.append(under_way)
            side.begin()
            columns, copies = copied(batch, side.copied)
            under_way.event = side.mark()
            return columns, copies, under_way.event

    def finish(self, arriving: _Arriving) -> Batch:
        """Return the columns on the device; later computation waits for the copies."""
        assert self._side is not None
        columns, copies, event = arriving
        self._side.join(event, copies)
        return as_asked(columns, self._ragged)

    def _release(self, side: SideStream) -> None:
        """Release the batches whose copies are complete; wait if too many are not."""
        while self._under_way:
            oldest = self._under_way[0]
            if oldest.event is None:  # a signal came while its copies were begun
                side.finish()
            elif len(self._under_way) >= _UNDER_WAY_MAX:
                oldest.event.synchronize()
            elif not oldest.event.query():
                return
            self._under_way.popleft()


def _wait(side: SideStream, under_way: deque[_UnderWay], process_id: int) -> None:
    # A forked process has neither the device nor the copies.
    if under_way and os.getpid() == process_id:
        side.finish()
        under_way.clear()


@dataclass(frozen=True)
class GroupRank:
    """Finds the rank of this process in a group, and rejects a different given rank."""

    process_group: torch.distributed.ProcessGroup | None
    keeps: bool = False  # keep the rank of the loader

    def __call__(self, known: Rank) -> Rank:
        """Return the rank of this process, or `known` if `keeps` is set."""
        distributed = torch.distributed
        if self.keeps:
            return known
        if not (distributed.is_available() and distributed.is_initialized()):
            return current_rank(known)
        rank = distributed.get_rank(self.process_group)
        if rank < 0:
            raise ValueError(
                "this process is not in process_group: pass a group that contains this "
                "process and all ranks that divide the data"
            )
        place = rank, distributed.get_world_size(self.process_group)
        if self.process_group is not None:
            return rank_in_group(known, place, "process_group")
        hint = (
            ". If several ranks train on the same rows (tensor or pipeline parallelism), "
            "pass process_group="
        )
        return rank_in_group(known, place, "torch.distributed", hint)

    def __reduce__(self) -> tuple[object, ...]:
        # Another process cannot use the group, so a pickled loader keeps its rank.
        return GroupRank, (None, self.keeps or self.process_group is not None)
