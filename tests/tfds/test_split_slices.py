"""The slicing grammar of TFDS, which needs no files.

Goal
    A split selects the records that TFDS selects, with its rounding; anything else is an
    error that names what exists. tests/oracle/test_oracle_tfds.py compares with TFDS.
Method
    Lists of numbered records, sliced by Python; examples of TFDS's documentation.
"""

from __future__ import annotations

import itertools

import pytest

from columns import Untyped
from fastrec.tfds.split_slices import pieces_of

SHARDS = (7, 0, 5, 11)
LENGTHS = {"train": SHARDS, "test": (3, 3), "val-2": (10,)}
NAMES = list(LENGTHS)


def records(split: str, lengths: Untyped = LENGTHS) -> list[tuple[str, int]]:
    """Return the split and the number of each record that is selected."""
    found = []
    for name, shard, begin, end in pieces_of(split, lengths):
        assert 0 <= begin < end <= lengths[name][shard]
        before = sum(lengths[name][:shard])
        found += [(name, before + n) for n in range(begin, end)]
    return found


def of(name: str, numbers: Untyped) -> list[tuple[str, int]]:
    return [(name, n) for n in numbers]


TRAIN = range(sum(SHARDS))


@pytest.mark.parametrize(
    ("begin", "end"), [*itertools.product(["", *range(-23, 24, 3)], repeat=2)]
)
def test_numbers_slice_like_python(begin: int | str, end: int | str) -> None:
    if begin == end == "":
        return
    low, high = (None if bound == "" else int(bound) for bound in (begin, end))
    expected = TRAIN[low:high]
    text = f"train[{begin}:{end}]"
    if expected:
        assert records(text) == of("train", expected)
    else:
        with pytest.raises(ValueError, match=r"selects no records|before it begins"):
            pieces_of(text, LENGTHS)


@pytest.mark.parametrize("percent", [0, 1, 10, 33.3, 50, 66.6, 99.5, 100])
def test_percentages_round_to_the_nearest_record_or_even(percent: float) -> None:
    for n in (1, 10, 23, 50, 250, 1001):
        bound = round(percent * n / 100)
        lengths = {"train": (n,)}
        parts = [
            records(text, lengths) if size else []
            for text, size in (
                (f"train[:{percent}%]", bound),
                (f"train[{percent}%:]", n - bound),
            )
        ]
        assert parts[0] + parts[1] == of("train", range(n))
        assert len(parts[0]) == bound


def test_splits_are_joined_in_the_order_given() -> None:
    assert records("test+train[:2]") == of("test", range(6)) + of("train", range(2))
    assert records("test + test") == of("test", range(6)) * 2
    everything = [record for name in NAMES for record in records(name)]
    assert records("all") == everything
    assert len(everything) == 23 + 6 + 10


def test_shards_are_counted_with_the_empty_ones() -> None:
    assert records("train[0shard]") == of("train", range(7))
    assert records("train[-1shard]") == of("train", range(12, 23))
    assert records("train[1shard:3shard]") == of("train", range(7, 12))
    assert records("train[:-1shard]") == of("train", range(12))


def test_the_unit_of_one_bound_is_that_of_both() -> None:
    assert records("train[10:20%]") == records("train[10%:20%]")
    assert records("train[-20%:90]") == records("train[-20%:90%]")
    assert records("train[1_0:]") == of("train", TRAIN[10:])


@pytest.mark.parametrize(
    "text",
    [
        *("", "train[", "train[]", "train[:]", "train[1:2:3]", "train[5]", "train[5%]"),
        *("train[1.5:]", "train[1.5shard]", "train[a:b]", "train[1 : 2]", " train"),
        *("train+", "train,test", "train[10%:2shard]", "train[1__0.:]"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^split must be like 'train', .*, got '"):
        pieces_of(text, LENGTHS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "trian",
            (
                "no split 'trian'; the dataset has 'train', 'test', 'val-2'; did you "
                "mean 'train'\\?"
            ),
        ),
        (
            "validation",
            "no split 'validation'; the dataset has 'train', 'test', 'val-2'",
        ),
        (
            "train[:101%]",
            "split 'train\\[:101%\\]' must have percentages of -100 to 100",
        ),
        ("train[:24]", "split 'train\\[:24\\]' must be within the 23 records of"),
        ("train[20:10]", "must not end before it begins, got 20:10"),
        (
            "train[5:5]",
            "selects no records; 'train' has 23, 'test' has 6, 'val-2' has 10",
        ),
        (
            "all[:50%]",
            (
                "split 'all' cannot be sliced, got 'all\\[:50%\\]'; pass "
                "'train\\[:50%\\]\\+test\\[:50%\\]\\+val-2\\[:50%\\]'"
            ),
        ),
    ],
)
def test_errors_say_what_there_is(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pieces_of(text, LENGTHS)


def test_a_split_is_a_text() -> None:
    not_a_split: Untyped = ["train", "test"]
    with pytest.raises(TypeError, match="split must be a str such as 'train'"):
        pieces_of(not_a_split, LENGTHS)
