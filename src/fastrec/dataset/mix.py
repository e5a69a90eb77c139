"""Combine datasets: `concat` joins them, `mix` draws from them by weight."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastrec.dataset.dataset import Dataset
from fastrec.options import non_negative_int, positive_int, true_or_false
from fastrec.sources.source import Mix, Source, joined_records


def concat(datasets: Iterable[Dataset]) -> Dataset:
    """Return a dataset that contains the records of all `datasets`, in order.

    The datasets must have the same columns after their transforms. The features that
    the files store may differ.

    Raises
    ------
    TypeError, ValueError
        If `datasets` is empty or contains anything but datasets.
    SchemaError
        If the columns differ; raised when columns are first needed.
    """
    expected = "concat() requires a list of datasets"
    given: object = datasets
    if isinstance(given, Dataset):  # also iterable, over its rows
        raise TypeError(f"{expected}, got {given!r}")
    parts = list(datasets)
    _check_parts(parts, expected)
    source, sources = _joined_source(parts), [part._source for part in parts]
    if not all(source.is_whole for source in sources):
        source = source.with_records(joined_records(sources))
    return Dataset(source)


def mix(
    components: Mapping[str, tuple[Dataset, float]],
    *,
    seed: int = 0,
    length: int | None = None,
    per_batch: bool = False,
) -> Dataset:
    """Draw rows from several datasets in proportion to their weights.

    After any row, the number of rows drawn from a component is within a constant of its
    weighted share. When a component is exhausted, its next epoch begins, in a new order
    if the loader shuffles. The next epoch of the mix continues where the components
    stopped. A row's number determines its component and record: a mix resumes exactly.

    Parameters
    ----------
    components : mapping of str to (Dataset, float)
        Datasets and their weights, by name. The datasets must have the same columns
        after their transforms.
    seed : int, default 0
        Shifts the pattern of draws; the loader's seed shuffles within components.
    length : int, optional
        Rows per epoch; by default the total number of rows of the components.
    per_batch : bool, default False
        Draw all rows of a global batch from one component. If `length` is not a multiple
        of the batch size, the last batch of an epoch is short, and the other rows drawn
        for it are skipped. Outside loaders, rows are drawn one by one.

    Returns
    -------
    Dataset
        Batches have an additional int64 column ``__source__``: the index of the
        row's component in `components`, or -1 for a padding row.

    Raises
    ------
    TypeError, ValueError
        If `components` is not a mapping to datasets with positive weights.
    SchemaError
        If the columns differ; raised when columns are first needed.

    Examples
    --------
    >>> both = fr.mix({"web": (web, 3), "code": (code, 1)})  # doctest: +SKIP
    >>> loader = both.loader(256, shuffle=True)  # doctest: +SKIP
    """
    expected = "mix() requires a dict of name: (dataset, weight)"
    given: object = components
    if not isinstance(given, Mapping) or not all(
        isinstance(entry, tuple) and len(entry) == 2 for entry in given.values()
    ):
        raise TypeError(f"{expected}, got {given!r}")
    parts = [part for part, _ in components.values()]
    _check_parts(parts, expected)
    weighted = Mix(
        {
            name: (part._source, _weight(name, weight))
            for name, (part, weight) in components.items()
        },
        non_negative_int("seed", seed, 2**64 - 1),
        None if length is None else positive_int("length", length),
        true_or_false("per_batch", per_batch),
    )
    return Dataset(dataclasses.replace(_joined_source(parts), mix=weighted))


def _weight(name: str, weight: Any) -> float:
    try:
        value = float(weight)
    except (TypeError, ValueError):
        raise TypeError(
            f"the weight of {name!r} must be a number, got {weight!r}"
        ) from None
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"weight of {name!r} must be positive and finite, got {value}")
    return value


def _check_parts(parts: Sequence[Any], expected: str) -> None:
    if not parts:
        raise ValueError(f"{expected}, got none")
    for part in parts:
        if not isinstance(part, Dataset):
            raise TypeError(f"{expected}, got {part!r}")
        if part._source.is_mixed:
            raise TypeError(
                f"{expected}, got a mix: list the components of all mixes in one mix()"
            )
        if part._source.has_steps != parts[0]._source.has_steps:
            raise TypeError("call steps() on all datasets before they are joined")


def _joined_source(parts: Sequence[Dataset]) -> Source:
    """Return a source of all parts; each part's transforms apply to its rows only."""
    return Source.joined(
        [
            part._source.changed(
                lambda reading, part=part: dataclasses.replace(  # type: ignore[misc]
                    reading, transforms=(*reading.transforms, *part._transforms)
                )
            )
            for part in parts
        ]
    )
