"""Statistical quality of shuffled orders.

Goal
    No statistic that a training run could depend on distinguishes an order from a uniform
    random permutation: for any number of records, over seeds, and between epochs.
Method
    Every statistic is converted to a score with mean 0 and variance 1 under uniform
    permutations, and computed for many keys. Seeds are fixed, so tests are deterministic.
    `Judge` allows a probability of 1e-7 per statistic, below 1e-4 for all together.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pytest

from fastrec._core import Order, Shuffle

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Records, and the number of epochs: around a million positions each.
EPOCHS_OF_SIZE = {
    1000: 400,
    4096: 200,
    4097: 240,
    5000: 200,
    10_000: 80,
    65_536: 8,
    70_000: 8,
    1_000_000: 2,
}

LAGS = [*range(1, 17), 64, 256, 997, 1000]


def shuffled(n: int, seed: int, epoch: int = 0, stream: int = 0) -> Numbers:
    order = Order.of(Shuffle.shuffled(), n, seed, epoch, stream)
    return order.records(np.arange(n, dtype=np.int64))


def chi_square_score(chi_square: float, freedom: int) -> float:
    """Return a normal score for a chi-square (Wilson and Hilferty, 1931)."""
    spread = 2 / (9 * freedom)
    root = float(np.cbrt(chi_square / freedom))
    return (root - 1 + spread) / math.sqrt(spread)


class Judge:
    """Collects scores by statistic, and finds those that chance cannot explain.

    For K scores of a statistic, each of these has a probability below 3e-8: one beyond
    6.5 (K times 8e-11), a mean beyond 5.7 / sqrt(K), and a sum of squares beyond a score
    of 5.7. Counts of rare events are added up and compared with what Poisson allows.
    """

    def __init__(self) -> None:
        self._scores: defaultdict[str, list[float]] = defaultdict(list)
        self._rare: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)

    def score(self, statistic: str, value: float) -> None:
        self._scores[statistic].append(value)

    def rare(self, statistic: str, count: int, expected: float) -> None:
        self._rare[statistic].append((count, expected))

    def findings(self) -> list[str]:
        found = []
        for statistic, values in self._scores.items():
            scores, n = np.array(values), len(values)
            marks = {
                "one": float(np.abs(scores).max()) - 0.8,
                "mean": abs(float(scores.mean())) * math.sqrt(n),
                "spread": abs(chi_square_score(float((scores**2).sum()), n)),
            }
            if n < 8:  # too few for the approximation of the spread below the mean
                del marks["spread"]
            found += [
                f"{statistic}: {mark} of {n} is {value:.1f} sigma off"
                for mark, value in marks.items()
                if value > 5.7
            ]
        for statistic, counts in self._rare.items():
            count = sum(count for count, _ in counts)
            expected = sum(expected for _, expected in counts)
            # The square root of a Poisson count has the variance 1/4, nearly.
            sigma = 2 * abs(math.sqrt(count + 3 / 8) - math.sqrt(expected))
            if sigma > 5.9:
                found.append(f"{statistic}: {count} instead of {expected:.1f}")
        return found


def correlation(a: Numbers, b: Numbers) -> float:
    """Return a score for the sum of a * b, if either one is in a random order."""
    x, y = a - a.mean(), b - b.mean()
    variance = (x @ x) * (y @ y) / (len(a) - 1)
    return float(x @ y / math.sqrt(variance))


def contingency(a: Numbers, b: Numbers, n_classes: int) -> float:
    """Return a score for classes of two that are independent, in cells a x b."""
    cells = np.bincount(a * n_classes + b, minlength=n_classes**2)
    cells = cells.reshape(n_classes, n_classes)
    expected = np.outer(cells.sum(axis=1), cells.sum(axis=0)) / len(a)
    chi_square = float(((cells - expected) ** 2 / expected).sum())
    # Margins are given, as in a permutation, which makes the mean exact.
    return chi_square_score(chi_square * (len(a) - 1) / len(a), (n_classes - 1) ** 2)


def uniformity(classes: Numbers, shares: Floats) -> float:
    """Return a score for classes that have these shares."""
    counts = np.bincount(classes, minlength=len(shares))
    expected = len(classes) * shares
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    return chi_square_score(chi_square, len(shares) - 1)


def pairs_alike(differences: Numbers, n: int) -> float:
    """Return a score for the number of equal nonzero differences modulo n."""
    counts = np.bincount(differences % n, minlength=n)
    n_pairs = float((counts * (counts - 1)).sum()) / 2
    expected = len(differences) * (len(differences) - 1) / 2 / (n - 1)
    return (n_pairs - expected) / math.sqrt(expected)


def judge_places(judge: Judge, records: Numbers) -> None:
    """Return scores for cells of position x record, also of their low bits."""
    n = len(records)
    positions = np.arange(n)
    for n_classes in (8, 32):
        cell = (positions * n_classes // n, records * n_classes // n)
        judge.score(f"{n_classes} x {n_classes} cells", contingency(*cell, n_classes))
    judge.score("rank", correlation(positions, records))
    judge.score("mod 2", correlation(positions % 2, records % 2))
    for n_classes in (3, 4, 8, 16):
        cell = (positions % n_classes, records % n_classes)
        judge.score(f"mod {n_classes}", contingency(*cell, n_classes))
        cell = (positions % n_classes, records * n_classes // n)
        judge.score(f"mod {n_classes} to range", contingency(*cell, n_classes))
        cell = (positions * n_classes // n, records % n_classes)
        judge.score(f"range to mod {n_classes}", contingency(*cell, n_classes))
    judge.rare("fixed points", int((records == positions).sum()), 1)


def judge_neighbours(judge: Judge, records: Numbers) -> None:
    """Return scores for consecutive records."""
    n = len(records)
    side = math.isqrt(n - 1) + 1  # of the rectangle that a permutation is made in
    centred = (records - (n - 1) / 2) / math.sqrt((n * n - 1) / 12)
    for lag in {*LAGS, side - 1, side, side + 1}:
        if 2 * lag >= n:
            continue
        mean = float(centred[lag:] @ centred[:-lag]) / (n - lag)
        name = f"lag {lag}" if lag in LAGS else "lag of a row"
        judge.score(name, (mean + 1 / (n - 1)) * math.sqrt(n - lag))
    n_bins = 64
    bins = np.arange(n - 1) * n_bins // (n - 1)
    shares = np.bincount(bins, minlength=n_bins) / (n - 1)
    for lag in (1, 2, side - 1, side, side + 1):
        differences = (records[lag:] - records[:-lag]) % n
        name = f"{lag}" if lag < 3 else "a row"
        judge.score(f"steps by {name}", uniformity(bins[differences - 1], shares))
        judge.score(f"repeated steps by {name}", pairs_alike(differences, n))
    steps = np.diff(records)
    judge.rare("neighbours stay neighbours", int((np.abs(steps) == 1).sum()), 2)
    n_ascents = int((steps > 0).sum())
    judge.score("ascents", (n_ascents - (n - 1) / 2) / math.sqrt((n + 1) / 12))
    fours = records[: n // 4 * 4].reshape(-1, 4)
    patterns = np.argsort(fours, axis=1) @ np.array([64, 16, 4, 1])
    _, patterns = np.unique(patterns, return_inverse=True)
    judge.score("orders of four", uniformity(patterns, np.full(24, 1 / 24)))


def judge_pair(judge: Judge, records: Numbers, others: Numbers) -> None:
    """Return scores for the dependence of two orders."""
    n = len(records)
    judge.score("correlation", correlation(records, others))
    cell = (records * 16 // n, others * 16 // n)
    judge.score("16 x 16 cells", contingency(*cell, 16))
    counts = np.bincount((records - others) % n, minlength=n)
    n_pairs = float((counts * (counts - 1)).sum()) / 2
    expected = (n - 1) / 2
    judge.score("repeated distances", (n_pairs - expected) / math.sqrt(expected))
    judge.rare("same places", int((records == others).sum()), 1)
    judge.rare("same neighbours", len(neighbours(records) & neighbours(others)), 1)


def neighbours(records: Numbers) -> set[int]:
    return set((records[:-1] * len(records) + records[1:]).tolist())


def judge_orders(orders: Iterable[Numbers]) -> list[str]:
    judge = Judge()
    for records in orders:
        judge_places(judge, records)
        judge_neighbours(judge, records)
    return judge.findings()


@pytest.mark.parametrize("n", EPOCHS_OF_SIZE)
def test_an_epoch_looks_uniformly_random(n: int) -> None:
    seeds = [0, 1, 2, 42, 2**32, 2**63, 2**64 - 1]
    keys = zip(itertools.cycle(seeds), itertools.count(), strict=False)
    chosen = itertools.islice(keys, EPOCHS_OF_SIZE[n])
    assert judge_orders(shuffled(n, seed, epoch) for seed, epoch in chosen) == []


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_every_order_of_a_few_records_is_equally_likely(n: int) -> None:
    n_orders = math.factorial(n)
    n_drawn = 40 * n_orders
    for epoch in (0, 1):
        counts = Counter(
            tuple(shuffled(n, seed, epoch).tolist()) for seed in range(n_drawn)
        )
        assert len(counts) == n_orders
        if n_orders == 1:
            continue
        expected = n_drawn / n_orders
        chi_square = sum(
            (count - expected) ** 2 / expected for count in counts.values()
        )
        # One-sided, a score of 4.8 has the probability 8e-7; so have 6 and -6 for the
        # few degrees of freedom at which the approximation is poor.
        assert abs(chi_square_score(chi_square, n_orders - 1)) < (4.8 if n > 3 else 6)


@pytest.mark.parametrize("n", [1000, 5000, 70_000])
def test_epochs_seeds_and_streams_are_independent(n: int) -> None:
    n_keys = {1000: 200, 5000: 60, 70_000: 6}[n]
    for relation in ("epoch", "seed", "swapped", "stream", "shifted"):
        judge = Judge()
        for i in range(n_keys):
            seed, epoch = i, 2 * i + 1
            other = {
                "epoch": (seed, epoch + 1, 0),
                "seed": (seed + 1, epoch, 0),
                "swapped": (epoch, seed, 0),
                "stream": (seed, epoch, 1),
                "shifted": (seed, 0, epoch),
            }[relation]
            judge_pair(judge, shuffled(n, seed, epoch), shuffled(n, *other))
        assert judge.findings() == [], relation


@pytest.mark.parametrize("n", [10**8, 2**40, 2**62])
def test_samples_of_large_orders_look_uniformly_random(n: int) -> None:
    judge = Judge()
    for seed in range(10):
        order = Order.of(Shuffle.shuffled(), n, seed, 0)
        for name, stride in [("1", 1), ("a row", math.isqrt(n)), ("n", n // 10**5)]:
            n_sampled = min(50_000, n // 2 // stride)
            begin = seed * (n // 2 // 10)
            judge_sample(
                judge,
                f"by {name}: ",
                order.records(begin + stride * np.arange(n_sampled)),
                n,
            )
    assert judge.findings() == []


def judge_sample(judge: Judge, name: str, records: Numbers, n: int) -> None:
    shares = np.full(64, 1 / 64)
    places = records / n - 0.5
    steps = np.diff(records) % n
    judge.score(name + "mean", float(places.mean()) * math.sqrt(12 * len(places)))
    judge.score(name + "range", uniformity(((places + 0.5) * 64).astype(int), shares))
    judge.score(name + "low bits", uniformity(records % 64, shares))
    judge.score(name + "steps", uniformity((steps / n * 64).astype(int), shares))
    product = float(places[1:] @ places[:-1])
    judge.score(name + "lag", product * 12 / math.sqrt(len(steps)))
    n_repeated = len(steps) - len(np.unique(steps))
    judge.rare(name + "repeated steps", n_repeated, len(steps) ** 2 / 2 / n)
