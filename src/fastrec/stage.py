"""The Python stage: what a user's transform does to batches, between core and consumer.

Batches pass through in order, whatever thread transforms them. At most `prefetch` of
them are under way. The threads end with the iterator that owns the stage.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec.arrays import Batch
from fastrec.features import FixedLen, Raw

__all__ = [
    "BatchOrigin",
    "CheckedTransform",
    "Delivered",
    "PerRow",
    "Stage",
    "Transform",
    "per_row",
]

Transform: TypeAlias = (
    "Callable[[Batch], Batch] | Callable[[Batch, BatchOrigin], Batch]"
)


@dataclass(frozen=True)
class BatchOrigin:
    """Where a batch stands in the training run: the second argument of a transform.

    Attributes
    ----------
    seed, epoch, step : int
        Of the loader, and of this batch within its epoch.
    positions : ndarray of int64, shape (rows,)
        Where each row stands in the epoch.
    records : ndarray of int64, shape (rows,)
        Which record of the dataset each row is.
    """

    seed: int
    epoch: int
    step: int
    positions: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]
    _rows_pool: ThreadPoolExecutor | None = field(default=None, repr=False)
    _n_threads: int = field(default=1, repr=False)

    def rng(self, i: int) -> np.random.Generator:
        """Return the random generator of row `i` of the batch.

        It is keyed by (seed, epoch, position), so that what is drawn from it depends on
        neither threads nor batches nor interruptions.
        """
        key = np.array([self.seed, self.epoch], dtype=np.uint64)
        counter = np.array([0, 0, 0, self.positions[i]], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))


@dataclass(frozen=True)
class Delivered:
    """One batch on its way to the consumer, and the step it is."""

    batch: Batch
    step: int


def _takes(function: Callable[..., object], name: str) -> bool:
    """Whether `function` wants a second argument: one without a default, or so named."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins and extension types need not say
        return False
    required = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        and (p.default is inspect.Parameter.empty or p.name == name)
    ]
    return len(required) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


class CheckedTransform:
    """A user's transform, called as its signature asks, its result checked."""

    def __init__(self, transform: object) -> None:
        if not callable(transform):
            msg = f"transform must be callable, not {transform!r}"
            raise TypeError(msg)
        self._transform = transform
        self._takes_info = _takes(transform, "info")

    @property
    def is_per_row(self) -> bool:
        """Whether the rows of a batch may be spread over threads."""
        return isinstance(self._transform, PerRow)

    def __call__(self, batch: Batch, info: BatchOrigin) -> Batch:
        """Return the transformed batch."""
        arguments = (batch, info) if self._takes_info else (batch,)
        try:
            result = self._transform(*arguments)
        except StopIteration as error:
            # Passed on, it would end the epoch as if there were no more records.
            msg = "transform raised StopIteration"
            raise RuntimeError(msg) from error
        if not isinstance(result, dict):
            msg = (
                "transform must return the batch as a dict of arrays, not "
                f"{type(result).__name__}"
            )
            raise TypeError(msg)
        return result


class PerRow:
    """A transform that calls a function for every row: see `per_row`."""

    def __init__(
        self, function: Callable[..., Any], out: Mapping[str, FixedLen | Raw]
    ) -> None:
        given: Mapping[str, object] = out
        for name, spec in given.items():
            if not isinstance(spec, (FixedLen, Raw)) or spec.dtype == "bytes":
                msg = (
                    f"out[{name!r}] must be fr.FixedLen(shape, dtype) of numbers, the "
                    f"shape and dtype of one row, not {spec!r}"
                )
                raise TypeError(msg)
        if not out:
            msg = "out must name at least one column"
            raise ValueError(msg)
        self._function = function
        self._out = dict(out)
        self._takes_rng = _takes(function, "rng")

    def __call__(self, batch: Batch, info: BatchOrigin) -> Batch:
        """Return `batch` with the columns that the function makes of its rows."""
        n_rows = len(info.positions)
        columns = {
            name: np.empty((n_rows, *spec.shape), spec.dtype)
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
            row = {name: column[i] for name, column in batch.items()}
            arguments = (row, info.rng(i)) if self._takes_rng else (row,)
            result = self._function(*arguments)
            if not isinstance(result, Mapping):
                if len(columns) > 1:
                    msg = (
                        "a function for several columns must return a dict of them, "
                        f"not {type(result).__name__}"
                    )
                    raise TypeError(msg)
                result = {next(iter(columns)): result}
            for name, column in columns.items():
                # Assignment would broadcast, and a wrong shape pass for a right one.
                if np.shape(result[name]) != column.shape[1:]:
                    msg = (
                        f"column {name!r} of a row has shape {np.shape(result[name])}, "
                        f"out says {column.shape[1:]}"
                    )
                    raise ValueError(msg)
                column[i] = result[name]


def per_row(
    function: Callable[..., Any], *, out: Mapping[str, FixedLen | Raw]
) -> PerRow:
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
    ValueError
        When reading, if a value has another shape than `out` says.

    Examples
    --------
    >>> resize = per_row(
    ...     lambda row, rng: decode_jpeg(row["image"]),  # doctest: +SKIP
    ...     out={"image": FixedLen((224, 224, 3), "uint8")},
    ... )
    """
    return PerRow(function, out)


Source: TypeAlias = "Callable[[], tuple[Batch, BatchOrigin] | None]"


class Stage:
    """Transforms the batches of a source in background threads, and keeps their order.

    `source` returns the next batch, or None at the end. `n_threads` of 0 transforms in
    `next`. With a `PerRow`, one thread drives the batches and the others share its rows.
    """

    def __init__(
        self,
        source: Source,
        transform: CheckedTransform,
        *,
        n_threads: int,
        prefetch: int,
    ) -> None:
        self._source = source
        self._transform = transform
        self._n_threads = n_threads
        self._n_ahead = max(1, prefetch)
        self._batches_pool: ThreadPoolExecutor | None = None
        self._rows_pool: ThreadPoolExecutor | None = None
        self._futures: deque[Future[Delivered | None]] = deque()
        self._n_submitted = 0
        self._n_taken = 0  # from the source; guarded by the condition
        self._taken = threading.Condition()
        self._is_closed = False

    def next(self) -> Delivered | None:
        """Return the next batch, or None at the end.

        Raises what the source or the transform raised for it, again at every later call.
        """
        if self._n_threads == 0:
            return self._transformed(self._source())
        if self._batches_pool is None:
            self._batches_pool = self._start()
        while len(self._futures) < self._n_ahead:
            self._futures.append(
                self._batches_pool.submit(self._work, self._n_submitted)
            )
            self._n_submitted += 1
        # Waiting for a future looks at signals, so Ctrl-C comes through.
        delivered = self._futures[0].result()
        if delivered is not None:
            self._futures.popleft()
        return delivered

    def close(self) -> None:
        """End the threads, after the batches they are at."""
        with self._taken:
            self._is_closed = True
            self._taken.notify_all()
        for pool in (self._batches_pool, self._rows_pool):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> ThreadPoolExecutor:
        if not self._transform.is_per_row:
            return ThreadPoolExecutor(self._n_threads, "fastrec-transform")
        if self._n_threads > 1:
            self._rows_pool = ThreadPoolExecutor(self._n_threads - 1, "fastrec-rows")
        return ThreadPoolExecutor(1, "fastrec-transform")

    def _work(self, ticket: int) -> Delivered | None:
        # Tickets are worked on by any thread, but batches are taken in their order.
        with self._taken:
            self._taken.wait_for(lambda: self._n_taken == ticket or self._is_closed)
        if self._is_closed:
            return None
        try:
            found = self._source()
        finally:
            with self._taken:
                self._n_taken += 1
                self._taken.notify_all()
        return self._transformed(found)

    def _transformed(self, found: tuple[Batch, BatchOrigin] | None) -> Delivered | None:
        if found is None:
            return None
        batch, info = found
        if self._rows_pool is not None:
            info = dataclasses.replace(
                info, _rows_pool=self._rows_pool, _n_threads=self._n_threads
            )
        return Delivered(self._transform(batch, info), info.step)
