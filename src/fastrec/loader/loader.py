"""Loaders: batches of a dataset, epoch by epoch."""

from __future__ import annotations

import copy
import dataclasses
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NoReturn

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.features.padded import any_width_columns
from fastrec.hints import missing_attribute
from fastrec.lifecycle import renew_after_fork
from fastrec.loader.epochs import Repeated, Tuples
from fastrec.loader.iterator import BatchIterator, check_columns_exist
from fastrec.loader.options import LoaderOptions
from fastrec.loader.progress import Progress
from fastrec.loader.skipped_rows import without_rows
from fastrec.loader.stats import LoaderStats
from fastrec.loader.training_run import TrainingRun
from fastrec.on_error import Report
from fastrec.options import (
    non_negative_int,
)
from fastrec.transforms.batch_info import BatchInfo

if TYPE_CHECKING:
    from typing_extensions import Self, TypeVar

    B = TypeVar("B", default=Batch)
else:
    from typing import TypeVar

    B = TypeVar("B")

__all__ = ["Loader"]

_log = logging.getLogger("fastrec")


class Loader(TrainingRun, Generic[B]):
    """Batches of a dataset; made by `Dataset.loader`, which describes the options.

    A loader is an iterable, not an iterator: each ``for`` over it is one epoch, and a new
    ``for`` ends the one before, also after a ``break``. Its batches are plain dicts in
    the order of the schema. They belong to the caller, to keep and to change:

    * dense columns are ndarrays of shape ``(batch, *shape)``, 64-byte aligned,
    * variable-length columns are `RaggedArray`, byte strings are `BytesArray`.

    The batches are the same, bit for bit, for any number of threads. An error takes the
    place of its batch, after all batches before it, and the iterator raises it again if
    it is asked again. Rows that `on_error` skips change no step and no position: their
    batch is shorter, perhaps empty, and `report` lists them. Threads start with the first
    batch and end with the epoch, with `close`, or when the iterator is dropped.

    An epoch's order is arithmetic in the seed and the epoch. So a loader can go anywhere
    in its training run at once: `seek`, `set_epoch`, `load_state_dict`.

    A loader can be pickled if its transforms and ``batches=`` can: the copy has the same
    options and rank, and its first ``for`` continues where the original was.
    """

    def __init__(
        self,
        options: LoaderOptions,
        seed: int,
        dataset: Any,  # noqa: ANN401 (the Dataset that makes the loader)
    ) -> None:
        seed = non_negative_int("seed", seed, 2**64 - 1)
        super().__init__(options, Progress(seed))
        self._dataset = dataset
        self._begin()
        if self.world_size > 1:
            self._plan()  # refuses what would leave a rank without rows
            _log.info("this loader is %s", self._rank)

    def _begin(self) -> None:
        """Make what no other loader has, nor the same one in another process."""
        self._pool = self._options.block_pool()
        renew_after_fork(self)

    def _allocate_by(
        self, allocate: Callable[[int], npt.NDArray[np.uint8]], *, recycles: bool
    ) -> None:
        """Take the memory of batches from ``allocate(n_bytes)``, called inside ``next()``.

        Unless `recycles`, memory is used for one batch. A forked process has memory of
        the system again; one that unpickles the loader calls its own `allocate`.
        """
        self.close()
        self._options = dataclasses.replace(
            self._options, allocate=allocate, recycles=recycles
        )
        self._pool = self._options.block_pool()

    @property
    def dataset(self) -> Any:  # noqa: ANN401 (a Dataset, which is made of loaders)
        """The `fastrec.Dataset` that the loader reads."""
        return self._dataset

    @property
    def stats(self) -> LoaderStats:
        """What was delivered so far, and where the time of the loop went.

        It counts from when the loader was made, over all its epochs; see `LoaderStats`.
        ``print(loader.stats)`` says whether the loop waits for data.
        """
        return self._progress.stats()

    @property
    def report(self) -> Report:
        """The rows that were skipped or masked since the running ``for`` began.

        It grows with every batch that is delivered, stays after the last one, and starts
        again with the next ``for``. Damaged framing is in `Dataset.report`.
        """
        return self._progress.report()

    def __repr__(self) -> str:
        size = (
            "batches=..."
            if self.batch_size is None
            else f"batch_size={self.batch_size}"
        )
        return (
            f"<fastrec.Loader of {self._dataset!r}, {size}, "
            f"shuffle={self._planner.shuffle}, {self._rank}, "
            f"num_threads={self._options.num_threads}, epoch {self.epoch}, "
            f"step {self.step}>"
        )

    # Batches.

    def __iter__(self) -> Iterator[B]:
        return self._iterate()

    def _iterate(self, names: tuple[str | bytes, ...] | None = None) -> BatchIterator:
        self.close()
        self._progress.begin()
        iterator = BatchIterator(self._options, self._progress, self._pool, names)
        self._iterator = weakref.ref(iterator)
        return iterator

    def tuples(self, *names: str | bytes) -> Tuples:
        """Return an iterable whose batches are tuples of some columns.

        A batch is a dict, so ``for image, label in loader`` would bind the names of its
        columns. This iterable has the same batches and ``len()``. Its ``for`` is a
        ``for`` over the loader: it moves the loader's state, and each one is one epoch.

        Parameters
        ----------
        *names : str
            Columns, in the order of the tuple; at least one.

        Returns
        -------
        iterable of tuple
            Each tuple holds the columns `names` of one batch.

        Raises
        ------
        TypeError
            If no name is given, or one is not a str.
        KeyError
            If batches have no such column. Where transforms or an adapter make the
            columns, the first batch raises it, and is not lost.

        Examples
        --------
        >>> for image, label in loader.tuples("image", "label"):  # doctest: +SKIP
        ...     loss = model(image), label
        """
        if not names or not all(isinstance(name, (str, bytes)) for name in names):
            msg = (
                'tuples() requires names of columns, such as tuples("image", "label"), '
                f"got {names!r}"
            )
            raise TypeError(msg)
        if self._options.conversion is None and not self._has_transforms:
            check_columns_exist(names, self._options.collator().column_names)
        return Tuples(self, names)

    def repeat(self, epochs: int | None = None) -> Iterator[B]:
        """Yield the batches of several epochs one after another; for ever by default.

        Raises
        ------
        ValueError
            If `epochs` is not given and an epoch has no batches.
        """
        if epochs is not None:
            epochs = non_negative_int("epochs", epochs)
        return Repeated(self, epochs)

    def batch(self, step: int, epoch: int | None = None) -> B:
        """Return the batch of one step, as an epoch delivers it. Moves no state.

        It counts in neither `report` nor `max_errors`.

        Raises
        ------
        IndexError
            If the epoch has no such step.
        ValueError
            If `step` or `epoch` is negative.
        """
        positions, records = self._plan_with(step, epoch).rows(step)
        epoch = self.epoch if epoch is None else epoch
        options = self._options
        policy = options.row_policy
        found = records[positions >= 0]
        parts, damages = _core.decode_records(
            options.view.source.of_core(),
            options.view.catalog(),
            self._pool,
            found,
            len(records),
            policy,
        )
        collator = options.collator()
        places = None
        if options.conversion is not None or not collator.is_plain:
            context = f" of step {step} of epoch {epoch}"
            places = options.view.located(found, context).padded(len(records))
        info = BatchInfo(self.seed, epoch, step, positions, records, _places=places)
        if damages:
            info = without_rows(info, damages, policy)
        batch: Any
        batch, _ = collator(parts, info, options.transform_policy)
        if options.conversion is not None:
            batch = options.conversion(batch, places)
        return batch  # type: ignore[no-any-return]

    def peek(self) -> B:
        """Return the next batch of this epoch. Moves no state.

        Raises
        ------
        IndexError
            If the epoch is at its end.
        """
        return self.batch(self.step)

    # What takes a Loader for rows or for an array. Type checkers refuse it themselves.

    if not TYPE_CHECKING:

        def __getitem__(self, index: object) -> NoReturn:
            """Raise a TypeError: torch's DataLoader asks for rows in this way."""
            msg = (
                f"a Loader has no rows by number, got {index!r}: loop over it, or call "
                "loader.batch(step). It needs no DataLoader; for one, write "
                "DataLoader(fr.torch.IterableDataset(ds, 256), batch_size=None)"
            )
            raise TypeError(msg)

        def __array__(self, *_: object, **__: object) -> NoReturn:
            """Raise a TypeError: NumPy and Keras convert what has this method."""
            msg = (
                "a Loader yields batches and is not an array: loop over it; for Keras, "
                'write model.fit(fr.keras.PyDataset(loader, label_key="label"), '
                "shuffle=False)"
            )
            raise TypeError(msg)

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(type(self), name):  # a property raised: raise its error again
                object.__getattribute__(self, name)
            raise missing_attribute(self, name)

    # For adapters.

    @property
    def _has_transforms(self) -> bool:
        return self._options.has_transforms

    def _upcoming(self) -> B | None:
        """Return the next batch of the next ``for``; None at the end. Moves no state."""
        with copy.copy(self) as probe:
            probe._options = dataclasses.replace(
                probe._options, num_threads=0, transform_threads=0, prefetch=1
            )
            return next(iter(probe), None)

    def _empty_batch(self) -> Batch:
        """Return a batch of no rows, as transforms make it."""
        readings, _ = self._options.view.source.readings()
        none = np.empty(0, np.int64)
        columns = _core.parse_examples(readings[0].schema._bind(), self._pool, [])
        parts = [(0, columns, None if len(readings) == 1 else none)]
        info = BatchInfo(self.seed, self.epoch, self.step, none, none)
        batch, _ = self._options.collator()(parts, info)
        return batch

    def _table_loader(self, batch_size: int | None) -> Loader[Any]:  # noqa: ARG002
        return self

    def _any_width_columns(self) -> set[str | bytes]:
        readings, _ = self._options.view.source.readings()
        return any_width_columns(reading.schema for reading in readings)

    def _place_of(self, row: int) -> tuple[str, int, int] | None:
        """Return the record of a row of the last batch, if rows are records."""
        files = self._options.view.files
        if self._has_transforms or files.is_streamed or files.on_error != "raise":
            return None
        return self.records_at(self.step - 1)[row]

    # The Arrow PyCapsule Interface.

    def __arrow_c_schema__(self) -> object:
        """Return names and types of the columns. Moves no state.

        See `fastrec.arrow.RecordBatchReader`.
        """
        from fastrec.arrow.reader import RecordBatchReader

        return RecordBatchReader(self).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the next epoch as a stream of record batches, which begins it.

        See `fastrec.arrow.RecordBatchReader`.
        """
        from fastrec.arrow.reader import RecordBatchReader

        return RecordBatchReader(self).__arrow_c_stream__(requested_schema)

    def __getstate__(self) -> dict[str, Any]:
        at = self._progress.copy()
        if self.step and self.step == self._plan().n_steps:
            at.move(self.epoch + 1)
        place = at.seed, *at.mark[:3]
        return {
            "_dataset": self._dataset,
            "_options": self._options,
            "_place": place,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._dataset = state["_dataset"]
        seed, *place = state["_place"]
        super().__init__(state["_options"], Progress(seed))
        self._progress.move(*place)
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _renew_after_fork(self) -> None:
        # A thread of the parent may have held the locks of the pool and the plans.
        self._pool = _core.BlockPool(self._options.memory_limit)
        self._planner._renew_after_fork()
