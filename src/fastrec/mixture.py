"""Datasets made of datasets: one after another, or drawn from in proportion."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.assembly import SOURCE, Extra
from fastrec.dataset import Dataset
from fastrec.options import non_negative_int, positive_int, true_or_false
from fastrec.order import Shuffle
from fastrec.selection import Numbers, Selection
from fastrec.sources import Sources
from fastrec.stage import BatchOrigin, CheckedTransform

__all__ = ["Mix", "concat", "mix"]


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
    parts = list(datasets)
    _check_parts(parts, "concat() takes a list of datasets")
    return Dataset(_joined_sources(parts), _joined_selection(parts))


class Mix(Dataset):
    """Rows drawn from several datasets in proportion to weights; made by `fastrec.mix`."""

    _is_mixed = True

    def __init__(
        self,
        components: Mapping[str, Dataset],
        weights: Mapping[str, float],
        *,
        seed: int,
        length: int | None,
        per_batch: bool,
        sources: Sources | None = None,
        transforms: tuple[CheckedTransform, ...] = (),
    ) -> None:
        parts = list(components.values())
        super().__init__(
            _joined_sources(parts) if sources is None else sources, None, transforms
        )
        self._components = dict(components)
        self._weights = dict(weights)
        self._seed = seed
        self._length = length
        self._per_batch = per_batch
        self._is_checked = False

    @property
    def names(self) -> list[str]:
        """The names of the components: the values of ``__source__`` are their places."""
        return list(self._components)

    def __len__(self) -> int:
        return sum(self._sizes()) if self._length is None else self._length

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{name!r}: ({part!r}, {self._weights[name]:g})"
            for name, part in self._components.items()
        )
        return f"<fastrec.mix of {{{parts}}}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _mix_again, (
            self._components,
            self._weights,
            {
                "seed": self._seed,
                "length": self._length,
                "per_batch": self._per_batch,
                "sources": self._sources,
                "transforms": self._transforms,
            },
        )

    def select(
        self,
        indices: range | Sequence[int] | Sequence[bool] | npt.NDArray[Any],  # noqa: ARG002
    ) -> NoReturn:
        """Refuse: a mix has an order of its own, of which nothing can be left out.

        Raises
        ------
        TypeError
            Always. Select, filter, split or shard the components, and mix those.
        """
        msg = (
            "a mix draws its rows in an order of its own: select, filter, split or shard "
            "the components, and mix those"
        )
        raise TypeError(msg)

    def _with(
        self,
        *,
        sources: Sources | None = None,
        selection: Selection | None = None,
        transforms: tuple[CheckedTransform, ...] | None = None,
    ) -> Dataset:
        assert selection is None
        return Mix(
            self._components,
            self._weights,
            seed=self._seed,
            length=self._length,
            per_batch=self._per_batch,
            sources=self._sources if sources is None else sources,
            transforms=self._transforms if transforms is None else transforms,
        )

    # Behind the scenes.

    @property
    def _is_whole(self) -> bool:
        return False

    def _sizes(self) -> list[int]:
        sizes = [len(part) for part in self._components.values()]
        for name, size in zip(self._components, sizes, strict=True):
            if not size:
                msg = f"component {name!r} of the mix has no records"
                raise ValueError(msg)
        return sizes

    def _pieces(self) -> list[tuple[int, int, int] | Numbers]:
        selection = _joined_selection(list(self._components.values()))
        return [] if selection is None else selection.of_core()

    def _fingerprint(self) -> str:
        if not self._known_fingerprint:
            digest = hashlib.blake2b(digest_size=8)
            for part in self._components.values():
                digest.update(part._fingerprint().encode())
            self._known_fingerprint = digest.hexdigest()
        return self._known_fingerprint

    def _order(
        self, shuffle: Shuffle, seed: int, epoch: int, global_batch_size: int
    ) -> _core.Order:
        components = [
            (size, self._weights[name], part._shuffle_of_core(shuffle))
            for (name, part), size in zip(
                self._components.items(), self._sizes(), strict=True
            )
        ]
        run = global_batch_size if self._per_batch else 1
        return _core.Order.mixed(components, len(self), run, self._seed, seed, epoch)

    def _order_state(self, global_batch_size: int) -> dict[str, Any]:
        parameters = (list(self._weights.items()), self._seed, len(self))
        digest = hashlib.blake2b(repr(parameters).encode(), digest_size=8)
        state: dict[str, Any] = {"mix": digest.hexdigest()}
        return state | ({"run": global_batch_size} if self._per_batch else {})

    def _records_of(self, numbers: Numbers) -> Numbers:
        return self._order(False, 0, 0, 1).records(numbers)

    def _extra_columns(self) -> dict[str, Extra]:
        ends = np.cumsum(self._sizes())

        def source(info: BatchOrigin) -> Numbers:
            found = np.searchsorted(ends, info.records, side="right").astype(np.int64)
            return np.where(info.records < 0, np.int64(-1), found)

        return {SOURCE: source}


def mix(
    components: Mapping[str, tuple[Dataset, float]],
    *,
    seed: int = 0,
    length: int | None = None,
    per_batch: bool = False,
) -> Mix:
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
        draw is passed over.

    Returns
    -------
    Mix
        A dataset whose batches have one more column, ``__source__``: int64, the place of
        the row's component among `Mix.names`, -1 where a row only fills the batch.

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
    return Mix(
        parts,
        weights,
        seed=non_negative_int("seed", seed, 2**64 - 1),
        length=None if length is None else positive_int("length", length),
        per_batch=true_or_false("per_batch", per_batch),
    )


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


def _mix_again(
    components: Mapping[str, Dataset],
    weights: Mapping[str, float],
    options: dict[str, Any],
) -> Mix:
    return Mix(components, weights, **options)


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
        if part._is_mixed:
            msg = f"{what}, not of mixes: list the components of all in one mix()"
            raise TypeError(msg)


def _joined_sources(parts: Sequence[Dataset]) -> Sources:
    """Return the files of all parts; what a part does to its rows belongs to them."""

    def with_transforms(part: Dataset) -> Sources:
        if not part._transforms:
            return part._sources
        return part._sources.changed(
            lambda source: dataclasses.replace(
                source, transforms=(*source.transforms, *part._transforms)
            )
        )

    return functools.reduce(operator.add, map(with_transforms, parts))


def _joined_selection(parts: Sequence[Dataset]) -> Selection | None:
    """Return which records of the joined files the parts consist of; None for all."""
    if all(part._selection is None for part in parts):
        return None
    counts = [part._sources.n_records() for part in parts]
    begins = itertools.accumulate(counts, initial=0)
    shifted = [
        part._whole_selection().shifted(begin)
        for part, begin in zip(parts, begins, strict=False)
    ]
    return functools.reduce(operator.add, shifted)
