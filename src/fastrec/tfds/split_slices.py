"""The slicing API of TFDS: convert "train[10:20%]+test" to records of shards.

The grammar and the rounding follow ``tensorflow_datasets/core/splits.py``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fastrec.hints import no_column

_TERM = re.compile(r"([\w-]+)(?:\[([\w%:.-]+)\])?")
_BOUND = re.compile(r"(?:(-?[\d_.]+)(%|shard)?)?")

_EXAMPLES = "'train', 'train[:80%]', 'train[100:200]', 'train[1shard]' or 'train+test'"


class Piece(NamedTuple):
    """Records ``begin:end`` of one shard of a split."""

    split: str
    shard: int
    begin: int
    end: int


def pieces_of(split: str, lengths: Mapping[str, Sequence[int]]) -> list[Piece]:
    """Return the shard pieces that a split selects.

    `split` is a split name, a slice of a split, or several joined by ``+``; "all" means
    every split. `lengths` contains the number of records in each shard, by split.
    Raises a ValueError if `split` is malformed or unknown, or selects no records.
    """
    given: object = split
    if not isinstance(given, str):
        raise TypeError(f"split must be a str such as {_EXAMPLES}, got {split!r}")
    terms = re.split(r"\s*\+\s*", split)
    pieces = [piece for term in terms for piece in _pieces(term, split, lengths)]
    if not pieces:
        counts = ", ".join(f"{name!r} has {sum(n):,}" for name, n in lengths.items())
        raise ValueError(f"split {split!r} selects no records; {counts}")
    return pieces


def _pieces(term: str, split: str, lengths: Mapping[str, Sequence[int]]) -> list[Piece]:
    match = _TERM.fullmatch(term)
    if match is None:
        raise _malformed(split)
    name, text = match.groups()
    if name == "all":
        if text is not None:
            listed = "+".join(f"{each}[{text}]" for each in lengths)
            raise ValueError(
                f"split 'all' cannot be sliced, got {split!r}; pass {listed!r}"
            )
        return [piece for each in lengths for piece in _pieces(each, split, lengths)]
    if name not in lengths:
        raise ValueError(no_column(name, lengths, "the dataset", "split"))
    shards = lengths[name]
    begin, end = (0, sum(shards)) if text is None else _bounds(text, split, shards)
    firsts = itertools.accumulate(shards, initial=0)
    return [
        Piece(name, shard, max(begin - first, 0), min(end - first, n))
        for shard, (n, first) in enumerate(zip(shards, firsts, strict=False))
        if max(begin, first) < min(end, first + n)
    ]


def _bounds(text: str, split: str, shards: Sequence[int]) -> tuple[int, int]:
    """Return the begin and end record numbers of a slice; the end is exclusive."""
    parts = [match for part in text.split(":") if (match := _BOUND.fullmatch(part))]
    units = {part[2] for part in parts} - {None}
    if (
        len(parts) != text.count(":") + 1
        or not any(part[1] for part in parts)
        or len(parts) > 2
        or len(units) > 1
        or (len(parts) == 1 and units != {"shard"})
    ):
        raise _malformed(split)
    (unit,) = units or {""}  # the unit of one bound applies to both
    number = float if unit == "%" else int
    try:
        low, *rest = [None if part[1] is None else number(part[1]) for part in parts]
    except ValueError:
        raise _malformed(split) from None
    high = rest[0] if rest else (low or 0) + 1
    n_records = sum(shards)
    if unit == "%":
        if max(abs(low or 0), abs(high or 0)) > 100:
            raise ValueError(f"split {split!r} must have percentages of -100 to 100")
        low, high = (n and round(n * n_records / 100.0) for n in (low, high))
    elif unit == "shard":
        if high is not None and high <= 0:
            high += len(shards)
        low, high = (None if n is None else sum(shards[: int(n)]) for n in (low, high))
    begin, end = int(low or 0), n_records if high is None else int(high)
    if max(abs(begin), abs(end)) > n_records:
        raise ValueError(
            f"split {split!r} must be within the {n_records:,} records of the split"
        )
    begin, end = (n + n_records if n < 0 else n for n in (begin, end))
    if begin > end:
        raise ValueError(
            f"split {split!r} must not end before it begins, got {begin}:{end}"
        )
    return begin, end


def _malformed(split: str) -> ValueError:
    return ValueError(f"split must be like {_EXAMPLES}, got {split!r}")
