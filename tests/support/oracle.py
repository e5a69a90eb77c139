"""A slow, independent decoder: one record and a spec -> its cells.

A cell is one row of a column as a NumPy array: numbers in the column's dtype, byte
strings as objects. It does not import `fastrec`; `columns.py` converts between them.

Bytes follow protobuf's rules, features those of tf.io.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle_example import (
    DELIMITED,
    END_GROUP,
    FIXED32,
    FIXED64,
    START_GROUP,
    VARINT,
    Encoder,
    Feature,
    Features,
    Kind,
    example,
)
from oracle_frames import crc32c, frame, frame_offsets, header, tfrecord_file

__all__ = [
    "Cell",
    "Encoder",
    "Feature",
    "Features",
    "Fixed",
    "Kind",
    "MismatchError",
    "Raw",
    "Spec",
    "Var",
    "WireError",
    "crc32c",
    "decode",
    "example",
    "features_of",
    "fields",
    "frame",
    "frame_offsets",
    "header",
    "messages",
    "objects",
    "tfrecord_file",
]

Cell: TypeAlias = NDArray[Any]

KIND_OF_FIELD: dict[int, Kind] = {1: "bytes", 2: "float", 3: "int64"}


class WireError(Exception):
    """The record is not a tf.train.Example."""

    def __init__(self, at: int, trouble: str) -> None:
        super().__init__(f"{trouble} at byte {at} of a message")


class MismatchError(Exception):
    """The record does not match the spec."""


@dataclass(frozen=True)
class Fixed:
    """Like fastrec.FixedLen."""

    dtype: str
    shape: tuple[int, ...] = ()
    default: Any = None
    key: bytes | None = None


@dataclass(frozen=True)
class Var:
    """Like fastrec.VarLen."""

    dtype: str
    shape: tuple[int, ...] = ()
    key: bytes | None = None


@dataclass(frozen=True)
class Raw:
    """Like fastrec.Raw."""

    shape: tuple[int, ...]
    dtype: str
    little_endian: bool = True
    default: Any = None
    key: bytes | None = None


Spec: TypeAlias = Mapping[str, Fixed | Var | Raw]


# Bytes -> fields.


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at `at`, modulo 2**64, and its end."""
    value = 0
    for i in range(10):
        if at + i >= len(data):
            raise WireError(at, "a varint that is cut")
        value |= (data[at + i] & 0x7F) << 7 * i
        if data[at + i] < 0x80:
            return value % (1 << 64), at + i + 1
    raise WireError(at, "a varint of more than 10 bytes")


def read_tag(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the field number, the wire type, and the end of the tag."""
    value, at = read_varint(data, at)
    if value >= 1 << 32 or value >> 3 == 0:
        raise WireError(at, "an impossible field number")
    return value >> 3, value & 7, at


def read_value(data: bytes, at: int, wire_type: int) -> tuple[int | bytes, int]:
    """Return the value at `at`, which must not be a group, and its end."""
    if wire_type == VARINT:
        return read_varint(data, at)
    if wire_type == DELIMITED:
        length, at = read_varint(data, at)
    elif wire_type in (FIXED32, FIXED64):
        length = 4 if wire_type == FIXED32 else 8
    else:
        raise WireError(at, f"wire type {wire_type} where a value must be")
    if length > len(data) - at:
        raise WireError(at, "a value that reaches past the end")
    return data[at : at + length], at + length


def skip_group(data: bytes, at: int, number: int) -> int:
    """Return the end of the group whose begin tag is just before `at`."""
    open_groups = [number]
    while open_groups:
        number, wire_type, at = read_tag(data, at)
        if wire_type == START_GROUP:
            open_groups.append(number)
        elif wire_type == END_GROUP:
            if open_groups.pop() != number:
                raise WireError(at, "a group that ends with another number")
        else:
            _, at = read_value(data, at, wire_type)
    return at


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield number, wire type and value of each field; the value of a group is b""."""
    at = 0
    while at < len(data):
        number, wire_type, at = read_tag(data, at)
        if wire_type == START_GROUP:
            at = skip_group(data, at, number)
            yield number, wire_type, b""
        else:
            value, at = read_value(data, at, wire_type)
            yield number, wire_type, value


def messages(data: bytes, number: int) -> Iterator[bytes]:
    """Return the values of the length-delimited fields with this number."""
    for found, wire_type, value in fields(data):
        if (found, wire_type) == (number, DELIMITED) and isinstance(value, bytes):
            yield value


# Fields -> features.


def entries_of(record: bytes) -> dict[bytes, list[bytes]]:
    """Return the value messages of the last entry of each key."""
    found: dict[bytes, list[bytes]] = {}
    for part in messages(record, 1):
        for pair in messages(part, 1):
            keys = list(messages(pair, 1))
            found[keys[-1] if keys else b""] = list(messages(pair, 2))
    return found


def items_of(kind: Kind, data: bytes) -> list[bytes | int]:
    """Return the values in a *List message; floats as their four bytes."""
    if kind == "bytes":
        return list(messages(data, 1))
    items: list[bytes | int] = []
    one = FIXED32 if kind == "float" else VARINT
    for number, wire_type, value in fields(data):
        if (number, wire_type) == (1, one):
            items.append(signed(value) if isinstance(value, int) else value)
        elif (number, wire_type) == (1, DELIMITED) and isinstance(value, bytes):
            items += unpack(kind, value)
    return items


def unpack(kind: Kind, chunk: bytes) -> list[bytes | int]:
    """Return the numbers in a packed list."""
    items: list[bytes | int] = []
    if kind == "float":
        if len(chunk) % 4:
            raise WireError(len(chunk), "floats that are not 4 bytes each")
        items += [chunk[at : at + 4] for at in range(0, len(chunk), 4)]
        return items
    at = 0
    while at < len(chunk):
        value, at = read_varint(chunk, at)
        items.append(signed(value))
    return items


def signed(value: int) -> int:
    """Return the int64 with these 64 bits."""
    return value - (1 << 64) if value >> 63 else value


def feature_of(values: Sequence[bytes]) -> tuple[Kind, list[bytes | int]] | None:
    """Merge value messages: the last kind replaces others; one kind accumulates."""
    found: tuple[Kind, list[bytes | int]] | None = None
    for message in values:
        for number, wire_type, data in fields(message):
            kind = KIND_OF_FIELD.get(number)
            if kind is None or wire_type != DELIMITED or not isinstance(data, bytes):
                continue
            items = items_of(kind, data)
            found = (kind, found[1] + items if found and found[0] == kind else items)
    return found


def features_of(record: bytes) -> dict[bytes, tuple[Kind, list[bytes | int]] | None]:
    """Return all features of a record, floats as their four bytes."""
    return {key: feature_of(values) for key, values in entries_of(record).items()}


# Features -> cells.


def objects(values: Sequence[bytes], shape: tuple[int, ...]) -> Cell:
    """Return byte strings as an array of objects."""
    array = np.empty(len(values), object)
    for i, value in enumerate(values):
        array[i] = value
    return array.reshape(shape)


def kind_of(dtype: str) -> Kind:
    """Return the kind of list that stores values of this dtype."""
    if dtype in ("bytes", "string"):
        return "bytes"
    return "float" if np.dtype(dtype).kind == "f" else "int64"


def array_of(values: Sequence[Any], dtype: str, shape: tuple[int, ...]) -> Cell:
    """Convert the values of a feature to a column's dtype."""
    kind = kind_of(dtype)
    if kind == "bytes":
        return objects(values, shape)
    if kind == "float":
        with np.errstate(over="ignore"):
            return np.frombuffer(b"".join(values), "<f4").astype(dtype).reshape(shape)
    is_bool = np.dtype(dtype) == np.bool_
    low, high = (0, 1) if is_bool else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if any(not low <= value <= high for value in values):
        raise MismatchError(f"a value does not fit {dtype}")
    return np.array(values, dtype).reshape(shape)


def default_of(want: Fixed | Raw) -> Cell:
    """Return the cell of a missing feature."""
    n_values = math.prod(want.shape)
    if want.default is None or n_values == 0:
        raise MismatchError(f"no value and no default for {want}")
    if isinstance(want, Fixed) and kind_of(want.dtype) == "bytes":
        flat = [want.default] if isinstance(want.default, bytes) else list(want.default)
        return objects(flat, want.shape)
    return np.array(want.default, want.dtype).reshape(want.shape)


def cell_of(want: Fixed | Var | Raw, found: tuple[Kind, list[Any]] | None) -> Cell:
    """Return one cell, or raise MismatchError."""
    dtype = "bytes" if isinstance(want, Raw) else want.dtype
    if found is None:
        if isinstance(want, Var):
            return array_of([], dtype, (0, *want.shape))
        return default_of(want)
    kind, values = found
    if kind != kind_of(dtype):
        raise MismatchError(f"{kind} values, not {dtype}")
    n_values = 1 if isinstance(want, Raw) else math.prod(want.shape)
    if isinstance(want, Var):
        if len(values) % n_values:
            raise MismatchError(
                f"{len(values)} values are not a multiple of {n_values}"
            )
        return array_of(values, dtype, (len(values) // n_values, *want.shape))
    if len(values) != n_values:
        raise MismatchError(f"{len(values)} values, not {n_values}")
    if isinstance(want, Fixed):
        return array_of(values, dtype, want.shape)
    return raw_cell(want, values[0])


def raw_cell(want: Raw, data: bytes) -> Cell:
    """Return a byte string as an array."""
    native = np.dtype(want.dtype)
    if len(data) != math.prod(want.shape) * native.itemsize:
        raise MismatchError(f"{len(data)} bytes for an array of {want.shape}")
    stored = native.newbyteorder("<" if want.little_endian else ">")
    cell: Cell = np.frombuffer(data, stored).astype(native)
    if native == np.bool_:
        cell = np.frombuffer(data, np.uint8) != 0
    return cell.reshape(want.shape)


def decode(record: bytes, spec: Spec) -> dict[str, Cell]:
    """Return the cells of one record, or raise WireError or MismatchError."""
    entries = entries_of(record)
    cells = {}
    for name, want in spec.items():
        key = name.encode() if want.key is None else want.key
        cells[name] = cell_of(want, feature_of(entries.get(key, [])))
    return cells
