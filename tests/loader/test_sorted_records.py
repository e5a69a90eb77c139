"""The orders of a loader on records that are sorted by label.

Goal
    A global shuffle spreads the labels as chance does; a window is biased as docs/shuffling.md
    describes. No record is lost or repeated.
Method
    Counts of labels in parts of an epoch, and a window as a list of slots.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fastrec as fr
from fastrec import _core

N_RECORDS = 70_000
N_LABELS = 10
N_DRAWS = 4_000

Integers = npt.NDArray[np.int64]


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> fr.Dataset:
    path = tmp_path_factory.mktemp("sorted") / "sorted.tfrecord"
    fr.write(path, {"number": np.arange(N_RECORDS)})
    return fr.open(path)


def draws(ds: fr.Dataset, shuffle: Any, seed: int) -> Integers:
    """Return the record number of each draw of an epoch."""
    loader = ds.loader(256, shuffle=shuffle, seed=seed, rank=0, world_size=1)
    drawn = np.concatenate([batch["number"] for batch in loader])
    assert np.array_equal(np.sort(drawn), np.arange(N_RECORDS))
    return drawn


def correlation(drawn: Integers) -> float:
    return float(np.corrcoef(drawn, np.arange(len(drawn)))[0, 1])


@pytest.mark.parametrize("seed", range(3))
def test_a_window_of_a_seventh_leaves_sorted_records_nearly_sorted(
    ds: fr.Dataset, seed: int
) -> None:
    drawn = draws(ds, fr.Window(10_000), seed)
    labels = drawn * N_LABELS // N_RECORDS
    assert correlation(drawn) == pytest.approx(0.90, abs=0.02)
    assert (drawn < np.arange(N_RECORDS) + 10_000).all()
    assert set(labels[:N_DRAWS].tolist()) == {0, 1}
    assert 9 not in labels[:50_000]


@pytest.mark.parametrize("seed", range(5))
def test_a_global_shuffle_mixes_sorted_records(ds: fr.Dataset, seed: int) -> None:
    drawn = draws(ds, True, seed)
    labels = drawn * N_LABELS // N_RECORDS
    assert abs(correlation(drawn)) < 0.02
    assert len(set(labels[:200].tolist())) == N_LABELS
    parts = np.split(labels, range(N_DRAWS, N_RECORDS, N_DRAWS))[:-1]
    counts = np.array([np.bincount(part, minlength=N_LABELS) for part in parts])
    # Hypergeometric: the epoch draws without repetition.
    share, rest = 1 / N_LABELS, (N_RECORDS - N_DRAWS) / (N_RECORDS - 1)
    deviation = math.sqrt(N_DRAWS * share * (1 - share) * rest)
    assert np.abs(counts - N_DRAWS * share).max() < 5 * deviation


def test_a_window_draws_like_a_list_of_slots() -> None:
    n_records, size, n_tries = 5, 3, 5_000

    def drawn_from_a_list(rng: np.random.Generator) -> tuple[int, ...]:
        waiting, slots, drawn = list(range(n_records)), list[int](), []
        while waiting or slots:
            while waiting and len(slots) < size:
                slots.append(waiting.pop(0))
            drawn.append(slots.pop(rng.integers(len(slots))))
        return tuple(drawn)

    def drawn_from_a_window(seed: int) -> tuple[int, ...]:
        runs = np.array([0]), np.array([n_records])
        order = _core.Order.window(*runs, size, seed, 0)
        return tuple(order.records(np.arange(n_records)).tolist())

    rng = np.random.default_rng(0)
    wanted = Counter(drawn_from_a_list(rng) for _ in range(n_tries))
    found = Counter(drawn_from_a_window(seed) for seed in range(n_tries))
    assert wanted.keys() == found.keys()
    assert len(wanted) == 3**2 * math.factorial(3)
    for drawn, count in wanted.items():
        assert abs(found[drawn] - count) < 6 * math.sqrt(2 * count), drawn
