"""Schema from records: what the data itself says about its features.

A spec is inferred from what the sampled records have in common, and no further: dense
only where every one of them has the same number of values, otherwise `VarLen`. That a
byte string is an array (`Raw`), or that a missing value means a certain number, is
suggested in a comment and never assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastrec import _core
from fastrec.errors import Error, SchemaError
from fastrec.features import FixedLen, VarLen
from fastrec.schema import Schema
from fastrec.spec import Spec

__all__ = ["DTYPE_OF", "SAMPLE_RECORDS", "infer", "infer_stream", "name_of"]

# How many records are looked at, spread evenly over the data.
SAMPLE_RECORDS = 4096
# Of a stream, where they cannot be spread, no more is inflated than this.
_SAMPLE_BYTES = 64 << 20

DTYPE_OF = {"bytes": "bytes", "float": "float32", "int64": "int64"}


def infer(
    files: _core.FileTable,
    catalog: _core.Catalog,
    names: Sequence[str | bytes] | None = None,
) -> Schema:
    """Infer the schema of a data set from a sample of its records.

    Only features of `names` are looked at, where that is given.

    Columns come in the order of their names, because many writers shuffle the features
    of every record. The same data gives the same schema.

    Raises
    ------
    SchemaError
        If a feature holds values of several kinds, or the records have no features.
    Error
        If the records are of another type than tf.train.Example.
    """
    n_records = len(catalog)
    if n_records == 0:
        return Schema({}, source="no records to infer features from")
    n_sampled = min(SAMPLE_RECORDS, n_records)
    # Exact integers: a float would lose records past 2**53.
    numbers = np.array(
        [i * n_records // n_sampled for i in range(n_sampled)], dtype=np.int64
    )
    n_sequences, surveyed = _core.survey(files, catalog, numbers)
    return _schema_of(
        n_sequences,
        surveyed,
        n_sampled,
        f"inferred from {n_sampled:,} of {n_records:,} records",
        names,
    )


def infer_stream(
    frames: _core.FrameStream, names: Sequence[str | bytes] | None = None
) -> Schema:
    """Infer the schema of records that come one after another from the first ones.

    Raises as `infer` does, and what is wrong with the stream.
    """
    n_sampled, n_sequences, surveyed = _core.survey_stream(
        frames, SAMPLE_RECORDS, _SAMPLE_BYTES
    )
    if n_sampled == 0:
        return Schema({}, source="no records to infer features from")
    return _schema_of(
        n_sequences,
        surveyed,
        n_sampled,
        f"inferred from the first {n_sampled:,} records",
        names,
    )


def _schema_of(
    n_sequences: int,
    surveyed: list[tuple[bytes, dict[str, Any]]],
    n_sampled: int,
    source: str,
    names: Sequence[str | bytes] | None,
) -> Schema:
    if n_sequences:
        msg = (
            f"{n_sequences:,} of {n_sampled:,} sampled records look like "
            "tf.train.SequenceExample: say what to read with context_features= and "
            "sequence_features="
        )
        raise Error(msg)

    features: dict[str | bytes, Spec] = {}
    notes: dict[str | bytes, str] = {}
    for key, seen in surveyed:
        name = name_of(key)
        if names is not None and name not in names:
            continue
        if not seen["kinds"]:
            continue  # never had a value of any kind: there is nothing to read
        features[name] = _spec(name, seen, n_sampled)
        notes[name] = _note(seen, n_sampled)
    for name in names or ():
        if name not in features:
            there = ", ".join(repr(name_of(key)) for key, _ in surveyed)
            msg = f"no feature {name!r} in {n_sampled:,} sampled records; there are {there}"
            raise SchemaError(msg)
    if names is not None:
        features = {name: features[name] for name in names}
    if not features:
        msg = (
            f"no features in {n_sampled:,} sampled records: are they tf.train.Example? "
            "ds.records[i] gives their bytes"
        )
        raise SchemaError(msg)
    return Schema(features, notes=notes, source=source)


def name_of(key: bytes) -> str | bytes:
    """Return the name of a column that reads the feature `key`."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def _spec(name: str | bytes, seen: dict[str, Any], n_sampled: int) -> Spec:
    if len(seen["kinds"]) > 1:
        found = ", ".join(
            f"{kind} values in {count:,}" for kind, (count, _) in seen["kinds"].items()
        )
        msg = (
            f"feature {name!r} holds {found} of {n_sampled:,} sampled records: name the "
            "features to read in features="
        )
        raise SchemaError(msg, feature=str(name))
    dtype = DTYPE_OF[next(iter(seen["kinds"]))]
    n_values = seen["n_values_min"]
    is_dense = (
        seen["n_present"] == n_sampled
        and n_values == seen["n_values_max"]
        and n_values > 0
    )
    if not is_dense:
        return VarLen(dtype)
    return FixedLen(() if n_values == 1 else (n_values,), dtype)


def _note(seen: dict[str, Any], n_sampled: int) -> str:
    parts = []
    n_present = seen["n_present"]
    if n_present < n_sampled:
        parts.append(f"in {100 * n_present / n_sampled:.3g}% of records")
    if seen["n_values_min"] != seen["n_values_max"]:
        parts.append(f"{seen['n_values_min']:,} to {seen['n_values_max']:,} values")
    kind = next(iter(seen["kinds"]))
    if seen["n_values"] == 0:
        parts.append("always empty")
    elif seen["n_ranged"] == 0:
        parts.append("always NaN")
    elif kind == "int64":
        low, high = seen["int_range"]
        parts.append(f"{low} to {high}")
    elif kind == "float":
        low, high = seen["float_range"]
        parts.append(f"{low:.6g} to {high:.6g}")
    else:
        low, high = seen["bytes_range"]
        if low == high:
            parts.append(f"{low:,} bytes each")
            if high > 1 and n_present == n_sampled and seen["n_values_max"] == 1:
                parts.append(f'an array? Raw(({high},), "uint8")')
        else:
            parts.append(f"{low:,} to {high:,} bytes")
    return ", ".join(parts)
