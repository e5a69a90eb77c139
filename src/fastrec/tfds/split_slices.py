"""The slicing API of TFDS: "train[10:20%]+test" -> records of shards.

The grammar and the rounding are those of ``tensorflow_datasets/core/splits.py``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fastrec.hints import no_column

_TERM = re.compile(r"(?P<split>[\w-]+)(\[(?P<slice>[\d\w%:.-]+)\])?")
_BOUND = re.compile(r"((?P<value>-?[\d_.]+)(?P<unit>%|shard)?)?")
_PLUS = re.compile(r"\s*\+\s*")

_EXAMPLES = "'train', 'train[:80%]', 'train[100:200]', 'train[1shard]' or 'train+test'"


class Piece(NamedTuple):
    """Records `begin` to `end` of one shard of a split."""

    split: str
    shard: int
    begin: int
    end: int


def pieces_of(split: str, lengths: Mapping[str, Sequence[int]]) -> list[Piece]:
    """Return the records that a split selects.

    Parameters
    ----------
    split : str
        A split, a slice of one, or several joined by ``+``; "all" is every split.
    lengths : mapping of str to sequence of int
        The number of records in each shard of each split.

    Raises
    ------
    ValueError
        If `split` is malformed, names no split, or selects no records.
    """
    given: object = split
    if not isinstance(given, str):
        raise TypeError(f"split must be a str such as {_EXAMPLES}, got {split!r}")
    pieces = [
        piece for term in _PLUS.split(split) for piece in _pieces(term, split, lengths)
    ]
    if not pieces:
        counts = ", ".join(f"{name!r} has {sum(n):,}" for name, n in lengths.items())
        raise ValueError(f"split {split!r} selects no records; {counts}")
    return pieces


def _pieces(term: str, split: str, lengths: Mapping[str, Sequence[int]]) -> list[Piece]:
    match = _TERM.fullmatch(term)
    if match is None:
        raise _malformed(split)
    name, text = match["split"], match["slice"]
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
    ends = itertools.accumulate(shards)
    return [
        Piece(name, shard, max(begin - (last - n), 0), min(end - (last - n), n))
        for shard, (n, last) in enumerate(zip(shards, ends, strict=True))
        if max(begin, last - n) < min(end, last)
    ]


def _bounds(text: str, split: str, shards: Sequence[int]) -> tuple[int, int]:
    """Return the first record of a slice, and the end of the last one."""
    bounds = [_BOUND.fullmatch(part) for part in text.split(":")]
    units = {bound["unit"] for bound in bounds if bound is not None} - {None}
    values = [bound["value"] for bound in bounds if bound is not None]
    is_single = len(values) == 1
    if (
        None in bounds
        or not any(values)
        or len(values) > 2
        or len(units) > 1
        or (is_single and units != {"shard"})
    ):
        raise _malformed(split)
    (unit,) = units or {""}  # of both bounds, if only one has it
    try:
        if unit == "%":
            first, last = (None if v is None else float(v) for v in values)
            begin, end = _of_percent(first, last, split, sum(shards))
        else:
            numbers = [None if v is None else int(v) for v in values]
            if is_single:
                assert numbers[0] is not None
                numbers.append(numbers[0] + 1)
            low, high = numbers
            if unit == "shard":
                begin, end = _of_shards(low, high, shards)
            else:
                begin, end = low or 0, sum(shards) if high is None else high
    except ValueError as error:
        if str(error).startswith("split"):
            raise
        raise _malformed(split) from None
    n_records = sum(shards)
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


def _of_percent(
    first: float | None, last: float | None, split: str, n_records: int
) -> tuple[int, int]:
    if abs(first or 0) > 100 or abs(last or 0) > 100:
        raise ValueError(f"split {split!r} must have percentages of -100 to 100")
    begin = 0 if first is None else round(first * n_records / 100.0)
    return begin, n_records if last is None else round(last * n_records / 100.0)


def _of_shards(
    first: int | None, last: int | None, shards: Sequence[int]
) -> tuple[int, int]:
    begin = 0 if first is None else sum(shards[:first])
    if last is not None and last <= 0:
        last += len(shards)
    return begin, sum(shards) if last is None else sum(shards[:last])


def _malformed(split: str) -> ValueError:
    return ValueError(f"split must be like {_EXAMPLES}, got {split!r}")
