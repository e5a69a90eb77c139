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

import ctypes
import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from fastrec import _core
from fastrec.arrays.batch import BytesArray
from fastrec.compat.messages import (
    Message,
    MessageMap,
    Repeated,
    copied,
    field,
    list_bytes,
)
from fastrec.features.infer import name_of
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


class _List(Message, Generic[T]):
    """A list of values of one kind."""

    _fields = ("value",)
    _number: ClassVar[int] = 0  # of the field of a Feature

    def __init__(
        self, *, value: Iterable[Any] | None = None, **unknown: object
    ) -> None:
        self._value: Repeated[T] = Repeated(self._convert)
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
    def value(self) -> Repeated[T]:
        """The values; read and changed as a list is."""
        return self._value

    def CopyFrom(self, other: Self) -> None:
        """Replace the values by a copy of another list's."""
        super().CopyFrom(other)
        self._value.is_touched = True

    def _serialized(self) -> bytes:
        return list_bytes(self._array(self._value)) if self._value else b""

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        feature = Feature.FromString(field(cls._number, data))
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


class Feature(Message):
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
        self._kind, self._lists = name, {name: copied(value, _KINDS[name])}

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
        return b"" if found is None else field(found._number, found._serialized())

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        # An entry without a key, which is the empty key.
        features = Features.FromString(field(1, field(2, data)))
        return copied(features.feature[""], cls)


# Maps and lists of features.


def _decoded(data: bytes, *, is_sequence: bool) -> tuple[list[Any], list[Any]]:
    return _core.decode_message(data, is_sequence, Limits().features)


class Features(Message):
    """Features by name."""

    _fields = ("feature",)

    def __init__(
        self, *, feature: Mapping[str, Feature] | None = None, **unknown: object
    ) -> None:
        self._feature: MessageMap[Feature] = MessageMap(Feature)
        super().__init__(feature=feature, **unknown)

    def _fill(self, name: str, value: Any) -> None:  # noqa: ANN401, ARG002
        self._feature.MergeFrom(value)

    @property
    def feature(self) -> MessageMap[Feature]:
        """The features; reading one that is absent makes it."""
        return self._feature

    def _serialized(self) -> bytes:
        return self._feature._serialized()

    @classmethod
    def _of(cls, decoded: Iterable[tuple[bytes, Any]]) -> Self:
        return cls(feature={name_of(k): Feature._of(values) for k, values in decoded})  # type: ignore[misc]

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        return cls._of(_decoded(field(1, data), is_sequence=False)[0])


class FeatureList(Message):
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
        return b"".join(field(1, step._serialized()) for step in self._feature)

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        lists = FeatureLists.FromString(field(1, field(2, data)))
        return copied(lists.feature_list[""], cls)


def _as_feature(value: object) -> Feature:
    return copied(value, Feature)


class _Steps(Repeated[Feature]):
    """A repeated field of features."""

    def add(self, **fields: Any) -> Feature:  # noqa: ANN401
        """Append a feature with these fields, and return it."""
        self.append(Feature(**fields))
        return self[-1]


class FeatureLists(Message):
    """Feature lists by name."""

    _fields = ("feature_list",)

    def __init__(
        self,
        *,
        feature_list: Mapping[str, FeatureList] | None = None,
        **unknown: object,
    ) -> None:
        self._feature_list: MessageMap[FeatureList] = MessageMap(FeatureList)
        super().__init__(feature_list=feature_list, **unknown)

    def _fill(self, name: str, value: Any) -> None:  # noqa: ANN401, ARG002
        self._feature_list.MergeFrom(value)

    @property
    def feature_list(self) -> MessageMap[FeatureList]:
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
        return cls._of(_decoded(field(2, data), is_sequence=True)[1])


# Records.


class _Record(Message):
    """A message of messages, each of which may be set or not."""

    _classes: ClassVar[tuple[type[Any], ...]] = ()

    def __init__(self, **parts: object) -> None:
        self._parts: dict[str, Any] = {
            name: made() for name, made in zip(self._fields, self._classes, strict=True)
        }
        self._given: set[str] = set()
        super().__init__(**parts)

    def _fill(self, name: str, value: Any) -> None:  # noqa: ANN401
        self._parts[name] = copied(value, type(self._parts[name]))
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
            field(number, self._parts[name]._serialized())
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
