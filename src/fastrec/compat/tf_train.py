"""Drop-in replacement for the messages of tf.train, without TensorFlow or protobuf.

Code that builds or reads a ``tf.train.Example`` by hand runs unchanged:

>>> from fastrec.compat import tf_train as train
>>> def _int64_feature(value):
...     return train.Feature(int64_list=train.Int64List(value=[value]))
>>> features = train.Features(feature={"label": _int64_feature(3)})
>>> record = train.Example(features=features).SerializeToString()
>>> train.Example.FromString(record).features.feature["label"].int64_list.value[0]
3

The classes have protobuf's constructors, fields and common methods, and raise protobuf's
errors: TypeError for a value of the wrong type, ValueError for an integer out of range
and for an unknown field, AttributeError for an assignment to a field. There are four
differences:

* `SerializeToString` is always deterministic.
* `FromString` raises `fastrec.DecodeError` for invalid bytes.
* `FromString` leaves empty ``features``, ``context`` and ``feature_lists`` unset.
* ``Int64List`` accepts bools, like protobuf before version 7.

`fastrec.encode_example` and `fastrec.decode_example` do the same in one call.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from fastrec import _core
from fastrec.arrays.batch import BytesArray
from fastrec.compat.messages import (
    Message,
    MessageMap,
    RecordMessage,
    Repeated,
    RepeatedMessage,
    copied,
    field,
    list_bytes,
)
from fastrec.options import Limits

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "BytesList",
    "Example",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FloatList",
    "Int64List",
    "SequenceExample",
]

_INT64 = range(-(2**63), 2**63)

T = TypeVar("T")


# Lists of values.


def _as_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        msg = f"BytesList values must be bytes, got {type(value).__name__}"
        if isinstance(value, str):
            msg += "; encode it with .encode()"
        raise TypeError(msg)
    return bytes(value)


def _as_float(value: Any) -> float:  # noqa: ANN401
    if isinstance(value, np.ndarray) or not hasattr(value, "__float__"):
        msg = f"FloatList values must be numbers, got {type(value).__name__}"
        raise TypeError(msg)
    return ctypes.c_float(float(value)).value  # rounded to float32


def _as_int(value: Any) -> int:  # noqa: ANN401
    try:
        number = int(value if isinstance(value, np.bool_) else operator.index(value))
    except TypeError:
        msg = f"Int64List values must be integers, got {type(value).__name__}"
        raise TypeError(msg) from None
    if number not in _INT64:
        msg = f"Int64List values must fit int64, got {number}"
        raise ValueError(msg)
    return number


class _List(Message, Generic[T]):
    """Base class of the value lists."""

    value: Repeated[T]
    _number: ClassVar[int]  # the field number in Feature

    @staticmethod
    def _array(values: list[Any]) -> Any:  # noqa: ANN401
        raise NotImplementedError

    def CopyFrom(self, other: Self) -> None:
        """Replace the values by a copy of those of another list."""
        super().CopyFrom(other)
        self.value.is_touched = True

    def _serialized(self) -> bytes:
        return list_bytes(self._array(self.value)) if self.value else b""

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        feature = Feature.FromString(field(cls._number, data))
        values = getattr(feature, feature.WhichOneof("kind") or "", None)
        return values if isinstance(values, cls) else cls()


class BytesList(_List[bytes]):
    """A list of byte strings, ``value``."""

    _number = 1
    _fields: ClassVar = {"value": partial(Repeated, _as_bytes)}
    _array = staticmethod(BytesArray.from_list)


class FloatList(_List[float]):
    """A list of float32 numbers, ``value``."""

    _number = 2
    _fields: ClassVar = {"value": partial(Repeated, _as_float)}
    _array = staticmethod(partial(np.array, dtype=np.float32))


class Int64List(_List[int]):
    """A list of int64 numbers, ``value``."""

    _number = 3
    _fields: ClassVar = {"value": partial(Repeated, _as_int)}
    _array = staticmethod(partial(np.array, dtype=np.int64))


class Feature(Message):
    """A oneof of three value lists, which may be unset.

    Attributes
    ----------
    bytes_list : BytesList
    float_list : FloatList
    int64_list : Int64List
        Changing one list unsets the others.
    """

    bytes_list: BytesList
    float_list: FloatList
    int64_list: Int64List
    _fields: ClassVar[dict[str, type[_List[Any]]]] = {
        "bytes_list": BytesList,
        "float_list": FloatList,
        "int64_list": Int64List,
    }

    def _reset(self) -> None:
        self._kind: str | None = None
        self._lists: dict[str, _List[Any]] = {}

    @classmethod
    def _of(cls, values: Any) -> Self:  # noqa: ANN401
        """Return a feature that holds an array, a BytesArray, or nothing for None."""
        if values is None:
            return cls()
        if isinstance(values, BytesArray):
            return cls(bytes_list=BytesList(value=values.tolist()))
        if values.dtype == np.int64:
            return cls(int64_list=Int64List(value=values.tolist()))
        return cls(float_list=FloatList(value=values.tolist()))

    def _fill(self, name: str, value: object) -> None:
        self._kind, self._lists = name, {name: copied(value, self._fields[name])}

    def _settle(self) -> None:
        """Keep only the list that was changed last."""
        for name, values in self._lists.items():
            if name != self._kind and values.value.is_touched:
                self._kind, self._lists = name, {name: values}
                return

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name not in Feature._fields:
            raise AttributeError(f"Feature has no attribute {name!r}")
        self._settle()
        return self._lists.setdefault(name, self._fields[name]())

    def WhichOneof(self, group: str) -> str | None:
        """Return the name of the list that is set, or None; `group` must be "kind"."""
        if group != "kind":
            msg = f'group must be "kind", the only oneof of Feature, got {group!r}'
            raise ValueError(msg)
        return next(iter(self._present()), None)

    def _present(self) -> list[str]:
        self._settle()
        return [] if self._kind is None else [self._kind]

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        # Parse it as the entry of a map; without a key, the key is empty.
        features = Features.FromString(field(1, field(2, data)))
        return copied(features.feature[""], cls)


# Maps and lists of features.


def _decoded(
    data: bytes, *, is_sequence: bool
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    return _core.decode_message(data, is_sequence, Limits().max_features)


class Features(Message):
    """A map of features by name, ``feature``; reading an absent entry creates it."""

    feature: MessageMap[Feature]
    _fields: ClassVar = {"feature": partial(MessageMap, Feature)}

    @classmethod
    def _of(cls, decoded: Mapping[str | bytes, Any]) -> Self:
        return cls(feature={k: Feature._of(values) for k, values in decoded.items()})

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        return cls._of(_decoded(field(1, data), is_sequence=False)[0])


class FeatureList(Message):
    """The steps of a feature list, ``feature``; ``feature.add()`` appends a new one."""

    feature: RepeatedMessage[Feature]
    _fields: ClassVar = {"feature": partial(RepeatedMessage, Feature)}

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        lists = FeatureLists.FromString(field(1, field(2, data)))
        return copied(lists.feature_list[""], cls)


class FeatureLists(Message):
    """A map of lists by name, ``feature_list``; reading an absent entry creates it."""

    feature_list: MessageMap[FeatureList]
    _fields: ClassVar = {"feature_list": partial(MessageMap, FeatureList)}

    @classmethod
    def _of(cls, decoded: Mapping[str | bytes, Any]) -> Self:
        lists = {
            name: FeatureList(feature=map(Feature._of, steps))
            for name, steps in decoded.items()
        }
        return cls(feature_list=lists)

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        return cls._of(_decoded(field(2, data), is_sequence=True)[1])


# Records.


class _Record(RecordMessage):
    _fields: ClassVar[dict[str, Any]]

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        parts = _decoded(data, is_sequence=len(cls._fields) > 1)
        fields = zip(cls._fields.items(), parts, strict=False)
        return cls(**{name: kind._of(part) for (name, kind), part in fields if part})


class Example(_Record):
    """A tf.train.Example: a record of ``features``."""

    features: Features
    _fields: ClassVar = {"features": Features}


class SequenceExample(_Record):
    """A tf.train.SequenceExample: ``context`` features and ``feature_lists``."""

    context: Features
    feature_lists: FeatureLists
    _fields: ClassVar = {"context": Features, "feature_lists": FeatureLists}
