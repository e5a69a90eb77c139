"""Prefetching: convert batches ahead of the loop, for adapters.

An adapter defines the conversion of a batch, and the number of batches to convert ahead.
Conversion ahead of the loop overlaps copies to a device with computation. The loader
still controls order, state, errors and threads.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from fastrec.arrays.batch import Batch
from fastrec.loader.collate import SkippedRow
from fastrec.on_error import SkippedSpan
from fastrec.transforms.batch_info import Places

T = TypeVar("T")


class Delivered(NamedTuple):
    """A batch to deliver, with its step, counts and skipped rows."""

    batch: Batch
    step: int
    n_records: int
    n_bytes: int
    skipped: Sequence[SkippedRow] = ()
    places: Places | Callable[[], Places] | None = None  # call before the next batch


def unreadable_rows(unreadable: Iterable[SkippedSpan]) -> list[SkippedRow]:
    """Return a SkippedRow for each row that the core skipped or masked."""
    return [SkippedRow(span.region, span.error) for span in unreadable]


# Returns the next batch, or None at the end.
Source: TypeAlias = Callable[[], "Delivered | None"]


@dataclass(frozen=True)
class Conversion:
    """The conversion that an adapter applies to the batches of a loader.

    Attributes
    ----------
    convert : callable
        ``convert(batch)`` returns the dict to deliver or, if `finish` is set, its
        argument. The consumer's thread calls `convert` in batch order. After an
        interrupt, it converts undelivered batches again.
    n_ahead : int
        The number of later batches to convert before a batch is delivered.
    finish : callable, optional
        ``finish(converted)``, called at delivery, returns the dict to deliver.
    announce : callable, optional
        ``announce(is_last)`` is called at each delivery; ``is_last()`` returns whether no
        batch follows. ``announce(None)`` is called at the end of the epoch.
    """

    convert: Callable[[Batch], Any]
    n_ahead: int = 0
    finish: Callable[[Any], Batch] | None = None
    announce: Callable[[Callable[[], bool] | None], None] | None = None

    def __call__(self, batch: Batch, places: Places | None = None) -> Batch:
        """Convert and finish a batch; an error gets a note with `places`."""
        try:
            converted: Batch = self.convert(batch)
            return converted if self.finish is None else self.finish(converted)
        except Exception as error:
            _note(error, places)
            raise


def with_conversion(loader: T, conversion: Conversion) -> T:
    """Return a copy of `loader` that converts batches with `conversion`.

    The copy starts at the same step, and has separate iterators, statistics and memory.
    """
    copied: Any = copy.copy(loader)
    copied._options = dataclasses.replace(copied._options, conversion=conversion)
    return copied  # type: ignore[no-any-return]


def _note(error: Exception, places: Places | Callable[[], Places] | None) -> None:
    """Add a note to `error` that gives the locations of the batch's records."""
    if places is not None:
        known = places if isinstance(places, Places) else places()
        known.note_batch(error, "the conversion")


class Prefetcher:
    """Converts the batches of a source ahead of the loop.

    `next` raises an error only after it has returned all batches before the failed batch.
    """

    def __init__(
        self,
        source: Source,
        stop: Callable[[], object],
        conversion: Conversion,
        n_steps: Callable[[], int],
    ) -> None:
        self._source = source
        self._stop = stop
        self._conversion = conversion
        self._n_steps = n_steps
        self._ready: deque[Delivered] = deque()
        self._is_at_end = False
        self._error: Exception | None = None

    def next(self) -> Delivered | None:
        """Return the next converted batch; None at the end of the epoch.

        Raises an error of the source or a conversion when the failed batch is due.
        """
        conversion, ready = self._conversion, self._ready
        while not self._is_at_end and len(ready) <= conversion.n_ahead:
            batch: Delivered | None = None
            try:
                batch = self._source()
                if batch is None:
                    self._is_at_end = True
                else:
                    converted = conversion.convert(batch.batch)
                    ready.append(tuple.__new__(Delivered, (converted, *batch[1:])))
            except Exception as error:  # noqa: BLE001 (raised when it is due)
                if batch is not None:
                    _note(error, batch.places)
                self._error = error
                self._is_at_end = True
                # The traceback refers to this frame, so threads would outlive the
                # iterator.
                self._stop()
        announce = conversion.announce
        if not ready:
            if announce is not None:
                announce(None)
            if self._error is not None:
                raise self._error
            return None
        first = ready.popleft()
        if announce is not None:
            # The lambda refers to neither the batch nor the threads of the iterator.
            step, n_steps = first.step, self._n_steps
            announce(lambda: step + 1 == n_steps())
        if conversion.finish is None:
            return first
        try:
            return first._replace(batch=conversion.finish(first.batch))
        except Exception as error:
            _note(error, first.places)
            raise
