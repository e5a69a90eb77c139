"""Loaders: batches of a dataset, epoch by epoch."""

from __future__ import annotations

import copy
import dataclasses
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.lifecycle import renew_after_fork
from fastrec.loader.collate import OnTransformError
from fastrec.loader.epochs import Repeated, Tuples
from fastrec.loader.iterator import BatchIterator, check_columns_exist
from fastrec.loader.options import MAX_THREADS, LoaderOptions
from fastrec.loader.order import Batches, Shuffle
from fastrec.loader.plan import Planner
from fastrec.loader.prefetch import Feed
from fastrec.loader.progress import Progress
from fastrec.loader.ranks import find_rank
from fastrec.loader.skipped_rows import without_rows
from fastrec.loader.state import State
from fastrec.loader.stats import LoaderStats
from fastrec.loader.steps import Plan
from fastrec.on_error import Report
from fastrec.options import (
    byte_count,
    default_memory_limit,
    default_num_threads,
    non_negative_int,
    positive_int,
)
from fastrec.sources.selection import Numbers
from fastrec.sources.view import View
from fastrec.transforms.batch_info import BatchOrigin
from fastrec.transforms.transform import CheckedTransform, Transform

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Loader", "empty_batch", "fed", "upcoming"]

_log = logging.getLogger("fastrec")

_NOT_AN_ARRAY = (
    "a Loader yields batches and is not an array: loop over it; for Keras, write "
    'model.fit(fr.keras.PyDataset(loader, label_key="label"), shuffle=False)'
)

_MAX_PREFETCH = 65536  # each place in the ring takes memory, used or not


class Loader:
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
        view: View,
        transforms: Sequence[CheckedTransform],
        *,
        dataset: Any,  # noqa: ANN401 (the Dataset that makes the loader)
        batch_size: int | None,
        global_batch_size: int | None,
        batches: Batches | None,
        shuffle: Shuffle,
        seed: int,
        drop_last: bool,
        pad_last: bool,
        rank: int | None,
        world_size: int | None,
        num_threads: int | None,
        prefetch: int | None,
        max_errors: int | None,
        transform: Transform | None,
        transform_threads: int | None,
        on_transform_error: OnTransformError,
        memory_limit: int | str | None,
    ) -> None:
        self._dataset = dataset
        self._rank = find_rank(rank, world_size)
        planner = Planner(
            view,
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            batches=batches,
            shuffle=shuffle,
            drop_last=drop_last,
            pad_last=pad_last,
            rank=self._rank,
        )
        self._progress = Progress(non_negative_int("seed", seed, 2**64 - 1))
        own = () if transform is None else (CheckedTransform(transform),)
        options = LoaderOptions(
            view=view,
            planner=planner,
            transforms=(*transforms, *own),
            num_threads=default_num_threads()
            if num_threads is None
            else non_negative_int("num_threads", num_threads, MAX_THREADS),
            transform_threads=1
            if transform_threads is None
            else non_negative_int("transform_threads", transform_threads, MAX_THREADS),
            prefetch=1
            if prefetch is None
            else positive_int("prefetch", prefetch, _MAX_PREFETCH),
            memory_limit=default_memory_limit()
            if memory_limit is None
            else byte_count("memory_limit", memory_limit),
            max_errors=None
            if max_errors is None
            else non_negative_int("max_errors", max_errors),
            on_transform_error=on_transform_error,
        )
        if prefetch is None:
            n = options.n_transforming
            n_ahead = options.num_threads + 2 + (n + 1 if n else 0)
            options = dataclasses.replace(options, prefetch=n_ahead)
        _check_skipping(options)
        self._options = options
        self._begin()
        if self._rank.world_size > 1:
            self._plan()  # refuses what would leave a rank without rows
            _log.info("this loader is %s", self._rank)

    def _begin(self) -> None:
        """Make what no other loader has, nor the same one in another process."""
        self._pool = self._options.block_pool()
        self._iterator: weakref.ref[BatchIterator] | None = None
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

    # Options and place.

    @property
    def dataset(self) -> Any:  # noqa: ANN401 (a Dataset, which is made of loaders)
        """The `fastrec.Dataset` that the loader reads."""
        return self._dataset

    @property
    def batch_size(self) -> int | None:
        """Rows of this rank in a full batch; None with ``batches=``."""
        return self._planner.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether rows that do not fill a batch of all ranks are left out."""
        return self._planner.drop_last

    @property
    def pad_last(self) -> bool:
        """Whether the last batch is filled with padding."""
        return self._planner.pad_last

    @property
    def seed(self) -> int:
        """The seed of the order and of the transforms' random generators."""
        return self._progress.seed

    @property
    def has_transforms(self) -> bool:
        """Whether functions of the caller make the batches: the dataset's, or its own."""
        return self._options.has_transforms

    @property
    def rank(self) -> int:
        """The rank of this process among those that share the epoch."""
        return self._rank.rank

    @property
    def world_size(self) -> int:
        """How many processes share the epoch."""
        return self._rank.world_size

    @property
    def epoch(self) -> int:
        """The epoch of the batch delivered last, or the next one once it has ended."""
        return self._progress.mark.epoch

    @property
    def step(self) -> int:
        """The steps of this epoch that were delivered, or skipped by `seek`."""
        return self._progress.mark.step

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

    def __len__(self) -> int:
        """Steps of the current epoch, the same on all ranks.

        Builds the index of the dataset if there is none.
        """
        return self._plan().n_steps

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

    @property
    def _planner(self) -> Planner:
        return self._options.planner

    @property
    def _phase(self) -> int:
        return self._progress.mark.phase

    def _plan(self, epoch: int | None = None) -> Plan:
        at = self._progress.mark
        if epoch is None or epoch == at.epoch:
            return self._planner.plan(self.seed, at.epoch, at.phase)
        return self._planner.plan(self.seed, epoch)

    # Moving.

    def seek(self, step: int) -> None:
        """Go to a step of the current epoch: the next ``for`` begins with it.

        A running iteration ends. The step after the last is the first of the next epoch.
        In an epoch that `load_state_dict` cut, steps count through the cut grid; step 0
        starts the epoch again.

        Raises
        ------
        IndexError
            If the epoch has no such step.
        """
        step = non_negative_int("step", step)
        n_steps = self._plan().n_steps
        if step > n_steps:
            msg = f"step {step} is out of range: the epoch has {n_steps:,} steps"
            raise IndexError(msg)
        # The first step of a cut epoch may be too short for all ranks.
        self._move(self.epoch, step, self._phase if step else 0)

    def set_epoch(self, epoch: int) -> None:
        """Start `epoch` with the next ``for``.

        In a loop of the form ``for epoch in ...: loader.set_epoch(epoch)`` it changes
        nothing: the loader counts epochs itself, and continues in the middle of one after
        `load_state_dict` or `seek`.
        """
        epoch = non_negative_int("epoch", epoch)
        if epoch != self.epoch or self._progress.mark.is_begun:
            self._move(epoch, 0, 0)

    def _move(self, epoch: int, step: int, phase: int) -> None:
        if step and step == self._planner.plan(self.seed, epoch, phase).n_steps:
            epoch, step, phase = epoch + 1, 0, 0
        self.close()
        self._progress.move(epoch, step, phase)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is: after the batch that was delivered last.

        The state is less than 400 bytes of JSON-able values, the same on all ranks. It
        does not depend on the number of ranks or threads or on the batch size. After an
        error, it is the place before the batch that failed; a finished epoch is the start
        of the next one. Builds the index of the dataset if there is none.
        """
        plan = self._plan()
        epoch, position = self.epoch, plan.begin_of(self.step)
        if self.step and self.step == plan.n_steps:
            epoch, position = epoch + 1, 0
        fingerprint = self._options.view.fingerprint()
        order = self._planner.state()
        return State(fingerprint, order, self.seed, epoch, position).to_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Go where another loader was; the next ``for`` continues there.

        The other loader may have had another batch size, world size or number of threads:
        the rest of its epoch comes exactly once, in batches of this loader's size. The
        seed of the state replaces this loader's. A running iteration ends.

        Parameters
        ----------
        state : mapping
            The result of `state_dict`, also after a round trip through JSON.
        strict : bool, default True
            Refuse the state of other data: files with other records, in another order, or
            another selection of them. Copies of the files are the same data.

        Raises
        ------
        ValueError
            If it is not a state, or one of another order or, with `strict`, of other
            data; or if the rest of the epoch cannot be divided among the ranks.
        """
        loaded = State.from_dict(state)
        fingerprint = self._options.view.fingerprint() if strict else None
        loaded.check(fingerprint, self._planner.state())
        phase = self._planner.phase(loaded.position)
        first = self._planner.plan(loaded.seed, loaded.epoch)
        if loaded.position > first.n_positions:
            msg = (
                f"the state is at position {loaded.position:,}, but an epoch has "
                f"{first.n_positions:,}"
            )
            raise ValueError(msg)
        plan = self._planner.plan(loaded.seed, loaded.epoch, phase)
        step = plan.step_at(loaded.position)
        if plan.begin_of(step) != loaded.position:
            msg = (
                f"the state is at position {loaded.position:,}, where none of the "
                "batches(seed, epoch) begins: they are not those it was saved with"
            )
            raise ValueError(msg)
        self.close()
        self._progress.seed = loaded.seed
        self._move(loaded.epoch, step, phase)

    def get_state(self) -> dict[str, Any]:
        """Return `state_dict()`, under the name that Grain and Orbax use."""
        return self.state_dict()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Call `load_state_dict(state)`, under the name that Grain and Orbax use."""
        self.load_state_dict(state)

    def records_at(
        self, step: int, epoch: int | None = None
    ) -> list[tuple[str, int, int]]:
        """Return which records this rank gets in a step.

        Returns
        -------
        list of (str, int, int)
            File, record in the file, and byte where its frame begins, for each row that
            is a record.

        Raises
        ------
        IndexError
            If the epoch has no such step.
        """
        plan = self._plan_with(step, epoch)
        _, records = plan.rows(step)
        return self._places(records[records >= 0])

    def records_at_position(
        self, position: int, n: int = 1, epoch: int | None = None
    ) -> list[tuple[str, int, int]]:
        """Return the records at `n` positions of an epoch, whatever the batch size.

        Positions count what all ranks together deliver; see `records_at`.

        Raises
        ------
        IndexError
            If the epoch has no such positions.
        """
        position = non_negative_int("position", position)
        n = non_negative_int("n", n)
        epoch = self.epoch if epoch is None else non_negative_int("epoch", epoch)
        plan = self._plan(epoch)
        if self._planner.sharding is not None:
            msg = (
                "ranks read whole files here, so positions say nothing about records: "
                "ask for records_at(step)"
            )
            raise ValueError(msg)
        if position + n > plan.n_positions:
            msg = (
                f"positions {position} to {position + n} are out of range: the epoch has "
                f"{plan.n_positions:,}"
            )
            raise IndexError(msg)
        positions = np.arange(position, position + n, dtype=np.int64)
        return self._places(plan.order.records(positions))

    def _places(self, records: Numbers) -> list[tuple[str, int, int]]:
        files = self._options.view.sources.files
        places = self._options.view.places(records)
        return [(files[file], record, offset) for file, record, offset in places]

    def _plan_with(self, step: int, epoch: int | None) -> Plan:
        """Return the plan of an epoch that has a step `step`, or raise an IndexError."""
        step = non_negative_int("step", step)
        epoch = self.epoch if epoch is None else non_negative_int("epoch", epoch)
        plan = self._plan(epoch)
        if step >= plan.n_steps:
            msg = f"step {step} is out of range: the epoch has {plan.n_steps:,} steps"
            raise IndexError(msg)
        return plan

    # Batches.

    def __iter__(self) -> Iterator[Batch]:
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
        if self._options.feed is None and not self.has_transforms:
            check_columns_exist(names, self._options.collator().column_names)
        return Tuples(self._iterate, self.__len__, repr(self), names)

    def repeat(self, epochs: int | None = None) -> Iterator[Batch]:
        """Yield the batches of several epochs one after another; for ever by default.

        Raises
        ------
        ValueError
            If `epochs` is not given and an epoch has no batches.
        """
        if epochs is not None:
            epochs = non_negative_int("epochs", epochs)
        return Repeated(self, epochs)

    def batch(self, step: int, epoch: int | None = None) -> Batch:
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
            options.view.sources.of_core(),
            options.view.catalog(),
            self._pool,
            found,
            len(records),
            policy,
        )
        collator = options.collator()
        places = None
        if options.feed is not None or not collator.is_plain:
            context = f" of step {step} of epoch {epoch}"
            places = options.view.located(found, context).padded(len(records))
        info = BatchOrigin(self.seed, epoch, step, positions, records, _places=places)
        if damages:
            info = without_rows(info, damages, policy)
        batch, _ = collator(parts, info, options.transform_policy)
        return batch if options.feed is None else options.feed(batch, places)

    def peek(self) -> Batch:
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
            """Refuse an index: torch's DataLoader asks for rows in this way.

            Raises
            ------
            TypeError
                Always.
            """
            msg = (
                f"a Loader has no rows by number, got {index!r}: loop over it, or call "
                "loader.batch(step). It needs no DataLoader; for one, write "
                "DataLoader(fr.torch.IterableDataset(ds, 256), batch_size=None)"
            )
            raise TypeError(msg)

        def __array__(self, *_: object, **__: object) -> NoReturn:
            """Refuse to be an array, as which NumPy and Keras take what has this method.

            Raises
            ------
            TypeError
                Always.
            """
            raise TypeError(_NOT_AN_ARRAY)

        @property
        def shape(self) -> NoReturn:
            """Not an attribute: Keras asks for it before it converts an array.

            Raises
            ------
            AttributeError
                Always, so that the Loader does not have it.
            """
            raise AttributeError(_NOT_AN_ARRAY)

    # Tables: what the Arrow PyCapsule Interface asks for.

    def __arrow_c_schema__(self) -> object:
        """Return names and types of the columns. Moves no state.

        See `fastrec.arrow.RecordBatchReader`.
        """
        from fastrec import arrow

        return arrow.RecordBatchReader(self).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the next epoch as a stream of record batches, which begins it.

        See `fastrec.arrow.RecordBatchReader`.
        """
        from fastrec import arrow

        return arrow.RecordBatchReader(self).__arrow_c_stream__(requested_schema)

    # The end.

    def close(self) -> None:
        """End the running epoch's threads. The next ``for`` starts new ones."""
        if (iterator := self._running()) is not None:
            iterator.close()

    def _running(self) -> BatchIterator | None:
        return None if self._iterator is None else self._iterator()

    def __getstate__(self) -> dict[str, Any]:
        at = self._progress.copy()
        if self.step and self.step == self._plan().n_steps:
            at.move(self.epoch + 1)
        place = at.seed, *at.mark[:3]
        return {
            "_dataset": self._dataset,
            "_rank": self._rank,
            "_options": self._options,
            "_place": place,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        seed, *place = state.pop("_place")
        self.__dict__.update(state)
        self._progress = Progress(seed)
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


def _check_skipping(options: LoaderOptions) -> None:
    """Refuse options about skipped rows that contradict each other."""
    value = options.on_transform_error
    if value not in ("raise", "skip", "mask"):
        msg = f'on_transform_error must be "raise", "skip" or "mask", got {value!r}'
        raise ValueError(msg)
    masks = options.transform_policy == "mask" and options.has_transforms
    if masks and not options.is_per_row:
        what = (
            'on_transform_error="mask"'
            if value == "mask"
            else 'on_transform_error="skip" with pad_last=True'
        )
        msg = (
            f"{what} masks single rows, which requires transforms made by "
            "fastrec.per_row, got a transform of whole batches"
        )
        raise ValueError(msg)
    on_error = options.view.sources.on_error
    if options.max_errors is not None and on_error == value == "raise":
        msg = (
            "max_errors= counts rows that are skipped or masked, got "
            'on_error="raise" and on_transform_error="raise"'
        )
        raise ValueError(msg)


# For adapters.


def fed(loader: Loader, feed: Feed) -> Loader:
    """Return a loader like this one and at its place, whose batches go through `feed`.

    The new loader has its own iterators, statistics and memory. The old one stays where
    it is.
    """
    copied = copy.copy(loader)
    copied._options = dataclasses.replace(copied._options, feed=feed)
    return copied


def upcoming(loader: Loader) -> Batch | None:
    """Return the batch that a loader delivers next; None at the end. Moves no state."""
    with copy.copy(loader) as probe:
        probe._options = dataclasses.replace(
            probe._options, num_threads=0, transform_threads=0, prefetch=1
        )
        return next(iter(probe), None)


def empty_batch(loader: Loader) -> Batch:
    """Return a batch of no rows, as transforms make it."""
    options = loader._options
    readings, _ = options.view.sources.readings()
    schema = readings[0].features._bind()
    none = np.empty(0, np.int64)
    rows = None if len(readings) == 1 else none
    parts = [(0, _core.parse_examples(schema, loader._pool, []), rows)]
    origin = BatchOrigin(loader.seed, loader.epoch, loader.step, none, none)
    batch, _ = options.collator()(parts, origin)
    return batch
