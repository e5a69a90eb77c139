"""Feeding: batches made into what a framework takes, some of them ahead of the loop.

An adapter says what becomes of a batch, and how many are made so before the loop asks for
them: a copy to a device that was begun then has time until it is needed. Everything else
is the loader's own: order, state, errors and threads do not know that they are fed on.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.loader.transforms import BatchOrigin, Delivered
from fastrec.sources.places import Places

if TYPE_CHECKING:
    from fastrec.loader.loader import Loader

__all__ = ["Ahead", "Feed", "Forget", "Source", "empty_batch", "fed", "upcoming"]

# What returns the next batch, or None at the end: the same until it is told to forget it.
Source: TypeAlias = Callable[[], "Delivered | None"]
Forget: TypeAlias = Callable[[Delivered], None]

T = TypeVar("T")
R = TypeVar("R")
LoaderT = TypeVar("LoaderT", bound="Loader")


@dataclass(frozen=True)
class Feed:
    """What becomes of the batches of a loader on their way to the consumer.

    Attributes
    ----------
    convert : callable
        Returns for a batch the dict that is delivered instead. It must leave the batch as
        it is: after a signal, it may be called for the same one again. Called in the
        thread of the consumer, in the order of the batches.
    n_ahead : int
        How many batches are converted beyond the one that is delivered.
    finish : callable, optional
        Makes the dict of what `convert` returned, when the batch is delivered. After a
        signal, it may be called for the same one again.
    """

    convert: Callable[[Batch], Any]
    n_ahead: int = 0
    finish: Callable[[Any], Batch] | None = None

    def __call__(self, batch: Batch, places: Places | None = None) -> Batch:
        """Return what becomes of a batch that is delivered at once."""
        converted: Batch = _noted(self.convert, batch, places)
        if self.finish is None:
            return converted
        return _noted(self.finish, converted, places)


def _noted(function: Callable[[T], R], batch: T, places: Places | None) -> R:
    """Return ``function(batch)``; an error names the records of the batch."""
    try:
        return function(batch)
    except Exception as error:
        if places is not None:
            places.note_batch(error, "the conversion")
        raise


def fed(loader: LoaderT, feed: Feed) -> LoaderT:
    """Return a loader like this one and at its place, whose batches go through `feed`.

    The new loader has its own iterators, statistics and memory; the old one stays where
    it is.
    """
    copied = copy.copy(loader)
    copied._feed = feed
    return copied


def upcoming(loader: Loader) -> Batch | None:
    """Return the batch that a loader delivers next; None at the end. Moves no state."""
    with copy.copy(loader) as probe:
        probe._num_threads, probe._transform_threads, probe._prefetch = 0, 0, 1
        return next(iter(probe), None)


def empty_batch(loader: Loader) -> Batch:
    """Return a batch of no rows, as transforms make it."""
    readings, _ = loader.dataset._view.source.readings()
    schema = readings[0].schema._bind()
    none = np.empty(0, np.int64)
    rows = None if len(readings) == 1 else none
    parts = [(0, _core.parse_examples(schema, loader._pool, []), rows)]
    origin = BatchOrigin(loader.seed, loader.epoch, loader.step, none, none)
    return loader._assembly()(parts, origin)


class Ahead:
    """Converts the batches of a source, and keeps those that the consumer gets next.

    Batches that are ready are delivered before the error that follows them. Nothing here
    counts as delivered.

    A signal may interrupt `next` anywhere: a batch is converted again, or passed over if
    it is among those that are ready, but none is lost or comes twice.
    """

    def __init__(
        self,
        source: Source,
        forget_source: Forget,
        stop_source: Callable[[], None],
        feed: Feed,
    ) -> None:
        self._source = source
        self._forget_source = forget_source
        self._stop_source = stop_source
        self._feed = feed
        self._ready: deque[Delivered] = deque()
        self._finished: Delivered | None = None
        self._last_step = -1  # of those that were forgotten
        self._is_at_end = False
        self._error: Exception | None = None

    def next(self) -> Delivered | None:
        """Return the next batch, converted; None at the end. The same until `forget`.

        Raises what the source or the conversion raised, when it is that batch's turn.
        """
        ready = self._ready  # which `close`, in another thread, may take away
        while len(ready) <= self._feed.n_ahead and not self._is_at_end:
            if self._error is not None:
                break
            self._take(ready)
        if ready:
            finish, first = self._feed.finish, ready[0]
            if finish is not None and first is not self._finished:
                first = first._replace(batch=_noted(finish, first.batch, first.places))
                self._finished = ready[0] = first
            return first
        if self._error is not None:
            raise self._error
        return None

    def _take(self, ready: deque[Delivered]) -> None:
        try:
            found = self._source()
            if found is None:
                self._is_at_end = True
                return
            # A signal may have come between taking a batch and having it forgotten.
            if found.step > (ready[-1].step if ready else self._last_step):
                batch = _noted(self._feed.convert, found.batch, found.places)
                ready.append(found._replace(batch=batch))
            self._forget_source(found)
        except Exception as error:  # noqa: BLE001 (raised when it is its turn)
            self._error = error
            # Nothing comes after it. And its traceback refers to this frame, so that
            # threads would outlive an iterator that is dropped now.
            self._stop_source()

    def forget(self, delivered: Delivered) -> None:
        """Let go of a batch that `next` has returned. Does nothing the next time."""
        if self._ready and self._ready[0] is delivered:
            self._last_step = delivered.step
            self._ready.popleft()

    def close(self) -> None:
        """Let go of the batches that are ready."""
        self._is_at_end = True
        self._ready = deque()
