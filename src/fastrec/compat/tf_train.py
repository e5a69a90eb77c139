"""The messages of tf.train, without TensorFlow or protobuf.

Code that builds or reads a ``tf.train.Example`` by hand runs unchanged:

>>> from fastrec.compat import tf_train as train
>>> def _int64_feature(value):
...     return train.Feature(int64_list=train.Int64List(value=[value]))
>>> features = train.Features(feature={"label": _int64_feature(3)})
>>> record = train.Example(features=features).SerializeToString()
>>> train.Example.FromString(record).features.feature["label"].int64_list.value[0]
3

The classes have the constructors, fields and methods that programs for these messages
use, and raise protobuf's errors: TypeError for a value of another type, ValueError for
an integer that int64 does not hold and for an unknown field, AttributeError for an
assignment to a field. There are four differences. `SerializeToString` is always
deterministic. `FromString` raises `fastrec.DecodeError` for bytes that cannot be read, and
leaves the ``features``, ``context`` or ``feature_lists`` of a record unset if they are
empty. ``Int64List`` accepts bools, as protobuf did before version 7.

`fastrec.encode_example` and `fastrec.decode_example` do the same in one call.
"""

from __future__ import annotations

import copy
import ctypes
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, SupportsIndex, TypeVar

import numpy as np

from fastrec import _core
from fastrec.arrays import BytesArray
from fastrec.inference import name_of
from fastrec.limits import Limits

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

T = TypeVar("T")

_INT64 = range(-(2**63), 2**63)


# The wire format of single fields. The core encodes the values of lists.


def _varint(value: int) -> bytes:
    head = bytearray()
    while value >= 0x80:
        head.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*head, value])


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _list_bytes(values: Any) -> bytes:  # noqa: ANN401 (an array or BytesArray)
    """Return the message of a list that has values."""
    example = _core.encode_example({"": values})
    # Features, entry, the empty key, Feature, list: each a tag and a length.
    at = 0
    for _ in range(5):
        at += 1
        while example[at] >= 0x80:
            at += 1
        at += 1
    return example[at:]


class _Checked(list[T], Generic[T]):
    """A repeated field: a list that converts or refuses whatever is put into it.

    `is_touched` is whether anything was ever put into it, also nothing.
    """

    def __init__(self, convert: Callable[[Any], T], values: Iterable[Any] = ()) -> None:
        super().__init__()
        self._convert = convert
        self.is_touched = False
        if values:
            self.extend(values)

    def append(self, value: Any) -> None:  # noqa: ANN401
        super().append(self._convert(value))
        self.is_touched = True

    def insert(self, index: SupportsIndex, value: Any) -> None:  # noqa: ANN401
        super().insert(index, self._convert(value))
        self.is_touched = True

    def extend(self, values: Iterable[Any]) -> None:
        try:
            items = iter(values)
        except TypeError:
            msg = f"a repeated field must be set from an iterable, got {values!r}"
            raise TypeError(msg) from None
        super().extend([self._convert(value) for value in items])
        self.is_touched = True

    MergeFrom = extend

    def __iadd__(self, values: Iterable[Any]) -> Self:  # type: ignore[misc, override]
        self.extend(values)
        return self

    def __setitem__(self, index: Any, value: Any) -> None:  # noqa: ANN401
        if isinstance(index, slice):
            value = [self._convert(item) for item in value]
        else:
            value = self._convert(value)
        super().__setitem__(index, value)
        self.is_touched = True

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._convert, list(self))


class _Message:
    """What all messages have."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **fields: object) -> None:
        for name in fields:
            self._check_field(name)
        for name, value in fields.items():
            if value is not None:
                self._fill(name, value)

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_"):
            msg = f"cannot assign to {type(self).__name__}.{name}: change it in place"
            raise AttributeError(msg)
        super().__setattr__(name, value)

    def _check_field(self, name: str) -> None:
        if name not in self._fields:
            msg = f"{type(self).__name__} has no field {name!r}"
            raise ValueError(msg)

    def _fill(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Set a field from what the constructor was given."""
        raise NotImplementedError

    def _present(self) -> list[str]:
        """Return the names of the fields that are set."""
        return [name for name in self._fields if getattr(self, name)]

    def _serialized(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        raise NotImplementedError

    def SerializeToString(self, *, deterministic: bool | None = None) -> bytes:  # noqa: ARG002
        """Return the message in wire format, with map entries in protobuf's fixed order."""
        return self._serialized()

    def ByteSize(self) -> int:
        """Return the size of the serialized message in bytes."""
        return len(self._serialized())

    @classmethod
    def FromString(cls, data: bytes) -> Self:
        """Return the message that `data` holds.

        Raises
        ------
        DecodeError
            If the bytes cannot be read.
        """
        given: object = data
        if not isinstance(given, (bytes, bytearray, memoryview)):
            msg = f"a serialized message must be bytes, got {type(data).__name__}"
            raise TypeError(msg)
        return cls._parsed(bytes(given))

    def ParseFromString(self, data: bytes) -> int:
        """Replace the contents by the message that `data` holds; return its size."""
        self.CopyFrom(type(self).FromString(data))
        return len(data)

    def CopyFrom(self, other: Self) -> None:
        """Replace the contents by a copy of another message of the same class."""
        _check_class(other, type(self))
        self.__dict__.update(copy.deepcopy(other.__dict__))

    def Clear(self) -> None:
        """Unset all fields."""
        self.CopyFrom(type(self)())

    def HasField(self, name: str) -> bool:
        """Return whether a field that holds one message is set."""
        self._check_field(name)
        return name in self._present()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._serialized() == other._serialized()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name in self._present()]
        return f"{type(self).__name__}({', '.join(parts)})"


def _check_class(value: object, wanted: type) -> None:
    if not isinstance(value, wanted):
        msg = (
            f"expected a message of class {wanted.__name__}, got {type(value).__name__}"
        )
        raise TypeError(msg)


M = TypeVar("M", bound=_Message)


def _copied(value: object, wanted: type[M]) -> M:
    """Return a copy of a message, which may also be given as a dict of its fields."""
    if isinstance(value, dict):
        return wanted(**value)
    _check_class(value, wanted)
    return copy.deepcopy(value)  # type: ignore[return-value]


# Lists of values.


class _List(_Message, Generic[T]):
    """A list of values of one kind."""

    _fields = ("value",)
    _number: ClassVar[int] = 0  # of the field of a Feature

    def __init__(
        self, *, value: Iterable[Any] | None = None, **unknown: object
    ) -> None:
        self._value: _Checked[T] = _Checked(self._convert)
        super().__init__(value=value, **unknown)

    @staticmethod
    def _convert(value: Any) -> T:  # noqa: ANN401
        raise NotImplementedError

    @staticmethod
    def _array(values: list[T]) -> Any:  # noqa: ANN401
        raise NotImplementedError

    def _fill(self, name: str, value: Any) -> None:  # noqa: ANN401, ARG002
        self._value.extend(value)

    @property
    def value(self) -> _Checked[T]:
        """The values; read and changed as a list is."""
        return self._value

    def HasField(self, name: str) -> bool:
        """Raise ValueError: a repeated field is neither set nor unset."""
        self._check_field(name)
        msg = f"{type(self).__name__}.{name} is repeated: it has no presence"
        raise ValueError(msg)

    def CopyFrom(self, other: Self) -> None:
        """Replace the values by a copy of another list's."""
        super().CopyFrom(other)
        self._value.is_touched = True

    def _serialized(self) -> bytes:
        return _list_bytes(self._array(self._value)) if self._value else b""

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        feature = Feature.FromString(_field(cls._number, data))
        found = feature._list
        return found if isinstance(found, cls) else cls()


class BytesList(_List[bytes]):
    """A list of byte strings."""

    _number = 1

    @staticmethod
    def _convert(value: Any) -> bytes:  # noqa: ANN401
        if not isinstance(value, bytes):
            msg = f"a value of BytesList must be bytes, got {type(value).__name__}"
            if isinstance(value, str):
                msg += ": encode it with .encode()"
            raise TypeError(msg)
        return bytes(value)

    @staticmethod
    def _array(values: list[bytes]) -> BytesArray:
        return BytesArray.from_list(values)


class FloatList(_List[float]):
    """A list of float32 numbers."""

    _number = 2

    @staticmethod
    def _convert(value: Any) -> float:  # noqa: ANN401
        if isinstance(value, np.ndarray) or not hasattr(value, "__float__"):
            msg = f"a value of FloatList must be a number, got {type(value).__name__}"
            raise TypeError(msg)
        return ctypes.c_float(float(value)).value  # rounded to float32

    @staticmethod
    def _array(values: list[float]) -> Any:  # noqa: ANN401
        return np.array(values, np.float32)


class Int64List(_List[int]):
    """A list of int64 numbers."""

    _number = 3

    @staticmethod
    def _convert(value: Any) -> int:  # noqa: ANN401
        if isinstance(value, np.bool_):
            return int(value)
        try:
            number = int(operator.index(value))
        except TypeError:
            kind = type(value).__name__
            msg = f"a value of Int64List must be an integer, got {kind}"
            raise TypeError(msg) from None
        if number not in _INT64:
            msg = f"a value of Int64List must fit int64, got {number}"
            raise ValueError(msg)
        return number

    @staticmethod
    def _array(values: list[int]) -> Any:  # noqa: ANN401
        return np.array(values, np.int64)


_KINDS: dict[str, type[_List[Any]]] = {
    "bytes_list": BytesList,
    "float_list": FloatList,
    "int64_list": Int64List,
}


class Feature(_Message):
    """A list of values of one of three kinds, or none."""

    _fields = tuple(_KINDS)

    def __init__(self, **lists: Any) -> None:  # noqa: ANN401
        self._kind: str | None = None
        self._lists: dict[str, _List[Any]] = {}
        super().__init__(**lists)  # of several, the last counts

    @classmethod
    def _of(cls, values: Any) -> Self:  # noqa: ANN401
        """Return the feature that holds an array, a BytesArray, or None."""
        if values is None:
            return cls()
        if isinstance(values, BytesArray):
            return cls(bytes_list=BytesList(value=values.tolist()))
        if values.dtype == np.int64:
            return cls(int64_list=Int64List(value=values.tolist()))
        return cls(float_list=FloatList(value=values.tolist()))

    def _fill(self, name: str, value: Any) -> None:  # noqa: ANN401
        self._kind, self._lists = name, {name: _copied(value, _KINDS[name])}

    def _settle(self) -> None:
        """Make the list that was changed last the only one."""
        for name, values in self._lists.items():
            if name != self._kind and values._value.is_touched:
                self._kind, self._lists = name, {name: values}
                return

    @property
    def _list(self) -> _List[Any] | None:
        """The list that is set."""
        self._settle()
        return None if self._kind is None else self._lists[self._kind]

    def _list_of(self, name: str) -> Any:  # noqa: ANN401
        self._settle()
        return self._lists.setdefault(name, _KINDS[name]())

    @property
    def bytes_list(self) -> BytesList:
        """The byte strings; changing them makes this the kind of the feature."""
        found: BytesList = self._list_of("bytes_list")
        return found

    @property
    def float_list(self) -> FloatList:
        """The float32 numbers; changing them makes this the kind of the feature."""
        found: FloatList = self._list_of("float_list")
        return found

    @property
    def int64_list(self) -> Int64List:
        """The int64 numbers; changing them makes this the kind of the feature."""
        found: Int64List = self._list_of("int64_list")
        return found

    def WhichOneof(self, group: str) -> str | None:
        """Return the name of the list that is set, if any; `group` is "kind"."""
        if group != "kind":
            msg = f'a Feature has the oneof "kind", got {group!r}'
            raise ValueError(msg)
        self._settle()
        return self._kind

    def _present(self) -> list[str]:
        self._settle()
        return [] if self._kind is None else [self._kind]

    def _serialized(self) -> bytes:
        found = self._list
        return b"" if found is None else _field(found._number, found._serialized())

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        # An entry without a key, which is the empty key.
        features = Features.FromString(_field(1, _field(2, data)))
        return _copied(features.feature[""], cls)


# Maps and lists of features.


class _Map(dict[Any, M], Generic[M]):
    """A map field: reading an entry that is absent makes it."""

    def __init__(self, made: type[M], entries: Any = ()) -> None:  # noqa: ANN401
        super().__init__()
        self._made = made
        self.MergeFrom(entries)

    def MergeFrom(self, entries: Any) -> None:  # noqa: ANN401
        """Set copies of the entries of a mapping."""
        if not isinstance(entries, Mapping):
            entries = dict(entries)
        for key, value in entries.items():
            self._put(key, _copied(value, self._made))

    def _put(self, key: object, value: M) -> M:
        super().__setitem__(_checked_key(key), value)
        return value

    def __missing__(self, key: object) -> M:
        key = _checked_key(key)
        return self[key] if key in self else self._put(key, self._made())

    get_or_create = dict.__getitem__

    def __setitem__(self, key: object, value: object) -> None:
        msg = f"cannot assign to an entry of a map: write [{key!r}].CopyFrom(...)"
        raise ValueError(msg)

    def update(self, *_: object, **__: object) -> None:
        msg = "cannot assign to entries of a map: write .MergeFrom({...})"
        raise ValueError(msg)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._made, dict(self))

    def _serialized(self) -> bytes:
        named = [(key.encode() if isinstance(key, str) else key, key) for key in self]
        # protobuf's order: by bytes, and a key after those that it begins.
        named.sort(key=lambda pair: [*pair[0], 256])
        return b"".join(
            _field(1, _field(1, name) + _field(2, self[key]._serialized()))
            for name, key in named
        )


def _checked_key(key: object) -> str | bytes:
    if not isinstance(key, (str, bytes)):
        msg = f"a feature's name must be a str, got {type(key).__name__}"
        raise TypeError(msg)
    return name_of(key)


def _decoded(data: bytes, *, is_sequence: bool) -> tuple[list[Any], list[Any]]:
    return _core.decode_message(data, is_sequence, Limits().features)


class Features(_Message):
    """Features by name."""

    _fields = ("feature",)

    def __init__(
        self, *, feature: Mapping[str, Feature] | None = None, **unknown: object
    ) -> None:
        self._feature: _Map[Feature] = _Map(Feature)
        super().__init__(feature=feature, **unknown)

    def _fill(self, name: str, value: Any) -> None:  # noqa: ANN401, ARG002
        _check_mapping(value)
        self._feature.MergeFrom(value)

    @property
    def feature(self) -> _Map[Feature]:
        """The features; reading one that is absent makes it."""
        return self._feature

    def _serialized(self) -> bytes:
        return self._feature._serialized()

    @classmethod
    def _of(cls, decoded: Iterable[tuple[bytes, Any]]) -> Self:
        return cls(feature={name_of(k): Feature._of(values) for k, values in decoded})  # type: ignore[misc]

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        return cls._of(_decoded(_field(1, data), is_sequence=False)[0])


class FeatureList(_Message):
    """The steps of a feature list."""

    _fields = ("feature",)

    def __init__(
        self, *, feature: Iterable[Feature] | None = None, **unknown: object
    ) -> None:
        self._feature = _Steps(_as_feature)
        super().__init__(feature=feature, **unknown)

    def _fill(self, name: str, value: Any) -> None:  # noqa: ANN401, ARG002
        self._feature.extend(value)

    @property
    def feature(self) -> _Steps:
        """The steps, as a list; ``add()`` appends a new one and returns it."""
        return self._feature

    def _serialized(self) -> bytes:
        return b"".join(_field(1, step._serialized()) for step in self._feature)

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        lists = FeatureLists.FromString(_field(1, _field(2, data)))
        return _copied(lists.feature_list[""], cls)


def _as_feature(value: object) -> Feature:
    return _copied(value, Feature)


class _Steps(_Checked[Feature]):
    """A repeated field of features."""

    def add(self, **fields: Any) -> Feature:  # noqa: ANN401
        """Append a feature with these fields, and return it."""
        self.append(Feature(**fields))
        return self[-1]


class FeatureLists(_Message):
    """Feature lists by name."""

    _fields = ("feature_list",)

    def __init__(
        self,
        *,
        feature_list: Mapping[str, FeatureList] | None = None,
        **unknown: object,
    ) -> None:
        self._feature_list: _Map[FeatureList] = _Map(FeatureList)
        super().__init__(feature_list=feature_list, **unknown)

    def _fill(self, name: str, value: Any) -> None:  # noqa: ANN401, ARG002
        _check_mapping(value)
        self._feature_list.MergeFrom(value)

    @property
    def feature_list(self) -> _Map[FeatureList]:
        """The lists; reading one that is absent makes it."""
        return self._feature_list

    def _serialized(self) -> bytes:
        return self._feature_list._serialized()

    @classmethod
    def _of(cls, decoded: Iterable[tuple[bytes, Any]]) -> Self:
        lists: Any = {
            name_of(key): FeatureList(feature=map(Feature._of, steps))
            for key, steps in decoded
        }
        return cls(feature_list=lists)

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        return cls._of(_decoded(_field(2, data), is_sequence=True)[1])


def _check_mapping(value: object) -> None:
    if not isinstance(value, Mapping):
        msg = f"a map must be set from a mapping, got {type(value).__name__}"
        raise TypeError(msg)


# Records.


class _Record(_Message):
    """A message of messages, each of which may be set or not."""

    _classes: ClassVar[tuple[type[Any], ...]] = ()

    def __init__(self, **parts: object) -> None:
        self._parts: dict[str, Any] = {
            name: made() for name, made in zip(self._fields, self._classes, strict=True)
        }
        self._given: set[str] = set()
        super().__init__(**parts)

    def _fill(self, name: str, value: Any) -> None:  # noqa: ANN401
        self._parts[name] = _copied(value, type(self._parts[name]))
        self._given.add(name)

    def _present(self) -> list[str]:
        return [
            name
            for name, part in self._parts.items()
            if name in self._given or part._present()
        ]

    def _serialized(self) -> bytes:
        present = self._present()
        return b"".join(
            _field(number, self._parts[name]._serialized())
            for number, name in enumerate(self._fields, 1)
            if name in present
        )


class Example(_Record):
    """A record of features."""

    _fields = ("features",)
    _classes = (Features,)

    @property
    def features(self) -> Features:
        """The features."""
        found: Features = self._parts["features"]
        return found

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        features, _ = _decoded(data, is_sequence=False)
        return cls(features=Features._of(features) if features else None)


class SequenceExample(_Record):
    """A record of a context and of feature lists."""

    _fields = ("context", "feature_lists")
    _classes = (Features, FeatureLists)

    @property
    def context(self) -> Features:
        """The features of the record as a whole."""
        found: Features = self._parts["context"]
        return found

    @property
    def feature_lists(self) -> FeatureLists:
        """The feature lists."""
        found: FeatureLists = self._parts["feature_lists"]
        return found

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        context, lists = _decoded(data, is_sequence=True)
        return cls(
            context=Features._of(context) if context else None,
            feature_lists=FeatureLists._of(lists) if lists else None,
        )
