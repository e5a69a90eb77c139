"""Against TensorFlow itself: what it reads, fastrec reads.

Goal
    Legal examples, missing features and records that do not fit have the outcome that
    tf.io.parse_example and tf.io.decode_raw give them.
Method
    Random examples in the encodings that TensorFlow's own parser reads (it loses other
    legal ones, see docs/semantics.md). Needs TensorFlow: run with `-m oracle`.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Write, fastrec_spec, open_dataset
from oracle import Feature, Features, Fixed, Raw, Spec, Var, example, tfrecord_file
from oracle_example import (
    delimited,
    entry,
    feature,
    fixed32,
    stored_float,
    varint_field,
)

pytestmark = pytest.mark.oracle

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow")

SPEC: Spec = {
    "int": Fixed("int64", default=-5),
    "floats": Fixed("float32", (2, 2), default=[[0.5, 1.0], [2.0, 3.0]]),
    "words": Fixed("bytes", (2,), default=[b"a", b""]),
    "required": Fixed("int64", (1,)),
    "var_int": Var("int64"),
    "var_float": Var("float32"),
    "var_bytes": Var("bytes"),
}
RAW_DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64"]
RAW_DTYPES += ["float16", "float32", "float64", "bool", "complex64", "complex128"]


def tensorflow_spec(spec: Spec) -> dict[str, Any]:
    dtypes = {"int64": tf.int64, "float32": tf.float32, "bytes": tf.string}
    found = {}
    for name, want in spec.items():
        dtype = dtypes[want.dtype]
        if isinstance(want, Fixed):
            found[name] = tf.io.FixedLenFeature(want.shape, dtype, want.default)
        else:
            found[name] = tf.io.VarLenFeature(dtype)
    return found


def by_tensorflow(records: list[bytes], spec: Spec) -> dict[str, Any] | None:
    """Columns as nested lists, or None where TensorFlow refuses the batch."""
    try:
        parsed = tf.io.parse_example(tf.constant(records), tensorflow_spec(spec))
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        return None
    columns = {}
    for name in spec:
        column = parsed[name]
        if isinstance(column, tf.SparseTensor):
            columns[name] = tf.RaggedTensor.from_sparse(column).to_list()
        else:
            columns[name] = column.numpy().tolist()
    return columns


def by_fastrec(write: Write, records: list[bytes], spec: Spec) -> dict[str, Any] | None:
    ds = open_dataset(write(tfrecord_file(records)), features=fastrec_spec(spec))
    try:
        batch = ds[0 : len(records)]
    except (fr.DecodeError, fr.SchemaError):
        return None
    return {name: column.tolist() for name, column in batch.items()}


def random_list(rng: random.Random, kind: Any, n_values: int) -> Feature:
    if kind == "bytes":
        return "bytes", [rng.randbytes(rng.randrange(5)) for _ in range(n_values)]
    if kind == "float":
        return "float", [rng.randrange(-999, 999) / 8 for _ in range(n_values)]
    return "int64", [
        rng.randrange(-(2**63), 2**63) >> rng.randrange(64) for _ in range(n_values)
    ]


def random_features(rng: random.Random, n_wrong: int) -> Features:
    """Features that fit SPEC, but for `n_wrong` of them."""
    found: dict[bytes, Feature] = {
        b"int": random_list(rng, "int64", 1),
        b"floats": random_list(rng, "float", 4),
        b"words": random_list(rng, "bytes", 2),
        b"required": random_list(rng, "int64", 1),
        b"var_int": random_list(rng, "int64", rng.randrange(5)),
        b"var_float": random_list(rng, "float", rng.randrange(5)),
        b"var_bytes": random_list(rng, "bytes", rng.randrange(5)),
        b"else": random_list(rng, "bytes", 1),
    }
    for key in list(found):
        if key != b"required" and rng.random() < 0.2:
            found[key] = None
            if rng.random() < 0.5:
                del found[key]
    for _ in range(n_wrong):
        kind = rng.choice(("bytes", "float", "int64"))
        found[rng.choice(list(found))] = random_list(rng, kind, rng.randrange(4))
    if n_wrong and rng.random() < 0.2:
        found.pop(b"required", None)
    return found


def encode(rng: random.Random, features: Features) -> bytes:
    """In any order, with losing entries; numbers all packed or all unpacked."""
    entries = []
    for key, found in features.items():
        if found is None:
            entries.append(entry(key, b""))
            continue
        kind, values = found
        message = feature(kind, values)
        if kind == "float" and rng.random() < 0.5:
            items = b"".join(
                fixed32(1, stored_float(v))
                for v in values
                if isinstance(v, float | bytes)
            )
            message = delimited(2, items)
        elif kind == "int64" and rng.random() < 0.5:
            message = delimited(
                3, b"".join(varint_field(1, v) for v in values if isinstance(v, int))
            )
        entries.append(entry(key, message))
    rng.shuffle(entries)
    keys = [key for key, found in features.items() if found is not None]
    if keys and rng.random() < 0.3:
        entries.insert(0, entry(rng.choice(keys), feature("bytes", [b"loses"])))
    return delimited(1, b"".join(entries))


@pytest.mark.parametrize("seed", range(20))
def test_examples_that_fit(write: Write, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        records = [
            encode(rng, random_features(rng, 0)) for _ in range(rng.randrange(1, 9))
        ]
        want = by_tensorflow(records, SPEC)
        assert want is not None, "the generator writes what TensorFlow reads"
        assert by_fastrec(write, records, SPEC) == want


@pytest.mark.parametrize("seed", range(20))
def test_examples_that_may_not_fit(write: Write, seed: int) -> None:
    rng = random.Random(1000 + seed)
    n_refused = 0
    for _ in range(40):
        features = random_features(rng, 1)
        floats = features.get(b"floats")
        if floats and len(floats[1]) > 4:
            continue  # TensorFlow writes past its buffer (docs/semantics.md).
        record = encode(rng, features)
        want = by_tensorflow([record], SPEC)
        n_refused += want is None
        assert by_fastrec(write, [record], SPEC) == want, features
    assert n_refused > 0


@pytest.mark.parametrize("dtype", RAW_DTYPES)
@pytest.mark.parametrize("little_endian", [True, False])
def test_raw_is_parse_example_and_decode_raw(
    write: Write, dtype: str, little_endian: bool
) -> None:
    rng = np.random.default_rng(3)
    shape = (3, 2)
    spec: Spec = {"raw": Raw(shape, dtype, little_endian=little_endian)}
    if dtype == "bool":
        stored = [rng.integers(0, 3, 6, np.uint8).tobytes() for _ in range(5)]
    else:
        stored = [
            (rng.standard_normal(6) * 50).astype(dtype).tobytes() for _ in range(5)
        ]
    records = [example({b"raw": ("bytes", [data])}) for data in stored]
    parsed = tf.io.parse_example(
        tf.constant(records), {"raw": tf.io.FixedLenFeature((), tf.string)}
    )
    decoded = tf.io.decode_raw(
        parsed["raw"], tf.as_dtype(dtype), little_endian=little_endian
    )
    want = decoded.numpy().reshape(-1, *shape)
    got = open_dataset(write(tfrecord_file(records)), features=fastrec_spec(spec))[0:5][
        "raw"
    ]
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
