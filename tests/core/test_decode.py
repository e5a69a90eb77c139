"""Records to columns: what the bytes of an Example mean.

Goal
    Every legal encoding of an Example gives the same values, in a batch and alone;
    every illegal one is an error. There is no third outcome.
Method
    Random examples in random legal encodings against the oracle; each rule of the wire
    format as a case of its own; one record with every bit flipped and cut at every
    byte, where the oracle says which of the results are still Examples.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastrec as fr
import oracle
from columns import Write, assert_same, cell, fastrec_spec, open_dataset, rows
from oracle import (
    Encoder,
    Feature,
    Features,
    Fixed,
    Raw,
    Spec,
    Var,
    example,
    messages,
    tfrecord_file,
)
from oracle_example import (
    delimited,
    entry,
    feature,
    fixed32,
    fixed64,
    tag,
    varint,
    varint_field,
)

SPEC: Spec = {
    "int": Fixed("int64", default=-5),
    "float": Fixed("float32", (2,), default=[0.5, -0.0]),
    "text": Fixed("bytes", default=b"none"),
    "words": Fixed("bytes", (2, 2), default=[b"", b"b", b"\0", b"d"]),
    "ints": Var("int64"),
    "floats": Var("float32"),
    "strings": Var("bytes"),
    "pairs": Var("int64", (2,)),
    "image": Raw((2, 3), "uint16", default=np.zeros((2, 3), np.uint16)),
    "big_endian": Raw((3,), "float32", little_endian=False, default=[1.0, 2.0, 3.0]),
    "renamed": Fixed("int64", default=0, key=b"int"),
}

int64s = st.integers(-(2**63), 2**63 - 1)
floats = st.binary(min_size=4, max_size=4)  # Every bit pattern, signalling NaNs too.
strings = st.binary(max_size=20)


def lists(kind: oracle.Kind, values: st.SearchStrategy[Any], n: int) -> Any:
    return st.tuples(st.just(kind), st.lists(values, min_size=n, max_size=n))


def any_length(kind: oracle.Kind, values: st.SearchStrategy[Any]) -> Any:
    return st.tuples(st.just(kind), st.lists(values, max_size=9))


def sized(n_bytes: int) -> Any:
    return lists("bytes", st.binary(min_size=n_bytes, max_size=n_bytes), 1)


FEATURES: dict[bytes, Any] = {
    b"int": lists("int64", int64s, 1),
    b"float": lists("float", floats, 2),
    b"text": lists("bytes", strings, 1),
    b"words": lists("bytes", strings, 4),
    b"ints": any_length("int64", int64s),
    b"floats": any_length("float", floats),
    b"strings": any_length("bytes", strings),
    b"pairs": lists("int64", int64s, 6),
    b"image": sized(12),
    b"big_endian": sized(12),
    b"nobody asked": any_length("float", floats),
}

examples = st.fixed_dictionaries(
    {}, optional={key: values | st.none() for key, values in FEATURES.items()}
)


def read_one(write: Write, record: bytes, spec: Spec) -> dict[str, oracle.Cell]:
    """One record, read alone and as batches; all must agree."""
    path = write(tfrecord_file([record]))
    ds = open_dataset(path, features=fastrec_spec(spec))
    alone = {name: cell(value) for name, value in ds[0].items()}
    assert_same(rows(ds[0:1])[0], alone)
    (batch,) = list(ds.loader(1, num_threads=0))
    assert_same(rows(batch)[0], alone)
    return alone


@given(
    logical=st.lists(examples, min_size=1, max_size=7),
    seed=st.integers(0, 2**32 - 1),
    io=st.sampled_from(["mmap", "pread"]),
)
@settings(max_examples=250)
def test_every_legal_encoding_decodes_to_the_same_values(
    write: Write, logical: list[dict[bytes, Feature]], seed: int, io: str
) -> None:
    encoder = Encoder(random.Random(seed))
    records = [encoder.example(features) for features in logical]
    wanted = [oracle.decode(example(features), SPEC) for features in logical]

    ds = open_dataset(write(tfrecord_file(records)), features=fastrec_spec(SPEC), io=io)
    for got, want in zip(rows(ds[0 : len(ds)]), wanted, strict=True):
        assert_same(got, want)
    for i, want in enumerate(wanted):
        assert_same({name: cell(value) for name, value in ds[i].items()}, want)
    batches = list(ds.loader(3, num_threads=seed % 3))
    in_batches = [row for batch in batches for row in rows(batch)]
    for got, want in zip(in_batches, wanted, strict=True):
        assert_same(got, want)


# The rules of the wire format, one by one.

INTS: Spec = {"a": Var("int64")}
FLOATS: Spec = {"a": Var("float32")}
STRINGS: Spec = {"a": Var("bytes")}

INT_LIST, FLOAT_LIST, BYTES_LIST = 3, 2, 1
ONE = feature("int64", [1])


def of_feature(message: bytes) -> bytes:
    """An Example whose feature "a" is this Feature message."""
    return delimited(1, entry(b"a", message))


def of_list(number: int, message: bytes) -> bytes:
    """An Example whose feature "a" is this *List message."""
    return of_feature(delimited(number, message))


def group(number: int, inside: bytes) -> bytes:
    return tag(number, 3) + inside + tag(number, 4)


def packed(*values: int) -> bytes:
    return delimited(1, b"".join(varint(value) for value in values))


def unpacked(*values: int) -> bytes:
    return b"".join(varint_field(1, value) for value in values)


READ_AS_INTS = {
    "packed": (of_list(INT_LIST, packed(1, 2, 3)), [1, 2, 3]),
    "unpacked": (of_list(INT_LIST, unpacked(1, 2, 3)), [1, 2, 3]),
    "several chunks": (
        of_list(INT_LIST, packed(1) + packed(2, 3) + packed(4)),
        [1, 2, 3, 4],
    ),
    "an empty chunk first": (of_list(INT_LIST, packed() + packed(7)), [7]),
    "packed then unpacked": (of_list(INT_LIST, packed(1, 2) + unpacked(3)), [1, 2, 3]),
    "unpacked then packed": (of_list(INT_LIST, unpacked(1) + packed(2, 3)), [1, 2, 3]),
    "an empty packed list": (of_list(INT_LIST, packed()), []),
    "a list without any field": (of_list(INT_LIST, b""), []),
    "negative": (
        of_list(INT_LIST, packed(-1, -(2**63), 2**63 - 1)),
        [-1, -(2**63), 2**63 - 1],
    ),
    "ten bytes": (of_list(INT_LIST, delimited(1, b"\xff" * 9 + b"\x01")), [-1]),
    "bits beyond 64 dropped": (
        of_list(INT_LIST, delimited(1, b"\xff" * 9 + b"\x7f" + b"\x80" * 9 + b"\x02")),
        [-1, 0],
    ),
    "overlong value": (
        of_list(INT_LIST, delimited(1, varint(5, 9) + varint(6, 3))),
        [5, 6],
    ),
    "five bytes of ones": (of_list(INT_LIST, packed(2**32 - 1)), [2**32 - 1]),
    "the values 2**31 and up": (
        of_list(INT_LIST, packed(2**31, 2**32, 2**40, -(2**40))),
        [2**31, 2**32, 2**40, -(2**40)],
    ),
    "value before key": (
        delimited(1, delimited(1, delimited(2, ONE) + delimited(1, b"a"))),
        [1],
    ),
    "the last key of an entry": (
        delimited(
            1, delimited(1, delimited(1, b"b") + delimited(2, ONE) + delimited(1, b"a"))
        ),
        [1],
    ),
    "two values in an entry merge": (
        delimited(
            1,
            delimited(
                1,
                delimited(1, b"a")
                + delimited(2, ONE)
                + delimited(2, feature("int64", [2])),
            ),
        ),
        [1, 2],
    ),
    "the last entry of a key, whole": (
        delimited(1, entry(b"a", feature("int64", [8, 9])) + entry(b"a", ONE)),
        [1],
    ),
    "the last entry of a key, without a kind": (
        delimited(1, entry(b"a", ONE) + entry(b"a", b"")),
        [],
    ),
    "the last entry of a key, without a value": (
        delimited(1, entry(b"a", ONE) + delimited(1, delimited(1, b"a"))),
        [],
    ),
    "the last entry of a key, of another kind before": (
        delimited(1, entry(b"a", feature("bytes", [b"x"])) + entry(b"a", ONE)),
        [1],
    ),
    "a key in the second Features": (
        delimited(1, entry(b"b", ONE)) + delimited(1, entry(b"a", ONE)),
        [1],
    ),
    "the second Features wins": (
        delimited(1, entry(b"a", feature("int64", [5])))
        + delimited(1, entry(b"a", ONE)),
        [1],
    ),
    "lists of the same kind merge": (
        of_feature(ONE + feature("int64", [2, 3])),
        [1, 2, 3],
    ),
    "the last kind wins": (of_feature(feature("bytes", [b"x"]) + ONE), [1]),
    "the last kind wins, the first was the same": (
        of_feature(feature("int64", [9]) + feature("float", [1.0]) + ONE),
        [1],
    ),
    "absent": (delimited(1, entry(b"b", ONE)), []),
    "without a kind": (of_feature(b""), []),
    "an entry without a value": (delimited(1, delimited(1, delimited(1, b"a"))), []),
    "only unknown fields in the feature": (of_feature(varint_field(4, 1)), []),
    "no features at all": (b"", []),
    "empty Features": (delimited(1, b""), []),
    "an empty entry": (delimited(1, delimited(1, b"") + entry(b"a", ONE)), [1]),
    "unknown fields in the Example": (
        varint_field(2, 2**63)
        + fixed64(3)
        + delimited(4, b"\xff\xff")
        + fixed32(5)
        + of_feature(ONE)
        + varint_field(2**29 - 1, 0),
        [1],
    ),
    "unknown fields in Features": (
        delimited(1, fixed32(2) + entry(b"a", ONE) + varint_field(9, 1)),
        [1],
    ),
    "unknown fields in an entry": (
        delimited(
            1,
            delimited(
                1,
                fixed64(3)
                + delimited(1, b"a")
                + varint_field(4, 1)
                + delimited(2, ONE),
            ),
        ),
        [1],
    ),
    "unknown fields in the feature": (
        of_feature(varint_field(7, 1) + ONE + fixed32(8)),
        [1],
    ),
    "unknown fields in the list": (
        of_list(
            INT_LIST, delimited(2, b"\x80") + packed(1) + varint_field(3, 9) + packed(2)
        ),
        [1, 2],
    ),
    "a known number with another wire type": (
        of_list(INT_LIST, fixed32(1) + packed(1) + fixed64(1)),
        [1],
    ),
    "a kind with another wire type": (of_feature(varint_field(INT_LIST, 1) + ONE), [1]),
    "features with another wire type": (varint_field(1, 5) + of_feature(ONE), [1]),
    "groups": (
        group(5, b"") + delimited(1, group(2, varint_field(1, 1)) + entry(b"a", ONE)),
        [1],
    ),
    "groups in groups": (
        group(9, group(9, delimited(1, b"\xff") + group(8, fixed64(1))))
        + of_feature(ONE),
        [1],
    ),
    "a group where features are expected": (group(1, b"") + of_feature(ONE), [1]),
    "overlong lengths": (
        tag(1, 2) + varint(len(entry(b"a", ONE)), 4) + entry(b"a", ONE),
        [1],
    ),
}


def overlong_everywhere() -> bytes:
    """The Example {a: [1, 2]}, with tags and lengths a byte or more too long."""

    def field(number: int, payload: bytes, n_extra: int) -> bytes:
        return tag(number, 2, n_extra) + varint(len(payload), n_extra) + payload

    values = field(1, varint(1, 2) + varint(2, 9), 1)
    pair = field(1, b"a", 3) + field(2, field(INT_LIST, values, 2), 4)
    return field(1, field(1, pair, 1), 3)


READ_AS_INTS["overlong tags and lengths"] = (overlong_everywhere(), [1, 2])


@pytest.mark.parametrize("case", READ_AS_INTS)
def test_read_as_int64(write: Write, case: str) -> None:
    record, want = READ_AS_INTS[case]
    assert oracle.decode(record, INTS)["a"].tolist() == want, "the case itself is wrong"
    assert read_one(write, record, INTS)["a"].tolist() == want


FLOAT_BITS = [0x7FA00001, 0x80000000, 0x00000001, 0x7F800000, 0xFFFFFFFF, 0x3F800000]
PACKED_FLOATS = struct.pack("<6I", *FLOAT_BITS)

READ_AS_FLOATS = {
    "packed": delimited(1, PACKED_FLOATS),
    "unpacked": b"".join(fixed32(1, PACKED_FLOATS[i : i + 4]) for i in range(0, 24, 4)),
    "chunks": delimited(1, PACKED_FLOATS[:8])
    + delimited(1, b"")
    + delimited(1, PACKED_FLOATS[8:]),
    "mixed": fixed32(1, PACKED_FLOATS[:4]) + delimited(1, PACKED_FLOATS[4:]),
    "with unknown fields": varint_field(1, 3)
    + delimited(1, PACKED_FLOATS)
    + fixed64(1)
    + fixed32(2),
}


@pytest.mark.parametrize("case", READ_AS_FLOATS)
def test_floats_keep_every_bit(write: Write, case: str) -> None:
    record = of_list(FLOAT_LIST, READ_AS_FLOATS[case])
    assert read_one(write, record, FLOATS)["a"].view(np.uint32).tolist() == FLOAT_BITS
    fixed: Spec = {"a": Fixed("float32", (2, 3))}
    assert (
        read_one(write, record, fixed)["a"].view(np.uint32).ravel().tolist()
        == FLOAT_BITS
    )


@pytest.mark.parametrize(
    "values",
    [
        [],
        [b""],
        [b"ab\0\0", b"c\0"],
        [b"\xff\xfe", b"", b"\0", b"x" * 300],
        [b"\0" * 5] * 9,
    ],
)
def test_byte_strings_keep_every_byte(write: Write, values: list[bytes]) -> None:
    record = example({b"a": ("bytes", values)})
    assert read_one(write, record, STRINGS)["a"].tolist() == values
    fixed: Spec = {"a": Fixed("bytes", (len(values),))}
    if values:
        assert read_one(write, record, fixed)["a"].tolist() == values


@pytest.mark.parametrize(
    "key", [b"", b"\xff\xfe", b"a\0b", b"image/encoded", b"k" * 300]
)
def test_keys_are_bytes(write: Write, key: bytes) -> None:
    record = example(
        {b"other": ("int64", [1]), key: ("int64", [2]), b"a": ("int64", [3])}
    )
    ds = open_dataset(
        write(tfrecord_file([record])), features={key: fr.FixedLen((), "int64")}
    )
    assert list(ds[0:1]) == [key], "a spec key that is bytes is returned as given"
    assert ds[0:1][key].tolist() == [2]
    assert read_one(write, record, {"x": Fixed("int64", key=key)})["x"].tolist() == 2


def test_an_entry_without_a_key_has_the_empty_key(write: Write) -> None:
    record = delimited(1, delimited(1, delimited(2, ONE)))
    assert read_one(write, record, {"a": Fixed("int64", key=b"")})["a"].tolist() == 1


def test_a_key_is_not_its_prefix_nor_its_extension(write: Write) -> None:
    record = example(
        {b"ab": ("int64", [1]), b"a": ("int64", [2]), b"abc": ("int64", [3])}
    )
    for name, want in (("a", 2), ("ab", 1), ("abc", 3)):
        assert read_one(write, record, {name: Fixed("int64")})[name].tolist() == want


@pytest.mark.parametrize(
    "value",
    [
        b"\xff" * 30,
        b"\x0a\xff\xff\xff\x0f",
        b"\x07",
        b"\x00",
        b"\x1b",
        b"\x12\x05\x0a\x03abc",
    ],
)
def test_features_that_nobody_asked_for_are_stepped_over(
    write: Write, value: bytes
) -> None:
    pairs = entry(b"garbage", value) + entry(b"a", ONE) + entry(b"more", value)
    assert read_one(write, delimited(1, pairs), INTS)["a"].tolist() == [1]


REFUSED = {
    "features past the end": tag(1, 2) + varint(100) + entry(b"a", ONE),
    "features one past the end": tag(1, 2)
    + varint(len(entry(b"a", ONE)) + 1)
    + entry(b"a", ONE),
    "an entry past its Features": delimited(1, tag(1, 2) + varint(50) + b"\x0a\x01a"),
    "an entry past its Features, within the record": delimited(
        1, tag(1, 2) + varint(9) + b"\x0a\x01a"
    )
    + delimited(2, b"\0" * 20),
    "a key past its entry": delimited(1, delimited(1, tag(1, 2) + varint(9) + b"a")),
    "a value past its entry": delimited(
        1, delimited(1, delimited(1, b"a") + tag(2, 2) + varint(9) + ONE)
    ),
    "a value of an unrequested feature past its entry": delimited(
        1,
        delimited(1, delimited(1, b"b") + tag(2, 2) + varint(9) + ONE)
        + entry(b"a", ONE),
    ),
    "a list past its feature": of_feature(tag(3, 2) + varint(5) + packed(1)),
    "a list that loses to another kind, cut": of_feature(
        delimited(BYTES_LIST, b"\x0a\x05cut") + ONE
    ),
    "a varint that ends in the next list": of_feature(
        delimited(INT_LIST, b"\x08\x01\x08\x80") + delimited(INT_LIST, b"\x01")
    ),
    "a length that reaches into the next list": of_feature(
        delimited(INT_LIST, b"\x0a\x03\x01") + delimited(INT_LIST, b"\x08\x02")
    ),
    "an unknown length that reaches into the next list": of_feature(
        delimited(INT_LIST, packed(1) + b"\x7a\x02") + delimited(INT_LIST, b"\x08\x02")
    ),
    "a group that ends in the next list": of_feature(
        delimited(INT_LIST, tag(5, 3)) + delimited(INT_LIST, tag(5, 4))
    ),
    "a list that reaches into the next value of its entry": delimited(
        1,
        delimited(
            1,
            delimited(1, b"a")
            + delimited(2, tag(INT_LIST, 2) + varint(4) + b"\x08\x01")
            + delimited(2, b"\x08\x02"),
        ),
    ),
    "packed values past their list": of_list(
        INT_LIST, tag(1, 2) + varint(4) + b"\x01\x02\x03"
    ),
    "a length of 2**32 - 1": of_list(INT_LIST, tag(1, 2) + varint(2**32 - 1) + b"\x01"),
    "a length of 2**32 + 1": of_list(INT_LIST, tag(1, 2) + varint(2**32 + 1) + b"\x01"),
    "a length of 2**62": of_list(INT_LIST, tag(1, 2) + varint(2**62) + b"\x01"),
    "a length of 2**63": tag(1, 2) + varint(2**63) + b"\x01",
    "a length of 2**64 - 1": tag(1, 2) + varint(2**64 - 1) + b"\x01",
    "an unknown field past the end": of_feature(ONE) + tag(9, 2) + varint(1),
    "an unknown fixed32 cut": of_feature(ONE) + tag(9, 5) + b"\0\0\0",
    "an unknown fixed64 cut": of_feature(ONE) + tag(9, 1) + b"\0" * 7,
    "a varint of 11 bytes": of_list(INT_LIST, delimited(1, b"\x80" * 10 + b"\x01")),
    "an unpacked varint of 11 bytes": of_list(
        INT_LIST, b"\x08" + b"\x80" * 10 + b"\x01"
    ),
    "an unknown varint of 11 bytes": of_feature(ONE) + b"\x10" + b"\x80" * 10 + b"\x01",
    "a tag of 11 bytes": of_feature(ONE) + b"\x8a" + b"\x80" * 9 + b"\x01",
    "a packed varint cut by its list": of_list(INT_LIST, delimited(1, b"\x01\x80")),
    "a varint cut by the end": of_feature(ONE) + b"\x10\x80",
    "a tag cut by the end": of_feature(ONE) + b"\x80",
    "a length cut by the end": of_feature(ONE) + b"\x0a\x80",
    "a length missing": of_feature(ONE) + b"\x0a",
    "wire type 6": of_feature(ONE) + tag(9, 6),
    "wire type 7": of_feature(ONE) + tag(9, 7),
    "wire type 7 in the feature": of_feature(ONE + tag(9, 7)),
    "field number 0": of_feature(ONE) + varint_field(0, 1),
    "field number 0 in the list": of_list(INT_LIST, packed(1) + b"\x00\x00"),
    "field number 0 of an overlong tag": of_feature(ONE) + b"\x80\x00\x01",
    "a field number above 2**29": of_feature(ONE) + varint(2**29 << 3) + b"\0",
    "one trailing zero byte": of_feature(ONE) + b"\0",
    "a group that does not end": of_feature(ONE) + tag(5, 3) + varint_field(1, 1),
    "a group that never began": of_feature(ONE) + tag(5, 4),
    "a group that never began, in the feature": of_feature(ONE + tag(5, 4)),
    "a group that ends as another": of_feature(ONE) + tag(5, 3) + tag(6, 4),
    "groups that cross": of_feature(ONE)
    + tag(5, 3)
    + tag(6, 3)
    + tag(5, 4)
    + tag(6, 4),
    "a group that ends outside of its parent": delimited(
        1, entry(b"a", ONE) + tag(5, 3)
    )
    + tag(5, 4),
    "wire type 6 in a group": of_feature(ONE) + group(5, tag(1, 6)),
    "a length past the end of its group": of_feature(ONE)
    + tag(5, 3)
    + tag(1, 2)
    + varint(9)
    + tag(5, 4),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_place(write: Write, case: str) -> None:
    record = REFUSED[case]
    with pytest.raises(oracle.WireError):
        oracle.decode(record, INTS)
    good = example({b"a": ("int64", [4])})
    path = write(tfrecord_file([good, record, good]))
    ds = open_dataset(path, features=fastrec_spec(INTS))
    begin = len(oracle.frame(good))
    for read in (lambda: ds[1], lambda: ds[0:3], lambda: list(ds.loader(2))):
        with pytest.raises(fr.DecodeError) as caught:
            read()
        error = caught.value
        assert (error.path, error.record) == (str(path), 1)
        assert error.offset is not None
        assert begin <= error.offset <= begin + 12 + len(record)
        assert path.name in str(error)
        assert "record 1" in str(error)
    assert rows(ds[2:3])[0]["a"].tolist() == [4]


@pytest.mark.parametrize("n_bytes", [1, 2, 3, 5, 4 * 1000 + 3])
def test_packed_floats_are_whole(write: Write, n_bytes: int) -> None:
    record = of_list(FLOAT_LIST, delimited(1, bytes(n_bytes)))
    with pytest.raises(fr.DecodeError, match="float"):
        read_one(write, record, FLOATS)


def test_deep_groups_end_in_a_result_or_an_error_not_in_a_crash(write: Write) -> None:
    depth = 200_000
    record = of_feature(ONE) + tag(5, 3) * depth + tag(5, 4) * depth
    try:
        assert read_one(write, record, INTS)["a"].tolist() == [1]
    except fr.DecodeError as error:
        assert "group" in error.reason  # noqa: PT017


# One record, damaged in every way.

DAMAGE_SPEC: Spec = {
    "lab": Fixed("int64"),
    "vec": Fixed("float32", (2,), default=[0.0, 0.0]),
    "name": Fixed("bytes", default=b""),
    "ids": Var("int64"),
    "raw": Raw((4,), "uint8", default=[0, 0, 0, 0]),
}
WHOLE: Features = {
    b"lab": ("int64", [300]),
    b"vec": ("float", [1.5, -2.0]),
    b"name": ("bytes", [b"cat"]),
    b"ids": ("int64", [1, -1, 128]),
    b"raw": ("bytes", [b"\x00\x01\x02\xff"]),
    b"else": ("float", [4.0]),
}


def outcome(record: bytes) -> dict[str, oracle.Cell] | None:
    try:
        return oracle.decode(record, DAMAGE_SPEC)
    except (oracle.WireError, oracle.MismatchError):
        return None


def has_two_entries_of_a_key(record: bytes) -> bool:
    pairs = [pair for part in messages(record, 1) for pair in messages(part, 1)]
    keys = [(list(messages(pair, 1)) or [b""])[-1] for pair in pairs]
    return len(set(keys)) < len(keys)


def assert_outcomes(write: Write, records: Sequence[bytes]) -> None:
    """Each record alone, and all that can be read together, as the oracle says."""
    wanted = [outcome(record) for record in records]
    spec = fastrec_spec(DAMAGE_SPEC)
    ds = open_dataset(write(tfrecord_file(records)), features=spec)
    read: list[int] = []
    for i, want in enumerate(wanted):
        try:
            row = ds[i]
        except (fr.DecodeError, fr.SchemaError):
            # Whether the values of an entry that loses are looked at is left open.
            if want is not None and not has_two_entries_of_a_key(records[i]):
                pytest.fail(f"refused, but the oracle reads {records[i]!r}")
            continue
        assert want is not None, f"read as {row}, but the oracle refuses {records[i]!r}"
        assert_same({name: cell(value) for name, value in row.items()}, want)
        read.append(i)
    assert 0 < len(read) < len(records), "the damage does not tell anything apart"

    ds = open_dataset(write(tfrecord_file([records[i] for i in read])), features=spec)
    got = [row for batch in ds.loader(16) for row in rows(batch)]
    for row, i in zip(got, read, strict=True):
        want = wanted[i]
        assert want is not None
        assert_same(row, want)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_every_flipped_bit_of_a_record(write: Write, seed: int | None) -> None:
    rng = None if seed is None else random.Random(seed)
    record = Encoder(rng).example(WHOLE)
    flipped = []
    for bit in range(8 * len(record)):
        damaged = bytearray(record)
        damaged[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(damaged))
    assert_outcomes(write, flipped)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_every_truncation_of_a_record(write: Write, seed: int | None) -> None:
    """An Example has no end mark: a cut between two fields is another Example."""
    rng = None if seed is None else random.Random(seed)
    whole = Encoder(rng).example(WHOLE)
    # As protobuf may write it: one Features for every feature.
    record = b"".join(example({key: value}) for key, value in WHOLE.items()) + whole
    assert_outcomes(write, [record[:cut] for cut in range(len(record) + 1)])


@given(data=st.data())
@settings(max_examples=60)
def test_random_bytes_are_values_or_errors(write: Write, data: st.DataObject) -> None:
    """Bytes put in the place of others, several at a time, lengths included."""
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = random.Random(seed)
    records = []
    for _ in range(20):
        damaged = bytearray(Encoder(rng).example(WHOLE))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        records.append(bytes(damaged))
    spec = fastrec_spec(DAMAGE_SPEC)
    ds = open_dataset(write(tfrecord_file(records)), features=spec)
    for i, record in enumerate(records):
        want = outcome(record)
        try:
            row = ds[i]
        except (fr.DecodeError, fr.SchemaError):
            continue
        assert want is not None, f"read as {row}, but the oracle refuses {record!r}"
        assert_same({name: cell(value) for name, value in row.items()}, want)
