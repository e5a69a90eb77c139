"""A slow, exact, independent implementation of the core's orders.

Source: the headers of src/cpp/loader and base/random.h. It shares no code with the
core: Python's integers do not overflow, shares are fractions, and blocks, draws and
steps are explicit lists.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

TWO_64 = 2**64

Permutation: TypeAlias = Callable[[int], int]


def mix64(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % TWO_64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % TWO_64
    return x ^ x >> 31


class KeyStream:
    def __init__(self, key: int) -> None:
        self._state = key

    def next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) % TWO_64
        return mix64(self._state)

    def below(self, n: int) -> int:
        # Of the 2^64 products x * n, each result has equally many if the lowest
        # 2^64 mod n of each 2^64 are rejected.
        while True:
            product = self.next() * n
            if product % TWO_64 >= TWO_64 % n:
                return product // TWO_64


def key_of(seed: int, epoch: int, stream: int = 0) -> int:
    key = 0
    for number in (seed, epoch, stream):
        key = KeyStream((key + number) % TWO_64).next()
    return key


def permutation(n: int, key: int) -> Permutation:
    keys = KeyStream(key)
    if n <= 4096:
        table = list(range(n))
        for left in range(n, 1, -1):
            chosen = keys.below(left)
            table[left - 1], table[chosen] = table[chosen], table[left - 1]
        return table.__getitem__

    n_rows = math.isqrt(n - 1) + 1
    n_columns = -(-n // n_rows)
    round_keys = [keys.next() for _ in range(6)]

    def round_number(x: int, key: int, size: int) -> int:
        product = (x * 0x9E3779B97F4A7C15 % TWO_64 ^ key) * (key | 1)
        return (product // TWO_64 ^ product % TWO_64) * size // TWO_64

    def image(number: int) -> int:
        while True:
            row, column = divmod(number, n_columns)
            for i in range(0, len(round_keys), 2):
                row = (row + round_number(column, round_keys[i], n_rows)) % n_rows
                column += round_number(row, round_keys[i + 1], n_columns)
                column %= n_columns
            number = row * n_columns + column
            if number < n:
                return number

    return image


def shuffled(n: int, seed: int, epoch: int, stream: int = 0) -> Permutation:
    return permutation(n, key_of(seed, epoch, stream))


@dataclass(frozen=True)
class Blocks:
    """Blocks of records, assigned to lanes: `ranges` by block, `cells` by position."""

    n_records: int
    block_records: int
    n_lanes: int
    seed: int
    epoch: int
    stream: int = 0
    n_rows: int = field(init=False)
    ranges: list[range] = field(init=False)
    records: list[int] = field(init=False)

    def __post_init__(self) -> None:
        n_blocks = self.n_lanes * max(
            1,
            (self.n_records // self.block_records + self.n_lanes // 2) // self.n_lanes,
        )
        smaller, n_larger = divmod(self.n_records, n_blocks)
        ranges, begin = [], 0
        for block in range(n_blocks):
            ranges.append(range(begin, begin + smaller + (block < n_larger)))
            begin = ranges[-1].stop
        object.__setattr__(self, "n_rows", -(-self.n_records // n_blocks))
        object.__setattr__(self, "ranges", ranges)
        object.__setattr__(self, "records", self._records())

    def _records(self) -> list[int]:
        cells = self._cells()
        records = []
        for position in range(self.n_records):
            at = cells[position]
            while at >= self.n_records:
                at = cells[at]
            records.append(at)
        return records

    def _cells(self) -> list[int]:
        """Return the record of every cell; empty cells have higher numbers."""
        key = key_of(self.seed, self.epoch, self.stream)
        order_of_blocks = permutation(len(self.ranges), key_of(key, 0, 1))
        order_of_rows = permutation(self.n_rows, key_of(key, 0, 2))
        n_larger = self.n_records % len(self.ranges)
        columns = []
        for draw in range(len(self.ranges)):
            block = order_of_blocks(draw)
            turns = KeyStream(key_of(key, 0, 0) ^ mix64(block))
            before = turns.below(self.n_rows) if self.n_rows else 0
            after = turns.below(self.n_rows) if self.n_rows else 0
            column = []
            for row in range(self.n_rows):
                there = order_of_rows((row + before) % self.n_rows)
                there = (there + after) % self.n_rows
                records = self.ranges[block]
                exists = there < len(records)
                column.append(
                    records[there] if exists else self.n_records + block - n_larger
                )
            columns.append(column)
        return [
            columns[first + lane][row]
            for first in range(0, len(columns), self.n_lanes)
            for row in range(self.n_rows)
            for lane in range(self.n_lanes)
        ]


@dataclass(frozen=True)
class Component:
    n_records: int
    weight: float
    # The order of one of its epochs: a function of epoch and stream.
    order: Callable[[int, int], Permutation]


class Mix:
    """Draws from components, down a tree of exact shares."""

    def __init__(
        self,
        components: Sequence[Component],
        *,
        length: int,
        run: int,
        draw_seed: int,
        epoch: int,
    ) -> None:
        self._components = components
        self._run = run
        self._first_draw = epoch * -(-length // run)
        self._root = _Node(range(len(components)), components, _offsets(draw_seed))

    def draw(self, number: int) -> tuple[int, int]:
        """Return the component of a draw, and the number of its earlier draws."""
        node = self._root
        while len(node.of) > 1:
            n_left = node.n_left(number)
            if node.n_left(number + 1) > n_left:
                node, number = node.sides[0], n_left
            else:
                node, number = node.sides[1], number - n_left
        return node.of[0], number

    def draws(self) -> Iterator[tuple[int, int]]:
        """Yield all draws in order, by counting."""
        n_drawn = [0] * len(self._components)
        while True:
            node = self._root
            while len(node.of) > 1:
                node = node.next_side()
            yield node.of[0], n_drawn[node.of[0]]
            n_drawn[node.of[0]] += 1

    def record(self, position: int) -> int:
        component, number = self.draw(self._first_draw + position // self._run)
        number = number * self._run + position % self._run
        of = self._components[component]
        epoch, within = divmod(number, of.n_records)
        first = sum(other.n_records for other in self._components[:component])
        return first + of.order(epoch, 1 + component)(within)


def _offsets(draw_seed: int) -> Iterator[int]:
    keys = KeyStream(key_of(draw_seed, 0))
    while True:
        yield keys.next()


class _Node:
    def __init__(
        self, of: range, components: Sequence[Component], offsets: Iterator[int]
    ) -> None:
        self.of = of
        self._n = 0  # draws that were counted
        if len(of) == 1:
            return
        left, right = of[: len(of) // 2], of[len(of) // 2 :]
        weight_of_left, weight = 0.0, 0.0
        for i in of:
            weight += components[i].weight
            weight_of_left += components[i].weight if i in left else 0.0
        # What a double holds below 1 fits into 64 bits but for the largest values.
        share = min(math.ldexp(weight_of_left / weight, 64), TWO_64 - 2048)
        self._share = Fraction(int(share), TWO_64)
        self._offset = Fraction(next(offsets), TWO_64)
        self.sides = [_Node(side, components, offsets) for side in (left, right)]

    def n_left(self, n: int) -> int:
        return math.floor(n * self._share + self._offset)

    def next_side(self) -> _Node:
        self._n += 1
        return self.sides[self.n_left(self._n) == self.n_left(self._n - 1)]


def rank_steps(
    n_positions: int,
    batch_size: int,
    world_size: int,
    *,
    phase: int = 0,
    drop_last: bool = False,
    n_lanes: int = 1,
    bounds: Iterable[int] | None = None,
) -> list[list[list[int]]]:
    """Return the positions of every rank in every step."""
    if bounds is None:
        ends = [phase] if phase else []
        ends += range(phase + batch_size, n_positions + 1, batch_size)
        if not drop_last and n_positions > (ends[-1] if ends else 0):
            ends.append(n_positions)
        bounds = [0, *ends]
    bounds = list(bounds)
    steps = []
    for begin, end in itertools.pairwise(bounds):
        step = sorted(range(begin, end), key=lambda at: (at % n_lanes, at))
        cuts = [len(step) * rank // world_size for rank in range(world_size + 1)]
        steps.append(
            [step[a:b] for a, b in itertools.pairwise(cuts)],
        )
    return steps
