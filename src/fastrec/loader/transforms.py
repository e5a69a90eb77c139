"""The Python stage: what a user's transform does to batches, between core and consumer.

Batches pass through in order, whatever thread transforms them. At most `prefetch` of
them are under way. The threads end with the iterator that owns the stage.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch
from fastrec.features.base import Spec
from fastrec.features.fixed import FixedLen, Raw
from fastrec.loader.stats import Tally, clock
from fastrec.on_error import Loss
from fastrec.sources.places import Places
from fastrec.tasks import Task, start

__all__ = [
    "BatchOrigin",
    "CheckedTransform",
    "Decoded",
    "Delivered",
    "PerRow",
    "Stage",
    "Transform",
    "is_stage_of_this_thread",
    "per_row",
    "wait_for_threads",
]

Transform: TypeAlias = Callable[..., Mapping[str, Any]]

_SECONDS_BETWEEN_LOOKS = 0.05


@dataclass(frozen=True)
class BatchOrigin:
    """Where a batch stands in the training run: the second argument of a transform.

    Attributes
    ----------
    seed, epoch, step : int
        Of the loader, and of this batch within its epoch.
    positions : ndarray of int64, shape (rows,)
        Where each row stands in the epoch; -1 where a row only fills the batch
        (``pad_last=True``).
    records : ndarray of int64, shape (rows,)
        Which record of the dataset each row is, or -1. Of datasets that are joined, the
        records are numbered one dataset after another.
    """

    seed: int
    epoch: int
    step: int
    positions: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]
    _rows_pool: ThreadPoolExecutor | None = field(default=None, repr=False)
    _n_threads: int = field(default=1, repr=False)
    _places: Places | None = field(default=None, repr=False)
    # Which of the decoded rows these are, where some were left out.
    _rows: npt.NDArray[np.int64] | None = field(default=None, repr=False)
    # Rows for which a function of rows has raised, and its errors; None lets it raise.
    _failed: list[tuple[int, Exception]] | None = field(default=None, repr=False)

    def rng(self, i: int) -> np.random.Generator:
        """Return the random generator of row `i` of the batch.

        It is keyed by (seed, epoch, position), so that what is drawn from it depends on
        neither threads nor batches nor interruptions.

        Raises
        ------
        IndexError
            If there is no such row, or it is no record.
        """
        if self.positions[i] < 0:
            msg = f"row {i} only fills the batch: it has no random generator"
            raise IndexError(msg)
        key = np.array([self.seed, self.epoch], dtype=np.uint64)
        counter = np.array([0, 0, 0, self.positions[i]], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))

    def _of_rows(self, rows: npt.NDArray[np.int64]) -> BatchOrigin:
        return dataclasses.replace(
            self,
            positions=self.positions[rows],
            records=self.records[rows],
            _places=None if self._places is None else self._places.take(rows),
            _rows=rows if self._rows is None else self._rows[rows],
        )

    def _masked(self, rows: Sequence[int]) -> BatchOrigin:
        """Return the origin of a batch in which some rows only fill it."""
        positions, records = self.positions.copy(), self.records.copy()
        positions[rows] = records[rows] = -1
        return dataclasses.replace(self, positions=positions, records=records)


class Delivered(NamedTuple):
    """One batch on its way to the consumer, the step it is, and what was decoded."""

    batch: Batch
    step: int
    n_records: int
    n_bytes: int
    losses: Sequence[Loss] = ()
    places: Places | None = None


class Decoded(NamedTuple):
    """What a transform makes a batch of, and where that comes from."""

    parts: Any
    info: BatchOrigin
    n_records: int
    n_bytes: int
    losses: Sequence[Loss] = ()


def _second_argument(function: Callable[..., object], name: str) -> str | None:
    """How `function` wants its second argument: "positional", "keyword" or not at all.

    It does if it has a parameter of that name, or a second one without a default. A bare
    ``*args``, as many wrappers have, asks for nothing.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins and extension types need not say
        return None
    if name in parameters and parameters[name].kind is inspect.Parameter.KEYWORD_ONLY:
        return "keyword"
    positional = [
        p
        for p in parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        and (p.default is inspect.Parameter.empty or p.name == name)
    ]
    return "positional" if len(positional) > 1 else None


def _call(
    function: Callable[..., Any],
    first: object,
    how: str | None,
    name: str,
    second: Callable[[], object],
) -> Any:  # noqa: ANN401
    """Call `function` with its first argument, and the second where it wants one."""
    if how == "keyword":
        return function(first, **{name: second()})
    return function(first, second()) if how == "positional" else function(first)


class CheckedTransform:
    """A user's transform, called as its signature asks, its result checked."""

    def __init__(self, transform: object) -> None:
        if not callable(transform):
            msg = f"transform must be callable, not {transform!r}"
            raise TypeError(msg)
        self._transform = transform
        self._info = _second_argument(transform, "info")

    @property
    def is_per_row(self) -> bool:
        """Whether the rows of a batch may be spread over threads."""
        return isinstance(self._transform, PerRow)

    @property
    def name(self) -> str:
        """What errors call the function."""
        if isinstance(self._transform, PerRow):
            return self._transform.name
        return f"{_name_of(self._transform)}()"

    def __call__(self, batch: Batch, info: BatchOrigin) -> Batch:
        """Return the transformed batch."""
        try:
            result = self._called(batch, info)
        except Exception as error:
            if info._places is not None and not self.is_per_row:  # which names the row
                info._places.note_batch(error, self.name)
            raise
        if not isinstance(result, Mapping):
            msg = (
                "transform must return the batch as a dict or another mapping, got "
                f"{type(result).__name__}"
            )
            raise TypeError(msg)
        if not isinstance(result, dict):
            result = dict(result)
        # Arrays of any library; values without a shape are not checked.
        lengths = {
            name: len(column)
            for name, column in result.items()
            if getattr(column, "shape", ())
        }
        if len(set(lengths.values())) > 1:
            msg = f"transform must return columns of equal length, not {lengths}"
            raise ValueError(msg)
        return result

    def _called(self, batch: Batch, info: BatchOrigin) -> Any:  # noqa: ANN401
        try:
            return _call(self._transform, batch, self._info, "info", lambda: info)
        except StopIteration as error:
            # Passed on, it would end the epoch as if there were no more records.
            msg = f"{self.name} raised StopIteration"
            raise RuntimeError(msg) from error


class PerRow:
    """A transform that calls a function for every row: see `per_row`."""

    def __init__(self, function: Callable[..., Any], out: Mapping[str, Spec]) -> None:
        self._out: dict[str, FixedLen | Raw] = {}
        for name, spec in out.items():
            if not isinstance(spec, (FixedLen, Raw)) or spec.dtype == "bytes":
                msg = (
                    f"out[{name!r}] must be fr.FixedLen(shape, dtype) of numbers, the "
                    f"shape and dtype of one row, not {spec!r}"
                )
                raise TypeError(msg)
            self._out[name] = spec
        if not out:
            msg = "out must name at least one column"
            raise ValueError(msg)
        self._function = function
        self._rng = _second_argument(function, "rng")

    @property
    def name(self) -> str:
        """What errors call the function."""
        return f"per_row({_name_of(self._function)})"

    def __call__(self, batch: Batch, info: BatchOrigin) -> Batch:
        """Return `batch` with the columns that the function makes of its rows."""
        n_rows = len(info.positions)
        columns = {
            name: np.zeros((n_rows, *spec.shape), spec.dtype)
            for name, spec in self._out.items()
        }
        n_parts = max(1, min(info._n_threads, n_rows))
        bounds = [n_rows * i // n_parts for i in range(n_parts + 1)]
        fill = functools.partial(self._fill, batch, info, columns)
        futures = [
            info._rows_pool.submit(fill, bounds[i], bounds[i + 1])
            for i in range(1, n_parts)
            if info._rows_pool is not None
        ]
        try:
            fill(0, bounds[1])
        finally:
            # Every part is waited for, so that none writes into a batch that failed.
            errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error
        return {**batch, **columns}

    def _fill(
        self,
        batch: Batch,
        info: BatchOrigin,
        columns: dict[str, npt.NDArray[Any]],
        begin: int,
        end: int,
    ) -> None:
        for i in range(begin, end):
            if info.positions[i] < 0:
                continue  # it only fills the batch, and stays zero
            try:
                self._fill_row(batch, info, columns, i)
            except Exception as error:
                if info._failed is None or isinstance(error, MemoryError):
                    if info._places is not None:
                        info._places.note_row(error, self.name, i)
                    raise
                for column in columns.values():
                    column[i] = 0
                info._failed.append((i, error))

    def _fill_row(
        self,
        batch: Batch,
        info: BatchOrigin,
        columns: dict[str, npt.NDArray[Any]],
        i: int,
    ) -> None:
        row = {name: column[i] for name, column in batch.items()}
        result = _call(
            self._function, row, self._rng, "rng", functools.partial(info.rng, i)
        )
        if not isinstance(result, Mapping) and len(columns) == 1:
            result = {next(iter(columns)): result}
        for name, column in columns.items():
            try:
                column[i] = _fitting(result[name], column)
            except (IndexError, KeyError, TypeError, ValueError) as error:
                place = f"column {name!r} of record {info.records[i]}"
                if not isinstance(result, Mapping) or name not in result:
                    msg = f"{place} is not among what the function returned"
                    raise TypeError(msg) from None
                msg = f"{place}: {error}"
                raise type(error)(msg) from None


def _name_of(function: object) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return str(name).rpartition("<locals>.")[2]


def _fitting(value: object, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `value` as a row of `column`, if it is one: nothing wraps or broadcasts."""
    array = np.asarray(value)
    if array.shape != column.shape[1:]:
        msg = f"it has shape {array.shape}, out says {column.shape[1:]}"
        raise ValueError(msg)
    if array.dtype == column.dtype:
        return array
    if not np.can_cast(array.dtype, column.dtype, "same_kind") and not (
        array.dtype.kind in "iu" and column.dtype.kind in "iu"
    ):
        msg = f"it has dtype {array.dtype}, out says {column.dtype}"
        raise TypeError(msg)
    converted = array.astype(column.dtype)
    if column.dtype.kind in "iu" and not np.array_equal(converted, array):
        msg = f"a value does not fit {column.dtype}"
        raise ValueError(msg)
    return converted


def per_row(function: Callable[..., Any], *, out: Mapping[str, Spec]) -> PerRow:
    """Make a transform of a function of one row.

    The rows of a batch are spread over the loader's `transform_threads`, and results go
    straight into the columns of the batch.

    Parameters
    ----------
    function : callable
        ``function(row)`` or ``function(row, rng)``: `row` is a dict of the row's values,
        `rng` its random generator (`BatchOrigin.rng`). Returns a dict with the columns of
        `out`, or the value itself where `out` has one column.
    out : mapping of str to FixedLen
        The columns it makes, with shape and dtype of one row. They are added to the
        batch's, or take their place.

    Returns
    -------
    callable
        For ``ds.loader(transform=...)``.

    Raises
    ------
    TypeError, ValueError
        When reading, if a value is missing, or of another shape or dtype than `out`
        says; integers may differ in size if they fit.

    Examples
    --------
    >>> resize = per_row(
    ...     lambda row, rng: decode_jpeg(row["image"]),  # doctest: +SKIP
    ...     out={"image": FixedLen((224, 224, 3), "uint8")},
    ... )
    """
    return PerRow(function, out)


Source: TypeAlias = "Callable[[], Decoded | None]"


class _Slot:
    """A batch on its way through the stage: what became of it, once it is done."""

    def __init__(self) -> None:
        self.is_claimed = False
        self.is_done = False
        self.delivered: Delivered | None = None
        self.error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def finish(self) -> None:
        self.is_done = True
        self._done.release()

    def wait(self) -> bool:
        """Wait for a moment, and return whether the slot is done."""
        return self.is_done or self._done.acquire(timeout=_SECONDS_BETWEEN_LOOKS)


class Stage:
    """Transforms the batches of a source in background threads, and keeps their order.

    `source` returns what `transform` makes the next batch of, or None at the end.
    `n_threads` of 0 transforms in `next`. If `shares_rows`, one thread drives the batches
    and the others share the rows of each. At most `n_ahead` batches are under way, and
    fewer where they take more memory than `memory_limit`, which `batch_bytes` tells: the
    size of the last one. The time of transforms is added to `tally`. The threads end
    once `owner` is dropped.

    A signal may interrupt `next` anywhere. So the consumer shares with the threads only
    what is whole after every single step, and no lock that Python code acquires: a slot
    for each batch, and a token for each slot. A token too many does no harm.
    """

    def __init__(
        self,
        source: Source,
        transform: Callable[[Any, BatchOrigin], tuple[Batch, Sequence[Loss]]],
        *,
        shares_rows: bool,
        n_threads: int,
        n_ahead: int,
        memory_limit: int,
        batch_bytes: Callable[[], int],
        tally: Tally,
        owner: object,
    ) -> None:
        self._source = source
        self._transform = transform
        self._n_threads = n_threads
        self._n_ahead = n_ahead
        self._memory_limit = memory_limit
        self._batch_bytes = batch_bytes
        self._n_transforming = min(1, n_threads) if shares_rows else n_threads
        self._rows_pool: ThreadPoolExecutor | None = None
        if shares_rows and n_threads > 1:
            self._rows_pool = ThreadPoolExecutor(
                n_threads - 1,
                "fastrec-rows",
                initializer=_belong_to,
                initargs=(weakref.ref(self),),
            )
        self._n_started = 0
        self._slots: deque[_Slot] = deque()  # in the order of the batches
        self._tokens: SimpleQueue[object] = SimpleQueue()  # False: nothing left to do
        self._turn = threading.Lock()  # one thread at a time takes from the source
        self._counting = threading.Lock()
        self._is_closed = False
        self._is_dirty = False
        self._tally = tally  # its transform_ns is guarded by _counting
        # The callback wakes a thread. It is C code, which no signal interrupts.
        self._owner = weakref.ref(owner, self._tokens.put)

    @property
    def n_transforming(self) -> int:
        """How many threads transform batches side by side; 0 where `next` does."""
        return self._n_transforming

    @property
    def is_dirty(self) -> bool:
        """Whether `next` has called the transform for a batch not forgotten yet.

        It may have changed what it was called with. So if a signal came meanwhile, and
        there is no result, the batch must be decoded anew.
        """
        return self._is_dirty

    def next(self) -> Delivered | None:
        """Return the next batch, or None at the end; the same until `forget`.

        Raises what the source or the transform raised for it, again at every later call.
        """
        if self._n_threads == 0:
            found = self._source()
            self._is_dirty = True
            return self._transformed(found)
        while self._n_started < self._n_transforming:
            worker = Task(self._work)
            _workers.add(worker)
            start(worker)
            self._n_started += 1
        n_affordable = self._memory_limit // max(1, self._batch_bytes())
        while len(self._slots) < max(1, min(self._n_ahead, n_affordable)):
            self._slots.append(_Slot())
            self._tokens.put(True)
        slot = self._slots[0]
        while not slot.wait():
            if self._is_closed:
                return None
            # In case that a signal came between the slot and its token.
            self._tokens.put(True)
        if slot.error is not None:
            raise slot.error
        return slot.delivered

    def forget(self, delivered: Delivered) -> None:
        """Let go of a batch that `next` has returned. Does nothing the next time."""
        self._is_dirty = False
        if self._slots and self._slots[0].delivered is delivered:
            self._slots.popleft()

    def close(self) -> None:
        """End the threads as soon as the transforms that they are at return."""
        self._is_closed = True
        self._tokens.put(False)
        self._slots.clear()
        if self._rows_pool is not None:
            self._rows_pool.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        _belong_to(weakref.ref(self))
        while self._tokens.get() and not self._is_over():
            with self._turn:
                slot = next((s for s in self._slots.copy() if not s.is_claimed), None)
                if slot is None:
                    continue
                slot.is_claimed = True
                found = self._taken(slot)
            try:
                if found is not None and not self._is_over():
                    slot.delivered = self._transformed(found)
            except BaseException as error:  # noqa: BLE001 (whoever consumes gets it)
                slot.error = error
            slot.finish()
        self._tokens.put(False)  # for the other threads

    def _is_over(self) -> bool:
        return self._is_closed or self._owner() is None

    def _taken(self, slot: _Slot) -> Decoded | None:
        try:
            return self._source()
        except BaseException as error:  # noqa: BLE001 (whoever consumes gets it)
            slot.error = error
            return None

    def _transformed(self, found: Decoded | None) -> Delivered | None:
        if found is None:
            return None
        info = found.info
        if self._rows_pool is not None:
            info = dataclasses.replace(
                info, _rows_pool=self._rows_pool, _n_threads=self._n_threads
            )
        begin = clock()
        batch, losses = self._transform(found.parts, info)
        taken = clock() - begin
        with self._counting:
            self._tally.transform_ns += taken
        losses = [*found.losses, *losses]
        counts = found.n_records, found.n_bytes
        return Delivered(batch, info.step, *counts, losses, info._places)


# The stage that a thread works for.
_of_thread = threading.local()


def _belong_to(stage: weakref.ref[Stage]) -> None:
    _of_thread.stage = stage


def is_stage_of_this_thread(stage: Stage) -> bool:
    """Whether this thread runs the transforms of `stage`."""
    own: weakref.ref[Stage] | None = getattr(_of_thread, "stage", None)
    return own is not None and own() is stage


# What threads run that may be in a transform: the interpreter must not end before them.
_workers: weakref.WeakSet[Task[None]] = weakref.WeakSet()


def wait_for_threads() -> None:
    """Wait for the threads of closed stages, at the end of the interpreter."""
    for worker in list(_workers):
        worker.cancel()  # if a signal came before its thread was started
        while not worker.wait():
            pass
