"""Statistics of the columns of a dataset, as values.

`fastrec.cli.stats.dataset_stats` computes them in one parallel pass and bounded memory.
Counts, minimum, maximum, mean and standard deviation are exact. Quantiles, histograms,
common values and the number of distinct values are exact as well

* if there are at most 32,768 values,
* or if they are integers within a range of 65,536, such as labels.

Otherwise quantiles, histograms and common values come from the up to 32,768 values of
randomly chosen records, and the number of distinct values from the 2,048 smallest hashes (a
standard error of 2.2%). The fields ``is_exact`` say which. With one value per record, no
quantile is off by more than 0.9% of the values, with a probability of 99%. With many, the
sample has fewer records, and is less precise.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ColumnStats", "Common", "DatasetStats", "Distribution", "Histogram"]


@dataclass(frozen=True)
class Histogram:
    """Counts of values in bins of equal width.

    Bin ``i`` holds values from ``edges[i]`` up to, but not including, ``edges[i + 1]``;
    the last bin includes its upper edge. Counts are estimates, scaled to all finite values,
    unless `Distribution.is_exact`.
    """

    edges: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True)
class Distribution:
    """The distribution of numbers. All fields but the first three are over finite values.

    Attributes
    ----------
    n_values, n_nan, n_infinite : int
        Numbers in total, and those that are NaN or infinite.
    minimum, maximum : int, float or None
        None, like the following fields, if no value is finite.
    mean, std : float or None
        `std` is the standard deviation of the population.
    quantiles : dict of float to float
        By probability: 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99; interpolated linearly.
        Empty if no value is finite.
    histogram : Histogram or None
    is_exact : bool
        Whether quantiles and histogram are exact; otherwise they come from a sample.
    """

    n_values: int
    n_nan: int
    n_infinite: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    quantiles: dict[float, float]
    histogram: Histogram | None
    is_exact: bool


@dataclass(frozen=True)
class Common:
    """A frequent value, and how many values are equal to it.

    `count` is an estimate from a sample unless `ColumnStats.is_common_exact`.
    """

    value: int | float | bytes
    count: float


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of a column.

    Attributes
    ----------
    name : str or bytes
    kind : str
        The kind of values in the records: "int64", "float32" or "bytes".
    n_records, n_present : int
        Records in total, and those with at least one value.
    per_record : Distribution
        Number of values per record.
    numbers : Distribution or None
        The values, if they are numbers.
    lengths : Distribution or None
        The lengths of the values in bytes, if they are byte strings.
    n_distinct : int or None
        Number of distinct values. None if a byte string is longer than 128 bytes.
    is_distinct_exact : bool
    common : tuple of Common
        Up to 10 values that occur more than once (10 times in a sample), the most frequent first. Byte strings
        longer than 128 bytes are left out.
    is_common_exact : bool
    format : str
        What byte strings look like: "JPEG", "PNG", "text", ... or "" if unknown or mixed.
    """

    name: str | bytes
    kind: str
    n_records: int
    n_present: int
    per_record: Distribution
    numbers: Distribution | None
    lengths: Distribution | None
    n_distinct: int | None
    is_distinct_exact: bool
    common: tuple[Common, ...]
    is_common_exact: bool
    format: str = ""


@dataclass(frozen=True)
class DatasetStats:
    """Statistics of all columns, in the order of the schema."""

    n_records: int
    columns: tuple[ColumnStats, ...]
