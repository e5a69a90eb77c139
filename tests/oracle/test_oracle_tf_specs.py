"""Every spec against TensorFlow: its own features, given to both, give the same.

Goal
    What tf.io.parse_example, parse_single_example and decode_raw deliver for each of
    TensorFlow's feature classes is what fastrec delivers for the same objects; what they
    refuse, it refuses. Where fastrec is stricter (docs/semantics.md), what it accepts is
    still what TensorFlow delivers.
Method
    Hypothesis draws specs and examples that fit, nearly fit or do not fit. TensorFlow's
    objects go into fastrec as they are. Needs TensorFlow: run with `-m oracle`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastrec as fr
from fastrec.compat import tf_io
from oracle import example
from oracle_tensorflow import (
    DTYPES,
    KINDS,
    REFUSED,
    REFUSED_BY_TENSORFLOW,
    plain,
    tf,
)

pytestmark = pytest.mark.oracle

PARTITIONS = ["RowSplits", "RowLengths", "RowStarts", "RowLimits", "ValueRowIds"]

many = settings(
    max_examples=400, deadline=None, suppress_health_check=list(HealthCheck)
)


def by_tensorflow(records: Any, spec: Mapping[str, Any]) -> Any:
    """Columns, or None where TensorFlow refuses."""
    parse = tf.io.parse_example
    if isinstance(records, bytes):
        parse = tf.io.parse_single_example
    try:
        parsed = parse(tf.constant(records, tf.string), spec)
        found = {}
        for name, feature in spec.items():
            column = parsed[name]
            if isinstance(feature, tf.io.VarLenFeature):
                # Ragged here: the same values, without their indices.
                if isinstance(records, bytes):
                    column = column.values
                else:
                    column = tf.RaggedTensor.from_sparse(column)
            found[name] = plain(column)
    except REFUSED_BY_TENSORFLOW:
        return None
    return found


def by_fastrec(records: Any, spec: Mapping[str, Any]) -> Any:
    """Columns, or None where fastrec refuses."""
    parse: Any = fr.parse_example
    if isinstance(records, bytes):
        parse = tf_io.parse_single_example
    try:
        parsed = parse(records, spec)
    except REFUSED:
        return None
    found = {}
    for name in spec:
        column = parsed[name]
        if isinstance(column, fr.RaggedArray):
            column = fr.RaggedArray(column.values, column.row_splits)  # checks them
        found[name] = plain(column)
    return found


def both_ways(records: list[bytes], spec: Mapping[str, Any]) -> int:
    """Compare a batch and each of its records alone; count what was refused."""
    n_refused = 0
    for given_records in (records, *records):
        want = by_tensorflow(given_records, spec)
        assert by_fastrec(given_records, spec) == want
        n_refused += want is None
    return n_refused


def values_of(kind: str) -> st.SearchStrategy[Any]:
    if kind == "bytes":
        return st.binary(max_size=4)
    if kind == "float":
        return st.floats(width=32, allow_nan=False)
    return st.integers(-(2**63), 2**63 - 1)


@st.composite
def feature_of(
    draw: st.DrawFn, kind: str, n_values: Sequence[int], odd: float = 0.1
) -> Any:
    """A list of a kind, or now and then something else; "" is absent."""
    what = draw(st.floats(0, 1))
    if what < odd:
        other: Any = draw(st.sampled_from(KINDS))
        return other, draw(st.lists(values_of(other), max_size=5))
    if what < odd + 0.15:
        return draw(st.sampled_from([None, ""]))
    n = draw(st.sampled_from(list(n_values)))
    found: Any = (kind, draw(st.lists(values_of(kind), min_size=n, max_size=n)))
    return found


def encoded(features: Mapping[bytes, Any]) -> bytes:
    return example({k: v for k, v in features.items() if v != ""})


@st.composite
def dense_specs(draw: st.DrawFn) -> tuple[str, str, Any, list[int]]:
    """A kind, the name of a feature class, a feature, and counts that nearly fit."""
    kind = draw(st.sampled_from(KINDS))
    name = draw(st.sampled_from(["fixed", "sequence", "varlen", "ragged"]))
    dtype = DTYPES[kind]
    shape = draw(st.sampled_from([(), (1,), (2,), (2, 2)]))
    size = math.prod(shape)
    if name == "varlen":
        return kind, name, tf.io.VarLenFeature(dtype), [0, 1, 3]
    if name == "ragged":
        splits = draw(st.sampled_from([tf.int32, tf.int64]))
        return (
            kind,
            name,
            tf.io.RaggedFeature(dtype, row_splits_dtype=splits),
            [0, 1, 3],
        )
    if name == "sequence":
        default = draw(st.none() | values_of(kind))
        feature = tf.io.FixedLenSequenceFeature(
            shape, dtype, allow_missing=True, default_value=default
        )
        return kind, name, feature, [0, size, 3 * size, size, size + 1]
    default = draw(st.none() | st.lists(values_of(kind), min_size=size, max_size=size))
    if default is not None and shape == ():
        default = default[0]
    elif default is not None:
        default = np.array(default, object).reshape(shape).tolist()
    feature = tf.io.FixedLenFeature(shape, dtype, default)
    return kind, name, feature, [size, size, size, size, size + 1, 0]


@many
@given(data=st.data())
def test_features_of_one_list(data: st.DataObject) -> None:
    n_specs = data.draw(st.integers(1, 3))
    drawn = [data.draw(dense_specs()) for _ in range(n_specs)]
    spec = {f"f{i}": feature for i, (_, _, feature, _) in enumerate(drawn)}
    odd = data.draw(st.sampled_from([0.0, 0.1]))
    records = []
    for _ in range(data.draw(st.integers(0, 4))):
        features = {
            f"f{i}".encode(): data.draw(feature_of(kind, n_values, odd))
            for i, (kind, _, _, n_values) in enumerate(drawn)
        }
        records.append(encoded(features))
    both_ways(records, spec)


# Ragged.


@st.composite
def row_lengths(draw: st.DrawFn, total: int) -> list[int]:
    """Lengths of rows that together have `total` items."""
    if total == 0:
        return draw(st.lists(st.just(0), max_size=2))
    cuts = sorted(draw(st.lists(st.integers(0, total), max_size=4)))
    return [b - a for a, b in itertools.pairwise([0, *cuts, total])]


def partition_values(kind: str, lengths: list[int]) -> list[int]:
    """What a partition of this kind holds for rows of these lengths."""
    ends = list(itertools.accumulate(lengths))
    return {
        "RowSplits": [0, *ends],
        "RowLengths": lengths,
        "RowStarts": [0, *ends][: len(lengths)],
        "RowLimits": ends,
        "ValueRowIds": [i for i, n in enumerate(lengths) for _ in range(n)],
    }[kind]


@st.composite
def ragged_case(draw: st.DrawFn, broken: bool) -> tuple[Any, list[bytes]]:
    """A RaggedFeature, and records whose partitions fit, or nearly."""
    kind = draw(st.sampled_from(KINDS))
    levels = draw(
        st.lists(
            st.sampled_from(PARTITIONS) | st.integers(1, 3), min_size=1, max_size=3
        )
    )
    partitions = [
        tf.io.RaggedFeature.UniformRowLength(level)
        if isinstance(level, int)
        else getattr(tf.io.RaggedFeature, level)(f"p{i}")
        for i, level in enumerate(levels)
    ]
    feature = tf.io.RaggedFeature(
        DTYPES[kind],
        "v",
        partitions,
        draw(st.sampled_from([tf.int32, tf.int64])),
        validate=True,
    )
    records = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.integers(0, 9)) == 0:
            records.append(example({}))
            continue
        block = math.prod(level for level in levels if isinstance(level, int))
        n_items = block * draw(st.integers(0, 3))
        items: Any = draw(st.lists(values_of(kind), min_size=n_items, max_size=n_items))
        features: dict[bytes, Any] = {b"v": (kind, items)}
        total = n_items
        for i in reversed(range(len(levels))):
            level = levels[i]
            if isinstance(level, int):
                total //= level
                continue
            # Rows come in numbers that what is above can divide.
            above = math.prod(x for x in levels[:i] if isinstance(x, int))
            lengths = draw(row_lengths(total))
            lengths += [0] * (-len(lengths) % above)
            numbers = partition_values(level, lengths)
            total = len(lengths)
            if level == "ValueRowIds":
                total = max(numbers, default=-1) + 1
                extra = -total % above
                if extra:  # rows at the end that no item tells of do not exist
                    numbers, total = [n + extra for n in numbers], total + extra
            features[f"p{i}".encode()] = ("int64", numbers)
        if broken:
            key = draw(st.sampled_from(sorted(features)))
            _, values = features[key]
            change = draw(st.sampled_from(["add", "drop", "change", "missing"]))
            if change == "missing":
                features[key] = ""
            elif change == "add":
                new = draw(values_of(kind) if key == b"v" else st.integers(-1, 5))
                features[key] = (features[key][0], [*values, new])
            elif values and change == "drop":
                features[key] = (features[key][0], values[:-1])
            elif values and key != b"v":
                at = draw(st.integers(0, len(values) - 1))
                new = draw(st.integers(-1, 5))
                features[key] = ("int64", [*values[:at], new, *values[at + 1 :]])
        records.append(encoded(features))
    return feature, records


@many
@given(case=ragged_case(broken=False))
def test_ragged_features_that_fit(case: tuple[Any, list[bytes]]) -> None:
    feature, records = case
    want = by_tensorflow(records, {"r": feature})
    assert want is not None
    assert by_fastrec(records, {"r": feature}) == want


@many
@given(case=ragged_case(broken=True))
def test_ragged_features_that_may_not_fit(case: tuple[Any, list[bytes]]) -> None:
    """TensorFlow checks whole batches only: fastrec is stricter, and never laxer."""
    feature, records = case
    got = by_fastrec(records, {"r": feature})
    if got is not None:
        assert got == by_tensorflow(records, {"r": feature})


# Sparse.


@st.composite
def sparse_case(draw: st.DrawFn, broken: bool) -> tuple[Any, list[bytes]]:
    kind = draw(st.sampled_from(KINDS))
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    keys = [f"i{axis}" for axis in range(len(sizes))]
    is_one = len(sizes) == 1 and draw(st.booleans())
    already_sorted = draw(st.booleans())
    feature = tf.io.SparseFeature(
        keys[0] if is_one else keys,
        "v",
        DTYPES[kind],
        sizes[0] if is_one else sizes,
        already_sorted,
    )
    records = []
    for _ in range(draw(st.integers(1, 4))):
        cells = list(itertools.product(*map(range, sizes)))
        chosen = draw(st.lists(st.sampled_from(cells), unique=True, max_size=5))
        if already_sorted:
            chosen.sort()
        n = len(chosen)
        features: dict[bytes, Any] = {
            b"v": (kind, draw(st.lists(values_of(kind), min_size=n, max_size=n)))
        }
        for axis, key in enumerate(keys):
            features[key.encode()] = ("int64", [cell[axis] for cell in chosen])
        if broken:
            wrong = draw(st.sampled_from(sorted(features)))
            new = draw(values_of(kind) if wrong == b"v" else st.integers(-1, 7))
            replaced = draw(
                st.sampled_from(
                    [(features[wrong][0], [*features[wrong][1], new]), "", None]
                )
            )
            features[wrong] = replaced
        records.append(encoded(features))
    return feature, records


@many
@given(case=sparse_case(broken=False))
def test_sparse_features_that_fit(case: tuple[Any, list[bytes]]) -> None:
    feature, records = case
    assert both_ways(records, {"s": feature}) == 0


@many
@given(case=sparse_case(broken=True))
def test_sparse_features_that_may_not_fit(case: tuple[Any, list[bytes]]) -> None:
    """TensorFlow counts whole batches, and no index is too large for it."""
    feature, records = case
    got = by_fastrec(records, {"s": feature})
    if got is not None:
        assert got == by_tensorflow(records, {"s": feature})


# Bytes as numbers.

RAW_DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "bool"]
PADDED_DTYPES = [*RAW_DTYPES[:6], "float32", "float64"]
RAW_DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]


@many
@given(
    strings=st.lists(st.binary(max_size=17), max_size=4)
    | st.integers(0, 3).flatmap(
        lambda n: st.lists(st.binary(min_size=8 * n, max_size=8 * n), max_size=4)
    ),
    dtype=st.sampled_from(RAW_DTYPES),
    little_endian=st.booleans(),
    fixed_length=st.none() | st.integers(1, 20),
)
def test_decode_raw(
    strings: list[bytes], dtype: str, little_endian: bool, fixed_length: int | None
) -> None:
    if fixed_length is not None and dtype not in PADDED_DTYPES:
        dtype = "int32"  # TensorFlow has no kernel for the others
    try:
        want = tf.io.decode_raw(
            tf.constant(strings, tf.string),
            tf.as_dtype(dtype),
            little_endian=little_endian,
            fixed_length=fixed_length,
        ).numpy()
    except REFUSED_BY_TENSORFLOW:
        want = None
    try:
        got = tf_io.decode_raw(
            strings, dtype, little_endian=little_endian, fixed_length=fixed_length
        )
    except ValueError:
        got = None
    if want is None or got is None:
        assert got is None
        assert want is None
        return
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    # TensorFlow keeps the bytes of a bool as they are.
    if dtype == "bool":
        want = want.view(np.uint8) != 0
    assert got.tobytes() == want.tobytes()


def test_ragged_arrays_are_sparse_as_tensorflow_makes_them() -> None:
    nested = [[[1, 2], []], [], [[3], [4, 5, 6], []]]
    for rows in ([[1, 2], [], [3]], nested, [[[[1]], [[2]]], [[[3]]]]):
        want = tf.ragged.constant(rows).to_sparse()
        assert plain(fr.RaggedArray.from_list(rows).to_sparse()) == (
            want.indices.numpy().tolist(),
            ("int64", tuple(want.values.shape), want.values.numpy().tolist()),
            want.dense_shape.numpy().tolist(),
        )


def test_varlen_is_tensorflows_sparse_tensor() -> None:
    records = [example({b"a": ("int64", [1] * n)}) for n in (2, 0, 3)]
    feature = tf.io.VarLenFeature(tf.int64)
    want = tf.io.parse_example(tf.constant(records), {"a": feature})["a"]
    column: Any = fr.parse_example(records, {"a": feature})["a"]
    got = column.to_sparse()
    assert plain(got) == plain(want)


# Tensors.

TENSOR_DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]
TENSOR_DTYPES += ["uint64", "float16", "float32", "float64", "complex64", "complex128"]


def parsed_tensors(tensors: list[bytes], spec: fr.SerializedTensor) -> Any:
    records = [example({b"t": ("bytes", [tensor])}) for tensor in tensors]
    return fr.parse_example(records, {"t": spec})["t"]


@many
@given(
    dtype=st.sampled_from(TENSOR_DTYPES),
    shape=st.lists(st.integers(0, 3), max_size=3),
    numbers=st.lists(st.integers(0, 1), min_size=27, max_size=27) | st.just([1] * 27),
    as_list=st.booleans(),
)
def test_serialized_tensors(
    dtype: str, shape: list[int], numbers: list[int], as_list: bool
) -> None:
    array = np.array(numbers[: math.prod(shape)], dtype).reshape(shape) * 1
    array = array.astype(dtype)
    if as_list:
        # A Python list is stored as a list of values, cut where the last ones repeat.
        message = tf.make_tensor_proto(array.tolist(), dtype, shape)
        tensor = message.SerializeToString()
    else:
        tensor = tf.io.serialize_tensor(array).numpy()
    want = tf.io.parse_tensor(tensor, dtype).numpy()
    assert want.tolist() == array.tolist()
    got = parsed_tensors([tensor, tensor], fr.SerializedTensor(shape, dtype))
    assert plain(got[1]) == plain(want)
    assert plain(parsed_tensors([tensor], fr.SerializedTensor())[0]) == plain(want)


@many
@given(
    strings=st.lists(st.binary(max_size=4), max_size=4)
    | st.binary(max_size=3).map(lambda one: [one] * 6)
)
def test_serialized_tensors_of_strings(strings: list[bytes]) -> None:
    for tensor in (
        tf.io.serialize_tensor(tf.constant(strings, tf.string)).numpy(),
        tf.make_tensor_proto(strings, tf.string, [len(strings)]).SerializeToString(),
    ):
        assert tf.io.parse_tensor(tensor, tf.string).numpy().tolist() == strings
        spec = fr.SerializedTensor((len(strings),), "bytes")
        assert parsed_tensors([tensor], spec).tolist() == [strings]


def test_bfloat16_comes_as_its_bits_or_as_itself() -> None:
    numbers = tf.constant([1.0, -2.5], tf.bfloat16)
    (got,) = parsed_tensors(
        [tf.io.serialize_tensor(numbers).numpy()], fr.SerializedTensor()
    )
    assert got.view(np.uint16).tolist() == numbers.numpy().view(np.uint16).tolist()


def test_parse_tensor_returns_what_tensorflow_returns() -> None:
    shapes: list[tuple[int, ...]] = [(), (3,), (2, 0), (2, 2)]
    names = ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16"]
    names += ["bfloat16", "float32", "float64", "complex64", "complex128", "string"]
    for name in names:
        dtype = tf.as_dtype(name)
        for shape in shapes:
            array = np.arange(math.prod(shape)).reshape(shape)
            tensor = tf.as_string(array) if name == "string" else tf.cast(array, dtype)
            serialized = tf.io.serialize_tensor(tensor).numpy()
            wanted = np.asarray(tf.io.parse_tensor(serialized, dtype).numpy(), object)
            for found in (
                tf_io.parse_tensor(serialized),
                tf_io.parse_tensor(serialized, name),
                tf_io.parse_tensor(serialized, dtype),
            ):
                assert found.shape == wanted.shape
                assert found.tolist() == wanted.tolist(), (name, shape)
                if name != "string":
                    assert found.dtype == dtype.as_numpy_dtype
            ours = tf_io.serialize_tensor(tensor.numpy())
            again = tf.io.parse_tensor(ours, dtype)
            assert np.array_equal(np.asarray(again.numpy(), object), wanted)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.parse_tensor(serialized, tf.float32)
    with pytest.raises(fr.SchemaError):
        tf_io.parse_tensor(serialized, tf.float32)
