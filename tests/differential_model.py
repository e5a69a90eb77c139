"""Which of the listed differences from TensorFlow a record may show, found by its bytes.

A slow walk over one record, in protobuf's terms, that notes whatever the tables of
docs/semantics.md list: each difference here has its row there. Nothing of TensorFlow or
fastrec is asked. Where the two differ over a record, one of the differences found in it
must allow that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from differential_cases import Spec, keys_of

__all__ = ["DIFFERENCES", "Difference", "allows", "find_differences"]

VARINT, FIXED64, DELIMITED, START, END, FIXED32 = range(6)


class Difference(NamedTuple):
    """A row of a table, and what may happen because of it."""

    row: str  # what its first column says
    tf_refuses: bool = False  # where fastrec reads
    fastrec_refuses: bool = False  # where TensorFlow reads
    differs: bool = False  # both read, different values
    crashes: bool = False  # TensorFlow dies, or may die


ANY = {"tf_refuses": True, "fastrec_refuses": True, "differs": True}

DIFFERENCES: dict[str, Difference] = {
    "pieces": Difference(
        "several packed pieces, or packed and unpacked values in one list", **ANY
    ),
    "lists": Difference("several lists of one kind in a feature", **ANY),
    "kinds": Difference("lists of several kinds in a feature", **ANY),
    "past": Difference(
        "a length that reaches past its message", fastrec_refuses=True
    ),
    "floats": Difference("packed floats not a multiple of 4 bytes", fastrec_refuses=True),
    "unknown": Difference("unknown fields or groups inside features", tf_refuses=True),
    "entry": Difference(
        "map entry with a missing key or value, or three fields", tf_refuses=True
    ),
    "unset": Difference("last duplicate without a kind", **ANY),
    "tags": Difference("tags in more bytes than they need", **ANY),
    "zero": Difference("field number 0, or of more than 29 bits", fastrec_refuses=True),
    "after": Difference(
        "bytes that cannot be read, after the first list of a feature or the first "
        "piece of a list",
        fastrec_refuses=True,
    ),
    "unasked": Difference(
        "a feature that nobody asked for, or that a later entry replaces, and that "
        "begins with no list",
        tf_refuses=True,
    ),
    "floats past shape": Difference(
        "unpacked floats, more than the shape holds", crashes=True
    ),
    "huge": Difference(
        "a byte string that claims 2^31 bytes or more", crashes=True
    ),
    "sequence": Difference(
        "SequenceExample: map entries with the value before the key, steps with several "
        "chunks, several kinds or unknown fields",
        tf_refuses=True,
    ),
    "sequence past": Difference(
        "SequenceExample: a byte string longer than its list, read as `VarLenFeature`",
        fastrec_refuses=True,
        crashes=True,
    ),
    "ragged": Difference(
        "ragged partitions that do not fit their values", fastrec_refuses=True
    ),
    "sparse": Difference("sparse indices outside of `size`", fastrec_refuses=True),
    "tensor": Difference(
        "a TensorProto with more values than its shape, or integers that its dtype "
        "cannot hold",
        fastrec_refuses=True,
    ),
}


class Unreadable(Exception):
    """A message that protobuf refuses."""


class Field(NamedTuple):
    number: int
    type: int
    content: bytes
    number_value: int  # of a varint


class Walk:
    """One record."""

    def __init__(self, specs: Sequence[Spec], *, is_sequence: bool) -> None:
        self.found: set[str] = set()
        self.narrower: set[str] = set()
        self.is_sequence = is_sequence
        self.all_specs = specs
        self.specs: dict[tuple[int, bytes], Spec] = {}
        for spec in specs:
            number = 2 if spec.section == "lists" else 1
            for key in keys_of(spec):
                self.specs[number, key.encode()] = spec
        self.numbers: dict[bytes, list[int]] = {}  # what is in int64 lists

    # Fields.

    def varint(self, data: bytes, at: int, n_most: int = 10) -> tuple[int, int]:
        value = 0
        for i in range(10):
            if at + i == len(data):
                raise Unreadable
            value |= (data[at + i] & 0x7F) << 7 * i
            if data[at + i] < 0x80:
                if i >= n_most:
                    self.narrower.add("long")
                return value % (1 << 64), at + i + 1
        raise Unreadable

    def fields(self, data: bytes, *, is_known: bool = True) -> Iterator[Field]:
        """The fields of a message; notes what is odd about their tags and lengths."""
        at = 0
        while at < len(data):
            begin = at
            value, at = self.varint(data, at, 5)
            number, kind = value >> 3, value & 7
            if is_known and at - begin > len(varint_bytes(value)):
                self.found.add("tags")
            if value >= 1 << 32 or number == 0:
                self.found.add("zero")
                raise Unreadable
            if kind == VARINT:
                begin = at
                value, at = self.varint(data, at)
                yield Field(number, kind, data[begin:at], value)
            elif kind in (FIXED32, FIXED64):
                size = 4 if kind == FIXED32 else 8
                if at + size > len(data):
                    raise Unreadable
                yield Field(number, kind, data[at : at + size], 0)
                at += size
            elif kind == DELIMITED:
                length, at = self.varint(data, at, 5)
                if length % (1 << 32) >= 1 << 28:
                    self.found.add("huge")
                if length > len(data) - at:
                    self.found.add("past")
                    length = min(length % (1 << 32), len(data) - at)
                    yield Field(number, kind, data[at : at + length], 0)
                    raise Unreadable
                yield Field(number, kind, data[at : at + length], 0)
                at += length
            elif kind == START:
                at = self.group(data, at, number, 1)
                yield Field(number, kind, b"", 0)
            else:
                raise Unreadable

    def group(self, data: bytes, at: int, number: int, depth: int) -> int:
        """Where a group ends."""
        if depth > 90:
            self.narrower.add("depth")
        if depth > 100:
            raise Unreadable
        while True:
            value, at = self.varint(data, at, 5)
            inner, kind = value >> 3, value & 7
            if value >= 1 << 32 or inner == 0:
                self.narrower.add("zero in group")
                raise Unreadable
            if kind == END:
                if inner != number:
                    raise Unreadable
                return at
            if kind == START:
                at = self.group(data, at, inner, depth + 1)
            elif kind == VARINT:
                _, at = self.varint(data, at)
            elif kind in (FIXED32, FIXED64):
                at += 4 if kind == FIXED32 else 8
            elif kind == DELIMITED:
                length, at = self.varint(data, at, 5)
                at += length
            else:
                raise Unreadable
            if at > len(data):
                self.found.add("past")
                raise Unreadable

    # Messages.

    def record(self, data: bytes) -> None:
        entries: dict[tuple[int, bytes], list[bytes]] = {}
        try:
            for field in self.fields(data):
                if field.type == START:
                    self.found.add("unknown")
                known = 2 if self.is_sequence else 1
                if field.number <= known and field.type == DELIMITED:
                    self.map(field.number, field.content, entries)
                elif self.is_sequence:
                    self.found.add("sequence")
        except Unreadable:
            pass
        for (number, key), values in entries.items():
            for value in values[:-1]:
                self.unasked(number, value)
            spec = self.specs.get((number, key))
            if spec is None:
                self.unasked(number, values[-1])
            elif number == 2:
                self.steps(spec, values[-1])
            else:
                kinds = self.feature(spec, key, values[-1], is_step=False)
                if not kinds and len(values) > 1:
                    self.found.add("unset")
        self.rules()

    def map(
        self, number: int, data: bytes, entries: dict[tuple[int, bytes], list[bytes]]
    ) -> None:
        for field in self.fields(data):
            if (field.number, field.type) != (1, DELIMITED):
                self.found.add("unknown")
                continue
            keys: list[bytes] = []
            values: list[bytes] = []
            order: list[int] = []
            is_readable = True
            try:
                for part in self.fields(field.content):
                    if part.number > 2 or part.type != DELIMITED:
                        self.found |= {"unknown", "entry"}
                        self.narrower.add("unknown in entry")
                        continue
                    order.append(part.number)
                    (keys if part.number == 1 else values).append(part.content)
            except Unreadable:
                is_readable = False
            if sorted(order) != [1, 2]:
                self.found.add("entry")
                if len(values) > 1 or len(keys) > 1:
                    # Of two of a kind TensorFlow takes the last, and no other part.
                    self.found.add("lists")
            if self.is_sequence and order != [1, 2]:
                self.found.add("sequence")
            for key in keys:
                try:
                    key.decode()
                except UnicodeDecodeError:
                    self.narrower.add("key")
            key = keys[-1] if keys else b""
            entries.setdefault((number, key), []).append(b"".join(values))
            if not is_readable:
                raise Unreadable

    def unasked(self, number: int, value: bytes) -> None:
        """A value that fastrec does not look at, but TensorFlow's parser begins to."""
        self.narrower.add("unasked")
        if number == 1 and value and value[0] not in (0x0A, 0x12, 0x1A):
            self.found.add("unasked")

    def steps(self, spec: Spec, data: bytes) -> None:
        try:
            for field in self.fields(data):
                if (field.number, field.type) == (1, DELIMITED):
                    self.feature(spec, b"", field.content, is_step=True)
                else:
                    self.found |= {"unknown", "sequence"}
        except Unreadable:
            pass

    def feature(self, spec: Spec, key: bytes, data: bytes, *, is_step: bool) -> list[int]:
        """Notes what is odd about a feature, and returns the kinds of its lists."""
        kinds: list[int] = []
        numbers: list[int] = []
        n_fields = 0
        try:
            for field in self.fields(data):
                n_fields += 1
                if not (1 <= field.number <= 3 and field.type == DELIMITED):
                    self.found.add("unknown")
                    continue
                if kinds and kinds[-1] != field.number:
                    numbers = []
                kinds.append(field.number)
                self.list(spec, field.number, field.content, numbers)
        except Unreadable:
            if kinds:
                self.found.add("after")
        if len(kinds) > len(set(kinds)):
            self.found.add("lists")
        if len(set(kinds)) > 1:
            self.found.add("kinds")
        if is_step and n_fields > 1:
            self.found.add("sequence")
        if kinds and kinds[-1] == 3:
            self.numbers[key] = numbers
        return kinds

    def list(self, spec: Spec, kind: int, data: bytes, numbers: list[int]) -> None:
        n_packed = n_single = n_fields = 0
        single = {1: DELIMITED, 2: FIXED32, 3: VARINT}[kind]
        try:
            for field in self.fields(data):
                n_fields += 1
                if field.number != 1 or field.type not in (single, DELIMITED):
                    self.found.add("unknown")
                    if self.is_sequence:
                        self.found.add("sequence")
                elif field.type == single:
                    n_single += 1
                    numbers.append(field.number_value)
                else:
                    n_packed += 1
                    self.packed(kind, field.content, numbers)
        except Unreadable:
            if n_fields:
                self.found.add("after")
            if self.is_sequence and kind == 1 and spec.form == "var":
                self.found.add("sequence past")
            raise
        finally:
            if n_packed and n_packed + n_single > 1:
                self.found.add("pieces")
                if self.is_sequence:
                    self.found.add("sequence")
            if kind == 2 and spec.form in ("fixed", "stack"):
                size = math.prod(spec.shape)
                if n_single > size:
                    self.found.add("floats past shape")

    def packed(self, kind: int, data: bytes, numbers: list[int]) -> None:
        if kind == 2:
            if len(data) % 4:
                self.found.add("floats")
                raise Unreadable
            return
        at = 0
        while at < len(data):
            value, at = self.varint(data, at)
            numbers.append(value)

    # What specs of several features want of them.

    def rules(self) -> None:
        for spec in self.all_specs:
            if spec.form == "ragged" and spec.partitions:
                self.found.add("ragged")
            elif spec.form == "sparse":
                for key, size in zip(spec.keys[1:], spec.shape, strict=True):
                    if any(n >= size for n in self.numbers.get(key.encode(), ())):
                        self.found.add("sparse")
            elif spec.form == "tensor":
                self.found.add("tensor")


def varint_bytes(value: int) -> bytes:
    """The shortest encoding."""
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(value & 0x7F)
    return bytes(digits)


def find_differences(
    record: bytes, specs: Sequence[Spec], *, is_sequence: bool
) -> tuple[set[str], set[str]]:
    """The differences from TensorFlow, and the ways in which protobuf is narrower."""
    walk = Walk(specs, is_sequence=is_sequence)
    walk.record(record)
    return walk.found, walk.narrower


def allows(name: str, ours: Any, theirs: Any) -> bool:  # noqa: ANN401
    """Whether a difference explains these outcomes, of which None is a refusal."""
    difference = DIFFERENCES[name]
    if theirs is None:
        return difference.tf_refuses
    return difference.fastrec_refuses if ours is None else difference.differs
