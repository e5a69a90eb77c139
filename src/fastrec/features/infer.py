"""Infer a schema from a sample of records.

A spec is `FixedLen` only if every sampled record has the same number of values, otherwise
`VarLen`. Arrays in byte strings (`Raw`) and defaults are suggested in comments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fastrec import _core
from fastrec.errors import DecodeError, SchemaError
from fastrec.features import guess
from fastrec.features.base import Spec
from fastrec.features.fixed import FixedLen, VarLen
from fastrec.features.padded import FixedLenSequence
from fastrec.features.schema import Schema
from fastrec.features.sequence_schema import SequenceSchema

__all__ = ["DTYPE_OF", "SAMPLE_RECORDS", "infer", "infer_stream", "name_of"]

# Records that are sampled, spread evenly over the data.
SAMPLE_RECORDS = 4096
# Bytes to read at most of a stream: this, or so many for each record to sample.
_STREAM_BYTES = 64 << 20
_STREAM_RECORD_BYTES = 16 << 10
# Numbers of records that are made at once.
_NUMBERS_AT_ONCE = 1 << 16

DTYPE_OF = {"bytes": "bytes", "float": "float32", "int64": "int64"}


def infer(
    files: _core.FileTable,
    catalog: _core.Catalog,
    names: Sequence[str | bytes] | None = None,
    sample: int | None = SAMPLE_RECORDS,
    *,
    skip_unreadable: bool,
    features_max: int,
) -> Schema:
    """Infer the schema of a data set from `sample` of its records, or all if it is None.

    Columns are in the order of their names, because many writers shuffle the features;
    those of a context precede feature lists. `names` selects columns.
    """
    n_records = len(catalog)
    n_sampled = n_records if sample is None else min(sample, n_records)
    survey = _core.Survey(features_max)
    for first in range(0, n_sampled, _NUMBERS_AT_ONCE):
        chosen = range(first, min(first + _NUMBERS_AT_ONCE, n_sampled))
        # Exact integers: a float would lose records past 2**53.
        numbers = np.array([i * n_records // n_sampled for i in chosen], dtype=np.int64)
        try:
            survey.add_records(files, catalog, numbers, skip_unreadable)
        except DecodeError as error:
            raise _explained(error) from None
    _check_any(survey, n_sampled)
    if n_sampled == n_records:
        of = "the only record" if n_records == 1 else f"all {n_records:,} records"
    else:
        of = f"{n_sampled:,} of {n_records:,} records"
    return _schema_of(survey, f"inferred from {of}", names)


def infer_stream(
    frames: _core.FrameStream,
    names: Sequence[str | bytes] | None = None,
    sample: int | None = SAMPLE_RECORDS,
    *,
    skip_unreadable: bool,
    features_max: int,
) -> Schema:
    """Infer the schema of a stream from its first records."""
    n_records_max = n_bytes_max = 2**63 - 1
    if sample is not None:
        n_records_max = sample
        n_bytes_max = max(_STREAM_BYTES, sample * _STREAM_RECORD_BYTES)
    survey = _core.Survey(features_max)
    try:
        n_sampled = survey.add_stream(
            frames, n_records_max, min(n_bytes_max, 2**63 - 1), skip_unreadable
        )
    except DecodeError as error:
        raise _explained(error) from None
    _check_any(survey, n_sampled)
    of = "record" if survey.n_records == 1 else f"{survey.n_records:,} records"
    return _schema_of(survey, f"inferred from the first {of}", names)


def _check_any(survey: _core.Survey, n_sampled: int) -> None:
    """Refuse a sample of which no record can be read."""
    if n_sampled and not survey.n_records:
        raise SchemaError(
            f"none of {n_sampled:,} sampled records can be read, so no schema can be "
            'inferred: on_error="raise" says what is wrong with the first',
            code="no_schema",
        )


def name_of(key: str | bytes) -> str | bytes:
    """Return the column name of a feature: str if it is UTF-8."""
    if isinstance(key, str):
        return key
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def _explained(error: DecodeError) -> DecodeError:
    reason = (
        f"{error.reason}, so this is neither a tf.train.Example nor a SequenceExample, "
        "and no schema can be inferred: ds.records has the bytes of records"
    )
    return DecodeError(
        reason, error.path, error.record, error.offset, error.feature, code=error.code
    )


def _schema_of(
    survey: _core.Survey, source: str, names: Sequence[str | bytes] | None
) -> Schema:
    n_sampled = survey.n_records
    if n_sampled == 0:
        return Schema({}, source="no records to infer features from")
    found = _found_in(survey)
    there = {name: column for name, column in found.items() if column.seen.kinds}
    if not there:
        raise SchemaError(
            f"no features in {n_sampled:,} sampled records: are they tf.train.Example or "
            "SequenceExample? ds.records has their bytes",
            code="no_schema",
        )
    notes = {name: column.note() for name, column in found.items()}
    if names is not None:
        for name in names:
            if name not in there:
                listed = ", ".join(map(repr, there))
                raise SchemaError(
                    f"no feature {name!r} with values in {n_sampled:,} sampled records; "
                    f"there are {listed}",
                    code="no_schema",
                )
        there = {name: there[name] for name in names}
        notes = {name: notes[name] for name in names}
    features: dict[str | bytes, Spec] = {
        name: column.spec(name) for name, column in there.items()
    }
    if not survey.n_sequences:
        return Schema(features, notes=notes, source=source)
    list_names = frozenset(
        name for name, column in there.items() if column.of_list is not None
    )
    return SequenceSchema(features, list_names, notes=notes, source=source)


@dataclass(frozen=True)
class _Found:
    """What was seen of a feature, or of a feature list and its steps."""

    key: str | bytes
    seen: _core.FeatureSurvey
    of_list: _core.ListSurvey | None
    n_sampled: int  # records
    in_context: bool  # of a SequenceExample

    @property
    def _kind(self) -> str:
        return next(iter(self.seen.kinds))

    @property
    def _n_present(self) -> int:
        """The number of records that have it."""
        if self.of_list is not None:
            return self.of_list.n_records
        return self.seen.n_present

    @property
    def _shape(self) -> tuple[int, ...] | None:
        """The shape of the values of each record or step, if it is always the same."""
        n_values = self.seen.n_values_min
        if n_values != self.seen.n_values_max or n_values == 0:
            return None
        return () if n_values == 1 else (n_values,)

    def spec(self, name: str | bytes) -> Spec:
        """Return the spec of column `name`."""
        kinds = self.seen.kinds
        if len(kinds) > 1:
            found = ", ".join(f"{kind} values in {n:,}" for kind, n in kinds.items())
            of = f"{self.n_sampled:,} sampled records"
            if self.of_list is not None:
                n_steps = self.seen.n_present + self.seen.n_unset
                of = f"{n_steps:,} steps in {of}"
            raise SchemaError(
                f"feature {self.key!r} holds {found} of {of}, and no spec reads both: "
                "name the features to read in features=, without it",
                feature=str(self.key),
                code="no_schema",
            )
        key = None if name == self.key else self.key
        dtype, shape = DTYPE_OF[self._kind], self._shape
        if self.of_list is not None:
            if shape is None or self.seen.n_unset:
                return VarLen(dtype, key=key)
            return FixedLenSequence(shape, dtype, key=key)
        if shape is None or self._n_present < self.n_sampled:
            return VarLen(dtype, key=key)
        return FixedLen(shape, dtype, key=key)

    def note(self) -> str:
        """Return a comment on the column."""
        seen, parts = self.seen, []
        if not seen.kinds:
            return "left out, for it never has a kind of values"
        if self._n_present < self.n_sampled:
            # Never 0 % or 100 %, which would be untrue.
            tenths = round(1000 * self._n_present / self.n_sampled)
            parts.append(f"in {min(max(tenths, 1), 999) / 10:g}% of records")
        if self.of_list is not None:
            low, high = self.of_list.n_steps_min, self.of_list.n_steps_max
            parts.append(_ranged(low, high, "step"))
            if seen.n_unset:
                parts.append(f"{seen.n_unset:,} of them without values")
        if seen.n_values_min != seen.n_values_max:
            parts.append(_ranged(seen.n_values_min, seen.n_values_max, "value"))
        parts += self._values()
        suggestion = self._suggestion()
        return ", ".join(parts) + (f"; {suggestion}" if suggestion else "")

    def _values(self) -> list[str]:
        """Return comments on the values."""
        seen = self.seen
        if seen.n_values == 0:
            return ["always empty"]
        if seen.n_ranged == 0:
            return ["always NaN"]
        if self._kind == "int64":
            return [self._range(seen.int_min, seen.int_max, "d")]
        if self._kind == "float":
            return [self._range(seen.float_min, seen.float_max, ".6g")]
        sizes = _ranged(seen.bytes_min, seen.bytes_max, "byte")
        if seen.bytes_min == seen.bytes_max:
            sizes += " each"
        return [seen.format, sizes] if seen.format and seen.bytes_max else [sizes]

    def _range(self, low: float, high: float, form: str) -> str:
        if low == high and self.seen.n_ranged == self.seen.n_values:
            return f"always {low:{form}}"
        return f"{low:{form}} to {high:{form}}"

    def _suggestion(self) -> str:
        """Return another spec that may fit."""
        seen, shape = self.seen, self._shape
        if self.of_list is not None or shape is None:
            return ""
        if self._n_present < self.n_sampled:
            # In a context, a default stands in for features that are absent, and not for
            # those without a kind.
            if self.in_context and seen.n_unset:
                return ""
            return f"or fr.FixedLen({shape}, {DTYPE_OF[self._kind]!r}, default=...)"
        if self._kind != "bytes" or shape or seen.format:
            return ""
        return guess.suggestion(seen)


def _found_in(survey: _core.Survey) -> Mapping[str | bytes, _Found]:
    """Return what was seen, by column; a list whose name is taken is ``name_list``."""
    n_sampled, is_sequence = survey.n_records, survey.n_sequences > 0
    found: dict[str | bytes, _Found] = {}
    for key, seen in survey.features:
        name = name_of(key)
        found[name] = _Found(name, seen, None, n_sampled, is_sequence)
    taken = {*found, *(name_of(key) for key, _ in survey.lists)}
    for key, of_list in survey.lists:
        list_key = name = name_of(key)
        if name in found:
            while name in taken:
                name = name + "_list" if isinstance(name, str) else name + b"_list"
            taken.add(name)
        found[name] = _Found(list_key, of_list.steps, of_list, n_sampled, False)
    return found


def _ranged(low: int, high: int, unit: str) -> str:
    if low == high:
        return f"{low:,} {unit}" + ("" if low == 1 else "s")
    return f"{low:,} to {high:,} {unit}s"
