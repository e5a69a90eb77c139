"""Datasets made of datasets: one after another, or drawn from in proportion."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fastrec import _core
from fastrec.dataset.dataset import Dataset
from fastrec.loader.collate import SOURCE
from fastrec.loader.order import Shuffle
from fastrec.options import non_negative_int, positive_int, true_or_false
from fastrec.sources.selection import Numbers, Selection
from fastrec.sources.sources import Sources
from fastrec.sources.view import View
from fastrec.transforms.batch_info import BatchOrigin, Extra

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
        raise TypeError(f"{what}, not {given!r}")
    parts = list(datasets)
    _check_parts(parts, what)
    sources, views = _joined_sources(parts), [part._view for part in parts]
    if all(view.is_walkable for view in views):
        return Dataset(View(sources))
    return Dataset(View(sources, _joined_selection(views)))


class _MixedView(View):
    """Rows drawn from several views in proportion to weights.

    Parameters
    ----------
    components : dict of str to (View, float)
        Views and their weights.
    sources : Sources
        The files of all of them, one view after another.
    seed, length, per_batch
        As for `mix`.
    """

    def __init__(
        self,
        components: dict[str, tuple[View, float]],
        sources: Sources,
        *,
        seed: int,
        length: int | None,
        per_batch: bool,
    ) -> None:
        super().__init__(sources, None)
        self._components = components
        self._seed = seed
        self._length = length
        self._per_batch = per_batch

    def __len__(self) -> int:
        return sum(self._sizes()) if self._length is None else self._length

    def __reduce__(self) -> tuple[object, ...]:
        options = {
            "seed": self._seed,
            "length": self._length,
            "per_batch": self._per_batch,
        }
        return _mixed_again, (self._components, self.sources, options)

    def __repr__(self) -> str:
        return "a mix of " + "; ".join(
            f"{name!r} ({weight:g}): {view!r}"
            for name, (view, weight) in self._components.items()
        )

    @property
    def is_walkable(self) -> bool:
        return False

    @property
    def is_mixed(self) -> bool:
        return True

    def selection(self) -> Selection:
        return _joined_selection([view for view, _ in self._components.values()])

    def check_selectable(self) -> None:
        msg = (
            "a mix draws its rows in an order of its own: select, filter, split or shard "
            "the components, and mix those"
        )
        raise TypeError(msg)

    def by_rows(self) -> View:
        return (
            self._like_this(self.sources, per_batch=False) if self._per_batch else self
        )

    def of(self, sources: Sources) -> View:
        return self._like_this(sources, per_batch=self._per_batch)

    def _like_this(self, sources: Sources, *, per_batch: bool) -> View:
        return _MixedView(
            self._components,
            sources,
            seed=self._seed,
            length=self._length,
            per_batch=per_batch,
        )

    def _add_to(self, digest: hashlib.blake2b) -> None:
        for view, _ in self._components.values():
            digest.update(view.fingerprint().encode())

    def _sizes(self) -> list[int]:
        for name, (view, _) in self._components.items():
            if not len(view):
                msg = f"component {name!r} of the mix has no records"
                raise ValueError(msg)
        return [len(view) for view, _ in self._components.values()]

    def order(
        self, shuffle: Shuffle, seed: int, epoch: int, global_batch_size: int
    ) -> _core.Order:
        components = [
            (size, weight, view.shuffle_of_core(shuffle))
            for (view, weight), size in zip(
                self._components.values(), self._sizes(), strict=True
            )
        ]
        run = global_batch_size if self._per_batch else 1
        return _core.Order.mixed(components, len(self), run, self._seed, seed, epoch)

    def order_state(self, global_batch_size: int) -> dict[str, Any]:
        weights = [(name, weight) for name, (_, weight) in self._components.items()]
        parameters = repr((weights, self._seed, len(self))).encode()
        state: dict[str, Any] = {
            "mix": hashlib.blake2b(parameters, digest_size=8).hexdigest()
        }
        return state | ({"run": global_batch_size} if self._per_batch else {})

    def records_of(self, numbers: Numbers) -> Numbers:
        return self.order(False, 0, 0, 1).records(numbers)

    def extra_columns(self) -> dict[str, Extra]:
        ends = np.cumsum(self._sizes())

        def source(info: BatchOrigin) -> Numbers:
            found = np.searchsorted(ends, info.records, side="right").astype(np.int64)
            return np.where(info.records < 0, np.int64(-1), found)

        return {SOURCE: source}


def _mixed_again(
    components: dict[str, tuple[View, float]], sources: Sources, options: dict[str, Any]
) -> _MixedView:
    return _MixedView(components, sources, **options)


def mix(
    components: Mapping[str, tuple[Dataset, float]],
    *,
    seed: int = 0,
    length: int | None = None,
    per_batch: bool = False,
) -> Dataset:
    """Draw rows from several datasets in proportion to weights.

    Among the first n rows, each component has its share of the weights times n, but for a
    constant. A component is read to its end, and then begins its next epoch; with
    ``shuffle=`` each of its epochs comes in an order of its own. Later epochs of the mix
    go on where the components are.

    Which component a row is drawn from, and which of its records, is arithmetic in the
    row's number: a mix resumes like everything else.

    Parameters
    ----------
    components : mapping of str to (Dataset, float)
        The datasets and their weights, by names. They must have equal columns, after
        their transforms.
    seed : int, default 0
        Shifts the pattern of draws. (The orders of the components depend on the loader's.)
    length : int, optional
        Rows in an epoch; by default as many as the components have together.
    per_batch : bool, default False
        Draw all rows of a global batch from one component. Where `length` is no multiple
        of the batch size, the last batch of an epoch is short, and what it leaves of its
        draw is passed over. Rows that are read one by one, outside of loaders, are drawn
        one by one.

    Returns
    -------
    Dataset
        Its batches have one more column, ``__source__``: int64, the place of the row's
        component in `components`, counted from 0; -1 where a row only fills the batch.

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
    parts, weights = _parts_and_weights(components)
    view = _MixedView(
        {name: (part._view, weights[name]) for name, part in parts.items()},
        _joined_sources(list(parts.values())),
        seed=non_negative_int("seed", seed, 2**64 - 1),
        length=None if length is None else positive_int("length", length),
        per_batch=true_or_false("per_batch", per_batch),
    )
    return Dataset(view)


def _parts_and_weights(
    components: object,
) -> tuple[dict[str, Dataset], dict[str, float]]:
    what = "mix() takes a dict of name: (dataset, weight)"
    if not isinstance(components, Mapping) or not all(
        isinstance(entry, tuple) and len(entry) == 2 for entry in components.values()
    ):
        raise TypeError(f"{what}, not {components!r}")
    parts = {name: part for name, (part, _) in components.items()}
    _check_parts(list(parts.values()), what)
    return parts, {
        name: _weight(name, weight) for name, (_, weight) in components.items()
    }


def _weight(name: str, weight: object) -> float:
    try:
        value = float(weight)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        msg = f"the weight of {name!r} must be a number, not {weight!r}"
        raise TypeError(msg) from None
    if not (value > 0 and math.isfinite(value)):
        msg = f"the weight of {name!r} must be above 0 and finite, but is {value}"
        raise ValueError(msg)
    return value


def _check_parts(parts: Sequence[object], what: str) -> None:
    if not parts:
        raise ValueError(f"{what}: there are none")
    for part in parts:
        if not isinstance(part, Dataset):
            raise TypeError(f"{what}; {part!r} is none")
        if part._view.is_mixed:
            msg = f"{what}, not of mixes: list the components of all in one mix()"
            raise TypeError(msg)


def _joined_sources(parts: Sequence[Dataset]) -> Sources:
    """Return the files of all parts; what a part does to its rows belongs to them."""
    return Sources.joined(part._sources_with_transforms() for part in parts)


def _joined_selection(views: Sequence[View]) -> Selection:
    """Return which records of the joined files the views consist of."""
    counts = [view.sources.n_records for view in views]
    begins = itertools.accumulate(counts, initial=0)
    return Selection.joined(
        view.selection().shifted(begin)
        for view, begin in zip(views, begins, strict=False)
    )
