"""Specs: FixedLen, VarLen and Raw, and errors of records that do not fit.

Goal
    Counts, kinds, defaults, dtypes and byte order are exactly those of the spec. A
    record that does not fit raises an error with feature, file, record, byte and a
    hint; an invalid spec raises at construction.
Method
    Small records written by the oracle; NumPy for the dtypes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, assert_same, cell, fastrec_spec, open_dataset, rows
from oracle import Features, Fixed, Kind, Raw, Spec, Var, decode, example, tfrecord_file

INT_DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
RAW_DTYPES = [*INT_DTYPES, "float16", "float32", "float64", "complex64", "complex128"]


def column(write: Write, records: list[Features], feature: Any) -> Any:
    """Return column "a" of a batch of these records."""
    path = write(tfrecord_file(example(features) for features in records))
    return open_dataset(path, features={"a": feature})[0 : len(records)]["a"]


def a(kind: Any, *values: Any) -> Features:
    return {b"a": (kind, values)}


# Columns.


def test_shape_1_adds_an_axis_and_a_scalar_does_not(write: Write) -> None:
    records = [a("int64", 3), a("int64", 4)]
    assert column(write, records, fr.FixedLen((), "int64")).shape == (2,)
    assert column(write, records, fr.FixedLen((1,), "int64")).shape == (2, 1)
    assert column(write, records, fr.VarLen("int64")).row_splits.tolist() == [0, 1, 2]


def test_shapes_are_row_major(write: Write) -> None:
    got = column(write, [a("int64", *range(6))], fr.FixedLen((2, 3), "int64"))
    assert got.tolist() == [[[0, 1, 2], [3, 4, 5]]]


def test_byte_strings_are_bytes_arrays(write: Write) -> None:
    records = [a("bytes", b"ab\0\0", b"", b"c\0"), a("bytes", b"1", b"22", b"333")]
    got = column(write, records, fr.FixedLen((3,), "bytes"))
    assert isinstance(got, fr.BytesArray)
    assert tuple(got.shape) == (2, 3)
    assert got.tolist() == [[b"ab\0\0", b"", b"c\0"], [b"1", b"22", b"333"]]
    assert np.asarray(got, dtype=object).tolist() == got.tolist()
    one = column(write, records, fr.VarLen("bytes"))
    assert type(one) is fr.RaggedArray
    values: Untyped = one.values
    assert values.tolist() == [b"ab\0\0", b"", b"c\0", b"1", b"22", b"333"]
    assert one[1].tolist() == [b"1", b"22", b"333"]
    assert one.tolist() == [[b"ab\0\0", b"", b"c\0"], [b"1", b"22", b"333"]]


def test_string_is_an_alias_of_bytes(write: Write) -> None:
    assert column(write, [a("bytes", b"x")], fr.FixedLen((), "string"))[0] == b"x"


def test_batches_are_dicts_in_the_order_of_the_specs(write: Write) -> None:
    record = example({b"b": ("int64", [1]), b"a": ("int64", [2]), b"c": ("int64", [3])})
    names = ["c", "a", "b"]
    spec = {name: fr.FixedLen((), "int64") for name in names}
    ds = open_dataset(write(tfrecord_file([record])), features=spec)
    for batch in (ds[0:1], ds[[0]], ds[0], *ds.loader(1)):
        assert isinstance(batch, dict)
        assert list(batch) == names


def test_single_rows_hold_numpy_scalars_of_the_columns_dtype(write: Write) -> None:
    path = write(tfrecord_file([example(a("int64", 7))]))
    row = open_dataset(path, features={"a": fr.FixedLen((), "uint8")})[0]
    assert isinstance(row["a"], np.uint8)
    assert row["a"] == 7


def test_dense_columns_are_aligned_contiguous_and_writable(write: Write) -> None:
    records = [a("int64", *range(3))] * 5
    got = column(write, records, fr.FixedLen((3,), "int16"))
    assert got.flags.c_contiguous
    assert got.flags.writeable
    assert got.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("int64", dtype) for dtype in INT_DTYPES]
    + [("float", dtype) for dtype in ("float16", "float32", "float64")],
)
def test_every_numeric_dtype_fixed_and_varlen(
    write: Write, kind: Kind, dtype: str
) -> None:
    numbers = (
        [0, 1, 100, 127, 17] if kind == "int64" else [0.0, -0.0, 1.5, 65504.0, 1e-7]
    )
    for want in (Fixed(dtype, (5,)), Var(dtype), Var(dtype, (5,))):
        spec: Spec = {"a": want}
        record = example(a(kind, *numbers))
        ds = open_dataset(
            write(tfrecord_file([record] * 2)), features=fastrec_spec(spec)
        )
        for row in rows(ds[0:2]):
            assert_same(row, decode(record, spec))


def test_floats_too_large_for_float16_are_infinite_as_in_numpy(write: Write) -> None:
    got = column(write, [a("float", 1e6, -1e6, 65519.0)], fr.FixedLen((3,), "float16"))
    assert got.tolist() == [[np.inf, -np.inf, 65504.0]]


# Counts, kinds, missing and empty.


@pytest.mark.parametrize("n_values", [0, 1, 2, 4, 5, 100])
@pytest.mark.parametrize("kind", ["int64", "float", "bytes"])
def test_a_count_other_than_the_shape_is_an_error(
    write: Write,
    n_values: int,
    kind: Kind,
) -> None:
    """Values are not padded or truncated, and the default does not apply."""
    value = b"x" if kind == "bytes" else 1
    dtype = "float32" if kind == "float" else kind
    good = a(kind, *[value] * 3)
    for default in (None, [value] * 3):
        feature = fr.FixedLen((3,), dtype, default=default)
        with pytest.raises(fr.SchemaError, match=r"\ba\b") as caught:
            column(write, [good, a(kind, *[value] * n_values)], feature)
        assert caught.value.record == 1
        assert str(n_values) in caught.value.reason
        assert "3" in caught.value.reason


@pytest.mark.parametrize("values", [0, 2])
def test_a_scalar_has_exactly_one_value(write: Write, values: int) -> None:
    with pytest.raises(fr.SchemaError, match=r"\ba\b"):
        column(write, [a("int64", *range(values))], fr.FixedLen((), "int64"))


@pytest.mark.parametrize("kind", ["int64", "float", "bytes"])
@pytest.mark.parametrize(
    "dtype", ["int64", "float32", "bytes", "uint8", "bool", "float64"]
)
@pytest.mark.parametrize("n_values", [0, 1])
def test_a_kind_other_than_the_dtype_is_an_error(
    write: Write,
    kind: Kind,
    dtype: str,
    n_values: int,
) -> None:
    """Ints and floats are not converted; an empty list also has a kind."""
    fits = {"float": ("float32", "float64"), "bytes": ("bytes",)}
    value = b"x" if kind == "bytes" else 1
    record = a(kind, *[value] * n_values)
    if dtype in fits.get(kind, ("int64", "uint8", "bool")):
        assert len(column(write, [record], fr.VarLen(dtype))) == 1
        return
    for feature in (fr.VarLen(dtype), fr.FixedLen((n_values,), dtype)):
        with pytest.raises(fr.SchemaError, match=r"\ba\b") as caught:
            column(write, [record], feature)
        assert kind in caught.value.reason


@pytest.mark.parametrize("missing", [{}, {b"a": None}, {b"b": ("int64", [1])}])
def test_a_missing_feature_is_its_default_or_an_error(
    write: Write, missing: Features
) -> None:
    fixed = fr.FixedLen((), "int64", default=-3)
    assert column(write, [missing, a("int64", 1)], fixed).tolist() == [-3, 1]
    assert column(write, [missing, a("int64", 1)], fr.VarLen("int64")).tolist() == [
        [],
        [1],
    ]
    with pytest.raises(fr.SchemaError, match="default") as caught:
        column(write, [a("int64", 1), missing], fr.FixedLen((), "int64"))
    assert caught.value.record == 1
    assert caught.value.feature == "a"


@pytest.mark.parametrize(
    ("shape", "dtype", "default", "want"),
    [
        ((), "int64", 5, 5),
        ((), "int64", [5], 5),
        ((), "int8", np.int8(-5), -5),
        ((), "bool", True, True),
        ((), "float32", 2, 2.0),
        ((), "float64", 0.1, 0.1),
        ((), "bytes", b"\0", b"\0"),
        ((), "bytes", "caf\u00e9", "caf\u00e9".encode()),
        ((2,), "int64", [[1], [2]], [1, 2]),
        ((2, 2), "int64", [1, 2, 3, 4], [[1, 2], [3, 4]]),
        ((2,), "float32", np.array([1.0, -0.0]), [1.0, -0.0]),
        ((2,), "bytes", [b"a", b""], [b"a", b""]),
        ((1,), "bytes", [b"ab\0"], [b"ab\0"]),
    ],
)
def test_defaults_take_the_shape_of_the_feature(
    write: Write,
    shape: tuple[int, ...],
    dtype: str,
    default: object,
    want: object,
) -> None:
    got = column(write, [{}, {}], fr.FixedLen(shape, dtype, default=default))
    assert got.tolist() == [want, want]
    if dtype != "bytes":
        assert got.dtype == np.dtype(dtype)


def test_the_default_of_minus_zero_keeps_its_sign(write: Write) -> None:
    column(write, [{}], fr.FixedLen((), "float32", default=0.0))
    got = column(write, [{}], fr.FixedLen((), "float32", default=-0.0))
    assert np.signbit(got).tolist() == [True]


def test_shape_0_accepts_an_empty_list_but_not_a_missing_one(write: Write) -> None:
    assert column(write, [a("int64")], fr.FixedLen((0,), "int64")).shape == (1, 0)
    with pytest.raises(fr.SchemaError, match=r"\ba\b"):
        column(write, [{}], fr.FixedLen((0,), "int64"))


def test_varlen_with_a_shape_requires_whole_items(write: Write) -> None:
    feature = fr.VarLen("int64", (2,))
    got = column(write, [a("int64", 1, 2, 3, 4), {}, a("int64", 5, 6)], feature)
    assert got.values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert got.row_splits.tolist() == [0, 2, 2, 3]
    with pytest.raises(fr.SchemaError, match="3"):
        column(write, [a("int64", 1, 2, 3)], feature)


# Integers out of range.


@pytest.mark.parametrize("dtype", [*INT_DTYPES, "bool"])
def test_integers_out_of_range_raise_and_never_wrap(write: Write, dtype: str) -> None:
    low, high = (
        (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    )
    low, high = max(int(low), -(2**63)), min(int(high), 2**63 - 1)
    got = column(write, [a("int64", low, high)], fr.FixedLen((2,), dtype))
    assert got.dtype == np.dtype(dtype)
    assert got.tolist() == [[low, high]]
    for value in (low - 1, high + 1, high + 2, -(2**63), 2**63 - 1, 2**32 + low, 256):
        if low <= value <= high or not -(2**63) <= value < 2**63:
            continue
        for feature in (fr.FixedLen((), dtype), fr.VarLen(dtype)):
            with pytest.raises(fr.SchemaError, match=str(value)) as caught:
                column(write, [a("int64", low), a("int64", value)], feature)
            assert dtype in caught.value.reason
            assert caught.value.record == 1


# Raw.


@pytest.mark.parametrize("dtype", RAW_DTYPES)
@pytest.mark.parametrize("little_endian", [True, False])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (70_000,)])
def test_raw_is_the_memory_of_an_array(
    write: Write, dtype: str, little_endian: bool, shape: tuple[int, ...]
) -> None:
    want = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    stored = want.astype(
        want.dtype.newbyteorder("<" if little_endian else ">")
    ).tobytes()
    feature = fr.Raw(shape, dtype, little_endian=little_endian)
    got = column(write, [a("bytes", stored)] * 2, feature)
    assert got.dtype == want.dtype
    assert got.dtype.isnative
    assert got.shape == (2, *shape)
    np.testing.assert_array_equal(got, np.stack([want, want]))


def test_raw_keeps_every_bit_of_a_float(write: Write) -> None:
    bits = np.array([0x7FA00001, 0xFFFFFFFF, 0x80000000, 1], "<u4")
    for order in ("<", ">"):
        stored = bits.astype(f"{order}u4").tobytes()
        feature = fr.Raw((4,), "float32", little_endian=order == "<")
        got = column(write, [a("bytes", stored)], feature)
        assert got.view(np.uint32).tolist() == [bits.tolist()]


def test_raw_bools_are_true_for_nonzero_bytes(write: Write) -> None:
    got = column(write, [a("bytes", b"\x00\x01\x02\xff")], fr.Raw((4,), "bool"))
    assert got.view(np.uint8).tolist() == [[0, 1, 1, 1]]


@pytest.mark.parametrize("size", [0, 1, 3, 5, 8, 400])
def test_raw_of_another_size_is_an_error(write: Write, size: int) -> None:
    with pytest.raises(fr.SchemaError, match=r"\ba\b") as caught:
        column(
            write, [a("bytes", b"good"), a("bytes", bytes(size))], fr.Raw((4,), "uint8")
        )
    assert str(size) in caught.value.reason
    assert "4" in caught.value.reason
    assert caught.value.record == 1


@pytest.mark.parametrize(
    "features",
    [
        a("bytes"),
        a("bytes", b"good", b"good"),
        a("int64", 4),
        a("float", 1.0),
        {},
        {b"a": None},
    ],
)
def test_raw_is_one_byte_string(write: Write, features: Features) -> None:
    with pytest.raises(fr.SchemaError, match=r"\ba\b"):
        column(write, [features], fr.Raw((4,), "uint8"))


def test_raw_has_a_default(write: Write) -> None:
    default = np.array([[1, 2], [3, 4]], np.uint16)
    want = Raw((2, 2), "uint16", default=default)
    record = example({})
    ds = open_dataset(
        write(tfrecord_file([record])), features=fastrec_spec({"a": want})
    )
    assert_same({"a": cell(ds[0]["a"])}, decode(record, {"a": want}))
    big_endian = fr.Raw((2, 2), "uint16", little_endian=False, default=default)
    assert column(write, [{}], big_endian).tolist() == [default.tolist()]


# Invalid specs.


@pytest.mark.parametrize(
    "make",
    [
        lambda: fr.FixedLen((-1,), "int64"),
        lambda: fr.FixedLen((None,), "int64"),  # type: ignore[arg-type]
        lambda: fr.FixedLen((), "nonsense"),
        lambda: fr.FixedLen((), "complex64"),
        lambda: fr.FixedLen((2,), "int64", default=5),
        lambda: fr.FixedLen((2,), "int64", default=[1, 2, 3]),
        lambda: fr.FixedLen((), "int64", default=[1, 2]),
        lambda: fr.FixedLen((), "int64", default=1.5),
        lambda: fr.FixedLen((), "int64", default=b"x"),
        lambda: fr.FixedLen((), "int8", default=128),
        lambda: fr.FixedLen((), "bool", default=2),
        lambda: fr.FixedLen((), "float32", default="x"),
        lambda: fr.FixedLen((), "bytes", default=3),
        lambda: fr.VarLen("nonsense"),
        lambda: fr.VarLen("int64", (-2,)),
        lambda: fr.VarLen("int64", (0,)),
        lambda: fr.Raw((2,), "bytes"),
        lambda: fr.Raw((2,), "object"),
        lambda: fr.Raw((-1,), "uint8"),
        lambda: fr.Raw((2,), "uint8", default=[1, 2, 3]),
        lambda: fr.Raw((2,), "uint8", default=[1, 256]),
    ],
)
def test_invalid_specs_raise_at_construction(
    make: Callable[[], object],
) -> None:
    with pytest.raises(fr.SchemaError) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert caught.value.reason


@pytest.mark.parametrize("features", [{"a": int}, {"a": 3}, {3: fr.VarLen("int64")}])
def test_features_that_are_not_specs_raise_at_open(
    write: Write,
    features: Any,
) -> None:
    with pytest.raises((fr.SchemaError, TypeError)):
        open_dataset(write(b""), features=features)


def test_specs_compare_by_value() -> None:
    assert fr.FixedLen((2,), "int64") == fr.FixedLen((2,), "int64")
    assert fr.FixedLen((2,), "int64") != fr.FixedLen((2,), "int32")
    assert fr.VarLen("int64") != fr.VarLen("int64", (2,))
    assert fr.Raw((2,), "uint8") == fr.Raw((2,), "uint8", little_endian=True)


# Errors.


@pytest.mark.parametrize(
    ("features", "feature", "says"),
    [
        (a("float", 1.0), fr.FixedLen((), "int64"), ("float", "int64")),
        (a("int64", 1, 2), fr.FixedLen((), "int64"), ("2", "VarLen")),
        ({}, fr.FixedLen((), "int64"), ("default",)),
        (a("int64", 300), fr.FixedLen((), "uint8"), ("300", "uint8")),
        (a("bytes", b"abc"), fr.Raw((2,), "uint16"), ("3", "4")),
    ],
)
def test_an_error_contains_feature_file_record_byte_and_a_hint(
    write: Write,
    features: Features,
    feature: Any,
    says: tuple[str, ...],
) -> None:
    good = example({})
    path = write(
        tfrecord_file([good, good, example({**features, b"z": ("int64", [1])})])
    )
    ds = open_dataset(path, features={"a": feature})
    for index in (2, slice(2, 3), [2]):
        with pytest.raises(fr.SchemaError) as caught:
            ds[index]
        error, text = caught.value, str(caught.value)
        assert (error.path, error.record, error.feature) == (str(path), 2, "a")
        assert error.offset is not None
        assert 32 <= error.offset < path.stat().st_size
        for part in (path.name, "record 2", f"byte {error.offset}", "'a'", *says):
            assert part in text, part
        assert error.reason in text


def test_messages_never_quote_a_payload(write: Write) -> None:
    secret = b"correct horse battery staple"
    records = [a("bytes", secret), a("bytes", secret, secret)]
    for features in records:
        for feature in (
            fr.FixedLen((), "int64"),
            fr.Raw((3,), "uint8"),
            fr.VarLen("float32"),
        ):
            with pytest.raises(fr.SchemaError) as caught:
                column(write, [features], feature)
            assert "horse" not in str(caught.value)


@pytest.mark.parametrize(
    "dtype",
    ["V4", "S5", "U3", "datetime64[s]", "complex64", [("a", "<i4"), ("b", "<f4")]],
    ids=str,
)
def test_raw_takes_any_dtype_of_a_fixed_size(write: Write, dtype: Any) -> None:
    size = 3 * np.dtype(dtype).itemsize
    memory = bytes(range(97, 97 + size))
    if np.dtype(dtype).kind == "U":
        memory = np.array(["abc", "d", ""], dtype).tobytes()
    spec = fr.Raw((3,), dtype)
    assert eval(repr(spec), {"Raw": fr.Raw}) == spec
    assert hash(pickle.loads(pickle.dumps(spec))) == hash(spec)
    ds = open_dataset(
        write(tfrecord_file([example({b"x": ("bytes", [memory])})])),
        features={"x": spec},
    )
    column = ds[0:1]["x"]
    assert column.dtype == np.dtype(dtype)
    assert column.tobytes() == memory


def test_a_shape_may_have_the_maximum_number_of_axes_of_numpy(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    fr.write(path, {"a": np.arange(3)})
    axes = 31  # NumPy 1.26 has 32, one of them for the rows
    ds = fr.open(path, features={"a": fr.FixedLen((1,) * axes, "int64")})
    (batch,) = ds.loader(3, num_threads=0)
    assert batch["a"].shape == (3, *(1,) * axes)
    ds = fr.open(path, features={"a": fr.FixedLen((1,) * 65, "int64")})
    with pytest.raises(ValueError, match="at most 64 axes, got 65"):
        next(iter(ds.loader(3)))
