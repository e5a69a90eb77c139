"""Schema cache: dicts of specs that are passed again and again -> schemas."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from fastrec.features.base import Spec

_MAX_ENTRIES = 64

T = TypeVar("T")


class SchemaCache(Generic[T]):
    """Creates a schema of dicts of specs once, until the contents of a dict change.

    Parameters
    ----------
    create : callable
        ``create(*sections)`` returns the schema of one or more dicts, which may be None.
    """

    def __init__(self, create: Callable[..., T]) -> None:
        self._create = create
        self._entries: dict[tuple[int, ...], tuple[list[_Contents], T]] = {}

    def __call__(self, *sections: Any) -> T:
        """Return the schema of `sections`."""
        key = tuple(map(id, sections))
        entry = self._entries.get(key)
        if entry is not None and all(map(_Contents.equal, entry[0], sections)):
            return entry[1]
        schema = self._create(*sections)
        if all(section is None or type(section) is dict for section in sections):
            contents = list(map(_Contents, sections))
            # Not equal: some value cannot be compared with a copy of itself.
            if all(map(_Contents.equal, contents, sections)):
                if len(self._entries) >= _MAX_ENTRIES:
                    self._entries.clear()
                self._entries[key] = contents, schema
        return schema


class _Contents:
    """The items of a dict, to detect changes.

    Items are compared by identity: equal specs may differ, such as in the sign of a
    zero. Specs are immutable; other objects, such as those of tf.io, are also compared
    with a copy.
    """

    def __init__(self, section: Mapping[Any, Any] | None) -> None:
        self._is_none = section is None
        items = section or {}
        self._names: Sequence[Any] = list(items)
        self._specs: Sequence[Any] = list(items.values())
        self._copies = [
            (spec, copy.deepcopy(spec))
            for spec in self._specs
            if not isinstance(spec, Spec) and type(spec) is not str
        ]

    def equal(self, section: Mapping[Any, Any] | None) -> bool:
        """Return whether a dict has these items."""
        if section is None or self._is_none:
            return section is None and self._is_none
        return (
            len(section) == len(self._names)
            and all(map(operator.is_, section, self._names))
            and all(map(operator.is_, section.values(), self._specs))
            and (not self._copies or _equal(self._copies))
        )


def _equal(pairs: Sequence[tuple[Any, Any]]) -> bool:
    try:
        return all(value == copied for value, copied in pairs)
    except ValueError:  # values with arrays
        return False
