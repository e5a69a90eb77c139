"""Infer a schema from a sample of records.

A feature becomes `FixedLen` if all sampled records have the same number of values (at
least one), otherwise `VarLen`. Comments in the schema suggest defaults, and specs for
arrays in byte strings. Records that are not Examples get the spec `Record`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fastrec import _core
from fastrec.errors import DecodeError, SchemaError
from fastrec.features.base import Spec
from fastrec.features.fixed import FixedLen, FixedLenSequence, Record, VarLen
from fastrec.features.schema import Note, Schema
from fastrec.features.tensor import tensor_text
from fastrec.hints import did_you_mean
from fastrec.printable import counted

SAMPLE_RECORDS = 4096  # default; the sample is spread evenly over the data
# Byte limit of a stream's sample: the larger of a total and a limit per record.
_STREAM_BYTES = 64 << 20
_STREAM_RECORD_BYTES = 16 << 10
# Maximum number of records that one call of the core surveys.
_CHUNK_RECORDS = 1 << 16
_INT64_MAX = 2**63 - 1

# Minimum number of nonzero values that are evidence for a dtype.
_MIN_NONZERO = 32
# Minimum number of sign- or zero-extended values that are evidence for a wider dtype.
_MIN_EXTENDED = 4

_DTYPE_OF = {"bytes": "bytes", "float": "float32", "int64": "int64"}


def infer(
    files: _core.FileTable,
    catalog: _core.Catalog,
    names: Sequence[str | bytes] | None = None,
    sample: int | None = SAMPLE_RECORDS,
    *,
    skip_unreadable: bool,
    features_max: int,
) -> Schema:
    """Infer a schema from `sample` records of the catalog, or from all if it is None.

    Columns are sorted by name, because many writers shuffle the features. Context
    features precede feature lists. `names` selects the columns and their order.
    """
    n_records = len(catalog)
    n_sampled = n_records if sample is None else min(sample, n_records)

    def add_records(survey: _core.Survey) -> int:
        for first in range(0, n_sampled, _CHUNK_RECORDS):
            chosen = range(first, min(first + _CHUNK_RECORDS, n_sampled))
            # Use integers, because floats are inexact above 2**53.
            numbers = [i * n_records // n_sampled for i in chosen]
            at = np.array(numbers, np.int64)
            survey.add_records(files, catalog, at, skip_unreadable)
        return n_sampled

    of = f"{n_sampled:,} of {n_records:,} records"
    if n_sampled == n_records:
        of = "the only record" if n_records == 1 else f"all {n_records:,} records"
    return _inferred(_core.Survey(features_max), add_records, names, of)


def infer_stream(
    frames: _core.FrameStream,
    names: Sequence[str | bytes] | None = None,
    sample: int | None = SAMPLE_RECORDS,
    *,
    skip_unreadable: bool,
    features_max: int,
) -> Schema:
    """Infer a schema from at most the first `sample` records of a stream; None: all."""
    n_records_max = _INT64_MAX if sample is None else sample
    n_bytes_max = max(_STREAM_BYTES, n_records_max * _STREAM_RECORD_BYTES)

    def add_records(survey: _core.Survey) -> int:
        return survey.add_stream(
            frames, n_records_max, min(n_bytes_max, _INT64_MAX), skip_unreadable
        )

    return _inferred(_core.Survey(features_max), add_records, names, "")


def _inferred(
    survey: _core.Survey,
    add_records: Callable[[_core.Survey], int],
    names: Sequence[str | bytes] | None,
    of: str,
) -> Schema:
    """Infer the schema of the records that `add_records` adds to `survey`."""

    def has_values() -> bool:
        lists = (of_list.steps for _, of_list in survey.lists)
        return any(seen.kinds for seen in (*dict(survey.features).values(), *lists))

    try:
        n_sampled = add_records(survey)
    except DecodeError as error:
        if not survey.foreign or has_values():
            is_what = f"looks like {survey.foreign}" if survey.foreign else "is damaged"
            error.reason = (
                "cannot infer a schema: other records are Examples, but this record "
                f"{is_what} ({error.reason}); pass features=, or "
                'read bytes with features={"record": fr.Record()}'
            )
            raise
        n_sampled, of = 1, "the first record"
    n_records = survey.n_records
    if survey.foreign and not has_values():
        looks = f"not a tf.train.Example; it looks like {survey.foreign}"
        if names is None:
            source = f"inferred from {of or _first(n_records)}"
            return Schema({"record": Record()}, notes={"record": looks}, source=source)
        raise _no_schema(
            f"cannot infer specs of {list(names)!r}: the first record is {looks}; "
            'features={"record": fr.Record()} reads its bytes'
        )
    if n_sampled and not n_records and not survey.foreign:
        raise _no_schema(
            f"cannot infer a schema: all {n_sampled:,} sampled records are "
            'unreadable; pass on_error="raise" to see the first error'
        )
    if not n_records:
        return Schema({}, source="no records to infer features from")
    surveyed = _surveyed_features(survey)
    readable = {name: each for name, each in surveyed.items() if each.seen.kinds}
    if not readable:
        raise _no_schema(
            f"cannot infer a schema: {n_records:,} sampled records have no features; "
            'features={"record": fr.Record()} reads their bytes'
        )
    for name in names or ():
        if name not in readable:
            raise _no_schema(
                f"cannot infer a spec for {name!r}: no values in {n_records:,} sampled "
                f"records; available features are {', '.join(map(repr, readable))}"
                f"{did_you_mean(name, readable)}"
            )
    lists = {name for name, feature in readable.items() if feature.of_list is not None}
    return Schema._of(
        {name: readable[name].spec(name) for name in names or readable},
        frozenset(lists) if survey.n_sequences else None,
        notes={name: surveyed[name].note() for name in names or surveyed},
        source=f"inferred from {of or _first(n_records)}",
    )


def _first(n_records: int) -> str:
    return f"the first {'record' if n_records == 1 else counted(n_records, 'record')}"


def _no_schema(reason: str, feature: str | None = None) -> SchemaError:
    return SchemaError(reason, feature=feature, code="no_schema")


def name_of(key: str | bytes) -> str | bytes:
    """Return the column name for a feature's key: a str if UTF-8, otherwise bytes."""
    try:
        return key if isinstance(key, str) else key.decode()
    except UnicodeDecodeError:
        return key


class _Surveyed(NamedTuple):
    """Survey results for a feature, or for a feature list and its steps."""

    key: str | bytes
    seen: _core.FeatureSurvey
    of_list: _core.ListSurvey | None
    n_sampled: int  # number of records
    is_context: bool  # of a SequenceExample

    @property
    def _dtype(self) -> str:
        return _DTYPE_OF[next(iter(self.seen.kinds))]

    @property
    def _n_present(self) -> int:
        """Number of records with the feature or feature list."""
        return self.of_list.n_records if self.of_list else self.seen.n_present

    @property
    def _shape(self) -> tuple[int, ...] | None:
        """Shape of a record's or step's values; None if their number varies or is 0."""
        n_values = self.seen.n_values_min
        if n_values != self.seen.n_values_max or n_values == 0:
            return None
        return () if n_values == 1 else (n_values,)

    def spec(self, name: str | bytes) -> Spec:
        """Return the inferred spec for a column called `name`."""
        kinds, is_list = self.seen.kinds, self.of_list is not None
        n_steps = self.seen.n_present + self.seen.n_unset
        if len(kinds) > 1:
            counts = ", ".join(f"{kind} values in {n:,}" for kind, n in kinds.items())
            steps = f"{n_steps:,} steps in " if is_list else ""
            raise _no_schema(
                f"feature {self.key!r} must have one kind of values, got {counts} of "
                f"{steps}{self.n_sampled:,} sampled records; select other features "
                "with features=",
                str(self.key),
            )
        key = None if name == self.key else self.key
        has_gaps = self.seen.n_unset if is_list else self._n_present < self.n_sampled
        if self._shape is None or has_gaps:
            return VarLen(self._dtype, key=key)
        of_shape = FixedLenSequence if is_list else FixedLen
        return of_shape(self._shape, self._dtype, key=key)

    def note(self) -> Note:
        """Return the column's comment for the schema's repr, with Arrow options."""
        note = Note(self._comment())
        note.options = ("text",) * (self.seen.format == "UTF-8 text")
        if self.of_list is None and self.seen.n_values_max <= 1:
            note.options += ("optional",)
        return note

    def _comment(self) -> str:
        seen, parts = self.seen, []
        if not seen.kinds:
            return "not read, because its kind is never set"
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
        return "; ".join(filter(None, [", ".join(parts), self._suggestion()]))

    def _values(self) -> list[str]:
        """Return the parts of the comment that describe the values."""
        seen = self.seen
        if seen.n_values == 0:
            return ["always empty"]
        if seen.n_ranged == 0:
            return ["always NaN"]
        if self._dtype != "bytes":
            low, high, form = seen.float_min, seen.float_max, ".6g"
            if self._dtype == "int64":
                low, high, form = seen.int_min, seen.int_max, "d"
            n_nan = seen.n_values - seen.n_ranged
            if low == high and not n_nan:
                return [f"always {low:{form}}"]
            nan = [f"{n_nan:,} NaN"] if n_nan else []
            return [f"{low:{form}} to {high:{form}}", *nan]
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

    def _suggestion(self) -> str:
        """Return a comment that suggests another spec, or "" if none is likely."""
        seen, shape = self.seen, self._shape
        if self.of_list is not None:
            return ""
        if self._n_present == self.n_sampled and seen.images:
            image = _image(*seen.images)
            return image if shape == () else f"fr.List({image})"
        if shape is None:
            return ""
        if self._n_present < self.n_sampled:
            # In a context, a default does not replace a feature without a kind.
            is_replaced = not (self.is_context and seen.n_unset)
            fixed = f"or fr.FixedLen({shape}, {self._dtype!r}, default=...)"
            return fixed if is_replaced else ""
        is_bytes = self._dtype == "bytes" and not shape and not seen.format
        return _array(seen) if is_bytes else ""


def _surveyed_features(survey: _core.Survey) -> dict[str | bytes, _Surveyed]:
    """Return features by column name; a list named like a feature gets suffix _list."""
    n_sampled, is_sequence = survey.n_records, survey.n_sequences > 0
    features: dict[str | bytes, _Surveyed] = {}
    for key, seen in survey.features:
        name = name_of(key)
        features[name] = _Surveyed(name, seen, None, n_sampled, is_sequence)
    taken = {*features, *(name_of(key) for key, _ in survey.lists)}
    for key, of_list in survey.lists:
        list_key = name = name_of(key)
        if name in features:
            while name in taken:
                name = name + "_list" if isinstance(name, str) else name + b"_list"
            taken.add(name)
        features[name] = _Surveyed(list_key, of_list.steps, of_list, n_sampled, False)
    return features


def _image(least: tuple[int, ...], most: tuple[int, ...]) -> str:
    """Return the source text of an Image spec that fits the surveyed images.

    `least` and `most` are their minimum and maximum (width, height, channels, bits).
    """
    width, height, channels, _ = most
    of = "" if channels == 3 else f", channels={channels}"
    if least[:2] != (width, height):
        return f'fr.Image((224, 224), fit="resize"{of})'
    if least[2:] == (channels, 16):
        of += ', dtype="uint16"'
    return f"fr.Image(({height}, {width}){of})"


def _array(seen: _core.FeatureSurvey) -> str:
    """Return a comment that suggests array or tensor specs for byte strings, or ""."""
    if seen.tensor is not None:
        return f"a tensor? {tensor_text(*seen.tensor)}"
    size = seen.bytes_max
    if size <= 1 or size != seen.bytes_min:
        return ""
    likely = _likely(seen)
    raw = [f"fr.Raw(({size // item_bytes(name)},), {name!r})" for name in likely]
    if not likely:
        return f"an array of any dtype (zeros)? fr.Raw(({size},), 'uint8')"
    return f"an array? {' or '.join(raw)}" + (" (ambiguous)" if len(raw) > 1 else "")


def _likely(seen: _core.FeatureSurvey) -> list[str]:
    """Return the likely dtypes of arrays in byte strings; none if all bytes are 0."""
    # The wider of two dtypes is likely if its upper bytes only sign- or zero-extend the
    # value: in the narrower dtype, every second item would be such an extension.
    possible = {dtype: (extended, n) for dtype, extended, n in seen.dtypes if n}
    if possible.pop("uint8", None) is None:
        return []
    likely = dict(possible)
    for wide, (is_extended, n_wide) in possible.items():
        for narrow, (_, n_narrow) in possible.items():
            if item_bytes(narrow) >= item_bytes(wide):
                continue
            if is_extended and n_wide >= _MIN_EXTENDED:
                likely.pop(narrow, None)
            elif not is_extended and n_narrow >= _MIN_NONZERO:
                likely.pop(wide, None)
    if len(likely) == 1 and all(n >= _MIN_NONZERO for _, n in likely.values()):
        return list(likely)
    return ["uint8", *likely]  # uint8 is always possible


def item_bytes(dtype: str) -> int:
    """Return the size of a value of `dtype`."""
    # NumPy knows bfloat16 only if ml_dtypes is imported.
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def _ranged(low: int, high: int, unit: str) -> str:
    return counted(low, unit) if low == high else f"{low:,} to {high:,} {unit}s"
