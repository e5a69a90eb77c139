"""Transforms that apply a function to each row of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Batch
from fastrec.errors import add_note
from fastrec.features.base import Spec
from fastrec.features.fixed import FixedLen, Raw
from fastrec.features.schema import as_spec
from fastrec.hints import checked_names
from fastrec.transforms.batch_info import BatchInfo
from fastrec.transforms.calls import argument_style, name_of, share

# More parts than threads: rows differ in cost, and threads start at different times.
_PARTS_PER_THREAD = 4


class PerRow:
    """A transform that applies a function to each row: see `per_row`."""

    def __init__(
        self, function: Callable[..., Any], out: Mapping[str, Spec | str]
    ) -> None:
        self._out: dict[str, FixedLen | Raw] = {}
        for name, given in out.items():
            spec = as_spec(name, given) if isinstance(given, str) else given
            if not isinstance(spec, (FixedLen, Raw)) or spec.dtype == "bytes":
                raise TypeError(
                    f"out[{name!r}] must be fr.FixedLen(shape, dtype) with the shape "
                    f"and numeric dtype of one row, got {spec!r}"
                )
            self._out[name] = spec
        if not out:
            raise ValueError("out must have at least one column, got {}")
        self._function = function
        self._rng = argument_style(function, "rng")

    @property
    def is_random(self) -> bool:
        """Whether the function asks for a random generator."""
        return self._rng is not None

    @property
    def name(self) -> str:
        """The transform's name in error messages."""
        return f"per_row({name_of(self._function)})"

    def __call__(self, batch: Batch, info: BatchInfo) -> Batch:
        """Return `batch` with the output columns added, or replaced if they exist."""
        n_rows = len(info.positions)
        columns = {
            name: np.empty((n_rows, *spec.shape), spec.dtype)
            for name, spec in self._out.items()
        }
        fill = functools.partial(self._fill, batch, info, columns)
        share([(fill, n_rows)], info._threads, _PARTS_PER_THREAD)
        return {**batch, **columns}

    def _fill(
        self,
        batch: Batch,
        info: BatchInfo,
        columns: Mapping[str, npt.NDArray[Any]],
        begin: int,
        end: int,
    ) -> None:
        """Fill rows `begin` to `end`, with zeros for padding and failed rows."""
        for i in range(begin, end):
            if info.positions[i] >= 0:
                try:
                    self._fill_row(batch, info, columns, i)
                    continue
                except Exception as error:
                    if info._failed is None or isinstance(error, MemoryError):
                        if info._places is not None:
                            add_note(error, info._places.describe_row(i, self.name))
                        raise
                    info._failed.append((i, error))
            for column in columns.values():
                column[i] = 0

    def _fill_row(
        self,
        batch: Batch,
        info: BatchInfo,
        columns: Mapping[str, npt.NDArray[Any]],
        i: int,
    ) -> None:
        row = {name: column[i] for name, column in batch.items()}
        if self._rng is None:
            result = self._function(row)
        elif self._rng == "positional":
            result = self._function(row, info.rng(i))
        else:
            result = self._function(row, rng=info.rng(i))
        if not isinstance(result, Mapping) and len(columns) == 1:
            result = {next(iter(columns)): result}
        if not isinstance(result, Mapping):
            raise TypeError(
                f"{name_of(self._function)} must return a dict with columns "
                f"{[*columns]}, got {type(result).__name__}"
            )
        for name, column in columns.items():
            if name not in result:
                raise TypeError(
                    f"column {name!r} of record {info.records[i]} is missing in the "
                    "function's result"
                )
            try:
                column[i] = _checked_row(result[name], column)
            except (TypeError, ValueError) as error:
                place = f"column {name!r} of record {info.records[i]}"
                raise type(error)(f"{place}: {error}") from None


def _checked_row(value: object, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `value` as a row of `column`; raise if its shape or type does not fit."""
    array = np.asarray(value)
    if array.shape != column.shape[1:]:
        raise ValueError(
            f"shape must be {column.shape[1:]}, as in out, got {array.shape}"
        )
    if array.dtype == column.dtype:
        return array
    if not np.can_cast(array.dtype, column.dtype, "same_kind") and not (
        array.dtype.kind in "iu" and column.dtype.kind in "iu"
    ):
        raise TypeError(f"dtype must be {column.dtype}, as in out, got {array.dtype}")
    converted = array.astype(column.dtype)
    if column.dtype.kind in "iu" and not np.array_equal(converted, array):
        raise ValueError(f"a value is out of range for {column.dtype}")
    return converted


@checked_names
def per_row(function: Callable[..., Any], *, out: Mapping[str, Spec | str]) -> PerRow:
    """Make a transform that applies a function to each row.

    The loader's `transform_threads` share the rows of a batch. Results are written
    directly into the columns of the batch.

    Parameters
    ----------
    function : callable
        ``function(row)`` or ``function(row, rng)``: `row` is a dict of the row's values,
        and `rng` is the row's random generator (`BatchInfo.rng`). The function returns a
        dict with the columns of `out`, or the value itself if `out` has one column.
    out : mapping of str to FixedLen or dtype name
        The function's output columns, with the shape and dtype of one row; ``"int64"``
        is ``FixedLen((), "int64")``. The batch gets these columns, which replace columns
        with the same names.

    Returns
    -------
    callable
        A transform for ``ds.loader(transform=...)``.

    Raises
    ------
    TypeError, ValueError
        If `out` is invalid; when reading, if a result lacks a column or has a different
        shape or dtype than in `out`. Integers are converted if they are in range.

    Examples
    --------
    >>> resize = per_row(
    ...     lambda row, rng: decode_jpeg(row["image"]),  # doctest: +SKIP
    ...     out={"image": FixedLen((224, 224, 3), "uint8")},
    ... )
    """
    return PerRow(function, out)
