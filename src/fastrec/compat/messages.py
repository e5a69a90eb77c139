"""The subset of protobuf's messages, repeated fields and maps that `tf_train` needs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, SupportsIndex, TypeVar

from fastrec import _core
from fastrec.features.infer import name_of
from fastrec.features.tensor import field_header

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Message",
    "MessageMap",
    "RecordMessage",
    "Repeated",
    "RepeatedMessage",
    "copied",
    "field",
    "list_bytes",
]

T = TypeVar("T")


# The wire format of single fields. The core encodes the values of lists.


def field(number: int, content: bytes) -> bytes:
    """Return a length-delimited field."""
    return field_header(number, len(content)) + content


def list_bytes(values: Any) -> bytes:  # noqa: ANN401 (an array or BytesArray)
    """Return the serialized message of a non-empty list."""
    example = _core.encode_example({"": values})
    # Features, entry, the empty key, Feature, list: each a tag and a length.
    at = 0
    for _ in range(5):
        at += 1
        while example[at] >= 0x80:
            at += 1
        at += 1
    return example[at:]


class Message:
    """Base class of messages. Fields always exist and are changed in place."""

    # The constructor of each field, in the order of the field numbers.
    _fields: ClassVar[Mapping[str, Callable[[], Any]]] = {}

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401
        self._reset()
        for name, value in fields.items():
            self._check_field(name)
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

    def _reset(self) -> None:
        for name, make in self._fields.items():
            self.__dict__[name] = make()

    def _fill(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Set a field to a value passed to the constructor."""
        getattr(self, name).MergeFrom(value)

    def _present(self) -> list[str]:
        """Return the names of the fields that are set."""
        return [name for name in self._fields if getattr(self, name)]

    def _serialized(self) -> bytes:
        present = self._present()
        return b"".join(
            getattr(self, name)._encoded(number)
            for number, name in enumerate(self._fields, 1)
            if name in present
        )

    def _encoded(self, number: int) -> bytes:
        return field(number, self._serialized())

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        raise NotImplementedError

    def SerializeToString(self, *, deterministic: bool | None = None) -> bytes:  # noqa: ARG002
        """Return the message in wire format, with sorted map entries."""
        return self._serialized()

    def ByteSize(self) -> int:
        """Return the size of the serialized message in bytes."""
        return len(self._serialized())

    @classmethod
    def FromString(cls, data: bytes) -> Self:
        """Parse a serialized message.

        Raises
        ------
        DecodeError
            If the bytes are not such a message.
        """
        content: object = data
        if not isinstance(content, (bytes, bytearray, memoryview)):
            msg = f"a serialized message must be bytes, got {type(data).__name__}"
            raise TypeError(msg)
        return cls._parsed(bytes(content))

    def ParseFromString(self, data: bytes) -> int:
        """Replace the fields by those of a serialized message; return its size."""
        self.CopyFrom(type(self).FromString(data))
        return len(data)

    def CopyFrom(self, other: Self) -> None:
        """Replace the fields by copies of those of another message of this class."""
        self.__dict__.update(copied(other, type(self)).__dict__)

    def Clear(self) -> None:
        """Unset all fields."""
        self._reset()

    def HasField(self, name: str) -> bool:
        """Return whether a singular field is set."""
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


M = TypeVar("M", bound=Message)


class RecordMessage(Message):
    """A message whose fields are messages that may be set or unset."""

    def _reset(self) -> None:
        super()._reset()
        self._assigned: set[str] = set()

    def _fill(self, name: str, value: object) -> None:
        self.__dict__[name] = copied(value, type(getattr(self, name)))
        self._assigned.add(name)

    def _present(self) -> list[str]:
        return [
            name
            for name in self._fields
            if name in self._assigned or getattr(self, name)._present()
        ]


def copied(value: object, wanted: type[M]) -> M:
    """Return a copy of a message, or a message made of a dict of fields."""
    if isinstance(value, dict):
        return wanted(**value)
    if not isinstance(value, wanted):
        kind = type(value).__name__
        msg = f"expected a message of class {wanted.__name__}, got {kind}"
        raise TypeError(msg)
    return copy.deepcopy(value)


# Containers.


class Repeated(list[T], Generic[T]):
    """A repeated field: a list that converts each value or raises.

    `is_touched` reports whether it was ever changed; an empty `extend` counts.
    """

    def __init__(self, convert: Callable[..., T], values: Iterable[Any] = ()) -> None:
        super().__init__()
        self._item_type = convert
        self.is_touched = False
        if values:
            self.extend(values)

    def _convert(self, value: Any) -> T:  # noqa: ANN401
        return self._item_type(value)

    def append(self, value: Any) -> None:  # noqa: ANN401
        """Add a value at the end."""
        self.insert(len(self), value)

    def insert(self, index: SupportsIndex, value: Any) -> None:  # noqa: ANN401
        """Add a value before an index."""
        super().insert(index, self._convert(value))
        self.is_touched = True

    def extend(self, values: Iterable[Any]) -> None:
        """Add values at the end; if one is invalid, add none."""
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
        return type(self), (self._item_type, list(self))


class RepeatedMessage(Repeated[M]):
    """A repeated field of messages."""

    _item_type: type[M]

    def _convert(self, value: object) -> M:
        return copied(value, self._item_type)

    def add(self, **fields: Any) -> M:  # noqa: ANN401
        """Append a message with these fields, and return it."""
        self.append(self._item_type(**fields))
        return self[-1]

    def _encoded(self, number: int) -> bytes:
        return b"".join(message._encoded(number) for message in self)


class MessageMap(dict[Any, M], Generic[M]):
    """A map field: reading an absent entry creates it."""

    def __init__(
        self, value_type: type[M], entries: Mapping[Any, M] | None = None
    ) -> None:
        super().__init__()
        self._value_type = value_type
        self.MergeFrom(entries or {})

    def MergeFrom(self, entries: Any) -> None:  # noqa: ANN401
        """Set copies of the entries of a mapping."""
        if not isinstance(entries, Mapping):
            msg = f"a map must be set from a mapping, got {type(entries).__name__}"
            raise TypeError(msg)
        for key, value in entries.items():
            self._put(key, copied(value, self._value_type))

    def _put(self, key: object, value: M) -> M:
        super().__setitem__(_checked_key(key), value)
        return value

    def __missing__(self, key: object) -> M:
        key = _checked_key(key)
        return self[key] if key in self else self._put(key, self._value_type())

    get_or_create = dict.__getitem__

    def __setitem__(self, key: object, value: object) -> None:
        msg = f"cannot assign to an entry of a map: write [{key!r}].CopyFrom(...)"
        raise ValueError(msg)

    def update(self, *_: object, **__: object) -> None:
        """Raise a ValueError, like protobuf's maps."""
        msg = "cannot assign to entries of a map: write .MergeFrom({...})"
        raise ValueError(msg)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._value_type, dict(self))

    def _encoded(self, number: int) -> bytes:
        named = [(key.encode() if isinstance(key, str) else key, key) for key in self]
        # The order of protobuf: by bytes, a prefix after the longer key.
        named.sort(key=lambda pair: [*pair[0], 256])
        return b"".join(
            field(number, field(1, name) + self[key]._encoded(2)) for name, key in named
        )


def _checked_key(key: object) -> str | bytes:
    if not isinstance(key, (str, bytes)):
        msg = f"a feature's name must be a str, got {type(key).__name__}"
        raise TypeError(msg)
    return name_of(key)
