"""Prefetching: batches that an adapter converts ahead of the loop.

An adapter says what becomes of a batch, and how many batches are converted before the
loop asks for them: a copy to a device then overlaps with the computation. Order, state,
errors and threads are those of the loader.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from fastrec.arrays.batch import Batch
from fastrec.loader.skipped_rows import SkippedRow
from fastrec.transforms.places import Places

__all__ = ["Conversion", "Delivered", "Prefetcher", "Source", "with_conversion"]

T = TypeVar("T")
R = TypeVar("R")


class Delivered(NamedTuple):
    """A batch on its way to the consumer, its step, and what was decoded."""

    batch: Batch
    step: int
    n_records: int
    n_bytes: int
    skipped: Sequence[SkippedRow] = ()
    places: Places | None = None


# Returns the next batch, or None at the end.
Source: TypeAlias = Callable[[], "Delivered | None"]


@dataclass(frozen=True)
class Conversion:
    """What becomes of the batches of a loader on their way to the consumer.

    Attributes
    ----------
    convert : callable
        Returns for a batch the dict that is delivered instead. Called in the thread of
        the consumer, in the order of the batches; after an interrupt, again for the
        batches that were not delivered.
    n_ahead : int
        How many batches are converted beyond the one that is delivered.
    finish : callable, optional
        Makes the dict of what `convert` returned, when the batch is delivered.
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


def with_conversion(loader: T, conversion: Conversion) -> T:
    """Return a loader like this one and at its place, whose batches go through `conversion`.

    It has its own iterators, statistics and memory. The old one stays where it is.
    """
    copied: Any = copy.copy(loader)
    copied._options = dataclasses.replace(copied._options, conversion=conversion)
    return copied  # type: ignore[no-any-return]


def _noted(function: Callable[[T], R], batch: T, places: Places | None) -> R:
    """Return ``function(batch)``; an error names the records of the batch."""
    try:
        return function(batch)
    except Exception as error:
        if places is not None:
            places.note_batch(error, "the conversion")
        raise


class Prefetcher:
    """Converts the batches of a source, some of them ahead of the loop.

    Batches that are ready are delivered before the error that follows them.
    """

    def __init__(
        self, source: Source, stop: Callable[[], object], conversion: Conversion
    ) -> None:
        self._source = source
        self._stop = stop
        self._conversion = conversion
        self._ready: deque[Delivered] = deque()
        self._is_at_end = False
        self._error: Exception | None = None

    def next(self) -> Delivered | None:
        """Return the next batch, converted; None at the end.

        Raises the error of the source or the conversion when its batch is due.
        """
        while not self._is_at_end and len(self._ready) <= self._conversion.n_ahead:
            self._take()
        if not self._ready:
            if self._error is not None:
                raise self._error
            return None
        first = self._ready.popleft()
        if self._conversion.finish is None:
            return first
        return first._replace(
            batch=_noted(self._conversion.finish, first.batch, first.places)
        )

    def _take(self) -> None:
        try:
            found = self._source()
            if found is None:
                self._is_at_end = True
                return
            batch = _noted(self._conversion.convert, found.batch, found.places)
            self._ready.append(found._replace(batch=batch))
        except Exception as error:  # noqa: BLE001 (raised when it is due)
            self._error = error
            self._is_at_end = True
            # Nothing comes after it. And its traceback refers to this frame, so threads
            # would outlive an iterator that is dropped now.
            self._stop()
