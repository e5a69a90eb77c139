"""Features that records do not have: what their names may have been meant to be."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastrec.options import nearest

if TYPE_CHECKING:
    from fastrec.sources.source import Source

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
    source: Source, epoch_records: int | None = None
) -> MissingFeatureWarning | None:
    """Return a warning about columns that the first records do not have, if any.

    Each is returned once. `epoch_records` are those of an epoch that has ended.
    """
    core = source.of_core()
    if not core.is_watching:
        return None
    readings, _ = source.readings()
    absent = core.take_absent(epoch_records)
    if not absent:
        return None
    columns = []
    found = {number: readings[number].schema._columns() for number, *_ in absent}
    for number, column, n_records, names in absent:
        spec = found[number][column]
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
