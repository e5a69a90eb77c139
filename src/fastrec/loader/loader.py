"""Loader: batches of a dataset, epoch by epoch."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.display import table
from fastrec.hints import missing_attribute
from fastrec.loader.batch_reader import BatchReader
from fastrec.loader.iterator import (
    BatchIterator,
    RepeatedEpochs,
    TupleBatches,
    check_columns,
)
from fastrec.loader.options import LoaderOptions
from fastrec.loader.plan import EpochPlan, Planner
from fastrec.loader.progress import STATE_VERSION, Progress, checked_state
from fastrec.loader.ranks import Rank, RankFinder, current_rank
from fastrec.loader.stats import LoaderStats
from fastrec.loader.transform_pool import TransformPool
from fastrec.on_error import Report
from fastrec.options import non_negative_int
from fastrec.tasks import renew_after_fork
from fastrec.transforms.batch_info import BatchInfo

if TYPE_CHECKING:
    from typing_extensions import Self, TypeVar

    B = TypeVar("B", default=Batch)
else:
    from typing import TypeVar

    B = TypeVar("B")

_log = logging.getLogger("fastrec")


class RecordLocation(NamedTuple):
    """The location of a record: its file, record number and byte offset."""

    path: str
    record: int  # number in the file, from 0
    offset: int  # of the record's frame in the file, in bytes


class Loader(Generic[B]):
    """An iterable of the batches of a dataset; returned by `Dataset.loader`.

    Each ``for`` over a loader is one epoch. A new ``for`` closes the previous iterator;
    after a ``break``, it starts the next epoch. Each batch is a plain dict, which the
    caller may keep and change. Its columns are in schema order:

    * dense columns are ndarrays of shape ``(batch, *shape)``, 64-byte aligned,
    * variable-length columns are `RaggedArray`, byte strings are `BytesArray`.

    Batches do not depend on the number of threads. If a batch fails, ``next()`` raises
    the error, and so do later calls. If rows are skipped, the batch is shorter or
    empty; steps and positions do not change, and `report` lists the rows. Threads start
    with the first batch. Decoding threads stop at the end of the epoch, at `close`, or
    when the iterator is garbage-collected. Transform threads serve all epochs, and stop
    at `close` or when the loader is garbage-collected.

    The seed and the epoch number determine the order of an epoch, so `seek`, `set_epoch`
    and `load_state_dict` move to any step at once.

    A loader can be pickled if its transforms and ``batches=`` can be pickled. The copy
    has the same options and rank, and its first ``for`` starts at the original's step.

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
        self._options = options
        self._progress = Progress(seed)
        self._find_rank: RankFinder = current_rank
        self._dataset = dataset
        self._create_pool()
        if self.world_size > 1:
            self._plan()  # raises if a rank would have no rows
            _log.info("this loader is %s", self._rank)

    def _create_pool(self) -> None:
        self._pool = self._options.block_pool()
        self._transform_pool = TransformPool(self._options)
        self._batches: BatchReader | None = None  # opened by batch()
        renew_after_fork(self)

    def _allocate_by(
        self, allocate: Callable[[int], npt.NDArray[np.uint8]], *, recycles: bool
    ) -> None:
        """Allocate batches with ``allocate(n_bytes)``, called inside ``next()``.

        Memory is reused for later batches only if `recycles` is true. A forked process
        uses the system's allocator; an unpickled loader calls its copy of `allocate`.
        """
        self.close()
        self._options = dataclasses.replace(
            self._options, allocate=allocate, recycles=recycles
        )
        self._pool, self._batches = self._options.block_pool(), None

    @property
    def dataset(self) -> Any:
        """The `fastrec.Dataset` that the loader reads."""
        return self._dataset

    @property
    def stats(self) -> LoaderStats:
        """Counts of delivered data, and a breakdown of the loop's time.

        The counts and times cover all epochs of the loader; see `LoaderStats`.
        ``print(loader.stats)`` reports whether the loop waits for data.
        """
        return self._progress.stats()

    @property
    def report(self) -> Report:
        """The file regions and rows that the current ``for`` has skipped or masked.

        Regions of damaged framing come first, as in `Dataset.report`, then single rows.
        The report grows with each delivered batch, and the next ``for`` resets it.
        """
        return self._progress.report()

    @property
    def batch_size(self) -> int | None:
        """The number of this rank's rows in a full batch; None with ``batches=``."""
        return self._planner.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether the loader drops the last batch of an epoch if it is not full."""
        return self._planner.drop_last

    @property
    def pad_last(self) -> bool:
        """Whether the loader pads the last batch of an epoch to the full size."""
        return self._planner.pad_last

    @property
    def seed(self) -> int:
        """The seed of the record order and of the transforms' random generators."""
        return self._progress.cursor.seed

    @property
    def rank(self) -> int:
        """The rank of this process among the processes that share the epoch."""
        return self._planner.rank.rank

    @property
    def world_size(self) -> int:
        """The number of processes that share the epoch."""
        return self._planner.rank.world_size

    @property
    def epoch(self) -> int:
        """The current epoch number; after an epoch ends, the number of the next."""
        return self._progress.cursor.epoch

    @property
    def step(self) -> int:
        """The number of steps of this epoch that were delivered or skipped so far."""
        return self._progress.cursor.step

    def __len__(self) -> int:
        """Return the number of steps of the current epoch, which is equal on all ranks.

        Builds the index of the dataset if necessary.
        """
        at = self._progress.cursor
        if not at.is_begun:
            self._begin_at(at.step)
        return self._plan().n_steps

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """An object whose attribute ``sampler`` is this loader, for Lightning.

        Lightning calls ``batch_sampler.sampler.set_epoch`` before each epoch. So a run
        resumed at the end of an epoch continues with the order of the next epoch.
        """
        return SimpleNamespace(sampler=self)

    # The plan for the rank of this process.

    @property
    def _planner(self) -> Planner:
        return self._planner_at(self._progress.cursor.step)

    def _planner_at(self, step: int) -> Planner:
        """Return the planner of the epoch; if `step` is 0, update its rank first."""
        if not step:
            self._adopt(self._current_planner())
        return self._options.planner

    def _current_planner(self) -> Planner:
        """Return a planner for the current rank of this process."""
        planner = self._options.planner
        rank = self._find_rank(planner.rank)
        is_same = rank.is_same(planner.rank)
        return planner if is_same else dataclasses.replace(planner, rank=rank)

    def _adopt(self, planner: Planner) -> None:
        if planner is not self._options.planner:
            self._options = dataclasses.replace(self._options, planner=planner)
            if planner.rank.world_size > 1:
                _log.info("this loader is %s", planner.rank)

    def _follow(self, find_rank: RankFinder) -> None:
        """Find the rank with `find_rank`, now and at the start of each epoch.

        Raises a ValueError if the rank differs in the middle of an epoch.
        """
        self._find_rank = find_rank
        self._begin_at(self._progress.cursor.begun().step)

    def _begin_at(self, step: int) -> None:
        """Prepare to read from `step` with the current rank of this process.

        Raises a ValueError if the loader reached `step` with a different rank.
        """
        planner = self._current_planner()
        if step and planner is not self._options.planner:
            raise ValueError(
                f"the loader reached step {step} of epoch {self.epoch} as {self._rank}, "
                f"but this process is now {planner.rank}: create the process group first, "
                "then call loader.load_state_dict(state) or loader.seek(step)"
            )
        self._adopt(planner)

    @property
    def _phase(self) -> int:
        return self._progress.cursor.phase

    def _plan(self, epoch: int | None = None) -> EpochPlan:
        at = self._progress.cursor
        planner = self._planner_at(at.step)
        if epoch is None or epoch == at.epoch:
            return planner.plan(at.seed, at.epoch, at.phase)
        return planner.plan(at.seed, epoch)

    @property
    def _size(self) -> str:
        n = self.batch_size
        return "batches=..." if n is None else f"batch_size={n}"

    def __repr__(self) -> str:
        options = self._options
        return (
            f"<fastrec.Loader of {self._dataset!r}, {self._size}, "
            f"shuffle={options.planner.shuffle}, {self._rank}, "
            f"num_threads={options.num_threads}, epoch {self.epoch}, step {self.step}>"
        )

    def _repr_html_(self) -> str:
        """Return the options, position and statistics as HTML, for notebooks."""
        rows: list[list[object]] = [
            [*self._size.split("=")],
            ["shuffle", repr(self._options.planner.shuffle)],
            ["rank", str(self._rank)],
            ["num_threads", self._options.num_threads],
            ["epoch, step", f"{self.epoch}, {self.step}"],
        ]
        title = f"Loader of {self._dataset!r}"
        return table(["option", "value"], rows, title=title) + self.stats._repr_html_()

    def close(self) -> None:
        """End the running epoch and stop all threads; the next ``for`` restarts them."""
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
        """Return an iterable of batches as tuples of the columns `names`.

        A ``for`` over the iterable is one epoch of the loader with the same batches, and
        advances the loader's state. (``for image, label in loader`` would unpack column
        names, because a batch is a dict.)

        Parameters
        ----------
        *names : str
            Column names in the order of the tuple, at least one.

        Returns
        -------
        iterable of tuple
            Each tuple holds the columns `names` of one batch.

        Raises
        ------
        TypeError
            If `names` is empty, or a name is not a str or bytes.
        KeyError
            If a column does not exist. With transforms or an adapter, the first
            ``next()`` raises this error, and the next ``for`` starts with that batch.

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
            check_columns(names, self._options.collator().column_names)
        return TupleBatches(self, names)

    def repeat(self, epochs: int | None = None) -> Iterator[B]:
        """Yield the batches of the next `epochs` epochs; by default, never stop.

        Raises
        ------
        ValueError
            If `epochs` is None and an epoch has no batches.
        """
        n_epochs = math.inf if epochs is None else non_negative_int("epochs", epochs)
        return RepeatedEpochs(self, n_epochs)

    def batch(self, step: int, epoch: int | None = None) -> B:
        """Return the batch of one step, without changing the loader's state.

        `report` and `max_errors` ignore the rows that this call skips.

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
        if self._batches is None:
            self._batches = BatchReader.of(options, self._pool)
        context = f" of step {step} of epoch {epoch}"
        places = options.source.row_places(records, context)
        info = BatchInfo(self.seed, epoch, step, positions, records, _places=places)
        batch: Any = self._batches.read_alone(info)
        if options.conversion is not None:
            batch = options.conversion(batch, places)
        return batch  # type: ignore[no-any-return]

    def peek(self) -> B:
        """Return the next batch of this epoch, without changing the loader's state.

        Raises
        ------
        IndexError
            If the epoch has no further step.
        """
        at = self._progress.cursor
        return self.batch(at.step, at.epoch)

    # The position in the training run.

    def seek(self, step: int) -> None:
        """Move to a step of the current epoch, where the next ``for`` starts.

        Closes the running iterator. ``seek(len(loader))`` moves to the next epoch. After
        `load_state_dict` with a different batch size, steps are aligned to the loaded
        position; ``seek(0)`` restarts the whole epoch.

        Raises
        ------
        IndexError
            If the epoch has no such step.
        """
        step = non_negative_int("step", step)
        planner, at = self._current_planner(), self._progress.cursor
        # With a phase, step 0 may have too few rows for all ranks.
        phase = at.phase if step and planner is self._options.planner else 0
        n_steps = planner.plan(at.seed, at.epoch, phase).n_steps
        if step > n_steps:
            raise IndexError(
                f"step {step} is out of range: the epoch has {n_steps:,} steps"
            )
        self._move(at.seed, at.epoch, step, phase, planner)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that the next ``for`` starts.

        A loop may call ``loader.set_epoch(epoch)`` before each epoch, but need not: the
        loader counts epochs itself. If `load_state_dict` or `seek` has set a step of
        `epoch`, the call keeps that step. An iterator from which no batch was requested
        stays valid, and delivers the batches of `epoch`.
        """
        epoch = non_negative_int("epoch", epoch)
        at, iterator = self._progress.cursor, self._running()
        if epoch == at.epoch and not at.is_begun:
            return
        if iterator is not None and iterator.is_unopened:
            self._progress.move(at.seed, epoch, 0, 0)
        else:
            self._move(at.seed, epoch, 0, 0, self._options.planner)

    def _move(
        self, seed: int, epoch: int, step: int, phase: int, planner: Planner
    ) -> None:
        place = planner.settled(seed, epoch, step, phase)
        self._end_epoch()
        self._progress.move(*place)
        self._adopt(planner)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state: the position after the last delivered batch.

        The state has fewer than 400 bytes of JSON-compatible values and is equal on all
        ranks. The position does not depend on batch size, world size or threads. After an
        error, the position is before the failed batch; after an epoch, it is the start of
        the next epoch. Builds the index of the dataset if necessary.
        """
        at = self._progress.cursor  # read once: another thread may take a batch
        planner = self._planner_at(at.step)
        _, epoch, step, phase = planner.settled(at.seed, at.epoch, at.step, at.phase)
        position = planner.plan(at.seed, epoch, phase).begin_of(step) if step else 0
        return {
            "version": STATE_VERSION,
            "fingerprint": self._options.source.fingerprint(),
            "order": planner.state(),
            "seed": at.seed,
            "epoch": epoch,
            "position": position,
        }

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Move to a saved position, where the next ``for`` continues.

        The state may come from a loader with a different batch size, world size or number
        of threads. The loader delivers the rest of the epoch exactly once, in batches of
        its own size. The seed of the state replaces the seed of the loader. Closes the
        running iterator.

        Parameters
        ----------
        state : mapping
            The result of `state_dict`, also after a round trip through JSON.
        strict : bool, default True
            Raise an error if the state was saved for a different dataset: different
            records, file order or selection. Copies of the files count as the same.

        Raises
        ------
        ValueError
            If `state` is invalid or was saved with a different order or, with `strict`,
            for a different dataset; or if ranks cannot divide the rest of the epoch.
        """
        planner = self._current_planner()
        saved_for, order, seed, epoch, position = checked_state(state).values()
        if order != planner.state():
            raise ValueError(
                f"state was saved with a different order: {order}, but this loader has "
                f"{planner.state()}"
            )
        if strict and saved_for != (expected := self._options.source.fingerprint()):
            raise ValueError(
                "state was saved for a different dataset (fingerprint "
                f"{saved_for}, expected {expected}): files, their order or the "
                "selection differ; pass strict=False to load it anyway"
            )
        n_positions = planner.plan(seed, epoch).n_positions
        if position > n_positions:
            raise ValueError(
                f"position of the state must be at most {n_positions:,}, the number of "
                f"positions of an epoch, got {position:,}"
            )
        phase = position % planner.global_batch_size
        plan = planner.plan(seed, epoch, phase)
        step = plan.step_at(position)
        if plan.begin_of(step) != position:
            raise ValueError(
                f"position {position:,} of the state must be the start of a batch of "
                "batches(seed, epoch), which returned different batches when the state was "
                "saved"
            )
        self._move(seed, epoch, step, phase, planner)

    def records_at(self, step: int, epoch: int | None = None) -> list[RecordLocation]:
        """Return the locations of this rank's records in a step.

        Returns
        -------
        list of RecordLocation
            Named tuples ``(path, record, offset)``, one for each row except padding: the
            file, the record's number in the file, and the byte offset of its frame.

        Raises
        ------
        IndexError
            If the epoch has no such step.
        """
        _, records = self._plan_with(step, epoch).rows(step)
        source = self._options.source
        places = source.places(records[records >= 0])
        files = source.files.files
        return [RecordLocation(files[i], *place) for i, *place, _ in places.tolist()]

    def _plan_with(self, step: int, epoch: int | None) -> EpochPlan:
        """Return the plan of an epoch; raise an IndexError if `step` is out of range."""
        step = non_negative_int("step", step)
        epoch = self.epoch if epoch is None else non_negative_int("epoch", epoch)
        plan = self._plan(epoch)
        if step >= plan.n_steps:
            raise IndexError(
                f"step {step} is out of range: the epoch has {plan.n_steps:,} steps"
            )
        return plan

    def _end_epoch(self) -> None:
        if (iterator := self._running()) is not None:
            iterator.close()

    def _running(self) -> BatchIterator | None:
        ref = self._progress.cursor.iteration.iterator
        return None if ref is None else ref()

    @property
    def _rank(self) -> Rank:
        return self._options.planner.rank

    # Errors for code that treats a Loader as a sequence of rows or an array. Type checkers
    # do not see these methods, and report such code themselves.

    if not TYPE_CHECKING:

        def __getitem__(self, index: object) -> NoReturn:
            """Raise a TypeError with advice for users of torch's DataLoader."""
            raise TypeError(
                f"cannot index a Loader with {index!r}; loop over it, or call "
                "loader.batch(step). It needs no DataLoader; to use one, write "
                "DataLoader(fr.torch.IterableDataset(ds, 256), batch_size=None)"
            )

        def __array__(self, *_: object, **__: object) -> NoReturn:
            """Raise a TypeError with advice for users of NumPy and Keras."""
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
        """Preview the next ``for``: return its first batch, or None if it is empty."""
        with copy.copy(self) as probe:
            probe._options = dataclasses.replace(
                probe._options, num_threads=0, transform_threads=0, prefetch=1
            )
            return next(iter(probe), None)

    def _empty_batch(self) -> Batch:
        """Return the result of the transforms for a batch of no rows."""
        source, none = self._options.source, np.empty(0, np.int64)
        readings, _ = source.readings()
        schema = readings[0].record_schema
        columns = _core.parse_examples(schema._bind(), self._pool, [])
        parts = [(0, columns, None if len(readings) == 1 else none)]
        info = BatchInfo(self.seed, self.epoch, self.step, none, none)
        batch, _ = self._options.collator()(parts, source.with_steps(info))
        return batch

    def _table_loader(
        self,
        batch_size: int | None,  # noqa: ARG002
        num_threads: int | None,  # noqa: ARG002
    ) -> Loader[Any]:
        return self

    def _place_of(self, row: int) -> tuple[str, int, int] | None:
        """Return (file, record, offset) of a row of the last batch; None if unknown."""
        files = self._options.source.files
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
        return {
            "_dataset": self._dataset,
            "_options": self._options,
            "_place": self._options.planner.settled(seed, epoch, step, phase),
            "_find_rank": self._find_rank,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._progress = Progress(*state.pop("_place"))
        self.__dict__.update(state)
        self._create_pool()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _renew_after_fork(self) -> None:
        # A thread of the parent may have held the locks of these during the fork.
        self._pool, self._batches = _core.BlockPool(self._options.memory_limit), None
        self._transform_pool = TransformPool(self._options)
        self._options.planner.renew_after_fork()
