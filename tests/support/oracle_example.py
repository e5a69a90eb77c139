"""Encode tf.train.Example messages in every valid way.

    Example  { Features features = 1; }
    Features { map<string, Feature> feature = 1; }   an entry is { key = 1; value = 2; }
    Feature  { oneof { BytesList = 1; FloatList = 2; Int64List = 3; } }
    *List    { repeated value = 1; }                 numbers packed or not

Source: tensorflow/core/example/{example,feature}.proto, and
protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["bytes", "float", "int64"]
# Values of one kind; None is a feature without a kind. A float is a Python float or
# the four bytes it is stored as.
Feature: TypeAlias = tuple[Kind, Sequence[bytes | float | int]] | None
Features: TypeAlias = Mapping[bytes, Feature]

FIELD_OF_KIND: dict[Kind, int] = {"bytes": 1, "float": 2, "int64": 3}
VARINT, FIXED64, DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)
TAG_BYTES_MAX = LENGTH_BYTES_MAX = 5
VARINT_BYTES_MAX = 10


def varint(value: int, n_extra: int = 0) -> bytes:
    """Encode `value` modulo 2**64, with `n_extra` superfluous bytes."""
    value %= 1 << 64
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(value & 0x7F)
    digits += [0] * n_extra
    return bytes([digit | 0x80 for digit in digits[:-1]] + digits[-1:])


def tag(number: int, wire_type: int, n_extra: int = 0) -> bytes:
    """Encode a field number and wire type."""
    return varint(number << 3 | wire_type, n_extra)


def delimited(number: int, payload: bytes) -> bytes:
    """Encode a length-delimited field."""
    return tag(number, DELIMITED) + varint(len(payload)) + payload


def varint_field(number: int, value: int) -> bytes:
    """Encode a varint field."""
    return tag(number, VARINT) + varint(value)


def fixed32(number: int, payload: bytes = b"fix4") -> bytes:
    """Encode a field of four bytes."""
    return tag(number, FIXED32) + payload


def fixed64(number: int, payload: bytes = b"fixed8by") -> bytes:
    """Encode a field of eight bytes."""
    return tag(number, FIXED64) + payload


def stored_float(value: bytes | float) -> bytes:
    """Return the four bytes of a float."""
    return value if isinstance(value, bytes) else struct.pack("<f", value)


def entry(key: bytes, value: bytes) -> bytes:
    """Encode one entry of the map in Features."""
    return delimited(1, delimited(1, key) + delimited(2, value))


def feature(kind: Kind, values: Sequence[bytes | float | int]) -> bytes:
    """Encode a Feature message in canonical form."""
    return Encoder().feature((kind, values))


def example(features: Features) -> bytes:
    """Encode an Example message in canonical form."""
    return Encoder().example(features)


def sequence(
    context: Features, lists: Mapping[bytes, Sequence[Feature]] | None = None
) -> bytes:
    """Encode a SequenceExample message in canonical form."""
    return Encoder().sequence(context, lists or {})


class Encoder:
    """Encodes Examples, in canonical form or in a form that `rng` chooses each time.

    A parser that follows protobuf's rules reads the same features from every form. The
    exception is protobuf's upb (Python, PHP, Ruby), which discards entries with unknown
    fields: `unknown_in_entries=False` avoids them. fastrec takes a message in which no entry
    has a value for another one, so some entry has one.
    """

    def __init__(
        self, rng: random.Random | None = None, *, unknown_in_entries: bool = True
    ) -> None:
        self.rng = rng
        self.unknown_in_entries = unknown_in_entries
        self._omits_values = True

    def maybe(self, probability: float) -> bool:
        return self.rng is not None and self.rng.random() < probability

    def below(self, n: int) -> int:
        return 0 if self.rng is None else self.rng.randrange(n)

    def shuffled(self, parts: list[bytes]) -> list[bytes]:
        return parts if self.rng is None else self.rng.sample(parts, len(parts))

    def cut(
        self, values: Sequence[bytes | float | int]
    ) -> list[list[bytes | float | int]]:
        """Split `values` into one or more pieces, of which some may be empty."""
        ends = sorted(self.below(len(values) + 1) for _ in range(self.below(4)))
        begins = [0, *ends]
        pairs = zip(begins, [*ends, len(values)], strict=True)
        return [list(values[begin:end]) for begin, end in pairs]

    # Pieces.

    def varint(self, value: int, n_bytes_max: int = VARINT_BYTES_MAX) -> bytes:
        plain = varint(value)
        if self.maybe(0.9):
            return plain
        return varint(value, self.below(n_bytes_max - len(plain) + 1))

    def tag(self, number: int, wire_type: int) -> bytes:
        return self.varint(number << 3 | wire_type, TAG_BYTES_MAX)

    def delimited(self, number: int, payload: bytes) -> bytes:
        length = self.varint(len(payload), LENGTH_BYTES_MAX)
        return self.tag(number, DELIMITED) + length + payload

    def unknown(self, known: int, depth: int = 0) -> bytes:
        """Encode an unknown field of a message with the fields 1 to `known`."""
        number = (known + 1, 15, 16, 2047, 2**29 - 1)[self.below(5)]
        kind = self.below(5 if depth < 3 else 4)
        if kind == 0:
            return self.tag(number, VARINT) + self.varint(self.below(1 << 64))
        if kind == 1:
            return self.tag(number, FIXED64) + b"\x0a\xff\x00\x80\x0c\xff\xff\xff"
        if kind == 2:
            return self.tag(number, DELIMITED) + b"\x03\xff\xff\xff"
        if kind == 3:
            return self.tag(number, FIXED32) + b"\x0a\xff\x00\x80"
        inside = b"".join(self.unknown(0, depth + 1) for _ in range(self.below(3)))
        return self.tag(number, START_GROUP) + inside + self.tag(number, END_GROUP)

    def among_unknown(self, parts: list[bytes], known: int) -> bytes:
        """Join `parts` in order, with unknown fields before, between and after."""
        if not self.maybe(0.2):
            return b"".join(parts)
        for _ in range(1 + self.below(2)):
            parts.insert(self.below(len(parts) + 1), self.unknown(known))
        return b"".join(parts)

    # Messages.

    def items(self, kind: Kind, values: Sequence[bytes | float | int]) -> bytes:
        """Encode a *List message."""
        if kind == "bytes":
            parts = [
                self.delimited(1, value) for value in values if isinstance(value, bytes)
            ]
            return self.among_unknown(parts, known=1)
        parts = []
        for chunk in self.cut(values):
            stored = [self.number(kind, value) for value in chunk]
            if self.maybe(0.3):
                wire_type = FIXED32 if kind == "float" else VARINT
                parts += [self.tag(1, wire_type) + value for value in stored]
            elif stored or self.maybe(0.5):
                parts.append(self.delimited(1, b"".join(stored)))
        return self.among_unknown(parts, known=1)

    def number(self, kind: Kind, value: bytes | float) -> bytes:
        if kind == "float":
            return stored_float(value)
        if not isinstance(value, int):
            raise TypeError(f"an int64 list cannot hold {value!r}")
        return self.varint(value)

    def loser(self) -> bytes:
        """Encode a list that the next list, of another kind, replaces."""
        return (b"\x0a\x03\x0a\x01x", b"\x12\x06\x0a\x04abcd", b"\x1a\x03\x0a\x01\x07")[
            self.below(3)
        ]

    def feature(self, feature: Feature) -> bytes:
        """Encode a Feature message."""
        return b"".join(self.feature_parts(feature))

    def feature_parts(self, feature: Feature) -> list[bytes]:
        """Return Feature messages that merge to `feature`."""
        if feature is None:
            return [self.among_unknown([], known=3)]
        kind, values = feature
        lists = [
            self.delimited(FIELD_OF_KIND[kind], self.items(kind, chunk))
            for chunk in (self.cut(values) if self.maybe(0.3) else [values])
        ]
        if self.maybe(0.1):
            loser = self.loser()
            if loser[0] != FIELD_OF_KIND[kind] << 3 | DELIMITED:
                lists.insert(0, loser)
        n_first = self.below(len(lists) + 1)
        return [
            self.among_unknown(lists[:n_first], known=3),
            self.among_unknown(lists[n_first:], known=3),
        ]

    def entry(self, key: bytes, feature: Feature) -> bytes:
        """Encode an entry of the map: key and value fields, in any order and number."""
        parts = self.feature_parts(feature)
        if feature is None and self._omits_values and self.maybe(0.5):
            values = []
        elif self.maybe(0.2):
            values = [self.delimited(2, part) for part in parts]
        else:
            values = [self.delimited(2, b"".join(parts))]
        keys = [self.delimited(1, key)]
        if key == b"" and self.maybe(0.5):
            keys = []
        if self.maybe(0.1):
            keys.insert(0, self.delimited(1, b"replaced"))
        fields = [*values, *keys] if self.maybe(0.2) else [*keys, *values]
        if self.unknown_in_entries:
            return self.delimited(1, self.among_unknown(fields, known=2))
        return self.delimited(1, b"".join(fields))

    def steps(self, steps: Sequence[Feature]) -> bytes:
        """Encode a FeatureList message."""
        parts = [self.delimited(1, self.feature(step)) for step in steps]
        return self.among_unknown(parts, known=1)

    def sequence(
        self, context: Features, lists: Mapping[bytes, Sequence[Feature]]
    ) -> bytes:
        """Encode a SequenceExample message."""
        self._omits_values = any(feature is not None for feature in context.values())
        entries = [self.entry(key, feature) for key, feature in context.items()]
        list_entries = []
        for key, steps in lists.items():
            n_first = self.below(len(steps) + 1)
            values = [steps[:n_first], steps[n_first:]]
            if not self.maybe(0.2):  # a message in one piece
                values = [steps]
            fields = [self.delimited(1, key)]
            fields += [self.delimited(2, self.steps(value)) for value in values]
            list_entries.append(self.delimited(1, b"".join(self.shuffled(fields[:2]))))
            if len(fields) > 2:
                list_entries[-1] = self.delimited(1, b"".join(fields))
        parts = [
            self.delimited(1, self.among_unknown(self.shuffled(entries), known=1)),
            self.delimited(2, self.among_unknown(self.shuffled(list_entries), known=1)),
        ]
        return self.among_unknown(self.shuffled(parts), known=2)

    def example(self, features: Features) -> bytes:
        """Encode an Example message."""
        self._omits_values = any(feature is not None for feature in features.values())
        entries = [self.entry(key, feature) for key, feature in features.items()]
        entries = self.shuffled(entries)
        for key in features:
            if self.maybe(
                0.1
            ):  # The last entry of a key replaces earlier ones entirely.
                loser = self.delimited(
                    1, delimited(1, key) + delimited(2, self.loser())
                )
                entries.insert(0, loser)
        pieces = [entries]
        if self.maybe(0.2):
            n_first = self.below(len(entries) + 1)
            pieces = [entries[:n_first], entries[n_first:]]
        parts = [
            self.delimited(1, self.among_unknown(piece, known=1)) for piece in pieces
        ]
        return self.among_unknown(parts, known=1)
