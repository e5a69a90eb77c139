"""Resuming: a restarted training run continues exactly.

Goal
    A state is taken at delivered batches. Loaded into any loader of the same order and
    dataset, whatever its ranks, batch size and threads, it delivers the rest of the
    epoch, every record once and in order, and then the next epochs.
Method
    A model in plain Python (`Course`) runs next to all ranks of a job through random
    restarts, changes of size, seeks and epochs. The order of an epoch comes from a loader
    of single rows. Uninterrupted runs are compared bit for bit.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import fastrec as fr
from children import SEED, n_runs
from columns import Untyped, Write, open_dataset, snapshot
from numbered import (
    FILE_SIZES,
    ORDERS,
    SPEC,
    THREADS,
    Batch,
    DataSets,
    N,
    every_order,
    labels,
    listed,
    loader_of,
    record,
    reloaded,
    take,
    write_files,
)
from oracle import frame, tfrecord_file

# A random training run of all ranks of a job.


@dataclass(frozen=True)
class Setup:
    """The options that may change when a job restarts."""

    world_size: int
    batch_size: int
    tail: str  # "keep", "drop" or "pad"
    threads: tuple[int, int]


@dataclass
class Course:
    """The position of a job, by the contract.

    Attributes
    ----------
    n : int
        Records.
    listed_sizes : callable or None
        Epoch -> sizes of the listed batches.
    """

    n: int
    setup: Setup
    listed_sizes: Callable[[int], list[int]] | None
    epoch: int = 0
    position: int = 0
    phase: int = 0
    is_begun: bool = False

    @property
    def global_batch_size(self) -> int:
        return self.setup.world_size * self.setup.batch_size

    def steps(self) -> list[tuple[int, int]]:
        """Return the first position and the end of each step of the epoch."""
        if self.listed_sizes:
            ends = [*itertools.accumulate(self.listed_sizes(self.epoch), initial=0)]
        else:
            size = self.global_batch_size
            ends = [0, *range(self.phase + size, self.n + 1, size)]
            if self.phase:
                ends.insert(1, self.phase)
            if self.setup.tail != "drop" and ends[-1] < self.n:
                ends.append(self.n)
        return list(itertools.pairwise(ends))

    def is_refused(self) -> bool:
        """Return whether a rank would get no row in a remaining step."""
        if self.setup.tail == "pad" or (
            self.setup.tail == "drop" and not self.listed_sizes
        ):
            return False
        steps = [end - begin for begin, end in self.steps() if begin >= self.phase]
        return any(size < self.setup.world_size for size in steps)

    @property
    def step(self) -> int:
        return sum(begin < self.position for begin, _ in self.steps())

    def upcoming(self) -> list[tuple[int, int]]:
        return self.steps()[self.step :]

    def where(self) -> tuple[int, int]:
        """Return the epoch and position of a state."""
        if self.position and not self.upcoming():
            return self.epoch + 1, 0
        return self.epoch, self.position

    def move(self, epoch: int, position: int, phase: int) -> None:
        self.epoch, self.position, self.phase = epoch, position, phase
        self.epoch, self.position = self.where()
        self.phase = phase if self.position else 0
        self.is_begun = False


setups = st.builds(
    Setup,
    world_size=st.integers(1, 4),
    batch_size=st.integers(1, 6),
    tail=st.sampled_from(["keep", "drop", "pad"]),
    threads=st.sampled_from([(0, 0), (0, 1), (1, 0), (2, 0), (8, 2)]),
)


def tell_positions(batch: Batch, info: fr.BatchInfo) -> Batch:
    return {**batch, "position": info.positions}


class Training(RuleBasedStateMachine):
    """All ranks of a job, compared with a `Course`."""

    data_sets: ClassVar[DataSets]

    def __init__(self) -> None:
        super().__init__()
        self._orders: dict[int, list[int]] = {}
        self._loaders: list[Untyped] = []
        self._running: list[Iterator[Batch]] = []
        self._seen: list[int] | None = []  # of this epoch, if it began at 0

    @initialize(
        sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5).map(tuple),
        order=st.sampled_from(["files", "shuffled", "blocks", "listed"]),
        blocks=st.builds(
            fr.Blocks, block_bytes=st.integers(1, 500), lanes=st.integers(1, 5)
        ),
        seed=st.integers(0, 2**64 - 1),
        setup=setups,
    )
    def begin(
        self,
        sizes: tuple[int, ...],
        order: str,
        blocks: fr.Blocks,
        seed: int,
        setup: Setup,
    ) -> None:
        self._ds = self.data_sets.of(sizes).select_columns(["n"])
        self._seed = seed
        self._is_blocks = order == "blocks"
        self._options: dict[str, Any] = {"seed": seed, **ORDERS[order]}
        n = sum(sizes)
        self._listed = functools.partial(listed, n) if order == "listed" else None
        if self._listed:
            self._options["batches"] = self._listed
        if self._is_blocks:
            self._options["shuffle"] = blocks
        listed_sizes = self._listed and (
            lambda epoch: [len(batch) for batch in listed(n, seed, epoch)]
        )
        self._course = Course(n, setup, listed_sizes)
        self._start(setup)

    def _loader(self, rank: int, setup: Setup, **options: Untyped) -> Untyped:
        size = {} if self._listed else {"batch_size": setup.batch_size}
        return self._ds.loader(
            **size,
            **self._options,
            rank=rank,
            world_size=setup.world_size,
            drop_last=setup.tail == "drop" and not self._listed,
            pad_last=setup.tail == "pad",
            num_threads=setup.threads[0],
            transform=tell_positions,
            transform_threads=setup.threads[1],
            **options,
        )

    def _start(self, setup: Setup) -> None:
        """Create new loaders for all ranks, like a restarted job."""
        if dataclasses.replace(
            self._course, setup=setup, epoch=0, position=0, phase=0
        ).is_refused():
            with pytest.raises(ValueError, match="pad_last=True"):
                self._loader(0, setup)
            setup = dataclasses.replace(setup, tail="pad")
        self._course.setup = setup
        self.teardown()
        self._loaders = [self._loader(rank, setup) for rank in range(setup.world_size)]
        self._running = []

    def _order(self) -> list[int]:
        """Return the labels of the epoch, position by position."""
        epoch, n = self._course.epoch, self._course.n
        if epoch not in self._orders:
            if self._listed:
                found = [int(n) for b in self._listed(self._seed, epoch) for n in b]
            elif self._options["shuffle"] is False:
                found = list(range(n))
            else:
                alone = self._ds.loader(1, **self._options, num_threads=0)
                found = labels(alone.batch(step, epoch) for step in range(n))
            assert sorted(found) == list(range(n))
            self._orders[epoch] = found
        return self._orders[epoch]

    def _next_of_all(self) -> list[Batch | None]:
        if not self._running:
            if self._course.is_begun:
                self._next_epoch()
            self._running = [iter(loader) for loader in self._loaders]
        return [next(iterator, None) for iterator in self._running]

    def _next_epoch(self) -> None:
        self._course.move(self._course.epoch + 1, 0, 0)
        self._seen = []

    def _check(self, batches: list[Batch], begin: int, end: int) -> None:
        """Check that these are the batches of all ranks for the positions of a step."""
        world_size = self._course.setup.world_size
        n = end - begin
        cuts = [rank * n // world_size for rank in range(world_size + 1)]
        full = n if self._listed else self._course.global_batch_size
        positions: list[int] = []
        for batch, (cut, next_cut) in zip(
            batches, itertools.pairwise(cuts), strict=True
        ):
            n_rows = n_valid = next_cut - cut
            if self._course.setup.tail == "pad":
                n_rows = -(-full // world_size)
                valid = [True] * n_valid + [False] * (n_rows - n_valid)
                assert batch["__valid__"].tolist() == valid
                assert batch["position"].tolist()[n_valid:] == [-1] * (n_rows - n_valid)
                assert batch["n"].tolist()[n_valid:] == [0] * (n_rows - n_valid)
            assert len(batch["n"]) == len(batch["position"]) == n_rows
            of_rank = batch["position"].tolist()[:n_valid]
            order = self._order()
            assert batch["n"].tolist()[:n_valid] == [order[i] for i in of_rank]
            positions += of_rank
        if self._is_blocks:
            positions.sort()
        assert positions == list(range(begin, end))

    @rule(n_steps=st.integers(1, 4))
    def deliver(self, n_steps: int) -> None:
        for _ in range(n_steps):
            batches = self._next_of_all()
            upcoming = self._course.upcoming()
            if not upcoming:
                assert batches == [None] * len(batches), "all ranks end together"
                self._end()
                return
            (begin, end), *_ = upcoming
            assert begin == self._course.position
            self._check([batch for batch in batches if batch], begin, end)
            self._course.position = end
            self._course.is_begun = True
            if self._seen is not None:
                self._seen += self._order()[begin:end]

    def _end(self) -> None:
        if self._seen is not None and self._course.setup.tail != "drop":
            assert sorted(self._seen) == list(range(self._course.n))
        self._next_epoch()
        self._running = []

    @rule()
    def finish(self) -> None:
        epoch = self._course.epoch
        while self._course.epoch <= epoch:
            self.deliver(1)

    @rule(setup=setups)
    def resume(self, setup: Setup) -> None:
        state = reloaded(self._loaders[0].state_dict())
        epoch, position = self._course.where()
        self._start(setup)
        course = self._course
        setup = course.setup
        phase = 0 if self._listed else position % course.global_batch_size
        there = dataclasses.replace(course, epoch=epoch, position=position, phase=phase)
        if there.is_refused():
            for loader in self._loaders:
                with pytest.raises(ValueError, match="pad_last=True"):
                    loader.load_state_dict(state)
                assert (loader.epoch, loader.step) == (0, 0)
            self._start(dataclasses.replace(setup, tail="pad"))
        if epoch != course.epoch:
            self._seen = []
        for loader in self._loaders:
            loader.load_state_dict(state)
        course.move(epoch, position, phase)
        if course.epoch != epoch:
            self._seen = []

    @rule(fraction=st.floats(0, 1))
    def seek(self, fraction: float) -> None:
        steps = self._course.steps()
        step = round(fraction * len(steps))
        for loader in self._loaders:
            loader.seek(step)
            with pytest.raises(IndexError, match="out of range"):
                loader.seek(len(loader) + 1)
        begins = [begin for begin, _ in steps] + [end for _, end in steps[-1:]]
        position = begins[step] if steps else 0
        epoch = self._course.epoch
        self._course.move(epoch, position, self._course.phase)
        self._seen = None if self._course.epoch == epoch and position else []
        self._refuse_the_running()

    @rule(ahead=st.integers(0, 2))
    def set_epoch(self, ahead: int) -> None:
        epoch = self._course.epoch + ahead
        for loader in self._loaders:
            loader.set_epoch(epoch)
        is_begun = self._course.is_begun
        if ahead or is_begun:
            self._course.move(epoch, 0, 0)
            self._seen = []
        if is_begun:
            self._refuse_the_running()  # others deliver the epoch that was set

    def _refuse_the_running(self) -> None:
        for iterator in self._running:
            with pytest.raises(RuntimeError, match="closed"):
                next(iterator)
        self._running = []

    @rule()
    def leave_and_loop_again(self) -> None:
        previous, self._running = self._running, []
        if self._course.is_begun:
            self._next_epoch()
        self._running = [iter(loader) for loader in self._loaders]
        for iterator in previous:
            with pytest.raises(RuntimeError, match="closed"):
                next(iterator)

    @rule(fraction=st.floats(0, 1, exclude_max=True))
    def look(self, fraction: float) -> None:
        steps = self._course.steps()
        if not steps:
            return
        step = int(fraction * len(steps))
        self._check([loader.batch(step) for loader in self._loaders], *steps[step])
        for loader in self._loaders:
            valid = loader.batch(step)["position"] >= 0
            places = loader.records_at(step)
            assert len(places) == valid.sum()
            if self._course.upcoming():
                assert snapshot([loader.peek()]) == snapshot(
                    [loader.batch(loader.step)]
                )

    @invariant()
    def all_ranks_are_where_they_should_be(self) -> None:
        if not self._loaders:
            return
        epoch, position = self._course.where()
        states = [loader.state_dict() for loader in self._loaders]
        assert states == [states[0]] * len(states)
        assert (states[0]["epoch"], states[0]["position"]) == (epoch, position)
        for loader in self._loaders:
            assert (loader.epoch, loader.step) == (
                self._course.epoch,
                self._course.step,
            )
            assert len(loader) == len(self._course.steps())

    def teardown(self) -> None:
        for loader in self._loaders:
            loader.close()


@pytest.mark.filterwarnings("ignore:drop_last=True drops all records")
@pytest.mark.timeout(400)  # shrinking a failure takes up to 5 minutes
def test_a_random_training_run_follows_the_contract(write: Write) -> None:
    class TrainingHere(Training):
        data_sets = DataSets(write)

    run_state_machine_as_test(
        TrainingHere,
        settings=settings(
            max_examples=n_runs(60),
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# Random restarts of one process, bit for bit.


def augment(batch: Batch, info: fr.BatchInfo) -> Batch:
    """Return all of a batch that could depend on where the run was restarted."""
    noise = [info.rng(i).random(2) for i in range(len(info.positions))]
    place = [(info.seed, info.epoch, info.step)] * len(noise)
    return {
        **batch,
        "noise": np.array(noise).reshape(-1, 2),
        "place": np.array(place, np.uint64).reshape(-1, 3),
        "positions": info.positions,
        "records": info.records,
    }


def leave_by_break(loader: fr.Loader, n_steps: int) -> None:
    for step, _ in enumerate(loader, 1):
        if step == n_steps:
            break


def leave_by_error(loader: fr.Loader, n_steps: int) -> None:
    for step, _ in enumerate(loader, 1):
        if step == n_steps:
            raise KeyError(step)


def leave_by_forgetting(loader: fr.Loader, n_steps: int) -> None:
    take(loader, n_steps)


def leave_by_closing(loader: fr.Loader, n_steps: int) -> None:
    batches = iter(loader)
    for _ in range(n_steps):
        next(batches)
    loader.close()


WAYS = (leave_by_break, leave_by_error, leave_by_forgetting, leave_by_closing)
N_CASES = n_runs(84)  # of each of the six orders


@pytest.mark.filterwarnings("ignore:prefetch=")  # drawn smaller than the threads need
@every_order
def test_a_restart_at_any_step_changes_no_later_batch(ds: Untyped, order: str) -> None:
    choose = random.Random(f"{SEED} {order}")

    @functools.cache
    def uninterrupted(batch_size: int, seed: int, epoch: int) -> list[Any]:
        options: dict[str, Any] = {
            "batch_size": batch_size,
            "seed": seed,
            "transform": augment,
        }
        loader = loader_of(ds, order, **options, transform_threads=0)
        loader.set_epoch(epoch)
        return snapshot([*loader, *loader])

    for case in range(N_CASES):
        batch_size, seed = choose.randint(3, 9), choose.choice([0, 7, 2**64 - 1])
        epoch = choose.randint(0, 2)
        want = uninterrupted(batch_size, seed, epoch)
        threads: list[dict[str, Any]] = [
            {
                "num_threads": choose.choice(THREADS),
                "transform_threads": choose.choice((0, 1, 3)),
                "prefetch": choose.choice((None, 1, 7)),
            }
            for _ in range(2)
        ]
        options: dict[str, Any] = {
            "batch_size": batch_size,
            "seed": seed,
            "transform": augment,
        }
        loader = loader_of(ds, order, **options, **threads[0])
        loader.set_epoch(epoch)
        cut = choose.randint(1, len(loader))
        leave = choose.choice(WAYS)
        try:
            leave(loader, cut)
        except KeyError as error:
            assert error.args == (cut,)  # noqa: PT017 (most ways do not raise)
        state = reloaded(loader.state_dict())
        del loader
        # The seed of the state counts, not the one the loader was made with.
        options["seed"] = choose.choice([seed, 99])
        again = loader_of(ds, order, **options, **threads[1])
        again.load_state_dict(state)
        n_rest = len(want) - cut
        got = snapshot(list(itertools.islice(again.repeat(), n_rest)))
        assert got == want[cut:], (case, batch_size, seed, epoch, cut, leave)
        again.close()


@every_order
def test_batches_do_not_depend_on_the_number_of_threads(
    ds: Untyped, order: str
) -> None:
    want = None
    for n_threads, transform_threads in itertools.product(THREADS, (0, 2)):
        loader = loader_of(
            ds,
            order,
            seed=5,
            num_threads=n_threads,
            transform=augment,
            transform_threads=transform_threads,
        )
        got = snapshot(list(loader.repeat(3)))
        want = want or got
        assert got == want, (n_threads, transform_threads)


@every_order
def test_batch_returns_any_batch_of_any_epoch(ds: Untyped, order: str) -> None:
    options: dict[str, Any] = {"seed": 3, "transform": augment}
    loader = loader_of(ds, order, **options, num_threads=2)
    at_hand = loader_of(ds, order, **options)
    for epoch in range(3):
        delivered = list(loader)
        random_access = [at_hand.batch(step, epoch) for step in range(len(delivered))]
        assert snapshot(delivered) == snapshot(random_access)
        for step, batch in enumerate(delivered):
            assert batch["place"].tolist() == [[3, epoch, step]] * len(batch["n"])
        positions = [int(i) for batch in delivered for i in batch["positions"]]
        assert sorted(positions) == list(range(N))


def test_augmentation_depends_on_the_position(ds: Untyped) -> None:
    def noise(order: str, epoch: int, **options: Untyped) -> list[list[float]]:
        loader = loader_of(ds, order, transform=augment, **options)
        batches = [loader.batch(step, epoch) for step in range(len(loader))]
        at = np.concatenate([batch["positions"] for batch in batches])
        found = np.concatenate([batch["noise"] for batch in batches])
        rows: list[list[float]] = found[np.argsort(at)].tolist()
        return rows

    want = noise("files", epoch=1)
    assert len({tuple(row) for row in want}) == N
    for order in ORDERS:
        assert noise(order, epoch=1) == want
    twice = [[4, 4, 4], [4] * (N - 3)]
    assert noise("listed", epoch=1, batches=lambda _seed, _epoch: twice) == want
    assert noise("files", epoch=2) != want != noise("files", epoch=1, seed=1)


# The position of a state.


def place(state: dict[str, Any]) -> tuple[int, int]:
    return state["epoch"], state["position"]


@every_order
@pytest.mark.parametrize("threads", THREADS)
def test_a_state_in_the_loop_body_is_after_the_delivered_batch(
    ds: Untyped, order: str, threads: int
) -> None:
    loader = loader_of(ds, order, num_threads=threads)
    n_delivered = 0
    for step, batch in enumerate(loader, 1):
        n_delivered += len(batch["n"])
        is_last = step == len(loader)
        want = (1, 0) if is_last else (0, n_delivered)
        assert place(loader.state_dict()) == want, "what is prefetched does not count"
    assert n_delivered == N


def test_a_state_before_the_first_batch_is_the_start(ds: Untyped) -> None:
    loader = ds.loader(5)
    assert place(loader.state_dict()) == (0, 0)
    batches = iter(loader)
    assert place(loader.state_dict()) == (0, 0)
    next(batches)
    assert place(loader.state_dict()) == (0, 5)


def test_a_state_after_a_break_is_after_the_last_batch(ds: Untyped) -> None:
    loader = ds.loader(5, shuffle=True)
    leave_by_break(loader, 3)
    state = loader.state_dict()
    assert place(state) == (0, 15)
    loader.load_state_dict(state)
    want = labels(ds.loader(5, shuffle=True))[15:]
    assert labels(loader) == want, "loading continues, though a loop was left"


def test_a_state_after_a_second_iter_is_in_the_next_epoch(ds: Untyped) -> None:
    loader = ds.loader(5)
    leave_by_break(loader, 3)
    batches = iter(loader)
    assert place(loader.state_dict()) == (1, 0)
    next(batches)
    assert place(loader.state_dict()) == (1, 5)


def test_a_second_iter_before_the_first_batch_keeps_the_epoch(ds: Untyped) -> None:
    loader = ds.loader(5)
    loader.seek(3)
    iter(loader)
    assert labels(loader) == list(range(15, N))


def spoilt(data: bytes, at: int) -> bytes:
    """Return the file with a changed byte in the payload of record `at`."""
    begin = sum(len(frame(record(n))) for n in range(at))
    position = begin + 15
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize("threads", THREADS)
def test_a_state_after_an_error_is_before_the_failed_batch(
    write: Write, threads: int
) -> None:
    good = tfrecord_file(record(n) for n in range(N))
    bad = open_dataset(write(spoilt(good, 22)), features=SPEC)
    loader = bad.loader(5, num_threads=threads)
    delivered: list[Batch] = []
    with pytest.raises(fr.CorruptionError):
        delivered.extend(loader)
    state = reloaded(loader.state_dict())
    assert labels(delivered) == list(range(20))
    assert place(state) == (0, 20)
    # A repaired file has the checksums that were stored in the damaged one.
    repaired = open_dataset(write(good), features=SPEC).loader(5)
    repaired.load_state_dict(state)
    assert labels(repaired) == list(range(20, N))


@pytest.mark.parametrize("transform_threads", [0, 1, 3])
def test_a_state_after_a_transform_error_is_before_its_batch(
    ds: Untyped, transform_threads: int
) -> None:
    def fail(batch: Batch, info: fr.BatchInfo) -> Batch:
        if info.step == 4:
            msg = "no such step"
            raise LookupError(msg)
        return batch

    loader = ds.loader(
        5, num_threads=2, transform=fail, transform_threads=transform_threads
    )
    with pytest.raises(LookupError):
        list(loader)
    assert place(loader.state_dict()) == (0, 20)
    again = ds.loader(5)
    again.load_state_dict(loader.state_dict())
    assert labels(again) == list(range(20, N))


@every_order
def test_a_state_after_an_epoch_is_the_start_of_the_next(
    ds: Untyped, order: str
) -> None:
    loader = loader_of(ds, order)
    first, second = list(loader), list(loader)
    loader = loader_of(ds, order)
    states = []
    for _ in loader:
        state = loader.state_dict()
        states.append(state)
    states.append(loader.state_dict())
    assert [place(state) for state in states[-2:]] == [(1, 0)] * 2
    for state in states[-2:]:
        again = loader_of(ds, order)
        again.load_state_dict(state)
        assert (again.epoch, again.step) == (1, 0)
        assert snapshot(list(again)) == snapshot(second)
    again.load_state_dict(states[0])
    assert snapshot([*first[:1], *again]) == snapshot(first)


def test_drop_last_ends_the_epoch_with_the_last_full_step(ds: Untyped) -> None:
    loader = ds.loader(8, shuffle=True, drop_last=True)
    n_steps = N // 8
    places = [place(loader.state_dict()) for _ in loader]
    assert places == [(0, 8 * step) for step in range(1, n_steps)] + [(1, 0)]
    assert place(loader.state_dict()) == (1, 0)


def test_a_state_in_a_dropped_last_batch_is_the_next_epoch(ds: Untyped) -> None:
    small = ds.loader(1, shuffle=True)
    take(small, N - 3)
    large = ds.loader(8, shuffle=True, drop_last=True)
    large.load_state_dict(small.state_dict())
    assert (large.epoch, large.step) == (1, 0)
    want = [place for step in range(N) for place in small.records_at(step, epoch=1)]
    got = [place for step in range(len(large)) for place in large.records_at(step)]
    assert got == want[: N // 8 * 8]
    assert len(labels(large)) == N // 8 * 8


@every_order
def test_batch_and_records_at_keep_the_state(ds: Untyped, order: str) -> None:
    loader = loader_of(ds, order, num_threads=2)
    want = snapshot(list(loader))
    loader = loader_of(ds, order, num_threads=2)
    got = []
    for batch in loader:
        got.append(batch)
        state = loader.state_dict()
        if len(got) < len(loader):
            assert snapshot([loader.peek()]) == [want[len(got)]]
        loader.batch(0, epoch=3)
        loader.batch(len(loader) - 1)
        loader.records_at(1)
        assert loader.state_dict() == state
    assert snapshot(got) == want


def test_an_epoch_without_an_index_has_states(write: Write) -> None:
    files = write_files(write, FILE_SIZES)
    loader = open_dataset(files, features=SPEC).loader(5, num_threads=2)
    batches = iter(loader)
    delivered = [next(batches) for _ in range(4)]
    state = reloaded(loader.state_dict())  # builds the index
    assert place(state) == (0, 20)
    assert labels([*delivered, *batches]) == list(range(N)), "and disturbs nothing"

    again = open_dataset(files, features=SPEC).loader(5)
    again.load_state_dict(state)
    assert labels(again) == list(range(20, N))


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_last_step_without_an_index_ends_the_epoch(
    write: Write, drop_last: bool
) -> None:
    files = write_files(write, FILE_SIZES)
    loader = open_dataset(files, features=SPEC).loader(9, drop_last=drop_last)
    states = [loader.state_dict() for _ in loader]
    assert [place(state) for state in states] == [
        *((0, 9 * step) for step in range(1, len(states))),
        (1, 0),
    ]
    assert len(states) == (N // 9 if drop_last else -(-N // 9))


# Another batch size, another world size.


@pytest.mark.parametrize("order", ["files", "shuffled", "blocks", "mixed"])
@pytest.mark.parametrize("batch_size", [1, 2, 5, 8, 20, N, 100])
def test_another_batch_size_continues_at_the_position(
    ds: Untyped, order: str, batch_size: int
) -> None:
    alone = loader_of(ds, order, batch_size=1)
    whole = labels(alone.batch(step) for step in range(N))
    for position in range(1, N):
        cut = loader_of(ds, order, batch_size=1)
        cut.seek(position)
        loader = loader_of(ds, order, batch_size=batch_size)
        loader.load_state_dict(cut.state_dict())
        assert loader.state_dict() == cut.state_dict()
        assert loader.step == -(-position // batch_size)
        assert len(loader) - loader.step == -(-(N - position) // batch_size)
        n_next = min(batch_size, N - position)
        steps_of_alone = range(position, position + n_next)
        next_records = [alone.records_at(step)[0] for step in steps_of_alone]
        assert sorted(loader.records_at(loader.step)) == sorted(next_records)
        steps = range(loader.step, len(loader))
        batches = [loader.batch(step) for step in steps]
        assert sorted(labels(batches)) == sorted(whole[position:])
        sizes = [len(batch["n"]) for batch in batches]
        assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
        if position % 7 == 0:
            assert snapshot(list(loader)) == snapshot(batches)
            assert (loader.epoch, loader.step) == (1, 0)
            assert len(loader) == -(-N // batch_size), (
                "the next epoch has steps of its own"
            )


def test_seek_0_restarts_the_whole_epoch(ds: Untyped) -> None:
    """Its first step would be short, perhaps with no row for some rank."""
    small = ds.loader(1)
    take(small, 2)
    loader = ds.loader(5, rank=0, world_size=3)
    loader.load_state_dict(small.state_dict())
    assert (len(loader), loader.step) == (4, 1)
    loader.seek(0)
    assert labels(take(loader, 2)) == [0, 1, 2, 3, 4, 15, 16, 17, 18, 19]


def test_the_rest_of_an_epoch_that_cannot_be_divided_is_refused(ds: Untyped) -> None:
    small = ds.loader(1)
    take(small, 12)  # 31 are left: 3 steps of 10, and 1
    state = small.state_dict()
    ranks = [ds.loader(5, rank=rank, world_size=2) for rank in range(2)]
    for loader in ranks:
        loader.seek(1)
        before = loader.state_dict()
        with pytest.raises(ValueError, match=r"1 rows for 2 ranks.*pad_last=True"):
            loader.load_state_dict(state)
        assert loader.state_dict() == before, "it stays where it was"
    padded = [ds.loader(5, rank=r, world_size=2, pad_last=True) for r in range(2)]
    seen: list[int] = []
    for loader in padded:
        loader.load_state_dict(state)
        for batch in loader:
            assert len(batch["n"]) == 5
            seen += batch["n"][batch["__valid__"]].tolist()
    assert sorted(seen) == list(range(12, N))


def test_listed_batches_resume_with_another_number_of_ranks(ds: Untyped) -> None:
    one = loader_of(ds, "listed", seed=4)
    take(one, 3)
    state = reloaded(one.state_dict())
    want = list(listed(N, 4, 0)[3:])
    ranks = [loader_of(ds, "listed", rank=rank, world_size=3) for rank in range(3)]
    for loader in ranks:
        loader.load_state_dict(state)
    for got, records in zip(zip(*ranks, strict=True), want, strict=True):
        assert labels(got) == records.tolist()
    assert [loader.epoch for loader in ranks] == [1] * 3


def test_other_listed_batches_are_refused(ds: Untyped) -> None:
    loader = ds.loader(batches=lambda _seed, _epoch: [range(10), range(10, N)])
    take(loader, 1)
    other = ds.loader(batches=lambda _seed, _epoch: [range(9), range(9, N)])
    with pytest.raises(
        ValueError, match=r"position 10 of the state must be the start of a batch"
    ):
        other.load_state_dict(loader.state_dict())


# Moving.


def training_loop(
    loader: fr.Loader, epochs: range, stop_after: int | None = None
) -> list[tuple[int, int]]:
    """Run the usual loop for torch; return the records of each epoch."""
    seen = []
    n_steps = 0
    for epoch in epochs:
        loader.set_epoch(epoch)
        for batch in loader:
            seen += [(epoch, int(n)) for n in batch["n"]]
            n_steps += 1
            if n_steps == stop_after:
                return seen
    return seen


@every_order
def test_the_loop_with_set_epoch_resumes_at_any_step(ds: Untyped, order: str) -> None:
    loader = loader_of(ds, order, batch_size=9)
    want = training_loop(loader, range(3))
    assert want == training_loop(loader_of(ds, order, batch_size=9), range(3))
    for stop_after in range(1, 2 * N // 9):
        loader = loader_of(ds, order, batch_size=9)
        before = training_loop(loader, range(3), stop_after)
        again = loader_of(ds, order, batch_size=9)
        again.load_state_dict(reloaded(loader.state_dict()))
        after = training_loop(again, range(again.epoch, 3))
        assert before + after == want, stop_after


def test_set_epoch_keeps_the_step_of_the_same_epoch(ds: Untyped) -> None:
    loader = ds.loader(5, shuffle=True)
    for epoch in range(3):
        loader.set_epoch(epoch)
        first = loader.peek()
        assert snapshot([next(iter(loader))]) == snapshot([first])
        assert loader.epoch == epoch
    loader.seek(4)
    batches = iter(loader)
    loader.set_epoch(2)
    assert labels(batches) == labels(loader.batch(s, 2) for s in range(4, len(loader)))


def test_set_epoch_restarts_an_epoch_that_has_begun(ds: Untyped) -> None:
    loader = ds.loader(5, shuffle=True)
    whole = labels(loader)
    loader.set_epoch(0)
    take(loader, 3)
    loader.set_epoch(0)
    assert labels(loader) == whole


def test_set_epoch_leaves_another_epoch(ds: Untyped) -> None:
    loader = ds.loader(5, shuffle=True)
    loader.seek(3)
    loader.set_epoch(4)
    assert (loader.epoch, loader.step) == (4, 0)
    assert labels(loader) == labels(loader.batch(s, 4) for s in range(len(loader)))


def test_seek_moves_to_every_step_and_to_the_end(ds: Untyped) -> None:
    loader = ds.loader(5, shuffle=True)
    whole = labels(loader)
    n_steps = len(loader)
    for step in range(n_steps):
        loader.set_epoch(0)
        loader.seek(step)
        assert (loader.epoch, loader.step) == (0, step)
        assert labels(loader) == whole[5 * step :]
    loader.set_epoch(0)
    loader.seek(n_steps)
    assert (loader.epoch, loader.step) == (1, 0)
    assert labels(loader) == labels(loader.batch(s, 1) for s in range(n_steps))


@pytest.mark.parametrize(
    ("move", "argument", "error"),
    [
        ("seek", 10, IndexError),
        ("seek", 2**63, ValueError),
        ("seek", -1, ValueError),
        ("seek", "1", TypeError),
        ("seek", 1.0, TypeError),
        ("seek", True, TypeError),
        ("set_epoch", -1, ValueError),
        ("set_epoch", 2**63, ValueError),
        ("set_epoch", None, TypeError),
        ("batch", 9, IndexError),
        ("batch", -1, ValueError),
        ("records_at", 9, IndexError),
        ("records_at", -1, ValueError),
    ],
)
def test_invalid_steps_and_epochs_are_refused(
    ds: Untyped, move: str, argument: Untyped, error: type[Exception]
) -> None:
    loader = ds.loader(5)
    assert len(loader) == 9
    batches = iter(loader)
    next(batches)
    with pytest.raises(error):
        getattr(loader, move)(argument)
    assert (loader.epoch, loader.step) == (0, 1)
    assert labels(batches) == list(range(5, N)), "nothing was moved"


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(
    "move",
    [
        lambda loader: loader.seek(2),
        lambda loader: loader.set_epoch(3),
        lambda loader: loader.set_epoch(0),
        lambda loader: loader.load_state_dict(loader.state_dict()),
        iter,
        lambda loader: loader.close(),
    ],
)
def test_moving_ends_the_running_iterator(
    ds: Untyped, move: Callable[[fr.Loader], object], threads: int
) -> None:
    loader = ds.loader(5, num_threads=threads)
    batches = iter(loader)
    next(batches)
    move(loader)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="this iterator was closed"):
            next(batches)
    next(iter(loader))


def test_loading_within_the_loop_body_ends_the_loop(ds: Untyped) -> None:
    loader = ds.loader(5)
    seen = []

    def loop() -> None:
        for batch in loader:
            seen.append(batch)
            loader.load_state_dict(loader.state_dict())

    with pytest.raises(RuntimeError, match="closed"):
        loop()
    assert labels(seen) == list(range(5))
    assert labels(loader) == list(range(5, N))


@every_order
def test_records_at_lists_the_records_of_a_batch(
    ds: Untyped, paths: list[Path], order: str
) -> None:
    frames_of = [path.read_bytes() for path in paths]
    loader = loader_of(ds, order, seed=2)
    for step, batch in enumerate(loader):
        found = []
        for path, number, offset in loader.records_at(step):
            file = [str(p) for p in paths].index(path)
            n = sum(FILE_SIZES[:file]) + number
            assert frames_of[file].startswith(frame(record(n)), offset)
            found.append(n)
        assert found == batch["n"].tolist()
    assert loader.records_at(0) != loader.records_at(0, epoch=0) or order == "files"


def test_repeat_continues_at_the_state(ds: Untyped) -> None:
    loader = ds.loader(5, shuffle=True)
    want = labels(loader.repeat(3))
    loader = ds.loader(5, shuffle=True)
    batches = loader.repeat()
    for _ in range(13):
        next(batches)
    again = ds.loader(5, shuffle=True)
    again.load_state_dict(loader.state_dict())
    got = labels(itertools.islice(again.repeat(), 14))
    assert got == want[N + 4 * 5 : 3 * N]


# Empty datasets.


@pytest.mark.parametrize("order", ["files", "shuffled", "blocks"])
@pytest.mark.parametrize("sizes", [(0,), (0, 0)])
def test_an_empty_dataset_has_epochs_and_states(
    write: Write, order: str, sizes: tuple[int, ...]
) -> None:
    ds = open_dataset(write_files(write, sizes), features=SPEC)
    loader = loader_of(ds, order)
    assert (list(loader), loader.epoch, len(loader)) == ([], 1, 0)
    state = reloaded(loader.state_dict())
    assert place(state) == (1, 0)
    again = loader_of(ds, order, rank=1, world_size=2)
    again.load_state_dict(state)
    again.seek(0)
    assert (list(again), again.epoch) == ([], 2)
    with pytest.raises(IndexError):
        again.peek()
    with pytest.raises(ValueError, match="no batches"):
        next(again.repeat())
