"""Features that records lack: warnings, errors and similar names."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

from fastrec import _core
from fastrec.features.schema import Schema
from fastrec.hints import nearest

__all__ = ["MissingFeatureWarning", "absence", "reason"]

# Names and columns that a message lists.
_MAX_LISTED = 20


class MissingFeatureWarning(UserWarning):
    """A column is empty or its default in every row, because no record has its feature.

    Issued once for a dataset, after its first 1,000 records, or after its first epoch if
    that is shorter but has 10 records at least. If such a feature may be absent, silence
    the warning with ``warnings.simplefilter("ignore", fastrec.MissingFeatureWarning)``.
    """


MissingFeatureWarning.__module__ = "fastrec"  # where users import it from


def reason(text: str, feature: str, names: Sequence[str], advice: str) -> str:
    """Return `text`, the names that the record has, and what to write instead.

    Called by the core for an error about a missing feature. `advice` is the hint if no
    name is similar to `feature`.
    """
    advice = f" ({advice})" if advice else ""
    if feature in names:
        return f"{text}; the record has it, but without a kind of values{advice}"
    return f"{text}; the record has {_listed(names)}{_meant(feature, names) or advice}"


def absence(
    core: _core.Sources,
    schemas: Sequence[Schema],
    n_delivered: int = sys.maxsize,
    *,
    is_end: bool = False,
) -> MissingFeatureWarning | None:
    """Return a warning about features that the first records lack, once for each.

    `n_delivered` records of the epoch were delivered in order; by default, all that
    were decoded.
    """
    if not core.is_watching:
        return None
    absent = core.take_absent(n_delivered, n_delivered if is_end else None)
    if not absent:
        return None
    columns = []
    for number, column, n_records, names in absent:
        spec = schemas[number]._columns()[column]
        key = spec.key.decode(errors="backslashreplace")
        columns.append(
            f"column {spec.name!r} is empty or its default in every row, because feature "
            f"{key!r} is in none of the first {n_records:,} records; one of them has "
            f"{_listed(names)}{_meant(key, names)}"
        )
    text = "\n".join(columns[:_MAX_LISTED])
    if len(columns) > _MAX_LISTED:
        text += f"\nand {len(columns) - _MAX_LISTED:,} more columns"
    return MissingFeatureWarning(text)


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(map(repr, itertools.islice(names, _MAX_LISTED)))
    if len(names) > _MAX_LISTED:
        listed += f" and {len(names) - _MAX_LISTED:,} more"
    return listed or "none"


def _meant(feature: str, names: Sequence[str]) -> str:
    meant = nearest(feature, names)
    return f": did you mean {meant!r}?" if meant is not None else ""
