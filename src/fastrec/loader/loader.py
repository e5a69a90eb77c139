"""Loader: batches of a dataset, epoch by epoch."""

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
from fastrec.display import table
from fastrec.features.padded import any_width_columns
from fastrec.hints import missing_attribute
from fastrec.lifecycle import renew_after_fork
from fastrec.loader.iterables import RepeatedEpochs, TupleBatches
from fastrec.loader.iterator import BatchIterator, check_columns_exist
from fastrec.loader.options import LoaderOptions
from fastrec.loader.progress import Progress
from fastrec.loader.ranks import current_rank
from fastrec.loader.skipped_rows import without_rows
from fastrec.loader.stats import LoaderStats
from fastrec.loader.training_run import TrainingRun
from fastrec.loader.transform_pool import TransformPool
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

_log = logging.getLogger("fastrec")


class Loader(TrainingRun, Generic[B]):
    """An iterable of the batches of a dataset; returned by `Dataset.loader`.

    Each ``for`` over a loader is one epoch. A new ``for`` ends the previous one, also
    after a ``break``. Batches are plain dicts in the order of the schema, and belong to
    the caller, who may keep and change them:

    * dense columns are ndarrays of shape ``(batch, *shape)``, 64-byte aligned,
    * variable-length columns are `RaggedArray`, byte strings are `BytesArray`.

    Batches do not depend on the number of threads. An error is raised in place of its
    batch, after all batches before it, and again by later calls. Rows skipped by
    `on_error` change no step or position: their batch is shorter, perhaps empty, and
    `report` lists them. Threads start with the first batch. Those that decode stop at the
    end of the epoch, at `close`, or when the iterator is garbage-collected. Those of
    transforms serve all epochs, and stop at `close` or with the loader.

    The order of an epoch is computed from the seed and the epoch, so `seek`, `set_epoch`
    and `load_state_dict` move to any step at once.

    A loader can be pickled if its transforms and ``batches=`` can be. The copy has the
    same options and rank, and its first ``for`` continues at the step of the original.

    Examples
    --------
    >>> loader = ds.loader(256, shuffle=True, seed=1)  # doctest: +SKIP
    >>> for epoch in range(3):  # doctest: +SKIP
    ...     for batch in loader:
    ...         step(batch["image"], batch["label"])
    >>> checkpoint = loader.state_dict()  # doctest: +SKIP
    >>> loader.load_state_dict(checkpoint)  # doctest: +SKIP
    """

    def __init__(
        self,
        options: LoaderOptions,
        seed: int,
        dataset: Any,
    ) -> None:
        seed = non_negative_int("seed", seed, 2**64 - 1)
        super().__init__(options, Progress(seed), current_rank)
        self._dataset = dataset
        self._create_pool()
        if self.world_size > 1:
            self._plan()  # raises if a rank would have no rows
            _log.info("this loader is %s", self._rank)

    def _create_pool(self) -> None:
        self._pool = self._options.block_pool()
        self._transform_pool = TransformPool(self._options)
        renew_after_fork(self)

    def _allocate_by(
        self, allocate: Callable[[int], npt.NDArray[np.uint8]], *, recycles: bool
    ) -> None:
        """Allocate batches with ``allocate(n_bytes)``, called inside ``next()``.

        Unless `recycles`, memory is used for one batch. A forked process allocates from
        the system; a process that unpickles the loader calls its own `allocate`.
        """
        self.close()
        self._options = dataclasses.replace(
            self._options, allocate=allocate, recycles=recycles
        )
        self._pool = self._options.block_pool()

    @property
    def dataset(self) -> Any:
        """The `fastrec.Dataset` that the loader reads."""
        return self._dataset

    @property
    def stats(self) -> LoaderStats:
        """Counts of delivered data, and how the time of the loop was spent.

        They cover all epochs of the loader; see `LoaderStats`. ``print(loader.stats)``
        reports whether the loop waits for data.
        """
        return self._progress.stats()

    @property
    def report(self) -> Report:
        """What was skipped or masked in the current ``for``.

        These are regions of damaged framing, as in `Dataset.report`, and then single rows.
        It grows with each delivered batch, and the next ``for`` resets it.
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
            f"shuffle={self._options.planner.shuffle}, {self._rank}, "
            f"num_threads={self._options.num_threads}, epoch {self.epoch}, "
            f"step {self.step}>"
        )

    def _repr_html_(self) -> str:
        """Return the options, the position and the statistics, for notebooks."""
        rows: list[list[object]] = [
            [
                "batch_size",
                "batches=..." if self.batch_size is None else self.batch_size,
            ],
            ["shuffle", repr(self._options.planner.shuffle)],
            ["rank", str(self._rank)],
            ["num_threads", self._options.num_threads],
            ["epoch, step", f"{self.epoch}, {self.step}"],
        ]
        title = f"Loader of {self._dataset!r}"
        return table(["option", "value"], rows, title=title) + self.stats._repr_html_()

    def close(self) -> None:
        """End the running epoch and stop all threads; the next ``for`` starts new ones."""
        self._end_epoch()
        self._transform_pool.close()

    # Batches.

    def __iter__(self) -> Iterator[B]:
        return self._iterate()

    def _iterate(self, names: tuple[str | bytes, ...] | None = None) -> BatchIterator:
        progress = self._progress
        while True:
            at = progress.cursor
            self._end_epoch()
            begin = at.begun()
            self._begin_at(begin.step)
            options = self._options
            transform_pool = self._transform_pool if options.n_transforming else None
            iterator = BatchIterator(
                options, progress, self._pool, begin, transform_pool, names
            )
            begin.iteration.iterator = weakref.ref(iterator)
            if progress.replace(at, begin):
                return iterator

    def tuples(self, *names: str | bytes) -> TupleBatches:
        """Return an iterable whose batches are tuples of some columns.

        A ``for`` over the iterable is a ``for`` over the loader: it is one epoch with the
        same batches, and moves the loader's state. (``for image, label in loader`` would
        bind the names of columns, because a batch is a dict.)

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
            If there are no names, or one is not a str.
        KeyError
            If batches have no such column. With transforms or an adapter, the first
            batch raises it, and is not lost.

        Examples
        --------
        >>> for image, label in loader.tuples("image", "label"):  # doctest: +SKIP
        ...     loss = model(image), label
        """
        if not names or not all(isinstance(name, (str, bytes)) for name in names):
            raise TypeError(
                'tuples() requires column names, such as tuples("image", "label"), '
                f"got {names!r}"
            )
        if self._options.conversion is None and not self._has_transforms:
            check_columns_exist(names, self._options.collator().column_names)
        return TupleBatches(self, names)

    def repeat(self, epochs: int | None = None) -> Iterator[B]:
        """Yield the batches of consecutive epochs, by default endlessly.

        Raises
        ------
        ValueError
            If `epochs` is None and an epoch has no batches.
        """
        if epochs is not None:
            epochs = non_negative_int("epochs", epochs)
        return RepeatedEpochs(self, epochs)

    def batch(self, step: int, epoch: int | None = None) -> B:
        """Return the batch of one step, without changing the loader's state.

        Skipped rows are not in `report` and do not count for `max_errors`.

        Raises
        ------
        IndexError
            If the epoch has no such step.
        ValueError
            If `step` or `epoch` is negative.
        """
        epoch = self.epoch if epoch is None else epoch
        positions, records = self._plan_with(step, epoch).rows(step)
        options = self._options
        policy = options.row_policy
        row_records = records[positions >= 0]
        with options.view.files.renewing():
            parts, unreadable = _core.decode_records(
                options.view.source.to_core(),
                options.view.catalog(),
                self._pool,
                row_records,
                len(records),
                policy,
            )
        collator = options.collator()
        places = None
        if options.conversion is not None or not collator.is_plain:
            context = f" of step {step} of epoch {epoch}"
            places = options.view.row_places(row_records, context).padded(len(records))
        info = BatchInfo(self.seed, epoch, step, positions, records, _places=places)
        if unreadable:
            info = without_rows(info, unreadable, policy)
        batch: Any
        batch, _ = collator(parts, info, options.transform_policy, policy)
        if options.conversion is not None:
            batch = options.conversion(batch, places)
        return batch  # type: ignore[no-any-return]

    def peek(self) -> B:
        """Return the next batch of this epoch, without changing the loader's state.

        Raises
        ------
        IndexError
            If the epoch is at its end.
        """
        at = self._progress.cursor
        return self.batch(at.step, at.epoch)

    # Errors for code that treats a Loader as rows or as an array. Hidden from type
    # checkers, which report such code themselves.

    if not TYPE_CHECKING:

        def __getitem__(self, index: object) -> NoReturn:
            """Raise a TypeError: torch's DataLoader reads rows in this way."""
            raise TypeError(
                f"cannot index a Loader with {index!r}; loop over it, or call "
                "loader.batch(step). It needs no DataLoader; to use one, write "
                "DataLoader(fr.torch.IterableDataset(ds, 256), batch_size=None)"
            )

        def __array__(self, *_: object, **__: object) -> NoReturn:
            """Raise a TypeError: NumPy and Keras convert what has this method."""
            raise TypeError(
                "a Loader yields batches and is not an array: loop over it; for Keras, "
                'write model.fit(fr.keras.PyDataset(loader, label_key="label"), '
                "shuffle=False)"
            )

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(type(self), name):  # a property raised: raise its error again
                object.__getattribute__(self, name)
            raise missing_attribute(self, name)

    # For adapters.

    @property
    def _has_transforms(self) -> bool:
        return self._options.has_transforms

    def _upcoming(self) -> B | None:
        """Return the next batch of the next ``for``, or None, keeping the state."""
        with copy.copy(self) as probe:
            probe._options = dataclasses.replace(
                probe._options, num_threads=0, transform_threads=0, prefetch=1
            )
            return next(iter(probe), None)

    def _empty_batch(self) -> Batch:
        """Return the transformed batch of no rows."""
        readings, _ = self._options.view.source.readings()
        none = np.empty(0, np.int64)
        columns = _core.parse_examples(readings[0].schema._bind(), self._pool, [])
        parts = [(0, columns, None if len(readings) == 1 else none)]
        info = BatchInfo(self.seed, self.epoch, self.step, none, none)
        batch, _ = self._options.collator()(parts, info)
        return batch

    def _table_loader(
        self,
        batch_size: int | None,  # noqa: ARG002
        num_threads: int | None,  # noqa: ARG002
    ) -> Loader[Any]:
        return self

    def _any_width_columns(self) -> set[str | bytes]:
        readings, _ = self._options.view.source.readings()
        return any_width_columns(reading.schema for reading in readings)

    def _place_of(self, row: int) -> tuple[str, int, int] | None:
        """Return file, record and offset of a row of the last batch, if known."""
        files = self._options.view.files
        if self._has_transforms or files.is_streamed or files.on_error != "raise":
            return None
        return self.records_at(self.step - 1)[row]

    # The Arrow PyCapsule Interface.

    def __arrow_c_schema__(self) -> object:
        """Return the Arrow schema; see `fastrec.arrow.RecordBatchReader`."""
        from fastrec.arrow.reader import RecordBatchReader

        return RecordBatchReader(self).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Begin the next epoch, and return it as a stream of Arrow record batches.

        See `fastrec.arrow.RecordBatchReader`.
        """
        from fastrec.arrow.reader import RecordBatchReader

        return RecordBatchReader(self).__arrow_c_stream__(requested_schema)

    def __getstate__(self) -> dict[str, Any]:
        _, seed, epoch, step, phase, *_ = self._progress.cursor
        planner = self._options.planner
        if step and step == planner.plan(seed, epoch, phase).n_steps:
            epoch, step, phase = epoch + 1, 0, 0
        return {
            "_dataset": self._dataset,
            "_options": self._options,
            "_place": (seed, epoch, step, phase),
            "_find_rank": self._find_rank,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._dataset = state["_dataset"]
        progress = Progress(*state["_place"])
        super().__init__(state["_options"], progress, state["_find_rank"])
        self._create_pool()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _renew_after_fork(self) -> None:
        # A thread of the parent may have held their locks during the fork.
        self._pool = _core.BlockPool(self._options.memory_limit)
        self._transform_pool = TransformPool(self._options)
        self._options.planner.renew_after_fork()
