"""Loading: a loader whose batches are tensors, on the CPU or on a device.

::

    files -> page-locked blocks --(a stream of its own, one batch ahead)--> device tensors
               ^                                       |
               '--- once the copy has been made <------'

Blocks are page-locked once and used for batch after batch. A block goes back only when
the event behind its copy has come to pass.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fastrec.arrays.batch import Batch
from fastrec.dataset.dataset import Dataset
from fastrec.loader.adapting import fed
from fastrec.loader.loader import Loader
from fastrec.loader.prefetch import Feed
from fastrec.torch.blocks import (
    BlockTensor,
    block_tensors,
    mapped,
    page_locked,
    view_at,
)
from fastrec.torch.columns import Jagged, RaggedAs, check_ragged, tensors
from fastrec.torch.ranks import check_group
from fastrec.torch.source import loader_of

__all__ = ["loader"]

_N_AHEAD = 1  # batches on their way to the device, or there, before they are asked for

# Copies that may be under way at once. A loop that runs ahead of its device by more steps
# waits for the oldest.
_MOST_UNDER_WAY = _N_AHEAD + 2


def loader(
    source: Dataset | Loader,
    device: torch.device | str | int | None = None,
    *,
    pin_memory: bool | None = None,
    ragged: RaggedAs = "offsets",
    process_group: torch.distributed.ProcessGroup | None = None,
    **options: Any,  # noqa: ANN401 (those of Dataset.loader)
) -> Loader:
    """Return a loader whose batches are tensors.

    On the CPU, tensors share the memory of the batch, and nothing is copied. To a CUDA
    device, the columns of a batch that share a block of memory go in one copy, from
    page-locked memory, on a stream of its own, while the batch before is computed with.
    Nothing waits for the copy but the stream that is current when the batch is
    delivered.

    Parameters
    ----------
    source : Dataset or Loader
        What is read. A Loader is copied at its current position and stays there; its
        transforms see NumPy batches.
    device : torch.device, str or int, optional
        Where tensors are to be; the CPU by default.
    pin_memory : bool, optional
        Whether batches are decoded into page-locked memory; by default, for a CUDA
        device. Without a device, memory is then used for one batch only and goes back to
        torch, which knows of copies that the caller began with ``non_blocking=True``.
        The first batches, before there is such memory, are copied to it.
    ragged : {"offsets", "nested"}, default "offsets"
        What a `RaggedArray` becomes; see `tensors`.
    process_group : torch.distributed.ProcessGroup, optional
        The processes that share the epoch, if not all of torch.distributed do; see
        `check_group`. A Dataset takes rank and world size from it.
    **options
        Of `fastrec.Dataset.loader`, for a Dataset: ``batch_size=256``.

    Returns
    -------
    Loader
        Its batches are dicts as `tensors` returns them; `BytesArray` columns are there
        as they were. State counts the batches that were delivered, not those ahead.

    Raises
    ------
    TypeError, ValueError
        If an option is invalid, or `source` is a Loader and there are options.
    ValueError
        If the rank of the loader is not that of this process in its group.
    RuntimeError
        If torch finds no GPU for a CUDA device, or has no page-locked memory for
        ``pin_memory=True``.

    Examples
    --------
    >>> batches = fr.torch.loader(
    ...     ds.loader(256, shuffle=True), "cuda"
    ... )  # doctest: +SKIP
    >>> for batch in batches:  # doctest: +SKIP
    ...     loss = model(batch["image"]), batch["label"]
    """
    check_ragged(ragged)
    target = torch.device("cpu" if device is None else device)
    example = "as in fr.torch.loader(ds.loader(256), device)"
    loader = loader_of("fr.torch.loader", source, options, process_group, example)
    check_group(loader, process_group)
    if pin_memory is None:
        pin_memory = target.type == "cuda"
    if pin_memory:
        _check_page_locked(target)
    if target.type == "cuda" and pin_memory:
        copies = CopiesAhead(functools.partial(SideStream, target), ragged)
        result = fed(loader, Feed(copies.begin, _N_AHEAD, copies.finish))
        result._allocate_by(page_locked, recycles=True)
        return result
    if target.type != "cpu":
        return fed(
            loader, Feed(functools.partial(_moved, device=target, ragged=ragged))
        )
    if pin_memory:
        result = fed(loader, Feed(functools.partial(_pinned, ragged=ragged)))
        result._allocate_by(page_locked, recycles=False)
        return result
    return fed(loader, Feed(functools.partial(tensors, ragged=ragged)))


def _check_page_locked(target: torch.device) -> None:
    """Raise a RuntimeError now, rather than in the loop, without page-locked memory."""
    is_there = target.type == "cuda" and torch.cuda.is_available()
    try:
        # Without the context, torch would initialise the first GPU too.
        with torch.cuda.device(target if is_there else -1):
            page_locked(1)
    except RuntimeError as error:
        if target.type != "cuda" or is_there:
            raise
        msg = (
            f"cannot copy batches to device {str(target)!r}: torch finds no NVIDIA or AMD "
            "GPU; leave out the device for tensors on the CPU"
        )
        raise RuntimeError(msg) from error


def _as_asked(columns: Batch, ragged: RaggedAs) -> Batch:
    if ragged == "offsets":
        return columns
    return {
        name: column.nested() if isinstance(column, Jagged) else column
        for name, column in columns.items()
    }


def _moved(batch: Batch, device: torch.device, ragged: RaggedAs) -> Batch:
    columns, _ = _copied(batch, lambda source: source.to(device))
    return _as_asked(columns, ragged)


def _pinned(batch: Batch, ragged: RaggedAs) -> Batch:
    """Return tensors in page-locked memory, most of which is there already."""
    blocks = [block for block in block_tensors(batch) if block.is_foreign]

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            # Torch follows the uses of its own tensors only, not of views by NumPy.
            if (begin := block.place(tensor)) is not None:
                return view_at(block.bytes, tensor, begin)
        return tensor.pin_memory()

    return _as_asked(mapped(tensors(batch), pinned), ragged)


def _copied(
    batch: Batch, copy: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[Batch, list[torch.Tensor]]:
    """Copy the tensors of a batch, those that share a block in one go.

    Returns the columns, and what `copy` returned for blocks and for tensors in none.
    """
    blocks = block_tensors(batch)
    columns = tensors(batch)
    places: list[tuple[BlockTensor, int] | None] = []

    def find(tensor: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            if (begin := block.place(tensor)) is not None:
                block.add(begin, tensor.nbytes)
                places.append((block, begin))
                return tensor
        places.append(None)
        return tensor

    mapped(columns, find)
    copies = {id(block): copy(block.used) for block in blocks if block.is_used}
    loose: list[torch.Tensor] = []
    next_place = iter(places)

    def take(tensor: torch.Tensor) -> torch.Tensor:
        if (place := next(next_place)) is None:
            loose.append(copy(tensor))
            return loose[-1]
        block, begin = place
        return block.view_in(copies[id(block)], tensor, begin)

    columns = mapped(columns, take)
    return columns, [*copies.values(), *loose]


class Side(Protocol):
    """Where copies are made, beside what is computed."""

    def begin(self) -> None:
        """Have the copies that follow wait for what is being computed now."""

    def copied(self, source: torch.Tensor) -> torch.Tensor:
        """Begin to copy memory, and return where it goes."""

    def mark(self) -> Any:  # noqa: ANN401
        """Return an event behind the copies that were begun."""

    def join(self, event: Any, copies: list[torch.Tensor]) -> None:  # noqa: ANN401
        """Have what is computed from now on wait for `event`, and keep its copies."""

    def finish(self) -> None:
        """Wait for all copies."""


class SideStream:
    """A stream of a CUDA device, beside the one that is current there."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._device = self._stream.device  # with its index, whatever is current later

    def begin(self) -> None:
        """Have the copies that follow wait for what is being computed now.

        So a loop that runs ahead of its device does not fill it with batches.
        """
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def copied(self, source: torch.Tensor) -> torch.Tensor:
        """Begin to copy memory, and return where it goes."""
        if source.device.type == "cpu" and source.nbytes and not source.is_pinned():
            # A copy from other memory holds up the caller until the stream comes to it.
            # Torch keeps this one for as long as it is read.
            source = source.pin_memory()
        current = torch.cuda.current_stream()
        beside = torch.cuda.current_stream(self._device)
        try:
            with torch.cuda.stream(self._stream):
                return source.to(self._device, non_blocking=True)
        except BaseException:
            # A signal may have left the context with its stream still set.
            torch.cuda.set_stream(beside)
            torch.cuda.set_stream(current)
            raise

    def mark(self) -> torch.cuda.Event:
        """Return an event behind the copies that were begun."""
        return self._stream.record_event(torch.cuda.Event(blocking=True))

    def join(self, event: torch.cuda.Event, copies: list[torch.Tensor]) -> None:
        """Have what is computed from now on wait for `event`, and keep its copies."""
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        for copied in copies:
            copied.record_stream(current)  # memory of the other stream's

    def finish(self) -> None:
        """Wait for all copies."""
        self._stream.synchronize()


@dataclass
class _UnderWay:
    """A batch whose memory is being copied; no event yet while copies are begun."""

    batch: Batch
    event: Any = None


@dataclass(frozen=True)
class _Arriving:
    """What a batch becomes on the device, once `event` has come to pass."""

    columns: Batch
    copies: list[torch.Tensor]
    event: Any


class CopiesAhead:
    """Copies batches to a device, beside what is computed there.

    A batch is kept until its copies were made, also if the consumer has it or does not
    want it any more: its memory would be decoded into meanwhile. Any thread may begin.
    """

    def __init__(self, side: Callable[[], Side], ragged: RaggedAs) -> None:
        self._make_side = side
        self._ragged = ragged
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._side: Side | None = None
        self._under_way: deque[_UnderWay] = deque()  # the oldest first

    def __getstate__(self) -> dict[str, Any]:
        return {"_make_side": self._make_side, "_ragged": self._ragged}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def begin(self, batch: Batch) -> _Arriving:
        """Begin to copy a batch."""
        # The mode may be that of the batch before: of its evaluation, say.
        with self._lock, torch.inference_mode(False):
            if self._side is None:
                side = self._make_side()
                weakref.finalize(self, _wait, side, self._under_way, os.getpid())
                self._side = side
            side = self._side
            self._let_go()
            under_way = _UnderWay(dict(batch))
            self._under_way.append(under_way)
            side.begin()
            columns, copies = _copied(batch, side.copied)
            under_way.event = side.mark()
            return _Arriving(columns, copies, under_way.event)

    def finish(self, arriving: _Arriving) -> Batch:
        """Return the columns, which whatever is computed from now on may use."""
        assert self._side is not None
        self._side.join(arriving.event, arriving.copies)
        return _as_asked(arriving.columns, self._ragged)

    def _let_go(self) -> None:
        """Let go of the batches that were copied, and of some that are waited for."""
        while self._under_way:
            oldest = self._under_way[0]
            if oldest.event is None:  # a signal came while its copies were begun
                assert self._side is not None
                self._side.finish()
            elif len(self._under_way) >= _MOST_UNDER_WAY:
                oldest.event.synchronize()
            elif not oldest.event.query():
                return
            self._under_way.popleft()


def _wait(side: Side, under_way: deque[_UnderWay], process_id: int) -> None:
    # A process that was forked has neither the device nor the copies.
    if under_way and os.getpid() == process_id:
        side.finish()
        under_way.clear()
