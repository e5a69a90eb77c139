"""Steps: rows that are steps of records, with a window of steps around each.

::

    record            0                    1
    steps             0  1  2  3           0  1
    rows, every=2     0     1              2
    window [-1, 0]    0 0   1 2            0 0       with edge="repeat"
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from fastrec.errors import SchemaError
from fastrec.features.base import Spec, checked_choice
from fastrec.features.fixed import FixedLen, FixedLenSequence, Raw
from fastrec.features.image import Image, List
from fastrec.features.schema import Schema, expanded
from fastrec.features.tensor import SerializedTensor
from fastrec.hints import no_column
from fastrec.options import positive_int

Edge: TypeAlias = Literal["repeat", "zero", "drop"]

# Relative step numbers, or one number for a column without a window axis.
Offsets: TypeAlias = "int | tuple[int, ...]"

_MAX_OFFSET = 2**31


@dataclass(frozen=True)
class Steps:
    """The rows that the steps of records form."""

    windows: Mapping[Any, Offsets]  # by column
    every: int
    edge: Edge
    reach: tuple[int, int]  # the lowest and the highest offset, or 0
    schema: Schema = field(compare=False)  # of the rows
    # The number of steps of each record in the files; -1 for unreadable records.
    counts: npt.NDArray[np.int32] = field(compare=False, repr=False)

    @property
    def rule(self) -> tuple[object, ...]:
        """What determines the rows of a record, besides its number of steps."""
        return self.every, self.edge, self.reach if self.edge == "drop" else ()

    @property
    def first(self) -> int:
        """The step of the first row of a record."""
        if self.edge != "drop":
            return 0
        return -(-max(0, -self.reach[0]) // self.every) * self.every

    @property
    def masks(self) -> dict[Any, Any]:
        """The mask of each window with zeros."""
        return {name: mask_of(name) for name in self.windows if self.edge == "zero"}

    def rows_of(self, counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return how many rows records have that have these numbers of steps.

        An unreadable record has one row, so that reading the row reports the error.
        """
        n_last = max(0, self.reach[1]) if self.edge == "drop" else 0
        n_rows = (counts.astype(np.int64) - 1 - n_last - self.first) // self.every + 1
        return np.where(counts < 0, 1, np.maximum(n_rows, 0))

    def with_columns(self, names: Sequence[Any]) -> Steps:
        """Return steps of fewer columns; a mask stays with its window."""
        chosen: dict[Any, None] = {}
        window_of = {mask: name for name, mask in self.masks.items()}
        for name in names:
            window = window_of.get(name, name)
            chosen[window] = None
            if window in self.masks:
                chosen[self.masks[window]] = None
        windows = {n: offsets for n, offsets in self.windows.items() if n in chosen}
        specs = {name: self.schema[name] for name in chosen}
        return replace(self, windows=windows, schema=self.schema._with(specs))

    def features(self, schema: Schema) -> Schema:
        """Return the features of a record's schema that the rows need."""
        return schema._with(
            {
                name: self._reaching(name, schema) if name in self.windows else spec
                for name, spec in schema.items()
                if name in self.schema
            }
        )

    def _reaching(self, name: Any, schema: Schema) -> Spec:
        """Return a spec that reads only the items in the windows of some rows."""
        spec = copy.copy(_unpadded(schema, name))
        offsets = np.atleast_1d(self.windows[name])
        reach = (self.first, self.every, int(offsets.min()), int(offsets.max()))
        if _is_list(schema, name):
            spec._set(_reach=reach)
        return spec


def mask_of(name: Any) -> Any:
    """Return the name of a window's mask."""
    return name + ("/mask" if isinstance(name, str) else b"/mask")


def checked_windows(windows: object) -> dict[Any, Offsets]:
    """Return offsets by column, or raise an error."""
    if not isinstance(windows, Mapping) or not windows:
        raise TypeError(
            "windows must be a dict from column to relative steps, such as "
            f'{{"image": [-1, 0], "action": range(16)}}, got {windows!r}'
        )
    return {name: _offsets(name, offsets) for name, offsets in windows.items()}


def _offsets(name: object, offsets: Any) -> Offsets:
    is_one = not isinstance(offsets, Iterable)
    try:
        checked = tuple(map(operator.index, [offsets] if is_one else offsets))
    except TypeError:
        raise TypeError(
            f"the window of {name!r} must be a step number or a list of them, relative "
            f"to the row's step, got {offsets!r}"
        ) from None
    if not checked or max(map(abs, checked)) >= _MAX_OFFSET:
        raise ValueError(
            f"the window of {name!r} must have at least one step number, all below "
            f"2**31, got {offsets!r}"
        )
    return checked[0] if is_one else checked


def steps_of(
    schema: Schema,
    windows: Mapping[Any, Offsets],
    every: int,
    edge: Edge,
    keep: Sequence[Any] | None,
) -> Steps:
    """Return the rows of the steps of records that have a schema, without counts."""
    if both := [name for name in keep or () if name in windows]:
        raise ValueError(f"column {both[0]!r} must not be in both windows and keep")
    keep = None if keep is None else expanded(keep, schema)
    if missing := [name for name in [*windows, *(keep or ())] if name not in schema]:
        raise KeyError(no_column(missing[0], schema, "the dataset"))
    edge = checked_choice("edge", edge, get_args(Edge))
    specs: dict[Any, Spec] = {}
    for name, spec in schema.items():
        if name in windows:
            offsets = windows[name]
            length = None if isinstance(offsets, int) else len(offsets)
            specs[name] = _windowed(schema, name, length)
            if edge == "zero":
                if mask_of(name) in schema:
                    raise SchemaError(
                        f"edge='zero' adds column {mask_of(name)!r}, but records have a "
                        "column of this name; rename it with key="
                    )
                shape = () if length is None else (length,)
                specs[mask_of(name)] = FixedLen(shape, "bool")
        elif name in keep if keep is not None else not _is_list(schema, name):
            specs[name] = spec
    lists = schema._list_names
    every = positive_int("every", every, _MAX_OFFSET)
    offsets_of_all = [0]
    for offsets in windows.values():
        offsets_of_all += [offsets] if isinstance(offsets, int) else offsets
    return Steps(
        dict(windows),
        every,
        edge,
        (min(offsets_of_all), max(offsets_of_all)),
        Schema._of(specs, lists and (lists - windows.keys()).intersection(specs)),
        np.empty(0, np.int32),
    )


def _windowed(schema: Schema, name: Any, length: int | None) -> Spec:
    """Return the spec of a window of `length` steps, or of one step if it is None."""
    spec = schema[name]
    is_list = schema._is_list(name)
    found = _of_feature_list(spec, length) if is_list else spec._windowed(length)
    if found is None:
        raise SchemaError(
            f"column {name!r} has no steps of one shape, which a window requires, got "
            f"{spec!r}"
        )
    return found


def _of_feature_list(spec: Spec, length: int | None) -> Spec | None:
    """Return the spec of a window of a feature list's steps, like ``_windowed``."""
    if isinstance(spec, (Image, Raw, SerializedTensor)):
        return List(spec)._windowed(length)
    if isinstance(spec, List) and spec.length is not None:
        window = copy.copy(spec)
        if length is not None:
            window._set(spec=spec, length=length)
        return window
    return spec._windowed(length) if isinstance(spec, FixedLenSequence) else None


def _is_list(schema: Schema, name: Any) -> bool:
    """Return whether the number of a column's items may differ between records."""
    layouts = [column.layout for column in schema[name]._columns(name)]
    return schema._is_list(name) or layouts[0] in ("ragged", "padded")


def _unpadded(schema: Schema, name: Any) -> Spec:
    """Return a spec that reads a padded list as a RaggedArray."""
    spec = schema[name]
    if isinstance(spec, FixedLenSequence):
        spec = copy.copy(spec)
        spec._set(_is_padded=False, lengths=None)
    return spec
