"""Parsing of records in memory, and specs of other libraries.

Goal
    Records in memory, in any container, are parsed like the same records in a file; an
    error names the index of the record. tf.io's features, dtype names and lists of
    names are accepted as specs.
Method
    Files with the same records; classes that look like tf.io's (tests marked "oracle"
    use the real ones).
"""

from __future__ import annotations

import pickle
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset, snapshot
from fastrec import _core
from fastrec.compat import tf_io
from oracle import example, tfrecord_file
from oracle_example import delimited, entry, sequence

SPEC = {
    "label": fr.FixedLen((), "int16", default=-1),
    "words": fr.VarLen("bytes"),
    "padded": fr.FixedLenSequence((), "float32", lengths="n", key="floats"),
}
RECORDS = [
    example({b"label": ("int64", [3]), b"words": ("bytes", [b"a", b""])}),
    example({}),
    example({b"floats": ("float", [1.0, 2.5]), b"words": ("bytes", [b"xyz"])}),
]


@pytest.mark.parametrize(
    "held",
    [
        list,
        tuple,
        fr.BytesArray.from_list,
        lambda records: fr.BytesArray.from_list([b"?", *records])[1:],
        lambda records: np.array(records, object),
        lambda records: [memoryview(record) for record in records],
        lambda records: [bytearray(record) for record in records],
    ],
)
def test_records_in_memory_are_parsed_like_a_file(
    write: Write, held: Callable[[list[bytes]], Any]
) -> None:
    ds = open_dataset(write(tfrecord_file(RECORDS)), features=SPEC)
    for features in (SPEC, fr.Schema(SPEC)):
        batch = fr.parse_example(held(RECORDS), features)
        assert list(batch) == ["label", "words", "padded", "n"]
        assert snapshot([batch]) == snapshot([ds[0:3]])
    for i, record in enumerate(RECORDS):
        row: Untyped = tf_io.parse_single_example(record, SPEC)
        assert repr(row) == repr(ds[i])


class Created(Sequence[bytes]):
    """Records that no other object holds."""

    def __len__(self) -> int:
        return len(RECORDS)

    def __getitem__(self, i: Any) -> Any:
        return bytes(bytearray(RECORDS[i]))


def test_the_core_holds_the_records_that_it_parses() -> None:
    pool = _core.BlockPool(1 << 20)
    for _ in range(20):
        batch: Any = _core.parse_examples(fr.Schema(SPEC)._bind(), pool, Created())
        assert snapshot([batch]) == snapshot([fr.parse_example(RECORDS, SPEC)])


def test_no_records_are_an_empty_batch() -> None:
    batch = fr.parse_example([], SPEC)
    assert [len(column) for column in batch.values()] == [0, 0, 0, 0]


def test_errors_contain_the_index_of_the_record() -> None:
    records = [RECORDS[0], example({b"label": ("int64", [1, 2])})]
    with pytest.raises(fr.SchemaError, match="- at record 1, byte") as caught:
        fr.parse_example(records, SPEC)
    assert (caught.value.path, caught.value.record) == (None, 1)
    assert caught.value.feature == "label"
    with pytest.raises(fr.DecodeError) as damaged:
        fr.parse_example([RECORDS[0], b"\x0a\xff"], SPEC)
    assert str(pickle.loads(pickle.dumps(damaged.value))) == str(damaged.value)


@pytest.mark.parametrize(
    "serialized", [b"", "text", 3, None, np.zeros(3), np.array([[b""]], object), [1]]
)
def test_invalid_containers_of_records_raise(serialized: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        fr.parse_example(serialized, SPEC)


def test_one_record_must_be_bytes() -> None:
    wrongs: list[Any] = [[b""], "", None]
    for wrong in wrongs:
        for parse in (fr.decode_example, lambda b: tf_io.parse_single_example(b, SPEC)):
            with pytest.raises(TypeError):
                parse(wrong)


def test_decode_example_returns_all_features() -> None:
    record = example(
        {
            b"i": ("int64", [3, -1]),
            b"f": ("float", [0.5]),
            b"b": ("bytes", [b"x"]),
            b"e": ("int64", []),
            b"none": None,
            b"\xff": ("int64", [1]),
        }
    )
    found = fr.decode_example(record)
    assert list(found) == ["b", "e", "f", "i", "none", b"\xff"]
    assert found["i"].tolist() == [3, -1]
    assert (found["i"].dtype, found["f"].dtype) == (np.int64, np.float32)
    assert found["b"].tolist() == [b"x"]
    assert (found["e"].shape, found["none"]) == ((0,), None)
    assert fr.decode_example(b"") == {}
    with pytest.raises(fr.DecodeError):
        fr.decode_example(b"\xff")


# decode_raw.


def test_decode_raw_adds_an_axis() -> None:
    strings = [b"\x01\x00\x02\x00", b"\x03\x00\x04\x00"]
    want = np.array([[1, 2], [3, 4]], np.uint16)
    array = fr.BytesArray.from_list(strings)
    for values in (strings, array, np.array(strings, object)):
        got = tf_io.decode_raw(values, "uint16")
        assert (got.dtype, got.tolist()) == (want.dtype, want.tolist())
        assert got.flags.writeable
    assert tf_io.decode_raw(strings[0], "uint16").tolist() == [1, 2]
    assert tf_io.decode_raw(strings[0], "uint16", little_endian=False).tolist() == [
        256,
        512,
    ]
    nested = fr.BytesArray.from_list([strings, strings])
    assert tf_io.decode_raw(nested, "uint8").shape == (2, 2, 4)
    assert tf_io.decode_raw(
        [b"\x05", b"", b"123"], "uint8", fixed_length=2
    ).tolist() == [
        [5, 0],
        [0, 0],
        [49, 50],
    ]


@pytest.mark.parametrize(
    ("values", "dtype", "options"),
    [
        ([b"a", b"ab"], "uint8", {}),
        ([b"abc"], "uint16", {}),
        ([b"ab"], "uint16", {"fixed_length": 3}),
        ([b"ab"], "uint16", {"fixed_length": 0}),
        ([b"ab"], "object", {}),
        ([b"ab"], "S", {}),
        ([b"ab"], "nonsense", {}),
        ("ab", "uint8", {}),
        ([3], "uint8", {}),
    ],
)
def test_decode_raw_validates_its_arguments(
    values: Any,
    dtype: str,
    options: Any,
) -> None:
    with pytest.raises((TypeError, ValueError)):
        tf_io.decode_raw(values, dtype, **options)


# read_records.


@pytest.mark.parametrize("num_threads", [None, 0, 2])
def test_records_of_any_message_are_read(write: Write, num_threads: int) -> None:
    records = [bytes([n]) * n for n in range(200)]
    paths = [write(tfrecord_file(records[:150])), write(tfrecord_file(records[150:]))]
    assert list(fr.read_records(paths, num_threads=num_threads)) == records
    batches = list(fr.read_records(paths, batch_size=64, num_threads=num_threads))
    assert [len(batch) for batch in batches] == [64, 64, 64, 8]
    assert [record for batch in batches for record in batch] == records
    with pytest.raises(ValueError, match="batch_size"):
        fr.read_records(paths, batch_size=0)


@pytest.mark.parametrize("n_good", [0, 1, 63, 64, 100])
def test_records_before_damage_are_delivered(write: Write, n_good: int) -> None:
    records = [b"%d" % n for n in range(120)]
    data = bytearray(tfrecord_file(records))
    at = len(tfrecord_file(records[:n_good])) + 12
    data[at] ^= 1
    path = write(bytes(data))
    for batch_size in (None, 32):
        found: list[bytes] = []

        def read(size: Any, found: list[bytes] = found) -> None:
            for item in fr.read_records(path, batch_size=size):
                found.extend(item if size else [item])

        with pytest.raises(fr.CorruptionError) as caught:
            read(batch_size)
        assert found == records[:n_good]
        assert caught.value.record == n_good


def test_dropping_an_iterator_ends_its_threads(
    write: Write, threads_end: Callable[[], None]
) -> None:
    path = write(tfrecord_file([b"x" * 1000] * 5000))
    records = fr.read_records(path, num_threads=2)
    next(records)
    del records
    threads_end()


# Specs of other libraries.

FixedLenFeature = namedtuple("FixedLenFeature", ["shape", "dtype", "default_value"])  # noqa: PYI024
VarLenFeature = namedtuple("VarLenFeature", ["dtype"])  # noqa: PYI024


class Unlike:
    pass


Unlike.__name__ = "SparseFeature"


def test_features_are_recognised_by_class_name() -> None:
    schema = fr.Schema(
        {
            "a": FixedLenFeature([2], np.dtype("int64"), [1, 2]),
            "b": VarLenFeature(np.float32),
            "c": "uint8",
            "d": "bytes",
        }
    )
    assert dict(schema) == {
        "a": fr.FixedLen((2,), "int64", default=[1, 2]),
        "b": fr.VarLen("float32"),
        "c": fr.FixedLen((), "uint8"),
        "d": fr.FixedLen((), "bytes"),
    }


@pytest.mark.parametrize(
    "feature", [Unlike(), "nonsense", FixedLenFeature([None], "int64", None), int, None]
)
def test_unknown_specs_raise_with_the_feature_name(feature: object) -> None:
    with pytest.raises(fr.SchemaError, match="'a'"):
        fr.Schema({"a": feature})


def test_a_list_of_names_is_inferred(write: Write) -> None:
    records = [
        example(
            {
                b"x": ("int64", [n]),
                b"y": ("float", [1.0] * n),
                b"mixed": ("int64" if n else "float", [1]),
            }
        )
        for n in range(3)
    ]
    path = write(tfrecord_file(records))
    ds = open_dataset(path, features=["y", "x"])
    assert dict(ds.schema) == {"y": fr.VarLen("float32"), "x": fr.FixedLen((), "int64")}
    assert list(ds[0:1]) == ["y", "x"]
    assert list(pickle.loads(pickle.dumps(ds)).with_features(["x"])[0]) == ["x"]
    joined: Untyped = fr.concat(
        [ds.select_columns(["x"]), open_dataset(path, features=["x"])]
    )
    assert joined[0:6]["x"].tolist() == [0, 1, 2, 0, 1, 2]
    with pytest.raises(fr.SchemaError, match=r"'z'.*'mixed', 'x', 'y'"):
        open_dataset(path, features=["z"])[0]
    for wrong in ([], ["x", "x"], [3], "x"):
        with pytest.raises(fr.SchemaError):
            open_dataset(path, features=wrong)
    with pytest.raises(fr.SchemaError):
        fr.parse_example(records, ["x"])  # type: ignore[arg-type]


# Whole SequenceExamples, and tensors.


def test_decode_sequence_example_returns_everything() -> None:
    record = sequence(
        {b"i": ("int64", [3]), b"none": None, b"\xff": ("float", [0.5])},
        {
            b"mixed": [("int64", [1, 2]), None, ("float", [1.5]), ("int64", [])],
            b"words": [("bytes", [b"a", b""])],
            b"empty": [],
        },
    )
    for held in (record, bytearray(record), memoryview(record)):
        context, sequences = fr.decode_sequence_example(held)  # type: ignore[arg-type]
        assert list(context) == ["i", "none", b"\xff"]
        assert (context["i"].tolist(), context["none"]) == ([3], None)
        assert list(sequences) == ["empty", "mixed", "words"]
        assert sequences["empty"] == []
        first, unset, other, last = sequences["mixed"]
        assert (first.tolist(), unset, other.tolist()) == ([1, 2], None, [1.5])
        assert (first.dtype, other.dtype, last.shape) == (np.int64, np.float32, (0,))
        assert [step.tolist() for step in sequences["words"]] == [[b"a", b""]]
    assert fr.decode_sequence_example(RECORDS[0])[1] == {}
    assert fr.decode_sequence_example(b"") == ({}, {})
    with pytest.raises(TypeError):
        fr.decode_sequence_example("text")  # type: ignore[arg-type]


def test_decode_sequence_example_of_truncated_records() -> None:
    record = sequence({b"i": ("int64", [3])}, {b"a": [("bytes", [b"abc"]), None]})
    found: list[Any] = []
    for end in range(len(record) + 1):
        try:
            found.append(fr.decode_sequence_example(record[:end]))
        except fr.DecodeError as error:
            offset = error.offset
            found.append("refused" if offset is not None and offset <= end else offset)
    whole = [n for n, value in enumerate(found) if value != "refused"]
    assert whole == [0, 14, len(record)]
    assert found[14][0]["i"].tolist() == [3]


def test_decode_sequence_example_limits_the_names() -> None:
    entries = b"".join(entry(str(n).encode(), b"") for n in range(100_001))
    for number in (1, 2):
        with pytest.raises(fr.LimitError):
            fr.decode_sequence_example(delimited(number, entries))


@pytest.mark.parametrize(
    "array",
    [
        np.float32(1.5),
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.zeros((0, 2), np.complex128),
        np.array([[True], [False]]),
        np.array([b"a", b""], object),
        np.array(b"abc", object),
    ],
    ids=str,
)
def test_parse_tensor_inverts_serialize_tensor(array: Any) -> None:
    found = tf_io.parse_tensor(tf_io.serialize_tensor(array))
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tolist() == array.tolist()
    assert found.flags.writeable
    dtype = "bytes" if array.dtype == object else array.dtype
    assert (
        tf_io.parse_tensor(tf_io.serialize_tensor(array), dtype).tolist()
        == array.tolist()
    )


def test_parse_tensor_raises_for_other_tensors() -> None:
    tensor = tf_io.serialize_tensor(np.arange(3))
    with pytest.raises(fr.SchemaError, match="must have dtype float32, got int64"):
        tf_io.parse_tensor(tensor, "float32")
    with pytest.raises(fr.SchemaError, match="must have dtype bytes, got int64"):
        tf_io.parse_tensor(tensor, "string")
    with pytest.raises(
        fr.DecodeError, match=r"^cannot parse the tensor: .* cannot be read"
    ):
        tf_io.parse_tensor(tensor[:-1])
    with pytest.raises(fr.SchemaError, match=r"^cannot parse the tensor"):
        tf_io.parse_tensor(b"")
    with pytest.raises(TypeError):
        tf_io.parse_tensor("text")  # type: ignore[arg-type]


# Dicts of specs that are passed again and again.


class Fixed(NamedTuple):
    """A mutable spec, in the form of tf.io.FixedLenFeature."""

    shape: list[int]
    dtype: str
    default_value: Any = None


Fixed.__name__ = "FixedLenFeature"


def test_a_dict_of_specs_may_change_between_calls() -> None:
    record = example({b"n": ("int64", [1]), b"m": ("int64", [2, 3])})
    features: Untyped = {"n": fr.FixedLen((), "int64")}
    found: list[Untyped] = []

    def parse() -> Untyped:
        row = tf_io.parse_single_example(record, features)
        batch = fr.parse_example([record], features)
        context, _ = tf_io.parse_single_sequence_example(record, features, None)
        assert list(row) == list(batch) == list(context) == list(features)
        found.append(row)
        return row

    for _ in range(3):
        assert dict(parse()) == {"n": 1}
    features["m"] = fr.FixedLen((2,), "int64")
    assert parse()["m"].tolist() == [2, 3]
    features["n"] = fr.FixedLen((), "int32")
    assert parse()["n"].dtype == np.int32
    features["n"] = "int64"
    assert parse()["n"].dtype == np.int64
    features["n"] = "float16"
    with pytest.raises(fr.SchemaError, match="holds int64 values"):
        parse()
    del features["n"]
    assert list(parse()) == ["m"]
    del features["m"]
    with pytest.raises(fr.SchemaError, match="empty"):
        parse()
    features["k"] = fr.VarLen("int64", key="m")
    assert parse()["k"].tolist() == [2, 3]
    assert dict(found[0]) == {"n": 1}  # earlier rows are unchanged


def test_specs_of_other_libraries_may_change_in_place() -> None:
    record = example({b"n": ("int64", [1])})
    shape, default = [1], [7]
    features: Untyped = {
        "n": Fixed(shape, "int64"),
        "m": Fixed([], "int64", default),
        "array": Fixed([2], "int64", np.array([1, 2])),
    }
    for _ in range(2):
        row = tf_io.parse_single_example(record, features)
        assert (row["n"].shape, row["m"], row["array"].tolist()) == ((1,), 7, [1, 2])
    shape.clear()
    default[0] = 8
    features["array"].default_value[0] = 5
    row = tf_io.parse_single_example(record, features)
    assert (row["n"].shape, row["m"], row["array"].tolist()) == ((), 8, [5, 2])


def test_equal_specs_are_not_confused() -> None:
    zeros = []
    features: Untyped = {}
    for default in (0.0, -0.0, 0.0):
        features["x"] = fr.FixedLen((), "float32", default)
        zeros.append(np.signbit(tf_io.parse_single_example(b"", features)["x"]))
    assert zeros == [False, True, False]


def test_dicts_may_have_the_same_address() -> None:
    record = example({b"n": ("int64", [1])})
    spec, optional = fr.FixedLen((), "int64"), fr.FixedLen((), "int64", default=5)
    for i in range(500):
        row = tf_io.parse_single_example(record, {f"c{i}": optional, "n": spec})
        assert list(row.items()) == [(f"c{i}", 5), ("n", 1)]


def test_errors_about_one_record_have_its_number() -> None:
    record = example({b"a": ("int64", [1]), b"b": ("bytes", [b"x"])})
    for decode in (fr.decode_example, lambda r: tf_io.parse_single_example(r, SPEC)):
        for n in (1, 5, len(record) - 1):
            with pytest.raises(fr.DecodeError) as caught:
                decode(record[:n])
            assert caught.value.record == 0
            assert caught.value.offset is not None
            assert caught.value.offset <= n


def test_decode_example_returns_the_last_entry_of_a_key_and_sorts_them() -> None:
    parts = [
        entry(name, delimited(3, delimited(1, bytes([value]))))
        for name, value in ((b"z", 1), (b"a", 2), (b"z", 3), (b"\xff", 4), (b"a", 5))
    ]
    found = fr.decode_example(delimited(1, b"".join(parts)))
    assert {name: values.tolist() for name, values in found.items()} == {
        "a": [5],
        "z": [3],
        b"\xff": [4],
    }
    assert list(found) == ["a", "z", b"\xff"]
    many = delimited(1, parts[0] * 300_000)
    assert fr.decode_example(many)["z"].tolist() == [1]
    others = [entry(b"%d" % n, b"") for n in range(100_001)]
    with pytest.raises(fr.LimitError):
        fr.decode_example(delimited(1, b"".join(others)))
    assert len(fr.decode_example(delimited(1, b"".join(others[1:] * 3)))) == 100_000


def test_millions_of_features_are_refused_in_linear_time() -> None:
    """The time of the test ends first if each entry sorts those before it."""
    part = entry(b"%07d" % 0, b"")
    entries = np.tile(np.frombuffer(part, np.uint8), (2_000_000, 1))
    begin = part.index(b"0000000")
    digits = np.arange(len(entries))[:, np.newaxis] // 10 ** np.arange(6, -1, -1) % 10
    entries[:, begin : begin + 7] = digits + ord("0")
    with pytest.raises(fr.LimitError):
        fr.decode_example(delimited(1, entries.tobytes()))
