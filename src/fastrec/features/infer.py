"""Infer a schema from a sample of records.

A feature is `FixedLen` if all sampled records have the same number of values, otherwise
`VarLen`. Comments of the schema suggest defaults and specs of arrays in byte strings.
Records that are not Examples are read as `Record`.
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
from fastrec.features.record import Record
from fastrec.features.schema import Note, Schema
from fastrec.hints import did_you_mean

# Sampled records, spread evenly over the data.
SAMPLE_RECORDS = 4096
# A sample of a stream ends at the larger of this and a number of bytes per record.
_STREAM_BYTES = 64 << 20
_STREAM_RECORD_BYTES = 16 << 10
# Record numbers passed to the core at once.
_CHUNK_RECORDS = 1 << 16

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
    """Infer a schema from `sample` records of the catalog; None means all.

    Columns are sorted by name, because many writers shuffle the features; those of a
    context precede feature lists. `names` selects columns.
    """
    n_records = len(catalog)
    n_sampled = n_records if sample is None else min(sample, n_records)
    survey = _core.Survey(features_max)
    for first in range(0, n_sampled, _CHUNK_RECORDS):
        chosen = range(first, min(first + _CHUNK_RECORDS, n_sampled))
        # In integers: floats are inexact above 2**53.
        numbers = np.array([i * n_records // n_sampled for i in chosen], dtype=np.int64)
        try:
            survey.add_records(files, catalog, numbers, skip_unreadable)
        except DecodeError as error:
            if not survey.foreign or _has_values(survey):
                raise _explained(error, survey) from None
            return _schema_of(survey, "inferred from the first record", names)
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
        if not survey.foreign or _has_values(survey):
            raise _explained(error, survey) from None
        return _schema_of(survey, "inferred from the first record", names)
    _check_any(survey, n_sampled)
    of = "record" if survey.n_records == 1 else f"{survey.n_records:,} records"
    return _schema_of(survey, f"inferred from the first {of}", names)


def _check_any(survey: _core.Survey, n_sampled: int) -> None:
    """Raise a SchemaError if all sampled records are unreadable."""
    if n_sampled and not survey.n_records and not survey.foreign:
        raise SchemaError(
            f"cannot infer a schema: all of {n_sampled:,} sampled records are "
            'unreadable; pass on_error="raise" to see the first error',
            code="no_schema",
        )


def name_of(key: str | bytes) -> str | bytes:
    """Return a feature's key as a column name: str if it is UTF-8, otherwise bytes."""
    if isinstance(key, str):
        return key
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def _has_values(survey: _core.Survey) -> bool:
    return any(seen.kinds for _, seen in survey.features) or any(
        of_list.steps.kinds for _, of_list in survey.lists
    )


def _explained(error: DecodeError, survey: _core.Survey) -> DecodeError:
    reason = (
        "cannot infer a schema: others are tf.train.Examples, but this record "
        f"{f'looks like {survey.foreign}' if survey.foreign else 'is damaged'} "
        f'({error.reason}); pass features=, or features={{"record": fr.Record()}} for '
        "the bytes of records"
    )
    return DecodeError(
        reason, error.path, error.record, error.offset, error.feature, code=error.code
    )


def _schema_of(
    survey: _core.Survey, source: str, names: Sequence[str | bytes] | None
) -> Schema:
    n_sampled = survey.n_records
    if survey.foreign and not _has_values(survey):
        looks = f"not a tf.train.Example; it looks like {survey.foreign}"
        if names is None:
            return Schema({"record": Record()}, notes={"record": looks}, source=source)
        raise SchemaError(
            f"cannot infer specs of {list(names)!r}: the first record is {looks}; "
            'features={"record": fr.Record()} reads its bytes',
            code="no_schema",
        )
    if n_sampled == 0:
        return Schema({}, source="no records to infer features from")
    surveyed = _surveyed_features(survey)
    readable = {
        name: feature for name, feature in surveyed.items() if feature.seen.kinds
    }
    if not readable:
        raise SchemaError(
            f"cannot infer a schema: {n_sampled:,} sampled records have no features; "
            'features={"record": fr.Record()} reads their bytes',
            code="no_schema",
        )
    notes = {name: feature.note() for name, feature in surveyed.items()}
    if names is not None:
        for name in names:
            if name not in readable:
                listed = ", ".join(map(repr, readable))
                raise SchemaError(
                    f"cannot infer a spec of {name!r}: {n_sampled:,} sampled records "
                    f"have no values of it; they have {listed}"
                    f"{did_you_mean(name, readable)}",
                    code="no_schema",
                )
        readable = {name: readable[name] for name in names}
        notes = {name: notes[name] for name in names}
    features: dict[str | bytes, Spec] = {
        name: feature.spec(name) for name, feature in readable.items()
    }
    if not survey.n_sequences:
        return Schema(features, notes=notes, source=source)
    lists = {name for name, feature in readable.items() if feature.of_list is not None}
    return Schema._of(features, frozenset(lists), notes=notes, source=source)


@dataclass(frozen=True)
class _SurveyedFeature:
    """Survey results of a feature, or of a feature list and its steps."""

    key: str | bytes
    seen: _core.FeatureSurvey
    of_list: _core.ListSurvey | None
    n_sampled: int  # records
    is_context: bool  # of a SequenceExample

    @property
    def _kind(self) -> str:
        return next(iter(self.seen.kinds))

    @property
    def _n_present(self) -> int:
        """Number of records with the feature."""
        if self.of_list is not None:
            return self.of_list.n_records
        return self.seen.n_present

    @property
    def _shape(self) -> tuple[int, ...] | None:
        """Shape of the values of a record or step; None if their number varies."""
        n_values = self.seen.n_values_min
        if n_values != self.seen.n_values_max or n_values == 0:
            return None
        return () if n_values == 1 else (n_values,)

    def spec(self, name: str | bytes) -> Spec:
        """Return the spec of column `name`."""
        kinds = self.seen.kinds
        if len(kinds) > 1:
            counts = ", ".join(f"{kind} values in {n:,}" for kind, n in kinds.items())
            of = f"{self.n_sampled:,} sampled records"
            if self.of_list is not None:
                n_steps = self.seen.n_present + self.seen.n_unset
                of = f"{n_steps:,} steps in {of}"
            raise SchemaError(
                f"feature {self.key!r} must have one kind of values, got {counts} of "
                f"{of}; list the other features in features=",
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

    def note(self) -> Note:
        """Return the column's comment in the repr of the schema."""
        note = Note(self._comment())
        note.options = ("text",) * (self.seen.format == "UTF-8 text")
        if self.of_list is None and self.seen.n_values_max <= 1:
            note.options += ("optional",)
        return note

    def _comment(self) -> str:
        seen, parts = self.seen, []
        if not seen.kinds:
            return "not read, because it never has a kind of values"
        if self._n_present < self.n_sampled:
            # Do not round to 0 % or 100 %.
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
        """Return the parts of the comment that describe the values."""
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
        if not seen.format or not seen.bytes_max:
            return [sizes]
        if seen.images is None:
            return [seen.format, sizes]
        smallest, (width, height, *_) = seen.images
        up_to = "" if smallest[:2] == (width, height) else "up to "
        return [f"{seen.format} {up_to}{width}x{height}", sizes]

    def _range(self, low: float, high: float, form: str) -> str:
        if low == high and self.seen.n_ranged == self.seen.n_values:
            return f"always {low:{form}}"
        n_nan = self.seen.n_values - self.seen.n_ranged
        return f"{low:{form}} to {high:{form}}" + (f", {n_nan:,} NaN" if n_nan else "")

    def _suggestion(self) -> str:
        """Return another spec that may fit, or ""."""
        seen, shape = self.seen, self._shape
        if self.of_list is None and self._n_present == self.n_sampled and seen.images:
            image = _image(*seen.images)
            return image if shape == () else f"fr.List({image})"
        if self.of_list is not None or shape is None:
            return ""
        if self._n_present < self.n_sampled:
            # In a context, a default replaces absent features, but not features without
            # a kind.
            if self.is_context and seen.n_unset:
                return ""
            return f"or fr.FixedLen({shape}, {DTYPE_OF[self._kind]!r}, default=...)"
        if self._kind != "bytes" or shape or seen.format:
            return ""
        return guess.suggestion(seen)


def _surveyed_features(
    survey: _core.Survey,
) -> Mapping[str | bytes, _SurveyedFeature]:
    """Return the features by column name; duplicate list names get the suffix _list."""
    n_sampled, is_sequence = survey.n_records, survey.n_sequences > 0
    features: dict[str | bytes, _SurveyedFeature] = {}
    for key, seen in survey.features:
        name = name_of(key)
        features[name] = _SurveyedFeature(name, seen, None, n_sampled, is_sequence)
    taken = {*features, *(name_of(key) for key, _ in survey.lists)}
    for key, of_list in survey.lists:
        list_key = name = name_of(key)
        if name in features:
            while name in taken:
                name = name + "_list" if isinstance(name, str) else name + b"_list"
            taken.add(name)
        features[name] = _SurveyedFeature(
            list_key, of_list.steps, of_list, n_sampled, False
        )
    return features


def _image(least: tuple[int, ...], most: tuple[int, ...]) -> str:
    """Return the spec that loses nothing of images of these sizes, channels and bits."""
    width, height, channels, _ = most
    of = "" if channels == 3 else f", channels={channels}"
    if least[:2] != (width, height):
        return f'fr.Image((224, 224), fit="resize"{of})'
    if least[2:] == (channels, 16):
        of += ', dtype="uint16"'
    return f"fr.Image(({height}, {width}){of})"


def _ranged(low: int, high: int, unit: str) -> str:
    if low == high:
        return f"{low:,} {unit}" + ("" if low == 1 else "s")
    return f"{low:,} to {high:,} {unit}s"
