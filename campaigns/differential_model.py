"""Predict from a record's bytes which differences from TensorFlow it may show.

A slow walk over one record by protobuf's rules, which notes what the tables of
docs/semantics.md list: each difference here has a row there. It does not use TensorFlow
or fastrec. If the two differ on a record, one of the differences found in it must
explain that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from campaigns.differential_cases import Spec, keys_of

VARINT, FIXED64, DELIMITED, START, END, FIXED32 = range(6)


class Difference(NamedTuple):
    """A row of a table, and its possible effects."""

    row: str  # its first column
    tf_refuses: bool = False  # only fastrec reads
    fastrec_refuses: bool = False  # only TensorFlow reads
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
        "a length that reaches past its message", fastrec_refuses=True, crashes=True
    ),
    "floats": Difference(
        "packed floats not a multiple of 4 bytes", fastrec_refuses=True
    ),
    "unknown": Difference("unknown fields or groups inside features", tf_refuses=True),
    "entry": Difference(
        "map entry with a missing key or value, or three fields", tf_refuses=True
    ),
    "unset": Difference("last duplicate without a kind", **ANY),
    "tags": Difference("tags in more bytes than they need", **ANY),
    "number": Difference(
        "field 1 of a record is a number, and it has none of the features",
        fastrec_refuses=True,
    ),
    "zero": Difference("field number 0, or of more than 29 bits", fastrec_refuses=True),
    "after": Difference(
        "bytes that cannot be read, after the first list of a feature or the first "
        "piece of a list",
        fastrec_refuses=True,
    ),
    "unasked": Difference(
        "a feature that a later entry replaces, and that begins with no list",
        tf_refuses=True,
    ),
    "floats past shape": Difference(
        "unpacked floats, more than the shape holds", crashes=True
    ),
    "huge": Difference("a byte string that claims 2^31 bytes or more", crashes=True),
    "sequence": Difference(
        "SequenceExample: map entries with the value before the key, steps with several "
        "chunks, several kinds or unknown fields",
        tf_refuses=True,
    ),
    "sequence past": Difference(
        "SequenceExample: a list longer than its feature, or a byte string longer than "
        "its list, read as `VarLenFeature`",
        fastrec_refuses=True,
        crashes=True,
    ),
    "ragged": Difference(
        "ragged partitions that do not fit their values", fastrec_refuses=True
    ),
    "sparse": Difference("sparse indices outside of `size`", fastrec_refuses=True),
    "sparse twice": Difference("a sparse index that occurs twice", differs=True),
    "no splits": Difference(
        "row splits that are missing or empty, in a record alone", tf_refuses=True
    ),
    "tensor": Difference(
        "a TensorProto with more values than its shape, integers that its dtype cannot "
        "hold, or half a complex number",
        fastrec_refuses=True,
    ),
    "tensor lists": Difference(
        "a TensorProto with a list that cannot be read, of another dtype or in addition "
        "to its `tensor_content`",
        tf_refuses=True,
    ),
    "tensor bool": Difference(
        "a bool TensorProto whose `tensor_content` has bytes above 1", tf_refuses=True
    ),
    "tensor rank": Difference("a TensorProto of unknown rank", fastrec_refuses=True),
    "tensor dtype": Difference(
        "a TensorProto of a quantized, 4-bit or 8-bit float dtype", fastrec_refuses=True
    ),
    "tensor size": Difference(
        "a TensorProto that repeats its last value over more than 64 MiB",
        fastrec_refuses=True,
        crashes=True,
    ),
    "rows": Difference(
        "row ids of more than 2^24 rows", fastrec_refuses=True, crashes=True
    ),
}


# What protobuf's Python refuses, or sets aside, and fastrec reads.
NARROWER: dict[str, str] = {
    "key": "a key that is not UTF-8",
    "long": "a tag or a length in 6 to 10 bytes",
    "unasked": "a feature that was not requested, or that a later entry replaces, and "
    "that cannot be read",
    "depth": "groups and messages nested 100 deep together",
    "unknown in entry": "an unknown field in a map entry",
    "zero in group": "field number 0 inside a group",
    "no value": "map entries of which none has a value, or a number in field 1, and none of "
    "the features",
}


class UnreadableError(Exception):
    """A message that protobuf rejects."""


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
        self.n_entries = self.n_entries_with_values = 0  # of maps
        self.is_sequence = is_sequence
        self.all_specs = specs
        self.specs: dict[tuple[int, bytes], Spec] = {}
        for spec in specs:
            number = 2 if spec.section == "lists" else 1
            for key in keys_of(spec):
                self.specs[number, key.encode()] = spec
        self.numbers: dict[bytes, list[int]] = {}  # what is in int64 lists
        self.strings: dict[bytes, list[bytes]] = {}  # and in bytes lists
        self.n_values: dict[bytes, int] = {}
        # Of the steps of each list: how many values, and what is in int64 lists.
        self.list_steps: dict[bytes, list[tuple[int, list[int]]]] = {}

    # Fields.

    def varint(self, data: bytes, at: int, n_most: int = 10) -> tuple[int, int]:
        value = 0
        for i in range(10):
            if at + i == len(data):
                raise UnreadableError
            value |= (data[at + i] & 0x7F) << 7 * i
            if data[at + i] < 0x80:
                if i >= n_most:
                    self.narrower.add("long")
                return value % (1 << 64), at + i + 1
        raise UnreadableError

    def fields(self, data: bytes, *, is_known: bool = True) -> Iterator[Field]:
        """Return the fields of a message; note odd tags and lengths."""
        at = 0
        while at < len(data):
            begin = at
            value, at = self.varint(data, at, 5)
            number, kind = value >> 3, value & 7
            if is_known and at - begin > len(varint_bytes(value)):
                self.found.add("tags")
            if value >= 1 << 32 or number == 0:
                self.found.add("zero")
                raise UnreadableError
            if kind == VARINT:
                begin = at
                value, at = self.varint(data, at)
                yield Field(number, kind, data[begin:at], value)
            elif kind in (FIXED32, FIXED64):
                size = 4 if kind == FIXED32 else 8
                if at + size > len(data):
                    raise UnreadableError
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
                    raise UnreadableError
                yield Field(number, kind, data[at : at + length], 0)
                at += length
            elif kind == START:
                at = self.group(data, at, number, 1)
                yield Field(number, kind, b"", 0)
            else:
                raise UnreadableError

    def group(self, data: bytes, at: int, number: int, depth: int) -> int:
        """Return where a group ends."""
        if depth > 90:
            self.narrower.add("depth")
        if depth > 100:
            raise UnreadableError
        while True:
            value, at = self.varint(data, at, 5)
            inner, kind = value >> 3, value & 7
            if value >= 1 << 32 or inner == 0:
                self.narrower.add("zero in group")
                raise UnreadableError
            if kind == END:
                if inner != number:
                    raise UnreadableError
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
                raise UnreadableError
            if at > len(data):
                self.found.add("past")
                raise UnreadableError

    # Messages.

    def record(self, data: bytes) -> None:
        entries: dict[tuple[int, bytes], list[bytes]] = {}
        try:
            for field in self.fields(data):
                if field.type == START:
                    self.found.add("unknown")
                known = 2 if self.is_sequence else 1
                if field.number == 1 and field.type not in (DELIMITED, START):
                    self.found.add("number")
                    self.narrower.add("no value")
                if field.number <= known and field.type == DELIMITED:
                    self.map(field.number, field.content, entries)
                elif self.is_sequence:
                    self.found.add("sequence")
        except UnreadableError:
            pass
        for (number, key), values in entries.items():
            spec = self.specs.get((number, key))
            if spec is None or len(values) > 1:
                self.narrower.add("unasked")
            if number == 1 and any(begins_with_no_list(v) for v in values[:-1]):
                self.found.add("unasked")
            if spec is None:
                continue
            if number == 2:
                self.steps(spec, key, values[-1])
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
            except UnreadableError:
                is_readable = False
            self.n_entries += 1
            self.n_entries_with_values += bool(values)
            if sorted(order) != [1, 2]:
                self.found.add("entry")
                if len(values) > 1 or len(keys) > 1:
                    # Of two lists of one kind, TensorFlow reads only the last one.
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
                raise UnreadableError

    def steps(self, spec: Spec, key: bytes, data: bytes) -> None:
        found = self.list_steps.setdefault(key, [])
        try:
            for field in self.fields(data):
                if (field.number, field.type) == (1, DELIMITED):
                    self.feature(spec, b"", field.content, is_step=True)
                    found.append((self.n_values[b""], self.numbers[b""]))
                else:
                    self.found |= {"unknown", "sequence"}
        except UnreadableError:
            pass

    def feature(
        self, spec: Spec, key: bytes, data: bytes, *, is_step: bool
    ) -> list[int]:
        """Note what is odd about a feature, and return the kinds of its lists."""
        kinds: list[int] = []
        numbers: list[int] = []
        strings: list[bytes] = []
        n_fields = n_values = 0
        try:
            for field in self.fields(data):
                n_fields += 1
                if not (1 <= field.number <= 3 and field.type == DELIMITED):
                    self.found.add("unknown")
                    continue
                if kinds and kinds[-1] != field.number:
                    numbers, strings, n_values = [], [], 0
                kinds.append(field.number)
                n_values += self.values(
                    spec, field.number, field.content, numbers, strings
                )
        except UnreadableError:
            if kinds:
                self.found.add("after")
            if self.is_sequence and spec.form == "var":
                self.found.add("sequence past")
        if len(kinds) > len(set(kinds)):
            self.found.add("lists")
        if len(set(kinds)) > 1:
            self.found.add("kinds")
        if is_step and n_fields > 1:
            self.found.add("sequence")
        self.numbers[key] = numbers
        self.strings[key] = strings
        self.n_values[key] = n_values
        return kinds

    def values(
        self,
        spec: Spec,
        kind: int,
        data: bytes,
        numbers: list[int],
        strings: list[bytes],
    ) -> int:
        """Note what is odd about a list, and return its number of values."""
        n_values = 0
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
                    n_values += 1
                    if kind == 3:
                        numbers.append(field.number_value)
                    elif kind == 1:
                        strings.append(field.content)
                else:
                    n_packed += 1
                    n_values += self.packed(kind, field.content, numbers)
        except UnreadableError:
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
        return n_values

    def packed(self, kind: int, data: bytes, numbers: list[int]) -> int:
        if kind == 2:
            if len(data) % 4:
                self.found.add("floats")
                raise UnreadableError
            return len(data) // 4
        at = n = 0
        while at < len(data):
            value, at = self.varint(data, at)
            numbers.append(value)
            n += 1
        return n

    # Row rules.

    def rules(self) -> None:
        for spec in self.all_specs:
            if spec.form == "ragged" and spec.partitions:
                self.ragged(spec)
            elif spec.form == "sparse":
                for key, size in zip(spec.keys[1:], spec.shape, strict=True):
                    if any(n >= size for n in self.numbers.get(key.encode(), ())):
                        self.found.add("sparse")
                axes = [self.numbers.get(key.encode(), []) for key in spec.keys[1:]]
                indices = list(zip(*axes, strict=False))
                if len(set(indices)) < len(indices):
                    self.found.add("sparse twice")
            elif spec.form == "tensor":
                for string in self.strings.get(spec.name.encode(), ()):
                    self.found |= odd_tensor(string)

    def ragged(self, spec: Spec) -> None:
        """Return whether the partitions divide the values exactly (lists: by step)."""
        keys = [key.encode() for key in spec.keys]
        if spec.section != "lists":
            n_items = self.n_values.get(keys[0], 0)
            self.partitions(
                spec, n_items, {key: self.numbers.get(key, []) for key in keys}
            )
            return
        lists = [self.list_steps.get(key, []) for key in keys]
        if len({len(steps) for steps in lists}) > 1:
            self.found.add("ragged")
        for of_values, *numbers in zip(*lists, strict=False):
            of_step = {key: n for key, (_, n) in zip(keys[1:], numbers, strict=True)}
            self.partitions(spec, of_values[0], of_step)

    def partitions(
        self, spec: Spec, n_items: int, numbers_of: dict[bytes, list[int]]
    ) -> None:
        """As `ragged`, for one record or step, with the innermost partition first."""
        for kind, value in reversed(spec.partitions):
            if kind == "UniformRowLength":
                is_divided, n_rows = n_items % value == 0, n_items // value
            else:
                numbers = [signed(n) for n in numbers_of[value.encode()]]
                if kind == "RowSplits" and not numbers and spec.section != "lists":
                    self.found.add("no splits")
                if kind == "ValueRowIds" and max(numbers, default=0) >= 1 << 24:
                    self.found.add("rows")
                is_divided, n_rows = divides(kind, numbers, n_items)
            if not is_divided:
                self.found.add("ragged")
                return
            n_items = n_rows


def begins_with_no_list(value: bytes) -> bool:
    """Check what TensorFlow reads even if a later entry replaces the feature."""
    return value[:1] not in (b"", b"\x0a", b"\x12", b"\x1a")


def signed(value: int) -> int:
    """Return the int64 with these 64 bits."""
    return value - (1 << 64) if value >> 63 else value


def divides(kind: str, numbers: list[int], n_items: int) -> tuple[bool, int]:
    """Return whether a partition divides `n` items, and the number of rows."""
    is_sorted = numbers == sorted(numbers) and all(n >= 0 for n in numbers)
    if kind == "RowLengths":
        return min(numbers, default=0) >= 0 and sum(numbers) == n_items, len(numbers)
    if kind == "ValueRowIds":
        n_rows = numbers[-1] + 1 if numbers else 0
        return is_sorted and len(numbers) == n_items and n_rows <= 1 << 24, n_rows
    if not numbers:
        return n_items == 0, 0
    begins = kind == "RowLimits" or numbers[0] == 0
    if kind == "RowStarts":
        return is_sorted and begins and numbers[-1] <= n_items, len(numbers)
    is_whole = is_sorted and begins and numbers[-1] == n_items
    return is_whole, len(numbers) - (kind == "RowSplits")


# The field of the list, parts of a value, and bits (0: not a varint) by dtype number.
TENSOR_LISTS = {1: (5, 1, 0), 2: (6, 1, 0), 3: (7, 1, 32), 4: (7, 1, 8), 5: (7, 1, 16)}
TENSOR_LISTS |= {6: (7, 1, 8), 7: (8, 1, 0), 8: (9, 2, 0), 9: (10, 1, 64)}
TENSOR_LISTS |= {10: (11, 1, 1), 14: (13, 1, 16), 17: (7, 1, 16), 18: (12, 2, 0)}
TENSOR_LISTS |= {19: (13, 1, 16), 22: (16, 1, 32), 23: (17, 1, 64)}
SIGNED_TENSORS = (3, 5, 6, 9)
PART_BYTES = {1: 4, 2: 8, 8: 4, 18: 8}


def odd_tensor(data: bytes) -> set[str]:
    """Return the differences that a TensorProto may show."""
    walk = Walk([], is_sequence=False)
    dtype, sizes, content = 0, [], b""
    found: set[str] = set()
    try:
        fields = list(walk.fields(data))
        for field in fields:
            if field.number == 1 and field.type == VARINT:
                dtype = field.number_value
            elif field.number == 4 and field.type == DELIMITED:
                content = field.content
            elif field.number == 2 and field.type == DELIMITED:
                for dim in walk.fields(field.content):
                    if dim.number == 3 and dim.type == VARINT and dim.number_value:
                        found.add("tensor rank")
                    if dim.number == 2 and dim.type == DELIMITED:
                        numbers = [
                            size.number_value
                            for size in walk.fields(dim.content)
                            if size.number == 1 and size.type == VARINT
                        ]
                        sizes.append(numbers[-1] if numbers else 0)
        if dtype not in TENSOR_LISTS:
            return {"tensor dtype"}
        n_values = math.prod(sizes)
        number, n_parts, bits = TENSOR_LISTS[dtype]
        values = tensor_values(walk, fields, number, PART_BYTES.get(dtype, 0), bits)
    except UnreadableError:
        return set()
    if n_values > 1 << 20:
        found.add("tensor size")
    others = {field.number for field in fields if 5 <= field.number <= 17}
    if others - {number} or (content and others):
        found.add("tensor lists")
    if content:
        if n_values == 0:
            found.add("tensor")
        if dtype == 10 and any(byte > 1 for byte in content):
            found.add("tensor bool")
        return found
    low, high = 0, (1 << bits) - 1
    if dtype in SIGNED_TENSORS:
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        values = [signed(value) for value in values]
    if bits and bits < 64 and any(not low <= value <= high for value in values):
        found.add("tensor")
    if len(values) > n_values * n_parts or len(values) % n_parts:
        found.add("tensor")
    return found


def tensor_values(
    walk: Walk, fields: list[Field], number: int, part_bytes: int, bits: int
) -> list[int]:
    """Return the parts of the values in a list; all but varints are only counted."""
    values: list[int] = []
    for field in fields:
        if field.number != number:
            continue
        if not bits and not part_bytes:
            values += [0] * (field.type == DELIMITED)
        elif field.type != DELIMITED:
            values.append(field.number_value)
        elif bits:
            at = 0
            while at < len(field.content):
                value, at = walk.varint(field.content, at)
                values.append(value)
        else:
            values += [0] * (len(field.content) // part_bytes)
    return values


def varint_bytes(value: int) -> bytes:
    """Return the shortest encoding of a varint."""
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(value & 0x7F)
    return bytes(digits)


def find_differences(
    record: bytes, specs: Sequence[Spec], *, is_sequence: bool
) -> tuple[set[str], set[str]]:
    """Return the differences from TensorFlow, and reasons for protobuf to reject it."""
    walk = Walk(specs, is_sequence=is_sequence)
    walk.record(record)
    if walk.n_entries and not walk.n_entries_with_values:
        walk.narrower.add("no value")
    return walk.found, walk.narrower


def allows(name: str, ours: Any, theirs: Any) -> bool:
    """Return whether a difference explains these outcomes; None is a rejection."""
    difference = DIFFERENCES[name]
    if theirs is None:
        return difference.tf_refuses
    return difference.fastrec_refuses if ours is None else difference.differs
