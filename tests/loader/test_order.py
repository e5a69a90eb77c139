"""Orders and step grids of the core.

Goal
    An epoch is a bijection in O(1) memory that can be evaluated at any positions. Steps
    and ranks share it evenly, blocks are read as blocks, mixes follow their weights, and
    all of it is stable across releases.
Method
    Small sizes completely, large ones by samples; `oracle_order`, a slow and simple
    implementation; pinned orders. Randomness is in test_order_quality.py.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle_order as oracle
from children import run_python
from fastrec._core import Order, Shuffle, StepGrid

Numbers = npt.NDArray[np.int64]

SEQUENTIAL = Shuffle.sequential()
SHUFFLED = Shuffle.shuffled()

# Where a table ends and a rectangle begins; squares and sizes next to them, where
# rectangles gain a row or a column; primes; powers of two.
SIZES = [
    *range(4090, 4103),
    *(side * side + d for side in (65, 66, 71, 256, 317) for d in (-1, 0, 1)),
    *(side * (side + 1) + d for side in (65, 70, 255) for d in (-1, 0, 1)),
    *(2**k + d for k in (13, 15, 17) for d in (-1, 0, 1)),
    *(4099, 10_007, 65_537, 99_991, 200_003),
]
LARGE_SIZES = [10**8, 2**40, 2**62 - 1, 2**62, 2**62 + 1]


def whole(order: Order) -> Numbers:
    return order.records(np.arange(len(order), dtype=np.int64))


def shuffled(n: int, seed: int = 0, epoch: int = 0, stream: int = 0) -> Order:
    return Order.of(SHUFFLED, n, seed, epoch, stream)


def blocks(
    n: int, block_records: int, n_lanes: int, seed: int = 0, epoch: int = 0
) -> Order:
    return Order.of(Shuffle.blocks(block_records, n_lanes), n, seed, epoch)


def is_bijection(records: Numbers) -> bool:
    return bool(np.array_equal(np.sort(records), np.arange(len(records))))


def sample(n: int, size: int, seed: int) -> Numbers:
    """Return distinct numbers below `n`: both ends, neighbours, rows and strays."""
    random = np.random.default_rng(seed)
    side = math.isqrt(n)
    begins = random.integers(0, n // 2, 20, dtype=np.int64)
    numbers = [
        np.arange(50),
        n - 1 - np.arange(50),
        *(begin + np.arange(20) for begin in begins),
        *(begin + side * np.arange(20) for begin in begins[:5]),
        random.integers(0, n, size, dtype=np.int64),
    ]
    return np.unique(np.concatenate(numbers) % n)


class TestBijection:
    def test_of_every_small_size(self) -> None:
        for n in range(2001):
            assert is_bijection(whole(shuffled(n, seed=n, epoch=1))), n

    @pytest.mark.parametrize(
        ("block_records", "n_lanes"),
        [(1, 1), (1, 5), (7, 3), (100, 8), (3, 64), (10_000, 1), (10_000, 16)],
    )
    def test_of_blocks_of_every_small_size(
        self, block_records: int, n_lanes: int
    ) -> None:
        for n in range(2001):
            order = blocks(n, block_records, n_lanes, seed=n)
            assert is_bijection(whole(order)), n

    @pytest.mark.parametrize("n", SIZES)
    def test_of_sizes_at_which_a_rectangle_changes(self, n: int) -> None:
        assert is_bijection(whole(shuffled(n, seed=1)))
        assert is_bijection(whole(shuffled(n, seed=n, epoch=2**64 - 1)))
        assert is_bijection(whole(blocks(n, 64, 8, seed=2)))

    @pytest.mark.parametrize("n", LARGE_SIZES)
    @pytest.mark.parametrize("kind", ["shuffled", "blocks"])
    def test_of_large_sizes_by_samples(self, n: int, kind: str) -> None:
        order = shuffled(n, seed=3) if kind == "shuffled" else blocks(n, 5000, 64)
        positions = sample(n, 200_000, seed=4)
        records = order.records(positions)
        assert records.min() >= 0
        assert records.max() < n
        assert len(np.unique(records)) == len(positions)

    def test_sequential_orders_are_the_identity(self) -> None:
        assert whole(Order.of(SEQUENTIAL, 1000, 3, 4)).tolist() == list(range(1000))


GROWTH_OF_MEMORY = """
import os
from pathlib import Path
import numpy as np
from fastrec._core import Order, Shuffle

def resident_bytes():
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")

def evaluate(order):
    positions = random.integers(0, n, 100_000, dtype=np.int64)
    assert order.records(positions).max() < 2 * n

n = 10**8
random = np.random.default_rng(7)
shuffled = Shuffle.shuffled()
orders = [
    Order.of(shuffled, n, 0, 0),
    Order.of(Shuffle.blocks(5000, 64), n, 0, 0),
    Order.mixed([(n, 1, shuffled), (n, 2, shuffled)], n, 1, 0, 0, 0),
]
for order in orders * 5:  # warm up: pages of code, arenas
    evaluate(order)
before = resident_bytes()
for order in orders * 40:
    evaluate(order)
print(resident_bytes() - before)
"""


class TestPositions:
    @pytest.mark.parametrize(
        "order",
        [
            shuffled(1000),
            shuffled(5003),
            shuffled(2**62),
            blocks(5003, 50, 7),
            blocks(2**40, 4000, 64),
            Order.mixed([(100, 1, SHUFFLED), (7000, 3, SHUFFLED)], 50_000, 3, 0, 0, 1),
        ],
        ids=["table", "rectangle", "large", "blocks", "large blocks", "mix"],
    )
    def test_any_positions_in_any_order_give_what_all_give(self, order: Order) -> None:
        random = np.random.default_rng(5)
        positions = sample(len(order), 2000, seed=6)
        records = order.records(positions)
        for size in [0, *range(1, 18), 1000, len(positions)]:
            chosen = random.choice(len(positions), size, replace=True)
            assert np.array_equal(order.records(positions[chosen]), records[chosen])

    @pytest.mark.parametrize("n", [0, 10, 5003])
    @pytest.mark.parametrize("position", [-1, -(2**63), "n", 2**63 - 1])
    def test_positions_outside_of_the_epoch_are_refused(
        self, n: int, position: int | str
    ) -> None:
        at = n if isinstance(position, str) else position
        with pytest.raises(IndexError, match=f"position .* got {at}$"):
            shuffled(n).records(np.array([at], dtype=np.int64))

    def test_of_a_list_are_its_records(self) -> None:
        order = Order.listed(np.array([5, 5, 0, 2**62], dtype=np.int64))
        assert order.records(np.array([3, 0, 1, 2])).tolist() == [2**62, 5, 5, 0]
        assert len(order) == 4

    def test_orders_allocate_only_the_result(self) -> None:
        if not Path("/proc/self/statm").exists():
            pytest.skip("resident memory is read from /proc")
        # In a new process, whose heap has no holes from other tests.
        found = run_python(GROWTH_OF_MEMORY)
        # A chunk is 0.8 MB; a bit for each record would be 12.5 MB.
        assert int(found.stdout) < 8e6


class TestOracle:
    """The core against the slow reimplementation."""

    @given(
        n=st.integers(0, 6000),
        seed=st.integers(0, 2**64 - 1),
        epoch=st.integers(0, 2**64 - 1),
        stream=st.integers(0, 2**64 - 1),
    )
    def test_shuffles(self, n: int, seed: int, epoch: int, stream: int) -> None:
        expected = oracle.shuffled(n, seed, epoch, stream)
        positions = np.arange(0, n, max(1, n // 200))
        records = shuffled(n, seed, epoch, stream).records(positions)
        assert records.tolist() == [expected(at) for at in positions.tolist()]

    @given(n=st.integers(4097, 2**63 - 1), seed=st.integers(0, 2**64 - 1))
    def test_large_shuffles(self, n: int, seed: int) -> None:
        expected = oracle.shuffled(n, seed, 1)
        positions = np.array([i * (n - 1) // 50 for i in range(51)], dtype=np.int64)
        records = shuffled(n, seed, 1).records(positions)
        assert records.tolist() == [expected(at) for at in positions.tolist()]

    @given(
        n=st.integers(0, 3000),
        block_records=st.integers(1, 400),
        n_lanes=st.integers(1, 20),
        seed=st.integers(0, 2**64 - 1),
        epoch=st.integers(0, 9),
    )
    def test_blocks(
        self, n: int, block_records: int, n_lanes: int, seed: int, epoch: int
    ) -> None:
        expected = oracle.Blocks(n, block_records, n_lanes, seed, epoch)
        order = blocks(n, block_records, n_lanes, seed, epoch)
        assert order.n_lanes == n_lanes
        assert whole(order).tolist() == expected.records

    @given(
        sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=9),
        weights=st.data(),
        length=st.integers(1, 10**15),
        run=st.integers(1, 300),
        draw_seed=st.integers(0, 2**64 - 1),
        seed=st.integers(0, 2**64 - 1),
        epoch=st.integers(0, 1000),
    )
    def test_mixes(
        self,
        sizes: list[int],
        weights: st.DataObject,
        length: int,
        run: int,
        draw_seed: int,
        seed: int,
        epoch: int,
    ) -> None:
        weight = st.floats(1e-9, 1e9)
        vector = [weights.draw(weight) for _ in sizes]
        order = mixed(sizes, vector, length, run, draw_seed, seed, epoch)
        expected = mixed_oracle(sizes, vector, length, run, draw_seed, seed, epoch)
        positions = np.array([i * (length - 1) // 20 for i in range(21)], np.int64)
        records = order.records(positions)
        assert records.tolist() == [expected.record(at) for at in positions.tolist()]


# The first records of orders, by the arguments that they come from.

SHUFFLES = {
    (1, 0, 0): "0",
    (10, 0, 0): "2 8 6 7 3 9 4 5 0 1",
    (10, 0, 1): "1 5 2 4 0 6 3 7 9 8",
    (1000, 42, 3): (
        "540 306 169 677 293 818 264 794 534 777 389 804 705 288 793 929 693 184 51 376"
    ),
    (4096, 18446744073709551615, 0): (
        "2446 1850 1423 2557 3721 2513 99 1495 1522 390 2420 3686 2358 2717 2573 "
        "3610 1575 736 1888 3650"
    ),
    (4097, 0, 0): (
        "3643 884 963 1425 3367 2813 1341 1280 3107 3235 803 3639 938 2656 1572 "
        "3645 2416 2332 2946 1137"
    ),
    (5000, 42, 3): (
        "2347 3703 495 4006 4307 3805 2625 4748 4075 2089 3145 4207 982 3431 1345 "
        "2055 4305 3594 302 3929"
    ),
    (5000, 3, 42): (
        "372 3553 3585 3220 4773 4659 3298 1548 219 4284 3703 2345 4563 4908 427 "
        "861 1708 0 1397 2146"
    ),
    (100000, 0, 1): (
        "68355 74754 20245 43657 83009 64962 36177 44388 22304 95326 36967 92674 "
        "95303 40149 44883 65816 33297 30474 82859 2963"
    ),
    (100000000, 7, 1000): (
        "77537759 6831821 77360587 69862010 3927920 55399437 10090450 80437047 "
        "61231145 43329588 66165319 53817023 55536885 83805987 70109221 54746999 "
        "63184031 26350786 40582713 85348405"
    ),
    (1099511627776, 0, 0): (
        "55045888739 892195457670 887685782592 900358208060 197030326914 "
        "872406747389 917847281173 339652348044 891365919585 733588759094 "
        "328601941875 373956136024 377242121593 702161917918 51941427912 "
        "367158104817 1016089681014 821360992685 356280755114 202173240246"
    ),
    (4611686018427387904, 1, 18446744073709551615): (
        "2321601442321439595 2795906646043024729 558834656806606223 "
        "4272900233680416643 1401003252564375530 3140452872108204891 "
        "4115538854889877538 1063164031101145400 1968075723262198369 "
        "1352273485588285373 1432427712871243745 2899784698065862471 "
        "2774294661532457804 3535104540412630468 4137409025697489346 "
        "3361204180295108849 3981519667833425085 3600207627429023141 "
        "2448996290737766220 2037898741498048257"
    ),
}

BLOCKS = {
    (100, 7, 3, 0, 0): "88 77 17 90 8 16 86 76 18 93 80 15 91 79 14 92 81 19 89 78",
    (100, 7, 3, 0, 1): "64 73 10 69 71 11 66 75 7 65 53 12 63 72 9 67 70 8 68 74",
    (10000, 64, 8, 42, 3): (
        "7030 1747 1866 7264 2436 6937 9061 5932 7027 1755 1853 7221 2433 6911 9058 "
        "5914 7038 1733 1877 7218"
    ),
    (300000, 50, 16, 1, 2): (
        "206083 160867 67728 268974 155436 269776 67636 281792 50526 120730 208347 "
        "93288 21924 95605 162647 122836 206073 160885 67702 268968"
    ),
    (1000000000, 4000, 64, 0, 0): (
        "543884581 647382845 556343343 887595084 41780592 20067594 64137316 "
        "761023324 409063079 346836907 584409441 684840704 155551219 226479944 "
        "599796754 12572177 997137165 762310903 412000712 306992815"
    ),
}

MIXES = {
    (1, 0): (
        "7780 17211 4055 714 8344 15767 80 3794 9058 7409 132 1004 2566 10421 281 "
        "1225 7368 19098 770 5098"
    ),
    (1, 1): (
        "12131 13887 15545 228 11563 7543 951 8180 3658 15099 192 1000 9983 13278 "
        "222 6629 2044 1396 568 10958"
    ),
    (8, 5): (
        "11898 19956 8576 7329 18388 8802 7893 11033 19647 6073 13963 5207 6908 "
        "7993 9431 18246 8285 13298 3299 7059"
    ),
}


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split()]


class TestPinned:
    """Orders must never change, because saved states rely on them."""

    @pytest.mark.parametrize("key", SHUFFLES)
    def test_shuffles(self, key: tuple[int, int, int]) -> None:
        first = numbers(SHUFFLES[key])
        expected = oracle.shuffled(*key)
        assert [expected(at) for at in range(len(first))] == first
        assert shuffled(*key).records(np.arange(len(first))).tolist() == first

    def test_a_whole_shuffle(self) -> None:
        records = whole(shuffled(100_000, seed=42, epoch=3)).astype("<i8")
        digest = hashlib.sha256(records.tobytes()).hexdigest()
        assert digest == (
            "93db97eb30e8492bdbdbf73a7ab5e18fdb432cb6f1507f4a556d6611cd77d218"
        )

    @pytest.mark.parametrize("key", BLOCKS)
    def test_blocks(self, key: tuple[int, int, int, int, int]) -> None:
        first = numbers(BLOCKS[key])
        assert blocks(*key).records(np.arange(len(first))).tolist() == first
        if key[0] < 10**6:  # the oracle lists all records
            assert oracle.Blocks(*key).records[: len(first)] == first

    @pytest.mark.parametrize("key", MIXES)
    def test_mixes(self, key: tuple[int, int]) -> None:
        run, epoch = key
        first = numbers(MIXES[key])
        options = ([1000, 5, 20_000], [0.5, 0.125, 1.25], 3000, run, 7, 42, epoch)
        positions = range(len(first))
        assert mixed(*options).records(np.array(positions)).tolist() == first
        assert [mixed_oracle(*options).record(at) for at in positions] == first


# An epoch of blocks, large enough that a rank's share is many of them.
N, BLOCK_RECORDS, LANES = 200_003, 100, 16


@pytest.fixture(scope="module")
def expected() -> oracle.Blocks:
    return oracle.Blocks(N, BLOCK_RECORDS, LANES, 11, 0)


@pytest.fixture(scope="module")
def records() -> Numbers:
    return whole(blocks(N, BLOCK_RECORDS, LANES, seed=11))


def blocks_of(records: Numbers, expected: oracle.Blocks) -> Numbers:
    ends = np.array([block.stop for block in expected.ranges])
    return np.searchsorted(ends, records, side="right").astype(np.int64)


class TestBlocks:
    def test_every_step_draws_evenly_from_all_lanes(self) -> None:
        grid = StepGrid(n_positions=N, batch_size=4 * LANES, n_lanes=LANES)
        for step in range(0, grid.n_steps - 1, 97):
            lanes = grid.positions(step) % LANES
            assert np.bincount(lanes, minlength=LANES).tolist() == [4] * LANES
            assert np.array_equal(lanes, np.sort(lanes))

    def test_a_lane_stays_in_a_block_until_it_is_drawn(
        self, records: Numbers, expected: oracle.Blocks
    ) -> None:
        n_strays = 0
        for lane in range(LANES):
            drawn = blocks_of(records[lane::LANES], expected)
            for begin in range(0, len(drawn) - expected.n_rows, expected.n_rows):
                draws = drawn[begin : begin + expected.n_rows]
                block = np.bincount(draws).argmax()
                n_here = int((draws == block).sum())
                assert n_here >= len(expected.ranges[block]) - 1
                n_strays += len(draws) - n_here
        n_shorter = sum(len(block) < expected.n_rows for block in expected.ranges)
        assert n_strays <= n_shorter

    def test_the_records_of_a_block_are_permuted(
        self, records: Numbers, expected: oracle.Blocks
    ) -> None:
        lane = records[: expected.n_rows * 100 * LANES : LANES]
        runs = lane.reshape(100, expected.n_rows)
        n_ascents = (np.diff(runs, axis=1) > 0).sum(axis=1)
        assert n_ascents.min() > 0.25 * expected.n_rows
        assert n_ascents.max() < 0.75 * expected.n_rows
        # Each block has a separate permutation.
        offsets = runs - runs.min(axis=1, keepdims=True)
        assert len({tuple(row) for row in offsets.tolist()}) == len(runs)

    @pytest.mark.parametrize("batch_size", [16, 64, 256, 4])
    @pytest.mark.parametrize("world_size", [2, 4])
    @pytest.mark.parametrize("phase", [0, 3])
    def test_ranks_own_whole_lanes(
        self,
        records: Numbers,
        expected: oracle.Blocks,
        batch_size: int,
        world_size: int,
        phase: int,
    ) -> None:
        lane_owners, block_owners = set(), set()
        for rank in range(world_size):
            grid = StepGrid(
                n_positions=N,
                batch_size=batch_size,
                phase=phase,
                drop_last=True,
                rank=rank,
                world_size=world_size,
                n_lanes=LANES,
            )
            steps = range(1 if phase else 0, grid.n_steps)
            positions = np.concatenate([grid.positions(step) for step in steps])
            lanes = set((positions % LANES).tolist())
            assert len(lanes) == LANES // world_size
            lane_owners |= {(lane, rank) for lane in lanes}

            counts = np.bincount(blocks_of(records[positions], expected))
            share = len(expected.ranges) / world_size
            assert (counts > 0).sum() <= 1.2 * share, "it reads little but its share"
            # Strays come from the blocks of the last rounds.
            own = np.flatnonzero(counts > 0.6 * BLOCK_RECORDS).tolist()
            assert abs(len(own) - share) <= 2 * LANES
            block_owners |= {(block, rank) for block in own}
        assert len(lane_owners) == LANES
        assert len({block for block, _ in block_owners}) == len(block_owners)

    def test_a_sorted_label_is_mixed_in_every_window(self, records: Numbers) -> None:
        n_classes, window = 10, 256
        labels = records * n_classes // N
        n_windows = len(labels) // window
        counts = np.stack(
            [
                np.bincount(labels[i * window : (i + 1) * window], minlength=n_classes)
                for i in range(n_windows)
            ]
        )
        # A window has 16 records of each of 16 blocks, so that the variance is 16 times
        # that of a true shuffle; 1.3 is for the number of independent sets of blocks.
        variance = window * (1 / n_classes) * (1 - 1 / n_classes)
        assert counts.var(axis=0).mean() < 1.3 * (window / LANES) * variance
        # It is 1 over windows of all blocks of some rounds.
        assert abs(counts.mean() - window / n_classes) < 0.1
        halves = counts[: n_windows // 2].sum(axis=0) / counts.sum(axis=0)
        assert halves.min() > 0.35
        assert halves.max() < 0.65

    def test_many_lanes_mix_nearly_like_a_global_shuffle(self) -> None:
        n, n_classes, window = 1_000_000, 10, 256
        labels = whole(blocks(n, 500, 256, seed=5)) * n_classes // n
        counts = np.bincount(
            np.repeat(np.arange(n // window), window) * n_classes
            + labels[: n // window * window],
        ).reshape(-1, n_classes)
        variance = window * (1 / n_classes) * (1 - 1 / n_classes)
        assert 0.8 < counts.var(axis=0).mean() / variance < 1.2

    def test_epochs_and_seeds_open_other_blocks(self) -> None:
        first = whole(blocks(10_000, 100, 4, seed=1))
        for seed, epoch in [(1, 1), (2, 0), (0, 1)]:
            other = whole(blocks(10_000, 100, 4, seed=seed, epoch=epoch))
            assert (first == other).sum() < 20


def mixed(
    sizes: Sequence[int],
    weights: Sequence[float],
    length: int,
    run: int = 1,
    draw_seed: int = 0,
    seed: int = 0,
    epoch: int = 0,
    shuffle: Shuffle = SHUFFLED,
) -> Order:
    components = [
        (n, weight, shuffle) for n, weight in zip(sizes, weights, strict=True)
    ]
    return Order.mixed(components, length, run, draw_seed, seed, epoch)


def mixed_oracle(
    sizes: Sequence[int],
    weights: Sequence[float],
    length: int,
    run: int = 1,
    draw_seed: int = 0,
    seed: int = 0,
    epoch: int = 0,
) -> oracle.Mix:
    def order_of(n: int) -> Callable[[int, int], oracle.Permutation]:
        return functools.cache(
            lambda of_epoch, stream: oracle.shuffled(n, seed, of_epoch, stream)
        )

    components = [
        oracle.Component(n, weight, order_of(n))
        for n, weight in zip(sizes, weights, strict=True)
    ]
    return oracle.Mix(
        components, length=length, run=run, draw_seed=draw_seed, epoch=epoch
    )


def components_of(records: Numbers, sizes: Sequence[int]) -> Numbers:
    return np.searchsorted(np.cumsum(sizes), records, side="right").astype(np.int64)


WEIGHTS = [
    [1.0],
    [1.0, 1.0],
    [1.0, 1e-6],
    [1e-6, 1.0],
    [0.7, 0.2, 0.1],
    [1e-300, 1.0, 3.0],
    [1e300, 1e300, 1.0],
    [5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    [1.0] * 20,
    [2.0**-i for i in range(20)],
    [1 + 0.01 * i for i in range(20)],
    [1e-6] * 10 + [1.0] * 10,
    [math.pi, math.e, math.sqrt(2), math.log(2), 1.0],
]


class TestMixes:
    @pytest.mark.parametrize("weights", WEIGHTS, ids=range(len(WEIGHTS)))
    def test_every_prefix_has_its_share_of_every_component(
        self, weights: list[float]
    ) -> None:
        length = 100_000
        sizes = [1000] * len(weights)
        # Each level of the tree rounds once.
        most = max(1, math.ceil(math.log2(len(weights))))
        for draw_seed in (0, 1, 2**64 - 1):
            order = mixed(sizes, weights, length, draw_seed=draw_seed)
            component = components_of(whole(order), sizes)
            n = np.arange(1, length + 1)
            for i, weight in enumerate(weights):
                share = weight / math.fsum(weights)
                counts = np.cumsum(component == i)
                assert np.abs(counts - share * n).max() < most + 1e-3, (i, draw_seed)

    @pytest.mark.parametrize("weights", WEIGHTS, ids=range(len(WEIGHTS)))
    def test_a_component_counts_from_draw_to_draw_and_epoch_to_epoch(
        self, weights: list[float]
    ) -> None:
        sizes = [97 + i for i in range(len(weights))]
        length, run, n_epochs = 3000, 6, 4
        records = np.concatenate(
            [
                whole(mixed(sizes, weights, length, run, 5, 6, epoch, SEQUENTIAL))
                for epoch in range(n_epochs)
            ]
        )
        component = components_of(records, sizes)
        runs = component.reshape(-1, run)
        assert (runs == runs[:, :1]).all(), "a run is of one component"
        for i, (size, begin) in enumerate(
            zip(sizes, itertools.accumulate([0, *sizes]), strict=False)
        ):
            own = records[component == i] - begin
            assert np.array_equal(own, np.arange(len(own)) % size)

    def test_a_component_is_read_whole_and_in_another_order_each_time(self) -> None:
        sizes, weights = [300, 5000, 40], [1.0, 2.0, 1.0]
        orders = [mixed(sizes, weights, 10_000, epoch=epoch) for epoch in range(3)]
        records = np.concatenate([whole(order) for order in orders])
        component = components_of(records, sizes)
        for i, size in enumerate(sizes):
            begin = sum(sizes[:i])
            own = records[component == i] - begin
            epochs = own[: len(own) // size * size].reshape(-1, size)
            assert len(epochs) >= 2
            assert all(is_bijection(epoch) for epoch in epochs)
            same = (epochs[1:] == epochs[:-1]).sum()
            assert same < 6 + 2 * len(epochs), (
                "fixed points between epochs: 1 on average"
            )

    @pytest.mark.parametrize("weights", WEIGHTS, ids=range(len(WEIGHTS)))
    @pytest.mark.parametrize("run", [1, 7])
    def test_any_position_equals_counting_from_the_first(
        self, weights: list[float], run: int
    ) -> None:
        sizes = [10**6] * len(weights)
        length, epoch = 700, 2
        counted = mixed_oracle(sizes, weights, length, run, draw_seed=3).draws()
        n_skipped = epoch * -(-length // run)
        draws = list(itertools.islice(counted, n_skipped + -(-length // run)))
        order = mixed(sizes, weights, length, run, 3, 0, epoch, SEQUENTIAL)
        positions = np.random.default_rng(8).permutation(length)
        for position, record in zip(
            positions.tolist(), order.records(positions).tolist(), strict=True
        ):
            component, number = draws[n_skipped + position // run]
            number = number * run + position % run
            assert record == component * 10**6 + number

    def test_draws_and_orders_have_separate_seeds(self) -> None:
        sizes, weights = [1000, 1000], [1.0, 2.0]
        base = whole(mixed(sizes, weights, 1000, 1, 0, 0))
        other_draws = whole(mixed(sizes, weights, 1000, 1, 1, 0))
        other_orders = whole(mixed(sizes, weights, 1000, 1, 0, 1))
        component = components_of(base, sizes)
        assert not np.array_equal(components_of(other_draws, sizes), component)
        assert np.array_equal(components_of(other_orders, sizes), component)
        for i in range(2):
            of_base, of_draws = (
                records[components_of(records, sizes) == i][:300]
                for records in (base, other_draws)
            )
            assert np.array_equal(of_base, of_draws)
        assert (base == other_orders).sum() < 20

    def test_equal_components_have_different_orders(self) -> None:
        records = whole(mixed([2000, 2000], [1.0, 1.0], 4000))
        first, second = records[records < 2000], records[records >= 2000] - 2000
        assert (first == second).sum() < 20


class TestStepGrid:
    def grids(self, world_size: int, **options: object) -> list[StepGrid]:
        return [
            StepGrid(rank=rank, world_size=world_size, **options)  # type: ignore[arg-type]
            for rank in range(world_size)
        ]

    def small_cases(self) -> Iterator[tuple[int, int, int, int, int, bool]]:
        for n, batch_size in itertools.product(range(14), range(1, 7)):
            for phase in range(min(batch_size, n + 1)):
                yield from itertools.product(
                    [n],
                    [batch_size],
                    [phase],
                    [1, 2, 3, 4],
                    [1, 2, 3, 5],
                    [False, True],
                )

    def test_every_small_grid_equals_the_oracle(self) -> None:
        for n, batch_size, phase, world_size, n_lanes, drop_last in self.small_cases():
            expected = oracle.rank_steps(
                n,
                batch_size,
                world_size,
                phase=phase,
                drop_last=drop_last,
                n_lanes=n_lanes,
            )
            case = (n, batch_size, phase, world_size, n_lanes, drop_last)
            for rank, grid in enumerate(
                self.grids(
                    world_size,
                    n_positions=n,
                    batch_size=batch_size,
                    phase=phase,
                    n_lanes=n_lanes,
                    drop_last=drop_last,
                )
            ):
                found = [grid.positions(step).tolist() for step in range(grid.n_steps)]
                assert found == [step[rank] for step in expected], case

    def test_steps_are_found_by_their_first_position(self) -> None:
        for n, batch_size, phase, _, _, drop_last in self.small_cases():
            grid = StepGrid(
                n_positions=n, batch_size=batch_size, phase=phase, drop_last=drop_last
            )
            end = 0
            for step in range(grid.n_steps):
                begin, count = grid.range(step)
                assert begin == end
                assert grid.step_at(begin) == step
                end = begin + count
            if drop_last and end < n:
                assert n - end < batch_size
                assert grid.step_at(end) == grid.n_steps
            else:
                assert end == n

    @given(
        sizes=st.lists(st.integers(1, 9), max_size=6),
        world_size=st.integers(1, 5),
        n_lanes=st.integers(1, 3),
        pad_last=st.booleans(),
    )
    def test_listed_batches_are_steps(
        self, sizes: list[int], world_size: int, n_lanes: int, pad_last: bool
    ) -> None:
        bounds = np.cumsum([0, *sizes], dtype=np.int64)
        expected = oracle.rank_steps(
            int(bounds[-1]), 1, world_size, n_lanes=n_lanes, bounds=bounds.tolist()
        )
        for rank, grid in enumerate(
            self.grids(
                world_size,
                n_positions=int(bounds[-1]),
                batch_size=1,
                n_lanes=n_lanes,
                pad_last=pad_last,
                bounds=bounds,
            )
        ):
            assert grid.n_steps == len(sizes)
            for step, size in enumerate(sizes):
                own = grid.positions(step).tolist()
                assert own == expected[step][rank]
                assert grid.range(step) == (bounds[step], size)
                assert grid.step_at(int(bounds[step])) == step
                n_rows = -(-size // world_size) if pad_last else len(own)
                assert grid.n_rows(step, len(own)) == n_rows

    def test_ranks_share_and_pad_a_step_evenly(self) -> None:
        for n, batch_size, phase, world_size, n_lanes, _ in self.small_cases():
            for pad_last in (False, True):
                grids = self.grids(
                    world_size,
                    n_positions=n,
                    batch_size=batch_size,
                    phase=phase,
                    n_lanes=n_lanes,
                    pad_last=pad_last,
                )
                assert len({grid.n_steps for grid in grids}) == 1
                for step in range(grids[0].n_steps):
                    sizes = [len(grid.positions(step)) for grid in grids]
                    assert max(sizes) - min(sizes) <= 1
                    rows = [
                        grid.n_rows(step, size)
                        for grid, size in zip(grids, sizes, strict=True)
                    ]
                    full = [-(-batch_size // world_size)] * world_size
                    assert rows == (full if pad_last else sizes)
                    assert all(a >= b for a, b in zip(rows, sizes, strict=True))

    @pytest.mark.parametrize("n", [2**62 - 1, 2**62, 2**62 + 5])
    @pytest.mark.parametrize("batch_size", [1, 3, 4096, 2**31, 2**61 + 1, 2**62 + 7])
    @pytest.mark.parametrize("drop_last", [False, True])
    def test_large_grids_are_exact(
        self, n: int, batch_size: int, drop_last: bool
    ) -> None:
        for phase in (0, 1, min(batch_size, n) // 2):
            if phase >= batch_size:
                continue
            grid = StepGrid(
                n_positions=n, batch_size=batch_size, phase=phase, drop_last=drop_last
            )
            n_full, n_left = divmod(n - phase, batch_size)
            n_steps = (phase > 0) + n_full + (n_left > 0 and not drop_last)
            assert grid.n_steps == n_steps
            for step in {0, 1, n_steps // 2, n_steps - 2, n_steps - 1}:
                if not 0 <= step < n_steps:
                    continue
                begin, count = grid.range(step)
                is_first = phase > 0 and step == 0
                first = 0 if is_first else phase + (step - (phase > 0)) * batch_size
                assert begin == first
                assert count == (phase if is_first else min(batch_size, n - first))
                assert grid.step_at(begin) == step

    @pytest.mark.parametrize("world_size", [1, 7, 1000, 2**20])
    def test_slices_of_large_steps_meet(self, world_size: int) -> None:
        n, batch_size = 2**62, world_size * 5 + 3
        step = n // batch_size - 1
        for rank in {0, 1, world_size // 2, world_size - 1}:
            if rank >= world_size:
                continue
            grid = StepGrid(
                n_positions=n, batch_size=batch_size, rank=rank, world_size=world_size
            )
            cuts = [batch_size * r // world_size for r in (rank, rank + 1)]
            expected = np.arange(*cuts) + step * batch_size
            assert np.array_equal(grid.positions(step), expected)

    def test_invalid_grids_are_refused(self) -> None:
        for wrong in (
            {"batch_size": 0},
            {"phase": 4},
            {"phase": 3, "n_positions": 2},
            {"world_size": 0},
            {"rank": 2, "world_size": 2},
            {"n_lanes": 0},
        ):
            options = {"n_positions": 100, "batch_size": 4} | wrong
            with pytest.raises(ValueError, match="StepGrid"):
                StepGrid(**options)  # type: ignore[arg-type]
        grid = StepGrid(n_positions=10, batch_size=4)
        for step in (3, 2**40):
            with pytest.raises(IndexError, match="step"):
                grid.positions(step)
            with pytest.raises(IndexError, match="step"):
                grid.range(step)
