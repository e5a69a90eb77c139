"""Compare single rows with rows of batches, on generated schemas and records.

    python -m campaigns.single_rows SEED N

`ds[i]`, iteration, `tf_io.parse_single_example` and `tf_io.parse_single_sequence_example` must
return what indexing the columns of a batch returns, and raise the same errors. Prints
the number of rows and of errors compared.
"""

from __future__ import annotations

import copy
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fastrec as fr
from campaigns.differential_cases import (
    FORMS,
    random_record,
    random_sequence_specs,
    random_specs,
)
from campaigns.differential_specs import fastrec_feature
from fastrec.compat import tf_io
from oracle import tfrecord_file

INT_DTYPES = ("int64", "int32", "uint64", "uint8", "bool")
FLOAT_DTYPES = ("float32", "float64", "float16")

Outcome = tuple[str, Any]


def row_by_index(batch: Mapping[str, Any], i: int) -> dict[str, Any]:
    """Return row `i` of a batch by indexing its columns in Python."""
    return {name: copy.copy(column[i]) for name, column in batch.items()}


def assert_equal_rows(row: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Assert equal names and order, types, dtypes, shapes and bits."""
    assert list(row) == list(wanted)
    for name, value in wanted.items():
        assert_equal_values(row[name], value)


def assert_equal_values(value: Any, wanted: Any) -> None:
    assert type(value) is type(wanted)
    if isinstance(wanted, fr.BytesArray):
        assert value.shape == wanted.shape
        assert value.tolist() == wanted.tolist()
        assert value.offsets[0] == 0
        assert value.data.size == value.offsets[-1]  # nothing else is kept alive
    elif isinstance(wanted, fr.RaggedArray):
        assert_equal_values(value.row_splits, wanted.row_splits)
        assert_equal_values(value.values, wanted.values)
    elif isinstance(wanted, fr.SparseArray):
        assert value.dense_shape == wanted.dense_shape
        assert_equal_values(value.indices, wanted.indices)
        assert_equal_values(value.values, wanted.values)
    elif isinstance(wanted, (np.ndarray, np.generic)):
        assert value.dtype == wanted.dtype
        assert value.shape == wanted.shape
        assert value.tobytes() == wanted.tobytes()
        if isinstance(value, np.ndarray):
            assert value.flags.owndata or isinstance(value.base, np.ndarray)
            assert value.flags.writeable
            assert value.flags.c_contiguous
    else:
        assert value == wanted


def outcome_of(read: Callable[..., Any], *arguments: Any) -> Outcome:
    """Return the result, or what the error says."""
    try:
        return "row", read(*arguments)
    except fr.Error as error:
        return "error", (
            type(error).__name__,
            str(error),
            *(error.code, error.path, error.record, error.offset, error.feature),
        )


def assert_equal_outcomes(found: Outcome, wanted: Outcome) -> None:
    assert found[0] == wanted[0], (found, wanted)
    if wanted[0] == "error":
        assert found == wanted
    elif isinstance(wanted[1], tuple):
        for row, row_wanted in zip(found[1], wanted[1], strict=True):
            assert_equal_rows(row, row_wanted)
    else:
        assert_equal_rows(found[1], wanted[1])


def varied(rng: random.Random, spec: Any) -> Any:
    """Return a spec with options that TensorFlow does not have."""
    if isinstance(spec, (fr.FixedLen, fr.VarLen, fr.FixedLenSequence)):
        dtype = spec.dtype
        if rng.random() < 0.3 and dtype in ("int64", "float32"):
            dtype = rng.choice(INT_DTYPES if dtype == "int64" else FLOAT_DTYPES)
        if isinstance(spec, fr.VarLen):
            shape = rng.choice(((), (), (1,), (2,))) if dtype != "bytes" else ()
            return fr.VarLen(dtype, shape)
        if isinstance(spec, fr.FixedLen):
            try:
                return fr.FixedLen(spec.shape, dtype, spec.default)
            except fr.SchemaError:  # the default does not fit the dtype
                return spec
        options = rng.choice(
            (
                {},
                {"lengths": "lengths_of"},
                {"length": 3},
                {"length": 2, "truncate": True},
                {"multiple_of": 4},
            )
        )
        default = spec.default if dtype == spec.dtype else None
        return fr.FixedLenSequence(spec.shape, dtype, default, **options)
    return spec


def random_schema(rng: random.Random) -> tuple[Any, dict[str, Any]]:
    """Return specs as plain data, and those of fastrec."""
    specs = random_specs(rng)
    features: dict[str, Any] = {}
    for spec in specs:
        feature = varied(rng, fastrec_feature(spec))
        if getattr(feature, "lengths", None):
            feature = fr.FixedLenSequence(
                feature.shape, feature.dtype, lengths=f"{spec.name}_lengths"
            )
        features[spec.name] = feature
    if rng.random() < 0.1:
        features["record"] = fr.Record()
    return specs, features


def compare_examples(rng: random.Random, path: Path, counts: Counter[str]) -> None:
    """Compare the rows of generated Examples."""
    specs, features = random_schema(rng)
    records = [
        random_record(rng, specs, rng.choice(FORMS), is_sequence=False)
        for _ in range(rng.randrange(1, 12))
    ]
    schema = fr.Schema(features)
    for record in records:
        wanted = outcome_of(batch_row, record, schema)
        counts[wanted[0]] += 1
        for given in (features, schema):
            for form in (bytes, bytearray, memoryview):
                found = outcome_of(tf_io.parse_single_example, form(record), given)
                assert_equal_outcomes(found, wanted)
    path.write_bytes(tfrecord_file(records))
    compare_dataset(rng, fr.open(path, features=features), counts)


def compare_sequences(rng: random.Random, path: Path, counts: Counter[str]) -> None:
    """Compare the rows of generated SequenceExamples."""
    specs = random_sequence_specs(rng)
    parts: list[dict[str, Any]] = [{}, {}]
    for spec in specs:
        parts[spec.section == "lists"][spec.name] = fastrec_feature(spec)
    context, lists = parts
    records = [
        random_record(rng, specs, rng.choice(FORMS), is_sequence=True)
        for _ in range(rng.randrange(1, 8))
    ]
    for record in records:
        wanted = outcome_of(sequence_rows, record, context, lists)
        counts[wanted[0]] += 1
        found = outcome_of(tf_io.parse_single_sequence_example, record, context, lists)
        assert_equal_outcomes(found, wanted)
    if not set(context) & set(lists):
        path.write_bytes(tfrecord_file(records))
        ds = fr.open(path, context_features=context, sequence_features=lists)
        compare_dataset(rng, ds, counts)


def batch_row(record: bytes, schema: fr.Schema) -> dict[str, Any]:
    return row_by_index(fr.parse_example([record], schema), 0)


def sequence_rows(
    record: bytes, context: dict[str, Any], lists: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    # A copy of the dicts, so that no cached schema is used.
    batches = fr.parse_sequence_example([record], {**context}, {**lists})
    return row_by_index(batches[0], 0), row_by_index(batches[1], 0)


def compare_dataset(rng: random.Random, ds: Any, counts: Counter[str]) -> None:
    """Compare `ds[i]` and iteration with batches of one row."""
    n = len(ds)
    wanted = [outcome_of(lambda i: row_by_index(ds[i : i + 1], 0), i) for i in range(n)]
    counts["ds[i]"] += n
    for _ in range(2 * n):
        i = rng.randrange(n)
        index = rng.choice((i, i - n, np.int64(i)))
        assert_equal_outcomes(outcome_of(ds.__getitem__, index), wanted[i])
    found: list[Any] = []
    try:
        found.extend(ds)
    except fr.Error:
        assert wanted[len(found)][0] == "error"
    else:
        assert len(found) == n
    widest = any(isinstance(spec, fr.FixedLenSequence) for spec in ds.schema.values())
    for row, expected in zip(found, wanted, strict=False):
        if not widest:  # rows of a batch are padded to the longest
            assert_equal_outcomes(("row", row), expected)


def compare(seed: int, folder: Path, counts: Counter[str]) -> None:
    """Compare the rows of one generated schema."""
    rng = random.Random(seed)
    path = folder / f"{seed}.tfrecord"
    compare_one: Sequence[Any] = (compare_examples, compare_examples, compare_sequences)
    rng.choice(compare_one)(rng, path, counts)
    path.unlink(missing_ok=True)


def main() -> None:
    seed, n = map(int, sys.argv[1:])
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(n):
            compare(seed + i, Path(folder), counts)
    sys.stdout.write(f"{counts['row']} {counts['error']} {counts['ds[i]']}\n")


if __name__ == "__main__":
    main()
