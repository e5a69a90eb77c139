"""Warnings and error messages for missing features, with similar names as hints."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

from fastrec import _core
from fastrec.features.schema import Schema
from fastrec.hints import did_you_mean

# Maximum number of names or columns in a message.
_MAX_LISTED = 20


class MissingFeatureWarning(UserWarning):
    """Warning that a column has no values because no record so far has its feature.

    Issued once per dataset: after the first 1,000 records, or after a first epoch of
    10 to 999 records. If the feature may be absent, silence the warning with
    ``warnings.simplefilter("ignore", fastrec.MissingFeatureWarning)``.
    """


MissingFeatureWarning.__module__ = "fastrec"  # its public name


def reason(text: str, feature: str, names: Sequence[str], advice: str) -> str:
    """Return the error message for a record without values of `feature`.

    The core calls this function. `text` begins the message; `names` are the record's
    features. The hint is the name most similar to `feature`, or otherwise `advice`.
    """
    advice = f" ({advice})" if advice else ""
    if feature in names:
        return f"{text}; the record has the feature, but without a kind{advice}"
    return f"{text}; the record has {_listed(names)}{did_you_mean(feature, names) or advice}"


def absence(
    core: _core.Sources,
    schemas: Sequence[Schema],
    n_delivered: int = sys.maxsize,
    *,
    is_end: bool = False,
) -> MissingFeatureWarning | None:
    """Return a warning if there are features that no record has so far, or else None.

    Each feature is reported once per dataset. `n_delivered` is the number of records
    that the epoch has delivered so far; by default, all decoded records count.
    """
    n_records = n_delivered if is_end else None
    absent = core.is_watching and core.take_absent(n_delivered, n_records)
    if not absent:
        return None
    columns = []
    for number, column, n_records, names in absent:
        spec = schemas[number]._columns()[column]
        key = spec.key.decode(errors="backslashreplace")
        columns.append(
            f"column {spec.name!r} has no values, because the "
            f"first {n_records:,} records do not have feature {key!r}; one record has "
            f"{_listed(names)}{did_you_mean(key, names)}"
        )
    text = "\n".join(columns[:_MAX_LISTED])
    if len(columns) > _MAX_LISTED:
        text += f"\nand {len(columns) - _MAX_LISTED:,} more columns"
    return MissingFeatureWarning(text)


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(map(repr, itertools.islice(names, _MAX_LISTED)))
    if len(names) > _MAX_LISTED:
        listed += f" and {len(names) - _MAX_LISTED:,} more"
    return listed or "no features"
