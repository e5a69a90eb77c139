"""Statistics of columns of numbers, such as those that normalise actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import RaggedArray
from fastrec.arrays.layout import describe_rows

_CHUNK_VALUES = 1 << 20  # converted to float64 at once


def quantile_keys(quantiles: Sequence[float]) -> dict[str, float]:
    """Return the quantiles by key, such as "q01" for 0.01, or raise a ValueError."""
    if not all(0 <= q <= 1 for q in quantiles):
        raise ValueError(f"quantiles must be 0 to 1, got {quantiles!r}")
    return {f"q{100 * q:0>2.10g}": q for q in quantiles}


def numbers_in(name: str, column: Any) -> npt.NDArray[Any]:
    """Return the items of a column, those of ragged rows concatenated."""
    values = column._flat_values if isinstance(column, RaggedArray) else column
    if isinstance(values, np.ndarray) and np.can_cast(values.dtype, np.float64):
        return values
    raise TypeError(f"column {name!r} must have numbers, got {describe_rows(column)}")


def statistics_of(
    values: npt.NDArray[Any], quantiles: Mapping[str, float]
) -> dict[str, npt.NDArray[Any]]:
    """Return the statistics of the items in `values`, which are sorted in part."""
    n = len(values)
    rows = max(1, _CHUNK_VALUES // max(1, values[0].size))

    def total(function: Callable[[npt.NDArray[np.float64]], Any]) -> Any:
        """Return the sum of `function` over the items, converted chunk by chunk."""
        chunks: Iterator[npt.NDArray[np.float64]] = (
            values[begin : begin + rows].astype(np.float64)
            for begin in range(0, n, rows)
        )
        return sum(function(chunk).sum(axis=0) for chunk in chunks)

    with np.errstate(invalid="ignore"):  # infinities
        mean = total(lambda chunk: chunk) / n
        found = {
            "mean": mean,
            "std": np.sqrt(total(lambda chunk: np.square(chunk - mean)) / n),
            "min": values.min(axis=0),
            "max": values.max(axis=0),
            **_quantiles(values, quantiles),
        }
    return {"count": np.array(n)} | {
        key: np.asarray(value, np.float64) for key, value in found.items()
    }


def _quantiles(
    values: npt.NDArray[Any], quantiles: Mapping[str, float]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return quantiles, interpolated linearly as in `numpy.quantile`.

    NumPy's function copies the values, and the differences of small integers overflow.
    """
    is_nan = np.isnan(np.asarray(values.max(axis=0), np.float64))
    found = {}
    for key, q in quantiles.items():
        place = q * (len(values) - 1)
        below, above = int(np.floor(place)), int(np.ceil(place))
        values.partition((below, above), axis=0)
        low, high = values[[below, above]].astype(np.float64)
        between = low + (high - low) * (place - below)
        found[key] = np.where(is_nan, np.nan, np.where(low == high, low, between))
    return found
