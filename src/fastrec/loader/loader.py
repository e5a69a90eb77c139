"""Loaders: batches of a dataset, epoch by epoch."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.features.padded import any_width_columns
from fastrec.loader.collate import Assembly, OnTransformError
from fastrec.loader.epochs import Repeated, Tuples
from fastrec.loader.iterator import BatchIterator, check_columns_exist
from fastrec.loader.order import Batches, Shuffle
from fastrec.loader.plan import Planner
from fastrec.loader.prefetch import Feed, empty_batch, upcoming
from fastrec.loader.ranks import find_rank
from fastrec.loader.state import State
from fastrec.loader.stats import LoaderStats, Tally
from fastrec.loader.steps import Plan
from fastrec.loader.transforms import (
    BatchOrigin,
    CheckedTransform,
    Delivered,
    Transform,
)
from fastrec.on_error import Loss, Losses, Report, RowJudge
from fastrec.options import (
    byte_count,
    default_memory_limit,
    default_num_threads,
    non_negative_int,
    positive_int,
)
from fastrec.sources.selection import Numbers

if TYPE_CHECKING:
    from typing_extensions import Self

    from fastrec.dataset.dataset import Dataset

__all__ = ["Loader", "Transform"]

_log = logging.getLogger("fastrec")

# What makes memory for batches, if not the system, and whether that is used again.
_Allocator: TypeAlias = "tuple[Callable[[int], npt.NDArray[np.uint8]] | None, bool]"

_NOT_AN_ARRAY = (
    "a Loader yields batches and is not an array: loop over it; for Keras, write "
    'model.fit(fr.keras.PyDataset(loader, label_key="label"), shuffle=False)'
)
# Of a loader, before a batch is delivered: whether an epoch is begun, its step, batches,
# records and bytes that are counted, and rows in its report.
Mark: TypeAlias = "tuple[bool, int, int, int, int, int]"

_MOST_THREADS = 4096
_MOST_AHEAD = 65536  # each place in the ring takes memory, used or not

# Records below this many bytes are slow to get one by one from a network file system.
_SMALL_RECORD_BYTES = 256 << 10


class Loader:
    """Batches of a dataset; made by `Dataset.loader`, which describes the options.

    A loader is an iterable, not its own iterator: each ``for`` over it is one epoch, and
    a new ``for`` ends the one before, also after a ``break``. Its batches are plain dicts
    in the order of the schema, and belong to the caller, to keep and to change:

    * dense columns are ndarrays of shape ``(batch, *shape)``, 64-byte aligned,
    * variable-length columns are `RaggedArray`, byte strings are `BytesArray`.

    The same batches come out, bit for bit, for any number of threads. An error takes the
    place of the batch it happened in, after all batches before it; the iterator raises it
    again if it is asked again. Rows that `on_error` passes over change nothing about steps
    and positions: their batch is shorter, perhaps without any row, and `report` lists
    them. Threads start with the first batch and end with the epoch, with `close`, or when
    the iterator is dropped.

    What an epoch delivers is arithmetic in the seed and the epoch. So a loader can be put
    anywhere in its training run, at once: `seek`, `set_epoch`, `load_state_dict`.

    A loader can be pickled if its transforms and ``batches=`` can: the copy has the same
    options and rank, and its first ``for`` continues where the original was.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
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
        self._planner = Planner(
            dataset._view,
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            batches=batches,
            shuffle=shuffle,
            drop_last=drop_last,
            pad_last=pad_last,
            rank=self._rank,
        )
        self._seed = non_negative_int("seed", seed, 2**64 - 1)
        self._num_threads = (
            default_num_threads()
            if num_threads is None
            else non_negative_int("num_threads", num_threads, _MOST_THREADS)
        )
        self._transform = None if transform is None else CheckedTransform(transform)
        self._transform_threads = (
            1
            if transform_threads is None
            else non_negative_int("transform_threads", transform_threads, _MOST_THREADS)
        )
        n_transforming = self._n_transforming
        self._prefetch = (
            self._num_threads + 2 + (n_transforming + 1 if n_transforming else 0)
            if prefetch is None
            else positive_int("prefetch", prefetch, _MOST_AHEAD)
        )
        self._memory_limit = (
            default_memory_limit()
            if memory_limit is None
            else byte_count("memory_limit", memory_limit)
        )
        self._on_transform_error = self._checked_on_transform_error(on_transform_error)
        if max_errors is not None:
            max_errors = non_negative_int("max_errors", max_errors)
            if dataset.on_error == on_transform_error == "raise":
                msg = (
                    "max_errors= counts rows that are skipped or masked, got "
                    'on_error="raise" and on_transform_error="raise"'
                )
                raise ValueError(msg)
        self._max_errors = max_errors
        self._feed: Feed | None = None  # what an adapter makes of batches
        self._allocator: _Allocator = (None, True)
        self._epoch = 0
        self._step = 0
        self._phase = 0  # rows of step 0, where the epoch was cut by other batch sizes
        self._is_begun = False  # a batch of this epoch was delivered
        self._is_advised = False
        self._begin()
        if self._rank.world_size > 1:
            self._plan()  # refuses what would leave a rank without rows
            _log.info("this loader is %s", self._rank)

    def _checked_on_transform_error(self, value: OnTransformError) -> OnTransformError:
        if value not in ("raise", "skip", "mask"):
            msg = f'on_transform_error must be "raise", "skip" or "mask", got {value!r}'
            raise ValueError(msg)
        if value == "raise" or not self.has_transforms:
            return value
        keeps_shape = value == "mask" or self._planner.pad_last
        if keeps_shape and not self._is_per_row:
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
        return value

    def _begin(self) -> None:
        """Make what no other loader has, nor the same one in another process."""
        self._pool = _core.BlockPool(self._memory_limit, *self._allocator)
        self._tally = Tally()
        self._losses = Losses()
        self._iterator: weakref.ref[BatchIterator] | None = None
        _loaders.add(self)

    def _allocate_by(
        self, allocate: Callable[[int], npt.NDArray[np.uint8]], *, recycles: bool
    ) -> None:
        """Take the memory of batches from ``allocate(n_bytes)``.

        It is called inside ``next()``, for batches after that one. Unless `recycles`,
        memory is used for one batch and let go of. A process that is forked has memory
        of the system again; one that unpickles the loader calls its own `allocate`.
        """
        self.close()
        self._allocator = allocate, recycles
        self._pool = _core.BlockPool(self._memory_limit, *self._allocator)

    # What it is, and where.

    @property
    def dataset(self) -> Dataset:
        """What the batches are of."""
        return self._dataset

    @property
    def batch_size(self) -> int | None:
        """Rows of this rank in a full batch; None where ``batches=`` lists them."""
        return self._planner.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether rows that do not fill a batch of all ranks are left out."""
        return self._planner.drop_last

    @property
    def pad_last(self) -> bool:
        """Whether the last batch is filled with rows that are no records."""
        return self._planner.pad_last

    @property
    def seed(self) -> int:
        """What epochs are shuffled by, together with their number."""
        return self._seed

    @property
    def has_transforms(self) -> bool:
        """Whether functions of the user's make the batches: of the dataset, or its own."""
        return bool(self._all_transforms())

    def _all_transforms(self) -> list[CheckedTransform]:
        own = [] if self._transform is None else [self._transform]
        return [*self._dataset._all_transforms(), *own]

    @property
    def _is_per_row(self) -> bool:
        return all(transform.is_per_row for transform in self._all_transforms())

    @property
    def _n_transforming(self) -> int:
        """Batches that threads transform at the same time; 0 where `next` does."""
        if not self.has_transforms:
            return 0
        return min(self._transform_threads, 1 if self._is_per_row else _MOST_THREADS)

    @property
    def rank(self) -> int:
        """Which of the processes that share the epoch this one is."""
        return self._rank.rank

    @property
    def world_size(self) -> int:
        """How many processes share the epoch."""
        return self._rank.world_size

    @property
    def epoch(self) -> int:
        """The epoch of the batch delivered last, or the next one once it has ended."""
        return self._epoch

    @property
    def step(self) -> int:
        """The steps of this epoch that were delivered, or passed over by `seek`."""
        return self._step

    @property
    def stats(self) -> LoaderStats:
        """What was delivered so far, and where the time of the loop went.

        It counts from when the loader was made, over all its epochs; see `LoaderStats`.
        ``print(loader.stats)`` says whether the loop waits for data.
        """
        if (iterator := self._running()) is not None:
            iterator.count_helping()
        return self._tally.stats()

    @property
    def report(self) -> Report:
        """The rows that were left out or masked since the running ``for`` began.

        It grows with every batch that is delivered, stays after the last one, and begins
        anew with the next ``for``. What the files lack is in `Dataset.report`.
        """
        return self._losses.report()

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
            f"num_threads={self._num_threads}, epoch {self._epoch}, step {self._step}>"
        )

    def _plan(self, epoch: int | None = None) -> Plan:
        if epoch is None or epoch == self._epoch:
            return self._planner.plan(self._seed, self._epoch, self._phase)
        return self._planner.plan(self._seed, epoch)

    # Moving.

    def seek(self, step: int) -> None:
        """Go to a step of the current epoch: the next ``for`` begins with it.

        A running iteration ends. The step after the last is the next epoch's first. In an
        epoch that `load_state_dict` cut, steps count through the cut grid; step 0 begins
        the epoch anew.

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
        self._move(self._epoch, step, self._phase if step else 0)

    def set_epoch(self, epoch: int) -> None:
        """Have the next ``for`` begin `epoch`.

        In a loop of the form ``for epoch in ...: loader.set_epoch(epoch)`` it changes
        nothing: the loader counts epochs by itself, and goes on in the middle of one that
        was loaded or sought.
        """
        epoch = non_negative_int("epoch", epoch)
        if epoch != self._epoch or self._is_begun:
            self._move(epoch, 0, 0)

    def _move(self, epoch: int, step: int, phase: int) -> None:
        if step and step == self._planner.plan(self._seed, epoch, phase).n_steps:
            epoch, step, phase = epoch + 1, 0, 0
        self.close()
        self._stand_at(epoch, step, phase)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is: after the batch that was delivered last.

        The state is less than 400 bytes of JSON-able values, the same on all ranks, and
        depends on neither their number nor on threads or the batch size. After an error,
        it stands before the batch that failed; an epoch that is finished is the
        beginning of the next one. Builds the index of the dataset if there is none.
        """
        plan = self._plan()
        epoch, position = self._epoch, plan.begin_of(self._step)
        if self._step and self._step == plan.n_steps:
            epoch, position = epoch + 1, 0
        return State(
            self._dataset._view.fingerprint(),
            self._planner.state(),
            self._seed,
            epoch,
            position,
        ).to_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Go where another loader was; the next ``for`` continues there.

        The other one may have had another batch size, world size or number of threads:
        what it left of its epoch comes exactly once, in batches of this loader's size.
        Its seed is taken over. A running iteration ends.

        Parameters
        ----------
        state : mapping
            What `state_dict` returned, perhaps by way of JSON.
        strict : bool, default True
            Refuse the state of other data: of files with other records, in another order,
            or another selection of them. Copies of the files are the same data.

        Raises
        ------
        ValueError
            If it is no state, or one of another order or, with `strict`, of other data;
            or if the rest of the epoch cannot be divided among the ranks.
        """
        loaded = State.from_dict(state)
        loaded.check(
            self._dataset._view.fingerprint() if strict else None, self._planner.state()
        )
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
        self._seed = loaded.seed
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
        epoch = self._epoch if epoch is None else non_negative_int("epoch", epoch)
        plan = self._plan(epoch)
        if self._planner.deal is not None:
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
        files = self._dataset.files
        places = self._dataset._view.places(records)
        return [(files[file], record, offset) for file, record, offset in places]

    def _plan_with(self, step: int, epoch: int | None) -> Plan:
        """Return the plan of an epoch that has a step `step`, or raise an IndexError."""
        step = non_negative_int("step", step)
        epoch = self._epoch if epoch is None else non_negative_int("epoch", epoch)
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
        if self._is_begun:
            self._next_epoch()
        self._losses = Losses()
        iterator = BatchIterator(self, names)
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
        if self._feed is None and not self.has_transforms:
            check_columns_exist(names, self._assembly().column_names)
        return Tuples(self, names)

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
        plan = self._plan_with(step, epoch)
        positions, records = plan.rows(step)
        judge = self._judge()
        parts, damages = _core.decode_records(
            self._dataset._view.source.of_core(),
            self._dataset._view.catalog(),
            self._pool,
            records[positions >= 0],
            len(records),
            judge.on_damage,
        )
        epoch = self._epoch if epoch is None else epoch
        assembly = self._assembly()
        places = None
        if self._feed is not None or not assembly.is_plain:
            context = f" of step {step} of epoch {epoch}"
            found = self._dataset._view.located(records[positions >= 0], context)
            places = found.padded(len(records))
        info = BatchOrigin(self._seed, epoch, step, positions, records, _places=places)
        if damages:
            parts, verdict = judge.judge(parts, damages)
            info = verdict.applied_to(info)
        batch, _ = assembly.lossy(
            parts,
            info,
            on_error=self._on_transform_error,
            keeps_shape=self._planner.pad_last,
        )
        return batch if self._feed is None else self._feed(batch, places)

    def peek(self) -> Batch:
        """Return the batch after those delivered in this epoch, without moving on.

        Raises
        ------
        IndexError
            If the epoch is at its end.
        """
        return self.batch(self._step)

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
        from fastrec.arrow.reader import RecordBatchReader

        return RecordBatchReader(self).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the next epoch as a stream of record batches, which begins it.

        See `fastrec.arrow.RecordBatchReader`.
        """
        from fastrec.arrow.reader import RecordBatchReader

        return RecordBatchReader(self).__arrow_c_stream__(requested_schema)

    def _table_loader(self, batch_size: int | None) -> Self:  # noqa: ARG002
        return self

    def _upcoming(self) -> Batch | None:
        return upcoming(self)

    def _empty_batch(self) -> Batch:
        return empty_batch(self)

    def _any_width_columns(self) -> set[str | bytes]:
        return any_width_columns(
            reading.schema for reading in self._dataset._view.source.readings()[0]
        )

    def _place_of(self, row: int) -> tuple[str, int, int] | None:
        """Return the record of a row of the last batch, if rows are records."""
        files = self._dataset._view.files
        if self.has_transforms or files.is_streamed or files.on_error != "raise":
            return None
        return self.records_at(self._step - 1)[row]

    # The end.

    def close(self) -> None:
        """End the running epoch's threads. The next ``for`` starts new ones."""
        if (iterator := self._running()) is not None:
            iterator.close()

    def _running(self) -> BatchIterator | None:
        return None if self._iterator is None else self._iterator()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_pool", "_tally", "_losses", "_iterator"):
            del state[name]
        if self._step and self._step == self._plan().n_steps:
            state |= {"_epoch": self._epoch + 1, "_step": 0, "_phase": 0}
        return state | {"_is_begun": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For the iterator.

    def _assembly(self) -> Assembly:
        on_error = self._dataset.on_error
        adds_valid = self._planner.pad_last or on_error == "mask" or callable(on_error)
        adds_valid = adds_valid or self._on_transform_error == "mask"
        return self._dataset._assembly(self._transform, adds_valid=adds_valid)

    def _judge(self) -> RowJudge:
        return RowJudge(self._dataset.on_error, keeps_shape=self._planner.pad_last)

    def _delivered(self, delivered: Delivered) -> None:
        self._is_begun = True
        self._step = delivered.step + 1
        tally = self._tally
        tally.n_batches += 1
        tally.n_records += delivered.n_records
        tally.n_bytes += delivered.n_bytes
        self._losses.add(delivered.losses)

    def _mark(self) -> Mark:
        """Return the state that `_back_to` restores."""
        tally = self._tally
        counts = tally.n_batches, tally.n_records, tally.n_bytes
        return self._is_begun, self._step, *counts, len(self._losses)

    def _back_to(self, mark: Mark) -> None:
        """Undo `_delivered`, also where a signal interrupted it."""
        tally = self._tally
        self._is_begun, self._step, *counts, n_losses = mark
        tally.n_batches, tally.n_records, tally.n_bytes = counts
        self._losses.back_to(n_losses)

    def _check(self, losses: Sequence[Loss]) -> None:
        self._losses.check(losses, self._max_errors)

    def _finished(self, epoch: int) -> None:
        """End `epoch`. Does nothing the next time: a signal may come after it."""
        if epoch == self._epoch:
            self._losses.log(epoch)
            self._next_epoch()

    def _next_epoch(self) -> None:
        self._stand_at(self._epoch + 1, 0, 0)

    def _stand_at(self, epoch: int, step: int, phase: int) -> None:
        # One statement, so that a signal finds the loader before it or after it.
        self._epoch, self._step, self._phase, self._is_begun = epoch, step, phase, False

    def _staged(self) -> int:
        """How many of the batches ahead are those that threads transform."""
        if not (n_transforming := self._n_transforming):
            return 0
        n_decoding = max(1, min(self._num_threads, self._prefetch // 2))
        return min(n_transforming + 1, max(1, self._prefetch - n_decoding))

    def _advice(self) -> str:
        """Return a warning about slow options, once; mostly nothing."""
        view = self._dataset._view
        if self._is_advised:
            return ""
        if (n_staged := self._staged()) < (n_transforming := self._n_transforming):
            self._is_advised = True
            return (
                f"prefetch={self._prefetch} lets only {n_staged} of "
                f"{n_transforming} transform_threads work at the same time: set prefetch "
                f"to at least {self._num_threads + n_transforming}"
            )
        if self._planner.shuffle is not True or not len(view):
            return ""
        # Records one by one, each of them a trip over the network.
        mean_bytes = view.files.n_bytes // max(1, view.files.n_records)
        is_slow = mean_bytes < _SMALL_RECORD_BYTES and _core.is_remote(
            os.fsencode(self._dataset.files[0])
        )
        if not is_slow:
            return ""
        self._is_advised = True
        return (
            f"shuffle=True reads records of {mean_bytes:,} bytes one by one from a "
            "network file system, which is slow: shuffle=fr.Blocks() reads whole blocks "
            "of them"
        )


_loaders: weakref.WeakSet[Loader] = weakref.WeakSet()


def _renew_after_fork() -> None:
    # A thread of the parent may have been in the pool, whose lock nobody holds here.
    for loader in list(_loaders):
        loader._pool = _core.BlockPool(loader._memory_limit)
        loader._planner.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
