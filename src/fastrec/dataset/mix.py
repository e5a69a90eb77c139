"""Datasets made of datasets: concatenated, or drawn from in proportion to weights."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastrec.dataset.dataset import Dataset
from fastrec.options import non_negative_int, positive_int, true_or_false
from fastrec.sources.source import Source
from fastrec.sources.view import Mix, View, joined_selection

__all__ = ["concat", "mix"]


def concat(datasets: Iterable[Dataset]) -> Dataset:
    """Return the records of several datasets, one dataset after another.

    The datasets must have equal columns, after their transforms; features and keys in
    their files may differ.

    Raises
    ------
    TypeError, ValueError
        If these are not datasets, or there are none.
    SchemaError
        When columns are first needed, if they differ.
    """
    what = "concat() takes a list of datasets"
    given: object = datasets
    if isinstance(given, Dataset):  # it is iterable, too: over its rows
        raise TypeError(f"{what}, got {given!r}")
    parts = list(datasets)
    _check_parts(parts, what)
    source, views = _joined_source(parts), [part._view for part in parts]
    if all(view.is_walkable for view in views):
        return Dataset(View(source))
    return Dataset(View(source, joined_selection(views)))


def mix(
    components: Mapping[str, tuple[Dataset, float]],
    *,
    seed: int = 0,
    length: int | None = None,
    per_batch: bool = False,
) -> Dataset:
    """Draw rows from several datasets in proportion to weights.

    Among the first n rows, each component has its share of the weights times n, up to a
    constant. A component that ends begins its next epoch, with ``shuffle=`` in a new
    order. Later epochs of the mix continue where the components are. The row's number
    alone determines its component and record, so a mix resumes like everything else.

    Parameters
    ----------
    components : mapping of str to (Dataset, float)
        The datasets and their weights, by names. They must have equal columns, after
        their transforms.
    seed : int, default 0
        Shifts the pattern of draws. The orders of the components depend on the loader's.
    length : int, optional
        Rows in an epoch; by default the sum of the components.
    per_batch : bool, default False
        Draw all rows of a global batch from one component. If `length` is not a multiple
        of the batch size, the last batch of an epoch is short, and the rest of its draw
        is skipped. Outside of loaders, rows are drawn one by one.

    Returns
    -------
    Dataset
        Its batches have one more column, ``__source__``: int64, the place of the row's
        component in `components`, counted from 0; -1 for padding rows.

    Raises
    ------
    TypeError, ValueError
        If these are not datasets with positive weights.
    SchemaError
        When columns are first needed, if they differ.

    Examples
    --------
    >>> both = fr.mix({"web": (web, 3), "code": (code, 1)})  # doctest: +SKIP
    >>> loader = both.loader(256, shuffle=True)  # doctest: +SKIP
    """
    what = "mix() takes a dict of name: (dataset, weight)"
    given: object = components
    if not isinstance(given, Mapping) or not all(
        isinstance(entry, tuple) and len(entry) == 2 for entry in given.values()
    ):
        raise TypeError(f"{what}, got {given!r}")
    parts = [part for part, _ in components.values()]
    _check_parts(parts, what)
    drawn = Mix(
        {
            name: (part._view, _weight(name, weight))
            for name, (part, weight) in components.items()
        },
        non_negative_int("seed", seed, 2**64 - 1),
        None if length is None else positive_int("length", length),
        true_or_false("per_batch", per_batch),
    )
    return Dataset(View(_joined_source(parts), mix=drawn))


def _weight(name: str, weight: Any) -> float:  # noqa: ANN401
    try:
        value = float(weight)
    except (TypeError, ValueError):
        msg = f"the weight of {name!r} must be a number, got {weight!r}"
        raise TypeError(msg) from None
    if not (value > 0 and math.isfinite(value)):
        msg = f"the weight of {name!r} must be above 0 and finite, got {value}"
        raise ValueError(msg)
    return value


def _check_parts(parts: Sequence[object], what: str) -> None:
    if not parts:
        raise ValueError(f"{what}, got none")
    for part in parts:
        if not isinstance(part, Dataset):
            raise TypeError(f"{what}, got {part!r}")
        if part._view.is_mixed:
            msg = f"{what}, not of mixes: list the components of all in one mix()"
            raise TypeError(msg)


def _joined_source(parts: Sequence[Dataset]) -> Source:
    """Return the files of all parts. The transforms of a part apply to its rows only."""
    return Source.joined(
        [
            part._view.source.changed(
                lambda reading, part=part: dataclasses.replace(  # type: ignore[misc]
                    reading, transforms=(*reading.transforms, *part._transforms)
                )
            )
            for part in parts
        ]
    )
