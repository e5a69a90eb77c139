"""SerializedTensor: byte strings of tf.io.serialize_tensor.

Goal
    Every dtype, stored as memory or as a list of values, is read as the array that was
    serialized. Byte strings that are not tensors, or do not fit the spec, raise.
Method
    Messages written by hand; tests/oracle/test_oracle_tf_specs.py tests TensorFlow's.
"""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from fastrec.compat import tf_io
from oracle import example, tfrecord_file
from oracle_example import delimited, fixed32, fixed64, varint, varint_field

NUMBERS = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}


def header(dtype: int, shape: Sequence[int]) -> bytes:
    dims = b"".join(delimited(2, varint_field(1, size)) for size in shape)
    return varint_field(1, dtype) + delimited(2, dims)


def serialized(array: np.ndarray[Any, Any]) -> bytes:
    start = header(NUMBERS[array.dtype.name], array.shape)
    return start + (delimited(4, array.tobytes()) if array.size else b"")


def parse(tensors: Sequence[bytes], spec: fr.SerializedTensor) -> Untyped:
    records = [example({b"t": ("bytes", [tensor])}) for tensor in tensors]
    return fr.parse_example(records, {"t": spec})["t"]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 1)])
def test_every_dtype_as_memory(dtype: str, shape: tuple[int, ...]) -> None:
    want = np.random.default_rng(0).integers(0, 2, (2, *shape)).astype(dtype)
    tensors = [serialized(np.asarray(array)) for array in want]
    got = parse(tensors, fr.SerializedTensor(shape, dtype))
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert got.tobytes() == want.tobytes()
    for one, array in zip(parse(tensors, fr.SerializedTensor()), want, strict=True):
        assert one.dtype == want.dtype
        assert one.shape == shape
        assert one.tolist() == array.tolist()


LISTS: list[tuple[str, bytes, list[Any]]] = [
    ("float32", fixed32(5, struct.pack("<f", 1.5)) * 2, [1.5, 1.5]),
    ("float32", delimited(5, struct.pack("<ff", 1.5, 2)), [1.5, 2.0]),
    ("float64", fixed64(6, struct.pack("<d", 0.1)) * 2, [0.1, 0.1]),
    ("int32", varint_field(7, -3) + varint_field(7, 4), [-3, 4]),
    ("uint8", delimited(7, varint(0) + varint(255)), [0, 255]),
    (
        "int16",
        delimited(7, varint(-(2**15)) + varint(2**15 - 1)),
        [-(2**15), 2**15 - 1],
    ),
    ("complex64", delimited(9, struct.pack("<4f", 1, 2, 3, 4)), [1 + 2j, 3 + 4j]),
    ("complex128", delimited(12, struct.pack("<4d", 1, 2, 3, 4)), [1 + 2j, 3 + 4j]),
    ("int64", delimited(10, varint(-1) + varint(2**62)), [-1, 2**62]),
    ("bool", delimited(11, b"\x01\x00"), [True, False]),
    ("float16", delimited(13, varint(0x3C00) + varint(0xC000)), [1.0, -2.0]),
    ("uint32", delimited(16, varint(2**32 - 1) + varint(0)), [2**32 - 1, 0]),
    ("uint64", delimited(17, varint(2**64 - 1) + varint(0)), [2**64 - 1, 0]),
]


@pytest.mark.parametrize(("dtype", "values", "want"), LISTS)
def test_every_dtype_as_a_list(dtype: str, values: bytes, want: list[Any]) -> None:
    tensor = header(NUMBERS[dtype], (2,)) + values
    assert parse([tensor], fr.SerializedTensor((2,), dtype)).tolist() == [want]
    # The last value is repeated for missing ones.
    longer = header(NUMBERS[dtype], (2, 2)) + values
    got = parse([longer], fr.SerializedTensor((2, 2), dtype))
    assert got.tolist() == [[want, [want[1]] * 2]]
    none = parse([header(NUMBERS[dtype], (2,))], fr.SerializedTensor((2,), dtype))
    assert none.tolist() == [[0, 0]]


def test_tensors_of_strings() -> None:
    words = [b"a", b"", b"xyz\0"]
    listed = b"".join(delimited(8, word) for word in words)
    tensor = header(7, (3,)) + listed
    got = parse([tensor, tensor], fr.SerializedTensor((3,), "string"))
    assert isinstance(got, fr.BytesArray)
    assert got.tolist() == [words, words]
    several = parse(
        [tensor, header(7, ()) + delimited(8, b"one"), header(7, (2, 2)) + listed],
        fr.SerializedTensor(),
    )
    assert several[0].tolist() == words
    assert several[1] == b"one"
    assert several[2].tolist() == [words[:2], [words[2]] * 2]


def test_tensors_may_differ_without_shape_and_dtype(write: Write) -> None:
    arrays = [np.arange(3, dtype="int16"), np.ones((2, 2)), np.zeros((0, 4), "bool")]
    records = [example({b"t": ("bytes", [serialized(array)])}) for array in arrays]
    ds = open_dataset(
        write(tfrecord_file(records)), features={"t": fr.SerializedTensor()}
    )
    column = ds[0:3]["t"]
    assert (column.dtype, column.shape) == (object, (3,))
    for i, array in enumerate(arrays):
        for got in (column[i], ds[i]["t"]):
            assert (got.dtype, got.shape) == (array.dtype, array.shape)
            assert got.tolist() == array.tolist()
            assert got.flags.writeable or not got.size
    last = list(ds.loader(2, pad_last=True))[-1]
    assert last["t"][1] is None
    both = fr.concat_batches([fr.take_rows(ds[0:3], [1, 0]), ds[0:3]])["t"]
    assert [array.shape for array in both] == [(2, 2), (3,), (3,), (2, 2), (0, 4)]


@pytest.mark.parametrize(
    "tensor",
    [
        b"",
        b"\x0a\xff",
        header(1, (2,)) + delimited(4, bytes(7)),
        header(1, (3,)) + delimited(4, bytes(12)),
        header(9, (2,)) + delimited(4, bytes(16)),
        header(1, (2,)) + delimited(5, bytes(12)),
        header(1, (2,)) + delimited(5, bytes(3)),
        header(1, (-1,)),
        header(1, (2**30, 2**30)),
        varint_field(1, 1) + delimited(2, varint_field(3, 1)),
        header(7, (2,)) + delimited(4, b"ab"),
        header(20, (2,)) + delimited(4, bytes(8)),  # a resource
        header(1, (2,)) + b"\x2d\x00",
    ],
)
def test_records_with_other_tensors_raise(tensor: bytes) -> None:
    good = serialized(np.zeros(2, "float32"))
    with pytest.raises((fr.SchemaError, fr.DecodeError)) as caught:
        parse([good, tensor], fr.SerializedTensor((2,), "float32"))
    assert (caught.value.record, caught.value.feature) == (1, "t")


def test_values_out_of_range_are_errors() -> None:
    for value in (256, -1):
        tensor = header(4, (1,)) + varint_field(7, value)
        with pytest.raises(fr.SchemaError, match=str(value)):
            parse([tensor], fr.SerializedTensor())


def test_no_memory_is_allocated_for_a_number_in_a_record() -> None:
    for dtype in (1, 7):
        tensor = header(dtype, (2**38,))
        with pytest.raises(fr.SchemaError, match="too many values"):
            parse([tensor], fr.SerializedTensor())


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 300), (2, 0), (2, 3, 1)])
def test_arrays_are_serialized_like_tensorflow(
    dtype: str, shape: tuple[int, ...]
) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    tensor = tf_io.serialize_tensor(array)
    if array.size:  # an empty one has an additional field here, without effect
        assert tensor == serialized(array)
    read = parse([tensor], fr.SerializedTensor(shape, dtype))[0]
    assert np.array_equal(read, array)


@pytest.mark.parametrize(
    "strings",
    [
        "h\u00e9",
        b"\0",
        fr.BytesArray.from_list([[b"a", b""], [b"\xff" * 300, b"b"]]),
        np.array(["a", "bc"]),
        np.array([[b"a"], [b"b\0"]], object),
        fr.BytesArray.from_list([]),
    ],
)
def test_strings_round_trip(strings: Any) -> None:
    read = parse([tf_io.serialize_tensor(strings)], fr.SerializedTensor())[0]
    if isinstance(strings, (str, bytes)):
        assert read == (strings.encode() if isinstance(strings, str) else strings)
    else:
        assert read.shape == strings.shape
        assert np.all(read == strings)


TENSORS = {
    "half": fr.SerializedTensor((2, 3), "float16"),
    "text": fr.SerializedTensor((2,), "bytes"),
    "one": fr.SerializedTensor((), "int32"),
    "none": fr.SerializedTensor((0,), "int8"),
}
COLUMNS: dict[str, Any] = {
    "half": np.arange(24, dtype="float16").reshape(4, 2, 3),
    "text": fr.BytesArray.from_list([["a", "b\0"], ["", "c"]] * 2),
    "one": np.arange(-1, 3, dtype="int32"),
    "none": np.zeros((4, 0), "int8"),
}


def test_specs_round_trip(tmp_path: Path) -> None:
    batches, rows = tmp_path / "batches", tmp_path / "rows"
    fr.write(batches, COLUMNS, features=TENSORS)
    with fr.Writer(rows, features=TENSORS) as writer:
        for i in range(4):
            writer.write({name: column[i] for name, column in COLUMNS.items()})
    assert rows.read_bytes() == batches.read_bytes()
    batch: dict[str, Any] = fr.open(batches, features=TENSORS).loader(4).peek()
    for name, column in COLUMNS.items():
        assert np.all(batch[name] == column), name


@pytest.mark.parametrize(
    ("name", "column", "text"),
    [
        ("half", np.zeros((4, 2, 3), "float32"), r"\.astype\('float16'\)"),
        ("half", np.zeros((4, 3, 2), "float16"), r"got \(3, 2\)"),
        ("one", ["a"] * 4, "got bytes"),
        ("text", np.zeros((4, 2), "int32"), "got int32"),
    ],
)
def test_writing_arrays_of_another_kind_raises(
    tmp_path: Path, name: str, column: object, text: str
) -> None:
    with pytest.raises(ValueError, match=f"feature '{name}': .*{text}"):
        fr.write(tmp_path / "a", {**COLUMNS, name: column}, features=TENSORS)
    assert list(tmp_path.iterdir()) == []


def test_tensors_that_differ_are_serialized_by_the_caller(tmp_path: Path) -> None:
    spec = {"t": fr.SerializedTensor()}
    tensors = [np.zeros(2), np.ones((1, 3), "int8")]
    with pytest.raises(TypeError, match=r"tf_io\.serialize_tensor"):
        fr.write(tmp_path / "a", {"t": np.zeros((2, 2))}, features=spec)
    fr.write(
        tmp_path / "a", {"t": list(map(tf_io.serialize_tensor, tensors))}, features=spec
    )
    batch: dict[str, Any] = fr.open(tmp_path / "a", features=spec).loader(2).peek()
    for found, tensor in zip(batch["t"], tensors, strict=True):
        assert found.dtype == tensor.dtype
        assert np.array_equal(found, tensor)


@pytest.mark.parametrize("tensor", [np.zeros(1, "M8[s]"), np.zeros(1, "S2"), {}])
def test_serializing_unsupported_dtypes_raises(tensor: Any) -> None:
    with pytest.raises(TypeError):
        tf_io.serialize_tensor(tensor)


def test_specs_compare_by_value_and_pickle() -> None:
    for spec in (fr.SerializedTensor(), fr.SerializedTensor((2,), "bytes", key="k")):
        assert eval(repr(spec), vars(fr)) == spec
        assert hash(pickle.loads(pickle.dumps(spec))) == hash(spec)
    wrong: list[Any] = [
        ((2,), None),
        (None, "int8"),
        ((2,), "datetime64[s]"),
        ((-1,), "int8"),
    ]
    for shape, dtype in wrong:
        with pytest.raises(fr.SchemaError):
            fr.SerializedTensor(shape, dtype)


@pytest.mark.parametrize(
    ("given", "shape", "expected"),
    [
        ([b"cat"], (1,), [b"cat"]),
        ((b"a\0", b""), (2,), [b"a\0", b""]),
        ([[b"a", b"b\0"], [b"", b"d"]], (2, 2), [[b"a", b"b\0"], [b"", b"d"]]),
        (["cat", "\u00fc\0"], (2,), [b"cat", b"\xc3\xbc\0"]),
        (np.array([b"a\0"], object), (1,), [b"a\0"]),
    ],
)
def test_lists_of_bytes_are_serialized_whole(
    given: Untyped, shape: tuple[int, ...], expected: list[Untyped]
) -> None:
    record = fr.encode_example({"t": tf_io.serialize_tensor(given)})
    batch = fr.parse_example([record], {"t": fr.SerializedTensor(shape, "bytes")})
    assert batch["t"].tolist() == [expected]


def test_arrays_of_dtype_s_raise() -> None:
    with pytest.raises(TypeError, match=r"trailing NUL bytes .*list of bytes"):
        tf_io.serialize_tensor(np.array([b"a\0"]))
