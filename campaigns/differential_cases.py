"""Generate test cases: specs as plain data, and records that fit them, or nearly.

Everything is drawn from a `random.Random`, which has a seed, or which hypothesis
controls and shrinks. Three forms of records:

    valid      encodings that known writers produce and TensorFlow reads
    odd        other encodings that protobuf allows: pieces, unknown fields, duplicates
    malformed  flipped, truncated, inserted or deleted bytes, and wrong lengths
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from oracle_example import (
    FIELD_OF_KIND,
    Encoder,
    Feature,
    Kind,
    delimited,
    entry,
    feature,
    fixed32,
    fixed64,
    stored_float,
    tag,
    varint,
    varint_field,
)

Form: TypeAlias = Literal["valid", "odd", "malformed"]
FORMS: tuple[Form, ...] = ("valid", "odd", "malformed")
KINDS: tuple[Kind, ...] = ("int64", "float", "bytes")
PARTITIONS = ("RowSplits", "RowLengths", "RowStarts", "RowLimits", "ValueRowIds")
# The dtypes of tf.io.decode_raw, and of tensors.
RAW_DTYPES: tuple[str, ...] = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "bool",
    "float16",
)
RAW_DTYPES += ("float32", "float64", "complex64", "complex128")
SPEC_FORMS: tuple[str, ...] = (
    "fixed",
    "fixed",
    "sequence",
    "var",
    "ragged",
    "ragged",
    "sparse",
)
SPEC_FORMS += ("raw", "tensor", "stack")
TENSOR_DTYPES: tuple[str, ...] = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
)
TENSOR_DTYPES += ("uint64", "float16", "bfloat16", "float32", "float64", "complex64")
TENSOR_DTYPES += ("complex128", "string")


class Spec(NamedTuple):
    """One column, for both parsers."""

    form: str  # fixed, sequence, var, ragged, sparse, raw, tensor or stack
    name: str
    kind: Kind
    section: str = "features"  # features, context or lists
    shape: Any = ()  # None: a tensor of any shape; for sparse specs, the size
    default: Any = None
    # The features it reads; ragged and sparse specs begin with the values.
    keys: tuple[str, ...] = ()
    partitions: tuple[tuple[str, Any], ...] = ()
    splits: str = "int64"
    already_sorted: bool = False
    dtype: str = ""  # of raw ones and tensors
    little_endian: bool = True
    allow_missing: bool = True


# Specs.


def random_value(rng: random.Random, kind: Kind) -> Any:
    if kind == "bytes":
        return rng.randbytes(rng.randrange(5))
    if kind == "float":
        if rng.random() < 0.05:  # NaNs, signalling ones too, infinities, denormals
            return rng.choice(
                (b"\0\0\xc0\x7f", b"\1\0\x80\x7f", b"\0\0\x80\xff", b"\1\0\0\0")
            )
        return rng.randrange(-999, 999) / 8
    return rng.randrange(-(2**63), 2**63) >> rng.randrange(64)


def random_values(rng: random.Random, kind: Kind, n: int) -> list[Any]:
    return [random_value(rng, kind) for _ in range(n)]


def nested(values: Sequence[Any], shape: Sequence[int]) -> Any:
    """Values in nested lists of this shape."""
    if not shape:
        return values[0]
    step = len(values) // shape[0]
    return [
        nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])
    ]


def default_of(rng: random.Random, kind: Kind, shape: Sequence[int]) -> Any:
    if rng.random() < 0.5:
        return None
    n = math.prod(shape)
    if kind == "float":  # not -0.0, which TensorFlow may turn to 0.0
        return nested([rng.randrange(1, 99) / 8 for _ in range(n)], shape)
    return nested(random_values(rng, kind, n), shape)


def random_spec(rng: random.Random, i: int) -> Spec:
    kind = rng.choice(KINDS)
    name = f"f{i}"
    shape = rng.choice(((), (), (1,), (2,), (2, 2)))
    form = rng.choice(SPEC_FORMS)
    if form == "fixed":
        return Spec(form, name, kind, shape=shape, default=default_of(rng, kind, shape))
    if form == "sequence":
        default = default_of(rng, kind, ())
        return Spec(form, name, kind, shape=shape, default=default)
    if form == "var":
        return Spec(form, name, kind)
    if form == "ragged":
        return partitioned(rng, Spec(form, name, kind))
    if form == "sparse":
        n_axes = rng.choice((1, 1, 2))
        keys = (f"{name}v", *(f"{name}i{axis}" for axis in range(n_axes)))
        sizes = tuple(rng.randrange(1, 9) for _ in range(n_axes))
        is_sorted = rng.random() < 0.3
        return Spec(form, name, kind, shape=sizes, keys=keys, already_sorted=is_sorted)
    if form == "stack":
        keys = tuple(f"{name}k{n}" for n in range(rng.randrange(1, 4)))
        values = default_of(rng, kind, (len(keys),))
        return Spec(form, name, kind, default=values, keys=keys)
    if form == "raw":
        dtype = rng.choice(RAW_DTYPES)
        is_little = rng.random() < 0.7 or dtype == "bool"
        return Spec(
            form, name, "bytes", shape=shape, dtype=dtype, little_endian=is_little
        )
    dtype = rng.choice(TENSOR_DTYPES)
    tensor_shape: Any = rng.choice(((), (2,), (1, 2), (0,), None))
    return Spec(form, name, "bytes", shape=tensor_shape, dtype=dtype)


def partitioned(rng: random.Random, spec: Spec) -> Spec:
    """Return a ragged column with any number of partitions."""
    levels: list[tuple[str, Any]] = []
    for level in range(rng.choice((0, 1, 1, 2, 3))):
        if rng.random() < 0.25:
            levels.append(("UniformRowLength", rng.randrange(1, 4)))
        else:
            levels.append((rng.choice(PARTITIONS), f"{spec.name}p{level}"))
    keys = (f"{spec.name}v", *(v for _, v in levels if isinstance(v, str)))
    splits = rng.choice(("int32", "int64"))
    return spec._replace(keys=keys, partitions=tuple(levels), splits=splits)


def random_specs(rng: random.Random) -> list[Spec]:
    """Return columns of Examples."""
    return [random_spec(rng, i) for i in range(rng.choice((1, 1, 2, 3)))]


def random_sequence_specs(rng: random.Random) -> list[Spec]:
    """Return columns of SequenceExamples, with at least one list."""
    specs = []
    for i in range(rng.choice((0, 1, 1, 2))):
        kind = rng.choice(KINDS)
        form = rng.choice(("fixed", "fixed", "var", "ragged"))
        shape: Any = rng.choice(((), (1,), (2,))) if form == "fixed" else ()
        default = default_of(rng, kind, shape) if form == "fixed" else None
        specs.append(Spec(form, f"c{i}", kind, "context", shape, default))
    for i in range(rng.choice((1, 1, 2))):
        kind = rng.choice(KINDS)
        form = rng.choice(("sequence", "sequence", "var", "ragged"))
        shape = rng.choice(((), (1,), (2,), (2, 2))) if form == "sequence" else ()
        # The context may have a column of the same name.
        name = rng.choice((f"l{i}", f"l{i}", f"c{i}"))
        spec = Spec(form, name, kind, "lists", shape)
        if form == "ragged" and rng.random() < 0.7:
            spec = partitioned(rng, spec)
        specs.append(spec._replace(allow_missing=rng.random() < 0.7))
    splits = rng.choice(("int32", "int64"))
    return [
        spec._replace(keys=(spec.name,), splits=splits)
        if spec.form == "ragged" and not spec.keys
        else spec
        for spec in specs
    ]


# Features that fit a spec, or nearly.


def keys_of(spec: Spec) -> tuple[str, ...]:
    """Return the features that a spec reads."""
    return spec.keys or (spec.name,)


def random_features(rng: random.Random, specs: Sequence[Spec], p: float) -> Any:
    """Return a record's features and lists; each is odd with probability `p`."""
    features: dict[bytes, Any] = {}
    lists: dict[bytes, Any] = {}
    for spec in specs:
        if spec.section == "lists":
            if spec.partitions:
                lists.update(random_partitioned_steps(rng, spec, p))
            elif rng.random() < 0.9:
                lists[keys_of(spec)[0].encode()] = random_steps(rng, spec, p)
            continue
        fits = fitting(rng, spec)
        # Required features are rarely missing, so that most records are not rejected.
        is_required = spec.form in ("fixed", "raw", "tensor", "stack")
        missing = 0.01 if is_required and spec.default is None else 0.08
        if spec.form in ("ragged", "sparse") and rng.random() < p:
            change_numbers(rng, fits)
        for key, found in fits.items():
            chance = rng.random()
            if chance < p:
                other = rng.choice(KINDS)
                features[key] = other, random_values(rng, other, rng.randrange(4))
            elif chance < p + missing:
                features[key] = None
            elif chance > 1 - missing:
                continue  # absent
            else:
                features[key] = found
    if rng.random() < 0.2:
        kind = rng.choice(KINDS)
        features[b"else"] = kind, random_values(rng, kind, rng.randrange(3))
    return features, lists


def fitting(rng: random.Random, spec: Spec) -> dict[bytes, Any]:
    kind, name = spec.kind, spec.name.encode()
    if spec.form == "fixed":
        n = math.prod(spec.shape)
        return {name: (kind, random_values(rng, kind, n))}
    if spec.form == "sequence":
        n = math.prod(spec.shape) * rng.randrange(4)
        return {name: (kind, random_values(rng, kind, n))}
    if spec.form == "var":
        return {name: (kind, random_values(rng, kind, rng.choice((0, 1, 1, 2, 4))))}
    if spec.form == "stack":
        return {key.encode(): (kind, random_values(rng, kind, 1)) for key in spec.keys}
    if spec.form == "ragged":
        return fitting_ragged(rng, spec)
    if spec.form == "sparse":
        n = rng.randrange(5)
        found: dict[bytes, Any] = {
            spec.keys[0].encode(): (kind, random_values(rng, kind, n))
        }
        for key, size in zip(spec.keys[1:], spec.shape, strict=True):
            found[key.encode()] = "int64", [rng.randrange(size) for _ in range(n)]
        first = spec.keys[1].encode()
        if n <= spec.shape[0] and rng.random() < 0.95:  # no index twice
            found[first] = "int64", rng.sample(range(spec.shape[0]), n)
        return found
    if spec.form == "raw":
        n = math.prod(spec.shape) * item_bytes(spec.dtype)
        if rng.random() < 0.05:
            n += rng.randrange(-1, 2)
        return {name: ("bytes", [rng.randbytes(max(n, 0))])}
    return {name: ("bytes", [random_tensor(rng, spec)])}


def item_bytes(dtype: str) -> int:
    if dtype == "bool":
        return 1
    digits = "".join(c for c in dtype if c.isdigit())
    return int(digits) // 8


def fitting_ragged(rng: random.Random, spec: Spec) -> dict[bytes, Any]:
    """Return values, and partitions that divide them."""
    levels = spec.partitions
    total = math.prod(n for _, n in levels if isinstance(n, int)) * rng.randrange(4)
    kind = spec.kind
    found: dict[bytes, Any] = {
        spec.keys[0].encode(): (kind, random_values(rng, kind, total))
    }
    for i in reversed(range(len(levels))):
        level, value = levels[i]
        if isinstance(value, int):
            total //= value
            continue
        # The number of rows must be divisible by the outer partitions.
        above = math.prod(n for _, n in levels[:i] if isinstance(n, int))
        cuts = sorted(rng.randrange(total + 1) for _ in range(rng.randrange(4)))
        lengths = [b - a for a, b in itertools.pairwise([0, *cuts, total])]
        if total == 0:
            lengths = lengths[1:]
        lengths += [0] * (-len(lengths) % above)
        ends = list(itertools.accumulate(lengths))
        numbers = {
            "RowSplits": [0, *ends],
            "RowLengths": lengths,
            "RowStarts": [0, *ends][: len(lengths)],
            "RowLimits": ends,
            "ValueRowIds": [row for row, n in enumerate(lengths) for _ in range(n)],
        }[level]
        total = len(lengths)
        if level == "ValueRowIds":
            total = max(numbers, default=-1) + 1
            extra = -total % above  # empty rows at the end
            numbers, total = [n + extra for n in numbers], total + extra
        found[value.encode()] = "int64", numbers
    return found


def change_numbers(rng: random.Random, features: dict[bytes, Any]) -> None:
    """Change one number of a partition, or their count."""
    key = rng.choice(sorted(features))
    kind, values = features[key]
    values = list(values)
    change = rng.randrange(3)
    if change == 0 or not values:
        values.insert(rng.randrange(len(values) + 1), random_value(rng, kind))
    elif change == 1:
        values.pop(rng.randrange(len(values)))
    if kind == "int64" and values and change != 1:
        values[rng.randrange(len(values))] = rng.randrange(-1, 9)
    features[key] = kind, values


def random_steps(rng: random.Random, spec: Spec, p: float) -> list[Feature]:
    steps: list[Feature] = []
    for _ in range(rng.randrange(4)):
        n = math.prod(spec.shape) if spec.form == "sequence" else rng.choice((0, 1, 3))
        kind = spec.kind
        if rng.random() < p:
            if rng.random() < 0.4:
                steps.append(None)
                continue
            kind, n = rng.choice(KINDS), rng.randrange(4)
        steps.append((kind, random_values(rng, kind, n)))
    return steps


def random_partitioned_steps(
    rng: random.Random, spec: Spec, p: float
) -> dict[bytes, list[Feature]]:
    """Return lists of values and partitions, usually with equal numbers of steps."""
    lists: dict[bytes, list[Feature]] = {key.encode(): [] for key in spec.keys}
    for _ in range(rng.randrange(4)):
        fits = fitting_ragged(rng, spec)
        if rng.random() < p:
            change_numbers(rng, fits)
        for key, found in fits.items():
            lists[key].append(None if rng.random() < p / 4 else found)
    key = rng.choice(sorted(lists))
    if rng.random() < p and lists[key]:
        lists[key].pop()
    if rng.random() < p:
        del lists[key]
    return lists


# Tensors.

# Numbers of types.proto, and the fields of the lists.
TENSOR_NUMBERS = {"float32": (1, 5), "float64": (2, 6), "int32": (3, 7)}
TENSOR_NUMBERS |= {"uint8": (4, 7), "int16": (5, 7), "int8": (6, 7)}
TENSOR_NUMBERS |= {"string": (7, 8), "complex64": (8, 9), "int64": (9, 10)}
TENSOR_NUMBERS |= {"bool": (10, 11), "bfloat16": (14, 13), "uint16": (17, 7)}
TENSOR_NUMBERS |= {"complex128": (18, 12), "float16": (19, 13)}
TENSOR_NUMBERS |= {"uint32": (22, 16), "uint64": (23, 17)}


def tensor_value(rng: random.Random, dtype: str) -> bytes:
    """Return a value as stored in the list of its dtype; numbers without a tag."""
    if dtype in ("float32", "float64", "complex64", "complex128"):
        return rng.randbytes(item_bytes(dtype))
    if dtype == "bool":
        return varint(rng.randrange(2))
    low, high = -(2**63), 2**63 - 1
    if dtype in ("float16", "bfloat16"):
        low, high = 0, 2**16 - 1
    elif dtype.startswith("u"):
        low, high = 0, 2 ** (8 * item_bytes(dtype)) - 1
    elif dtype != "int64":
        high = 2 ** (8 * item_bytes(dtype) - 1) - 1
        low = -high - 1
    if rng.random() < 0.02:  # one that the dtype cannot hold
        return varint(rng.choice((low - 1, high + 1)))
    return varint(rng.randrange(low, high + 1))


def random_tensor(rng: random.Random, spec: Spec) -> bytes:
    """Return a TensorProto."""
    shape = rng.choice(((), (2,), (3, 1))) if spec.shape is None else spec.shape
    dtype = spec.dtype if rng.random() > 0.02 else rng.choice(TENSOR_DTYPES)
    number, field = TENSOR_NUMBERS[dtype]
    sizes = [delimited(2, varint_field(1, n) if n else b"") for n in shape]
    parts = [varint_field(1, number), delimited(2, b"".join(sizes))]
    n_values = math.prod(shape)
    chance = rng.random()
    if dtype == "string":
        n = n_values if chance < 0.7 else rng.randrange(n_values + 2)
        parts += [delimited(field, rng.randbytes(rng.randrange(4))) for _ in range(n)]
        return b"".join(parts)
    if chance < 0.4:
        size = n_values * item_bytes(dtype)
        if rng.random() < 0.1:
            size = max(size + rng.randrange(-2, 3), 0)
        data = rng.randbytes(size)
        if dtype == "bool":  # a byte other than 0 and 1 is not a bool in TensorFlow
            data = bytes(byte & 1 for byte in data)
        parts.append(delimited(4, data))
    else:
        # The last values may be omitted; there may be more than the shape has.
        n = n_values if chance < 0.7 else rng.randrange(n_values + 2)
        values = [tensor_value(rng, dtype) for _ in range(n)]
        if values and rng.random() < 0.3 and dtype[0] not in "fc":
            parts += [tag(field, 0) + value for value in values]
        elif values:
            parts.append(delimited(field, b"".join(values)))
    if rng.random() < 0.1:
        rng.shuffle(parts)
    return b"".join(parts)


# Records.


class Odd(Encoder):
    """An encoder that deviates in each way with some probability."""

    def __init__(self, rng: random.Random, scale: float) -> None:
        super().__init__(rng, unknown_in_entries=rng.random() < 0.3)
        self.scale = scale

    def maybe(self, probability: float) -> bool:
        # For p = 0.9, the deviation is that it does not happen.
        if probability > 0.5:
            probability = 1 - (1 - probability) * self.scale
        else:
            probability *= self.scale
        return super().maybe(probability)

    def cut(self, values: Any) -> Any:
        return super().cut(values) if super().maybe(self.scale) else [list(values)]


def plain_feature(rng: random.Random, found: Feature) -> bytes:
    """Encode a feature in one piece, its numbers packed or not."""
    if found is None:
        return b""
    kind, values = found
    if kind == "bytes" or rng.random() < 0.5:
        return feature(kind, values)
    if kind == "float":
        items = [fixed32(1, stored_float(v)) for v in values]
    else:
        items = [varint_field(1, v) for v in values if isinstance(v, int)]
    return delimited(FIELD_OF_KIND[kind], b"".join(items))


def steps_of(rng: random.Random, steps: Sequence[Feature]) -> bytes:
    return b"".join(delimited(1, plain_feature(rng, step)) for step in steps)


def unknown_field(rng: random.Random) -> bytes:
    """Return an unknown field that TensorFlow also skips outside of features."""
    number = rng.choice((3, 15, 16, 2047))
    return rng.choice(
        (
            varint_field(number, rng.randrange(1 << 64)),
            fixed32(number),
            fixed64(number),
            delimited(number, b"\x03\xff"),
        )
    )


def valid_record(
    rng: random.Random,
    features: dict[bytes, Any],
    lists: dict[bytes, Any],
    *,
    is_sequence: bool,
) -> bytes:
    entries = [entry(key, plain_feature(rng, found)) for key, found in features.items()]
    rng.shuffle(entries)
    some = [key for key, found in features.items() if found is not None]
    if some and rng.random() < 0.2:  # one that is replaced
        kind = rng.choice(KINDS)
        loser = feature(kind, random_values(rng, kind, rng.randrange(3)))
        entries.insert(0, entry(rng.choice(some), loser))
    n_first = rng.randrange(len(entries) + 1) if rng.random() < 0.1 else len(entries)
    parts = [b"".join(entries[:n_first]), b"".join(entries[n_first:])]
    parts = [delimited(1, part) for part in parts if part or rng.random() < 0.5]
    if is_sequence:
        list_entries = [entry(key, steps_of(rng, s)) for key, s in lists.items()]
        rng.shuffle(list_entries)
        parts.insert(
            rng.randrange(len(parts) + 1), delimited(2, b"".join(list_entries))
        )
    elif rng.random() < 0.1:
        parts.insert(rng.randrange(len(parts) + 1), unknown_field(rng))
    return b"".join(parts)


def odd_record(
    rng: random.Random,
    features: dict[bytes, Any],
    lists: dict[bytes, Any],
    *,
    is_sequence: bool,
) -> bytes:
    encoder = Odd(rng, rng.choice((0.01, 0.05, 0.3)))
    found = dict(features)
    if rng.random() < 0.15:
        found[rng.choice((b"\xff", b"k\x80", b"\xed\xa0\x80"))] = "int64", [1]
    items = list(found.items())
    rng.shuffle(items)
    found = dict(items)
    record = encoder.sequence(found, lists) if is_sequence else encoder.example(found)
    chance = rng.random()
    keys = list(features) or [b"f0"]
    if chance < 0.15:  # the last of a key, perhaps without a kind, or empty
        kind = rng.choice(KINDS)
        value = rng.choice((b"", b"", feature(kind, []), feature(kind, [1][:0])))
        record += delimited(1, entry(rng.choice(keys), value))
    elif chance < 0.25:  # an entry of an odd form
        key = delimited(1, rng.choice(keys))
        value = delimited(2, feature("int64", [3]))
        forms = [key, value, b"", key + key, value + value, key + value + value]
        forms += [value + key, key + value + fixed32(3), fixed32(9) + key + value]
        form = rng.choice(forms)
        record += delimited(1, delimited(1, form))
    elif chance < 0.3 and record[:1] == b"\x0a":  # an overlong tag at the top
        record = b"\x8a" + b"\x80" * rng.randrange(0, 8) + b"\x00" + record[1:]
    elif chance < 0.35:
        record += tag(9, 3) + tag(9, 4)
    elif chance < 0.4:  # two lists, or more of a feature after its list
        more = rng.choice(
            (b"\x1a\x00", b"\x0a\x00", b"\x12\x00", b"\x22\x01x", b"\x1a\x02\x08\x05")
        )
        value = feature("int64", [2]) + more
        record += delimited(1, entry(rng.choice(keys), value))
    return record


# Candidates for lengths: mostly small bytes.
HOSTILE: tuple[bytes, ...] = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\x0a",
    b"\x12",
    b"\x1a",
)
HOSTILE += (b"\x08", b"\x0d", b"\x0b", b"\x0c", b"\x0e", b"\x80\x00", b"\x22")
HOSTILE += (varint(2**31 - 1), varint(2**32 - 1), varint(2**32 + 2), varint(2**64 - 1))


def broken(rng: random.Random, record: bytes) -> bytes:
    """Return a record with some changed bytes."""
    data = bytearray(record)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not data:
            data += rng.randbytes(rng.randrange(4))
            continue
        at = rng.randrange(len(data))
        change = rng.randrange(7)
        if change == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            del data[at:]
        elif change == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 4))
        elif change == 3:
            del data[at : at + rng.randrange(1, 4)]
        elif change == 4 and rng.random() < 0.3:
            data[at : at + 1] = rng.choice(HOSTILE)
        elif change == 5:
            data[at:at] = rng.choice(HOSTILE[:-4])
        else:  # lengths are small numbers
            small = [i for i, byte in enumerate(data) if byte < 64]
            at = rng.choice(small) if small else at
            data[at] = max(data[at] + rng.choice((-2, -1, 1, 2, 5)), 0) % 256
    return bytes(data)


def random_record(
    rng: random.Random, specs: Sequence[Spec], form: Form, *, is_sequence: bool
) -> bytes:
    """Return a record for these columns."""
    p = rng.choice((0.0, 0.0, 0.0, 0.0, 0.05, 0.1))
    features, lists = random_features(rng, specs, p)
    write = valid_record
    if form == "odd" or (form == "malformed" and rng.random() < 0.3):
        write = odd_record
    record = write(rng, features, lists, is_sequence=is_sequence)
    return broken(rng, record) if form == "malformed" else record
