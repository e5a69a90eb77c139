"""Loaders: batches of a dataset, epoch by epoch."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from fastrec import _core
from fastrec.arrays import Batch
from fastrec.options import (
    byte_count,
    default_memory_limit,
    default_num_threads,
    non_negative_int,
    positive_int,
    true_or_false,
)
from fastrec.stage import (
    BatchOrigin,
    CheckedTransform,
    Delivered,
    Stage,
    Transform,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from fastrec.dataset import Dataset

__all__ = ["Loader", "Transform"]

_MOST_THREADS = 4096
_MOST_AHEAD = 65536  # each place in the ring takes memory, used or not


class Loader:
    """Batches of a dataset; made by `Dataset.loader`, which describes the options.

    A loader is an iterable, not its own iterator: each ``for`` over it is one epoch, and
    a new ``for`` ends the one before, also after a ``break``. Its batches are plain dicts
    in the order of the schema, and belong to the caller, to keep and to change:

    * dense columns are ndarrays of shape ``(batch, *shape)``, 64-byte aligned,
    * variable-length columns are `RaggedArray`, byte strings are `BytesArray`.

    The same batches come out, bit for bit, for any number of threads. An error takes the
    place of the batch it happened in, after all batches before it; the iterator raises it
    again if it is asked again. Threads start with the first batch and end with the
    epoch, with `close`, or when the iterator is dropped.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_size: int,
        drop_last: bool,
        seed: int,
        num_threads: int | None,
        prefetch: int | None,
        transform: Transform | None,
        transform_threads: int | None,
        memory_limit: int | str | None,
    ) -> None:
        self._dataset = dataset
        self._batch_size = positive_int("batch_size", batch_size)
        self._drop_last = true_or_false("drop_last", drop_last)
        self._seed = non_negative_int("seed", seed, 2**64 - 1)
        self._num_threads = (
            default_num_threads()
            if num_threads is None
            else non_negative_int("num_threads", num_threads, _MOST_THREADS)
        )
        self._prefetch = (
            self._num_threads + 2
            if prefetch is None
            else positive_int("prefetch", prefetch, _MOST_AHEAD)
        )
        self._transform = None if transform is None else CheckedTransform(transform)
        self._transform_threads = (
            1
            if transform_threads is None
            else non_negative_int("transform_threads", transform_threads, _MOST_THREADS)
        )
        self._memory_limit = (
            default_memory_limit()
            if memory_limit is None
            else byte_count("memory_limit", memory_limit)
        )
        self._pool = _core.BlockPool(self._memory_limit)
        self._epoch = 0
        self._step = 0
        self._is_begun = False  # a batch of this epoch was delivered
        self._iterator: weakref.ref[_BatchIterator] | None = None
        _loaders.add(self)

    # Where it is.

    @property
    def batch_size(self) -> int:
        """Rows in a full batch."""
        return self._batch_size

    @property
    def epoch(self) -> int:
        """The epoch of the batch delivered last, or the next one once it has ended."""
        return self._epoch

    @property
    def step(self) -> int:
        """Batches of this epoch that were delivered."""
        return self._step

    def __len__(self) -> int:
        """Batches in an epoch. Builds the index of the dataset if there is none."""
        n_steps, n_left = divmod(len(self._dataset), self._batch_size)
        return n_steps + (n_left > 0 and not self._drop_last)

    def __repr__(self) -> str:
        return (
            f"<fastrec.Loader of {self._dataset!r}, batch_size={self._batch_size}, "
            f"num_threads={self._num_threads}, epoch {self._epoch}, step {self._step}>"
        )

    # Batches.

    def __iter__(self) -> Iterator[Batch]:
        self.close()
        if self._is_begun:
            self._finished()
        iterator = _BatchIterator(self)
        self._iterator = weakref.ref(iterator)
        return iterator

    def repeat(self, epochs: int | None = None) -> Iterator[Batch]:
        """Yield the batches of several epochs one after another; for ever by default.

        Raises
        ------
        ValueError
            If `epochs` is not given and an epoch has no batches.
        """
        if epochs is not None:
            epochs = non_negative_int("epochs", epochs)
        return self._epochs(epochs)

    def _epochs(self, epochs: int | None) -> Iterator[Batch]:
        for _ in itertools.count() if epochs is None else range(epochs):
            is_empty = True
            for batch in self:
                is_empty = False
                yield batch
            if is_empty and epochs is None:
                msg = "an epoch has no batches, so they cannot be repeated for ever"
                raise ValueError(msg)

    def batch(self, step: int, epoch: int | None = None) -> Batch:
        """Return the batch of one step, as an epoch delivers it. Moves no state.

        Raises
        ------
        IndexError
            If the epoch has no such step.
        ValueError
            If `step` or `epoch` is negative.
        """
        step = non_negative_int("step", step)
        epoch = self._epoch if epoch is None else non_negative_int("epoch", epoch)
        if step >= len(self):
            msg = f"step {step} is out of range: an epoch has {len(self):,} steps"
            raise IndexError(msg)
        first = step * self._batch_size
        last = min(first + self._batch_size, len(self._dataset))
        batch = _core.decode_records(
            self._dataset._table,
            self._dataset._indexed(),
            self._dataset._schema_of_core(),
            self._pool,
            np.arange(first, last, dtype=np.int64),
        )
        if self._transform is None:
            return batch
        info = _info(self._seed, epoch, step, first, last - first)
        return self._transform(batch, info)

    def peek(self) -> Batch:
        """Return the batch after those delivered in this epoch, without moving on.

        Raises
        ------
        IndexError
            If the epoch is at its end.
        """
        return self.batch(self._step)

    # The end.

    def close(self) -> None:
        """End the running epoch's threads. The next ``for`` starts new ones."""
        iterator = None if self._iterator is None else self._iterator()
        if iterator is not None:
            iterator.close()

    def __reduce__(self) -> NoReturn:
        msg = "a loader cannot be pickled: pickle its dataset, and call .loader(...) there"
        raise TypeError(msg)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For the iterator.

    def _pipeline(self, n_ahead: int, memory_limit: int) -> _core.Pipeline:
        dataset = self._dataset
        return _core.Pipeline(
            dataset._table,
            dataset._indexed_if_cheap(),
            dataset._schema_of_core(),
            self._pool,
            batch_size=self._batch_size,
            drop_last=self._drop_last,
            n_threads=self._num_threads,
            prefetch=n_ahead,
            memory_limit=memory_limit,
        )

    def _delivered(self, step: int) -> None:
        self._is_begun = True
        self._step = step + 1

    def _finished(self) -> None:
        self._epoch += 1
        self._step = 0
        self._is_begun = False


class _Decoded:
    """The batches that a pipeline delivers, with their place in the training run."""

    def __init__(
        self, pipeline: _core.Pipeline, *, seed: int, epoch: int, memory_limit: int
    ) -> None:
        self._pipeline = pipeline
        self._seed = seed
        self._epoch = epoch
        self._memory_limit = memory_limit
        self._last_bytes = 0

    def batch_bytes(self) -> int:
        """The memory of the last batch, which the next may well take too."""
        return self._last_bytes

    def next(self) -> Delivered | None:
        found = self._pipeline.next()
        if found is None:
            return None
        batch, step, _, _, n_bytes = found
        self._look_at(n_bytes)
        return Delivered(batch, step)

    def next_with_info(self) -> tuple[Batch, BatchOrigin] | None:
        found = self._pipeline.next()
        if found is None:
            return None
        batch, step, first, n_rows, n_bytes = found
        self._look_at(n_bytes)
        return batch, _info(self._seed, self._epoch, step, first, n_rows)

    def _look_at(self, n_bytes: int) -> None:
        self._last_bytes = n_bytes
        if n_bytes <= self._memory_limit:
            return
        limit, self._memory_limit = self._memory_limit, n_bytes  # once is enough
        warnings.warn(
            f"a single batch takes {n_bytes:,} bytes, more than memory_limit "
            f"({limit:,}): nothing is read ahead",
            stacklevel=5,
        )


def _info(seed: int, epoch: int, step: int, first: int, n_rows: int) -> BatchOrigin:
    positions = np.arange(first, first + n_rows, dtype=np.int64)
    return BatchOrigin(seed, epoch, step, positions, records=positions.copy())


class _BatchIterator(Iterator[Batch]):
    """One pass over an epoch. Ends its threads when it is dropped.

    Nothing that runs in a thread refers to it, so dropping it is enough.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._lock = threading.Lock()  # one thread at a time takes a batch
        self._is_closed = False
        self._is_finished = False
        self._error: Exception | None = None
        self._pipeline: _core.Pipeline | None = None
        self._stage: Stage | None = None
        self._next: Callable[[], Delivered | None] | None = None
        _iterators.add(self)

    def __next__(self) -> Batch:
        with self._lock:
            delivered = self._advance()
            if delivered is not None:
                self._loader._delivered(delivered.step)
                return delivered.batch
            self._is_finished = True
            self.close()
            self._loader._finished()
        raise StopIteration

    def _advance(self) -> Delivered | None:
        if self._is_finished:
            raise StopIteration
        if self._error is not None:
            raise self._error
        self._refuse_if_closed()
        try:
            delivered = self._start() if self._next is None else self._next()
        except Exception as error:
            self._refuse_if_closed()
            # Nothing comes after an error, so nothing is kept ready for it.
            self._error = error
            self.close()
            raise
        if delivered is None:
            self._refuse_if_closed()
        return delivered

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            msg = (
                "this iterator was ended, by a later iter(loader) or by close(): a loader "
                "has one running epoch"
            )
            raise RuntimeError(msg)

    def close(self) -> None:
        """End the threads. A running epoch cannot be continued afterwards."""
        self._is_closed = True
        if self._pipeline is not None:
            self._pipeline.stop()
        if self._stage is not None:
            self._stage.close()
        _iterators.discard(self)

    def __del__(self) -> None:
        self.close()

    def _start(self) -> Delivered | None:
        loader = self._loader
        # What is ahead is shared between the pipeline and the stage behind it.
        n_ahead, memory_limit = loader._prefetch, loader._memory_limit
        has_stage = loader._transform is not None and loader._transform_threads > 0
        n_staged = min(loader._transform_threads + 1, n_ahead // 2) if has_stage else 0
        staged_limit = memory_limit // 2 if has_stage else 0
        self._pipeline = loader._pipeline(
            max(1, n_ahead - n_staged), max(1, memory_limit - staged_limit)
        )
        decoded = _Decoded(
            self._pipeline,
            seed=loader._seed,
            epoch=loader._epoch,
            memory_limit=memory_limit,
        )
        if loader._transform is None:
            self._next = decoded.next
        else:
            self._stage = Stage(
                decoded.next_with_info,
                loader._transform,
                n_threads=loader._transform_threads,
                n_ahead=max(1, n_staged),
                memory_limit=staged_limit,
                batch_bytes=decoded.batch_bytes,
            )
            self._next = self._stage.next
        return self._next()


# Iterators that may have threads: they end before the interpreter does.
_iterators: weakref.WeakSet[_BatchIterator] = weakref.WeakSet()
_loaders: weakref.WeakSet[Loader] = weakref.WeakSet()


def _close_all() -> None:
    for iterator in list(_iterators):
        iterator.close()


def _renew_after_fork() -> None:
    # A thread of the parent may have been in the pool, whose lock nobody holds here.
    for loader in list(_loaders):
        loader._pool = _core.BlockPool(loader._memory_limit)


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
